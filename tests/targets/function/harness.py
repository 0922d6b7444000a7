"""A function runner on an event loop."""

import asyncio
from contextlib import suppress

from noonmark.targets.function.registry import FunctionRegistry
from noonmark.targets.function.runner import FunctionRunner
from tests.targets.assignments import SOON, Clock, function_assignment


class RunnerHarness:
    """A function runner on an event loop, and its reports."""

    def __init__(self, max_threads=16, max_processes=2):
        self.functions = FunctionRegistry()
        self.runner = FunctionRunner(self.functions, max_threads, max_processes)
        self.reported, self.clock = {}, Clock()
        self._loop, self._news = asyncio.get_running_loop(), asyncio.Event()
        self.runner.open(self._report, self.clock)

    def _report(self, assignment, delivered):
        assert assignment not in self.reported
        self.reported[assignment] = delivered
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._news.set)

    async def until(self, is_so):
        async with asyncio.timeout(SOON):
            while not is_so():
                self._news.clear()
                await self._news.wait()

    async def end_of(self, assignment):
        await self.until(lambda: assignment in self.reported)
        return self.reported[assignment]

    async def deliver(self, call, /, **options):
        self.functions.register("work", call)
        assignment = function_assignment(**options)
        self.runner.deliver([assignment])
        return assignment

    async def call(self, call, /, **options):
        return await self.end_of(await self.deliver(call, **options))


def run_scenario(scenario, **settings):
    """Run an async scenario with a harness that is closed at the end; return its result."""

    async def run():
        harness = RunnerHarness(**settings)
        try:
            return await scenario(harness)
        finally:
            harness.runner.close()

    return asyncio.run(run())
