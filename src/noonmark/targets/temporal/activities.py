"""Activities: what workers do for workflows. They read and write the ledger, and deliver to the targets of the process.

Every activity sends heartbeats. One that delivers looks at the record of its occurrence while it waits, so that a
cancelled one stops whatever has become of the node and of the server of the engine.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from noonmark.core.budgets.reported import combine
from noonmark.core.engine import TEMPORAL, Standing, standing
from noonmark.core.errors import NoonmarkError
from noonmark.core.instants import SECOND
from noonmark.core.occurrence import in_force
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Accepted, Delivered, RunInProgress, Suspended, began, begin, settle
from noonmark.ports.target import Assignment, AwaitsOthers
from noonmark.targets.loop_runner import pause
from noonmark.targets.outcomes import undeliverable
from noonmark.targets.temporal.documents import (
    ADVANCE,
    DELIVER,
    SETTLE,
    STEP,
    WATCH,
    read_delivered,
    read_usage,
    to_document,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.core.settlement import Settlement
    from noonmark.ports.store import Store
    from noonmark.ports.target import Reported, Target
    from noonmark.targets.temporal.steps import StepRuns

    T = TypeVar("T")
    Settled = Callable[[Schedule, Settlement], None]

Document = dict[str, Any]
logger = logging.getLogger("noonmark.temporal")

BEAT: Micros = SECOND
LOOK: Micros = SECOND
"""Between two reads of the record of a delivery."""
STORE_PAUSE: Micros = SECOND
"""Before an unavailable store is called again."""
STOPPING, SILENT = "the worker is stopping", "the worker was silent for too long"
UNTIMED_WAIT = 5.0
"""Seconds until what waits for others without a time is delivered again."""


class Activities:
    """The activities of one worker process."""

    def __init__(
        self, store: Store, target: Target, steps: StepRuns, now: Callable[[], Micros], *, name: str, settled: Settled
    ) -> None:
        """`settled` is called with each end that this worker has written."""
        self._store, self._target, self._steps, self._now = store, target, steps, now
        self._name, self._settled = name, settled
        self._store_problem: str | None = None
        self.deliveries = 0
        """How many are under way."""

    @activity.defn(name=DELIVER)
    async def deliver(self, given: Document) -> Document:
        """Deliver an occurrence to its target."""
        async with _beating():
            stands, occurrence, schedule = await self._patiently(partial(self._find, given))
            if stands is not Standing.HELD or occurrence is None or schedule is None:
                return {"report": str(stands)}
            if occurrence.stop is not None:
                return _cancelled(occurrence, occurrence.stop, now=self._now())
            schedule = self._with_time_left(schedule, occurrence)
            if schedule is None:
                return to_document(self._timed_out(occurrence))
            _log_loss(occurrence, given)
            assignment = Assignment(occurrence, schedule, self._now(), upstream=given.get("upstream"))
            end = await self._carry_out(assignment, given)
            return await self._settled_at_once(end, given)

    async def _settled_at_once(self, end: Document, given: Document) -> Document:
        """Write the end of a delivery here, if that can be done now: it saves an activity."""
        if end["report"] != "delivered":
            return end
        try:
            settled = await self._write_end({**given, "end": end, "reported": []})
        except NoonmarkError:
            return end
        return end if settled["report"] == Standing.TAKEN_OVER else {**settled, "outcome": end["outcome"]}

    @activity.defn(name=STEP)
    async def step(self, given: Document) -> Document:
        """Deliver a step of a workflow run."""
        async with _beating():
            stands, occurrence, schedule = await self._patiently(partial(self._find, given))
            if stands is not Standing.HELD or occurrence is None or schedule is None:
                return {"report": str(stands)}
            parent = Assignment(occurrence, schedule, self._now())
            assignment = await self._patiently(partial(self._steps.assignment, parent, given["start"]))
            if assignment is None:  # its end is on record
                return {"report": str(Standing.TAKEN_OVER)}
            _log_loss(assignment.occurrence, given)
            end = await self._carry_out(assignment, given)
        if end["report"] in ("accepted", "suspended"):
            why = "its target would end it later, and a step that is an activity cannot wait for that"
            return to_document(undeliverable(why, now=self._now()))
        return end

    @activity.defn(name=ADVANCE)
    async def advance(self, given: Document) -> Document:
        """Record the ends of steps, and decide what follows."""
        async with _beating(), self._repeated_by_temporal():
            return await asyncio.to_thread(self._advance, given)

    @activity.defn(name=WATCH)
    async def watch(self, given: Document) -> Document:
        """Wait until an occurrence is over, is asked to stop, or has a step that others have ended."""
        awaiting = {(step_id, index) for step_id, index in given["awaiting"]}
        async with _beating():
            while True:
                stands, occurrence, _ = await self._patiently(partial(self._find, given))
                if stands is not Standing.HELD or occurrence is None:
                    return {"report": str(stands)}
                if occurrence.stop is not None and not given["is_stopping"]:
                    return {"report": "stop"}
                if awaiting:
                    ended = await self._patiently(partial(self._store.open_steps, [occurrence.id]))
                    if any(one.key in awaiting and not one.awaits_others for one in ended.get(occurrence.id, ())):
                        return {"report": "news"}
                self._wake_target()
                if activity.is_worker_shutdown():
                    raise _left(STOPPING)
                await pause(LOOK)

    @activity.defn(name=SETTLE)
    async def settle(self, given: Document) -> Document:
        """Write the end of a delivery; a fence that is out of date is an answer, not an error."""
        async with _beating(), self._repeated_by_temporal():
            return await self._write_end(given)

    async def _write_end(self, given: Document) -> Document:
        """Write an end, and say what became of it. A thread that writes cannot be stopped, so it is waited for."""
        writing = asyncio.create_task(asyncio.to_thread(self._settle, given))
        while not writing.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({writing})
        report, written = writing.result()
        if written is not None:
            self._settled(*written)
        return {"report": report}

    # The ledger; these may block

    def _find(self, given: Document) -> tuple[Standing, Occurrence | None, Schedule | None]:
        """How the attempt stands, and its occurrence and schedule, while they are wanted."""
        occurrence = self._store.occurrence(given["occurrence_id"])
        stands = standing(occurrence, attempt=given["attempt"], fence=given["fence"])
        if occurrence is None:
            logger.warning(
                "there is no occurrence %s in the store of this worker; nodes and workers need the same store",
                given["occurrence_id"],
            )
            return stands, None, None
        stored = self._store.find_uid(occurrence.uid)
        return stands, occurrence, None if stored is None else in_force(stored.schedule, occurrence)

    def _advance(self, given: Document) -> Document:
        stands, occurrence, schedule = self._find(given)
        if stands is not Standing.HELD or occurrence is None or schedule is None:
            return {"report": str(stands)}
        turn = self._steps.advance(Assignment(occurrence, schedule, self._now(), started=occurrence.started), given)
        # Without one, its fence was refused: it stands differently by now.
        return {"report": str(self._find(given)[0])} if turn is None else turn

    def _settle(self, given: Document) -> tuple[str, tuple[Schedule, Settlement] | None]:
        stands, occurrence, schedule = self._find(given)
        if stands is not Standing.HELD or occurrence is None or schedule is None:
            is_ours = stands is Standing.OVER and self._is_settled(given)
            return "settled" if is_ours else str(stands), None
        end = given["end"]
        delivered = read_delivered(end, now=self._store.clock())
        if delivered.outcome is Outcome.CANCELLED and delivered.reason is None:
            delivered = replace(delivered, reason=occurrence.stop or Reason.CANCELLED)
        reported = combine(read_usage([*end.get("reported", ()), *given["reported"]]))
        settlement = settle(occurrence, schedule, delivered, node=self._name, reported=reported)
        if not self._store.settle([settlement])[0]:
            return str(self._find(given)[0]), None
        return "settled", (schedule, settlement)

    def _is_settled(self, given: Document) -> bool:
        """Whether an earlier try has written this end, and its answer was lost."""
        stored_run = self._store.run(f"{given['occurrence_id']}-{given['fence']}")
        return stored_run is not None and stored_run[1].outcome == given["end"]["outcome"]

    # Deliveries

    def _with_time_left(self, schedule: Schedule, occurrence: Occurrence) -> Schedule | None:
        """The schedule with what is left of its timeout, which counts from the start by the node; None without."""
        declared, now = schedule.declaration, self._now()
        if declared.timeout is None:
            return schedule
        left = began(occurrence, now=now) + declared.timeout - now
        return None if left <= 0 else replace(schedule, declaration=replace(declared, timeout=left))

    def _timed_out(self, occurrence: Occurrence) -> Delivered:
        now = self._now()
        return Delivered(outcome=Outcome.TIMED_OUT, started=began(occurrence, now=now), ended=now)

    async def _carry_out(self, assignment: Assignment, given: Document) -> Document:
        """Deliver an assignment, and wait for its end; stop it where that is asked for."""
        loop = asyncio.get_running_loop()
        reported: asyncio.Future[Reported] = loop.create_future()
        assignment.report_to = partial(_report, loop, reported)
        is_leaving = False
        self.deliveries += 1
        reported.add_done_callback(self._note_report)
        self._target.deliver([assignment])
        while not reported.done():
            try:
                await asyncio.wait({reported}, timeout=LOOK / SECOND)
                if not reported.done():
                    with suppress(NoonmarkError):  # the store is away; the next look follows
                        await self._look(assignment, given)
            except asyncio.CancelledError:
                is_leaving = activity.is_worker_shutdown()
                # Without a request, this worker was silent for too long, and another one has the work by now.
                assignment.stop(await self._why_stopped(given) if _is_asked() else Reason.LEASE_LOST)
        return await self._document(assignment, reported.result(), given, is_leaving=is_leaving)

    def _note_report(self, _reported: asyncio.Future[Reported]) -> None:
        self.deliveries -= 1

    async def _look(self, assignment: Assignment, given: Document) -> None:
        """Stop deliveries that are over or asked to stop."""
        occurrence = await asyncio.to_thread(self._store.occurrence, given["occurrence_id"])
        stands = standing(occurrence, attempt=given["attempt"], fence=given["fence"])
        if stands is Standing.OVER:
            assignment.stop(Reason.CANCELLED)
        elif occurrence is not None and occurrence.stop is not None:
            assignment.stop(occurrence.stop)
        self._wake_target()

    async def _why_stopped(self, given: Document) -> Reason:
        """The reason of a request to cancel the workflow: the ledger may have one."""
        with suppress(NoonmarkError):
            occurrence = await asyncio.to_thread(self._store.occurrence, given["occurrence_id"])
            if occurrence is not None and occurrence.stop is not None:
                return occurrence.stop
        return Reason.CANCELLED

    async def _document(
        self, assignment: Assignment, reported: Reported, given: Document, *, is_leaving: bool
    ) -> Document:
        now = self._now()
        if isinstance(reported, Accepted):
            await self._patiently(partial(self._begin, assignment, reported))
            return {"report": "accepted"}
        if isinstance(reported, Suspended):
            seconds = UNTIMED_WAIT if reported.until is None else (reported.until - now) / SECOND
            return {"report": "suspended", "seconds": seconds}
        if not isinstance(reported, Delivered):
            reported = undeliverable(f"an unexpected report: {type(reported).__name__}", now=now)
        if reported.outcome is Outcome.LEASE_LOST:
            stands, *_ = await self._patiently(partial(self._find, given))
            is_held = stands is Standing.HELD
            return {"report": "lost", "counts": not is_leaving} if is_held else {"report": str(stands)}
        usage = () if assignment.usage is None else assignment.usage.all
        return to_document(reported, usage)

    def _begin(self, assignment: Assignment, accepted: Accepted) -> None:
        """The receiver has accepted the work in turn: what it has agreed to is the deadline."""
        occurrence = self._store.occurrence(assignment.occurrence.id)
        if occurrence is not None and occurrence.fence == assignment.occurrence.fence:
            taken = replace(accepted, engine=TEMPORAL)
            self._store.settle([begin(occurrence, assignment.schedule, taken, node=occurrence.node or self._name)])

    def _wake_target(self) -> None:
        if isinstance(self._target, AwaitsOthers):
            self._target.wake()

    async def _patiently(self, call: Callable[[], T]) -> T:
        """Call the store, and retry until it answers."""
        while True:
            try:
                answer = await asyncio.to_thread(call)
            except NoonmarkError as error:
                self._note_store(str(error))
                await pause(STORE_PAUSE)
            else:
                self._note_store(None)
                return answer

    @asynccontextmanager
    async def _repeated_by_temporal(self) -> AsyncIterator[None]:
        """Let the engine repeat an activity that only needs the store, if that does not answer."""
        try:
            yield
        except NoonmarkError as error:
            self._note_store(str(error))
            raise _left(f"the store does not answer: {error}") from None
        self._note_store(None)

    def _note_store(self, problem: str | None) -> None:
        """Log whether the store answers, if that is news: many activities ask it."""
        if problem is not None and self._store_problem is None:
            logger.warning("the store does not answer: %s; trying again", problem)
        elif problem is None and self._store_problem is not None:
            logger.info("the store answers again")
        self._store_problem = problem


def _report(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Reported], assignment: Assignment, reported: Reported
) -> None:
    """Take the report of a target; from any thread."""
    if isinstance(reported, RunInProgress):
        return

    def take() -> None:
        if not future.done():
            future.set_result(reported)

    assignment.is_closed = True
    with suppress(RuntimeError):  # the worker has ended
        loop.call_soon_threadsafe(take)


def _log_loss(occurrence: Occurrence, given: Document) -> None:
    """Log that a delivery begins again, which its run does not show."""
    if given.get("is_again"):
        logger.warning("%s begins again here: the worker that had it was lost or stopped", occurrence.id)


def _is_asked() -> bool:
    """Whether the workflow has asked this activity to stop."""
    details = activity.cancellation_details()
    return details is not None and details.cancel_requested


def _left(why: str) -> ApplicationError:
    """Another worker goes on with it. The library logs no traceback for that."""
    return ApplicationError(why, category=ApplicationErrorCategory.BENIGN)


def _cancelled(occurrence: Occurrence, reason: Reason, *, now: Micros) -> Document:
    started = began(occurrence, now=now)
    return to_document(Delivered(outcome=Outcome.CANCELLED, started=started, ended=now, reason=reason))


@asynccontextmanager
async def _beating() -> AsyncIterator[None]:
    """Send heartbeats while the block runs."""

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await pause(BEAT)

    beats = asyncio.create_task(beat())
    try:
        yield
    except asyncio.CancelledError:
        if _is_asked():
            raise
        raise _left(STOPPING if activity.is_worker_shutdown() else SILENT) from None
    finally:
        beats.cancel()
