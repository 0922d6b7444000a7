"""What a node does with events, on both stores."""

from dataclasses import replace

import pytest

from noonmark.core import edits
from noonmark.core.errors import StoreUnavailable
from noonmark.core.event import Event
from noonmark.core.ids import event, occurrence_id
from noonmark.core.instants import SECOND, to_text
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.policies import overlap
from noonmark.core.reasons import Reason
from noonmark.core.triggers import EventTrigger
from noonmark.driver.steps import match as match_step
from noonmark.driver.steps.reports import AdmitReport, MatchReport, PruneReport
from noonmark.operations.events import emit
from noonmark.ports.events import Matched, Pruned
from noonmark.stores.memory import MemoryStore
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing.factories import MINUTE, NOW
from tests.driver.rig import Rig


def in_file(folder):
    """Makes stores in a file."""

    def make_store(clock):
        store = SqliteStore(folder / "noonmark.db", clock)
        store.open()
        return store

    return make_store


@pytest.fixture(params=["memory", "sqlite"])
def make_rig(request, tmp_path):
    rigs, make_store = [], MemoryStore if request.param == "memory" else in_file(tmp_path)

    def make(other=None, **options):
        rigs.append(Rig(other, make_store=make_store, **options))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.store.store.close()


@pytest.fixture
def rig(make_rig):
    return make_rig()


def listen(rig, uid="uid-1", *, filters=None, **changes):
    queue = {"overlap_policy": overlap.Queue(queue_limit=10_000)}
    return rig.create(uid, trigger=EventTrigger("uploaded", filters), **queue | changes)


def send(rig, event_id, **changes):
    event = replace(Event(event_type="uploaded", emitted=0, event_id=event_id), **changes)
    return emit(rig.store.store, "acme", event, fresh_id="fresh")


def outcomes(rig, of):
    return {one.origin: f"{one.phase}/{one.reason}" for one in rig.rows(of)}


def work_off(rig):
    """Run everything that is due, each to its end; gives the origins in the order in which they began."""
    began = len(rig.target.given)
    while rig.match_once().matched or rig.plan_once().planned or rig.claim_once().claimed:
        rig.admit_once()
        while running := [one for one in rig.target.given if not one.is_closed]:
            rig.target.end(running[0])
            rig.settle_once()
            rig.claim_once()
            rig.admit_once()
    return [one.occurrence.origin for one in rig.target.given[began:]]


def test_an_event_runs_what_waits_for_it(rig):
    schedule, other = listen(rig), listen(rig, "uid-2", filters={"size": {"gt": 10}})
    assert send(rig, "up-1", payload={"size": 3}, source="api") == "up-1"
    assert rig.match_once() == MatchReport(matched=1, occurrences=1)
    rig.claim_once()
    assert rig.admit_once() == AdmitReport(started=1)
    [running] = rig.target.given
    assert (running.occurrence.uid, running.begins) == (schedule.uid, NOW)
    assert running.occurrence.payload == {
        "event_id": "up-1",
        "event_type": "uploaded",
        "source": "api",
        "payload": {"size": 3},
        "emitted_at": to_text(NOW),
    }
    rig.target.end(running)
    rig.settle_once()
    assert outcomes(rig, schedule) == {"event:up-1": "completed/succeeded"}
    assert rig.rows(other) == []
    assert rig.match_once() == MatchReport()


def test_an_event_that_is_emitted_again_runs_nothing_twice(rig):
    schedule = listen(rig)
    assert [send(rig, "up-1") for _ in range(3)] == ["up-1"] * 3
    assert work_off(rig) == ["event:up-1"]
    send(rig, "up-1")
    assert work_off(rig) == []
    assert len(rig.rows(schedule)) == 1


def test_an_event_without_an_id_gets_the_fresh_one(rig):
    assert send(rig, None) == "fresh"
    assert [one.event_id for one in rig.store.events("acme", 9)] == ["fresh"]


def test_a_burst_is_worked_off_in_the_order_of_emission(rig):
    schedule = listen(rig)
    sent = [f"up-{number}" for number in range(50)]
    for number, one in enumerate(sent):
        send(rig, one)
        rig.advance(number % 3)  # often the clock stands still
    assert work_off(rig) == [f"event:{one}" for one in sent]
    assert {one.phase for one in rig.rows(schedule)} == {Phase.COMPLETED}


def test_two_nodes_match_an_event_once(make_rig):
    rig = make_rig()
    other = make_rig(rig, node="node-b")
    schedule = listen(rig)
    send(rig, "up-1")

    def be_faster():
        assert other.match_once().matched == 1

    rig.store.meanwhile("commit_reactions", be_faster)
    assert rig.match_once() == MatchReport(outrun=1)
    assert len(rig.rows(schedule)) == 1


def test_a_commit_whose_answer_is_lost_is_not_repeated(rig):
    schedule = listen(rig)
    send(rig, "up-1")
    rig.store.fail("commit_reactions", after=True)
    with pytest.raises(StoreUnavailable):
        rig.match_once()
    assert rig.match_once() == MatchReport()
    assert len(rig.rows(schedule)) == 1


def test_a_schedule_that_is_paused_meanwhile_skips_it(rig):
    schedule = listen(rig)
    send(rig, "up-1")

    def pause():
        snapshot = rig.store.store.snapshot(schedule.uid)
        assert rig.store.store.commit_plans([edits.pause(snapshot, now=rig.world.now)]) == [True]

    rig.store.meanwhile("commit_reactions", pause)
    assert rig.match_once() == MatchReport(outrun=1)
    assert rig.match_once() == MatchReport(matched=1, occurrences=1)
    assert outcomes(rig, schedule) == {"event:up-1": "skipped/paused"}


def test_an_event_is_not_for_what_is_created_after_it(rig):
    send(rig, "up-1")
    rig.advance(1)
    schedule = listen(rig)
    assert rig.match_once() == MatchReport(matched=1)
    send(rig, "up-2")
    assert work_off(rig) == ["event:up-2"]
    assert len(rig.rows(schedule)) == 1


def test_listeners_are_worked_off_in_pages(make_rig):
    rig = make_rig(batch=3)
    schedules = [listen(rig, f"uid-{number}") for number in range(8)]
    send(rig, "up-1")
    reports = [rig.match_once() for _ in range(4)]
    assert [(one.occurrences, one.more) for one in reports] == [(3, True), (3, True), (2, False), (0, False)]
    assert [len(rig.rows(one)) for one in schedules] == [1] * 8


def test_events_beyond_max_runs_are_skipped_and_the_schedule_is_completed(rig):
    schedule = listen(rig, max_runs=2)
    for number in range(4):
        send(rig, f"up-{number}")
    assert work_off(rig) == ["event:up-0", "event:up-1"]
    assert [*outcomes(rig, schedule).values()] == ["skipped/max_runs_reached"] * 2 + ["completed/succeeded"] * 2
    assert rig.store.find("acme", schedule.schedule_id).schedule.phase is SchedulePhase.COMPLETED
    rig.advance(1)
    send(rig, "late")
    assert rig.match_once() == MatchReport(matched=1)


def test_an_event_from_before_the_end_has_an_outcome_after_it(rig):
    schedule = listen(rig, max_runs=1)
    send(rig, "up-1")
    rig.match_once()
    rig.claim_once()
    rig.admit_once()
    send(rig, "up-2")
    rig.advance(SECOND)
    rig.target.end(rig.target.given[0])
    rig.settle_once()
    rig.plan_once()
    assert rig.store.find("acme", schedule.schedule_id).schedule.phase is SchedulePhase.COMPLETED
    assert work_off(rig) == []
    assert outcomes(rig, schedule)["event:up-2"] == "skipped/max_runs_reached"


def test_the_sink_gets_what_an_event_triggered(rig):
    schedule = listen(rig)
    send(rig, "up-1")
    rig.match_once()
    [told] = rig.sink.take()
    assert isinstance(told, Matched)
    assert (told.tenant, told.event.event_id) == ("acme", "up-1")
    assert [one.uid for one in told.occurrences] == [schedule.uid]


def test_matched_events_are_forgotten_in_time(make_rig):
    rig = make_rig(keep_for=MINUTE, keep_events=2)
    for number in range(3):
        send(rig, f"up-{number}")
    rig.lead_once()
    assert rig.prune_once() == PruneReport()
    rig.match_once()
    rig.sink.take()
    assert rig.prune_once() == PruneReport(events=1)
    assert rig.sink.take() == [Pruned(0, 1)]
    rig.advance(2 * MINUTE)
    rig.lead_once()
    assert rig.prune_once() == PruneReport(events=2)
    assert rig.store.events("acme", 9) == []


def test_a_listener_that_makes_no_sense_ends_its_own_occurrence_only(rig, monkeypatch):
    broken, sound = listen(rig, "broken"), listen(rig, "sound")

    def fail_on_broken(event, schedule, *, now):
        if schedule.uid == "broken":
            raise TypeError("a number was expected")
        return match(event, schedule, now=now)

    match = match_step.match
    monkeypatch.setattr(match_step, "match", fail_on_broken)
    send(rig, "up-1")
    assert rig.match_once() == MatchReport(matched=1, occurrences=2)
    [ended] = rig.rows(broken)
    assert (ended.phase, ended.reason) == (Phase.DELIVERY_FAILED, Reason.UNREADABLE)
    assert "a number was expected" in ended.detail
    assert [one.phase for one in rig.rows(sound)] == [Phase.PENDING]


def test_an_event_that_the_store_cannot_make_sense_of_does_no_harm(rig, caplog):
    schedule = listen(rig)
    for one in ("up-1", "spoiled", "up-2"):
        send(rig, one)
    rig.store.spoiled = occurrence_id(schedule.uid, event("spoiled"), 0)
    rig.match_once()
    assert sorted(outcomes(rig, schedule)) == ["event:up-1", "event:up-2"]
    assert "could not write what event spoiled triggers" in caplog.text
    rig.store.spoiled = None
    assert rig.store.unmatched(9) == []


def test_what_cannot_be_written_at_all_waits(rig):
    send(rig, "spoiled")
    rig.store.spoiled = "event_id='spoiled'"
    assert rig.match_once() == MatchReport(outrun=1)
    rig.store.spoiled = None
    assert rig.match_once() == MatchReport(matched=1)


def test_an_event_that_cannot_be_read_is_reported(tmp_path, caplog):
    rig = Rig(make_store=in_file(tmp_path))
    schedule = listen(rig)
    send(rig, "broken")
    with rig.store.store._connections.writing() as connection:
        connection.execute("UPDATE events SET payload = '{1'")
    send(rig, "sound")
    assert rig.match_once() == MatchReport(matched=2, occurrences=1)
    assert "event broken is unreadable" in caplog.text
    assert [*outcomes(rig, schedule)] == ["event:sound"]
    rig.store.store.close()


def test_a_full_batch_of_events_asks_for_more_even_without_subscribers(make_rig):
    rig = make_rig(batch=2)
    for number in range(3):
        send(rig, f"up-{number}")
    assert [rig.match_once() for _ in range(2)] == [MatchReport(matched=2, more=True), MatchReport(matched=1)]


def test_what_an_event_triggers_is_due_at_its_moment_however_late_a_node_believes_it_is(rig):
    schedule = listen(rig)
    rig.node.store_clock.note(rig.world.now - MINUTE)
    send(rig, "up")
    rig.match_once()
    [row] = rig.rows(schedule)
    assert row.due == row.nominal == rig.world.now
