"""Assignments for tests of targets."""

from dataclasses import replace

from noonmark.clocks import SystemClock
from noonmark.core.ids import manual
from noonmark.core.targets import Executor, FunctionTarget
from noonmark.ports.target import Assignment
from noonmark.testing import factories

now = SystemClock().micros
SOON = 30.0
"""Seconds that anything may take on a busy machine."""


class Clock:
    """The system clock, until a test halts or advances it, so that nothing depends on the speed of the test."""

    def __init__(self):
        self._ahead, self._halted_at = 0, None

    def __call__(self):
        return (now() if self._halted_at is None else self._halted_at) + self._ahead

    def halt(self):
        """Stop the clock."""
        self._halted_at = now()

    def go_on(self):
        self._halted_at = None

    def advance(self, micros):
        self._ahead += micros


def function_assignment(
    key="one",
    function="work",
    args=(),
    kwargs=None,
    after=0,
    *,
    payload=None,
    origin=None,
    given=None,
    executor=Executor.THREAD,
    source="embedded",
    **declared,
):
    """Make the assignment of a function call, due after a delay; `given` is the payload of the schedule."""
    begins = now() + after
    target = FunctionTarget(function=function, args=tuple(args), kwargs=kwargs or {}, payload=given, executor=executor)
    schedule = replace(factories.schedule(target=target, **declared), source=source)
    occurrence = factories.occurrence(schedule, origin or manual(str(key)), nominal=begins, attempt=1, payload=payload)
    return Assignment(occurrence, schedule, begins=begins)
