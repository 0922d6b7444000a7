"""The target: what carries out the work of an occurrence once it was admitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from noonmark.core.interruption import interrupted_at

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.reasons import Reason
    from noonmark.core.schedule import Schedule
    from noonmark.core.settlement import Accepted, Delivered, Underway


class Signal(Protocol):
    """What a run looks at to see whether it should end early."""

    def set(self) -> None:
        """From now on it should."""


@dataclass(slots=True, eq=False)
class Assignment:
    """One delivery: what to do, when to begin, whether to stop. A target reports its end once."""

    occurrence: Occurrence
    schedule: Schedule
    begins: Micros
    """Not before this instant, by the node's clock."""
    started: Micros | None = None
    stop_reason: Reason | None = None
    """Why it was asked to stop, if it was."""
    signal: Signal | None = None
    """Made by the target, when the run can look at one."""
    result: object = None
    """What the work returned, for a caller in the same process."""
    error: BaseException | None = None
    """What the work raised, for a caller in the same process."""
    abandoned: int = 0
    """How many threads the node had given up, this one's included, when it had to give up its thread."""
    ends_soon: bool = False
    """Its target can make it end, and reports that soon after it was asked to; until then it is at work."""
    is_closed: bool = False
    """Its end was reported; whatever it still does is of no account."""

    def stop(self, reason: Reason) -> None:
        """Ask it to end early; the first reason counts."""
        self.stop_reason = self.stop_reason or reason
        if self.signal is not None:
            self.signal.set()

    def ends_by(self, started: Micros) -> Micros | None:
        """When it has to be over, if it began then: at its timeout, or when its window closes."""
        declared = self.schedule.declaration
        ends = [] if declared.timeout is None else [started + declared.timeout]
        if (closes := interrupted_at(self.occurrence, declared)) is not None:
            ends.append(closes)
        return min(ends, default=None)

    def is_timeout(self, ended: Micros) -> bool:
        """Whether it was its timeout that ended it, not the window."""
        timeout = self.schedule.declaration.timeout
        return timeout is not None and self.started is not None and ended >= self.started + timeout


if TYPE_CHECKING:
    Report = Callable[[Assignment, Delivered | Accepted | Underway], None]


class Target(Protocol):
    """One kind of work, or several."""

    def routes(self) -> Collection[str]:
        """What it can serve at present."""

    def adopt(self, routes: Collection[str]) -> bool:
        """Serve what it can of these as well; whether that is more than before."""

    def open(self, report: Report, now: Callable[[], Micros]) -> None:
        """Make ready. `report` may be called from any thread; `now` is the node's time.

        The end of each assignment is reported once, and nothing after it; before it, what it has put out so far may be,
        as often as there is more, but no more than once a second.
        """

    def deliver(self, assignments: Sequence[Assignment]) -> None:
        """Begin each at its time, and report how it ended. Returns at once, and never raises for one of them."""

    def withdraw(self) -> list[Assignment]:
        """Give up what has surely not begun; it is not reported any more."""

    def close(self) -> None:
        """Begin nothing more, and let go of what is idle. What still runs is not waited for."""
