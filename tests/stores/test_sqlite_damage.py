"""A record that cannot be read affects nothing but itself."""

import sqlite3
from dataclasses import replace

import pytest

from noonmark.core import edits
from noonmark.core.causation import Reaction, chain_behind
from noonmark.core.errors import StoreUnavailable
from noonmark.core.event import Chain, Event
from noonmark.core.lifecycle import Phase
from noonmark.core.planner import plan
from noonmark.core.policies.limits import Dependency
from noonmark.core.reasons import Reason
from noonmark.ports.records import NODE_KEPT, NODE_LISTED, Heartbeat
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import LOOKAHEAD, ROUTE, Bench
from noonmark.testing.factories import MINUTE, NOW


@pytest.fixture
def bench(tmp_path):
    clock = HandClock()
    store = SqliteStore(tmp_path / "noonmark.db", clock)
    store.open()
    yield Bench(store, clock)
    store.close()


def damage(bench, sql):
    with bench.store._connections.writing() as connection:
        connection.execute(sql)
    bench.store._schedule_cache.forget()


def test_an_occurrence_with_an_unreadable_payload_ends(bench):
    schedule = bench.create_quiet()
    broken = bench.add(schedule, "broken", payload={"a": 1})
    sound = bench.add(schedule, "sound", payload={"b": 2})
    damage(bench, f"UPDATE occurrences SET payload = '{{\"a' WHERE id = '{broken.id}'")  # noqa: S608 - a test's own text
    [claim] = bench.claim()
    assert claim.occurrence.id == sound.id
    row = bench.row(broken)
    assert (row.phase, row.reason, row.payload) == (Phase.DELIVERY_FAILED, Reason.UNREADABLE, None)
    assert "payload is not JSON" in row.detail
    assert bench.settle(bench.start(claim))
    counters = bench.stored(schedule).counters
    assert (counters.total, counters.failed, counters.successful) == (2, 1, 1)
    assert len(bench.store.occurrences(schedule.uid)) == 2


@pytest.mark.parametrize("value", ["'garbage'", "x'00ff'", "1e300"])
@pytest.mark.parametrize(
    "column",
    ["nominal", "due", "first_due", "attempt", "fence", "losses", "missed_count", "revision", "origin", "stop"],
)
def test_an_occurrence_with_a_value_of_the_wrong_kind_does_not_block_the_others(bench, column, value):
    schedule = bench.create_quiet()
    broken = bench.add(schedule, "broken")
    sound = bench.add(schedule, "sound")
    damage(bench, f"UPDATE occurrences SET {column} = {value} WHERE id = '{broken.id}'")  # noqa: S608 - a test's own text
    claims = bench.claim()
    assert [claim.occurrence.id for claim in claims] == [sound.id]
    with bench.store._connections.reading() as connection:
        [(phase, reason)] = connection.execute("SELECT phase, reason FROM occurrences WHERE id = ?", (broken.id,))
    assert (phase, reason) == ("delivery_failed", "unreadable")
    assert bench.settle(bench.start(claims[0]))


def test_a_second_holder_of_the_slot_is_refused_by_the_schema(bench):
    schedule = bench.create_quiet()
    holder = bench.run(schedule, "holder")
    other = bench.add(schedule, "other")
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE constraint failed"):
        damage(bench, f"UPDATE occurrences SET holds_slot = 1 WHERE id = '{other.id}'")  # noqa: S608 - likewise
    assert bench.settle(holder)


def test_nodes_that_were_not_heard_of_for_long_are_forgotten(bench):
    for name in ("left", "not missed"):
        bench.store.beat(Heartbeat(node=name, routes=(ROUTE,)), now=bench.now)
    bench.store.leave("left")
    for after, kept in ((NODE_LISTED + 1, ["alive", "not missed"]), (NODE_KEPT, ["alive"])):
        bench.advance(after)
        bench.store.beat(Heartbeat(node="alive", routes=(ROUTE,)), now=bench.now)
        with bench.store._connections.reading() as connection:
            assert connection.execute("SELECT name FROM nodes ORDER BY name").fetchall() == [(one,) for one in kept]


@pytest.mark.parametrize(
    ("column", "value"),
    [("routes", "'[1'"), ("routes", "'[1]'"), ("routes", "x'00'"), ("seen", "'soon'"), ("left_at", "'a while ago'")],
)
def test_a_node_that_cannot_be_read_is_left_out(bench, column, value):
    for name in ("broken", "sound"):
        bench.store.beat(Heartbeat(node=name, routes=(ROUTE,), lease=MINUTE), now=bench.now)
    damage(bench, f"UPDATE nodes SET {column} = {value} WHERE name = 'broken'")  # noqa: S608 - likewise
    assert [node.name for node in bench.store.nodes()] == ["sound"]


@pytest.mark.parametrize("column", ["trigger_document", "terms_document", "labels"])
def test_a_schedule_that_cannot_be_read_is_planned_no_more(bench, column):
    broken = bench.create("broken", labels={"a": "b"})
    sound = bench.create("sound")
    damage(bench, f"UPDATE schedules SET {column} = '[1' WHERE schedule_id = 'schedule-of-broken'")  # noqa: S608 - likewise
    bench.advance(MINUTE)
    [snapshot] = bench.store.plannable(bench.now, 1)
    assert snapshot.schedule.uid == sound.uid
    assert bench.store.commit_plans([plan(snapshot, now=bench.now, lookahead=LOOKAHEAD)]) == [True]
    assert bench.store.plannable(bench.now, 9) == []
    [claim] = bench.claim()
    assert claim.schedule.uid == sound.uid
    [ended] = bench.store.occurrences(broken.uid)
    assert (ended.phase, ended.reason) == (Phase.DELIVERY_FAILED, Reason.UNREADABLE)
    assert bench.store.next_time([ROUTE]) > bench.now
    for read in (lambda: bench.store.find("acme", "schedule-of-broken"), lambda: bench.store.snapshot("broken")):
        with pytest.raises(StoreUnavailable, match="the stored record of schedule broken is damaged"):
            read()


def test_a_schedule_that_was_mended_is_planned_again_after_an_edit(bench):
    schedule = bench.create()
    damage(bench, "ALTER TABLE schedules ADD COLUMN sound")
    damage(bench, "UPDATE schedules SET sound = terms_document, terms_document = '[1'")
    bench.advance(MINUTE)
    assert bench.store.plannable(bench.now, 9) == []
    damage(bench, "UPDATE schedules SET terms_document = sound")
    assert bench.store.plannable(bench.now, 9) == []
    renamed = replace(schedule.declaration, name="Mended")
    assert bench.commit(edits.edit(bench.snapshot(schedule), renamed, now=bench.now, lookahead=LOOKAHEAD))
    bench.advance(MINUTE)
    assert [one.schedule.uid for one in bench.store.plannable(bench.now, 9)] == [schedule.uid]


def test_a_reason_that_is_none_ends_the_occurrence(bench):
    broken = bench.add(bench.create_quiet(), "broken")
    damage(bench, "UPDATE occurrences SET reason = 'because'")
    assert bench.claim() == []
    assert bench.row(broken).reason is Reason.UNREADABLE


def test_an_undone_transaction_leaves_no_trace(bench):
    schedule = bench.create_quiet()
    occurrence = bench.add(schedule, "a")

    def half_done(uow):
        uow.row(occurrence.id).due = 7
        uow.changed(uow.row(occurrence.id))
        uow.write()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        bench.store._write_unlocked(half_done)
    assert bench.row(occurrence).due == occurrence.due


def test_a_list_passes_over_a_schedule_that_cannot_be_read(bench):
    for number in range(5):
        bench.create(f"uid-{number}", created=bench.now + number)
    damage(
        bench,
        "UPDATE schedules SET terms_document = '[1' WHERE schedule_id IN ('schedule-of-uid-1', 'schedule-of-uid-2')",
    )
    page = bench.store.schedules("acme", limit=2)
    assert [kept.schedule.uid for kept in page] == ["uid-0", "uid-3"]
    assert [kept.schedule.uid for kept in bench.store.schedules("acme", after="uid-1", limit=9)] == [
        "uid-3",
        "uid-4",
    ]


def emitted(bench, *ids):
    assert all(bench.store.emit("acme", [Event(event_type="seen", emitted=0, event_id=one) for one in ids]))


@pytest.mark.parametrize("damaged", ["payload = '{1'", "payload = x'00ff'", "source = x'00ff'", "event_type = x'01'"])
def test_an_event_that_cannot_be_read_is_passed_over(bench, damaged):
    bench.create_quiet()
    emitted(bench, "a", "broken", "b")
    damage(bench, f"UPDATE events SET {damaged} WHERE event_id = 'broken'")  # noqa: S608 - a test's own text
    audiences = bench.store.unmatched(9)
    assert [(one.event.event_id, len(one.listeners)) for one in audiences] == [("a", 1), ("broken", 0), ("b", 1)]
    assert [bool(one.problem) for one in audiences] == [False, True, False]
    assert all(bench.store.commit_reactions([Reaction(audience=one) for one in audiences]))
    assert bench.store.unmatched(9) == []
    events = bench.store.events("acme", 9)
    assert [one.event_id for one in events] == ["b", "broken", "a"]


def test_an_event_without_a_moment_is_never_found(bench):
    emitted(bench, "broken", "sound")
    damage(bench, "UPDATE events SET emitted = 'garbage' WHERE event_id = 'broken'")
    [audience] = bench.store.unmatched(9)
    assert audience.event.event_id == "sound"
    assert bench.store.commit_reactions([Reaction(audience=audience)]) == [True]
    assert bench.store.next_time([]) is None


@pytest.mark.parametrize("damaged", ["'[1'", "'{}'", "7", "x'ff'"])
def test_an_event_of_unknown_cause_begins_a_chain(bench, damaged):
    told = Event(event_type="seen", emitted=0, event_id="a", behind=Chain(3))
    assert bench.store.emit("acme", [told]) == [True]
    damage(bench, f"UPDATE events SET behind = {damaged}")  # noqa: S608 - a test's own text
    [audience] = bench.store.unmatched(9)
    assert (audience.event.behind, audience.problem) == (None, "")


def test_a_listener_that_cannot_be_read_keeps_no_event_from_the_others(bench):
    bench.create_quiet("broken")
    sound = bench.create_quiet("sound")
    emitted(bench, "a")
    damage(bench, "UPDATE schedules SET trigger_document = '[1' WHERE schedule_id = 'schedule-of-broken'")
    [audience] = bench.store.unmatched(9)
    assert audience.listeners == (sound,)
    assert bench.store.commit_reactions([Reaction(audience=audience)]) == [True]


@pytest.mark.parametrize("damaged", ["[1", "{}", '{"depth": "1"}'])
def test_what_follows_an_end_of_unknown_cause_begins_a_chain(bench, damaged):
    up = bench.create_quiet("up")
    down = bench.create("down", trigger=None, depends_on=(Dependency(schedule_id=up.schedule_id),))
    cause = {"event_id": "evt1_x", "event_type": "x", "source": "schedule:first", "payload": None}
    bench.add_event(up, "evt1_x", payload=cause)
    assert bench.settle(bench.start(bench.claim_one()))
    assert bench.snapshot(down).upstreams.each[0].leads.depth == 1
    damage(bench, f"UPDATE schedule_states SET leads = '{damaged}'")  # noqa: S608 - a test's own text
    planned = plan(bench.snapshot(down), now=bench.now, lookahead=LOOKAHEAD)
    assert [chain_behind(one) for one in planned.planned] == [Chain()]
    assert bench.commit(planned)


def test_an_end_that_cannot_be_read_leads_on_anyway(bench):
    up = bench.create_quiet("up")
    down = bench.create("down", trigger=None, depends_on=(Dependency(schedule_id=up.schedule_id),))
    bench.add(up, "a", payload={"a": 1})
    running = bench.start(bench.claim_one())
    damage(bench, f"UPDATE occurrences SET payload = '{{\"a' WHERE id = '{running.id}'")  # noqa: S608 - a test's own text
    assert bench.settle(running)
    [standing] = bench.snapshot(down).upstreams.each
    assert (standing.last_phase, standing.leads) == (Phase.COMPLETED, None)


def test_events_that_somebody_removed_by_hand_are_forgotten(bench):
    emitted(bench, "a", "b")
    assert all(bench.store.commit_reactions([Reaction(audience=one) for one in bench.store.unmatched(9)]))
    damage(bench, "DELETE FROM events")
    assert bench.store.prune_events(before=bench.now, keep=0, limit=9) == 0


def test_a_schedule_whose_state_is_damaged_is_set_aside_until_it_is_edited(bench):
    schedule, sound = bench.create("broken"), bench.create("sound")
    damage(bench, "UPDATE schedule_states SET watermark = 'garbage' WHERE uid = 'broken'")
    bench.advance(MINUTE)
    assert [one.schedule.uid for one in bench.store.plannable(bench.now, 9)] == [sound.uid]
    assert bench.store.damage() == {"schedule_states": 1}
    found = bench.store.inspect(limit=100).damaged
    assert {one.table for one in found} == {"schedule_states"}
    assert [one.column for one in found] == ["watermark", "fault"]
    described = replace(schedule.declaration, description="mended")
    bench.advance(1)
    assert bench.commit(edits.edit(bench.snapshot(schedule), described, now=bench.now, lookahead=LOOKAHEAD))
    assert bench.store.inspect(limit=100).damaged == ()
    bench.advance(MINUTE)
    assert {one.schedule.uid for one in bench.store.plannable(bench.now, 9)} == {schedule.uid, sound.uid}


@pytest.mark.parametrize("column", ["total", "live", "history", "queued", "holder", "fences", "last_phase"])
def test_a_schedule_whose_counts_are_damaged_goes_on_with_what_is_counted_again(bench, column):
    schedule = bench.create_quiet()
    assert bench.settle(bench.run(schedule, "before"))
    damage(bench, f"UPDATE schedule_states SET {column} = 'garbage'")  # noqa: S608 - a test's own text
    running = bench.run(schedule, "first")
    bench.add(schedule, "second")
    assert bench.settle(running)
    assert bench.settle(bench.start(bench.claim_one()))
    assert bench.store.inspect(limit=100).damaged == ()
    with bench.store._connections.reading() as connection:
        [counts] = connection.execute("SELECT live, history, queued, holder, fault FROM schedule_states").fetchall()
    assert counts == (0, 3, 0, None, None)


def test_a_count_that_is_too_great_forgets_nothing(bench):
    schedule = bench.create_quiet()
    for key in ("a", "b"):
        assert bench.settle(bench.run(schedule, key))
    emitted(bench, "a", "b")
    assert all(bench.store.commit_reactions([Reaction(audience=one) for one in bench.store.unmatched(9)]))
    for _ in range(2):
        damage(bench, "UPDATE schedule_states SET history = 2000000")
        damage(bench, "UPDATE event_streams SET matched = 2000000")
        assert bench.store.prune(before=0, keep=5, limit=100) == 0
        assert bench.store.prune_events(before=0, keep=5, limit=100) == 0
    with bench.store._connections.reading() as connection:
        assert connection.execute("SELECT history FROM schedule_states").fetchall() == [(2,)]
        assert connection.execute("SELECT matched FROM event_streams").fetchall() == [(2,)]


def test_what_belongs_to_no_schedule_is_ended_and_not_looked_for_again(bench):
    schedule = bench.create_quiet()
    lost, sound = bench.add(schedule, "lost"), bench.add(schedule, "sound")
    damage(bench, f"UPDATE occurrences SET schedule = 77 WHERE id = '{lost.id}'")  # noqa: S608 - likewise
    assert [claim.occurrence.id for claim in bench.claim()] == [sound.id]
    assert bench.claim() == []
    with bench.store._connections.reading() as connection:
        [(phase, reason)] = connection.execute("SELECT phase, reason FROM occurrences WHERE id = ?", (lost.id,))
    assert (phase, reason) == ("delivery_failed", "unreadable")


@pytest.mark.parametrize(
    "damaged",
    [
        "UPDATE schedule_states SET watermark = 'late' WHERE schedule IN (2, 3)",
        "UPDATE schedules SET labels = '{' WHERE key IN (2, 3)",
    ],
)
def test_a_damaged_schedule_ends_no_page_of_those_that_are_planned_ahead(bench, damaged):
    for number in range(4):
        bench.create(f"uid-{number}")
    damage(bench, damaged)
    found, page = [], None
    while page is None or len(page) >= 2:
        after = found[-1] if found else ""
        page = bench.store.planned_ahead(now=NOW, until=NOW - 1, after=after, limit=2)
        found += [one.schedule.uid for one in page]
    assert found == ["uid-0", "uid-3"]
