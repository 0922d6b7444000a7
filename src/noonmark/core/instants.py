"""Instants: integer microseconds since the epoch, and their conversion to `datetime` and RFC 3339 text.

Everything inside the core counts in `Micros`. Aware datetimes and text exist only at the edge, and they are
truncated to microseconds exactly once, here.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import isfinite

Micros = int
"""Microseconds since 1970-01-01T00:00:00Z, or a length of time in microseconds."""

SECOND: Micros = 1_000_000
HOUR: Micros = 3_600 * SECOND
DAY_SECONDS = 86_400
DAY: Micros = DAY_SECONDS * SECOND
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
MIN_INSTANT: Micros = -62_135_596_800 * SECOND
MAX_INSTANT: Micros = 253_402_300_800 * SECOND - 1
"""The first and last instant that a `datetime` can show: years 1 to 9999."""

NAIVE = "must be a datetime with a time zone, such as tzinfo=UTC, within the years 1 to 9999"
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,18}))?(?:[Zz]|([+-])(\d\d):(\d\d))",
    re.ASCII,
)


def to_micros(instant: datetime) -> Micros:
    """The instant's place on the time line; a naive datetime raises ValueError."""
    try:
        delta = instant - EPOCH
    except TypeError:  # not a datetime, or a naive one
        raise ValueError(NAIVE) from None
    micros = (delta.days * DAY_SECONDS + delta.seconds) * SECOND + delta.microseconds
    if not MIN_INSTANT <= micros <= MAX_INSTANT:
        raise ValueError(NAIVE)
    return micros


def from_micros(micros: Micros) -> datetime:
    """The same instant as an aware UTC datetime."""
    return EPOCH + micros * MICROSECOND


def to_text(micros: Micros) -> str:
    """RFC 3339 in UTC with a `Z`; six decimals, or none for a whole second."""
    return from_micros(micros).isoformat().replace("+00:00", "Z")


def parse_instant(text: object) -> Micros:
    """Read RFC 3339 with `Z` or an offset; digits beyond microseconds are dropped. Raises ValueError."""
    match = _RFC3339.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError("must be an RFC 3339 instant with Z or an offset, such as 2026-04-21T09:00:00Z")
    year, month, day, hour, minute, second, fraction, sign, zone_hours, zone_minutes = match.groups()
    micros = int((fraction or "0").ljust(6, "0")[:6])
    offset = 0
    if sign:
        if int(zone_hours) > 23 or int(zone_minutes) > 59:
            raise ValueError("has an offset outside -23:59 to +23:59")
        offset = (int(zone_hours) * 3600 + int(zone_minutes) * 60) * (-1 if sign == "-" else 1)
    try:
        local = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), micros, tzinfo=UTC)
    except ValueError as error:
        raise ValueError(f"is not a real date and time ({error})") from None
    instant = to_micros(local) - offset * SECOND
    if not MIN_INSTANT <= instant <= MAX_INSTANT:
        raise ValueError("is outside the years 1 to 9999")
    return instant


def seconds_to_micros(seconds: float) -> Micros:
    """A length of time; decimal places beyond microseconds are dropped (0.29 s is 290,000 us, not 289,999)."""
    if isinstance(seconds, int):
        return seconds * SECOND
    if not isfinite(seconds):
        raise ValueError("must be a finite number of seconds")
    return int(Decimal(repr(seconds)) * SECOND)


def micros_to_seconds(micros: Micros) -> int | float:
    """The same length as JSON shows it: an integer when it is whole."""
    whole, rest = divmod(micros, SECOND)
    return whole if rest == 0 else micros / SECOND
