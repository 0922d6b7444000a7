"""The rule that decided an occurrence, or that is next to decide."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from noonmark.core.explain.explanation import NOT_REACHED, NOT_YET, Rule
from noonmark.core.frozen import frozen
from noonmark.core.ids import TRIGGER, OriginKind, kind_of
from noonmark.core.interruption import PINGED
from noonmark.core.lifecycle import FINAL, Phase, SchedulePhase
from noonmark.core.occurrence import CONTINUED, backfill_pause, kept_facts
from noonmark.core.policies.misfire import judge
from noonmark.core.policies.window import EndAction, window_period_at
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.explain.explanation import Facts
    from noonmark.core.instants import Micros
    from noonmark.core.interruption import LostNode
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.expected_rate import RateWindow
    from noonmark.core.policies.misfire import Lateness
    from noonmark.core.run import Run
    from noonmark.core.schedule import Declaration, Schedule

IN_FLIGHT = frozenset({Phase.DISPATCHING, Phase.AWAITING_COMPLETION})
LEASED = frozenset({Phase.CLAIMED, Phase.DISPATCHING})
"""A node holds it, and nothing else does."""
NODE_LOST = "node_lost"
"""The decision while the node that holds it is not alive, and no other one has claimed it."""
OWN = frozenset({OriginKind.TRIGGER, OriginKind.EVENT})
"""Origins that a pause holds back."""

DECIDED_BY: Mapping[Reason, Rule] = MappingProxyType(
    {
        Reason.NOT_DUE: Rule.CLAIM,
        Reason.ON_TIME: Rule.CLAIM,
        Reason.WITHIN_GRACE: Rule.CLAIM,
        Reason.CAUGHT_UP: Rule.MISFIRE,
        Reason.LATE: Rule.MISFIRE,
        Reason.NEWER_FIRE: Rule.MISFIRE,
        Reason.CATCH_UP_LIMIT: Rule.MISFIRE,
        Reason.QUEUED: Rule.OVERLAP,
        Reason.CONCURRENCY_LIMIT: Rule.LIMITS,
        Reason.INFLIGHT_LIMIT: Rule.LIMITS,
        Reason.TENANT_INFLIGHT_LIMIT: Rule.LIMITS,
        Reason.TARGET_BUSY: Rule.LIMITS,
        Reason.DEPENDENCY_PENDING: Rule.DEPENDENCIES,
        Reason.RESOURCES_SHORT: Rule.LIMITS,
        Reason.SERVICE_UNAVAILABLE: Rule.LIMITS,
        Reason.STEP_PENDING: Rule.RUNS,
        Reason.APPROVAL: Rule.RUNS,
        Reason.OVERLAP: Rule.OVERLAP,
        Reason.QUEUE_FULL: Rule.OVERLAP,
        Reason.REPLACED: Rule.OVERLAP,
        Reason.WINDOW_OPEN: Rule.WINDOW,
        Reason.WINDOW_CLOSED: Rule.WINDOW,
        Reason.DEPENDENCY_FAILED: Rule.DEPENDENCIES,
        Reason.DEPENDENCY_TIMED_OUT: Rule.DEPENDENCIES,
        Reason.PAUSED: Rule.PAUSE,
        Reason.HALTED: Rule.PAUSE,
        Reason.TARGET_MISSING: Rule.CLAIM,
        Reason.MAX_RUNS_REACHED: Rule.LIMITS,
        Reason.APPROVAL_DENIED: Rule.LIMITS,
        Reason.APPROVAL_EXPIRED: Rule.LIMITS,
        Reason.EDITED: Rule.TRIGGER,
        Reason.DELETED: Rule.BOUNDS,
        Reason.ACCEPTED: Rule.RUNS,
        Reason.SUCCEEDED: Rule.RUNS,
        Reason.FAILED: Rule.RUNS,
        Reason.UNDELIVERABLE: Rule.RUNS,
        Reason.TIMED_OUT: Rule.RUNS,
        Reason.COMPLETION_TIMED_OUT: Rule.RUNS,
        Reason.CANCELLED: Rule.CLAIM,
        Reason.RETRY_SCHEDULED: Rule.RUNS,
        Reason.ATTEMPTS_EXHAUSTED: Rule.RUNS,
        Reason.NOT_RETRIED: Rule.RUNS,
        Reason.BUDGET_EXCEEDED: Rule.LIMITS,
        Reason.TOOL_LOOP: Rule.RUNS,
        Reason.LEASE_LOST: Rule.RUNS,
        Reason.SUSPENDED: Rule.RUNS,
        Reason.POISON: Rule.RUNS,
        Reason.OUTCOME_UNKNOWN: Rule.RUNS,
        Reason.UNREADABLE: Rule.CLAIM,
    }
)
"""The rule of each reason, for an occurrence that never started. The runs decide about one that has."""


def open_run(occurrence: Occurrence, runs: Sequence[Run]) -> Run | None:
    """The run of the present delivery of an occurrence; None if there is none."""
    return next((run for run in runs if run.attempt == occurrence.attempt and run.ended is None), None)


@frozen(kw_only=True)
class Case:
    """All that is known about an occurrence."""

    schedule: Schedule
    occurrence: Occurrence
    now: Micros
    runs: tuple[Run, ...] = ()
    """Those of the occurrence, oldest first."""
    gap: Occurrence | None = None
    """The row of the fires that were missed just before it, if there is one."""
    is_recorded: bool = True
    """Whether the occurrence is stored; if not, it is what would be planned for a time."""
    unserved: str | None = None
    """That no live node serves its target, in words, if that is so."""
    rate_window: RateWindow | None = None
    """What is counted at present for the expected rate of the schedule, if it has one and is active."""
    lost_node: LostNode | None = None
    """The node that holds it, if that is not alive."""

    @property
    def declaration(self) -> Declaration:
        """What the schedule says at present."""
        return self.schedule.declaration

    @property
    def is_in_force(self) -> bool:
        """Whether the present declaration is the one that was in force for the occurrence."""
        return self.occurrence.revision == self.schedule.revision

    @property
    def kind(self) -> OriginKind:
        """What asked for it."""
        return kind_of(self.occurrence.origin)

    @property
    def is_own(self) -> bool:
        """Whether the schedule itself planned it."""
        return self.kind in OWN

    @property
    def is_named(self) -> bool:
        """Whether the present trigger names its time."""
        trigger, nominal = self.declaration.trigger, self.occurrence.nominal
        return trigger is not None and trigger.next_micros(nominal - 1) == nominal

    @property
    def began(self) -> Micros | None:
        """When it was first started, as far as that is known."""
        if self.runs:
            return self.runs[0].started
        started = self.occurrence.started
        # The start is committed a little early, but nothing begins before it is due.
        return None if started is None else max(started, self.occurrence.due)

    @property
    def has_begun(self) -> bool:
        """Whether it was ever started."""
        return bool(self.runs) or self.occurrence.has_begun

    @property
    def open_run(self) -> Run | None:
        """The run of its present delivery, if that is stored."""
        return open_run(self.occurrence, self.runs)

    @property
    def is_held(self) -> bool:
        """Whether a pause holds it back; a time that is not planned yet may lie after the end of the pause."""
        pause = self.schedule.pause
        ends = None if pause is None or self.is_recorded else pause.until
        is_within = ends is None or self.occurrence.nominal <= ends
        return self.schedule.phase is SchedulePhase.PAUSED and self.is_own and is_within

    @property
    def backfill_pause(self) -> Facts | None:
        """The pause of its backfill, if that holds it back."""
        return backfill_pause(self.occurrence)

    @property
    def suspended(self) -> Suspended | None:
        """The time between two windows in which its run is suspended, if it is now."""
        row, window = self.occurrence, self.declaration.window
        is_going = row.phase is Phase.DISPATCHING and row.stop is None and self.is_in_force and self.lost_node is None
        if window is None or window.end_action is not EndAction.PAUSE or not is_going:
            return None
        spell = window_period_at(window, self.declaration.trigger, first_due=row.first_due, now=self.now)
        if spell.is_open or spell.until is None:
            return None
        return Suspended(since=spell.since, until=spell.until)

    @property
    def overrun(self) -> Overrun | None:
        """How long its run takes, or its last one took, if that is longer than the time until the next fire."""
        row, declared = self.occurrence, self.declaration
        pauses = declared.window is not None and declared.window.end_action is EndAction.PAUSE
        if self.kind is not OriginKind.TRIGGER or not self.is_in_force or row.route == PINGED or pauses:
            return None
        if self.lost_node is not None:  # nobody knows how long it has run
            return None
        following = None if declared.trigger is None else declared.trigger.next_micros(row.nominal)
        is_going, run = row.phase in IN_FLIGHT, self.runs[-1] if self.runs else None
        if is_going:
            began, ended = row.started, self.now
        else:
            began, ended = (None, self.now) if run is None or run.ended is None else (run.started, run.ended)
        if began is None or following is None or ended - began <= following - row.nominal:
            return None
        return Overrun(length=ended - began, interval=following - row.nominal, is_going=is_going)

    @property
    def detail(self) -> Facts:
        """The numbers that were stored with the reason."""
        facts = kept_facts(self.occurrence)
        return {"detail": self.occurrence.detail} if facts is None else facts

    def lateness(self, at: Micros) -> Lateness:
        """How late it is when it is taken up at an instant, by the present policy."""
        row = self.occurrence
        return judge(self.declaration.misfire_policy, due=row.due, now=at, caught_up_at=row.caught_up)


@frozen(kw_only=True)
class Suspended:
    """Since when a run is suspended, and when it continues."""

    since: Micros
    until: Micros


@frozen(kw_only=True)
class Overrun:
    """A run that is longer than the time between its fire and the next one."""

    length: Micros
    interval: Micros
    is_going: bool


@frozen(kw_only=True)
class Standing:
    """The rule that has decided, or is next, its sentence, and the result of the others."""

    rule: Rule
    decision: str
    reason: Reason | None = None
    reached: Rule | None = None
    """The first rule that it has not passed, where that is not the same one: a claim comes before what is asked at the
    due time."""
    ahead: str = NOT_YET
    """The result of the rules that were not reached."""


def standing(case: Case) -> Standing:
    """Where an occurrence stands."""
    row = case.occurrence
    if row.phase in FINAL:
        return _ended(case)
    match row.phase:
        case Phase.CLAIMED:
            decision = "claimed" if case.lost_node is None else NODE_LOST
            return Standing(rule=Rule.CLAIM, decision=decision, reached=Rule.WINDOW)
        case Phase.DISPATCHING if case.lost_node is not None:
            return Standing(rule=Rule.RUNS, decision=NODE_LOST)
        case Phase.DISPATCHING:
            return Standing(rule=Rule.RUNS, decision="running" if case.suspended is None else "suspended")
        case Phase.AWAITING_COMPLETION:
            return _at(Reason.ACCEPTED)
        case _:
            return _pending(case)


def _ended(case: Case) -> Standing:
    row = case.occurrence
    rule = Rule.RUNS if case.has_begun or row.reason is None else DECIDED_BY[row.reason]
    return Standing(
        rule=rule,
        decision=str(row.reason or row.phase),
        reason=row.reason,
        reached=Rule.WINDOW if rule is Rule.CLAIM else None,
        ahead=NOT_REACHED,
    )


def _pending(case: Case) -> Standing:
    row = case.occurrence
    if case.is_held or case.backfill_pause is not None:
        return Standing(rule=Rule.PAUSE, decision="held", reason=Reason.PAUSED)
    if row.waiting_for is Reason.APPROVAL and not case.has_begun:
        return Standing(rule=Rule.LIMITS, decision=str(row.waiting_for), reason=row.waiting_for)
    if row.waiting_for is not None:
        return _at(row.waiting_for)
    if case.has_begun:
        return _at(row.reason if row.reason in CONTINUED else Reason.RETRY_SCHEDULED)
    if row.due > case.now:
        return Standing(rule=Rule.CLAIM, decision=NOT_YET, reason=Reason.NOT_DUE, reached=Rule.WINDOW)
    lateness = case.lateness(case.now)
    if row.origin == TRIGGER and not lateness.runs:
        return _at(lateness.reason)
    if case.unserved is not None:
        decision, reason = str(Reason.TARGET_MISSING), Reason.TARGET_MISSING
        return Standing(rule=Rule.CLAIM, decision=decision, reason=reason, reached=Rule.WINDOW)
    return Standing(rule=Rule.CLAIM, decision="due", reason=Reason.ON_TIME, reached=Rule.WINDOW)


def _at(reason: Reason) -> Standing:
    return Standing(rule=DECIDED_BY[reason], decision=str(reason), reason=reason)
