"""Admission: what happens to a claimed occurrence at its due time.

Window, misfire, dependencies, halts, overlap, limits and budgets are decided here, in that order, not at the claim. The
decision is a value; the store carries it out on condition that the claim still holds, and takes the places it needs
(the schedule's slot, a place under a concurrency key, one of its `max_runs`, room in its budgets) in the same
transaction. When a place is taken, `refused` decides what that means.
"""

from __future__ import annotations

from dataclasses import field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from noonmark.core.agents.turns import turn_limits
from noonmark.core.budgets.budget import Refused, WhenExhausted
from noonmark.core.budgets.reservation import refusal_text
from noonmark.core.budgets.spend import to_dollars
from noonmark.core.frozen import evolve, fast_frozen, frozen, maker
from noonmark.core.ids import TRIGGER, OriginKind, kind_of
from noonmark.core.instants import DAY, to_text
from noonmark.core.lifecycle import Phase
from noonmark.core.occurrence import in_force
from noonmark.core.policies import dependencies, misfire, overlap, window
from noonmark.core.policies.delivery import Delivery
from noonmark.core.policies.jitter import due_at
from noonmark.core.reasons import Reason, no_facts
from noonmark.core.schedule import BY_ITSELF, Pause
from noonmark.core.triggers import OnceTrigger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.budgets.budget import Reservation
    from noonmark.core.halt import Halt
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.dependencies import Standings
    from noonmark.core.policies.limits import Concurrency, KeyLimit
    from noonmark.core.policies.runaway import Breach
    from noonmark.core.schedule import Declaration, Schedule
    from noonmark.core.targets import WorkflowTarget

MAX_LOSSES = 5
"""An occurrence whose lease was lost more often than this is taken for the cause."""
MAX_LOSSES_OF_ENDS = 2 * MAX_LOSSES
"""A workflow that is to end is given up after so many: to undo its steps may be the cause as well."""
APPROVAL_WAIT: Micros = DAY
"""So long somebody may decide whether an occurrence goes beyond its budget."""
NOT_REFUSED = Refused(scope=None)
_PENDING, _LEASE_LOST = Phase.PENDING, Reason.LEASE_LOST
_ONE_WAITS = (overlap.QueueOne, overlap.CancelRunning, overlap.Terminate)
"""The policies under which a newer one replaces the one that waits."""


@fast_frozen
@frozen(kw_only=True)
class Claim:
    """An occurrence that this node holds, as the claim found it."""

    occurrence: Occurrence
    schedule: Schedule
    claimed: Micros
    found_in: Phase = Phase.PENDING
    """`dispatching` or `claimed` if it was taken over from a node whose lease expired."""


make_claim = maker(Claim)


class Place(StrEnum):
    """What an occurrence may have to take, besides its claim, before it starts."""

    TURN = "turn"
    """Its turn in the line of its gap."""
    SLOT = "slot"
    CONCURRENCY = "concurrency"
    MAX_RUNS = "max_runs"
    BUDGET = "budget"
    """Room for its first call of a model."""
    HALT = "halt"
    """It is not halted."""
    RUNAWAY = "runaway"
    """Its schedule is not a runaway."""


@fast_frozen
@frozen(kw_only=True)
class Start:
    """Deliver it, if the places it needs are free."""

    claim: Claim
    takes_slot: bool
    is_in_line: bool = False
    """It waits for every earlier fire of its trigger that was late too and has not ended."""
    concurrency: Concurrency | None = None
    keys: tuple[KeyLimit, ...] = ()
    """The keys that it needs besides. It gets all of them or none."""
    max_runs: int | None = None
    reservation: Reservation | None = None
    """The most that its first call of a model can use, if it calls one."""


@frozen(kw_only=True)
class End:
    """It ends without being delivered again."""

    claim: Claim
    phase: Phase
    reason: Reason
    facts: Mapping[str, int | float | str] = field(default_factory=no_facts)
    pause_after: int | None = None
    """Pause the schedule after this many consecutive failures."""
    was_begun: bool = False
    """Its lost delivery is its last attempt, and counts."""
    pause: Pause | None = None
    """Pause the schedule: its budget is used up."""
    breach: Breach | None = None
    """The rule of the runaway guard that the schedule has broken; it is paused for that."""


@frozen(kw_only=True)
class Wait:
    """It goes back, without a time, until what it waits for sets one."""

    claim: Claim
    waiting_for: Reason
    keys: tuple[KeyLimit, ...] = ()
    """The keys that it needs besides that of its schedule."""
    replaces: bool = False
    """Of those in line for the slot by trigger or event, only the newest stays; others end as `skipped/replaced`."""
    joins_line: bool = False
    """It joins the line of caught-up fires, if it is not in it yet."""
    cancel_grace: Micros | None = None
    """The slot's holder is asked to stop, and has this long to do so."""
    until: Micros | None = None
    """It can be claimed from then on, even if nothing has freed it."""
    seen: int | None = None
    """The news of its upstreams that were known when this was decided; if there are more by now, it does not wait."""
    after: Micros | None = None
    """Of its upstreams' ends, it waits for those of times after this one and up to its own; None is for any end."""
    takes_slot: bool = False
    """It holds the slot while it waits."""
    asks: str | None = None
    """What somebody is asked to approve, until `until`."""
    facts: Mapping[str, int | float | str] = field(default_factory=no_facts)

    @property
    def cancels(self) -> bool:
        """Whether a running occurrence is asked to stop for it."""
        return self.cancel_grace is not None


@frozen(kw_only=True)
class Replan:
    """It was late beyond its grace: the planner decides about it together with the gap it belongs to."""

    claim: Claim


Admission = Start | End | Wait | Replan


@frozen(kw_only=True)
class Busy:
    """What the store saw when a place was taken."""

    place: Place
    key: KeyLimit | None = None
    """The concurrency key without a free place, if it is not that of the schedule."""
    waiting: int = 0
    """How many occurrences of the schedule wait for the slot already."""
    holder: str | None = field(default=None, compare=False)
    """The id of the occurrence in the slot, for explanations."""
    refused: Refused = NOT_REFUSED
    """Which budget has no room, if that is it."""
    asked_until: Micros | None = None
    """Until when somebody may approve that it goes beyond that budget, if that was asked before."""
    halt: Halt | None = None
    """What stops it, if it is halted."""
    breach: Breach | None = None
    """The rule of the runaway guard that it would break, if that is it."""
    stopped: str | None = None
    """Why nothing of its schedule starts until that is resumed, if it has broken such a rule before."""
    at: Micros = field(default=0, compare=False)
    """When the store saw it."""


def admit(claim: Claim, *, now: Micros, lease: Micros, keys: tuple[KeyLimit, ...] = ()) -> Admission:
    """Decide at the due time; `now` is not before it. `keys` are those that it needs besides that of its schedule.

    A turn of an agent also needs the key of its session.
    """
    if claim.occurrence.overrides is not None:
        claim = _under_own_terms(claim)
    keys = (*turn_limits(claim.schedule.declaration.target, claim.schedule.uid), *keys)
    return (
        _after_loss(claim)
        or _stopped(claim)
        or _outside_window(claim, now)
        or _misfire(claim, lease=lease)
        or _start(claim, keys)
    )


def _under_own_terms(claim: Claim) -> Claim:
    """The claim with the schedule as it applies to this occurrence."""
    schedule = in_force(claim.schedule, claim.occurrence)
    return claim if schedule is claim.schedule else replace(claim, schedule=schedule)


def depends_on_others(claim: Claim) -> bool:
    """Whether its upstreams have a say, once it could start.

    Only what the trigger named depends on others, until it first begins: what was asked for runs, and a retry goes on.
    What has waited for a place since has passed them. Without a trigger, they have had their say when it was planned.
    """
    occurrence, declaration = claim.occurrence, claim.schedule.declaration
    if not declaration.depends_on or declaration.trigger is None:
        return False
    is_new = occurrence.origin == TRIGGER and not occurrence.has_begun
    return is_new and occurrence.waiting_for in (None, Reason.DEPENDENCY_PENDING)


def times_in_question(claim: Claim) -> tuple[Micros, Micros]:
    """After which time, and up to which, an upstream's occurrence counts for a claim that depends on others."""
    trigger, nominal = claim.schedule.declaration.trigger, claim.occurrence.nominal
    return (nominal, nominal) if trigger is None else dependencies.times_in_question(trigger, nominal)


def after_upstreams(claim: Claim, standings: Standings, *, now: Micros) -> End | Wait | None:
    """Apply the dependencies at the due time; None if they do not hold it back."""
    after, until = times_in_question(claim)
    upstreams = [one.between(after, until) for one in standings.each]
    first_due, rule = claim.occurrence.first_due, claim.schedule.declaration.window
    verdict = dependencies.judge(upstreams, first_due=first_due, now=now)
    if verdict is None:
        return None
    if verdict.reason is not Reason.DEPENDENCY_PENDING:
        return End(claim=claim, phase=Phase.SKIPPED, reason=verdict.reason, facts=verdict.facts)
    limit = first_due + dependencies.WAIT_LIMIT
    return Wait(
        claim=claim,
        waiting_for=verdict.reason,
        until=limit if rule is None else min(limit, rule.closes_at(first_due)),
        seen=standings.news,
        after=after if all(one.is_named for one in upstreams if one.is_pending) else None,
    )


def unserved(claim: Claim) -> End:
    """Decide a claim that no node could serve for longer than its schedule has patience."""
    return _missing(claim, {"route": claim.occurrence.route})


def unknown_workflow(claim: Claim, target: WorkflowTarget) -> End:
    """Decide a claim whose workflow, or the version of it that is named, does not exist."""
    version = "" if target.version is None else f" version {target.version}"
    return _missing(claim, {"workflow": f"{target.workflow_id}{version}"})


def missing_agent(claim: Claim, facts: Mapping[str, str]) -> End:
    """Decide a claim whose session, mob, member or flow does not exist; `facts` name it."""
    return _missing(claim, facts)


def _missing(claim: Claim, facts: Mapping[str, int | float | str]) -> End:
    declaration = claim.schedule.declaration
    if claim.occurrence.has_begun:
        phase, pause_after = Phase.DELIVERY_FAILED, declaration.pause_on_failure or None
    else:
        phase, pause_after = declaration.missing_target_policy.phase, None
    return End(claim=claim, phase=phase, reason=Reason.TARGET_MISSING, facts=facts, pause_after=pause_after)


def refused(claim: Claim, busy: Busy, keys: tuple[KeyLimit, ...] = ()) -> Admission:
    """Decide what it means that a place was taken; `keys` are those of the start."""
    match busy.place:
        case Place.TURN:
            return Wait(claim=claim, waiting_for=Reason.QUEUED, joins_line=True)
        case Place.MAX_RUNS:
            limit = claim.schedule.declaration.max_runs or 0
            return End(claim=claim, phase=Phase.SKIPPED, reason=Reason.MAX_RUNS_REACHED, facts={"max_runs": limit})
        case Place.CONCURRENCY:
            reason = Reason.CONCURRENCY_LIMIT if busy.key is None else busy.key.reason
            if reason is Reason.TARGET_BUSY and _skips_busy(claim):
                return End(claim=claim, phase=Phase.SKIPPED, reason=reason)
            return Wait(claim=claim, waiting_for=reason, keys=keys)
        case Place.SLOT:
            return _overlapping(claim, busy, keys)
        case Place.BUDGET:
            return _beyond_budget(claim, busy)
        case Place.HALT:
            phase = Phase.CANCELLED if claim.occurrence.has_begun else Phase.SKIPPED
            facts = no_facts() if busy.halt is None else busy.halt.facts()
            return End(claim=claim, phase=phase, reason=Reason.HALTED, facts=facts)
        case Place.RUNAWAY:
            return _runaway(claim, busy)
    assert_never(busy.place)


def _runaway(claim: Claim, busy: Busy) -> End:
    """It is skipped, and its schedule is paused, if it is not yet."""
    why = busy.stopped if busy.breach is None else busy.breach.text
    facts = {"paused_by": BY_ITSELF, "pause_reason": why or ""}
    return End(claim=claim, phase=Phase.SKIPPED, reason=Reason.PAUSED, facts=facts, breach=busy.breach)


def _beyond_budget(claim: Claim, busy: Busy) -> End | Wait:
    """It is skipped, and its schedule paused if the budget says so; or somebody is asked to approve it."""
    facts, until = _figures(busy.refused), busy.asked_until
    if not busy.refused.needs_approval:
        pause = _pause_of(busy.refused, busy.at)
        return End(claim=claim, phase=Phase.SKIPPED, reason=Reason.BUDGET_EXCEEDED, facts=facts, pause=pause)
    if until is not None and busy.at >= until:
        return End(claim=claim, phase=Phase.SKIPPED, reason=Reason.APPROVAL_EXPIRED, facts=facts)
    if until is None:
        occurrence, rule = claim.occurrence, claim.schedule.declaration.window
        limit = busy.at + APPROVAL_WAIT
        until = limit if rule is None else min(limit, rule.closes_at(occurrence.first_due))
    return Wait(
        claim=claim,
        waiting_for=Reason.APPROVAL,
        until=until,
        takes_slot=_takes_slot(claim),
        asks=f"occurrence {claim.occurrence.id} goes beyond its budget: {refusal_text(busy.refused)}",
        facts=facts,
    )


def _figures(exceeded: Refused) -> Mapping[str, int | float | str]:
    """What is stored with a refusal: whose limit it is, and the figures; those of a cost in dollars."""
    is_cost = exceeded.what == "cost"
    names = ("limit", "settled", "reserved", "requested")
    figures = {name: getattr(exceeded, name) for name in names}
    shown = {f"{name}_usd": to_dollars(value) for name, value in figures.items()} if is_cost else figures
    resets = {} if exceeded.resets_at is None else {"resets_at": to_text(exceeded.resets_at)}
    scope = {"scope": str(exceeded.scope), "scope_id": exceeded.scope_id, "what": exceeded.what}
    return {**scope, **shown, **resets, "why": refusal_text(exceeded)}


def _pause_of(exceeded: Refused, now: Micros) -> Pause | None:
    if exceeded.when_exhausted is WhenExhausted.SKIP:
        return None
    ends = exceeded.when_exhausted is WhenExhausted.PAUSE_UNTIL_NEXT_PERIOD
    until = exceeded.resets_at if ends else None
    return Pause(at=now, by=BY_ITSELF, reason=refusal_text(exceeded), until=until)


_make_start = maker(Start)


def _start(claim: Claim, keys: tuple[KeyLimit, ...]) -> Start:
    occurrence, declaration = claim.occurrence, claim.schedule.declaration
    limit = declaration.max_runs
    is_counted = limit is not None and _is_regular(occurrence) and not occurrence.has_begun
    takes_slot = _takes_slot(claim)
    return _make_start(
        claim=claim,
        takes_slot=takes_slot,
        is_in_line=takes_slot and _may_have_fires_before(claim),
        concurrency=declaration.concurrency,
        keys=keys,
        max_runs=limit if is_counted else None,
    )


def _takes_slot(claim: Claim) -> bool:
    may_overlap = isinstance(claim.schedule.declaration.overlap_policy, overlap.Allow)
    return not may_overlap and not claim.occurrence.holds_slot


def _may_have_fires_before(claim: Claim) -> bool:
    """Whether it was missed, or was due before it was claimed, so that older fires of its gap may still be to run.

    Fires that were planned ahead can be claimed before the gap is decided, or by several nodes at once.
    """
    occurrence, declaration = claim.occurrence, claim.schedule.declaration
    if occurrence.origin != TRIGGER or occurrence.has_begun or isinstance(declaration.trigger, OnceTrigger):
        return False
    was_missed = isinstance(declaration.misfire_policy, misfire.KeepsSeveral) and claim.claimed > occurrence.due
    return occurrence.caught_up is not None or was_missed


def _overlapping(claim: Claim, busy: Busy, keys: tuple[KeyLimit, ...]) -> Admission:
    policy = claim.schedule.declaration.overlap_policy
    if not isinstance(policy, overlap.Allow) and _keeps_its_place(claim.occurrence):
        if isinstance(policy, _ONE_WAITS) and _was_replaced(claim.occurrence, busy):
            return End(claim=claim, phase=Phase.SKIPPED, reason=Reason.REPLACED)
        return Wait(claim=claim, waiting_for=Reason.QUEUED)
    match policy:
        case overlap.Allow():  # the holder took the slot under another policy
            return _start(claim, keys)
        case overlap.Skip():
            facts = no_facts() if busy.holder is None else {"in_flight": busy.holder}
            return End(claim=claim, phase=Phase.SKIPPED, reason=Reason.OVERLAP, facts=facts)
        case overlap.Queue():
            if busy.waiting >= policy.queue_limit:
                facts = {"waiting": busy.waiting, "queue_limit": policy.queue_limit}
                return End(claim=claim, phase=Phase.SKIPPED, reason=Reason.QUEUE_FULL, facts=facts)
            return Wait(claim=claim, waiting_for=Reason.QUEUED)
        case overlap.QueueOne() | overlap.CancelRunning() | overlap.Terminate():
            grace = None if isinstance(policy, overlap.QueueOne) else policy.cancel_grace
            replaces = _is_regular(claim.occurrence)
            return Wait(claim=claim, waiting_for=Reason.QUEUED, replaces=replaces, cancel_grace=grace)
    assert_never(policy)


def _skips_busy(claim: Claim) -> bool:
    """Whether it ends if its target is busy: where it may not wait for an occurrence of its own schedule either."""
    occurrence = claim.occurrence
    may_wait = _keeps_its_place(occurrence) or occurrence.waiting_for is Reason.TARGET_BUSY
    return isinstance(claim.schedule.declaration.overlap_policy, overlap.Skip) and not may_wait


def _keeps_its_place(occurrence: Occurrence) -> bool:
    """Whether it waits under every overlap policy.

    The order of caught-up fires and of backfills is fixed. An occurrence that has begun, or was queued before, is not
    turned away because another one was faster.
    """
    is_in_line = occurrence.caught_up is not None or kind_of(occurrence.origin) is OriginKind.BACKFILL
    return is_in_line or occurrence.waiting_for is Reason.QUEUED or occurrence.has_begun


def _was_replaced(occurrence: Occurrence, busy: Busy) -> bool:
    """Whether a newer one came to wait while it had its turn, and only one may wait."""
    return busy.waiting > 0 and _is_regular(occurrence) and occurrence.caught_up is None and not occurrence.has_begun


def _is_regular(occurrence: Occurrence) -> bool:
    """Whether a trigger planned it; others were requested."""
    return kind_of(occurrence.origin) in (OriginKind.TRIGGER, OriginKind.EVENT)


def end_after_loss(schedule: Schedule, occurrence: Occurrence, *, now: Micros) -> Reason | None:
    """Why what is being delivered ends if its node is lost and another one claims it now; None if it begins again.

    `schedule` is the one in force for the occurrence.
    """
    taken_over = evolve(occurrence, losses=occurrence.losses + 1)
    claim = Claim(occurrence=taken_over, schedule=schedule, claimed=now, found_in=occurrence.phase)
    end = _after_loss(claim) or _stopped(claim) or _outside_window(claim, now)
    return None if end is None else end.reason


def _after_loss(claim: Claim) -> End | None:
    """What was being delivered when its lease ran out must perhaps not be delivered again."""
    losses, declaration = claim.occurrence.losses, claim.schedule.declaration
    reason = loss_reason(claim.occurrence, declaration)
    if reason is None or (_ends_itself(claim) and losses <= MAX_LOSSES_OF_ENDS):
        return None
    return End(
        claim=claim,
        phase=Phase.DELIVERY_FAILED,
        reason=reason,
        facts={"losses": losses, "max_losses": MAX_LOSSES},
        pause_after=declaration.pause_on_failure or None,
        was_begun=True,
    )


def loss_reason(occurrence: Occurrence, declaration: Declaration) -> Reason | None:
    """Why what was being delivered when its lease was lost does not go on; None if it does.

    A workflow is delivered once more then, to undo its completed steps and to end.
    """
    # Losses are counted on the row: who takes over may be lost as well, before it decides.
    was_lost = occurrence.losses > 0 or occurrence.reason is _LEASE_LOST
    if was_lost and declaration.delivery is Delivery.AT_MOST_ONCE:
        return Reason.OUTCOME_UNKNOWN
    return Reason.POISON if occurrence.losses > MAX_LOSSES else None


def _stopped(claim: Claim) -> End | None:
    """A run that was asked to stop does not start again when its node is lost."""
    reason = claim.occurrence.stop
    if reason is None or _ends_itself(claim):
        return None
    return End(claim=claim, phase=Phase.CANCELLED, reason=reason)


def _ends_itself(claim: Claim) -> bool:
    """Whether it has to be delivered to be ended: a workflow that has begun stops its steps, and undoes some."""
    return claim.occurrence.has_begun and claim.occurrence.is_workflow_run


def _outside_window(claim: Claim, now: Micros) -> End | None:
    """What never began is skipped when its window has closed; what began and would begin again is cut off."""
    occurrence, rule = claim.occurrence, claim.schedule.declaration.window
    if rule is None or _ends_itself(claim):
        return None
    opening = window.judge(rule, first_due=occurrence.first_due, now=now)
    if opening.is_open:
        return None
    phase = Phase.CANCELLED if occurrence.has_begun else Phase.SKIPPED
    return End(claim=claim, phase=phase, reason=opening.reason, facts=opening.facts())


def _misfire(claim: Claim, *, lease: Micros) -> End | Replan | None:
    """RowCheck the lateness of the claim itself: one that was claimed ahead of its due time cannot misfire.

    Only what the trigger named is late, until it first started or queued: later it is retried, or waits its turn.
    """
    occurrence, declaration = claim.occurrence, claim.schedule.declaration
    if occurrence.origin != TRIGGER or occurrence.has_begun or occurrence.waiting_for is not None:
        return None
    if claim.claimed <= occurrence.due and claim.found_in is _PENDING:
        return None
    policy, trigger = declaration.misfire_policy, declaration.trigger
    lateness = misfire.judge(
        policy,
        due=occurrence.due,
        now=claim.claimed,
        caught_up_at=occurrence.caught_up,
        lease_lost=claim.found_in is not Phase.PENDING,
        lease=lease,
    )
    if not lateness.runs:
        return Replan(claim=claim)
    if occurrence.caught_up is not None or trigger is None or not isinstance(policy, misfire.Skip | misfire.CatchUpOne):
        return None
    newer = trigger.next_micros(occurrence.nominal)
    if newer is None or due_at(trigger, claim.schedule.uid, newer) > claim.claimed:
        return None
    facts = {**lateness.facts(), "newer": to_text(newer)}
    return End(claim=claim, phase=Phase.MISFIRED, reason=Reason.NEWER_FIRE, facts=facts)
