"""The loop: it calls the duties of a driver in time, wakes them when something has happened, and stops them.

Each duty has a task of its own, so that one decides while another waits for the store. None of them polls: looking for
work waits for the time that the store names, or for somebody to say that there is more; the others wait for their time.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from noonmark.core.instants import SECOND
from noonmark.core.settlement import Underway
from noonmark.driver import retries
from noonmark.driver.driver import Driver
from noonmark.driver.retries import Retries
from noonmark.driver.steps.settle import LAST_CALL, until_ended
from noonmark.driver.store_executor import StoreExecutor
from noonmark.driver.wakeup import Wakeup
from noonmark.ports.events import NodeStarted, NodeStopped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noonmark.core.instants import Micros
    from noonmark.core.settlement import Accepted, Delivered
    from noonmark.ports.runtime import Runtime
    from noonmark.ports.target import Assignment

    T = TypeVar("T")

logger = logging.getLogger("noonmark.driver")

LAST_CHANCES = 10
"""So often, in the end, it waits for the report of a run that has ended."""
TELL_EVERY: Micros = SECOND
REAP_EVERY: Micros = 10 * SECOND
FIRST_COMPARISON: Micros = SECOND // 8
PACE: Micros = SECOND // 50
"""Between two looks for work, unless the first found more than it could take: many small transactions make one."""
DOUBTFUL: Micros = SECOND
"""While the store's time is in doubt, it is read so often."""
FRUITLESS: Micros = SECOND // 4
"""After a look that found nothing to do although there was something: another node is about to do it."""


class Loop:
    """Runs a driver on the running event loop, until it is stopped."""

    def __init__(self, runtime: Runtime, *, looks: bool = True) -> None:
        """Made on the event loop that is to run it. With `looks=False` it begins only what it is asked to fetch."""
        self._looks = looks
        self._executor = self._lease_executor = StoreExecutor(runtime.store)
        if runtime.store.traits.lines > 1:
            self._lease_executor = StoreExecutor(runtime.store, max_threads=1)
        self.driver = Driver(runtime, self._executor, self._lease_executor)
        self._runtime, self._node = runtime, self.driver.node
        self._alarms: list[Wakeup] = []
        self._retries = Retries(self._node)
        self._look, self._start, self._settle = self._wakeup(), self._wakeup(), self._wakeup()
        self._stop, self._drain, self._renew = self._wakeup(), self._wakeup(), self._wakeup()
        self._prune, self._tell = self._wakeup(), self._wakeup()
        self._is_stopping = self._is_drained = False
        self._is_leaving = self._has_successor = False
        self._fetches = 0
        self._grace: Micros | None = None
        self._named: Micros = 0
        """When it was first told of a grace period."""
        self._look_at: Micros | None = None

    def wake(self, at: Micros | None = None) -> None:
        """There is something new to be done, at that time or at once. From any thread."""
        looked_for = self._look_at
        if at is None or looked_for is None or at < looked_for + self._node.timing.lookahead:
            self._look.set()
        else:  # nothing to do before then, but perhaps somebody listens for what was done
            self._look.remind(FRUITLESS)

    def attend(self) -> None:
        """Look now whether anything that runs here is asked to stop, and not when the leases are next renewed."""
        self._renew.set()

    @property
    def is_stopping(self) -> bool:
        """Whether it begins nothing more."""
        return self._is_stopping

    async def fetch(self, occurrence_id: str) -> None:
        """Claim one occurrence now, if it can be claimed."""
        if self._is_stopping:
            return
        self._fetches += 1
        try:
            report = await self.driver.claim_once(only=occurrence_id)
        finally:
            self._fetches -= 1
        if report.claimed:
            self._start.set()

    def stop(self, grace: Micros | None = None) -> None:
        """Begin nothing more, wait for what runs, then hand back the rest. From any thread; `run` ends when it is done.

        Without a grace period, it waits until everything has ended, or until another call names one.
        """
        if self._grace is None:
            self._named = self._node.store_clock.monotonic()
        self._grace = grace
        self._is_stopping = True
        self._ring_all()

    def pass_on(self) -> bool:
        """Another loop goes on under the name of this node: at its end, this one does not tell that the node has left.

        False when it may be telling that already: then the other had better wait for its end. From any thread.
        """
        self._has_successor = True
        return not self._is_leaving

    async def run(self, started: Callable[[], None] | None = None) -> int:
        """Do every duty in time until somebody calls `stop`; says how much was handed back."""
        node, timing = self._node, self._node.timing
        self._runtime.target.open(self._report, node.store_clock.now)
        # Two of them, so that one decides while what the other has decided is being written.
        beginning = [asyncio.create_task(self._starting()) for _ in range(2)]
        leading = []
        if self._looks:
            beginning.append(asyncio.create_task(self._looking()))
            leading = [self._every(timing.lease // 3, self._lead, self._wakeup())]
        watch_interval, watch = node.store.traits.watch_interval, self._wakeup()
        stop_listening = node.store.listen(watch.set)
        keeping = [
            asyncio.create_task(duty)
            for duty in (
                self._settling(),
                self._telling(),
                self._every(timing.lease // 3, self._renew_leases, self._renew),
                self._compare_clocks(self._wakeup()),
                self._letting_go(self._wakeup()),
                self._every(min(REAP_EVERY, 2 * timing.lease // 3), self._reap, self._wakeup()),
                *leading,
                self._every(timing.prune_every, self._prune_all, self._prune),
                *([] if watch_interval is None else [self._every(watch_interval, self._watch, watch)]),
            )
        ]
        node.tell([NodeStarted(node.id)])
        if started is not None:
            started()
        try:
            while not self._is_stopping:
                await self._stop.wait(None)
            await asyncio.gather(*beginning)
            handed_back = await self._wind_up()
            await asyncio.gather(*keeping)
            self._is_leaving = True
            if not self._has_successor:
                await self._try(self.driver.leave)
        except asyncio.CancelledError:
            await self._hand_over([*beginning, *keeping])
            raise
        finally:
            for task in (*beginning, *keeping):
                task.cancel()
            stop_listening()
            self._runtime.target.close()
            self._executor.close()
            self._lease_executor.close()
        node.tell([NodeStopped(node.id, handed_back)])
        return handed_back

    async def _wind_up(self) -> int:
        """Give claims back, wait for what runs, for as long as the latest stop says, then give that up as well."""
        node = self._node
        while self._fetches:
            await self._drain.wait(retries.FIRST_RETRY)
        await self._try(self.driver.release)
        handed_back = self.driver.withdraw()
        self._settle.set()
        began = node.store_clock.monotonic()
        await until_ended(
            node, self._drain, lambda: None if self._grace is None else max(began, self._named) + self._grace
        )
        handed_back += self.driver.hand_back(waits=True)
        self._settle.set()
        ends = node.store_clock.monotonic() + LAST_CALL
        await until_ended(node, self._drain, lambda: ends)
        self.driver.hand_back()
        self._is_drained = True
        self._ring_all()
        return handed_back

    async def _hand_over(self, duties: list[asyncio.Task[None]]) -> None:
        """The event loop ends around it: give back what it holds, so that nobody has to wait for its leases."""
        self._is_stopping = self._is_drained = True
        for task in duties:
            task.cancel()
        await asyncio.wait(duties)  # what they are being given is held, too
        while self._fetches:
            await self._drain.wait(retries.FIRST_RETRY)
        self.driver.withdraw()
        self.driver.hand_back()
        try:
            await self.driver.release()
            while self._node.finished:
                await self.driver.settle_once()
            await self.driver.leave()
        except Exception:
            logger.exception(
                "what this node held could not be handed back; others take it when its leases have run out"
            )

    async def _looking(self) -> None:
        """Match, plan and claim, whenever there is something to match, to plan or to claim."""
        while not self._is_stopping:
            self._look_at = None
            pause = await self._try(self._look_once)
            self._look_at = None if pause is None else self._node.now + pause
            await self._look.wait(pause)

    async def _look_once(self) -> Micros | None:
        """How long until the next look; None when only somebody else can bring something to do."""
        node = self._node
        if not await node.trusts_time():
            await node.read_clock()
            if node.is_in_doubt:
                return DOUBTFUL
        time: Micros | None = await node.executor.call(node.store.next_time, self._runtime.target.routes())
        if time is None:
            return None
        if (pause := time - node.timing.lookahead - node.now) > 0:
            return pause
        matched = await self.driver.match_once()
        planned = await self.driver.plan_once()
        claimed = await self.driver.claim_once()
        if claimed.claimed:
            self._start.set()
        if matched.more or planned.more or claimed.more:
            return 0
        if matched.matched or planned.planned or claimed.claimed:
            return PACE
        if time <= node.now:
            await self._reap()
        return max(FRUITLESS, time - node.now)

    async def _starting(self) -> None:
        """Commit starts shortly before they are due, several at a time."""
        node = self._node
        while not self._is_stopping:
            decision = node.next_decision
            pause = None if decision is None else decision + node.timing.early // 4 - node.now
            if pause is None or pause > 0 or node.is_in_doubt:
                await self._start.wait(FRUITLESS if node.is_in_doubt else pause)
                continue
            report = await self._try(self.driver.admit_once)
            if self._node.finished:  # the answer came too late, and what was started is handed back
                self._settle.set()
            if report is not None and (report.replanned or report.waiting or report.ended):
                self._look.set()
            elif report is not None and report.late:  # somebody may listen for that
                self._look.set_within(PACE)
            # Ends have their turn between two batches: what has ended is let go of, and the next batch needs its room.
            await self._start.wait(0)

    async def _settling(self) -> None:
        """Write how deliveries ended; what ends while that is being written is written next, together."""
        chances = LAST_CHANCES
        while not (self._is_drained and not self._node.finished and not (self._node.deliveries and chances)):
            if not self._node.finished:
                # A run that has just ended may not have been reported yet.
                chances -= self._is_drained
                await self._settle.wait(retries.FIRST_RETRY if self._is_drained else None)
                continue
            if self._node.is_in_doubt and not self._is_stopping:
                await self._settle.wait(FRUITLESS)  # it would be told to have ended at a time that is false
                continue
            report = await self._try(self.driver.settle_once)
            if report is None:
                return
            if report.frees_others:
                self._look.set()
            elif report.settled:
                # Others may depend on what has ended; only the store knows.
                self._look.set_within(PACE)

    async def _telling(self) -> None:
        """Write what goes on has put out, when there is more of it; of all of them together, and not too often."""
        monotonic = self._node.store_clock.monotonic
        next_time = monotonic()
        while not self._is_drained:
            pause = next_time - monotonic() if self._node.underway else None
            if pause is None or pause > 0:
                await self._tell.wait(pause)
                continue
            await self._try(self.driver.progress_once)
            next_time = monotonic() + TELL_EVERY

    async def _every(self, interval: Micros, duty: Callable[[], Awaitable[object]], wakeup: Wakeup) -> None:
        while not self._is_drained:
            await self._try(duty)
            if not self._is_drained:
                await wakeup.wait(interval)

    async def _compare_clocks(self, wakeup: Wakeup) -> None:
        """In the beginning, read the store's clock more often than leases are renewed: time may pass too fast here."""
        pause = FIRST_COMPARISON
        while pause < self._node.timing.lease // 3:
            await wakeup.wait(pause)
            if self._is_stopping:
                return
            await self._try(self._node.read_clock)
            pause *= 2

    async def _letting_go(self, wakeup: Wakeup) -> None:
        """When leases have run out because nobody could renew them, begin nothing more of what they were for."""
        node = self._node
        while not self._is_drained:
            left = node.timing.lease if node.holds_until is None else node.holds_until - node.now
            if left > 0:
                await wakeup.wait(left)
                continue
            if self.driver.withdraw():
                self._settle.set()
            await wakeup.wait(node.timing.lease // 3)

    async def _renew_leases(self) -> None:
        await self.driver.renew_once()
        # The store's time may have come further than any timer here: it was set, or this machine was asleep.
        if self._look_at is not None and self._look_at <= self._node.now:
            self._look.set()

    async def _reap(self) -> None:
        report = await self.driver.reap_once()
        if (await self.driver.rewind_once()).rewound:
            self._look.set()
        if report.adopted or report.overdue or report.orphans:
            self._look.set()

    async def _lead(self) -> None:
        if (report := await self.driver.lead_once()).gained:
            self._prune.set()
        if report.lost:
            self._look.set()

    async def _prune_all(self) -> None:
        while (await self.driver.prune_once()).more and not self._is_stopping:
            pass

    async def _watch(self) -> None:
        if await self._node.executor.call(self._node.store.changed_by_others):
            # A schedule may be new, and its function too; its first fire may not wait until the next reaping.
            await self.driver.adopt_once()
            self._look.set()
            if await self.driver.is_asked_to_stop():
                self._renew.set()

    async def _try(self, duty: Callable[[], Awaitable[T]]) -> T | None:
        """Do a duty, again and again until it succeeds; None when the time to try is over."""
        return await self._retries.attempt(duty, self._is_over)

    def _is_over(self, duty: Callable[[], Awaitable[object]], backoff: Micros) -> bool:
        """Whether a duty that failed is given up; what is held or has ended is told to the store if at all possible."""
        if duty == self.driver.release:
            return backoff >= retries.LAST_RETRY
        if duty == self.driver.settle_once:
            return self._is_drained and backoff >= retries.LAST_RETRY
        return self._is_drained or (self._is_stopping and duty in (self._look_once, self.driver.admit_once))

    def _report(self, assignment: Assignment, delivered: Delivered | Accepted | Underway) -> None:
        self.driver.report(assignment, delivered)
        if isinstance(delivered, Underway):
            self._tell.set()
            return
        self._settle.set()
        if self._is_stopping:
            self._drain.set()

    def _ring_all(self) -> None:
        for wakeup in self._alarms:
            wakeup.set()
        self._retries.set()

    def _wakeup(self) -> Wakeup:
        self._alarms.append(Wakeup())
        return self._alarms[-1]
