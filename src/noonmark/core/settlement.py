"""Settlement: what becomes of an occurrence when its delivery has ended."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.reported import total
from noonmark.core.frozen import fast_frozen, frozen, maker
from noonmark.core.ids import stored_id
from noonmark.core.instants import DAY, to_text
from noonmark.core.interruption import (
    BY_TARGET,
    BY_WINDOW,
    DEADLINE,
    ENGINE,
    SET_BY,
    alert_at,
    ends_with_window,
    engine_of,
    gone_error,
    interrupted_at,
    interruption,
    is_alert,
    is_begun,
    lost_error,
    real_deadline,
)
from noonmark.core.lifecycle import Phase, step
from noonmark.core.occurrence import RESOURCE_WAITS
from noonmark.core.policies.delivery import Delivery
from noonmark.core.policies.retry import TIMEOUT, next_attempt
from noonmark.core.reasons import Reason, no_facts
from noonmark.core.run import Outcome, Run
from noonmark.core.targets import WorkflowTarget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.budgets.spend import Usage
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Declaration, Schedule
    from noonmark.core.workflows.run import StepKey

MAX_RETRY_AFTER: Micros = DAY
"""A target that is busy may put an attempt off for so long."""
COMPLETION_LIMIT: Micros = DAY
"""A target that accepted the work has so long to say how it ended."""

ENDS = {
    Outcome.COMPLETED: (Phase.COMPLETED, Reason.SUCCEEDED),
    Outcome.CANCELLED: (Phase.CANCELLED, Reason.CANCELLED),
    Outcome.FAILED: (Phase.FAILED, Reason.FAILED),
    Outcome.TIMED_OUT: (Phase.TIMED_OUT, Reason.TIMED_OUT),
    Outcome.DELIVERY_FAILED: (Phase.DELIVERY_FAILED, Reason.UNDELIVERABLE),
}
"""Where each outcome leads when nothing follows."""
FAILURES = frozenset({Phase.FAILED, Phase.TIMED_OUT, Phase.DELIVERY_FAILED})
"""Phases that count for `pause_on_failure`."""
_COMPLETED = Outcome.COMPLETED


@fast_frozen
@frozen(kw_only=True)
class Delivered:
    """How one delivery ended: the report of the target, and when it started and ended."""

    outcome: Outcome
    started: Micros
    ended: Micros
    result: Any = field(default=None, hash=False)
    error: str | None = None
    own_words: str | None = None
    """What Noonmark itself says of a failure, for logs: nothing in it has passed through the run."""
    raised: tuple[str, ...] = ()
    """The names of the class and the bases of the exception that a function raised."""
    usage: Usage | None = None
    reason: Reason | None = None
    """Why it was stopped, if the outcome does not say: replaced, window closed, no completion in time."""
    is_final: bool = False
    """It failed in a way that another attempt would not mend, or must not follow."""
    is_unknown: bool = False
    """Contact was lost after the work may have begun: the outcome is unknown."""
    retry_after: Micros = 0
    """The target asked for another attempt no sooner than that, from its end on."""


@frozen(kw_only=True)
class Accepted:
    """The target took the work over, and says later how it ended: by the deadline, or within a day.

    The end of a window that cancels may come before that.
    """

    started: Micros
    accepted: Micros
    deadline: Micros | None = None
    set_by: str = BY_TARGET
    """What set the deadline: the target, or the start ping of the job."""
    engine: str | None = None
    """The engine that carries it out, if one does."""


@frozen(kw_only=True)
class Suspended:
    """The workflow waits: no step of it runs on the node. It goes on at a time, or when a step ends elsewhere."""

    started: Micros
    ended: Micros
    until: Micros | None
    """When it goes on in any case; None if only the end of a step lets it."""
    waiting_for: Reason
    open_steps: frozenset[StepKey]
    """The steps that others end, and that had not ended as far as the node knew."""
    is_closing: bool = False
    """It is to end, as is stored with it: a request to stop says nothing new."""
    error: str | None = None
    """What it lacks, in words."""


@frozen(kw_only=True)
class RunInProgress:
    """New output of a delivery in progress: the last part, as JSON."""

    started: Micros
    result: Any = field(hash=False)
    adds_work: bool = False
    """It has asked for other occurrences, or for their end: a node should look for work now."""
    stops_work: bool = False
    """It has asked for the end of some, which may run on this node."""


@frozen(kw_only=True)
class Interim:
    """The progress of a delivery, written if the fence is still this one."""

    occurrence: Occurrence
    run: Run


@fast_frozen
@frozen(kw_only=True)
class Settlement:
    """What to write, on condition that the fence is still this one.

    `retry_at` is set when the phase is `pending`: the occurrence keeps its slot and comes back then; a suspended one
    may have no such time. When it is `awaiting_completion`, `deadline` is set: it keeps all its places, and its run
    stays open. A final phase frees the slot and the place under its concurrency key, and wakes the next in line.
    """

    occurrence: Occurrence
    tenant: str
    """The owner, so that a store knows at once whether a schedule subscribes to its end."""
    phase: Phase
    reason: Reason
    run: Run
    attempt: int
    """How many attempts it has had; a lease that was lost takes its attempt back."""
    retry_at: Micros | None = None
    deadline: Micros | None = None
    pause_after: int | None = None
    """Pause the schedule after this many consecutive failures."""
    max_identical: int | None = None
    """Pause the schedule when more than this many results in a row were the same."""
    alert: Micros | None = None
    """When one that awaits its completion takes longer than expected."""
    is_overdue: bool = False
    """It continues, and is reported as overdue: it takes longer than expected. `deadline` is its new deadline."""
    begins: bool = False
    """A job that runs elsewhere has reported its start: the run's start and `deadline` replace the stored ones."""
    facts: Mapping[str, int | float | str] = field(default_factory=no_facts)
    own_words: str | None = None
    """What a log says of a failure that Noonmark decided on itself."""
    suspended: Suspended | None = None
    """Its workflow waits: it is pending, at `retry_at` if that is set, and not before that while all these are open."""
    user: str = ""
    """The owner of the schedule, whose usage is reported."""
    reported: tuple[Usage, ...] = ()
    """What the run reports to have used, for each model: it is recorded under the id of the run."""

    @property
    def is_failure(self) -> bool:
        """Whether it counts for `pause_on_failure`."""
        return self.phase in FAILURES

    @property
    def may_pause(self) -> bool:
        """Whether it may have paused the schedule."""
        return self.max_identical is not None or (self.pause_after is not None and self.is_failure)


_make_run, _make_settlement = maker(Run), maker(Settlement)


def settle(
    occurrence: Occurrence,
    schedule: Schedule,
    delivered: Delivered | Accepted | Suspended,
    *,
    node: str,
    reported: tuple[Usage, ...] = (),
) -> Settlement:
    """Decide what the end of a delivery means: an end, another attempt, or that the end is yet to come.

    `reported` is what the run says it has used, for each model. The run of what an engine carries out names the engine
    before the node.
    """
    settlement = _settle(occurrence, schedule, delivered, node=_place(occurrence, delivered, node))
    guard = schedule.declaration.runaway
    if guard is not None and guard.max_identical_results and settlement.phase is Phase.COMPLETED:
        settlement = replace(settlement, max_identical=guard.max_identical_results)
    if not reported:
        return settlement
    before = settlement.run.usage
    usage = total(reported if before is None else (before, *reported))
    run = replace(settlement.run, usage=usage)
    return replace(settlement, run=run, user=schedule.owner.user, reported=reported)


def _place(occurrence: Occurrence, delivered: Delivered | Accepted | Suspended, node: str) -> str:
    engine = delivered.engine if isinstance(delivered, Accepted) else engine_of(occurrence)
    return node if engine is None or node.startswith(f"{engine}:") else f"{engine}:{node}"


def _settle(
    occurrence: Occurrence, schedule: Schedule, delivered: Delivered | Accepted | Suspended, *, node: str
) -> Settlement:
    if isinstance(delivered, Suspended):
        return _suspend(occurrence, schedule, delivered, _run(occurrence, node=node, started=delivered.started))
    if isinstance(delivered, Accepted):
        return _await(occurrence, schedule, delivered, _run(occurrence, node=node, started=delivered.started))
    outcome = delivered.outcome
    run = _make_run(
        id=run_id(occurrence),
        occurrence_id=occurrence.id,
        attempt=occurrence.attempt,
        node=node,
        started=delivered.started,
        ended=delivered.ended,
        outcome=outcome,
        result=delivered.result,
        error=delivered.error if outcome is _COMPLETED else _error(delivered, occurrence, schedule, node),
        usage=delivered.usage,
    )
    if outcome is Outcome.LEASE_LOST:
        return _hand_back(occurrence, schedule, delivered, run)
    phase, reason = ENDS[outcome]
    end = _to(phase, occurrence, schedule, run, delivered.reason or reason)
    return _after_failure(end, schedule.declaration, delivered) if phase in FAILURES else end


def begin(occurrence: Occurrence, schedule: Schedule, accepted: Accepted, *, node: str) -> Settlement:
    """Decide about a delivery whose job says, perhaps not for the first time, that it starts now."""
    taken_over = replace(occurrence, phase=Phase.DISPATCHING)
    run = _run(occurrence, node=node, started=accepted.started)
    return replace(_await(taken_over, schedule, accepted, run), occurrence=occurrence, begins=True)


def interim(occurrence: Occurrence, underway: RunInProgress, *, node: str) -> Interim:
    """The open run of a delivery in progress."""
    run = _run(occurrence, node=node, started=underway.started)
    return Interim(occurrence=occurrence, run=replace(run, result=underway.result))


def expire(occurrence: Occurrence, schedule: Schedule, *, now: Micros) -> Settlement:
    """Decide about a delivery whose deadline has come.

    It was asked to stop, its window has closed, or the target has not reported its end; or it takes longer than
    expected, and goes on.
    """
    deadline = now if occurrence.deadline is None else occurrence.deadline
    facts: dict[str, int | float | str] = {}
    if is_alert(occurrence):
        return _overdue(occurrence, schedule, now=now)
    if occurrence.stop is not None:
        outcome, reason = Outcome.CANCELLED, occurrence.stop
    elif ends_with_window(occurrence, schedule.declaration, deadline):
        outcome, reason = Outcome.CANCELLED, Reason.WINDOW_CLOSED
        facts = {"closes_at": to_text(deadline)}
    else:
        outcome = Outcome.TIMED_OUT
        reason = Reason.TIMED_OUT if is_begun(occurrence) else Reason.COMPLETION_TIMED_OUT
    delivered = Delivered(outcome=outcome, started=began(occurrence, now=now), ended=now, reason=reason)
    settlement = settle(occurrence, schedule, delivered, node=occurrence.node or "")
    return replace(settlement, facts=facts) if facts else settlement


def lost_run(occurrence: Occurrence, *, now: Micros, is_process_gone: bool = False) -> Run:
    """The run of a delivery whose lease expired, made of its row before it was taken over."""
    error = gone_error(occurrence.node) if is_process_gone else lost_error(occurrence.node)
    return replace(open_run(occurrence, now=now), ended=now, outcome=Outcome.LEASE_LOST, error=error)


def open_run(occurrence: Occurrence, *, now: Micros) -> Run:
    """The run of a delivery in progress, made of its row."""
    return _run(occurrence, node=occurrence.node or "", started=began(occurrence, now=now))


def began(occurrence: Occurrence, *, now: Micros) -> Micros:
    """When a delivery began, as its row says.

    The start is committed a little before it is due, but nothing begins before that.
    """
    return now if occurrence.started is None else max(occurrence.started, occurrence.due)


def run_id(occurrence: Occurrence) -> str:
    """The id of the current run; the fence distinguishes the runs of an occurrence."""
    return f"{occurrence.id}-{occurrence.fence}"


def run_key(occurrence: Occurrence) -> str:
    """What the current run is recorded under in traces; attempts of a step are told apart by their number."""
    run = run_id(occurrence)
    return run if stored_id(occurrence.id) == occurrence.id else f"{run}.{occurrence.attempt}"


def _run(occurrence: Occurrence, *, node: str, started: Micros) -> Run:
    """The run of this delivery, still open."""
    return Run(
        id=run_id(occurrence),
        occurrence_id=occurrence.id,
        attempt=occurrence.attempt,
        node=node,
        started=started,
    )


def _error(delivered: Delivered, occurrence: Occurrence, schedule: Schedule, node: str) -> str | None:
    """The error: the report of the work or its target, or else why it was interrupted."""
    return delivered.error or interruption(
        delivered.outcome, delivered.reason, occurrence, schedule.declaration, node=node
    )


def _await(occurrence: Occurrence, schedule: Schedule, accepted: Accepted, run: Run) -> Settlement:
    """Until the earlier of the two: what the target has, and the end of its window.

    A workflow that an engine carries out ends with its window by itself: it stops its steps, and undoes some.
    """
    deadline = accepted.accepted + COMPLETION_LIMIT if accepted.deadline is None else accepted.deadline
    closes, set_by = interrupted_at(occurrence, schedule.declaration), accepted.set_by
    if closes is not None and closes <= deadline and not occurrence.is_workflow_run:
        deadline, set_by = closes, BY_WINDOW
    waiting = _to(Phase.AWAITING_COMPLETION, occurrence, schedule, run, Reason.ACCEPTED)
    alert = alert_at(schedule.declaration, accepted.started)
    facts: dict[str, int | float | str] = {DEADLINE: to_text(deadline), SET_BY: set_by}
    if accepted.engine is not None:
        facts[ENGINE] = accepted.engine
    return replace(waiting, deadline=deadline, alert=alert, facts=facts)


def _overdue(occurrence: Occurrence, schedule: Schedule, *, now: Micros) -> Settlement:
    """Report a delivery that takes longer than expected; it has the deadline of its target, if any."""
    return Settlement(
        occurrence=occurrence,
        tenant=schedule.owner.tenant,
        phase=occurrence.phase,
        reason=Reason.ACCEPTED,
        run=open_run(occurrence, now=now),
        attempt=occurrence.attempt,
        deadline=real_deadline(occurrence),
        is_overdue=True,
    )


def _after_failure(end: Settlement, declaration: Declaration, delivered: Delivered) -> Settlement:
    """Another attempt, if one is left, is known not to be the second at the same time, and comes within the window."""
    occurrence, policy, window = end.occurrence, declaration.retry_policy, declaration.window
    decision = next_attempt(
        policy,
        attempt=occurrence.attempt,
        failed_at=delivered.ended,
        occurrence_id=occurrence.id,
        least=min(delivered.retry_after, MAX_RETRY_AFTER),
        raised=TIMEOUT if delivered.outcome is Outcome.TIMED_OUT else delivered.raised,
    )
    facts: dict[str, int | float | str] = {"attempt": decision.attempt, "max_attempts": decision.max_attempts}
    if end.reason is Reason.TARGET_MISSING and (why := end.run.summary) is not None:
        facts["why"] = why  # what it talks to was gone when it was delivered
    end = replace(end, pause_after=declaration.pause_on_failure or None, facts=facts, own_words=delivered.own_words)
    if delivered.is_unknown and declaration.delivery is Delivery.AT_MOST_ONCE:
        phase = step(occurrence.phase, Phase.DELIVERY_FAILED)
        return replace(end, phase=phase, reason=Reason.OUTCOME_UNKNOWN)
    if delivered.is_final:
        return end if decision.retry_at is None else replace(end, facts={**facts, "is_final": True})
    if decision.retry_at is None:
        return replace(end, reason=decision.reason, facts=decision.facts()) if policy.max_attempts > 1 else end
    # A run that timed out may still be at work.
    if declaration.delivery is Delivery.AT_MOST_ONCE and delivered.outcome is Outcome.TIMED_OUT:
        return replace(end, facts={**facts, "delivery": str(declaration.delivery)})
    if window is not None and decision.retry_at >= (closes_at := window.closes_at(occurrence.first_due)):
        return replace(end, facts={**facts, "window_closes_at": to_text(closes_at)})
    return replace(
        end,
        phase=step(occurrence.phase, Phase.PENDING),
        reason=decision.reason,
        retry_at=decision.retry_at,
        pause_after=None,
        facts=decision.facts(),
    )


def _hand_back(occurrence: Occurrence, schedule: Schedule, delivered: Delivered, run: Run) -> Settlement:
    """Hand back the run of a node that stops. It is not an attempt; delivered at most once, its outcome is unknown.

    A workflow goes back all the same: another node undoes its completed steps, and ends it.
    """
    declared = schedule.declaration
    if declared.delivery is Delivery.AT_MOST_ONCE and not isinstance(declared.target, WorkflowTarget):
        unknown = _to(Phase.DELIVERY_FAILED, occurrence, schedule, run, Reason.OUTCOME_UNKNOWN)
        return replace(unknown, pause_after=declared.pause_on_failure or None)
    back = _to(Phase.PENDING, occurrence, schedule, run, Reason.LEASE_LOST)
    return replace(back, retry_at=delivered.ended, attempt=occurrence.attempt - 1)


def _suspend(occurrence: Occurrence, schedule: Schedule, suspended: Suspended, run: Run) -> Settlement:
    """Give up the node until the wait is over; the attempt goes on then."""
    run = replace(run, ended=suspended.ended, outcome=Outcome.SUSPENDED, error=suspended.error)
    reason = suspended.waiting_for if suspended.waiting_for in RESOURCE_WAITS else Reason.SUSPENDED
    pending = replace(_to(Phase.PENDING, occurrence, schedule, run, reason), suspended=suspended)
    facts = no_facts() if suspended.error is None else {"problem": suspended.error}
    return replace(pending, retry_at=suspended.until, attempt=occurrence.attempt - 1, facts=facts)


def _to(phase: Phase, occurrence: Occurrence, schedule: Schedule, run: Run, reason: Reason) -> Settlement:
    return _make_settlement(
        occurrence=occurrence,
        tenant=schedule.owner.tenant,
        phase=step(occurrence.phase, phase),
        reason=reason,
        run=run,
        attempt=occurrence.attempt,
    )
