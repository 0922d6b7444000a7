"""Cron expressions: five fields, or six with the seconds first, or an `@` name."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from noonmark.core.errors import InvalidTrigger, Problem, TriggerNeverFires, refusal
from noonmark.core.jsonvalues import shown
from noonmark.core.triggers.dayfields import EVERY_MONTH, DayFields
from noonmark.core.triggers.dst import FIXED, WILDCARD, DstRule
from noonmark.core.triggers.fields import FIELDS, FieldSet, parse_field
from noonmark.core.triggers.wallclock import TimesOnDays

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
    found = []
    for field, part in zip(FIELDS, texts, strict=True):
        try:
            field.words.get(part) or parse_field(field, part, key)
        except ValueError as error:
            found.append(Problem("expression", str(error), InvalidTrigger.code))
    return found


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
