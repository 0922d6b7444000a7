"""The cost of a SQLite store follows due work, not stored rows: no statement scans a table."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from noonmark import IntervalTrigger, Scheduler
from noonmark.core import edits
from noonmark.core.admission import Busy, Place, Wait, after_upstreams
from noonmark.core.agents.session import Message, Mob, Role, Session, SessionState
from noonmark.core.causation import Reaction, match
from noonmark.core.event import Event
from noonmark.core.halt import Halt
from noonmark.core.ids import manual
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import FAILURES, Phase, SchedulePhase
from noonmark.core.planner import first_plan, plan
from noonmark.core.policies import overlap
from noonmark.core.policies.limits import Concurrency, Dependency
from noonmark.core.reasons import Reason
from noonmark.core.schedule import AuditEntry, Owner
from noonmark.core.system_events import SystemEvent, of_lost_node
from noonmark.core.targets.session import SessionSpec
from noonmark.core.triggers import EventTrigger
from noonmark.ports.records import Admitted, Heartbeat, OccurrenceFilter, ScheduleFilter, Shares
from noonmark.ports.sessions import Turn
from noonmark.stores.sqlite import SqliteStore, checkpoint
from noonmark.testing import FakeClock, ManualDriver, factories
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE, Bench, hold, start
from noonmark.testing.factories import MINUTE, NOW
from noonmark.testing.manual import run_inline
from tests.workflow_store import waiting_runs

TABLES = ("occurrences", "schedules", "schedule_states", "runs", "concurrency_keys", "dependencies")
TABLES += ("sessions", "session_messages", "mobs")
TABLES += ("events", "event_streams", "event_listeners", "notes", "idempotency_keys")

WORK = ("event_streams_behind", "occurrences_queued", "occurrences_awaiting", "occurrences_suspended")


@pytest.fixture
def traced(tmp_path):
    """A store, and the statements that it runs."""
    clock, statements = HandClock(), []
    store = SqliteStore(tmp_path / "noonmark.db", clock)
    store.open()
    with store._connections.reading() as reader:
        reader.set_trace_callback(statements.append)
    with store._connections.bare() as writer:
        writer.set_trace_callback(statements.append)
    yield Bench(store, clock), statements
    store.close()


def a_day_of_work(bench):
    store = bench.store
    schedules = [factories.schedule(f"uid-{n}", name=f"name-{n}") for n in range(20)]
    assert all(store.create([first_plan(one, lookahead=LOOKAHEAD) for one in schedules]))
    bench.advance(MINUTE)
    claims = bench.claim(limit=10) + bench.claim(limit=3, shares=Shares(each=3)) + bench.claim()
    assert len(claims) == 20
    store.release([hold(claim) for claim in claims[:2]])
    store.beat(Heartbeat(node="node-a", routes=(ROUTE,)), now=bench.now)
    store.lead("node-a", now=bench.now, lease=LEASE)
    store.nodes()
    store.leave("node-a")
    store.orphans("node-a", now=bench.now, limit=9, lease=LEASE)
    answers = store.admit([start(claim) for claim in claims[2:]], now=bench.now, lease=LEASE)
    running = [answer.occurrence for answer in answers]
    store.renew([hold(one) for one in running], now=bench.now, lease=LEASE)
    store.request_stop(running[0].id)
    store.overdue(now=bench.now, limit=9)
    store.settle([bench.settlement(one) for one in running])
    store.commit_plans([plan(one, now=bench.now, lookahead=LOOKAHEAD) for one in store.plannable(bench.now, 9)])
    store.find("acme", "schedule-of-uid-1")
    store.find_named("acme", "ada", "name-1")
    page = store.schedules("acme", limit=3)
    assert len(store.schedules("acme", after=page[-1].schedule.uid, limit=3)) == 3
    store.commit_plans([edits.delete(store.snapshot("uid-7"), now=bench.now)])
    assert store.find("acme", "schedule-of-uid-7", deleted=True) is not None
    gone, *_ = store.schedules("acme", limit=3, deleted=True)
    store.schedules("acme", after=gone.schedule.uid, limit=3, deleted=True)
    store.activities(["uid-1", "uid-2"])
    assert store.last_runs([one.id for one in running])
    store.occurrences("uid-1", 5)
    store.occurrences_at("uid-1", bench.now, 5)
    store.find_uid("uid-1")
    assert store.change("uid-8", lambda snapshot, now: edits.pause(snapshot, now=now))
    store.runs("uid-1", 5)
    store.routes("test")
    store.next_time([ROUTE, "http"])
    store.backlog(bench.now, 9)
    store.workload(now=bench.now, limit=9)
    store.workload(now=bench.now, limit=9, tenant="acme")
    store.prune(before=bench.now - SECOND, keep=100, limit=10)
    skipped = [
        factories.occurrence(schedules[0], manual(f"{n}"), nominal=n, phase=Phase.SKIPPED, reason=Reason.PAUSED)
        for n in range(40)
    ]
    assert all(store.add(skipped))
    assert store.prune(before=0, keep=35, limit=10) > 0


def a_day_of_waiting(bench):
    """Of each ten, two depend on the first, one with a trigger and one without."""
    store, on_first = bench.store, {"depends_on": (Dependency(schedule_id="schedule-of-up-0"),)}
    made = [factories.schedule(f"up-{n}", created=bench.now) for n in range(8)]
    made += [factories.schedule("waits", created=bench.now, **on_first)]
    made += [factories.schedule("follows", created=bench.now, trigger=None, **on_first)]
    assert all(store.create([first_plan(one, lookahead=LOOKAHEAD) for one in made]))
    store.graph("acme", ["schedule-of-waits"])
    store.commit_plans([plan(one, now=bench.now, lookahead=0) for one in store.plannable(bench.now, 99)])
    bench.advance(MINUTE)
    claims = {claim.occurrence.uid: claim for claim in bench.claim()}
    [standings] = store.upstreams([claims["waits"]])
    bench.decide(after_upstreams(claims["waits"], standings, now=bench.now))
    assert bench.settle(bench.start(claims["up-0"]))
    store.commit_plans([plan(one, now=bench.now, lookahead=0) for one in store.plannable(bench.now, 99)])
    assert {"waits", "follows"} <= {claim.occurrence.uid for claim in bench.claim()}
    store.commit_plans([edits.pause(store.snapshot("up-0"), now=bench.now)])


def a_day_of_limits(bench):
    """Two of each three wait for a place under a key, or for the slot of their schedule."""
    store, one_at_a_time = bench.store, {"concurrency": Concurrency(key="db", limit=1)}
    schedules = [bench.create_quiet(f"uid-{n}", **(one_at_a_time if n % 2 else {})) for n in range(6)]
    for one in schedules:
        assert all(store.add([factories.occurrence(one, manual(key), nominal=bench.now) for key in "abc"]))
    claims = bench.claim()
    answers = store.admit([start(claim) for claim in claims], now=bench.now, lease=LEASE)
    pairs = list(zip(claims, answers, strict=True))
    running = [answer.occurrence for _, answer in pairs if isinstance(answer, Admitted)]
    waits = [
        Wait(claim=claim, waiting_for=Reason.QUEUED if answer.place is Place.SLOT else Reason.CONCURRENCY_LIMIT)
        for claim, answer in pairs
        if isinstance(answer, Busy)
    ]
    assert (len(running), len(waits)) == (4, 14)
    store.admit(waits, now=bench.now, lease=LEASE)
    store.cancel(waits[-1].claim.occurrence.id)
    assert bench.retry(running[0], bench.now + SECOND)
    for number, one in enumerate(running[1:]):
        deadline = {"phase": Phase.AWAITING_COMPLETION, "deadline": bench.now + SECOND} if number == 0 else {}
        assert bench.settle(one, **deadline)
    bench.advance(2 * LEASE)
    assert len(store.overdue(now=bench.now, limit=9)) == 1
    bench.start(bench.claim()[0])
    bench.advance(2 * LEASE)
    assert bench.claim("node-b", limit=2)
    store.commit_plans([edits.pause(bench.snapshot(schedules[1]), now=bench.now)])
    store.commit_plans([edits.resume(bench.snapshot(schedules[1]), now=bench.now, lookahead=LOOKAHEAD)])
    store.commit_plans([edits.delete(bench.snapshot(schedules[2]), now=bench.now)])


def _tell_of_everything(bench, made):
    """Somebody listens for all facts but one, and some things happen."""
    store = bench.store
    bench.create(
        "told", trigger=EventTrigger([str(fact) for fact in SystemEvent if fact is not SystemEvent.SCHEDULE_UPDATED])
    )
    bench.add(made, "late")
    bench.advance(MINUTE)
    assert bench.settle(bench.start(bench.claim_one()))
    assert store.cancel(bench.add(made, "cancelled").id)
    store.beat(Heartbeat(node="node-a", lease=LEASE), now=bench.now)
    lost = of_lost_node("node-a", seen=bench.now, started=0, version="", load=0, routes=())
    assert store.lose("node-a", bench.now, lost)
    facts = [one.event_type for one in store.events("acme", 9)]
    assert facts == ["node.lost", "occurrence.cancelled", "occurrence.completed", "occurrence.late", "schedule.created"]


def a_day_of_events(bench):
    """Fifty listen for one type, and fifty for another; of a third, each wants another value."""
    store = bench.store
    made = [factories.schedule(f"uid-{n}", trigger=EventTrigger(f"type-{n % 2}")) for n in range(100)]
    made += [factories.schedule(f"one-{n}", trigger=EventTrigger("type-2", {"n": n})) for n in range(30)]
    assert all(store.create([first_plan(one, lookahead=LOOKAHEAD) for one in made]))
    _tell_of_everything(bench, made[0])
    events = [Event(event_type=f"type-{n % 3}", emitted=0, event_id=f"e{n}", payload={"n": n}) for n in range(30)]
    assert all(store.emit("acme", events))
    while audiences := store.unmatched(20):
        rows = [[match(one.event, each, now=bench.now) for each in one.listeners] for one in audiences]
        reactions = [
            Reaction(audience=one, occurrences=tuple(row for row in of if row is not None))
            for one, of in zip(audiences, rows, strict=True)
        ]
        assert all(store.commit_reactions(reactions))
    assert len(bench.claim(limit=2_000)) == 1_000 + 10 + 4
    assert len(store.events("acme", 5)) == 5
    store.next_time([ROUTE])
    assert store.prune_events(before=bench.now + 2, keep=5, limit=10) == 10
    assert store.prune_events(before=0, keep=5, limit=100) == 20
    other = replace(made[0].declaration, trigger=EventTrigger("other"))
    snapshot = bench.snapshot(made[0])
    assert bench.commit(edits.edit(snapshot, other, now=bench.now, lookahead=LOOKAHEAD))


def a_day_of_questions(bench):
    """Everything that callers ask, in pages, and what is noted of them."""
    store = bench.store
    schedules = [factories.schedule(f"uid-{n}", name=f"name-{n}", labels={"n": f"{n % 2}"}) for n in range(20)]
    plans = [first_plan(one, lookahead=LOOKAHEAD) for one in schedules]
    note = AuditEntry(at=bench.now, caller="ada", operation="create", schedule_id=schedules[0].schedule_id)
    assert all(store.create([replace(one, note=note) for one in plans]))
    every = {"user": "ada", "phases": frozenset(SchedulePhase), "kinds": frozenset({"interval"}), "text": "NAME"}
    every |= {"target": ROUTE, "labels": {"n": "1"}}
    for wanted in (
        None,
        *(ScheduleFilter(**{field: value}) for field, value in every.items()),
        ScheduleFilter(**every),
    ):
        assert len(store.schedules("acme", limit=3, wanted=wanted, newest_first=True)) == 3
        assert store.schedules("acme", limit=3, wanted=wanted, after="uid-10")
        assert store.count_schedules("acme", wanted) >= 10
    bench.advance(MINUTE)
    ended, running = bench.claim(limit=2)
    ended = bench.start(ended)
    bench.start(running)
    assert bench.settle(ended)
    for uid, one in ((ended.uid, ended), (running.occurrence.uid, running.occurrence)):
        place = (bench.now + 1, "")
        assert store.occurrences(uid, 3, before=place, phases=[Phase.COMPLETED, Phase.DISPATCHING])
        store.occurrences(uid, 3, phases=[Phase.PENDING])
        [run] = store.runs(uid, 3, before=place)
        assert store.run(run.id) == (uid, run)
        assert store.occurrence_runs(one.id) == [run]
    assert store.emit("acme", [Event(event_type="seen", emitted=0, event_id="e1")]) == [True]
    assert len(store.events("acme", 3, before=bench.now + 1, event_type="seen")) == 1
    store.add_audit_entries("acme", [note])
    [newest] = store.audit_entries("acme", 1)
    assert len(store.audit_entries("acme", 3, before=newest.key)) == 3
    assert len(store.audit_entries("acme", 3, before=newest.key, schedule_id=schedules[0].schedule_id)) == 3
    assert store.prune_audit_entries(before=bench.now, limit=5) == 5
    for now in (0, 2):
        assert store.claim_key("acme", "key", "body", now=now, lifetime=1).created == now
    assert store.prune_keys(before=3, limit=5) == 1


def a_day_of_talk(bench):
    """Sessions of several users, with turns, and what is pruned of them."""
    store, spec = bench.store, SessionSpec(model="test", labels={"team": "ops"})
    for number in range(20):
        session_id, mob_id = f"s{number}", "crew" if number % 2 else None
        session = Session(tenant="acme", session_id=session_id, user=f"u{number % 3}", spec=spec, mob_id=mob_id)
        assert store.put_session(session, most=99)
        given = bench.run(bench.create_quiet(f"uid-{number}"), "a")
        turn = Turn(tenant="acme", session_id=session_id, occurrence_id=given.id, fence=given.fence)
        said = Message(role=Role.USER, parts=({"type": "text", "text": "x" * 99},))
        assert store.begin_turn(turn, [said])
        assert store.append_messages(turn, [said])
        assert bench.settle(given)
        bench.advance(SECOND)
    assert store.put_mob(Mob(tenant="acme", mob_id="crew", user="ada", document={"members": []}), [])
    assert len(store.sessions("acme", 3, user="u1", state=SessionState.IDLE, labels={"team": "ops"})) == 3
    assert store.sessions("acme", 3, mob_id="crew", before=(bench.now, ""))
    assert store.sessions("acme", 3, state=SessionState.ACTIVE) == []
    assert len(store.messages("acme", "s1", 9, after=0, occurrence_id=given.id)) == 0
    assert len(store.messages("acme", "s1", 1, before=2, newest_first=True)) == 1
    assert store.mobs("acme", 3)
    assert store.set_session_state("acme", "s1", SessionState.ARCHIVED)
    assert store.delete_session("acme", "s2") == []
    assert store.prune_sessions(before=bench.now - 10 * SECOND, max_bytes=10**6, limit=99) > 0
    assert store.prune_sessions(before=0, max_bytes=200, limit=99) > 0
    assert store.delete_mob("acme", "crew") == []


DAYS = (a_day_of_talk, a_day_of_work, a_day_of_waiting, a_day_of_limits, a_day_of_events, a_day_of_questions)


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
    for many, others in ((100, 100), (3_000, 100), (100, 3_000)):
        clock = HandClock()
        store = SqliteStore(tmp_path / f"{many}-{others}.db", clock)
        store.open()
        bench = Bench(store, clock)
        for user, count, after in (("ada", many, 0), ("bob", 1, SECOND)):
            schedule = bench.create_quiet(user, owner=Owner(tenant="acme", user=user))
            rows = [factories.occurrence(schedule, manual(str(n)), nominal=NOW + after) for n in range(count)]
            assert all(store.add(rows))
        later = [
            factories.schedule(f"uid-{n}", owner=Owner(tenant="acme", user=f"user-{n}"), created=NOW + MINUTE)
            for n in range(others)
        ]
        assert all(store.create([first_plan(one, lookahead=LOOKAHEAD) for one in later]))
        bench.advance(SECOND)
        with store._connections.bare() as writer:
            steps = []
            writer.set_progress_handler(lambda steps=steps: steps.append(1), 10)
            claims = bench.claim(shares=Shares(each=2))
            writer.set_progress_handler(None, 10)
        assert sorted(claim.schedule.owner.user for claim in claims) == ["ada", "ada", "bob"]
        costs.append(len(steps))
        store.close()
    assert max(costs) < 2 * min(costs), costs


def test_a_halt_costs_a_start_nothing_that_grows_with_the_schedules(tmp_path):
    """Neither a start that it does not cover, nor one that it refuses, in numbers of steps of SQLite's machine."""
    for halt in ({"labels": {"team": "red"}}, {"lineage": "nobody"}, {}):
        costs = []
        for count, is_halted in ((100, False), (100, True), (2_000, True)):
            clock = HandClock()
            store = SqliteStore(tmp_path / f"{len(costs)}-{halt}.db", clock)
            store.open()
            bench = Bench(store, clock)
            schedules = [
                factories.schedule(f"uid-{n}", trigger=EventTrigger("seen"), created=NOW) for n in range(count)
            ]
            assert all(store.create([first_plan(one, lookahead=LOOKAHEAD) for one in schedules]))
            assert all(store.add([factories.occurrence(one, manual("a"), nominal=NOW) for one in schedules]))
            if is_halted:
                assert store.set_halt(Halt(halt_id="h", tenant="acme", at=NOW, by="ada", **halt), most=1) == 0
            claims = bench.claim(limit=50)
            with store._connections.bare() as writer:
                steps = []
                writer.set_progress_handler(lambda steps=steps: steps.append(1), 10)
                answers = store.admit([start(one) for one in claims], now=bench.now, lease=LEASE)
                writer.set_progress_handler(None, 10)
            is_refused = is_halted and not halt
            assert {type(one) for one in answers} == {Busy if is_refused else Admitted}
            costs.append(len(steps))
            store.close()
        without, few, many = costs
        assert many < 1.3 * few, costs
        assert few < 1.3 * without, costs


def test_an_event_costs_as_much_as_those_who_want_its_values(tmp_path):
    """Neither those who want others, nor how many events of theirs wait, in numbers of steps of SQLite's machine."""
    costs = []
    for many in (20, 1_000):
        store = SqliteStore(tmp_path / f"{many}.db", HandClock())
        store.open()
        wants = [{"customer": f"c-{n}", "kind": f"k-{n % 3}"} for n in range(many)]
        schedules = [factories.schedule(f"uid-{n}", trigger=EventTrigger("seen", one)) for n, one in enumerate(wants)]
        assert all(store.create([first_plan(one, lookahead=LOOKAHEAD) for one in schedules]))
        events = [Event(event_type="seen", emitted=0, event_id=f"e{n}", payload=wants[n]) for n in range(20)]
        assert all(store.emit("acme", events))
        steps = []
        with store._connections.reading() as reader:
            reader.set_progress_handler(lambda steps=steps: steps.append(1), 10)
        assert [[one.uid for one in of.listeners] for of in store.unmatched(99)] == [[f"uid-{n}"] for n in range(20)]
        costs.append(len(steps))
        store.close()
    assert max(costs) < 1.5 * min(costs), costs


def test_an_event_costs_as_much_as_the_runs_that_wait_for_its_values(tmp_path):
    costs = []
    for many in (20, 1_000):
        clock = HandClock()
        store = SqliteStore(tmp_path / f"{many}.db", clock)
        store.open()
        runs = waiting_runs(Bench(store, clock), many)
        events = [Event(event_type="paid", emitted=0, event_id=f"e{n}", payload={"order": n}) for n in range(9)]
        assert all(store.emit("acme", events))
        reactions = [Reaction(audience=one) for one in store.unmatched(99)]
        steps = []
        with store._connections.bare() as writer:
            writer.set_progress_handler(lambda steps=steps: steps.append(1), 10)
            assert all(store.commit_reactions(reactions))
            writer.set_progress_handler(None, 10)
        assert [store.workflow_run(one)[1][0].has_ended for one in runs[:10]] == [True] * 9 + [False]
        costs.append(len(steps))
        store.close()
    assert max(costs) < 1.5 * min(costs), costs


@pytest.mark.parametrize("verb", ["runs", "occurrences"])
def test_a_page_costs_as_much_as_the_page(tmp_path, verb):
    costs = []
    for many in (50, 2_000):
        clock = HandClock()
        store = SqliteStore(tmp_path / f"{many}.db", clock)
        store.open()
        bench = Bench(store, clock)
        schedule = bench.create_quiet(overlap_policy=overlap.Allow())
        rows = [factories.occurrence(schedule, manual(f"{n}"), nominal=NOW + n) for n in range(many)]
        assert all(store.add(rows))
        bench.advance(many)
        claims = bench.claim(limit=many)
        starts = [replace(start(claim), takes_slot=False) for claim in claims]
        answers = store.admit(starts, now=bench.now, lease=LEASE)
        settlements = [bench.settlement(answer.occurrence) for answer in answers]
        ends = [
            replace(one, run=replace(one.run, started=bench.now + n, ended=bench.now + n))
            for n, one in enumerate(settlements)
        ]
        assert all(store.settle(ends))
        steps = []
        with store._connections.reading() as reader:
            reader.set_progress_handler(lambda steps=steps: steps.append(1), 10)
        [*_, last] = page = getattr(store, verb)(schedule.uid, 10)
        place = (last.started, last.id) if verb == "runs" else (last.nominal, last.id)
        page += getattr(store, verb)(schedule.uid, 10, before=place)
        assert len({one.id for one in page}) == 20
        costs.append(len(steps))
        store.close()
    assert max(costs) < 1.5 * min(costs), costs


def test_failures_cost_as_much_as_the_failures(tmp_path):
    costs = []
    for many in (50, 2_000):
        clock = HandClock()
        store = SqliteStore(tmp_path / f"{many}.db", clock)
        store.open()
        bench = Bench(store, clock)
        schedule = bench.create_quiet(overlap_policy=overlap.Allow())
        rows = [factories.occurrence(schedule, manual(f"{n}"), nominal=NOW + n) for n in range(many)]
        assert all(store.add(rows))
        bench.advance(many)
        starts = [replace(start(claim), takes_slot=False) for claim in bench.claim(limit=many)]
        started = [answer.occurrence for answer in store.admit(starts, now=bench.now, lease=LEASE)]
        ends = [bench.settlement(one) for one in started[10:]]
        ends += [bench.settlement(one, phase=Phase.FAILED, reason=Reason.FAILED) for one in started[:10]]
        assert all(store.settle(ends))
        steps = []
        with store._connections.reading() as reader:
            reader.set_progress_handler(lambda steps=steps: steps.append(1), 10)
        assert len(store.search("acme", OccurrenceFilter(phases=FAILURES), 100).occurrences) == 10
        costs.append(len(steps))
        store.close()
    assert max(costs) < 1.5 * min(costs), costs


def test_a_list_reads_no_other_schedules_than_those_on_the_page(tmp_path):
    store = SqliteStore(tmp_path / "noonmark.db", HandClock())
    store.open()
    schedules = [factories.schedule(f"uid-{n}", created=NOW + n, labels={"n": f"{n % 50}"}) for n in range(500)]
    assert all(store.create([first_plan(one, lookahead=LOOKAHEAD) for one in schedules]))
    store._schedule_cache.forget()
    wanted = ScheduleFilter(labels={"n": "7"}, phases=frozenset({SchedulePhase.ACTIVE}), text="uid")
    assert [one.schedule.uid for one in store.schedules("acme", limit=2, wanted=wanted)] == ["uid-7", "uid-57"]
    assert store.count_schedules("acme", wanted) == 10
    assert len(store._schedule_cache._known) == 2
    store.close()


def _steps(connection, statement):
    try:
        return [step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
    except sqlite3.OperationalError:
        return []  # it is no statement of its own


def _walks(step):
    # The indexes that may be walked hold tenants with events to match, or what waits, and nothing else.
    is_work = step.endswith(tuple(f"USING INDEX {one}" for one in WORK))
    return step.startswith("SCAN") and not is_work and any(step.split()[1] == table for table in TABLES)


def test_a_fire_writes_little_to_the_journal(tmp_path):
    path, clock, ran = tmp_path / "noonmark.db", FakeClock(from_micros(NOW)), []
    with closing(Scheduler(f"sqlite:///{path}", clock=clock)) as scheduler:
        scheduler.schedule(lambda: ran.append(1), function_name="note", trigger=IntervalTrigger(1))
        driver = ManualDriver(scheduler)._driver
        journal, sizes = path.with_name(f"{path.name}-wal"), []
        for _ in range(16):
            clock.advance(1)
            for step in (driver.plan_once, driver.claim_once, driver.admit_once, driver.settle_once):
                run_inline(step())
            sizes.append(journal.stat().st_size)
    assert len(ran) == len(sizes)
    assert clock.micros() - NOW < checkpoint.CURRENT_WITHIN, "the journal begins anew"
    assert 10_000 < (sizes[-1] - sizes[0]) / (len(sizes) - 1) < 40_000
