"""Decorators: a function and when it runs, declared in one place."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, Unpack, cast

from noonmark.core.errors import InvalidSchedule, InvalidTrigger
from noonmark.core.triggers import CronTrigger, EventTrigger, IntervalTrigger, OnceTrigger
from noonmark.embedded.declaring import check_options
from noonmark.embedded.references import reference_to_be

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from noonmark.core.triggers import Trigger
    from noonmark.embedded.declaring import Options
    from noonmark.embedded.desk import Desk
    from noonmark.targets.function.registry import FunctionRegistry

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3_600, "days": 86_400}
_TIME = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?", re.ASCII)


class JobFunction(Protocol[P, R_co]):
    """A function that was decorated: it can be called as before, and knows the id of its job."""

    job_id: str
    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """What the function does."""


class Decorator(Protocol):
    """Takes any function, and gives it back."""

    def __call__(self, func: Callable[P, R_co], /) -> JobFunction[P, R_co]:
        """Declare it."""


class _Declares(Protocol):
    """What a decorator needs of a scheduler."""

    def _declare(self, func: Callable[..., Any], options: Mapping[str, Any]) -> str: ...

    @property
    def desk(self) -> Desk: ...

    @property
    def functions(self) -> FunctionRegistry: ...

    @property
    def _decorated(self) -> dict[str, Callable[..., Any]]: ...


class Decorators:
    """Each declares the function below it, under the name of that function unless it is given another.

    So a program that is started again finds its schedules again. A job whose decorator was taken away, or whose
    function was renamed, stays in a durable store as it was, until somebody cancels it. All other options are those of
    `schedule`. The function stays what it is, and has the id of its job as `job_id`; with several decorators, each with
    a name of its own, that of the topmost.
    """

    def cron(
        self: _Declares,
        expressions: str | Iterable[str],
        timezone: str = "UTC",
        *,
        dst: Mapping[str, str] | None = None,
        **options: Unpack[Options],
    ) -> Decorator:
        """By a cron expression, or by several."""
        return _decorator(self, lambda: CronTrigger(expressions, timezone, dst), options)

    def every(
        self: _Declares,
        seconds: float = 0,
        *,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
        **options: Unpack[Options],
    ) -> Decorator:
        """Again and again after so long, counted from the moment it was first declared."""
        return _decorator(self, lambda: every(seconds=seconds, minutes=minutes, hours=hours, days=days), options)

    def once(self: _Declares, at: datetime, **options: Unpack[Options]) -> Decorator:
        """Once, at an instant."""
        return _decorator(self, lambda: OnceTrigger(at), options)

    def daily(self: _Declares, at: str, timezone: str = "UTC", **options: Unpack[Options]) -> Decorator:
        """Every day at a time by the clock on the wall, such as 09:00 or 09:00:30."""
        return _decorator(self, lambda: daily(at, timezone), options)

    def on_event(
        self: _Declares,
        event_type: str | Iterable[str],
        filters: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> Decorator:
        """Whenever an event of the type is emitted that passes the filters."""
        return _decorator(self, lambda: EventTrigger(event_type, filters), options)


def every(**lengths: object) -> IntervalTrigger:
    """Again and again after the sum of these lengths of time."""
    total: float = 0
    for unit, length in lengths.items():
        if callable(length):
            raise InvalidTrigger("say how long, as in @scheduler.every(minutes=5)", field=unit)
        if not isinstance(length, int | float) or isinstance(length, bool):
            raise InvalidTrigger(f"must be a number, not {type(length).__name__}", field=unit)
        total += length * _SECONDS[unit]
    if total == 0:
        raise InvalidTrigger("say how long, as in @scheduler.every(minutes=5)", field="seconds")
    return IntervalTrigger(total)


def daily(at: str, timezone: str = "UTC") -> CronTrigger:
    """Every day at a time by the clock on the wall."""
    found = _TIME.fullmatch(str(at))
    if found is None:
        raise InvalidTrigger(f"must be a time of day such as 09:00 or 09:00:30, not {at!r}", field="at")
    hour, minute, second = (int(part or 0) for part in found.groups())
    return CronTrigger(f"{minute} {hour} * * *" if second == 0 else f"{second} {minute} {hour} * * *", timezone)


def _decorator(scheduler: _Declares, make: Callable[[], Trigger], options: Options) -> Decorator:
    check_options(options, ("timezone", "dst", *_SECONDS))  # first: what is misspelt may be missing in the trigger
    trigger = make()
    if options.get("trigger") is not None:
        raise InvalidSchedule("the decorator has a trigger already", field="trigger")

    def decorate(func: Callable[P, R_co], /) -> JobFunction[P, R_co]:
        # The function gets its name in its module only when the decorator has returned.
        reference = options.get("function_name") or reference_to_be(scheduler.functions, func)
        name = options.get("name") or reference
        if name is not None and scheduler._decorated.get(name) is func:  # noqa: SLF001 - a part of the scheduler
            message = f"{name} is declared a second time; give each of its jobs a name of its own with name=..."
            raise InvalidSchedule(message, field="name")
        said = {**options, "trigger": trigger, "name": name, "function_name": reference}
        job_id = scheduler._declare(func, said)  # noqa: SLF001 - likewise
        if name is not None:
            scheduler._decorated[name] = func  # noqa: SLF001 - likewise
        if name is not None and name == reference:
            scheduler.desk.warn_of_twin(func, name)
        with suppress(AttributeError, TypeError):  # not everything that can be called can be written on
            func.job_id = job_id  # type: ignore[attr-defined] # a note on the function
        return cast("JobFunction[P, R_co]", func)

    return decorate
