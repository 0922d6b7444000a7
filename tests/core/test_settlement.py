"""What becomes of an occurrence when its delivery has ended."""

import json
from dataclasses import replace

import pytest

from noonmark.core.budgets.spend import Usage
from noonmark.core.errors import Conflict
from noonmark.core.ids import fraction
from noonmark.core.instants import SECOND, to_text
from noonmark.core.lifecycle import ENDINGS, FINAL, Phase
from noonmark.core.planner import occurrence
from noonmark.core.policies.delivery import Delivery
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.policies.window import EndAction, Window
from noonmark.core.reasons import Reason
from noonmark.core.run import CUT_OFF, Outcome, Run, in_place_of
from noonmark.core.settlement import (
    Accepted,
    Delivered,
    RunInProgress,
    Settlement,
    Suspended,
    began,
    expire,
    interim,
    lost_run,
    run_key,
    settle,
)
from noonmark.core.targets import WorkflowTarget
from noonmark.core.targets.http import HttpTarget
from tests.core.scheduled import after_noon, at, every, one_id, scheduled

FAILURES = [Outcome.FAILED, Outcome.TIMED_OUT, Outcome.DELIVERY_FAILED]
TWICE = RetryPolicy(max_attempts=2, backoff=10 * SECOND)
# Ten seconds, and up to a tenth more.
RETRY_AT = 112 + 10 + int(fraction(one_id(100), 1) * SECOND) / SECOND


def settled(outcome, *, attempt=1, ended=112, phase=Phase.DISPATCHING, reason=None, said=None, **policies):
    """The end at 112 s of a delivery that was due at 100 s."""
    schedule = scheduled(every(100), **policies)
    row = replace(occurrence(schedule, at(100), at(100)), phase=phase, attempt=attempt, fence=4, holds_slot=True)
    delivered = Delivered(outcome=outcome, started=at(101), ended=at(ended), reason=reason, **(said or {}))
    settlement = settle(row, schedule, delivered, node="n1")
    assert settlement.occurrence == row
    assert (settlement.retry_at is not None) == (settlement.phase is Phase.PENDING)
    if settlement.phase in FINAL:
        assert settlement.reason in ENDINGS[settlement.phase]
    return settlement


def told(settlement):
    return f"{settlement.phase}/{settlement.reason}"


def test_a_run_tells_what_the_delivery_told():
    schedule = scheduled()
    row = replace(occurrence(schedule, at(100), at(100)), phase=Phase.DISPATCHING, attempt=2, fence=4)
    usage = Usage(input_tokens=7, cost=500_000_000)
    delivered = Delivered(
        outcome=Outcome.COMPLETED, started=at(101), ended=at(112), result={"n": 1}, error="almost", usage=usage
    )
    run = Run(
        id=f"{row.id}-4",
        occurrence_id=row.id,
        attempt=2,
        node="n1",
        started=at(101),
        ended=at(112),
        outcome=Outcome.COMPLETED,
        result={"n": 1},
        error="almost",
        usage=usage,
    )
    assert settle(row, schedule, delivered, node="n1") == Settlement(
        occurrence=row,
        tenant=schedule.owner.tenant,
        phase=Phase.COMPLETED,
        reason=Reason.SUCCEEDED,
        run=run,
        attempt=2,
    )


@pytest.mark.parametrize(
    ("outcome", "expected", "is_failure"),
    [
        (Outcome.COMPLETED, "completed/succeeded", False),
        (Outcome.CANCELLED, "cancelled/cancelled", False),
        (Outcome.FAILED, "failed/failed", True),
        (Outcome.TIMED_OUT, "timed_out/timed_out", True),
        (Outcome.DELIVERY_FAILED, "delivery_failed/undeliverable", True),
        (Outcome.LEASE_LOST, "pending/lease_lost", False),
    ],
)
@pytest.mark.parametrize("phase", [Phase.DISPATCHING, Phase.AWAITING_COMPLETION])
def test_each_outcome_leads_to_its_phase(outcome, expected, is_failure, phase):
    settlement = settled(outcome, phase=phase, pause_on_failure=3)
    assert (told(settlement), settlement.is_failure) == (expected, is_failure)
    assert settlement.pause_after == (3 if is_failure else None)


@pytest.mark.parametrize(
    ("outcome", "reason", "expected"),
    [
        (Outcome.CANCELLED, Reason.REPLACED, "cancelled/replaced"),
        (Outcome.CANCELLED, Reason.WINDOW_CLOSED, "cancelled/window_closed"),
        (Outcome.TIMED_OUT, Reason.COMPLETION_TIMED_OUT, "timed_out/completion_timed_out"),
    ],
)
def test_why_it_was_stopped_is_kept(outcome, reason, expected):
    assert told(settled(outcome, reason=reason)) == expected


def test_only_what_was_delivered_can_be_settled():
    with pytest.raises(Conflict):
        settled(Outcome.COMPLETED, phase=Phase.PENDING)


# Retries


@pytest.mark.parametrize("outcome", FAILURES)
def test_a_failure_is_tried_again_while_attempts_are_left(outcome):
    settlement = settled(outcome, retry_policy=TWICE, pause_on_failure=1)
    assert told(settlement) == "pending/retry_scheduled"
    assert after_noon(settlement.retry_at) == RETRY_AT
    assert (settlement.attempt, settlement.pause_after, settlement.is_failure) == (1, None, False)
    assert settlement.facts["attempt"] == 1
    assert settlement.facts["max_attempts"] == 2
    assert settlement.facts["delay_seconds"] == pytest.approx(RETRY_AT - 112)


@pytest.mark.parametrize("outcome", FAILURES)
def test_the_last_attempt_ends_it(outcome):
    settlement = settled(outcome, attempt=2, retry_policy=TWICE, pause_on_failure=1)
    assert told(settlement) == f"{outcome}/attempts_exhausted"
    assert (settlement.pause_after, settlement.facts) == (1, {"attempt": 2, "max_attempts": 2})


@pytest.mark.parametrize(
    ("outcome", "raised", "on", "expected"),
    [
        (Outcome.FAILED, ("ValueError", "Exception"), ("ValueError",), "pending/retry_scheduled"),
        (Outcome.FAILED, ("ValueError", "Exception"), ("OSError",), "failed/not_retried"),
        (Outcome.TIMED_OUT, (), ("TimeoutError",), "pending/retry_scheduled"),
        (Outcome.TIMED_OUT, (), ("ValueError",), "timed_out/not_retried"),
        (Outcome.DELIVERY_FAILED, (), ("ValueError",), "pending/retry_scheduled"),
    ],
)
def test_an_exception_that_the_policy_does_not_retry_ends_it(outcome, raised, on, expected):
    settlement = settled(outcome, said={"raised": raised}, retry_policy=replace(TWICE, on=on), pause_on_failure=1)
    assert told(settlement) == expected
    if settlement.reason is Reason.NOT_RETRIED:
        exception = raised[0] if raised else "TimeoutError"
        assert settlement.facts == {"attempt": 1, "max_attempts": 2, "exception": exception}
        assert settlement.pause_after == 1


def test_without_retries_no_attempts_are_spoken_of():
    assert told(settled(Outcome.FAILED)) == "failed/failed"


@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.CANCELLED])
def test_what_did_not_fail_is_not_tried_again(outcome):
    assert settled(outcome, retry_policy=TWICE).phase is Phase(outcome)


@pytest.mark.parametrize(("closes_after", "expected"), [(30, "pending/retry_scheduled"), (22, "failed/failed")])
def test_no_retry_is_planned_beyond_the_window(closes_after, expected):
    window = Window(duration=closes_after * SECOND)
    assert told(settled(Outcome.FAILED, retry_policy=TWICE, window=window)) == expected


def test_a_retry_at_the_very_end_of_the_window_is_too_late():
    window = Window(duration=at(RETRY_AT) - at(100))
    settlement = settled(Outcome.FAILED, retry_policy=TWICE, window=window, pause_on_failure=2)
    assert told(settlement) == "failed/failed"
    assert settlement.pause_after == 2
    assert set(settlement.facts) == {"attempt", "max_attempts", "window_closes_at"}
    assert told(settled(Outcome.FAILED, retry_policy=TWICE, window=replace(window, duration=window.duration + 1))) == (
        "pending/retry_scheduled"
    )


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome.FAILED, "pending/retry_scheduled"),
        (Outcome.DELIVERY_FAILED, "pending/retry_scheduled"),
        (Outcome.TIMED_OUT, "timed_out/timed_out"),  # it may still be at work
        (Outcome.LEASE_LOST, "delivery_failed/outcome_unknown"),
    ],
)
def test_under_at_most_once_only_a_known_failure_is_tried_again(outcome, expected):
    settlement = settled(outcome, retry_policy=TWICE, delivery=Delivery.AT_MOST_ONCE, pause_on_failure=2)
    assert told(settlement) == expected
    assert settlement.pause_after == (2 if settlement.phase in FINAL else None)
    assert "retry_at" not in settlement.facts or settlement.phase is Phase.PENDING


def test_a_workflow_goes_back_also_under_at_most_once_to_be_undone():
    workflow = {"target": WorkflowTarget(workflow_id="etl"), "delivery": Delivery.AT_MOST_ONCE}
    assert told(settled(Outcome.LEASE_LOST, **workflow)) == "pending/lease_lost"


@pytest.mark.parametrize("retry_policy", [RetryPolicy(), TWICE])
@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome.FAILED, "delivery_failed/outcome_unknown"),
        (Outcome.DELIVERY_FAILED, "delivery_failed/outcome_unknown"),
        (Outcome.CANCELLED, "cancelled/cancelled"),
        (Outcome.COMPLETED, "completed/succeeded"),
    ],
)
def test_under_at_most_once_what_may_have_begun_is_not_begun_again(outcome, expected, retry_policy):
    policies = {"retry_policy": retry_policy, "pause_on_failure": 2, "delivery": Delivery.AT_MOST_ONCE}
    settlement = settled(outcome, said={"is_unknown": True, "own_words": "it is gone"}, **policies)
    assert told(settlement) == expected
    assert (settlement.retry_at, settlement.attempt, settlement.run.outcome) == (None, 1, outcome)
    if settlement.is_failure:
        assert (settlement.pause_after, settlement.own_words) == (2, "it is gone")
        assert settlement.facts == {"attempt": 1, "max_attempts": retry_policy.max_attempts}


@pytest.mark.parametrize(("attempt", "more"), [(1, {"is_final": True}), (2, {})])
def test_a_final_failure_is_not_tried_again_and_says_so_while_attempts_are_left(attempt, more):
    settlement = settled(Outcome.FAILED, said={"is_final": True}, attempt=attempt, retry_policy=TWICE)
    assert told(settlement) == "failed/failed"
    assert settlement.facts == {"attempt": attempt, "max_attempts": 2, **more}


def test_what_a_delivery_did_not_find_is_kept():
    said = {"is_final": True, "error": "there is no mob 'm'"}
    settlement = settled(Outcome.DELIVERY_FAILED, reason=Reason.TARGET_MISSING, said=said)
    assert told(settlement) == "delivery_failed/target_missing"
    assert settlement.facts == {"attempt": 1, "max_attempts": 1, "why": "there is no mob 'm'"}


def test_under_at_least_once_it_is_a_failure_like_any_other():
    policies = {"said": {"is_unknown": True}, "delivery": Delivery.AT_LEAST_ONCE}
    assert told(settled(Outcome.FAILED, **policies)) == "failed/failed"
    assert told(settled(Outcome.FAILED, retry_policy=TWICE, **policies)) == "pending/retry_scheduled"


def test_the_promise_that_forbids_a_retry_is_named():
    settlement = settled(Outcome.TIMED_OUT, retry_policy=TWICE, delivery=Delivery.AT_MOST_ONCE)
    assert settlement.facts == {"attempt": 1, "max_attempts": 2, "delivery": "at_most_once"}


# Hand back


@pytest.mark.parametrize("retry_policy", [RetryPolicy(), TWICE])
@pytest.mark.parametrize("attempt", [1, 2])
def test_what_a_stopping_node_hands_back_was_no_attempt(retry_policy, attempt):
    settlement = settled(Outcome.LEASE_LOST, attempt=attempt, retry_policy=retry_policy, pause_on_failure=1)
    assert told(settlement) == "pending/lease_lost"
    assert (after_noon(settlement.retry_at), settlement.attempt, settlement.pause_after) == (112, attempt - 1, None)


@pytest.mark.parametrize(
    ("row", "has_begun"),
    [
        ({}, False),
        ({"waiting_for": Reason.QUEUED}, False),
        ({"attempt": 1}, True),
        ({"losses": 1}, True),
        ({"reason": Reason.LEASE_LOST}, True),
        ({"reason": Reason.SUSPENDED}, True),
    ],
)
def test_a_row_knows_whether_it_ever_began(row, has_begun):
    assert replace(occurrence(scheduled(), at(100), at(100)), **row).has_begun is has_begun


# Suspended, to go on later


@pytest.mark.parametrize("until", [None, at(500)])
def test_a_workflow_that_waits_gives_up_its_node_and_no_attempt(until):
    schedule = scheduled()
    row = replace(occurrence(schedule, at(100), at(100)), phase=Phase.DISPATCHING, attempt=2, fence=3)
    suspended = Suspended(
        started=at(100), ended=at(112), until=until, waiting_for=Reason.APPROVAL, open_steps=frozenset({("ask", None)})
    )
    settlement = settle(row, schedule, suspended, node="n1")
    assert told(settlement) == "pending/suspended"
    assert (settlement.attempt, settlement.retry_at, settlement.suspended) == (1, until, suspended)
    assert (settlement.run.outcome, settlement.run.ended) == (Outcome.SUSPENDED, at(112))


@pytest.mark.parametrize("reason", [Reason.RESOURCES_SHORT, Reason.SERVICE_UNAVAILABLE])
def test_what_a_node_cannot_start_waits_for_that_and_is_no_suspended_run(reason):
    schedule = scheduled()
    row = replace(occurrence(schedule, at(100), at(100)), phase=Phase.DISPATCHING, attempt=1, fence=3)
    short = Suspended(
        started=at(100), ended=at(100), until=at(130), waiting_for=reason, open_steps=frozenset(), error="no slot"
    )
    settlement = settle(row, schedule, short, node="n1")
    assert told(settlement) == f"pending/{reason}"
    assert (settlement.attempt, settlement.retry_at, settlement.facts) == (0, at(130), {"problem": "no slot"})
    assert replace(row, phase=Phase.PENDING, attempt=0, reason=reason).has_begun
    assert not replace(row, phase=Phase.PENDING, attempt=0, reason=reason).is_suspended


@pytest.mark.parametrize(
    ("phase", "reason", "expected"),
    [
        (Phase.PENDING, Reason.SUSPENDED, True),
        (Phase.DISPATCHING, Reason.SUSPENDED, False),
        (Phase.PENDING, Reason.LEASE_LOST, False),
    ],
)
def test_a_suspended_row_is_in_flight_without_a_node(phase, reason, expected):
    row = replace(occurrence(scheduled(), at(100), at(100)), phase=phase, reason=reason)
    assert row.is_suspended is expected


# Accepted, to be told later


def accepted(deadline=None, *, phase=Phase.DISPATCHING):
    schedule = scheduled(every(100))
    row = replace(occurrence(schedule, at(100), at(100)), phase=phase, attempt=1, fence=4, holds_slot=True)
    told_later = Accepted(started=at(101), accepted=at(112), deadline=None if deadline is None else at(deadline))
    return settle(row, schedule, told_later, node="n1")


@pytest.mark.parametrize(("deadline", "expected"), [(None, 112 + 86_400), (130, 130)])
def test_what_was_accepted_has_a_day_or_as_long_as_the_target_says(deadline, expected):
    settlement = accepted(deadline)
    assert told(settlement) == "awaiting_completion/accepted"
    assert (after_noon(settlement.deadline), settlement.retry_at, settlement.pause_after) == (expected, None, None)
    assert settlement.facts == {"deadline": to_text(at(expected)), "deadline_set_by": "target"}
    assert not settlement.is_failure
    run = settlement.run
    assert (run.id, run.node, run.started, run.ended, run.outcome) == (f"{one_id(100)}-4", "n1", at(101), None, None)


@pytest.mark.parametrize(
    ("window", "deadline", "ends_at", "told_at_130"),
    [
        # Open for so long from 100 s on; the target has until its deadline.
        ((20, "cancel"), 130, 120, "cancelled/window_closed"),
        ((20, "cancel"), None, 120, "cancelled/window_closed"),
        ((30, "cancel"), 130, 130, "cancelled/window_closed"),
        ((31, "cancel"), 130, 130, "timed_out/completion_timed_out"),
        ((20, "none"), 130, 130, "timed_out/completion_timed_out"),
        ((20, "pause"), 130, 130, "timed_out/completion_timed_out"),
        ((5, "cancel"), 130, 105, "cancelled/window_closed"),
        (None, 130, 130, "timed_out/completion_timed_out"),
    ],
)
def test_what_was_accepted_ends_with_its_window_or_by_its_deadline(window, deadline, ends_at, told_at_130):
    made = window and Window(duration=window[0] * SECOND, end_action=EndAction(window[1]))
    schedule = scheduled(every(100), window=made)
    row = replace(occurrence(schedule, at(100), at(100)), phase=Phase.DISPATCHING, attempt=1, fence=4)
    told_later = Accepted(started=at(101), accepted=at(112), deadline=None if deadline is None else at(deadline))
    waiting = settle(row, schedule, told_later, node="n1")
    assert (told(waiting), after_noon(waiting.deadline)) == ("awaiting_completion/accepted", ends_at)
    by_window = "window" in told_at_130
    assert waiting.facts == {"deadline": to_text(at(ends_at)), "deadline_set_by": "window" if by_window else "target"}
    # A row may have been written before it told what set its deadline.
    for detail in (json.dumps(dict(waiting.facts)), "", '{"deadline_set_by": 1}', "[]", "no JSON"):
        overdue = replace(row, phase=Phase.AWAITING_COMPLETION, deadline=waiting.deadline, detail=detail)
        ended = expire(overdue, schedule, now=at(130))
        assert told(ended) == told_at_130
        assert told(expire(replace(overdue, stop=Reason.REPLACED), schedule, now=at(130))) == "cancelled/replaced"
        if by_window:
            assert ended.run.error == "the window in which it may run had closed"
            assert ended.facts == {"closes_at": to_text(at(ends_at))}


@pytest.mark.parametrize("policies", [{}, {"retry_policy": TWICE}])
@pytest.mark.parametrize(
    ("agreed", "edited", "ends_at", "expected"),
    [
        # Open for so long from 100 s on; the target has until 130 s.
        (20, 60, 120, "cancelled/window_closed"),
        (20, 25, 120, "cancelled/window_closed"),
        (20, None, 120, "cancelled/window_closed"),
        (20, 5, 120, "cancelled/window_closed"),
        (60, 20, 130, "timed_out/completion_timed_out"),
        (None, 20, 130, "timed_out/completion_timed_out"),
        (60, 30, 130, "timed_out/completion_timed_out"),
    ],
)
def test_an_edit_of_its_window_does_not_change_what_was_agreed(agreed, edited, ends_at, expected, policies):
    def declared(seconds):
        window = seconds and Window(duration=seconds * SECOND, end_action=EndAction.CANCEL)
        return scheduled(every(100), window=window, **policies)

    row = replace(occurrence(declared(agreed), at(100), at(100)), phase=Phase.DISPATCHING, attempt=1, fence=4)
    told_later = Accepted(started=at(101), accepted=at(112), deadline=at(130))
    waiting = settle(row, declared(agreed), told_later, node="n1")
    assert after_noon(waiting.deadline) == ends_at
    overdue = replace(
        row, phase=Phase.AWAITING_COMPLETION, deadline=waiting.deadline, detail=json.dumps(dict(waiting.facts))
    )
    assert told(expire(overdue, declared(edited), now=waiting.deadline)) == expected


def test_what_awaits_completion_is_not_accepted_again():
    with pytest.raises(Conflict):
        accepted(phase=Phase.AWAITING_COMPLETION)


def test_its_end_has_the_run_that_its_acceptance_opened():
    settlement = settled(Outcome.FAILED, phase=Phase.AWAITING_COMPLETION)
    assert settlement.run.id == accepted().run.id
    assert told(settlement) == "failed/failed"


def expired(*, phase=Phase.AWAITING_COMPLETION, stop=None, node="n1", started=101, **policies):
    """What becomes at 112 s of a delivery whose deadline has come."""
    schedule = scheduled(every(100), **policies)
    row = replace(
        occurrence(schedule, at(100), at(100)),
        phase=phase,
        attempt=1,
        fence=4,
        stop=stop,
        node=node,
        started=None if started is None else at(started),
    )
    return expire(row, schedule, now=at(112))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({}, "timed_out/completion_timed_out"),
        ({"retry_policy": TWICE}, "pending/retry_scheduled"),
        ({"retry_policy": TWICE, "delivery": Delivery.AT_MOST_ONCE}, "timed_out/completion_timed_out"),
        ({"stop": Reason.REPLACED}, "cancelled/replaced"),
        ({"stop": Reason.REPLACED, "retry_policy": TWICE}, "cancelled/replaced"),
        ({"stop": Reason.CANCELLED}, "cancelled/cancelled"),
        ({"stop": Reason.REPLACED, "phase": Phase.DISPATCHING}, "cancelled/replaced"),
    ],
)
def test_what_is_overdue_times_out_unless_it_was_asked_to_stop(row, expected):
    settlement = expired(**row)
    assert told(settlement) == expected
    run = settlement.run
    assert (run.node, run.started, run.ended) == ("n1", at(101), at(112))


def test_a_delivery_whose_lease_was_lost_is_shown_from_its_row():
    row = replace(
        occurrence(scheduled(), at(100), at(100)),
        fence=4,
        attempt=2,
        node="n1",
        started=at(101),
        phase=Phase.DISPATCHING,
    )
    expected = Run(
        id=f"{row.id}-4",
        occurrence_id=row.id,
        attempt=2,
        node="n1",
        started=at(101),
        ended=at(112),
        outcome=Outcome.LEASE_LOST,
        error="node n1 was lost before it had ended",
    )
    assert lost_run(row, now=at(112)) == expected
    gone = lost_run(row, now=at(112), is_process_gone=True)
    assert gone == replace(expected, error="the process of node n1 was gone before it had ended")


def test_a_row_that_does_not_tell_who_delivered_it_is_settled_anyway():
    run = expired(node=None, started=None).run
    assert (run.node, run.started) == ("", at(112))
    lost = lost_run(replace(occurrence(scheduled(), at(100), at(100)), phase=Phase.DISPATCHING), now=at(112))
    assert (lost.node, lost.started) == ("", at(112))
    assert lost.error == "its node was lost before it had ended"
    gone = lost_run(replace(occurrence(scheduled(), at(100), at(100))), now=at(112), is_process_gone=True)
    assert gone.error == "the process of its node was gone before it had ended"


UNTOLD = {"reason": Reason.COMPLETION_TIMED_OUT}


@pytest.mark.parametrize(
    ("outcome", "said", "expected"),
    [
        (Outcome.TIMED_OUT, {"timeout": 1_500_000}, "no end within 1.5 s"),
        (Outcome.TIMED_OUT, {}, "no end within its timeout"),
        (
            Outcome.TIMED_OUT,
            {"reason": Reason.COMPLETION_TIMED_OUT},
            "the target did not say in time how the work ended",
        ),
        (Outcome.CANCELLED, {}, "someone asked for it to be cancelled"),
        (Outcome.CANCELLED, {"reason": Reason.WINDOW_CLOSED}, "the window in which it may run had closed"),
        (Outcome.LEASE_LOST, {}, "node n1 stopped before it had ended"),
        (Outcome.COMPLETED, {}, None),
        (Outcome.FAILED, {}, None),
    ],
)
def test_a_run_that_was_cut_short_says_so(outcome, said, expected):
    assert settled(outcome, **said).run.error == expected


def test_a_call_that_timed_out_had_no_answer():
    schedule = scheduled(timeout=SECOND)
    call = replace(schedule.declaration, target=HttpTarget(url="https://example.com/"))
    row = replace(occurrence(schedule, at(100), at(100)), phase=Phase.DISPATCHING, attempt=1)
    delivered = Delivered(outcome=Outcome.TIMED_OUT, started=at(101), ended=at(102))
    ended = settle(row, replace(schedule, declaration=call), delivered, node="n1")
    assert ended.run.error == "no answer within 1 s"


def test_the_words_of_the_work_come_before_those_about_its_end():
    schedule = scheduled()
    row = replace(occurrence(schedule, at(100), at(100)), phase=Phase.DISPATCHING, attempt=1)
    for outcome in CUT_OFF - {Outcome.SUSPENDED}:
        delivered = Delivered(outcome=outcome, started=at(101), ended=at(112), error="out of paper")
        assert settle(row, schedule, delivered, node="n1").run.error == "out of paper"


def test_an_end_that_nobody_told_names_its_deadline():
    schedule = scheduled()
    row = replace(occurrence(schedule, at(100), at(100)), phase=Phase.AWAITING_COMPLETION, attempt=1, deadline=at(110))
    assert expire(row, schedule, now=at(112)).run.error == (
        "the target did not say by 2026-11-15T12:01:50Z how the work ended"
    )


def failed(*, is_final=False, retry_after=0, policy=TWICE):
    schedule = scheduled(every(100), retry_policy=policy)
    row = replace(occurrence(schedule, at(100), at(100)), phase=Phase.DISPATCHING, attempt=1)
    delivered = Delivered(
        outcome=Outcome.FAILED, started=at(101), ended=at(112), is_final=is_final, retry_after=retry_after
    )
    return settle(row, schedule, delivered, node="n1")


def test_a_failure_that_another_attempt_would_not_mend_is_the_end():
    assert told(failed(is_final=True)) == "failed/failed"
    assert told(failed(is_final=False)) == "pending/retry_scheduled"


@pytest.mark.parametrize(("seconds", "retry_at"), [(0, RETRY_AT), (5, RETRY_AT), (60, 112 + 60), (10**9, 112 + 86_400)])
def test_an_attempt_comes_no_sooner_than_the_target_asked_for_but_within_a_day(seconds, retry_at):
    assert failed(retry_after=seconds * SECOND).retry_at == at(retry_at)


def test_what_goes_on_is_shown_as_an_open_run():
    row = replace(occurrence(scheduled(), at(100), at(100)), phase=Phase.DISPATCHING, attempt=2, fence=4)
    told = interim(row, RunInProgress(started=at(101), result={"output": "a"}), node="n1")
    run = Run(id=f"{row.id}-4", occurrence_id=row.id, attempt=2, node="n1", started=at(101), result={"output": "a"})
    assert (told.occurrence, told.run) == (row, run)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_what_was_cut_off_without_a_word_keeps_what_it_had_put_out(outcome):
    before = Run(id="o-1", occurrence_id="o", attempt=1, node="n1", started=at(100), result={"output": "a"})
    ended = replace(before, ended=at(112), outcome=outcome, result=None)
    kept = {"output": "a"} if outcome in CUT_OFF else None
    assert in_place_of(before, ended) == replace(ended, result=kept)
    assert in_place_of(None, ended) == ended
    own = replace(ended, result={"output": "ab"})
    assert in_place_of(before, own) == own
    assert (outcome in CUT_OFF) == (outcome not in (Outcome.COMPLETED, Outcome.FAILED))


@pytest.mark.parametrize(("started", "expected"), [(99.98, 100), (101, 101), (None, 112)])
def test_a_delivery_does_not_begin_before_it_is_due(started, expected):
    schedule = scheduled(every(100))
    row = replace(
        occurrence(schedule, at(100), at(100)),
        phase=Phase.AWAITING_COMPLETION,
        attempt=1,
        started=None if started is None else at(started),
    )
    assert began(row, now=at(112)) == expire(row, schedule, now=at(112)).run.started == at(expected)


def test_attempts_of_a_step_are_recorded_apart_and_runs_are_told_by_their_fence():
    row = replace(occurrence(scheduled(), at(100), at(100)), attempt=2, fence=3)
    assert run_key(row) == f"{row.id}-3"
    assert run_key(replace(row, id="occ_1/load")) == "occ_1/load-3.2"
