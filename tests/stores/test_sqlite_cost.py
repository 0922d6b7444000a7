"""What a SQLite store does costs as much as what is due, whatever is stored: no statement walks a table."""

from dataclasses import replace

import pytest

from noonmark.core import edits
from noonmark.core.admission import after_upstreams
from noonmark.core.events import Event
from noonmark.core.ids import manual
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.planner import first_plan, plan
from noonmark.core.policies.limits import Dependency
from noonmark.core.reactions import Reaction, match
from noonmark.core.reasons import Reason
from noonmark.core.triggers import EventTrigger
from noonmark.stores.sqlite import SqliteStore
from noonmark.stores.sqlite.driver import sqlite3
from noonmark.testing import factories
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE, Bench, hold, start
from noonmark.testing.factories import MINUTE
from tests.conformance.test_memory_model import done

TABLES = ("occurrences", "schedules", "schedule_states", "runs", "concurrency_keys", "dependencies")
TABLES += ("events", "event_streams", "event_listeners")


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
    claims = done(bench.claim())
    done(store.release([hold(claim) for claim in claims[:2]]))
    done(store.beat("node-a", [ROUTE], now=bench.now))
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
    [gone] = done(store.schedules("acme", limit=3, deleted=True))
    done(store.schedules("acme", after=gone.schedule.uid, limit=3, deleted=True))
    done(store.activities(["uid-1", "uid-2"]))
    done(store.occurrences("uid-1", 5))
    done(store.runs("uid-1", 5))
    done(store.routes("test"))
    done(store.next_time([ROUTE, "http"]))
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


def a_day_of_events(bench):
    """Fifty listen for one type, and fifty for another."""
    store = bench.store
    made = [factories.schedule(f"uid-{n}", trigger=EventTrigger(f"type-{n % 2}")) for n in range(100)]
    assert all(done(store.create([first_plan(one, lookahead=LOOKAHEAD) for one in made])))
    events = [Event(event_type=f"type-{n % 3}", emitted=0, event_id=f"e{n}") for n in range(30)]
    assert all(done(store.emit("acme", events)))
    while audiences := done(store.unmatched(20)):
        rows = [[match(one.event, each, now=bench.now) for each in one.listeners] for one in audiences]
        reactions = [Reaction(audience=one, occurrences=tuple(of)) for one, of in zip(audiences, rows, strict=True)]
        assert all(done(store.commit_reactions(reactions)))
    assert len(done(bench.claim(limit=2_000))) == 1_000
    assert len(done(store.events("acme", 5))) == 5
    done(store.next_time([ROUTE]))
    assert done(store.prune_events(before=bench.now + 2, keep=5, limit=10)) == 10
    assert done(store.prune_events(before=0, keep=5, limit=100)) == 15
    other = replace(made[0].declaration, trigger=EventTrigger("other"))
    snapshot = done(bench.snapshot(made[0]))
    assert done(bench.commit(edits.edit(snapshot, other, now=bench.now, lookahead=LOOKAHEAD)))


@pytest.mark.parametrize("work", [a_day_of_work, a_day_of_waiting, a_day_of_events])
def test_no_statement_walks_a_table(traced, work):
    bench, statements = traced
    work(bench)
    with bench.store._connections.bare() as writer:
        writer.set_trace_callback(None)
        walks = [(step, one) for one in dict.fromkeys(statements) for step in _steps(writer, one) if _walks(step)]
    assert not walks, walks


def _steps(connection, statement):
    try:
        return [step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
    except sqlite3.OperationalError:
        return []  # it is no statement of its own


def _walks(step):
    # The one index that may be walked holds tenants with events to match, and nothing else.
    is_work = step.endswith("USING INDEX event_streams_behind")
    return step.startswith("SCAN") and not is_work and any(step.split()[1] == table for table in TABLES)
