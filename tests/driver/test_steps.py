"""Each duty of the driver by itself, at a time that stands still."""

from dataclasses import replace

import pytest

from noonmark.core.budgets.spend import Usage
from noonmark.core.ids import TRIGGER
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.occurrence import Overrides
from noonmark.core.planner import first_plan
from noonmark.core.policies import misfire, overlap
from noonmark.core.policies.delivery import Delivery
from noonmark.core.policies.limits import Concurrency
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.policies.window import Window
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.schedule import AuditEntry
from noonmark.core.settlement import Accepted, Delivered
from noonmark.core.targets import FunctionTarget
from noonmark.core.triggers import EventTrigger, IntervalTrigger
from noonmark.driver.steps.reports import (
    AdmitReport,
    ClaimReport,
    PlanReport,
    PruneReport,
    ReapReport,
    RenewReport,
    SettleReport,
)
from noonmark.driver.steps.settle import is_deferrable
from noonmark.operations import schedule_edits
from noonmark.ports import events
from noonmark.ports.records import KEY_LIFETIME
from noonmark.targets.usage import usage_reports
from noonmark.testing import factories
from noonmark.testing.factories import MINUTE, NOW
from tests.driver.rig import ROUTE, Rig

QUIET = {"trigger": EventTrigger("seen"), "overlap_policy": overlap.Allow()}
EARLY = 20_000


def quiet(rig, **changes):
    """A schedule that has no occurrences but those that a test adds."""
    return rig.create(**QUIET | changes)


def started_fire(rig, made, **changes):
    """A fire of a trigger, claimed and started."""
    occurrence = factories.occurrence(made, TRIGGER, nominal=rig.world.now, **changes)
    assert rig.store.store.add([occurrence]) == [True]
    rig.claim_once()
    assert rig.admit_once().started == 1
    return rig.target.given[-1]


HOURLY = {"trigger": IntervalTrigger(3_600)}
ENDED = Delivered(outcome=Outcome.COMPLETED, started=NOW, ended=NOW)


class TestEndsThatMayWait:
    @pytest.mark.parametrize(
        ("declared", "expected"),
        [
            (HOURLY | {"overlap_policy": overlap.Allow()}, True),
            (HOURLY | {"overlap_policy": overlap.Skip()}, True),
            (HOURLY | {"overlap_policy": overlap.Queue()}, False),
            (HOURLY | {"overlap_policy": overlap.Allow(), "concurrency": Concurrency(key="disk")}, False),
            ({"trigger": IntervalTrigger(0.5), "overlap_policy": overlap.Skip()}, False),
            ({"trigger": IntervalTrigger(0.5), "overlap_policy": overlap.Allow()}, True),
            ({"trigger": EventTrigger("seen"), "overlap_policy": overlap.Skip()}, False),
        ],
    )
    def test_it_depends_on_what_may_come_next(self, declared, expected):
        rig = Rig()
        given = started_fire(rig, rig.create(**declared))
        assert is_deferrable(rig.node, given, ENDED) is expected

    @pytest.mark.parametrize(
        "delivered",
        [
            replace(ENDED, outcome=Outcome.FAILED),
            replace(ENDED, outcome=Outcome.LEASE_LOST),
            Accepted(started=NOW, accepted=NOW),
        ],
    )
    def test_only_success_waits(self, delivered):
        rig = Rig()
        assert not is_deferrable(rig.node, started_fire(rig, rig.create(**HOURLY)), delivered)

    def test_what_somebody_asked_for_does_not_wait(self):
        rig = Rig()
        schedule = rig.create(**HOURLY, overlap_policy=overlap.Allow())
        assert not is_deferrable(rig.node, rig.started(schedule), ENDED)
        given = started_fire(rig, schedule)
        assert is_deferrable(rig.node, given, ENDED)
        rig.node.on_end[given.occurrence.id] = lambda _: None
        assert not is_deferrable(rig.node, given, ENDED)

    def test_a_full_node_needs_the_room(self):
        rig = Rig(capacity=1)
        assert not is_deferrable(rig.node, started_fire(rig, rig.create(**HOURLY)), ENDED)


class TestPlanning:
    def test_says_what_it_planned_and_reports_to_the_sink(self):
        rig = Rig()
        schedule = rig.create()
        rig.advance(MINUTE)
        assert rig.plan_once() == PlanReport(planned=1)
        [told] = rig.sink.told
        assert isinstance(told, events.Planned)
        assert told.plan.snapshot.schedule.uid == schedule.uid

    def test_has_nothing_to_do_before_the_time(self):
        rig = Rig()
        rig.create()
        assert rig.plan_once() == PlanReport()
        assert rig.sink.told == []

    @pytest.mark.parametrize("policy", [misfire.Skip, misfire.CatchUpOne])
    def test_fires_that_no_node_claimed_are_one_gap_together_with_what_a_lost_node_had_claimed(self, policy):
        rig = Rig()
        schedule = rig.create(misfire_policy=policy(grace=SECOND))
        rig.advance(MINUTE)
        assert rig.claim_once().claimed == 1  # and then every node is gone for ten minutes
        rig.advance(10 * MINUTE + 2 * SECOND)
        later = Rig(rig, node="node-b")
        later.plan_once()
        later.claim_once()
        later.admit_once()
        later.plan_once()
        [gap] = [row for row in rig.rows(schedule) if row.phase is Phase.MISFIRED]
        runs = int(policy is misfire.CatchUpOne)
        assert (gap.missed_first, gap.missed_count) == (NOW + MINUTE, 11 - runs)

    def test_what_is_being_caught_up_keeps_no_later_gap_open(self):
        rig = Rig()
        schedule = rig.create(misfire_policy=misfire.CatchUpAll(grace=SECOND, limit=1))
        rig.advance(3 * MINUTE + 2 * SECOND)
        rig.plan_once()
        assert rig.claim_once().claimed == 1
        rig.advance(5 * MINUTE)
        assert rig.plan_once().planned == 1
        assert [row.missed_count for row in rig.rows(schedule) if row.phase is Phase.MISFIRED] == [4, 2]

    def test_a_gap_that_another_node_has_closed_is_not_logged(self, caplog):
        rig = Rig()
        rig.create()
        rig.advance(10 * MINUTE)
        other = Rig(rig, node="node-b")
        rig.store.meanwhile("commit_plans", other.plan_once)
        assert rig.plan_once() == PlanReport(outrun=1)
        assert len([one for one in caplog.records if "misfired" in one.getMessage()]) == 1

    def test_a_full_batch_asks_for_more(self):
        rig = Rig(batch=2)
        for number in range(3):
            rig.create(f"uid-{number}")
        rig.advance(MINUTE)
        assert rig.plan_once() == PlanReport(planned=2, more=True)
        assert rig.plan_once() == PlanReport(planned=1)

    def test_a_second_node_is_outrun_and_emits_nothing(self):
        rig = Rig()
        rig.create()
        rig.advance(MINUTE)
        other = Rig(rig, node="node-b")

        rig.store.meanwhile("commit_plans", other.plan_once)
        assert rig.plan_once() == PlanReport(outrun=1)
        assert rig.sink.told == []


class TestClaiming:
    def test_takes_what_falls_due_soon_and_reports_to_the_sink(self):
        rig = Rig()
        schedule = quiet(rig)
        near, far = rig.add(schedule, "near", 2 * SECOND), rig.add(schedule, "far", 3 * SECOND)
        assert rig.claim_once() == ClaimReport(claimed=1)
        assert rig.row(near).phase is Phase.CLAIMED
        assert rig.row(far).phase is Phase.PENDING
        [told] = rig.sink.told
        assert (told.occurrence.id, told.found_in) == (near.id, Phase.PENDING)
        assert rig.node.load == 1

    def test_only_the_one_that_was_asked_for(self):
        rig = Rig()
        schedule = quiet(rig)
        rig.add(schedule, "one")
        two = rig.add(schedule, "two")
        assert rig.claim_once(only=two.id) == ClaimReport(claimed=1, more=False)
        assert list(rig.node.held) == [two.id]

    def test_a_full_batch_asks_for_more(self):
        rig = Rig(batch=2)
        schedule = quiet(rig)
        for number in range(3):
            rig.add(schedule, str(number))
        assert rig.claim_once() == ClaimReport(claimed=2, more=True)
        assert rig.claim_once() == ClaimReport(claimed=1)

    def test_a_node_holds_no_more_than_its_capacity(self):
        rig = Rig(capacity=2)
        schedule = quiet(rig)
        for number in range(3):
            rig.add(schedule, str(number))
        assert rig.claim_once().claimed == 2
        before = rig.store.calls["claim"]
        assert rig.claim_once() == ClaimReport()
        assert rig.store.calls["claim"] == before
        rig.admit_once()
        assert rig.claim_once() == ClaimReport()  # what runs counts as well
        rig.target.end(rig.target.given[0])
        assert rig.settle_once().frees_others
        assert rig.claim_once().claimed == 1

    def test_it_takes_only_what_it_can_serve(self):
        rig = Rig(routes=["function:other"])
        schedule = quiet(rig)
        rig.add(schedule, "one")
        assert rig.claim_once() == ClaimReport()

    def test_a_lease_that_ran_out_is_anybodys(self):
        rig = Rig()
        other = Rig(rig, node="node-b")
        schedule = quiet(rig)
        assignment = rig.started(schedule)
        rig.advance(rig.timing.lease - 1)
        assert other.claim_once() == ClaimReport()
        rig.advance(1)
        assert other.claim_once() == ClaimReport(claimed=1)
        assert other.sink.told[-1].found_in is Phase.DISPATCHING
        assert other.row(assignment.occurrence).losses == 1

    def test_its_own_lost_lease_is_taken_anew_and_the_old_run_stopped(self):
        rig = Rig()
        assignment = rig.started(quiet(rig))
        rig.advance(rig.timing.lease)
        rig.sink.take()
        assert rig.claim_once() == ClaimReport(claimed=1)
        assert assignment.stop_reason is Reason.LEASE_LOST
        assert rig.sink.kinds() == ["LeaseLost", "Claimed"]
        assert rig.node.load == 1


class TestAdmitting:
    def test_a_start_is_committed_a_little_early_and_begins_at_its_time(self):
        rig = Rig()
        occurrence = rig.add(quiet(rig), "one", SECOND)
        rig.claim_once()
        rig.advance(SECOND - EARLY - 1)
        assert rig.admit_once() == AdmitReport()
        rig.advance(1)
        assert rig.admit_once() == AdmitReport(started=1)
        [assignment] = rig.target.given
        assert assignment.begins == occurrence.due
        assert rig.row(occurrence).phase is Phase.DISPATCHING
        assert isinstance(rig.sink.told[-1], events.Started)

    def test_a_place_that_is_taken_early_is_asked_for_again_at_the_due_time(self):
        rig = Rig()
        schedule = quiet(rig, overlap_policy=overlap.Skip())
        first = rig.started(schedule, "first")
        second = rig.add(schedule, "second", SECOND)
        rig.claim_once()
        rig.advance(SECOND - EARLY)
        assert rig.admit_once() == AdmitReport(postponed=1)
        assert rig.row(second).phase is Phase.CLAIMED
        assert rig.node.next_decision == second.due
        rig.target.end(first)
        rig.settle_once()
        rig.advance(EARLY - 1)
        assert rig.admit_once() == AdmitReport()
        rig.advance(1)
        assert rig.admit_once() == AdmitReport(started=1)

    def test_a_place_that_is_still_taken_at_the_due_time_is_refused_there(self):
        rig = Rig()
        schedule = quiet(rig, overlap_policy=overlap.Skip())
        rig.started(schedule, "first")
        second = rig.add(schedule, "second", SECOND)
        rig.claim_once()
        rig.advance(SECOND - EARLY)
        assert rig.admit_once() == AdmitReport(postponed=1)
        rig.advance(EARLY)
        assert rig.admit_once() == AdmitReport(ended=1)
        row = rig.row(second)
        assert (row.phase, row.reason) == (Phase.SKIPPED, Reason.OVERLAP)
        assert isinstance(rig.sink.told[-1], events.Ended)
        assert rig.node.load == 1

    def test_a_queue_lets_it_wait_until_the_first_has_ended(self):
        rig = Rig()
        schedule = quiet(rig, overlap_policy=overlap.Queue())
        first = rig.started(schedule, "first")
        second = rig.add(schedule, "second")
        rig.claim_once()
        assert rig.admit_once() == AdmitReport(waiting=1)
        assert isinstance(rig.sink.told[-1], events.Waiting)
        assert rig.claim_once() == ClaimReport()
        rig.target.end(first)
        assert rig.settle_once() == SettleReport(settled=1, frees_others=True)
        assert rig.claim_once() == ClaimReport(claimed=1)
        assert rig.admit_once() == AdmitReport(started=1)
        assert rig.target.given[-1].occurrence.id == second.id

    def test_a_local_run_that_is_replaced_is_asked_to_stop_at_once(self):
        rig = Rig()
        schedule = quiet(rig, overlap_policy=overlap.CancelRunning())
        first = rig.started(schedule, "first")
        rig.add(schedule, "second")
        rig.claim_once()
        assert rig.admit_once() == AdmitReport(waiting=1)
        assert first.stop_reason is Reason.REPLACED

    def test_one_that_is_late_beyond_its_grace_goes_back_to_the_planner(self):
        rig = Rig()
        schedule = rig.create(misfire_policy=misfire.Skip(grace=SECOND))
        rig.advance(MINUTE + 2 * SECOND)
        rig.claim_once()
        assert rig.admit_once() == AdmitReport(replanned=1)
        assert rig.plan_once().planned == 1
        ended = [row for row in rig.rows(schedule) if row.phase is Phase.MISFIRED]
        assert [row.missed_count for row in ended] == [1]

    def test_a_claim_under_an_old_revision_is_lost_and_given_back_at_once(self):
        rig = Rig()
        schedule = rig.create()
        rig.advance(MINUTE)
        rig.claim_once()
        declared = schedule.declaration
        renewed = replace(declared, target=FunctionTarget(function="work", args=(1,)))
        schedule_edits.edit(rig.store, schedule.uid, renewed, lookahead=rig.timing.lookahead)
        assert rig.admit_once() == AdmitReport(lost=1)
        assert isinstance(rig.sink.told[-1], events.LeaseLost)
        assert rig.node.load == 0
        assert rig.target.given == []
        assert rig.claim_once().claimed == 1  # nobody has to wait for the lease
        assert rig.admit_once().started == 1
        assert rig.target.given[0].schedule.declaration.target.args == (1,)

    def test_a_claim_of_a_deleted_schedule_starts_nothing(self):
        rig = Rig()
        schedule = rig.create()
        rig.advance(MINUTE)
        rig.claim_once()
        schedule_edits.delete(rig.store, schedule.uid)
        assert rig.admit_once() == AdmitReport(lost=1)
        assert rig.target.given == []

    def test_a_caller_may_override_the_overlap_policy_of_one_occurrence(self):
        rig = Rig()
        schedule = quiet(rig, overlap_policy=overlap.Skip())
        rig.started(schedule, "first")
        rig.add(schedule, "second", overrides=Overrides(overlap_policy=overlap.Allow()))
        rig.claim_once()
        assert rig.admit_once() == AdmitReport(started=1)

    def test_a_batch_at_a_time_earliest_first(self):
        rig = Rig(batch=2)
        schedule = quiet(rig)
        for number in (2, 0, 1):
            rig.add(schedule, str(number), number * 1_000)
        rig.claim_once()
        rig.claim_once()
        rig.advance(SECOND)
        assert rig.admit_once() == AdmitReport(started=2)
        assert rig.admit_once() == AdmitReport(started=1)
        nominal = [one.occurrence.nominal - NOW for one in rig.target.given]
        assert nominal == [0, 1_000, 2_000]


class TestTheClock:
    """Nothing starts before its due time by the store's clock, whatever the clock of the node says."""

    @pytest.mark.parametrize("ahead", [600 * SECOND, -600 * SECOND])
    def test_a_node_whose_clock_is_wrong_goes_by_the_stores(self, ahead):
        rig = Rig(ahead=ahead)
        schedule = quiet(rig)
        occurrence = rig.add(schedule, "one", 10 * SECOND)
        assert rig.claim_once() == ClaimReport()
        rig.advance(8 * SECOND)
        assert rig.claim_once() == ClaimReport(claimed=1)
        assert rig.admit_once() == AdmitReport()
        rig.advance(2 * SECOND)
        assert rig.admit_once() == AdmitReport(started=1)
        assert rig.target.given[0].begins == occurrence.due == rig.target.now()

    def test_its_first_plan_goes_by_the_stores_clock(self):
        rig = Rig(ahead=600 * SECOND)
        rig.create()
        assert rig.plan_once() == PlanReport()

    def test_it_prunes_and_reaps_by_the_stores_clock(self):
        rig = Rig(ahead=600 * SECOND, keep_for=60 * SECOND)
        schedule = quiet(rig)
        assignment = rig.started(schedule)
        rig.target.end(assignment)
        rig.settle_once()
        other = Rig(rig, node="node-b", ahead=600 * SECOND, keep_for=60 * SECOND)
        other.lead_once()
        assert other.prune_once() == PruneReport()
        late = Rig(rig, node="node-c", ahead=600 * SECOND, routes=["function:other"])
        rig.add(schedule, "two")
        assert late.reap_once() == ReapReport()

    def test_each_renewal_reads_it_again(self):
        rig = Rig()
        rig.renew_once()
        rig.node.store_clock.note(rig.world.now - 5 * SECOND)
        assert rig.node.now == rig.world.now - 5 * SECOND
        rig.renew_once()
        assert rig.node.now == rig.world.now


class TestSettling:
    def test_writes_how_a_delivery_ended_and_reports_to_the_sink(self):
        rig = Rig()
        schedule = quiet(rig)
        assignment = rig.started(schedule)
        assert rig.settle_once() == SettleReport()
        rig.target.end(assignment, result={"rows": 3})
        assert rig.settle_once() == SettleReport(settled=1)
        assert rig.row(assignment.occurrence).phase is Phase.COMPLETED
        [run] = rig.runs(schedule)
        assert (run.outcome, run.result, run.node) == (Outcome.COMPLETED, {"rows": 3}, "node-a")
        told = rig.sink.told[-1]
        assert (type(told), told.phase, told.run.id) == (events.Settled, Phase.COMPLETED, run.id)
        assert rig.node.load == 0

    def test_a_failure_with_attempts_left_is_a_retry(self):
        rig = Rig()
        schedule = quiet(rig, retry_policy=RetryPolicy(max_attempts=2, backoff=10 * SECOND))
        assignment = rig.started(schedule)
        rig.target.end(assignment, Outcome.FAILED, error="no")
        assert rig.settle_once() == SettleReport(settled=1, frees_others=True)
        row = rig.row(assignment.occurrence)
        assert (row.phase, row.attempt, row.reason) == (Phase.PENDING, 1, Reason.RETRY_SCHEDULED)
        assert rig.sink.told[-1].retry_at == row.due >= NOW + 10 * SECOND
        rig.advance(row.due - rig.world.now)
        rig.claim_once()
        rig.admit_once()
        assert rig.target.given[-1].occurrence.attempt == 2

    def test_a_delivery_that_was_taken_over_no_longer_counts(self):
        rig = Rig()
        other = Rig(rig, node="node-b")
        schedule = quiet(rig)
        assignment = rig.started(schedule)
        rig.advance(rig.timing.lease)
        other.claim_once()
        rig.target.end(assignment, result="mine")
        assert rig.settle_once() == SettleReport(lost=1)
        told = rig.sink.told[-1]
        assert (type(told), told.run.result) == (events.LeaseLost, "mine")
        assert rig.row(assignment.occurrence).phase is Phase.CLAIMED

    def test_what_a_delivery_used_that_was_taken_over_is_spent(self):
        rig = Rig()
        other = Rig(rig, node="node-b")
        assignment = rig.started(quiet(rig))
        usage_reports(assignment).add(Usage(model="small", input_tokens=7, model_calls=1, cost=5))
        rig.advance(rig.timing.lease)
        other.claim_once()
        rig.target.end(assignment)
        assert rig.settle_once() == SettleReport(lost=1)
        assert rig.store.run_usage(assignment.occurrence.id).cost == 5
        other.admit_once()
        [again] = other.target.given
        usage_reports(again).add(Usage(model="small", input_tokens=7, model_calls=1, cost=5))
        other.target.end(again)
        assert other.settle_once().settled == 1
        assert rig.store.run_usage(assignment.occurrence.id).cost == 10

    def test_a_batch_at_a_time_in_order(self):
        rig = Rig(batch=2)
        schedule = quiet(rig)
        for number in range(3):
            rig.add(schedule, str(number))
        rig.claim_once()
        rig.claim_once()
        rig.admit_once()
        rig.admit_once()
        for assignment in rig.target.given:
            rig.target.end(assignment)
        assert rig.settle_once().settled == 2
        assert rig.settle_once().settled == 1
        assert rig.settle_once().settled == 0

    def test_a_waiting_caller_learns_of_an_end_but_not_of_a_retry(self):
        rig = Rig()
        schedule = quiet(rig, retry_policy=RetryPolicy(max_attempts=2, backoff=0))
        heard = []
        occurrence = rig.add(schedule, "one")
        rig.node.on_end[occurrence.id] = lambda *ending: heard.append(ending)
        rig.claim_once()
        rig.admit_once()
        rig.target.end(rig.target.given[-1], Outcome.FAILED)
        rig.settle_once()
        assert heard == []
        rig.advance(MINUTE)
        rig.claim_once()
        rig.admit_once()
        error = ValueError("again")
        rig.target.given[-1].error = error
        rig.target.end(rig.target.given[-1], Outcome.FAILED)
        rig.settle_once()
        [(assignment,)] = heard
        assert (assignment.occurrence.id, assignment.error) == (occurrence.id, error)


class TestRenewing:
    def test_extends_the_leases_of_claims_and_deliveries(self):
        rig = Rig()
        other = Rig(rig, node="node-b")
        schedule = quiet(rig)
        rig.started(schedule)
        rig.add(schedule, "two", SECOND)
        rig.claim_once()
        rig.advance(10 * SECOND)
        assert rig.renew_once() == RenewReport(renewed=2)
        rig.advance(10 * SECOND)
        assert other.claim_once() == ClaimReport()

    def test_what_was_taken_is_dropped_and_its_run_stopped(self):
        rig = Rig()
        other = Rig(rig, node="node-b")
        schedule = quiet(rig)
        assignment = rig.started(schedule)
        rig.add(schedule, "two", SECOND)
        rig.claim_once()
        rig.advance(20 * SECOND)
        assert other.claim_once().claimed == 2
        rig.sink.take()
        assert rig.renew_once() == RenewReport(lost=2)
        assert assignment.stop_reason is Reason.LEASE_LOST
        assert rig.node.load == 0
        assert rig.sink.kinds() == ["LeaseLost", "LeaseLost"]
        assert rig.admit_once() == AdmitReport()  # the claim that waited for its time is forgotten

    def test_what_somebody_asked_to_stop_is_reported(self):
        rig = Rig()
        assignment = rig.started(quiet(rig))
        assert rig.store.request_stop(assignment.occurrence.id)
        assert rig.renew_once() == RenewReport(renewed=1, stopped=1)
        assert assignment.stop_reason is Reason.CANCELLED

    def test_a_request_to_stop_is_seen_before_and_only_until_it_is_reported(self):
        rig = Rig()
        assignment = rig.started(quiet(rig, overlap_policy=overlap.Allow()))
        assert rig.is_asked_to_stop() is False
        assert rig.store.request_stop(assignment.occurrence.id)
        before = rig.row(assignment.occurrence)
        assert rig.is_asked_to_stop() is True
        assert rig.row(assignment.occurrence) == before  # to look is to change nothing
        rig.renew_once()
        assert rig.is_asked_to_stop() is False

    def test_a_node_with_very_many_deliveries_does_not_look_at_each(self):
        rig = Rig()
        schedule = quiet(rig, overlap_policy=overlap.Allow())
        for number in range(33):
            assignment = rig.started(schedule, str(number))
        assert rig.store.request_stop(assignment.occurrence.id)
        assert rig.is_asked_to_stop() is False
        assert rig.renew_once() == RenewReport(renewed=33, stopped=1)

    def test_has_nothing_to_ask_when_it_holds_nothing(self):
        rig = Rig()
        assert rig.renew_once() == RenewReport()
        assert rig.store.calls["renew"] == 0

    def test_what_ended_while_the_question_was_on_its_way_is_left_alone(self):
        rig = Rig()
        assignment = rig.started(quiet(rig))

        def end_it():
            rig.target.end(assignment)
            rig.settle_once()

        rig.store.meanwhile("renew", end_it)
        rig.sink.take()
        assert rig.renew_once().lost == 0
        assert assignment.stop_reason is None
        assert rig.sink.kinds() == ["Settled"]


class TestGivingBack:
    def test_claims_go_back_as_they_were(self):
        rig = Rig()
        schedule = quiet(rig)
        occurrence = rig.add(schedule, "one", SECOND)
        rig.claim_once()
        assert rig.release() == 1
        assert rig.row(occurrence).phase is Phase.PENDING
        assert rig.node.load == 0
        assert Rig(rig, node="node-b").claim_once().claimed == 1
        assert rig.release() == 0

    def test_what_runs_is_not_released(self):
        rig = Rig()
        assignment = rig.started(quiet(rig))
        assert rig.release() == 0
        assert rig.row(assignment.occurrence).phase is Phase.DISPATCHING

    def test_what_runs_is_handed_back_and_asked_to_stop(self):
        rig = Rig()
        schedule = quiet(rig)
        assignment = rig.started(schedule)
        assert rig.driver.hand_back() == 1
        assert assignment.stop_reason is Reason.LEASE_LOST
        assert rig.driver.hand_back() == 0
        assert rig.settle_once() == SettleReport(settled=1, frees_others=True)
        row = rig.row(assignment.occurrence)
        assert (row.phase, row.attempt, row.reason) == (Phase.PENDING, 0, Reason.LEASE_LOST)
        assert [run.outcome for run in rig.runs(schedule)] == [Outcome.LEASE_LOST]
        assert Rig(rig, node="node-b").claim_once().claimed == 1

    def test_what_can_be_made_to_end_is_handed_back_when_it_has(self):
        rig = Rig()
        assignment = rig.started(quiet(rig))
        assignment.ends_soon = True
        assert rig.driver.hand_back(waits=True) == 1
        assert (assignment.stop_reason, assignment.is_closed) == (Reason.LEASE_LOST, False)
        assert rig.settle_once() == SettleReport()
        assert rig.row(assignment.occurrence).phase is Phase.DISPATCHING
        # Whoever waited long enough hands it back all the same.
        assert rig.driver.hand_back() == 1
        rig.settle_once()
        assert rig.row(assignment.occurrence).phase is Phase.PENDING

    def test_what_must_not_begin_twice_ends_with_its_outcome_unknown(self):
        rig = Rig()
        assignment = rig.started(quiet(rig, delivery=Delivery.AT_MOST_ONCE))
        rig.driver.hand_back()
        rig.settle_once()
        row = rig.row(assignment.occurrence)
        assert (row.phase, row.reason) == (Phase.DELIVERY_FAILED, Reason.OUTCOME_UNKNOWN)

    def test_what_has_ended_already_keeps_its_end(self):
        rig = Rig()
        assignment = rig.started(quiet(rig))
        rig.target.end(assignment)
        assert rig.driver.hand_back() == 0
        rig.settle_once()
        assert rig.row(assignment.occurrence).phase is Phase.COMPLETED


class TestReaping:
    def test_a_heartbeat_names_the_routes_of_the_node(self):
        rig = Rig(routes=["function:other"])
        schedule = quiet(rig)
        rig.add(schedule, "one")
        rig.advance(59 * SECOND)
        server = Rig(rig, node="node-b")
        assert server.reap_once() == ReapReport()
        rig.advance(2 * SECOND)
        assert rig.reap_once() == ReapReport()  # somebody served the route a moment ago

    def test_an_unserved_occurrence_ends_after_its_grace(self):
        rig = Rig(routes=["function:other"])
        schedule = rig.create(misfire_policy=misfire.CatchUpAll())
        rig.reap_once()
        occurrence = rig.add(schedule, "one")
        rig.advance(61 * SECOND)
        assert rig.reap_once().orphans >= 1
        row = rig.row(occurrence)
        assert (row.phase, row.reason) == (Phase.MISFIRED, Reason.TARGET_MISSING)
        assert "Ended" in rig.sink.kinds()

    @pytest.mark.parametrize("edited", [None, Window(duration=MINUTE)])
    def test_what_was_taken_over_ends_with_the_window_it_had_then(self, edited):
        rig = Rig()
        schedule = quiet(rig, window=Window(duration=20 * SECOND), retry_policy=RetryPolicy(max_attempts=2))
        taken = rig.started(schedule)
        now = rig.world.now
        rig.target.report(taken, Accepted(started=now, accepted=now))
        rig.settle_once()
        schedule_edits.edit(rig.store, schedule.uid, replace(schedule.declaration, window=edited), lookahead=0)
        rig.advance(20 * SECOND)
        assert rig.reap_once() == ReapReport(overdue=1)
        row = rig.row(taken.occurrence)
        assert (row.phase, row.reason) == (Phase.CANCELLED, Reason.WINDOW_CLOSED)

    def test_a_delivery_beyond_its_deadline_is_ended_for_its_node(self):
        rig = Rig()
        other = Rig(rig, node="node-b")
        schedule = quiet(rig, overlap_policy=overlap.CancelRunning(cancel_grace=5 * SECOND))
        deaf = rig.started(schedule, "first")
        second = rig.add(schedule, "second")
        other.claim_once()
        assert other.admit_once() == AdmitReport(waiting=1)
        rig.advance(5 * SECOND - 1)
        assert other.reap_once() == ReapReport()
        rig.advance(1)
        assert other.reap_once() == ReapReport(overdue=1)
        row = rig.row(deaf.occurrence)
        assert (row.phase, row.reason) == (Phase.CANCELLED, Reason.REPLACED)
        assert isinstance(other.sink.told[-1], events.Settled)
        assert other.claim_once().claimed == 1
        assert other.admit_once().started == 1
        assert other.target.given[0].occurrence.id == second.id
        rig.target.end(deaf)
        assert rig.settle_once() == SettleReport(lost=1)

    def test_it_serves_what_it_can_import_of_what_others_named(self):
        rig = Rig(routes=["function:other"])
        rig.target.can_import = {ROUTE}
        rig.create()
        assert rig.reap_once() == ReapReport()  # anybody may have made that one
        trusted = replace(factories.schedule("uid-2"), source="embedded")
        rig.store.create([first_plan(trusted, lookahead=0)])
        assert rig.reap_once() == ReapReport(adopted=True)
        assert rig.target.routes() == ("function:other", ROUTE)
        assert rig.reap_once() == ReapReport()

    def test_between_two_reapings_it_looks_only_at_what_is_new(self):
        rig = Rig(routes=["function:other"])
        trusted = replace(factories.schedule("uid-2"), source="embedded")
        rig.store.create([first_plan(trusted, lookahead=0)])
        assert rig.adopt_once() is False
        rig.target.can_import = {ROUTE}
        assert rig.adopt_once() is False  # it has looked at this one
        assert rig.reap_once() == ReapReport(adopted=True)


class TestPruning:
    def ended(self, rig, made, count):
        for number in range(count):
            assignment = rig.started(made, str(number))
            rig.target.end(assignment)
            rig.settle_once()
            rig.advance(SECOND)

    def test_forgets_what_is_old(self):
        rig = Rig(keep_for=60 * SECOND)
        schedule = quiet(rig)
        self.ended(rig, schedule, 1)
        rig.lead_once()
        assert rig.prune_once() == PruneReport()
        rig.advance(60 * SECOND)
        rig.lead_once()
        rig.sink.take()
        assert rig.prune_once() == PruneReport(forgotten=1)
        assert rig.sink.told == [events.Pruned(1)]
        assert rig.rows(schedule) == rig.runs(schedule) == []

    def test_forgets_what_is_too_much(self):
        rig = Rig(keep_count=2)
        schedule = quiet(rig)
        self.ended(rig, schedule, 3)
        rig.lead_once()
        assert rig.prune_once() == PruneReport(forgotten=1)
        assert [row.nominal - NOW for row in rig.rows(schedule)] == [2 * SECOND, SECOND]

    def test_a_full_batch_asks_for_more(self):
        rig = Rig(keep_count=1, batch=2)
        schedule = quiet(rig)
        self.ended(rig, schedule, 4)
        rig.lead_once()
        assert rig.prune_once() == PruneReport(forgotten=2, more=True)
        assert rig.prune_once() == PruneReport(forgotten=1)

    def test_forgets_old_notes_and_keys_that_mean_nothing_any_more(self):
        rig = Rig(keep_for=2 * KEY_LIFETIME, batch=2)
        rig.lead_once()
        rig.store.add_audit_entries("acme", [AuditEntry(at=NOW, caller="ada", operation="pause") for _ in range(3)])
        rig.store.claim_key("acme", "key", "body", now=NOW, lifetime=KEY_LIFETIME)
        for passed, forgotten in (
            (KEY_LIFETIME, PruneReport()),
            (1, PruneReport(keys=1)),
            (KEY_LIFETIME, PruneReport(notes=2, more=True)),
            (0, PruneReport(notes=1)),
        ):
            rig.advance(passed)
            rig.lead_once()
            rig.sink.take()
            assert rig.prune_once() == forgotten
            told = [events.Pruned(0, 0, forgotten.notes, forgotten.keys)]
            assert rig.sink.take() == (told if forgotten.notes or forgotten.keys else [])
        assert rig.store.audit_entries("acme", 9) == []


class TestLooking:
    def test_the_next_time_is_the_stores_or_its_own(self):
        rig = Rig()
        schedule = quiet(rig)
        assert rig.next_time() is None
        occurrence = rig.add(schedule, "one", 10 * SECOND)
        assert rig.next_time() == occurrence.due
        rig.advance(8 * SECOND)
        rig.claim_once()
        assert rig.next_time() == occurrence.due - EARLY


class TestTheSink:
    def test_one_that_raises_stops_nothing(self, caplog):
        class Rude:
            def report(self, driver_events):
                raise ValueError("not now")

        rig = Rig()
        schedule = quiet(rig)
        object.__setattr__(rig.node.runtime, "sink", Rude())
        assignment = rig.started(schedule)
        rig.target.end(assignment)
        assert rig.settle_once() == SettleReport(settled=1)
        assert rig.row(assignment.occurrence).phase is Phase.COMPLETED
        assert "event sink failed" in caplog.text


def test_the_whole_way_of_a_recurring_schedule():
    rig = Rig()
    schedule = rig.create()
    for _ in range(5):
        rig.advance(MINUTE)
        rig.plan_once()
        rig.claim_once()
        assert rig.admit_once().started == 1
        rig.target.end(rig.target.given[-1])
        rig.settle_once()
    completed = [row for row in rig.rows(schedule) if row.phase is Phase.COMPLETED]
    assert len(completed) == 5
    kept = rig.store.find(schedule.owner.tenant, schedule.schedule_id)
    assert (kept.schedule.phase, kept.counters.total, kept.counters.successful) == (SchedulePhase.ACTIVE, 5, 5)
