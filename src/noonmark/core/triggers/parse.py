"""The parser of trigger documents, the only one for all interfaces."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from noonmark.core.documents import Memory, Reader, fingerprint_of
from noonmark.core.errors import InvalidTrigger, Problem, refusal
from noonmark.core.instants import from_micros, micros_to_seconds
from noonmark.core.triggers.calendar import MAX_VALUES, RANGES, CalendarTrigger, calendar_values
from noonmark.core.triggers.cron import MAX_EXPRESSIONS, MAX_KEY, CronTrigger, parse_expressions
from noonmark.core.triggers.event import MAX_EVENT_TYPES, EventTrigger, event_types
from noonmark.core.triggers.interval import MAX_EVERY_SECONDS, MIN_EVERY_SECONDS, IntervalTrigger
from noonmark.core.triggers.once import MAX_DELAY_SECONDS, OnceTrigger
from noonmark.core.triggers.recurrence import DstOverride, read_dst
from noonmark.core.triggers.trigger import MAX_JITTER_SECONDS, Trigger, instant_argument
from noonmark.core.triggers.zones import load_zone

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

IN_DOCUMENTS = {"start_at": "start_at_utc", "end_at": "end_at_utc"}
"""Arguments of the classes that have another name in documents."""


def parse_trigger(document: object, *, now: datetime, key: str = "") -> Trigger:
    """Read a document and bind it; `now` and `key` only fill what the document leaves relative.

    A trigger is bound as its document would be.
    """
    instant_argument("now", now)
    is_trigger = type(document) in TYPES
    fingerprint = None if is_trigger else fingerprint_of(document)
    known = cast("Trigger", document) if is_trigger else _triggers_read.find(fingerprint)
    make = _read(document) if known is None else lambda: known
    try:
        trigger = make()
        _triggers_read.keep(fingerprint, trigger)
        return trigger.bind(now=now, key=key)
    except InvalidTrigger as error:
        raise refusal(
            [Problem(IN_DOCUMENTS.get(p.field, p.field), p.message, p.code) for p in error.problems]
        ) from None


def _read(document: object) -> Callable[[], Trigger]:
    """The constructor of the trigger of a document, with its arguments."""
    problems: list[Problem] = []
    document = document.to_document() if isinstance(document, Trigger) else document
    reader = Reader(document, path="", code=InvalidTrigger.code, problems=problems)
    kind = reader.choice("type", {name: name for name in READERS}, None)
    if kind is None:
        if not problems:
            reader.problem("type", f"is required; allowed are {', '.join(READERS)}")
        raise refusal(problems)
    fields = READERS[kind](reader) | _read_bounds(reader)
    reader.close()
    if problems:
        # Filters are read once, by the trigger itself, for there are stores full of them; unless there will be none.
        _collect(reader, lambda: EventTrigger("any", fields.get("filters")))
        raise refusal(problems)
    make: Callable[..., Trigger] = KINDS[kind]
    return partial(make, **fields)


def _read_bounds(reader: Reader) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for argument in ("start_at", "end_at"):
        instant = reader.instant(f"{argument}_utc")
        fields[argument] = None if instant is None else from_micros(instant)
    if fields["start_at"] and fields["end_at"] and fields["end_at"] < fields["start_at"]:
        reader.problem("end_at_utc", "must not be before the start")
    fields["jitter_seconds"] = micros_to_seconds(reader.seconds("jitter_seconds", 0, high=MAX_JITTER_SECONDS))
    return fields


def _read_once(reader: Reader) -> dict[str, Any]:
    due = reader.instant("due_at_utc")
    delay = reader.seconds("delay_seconds", None, high=MAX_DELAY_SECONDS)
    if (reader.raw("due_at_utc") is None) == (reader.raw("delay_seconds") is None):
        reader.problem("due_at_utc", "give either due_at_utc or delay_seconds")
    return {
        "at": None if due is None else from_micros(due),
        "delay_seconds": None if delay is None else micros_to_seconds(delay),
    }


def _read_interval(reader: Reader) -> dict[str, Any]:
    every = reader.seconds("every_seconds", low=MIN_EVERY_SECONDS, high=MAX_EVERY_SECONDS)
    return {"every_seconds": micros_to_seconds(every) if isinstance(every, int) else None}


def _read_cron(reader: Reader) -> dict[str, Any]:
    key = reader.text("key", "", high=MAX_KEY)
    before = len(reader.problems)
    several = reader.raw("crons") is not None
    if several == (reader.raw("expression") is not None):
        reader.problem("expression", "give either expression or crons")
    given = tuple(reader.items("crons", high=MAX_EXPRESSIONS)) if several else reader.raw("expression")
    if len(reader.problems) == before:
        _collect(reader, lambda: parse_expressions(given, key))
    return {"expressions": given, "key": key} | _read_zone(reader)


def _read_calendar(reader: Reader) -> dict[str, Any]:
    fields = {name: _read_calendar_field(reader, name) for name in RANGES if reader.raw(name) is not None}
    return fields | _read_zone(reader)


def _read_calendar_field(reader: Reader, name: str) -> tuple[int, ...] | None:
    fields = reader.child(name)
    kind = fields.choice("kind", {"any": "any", "values": "values"}, "any")
    values = None
    if kind == "values":
        listed = fields.items("values", high=MAX_VALUES)
        try:
            values = calendar_values(name, listed)
        except InvalidTrigger as error:
            fields.problem("values", error.message)
    fields.close()
    return values


def _read_event(reader: Reader) -> dict[str, Any]:
    given = reader.raw("event_type")
    types = given if isinstance(given, str) else tuple(reader.items("event_type", high=MAX_EVENT_TYPES))
    _collect(reader, lambda: event_types(types))
    return {"event_type": types, "filters": reader.raw("filters")}


def _read_zone(reader: Reader) -> dict[str, Any]:
    zone = reader.read("timezone", lambda name: load_zone(name).name, "UTC")
    dst = read_dst(reader.child("dst")) if reader.raw("dst") is not None else DstOverride()
    return {"timezone": zone, "dst": dst}


def _collect(reader: Reader, attempt: Callable[[], object]) -> None:
    """Note what a part of the trigger would refuse, and read on."""
    try:
        attempt()
    except InvalidTrigger as error:
        for problem in error.problems:
            reader.problem(problem.field, problem.message, code=problem.code)


READERS: dict[str, Callable[[Reader], dict[str, Any]]] = {
    "once": _read_once,
    "interval": _read_interval,
    "cron": _read_cron,
    "calendar": _read_calendar,
    "event": _read_event,
}
KINDS: dict[str, type[Any]] = {
    kind.type: kind for kind in (OnceTrigger, IntervalTrigger, CronTrigger, CalendarTrigger, EventTrigger)
}
TYPES = frozenset(KINDS.values())
_triggers_read: Memory[Trigger] = Memory()
"""Triggers that are not bound yet."""
