"""Decorators: a function and its schedule, declared in one place."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

from noonmark.core.errors import InvalidTrigger
from noonmark.core.triggers import CronTrigger, IntervalTrigger
from noonmark.core.triggers.interval import UNITS

if TYPE_CHECKING:
    from collections.abc import Callable
    from zoneinfo import ZoneInfo

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

_TIME = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?", re.ASCII)


class JobFunction(Protocol[P, R_co]):
    """A decorated function: it is called as before, and has the id of its schedule."""

    job_id: str
    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function."""


class Decorator(Protocol):
    """Declares the function below it, under the name of that function unless another is given.

    So a program that is started again finds its schedules again. A schedule whose decorator was removed, or whose
    function was renamed, stays in a durable store until it is cancelled. The other options are those of `schedule`. The
    function stays what it is, and has the id of its schedule as `job_id`. Several decorators on one function need
    different names, and `job_id` is that of the topmost.
    """

    def __call__(self, func: Callable[P, R_co], /) -> JobFunction[P, R_co]:
        """Declare it."""


def interval_of(**lengths: object) -> IntervalTrigger:
    """The trigger of `every`: the sum of these lengths of time."""
    total: float = 0
    for unit, given in lengths.items():
        length = given.total_seconds() if unit == "seconds" and isinstance(given, timedelta) else given
        if callable(length):
            raise InvalidTrigger("give a length of time, as in @scheduler.every(minutes=5)", field=unit)
        if not isinstance(length, int | float) or isinstance(length, bool):
            raise InvalidTrigger(f"must be a number, not {type(length).__name__}", field=unit)
        total += length * UNITS[unit]
    if total == 0:
        raise InvalidTrigger("give a length of time, as in @scheduler.every(minutes=5)", field="seconds")
    return IntervalTrigger(total)


def daily_at(at: str, timezone: str | ZoneInfo = "UTC") -> CronTrigger:
    """The trigger of `daily`: a time of day by the local clock."""
    found = _TIME.fullmatch(str(at))
    if found is None:
        raise InvalidTrigger(f"must be a time of day such as 09:00 or 09:00:30, not {at!r}", field="at")
    hour, minute, second = (int(part or 0) for part in found.groups())
    return CronTrigger(f"{minute} {hour} * * *" if second == 0 else f"{second} {minute} {hour} * * *", timezone)
