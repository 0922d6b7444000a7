"""For your tests: a fake clock, a manual driver, and the conformance suite for stores."""

from noonmark.testing.clock import FakeClock
from noonmark.testing.manual import ManualDriver

__all__ = ["FakeClock", "ManualDriver"]
