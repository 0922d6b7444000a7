"""The store fails at the worst moments: nothing is lost, nothing runs twice under one lease, and all is tried again."""

import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.policies import overlap
from noonmark.core.triggers import EventTrigger
from noonmark.driver.steps import plan as plan_step
from noonmark.driver.steps.reports import AdmitReport, ClaimReport, RenewReport, SettleReport
from noonmark.testing.factories import MINUTE
from tests.driver.rig import Rig

QUIET = {"trigger": EventTrigger("seen"), "overlap_policy": overlap.Allow()}


@pytest.fixture
def rig():
    return Rig()


def claimed(rig, **changes):
    occurrence = rig.add(rig.create(**QUIET | changes), "one")
    rig.claim_once()
    return occurrence


def test_a_claim_that_was_not_written_is_made_again(rig):
    rig.add(rig.create(**QUIET), "one")
    rig.store.fail("claim")
    with pytest.raises(StoreUnavailable):
        rig.claim_once()
    assert rig.node.load == 0
    assert rig.claim_once() == ClaimReport(claimed=1)


def test_a_claim_whose_answer_is_lost_comes_back_with_the_end_of_its_lease(rig):
    occurrence = rig.add(rig.create(**QUIET), "one")
    rig.store.fail("claim", after=True)
    with pytest.raises(StoreUnavailable):
        rig.claim_once()
    assert rig.claim_once() == ClaimReport()
    rig.advance(rig.timing.lease)
    assert rig.claim_once() == ClaimReport(claimed=1)
    assert rig.admit_once() == AdmitReport(started=1, late=1)
    assert rig.row(occurrence).losses == 0  # it had not been delivered


def test_a_start_that_was_not_written_is_decided_again(rig):
    claim = claimed(rig)
    rig.store.fail("admit")
    with pytest.raises(StoreUnavailable):
        rig.admit_once()
    assert rig.target.given == []
    assert rig.node.load == 1
    assert rig.admit_once() == AdmitReport(started=1)
    assert rig.row(claim).phase is Phase.DISPATCHING


def test_a_start_whose_answer_comes_after_its_lease_begins_if_no_node_has_taken_it_over(rig):
    claimed(rig)
    rig.store.afterwards("admit", lambda: wait(rig))
    rig.admit_once()
    assert len(rig.target.given) == 1
    assert rig.store.calls["renew"] == 1


def test_a_start_whose_answer_comes_when_another_node_has_it_does_not_begin(rig):
    claim = claimed(rig)
    other = Rig(rig, node="node-b")

    def take_over():
        wait(rig)
        other.claim_once()

    rig.store.afterwards("admit", take_over)
    rig.admit_once()
    assert rig.target.given == []
    assert rig.settle_once() == SettleReport(lost=1)
    assert rig.row(claim).node == other.node.id


@pytest.mark.parametrize("problem", ["late", "gone"])
def test_a_start_of_which_nobody_knows_whether_it_is_held_is_handed_back(rig, problem):
    claim = claimed(rig)
    rig.store.afterwards("admit", lambda: wait(rig))
    if problem == "late":
        rig.store.afterwards("renew", lambda: wait(rig))
    else:
        rig.store.fail("renew")
    rig.admit_once()
    assert rig.target.given == []
    assert rig.settle_once().settled == 1
    assert (rig.row(claim).phase, rig.row(claim).attempt) == (Phase.PENDING, 0)
    rig.claim_once()
    assert rig.admit_once() == AdmitReport(started=1, late=1)


def wait(rig):
    rig.advance(rig.timing.lease)


def test_a_start_whose_answer_is_lost_is_asked_about_again(rig):
    claim = claimed(rig)
    rig.store.fail("admit", after=True)
    with pytest.raises(StoreUnavailable):
        rig.admit_once()
    assert rig.target.given == []
    assert rig.admit_once() == AdmitReport(started=1)
    [assignment] = rig.target.given
    assert assignment.occurrence.attempt == 1
    assert (rig.row(claim).phase, rig.row(claim).losses) == (Phase.DISPATCHING, 0)


def test_a_start_whose_answer_is_lost_is_not_begun_after_its_lease(rig):
    claim = claimed(rig)
    rig.store.fail("admit", after=True)
    with pytest.raises(StoreUnavailable):
        rig.admit_once()
    rig.advance(rig.timing.lease)
    assert rig.claim_once() == ClaimReport(claimed=1)
    assert rig.admit_once() == AdmitReport(started=1, late=1)
    [assignment] = rig.target.given
    assert assignment.occurrence.fence == rig.row(claim).fence
    assert rig.row(claim).losses == 1


def test_a_refusal_that_was_not_written_is_decided_again(rig):
    schedule = rig.create(**QUIET | {"overlap_policy": overlap.Skip()})
    rig.started(schedule, "first")
    second = rig.add(schedule, "second")
    rig.claim_once()

    def fail_the_next():
        rig.store.fail("admit")

    rig.store.meanwhile("admit", fail_the_next)
    with pytest.raises(StoreUnavailable):
        rig.admit_once()  # the store said busy, and failed when that was to be written
    assert rig.admit_once() == AdmitReport(ended=1)
    assert rig.row(second).phase is Phase.SKIPPED


def test_a_claim_that_was_lost_and_cannot_be_given_back_delays_no_others(rig):
    schedule = rig.create(**QUIET | {"overlap_policy": overlap.Skip()})
    rig.started(schedule, "first")
    second = rig.add(schedule, "second")
    third = rig.add(schedule, "third")
    rig.claim_once()

    def take_second_away():
        assert rig.store.store.cancel(second.id)

    rig.store.meanwhile("admit", take_second_away)
    rig.store.fail("release")
    report = rig.admit_once()
    assert report.lost == 1
    assert rig.row(third).phase is Phase.SKIPPED  # it was decided all the same
    assert rig.node.held == {}


def test_an_end_that_was_not_written_is_written_later(rig):
    schedule = rig.create(**QUIET)
    assignment = rig.started(schedule)
    rig.target.end(assignment, result="done")
    rig.store.fail("settle", times=2)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            rig.settle_once()
        assert rig.node.load == 1
    assert rig.settle_once() == SettleReport(settled=1)
    assert [run.result for run in rig.runs(schedule)] == ["done"]


def test_an_end_whose_answer_is_lost_is_written_once(rig):
    schedule = rig.create(**QUIET)
    assignment = rig.started(schedule)
    rig.target.end(assignment)
    rig.store.fail("settle", after=True)
    with pytest.raises(StoreUnavailable):
        rig.settle_once()
    assert rig.settle_once() == SettleReport(lost=1)
    assert rig.row(assignment.occurrence).phase is Phase.COMPLETED
    assert len(rig.runs(schedule)) == 1
    assert rig.node.load == 0


def test_ends_keep_their_order_over_a_failure(rig):
    schedule = rig.create(**QUIET)
    for number in range(3):
        rig.add(schedule, str(number))
    rig.claim_once()
    rig.admit_once()
    for assignment in rig.target.given:
        rig.target.end(assignment)
    rig.store.fail("settle")
    with pytest.raises(StoreUnavailable):
        rig.settle_once()
    assert [one.occurrence.id for one, _ in rig.node.finished] == [one.occurrence.id for one in rig.target.given]


def test_a_renewal_that_fails_loses_nothing(rig):
    assignment = rig.started(rig.create(**QUIET))
    rig.store.fail("renew")
    with pytest.raises(StoreUnavailable):
        rig.renew_once()
    assert assignment.stop_reason is None
    assert rig.renew_once().renewed == 1


def test_claims_that_could_not_be_given_back_are_given_back_later(rig):
    occurrence = rig.add(rig.create(**QUIET), "one", SECOND)
    rig.claim_once()
    rig.store.fail("release")
    with pytest.raises(StoreUnavailable):
        rig.release()
    assert rig.release() == 1
    assert rig.row(occurrence).phase is Phase.PENDING


def test_a_plan_that_was_not_written_is_made_again(rig):
    rig.create()
    rig.advance(60 * SECOND)
    rig.store.fail("commit_plans")
    with pytest.raises(StoreUnavailable):
        rig.plan_once()
    assert rig.plan_once().planned == 1


def test_a_plan_whose_answer_is_lost_is_not_made_twice(rig):
    schedule = rig.create()
    rig.advance(60 * SECOND)
    rig.store.fail("commit_plans", after=True)
    with pytest.raises(StoreUnavailable):
        rig.plan_once()
    before = rig.rows(schedule)
    assert rig.plan_once().planned == 0
    assert rig.rows(schedule) == before


class TestOneThatMakesNoSense:
    @pytest.fixture
    def two(self, rig):
        schedule = rig.create(**QUIET)
        return rig.add(schedule, "sound"), rig.add(schedule, "spoiled")

    def test_its_start_does_not_block_other_starts(self, rig, two):
        sound, rig.store.spoiled = two[0], two[1].id
        rig.claim_once()
        assert rig.admit_once() == AdmitReport(started=1, lost=1)
        assert rig.row(sound).phase is Phase.DISPATCHING
        assert rig.admit_once() == AdmitReport()

    def test_its_end_keeps_no_other_end_from_being_written(self, rig, two):
        sound, spoiled = two
        rig.claim_once()
        rig.admit_once()
        rig.store.spoiled = spoiled.id
        for assignment in rig.target.given:
            rig.target.end(assignment)
        assert rig.settle_once() == SettleReport(settled=1, lost=1, frees_others=True)
        assert rig.row(sound).phase is Phase.COMPLETED
        assert rig.settle_once() == SettleReport()

    def test_its_lease_does_not_cost_others_theirs(self, rig, two):
        sound, rig.store.spoiled = two[0], two[1].id
        rig.claim_once()
        assert rig.renew_once() == RenewReport(renewed=1, lost=1)
        assert list(rig.node.held) == [sound.id]


def test_a_schedule_that_cannot_be_planned_is_set_aside_and_the_others_are_planned(rig, monkeypatch, caplog):
    broken, sound = rig.create("broken"), rig.create("sound")
    rig.advance(MINUTE)
    real = plan_step.plan_or_resume

    def plan(snapshot, **given):
        if snapshot.schedule.uid == broken.uid:
            raise OverflowError("date value out of range")
        return real(snapshot, **given)

    monkeypatch.setattr(plan_step, "plan_or_resume", plan)
    assert rig.plan_once().planned == 1
    assert rig.plan_once().planned == 0
    assert len(rig.rows(sound)) > len(rig.rows(broken))
    assert [record.getMessage() for record in caplog.records] == [
        f"could not plan schedule {broken.schedule_id}; it is set aside"
    ]


def test_a_plan_that_the_store_cannot_write_does_not_delay_others(rig):
    broken, sound = rig.create("broken"), rig.create("sound")
    rig.advance(MINUTE)
    rig.store.spoiled = broken.uid
    assert rig.plan_once().planned == 1
    assert rig.store.calls["set_aside"] == 1
    assert len(rig.rows(sound)) > len(rig.rows(broken))
    assert rig.plan_once().planned == 0
