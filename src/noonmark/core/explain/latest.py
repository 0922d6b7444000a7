"""The last outcome of a schedule, and what comes next: the explanation without a time."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from noonmark.core.describe.words import instant_words, words
from noonmark.core.explain.clauses import listed
from noonmark.core.explain.occurrence import explain_occurrence
from noonmark.core.ids import OriginKind, kind_of
from noonmark.core.lifecycle import FINAL, Phase, SchedulePhase
from noonmark.core.triggers import EventTrigger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.explain.explanation import Explanation
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Run
    from noonmark.core.schedule import Schedule

OF: Mapping[OriginKind, str] = MappingProxyType(
    {
        OriginKind.TRIGGER: "of",
        OriginKind.MANUAL: "asked for at",
        OriginKind.EVENT: "set off by an event at",
        OriginKind.BACKFILL: "made up for",
    }
)
"""How each came to the time that it has."""


def latest(rows: Sequence[Occurrence], *, now: Micros) -> Occurrence | None:
    """The occurrence with which something happened last; None when nothing has been due yet."""
    past = [row for row in rows if row.phase is not Phase.SUPERSEDED and _has_come(row, now)]
    return max(past, key=lambda row: _since(row, now), default=None)


def explain_latest(
    schedule: Schedule,
    row: Occurrence,
    runs: Sequence[Run],
    *,
    now: Micros,
    next_run: Micros | None,
    unserved: str | None = None,
) -> Explanation:
    """Explain the last occurrence of a schedule, and say when it is due again."""
    told = explain_occurrence(schedule, row, runs, now=now, unserved=unserved)
    which = f"`{row.id}`, {OF[kind_of(row.origin)]} {instant_words(row.nominal)}"
    said = told.summary[0].lower() + told.summary[1:].removesuffix(".")
    after = _after(schedule) if next_run is None else _next(schedule, max(now, row.due), next_run)
    return replace(told, summary=f"About its last occurrence, {which}: {said}; {after}.")


def _has_come(row: Occurrence, now: Micros) -> bool:
    return row.phase in FINAL or row.has_begun or row.due <= now


def _since(row: Occurrence, now: Micros) -> Micros:
    """When it came to be as it is, as far as the row tells; one that waits for another attempt has just failed."""
    return min(row.due, now) if row.ended is None else row.ended


def _next(schedule: Schedule, after: Micros, next_run: Micros) -> str:
    """When it is next due, after the explained occurrence."""
    trigger = schedule.declaration.trigger
    following = next_run if next_run > after or trigger is None else trigger.next_micros(after)
    return "no other time is planned" if following is None else f"it is next due at {instant_words(following)}"


def _after(schedule: Schedule) -> str:
    """What is to come of a schedule that is not due at any time that is known."""
    trigger, upstreams = schedule.declaration.trigger, schedule.declaration.depends_on
    if schedule.phase is not SchedulePhase.ACTIVE:
        return f"the schedule is {schedule.phase}"
    if isinstance(trigger, EventTrigger):
        return f"the next event may set it off ({words(trigger)})"
    if trigger is None and upstreams:
        return f"it fires again when all of {listed([one.schedule_id for one in upstreams])} have ended"
    return "no other time is planned"
