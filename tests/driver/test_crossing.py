"""What a node believes and what is stored may part ways; each of its duties acts only on what it still holds."""

from dataclasses import replace

import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.core.event import Event
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.policies import overlap
from noonmark.core.policies.limits import Concurrency
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.targets import FunctionTarget
from noonmark.driver.steps.reports import AdmitReport, SettleReport
from noonmark.operations import schedule_edits
from noonmark.testing.factories import MINUTE
from tests.driver.rig import Rig
from tests.driver.test_steps import quiet


@pytest.fixture
def rig():
    return Rig()


def other_arguments(rig, made):
    """Another revision, which takes effect when a verb is called."""

    def edit():
        declared = replace(made.declaration, target=FunctionTarget(function="work", args=(1,)))
        schedule_edits.edit(rig.store.store, made.uid, declared, lookahead=0)

    return edit


def taken_and_given_back(rig):
    """Another node takes over what this one has, and gives it back before it is due."""
    rig.advance(rig.timing.lease)
    other = Rig(rig, node="node-b", lookahead=MINUTE)
    assert other.claim_once().claimed == 1
    assert other.release() == 1


def test_a_lease_that_was_lost_and_taken_anew_meanwhile_is_kept():
    rig = Rig(lookahead=MINUTE)
    occurrence = rig.add(quiet(rig), "one", MINUTE)
    assert rig.claim_once().claimed == 1
    taken_and_given_back(rig)
    rig.store.afterwards("renew", rig.claim_once)
    rig.renew_once()
    assert rig.node.held[occurrence.id].occurrence.fence == rig.row(occurrence).fence
    assert rig.row(occurrence).phase is Phase.CLAIMED


def test_a_lease_that_ended_with_its_run_was_not_lost(rig):
    rig.target.end(rig.started(quiet(rig)))
    rig.store.afterwards("settle", rig.renew_once)
    assert rig.settle_once().settled == 1
    assert rig.sink.kinds() == ["Claimed", "Started", "Settled"]


def test_a_caller_learns_of_an_end_after_a_lost_lease_when_it_is_written(rig):
    first = rig.started(quiet(rig))
    rig.advance(rig.timing.lease)
    assert Rig(rig, node="node-b").claim_once().claimed == 1
    rig.target.end(first)
    assert rig.renew_once().lost == 0
    assert rig.settle_once() == SettleReport(lost=1)
    assert rig.sink.kinds() == ["Claimed", "Started", "LeaseLost"]
    assert rig.node.load == 0


def test_a_request_to_stop_is_for_the_delivery_it_was_made_of(rig):
    schedule = quiet(rig, retry_policy=RetryPolicy(max_attempts=2, backoff=0))
    first = rig.started(schedule)

    def try_again():
        rig.target.end(first, Outcome.FAILED)
        rig.settle_once()
        rig.claim_once()
        rig.admit_once()

    assert rig.store.store.request_stop(first.occurrence.id)
    rig.store.afterwards("renew", try_again)
    assert rig.renew_once().stopped == 0
    assert [one.occurrence.attempt for one in rig.target.given] == [1, 2]
    assert rig.target.given[-1].stop_reason is None


def test_what_was_lost_and_taken_anew_is_decided_once():
    rig = Rig(lookahead=MINUTE)
    rig.add(quiet(rig), "one", MINUTE)
    assert rig.claim_once().claimed == 1
    taken_and_given_back(rig)
    assert rig.claim_once().claimed == 1
    rig.advance(MINUTE)
    assert rig.admit_once() == AdmitReport(started=1, late=1)


def test_the_end_of_a_delivery_that_was_lost_leaves_the_new_one_alone(rig):
    first = rig.started(quiet(rig))
    rig.advance(rig.timing.lease)
    rig.claim_once()
    assert rig.admit_once().started == 1
    rig.target.end(first)
    assert rig.settle_once() == SettleReport(lost=1)
    assert rig.node.deliveries == {first.occurrence.id: rig.target.given[-1]}


def test_what_was_asked_for_and_is_lost_to_an_edit_is_given_back_at_once(rig):
    schedule = quiet(rig)
    occurrence = rig.add(schedule, "one")
    rig.claim_once()
    rig.store.meanwhile("admit", other_arguments(rig, schedule))
    assert rig.admit_once() == AdmitReport(lost=1)
    assert rig.row(occurrence).phase is Phase.PENDING


def test_an_orphan_that_is_edited_meanwhile_is_given_back_at_once(rig):
    schedule = quiet(rig)
    occurrence = rig.add(schedule, "one")
    rig.target.offered = ["function:other"]
    rig.advance(10 * MINUTE)
    rig.store.meanwhile("admit", other_arguments(rig, schedule))
    assert rig.reap_once().orphans == 0
    assert rig.row(occurrence).phase is Phase.PENDING


def test_a_run_that_is_replaced_asks_no_other_to_stop(rig):
    bystander = rig.started(quiet(rig, uid="other"))
    schedule = quiet(rig, overlap_policy=overlap.CancelRunning())
    holder = rig.started(schedule, "first")
    rig.add(schedule, "second")
    rig.claim_once()
    assert rig.admit_once() == AdmitReport(waiting=1)
    assert (holder.stop_reason, bystander.stop_reason) == (Reason.REPLACED, None)


def test_a_queued_occurrence_asks_no_run_to_stop(rig):
    schedule = quiet(rig, overlap_policy=overlap.Queue())
    holder = rig.started(schedule, "first")
    rig.add(schedule, "second")
    rig.claim_once()
    assert rig.admit_once() == AdmitReport(waiting=1)
    assert holder.stop_reason is None


def test_a_run_that_knows_that_it_should_stop_need_not_be_told_again(rig):
    running = rig.started(quiet(rig))
    assert rig.store.store.request_stop(running.occurrence.id)
    assert rig.is_asked_to_stop()
    rig.renew_once()
    assert not rig.is_asked_to_stop()


def test_what_is_handed_back_had_begun_when_it_began(rig):
    schedule = quiet(rig)
    running = rig.started(schedule)
    running.started = began = rig.world.now
    rig.advance(SECOND)
    assert rig.driver.hand_back() == 1
    rig.settle_once()
    [run] = rig.runs(schedule)
    assert (run.started, run.ended) == (began, rig.world.now)


def test_an_end_is_kept_when_the_store_goes_away_just_after_it_made_no_sense_of_another(rig):
    schedule = quiet(rig)
    sound, spoiled = rig.started(schedule, "sound"), rig.started(schedule, "spoiled")
    for one in (sound, spoiled):
        rig.target.end(one)
    rig.store.spoiled = spoiled.occurrence.id
    rig.store.fail("settle", after=True)
    assert rig.settle_once().settled == 0
    assert [one for one, _ in rig.node.finished] == [sound]
    rig.settle_once()
    assert rig.row(sound.occurrence).phase is Phase.COMPLETED
    assert rig.node.load == 0


@pytest.mark.parametrize(
    ("changes", "caught_up", "frees"),
    [
        ({"overlap_policy": overlap.Skip()}, None, False),
        ({"overlap_policy": overlap.Skip()}, 1, True),
        ({"overlap_policy": overlap.Queue()}, None, True),
        ({"concurrency": Concurrency(key="db")}, None, True),
    ],
)
def test_an_end_says_whether_somebody_may_have_waited_for_it(rig, changes, caught_up, frees):
    schedule = quiet(rig, **changes)
    rig.add(schedule, "one", caught_up=caught_up)
    rig.claim_once()
    rig.admit_once()
    rig.target.end(rig.target.given[-1])
    assert rig.settle_once() == SettleReport(settled=1, frees_others=frees)


def test_a_full_batch_of_forgotten_events_asks_for_more():
    rig = Rig(batch=2, keep_events=0)
    events = [Event(event_type="seen", emitted=0, event_id=f"{number}") for number in range(3)]
    assert all(rig.store.store.emit("acme", events))
    while rig.match_once().matched:
        pass
    rig.lead_once()
    pruned = [rig.prune_once() for _ in range(2)]
    assert [(one.events, one.more) for one in pruned] == [(2, True), (1, False)]


def test_a_store_that_is_away_keeps_what_it_was_told_in_order(rig):
    schedule = quiet(rig)
    given = [rig.started(schedule, key) for key in ("a", "b", "c")]
    for one in given:
        rig.target.end(one)
    rig.store.fail("settle")
    with pytest.raises(StoreUnavailable):
        rig.settle_once()
    assert [one for one, _ in rig.node.finished] == given


def test_the_time_of_the_store_is_asked_for_once_and_then_reckoned(rig):
    quiet(rig)
    for _ in range(3):
        rig.claim_once()
        rig.plan_once()
        rig.prune_once()
    assert rig.store.calls["clock"] == 1
