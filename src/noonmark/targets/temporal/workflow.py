"""The workflow that carries out one attempt of an occurrence. It decides nothing that Noonmark's rules decide.

It delivers the work, or the steps of a Noonmark workflow one by one, as activities, and has the end written by one that
carries the fence of the start. Activities are not retried, except those that only read and write the store. A delivery
whose worker is lost begins again on another one, as one whose node is lost does.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, CancelledError, is_cancelled_exception
from temporalio.workflow import ActivityCancellationType

with workflow.unsafe.imports_passed_through():
    from noonmark.core.engine import Standing
    from noonmark.targets.temporal.documents import (
        ADVANCE,
        ATTACH,
        DELIVER,
        MAX_LOSSES,
        SETTLE,
        STEP,
        WATCH,
        WORKFLOW,
        Order,
    )

ONCE = RetryPolicy(maximum_attempts=1)
UNTIL_DONE = RetryPolicy(initial_interval=timedelta(milliseconds=500), maximum_interval=timedelta(seconds=30))
"""For what only reads and writes the store: it may be repeated."""
LONGEST = timedelta(days=366)
SHORT = timedelta(minutes=5)
FIRST_PAUSE, LONGEST_PAUSE = 2, 300
"""Seconds to wait for the start that passes a new fence on; the pause doubles."""
LEAST_WAIT = 0.5
"""Seconds before what could not be delivered for want of resources is tried again."""
MAX_ENDS = 1_000_000
"""Characters of the ends of steps that one turn takes: Temporal gives an activity 2 MB at most."""
Document = dict[str, Any]
Key = tuple[str, int | None]
CANCELLED: Document = {"report": "delivered", "outcome": "cancelled"}


@workflow.defn(name=WORKFLOW)
class OccurrenceWorkflow:
    """Carries out one attempt of an occurrence, and has its end written."""

    def __init__(self) -> None:
        self._fence = self._used = 0
        """The newest fence, and the one that was last used: a start may pass a new one on at any time."""
        self._is_cancelled = False
        self._running: dict[Key, tuple[Document, workflow.ActivityHandle[Any]]] = {}
        """The steps that run, with what they were started with."""
        self._stopped: set[Key] = set()
        """Those of them that were asked to stop."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._current: workflow.ActivityHandle[Any] | None = None
        """The delivery of the whole."""
        self._ends: list[Document] = []
        """The ends of steps that are not recorded yet."""
        self._reported: list[Document] = []
        """What steps have reported to have used."""
        self._losses = 0
        self._lost: set[Key | None] = set()
        """The steps, or the whole, whose worker was lost or stopped: they begin again."""

    @workflow.signal(name=ATTACH)
    def attach(self, fence: int) -> None:
        """Take the fence of a later start: the node that made the first one was lost."""
        self._fence = max(self._fence, fence)

    @workflow.run
    async def run(self, order: Order) -> Document:
        """Carry it out. A request to cancel stops what runs; the end is written all the same."""
        self._order = order
        self._fence = max(self._fence, order.fence)
        work = asyncio.create_task(self._steps() if order.is_workflow else self._whole())
        while True:
            try:
                end = await asyncio.shield(work)
                break
            except asyncio.CancelledError:
                if work.done():
                    raise
                self._is_cancelled = True
                if self._current is not None:
                    self._current.cancel()
        if self._is_cancelled and (end["report"] == Standing.OVER or end.get("outcome") == "cancelled"):
            raise CancelledError("the occurrence was cancelled")
        return end

    # One delivery

    async def _whole(self) -> Document:
        pause = FIRST_PAUSE
        while True:
            end = await self._deliver()
            match end["report"]:
                case "delivered":
                    return await self._settle(end)
                case "lost":
                    self._lost.add(None)
                    self._losses += bool(end.get("counts"))
                    if (lost := self._given_up()) is not None:
                        return await self._settle(lost)
                case "settled" | Standing.OVER:
                    return end
                case Standing.TAKEN_OVER:
                    pause = await self._next_fence(pause)
                case "suspended":
                    await self._sleep(max(LEAST_WAIT, end["seconds"]))
                case _:  # the receiver says later how it ended
                    return await self._until_over()

    async def _deliver(self) -> Document:
        if self._is_cancelled:
            return CANCELLED
        order = self._order
        self._current = self._start_activity(
            DELIVER, self._input(upstream=order.upstream, is_again=None in self._lost), f"{order.queue}/{order.route}"
        )
        try:
            return await self._ended(self._current)
        finally:
            self._current = None

    async def _ended(self, activity: workflow.ActivityHandle[Any]) -> Document:
        """How a delivery ended; `lost` if its worker did not say so."""
        try:
            return dict(await activity)
        except ActivityError as error:
            if is_cancelled_exception(error):  # no worker had begun it
                return CANCELLED
            return {"report": "lost", "counts": True}

    def _given_up(self) -> Document | None:
        """The end of a delivery that does not begin again because its worker was lost; None if it does."""
        if self._order.at_most_once:
            reason, why = "outcome_unknown", "its worker was lost or stopped, so it is unknown what it has done"
        elif self._losses > MAX_LOSSES:
            reason, why = "poison", f"its worker was lost {self._losses} times"
        else:
            return None
        lost = {"outcome": "delivery_failed", "reason": reason, "error": why, "own_words": why}
        return {"report": "delivered", "is_final": True, **lost}

    async def _settle(self, end: Document) -> Document:
        """Have the end written."""
        pause = FIRST_PAUSE
        while True:
            written = await self._store_activity(SETTLE, self._input(end=end, reported=self._reported))
            if written["report"] != Standing.TAKEN_OVER:
                return {**end, "report": written["report"]}
            pause = await self._next_fence(pause)

    async def _until_over(self) -> Document:
        """Wait until somebody else has written the end."""
        while True:
            watch = asyncio.create_task(self._watch({"awaiting": [], "is_stopping": True}))
            await workflow.wait_condition(lambda: watch.done() or self._is_cancelled)  # noqa: B023 - awaited here
            if not watch.done():
                watch.cancel()
                return await self._settle(CANCELLED)
            if (seen := watch.result())["report"] == Standing.OVER:
                return seen
            await self._next_fence(FIRST_PAUSE)

    async def _next_fence(self, pause: int) -> int:
        """Wait for the start that passes a new fence on, or for a while; returns how long to wait the next time."""
        refused = self._used
        try:
            await workflow.wait_condition(lambda: self._fence > refused, timeout=timedelta(seconds=pause))
        except TimeoutError:
            return min(2 * pause, LONGEST_PAUSE)
        return FIRST_PAUSE

    async def _sleep(self, seconds: float) -> None:
        try:
            await workflow.wait_condition(lambda: self._is_cancelled, timeout=timedelta(seconds=seconds))
        except TimeoutError:
            return

    # The steps of a workflow

    async def _steps(self) -> Document:
        left = self._order.memory or {}
        memory: Document = left.get("memory", {})
        self._losses, self._reported = left.get("losses", 0), left.get("reported", [])
        pause = FIRST_PAUSE
        while True:
            is_draining = workflow.info().is_continue_as_new_suggested() and not self._is_cancelled
            if is_draining and not self._running and not self._ends:
                self._continue_as_new(memory)
            ends = self._take_ends()
            turn = await self._advance(ends, memory, is_draining=is_draining)
            if turn["report"] == Standing.OVER:
                self._stop_steps(list(self._running))
                return turn
            if turn["report"] == Standing.TAKEN_OVER:
                self._ends = ends + self._ends
                pause = await self._next_fence(pause)
                continue
            pause, memory = FIRST_PAUSE, turn["memory"]
            if turn["report"] == "delivered":
                self._stop_steps(list(self._running))
                return await self._settle(turn)
            for start in turn["starts"]:
                self._start_step(start)
            self._stop_steps([(step_id, index) for step_id, index in turn["stops"]])
            if not turn["again"] and (self._running or not is_draining):
                await self._news(turn)

    def _take_ends(self) -> list[Document]:
        """Take the ends of steps that fit into one turn; the next one takes the rest."""
        size = count = 0
        for end in self._ends:
            size += len(json.dumps(end))
            if count and size > MAX_ENDS:
                break
            count += 1
        taken, self._ends = self._ends[:count], self._ends[count:]
        return taken

    def _continue_as_new(self, memory: Document) -> None:
        """Go on with an empty history: that of a workflow is limited, and the run is in the store."""
        left = {"memory": memory, "losses": self._losses, "reported": self._reported}
        workflow.continue_as_new(replace(self._order, fence=self._fence, memory=left))

    async def _advance(self, ends: list[Document], memory: Document, *, is_draining: bool) -> Document:
        names = ("step_id", "index", "attempt", "undoes")
        running = [{name: start[name] for name in names} for start, _ in self._running.values()]
        return await self._store_activity(
            ADVANCE,
            self._input(
                ends=ends,
                running=running,
                losses=self._losses,
                memory=memory,
                is_cancelled=self._is_cancelled,
                is_draining=is_draining,
            ),
            f"{self._order.queue}/{self._order.route}",
        )

    def _start_step(self, start: Document) -> None:
        key: Key = (start["step_id"], start["index"])
        given = self._input(start=start, is_again=key in self._lost)
        activity = self._start_activity(STEP, given, f"{self._order.queue}/{start['route']}")
        self._running[key] = start, activity
        self._stopped.discard(key)
        task = asyncio.create_task(self._await_step(key, start, activity))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _await_step(self, key: Key, start: Document, activity: workflow.ActivityHandle[Any]) -> None:
        end = await self._ended(activity)
        if self._running.get(key, (None,))[0] is start:
            del self._running[key]
        if end["report"] == "delivered":
            self._losses = 0
            self._reported = [*self._reported, *end.pop("reported", ())]
            self._ends.append({**end, **{name: start[name] for name in ("step_id", "index", "attempt", "undoes")}})
        else:  # it begins again, unless too many workers were lost
            self._lost.add(key)
            self._losses += bool(end.get("counts") or self._order.at_most_once)
            self._ends.append({"report": "lost"})

    def _stop_steps(self, keys: list[Key]) -> None:
        for key in keys:
            if key in self._running and key not in self._stopped:
                self._stopped.add(key)
                self._running[key][1].cancel()

    async def _news(self, turn: Document) -> None:
        """Wait until a step has ended, here or elsewhere, or until the time to look again."""
        fence, was_cancelled = self._fence, self._is_cancelled
        watch = None
        if turn["awaiting"] or not self._running:
            watch = asyncio.create_task(self._watch({name: turn[name] for name in ("awaiting", "is_stopping")}))
        timeout = None if turn["seconds"] is None else timedelta(seconds=turn["seconds"])
        try:
            await workflow.wait_condition(
                lambda: bool(
                    self._ends
                    or self._fence > fence
                    or self._is_cancelled is not was_cancelled
                    or (watch is not None and watch.done())
                ),
                timeout=timeout,
            )
        except TimeoutError:
            pass
        finally:
            if watch is not None and not watch.done():
                watch.cancel()

    # Activities

    def _input(self, **more: Any) -> Document:
        order, self._used = self._order, self._fence
        return {"occurrence_id": order.occurrence_id, "attempt": order.attempt, "fence": self._fence, **more}

    def _start_activity(self, name: str, given: Document, queue: str) -> workflow.ActivityHandle[Any]:
        return workflow.start_activity(
            name,
            given,
            task_queue=queue,
            start_to_close_timeout=LONGEST,
            heartbeat_timeout=timedelta(seconds=self._order.heartbeat),
            retry_policy=ONCE,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )

    async def _store_activity(self, name: str, given: Document, queue: str | None = None) -> Document:
        return dict(
            await workflow.execute_activity(
                name,
                given,
                task_queue=queue or self._order.queue,
                start_to_close_timeout=SHORT,
                heartbeat_timeout=timedelta(seconds=self._order.heartbeat),
                retry_policy=UNTIL_DONE,
            )
        )

    async def _watch(self, given: Document) -> Document:
        watch = workflow.start_activity(
            WATCH,
            self._input(**given),
            task_queue=self._order.queue,
            start_to_close_timeout=LONGEST,
            heartbeat_timeout=timedelta(seconds=self._order.heartbeat),
            retry_policy=UNTIL_DONE,
            cancellation_type=ActivityCancellationType.TRY_CANCEL,
        )
        try:
            return dict(await watch)
        except ActivityError as error:
            if not is_cancelled_exception(error):
                raise
            return {"report": "cancelled"}  # nobody waits for it any more
