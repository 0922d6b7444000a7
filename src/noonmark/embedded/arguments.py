"""Arguments of a scheduler and its methods that are not part of a schedule: what each may be."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import InvalidSchedule, NoonmarkError
from noonmark.core.instants import SECOND, parse_instant, to_micros
from noonmark.core.json_values import event_type
from noonmark.core.signatures import KeySettings, read_signing_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from noonmark.core.instants import Micros

MAX_SECONDS = 1e10
INTERRUPTED_SECONDS = 1.0
"""How long runs have to end when the program was interrupted or cancelled in a `with` block."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
POLL_SECONDS = 0.25
"""How often a waiting thread checks whether what it waits for can still happen."""


@contextmanager
def renamed_fields(**names: str) -> Iterator[None]:
    """Let errors about arguments of an operation name those of the method."""
    try:
        yield
    except NoonmarkError as error:
        error.field = names.get(error.field, error.field)
        if isinstance(error, InvalidSchedule):
            error.problems = tuple(replace(one, field=names.get(one.field, one.field)) for one in error.problems)
        raise


def signing_key_argument(signing_key: object) -> KeySettings:
    """The key that requests are signed with, if it is given."""
    try:
        return KeySettings(signing_key=None if signing_key is None else read_signing_key(signing_key))
    except ValueError as error:
        raise InvalidSchedule(str(error), field="signing_key") from None


def limit_argument(limit: object) -> int | None:
    """How many entries to return; None is all."""
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise InvalidSchedule(f"must be an integer from 0 on, or None for all, not {limit!r}", field="limit")
    return limit


def event_type_argument(value: object) -> str | None:
    """The type of the events; None for all."""
    try:
        return None if value is None else event_type(value)
    except ValueError as error:
        raise InvalidSchedule(str(error), field="event_type") from None


def instant_argument(field: str, value: Any) -> Micros:
    """An aware datetime."""
    return _instant(field, value, to_micros)


def instant_or_text_argument(field: str, value: Any) -> Micros:
    """An aware datetime, or an instant as text."""
    return _instant(field, value, parse_instant if isinstance(value, str) else to_micros)


def _instant(field: str, value: Any, read: Callable[[Any], Micros]) -> Micros:
    try:
        return read(value)
    except ValueError as error:
        raise InvalidSchedule(str(error), field=field) from None


def count_argument(field: str, number: object, *, high: int | None = None) -> int:
    """An integer from 1 on."""
    if isinstance(number, int) and not isinstance(number, bool) and number >= 1 and (high is None or number <= high):
        return number
    allowed = "from 1 on" if high is None else f"from 1 to {high:,}"
    raise InvalidSchedule(f"must be an integer {allowed}, not {number!r}", field=field)


def duration_argument(field: str, number: object, *, unit: int = 1, low: float = 0.001) -> Micros:
    """A length of time, as a number of units of that many seconds or as a `timedelta`."""
    if isinstance(number, timedelta):
        number = number.total_seconds() / unit
    if not isinstance(number, int | float) or isinstance(number, bool) or not low <= number * unit <= MAX_SECONDS:
        raise InvalidSchedule(f"must be a number from {low:g} to {MAX_SECONDS / unit:g}, not {number!r}", field=field)
    return int(number * unit * SECOND)


def exit_timeout(error: type[BaseException] | None) -> float | None:
    """How long a `with` block waits for runs at its end: a moment when the program is about to exit."""
    return None if error is None or issubclass(error, Exception) else INTERRUPTED_SECONDS
