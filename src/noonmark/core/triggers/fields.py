"""One field of a cron expression: its grammar, its names, its range.

`parse_field` turns text such as `1-5,*/15`, `MON#2` or `LW` into a `FieldSet`. Every refusal is a ValueError whose
message names the field and what it allows.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, NoReturn

from noonmark.core.ids import fraction
from noonmark.core.jsonvalues import shown

_HASHED = re.compile(r"H(?:\((\d{1,4})-(\d{1,4})\))?", re.ASCII)
_LAST = re.compile(r"L(?:-(\d{1,4}))?", re.ASCII)
_NEAREST = re.compile(r"(\d{1,4})W", re.ASCII)
_NTH = re.compile(r"(\w{1,9})#(\w{1,9})", re.ASCII)
_LAST_OF = re.compile(r"(\w{1,9})L", re.ASCII)
MAX_NTH = 5
SUNDAY_AGAIN = 7


class FieldSet(NamedTuple):
    """The values a field names; the day fields also have values that depend on the month."""

    values: tuple[int, ...]
    starred: bool = False
    """Begins with `*` (or is `?`): such a day field does not restrict the day on its own."""
    hashed: bool = False
    """Uses `H`, so the values depend on the key."""
    last_offsets: frozenset[int] = frozenset()
    """Days counted back from the last of the month: `L` is 0, `L-3` is 3."""
    nearest: frozenset[int] = frozenset()
    """Days whose nearest weekday is meant: `15W`."""
    last_weekday: bool = False
    """`LW`."""
    last_of: frozenset[int] = frozenset()
    """Weekdays whose last one of the month is meant: `5L`."""
    nth: frozenset[tuple[int, int]] = frozenset()
    """Weekdays counted within the month: `MON#2` is (1, 2)."""


class Field:
    """What one place of an expression may hold: a range of numbers, and names for some of them."""

    def __init__(self, name: str, low: int, high: int, *, names: str = "", hash_high: int, special: str = "") -> None:
        """`names` are full names in order from `low`; `special` is what else is allowed, in words."""
        self.name = name
        self.low = low
        self.high = high
        self.hash_high = hash_high
        self.names = tuple(name[:3] for name in names.split())
        self.numbers = {str(value): value for value in range(low, high + 1)}
        for value, full in enumerate(names.split(), low):
            self.numbers |= {full: value, full[:3]: value}
        # Sunday has two numbers; as a value it is always 0.
        self.sunday = high if high == SUNDAY_AGAIN else None
        self.words = {text: FieldSet((0 if value == self.sunday else value,)) for text, value in self.numbers.items()}
        every = tuple(range(low, high + (self.sunday is None)))
        self.words["*"] = FieldSet(every, starred=True)
        self.special = special
        if special:
            self.words["?"] = self.words["*"]

    def refuse(self, item: str, why: str) -> NoReturn:
        """Say no, naming the field, the text, and the allowed range."""
        names = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
        raise ValueError(
            f"{self.name} field {shown(item)}: {why}; allowed are {self.low}-{self.high}{names}{self.special}"
        )


MONTHS = "JANUARY FEBRUARY MARCH APRIL MAY JUNE JULY AUGUST SEPTEMBER OCTOBER NOVEMBER DECEMBER"
WEEKDAYS = "SUNDAY MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY"

SECOND = Field("second", 0, 59, hash_high=59)
MINUTE = Field("minute", 0, 59, hash_high=59)
HOUR = Field("hour", 0, 23, hash_high=23)
DAY_OF_MONTH = Field("day of month", 1, 31, hash_high=28, special=", L, L-n, LW and nW")
MONTH = Field("month", 1, 12, names=MONTHS, hash_high=12)
DAY_OF_WEEK = Field("day of week", 0, 7, names=WEEKDAYS, hash_high=6, special=", nL and n#k")
FIELDS = (SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)


def parse_field(field: Field, text: str, key: str) -> FieldSet:
    """Read one field that is no word, already in capitals; `key` is what `H` hashes."""
    low, _, high = text.partition("-")
    if low in field.numbers and high in field.numbers:  # the plain range, which most fields are that are no word
        return FieldSet(_values(field, _range(field, text, field.numbers[low], field.numbers[high])))
    items = text.split(",")
    special: dict[str, Any] = {}
    if field is DAY_OF_MONTH and ("L" in text or "W" in text):
        items, special = _special_days(items)
    elif field is DAY_OF_WEEK and ("L" in text or "#" in text):
        items, special = _special_weekdays(items)
    values = _values(field, *(_plain(field, item, key) for item in items))
    return FieldSet(values, text.startswith("*"), text.startswith("H") or ",H" in text, **special)


def _values(field: Field, *ranges: range) -> tuple[int, ...]:
    """Sorted, each once, and Sunday as 0."""
    values = tuple(ranges[0]) if len(ranges) == 1 else tuple(sorted(set().union(*ranges)))
    return tuple(sorted({value % SUNDAY_AGAIN for value in values})) if field.sunday in values else values


def _range(field: Field, item: str, low: int, high: int, step: int = 1) -> range:
    if high < low:
        field.refuse(item, "the range descends; write it as two ranges")
    return range(low, high + 1, step)


def _special_days(items: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Take `L`, `L-n`, `LW` and `nW` out of a day of month field; the rest is plain."""
    plain: list[str] = []
    offsets: set[int] = set()
    nearest: set[int] = set()
    for item in items:
        if match := _LAST.fullmatch(item):
            offset = int(match[1] or 0)
            if offset >= DAY_OF_MONTH.high:
                DAY_OF_MONTH.refuse(item, "no month has that many days before its last")
            offsets.add(offset)
        elif match := _NEAREST.fullmatch(item):
            nearest.add(_value(DAY_OF_MONTH, match[1], item))
        elif item != "LW":
            plain.append(item)
    return plain, {
        "last_offsets": frozenset(offsets),
        "nearest": frozenset(nearest),
        "last_weekday": "LW" in items,
    }


def _special_weekdays(items: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Take `nL` and `n#k` out of a day of week field; the rest is plain."""
    plain: list[str] = []
    last_of: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for item in items:
        if match := _NTH.fullmatch(item):
            count = match[2]
            if not count.isdigit() or not 1 <= int(count) <= MAX_NTH:
                DAY_OF_WEEK.refuse(item, f"the number after # must be 1-{MAX_NTH}")
            nth.add((_value(DAY_OF_WEEK, match[1], item) % SUNDAY_AGAIN, int(count)))
        elif match := _LAST_OF.fullmatch(item):
            last_of.add(_value(DAY_OF_WEEK, match[1], item) % SUNDAY_AGAIN)
        else:
            plain.append(item)
    return plain, {"last_of": frozenset(last_of), "nth": frozenset(nth)}


def _plain(field: Field, item: str, key: str) -> range:
    """`*`, a value, a range or a hash, each with or without a step."""
    base, slash, step_text = item.partition("/")
    step = 1
    if slash:
        if not step_text.isdigit() or int(step_text) < 1:
            field.refuse(item, "the step after / must be a whole number of at least 1")
        step = int(step_text)
    if base == "*":
        return range(field.low, field.high + 1, step)
    if base.startswith("H") and (match := _HASHED.fullmatch(base)):
        return _hashed(field, match, item, key, step if slash else 0)
    first, dash, last = base.partition("-")
    low = _value(field, first, item)
    if dash:
        return _range(field, item, low, _value(field, last, item), step)
    return range(low, field.high + 1, step) if slash else range(low, low + 1)


def _hashed(field: Field, match: re.Match[str], item: str, key: str, step: int) -> range:
    """`H` picks one value, `H/n` a starting point for every n-th; the same key always gives the same."""
    low, high = field.low, field.hash_high
    if match[1]:
        low, high = _value(field, match[1], item), _value(field, match[2], item)
        if high < low:
            field.refuse(item, "the range descends")
    size = high - low + 1
    share = fraction(key, field.name)
    if not step:
        chosen = low + int(share * size)
        return range(chosen, chosen + 1)
    return range(low + int(share * min(step, size)), high + 1, step)


def _value(field: Field, text: str, item: str) -> int:
    value = field.numbers.get(text)
    if value is not None:
        return value
    if not text:
        field.refuse(item, "a value is missing")
    if not text.isdigit():
        field.refuse(item, f"{shown(text)} is not understood")
    if not field.low <= int(text) <= field.high:
        field.refuse(item, f"{text[:8]} is out of range")
    return int(text)
