"""Functions called in the thread of the driver itself, one after another: for tests that stop the clock."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import TYPE_CHECKING, Any

from noonmark.targets.calls import prepare
from noonmark.targets.endings import cut_off, raised, succeeded, undeliverable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.settlement import Delivered
    from noonmark.ports.target import Assignment, Report
    from noonmark.targets.functions import Functions


class InlineRunner:
    """Delivers to the functions of this process, and returns when they have returned.

    A function that asks for a process of its own is called here too: a test that stops the clock waits for nobody.
    """

    def __init__(self, functions: Functions) -> None:
        """Nothing runs until it is opened."""
        self._functions = functions

    def routes(self) -> tuple[str, ...]:
        """One for each function."""
        return self._functions.routes()

    def adopt(self, routes: Collection[str]) -> bool:
        """Serve the functions that other processes named by module, where they can be imported here."""
        return sum(self._functions.adopt(route) for route in routes) > 0

    def open(self, report: Report, now: Callable[[], Micros]) -> None:
        """Make ready."""
        self._report, self._now = report, now

    def deliver(self, assignments: Sequence[Assignment]) -> None:
        """Call each, in order. One that has outlived its deadline when it returns was cut off."""
        for assignment in assignments:
            assignment.started = self._now()
            delivered = self._call(assignment)
            deadline = assignment.ends_by(assignment.started)
            if deadline is not None and delivered.ended >= deadline:
                delivered = cut_off(assignment, now=delivered.ended)
            assignment.is_closed = True
            self._report(assignment, delivered)

    def withdraw(self) -> list[Assignment]:
        """Nothing waits."""
        return []

    def close(self) -> None:
        """Nothing is left running."""

    def _call(self, assignment: Assignment) -> Delivered:
        try:
            function, args, kwargs = prepare(self._functions, assignment)
        except LookupError as error:
            return undeliverable(str(error.args[0]), now=self._now())
        try:
            result = function.call(*args, **kwargs)
            if inspect.iscoroutine(result):
                result = _awaited(result)
        except BaseException as error:  # noqa: BLE001 - a job must not end the scheduler
            return raised(assignment, error, now=self._now())
        return succeeded(assignment, result, now=self._now())


def _awaited(call: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - whatever the function returns
    """Run a coroutine to its end in a thread of its own, since this one may have a loop that runs."""
    answer: dict[str, Any] = {}

    def run() -> None:
        try:
            answer["result"] = asyncio.run(call)
        except BaseException as error:  # noqa: BLE001 - told to the caller
            answer["error"] = error

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if "error" in answer:
        raise answer["error"]
    return answer["result"]
