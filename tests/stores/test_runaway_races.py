"""Two nodes start one schedule as fast as they can: together they start it no more often than it may in an hour."""

import multiprocessing
from dataclasses import replace

from noonmark.core.admission import Busy, Place, refused
from noonmark.core.ids import manual
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.planner import first_plan
from noonmark.core.policies.runaway import RunawayPolicy
from noonmark.core.triggers import EventTrigger
from noonmark.ports.records import Admitted
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE, start

NODES, OCCURRENCES, BATCH, MOST = 2, 60, 3, 25
DEADLINE = 120
NOW = factories.NOW


def node(make_store, name, barrier, answers):
    """Claim and start a few at a time; what the guard stops is skipped."""
    store = make_store()
    store.open()
    barrier.wait(DEADLINE)
    started = 0
    while claims := store.claim(name, [ROUTE], now=NOW, until=NOW, limit=BATCH, lease=LEASE):
        # They may overlap: only the guard is in the way.
        starts = [replace(start(one), takes_slot=False) for one in claims]
        answered = store.admit(starts, now=NOW, lease=LEASE)
        started += sum(isinstance(one, Admitted) for one in answered)
        for claim, answer in zip(claims, answered, strict=True):
            if isinstance(answer, Busy):
                assert answer.place is Place.RUNAWAY
                store.admit([refused(claim, answer)], now=NOW, lease=LEASE)
    store.close()
    answers.put(started)


def test_two_nodes_count_together(make_store):
    context = multiprocessing.get_context("fork")
    store = make_store()
    store.open()
    policy = RunawayPolicy(max_fires_per_hour=MOST)
    listener = factories.schedule("listener", schedule_id="l", trigger=EventTrigger("schedule.runaway"), created=NOW)
    schedule = factories.schedule(trigger=EventTrigger("seen"), created=NOW, runaway=policy)
    assert all(store.create([first_plan(one, lookahead=LOOKAHEAD) for one in (listener, schedule)]))
    keys = [manual(f"k{one}") for one in range(OCCURRENCES)]
    assert all(store.add([factories.occurrence(schedule, one, nominal=NOW - SECOND) for one in keys]))
    barrier, answers = context.Barrier(NODES), context.Queue()
    nodes = [context.Process(target=node, args=(make_store, f"n{one}", barrier, answers)) for one in range(NODES)]
    for one in nodes:
        one.start()
    started = [answers.get(timeout=DEADLINE) for _ in nodes]
    for one in nodes:
        one.join(DEADLINE)
    assert sum(started) == MOST
    phases = [one.phase for one in store.occurrences(schedule.uid, OCCURRENCES)]
    assert (phases.count(Phase.DISPATCHING), phases.count(Phase.SKIPPED)) == (MOST, OCCURRENCES - MOST)
    assert store.find_uid(schedule.uid).schedule.phase is SchedulePhase.PAUSED
    assert len(store.events("acme", 9, event_type="schedule.runaway")) == 1
    store.close()
