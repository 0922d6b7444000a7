"""What a SQLite store does costs as much as what is due, whatever is stored: no statement walks a table."""

import sqlite3
from dataclasses import replace

import pytest

from noonmark.core import edits
from noonmark.core.admission import Busy, Place, Wait, after_upstreams
from noonmark.core.audit import AuditEntry
from noonmark.core.event import Event
from noonmark.core.ids import manual
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.planner import first_plan, plan
from noonmark.core.policies import overlap
from noonmark.core.policies.limits import Concurrency, Dependency
from noonmark.core.reactions import Reaction, match
from noonmark.core.reasons import Reason
from noonmark.core.schedule import Owner
from noonmark.core.system_events import SystemEvent, of_lost_node
from noonmark.core.triggers import EventTrigger
from noonmark.ports.records import Admitted, Heartbeat, ScheduleFilter, Shares
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing import factories
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE, Bench, hold, start
from noonmark.testing.factories import MINUTE, NOW
from tests.conformance.test_memory_model import done

TABLES = ("occurrences", "schedules", "schedule_states", "runs", "concurrency_keys", "dependencies")
TABLES += ("events", "event_streams", "event_listeners", "notes", "idempotency_keys")

WORK = ("event_streams_behind", "occurrences_queued", "occurrences_awaiting")


@pytest.fixture
def traced(tmp_path):
    """A store, and the statements that it runs."""
    clock, statements = HandClock(), []
    store = SqliteStore(tmp_path / "noonmark.db", clock)
    done(store.open())
    with store._connections.reading() as reader:
        reader.set_trace_callback(statements.append)
    with store._connections.bare() as writer:
        writer.set_trace_callback(statements.append)
    yield Bench(store, clock), statements
    done(store.close())


def a_day_of_work(bench):
    store = bench.store
    made = [factories.schedule(f"uid-{n}", name=f"name-{n}") for n in range(20)]
    assert all(done(store.create([first_plan(one, lookahead=LOOKAHEAD) for one in made])))
    bench.advance(MINUTE)
    claims = done(bench.claim(limit=10)) + done(bench.claim(limit=3, shares=Shares(each=3))) + done(bench.claim())
    assert len(claims) == 20
    done(store.release([hold(claim) for claim in claims[:2]]))
    done(store.beat(Heartbeat(node="node-a", routes=(ROUTE,)), now=bench.now))
    done(store.lead("node-a", now=bench.now, lease=LEASE))
    done(store.nodes())
    done(store.leave("node-a"))
    done(store.orphans("node-a", now=bench.now, limit=9, lease=LEASE))
    answers = done(store.admit([start(claim) for claim in claims[2:]], now=bench.now, lease=LEASE))
    running = [answer.occurrence for answer in answers]
    done(store.renew([hold(one) for one in running], now=bench.now, lease=LEASE))
    done(store.request_stop(running[0].id))
    done(store.overdue(now=bench.now, limit=9))
    done(store.settle([bench.settlement(one) for one in running]))
    done(
        store.commit_plans(
            [plan(one, now=bench.now, lookahead=LOOKAHEAD) for one in done(store.plannable(bench.now, 9))]
        )
    )
    done(store.find("acme", "schedule-of-uid-1"))
    done(store.find_named("acme", "ada", "name-1"))
    page = done(store.schedules("acme", limit=3))
    assert len(done(store.schedules("acme", after=page[-1].schedule.uid, limit=3))) == 3
    done(store.commit_plans([edits.delete(done(store.snapshot("uid-7")), now=bench.now)]))
    assert done(store.find("acme", "schedule-of-uid-7", deleted=True)) is not None
    gone, *_ = done(store.schedules("acme", limit=3, deleted=True))
    done(store.schedules("acme", after=gone.schedule.uid, limit=3, deleted=True))
    done(store.activities(["uid-1", "uid-2"]))
    assert done(store.last_runs([one.id for one in running]))
    done(store.occurrences("uid-1", 5))
    done(store.occurrences_at("uid-1", bench.now, 5))
    done(store.find_uid("uid-1"))
    assert done(store.change("uid-8", lambda snapshot, now: edits.pause(snapshot, now=now)))
    done(store.runs("uid-1", 5))
    done(store.routes("test"))
    done(store.next_time([ROUTE, "http"]))
    done(store.backlog(bench.now, 9))
    done(store.prune(before=bench.now - SECOND, keep=100, limit=10))
    skipped = [
        factories.occurrence(made[0], manual(f"{n}"), nominal=n, phase=Phase.SKIPPED, reason=Reason.PAUSED)
        for n in range(40)
    ]
    assert all(done(store.add(skipped)))
    assert done(store.prune(before=0, keep=35, limit=10)) > 0


def a_day_of_waiting(bench):
    """Of each ten, two depend on the first, one with a trigger and one without."""
    store, on_first = bench.store, {"depends_on": (Dependency(schedule_id="schedule-of-up-0"),)}
    made = [factories.schedule(f"up-{n}", created=bench.now) for n in range(8)]
    made += [factories.schedule("waits", created=bench.now, **on_first)]
    made += [factories.schedule("follows", created=bench.now, trigger=None, **on_first)]
    assert all(done(store.create([first_plan(one, lookahead=LOOKAHEAD) for one in made])))
    done(store.graph("acme", ["schedule-of-waits"]))
    done(store.commit_plans([plan(one, now=bench.now, lookahead=0) for one in done(store.plannable(bench.now, 99))]))
    bench.advance(MINUTE)
    claims = {claim.occurrence.uid: claim for claim in done(bench.claim())}
    [standings] = done(store.upstreams([claims["waits"]]))
    done(bench.decide(after_upstreams(claims["waits"], standings, now=bench.now)))
    assert done(bench.settle(done(bench.start(claims["up-0"]))))
    done(store.commit_plans([plan(one, now=bench.now, lookahead=0) for one in done(store.plannable(bench.now, 99))]))
    assert {"waits", "follows"} <= {claim.occurrence.uid for claim in done(bench.claim())}
    done(store.commit_plans([edits.pause(done(store.snapshot("up-0")), now=bench.now)]))


def a_day_of_limits(bench):
    """Two of each three wait for a place under a key, or for the slot of their schedule."""
    store, one_at_a_time = bench.store, {"concurrency": Concurrency(key="db", limit=1)}
    made = [done(bench.create_quiet(f"uid-{n}", **(one_at_a_time if n % 2 else {}))) for n in range(6)]
    for one in made:
        assert all(done(store.add([factories.occurrence(one, manual(key), nominal=bench.now) for key in "abc"])))
    claims = done(bench.claim())
    answers = done(store.admit([start(claim) for claim in claims], now=bench.now, lease=LEASE))
    pairs = list(zip(claims, answers, strict=True))
    running = [answer.occurrence for _, answer in pairs if isinstance(answer, Admitted)]
    waits = [
        Wait(claim=claim, waiting_for=Reason.QUEUED if answer.place is Place.SLOT else Reason.CONCURRENCY_LIMIT)
        for claim, answer in pairs
        if isinstance(answer, Busy)
    ]
    assert (len(running), len(waits)) == (4, 14)
    done(store.admit(waits, now=bench.now, lease=LEASE))
    done(store.cancel(waits[-1].claim.occurrence.id))
    assert done(bench.retry(running[0], bench.now + SECOND))
    for number, one in enumerate(running[1:]):
        deadline = {"phase": Phase.AWAITING_COMPLETION, "deadline": bench.now + SECOND} if number == 0 else {}
        assert done(bench.settle(one, **deadline))
    bench.advance(2 * LEASE)
    assert len(done(store.overdue(now=bench.now, limit=9))) == 1
    done(bench.start(done(bench.claim())[0]))
    bench.advance(2 * LEASE)
    assert done(bench.claim("node-b", limit=2))
    done(store.commit_plans([edits.pause(done(bench.snapshot(made[1])), now=bench.now)]))
    done(store.commit_plans([edits.resume(done(bench.snapshot(made[1])), now=bench.now, lookahead=LOOKAHEAD)]))
    done(store.commit_plans([edits.delete(done(bench.snapshot(made[2])), now=bench.now)]))


def _tell_of_everything(bench, made):
    """Somebody listens for all facts but one, and some things happen."""
    store = bench.store
    done(
        bench.create(
            "told",
            trigger=EventTrigger([str(fact) for fact in SystemEvent if fact is not SystemEvent.SCHEDULE_UPDATED]),
        )
    )
    done(bench.add(made, "late"))
    bench.advance(MINUTE)
    assert done(bench.settle(done(bench.start(done(bench.claim_one())))))
    assert done(store.cancel(done(bench.add(made, "cancelled")).id))
    done(store.beat(Heartbeat(node="node-a", lease=LEASE), now=bench.now))
    lost = of_lost_node("node-a", seen=bench.now, started=0, version="", load=0, routes=())
    assert done(store.lose("node-a", bench.now, lost))
    facts = [one.event_type for one in done(store.events("acme", 9))]
    assert facts == ["node.lost", "occurrence.cancelled", "occurrence.completed", "occurrence.late", "schedule.created"]


def a_day_of_events(bench):
    """Fifty listen for one type, and fifty for another; of a third, each wants another value."""
    store = bench.store
    made = [factories.schedule(f"uid-{n}", trigger=EventTrigger(f"type-{n % 2}")) for n in range(100)]
    made += [factories.schedule(f"one-{n}", trigger=EventTrigger("type-2", {"n": n})) for n in range(30)]
    assert all(done(store.create([first_plan(one, lookahead=LOOKAHEAD) for one in made])))
    _tell_of_everything(bench, made[0])
    events = [Event(event_type=f"type-{n % 3}", emitted=0, event_id=f"e{n}", payload={"n": n}) for n in range(30)]
    assert all(done(store.emit("acme", events)))
    while audiences := done(store.unmatched(20)):
        rows = [[match(one.event, each, now=bench.now) for each in one.listeners] for one in audiences]
        reactions = [
            Reaction(audience=one, occurrences=tuple(row for row in of if row is not None))
            for one, of in zip(audiences, rows, strict=True)
        ]
        assert all(done(store.commit_reactions(reactions)))
    assert len(done(bench.claim(limit=2_000))) == 1_000 + 10 + 4
    assert len(done(store.events("acme", 5))) == 5
    done(store.next_time([ROUTE]))
    assert done(store.prune_events(before=bench.now + 2, keep=5, limit=10)) == 10
    assert done(store.prune_events(before=0, keep=5, limit=100)) == 20
    other = replace(made[0].declaration, trigger=EventTrigger("other"))
    snapshot = done(bench.snapshot(made[0]))
    assert done(bench.commit(edits.edit(snapshot, other, now=bench.now, lookahead=LOOKAHEAD)))


def a_day_of_questions(bench):
    """Everything that callers ask, in pages, and what is noted of them."""
    store = bench.store
    made = [factories.schedule(f"uid-{n}", name=f"name-{n}", labels={"n": f"{n % 2}"}) for n in range(20)]
    plans = [first_plan(one, lookahead=LOOKAHEAD) for one in made]
    note = AuditEntry(at=bench.now, caller="ada", operation="create", schedule_id=made[0].schedule_id)
    assert all(done(store.create([replace(one, note=note) for one in plans])))
    every = {"user": "ada", "phases": frozenset(SchedulePhase), "kinds": frozenset({"interval"}), "text": "NAME"}
    every |= {"target": ROUTE, "labels": {"n": "1"}}
    for wanted in (
        None,
        *(ScheduleFilter(**{field: value}) for field, value in every.items()),
        ScheduleFilter(**every),
    ):
        assert len(done(store.schedules("acme", limit=3, wanted=wanted, newest_first=True))) == 3
        assert done(store.schedules("acme", limit=3, wanted=wanted, after="uid-10"))
        assert done(store.count_schedules("acme", wanted)) >= 10
    bench.advance(MINUTE)
    ended, running = done(bench.claim(limit=2))
    ended = done(bench.start(ended))
    done(bench.start(running))
    assert done(bench.settle(ended))
    for uid, one in ((ended.uid, ended), (running.occurrence.uid, running.occurrence)):
        place = (bench.now + 1, "")
        assert done(store.occurrences(uid, 3, before=place, phases=[Phase.COMPLETED, Phase.DISPATCHING]))
        done(store.occurrences(uid, 3, phases=[Phase.PENDING]))
        [run] = done(store.runs(uid, 3, before=place))
        assert done(store.run(run.id)) == (uid, run)
        assert done(store.occurrence_runs(one.id)) == [run]
    assert done(store.emit("acme", [Event(event_type="seen", emitted=0, event_id="e1")])) == [True]
    assert len(done(store.events("acme", 3, before=bench.now + 1, event_type="seen"))) == 1
    done(store.note("acme", [note]))
    [newest] = done(store.notes("acme", 1))
    assert len(done(store.notes("acme", 3, before=newest.key))) == 3
    assert len(done(store.notes("acme", 3, before=newest.key, schedule_id=made[0].schedule_id))) == 3
    assert done(store.prune_notes(before=bench.now, limit=5)) == 5
    for now in (0, 2):
        assert done(store.claim_key("acme", "key", "body", now=now, lifetime=1)).created == now
    assert done(store.prune_keys(before=3, limit=5)) == 1


DAYS = (a_day_of_work, a_day_of_waiting, a_day_of_limits, a_day_of_events, a_day_of_questions)


@pytest.mark.parametrize("work", DAYS)
def test_no_statement_walks_a_table(traced, work):
    bench, statements = traced
    work(bench)
    with bench.store._connections.bare() as writer:
        writer.set_trace_callback(None)
        walks = [(step, one) for one in dict.fromkeys(statements) for step in _steps(writer, one) if _walks(step)]
    assert not walks, walks


def test_a_share_costs_as_much_as_the_owners_who_have_something_due(tmp_path):
    """Neither what one of them has, nor what others have later, in numbers of steps of SQLite's machine."""
    costs = []
    for many, others in ((100, 100), (10_000, 100), (100, 10_000)):
        clock = HandClock()
        store = SqliteStore(tmp_path / f"{many}-{others}.db", clock)
        done(store.open())
        bench = Bench(store, clock)
        for user, count, after in (("ada", many, 0), ("bob", 1, SECOND)):
            made = done(bench.create_quiet(user, owner=Owner(tenant="acme", user=user)))
            rows = [factories.occurrence(made, manual(str(n)), nominal=NOW + after) for n in range(count)]
            assert all(done(store.add(rows)))
        later = [
            factories.schedule(f"uid-{n}", owner=Owner(tenant="acme", user=f"user-{n}"), created=NOW + MINUTE)
            for n in range(others)
        ]
        assert all(done(store.create([first_plan(one, lookahead=LOOKAHEAD) for one in later])))
        bench.advance(SECOND)
        with store._connections.bare() as writer:
            steps = []
            writer.set_progress_handler(lambda steps=steps: steps.append(1), 10)
            claims = done(bench.claim(shares=Shares(each=2)))
            writer.set_progress_handler(None, 10)
        assert sorted(claim.schedule.owner.user for claim in claims) == ["ada", "ada", "bob"]
        costs.append(len(steps))
        done(store.close())
    assert max(costs) < 2 * min(costs), costs


def test_an_event_costs_as_much_as_those_who_want_its_values(tmp_path):
    """Neither those who want others, nor how many events of theirs wait, in numbers of steps of SQLite's machine."""
    costs = []
    for many in (20, 1_000):
        store = SqliteStore(tmp_path / f"{many}.db", HandClock())
        done(store.open())
        wants = [{"customer": f"c-{n}", "kind": f"k-{n % 3}"} for n in range(many)]
        made = [factories.schedule(f"uid-{n}", trigger=EventTrigger("seen", one)) for n, one in enumerate(wants)]
        assert all(done(store.create([first_plan(one, lookahead=LOOKAHEAD) for one in made])))
        events = [Event(event_type="seen", emitted=0, event_id=f"e{n}", payload=wants[n]) for n in range(20)]
        assert all(done(store.emit("acme", events)))
        steps = []
        with store._connections.reading() as reader:
            reader.set_progress_handler(lambda steps=steps: steps.append(1), 10)
        assert [[one.uid for one in of.listeners] for of in done(store.unmatched(99))] == [
            [f"uid-{n}"] for n in range(20)
        ]
        costs.append(len(steps))
        done(store.close())
    assert max(costs) < 1.5 * min(costs), costs


@pytest.mark.parametrize("verb", ["runs", "occurrences"])
def test_a_page_costs_as_much_as_the_page(tmp_path, verb):
    costs = []
    for many in (50, 2_000):
        clock = HandClock()
        store = SqliteStore(tmp_path / f"{many}.db", clock)
        done(store.open())
        bench = Bench(store, clock)
        made = done(bench.create_quiet(overlap_policy=overlap.Allow()))
        rows = [factories.occurrence(made, manual(f"{n}"), nominal=NOW + n) for n in range(many)]
        assert all(done(store.add(rows)))
        bench.advance(many)
        claims = done(bench.claim(limit=many))
        starts = [replace(start(claim), takes_slot=False) for claim in claims]
        answers = done(store.admit(starts, now=bench.now, lease=LEASE))
        settlements = [bench.settlement(answer.occurrence) for answer in answers]
        ends = [
            replace(one, run=replace(one.run, started=bench.now + n, ended=bench.now + n))
            for n, one in enumerate(settlements)
        ]
        assert all(done(store.settle(ends)))
        steps = []
        with store._connections.reading() as reader:
            reader.set_progress_handler(lambda steps=steps: steps.append(1), 10)
        [*_, last] = page = done(getattr(store, verb)(made.uid, 10))
        place = (last.started, last.id) if verb == "runs" else (last.nominal, last.id)
        page += done(getattr(store, verb)(made.uid, 10, before=place))
        assert len({one.id for one in page}) == 20
        costs.append(len(steps))
        done(store.close())
    assert max(costs) < 1.5 * min(costs), costs


def test_a_list_reads_no_other_schedules_than_those_on_the_page(tmp_path):
    store = SqliteStore(tmp_path / "noonmark.db", HandClock())
    done(store.open())
    made = [factories.schedule(f"uid-{n}", created=NOW + n, labels={"n": f"{n % 50}"}) for n in range(500)]
    assert all(done(store.create([first_plan(one, lookahead=LOOKAHEAD) for one in made])))
    store._schedule_cache.forget()
    wanted = ScheduleFilter(labels={"n": "7"}, phases=frozenset({SchedulePhase.ACTIVE}), text="uid")
    assert [one.schedule.uid for one in done(store.schedules("acme", limit=2, wanted=wanted))] == ["uid-7", "uid-57"]
    assert done(store.count_schedules("acme", wanted)) == 10
    assert len(store._schedule_cache._known) == 2
    done(store.close())


def _steps(connection, statement):
    try:
        return [step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
    except sqlite3.OperationalError:
        return []  # it is no statement of its own


def _walks(step):
    # The indexes that may be walked hold tenants with events to match, or what waits, and nothing else.
    is_work = step.endswith(tuple(f"USING INDEX {one}" for one in WORK))
    return step.startswith("SCAN") and not is_work and any(step.split()[1] == table for table in TABLES)
