"""Regression tests of what the simulation has found, as small as possible."""

from dataclasses import replace

from noonmark.core import edits
from noonmark.core.lifecycle import Phase
from noonmark.core.policies.limits import Concurrency
from noonmark.driver.driver import Driver
from noonmark.driver.store_executor import InlineExecutor
from noonmark.ports.runtime import Runtime
from noonmark.stores.memory import MemoryStore
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, hold, try_case
from noonmark.testing.factories import MINUTE
from noonmark.testing.manual import run_inline

PRINTER = Concurrency(key="printer")


def lose_a_delivery(bench):
    """A schedule whose event was being delivered when its node was lost; another node has taken it over."""
    schedule = bench.create_quiet("uid-1", concurrency=PRINTER)
    bench.add_event(schedule, "a")
    bench.start(bench.claim_one())
    bench.advance(LEASE)
    return schedule, bench.claim_one("node-b")


def pause(bench, made):
    assert bench.commit(edits.pause(bench.snapshot(made), now=bench.now))


def test_what_a_pause_takes_from_its_node_keeps_no_place_from_other_schedules():
    def found(bench):
        made, _ = lose_a_delivery(bench)
        pause(bench, made)
        bench.run(bench.create_quiet("uid-2", concurrency=PRINTER), "b")

    try_case(found, MemoryStore)


def test_what_is_given_back_during_a_pause_keeps_no_place_from_other_schedules():
    def found(bench):
        schedule = bench.create_quiet("uid-1", concurrency=PRINTER)
        bench.add_event(schedule, "a")
        bench.start(bench.claim_one())
        pause(bench, schedule)
        bench.advance(LEASE)
        bench.store.release([hold(bench.claim_one("node-b"))])
        bench.run(bench.create_quiet("uid-2", concurrency=PRINTER), "b")

    try_case(found, MemoryStore)


class Nothing:
    """A target without routes, and a clock that nobody asks."""

    def routes(self):
        return ()

    def boot(self):
        return 0

    def adopt(self, routes):
        return False

    def micros(self):
        return 0

    monotonic = micros


def test_an_orphan_whose_schedule_was_changed_meanwhile_is_given_back():
    def found(bench):
        schedule = bench.create_quiet()
        orphan = bench.add(schedule, "a")
        bench.advance(2 * MINUTE)

        class Interrupted(InlineExecutor):
            async def call(self, fn, *args, **kwargs):
                if fn.__name__ == "admit":
                    snapshot = bench.snapshot(schedule)
                    changed = replace(schedule.declaration, timeout=MINUTE)
                    assert bench.commit(edits.edit(snapshot, changed, now=bench.now, lookahead=LOOKAHEAD))
                return await super().call(fn, *args, **kwargs)

        runtime = Runtime(node="node-a", store=bench.store, clock=Nothing(), target=Nothing())
        assert run_inline(Driver(runtime, Interrupted()).reap_once()).orphans == 0
        assert bench.row(orphan).phase is Phase.PENDING

    try_case(found, MemoryStore)
