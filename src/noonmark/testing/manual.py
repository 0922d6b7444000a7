"""The manual driver: due work runs when the test says so, in the thread of the test, at the time of its clock."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from noonmark.core.instants import from_micros, to_micros
from noonmark.driver.driver import Driver
from noonmark.ports.events import Settled
from noonmark.targets.composite import CompositeTarget
from noonmark.targets.function.runner import InlineRunner
from noonmark.targets.workflow.runner import WorkflowRunner
from noonmark.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from datetime import datetime

    from noonmark.core.run import Run
    from noonmark.embedded.async_scheduler import AsyncScheduler
    from noonmark.embedded.scheduler import Scheduler
    from noonmark.ports.events import DriverEvent, EventSink

T = TypeVar("T")


class ManualDriver:
    """Runs what is due of a scheduler that was made with a `FakeClock` and is not started."""

    def __init__(self, scheduler: Scheduler | AsyncScheduler) -> None:
        """Nothing runs until a method is called."""
        scheduler = scheduler.blocking
        runtime = scheduler._runtime
        if not isinstance(runtime.clock, FakeClock):
            raise TypeError(
                "ManualDriver needs a scheduler with a clock that stands still: Scheduler(clock=FakeClock(..))"
            )
        scheduler._open()
        self._clock = runtime.clock
        self._record = _Record(runtime.sink)
        # Nothing is claimed or committed ahead of its time: time moves only between two calls.
        timing = replace(runtime.timing, lookahead=0, early=0)
        workflows = WorkflowRunner(runtime.store, is_inline=True)
        target = CompositeTarget({"function": InlineRunner(scheduler._functions), "workflow": workflows})
        workflows.attach(target)
        self._driver = Driver(replace(runtime, target=target, sink=self._record, timing=timing))
        target.open(self._driver.report, self._driver.node.store_clock.now)
        run_inline(self._driver.node.confirm_time())  # the test says what time it is

    def run_due(self) -> list[Run]:
        """Run everything that is due by now, and what falls due because of it; gives the runs, in order."""
        before = len(self._record.runs)
        while run_inline(self._step()):
            pass
        return self._record.runs[before:]

    def run_until(self, instant: datetime) -> list[Run]:
        """Let time pass until an instant, and run everything at the time it is due; gives the runs, in order."""
        before, end = len(self._record.runs), to_micros(instant)
        self.run_due()
        while (time := run_inline(self._driver.next_time())) is not None and time <= end:
            if time <= self._clock.micros():
                raise RuntimeError("something is due, but this process cannot run it")
            self._clock.move_to(from_micros(time))
            self.run_due()
        self._clock.move_to(instant)
        self.run_due()  # what nobody can serve has no time of its own
        return self._record.runs[before:]

    async def _step(self) -> bool:
        """Each duty once; whether there may be more to do."""
        driver = self._driver
        reaped = await driver.reap_once()
        matched = await driver.match_once()
        planned = await driver.plan_once()
        claimed = await driver.claim_once()
        await driver.admit_once()
        settled = await driver.settle_once()
        counts = (matched.matched, planned.planned, claimed.claimed, settled.settled, reaped.overdue, reaped.orphans)
        return any(counts)


def run_inline(step: Coroutine[Any, Any, T]) -> T:
    """Run a step of a driver without an executor to its end. It never suspends, so it needs no event loop."""
    try:
        step.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    step.close()
    raise RuntimeError("the step suspended, and there is no event loop to resume it")


class _Record:
    """Keeps the runs, and passes everything on."""

    def __init__(self, then: EventSink | None) -> None:
        self.runs: list[Run] = []
        self._then = then

    def report(self, events: Sequence[DriverEvent]) -> None:
        """Take note."""
        self.runs += [one.run for one in events if isinstance(one, Settled)]
        if self._then is not None:
            self._then.report(events)
