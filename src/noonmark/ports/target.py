"""The target: what carries out the work of an admitted occurrence."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from noonmark.core.ids import stored_id
from noonmark.core.interruption import interrupted_at
from noonmark.core.reasons import Reason
from noonmark.core.settlement import run_key
from noonmark.core.trace_context import traceparent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from noonmark.core.budgets.spend import Usage
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.core.settlement import Accepted, Delivered, RunInProgress, Suspended
    from noonmark.ports.traces import Traces


class Signal(Protocol):
    """Whether a run should end early."""

    def set(self) -> None:
        """Ask it to end."""


class ReportedUsage(Protocol):
    """What a run has reported to have used."""

    @property
    def all(self) -> tuple[Usage, ...]:
        """The usage of each model so far."""


@dataclass(slots=True, eq=False)
class Assignment:
    """One delivery: what to do, when to begin, whether to stop. The target reports its end once."""

    occurrence: Occurrence
    schedule: Schedule
    begins: Micros
    """Begin no earlier than this, by the node's clock."""
    started: Micros | None = None
    stop_reason: Reason | None = None
    """The reason of a stop request, if any."""
    signal: Signal | None = None
    """Set by the target if the run can check one."""
    give_up: Callable[[], None] | None = None
    """Set by the target if the run cannot be killed, and must not be waited for when another one replaces it."""
    result: object = None
    """The return value, for a caller in the same process."""
    error: BaseException | None = None
    """The exception, for a caller in the same process."""
    abandoned: int = 0
    """The number of abandoned threads of the node, this one included, if its thread was abandoned."""
    progress: Callable[[dict[str, Any]], None] | None = None
    """Set by the target if the process of the run reports progress: takes its `fraction` and `message`."""
    upstream: Mapping[str, Mapping[str, Any]] | None = None
    """The name and the result of each schedule that a function depends on, by id."""
    ends_soon: bool = False
    """The target can stop it and reports that soon after a request; until then it runs."""
    is_closed: bool = False
    """Its end was reported; what it still does is ignored."""
    traces: Traces | None = None
    """Records its run, if the node records traces."""
    report_to: Report | None = None
    """Takes its reports instead of the node: it is a step of a workflow that the node delivers."""
    step_errors: dict[tuple[str, int | None], BaseException] | None = None
    """The exceptions of the steps of a workflow, for a caller in the same process."""
    usage: ReportedUsage | None = None
    """What the run reports to have used; None if it has nothing to report."""

    @property
    def traceparent(self) -> str:
        """The trace context that it hands on to what it calls."""
        is_recorded = self.traces is not None and self.traces.is_recorded(stored_id(self.occurrence.id))
        return traceparent(self.occurrence.id, run_key(self.occurrence), is_recorded=is_recorded)

    def traced(self) -> AbstractContextManager[None]:
        """Make spans that its function begins children of its run."""
        return nullcontext() if self.traces is None else self.traces.run(self.occurrence)

    def stop(self, reason: Reason) -> None:
        """Ask it to end early. The first reason counts."""
        self.stop_reason = self.stop_reason or reason
        if self.signal is not None:
            self.signal.set()
        if self.give_up is not None and reason is Reason.REPLACED:
            self.give_up()

    def ends_by(self, started: Micros) -> Micros | None:
        """When it has to end if it began then: at its timeout, or when its window closes."""
        declared = self.schedule.declaration
        if declared.timeout is None and declared.window is None:
            return None
        ends = [] if declared.timeout is None else [started + declared.timeout]
        if (closes := interrupted_at(self.occurrence, declared)) is not None:
            ends.append(closes)
        return min(ends, default=None)

    def is_timeout(self, ended: Micros) -> bool:
        """Whether its timeout ended it, not the window."""
        timeout = self.schedule.declaration.timeout
        return timeout is not None and self.started is not None and ended >= self.started + timeout


if TYPE_CHECKING:
    Reported = Delivered | Accepted | Suspended | RunInProgress
    Report = Callable[[Assignment, Reported], None]


@runtime_checkable
class AwaitsOthers(Protocol):
    """A target with work that others end: the node tells it when something was written that may have."""

    def wake(self) -> None:
        """Look into the store, soon. From any thread; returns at once."""


@runtime_checkable
class Reconciles(Protocol):
    """A target that hands work over to something with records of its own."""

    def reconcile(self) -> None:
        """Compare these records with the ledger, in the background. The leader calls it; from any thread."""


class Target(Protocol):
    """Carries out one kind of work, or several."""

    def routes(self) -> Collection[str]:
        """The routes it can serve now."""

    def adopt(self, routes: Collection[str]) -> bool:
        """Serve these routes as well, if it can; whether it serves more than before."""

    def open(self, report: Report, now: Callable[[], Micros]) -> None:
        """Make ready. `report` may be called from any thread; `now` is the node's time.

        The end of each assignment is reported once, and nothing after it; before it, what it has put out so far may be,
        as often as there is more, but no more than once a second.
        """

    def deliver(self, assignments: Sequence[Assignment]) -> None:
        """Begin each at its time and report its end. Returns at once and never raises for one of them."""

    def withdraw(self) -> list[Assignment]:
        """Take back assignments that have certainly not begun; they are not reported."""

    def close(self) -> None:
        """Begin nothing more and release idle resources. Does not wait for what still runs."""


class Engine(Target, Reconciles, Protocol):
    """A target that takes some routes over from those that would serve them."""

    def serves(self, route: str) -> bool:
        """Whether it carries out a route."""
