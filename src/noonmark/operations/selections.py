"""Selections of schedules: pause, resume, delete, label or run all that match."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import present
from noonmark.core.errors import InvalidRequest, NoonmarkError, StoreUnavailable
from noonmark.core.instants import to_text
from noonmark.core.lifecycle import SchedulePhase
from noonmark.operations.models.arguments import Deletion, PauseRequest, RunRequest, ScheduleAction, ScheduleFilters
from noonmark.operations.occurrences import run_schedule
from noonmark.operations.schedule_edits import find_for
from noonmark.operations.schedules import (
    delete_schedule,
    pause_schedule,
    resume_schedule,
    schedule_filter,
    trigger_types,
    update_schedule,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.schedule import Schedule
    from noonmark.operations.models.arguments import (
        ScheduleSelection,
        SelectionDeletion,
        SelectionLabels,
        SelectionPause,
        SelectionRun,
    )
    from noonmark.operations.service import Caller, Service

    Action = Callable[[Schedule], dict[str, Any]]

FILTERS = ("phase", "kind", "label", "labels", "owner", "text", "name", "route")
RESULTS = ("phase", "stopped_runs", "unfinished_runs")
"""The fields of a changed schedule that an answer has."""
PAGE = 500


def pause_schedules(service: Service, caller: Caller, arguments: SelectionPause) -> dict[str, Any]:
    """Pause all active schedules that match every filter."""

    def pause(schedule: Schedule) -> dict[str, Any]:
        until = None if arguments.until is None else to_text(arguments.until)
        terms = present(reason=arguments.reason, until=until)
        return pause_schedule(service, caller, PauseRequest.read({"schedule_id": schedule.schedule_id, **terms}))

    return _each(service, caller, arguments, pause, only=SchedulePhase.ACTIVE)


def resume_schedules(service: Service, caller: Caller, arguments: ScheduleSelection) -> dict[str, Any]:
    """Resume all paused schedules that match every filter."""

    def resume(schedule: Schedule) -> dict[str, Any]:
        return resume_schedule(service, caller, _action(schedule, arguments))

    return _each(service, caller, arguments, resume, only=SchedulePhase.PAUSED)


def delete_schedules(service: Service, caller: Caller, arguments: SelectionDeletion) -> dict[str, Any]:
    """Delete all schedules that match every filter; their history is kept."""

    def delete(schedule: Schedule) -> dict[str, Any]:
        request = {"schedule_id": schedule.schedule_id, "stop_running": arguments.stop_running}
        return delete_schedule(service, caller, Deletion.read(request | present(reason=arguments.reason)))

    return _each(service, caller, arguments, delete)


def label_schedules(service: Service, caller: Caller, arguments: SelectionLabels) -> dict[str, Any]:
    """Set labels of all schedules that match every filter; an empty value removes one."""

    def label(schedule: Schedule) -> dict[str, Any]:
        labels = {**schedule.declaration.labels, **arguments.set_labels}
        remaining = {name: value for name, value in labels.items() if value or arguments.set_labels.get(name) is None}
        # Other labels are those that were read, so an edit in between must not be overwritten.
        request = {"schedule_id": schedule.schedule_id, "expected_revision": schedule.revision, "labels": remaining}
        return update_schedule(service, caller, request)

    if not arguments.set_labels:
        raise InvalidRequest("must have at least one label", field="set_labels")
    return _each(service, caller, arguments, label)


def run_schedules(service: Service, caller: Caller, arguments: SelectionRun) -> dict[str, Any]:
    """Run all schedules that match every filter now; their next fires stay."""

    def run(schedule: Schedule) -> dict[str, Any]:
        terms = present(
            payload=arguments.payload, overlap=arguments.overlap, key=arguments.key, reason=arguments.reason
        )
        return run_schedule(service, caller, RunRequest.read({"schedule_id": schedule.schedule_id, **terms}))

    return _each(service, caller, arguments, run)


def _action(schedule: Schedule, arguments: ScheduleSelection) -> ScheduleAction:
    return ScheduleAction.read({"schedule_id": schedule.schedule_id, **present(reason=arguments.reason)})


def _each(
    service: Service,
    caller: Caller,
    arguments: ScheduleSelection,
    act: Action,
    *,
    only: SchedulePhase | None = None,
) -> dict[str, Any]:
    """Act on each selected schedule; an error of one does not stop the others."""
    entries = []
    for schedule in _selected(service, caller, arguments, only):
        entry: dict[str, Any] = {
            "schedule_id": schedule.schedule_id,
            "name": schedule.declaration.name,
            "phase": str(schedule.phase),
            "occurrence_id": None,
            "problem": None,
            "stopped_runs": None,
            "unfinished_runs": None,
        }
        if not arguments.dry_run:
            try:
                document = act(schedule)
            except StoreUnavailable:
                raise
            except NoonmarkError as error:
                entry["problem"] = error.message
            else:
                if "occurrence_id" in document:
                    entry["occurrence_id"] = document["occurrence_id"]
                else:
                    entry |= {name: document[name] for name in RESULTS if name in document}
        entries.append(entry)
    return {"count": sum(entry["problem"] is None for entry in entries), "schedules": entries}


def _selected(
    service: Service, caller: Caller, arguments: ScheduleSelection, only: SchedulePhase | None
) -> list[Schedule]:
    given = {name: value for name in FILTERS if (value := getattr(arguments, name))}
    if arguments.schedule_ids is not None:
        if given:
            raise InvalidRequest("cannot be combined with filters", field="schedule_ids")
        named = [find_for(caller, service.store, one).schedule for one in dict.fromkeys(arguments.schedule_ids)]
        return [schedule for schedule in named if only is None or schedule.phase is only]
    if not given:
        raise InvalidRequest(f"select schedules by schedule_ids, or by one of {', '.join(FILTERS)}")
    if SchedulePhase.DELETED in (arguments.phase or ()):
        raise InvalidRequest("must not be deleted: nothing can be done with a deleted schedule", field="phase")
    filters = ScheduleFilters.read(given)
    selection, _ = schedule_filter(caller, filters)
    phases = selection.phases
    if only is not None:
        phases = frozenset({only}) if not phases else phases & {only}
        if not phases:
            return []
    selection = replace(selection, kinds=trigger_types(filters), phases=phases)
    schedules: list[Schedule] = []
    after: str | None = None
    while True:
        page = service.store.schedules(caller.owner.tenant, after=after, limit=PAGE, wanted=selection)
        schedules += [stored.schedule for stored in page]
        if len(schedules) > arguments.limit:
            raise InvalidRequest(
                f"more than {arguments.limit:,} schedules match; select fewer, or raise the limit", field="limit"
            )
        if len(page) < PAGE:
            return schedules
        after = page[-1].schedule.uid
