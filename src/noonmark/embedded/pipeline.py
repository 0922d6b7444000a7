"""Pipelines: functions in stages. Stages run one after another, the functions of a stage side by side."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from noonmark.core.errors import Conflict, InvalidSchedule, NoonmarkError, NotFound, PipelineError
from noonmark.core.lifecycle import FINAL
from noonmark.core.planner import first_plan
from noonmark.embedded.arguments import POLL_SECONDS
from noonmark.embedded.async_scheduler import in_thread
from noonmark.embedded.references import check_callable, check_name
from noonmark.embedded.run_now import ran_here, result_of
from noonmark.operations import schedule_edits
from noonmark.wiring import fresh_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.driver.loop import Loop
    from noonmark.embedded.async_scheduler import AsyncScheduler
    from noonmark.embedded.runners import Runner
    from noonmark.embedded.scheduler import Scheduler
    from noonmark.ports.target import Assignment

    Report = tuple[str, Assignment | None]
    """The id of an occurrence that ended, with its run if that was in this process."""
    Ending = tuple[Occurrence, Assignment | None]

logger = logging.getLogger("noonmark.pipeline")
MAX_POLLS = 20
"""How often to look for the report of a run that has ended in the store."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One more function of a stage has ended."""

    stage: str | int
    """Its name, or its number from 0 on."""
    finished: int
    """How many functions of the stage have ended, with or without success."""
    of: int
    """How many it has."""


@dataclass(frozen=True, slots=True)
class _Stage:
    name: str | int
    functions: tuple[Callable[..., Any], ...]


class JobPipeline:
    """Runs functions in stages, each function as a schedule that runs once. Works without `start` too.

    The schedules belong to the run: they are deleted when their stage has ended, or, if its process dies, by another
    node of the store. Their history is kept as usual.
    """

    def __init__(
        self, scheduler: Scheduler | AsyncScheduler, on_progress: Callable[[Progress], None] | None = None
    ) -> None:
        """It has no stages yet. `on_progress` is called whenever one more function has ended."""
        self._scheduler = scheduler.blocking
        self._on_progress = on_progress
        self._stages: list[_Stage] = []

    def add_stage(self, *funcs: Callable[..., Any], name: str | None = None) -> Self:
        """Add functions that start together, when everything before them has succeeded."""
        if not funcs:
            raise InvalidSchedule("a stage needs at least one function", field="funcs")
        for func in funcs:
            check_callable(func)
        if name is not None:
            check_name("name", name)
        self._stages.append(_Stage(len(self._stages) if name is None else name, funcs))
        return self

    async def run(self) -> list[list[Any]]:
        """The same as `run_sync`, for a program with an event loop. When it is cancelled, no later stage starts."""
        self._scheduler._use_current_loop()
        is_cancelled = threading.Event()
        try:
            return await in_thread(self._run, is_cancelled)
        except asyncio.CancelledError:
            is_cancelled.set()
            raise

    def run_sync(self) -> list[list[Any]]:
        """Run all stages and return the results, a list for each stage; PipelineError when a function has failed.

        The other functions of its stage are waited for, and no later stage starts.
        """
        return self._run(threading.Event())

    def _run(self, is_cancelled: threading.Event) -> list[list[Any]]:
        stages = tuple(self._stages)
        for stage in stages:  # nothing runs if one of them is invalid
            for func in stage.functions:
                self._scheduler._declarations.new(func, {})
        return (
            self._scheduler._with_runner(lambda runner: self._run_stages(runner, stages, is_cancelled))
            if stages
            else []
        )

    def _run_stages(self, runner: Runner, stages: tuple[_Stage, ...], is_cancelled: threading.Event) -> list[list[Any]]:
        if runner.is_own_thread:
            raise Conflict("the event loop that runs the functions cannot wait for them: use await run()")
        key = fresh_id(self._scheduler._runtime.clock)
        results: list[list[Any]] = []
        for stage in stages:
            if is_cancelled.is_set():
                raise Conflict("the pipeline was cancelled")
            results.append(self._run_stage(runner, stage, key))
        return results

    def _run_stage(self, runner: Runner, stage: _Stage, key: str) -> list[Any]:
        declarations, timing = self._scheduler._declarations, self._scheduler._runtime.timing
        labels = {"pipeline": key, "stage": str(stage.name)[:256]}
        node = runner.loop.driver.node
        schedules = [declarations.new(func, {"labels": labels}, pipeline_of=node.id) for func in stage.functions]
        planned = [first_plan(schedule, lookahead=timing.lookahead).planned[0] for schedule in schedules]
        reports: SimpleQueue[Report] = SimpleQueue()
        on_end = node.on_end
        on_end.update({occurrence.id: partial(_report, reports, occurrence.id) for occurrence in planned})
        try:
            endings = self._wait(runner, stage, schedules, [occurrence.id for occurrence in planned], reports)
        except BaseException:  # the caller no longer waits: what is left must not run by itself later
            self._cancel(schedules)
            raise
        finally:
            for occurrence in planned:
                on_end.pop(occurrence.id, None)
        try:
            return self._results(stage, [endings[occurrence.id] for occurrence in planned])
        finally:
            self._delete(schedules)

    def _wait(
        self,
        runner: Runner,
        stage: _Stage,
        schedules: list[Schedule],
        unfinished: list[str],
        reports: SimpleQueue[Report],
    ) -> dict[str, Ending]:
        """Wait until all have ended, here or in another process."""
        self._scheduler._declarations.create(schedules)
        for occurrence_id in unfinished:
            runner.call(partial(_fetch, occurrence_id))
        endings: dict[str, Ending] = {}
        polls: Counter[str] = Counter()
        while unfinished:
            was_alive = runner.is_alive
            for occurrence_id, assignment in self._next_reports(runner, unfinished, reports):
                stored = self._scheduler._store.occurrence(occurrence_id)
                if stored is None or stored.phase not in FINAL:
                    continue
                polls[occurrence_id] += assignment is None
                is_patient = polls[occurrence_id] < MAX_POLLS
                if assignment is None and is_patient and ran_here(self._scheduler._runtime, runner, stored):
                    continue  # its report is on the way
                endings[occurrence_id] = stored, assignment
                if occurrence_id in unfinished:
                    unfinished.remove(occurrence_id)
                    self._tell(Progress(stage.name, len(endings), len(schedules)))
            if not was_alive and unfinished:
                raise Conflict("the scheduler was stopped before the pipeline had ended")
        return endings

    def _cancel(self, schedules: list[Schedule]) -> None:
        for schedule in schedules:
            with suppress(NoonmarkError):
                self._scheduler.cancel(schedule.schedule_id)

    def _delete(self, schedules: list[Schedule]) -> None:
        """Delete the schedules of a stage that has ended. If that fails, its results still count."""
        try:
            for schedule in schedules:
                with suppress(NotFound):
                    schedule_edits.delete(self._scheduler._store, schedule.uid)
        except NoonmarkError:
            logger.warning("schedules of a pipeline could not be deleted", exc_info=True)

    def _tell(self, progress: Progress) -> None:
        """Call `on_progress`; an error of it is logged, and stops nothing."""
        if self._on_progress is not None:
            try:
                self._on_progress(progress)
            except Exception:
                logger.exception("on_progress failed")

    def _next_reports(self, runner: Runner, unfinished: list[str], reports: SimpleQueue[Report]) -> list[Report]:
        """The next run that ended here; from time to time, those that another process may have taken, or lost."""
        try:
            return [reports.get(timeout=POLL_SECONDS)]
        except Empty:
            deliveries = runner.loop.driver.node.deliveries
            elsewhere = [occurrence_id for occurrence_id in unfinished if occurrence_id not in deliveries]
        for occurrence_id in elsewhere:
            if runner.is_alive and not runner.loop.is_stopping:
                runner.call(partial(_fetch, occurrence_id))
        return [(occurrence_id, None) for occurrence_id in elsewhere]

    def _results(self, stage: _Stage, endings: list[Ending]) -> list[Any]:
        results: list[Any] = []
        errors: list[BaseException] = []
        for stored, assignment in endings:
            try:
                results.append(result_of(self._scheduler._runtime, stored, assignment))
            except BaseException as error:  # noqa: BLE001 - any error of the function
                errors.append(error)
        if errors:
            raise PipelineError(stage.name, errors) from errors[0]
        return results


def _report(reports: SimpleQueue[Report], occurrence_id: str, assignment: Assignment | None) -> None:
    reports.put((occurrence_id, assignment))


async def _fetch(occurrence_id: str, loop: Loop) -> None:
    await loop.fetch(occurrence_id)
