"""A loop that sleeps is woken by whatever gives it something to do. Here it would otherwise sleep for an hour."""

import asyncio
from dataclasses import replace

import pytest

from noonmark.clocks import SystemClock
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import Phase
from noonmark.core.planner import first_plan
from noonmark.core.policies import misfire, overlap
from noonmark.core.policies.limits import Dependency
from noonmark.core.reasons import Reason
from noonmark.core.triggers import EventTrigger, IntervalTrigger
from noonmark.driver import loop as loop_module
from noonmark.driver.wakeup import Wakeup
from noonmark.ports import events as driver_events
from noonmark.stores.memory import MemoryStore
from noonmark.testing import factories
from tests.driver.rig import ROUTE, Wrapped
from tests.driver.test_loop import HOUR, SOON, Blocking, Place, Shared, on_loop, turns

MINUTE = 60 * SECOND


class Sleepy(Place):
    """A node whose leases are long, and that knows of something in an hour: that is when it looks by itself."""

    def __init__(self, **options):
        super().__init__(**{"lease": 4 * HOUR} | options)
        self.add(self.create("far"), "far", HOUR)

    @property
    def sleeps(self):
        """Whether it has looked, and is about to sleep until long after this test."""
        at, claim = self.loop._claim_at, self.loop._claim
        return at is not None and at > self.system.micros() + MINUTE and not claim._is_set and claim._timer is None

    async def asleep(self):
        await turns(lambda: self.sleeps)

    def follow(self, upstream, uid="follower"):
        """A schedule without a trigger, that runs after another one."""
        after = Dependency(schedule_id=upstream.schedule_id, require_success=False)
        return self.create(uid, trigger=None, depends_on=(after,))

    async def planned(self, made):
        plans = lambda told: [one.plan for one in told if isinstance(one, driver_events.Planned)]  # noqa: E731
        await self.sink.until(lambda told: made.uid in [plan.snapshot.schedule.uid for plan in plans(told)])

    async def began(self, made):
        began = lambda told: [one.occurrence.uid for one in told if isinstance(one, driver_events.Started)]  # noqa: E731
        await self.sink.until(lambda told: made.uid in began(told))


def after_one_more(place, act):
    """Let something happen just before the second call of `admit` from now takes effect."""

    def first():
        place.store.meanwhile("admit", act)

    place.store.meanwhile("admit", first)


def test_a_ring_that_was_interrupted_does_not_silence_the_next_one():
    class Interrupted:
        def call_soon_threadsafe(self, *_):
            raise KeyboardInterrupt

    async def story():
        wakeup = Wakeup()
        events, wakeup._loop = wakeup._loop, Interrupted()
        with pytest.raises(KeyboardInterrupt):
            wakeup.set()
        wakeup._loop = events
        wakeup.set()
        async with asyncio.timeout(SOON):
            await wakeup.wait(None)

    asyncio.run(story())


def test_something_that_is_due_just_before_what_it_sleeps_for_wakes_it():
    async def story():
        place = Place()
        far = place.add(place.create(), "far", HOUR)
        async with place.running() as loop:
            await turns(lambda: loop._claim_at is not None)
            loop.wake(far.due + SECOND)
            assert not loop._claim._is_set
            loop.wake(far.due - SECOND)
            assert loop._claim._is_set

    asyncio.run(story())


def test_a_clock_that_is_set_forward_brings_what_is_due_by_it_with_the_next_renewal():
    async def story():
        ahead = 0
        clock = SystemClock()
        place = Sleepy(store=Wrapped(MemoryStore(lambda: clock.micros() + ahead)))
        async with place.running() as loop:
            await place.asleep()
            ahead = HOUR
            loop.check_stop_requests()
            await place.sink.until_kind(driver_events.Started)

    asyncio.run(story())


def test_a_clock_that_is_set_forward_by_less_wakes_no_node():
    async def story():
        ahead = 0
        clock = SystemClock()
        place = Sleepy(store=Wrapped(MemoryStore(lambda: clock.micros() + ahead)))
        async with place.running() as loop:
            await place.asleep()
            ahead = HOUR // 2
            looks, renewals = place.store.calls["next_time"], place.store.calls["clock"]
            loop.check_stop_requests()
            await turns(lambda: place.store.calls["clock"] > renewals)
            await turns(lambda: loop._node.now > clock.micros() + HOUR // 4)
            assert place.sleeps
            assert place.store.calls["next_time"] == looks

    asyncio.run(story())


def test_what_was_too_late_when_it_was_claimed_is_planned_at_once():
    async def story():
        place = Sleepy(store=Blocking(MemoryStore(SystemClock().micros)))
        then = place.system.micros() - 8 * HOUR  # longer than a lease, which is no reason to be late
        schedule = place.create(
            trigger=IntervalTrigger(86_400, start_at=from_micros(then)),
            misfire_policy=misfire.Skip(grace=SECOND),
            created=then - SECOND,
        )
        [lost] = place.store.store.claim("lost", [ROUTE], now=then, until=then, limit=1, lease=1)
        place.store.meanwhile("admit", on_loop(place.asleep))
        async with place.running():

            def gaps(told):
                return [row for one in told if isinstance(one, driver_events.Planned) for row in one.plan.closed]

            await place.sink.until(gaps)
        assert place.row(lost.occurrence).phase is Phase.MISFIRED
        assert [row.id for row in gaps(place.sink.told)] == [lost.occurrence.id]
        assert schedule.uid == lost.occurrence.uid

    asyncio.run(story())


def test_what_came_to_wait_when_its_place_had_just_become_free_is_claimed_at_once():
    async def story():
        place = Sleepy(store=Blocking(MemoryStore(SystemClock().micros)))
        schedule = place.create(overlap_policy=overlap.Queue())
        first = place.add(schedule, "first")
        async with place.running() as loop:
            running = await place.started(first)

            async def make_room():
                place.target.end(running)
                await place.sink.until_kind(driver_events.Settled)
                await place.asleep()

            after_one_more(place, on_loop(make_room))
            second = place.add(schedule, "second")
            loop.wake()
            await place.started(second)

    asyncio.run(story())


def test_what_follows_an_occurrence_that_ended_without_a_run_is_planned_at_once():
    async def story():
        place = Sleepy(store=Blocking(MemoryStore(SystemClock().micros)))
        schedule = place.create(overlap_policy=overlap.Skip())
        first = place.add(schedule, "first")
        async with place.running() as loop:
            await place.started(first)
            follower = place.follow(schedule)
            loop.wake()
            await place.asleep()
            place.sink.take()
            after_one_more(place, on_loop(place.asleep))
            place.add(schedule, "second")
            loop.wake()
            await place.planned(follower)

    asyncio.run(story())


def test_what_follows_a_run_begins_when_that_has_ended():
    async def story():
        place = Sleepy()
        schedule = place.create(overlap_policy=overlap.Skip())
        follower = place.follow(schedule)
        occurrence = place.add(schedule, "one")
        async with place.running():
            running = await place.started(occurrence)
            await place.asleep()
            place.target.end(running)
            await place.began(follower)

    asyncio.run(story())


def test_a_function_that_can_be_imported_at_last_is_served_at_once(monkeypatch):
    monkeypatch.setattr(loop_module, "REAP_INTERVAL", SECOND // 100)

    async def story():
        place = Sleepy()
        trusted = replace(factories.schedule(trigger=EventTrigger("seen")), source="embedded")
        place.store.store.create([first_plan(trusted, lookahead=0)])
        occurrence = place.add(trusted, "one")
        place.target.offered = ["function:other"]
        async with place.running():
            await turns(lambda: place.store.calls["beat"] > 1)  # it has tried
            place.target.can_import = {ROUTE}
            await place.started(occurrence)

    asyncio.run(story())


def test_what_has_overstayed_its_deadline_is_ended_without_waiting_for_the_next_reaping(monkeypatch):
    monkeypatch.setattr(loop_module, "REAP_INTERVAL", HOUR)

    async def story():
        place = Sleepy()
        schedule = place.create(overlap_policy=overlap.CancelRunning(cancel_grace=SECOND // 10))
        first = place.add(schedule, "first")
        async with place.running() as loop:
            await place.started(first)
            await turns(lambda: place.store.calls["orphans"])
            second = place.add(schedule, "second")
            loop.wake()
            await place.started(second)
        ended = place.row(first)
        assert (ended.phase, ended.reason) == (Phase.CANCELLED, Reason.REPLACED)

    asyncio.run(story())


def test_a_run_that_another_process_asks_to_stop_hears_of_it_before_its_lease_is_renewed():
    async def story():
        place = Sleepy(store=Shared(MemoryStore(SystemClock().micros)))
        occurrence = place.add(place.create(), "one")
        async with place.running():
            running = await place.started(occurrence)
            await turns(lambda: place.store.calls["clock"])  # leases are renewed in an hour again
            assert place.store.store.request_stop(occurrence.id)
            place.store.has_changed = True
            await turns(lambda: running.stop_reason is Reason.CANCELLED)

    asyncio.run(story())
