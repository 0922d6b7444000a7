"""Wall-clock rules in words: the time by cron-descriptor, and the days by hand where it would mislead.

cron-descriptor joins the two day fields by "or" even where both must hold, and loses entries of lists such as
`1,15,L` or `5L,MON#2`. So it is given the days only in the simple case of one field without such entries.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from cron_descriptor import ExpressionDescriptor, Options

from noonmark.core.triggers.cron_expression import (
    ANY_DAY_OF_MONTH,
    ANY_WEEKDAY,
    DAY_OF_MONTH,
    DAY_OF_WEEK,
    FIELDS,
    HOUR,
    WEEKDAYS,
    Field,
    FieldSet,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.triggers import CalendarTrigger
    from noonmark.core.triggers.cron_expression import Expression

WEEKDAY_NAMES = [name.capitalize() for name in WEEKDAYS.split()]
ORDINALS = ("", "first", "second", "third", "fourth", "fifth")


def expression_words(expression: Expression) -> str:
    """One cron expression."""
    texts = [
        _plain_text(field, text, values)
        for field, text, values in zip(FIELDS, expression.texts, expression.sets, strict=True)
    ]
    return _sentence(texts, expression.sets[3], expression.sets[5], either=expression.days.either)


def calendar_words(trigger: CalendarTrigger) -> str:
    """A calendar, as the cron expression with the same values would read."""
    given = (trigger.second, trigger.minute, trigger.hour, trigger.day_of_month, trigger.month, trigger.day_of_week)
    sets = [
        field.words["*"] if values is None else FieldSet(values) for field, values in zip(FIELDS, given, strict=True)
    ]
    texts = [_values_text(field, one.values) for field, one in zip(FIELDS, sets, strict=True)]
    years = "" if trigger.year is None else f", in {_listed(_runs(trigger.year))}"
    return _sentence(texts, sets[3], sets[5], either=False) + years


def _sentence(texts: list[str], day_of_month: FieldSet, day_of_week: FieldSet, *, either: bool) -> str:
    if either and (day_of_month.values == ANY_DAY_OF_MONTH.values or day_of_week.values == ANY_WEEKDAY.values):
        return _describe([*texts[:3], "*", texts[4], "*"])  # one of the two holds every day
    numbered = day_of_month.values != ANY_DAY_OF_MONTH.values
    named = day_of_week.values != ANY_WEEKDAY.values
    simple = not (numbered and named) and _special_count(day_of_month) + _special_count(day_of_week) <= 1
    if simple and not (_is_mixed(day_of_month) or _is_mixed(day_of_week)):
        return _describe(texts)
    time = _describe([*texts[:3], "*", texts[4], "*"])
    by_number, by_name = _numbered_words(day_of_month), _named_words(day_of_week)
    if numbered and named and either:
        return f"{time}, on {by_number} or on {by_name}"
    if numbered and named:
        return f"{time}, on {by_number} if it is also {_named_words(day_of_week, last=' or ')}"
    return f"{time}, on {by_number if numbered else by_name}"


def _describe(texts: Sequence[str]) -> str:
    options = Options(use_24hour_time_format=True, locale_code="en_US")
    return str(ExpressionDescriptor(" ".join(texts), options).get_description())


def _special_count(field_set: FieldSet) -> int:
    return (
        len(field_set.last_offsets)
        + len(field_set.nearest)
        + field_set.last_weekday
        + len(field_set.last_of)
        + len(field_set.nth)
    )


def _is_mixed(field_set: FieldSet) -> bool:
    return bool(field_set.values) and _special_count(field_set) > 0


def _numbered_words(field_set: FieldSet) -> str:
    days = _stepped(field_set.values) or [f"day {text}" for text in _runs(field_set.values)]
    days += ["the last day" if not n else f"the day {n} days before the last" for n in sorted(field_set.last_offsets)]
    days += [f"the weekday nearest day {day}" for day in sorted(field_set.nearest)]
    days += ["the last weekday"] if field_set.last_weekday else []
    return f"{_listed(days)} of the month"


def _named_words(field_set: FieldSet, last: str = " and ") -> str:
    days = [WEEKDAY_NAMES[day] for day in field_set.values]
    days += [f"the last {WEEKDAY_NAMES[day]} of the month" for day in sorted(field_set.last_of)]
    days += [f"the {ORDINALS[nth]} {WEEKDAY_NAMES[day]} of the month" for day, nth in sorted(field_set.nth)]
    return _listed(days, last)


def _plain_text(field: Field, text: str, field_set: FieldSet) -> str:
    """A field in the plainest form: names as numbers, `H` as what it hashed to, lists of steps as their values."""
    if _special_count(field_set) or not field_set.values:
        return _special_text(field, field_set)
    # cron-descriptor says "every n" of any step, and "through 05:59" of a range of hours in a list.
    uneven = "/" in text and (field is DAY_OF_WEEK or not _is_even(field, field_set.values))
    spelled = uneven or any(letter.isalpha() for letter in text) or ("," in text and "/" in text)
    whole = len(field_set.values) == 1 or field_set.values == field.words["*"].values
    if field is HOUR and "," in text:
        return ",".join(str(value) for value in field_set.values)
    return _values_text(field, field_set.values) if spelled or whole else text


def _is_even(field: Field, values: tuple[int, ...]) -> bool:
    """Whether all fires are equally spaced, across the end of the larger unit too. Days have other words."""
    if field.high not in (23, 59) or len(values) == 1:
        return True
    steps = {later - earlier for earlier, later in pairwise([*values, values[0] + field.high + 1])}
    return len(steps) == 1


def _special_text(field: Field, field_set: FieldSet) -> str:
    """A single entry as cron-descriptor reads it; lists are put in words elsewhere."""
    entries = [f"L-{n}" if n else "L" for n in field_set.last_offsets] + [f"{day}W" for day in field_set.nearest]
    entries += ["LW"] if field_set.last_weekday else []
    entries += [f"{day}L" for day in field_set.last_of] + [f"{day}#{nth}" for day, nth in field_set.nth]
    return ",".join([*_runs(field_set.values), *entries]) if field in (DAY_OF_MONTH, DAY_OF_WEEK) else "*"


def _values_text(field: Field, values: tuple[int, ...]) -> str:
    return "*" if values == field.words["*"].values else ",".join(_runs(values))


def _stepped(values: tuple[int, ...]) -> list[str]:
    """`*/n` of days, which as a list would be long."""
    step = values[1] - values[0] if len(values) > 3 else 1
    if step == 1 or values != tuple(range(values[0], 32, step)):
        return []
    return [f"every {step} days from day {values[0]}"]


def _runs(values: Sequence[int]) -> list[str]:
    """Sorted values with three or more in a row written as a range."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return [
        text for run in runs for text in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(value) for value in run])
    ]


def _listed(items: Sequence[str], last: str = " and ") -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])}{last}{items[-1]}"
