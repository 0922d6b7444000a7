"""Runs: list those of a schedule or an occurrence, get one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.errors import NotFound
from noonmark.operations import schedule_edits
from noonmark.operations.models.fields import write_cursor
from noonmark.operations.occurrences import find_occurrence
from noonmark.operations.pages import read_page
from noonmark.operations.serializers import run_document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.run import Run
    from noonmark.operations.models.arguments import OneOccurrence, OneRun, RunQuery
    from noonmark.operations.service import Caller, Service


def list_runs(service: Service, caller: Caller, arguments: RunQuery) -> dict[str, Any]:
    """List the runs of a schedule, latest start first."""
    stored = schedule_edits.find_for(caller, service.store, arguments.schedule_id, deleted=True)

    def fetch(count: int, last: Run | None) -> list[Run]:
        before = arguments.cursor if last is None else (last.started, last.id)
        return service.store.runs(stored.schedule.uid, count, before=before)

    def serialize(page: Sequence[Run]) -> list[dict[str, Any]]:
        return [run_document(run, arguments.schedule_id) for run in page]

    entries, end = read_page(arguments.limit, fetch, serialize)
    return {"runs": entries, "next_cursor": None if end is None else write_cursor(end.started, end.id)}


def list_occurrence_runs(service: Service, caller: Caller, arguments: OneOccurrence) -> dict[str, Any]:
    """List the runs of an occurrence, latest start first."""
    occurrence, schedule = find_occurrence(service, caller, arguments.occurrence_id)
    found = service.store.occurrence_runs(occurrence.id)
    return {"runs": [run_document(run, schedule.schedule_id) for run in found], "next_cursor": None}


def get_run(service: Service, caller: Caller, arguments: OneRun) -> dict[str, Any]:
    """Get a run."""
    found = service.store.run(arguments.run_id)
    snapshot = None if found is None else service.store.snapshot(found[0])
    if found is None or snapshot is None or not caller.sees(snapshot.schedule):
        raise NotFound(f"there is no run {arguments.run_id!r}", field="run_id")
    return run_document(found[1], snapshot.schedule.schedule_id)
