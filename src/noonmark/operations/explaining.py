"""Explaining: why an occurrence, or the last of a schedule, stands where it stands, and why nothing ran at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core import explain
from noonmark.core.json_values import identifier
from noonmark.core.planner import timed_trigger
from noonmark.operations import schedules
from noonmark.operations.arguments import Arguments
from noonmark.operations.documents import next_run, text
from noonmark.operations.steering import find_occurrence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.instants import Micros
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.records import StoredSchedule
    from noonmark.ports.store import Store

NEIGHBOURS = 50
"""So many rows before an instant are looked at, so many of that very time, and so many gaps that reach over it."""
NEWEST = 5
"""So many of the newest rows are looked at, which tell how far times are accounted for; and of the runs before it, one
of which may have gone on."""
LAST_ID = "~"
"""Sorts after the id of every occurrence."""


def explain_occurrence(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Say why an occurrence stands where it stands: each rule with its decision, and one sentence for people."""
    asked = Arguments(arguments)
    one_id = asked.read("occurrence_id", identifier)
    asked.done()
    one, schedule = find_occurrence(service, caller, one_id)
    runs = service.store.occurrence_runs(one.id)
    explanation = explain.explain_occurrence(schedule, one, runs, now=service.store.clock())
    return {"occurrence_id": one.id, "schedule_id": schedule.schedule_id, "phase": str(one.phase)} | (
        explanation.to_document()
    )


def explain_instant(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Say what a schedule did, does or will do at an instant, and why; without one, how its last occurrence fared."""
    asked = Arguments(arguments)
    schedule_id, at = asked.read("schedule_id", identifier), asked.instant("at", None)
    asked.done()
    kept = schedules.find(service.store, caller.owner.tenant, schedule_id, deleted=True)
    return explained(service.store, kept, at)


def explained(store: Store, kept: StoredSchedule, at: Micros | None) -> dict[str, Any]:
    """The same of a schedule that was found."""
    now, schedule = store.clock(), kept.schedule
    explanation, time = (_latest(store, kept, now=now), now) if at is None else (None, at)
    if explanation is None:
        # What has not been due yet is explained by its first fire.
        time = _first_fire(kept, now=now) if at is None else at
        explanation = _instant(store, kept, time, now=now)
    told = {"schedule_id": schedule.schedule_id, "at": text(time), "phase": str(schedule.phase)}
    return told | explanation.to_document()


def _instant(store: Store, kept: StoredSchedule, time: Micros, *, now: Micros) -> explain.Explanation:
    uid, place = kept.schedule.uid, (time, LAST_ID)
    newest = store.occurrences(uid, NEWEST)
    near = [
        *(one for one in newest if one.nominal > time),
        *store.occurrences_at(uid, time, NEIGHBOURS),
        *store.occurrences(uid, NEIGHBOURS, before=place),
    ]
    rows = {one.id: one for one in near}.values()
    exact = [run for one in rows if one.nominal == time for run in store.occurrence_runs(one.id)]
    runs = {run.id: run for run in [*exact, *store.runs(uid, NEWEST, before=place)]}.values()
    return explain.explain_instant(
        kept.schedule, time, now=now, rows=tuple(rows), runs=tuple(runs), admitted=kept.counters.admitted
    )


def _latest(store: Store, kept: StoredSchedule, *, now: Micros) -> explain.Explanation | None:
    """How the last occurrence of a schedule fared; None when it has had none."""
    uid = kept.schedule.uid
    rows = {one.id: one for one in store.occurrences(uid, NEIGHBOURS, before=(now, LAST_ID))}
    for run in store.runs(uid, 1):  # of a backfill, perhaps, whose nominal time is long past
        one = store.occurrence(run.occurrence_id)
        rows |= {} if one is None else {one.id: one}
    last = explain.latest(list(rows.values()), now=now)
    if last is None:
        return None
    runs = store.occurrence_runs(last.id)
    return explain.explain_latest(kept.schedule, last, runs, now=now, next_run=next_run(kept, now=now))


def _first_fire(kept: StoredSchedule, *, now: Micros) -> Micros:
    trigger = timed_trigger(kept.schedule)
    following = None if trigger is None else trigger.next_micros(now)
    return now if following is None else following
