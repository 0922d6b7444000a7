"""Assignments for tests of targets."""

from noonmark.clocks import SystemClock
from noonmark.core.ids import manual
from noonmark.core.targets import FunctionTarget
from noonmark.ports.target import Assignment
from noonmark.testing import factories

now = SystemClock().micros
SOON = 30.0
"""Seconds that anything may take on a busy machine."""


def assigned(key="one", function="work", args=(), kwargs=None, after=0, payload=None, **declared):
    """One call of a function, to begin now or a while after."""
    begins = now() + after
    target = FunctionTarget(function=function, args=tuple(args), kwargs=kwargs or {})
    made = factories.schedule(target=target, **declared)
    one = factories.occurrence(made, manual(str(key)), nominal=begins, attempt=1, payload=payload)
    return Assignment(one, made, begins=begins)
