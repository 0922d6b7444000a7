"""Explaining: why an occurrence stands where it stands, and why nothing ran at some instant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core import explain
from noonmark.core.jsonvalues import identifier
from noonmark.operations import schedules
from noonmark.operations.arguments import Arguments
from noonmark.operations.documents import text
from noonmark.operations.steering import find_occurrence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.operations.service import Caller, Service

NEIGHBOURS = 50
"""So many rows up to an instant are looked at: one of them may stand for a gap that covers it."""
NEWEST = 5
"""So many of the newest rows are looked at, which tell how far times are accounted for; and of the runs before it, one
of which may have gone on."""
LAST_ID = "~"
"""Sorts after the id of every occurrence."""


async def explain_occurrence(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Say why an occurrence stands where it stands: each rule with its decision, and one sentence for people."""
    asked = Arguments(arguments)
    one_id = asked.read("occurrence_id", identifier)
    asked.done()
    one, schedule = await find_occurrence(service, caller, one_id)
    runs = await service.store.occurrence_runs(one.id)
    explanation = explain.explain_occurrence(schedule, one, runs, now=await service.store.clock())
    return {"occurrence_id": one.id, "schedule_id": schedule.schedule_id, "phase": str(one.phase)} | (
        explanation.to_document()
    )


async def explain_instant(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Say what a schedule did, does or will do at an instant, and why; now, unless one is given."""
    asked = Arguments(arguments)
    schedule_id, at = asked.read("schedule_id", identifier), asked.instant("at", None)
    asked.done()
    kept = await schedules.find(service.store, caller.owner.tenant, schedule_id, deleted=True)
    now = await service.store.clock()
    time = now if at is None else at
    uid, place = kept.schedule.uid, (time, LAST_ID)
    newest = await service.store.occurrences(uid, NEWEST)
    earlier = await service.store.occurrences(uid, NEIGHBOURS, before=place)
    rows = [*(one for one in newest if one.nominal > time), *earlier]
    exact = [run for one in earlier if one.nominal == time for run in await service.store.occurrence_runs(one.id)]
    runs = {run.id: run for run in [*exact, *await service.store.runs(uid, NEWEST, before=place)]}.values()
    explanation = explain.explain_instant(
        kept.schedule, time, now=now, rows=rows, runs=tuple(runs), admitted=kept.tally.admitted
    )
    return {"schedule_id": schedule_id, "at": text(time), "phase": str(kept.schedule.phase)} | explanation.to_document()
