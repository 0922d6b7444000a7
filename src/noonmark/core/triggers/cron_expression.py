"""Cron expressions: five fields, or six with the seconds first, or an `@` name."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

from noonmark.core.errors import InvalidTrigger, Problem, TriggerNeverFires, refusal
from noonmark.core.ids import fraction
from noonmark.core.json_values import shown
from noonmark.core.triggers.recurrence import FIXED, WILDCARD, DstRule
from noonmark.core.triggers.wallclock import DAYS_IN_WEEK, DayRule, TimesOnDays

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
    """Days that stand for their nearest weekday: `15W`."""
    last_weekday: bool = False
    """`LW`."""
    last_of: frozenset[int] = frozenset()
    """Weekdays that stand for the last one of the month: `5L`."""
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
    """Read one field in capitals that is not a word; `key` is what `H` hashes."""
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
            field.refuse(item, "the step after / must be an integer of at least 1")
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


SUNDAY, SATURDAY = 0, 6
ANY_DAY_OF_MONTH = DAY_OF_MONTH.words["*"]
ANY_WEEKDAY = DAY_OF_WEEK.words["*"]
ONCE_A_WEEK = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28 | 1 << 35
EVERY_MONTH = frozenset(range(1, 13))


class DayFields(NamedTuple):
    """Day of month and day of week; `either` when one of them is enough, otherwise both must hold."""

    day_of_month: FieldSet
    day_of_week: FieldSet
    either: bool

    def rule(self, months: frozenset[int], years: frozenset[int] | None = None) -> DayRule | None:
        """These days, within some months of some years; None if there is no such day."""
        any_number = self.day_of_month is ANY_DAY_OF_MONTH
        every_day = any_number and self.day_of_week is ANY_WEEKDAY and months is EVERY_MONTH and years is None
        rule = DayRule(self.days_of, months, years, every_day=every_day)
        # Any weekday of any month is there for certain; only other combinations need attention.
        plain = any_number and self.day_of_week.values and years is None
        return rule if plain or rule.can_match() else None

    def days_of(self, length: int, weekday: int) -> int:
        """The days of a month with that many days whose first is that weekday, as bits 1 to 31."""
        in_month = (2 << length) - 2
        by_weekday = self._by_weekday(length, weekday)
        if self.day_of_month is ANY_DAY_OF_MONTH:
            return by_weekday & in_month
        by_number = self._by_number(length, weekday)
        return (by_number | by_weekday if self.either else by_number & by_weekday) & in_month

    def _by_number(self, length: int, weekday: int) -> int:
        field = self.day_of_month
        days = 0
        for day in field.values:
            days |= 1 << day
        for offset in field.last_offsets:
            days |= 1 << length >> offset
        for day in field.nearest:
            if day <= length:
                days |= 1 << _nearest_weekday(day, length, weekday)
        if field.last_weekday:
            days |= 1 << _nearest_weekday(length, length, weekday)
        return days

    def _by_weekday(self, length: int, first_weekday: int) -> int:
        field = self.day_of_week
        week = 0
        for day in field.values:
            week |= 1 << day
        days = week * ONCE_A_WEEK >> first_weekday << 1
        for day in field.last_of:
            days |= 1 << (length - (length - _first(day, first_weekday)) % DAYS_IN_WEEK)
        for day, nth in field.nth:
            days |= 1 << (_first(day, first_weekday) + (nth - 1) * DAYS_IN_WEEK)
        return days


def _first(day: int, first_weekday: int) -> int:
    """The first such weekday of a month that begins on `first_weekday`."""
    return (day - first_weekday) % DAYS_IN_WEEK + 1


def _nearest_weekday(day: int, length: int, weekday: int) -> int:
    """The Monday to Friday nearest to a day, without leaving the month."""
    on = (weekday + day - 1) % DAYS_IN_WEEK
    if on == SATURDAY:
        return day - 1 if day > 1 else day + 2
    if on == SUNDAY:
        return day + 1 if day < length else day - 2
    return day


MAX_LENGTH = 1000
SHORTCUTS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIVE, SIX = 5, 6

_FOREIGN = re.compile(r"[^\x20-\x7e\t]")


class Expression(NamedTuple):
    """A parsed expression: the text of its six fields, what each names, and the wall-clock rule they make."""

    texts: tuple[str, ...]
    """Second to day of week, in capitals, with shortcuts spelled out; five fields have second `0`."""
    sets: tuple[FieldSet, ...]
    days: DayFields
    rule: TimesOnDays
    dst: DstRule
    hashed: bool
    """Whether any field uses `H`."""


def parse_expression(text: object, key: str = "") -> Expression:
    """Parse once, use everywhere; InvalidTrigger or TriggerNeverFires say what is wrong."""
    if not isinstance(text, str):
        raise _refusal(f"must be text, not {shown(text)}")
    if len(text) > MAX_LENGTH:
        raise _refusal(f"must have at most {MAX_LENGTH:,} characters, not {len(text):,}")
    # Without an H the key says nothing, and schedules with the same expression may share what is parsed.
    return _parse(text, key if key and "h" in text.lower() else "")


@lru_cache(maxsize=1024)
def _parse(text: str, key: str) -> Expression:
    texts = _split(text)
    try:
        sets = tuple(
            [field.words.get(part) or parse_field(field, part, key) for field, part in zip(FIELDS, texts, strict=True)]
        )
    except ValueError:
        raise refusal(_field_problems(texts, key)) from None
    second, minute, hour, day_of_month, month, day_of_week = sets
    days = DayFields(day_of_month, day_of_week, either=not (day_of_month.starred or day_of_week.starred))
    day_rule = days.rule(EVERY_MONTH if len(month.values) == len(EVERY_MONTH) else frozenset(month.values))
    if day_rule is None:
        raise TriggerNeverFires(f"{shown(text)} can never fire: no month it names has such a day", field="expression")
    rule = TimesOnDays(day_rule, hour.values, minute.values, second.values)
    dst = WILDCARD if minute.starred or hour.starred else FIXED
    hashed = "h" in text.lower() and any(one.hashed for one in sets)
    return Expression(texts, sets, days, rule, dst, hashed)


def _field_problems(texts: tuple[str, ...], key: str) -> list[Problem]:
    """What is wrong with each field."""
    problems = []
    for field, part in zip(FIELDS, texts, strict=True):
        try:
            field.words.get(part) or parse_field(field, part, key)
        except ValueError as error:
            problems.append(Problem("expression", str(error), InvalidTrigger.code))
    return problems


def _split(text: str) -> tuple[str, ...]:
    """The six field texts in capitals."""
    if not (text.isascii() and text.isprintable()) and (match := _FOREIGN.search(text)):
        raise _refusal(f"contains the character {shown(match[0])}; only printable ASCII is allowed")
    parts = text.upper().split()
    if parts and parts[0].startswith("@"):
        name = " ".join(parts).lower()
        if name not in SHORTCUTS:
            hint = "; for a fixed time between fires use an interval trigger" if name.startswith("@every") else ""
            raise _refusal(f"{shown(text)} is not a shortcut; allowed are {', '.join(SHORTCUTS)}{hint}")
        parts = SHORTCUTS[name].split()
    if len(parts) == FIVE:
        parts.insert(0, "0")
    if len(parts) != SIX:
        raise _refusal(
            f"has {len(parts)} field{'s' if len(parts) != 1 else ''}; allowed are 5, or 6 with the seconds first"
        )
    return tuple(parts)


def _refusal(message: str) -> InvalidTrigger:
    return InvalidTrigger(message, field="expression")
