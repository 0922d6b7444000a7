"""The loop: runs the steps of a driver in time, wakes them when something happens, and stops them.

Each step has its own task, so that one decides while another waits for the store. None of them polls: the search for
work waits for the time that the store names, or for a wake-up; the others wait for their interval.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from noonmark.core.errors import NoonmarkError
from noonmark.core.instants import SECOND, micros_to_seconds
from noonmark.core.settlement import RunInProgress
from noonmark.driver import logs
from noonmark.driver.driver import Driver
from noonmark.driver.interpreter_settings import driver_settings
from noonmark.driver.steps.settle import LAST_CALL, is_deferrable, until_ended
from noonmark.driver.steps.takeover import freshen_lock, unlock_process
from noonmark.driver.store_executor import StoreExecutor
from noonmark.driver.wakeup import Wakeup
from noonmark.ports.events import NodeStarted, NodeStopped, StoreFailed
from noonmark.ports.target import AwaitsOthers, Reconciles

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noonmark.core.instants import Micros
    from noonmark.driver.node import Node
    from noonmark.driver.steps.reports import SettleReport
    from noonmark.ports.runtime import Runtime
    from noonmark.ports.target import Assignment, Reported

    T = TypeVar("T")

logger = logging.getLogger("noonmark.driver")

FIRST_RETRY: Micros = SECOND // 10
LONGEST_RETRY: Micros = 2 * SECOND
"""The pause doubles with each failure, up to this."""
LAST_RETRY: Micros = 5 * SECOND
"""During shutdown, a step is given up once its backoff has grown to this."""
LAST_REPORT_WAITS = 10
"""How often, at the end, it waits for the report of a run that has ended."""
LAST_PINGS: Micros = 2 * SECOND
"""How long calls of URLs have to end when the loop stops."""
PROGRESS_INTERVAL: Micros = SECOND
REAP_INTERVAL: Micros = 10 * SECOND
TAKEOVER_INTERVAL: Micros = SECOND // 2
FRESHEN_INTERVAL: Micros = 3_600 * SECOND
"""Files in a runtime folder that were not used for 6 hours may be removed, says the XDG specification."""
GUARD_INTERVAL: Micros = 60 * SECOND
RECONCILE_INTERVAL: Micros = 30 * SECOND
FIRST_COMPARISON: Micros = SECOND // 8
SETTLE_INTERVAL: Micros = SECOND // 200
"""The time between two writes of ends that nothing waits for: one transaction instead of many small ones."""
SETTLE_BATCH = 100
"""Ends that are written at once, without waiting for the interval."""
PACE: Micros = SECOND // 50
"""The pause between two searches, unless the first found more than it could take. It turns many small transactions
into one."""
DOUBT_PAUSE: Micros = SECOND
"""How often the store's clock is read while it is in doubt."""
IDLE_PAUSE: Micros = SECOND // 4
"""The pause after a search that found nothing although something was due: another node is about to take it."""


class Retries:
    """The failed steps of a node that wait for their next attempt."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: set[Wakeup] = set()

    async def attempt(
        self,
        step: Callable[[], Awaitable[T]],
        is_over: Callable[[Callable[[], Awaitable[object]], Micros], bool],
    ) -> T | None:
        """Run a step until it succeeds; None if `is_over` gives it up."""
        backoff, has_failed = FIRST_RETRY, False
        while True:
            pause = min(backoff, LONGEST_RETRY)
            try:
                answer = await step()
            except NoonmarkError as error:
                logger.warning("%s failed; retrying in %s s: %s", _step_name(step), micros_to_seconds(pause), error)
                self._note(step.__name__, str(error), pause)
            except Exception as error:
                logger.exception("%s failed; retrying in %s s", _step_name(step), micros_to_seconds(pause))
                self._note(step.__name__, repr(error), pause)
            else:
                self._node.failures.pop(step.__name__, None)
                if has_failed:  # the store is back, so the other steps need not wait
                    self.set()
                return answer
            if is_over(step, backoff):
                return None
            has_failed = True
            # An own wake-up: new work must not make a store that is down be called more often.
            retry = Wakeup()
            self._waiting.add(retry)
            await retry.wait(pause)
            self._waiting.discard(retry)
            backoff = min(2 * backoff, LAST_RETRY)

    def set(self) -> None:
        """Retry all of them now: the store is back, or the loop stops."""
        for retry in list(self._waiting):
            retry.set()

    def _note(self, step: str, error: str, pause: Micros) -> None:
        self._node.note_failure(step, error)
        self._node.report([StoreFailed(step, error, pause)])


def _step_name(step: Callable[[], Awaitable[object]]) -> str:
    """The name of a step in logs, as it is in metrics and in the readiness."""
    return step.__name__.lstrip("_")


class Loop:
    """Runs a driver on the current event loop until it is stopped."""

    def __init__(self, runtime: Runtime, *, claims: bool = True) -> None:
        """Create it on the event loop that runs it. With `claims=False` it runs only what `fetch` names."""
        self._claims = claims
        self._executor = self._lease_executor = StoreExecutor(runtime.store)
        if runtime.store.traits.max_concurrency > 1:
            self._lease_executor = StoreExecutor(runtime.store, max_threads=1)
        self.driver = Driver(runtime, self._executor, self._lease_executor)
        self._runtime, self._node = runtime, self.driver.node
        self._waiting_target = runtime.target if isinstance(runtime.target, AwaitsOthers) else None
        self._wakeups: list[Wakeup] = []
        self._retries = Retries(self._node)
        self._claim, self._start, self._settle = self._wakeup(), self._wakeup(), self._wakeup()
        self._stop, self._drain, self._renew = self._wakeup(), self._wakeup(), self._wakeup()
        self._prune, self._progress, self._compare = self._wakeup(), self._wakeup(), self._wakeup()
        self._settle_now, self._settle_full = self._wakeup(), self._wakeup()
        self._is_stopping = self._is_drained = False
        self._is_leaving = self._has_successor = False
        self._batches_ends = runtime.store.traits.blocks
        self._has_urgent_end = False
        self._fetches = 0
        self._grace: Micros | None = None
        self._named: Micros = 0
        """When a grace period was first set."""
        self._claim_at: Micros | None = None

    def wake(self, at: Micros | None = None) -> None:
        """Look for work, for that time or now. From any thread."""
        self._wake_target()
        next_claim = self._claim_at
        if at is None or next_claim is None or at < next_claim + self._node.timing.lookahead:
            self._claim.set()
        else:  # nothing is due before then, but the change may have emitted an event
            self._claim.set_within_threadsafe(IDLE_PAUSE)

    def check_stop_requests(self) -> None:
        """Check now, rather than at the next renewal, whether a run here is asked to stop."""
        self._renew.set()

    @property
    def is_stopping(self) -> bool:
        """Whether it starts nothing more."""
        return self._is_stopping

    async def fetch(self, occurrence_id: str) -> None:
        """Claim one occurrence now, if it is claimable."""
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
        """Start nothing more, wait for what runs, then hand back the rest. From any thread; `run` returns when done.

        Without a grace period it waits until everything has ended, or until another call sets one.
        """
        if self._grace is None:
            self._named = self._node.store_clock.monotonic()
        self._grace = grace
        self._is_stopping = True
        self._wake_all()

    def pass_on(self) -> bool:
        """Let another loop continue under this node's name: at its end, this one does not report that the node left.

        False if it may be reporting that already; the other should wait for its end. From any thread.
        """
        self._has_successor = True
        return not self._is_leaving

    async def run(self, started: Callable[[], None] | None = None) -> int:
        """Run every step in time until `stop` is called; returns the number of occurrences handed back."""
        with driver_settings():
            return await self._run(started)

    async def _run(self, started: Callable[[], None] | None) -> int:
        node, timing = self._node, self._node.timing
        self._runtime.target.open(self._report, node.store_clock.earliest)
        # Two of them, so that one decides while the decisions of the other are written.
        starting = [asyncio.create_task(self._start_loop()) for _ in range(2)]
        leading = []
        if self._claims:
            starting.append(asyncio.create_task(self._claim_loop()))
            leading = [self._every(timing.lease // 3, self._lead, self._wakeup())]
            if self._runtime.locks is not None:
                leading.append(self._every(TAKEOVER_INTERVAL, self._take_over, self._wakeup()))
                leading.append(self._every(FRESHEN_INTERVAL, self._freshen_lock, self._wakeup()))
        watch_interval, watch = node.store.traits.watch_interval, self._wakeup()
        stop_listening = node.store.listen(watch.set)
        background = [
            asyncio.create_task(step)
            for step in (
                self._settle_loop(),
                *([self._full_batch_loop()] if node.store.traits.max_concurrency > 1 else []),
                self._progress_loop(),
                self._every(timing.lease // 3, self._renew_leases, self._renew),
                self._compare_clocks(self._wakeup()),
                self._expiry_loop(self._wakeup()),
                self._every(min(REAP_INTERVAL, 2 * timing.lease // 3), self._reap, self._wakeup()),
                *leading,
                self._every(timing.prune_every, self._prune_all, self._prune),
                self._every(GUARD_INTERVAL, self._guard, self._wakeup()),
                self._every(RECONCILE_INTERVAL, self._reconcile, self._compare),
                *([] if watch_interval is None else [self._every(watch_interval, self._watch, watch)]),
            )
        ]
        node.report([NodeStarted(node.id)])
        if started is not None:
            started()
        try:
            while not self._is_stopping:
                await self._stop.wait(None)
            await asyncio.gather(*starting)
            handed_back = await self._wind_up()
            await self._finish_pings(self._wakeup())
            await asyncio.gather(*background)
            self._is_leaving = True
            if self._has_successor:
                unlock_process(node)
            else:
                await self._try(self.driver.leave)
        except asyncio.CancelledError:
            await self._hand_over([*starting, *background])
            raise
        finally:
            for task in (*starting, *background):
                task.cancel()
            stop_listening()
            self._runtime.target.close()
            self._executor.close()
            self._lease_executor.close()
        node.report([NodeStopped(node.id, handed_back)])
        return handed_back

    async def _wind_up(self) -> int:
        """Release claims, wait for what runs until the grace period ends, then hand that back too."""
        node = self._node
        while self._fetches:
            await self._drain.wait(FIRST_RETRY)
        await self._try(self.driver.release)
        handed_back = self.driver.withdraw()
        if node.deliveries and self._grace != 0:
            logs.stopping(len(node.deliveries), self._grace)
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
        self._wake_all()
        return handed_back

    async def _finish_pings(self, wakeup: Wakeup) -> None:
        """Wait a moment for calls of URLs that have not ended. No thread can be started while a program exits."""
        pinger, ends = self._runtime.pinger, self._node.store_clock.monotonic() + LAST_PINGS
        while pinger is not None and pinger.pending and self._node.store_clock.monotonic() < ends:
            await wakeup.wait(PACE)

    async def _hand_over(self, steps: list[asyncio.Task[None]]) -> None:
        """The event loop is ending: hand back what this node holds, so that others need not wait for its leases."""
        self._is_stopping = self._is_drained = True
        for task in steps:
            task.cancel()
        await asyncio.wait(steps)  # what they are receiving is held, too
        while self._fetches:
            await self._drain.wait(FIRST_RETRY)
        self.driver.withdraw()
        self.driver.hand_back()
        try:
            await self.driver.release()
            while self._node.finished:
                await self.driver.settle_once()
            await self.driver.leave()
        except Exception:
            logger.exception("could not hand back claimed work; other nodes take it over when the leases expire")

    async def _claim_loop(self) -> None:
        """Match, plan and claim, as soon as something is due; first what the last process left behind."""
        if self._runtime.locks is not None:
            await self._try(self._take_over)
        while not self._is_stopping:
            self._claim_at = None
            claim_at = self._claim_at = await self._try(self._claim_due)
            self._wake_target()  # an event may have been matched, or another node may have woken this one
            await self._claim.wait(None if claim_at is None else claim_at - self._node.now)

    async def _claim_due(self) -> Micros | None:
        """Match, plan and claim what is due; returns when to search next, None to wait for a wake-up.

        The time as it is stored: `wake` compares it with that of a new occurrence, which often is the same.
        """
        node = self._node
        if not await node.trusts_time():
            await node.read_clock()
            if node.is_in_doubt:
                return node.now + DOUBT_PAUSE
        await self.driver.beat_if_routes_changed()
        lookahead = node.timing.lookahead
        time = await self._next_time(lookahead)
        if time is None or time > node.now:
            return time
        matched = await self.driver.match_once()
        planned = await self.driver.plan_once()
        claimed = await self.driver.claim_once()
        if claimed.claimed:
            self._start.set()
        if matched.more or planned.more or claimed.more:
            return node.now
        if matched.matched or planned.planned or claimed.claimed:
            return node.now + PACE
        # Most often another node was faster. Otherwise it is full, or a delivery may be past its deadline.
        time = await self._next_time(0)
        if time is None:
            return None
        if (pause := time - node.now) <= 0:
            await self._reap()
        return node.now + max(IDLE_PAUSE, pause if pause <= lookahead else pause - lookahead)

    async def _next_time(self, lookahead: Micros) -> Micros | None:
        time: Micros | None = await self._node.executor.call(
            self._node.store.next_time, self._runtime.target.routes(), lookahead=lookahead
        )
        return time

    async def _start_loop(self) -> None:
        """Commit starts shortly before they are due, in batches."""
        node = self._node
        while not self._is_stopping:
            decision = node.next_decision
            at = None if decision is None else decision + node.timing.early // 4
            if at is None or node.now < at or node.is_in_doubt:
                pause = None if at is None else at - node.now
                await self._start.wait(IDLE_PAUSE if node.is_in_doubt else pause)
                continue
            if not node.store_clock.is_certain:  # a clock that runs fast could begin it early
                await self._try(node.read_clock)
                if node.now < at or node.is_in_doubt:
                    continue
            report = await self._try(self.driver.admit_once)
            if self._node.finished:  # the answer came too late, so the starts are handed back
                self._settle.set()
            if report is not None and (report.replanned or report.waiting or report.ended):
                self._claim.set()
            elif report is not None and report.late:  # a schedule may listen for that event
                self._claim.set_within(PACE)
            # Let settlements run between two batches: they make the room that the next batch needs.
            await self._start.wait(0)

    async def _settle_loop(self) -> None:
        """Write the ends of deliveries; those that arrive during a write go into the next one together."""
        chances, monotonic = LAST_REPORT_WAITS, self._node.store_clock.monotonic
        next_write = monotonic()
        while not (self._is_drained and not self._node.finished and not (self._node.deliveries and chances)):
            if not self._node.finished:
                # A run that has just ended may not be reported yet.
                chances -= self._is_drained
                await self._settle.wait(FIRST_RETRY if self._is_drained else None)
                continue
            if self._node.is_in_doubt and not self._is_stopping:
                await self._settle.wait(IDLE_PAUSE)  # the end would be stored with a false time
                continue
            if (pause := next_write - monotonic()) > 0 and self._may_batch_ends:
                await self._settle_now.wait(pause)
            next_write, self._has_urgent_end = monotonic() + SETTLE_INTERVAL, False
            report = await self._try(self.driver.settle_once)
            if report is None:
                return
            self._after_ends(report)

    async def _full_batch_loop(self) -> None:
        """Write full batches of ends beside those of `_settle_loop`: ends keep up with the two tasks that start."""
        while not self._is_drained:
            if self._node.is_in_doubt and not self._is_stopping:
                await self._settle_full.wait(IDLE_PAUSE)
            elif not self._is_batch_full:
                await self._settle_full.wait(None)
            elif (report := await self._try(self.driver.settle_once)) is not None:
                self._after_ends(report)

    def _after_ends(self, report: SettleReport) -> None:
        self._wake_target()
        if report.frees_others:
            self._claim.set()
        elif report.settled:
            # Other schedules may depend on it; only the store knows.
            self._claim.set_within(PACE)

    @property
    def _is_batch_full(self) -> bool:
        """Whether as many ends wait as one write takes."""
        return len(self._node.finished) >= self._node.batch

    @property
    def _may_batch_ends(self) -> bool:
        """Whether ends may wait for others that come soon, and are written with them."""
        is_urgent = self._has_urgent_end or self._is_stopping or len(self._node.finished) >= SETTLE_BATCH
        return self._batches_ends and not is_urgent

    async def _progress_loop(self) -> None:
        """Write new output of runs in progress, of all runs together, at most once per interval."""
        monotonic = self._node.store_clock.monotonic
        next_time = monotonic()
        while not self._is_drained:
            pause = next_time - monotonic() if self._node.underway else None
            if pause is None or pause > 0:
                await self._progress.wait(pause)
                continue
            await self._try(self.driver.progress_once)
            next_time = monotonic() + PROGRESS_INTERVAL

    async def _every(self, interval: Micros, step: Callable[[], Awaitable[object]], wakeup: Wakeup) -> None:
        while not self._is_drained:
            await self._try(step)
            if not self._is_drained:
                await wakeup.wait(interval)

    async def _compare_clocks(self, wakeup: Wakeup) -> None:
        """At first, read the store's clock more often than leases are renewed: the local clock may run fast."""
        pause = FIRST_COMPARISON
        while pause < self._node.timing.lease // 3:
            await wakeup.wait(pause)
            if self._is_stopping:
                return
            await self._try(self._node.read_clock)
            pause *= 2

    async def _expiry_loop(self, wakeup: Wakeup) -> None:
        """Withdraw assignments whose leases expired because they could not be renewed."""
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
        # The store's clock may be ahead of every timer here: it was set, or this machine was asleep.
        if self._claim_at is not None and self._claim_at <= self._node.now:
            self._claim.set()

    async def _reap(self) -> None:
        report = await self.driver.reap_once()
        await self.driver.beat_if_routes_changed()  # one may have been registered during the first heartbeat
        self._wake_target()  # of what it has ended; and in case a notification was lost
        if (await self.driver.rewind_once()).rewound:
            self._claim.set()
        if report.adopted or report.overdue or report.orphans:
            self._claim.set()

    async def _lead(self) -> None:
        if (report := await self.driver.lead_once()).gained:
            self._prune.set()
            self._compare.set()
        if report.lost:
            self._claim.set()

    async def _take_over(self) -> None:
        if (await self.driver.take_over_once()).expired:
            self._claim.set()

    async def _freshen_lock(self) -> None:
        await freshen_lock(self._node)

    async def _prune_all(self) -> None:
        while (await self.driver.prune_once()).more and not self._is_stopping:
            pass

    async def _guard(self) -> None:
        if await self.driver.guard_once():  # a schedule may listen for that event
            self._claim.set()

    async def _reconcile(self) -> None:
        if self._node.leads and isinstance(self._runtime.target, Reconciles):
            self._runtime.target.reconcile()

    async def _watch(self) -> None:
        if await self._node.executor.call(self._node.store.changed_by_others):
            # There may be a new schedule with a new function; its first fire must not wait for the next reap.
            await self.driver.adopt_once()
            self._claim.set()
            if await self.driver.is_asked_to_stop():
                self._renew.set()

    async def _try(self, step: Callable[[], Awaitable[T]]) -> T | None:
        """Run a step until it succeeds; None if it is given up."""
        return await self._retries.attempt(step, self._is_over)

    def _is_over(self, step: Callable[[], Awaitable[object]], backoff: Micros) -> bool:
        """Whether a failed step is given up. Releases and settlements are tried for as long as possible."""
        if step == self.driver.release:
            return backoff >= LAST_RETRY
        if step == self.driver.settle_once:
            return self._is_drained and backoff >= LAST_RETRY
        searches = (self._claim_due, self._take_over, self._node.read_clock, self.driver.admit_once)
        return self._is_drained or (self._is_stopping and step in searches)

    def _report(self, assignment: Assignment, delivered: Reported) -> None:
        self.driver.report(assignment, delivered)
        if isinstance(delivered, RunInProgress):
            self._progress.set()
            if delivered.adds_work:
                self._claim.set()
            if delivered.stops_work:
                self.check_stop_requests()
            return
        if self._batches_ends and not is_deferrable(self._node, assignment, delivered):
            self._has_urgent_end = True
            self._settle_now.set()
        self._settle.set()
        if self._is_batch_full:
            self._settle_full.set()
        if self._is_stopping:
            self._drain.set()

    def _wake_target(self) -> None:
        """Something was written that may have ended work which a target here waits for."""
        if self._waiting_target is not None:
            self._waiting_target.wake()

    def _wake_all(self) -> None:
        for wakeup in self._wakeups:
            wakeup.set()
        self._retries.set()

    def _wakeup(self) -> Wakeup:
        self._wakeups.append(Wakeup())
        return self._wakeups[-1]
