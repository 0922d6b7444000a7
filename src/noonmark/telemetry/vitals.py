"""Vitals: what can be seen of a worker from outside, at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """How a worker is; without one, nothing runs and nobody is known to lead."""

    node: str = ""
    is_wanted: bool = False
    """It was started, and nobody has stopped it."""
    is_running: bool = False
    claimed: int = 0
    delivering: int = 0
    abandoned: int = 0
    """Threads that still run what has timed out."""
    leader: str | None = None
    """Who led when it last heard of a leader, unless that was too long ago to mean anything."""
    leads: bool = False
    term: int = 0


class Watched(Protocol):
    """A worker that can be looked at."""

    def vitals(self) -> Vitals:
        """How it is now; from any thread, and at once."""
