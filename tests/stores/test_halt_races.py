"""Two nodes start as fast as they can while everything is halted: after the halt is set, no start is committed."""

import multiprocessing

from noonmark.core.admission import Busy, Place
from noonmark.core.halt import Halt
from noonmark.core.ids import manual
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.planner import first_plan
from noonmark.core.triggers import EventTrigger
from noonmark.ports.records import Admitted
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, ROUTE, start

NODES, SCHEDULES, BATCH = 2, 60, 3
BEFORE, BESIDE = 3, 5
"""How many batches each node starts before the halt, and at most beside it; more are left."""
DEADLINE = 120
NOW = factories.NOW


def node(make_store, name, ready, halting, halted, answers):
    """Claim and start a few at a time, some before the halt, some beside it, and the rest after it."""
    store = make_store()
    store.open()
    started, late, refused = [], [], 0
    waits = {BEFORE: halting, BEFORE + BESIDE: halted}
    for number in range(SCHEDULES):
        if number in waits:
            ready.release()
            waits[number].wait(DEADLINE)
        claims = store.claim(name, [ROUTE], now=NOW, until=NOW, limit=BATCH, lease=LEASE)
        is_late = halted.is_set()  # before the call: whatever it starts is committed after the halt
        answered = store.admit([start(one) for one in claims], now=NOW, lease=LEASE)
        for claim, answer in zip(claims, answered, strict=True):
            if isinstance(answer, Admitted):
                (late if is_late else started).append(claim.occurrence.id)
            else:
                refused += isinstance(answer, Busy) and answer.place is Place.HALT
    store.close()
    answers.put((started, late, refused))


def test_after_a_halt_no_node_commits_a_start(make_store):
    context = multiprocessing.get_context("fork")
    store = make_store()
    store.open()
    schedules = [
        factories.schedule(f"uid-{one}", schedule_id=f"s{one}", trigger=EventTrigger("seen"), created=NOW)
        for one in range(SCHEDULES)
    ]
    assert all(store.create([first_plan(one, lookahead=LOOKAHEAD) for one in schedules]))
    assert all(store.add([factories.occurrence(one, manual("a"), nominal=NOW - SECOND) for one in schedules]))
    ready, halting, halted, answers = context.Semaphore(0), context.Event(), context.Event(), context.Queue()
    shared = (ready, halting, halted, answers)
    nodes = [context.Process(target=node, args=(make_store, f"node-{one}", *shared)) for one in range(NODES)]
    for one in nodes:
        one.start()
    assert all(ready.acquire(timeout=DEADLINE) for _ in nodes)
    halting.set()
    stopped = store.set_halt(Halt(halt_id="h", tenant="acme", at=NOW, by="ada"), most=1)
    running = {one.id for one in store.workload(now=NOW, limit=SCHEDULES).running.occurrences}
    halted.set()
    told = [answers.get(timeout=DEADLINE) for _ in nodes]
    for one in nodes:
        one.join(DEADLINE)
    started = {one for ids, _, _ in told for one in ids}
    assert [late for _, late, _ in told] == [[], []]
    assert started == running, "what is committed is what the halt saw, and asked to stop"
    assert len(running) == stopped
    assert sum(refused for _, _, refused in told) == SCHEDULES - stopped > 0
    asked = [store.occurrence(one).stop for one in started]
    assert len(asked) == stopped
    assert set(asked) == {"halted"}
    assert all(store.occurrence(one).phase is Phase.DISPATCHING for one in started)
    store.close()
