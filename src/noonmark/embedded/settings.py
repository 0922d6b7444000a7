"""Settings: what a scheduler is given when it is made, and small arguments of its methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.errors import InvalidSchedule
from noonmark.core.instants import SECOND
from noonmark.core.signatures import KeySettings, read_signing_key

if TYPE_CHECKING:
    from noonmark.core.instants import Micros

MAX_SECONDS = 1e10
LAST_MOMENT = 1.0
"""Seconds that what runs has to end, when the program was interrupted or cancelled in a `with` block."""
LOOK_EVERY = 0.25
"""Seconds between two looks of a thread that waits, whether what it waits for can still come about."""


def key_argument(signing_key: object) -> KeySettings:
    """What is said of the key that requests are signed with; None for nothing."""
    try:
        return KeySettings(signing_key=None if signing_key is None else read_signing_key(signing_key))
    except ValueError as error:
        raise InvalidSchedule(str(error), field="signing_key") from None


def limit_argument(limit: object) -> int | None:
    """How many of something are asked for; None is for all."""
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise InvalidSchedule(f"must be a whole number from 0 on, or None for all, not {limit!r}", field="limit")
    return limit


def whole_number(field: str, number: object, *, high: int | None = None) -> int:
    """A whole number from 1 on."""
    if isinstance(number, int) and not isinstance(number, bool) and number >= 1 and (high is None or number <= high):
        return number
    allowed = "from 1 on" if high is None else f"from 1 to {high:,}"
    raise InvalidSchedule(f"must be a whole number {allowed}, not {number!r}", field=field)


def duration(field: str, number: object, *, unit: int = 1, low: float = 0.001) -> Micros:
    """A length of time, given in so many seconds."""
    if not isinstance(number, int | float) or isinstance(number, bool) or not low <= number * unit <= MAX_SECONDS:
        raise InvalidSchedule(f"must be a number from {low:g} to {MAX_SECONDS / unit:g}, not {number!r}", field=field)
    return int(number * unit * SECOND)


def patience(error: type[BaseException] | None) -> float | None:
    """How long to wait for what runs when a block was left: no longer than a moment if the program is to end."""
    return None if error is None or issubclass(error, Exception) else LAST_MOMENT
