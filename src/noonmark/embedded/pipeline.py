"""Pipelines: functions in stages. Stages run one after another, the functions of a stage side by side."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections import Counter
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self, Unpack

from noonmark.core.errors import Conflict, InvalidSchedule, NoonmarkError, NotFound, PipelineError
from noonmark.core.frozen import frozen
from noonmark.core.json_values import identifier
from noonmark.core.lifecycle import FINAL
from noonmark.core.planner import first_plan
from noonmark.core.workflows.run import StepPhase
from noonmark.embedded.arguments import POLL_SECONDS
from noonmark.embedded.async_scheduler import in_thread
from noonmark.embedded.declarations import daily_at
from noonmark.embedded.references import check_callable, check_name
from noonmark.embedded.run_now import ran_here, result_of
from noonmark.embedded.workflow_runs import has_run, raise_unless_completed
from noonmark.operations import schedule_edits
from noonmark.wiring import fresh_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from zoneinfo import ZoneInfo

    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.core.triggers import Trigger
    from noonmark.driver.loop import Loop
    from noonmark.embedded.async_scheduler import AsyncScheduler
    from noonmark.embedded.documents import ScheduleOptions
    from noonmark.embedded.runners import Runner
    from noonmark.embedded.scheduler import Scheduler
    from noonmark.embedded.workflow_runs import Records
    from noonmark.ports.target import Assignment

    Report = tuple[str, Assignment | None]
    """The id of an occurrence that ended, with its run if that was in this process."""
    Ending = tuple[Occurrence, Assignment | None]

logger = logging.getLogger("noonmark.pipeline")
MAX_STEP_ID = 56
"""Characters of the id of a step; a number may follow."""
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
MAX_POLLS = 20
"""How often to look for the report of a run that has ended in the store."""


@frozen
class Progress:
    """One more function of a stage has ended."""

    stage: str | int
    """Its name, or its number from 0 on."""
    finished: int
    """How many functions of the stage have ended, with or without success."""
    of: int
    """How many it has."""


@frozen
class _Stage:
    name: str | int
    functions: tuple[Callable[..., Any], ...]


class JobPipeline:
    """Runs functions in stages, each function as a schedule that runs once. Works without `start` too.

    The schedules belong to the run: they are deleted when their stage has ended, or, if its process dies, by another
    node of the store. Their history is kept as usual.

    With a name it is durable: its functions are the steps of a workflow with that id. If its process dies, another
    node of the store goes on with the run, and repeats only functions that had not ended.
    """

    def __init__(
        self,
        scheduler: Scheduler | AsyncScheduler,
        on_progress: Callable[[Progress], None] | None = None,
        name: str | None = None,
    ) -> None:
        """It has no stages yet. `on_progress` is called whenever one more function has ended."""
        self._scheduler = scheduler.blocking
        self._on_progress = on_progress
        self._stages: list[_Stage] = []
        self._workflow_id = None if name is None else _workflow_id(name)

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

    def schedule(self, trigger: Trigger, **options: Unpack[ScheduleOptions]) -> str:
        """Create a schedule that runs a named pipeline, and return its id; the options are those of `schedule`.

        The schedule has the name of the pipeline. The same declaration again changes nothing.
        """
        if self._workflow_id is None:
            raise InvalidSchedule(
                "only a pipeline with a name can be scheduled: JobPipeline(.., name=..)", field="name"
            )
        self._store_workflow(self._workflow_id)
        target = {"target_kind": "workflow", "workflow_id": self._workflow_id}
        return self._scheduler._declare_target(target, {**options, "name": self._workflow_id, "trigger": trigger})

    def daily(self, at: str, timezone: str | ZoneInfo = "UTC", **options: Unpack[ScheduleOptions]) -> str:
        """Run a named pipeline every day at a local time such as 09:00; returns the id of the schedule."""
        return self.schedule(daily_at(at, timezone), **options)

    def _run(self, is_cancelled: threading.Event) -> list[list[Any]]:
        stages = tuple(self._stages)
        if not stages:
            return []
        if self._workflow_id is not None:
            return self._run_workflow(self._workflow_id, stages, is_cancelled)
        self._scheduler._open()
        for stage in stages:  # nothing runs if one of them is invalid
            for func in stage.functions:
                self._scheduler._declarations.new(func, {})
        return self._scheduler._with_runner(lambda runner: self._run_stages(runner, stages, is_cancelled))

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

    def _store_workflow(self, workflow_id: str) -> int:
        """Store the stages as a workflow, and return its version."""
        return self._scheduler.create_workflow(_definition(workflow_id, tuple(self._stages)))

    def _run_workflow(
        self, workflow_id: str, stages: tuple[_Stage, ...], is_cancelled: threading.Event
    ) -> list[list[Any]]:
        """Run the stages as a workflow. A caller that no longer waits cancels it; a process that dies does not."""
        run_ids: set[str] = set()
        cancelled: set[str] = set()
        step_ids = _step_ids(stages)
        reported_steps: set[str] = set()

        def look(run_id: str, records: Records) -> None:
            run_ids.add(run_id)
            if is_cancelled.is_set() and run_id not in cancelled:
                cancelled.add(run_id)
                with suppress(NoonmarkError):  # it may have ended
                    self._scheduler.cancel_workflow_run(run_id)
            self._tell_ends(stages, step_ids, records, reported_steps)

        version = self._store_workflow(workflow_id)
        try:
            run = self._scheduler._run_workflow(workflow_id, None, version, None, look)
        except KeyboardInterrupt:
            with suppress(NoonmarkError):
                for run_id in run_ids:
                    self._scheduler.cancel_workflow_run(run_id)
            raise
        for stage, ids in zip(stages, step_ids, strict=True):
            if errors := [run.error_of(step_id) for step_id in ids if run.phase_of(step_id) is StepPhase.FAILED]:
                raise PipelineError(stage.name, errors) from errors[0]
        raise_unless_completed(run)
        results = run.results()
        return [[results[step_id] for step_id in ids] for ids in step_ids]

    def _tell_ends(
        self, stages: Sequence[_Stage], step_ids: Sequence[Sequence[str]], records: Records, reported_steps: set[str]
    ) -> None:
        """Report the functions that have ended since the last time."""
        for stage, ids in zip(stages, step_ids, strict=True):
            for step_id in ids:
                record = records.get((step_id, None))
                if record is not None and has_run(record) and step_id not in reported_steps:
                    reported_steps.add(step_id)
                    self._tell(Progress(stage.name, len(reported_steps.intersection(ids)), len(ids)))

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


def _workflow_id(name: object) -> str:
    try:
        return identifier(name)
    except ValueError as error:
        raise InvalidSchedule(str(error), field="name") from None


def _step_ids(stages: Sequence[_Stage]) -> list[list[str]]:
    """An id for each function of each stage: the stage and the function, and a number where that is not enough."""
    name_counts: Counter[str] = Counter()
    return [[_step_id(stage, func, name_counts) for func in stage.functions] for stage in stages]


def _step_id(stage: _Stage, func: Callable[..., Any], name_counts: Counter[str]) -> str:
    plain = _NOT_IN_IDS.sub("_", f"{stage.name}-{getattr(func, '__name__', 'step')}")[:MAX_STEP_ID]
    name_counts[plain] += 1
    return plain if name_counts[plain] == 1 else f"{plain}--{name_counts[plain]}"


def _definition(workflow_id: str, stages: Sequence[_Stage]) -> dict[str, Any]:
    """The stages as a workflow: each function depends on all of the stage before."""
    step_ids, steps = _step_ids(stages), []
    before: list[str] = []
    for stage, ids in zip(stages, step_ids, strict=True):
        for step_id, func in zip(ids, stage.functions, strict=True):
            steps.append({"id": step_id, "target": func, "depends_on": before})
        before = ids
    return {"workflow_id": workflow_id, "inputs": {}, "steps": steps, "on_failure": "continue"}


def _report(reports: SimpleQueue[Report], occurrence_id: str, assignment: Assignment | None) -> None:
    reports.put((occurrence_id, assignment))


async def _fetch(occurrence_id: str, loop: Loop) -> None:
    await loop.fetch(occurrence_id)
