"""Pipelines: functions in stages, one stage after another, those of a stage side by side."""

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

from noonmark.core.errors import Conflict, InvalidSchedule, NoonmarkError, PipelineError
from noonmark.core.lifecycle import FINAL
from noonmark.core.planner import first_plan
from noonmark.embedded.references import check_callable, check_name
from noonmark.embedded.running import answer, ran_here
from noonmark.embedded.settings import LOOK_EVERY
from noonmark.embedded.threads import in_thread
from noonmark.wiring import fresh_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.driver.loop import Loop
    from noonmark.embedded.asynchronous import AsyncScheduler
    from noonmark.embedded.engine import AnyEngine
    from noonmark.embedded.scheduler import Scheduler
    from noonmark.ports.target import Assignment

    Ended = tuple[str, Assignment | None]

logger = logging.getLogger("noonmark.pipeline")
PATIENCE = 20
"""So many looks between the end of a run in the store and the news of it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One more function of a stage has ended."""

    stage: str | int
    """Its name, or its number from 0 on."""
    finished: int
    """How many functions of the stage have ended, well or badly."""
    of: int
    """How many it has."""


@dataclass(frozen=True, slots=True)
class _Stage:
    name: str | int
    functions: tuple[Callable[..., Any], ...]


class JobPipeline:
    """Runs functions through the ledger of a scheduler, each as a job that runs once. Works without `start` too."""

    def __init__(
        self, scheduler: Scheduler | AsyncScheduler, on_progress: Callable[[Progress], None] | None = None
    ) -> None:
        """It has no stages yet. `on_progress` is called whenever one more function has ended."""
        self._scheduler = scheduler.blocking
        self._on_progress = on_progress
        self._stages: list[_Stage] = []

    def add_stage(self, *funcs: Callable[..., Any], name: str | None = None) -> Self:
        """Add functions that begin together, when everything before them has succeeded."""
        if not funcs:
            raise InvalidSchedule("a stage needs at least one function", field="funcs")
        for func in funcs:
            check_callable(func)
        if name is not None:
            check_name("name", name)
        self._stages.append(_Stage(len(self._stages) if name is None else name, funcs))
        return self

    async def run(self) -> list[list[Any]]:
        """The same as `run_sync`, for a program with an event loop. When it is cancelled, no later stage begins."""
        self._scheduler.settle_here()
        is_given_up = threading.Event()
        try:
            return await in_thread(self._go, is_given_up)
        except asyncio.CancelledError:
            is_given_up.set()
            raise

    def run_sync(self) -> list[list[Any]]:
        """Run all stages and return the results, a list for each stage; PipelineError when a function has failed.

        The other functions of its stage are waited for, and nothing after it begins.
        """
        return self._go(threading.Event())

    def _go(self, is_given_up: threading.Event) -> list[list[Any]]:
        stages = tuple(self._stages)
        for stage in stages:  # nothing runs if something cannot
            for func in stage.functions:
                self._scheduler.desk.new(func)
        return self._scheduler.with_engine(lambda engine: self._run(engine, stages, is_given_up)) if stages else []

    def _run(self, engine: AnyEngine, stages: tuple[_Stage, ...], is_given_up: threading.Event) -> list[list[Any]]:
        if engine.is_own_thread:
            raise Conflict("the event loop that runs the functions cannot wait for them: use await run()")
        key = fresh_id(self._scheduler.runtime.clock)
        results: list[list[Any]] = []
        for stage in stages:
            if is_given_up.is_set():
                raise Conflict("whoever waited for the pipeline has given up")
            results.append(self._run_stage(engine, stage, key))
        return results

    def _run_stage(self, engine: AnyEngine, stage: _Stage, key: str) -> list[Any]:
        desk, timing = self._scheduler.desk, self._scheduler.runtime.timing
        labels = {"pipeline": key, "stage": str(stage.name)[:256]}
        made = [desk.new(func, labels=labels) for func in stage.functions]
        begun = [first_plan(one, lookahead=timing.lookahead).planned[0] for one in made]
        ended: SimpleQueue[Ended] = SimpleQueue()
        on_end = engine.loop.driver.node.on_end
        on_end.update({one.id: partial(_note, ended, one.id) for one in begun})
        try:
            endings = self._wait(engine, stage, made, {one.id: one for one in begun}, ended)
        except BaseException:  # nobody waits any more: what is left must not run by itself, later
            self._abandon(made)
            raise
        finally:
            for one in begun:
                on_end.pop(one.id, None)
        return self._results(stage, [endings[one.id] for one in begun])

    def _wait(
        self,
        engine: AnyEngine,
        stage: _Stage,
        made: list[Schedule],
        open_ones: dict[str, Occurrence],
        ended: SimpleQueue[Ended],
    ) -> dict[str, tuple[Occurrence, Assignment | None]]:
        """Wait until all have ended, here or in another process."""
        self._scheduler.desk.keep(made)
        for one in open_ones:
            engine.call(partial(_fetch, one))
        endings: dict[str, tuple[Occurrence, Assignment | None]] = {}
        looks: Counter[str] = Counter()
        while open_ones:
            was_alive = engine.is_alive
            for one, assignment in self._news(engine, open_ones, ended):
                stored = self._scheduler.runtime.store.occurrence(one)
                if stored is None or stored.phase not in FINAL:
                    continue
                looks[one] += assignment is None
                if assignment is None and looks[one] < PATIENCE and ran_here(self._scheduler.runtime, engine, stored):
                    continue  # the news of it is on the way
                endings[one] = stored, assignment
                if open_ones.pop(one, None) is not None:
                    self._tell(Progress(stage.name, len(endings), len(made)))
            if not was_alive and open_ones:
                raise Conflict("the scheduler was stopped before the pipeline had ended")
        return endings

    def _abandon(self, made: list[Schedule]) -> None:
        for one in made:
            with suppress(NoonmarkError):
                self._scheduler.cancel(one.schedule_id)

    def _tell(self, progress: Progress) -> None:
        """Let the caller know. A callback that raises breaks its promise, and nothing else."""
        if self._on_progress is not None:
            try:
                self._on_progress(progress)
            except Exception:
                logger.exception("on_progress failed")

    def _news(self, engine: AnyEngine, open_ones: dict[str, Occurrence], ended: SimpleQueue[Ended]) -> list[Ended]:
        """The next that ended here; now and then, those that another process may have taken, or lost."""
        try:
            return [ended.get(timeout=LOOK_EVERY)]
        except Empty:
            deliveries = engine.loop.driver.node.deliveries
            elsewhere = [one for one in open_ones if one not in deliveries]
        for one in elsewhere:
            if engine.is_alive and not engine.loop.is_stopping:
                engine.call(partial(_fetch, one))
        return [(one, None) for one in elsewhere]

    def _results(self, stage: _Stage, endings: list[tuple[Occurrence, Assignment | None]]) -> list[Any]:
        results: list[Any] = []
        errors: list[BaseException] = []
        for stored, assignment in endings:
            try:
                results.append(answer(self._scheduler.runtime, stored, assignment))
            except BaseException as error:  # noqa: BLE001 - whatever the function raised
                errors.append(error)
        if errors:
            raise PipelineError(stage.name, errors) from errors[0]
        return results


def _note(ended: SimpleQueue[Ended], one: str, assignment: Assignment | None) -> None:
    ended.put((one, assignment))


async def _fetch(one: str, loop: Loop) -> None:
    await loop.fetch(one)
