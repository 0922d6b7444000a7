"""What the simulation has found, each as small as it gets."""

from dataclasses import replace

from noonmark.core import edits
from noonmark.core.lifecycle import Phase
from noonmark.core.policies.limits import Concurrency
from noonmark.driver.driver import Driver
from noonmark.ports.runtime import Runtime
from noonmark.stores.memory import MemoryStore
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD, hold, try_case
from noonmark.testing.factories import MINUTE

PRINTER = Concurrency(key="printer")


async def lose_a_delivery(bench):
    """A schedule whose event was being delivered when its node was lost; another node has taken it over."""
    made = await bench.create_quiet("uid-1", concurrency=PRINTER)
    await bench.add_event(made, "a")
    await bench.start(await bench.claim_one())
    bench.advance(LEASE)
    return made, await bench.claim_one("node-b")


async def pause(bench, made):
    assert await bench.commit(edits.pause(await bench.snapshot(made), now=bench.now))


def test_what_a_pause_takes_from_its_node_keeps_no_place_from_other_schedules():
    async def found(bench):
        made, _ = await lose_a_delivery(bench)
        await pause(bench, made)
        await bench.run(await bench.create_quiet("uid-2", concurrency=PRINTER), "b")

    try_case(found, MemoryStore)


def test_what_is_given_back_during_a_pause_keeps_no_place_from_other_schedules():
    async def found(bench):
        made = await bench.create_quiet("uid-1", concurrency=PRINTER)
        await bench.add_event(made, "a")
        await bench.start(await bench.claim_one())
        await pause(bench, made)
        bench.advance(LEASE)
        await bench.store.release([hold(await bench.claim_one("node-b"))])
        await bench.run(await bench.create_quiet("uid-2", concurrency=PRINTER), "b")

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
    async def found(bench):
        made = await bench.create_quiet()
        orphan = await bench.add(made, "a")
        bench.advance(2 * MINUTE)

        async def ask(call, **_):
            if call.__name__ == "admit":
                snapshot = await bench.snapshot(made)
                changed = replace(made.declaration, timeout=MINUTE)
                assert await bench.commit(edits.edit(snapshot, changed, now=bench.now, lookahead=LOOKAHEAD))
            return await call

        runtime = Runtime(node="node-a", store=bench.store, clock=Nothing(), target=Nothing())
        assert (await Driver(runtime, ask).reap_once()).orphans == 0
        assert (await bench.row(orphan)).phase is Phase.PENDING

    try_case(found, MemoryStore)
