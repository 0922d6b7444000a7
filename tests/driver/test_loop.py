"""The loop on a real clock: it wakes, waits, recovers and stops. Tests wait for what happens, never for a while."""

import asyncio
import logging
import threading
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from noonmark.clocks import SystemClock
from noonmark.core.event import Event
from noonmark.core.ids import TRIGGER, manual
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import Phase
from noonmark.core.planner import first_plan
from noonmark.core.policies import overlap
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.triggers import EventTrigger, IntervalTrigger
from noonmark.driver import loop as loop_module
from noonmark.driver.loop import Loop
from noonmark.driver.node import Node
from noonmark.driver.wakeup import Wakeup
from noonmark.ports import events as driver_events
from noonmark.ports.runtime import Runtime, Timing
from noonmark.stores.memory import MemoryStore
from noonmark.testing import factories
from tests.driver.rig import ROUTE, HandTarget, Record, Wrapped

SOON = 30  # seconds that anything may take on a busy machine
HOUR = 3_600 * SECOND


async def turns(is_there):
    """Let the others on the loop have their turns until it is so."""
    async with asyncio.timeout(SOON):
        while not is_there():  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0)  # noqa: TID251 - no waiting


class SkewedClock(SystemClock):
    """The clock of a machine whose time of day is wrong."""

    def __init__(self, ahead):
        self._ahead = ahead

    def micros(self):
        return super().micros() + self._ahead


class FastClock(SystemClock):
    """The clock of a machine that gains a fifth."""

    def __init__(self):
        self._began = super().monotonic()

    def monotonic(self):
        passed = super().monotonic() - self._began
        return self._began + passed + passed // 5


class Heard(Record):
    """Lets a test wait for what it is told."""

    def __init__(self):
        super().__init__()
        self._news = asyncio.Event()

    def report(self, driver_events):
        super().report(driver_events)
        self._news.set()

    async def until(self, is_there):
        async with asyncio.timeout(SOON):
            while not is_there(self.told):
                self._news.clear()
                await self._news.wait()

    async def until_kind(self, kind, count=1):
        await self.until(lambda told: sum(isinstance(one, kind) for one in told) >= count)


class Blocking(Wrapped):
    """A store that is called in threads, two at once."""

    @property
    def traits(self):
        return replace(self.store.traits, blocks=True, max_concurrency=2)


class Distant(Blocking):
    """A store that reads its clock a while after it was asked."""

    def clock(self):
        threading.Event().wait(0.1)
        return self.store.clock()


def on_loop(story):
    """A plain function that lets the running loop play a story, and waits for its end in a thread of the store."""
    events = asyncio.get_running_loop()
    return lambda: asyncio.run_coroutine_threadsafe(story(), events).result(SOON)


class Place:
    """A loop with everything within reach."""

    def __init__(self, *, clock=None, store=None, node="node-a", **timing):
        self.system = SystemClock()
        self.store = store or Wrapped(MemoryStore(self.system.micros))
        self.target, self.sink = HandTarget(), Heard()
        self.runtime = Runtime(
            node=node,
            store=self.store,
            clock=clock or self.system,
            target=self.target,
            sink=self.sink,
            timing=Timing(**timing),
        )

    def create(self, uid="uid-1", **changes):
        quiet = {"trigger": EventTrigger("seen"), "overlap_policy": overlap.Allow(), "created": self.system.micros()}
        schedule = factories.schedule(uid, **quiet | changes)
        assert self.store.store.create([first_plan(schedule, lookahead=0)]) == [True]
        return schedule

    def add(self, of, key, after=0, origin=None):
        occurrence = factories.occurrence(of, origin or manual(key), nominal=self.system.micros() + after)
        assert self.store.store.add([occurrence]) == [True]
        return occurrence

    def row(self, one):
        return self.store.store.occurrence(one.id)

    @asynccontextmanager
    async def running(self, **options):
        self.loop = Loop(self.runtime, **options)
        ready = asyncio.Event()
        self.task = asyncio.create_task(self.loop.run(ready.set))
        try:
            await ready.wait()
            yield self.loop
        finally:
            self.loop.stop(0)
            await self.ended()

    async def ended(self):
        async with asyncio.timeout(SOON):
            return await self.task

    async def started(self, one):
        await self.sink.until(
            lambda told: one.id in [x.occurrence.id for x in told if isinstance(x, driver_events.Started)]
        )
        return next(given for given in self.target.given if given.occurrence.id == one.id)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(loop_module, "FIRST_RETRY", SECOND // 1_000)
    monkeypatch.setattr(loop_module, "LAST_RETRY", SECOND // 100)


def test_it_runs_what_is_due_and_writes_its_end():
    async def story():
        place = Place()
        occurrence = place.add(place.create(), "one")
        async with place.running():
            place.target.end(await place.started(occurrence))
            await place.sink.until_kind(driver_events.Settled)
        assert place.row(occurrence).phase is Phase.COMPLETED
        kinds = place.sink.kinds()
        assert kinds[0] == "NodeStarted"
        assert kinds[-1] == "NodeStopped"
        assert [kind for kind in kinds if kind in {"Claimed", "Started", "Settled"}] == [
            "Claimed",
            "Started",
            "Settled",
        ]

    asyncio.run(story())


def test_ends_that_nothing_waits_for_are_written_together(monkeypatch):
    monkeypatch.setattr(loop_module, "SETTLE_INTERVAL", HOUR)

    async def story():
        place = Place(store=Blocking(MemoryStore(SystemClock().micros)))
        schedule = place.create(trigger=IntervalTrigger(3_600))
        fires = [place.add(schedule, f"{n}", origin=TRIGGER, after=n) for n in range(4)]
        run = place.add(schedule, "by hand")
        async with place.running():
            first, *others = [await place.started(one) for one in (*fires, run)]
            place.target.end(first)
            await place.sink.until_kind(driver_events.Settled)
            for other in others[:-1]:
                place.target.end(other)
            assert place.store.calls["settle"] == 1
            place.target.end(others[-1])
            await place.sink.until_kind(driver_events.Settled, 5)
            assert place.store.calls["settle"] == 2

    asyncio.run(story())


def test_many_ends_are_written_at_once(monkeypatch):
    monkeypatch.setattr(loop_module, "SETTLE_INTERVAL", HOUR)
    monkeypatch.setattr(loop_module, "SETTLE_BATCH", 3)

    async def story():
        place = Place(store=Blocking(MemoryStore(SystemClock().micros)))
        schedule = place.create(trigger=IntervalTrigger(3_600))
        fires = [place.add(schedule, f"{n}", origin=TRIGGER, after=n) for n in range(6)]
        async with place.running() as loop:
            given = [await place.started(one) for one in fires]
            place.target.end(given[0])
            await place.sink.until_kind(driver_events.Settled)
            for one in given[1:4]:
                place.target.end(one)
            await place.sink.until_kind(driver_events.Settled, 4)
            place.target.end(given[4])
            loop.stop()
            place.target.end(given[5])
            await place.ended()
        assert all(place.row(one).phase is Phase.COMPLETED for one in fires)

    asyncio.run(story())


def test_a_full_batch_of_ends_is_written_beside_another():
    async def story():
        place = Place(store=Blocking(MemoryStore(SystemClock().micros)), batch=2)
        schedule = place.create()
        runs = [place.add(schedule, f"{n}") for n in range(5)]

        async def another_batch():
            for one in given[2:4]:
                place.target.end(one)
            await place.sink.until_kind(driver_events.Settled, 2)
            assert place.row(runs[0]).phase is Phase.DISPATCHING

        async with place.running():
            given = [await place.started(one) for one in runs]
            place.store.meanwhile("settle", on_loop(another_batch))
            for one in given[:2]:
                place.target.end(one)
            await place.sink.until_kind(driver_events.Settled, 4)
            place.target.end(given[4])
            await place.sink.until_kind(driver_events.Settled, 5)

    asyncio.run(story())


def test_what_a_full_batch_frees_starts_while_another_is_written(monkeypatch):
    monkeypatch.setattr(loop_module, "PACE", HOUR)
    monkeypatch.setattr(loop_module, "IDLE_PAUSE", HOUR)

    async def story():
        place = Place(store=Blocking(MemoryStore(SystemClock().micros)), batch=2, lease=HOUR)
        schedule, queue = place.create(), place.create("uid-2", overlap_policy=overlap.Queue())
        runs = [place.add(schedule, f"{n}") for n in range(2)]
        holder, waiting = place.add(queue, "first"), place.add(queue, "second")

        async def another_batch():
            for one in (given[1], held):
                place.target.end(one)
            await place.started(waiting)
            assert place.row(runs[0]).phase is Phase.DISPATCHING

        async with place.running():
            given = [await place.started(one) for one in runs]
            held = await place.started(holder)
            await turns(lambda: place.row(waiting).waiting_for is Reason.QUEUED)
            place.store.meanwhile("settle", on_loop(another_batch))
            place.target.end(given[0])
            await place.sink.until_kind(driver_events.Settled, 3)
            place.target.end(await place.started(waiting))
            await place.sink.until_kind(driver_events.Settled, 4)

    asyncio.run(story())


def test_ends_that_fill_no_batch_wait_for_the_write_before():
    async def story():
        place = Place(store=Blocking(MemoryStore(SystemClock().micros)), batch=3)
        schedule = place.create()
        runs = [place.add(schedule, f"{n}") for n in range(3)]

        async def two_more():
            for one in given[1:]:
                place.target.end(one)
                for _ in range(20):
                    await asyncio.sleep(0)  # noqa: TID251 - no waiting

        async with place.running():
            given = [await place.started(one) for one in runs]
            place.store.meanwhile("settle", on_loop(two_more))
            place.target.end(given[0])
            await place.sink.until_kind(driver_events.Settled, 3)
            assert place.store.calls["settle"] == 2

    asyncio.run(story())


def test_no_end_is_written_while_the_clock_is_in_doubt(monkeypatch):
    async def story():
        place = Place(store=Blocking(MemoryStore(SystemClock().micros)), batch=1)
        schedule = place.create()
        runs = [place.add(schedule, f"{n}") for n in range(3)]
        async with place.running():
            given = [await place.started(one) for one in runs]
            with monkeypatch.context() as doubt:
                doubt.setattr(Node, "is_in_doubt", True)
                for one in given:
                    place.target.end(one)
                for _ in range(20):  # a write of ends would overtake these calls
                    await place.loop.driver.node.executor.call(place.store.newest_time)
                assert place.store.calls["settle"] == 0
            await place.sink.until_kind(driver_events.Settled, 3)

    asyncio.run(story())


def test_an_event_runs_what_waits_for_it():
    async def story():
        place = Place(lookahead=0)
        schedule = place.create()
        async with place.running() as loop:
            for name in ("a", "b"):
                place.store.store.emit("acme", [Event(event_type="seen", emitted=0, event_id=name)])
                loop.wake()
                await place.sink.until(lambda told, of=f"event:{name}": of in begun(told))
        assert [one.origin for one in place.store.store.occurrences(schedule.uid)] == ["event:b", "event:a"]

    def begun(told):
        return [one.occurrence.origin for one in told if isinstance(one, driver_events.Started)]

    asyncio.run(story())


def test_it_wakes_for_something_new_that_is_due_earlier():
    async def story():
        place = Place()
        schedule = place.create()
        place.add(schedule, "far", HOUR)
        async with place.running() as loop:
            early = place.add(schedule, "early")
            loop.wake(early.due)
            await place.started(early)

    asyncio.run(story())


def test_what_comes_later_than_what_it_waits_for_does_not_wake_it():
    async def story():
        place = Place()
        now = place.system.micros()
        far = place.add(place.create(), "far", HOUR)
        async with place.running() as loop:
            await turns(lambda: loop._claim_at is not None)
            for due in (now + 2 * HOUR, far.due):
                loop.wake(due)
                assert not loop._claim._is_set
            loop.wake(now + HOUR // 2)
            assert loop._claim._is_set

    asyncio.run(story())


def test_what_comes_while_it_looks_is_not_overlooked():
    async def story():
        place = Place()
        schedule = place.create()
        rung = []
        async with place.running() as loop:

            def add():
                # The answer of the store is on its way, and does not know of this one.
                loop.wake(place.add(schedule, "new", HOUR).due)
                rung.append(loop._claim._is_set)

            place.store.afterwards("next_time", add)
            loop.wake()
            await turns(lambda: rung)
        assert rung == [True]

    asyncio.run(story())


def test_without_looking_it_begins_only_what_it_is_asked_to_fetch():
    async def story():
        place = Place()
        schedule = place.create()
        other, wanted = place.add(schedule, "other"), place.add(schedule, "wanted")
        async with place.running(claims=False) as loop:
            await loop.fetch(wanted.id)
            place.target.end(await place.started(wanted))
            await place.sink.until_kind(driver_events.Settled)
        assert place.row(wanted).phase is Phase.COMPLETED
        assert place.row(other).phase is Phase.PENDING

    asyncio.run(story())


def test_a_clock_that_is_an_hour_ahead_starts_nothing_early():
    async def story():
        place = Place(clock=SkewedClock(HOUR))
        occurrence = place.add(place.create(), "one", 3 * SECOND)
        delivered_at = []
        real = place.target.deliver

        def deliver(assignments):
            delivered_at.append(place.system.micros())
            real(assignments)

        place.target.deliver = deliver
        async with place.running():
            await place.started(occurrence)
        assert delivered_at[0] >= occurrence.due - place.runtime.timing.early

    asyncio.run(story())


def test_a_clock_that_runs_fast_starts_nothing_early_though_answers_are_too_slow_to_prove_it():
    async def story():
        place = Place(clock=FastClock())
        place.runtime = replace(place.runtime, store=Distant(place.store.store))
        rows = [place.add(place.create(f"uid-{n}"), f"{n}", n * SECOND // 4) for n in range(1, 6)]
        delivered, ahead = {}, []
        real = place.target.deliver

        def deliver(assignments):
            ahead.append(place.target.now() - place.system.micros())
            delivered.update({one.occurrence.id: place.system.micros() for one in assignments})
            real(assignments)

        place.target.deliver = deliver
        async with place.running():
            for row in rows:
                await place.started(row)
        assert max(ahead) <= 0
        early = place.runtime.timing.early
        assert [row.id for row in rows if delivered[row.id] < row.due - early] == []

    asyncio.run(story())


def test_stopping_waits_for_what_runs():
    async def story():
        place = Place()
        occurrence = place.add(place.create(), "one")
        async with place.running() as loop:
            assignment = await place.started(occurrence)
            loop.stop(None)
            late = place.add(place.create("uid-2"), "late")
            loop.wake()
            place.target.end(assignment)
            assert await place.ended() == 0
        assert place.row(occurrence).phase is Phase.COMPLETED
        assert place.row(late).phase is Phase.PENDING
        assert place.sink.told[-1] == driver_events.NodeStopped("node-a", 0)

    asyncio.run(story())


def test_a_run_that_ended_just_before_the_stop_is_written_when_its_report_comes():
    async def story():
        place = Place()
        occurrence = place.add(place.create(), "one")
        async with place.running() as loop:
            assignment = await place.started(occurrence)
            assignment.is_closed = True  # its end is about to be reported
            loop.stop(0)
            asyncio.get_running_loop().call_later(0.1, place.target.end, assignment)
            assert await place.ended() == 0
        assert place.row(occurrence).phase is Phase.COMPLETED

    asyncio.run(story())


@pytest.mark.usefixtures("impatient")
def test_stopping_does_not_wait_for_ever_for_a_report_that_never_comes():
    async def story():
        place = Place()
        occurrence = place.add(place.create(), "one")
        async with place.running() as loop:
            (await place.started(occurrence)).is_closed = True
            loop.stop(0)
            assert await place.ended() == 0
        assert place.row(occurrence).phase is Phase.DISPATCHING  # its lease will run out

    asyncio.run(story())


def test_nothing_is_fetched_any_more_once_it_stops():
    async def story():
        place = Place()
        schedule = place.create()
        occurrence, other = place.add(schedule, "one"), place.add(schedule, "other", HOUR)
        async with place.running(claims=False) as loop:
            await loop.fetch(occurrence.id)
            running = await place.started(occurrence)
            place.store.calls.clear()
            loop.stop(None)
            await loop.fetch(other.id)
            assert not place.store.calls["claim"]
            place.target.end(running)

    asyncio.run(story())


def test_what_is_just_being_fetched_when_it_stops_is_given_back():
    async def story():
        place = Place(store=Blocking(MemoryStore(SystemClock().micros)), lookahead=HOUR)
        occurrence = place.add(place.create(), "one", HOUR // 2)
        async with place.running(claims=False) as loop:

            async def stop():
                assert place.row(occurrence).phase is Phase.CLAIMED
                loop.stop(0)
                for _ in range(100):
                    await asyncio.sleep(0)  # noqa: TID251 - a turn for each of the others

            place.store.afterwards("claim", on_loop(stop))
            await loop.fetch(occurrence.id)
            await place.ended()
        assert place.row(occurrence).phase is Phase.PENDING

    asyncio.run(story())


def test_what_it_has_claimed_is_given_back_when_the_event_loop_ends_around_it():
    async def story():
        place = Place(lookahead=HOUR)
        occurrence = place.add(place.create(), "one", HOUR // 2)
        async with place.running():
            await place.sink.until_kind(driver_events.Claimed)
            place.task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await place.ended()
            place.task = asyncio.ensure_future(asyncio.sleep(0))  # noqa: TID251 - it has ended already
        assert place.row(occurrence).phase is Phase.PENDING

    asyncio.run(story())


def test_a_lease_is_renewed_so_early_that_one_attempt_may_fail(monkeypatch):
    class Watched(Wakeup):
        def __init__(self):
            super().__init__()
            self.pauses = []

        async def wait(self, pause):
            self.pauses.append(pause)
            await super().wait(pause)

    monkeypatch.setattr(loop_module, "Wakeup", Watched)

    async def story():
        place = Place()
        async with place.running() as loop:
            await turns(lambda: loop._renew.pauses)
            assert 2 * max(loop._renew.pauses) < place.runtime.timing.lease

    asyncio.run(story())


def test_what_has_not_ended_in_the_grace_period_is_handed_back(caplog):
    caplog.set_level(logging.INFO, "noonmark.driver")

    async def story():
        place = Place(lookahead=HOUR)
        schedule = place.create()
        occurrence, soon = place.add(schedule, "one"), place.add(schedule, "soon", HOUR // 2)
        async with place.running() as loop:
            assignment = await place.started(occurrence)
            await place.sink.until_kind(driver_events.Claimed, 2)
            loop.stop(SECOND // 20)
            assert await place.ended() == 1
        assert assignment.stop_reason is not None
        assert place.row(occurrence).phase is Phase.PENDING
        assert place.row(soon).phase is Phase.PENDING
        assert place.sink.told[-1] == driver_events.NodeStopped("node-a", 1)
        assert "stopping: waiting up to 0.05 s for 1 run to end" in caplog.messages

    asyncio.run(story())


@pytest.mark.parametrize("grace", [0, None])
@pytest.mark.usefixtures("impatient")
def test_stopping_ends_even_when_the_store_is_gone(grace):
    async def story():
        place = Place(lookahead=HOUR)
        schedule = place.create()
        occurrence = place.add(schedule, "one")
        place.add(schedule, "soon", HOUR // 2)
        async with place.running() as loop:
            assignment = await place.started(occurrence)
            await place.sink.until_kind(driver_events.Claimed, 2)
            place.store.is_down = True
            loop.stop(grace)
            place.target.end(assignment)
            await place.ended()
        assert place.row(occurrence).phase is Phase.DISPATCHING  # its lease will run out

    asyncio.run(story())


@pytest.mark.usefixtures("impatient")
def test_an_end_is_written_when_the_store_comes_back_before_the_last_run_has_ended():
    async def story():
        place = Place()
        schedule = place.create()
        first, second = place.add(schedule, "first"), place.add(schedule, "second")
        async with place.running() as loop:
            short, long = await place.started(first), await place.started(second)
            place.store.is_down = True
            loop.stop(None)
            place.target.end(short)
            failed = sum(isinstance(one, driver_events.StoreFailed) for one in place.sink.told)
            await place.sink.until_kind(driver_events.StoreFailed, failed + 30)
            place.store.is_down = False
            place.target.end(long)
            assert await place.ended() == 0
        assert place.row(first).phase is place.row(second).phase is Phase.COMPLETED

    asyncio.run(story())


def test_a_store_that_fails_is_asked_again_after_longer_and_longer_pauses():
    async def story():
        place = Place()
        occurrence = place.add(place.create(), "one")
        place.store.is_down = True

        def looks(told):
            return [x for x in told if isinstance(x, driver_events.StoreFailed) and x.step == "_claim_due"]

        async with place.running():
            await place.sink.until(lambda told: len(looks(told)) >= 4)
            pauses = [x.retry_in for x in looks(place.sink.told)[:4]]
            place.store.is_down = False
            await place.started(occurrence)
        assert pauses == [SECOND // 10, SECOND // 5, SECOND * 2 // 5, SECOND * 4 // 5]

    asyncio.run(story())


class Queue(HandTarget):
    """Begins nothing, and gives it all back when it is asked to."""

    def withdraw(self):
        given, self.given = self.given, []
        return given


@pytest.mark.usefixtures("impatient")
def test_what_has_not_begun_is_given_up_when_its_lease_cannot_be_renewed():
    async def story():
        place = Place(lease=SECOND)
        place.target = Queue()
        place.runtime = replace(place.runtime, target=place.target)
        occurrence = place.add(place.create(), "one")
        async with place.running():
            first = await place.started(occurrence)
            place.store.is_down = True
            await turns(lambda: not place.target.given)
            assert first.stop_reason is Reason.LEASE_LOST
            place.store.is_down = False
            await turns(lambda: place.target.given)
            assert place.target.given[0].occurrence.fence > first.occurrence.fence

    asyncio.run(story())


def test_leases_are_renewed_while_everybody_else_waits_for_the_store():
    async def story():
        may_go_on = threading.Event()
        store = Blocking(MemoryStore(SystemClock().micros))
        place = Place(store=store, lease=SECOND // 10)

        def hold():
            may_go_on.wait(SOON)

        for verb in ("next_time", "routes"):
            store.meanwhile(verb, hold)
        try:
            async with place.running():
                await turns(lambda: store.calls["next_time"] and store.calls["routes"])
                asked = store.calls["clock"]
                await turns(lambda: store.calls["clock"] > asked + 3)
                may_go_on.set()
        finally:
            may_go_on.set()

    asyncio.run(story())


def failed(told, duty):
    return [one for one in told if isinstance(one, driver_events.StoreFailed) and one.step == duty]


def test_the_first_success_lets_other_steps_retry_at_once(monkeypatch, caplog):
    async def story():
        place = Place()
        schedule = place.create()
        occurrence = place.add(schedule, "one")
        async with place.running() as loop:
            assignment = await place.started(occurrence)
            place.store.is_down = True
            with monkeypatch.context() as patient:
                patient.setattr(loop_module, "FIRST_RETRY", HOUR)
                patient.setattr(loop_module, "LONGEST_RETRY", HOUR)
                loop.wake()
                await place.sink.until(lambda told: failed(told, "_claim_due"))
            assert "claim_due failed; retrying in " in caplog.messages[-1]
            assert "_claim_due" not in caplog.text
            place.target.end(assignment)
            await place.sink.until(lambda told: failed(told, "settle_once"))
            second = place.add(schedule, "second")
            place.store.is_down = False  # whoever settles finds out soon
            await place.started(second)

    asyncio.run(story())


def test_a_store_that_is_down_is_not_asked_more_often_because_there_is_more_to_do(monkeypatch):
    monkeypatch.setattr(loop_module, "FIRST_RETRY", HOUR)
    monkeypatch.setattr(loop_module, "LONGEST_RETRY", HOUR)
    duties = ("_claim_due", "_renew_leases")

    async def story():
        place = Place()
        occurrence = place.add(place.create(), "one")
        place.store.is_down = True
        async with place.running() as loop:
            await place.sink.until(lambda told: all(failed(told, duty) for duty in duties))
            for _ in range(20):
                loop.wake()
                loop.check_stop_requests()
                for _ in range(10):
                    await asyncio.sleep(0)  # noqa: TID251 - no waiting: everybody has a turn
            assert [len(failed(place.sink.told, duty)) for duty in duties] == [1, 1]
            place.store.is_down = False
        assert place.row(occurrence).phase is Phase.PENDING  # and to stop, it waits for none of them

    asyncio.run(story())


def test_an_end_that_could_not_be_written_is_written_by_itself_later():
    async def story():
        place = Place()
        occurrence = place.add(place.create(), "one")
        async with place.running():
            assignment = await place.started(occurrence)
            place.store.fail("settle", times=2)
            place.target.end(assignment)
            await place.sink.until_kind(driver_events.Settled)
        assert place.row(occurrence).phase is Phase.COMPLETED

    asyncio.run(story())


def test_it_asks_almost_nothing_while_there_is_nothing_to_do():
    async def story():
        place = Place()
        place.add(place.create(), "far", HOUR)
        events = asyncio.get_running_loop()
        async with place.running() as loop:
            await turns(lambda: loop._claim_at is not None and place.store.calls["orphans"])
            began, before = events.time(), place.store.calls.total()
            looks = place.store.calls["next_time"]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(4):
                    await asyncio.Event().wait()  # the idle stretch itself
            a_round = 12  # of maintenance: each kind of record is pruned by a call of its own
            assert place.store.calls.total() - before <= events.time() - began + a_round
            assert place.store.calls["next_time"] == looks

    asyncio.run(story())


def test_it_looks_for_what_is_to_be_planned_when_it_is_time_for_that():
    async def story():
        place = Place(lookahead=HOUR)
        now = place.system.micros()
        place.create(trigger=IntervalTrigger(1_800, start_at=from_micros(now + HOUR // 2)))
        lease = {"now": now, "until": now + HOUR, "limit": 1, "lease": 2 * HOUR}
        assert place.store.store.claim("node-b", [ROUTE], **lease)
        async with place.running() as loop:
            await turns(lambda: loop._claim_at is not None)
            assert loop._claim_at > now + HOUR // 4
            assert not place.store.calls.keys() & {"unmatched", "plannable", "claim"}

    asyncio.run(story())


def test_a_node_that_was_outrun_looks_once_more_and_has_nothing_to_reap():
    async def story():
        place = Place()
        schedule, calls = place.create(), place.store.calls
        place.add(schedule, "far", HOUR)
        async with place.running() as loop:
            await turns(lambda: loop._claim_at is not None and calls["orphans"])
            reaps, looks = calls["overdue"], calls["next_time"]
            occurrence = place.add(schedule, "one")
            now = occurrence.due
            place.store.meanwhile(
                "claim",
                lambda: place.store.store.claim("node-b", [ROUTE], now=now, until=now, limit=1, lease=HOUR // 2),
            )
            loop.wake()
            await turns(lambda: calls["claim"] and loop._claim_at is not None)
            assert place.row(occurrence).node == "node-b"
            assert (calls["overdue"], calls["next_time"]) == (reaps, looks + 2)
            # It need not look again before that lease ends.
            assert loop._claim_at > now + HOUR // 4

    asyncio.run(story())


def test_history_is_cut_down_to_size_however_much_there_is():
    async def story():
        place = Place(batch=2, keep_count=1)
        schedule = place.create()
        ended = [
            factories.occurrence(schedule, manual(str(n)), nominal=n, phase=Phase.SKIPPED, reason="overlap")
            for n in range(1, 8)
        ]
        place.store.store.add(ended)
        async with place.running():
            pruned = lambda told: sum(one.count for one in told if isinstance(one, driver_events.Pruned))  # noqa: E731
            await place.sink.until(lambda told: pruned(told) == 6)
        assert len(place.store.store.occurrences(schedule.uid)) == 1

    asyncio.run(story())


class Shared(Wrapped):
    """A store that others write to."""

    has_changed = False

    @property
    def traits(self):
        return replace(self.store.traits, watch_interval=SECOND // 100)

    def changed_by_others(self):
        has_changed, self.has_changed = self.has_changed, False
        return has_changed


def test_what_another_process_has_written_is_noticed():
    async def story():
        place = Place(store=Shared(MemoryStore(SystemClock().micros)))
        schedule = place.create()
        async with place.running():
            occurrence = place.add(schedule, "one")
            place.store.has_changed = True
            await place.started(occurrence)

    asyncio.run(story())


def test_a_function_that_another_process_has_named_is_adopted_at_once(monkeypatch):
    monkeypatch.setattr(loop_module, "REAP_INTERVAL", HOUR)

    async def story():
        place = Place(store=Shared(MemoryStore(SystemClock().micros)), lease=HOUR)
        place.target.offered, place.target.can_import = ["function:other"], {ROUTE}
        async with place.running():
            await turns(lambda: place.store.calls["orphans"])  # it has reaped, and does so in an hour again
            trusted = replace(factories.schedule(trigger=EventTrigger("seen")), source="embedded")
            place.store.store.create([first_plan(trusted, lookahead=0)])
            occurrence = place.add(trusted, "one")
            place.store.has_changed = True
            await place.started(occurrence)
            assert place.store.calls["orphans"] == 1
            [node] = place.store.store.nodes()
            assert node.routes == tuple(place.target.routes())

    asyncio.run(story())


def test_a_function_that_is_registered_later_is_reported_at_once(monkeypatch):
    monkeypatch.setattr(loop_module, "REAP_INTERVAL", HOUR)

    async def story():
        place = Place(lease=HOUR)
        place.target.offered = ["function:first"]
        async with place.running() as loop:
            await turns(lambda: place.store.calls["beat"])
            place.target.offered = ["function:first", "function:second"]
            loop.wake()
            await turns(lambda: place.store.store.nodes()[0].routes == ("function:first", "function:second"))
            loop.wake()
            await turns(lambda: place.store.calls["next_time"] > 2)
            assert place.store.calls["beat"] == 2

    asyncio.run(story())


def test_a_node_that_can_take_nothing_more_does_not_ask_for_it_all_the_while():
    async def story():
        place = Place(capacity=1)
        schedule = place.create()
        occurrence = place.add(schedule, "one")
        async with place.running():
            await place.started(occurrence)
            place.add(schedule, "too much")
            place.loop.wake()
            before = place.store.calls["next_time"]
            await turns(lambda: place.store.calls["next_time"] > before)
            for _ in range(1_000):
                await asyncio.sleep(0)  # noqa: TID251 - a turn for each of the others
            assert place.store.calls["next_time"] - before < 100

    asyncio.run(story())


def test_what_was_taken_over_may_end_after_the_loop_has():
    async def story():
        place = Place()
        occurrence = place.add(place.create(), "one")
        async with place.running() as loop:
            assignment = await place.started(occurrence)
            loop.driver.node.lose(occurrence.id)
            loop.stop(None)
            assert await place.ended() == 0
        return place, assignment

    place, assignment = asyncio.run(story())
    place.target.end(assignment, Outcome.COMPLETED)  # as a thread would, with nobody left to hear it
