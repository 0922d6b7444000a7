"""Inputs that mean harm: long, deep, wide, endless. Each is a function of a size, a million by default."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import nan
from typing import Any

Inputs = dict[str, Callable[[int], Any]]

ALLOWED = 1_000
"""Characters that an expression may have. More is refused by its length, so this is the most a field can meet."""


def text(part: str, size: int) -> str:
    """Text of a length, made of one part."""
    return (part * (size // len(part) + 1))[:size]


def parts(part: str, size: int) -> str:
    """As many whole parts as fit, as a list if they end in a comma."""
    return (part * (size // len(part))).removesuffix(",")


def deep(size: int, key: str | None = None) -> object:
    """Lists in lists, or objects in objects, as deep as that much text can write them."""
    value: object = 0
    for _ in range(size // 2):
        value = [value] if key is None else {key: value}
    return value


def wide(size: int) -> dict[str, int]:
    """An object with that many keys."""
    return {f"k{number}": number for number in range(size)}


def laughs() -> object:
    """A few hundred lists that stand for billions of values."""
    value: object = "ha"
    for _ in range(60):
        value = [value] * 10
    return value


def endless() -> object:
    """A list that holds itself."""
    value: list[object] = []
    value.append(value)
    return value


def minutes(part: str, _size: int = 0) -> str:
    """An expression filled up in its minutes."""
    return f"{parts(part, ALLOWED - 8)} * * * *"


def days(part: str, _size: int = 0) -> str:
    """An expression filled up in its days of month."""
    return f"0 0 {parts(part, ALLOWED - 8)} * *"


def weekdays(part: str, _size: int = 0) -> str:
    """An expression filled up in its days of week."""
    return f"0 0 * * {parts(part, ALLOWED - 8)}"


def cron(**fields: object) -> dict[str, object]:
    """A good trigger, but for what is given."""
    return {"type": "cron", "expression": "0 9 * * *"} | fields


def crons(expressions: list[str]) -> dict[str, object]:
    """A trigger of several expressions."""
    return {"type": "cron", "crons": expressions}


def event(filters: object) -> dict[str, object]:
    """A trigger with filters."""
    return {"type": "event", "event_type": "file_uploaded", "filters": filters}


def calendar(**fields: list[int]) -> dict[str, object]:
    """A calendar trigger that names values."""
    return {"type": "calendar"} | {name: {"kind": "values", "values": values} for name, values in fields.items()}


def schedule(**fields: object) -> dict[str, object]:
    """A good document, but for what is given."""
    return {"trigger": cron(), "target": {"target_kind": "function", "function": "report"}} | fields


def argument(value: object) -> dict[str, object]:
    """A good document whose function is given a value."""
    return schedule(target={"target_kind": "function", "function": "report", "kwargs": {"argument": value}})


def policies(value: object) -> dict[str, object]:
    """A document with the same value for all that is optional."""
    return schedule(**dict.fromkeys(POLICIES, value))


POLICIES = (
    "overlap_policy",
    "misfire_policy",
    "missing_target_policy",
    "retry_policy",
    "window",
    "delivery",
    "concurrency",
    "budget",
)
EXPRESSIONS: Inputs = {
    "commas": partial(text, ","),
    "*/ repeated": partial(text, "*/"),
    "digits": partial(text, "9"),
    "blanks": partial(text, " "),
    "blanks around a good one": lambda size: text(" ", size // 2) + "0 9 * * *" + text(" ", size // 2),
    "fields": partial(text, "* "),
    "@ repeated": partial(text, "@"),
    "brackets": partial(text, "H("),
    "not ASCII": partial(text, "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}"),
    "lone surrogates": partial(text, "\ud800"),
    "NUL characters": partial(text, "\0"),
    "a list, deep": deep,
} | {
    f"{ALLOWED:,} characters, {name} of {part}": partial(fill, part)
    for name, fill, repeated in (
        ("minutes", minutes, (",", "0,", "*/1,", "0-59/1,", "9", "-", "/", "*/9", "H(0-59)/1,", "(", "JAN,")),
        ("days", days, ("L,", "L-30,", "15W,", "LW,", "30-31,")),
        ("weekdays", weekdays, ("5L,", "MON#2,", "1#5,", "SUN-SAT,")),
    )
    for part in repeated
}
ZONES: Inputs = {
    "letters": partial(text, "a"),
    "../ repeated": partial(text, "../"),
    "a real zone, repeated": partial(text, "Europe/Stockholm/"),
    "64 characters, nearly a zone": lambda _: text("America/Argentina/", 64),
    "a list": lambda _: ["UTC"],
    "a list, deep": deep,
}
TRIGGERS: Inputs = {
    "text": partial(text, "a"),
    "a list, deep": deep,
    "an object, deep": partial(deep, key="type"),
    "unknown fields": lambda size: cron(**wide(size)),
    "type: text": lambda size: {"type": text("a", size)},
    "type: a list, deep": lambda size: {"type": deep(size)},
    "expression: commas": lambda size: cron(expression=text(",", size)),
    "expression: a list, deep": lambda size: cron(expression=deep(size)),
    "crons: many": lambda size: crons(["0 9 * * *"] * size),
    "crons: 100 of 1,000 characters": lambda _: crons(
        [f"{number % 60} {parts('*/1,', ALLOWED - 12)} * * * *" for number in range(100)]
    ),
    "crons: 100 bad ones": lambda _: crons([minutes("1-2,3-,")] * 100),
    "key: text": lambda size: cron(key=text("a", size)),
    "timezone: text": lambda size: cron(timezone=text("a", size)),
    "timezone: a list": lambda _: cron(timezone=["UTC"]),
    "timezone: an object": lambda _: cron(timezone={"UTC": 1}),
    "dst: unknown fields": lambda size: cron(dst=wide(size)),
    "start: digits": lambda size: cron(start_at_utc=text("2", size)),
    "start: a long fraction": lambda size: cron(start_at_utc=f"2026-01-01T00:00:00.{text('9', size)}Z"),
    "jitter: a long integer": lambda size: cron(jitter_seconds=10**size),
    "every field: a long integer": lambda size: (
        dict.fromkeys(("expression", "timezone", "key", "dst"), 10**size) | {"type": "cron"}
    ),
    "interval: a long integer": lambda size: {"type": "interval", "every_seconds": 10**size},
    "calendar: minutes": lambda size: calendar(minute=[0] * size),
    "calendar: 9,999 years without such a day": lambda _: calendar(
        year=list(range(1, 10_000)), month=[2, 4, 6, 9, 11], day_of_month=[31]
    ),
    "calendar: one leap year after all others": lambda _: (
        calendar(year=[year for year in range(1, 9_996) if year % 4] + [9_996], month=[2], day_of_month=[29])
        | {"start_at_utc": "0001-01-01T00:00:00Z"}
    ),
    "event_type: text": lambda size: {"type": "event", "event_type": text("a", size)},
    "event_type: many": lambda size: {"type": "event", "event_type": ["a"] * size},
    "filters: text": lambda size: event(text("a", size)),
    "filters: keys": lambda size: event(wide(size)),
    "filters: one long key": lambda size: event({text("a.", size): 1}),
    "filters: one long value": lambda size: event({"name": text("a", size)}),
    "filters: a long list": lambda size: event({"name": list(range(size))}),
    "filters: 100 lists": lambda size: event({key: list(range(size // 100)) for key in wide(100)}),
    "filters: 100 lists, one with NaN": lambda size: event(
        {key: [*range(size // 100), nan] if key == "k99" else list(range(size // 100)) for key in wide(100)}
    ),
    "filters: 100 times one list": lambda size: event(dict.fromkeys(wide(100), tuple(range(size // 4)))),
    "filters: unknown operators": lambda size: event({"name": [{"like": 1}] * (size // 50)}),
    "filters: equals a wide object": lambda size: event({"name": {"equals": wide(size)}}),
    "filters: equals, deep": lambda size: event({"name": {"equals": deep(size)}}),
    "filters: not, deep": lambda size: event({"name": deep(size, key="not")}),
    "filters: equals laughs": lambda _: event({"name": {"equals": laughs()}}),
    "filters: equals an endless list": lambda _: event({"name": {"equals": endless()}}),
}
SCHEDULES: Inputs = {
    "a list, deep": deep,
    "unknown fields": lambda size: schedule(**wide(size)),
    "unknown fields, 20 long names": lambda size: schedule(**{text(key, size // 20): 1 for key in wide(20)}),
    "schedule_id: text": lambda size: schedule(schedule_id=text("a", size)),
    "name: text": lambda size: schedule(name=text("a", size)),
    "description: text": lambda size: schedule(description=text("a", size)),
    "description: 10,000 lone surrogates": lambda _: schedule(description=text("\ud800", 10_000)),
    "labels: many": lambda size: schedule(labels=wide(size)),
    "labels: 64 long names": lambda size: schedule(labels={text(key, size // 64): "v" for key in wide(64)}),
    "labels: 64 long values": lambda size: schedule(labels=dict.fromkeys(wide(64), text("v", size // 64))),
    "trigger: a list, deep": lambda size: schedule(trigger=deep(size)),
    "trigger: commas": lambda size: schedule(trigger=cron(expression=text(",", size))),
    "target: text": lambda size: schedule(target=text("a", size)),
    "target: unknown fields": lambda size: schedule(target={"target_kind": "function", "function": "a"} | wide(size)),
    "argument: text": lambda size: argument(text("a", size)),
    "argument: a long list": lambda size: argument([0] * size),
    "argument: a wide object": lambda size: argument(wide(size)),
    "argument: a list, deep": lambda size: argument(deep(size)),
    "argument: as much as is allowed": lambda size: argument(list(range(44_000 * size // 1_000_000))),
    "argument: a long integer": lambda size: argument(10**size),
    "argument: laughs": lambda _: argument(laughs()),
    "argument: an endless list": lambda _: argument(endless()),
    "policies: text": lambda size: policies(text("a", size)),
    "policies: a list, deep": lambda size: policies(deep(size)),
    "policies: unknown fields": lambda size: policies(wide(size // len(POLICIES))),
    "depends_on: many": lambda size: schedule(depends_on=["a"] * size),
}
