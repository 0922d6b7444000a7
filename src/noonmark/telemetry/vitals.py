"""Vitals: what can be seen of a worker from outside, at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from noonmark.core.instants import Micros


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
    clock_ahead: Micros | None = None
    """By how much the store's time leapt ahead, while nothing bears that out; None when the time is good."""
    failing: tuple[str, ...] = ()
    """The duties that fail over and over, each with its last error."""
    idle_for: Micros = 0
    """How long ago it last claimed anything, or was too full to."""


class Watched(Protocol):
    """A worker that can be looked at."""

    def vitals(self) -> Vitals:
        """How it is now; from any thread, and at once."""
