"""What becomes of a claimed occurrence at its due time, for every policy that has a say in it."""

from dataclasses import replace

import pytest

from noonmark.core import ids
from noonmark.core.admission import (
    APPROVAL_WAIT,
    Busy,
    Claim,
    End,
    Place,
    Replan,
    Start,
    Wait,
    admit,
    loss_reason,
    missing_agent,
    refused,
    unknown_workflow,
    unserved,
)
from noonmark.core.budgets.budget import BudgetScope, Refused, WhenExhausted
from noonmark.core.budgets.reservation import refusal_text
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import ENDINGS, Phase
from noonmark.core.occurrence import Overrides, PinnedBundle
from noonmark.core.planner import occurrence
from noonmark.core.policies.delivery import Delivery, MissingTargetPolicy, patience
from noonmark.core.policies.limits import Concurrency, KeyLimit
from noonmark.core.policies.misfire import CatchUpAll, CatchUpOne, CatchUpWithin, Skip, Spread
from noonmark.core.policies.overlap import Allow, CancelRunning, Queue, QueueOne, Terminate
from noonmark.core.policies.overlap import Skip as SkipOverlap
from noonmark.core.policies.window import EndAction, Window
from noonmark.core.reasons import Reason
from noonmark.core.schedule import BY_ITSELF, Pause
from noonmark.core.targets import BundleTarget, WorkflowTarget
from noonmark.core.targets.session import PromptAction, SessionTarget, SessionType
from noonmark.core.triggers import EventTrigger, OnceTrigger
from tests.core.scheduled import LEASE, at, declared, every, scheduled

ORIGINS = {
    "trigger": ids.TRIGGER,
    "event": ids.event("e1"),
    "manual": ids.manual("k1"),
    "backfill": ids.backfill("b1"),
}


def claimed(at_second=100, *, found_in=Phase.PENDING, trigger=None, policies=None, **row):
    """A claim of the fire at 100 s, claimed so many seconds after noon."""
    schedule = scheduled(trigger or every(1_000, start=100), **(policies or {}))
    one = replace(occurrence(schedule, at(100), at(100)), phase=Phase.CLAIMED, fence=1, **row)
    return Claim(occurrence=one, schedule=schedule, claimed=at(at_second), found_in=found_in)


def admitted(claim, now=None):
    decision = admit(claim, now=claim.claimed if now is None else at(now), lease=LEASE)
    if isinstance(decision, End):
        assert decision.reason in ENDINGS[decision.phase]
    return decision


def told(decision):
    """A decision in a few words."""
    match decision:
        case Start():
            return "start"
        case End(phase=phase, reason=reason):
            return f"{phase}/{reason}"
        case Wait(waiting_for=reason, replaces=replaces, cancels=cancels, cancel_grace=grace):
            assert cancels is (grace is not None)
            return " ".join([f"wait for {reason}", *["replaces"] * replaces, *["cancels"] * cancels])
        case Replan():
            return "replan"


def test_one_that_is_due_starts_with_the_places_it_needs():
    claim = claimed()
    assert admitted(claim) == Start(claim=claim, takes_slot=True, concurrency=None, max_runs=None)


@pytest.mark.parametrize(
    ("policy", "holds", "takes"),
    [
        (SkipOverlap(), False, True),
        (Queue(), False, True),
        (QueueOne(), False, True),
        (CancelRunning(), False, True),
        (Allow(), False, False),
        (SkipOverlap(), True, False),  # a retry has kept its slot
        (Allow(), True, False),
    ],
)
def test_a_slot_is_taken_once_by_occurrences_that_may_not_overlap(policy, holds, takes):
    assert admitted(claimed(policies={"overlap_policy": policy}, holds_slot=holds)).takes_slot is takes


def test_a_place_under_the_concurrency_key_is_taken_every_time():
    key = Concurrency(key="db", limit=2)
    assert admitted(claimed(policies={"concurrency": key})).concurrency == key
    assert admitted(claimed(policies={"concurrency": key}, attempt=1)).concurrency == key


def test_what_was_said_of_one_occurrence_comes_before_what_its_schedule_says():
    mine, ours = Concurrency(key="backfill", limit=1), Concurrency(key="db", limit=2)
    claim = claimed(policies={"concurrency": ours}, overrides=Overrides(overlap_policy=Allow(), concurrency=mine))
    start = admitted(claim)
    assert (start.takes_slot, start.concurrency) == (False, mine)
    assert (
        admitted(claimed(policies={"concurrency": ours}, overrides=Overrides(overlap_policy=Allow()))).concurrency
        == ours
    )


@pytest.mark.parametrize(
    ("origin", "row", "limit"),
    [
        ("trigger", {}, 7),
        ("event", {}, 7),
        ("manual", {}, None),
        ("backfill", {}, None),
        ("trigger", {"attempt": 1}, None),  # a retry was counted before
        ("trigger", {"losses": 1}, None),
        ("trigger", {"reason": Reason.LEASE_LOST}, None),
    ],
)
def test_max_runs_counts_what_came_about_by_itself_and_once(origin, row, limit):
    claim = claimed(policies={"max_runs": 7}, origin=ORIGINS[origin], **row)
    assert admitted(claim).max_runs == limit


# Window


@pytest.mark.parametrize(
    ("now", "row", "expected"),
    [
        (159.9, {}, "start"),
        (160, {}, "skipped/window_closed"),
        (160, {"attempt": 1, "due": at(155)}, "cancelled/window_closed"),  # it began, so it was not skipped
        (160, {"losses": 1}, "cancelled/window_closed"),
        (155, {"attempt": 1, "due": at(155)}, "start"),
        (200, {"waiting_for": Reason.QUEUED}, "skipped/window_closed"),
        (200, {"caught_up": at(199)}, "skipped/window_closed"),
    ],
)
@pytest.mark.parametrize("end_action", EndAction)
def test_a_window_counts_from_the_first_due_time(now, row, expected, end_action):
    window = Window(duration=60 * SECOND, end_action=end_action)
    assert told(admitted(claimed(now, policies={"window": window}, **row))) == expected


def test_a_closed_window_says_since_when():
    decision = admitted(claimed(100, policies={"window": Window(duration=60 * SECOND)}), now=161)
    assert decision.facts == {
        "first_due": "2026-11-15T12:01:40Z",
        "closes_at": "2026-11-15T12:02:40Z",
        "remaining_seconds": 0,
    }


def test_a_closed_window_comes_before_lateness():
    claim = claimed(900, policies={"window": Window(duration=60 * SECOND)})
    assert told(admitted(claim)) == "skipped/window_closed"


# Lateness


@pytest.mark.parametrize(
    ("second", "fields", "expected"),
    [
        (98, {}, "start"),  # claimed ahead of its time
        (160, {}, "start"),
        (160.000001, {}, "replan"),
        (900, {"caught_up": at(850)}, "start"),
        (900, {"caught_up": at(839)}, "replan"),  # under `skip`
        (900, {"caught_up": at(300), "due": at(850)}, "start"),  # spread
        (900, {"attempt": 1}, "start"),
        (900, {"losses": 1, "found_in": Phase.DISPATCHING}, "start"),
        (900, {"reason": Reason.LEASE_LOST}, "start"),
        (900, {"waiting_for": Reason.QUEUED}, "start"),
        (900, {"waiting_for": Reason.CONCURRENCY_LIMIT}, "start"),
        (900, {"origin": ORIGINS["manual"]}, "start"),
        (900, {"origin": ORIGINS["backfill"]}, "start"),
        (900, {"origin": ORIGINS["event"]}, "start"),
    ],
)
def test_lateness_is_judged_at_the_claim_until_the_first_start_or_queueing(second, fields, expected):
    assert told(admitted(claimed(second, **fields), now=max(second, 950))) == expected


@pytest.mark.parametrize(
    ("grace", "found_in", "second", "expected"),
    [
        (5, Phase.PENDING, 105, "start"),
        (5, Phase.PENDING, 106, "replan"),
        (5, Phase.CLAIMED, 130, "start"),
        (5, Phase.CLAIMED, 131, "replan"),
        (60, Phase.CLAIMED, 160, "start"),
    ],
)
def test_grace_is_two_leases_at_least_after_a_claim_was_lost(grace, found_in, second, expected):
    claim = claimed(second, found_in=found_in, policies={"misfire_policy": Skip(grace=grace * SECOND)})
    assert told(admitted(claim)) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Skip(), "misfired/newer_fire"),
        (CatchUpOne(), "misfired/newer_fire"),
        (CatchUpAll(), "start"),
        (CatchUpWithin(window=SECOND), "start"),
        (Spread(), "start"),
    ],
)
def test_of_several_in_grace_only_the_newest_runs_under_some_policies(policy, expected):
    claim = claimed(130, trigger=every(30, start=100), policies={"misfire_policy": policy})
    assert told(admitted(claim)) == expected
    earlier = claimed(129.9, trigger=every(30, start=100), policies={"misfire_policy": policy})
    assert told(admitted(earlier, now=131)) == "start"


def test_the_newer_fire_is_named():
    decision = admitted(claimed(130, trigger=every(30, start=100)))
    assert decision.facts == {"late_by_seconds": 30, "grace_seconds": 60, "newer": "2026-11-15T12:02:10Z"}


@pytest.mark.parametrize(
    "claim",
    [
        claimed(130, trigger=every(30, start=100), caught_up=at(125)),
        claimed(130, trigger=every(30, start=100, end=120)),
        claimed(130, trigger=EventTrigger("uploaded")),
    ],
    ids=["caught up", "the last fire", "left of another rule"],
)
def test_one_without_a_newer_fire_of_its_own_gap_runs(claim):
    assert told(admitted(claim)) == "start"


def test_one_whose_rule_has_no_trigger_any_more_runs():
    claim = claimed(130)
    claim = replace(claim, schedule=replace(claim.schedule, declaration=declared(None)))
    assert told(admitted(claim)) == "start"


# Lost leases


@pytest.mark.parametrize(
    ("delivery", "found_in", "losses", "expected"),
    [
        (Delivery.AT_LEAST_ONCE, Phase.DISPATCHING, 1, "start"),
        (Delivery.AT_LEAST_ONCE, Phase.DISPATCHING, 5, "start"),
        (Delivery.AT_LEAST_ONCE, Phase.DISPATCHING, 6, "delivery_failed/poison"),
        (Delivery.AT_MOST_ONCE, Phase.DISPATCHING, 1, "delivery_failed/outcome_unknown"),
        (Delivery.AT_MOST_ONCE, Phase.CLAIMED, 0, "start"),  # surely not delivered yet
    ],
)
def test_a_lost_lease_is_delivered_again_where_that_is_allowed(delivery, found_in, losses, expected):
    claim = claimed(110, found_in=found_in, losses=losses, policies={"delivery": delivery, "pause_on_failure": 3})
    decision = admitted(claim)
    assert told(decision) == expected
    if isinstance(decision, End):
        assert decision.facts == {"losses": losses, "max_losses": 5}
        assert decision.pause_after == 3


@pytest.mark.parametrize("reason", [Reason.CANCELLED, Reason.REPLACED])
def test_what_was_asked_to_stop_is_not_begun_again(reason):
    claim = claimed(110, found_in=Phase.DISPATCHING, losses=1, stop=reason)
    assert told(admitted(claim)) == f"cancelled/{reason}"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"losses": 1, "stop": Reason.CANCELLED}, "start"),
        ({"reason": Reason.SUSPENDED, "stop": Reason.CANCELLED}, "start"),
        ({"reason": Reason.SUSPENDED}, "start"),
        ({"stop": Reason.CANCELLED}, "cancelled/cancelled"),
        ({}, "skipped/window_closed"),
    ],
)
def test_a_workflow_that_has_begun_is_delivered_to_be_ended(row, expected):
    policies = {"target": WorkflowTarget(workflow_id="etl"), "window": Window(duration=60 * SECOND)}
    assert told(admitted(claimed(200, policies=policies, **row))) == expected
    bundle = policies | {"target": BundleTarget(bundle_id="etl")}
    pinned = Overrides(bundle=PinnedBundle(bundle_id="etl", digest="0f", is_workflow=True))
    assert told(admitted(claimed(200, policies=bundle, overrides=pinned, **row))) == expected


@pytest.mark.parametrize(
    ("delivery", "row", "reason", "expected"),
    [
        (Delivery.AT_LEAST_ONCE, {"losses": 5}, None, "start"),
        (Delivery.AT_LEAST_ONCE, {"reason": Reason.LEASE_LOST}, None, "start"),
        (Delivery.AT_LEAST_ONCE, {"losses": 6}, Reason.POISON, "start"),
        (Delivery.AT_LEAST_ONCE, {"losses": 11}, Reason.POISON, "delivery_failed/poison"),
        (Delivery.AT_MOST_ONCE, {"losses": 1}, Reason.OUTCOME_UNKNOWN, "start"),
        (Delivery.AT_MOST_ONCE, {"reason": Reason.LEASE_LOST}, Reason.OUTCOME_UNKNOWN, "start"),
        (Delivery.AT_MOST_ONCE, {"reason": Reason.SUSPENDED}, None, "start"),
        (Delivery.AT_MOST_ONCE, {"losses": 11}, Reason.OUTCOME_UNKNOWN, "delivery_failed/outcome_unknown"),
    ],
)
def test_a_workflow_whose_lease_was_lost_is_delivered_once_more_to_undo_its_steps(delivery, row, reason, expected):
    claim = claimed(110, policies={"target": WorkflowTarget(workflow_id="etl"), "delivery": delivery}, **row)
    assert loss_reason(claim.occurrence, claim.schedule.declaration) is reason
    assert told(admitted(claim)) == expected


@pytest.mark.parametrize(
    ("policy", "row", "version", "expected"),
    [
        (MissingTargetPolicy.SKIP, {}, None, "skipped/target_missing etl"),
        (MissingTargetPolicy.MARK_MISFIRED, {}, 3, "misfired/target_missing etl version 3"),
        (MissingTargetPolicy.SKIP, {"attempt": 1}, None, "delivery_failed/target_missing etl"),
    ],
)
def test_a_workflow_that_does_not_exist_is_a_missing_target(policy, row, version, expected):
    target = WorkflowTarget(workflow_id="etl", version=version)
    claim = claimed(policies={"target": target, "missing_target_policy": policy}, **row)
    end = unknown_workflow(claim, target)
    assert f"{told(end)} {end.facts['workflow']}" == expected


def test_that_the_outcome_is_unknown_says_more_than_that_it_was_to_stop():
    policies = {"delivery": Delivery.AT_MOST_ONCE}
    claim = claimed(110, found_in=Phase.DISPATCHING, losses=1, stop=Reason.CANCELLED, policies=policies)
    assert told(admitted(claim)) == "delivery_failed/outcome_unknown"
    assert admitted(claim).was_begun


@pytest.mark.parametrize(
    ("policy", "row", "expected"),
    [
        (MissingTargetPolicy.MARK_MISFIRED, {}, "misfired/target_missing"),
        (MissingTargetPolicy.SKIP, {}, "skipped/target_missing"),
        (MissingTargetPolicy.MARK_MISFIRED, {"attempt": 1}, "delivery_failed/target_missing"),
        (MissingTargetPolicy.SKIP, {"losses": 1}, "delivery_failed/target_missing"),
        (MissingTargetPolicy.SKIP, {"reason": Reason.LEASE_LOST}, "delivery_failed/target_missing"),
    ],
)
def test_an_unserved_occurrence_ends_as_the_policy_says_until_it_has_begun(policy, row, expected):
    policies = {"missing_target_policy": policy, "pause_on_failure": 3}
    decision = unserved(claimed(policies=policies, **row))
    assert told(decision) == expected
    assert decision.reason in ENDINGS[decision.phase]
    assert decision.facts == {"route": "function:tidy"}
    assert decision.pause_after == (3 if row else None)


@pytest.mark.parametrize(("grace", "expected"), [(1, 30), (30, 30), (31, 31), (3_600, 3_600)])
def test_patience_is_the_grace_but_not_less_than_a_few_beats(grace, expected):
    assert patience(grace * SECOND) == expected * SECOND


# A place that is taken


def test_a_replacement_sets_the_stop_grace_of_the_running_one():
    claim = claimed(policies={"overlap_policy": CancelRunning(cancel_grace=7)})
    assert refused(claim, Busy(place=Place.SLOT)).cancel_grace == 7
    claim = claimed(policies={"overlap_policy": Terminate()})
    assert refused(claim, Busy(place=Place.SLOT)).cancel_grace == 0


def overlapping(policy, *, waiting=0, **row):
    claim = claimed(policies={"overlap_policy": policy}, **row)
    decision = refused(claim, Busy(place=Place.SLOT, waiting=waiting))
    if isinstance(decision, End):
        assert decision.reason in ENDINGS[decision.phase]
    return told(decision)


QUEUED = "wait for queued"
ONE = [QueueOne(), CancelRunning(), Terminate()]
NEVER_ALLOW = [SkipOverlap(), Queue(queue_limit=1), *ONE]


@pytest.mark.parametrize(
    ("policy", "waiting", "expected"),
    [
        (SkipOverlap(), 0, "skipped/overlap"),
        (Queue(queue_limit=2), 0, QUEUED),
        (Queue(queue_limit=2), 1, QUEUED),
        (Queue(queue_limit=2), 2, "skipped/queue_full"),
        (QueueOne(), 0, "wait for queued replaces"),
        (QueueOne(), 1, "wait for queued replaces"),
        (CancelRunning(), 1, "wait for queued replaces cancels"),
        (Terminate(), 1, "wait for queued replaces cancels"),
        (Allow(), 0, "start"),
    ],
)
@pytest.mark.parametrize("origin", ["trigger", "event"])
def test_each_overlap_policy_has_its_own_answer(policy, waiting, expected, origin):
    assert overlapping(policy, waiting=waiting, origin=ORIGINS[origin]) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (SkipOverlap(), "skipped/overlap"),
        (Queue(queue_limit=1), "skipped/queue_full"),
        (QueueOne(), QUEUED),  # only a newer one of the trigger replaces what waits
        (CancelRunning(), "wait for queued cancels"),
    ],
)
def test_a_run_by_hand_obeys_overlap_and_replaces_no_other_run(policy, expected):
    assert overlapping(policy, waiting=1, origin=ORIGINS["manual"]) == expected


@pytest.mark.parametrize("policy", NEVER_ALLOW)
def test_backfills_run_one_after_another(policy):
    assert overlapping(policy, waiting=5, origin=ORIGINS["backfill"]) == QUEUED


@pytest.mark.parametrize("policy", NEVER_ALLOW)
@pytest.mark.parametrize("waiting", [0, 5])
def test_no_overlap_policy_acts_on_what_was_caught_up(policy, waiting):
    assert overlapping(policy, waiting=waiting, caught_up=at(50)) == QUEUED


def test_what_was_caught_up_runs_together_where_overlap_is_allowed():
    assert overlapping(Allow(), caught_up=at(50)) == "start"
    assert not admitted(claimed(policies={"overlap_policy": Allow()}, caught_up=at(50))).is_in_line


@pytest.mark.parametrize(
    ("second", "policy", "row", "expected"),
    [
        (100, CatchUpAll(), {}, False),  # claimed in time
        (101, CatchUpAll(), {}, True),
        (101, CatchUpWithin(window=SECOND), {}, True),
        (101, Spread(), {}, True),
        (101, CatchUpOne(), {}, False),
        (101, Skip(), {}, False),
        (101, CatchUpOne(), {"caught_up": at(50)}, True),
        (100, CatchUpAll(), {"caught_up": at(50)}, True),
        (101, CatchUpAll(), {"caught_up": at(50), "attempt": 1}, False),
        (101, CatchUpAll(), {"caught_up": at(50), "holds_slot": True}, False),
        (101, CatchUpAll(), {"origin": ORIGINS["backfill"]}, False),
    ],
)
def test_what_was_missed_starts_after_the_fires_of_its_gap_before_it(second, policy, row, expected):
    assert admitted(claimed(second, policies={"misfire_policy": policy}, **row)).is_in_line is expected


def test_a_single_fire_is_in_no_line():
    once = claimed(101, trigger=OnceTrigger(from_micros(at(100))), caught_up=at(101))
    assert not admitted(once).is_in_line


@pytest.mark.parametrize("policy", NEVER_ALLOW)
def test_whose_turn_has_not_come_waits_in_line(policy):
    claim = claimed(policies={"overlap_policy": policy})
    waits = Wait(claim=claim, waiting_for=Reason.QUEUED, joins_line=True)
    assert refused(claim, Busy(place=Place.TURN, waiting=5)) == waits


@pytest.mark.parametrize("policy", NEVER_ALLOW)
@pytest.mark.parametrize("row", [{"attempt": 1}, {"losses": 1}, {"reason": Reason.LEASE_LOST}])
def test_what_began_is_never_dropped_for_another(policy, row):
    assert overlapping(policy, waiting=5, **row) == QUEUED


@pytest.mark.parametrize(("policy", "waiting"), [(SkipOverlap(), 1), (Queue(queue_limit=1), 1), *((p, 0) for p in ONE)])
def test_one_that_waited_before_keeps_its_place_when_another_was_quicker(policy, waiting):
    assert overlapping(policy, waiting=waiting, waiting_for=Reason.QUEUED) == QUEUED


@pytest.mark.parametrize("policy", ONE)
def test_one_that_waited_is_replaced_when_a_newer_one_came_to_wait_meanwhile(policy):
    assert overlapping(policy, waiting=1, waiting_for=Reason.QUEUED) == "skipped/replaced"
    assert overlapping(policy, waiting=1, waiting_for=Reason.QUEUED, origin=ORIGINS["manual"]) == QUEUED
    assert overlapping(policy, waiting=1, waiting_for=Reason.QUEUED, caught_up=at(50)) == QUEUED


def test_one_that_waited_for_a_limit_is_new_to_the_slot():
    assert overlapping(SkipOverlap(), waiting_for=Reason.CONCURRENCY_LIMIT) == "skipped/overlap"


def test_a_slot_taken_under_another_rule_does_not_stop_what_may_overlap():
    key = Concurrency(key="db")
    claim = claimed(policies={"overlap_policy": Allow(), "concurrency": key, "max_runs": 9})
    started = refused(claim, Busy(place=Place.SLOT))
    assert started == Start(claim=claim, takes_slot=False, concurrency=key, max_runs=9)


def test_a_full_queue_tells_its_limit():
    claim = claimed(policies={"overlap_policy": Queue(queue_limit=2)})
    assert refused(claim, Busy(place=Place.SLOT, waiting=3)).facts == {"waiting": 3, "queue_limit": 2}


def test_without_a_place_under_the_key_it_waits():
    claim = claimed(policies={"concurrency": Concurrency(key="db")})
    assert refused(claim, Busy(place=Place.CONCURRENCY)) == Wait(claim=claim, waiting_for=Reason.CONCURRENCY_LIMIT)


def test_without_a_place_under_another_key_it_waits_for_that_one():
    claim, keys = claimed(), (KeyLimit("inflight\nada", 2, Reason.INFLIGHT_LIMIT),)
    assert admit(claim, now=claim.claimed, lease=LEASE, keys=keys) == Start(claim=claim, takes_slot=True, keys=keys)
    waits = Wait(claim=claim, waiting_for=Reason.INFLIGHT_LIMIT, keys=keys)
    assert refused(claim, Busy(place=Place.CONCURRENCY, key=keys[0]), keys) == waits


@pytest.mark.parametrize(
    ("policy", "row", "expected"),
    [
        (SkipOverlap(), {}, "skipped/target_busy"),
        (SkipOverlap(), {"origin": ids.manual("a")}, "skipped/target_busy"),
        (SkipOverlap(), {"waiting_for": Reason.INFLIGHT_LIMIT}, "skipped/target_busy"),
        (SkipOverlap(), {"waiting_for": Reason.TARGET_BUSY}, "wait for target_busy"),
        (SkipOverlap(), {"attempt": 1}, "wait for target_busy"),
        (SkipOverlap(), {"origin": ids.backfill("a")}, "wait for target_busy"),
        (Queue(), {}, "wait for target_busy"),
        (QueueOne(), {}, "wait for target_busy"),
        (Allow(), {}, "wait for target_busy"),
    ],
)
def test_a_busy_session_is_waited_for_unless_the_policy_skips(policy, row, expected):
    target = SessionTarget(type=SessionType.EXACT, session_id="desk", action=PromptAction(prompt="go"))
    inflight = KeyLimit("inflight\nada", 2, Reason.INFLIGHT_LIMIT)
    claim = claimed(policies={"overlap_policy": policy, "target": target}, **row)
    start = admit(claim, now=claim.claimed, lease=LEASE, keys=(inflight,))
    turn = KeyLimit("session:desk\n", 1, Reason.TARGET_BUSY)
    assert start.keys == (turn, inflight)
    decision = refused(claim, Busy(place=Place.CONCURRENCY, key=turn), start.keys)
    if isinstance(decision, Wait):
        assert decision == Wait(claim=claim, waiting_for=Reason.TARGET_BUSY, keys=start.keys)
    assert told(decision) == expected
    waits = refused(claim, Busy(place=Place.CONCURRENCY, key=inflight), start.keys)
    assert told(waits) == "wait for inflight_limit"


def test_a_session_that_does_not_exist_is_a_missing_target():
    claim = claimed(policies={"missing_target_policy": MissingTargetPolicy.SKIP})
    end = missing_agent(claim, {"session": "desk"})
    assert (told(end), end.facts) == ("skipped/target_missing", {"session": "desk"})


def test_when_the_runs_are_used_up_it_is_skipped():
    claim = claimed(policies={"max_runs": 3})
    assert refused(claim, Busy(place=Place.MAX_RUNS)) == End(
        claim=claim, phase=Phase.SKIPPED, reason=Reason.MAX_RUNS_REACHED, facts={"max_runs": 3}
    )


COST = Refused(
    scope=BudgetScope.USER,
    scope_id="ada",
    what="cost",
    limit=2_000_000_000,
    settled=1_500_000_000,
    reserved=300_000_000,
    requested=250_000_000,
    resets_at=at(900),
)
TOKENS = Refused(scope=BudgetScope.SESSION, scope_id="talk", what="tokens", limit=100, settled=90, requested=20)


def beyond(refusal, *, asked_until=None, now=500, **changes):
    claim = claimed(**changes)
    busy = Busy(
        place=Place.BUDGET,
        refused=refusal,
        asked_until=None if asked_until is None else at(asked_until),
        at=at(now),
    )
    return claim, refused(claim, busy)


def test_without_room_in_a_budget_it_is_skipped_with_the_figures():
    _, end = beyond(COST)
    assert told(end) == "skipped/budget_exceeded"
    assert end.reason in ENDINGS[end.phase]
    assert end.facts == {
        "scope": "user",
        "scope_id": "ada",
        "what": "cost",
        "limit_usd": 2,
        "settled_usd": 1.5,
        "reserved_usd": 0.3,
        "requested_usd": 0.25,
        "resets_at": "2026-11-15T12:15:00Z",
        "why": refusal_text(COST),
    }
    assert end.pause is None
    _, end = beyond(TOKENS)
    figures = {"limit": 100, "settled": 90, "reserved": 0, "requested": 20}
    assert end.facts == {
        "scope": "session",
        "scope_id": "talk",
        "what": "tokens",
        **figures,
        "why": refusal_text(TOKENS),
    }


@pytest.mark.parametrize(
    ("policy", "until"), [(WhenExhausted.PAUSE, None), (WhenExhausted.PAUSE_UNTIL_NEXT_PERIOD, at(900))]
)
def test_a_used_up_budget_may_pause_the_schedule(policy, until):
    _, end = beyond(replace(COST, when_exhausted=policy))
    assert end.pause == Pause(at=at(500), by=BY_ITSELF, reason=refusal_text(COST), until=until)


def test_beyond_a_soft_budget_somebody_is_asked_once():
    soft = replace(TOKENS, needs_approval=True, when_exhausted=WhenExhausted.PAUSE)
    claim, wait = beyond(soft)
    assert (wait.waiting_for, wait.until, wait.takes_slot) == (Reason.APPROVAL, at(500) + APPROVAL_WAIT, True)
    assert wait.asks == f"occurrence {claim.occurrence.id} goes beyond its budget: {refusal_text(soft)}"
    assert wait.facts["limit"] == 100
    _, again = beyond(soft, asked_until=600)
    assert (again.waiting_for, again.until) == (Reason.APPROVAL, at(600))
    _, late = beyond(soft, asked_until=500)
    assert told(late) == "skipped/approval_expired"
    assert late.reason in ENDINGS[late.phase]


def test_somebody_is_asked_until_the_window_closes():
    soft = replace(TOKENS, needs_approval=True)
    window = Window(duration=3_600 * SECOND)
    _, wait = beyond(soft, policies={"window": window})
    assert wait.until == window.closes_at(at(100))
    assert not beyond(soft, policies={"overlap_policy": Allow()})[1].takes_slot
    assert not beyond(soft, holds_slot=True)[1].takes_slot


def test_at_most_once_holds_when_the_node_that_took_over_is_lost_as_well():
    claim = claimed(found_in=Phase.CLAIMED, losses=1, policies={"delivery": Delivery.AT_MOST_ONCE})
    assert told(admitted(claim)) == "delivery_failed/outcome_unknown"
    assert told(admitted(claimed(found_in=Phase.CLAIMED, policies={"delivery": Delivery.AT_MOST_ONCE}))) == "start"
