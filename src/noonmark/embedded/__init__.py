"""The scheduler in your own process: one import, no server."""

from noonmark.embedded.scheduler import Scheduler

__all__ = ["Scheduler"]
