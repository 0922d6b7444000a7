"""Admission: what becomes of a claimed occurrence at its due time.

Misfire, window, overlap and limits are decided here, in that order, and never at the claim. The decision is a value;
the store carries it out on condition that the claim still holds, and takes the places it needs (the schedule's slot,
a place under a concurrency key, one of its `max_runs`) in the same transaction. When a place is taken, `refused`
decides what that means.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

from noonmark.core.ids import OriginKind, kind_of
from noonmark.core.instants import to_text
from noonmark.core.lifecycle import Phase
from noonmark.core.policies import misfire, overlap, window
from noonmark.core.policies.delivery import Delivery
from noonmark.core.policies.jitter import due_at
from noonmark.core.policies.misfire import CatchUpOne
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.limits import Concurrency
    from noonmark.core.schedule import Schedule

MAX_LOSSES = 5
"""An occurrence whose lease was lost more often than this is taken for the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """An occurrence that this node holds, as the claim found it."""

    occurrence: Occurrence
    schedule: Schedule
    claimed: Micros
    found_in: Phase = Phase.PENDING
    """`dispatching` or `claimed` when it was taken over from a node that let its lease run out."""


class Place(StrEnum):
    """What an occurrence may have to take, besides its claim, before it starts."""

    SLOT = "slot"
    CONCURRENCY = "concurrency"
    MAX_RUNS = "max_runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Deliver it, if the places it needs are free."""

    claim: Claim
    takes_slot: bool
    concurrency: Concurrency | None = None
    max_runs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """It ends without having been delivered."""

    claim: Claim
    phase: Phase
    reason: Reason
    facts: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """It goes back, without a time, until what it waits for sets one."""

    claim: Claim
    waiting_for: Reason
    replaces: bool = False
    """Whatever waited for the slot before it ends as `skipped/replaced`."""
    cancels: bool = False
    """Whoever holds the slot is asked to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """It was late beyond its grace: the planner decides about it together with the gap it belongs to."""

    claim: Claim


Admission = Start | End | Wait | Replan


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """What the store saw when a place was taken."""

    place: Place
    waiting: int = 0
    """How many occurrences of the schedule wait for the slot already."""
    holder_caught_up: Micros | None = None
    """When the occurrence in the slot was caught up, if it was."""


def admit(claim: Claim, *, now: Micros, lease: Micros) -> Admission:
    """Decide at the due time; `now` is not before it."""
    lost = _after_loss(claim)
    if lost is not None:
        return lost
    occurrence, declaration = claim.occurrence, claim.schedule.declaration
    if declaration.window is not None:
        opening = window.judge(declaration.window, first_due=occurrence.first_due, now=now)
        if not opening.is_open:
            return End(claim=claim, phase=Phase.SKIPPED, reason=opening.reason, facts=opening.facts())
    if _may_misfire(claim):
        misfired = _misfire(claim, lease=lease)
        if misfired is not None:
            return misfired
    counted = kind_of(occurrence.origin) in (OriginKind.TRIGGER, OriginKind.EVENT) and occurrence.attempt == 0
    return Start(
        claim=claim,
        takes_slot=not isinstance(declaration.overlap_policy, overlap.Allow) and not occurrence.holds_slot,
        concurrency=declaration.concurrency,
        max_runs=declaration.max_runs if counted else None,
    )


def refused(claim: Claim, busy: Busy) -> Admission:
    """Decide what it means that a place was taken."""
    match busy.place:
        case Place.MAX_RUNS:
            limit = claim.schedule.declaration.max_runs or 0
            return End(claim=claim, phase=Phase.SKIPPED, reason=Reason.MAX_RUNS_REACHED, facts={"max_runs": limit})
        case Place.CONCURRENCY:
            return Wait(claim=claim, waiting_for=Reason.CONCURRENCY_LIMIT)
        case Place.SLOT:
            return _overlapping(claim, busy)
    assert_never(busy.place)


def _overlapping(claim: Claim, busy: Busy) -> Admission:
    policy = claim.schedule.declaration.overlap_policy
    match policy:
        case overlap.Allow():  # edited since: whoever holds the slot took it under another rule
            return Start(claim=claim, takes_slot=False)
        case overlap.Skip():
            # Caught-up occurrences of one gap run one after another and do not skip each other.
            together = claim.occurrence.caught_up is not None and claim.occurrence.caught_up == busy.holder_caught_up
            if together or kind_of(claim.occurrence.origin) is OriginKind.BACKFILL:
                return Wait(claim=claim, waiting_for=Reason.QUEUED)
            return End(claim=claim, phase=Phase.SKIPPED, reason=Reason.OVERLAP)
        case overlap.Queue():
            if busy.waiting >= policy.queue_limit:
                facts = {"waiting": busy.waiting, "queue_limit": policy.queue_limit}
                return End(claim=claim, phase=Phase.SKIPPED, reason=Reason.QUEUE_FULL, facts=facts)
            return Wait(claim=claim, waiting_for=Reason.QUEUED)
        case overlap.QueueOne():
            return Wait(claim=claim, waiting_for=Reason.QUEUED, replaces=True)
        case overlap.CancelRunning():
            return Wait(claim=claim, waiting_for=Reason.QUEUED, replaces=True, cancels=True)
    assert_never(policy)


def _after_loss(claim: Claim) -> End | None:
    """What was being delivered when its lease ran out must perhaps not be delivered again."""
    occurrence = claim.occurrence
    if claim.found_in is Phase.DISPATCHING and claim.schedule.declaration.delivery is Delivery.AT_MOST_ONCE:
        return End(claim=claim, phase=Phase.DELIVERY_FAILED, reason=Reason.OUTCOME_UNKNOWN)
    if occurrence.losses > MAX_LOSSES:
        facts = {"losses": occurrence.losses, "max_losses": MAX_LOSSES}
        return End(claim=claim, phase=Phase.DELIVERY_FAILED, reason=Reason.POISON, facts=facts)
    return None


def _may_misfire(claim: Claim) -> bool:
    """Only what the trigger named, until it first started or queued: later it is retried, or waits its turn."""
    occurrence = claim.occurrence
    fresh = occurrence.attempt == 0 and occurrence.losses == 0 and occurrence.waiting_for is None
    return fresh and kind_of(occurrence.origin) is OriginKind.TRIGGER


def _misfire(claim: Claim, *, lease: Micros) -> Admission | None:
    """Judge the lateness of the claim itself: one that was claimed ahead of its due time cannot misfire."""
    occurrence, declaration = claim.occurrence, claim.schedule.declaration
    policy = declaration.misfire_policy
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
    trigger = declaration.trigger
    if occurrence.caught_up is not None or trigger is None or not isinstance(policy, misfire.Skip | CatchUpOne):
        return None
    newer = trigger.next_micros(occurrence.nominal)
    if newer is None or due_at(trigger, claim.schedule.uid, newer) > claim.claimed:
        return None
    facts = {**lateness.facts(), "newer": to_text(newer)}
    return End(claim=claim, phase=Phase.MISFIRED, reason=Reason.NEWER_FIRE, facts=facts)
