"""Looking: schedules, occurrences, runs, events, nodes and notes as they are. Nothing here changes anything."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import named, one_of
from noonmark.core.errors import NotFound
from noonmark.core.json_values import event_type, identifier
from noonmark.core.lifecycle import FINAL, LIVE, Phase, SchedulePhase
from noonmark.core.targets import WorkflowTarget
from noonmark.operations import schedules
from noonmark.operations.arguments import Arguments, write_cursor
from noonmark.operations.documents import (
    SMALL_TARGET,
    event_document,
    node_document,
    note_document,
    occurrence_documents,
    run_document,
    schedule_document,
)
from noonmark.operations.page import read_page
from noonmark.operations.steering import find_occurrence, told_occurrence
from noonmark.ports.records import ScheduleFilter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.event import Event
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Run
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.records import StoredSchedule

USUAL_PAGE = 100
MAX_OFFSET = 10_000
KINDS = {
    "periodic": ("interval", "cron", "calendar"),
    "delayed": ("once",),
    "event": ("event",),
    **{one: (one,) for one in ("once", "interval", "cron", "calendar")},
    "dependent": ("",),
}
"""The kinds of schedules by which a list is filtered, and the types of trigger they stand for."""


def get(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """One schedule; one that is deleted only if that is asked for."""
    asked = Arguments(arguments)
    schedule_id = asked.read("schedule_id", identifier)
    deleted = asked.boolean("include_deleted", default=False)
    asked.done()
    kept = schedules.find(service.store, caller.owner.tenant, schedule_id, deleted=deleted)
    return schedule_document(kept, now=service.store.clock())


def list_schedules(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A page of schedules in the order of their creation, or the newest first; those that meet every filter."""
    asked = Arguments(arguments)
    wanted, deleted = _wanted(asked)
    if (workflow := asked.text("workflow_id", None)) is not None:
        wanted = replace(wanted, target="workflow")
    page, more = _page(service, caller, asked, wanted, deleted=deleted, workflow=workflow)
    return {"schedules": page, "next_cursor": more}


def list_triggers(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A page of the schedules that events set off; those that meet every filter, or wait for one type of event."""
    asked = Arguments({"kind": "event", **arguments})
    if "kind" in arguments:
        asked.problem("kind", "is always event here")
    wanted, deleted = _wanted(asked)
    wanted = replace(wanted, event_type=asked.read("event_type", event_type, None))
    page, more = _page(service, caller, asked, wanted, deleted=deleted)
    return {"triggers": page, "next_cursor": more}


def _page(
    service: Service,
    caller: Caller,
    asked: Arguments,
    wanted: ScheduleFilter,
    *,
    deleted: bool,
    workflow: str | None = None,
) -> tuple[list[dict[str, Any]], str | None]:
    """The schedules of a page, and the cursor of the next one."""
    newest_first = asked.boolean("newest_first", default=False)
    limit, offset = asked.limit(USUAL_PAGE), asked.integer("offset", 0, high=MAX_OFFSET)
    cursor = asked.cursor(str)
    asked.done()
    now, skipped = service.store.clock(), 0
    start = None if cursor is None else cursor[0]

    def fetch(count: int, last: StoredSchedule | None) -> list[StoredSchedule]:
        nonlocal start, skipped
        found: list[StoredSchedule] = []
        start = start if last is None else last.schedule.uid
        while len(found) < count:
            step = count if workflow is None and skipped == offset else max(count, USUAL_PAGE)
            page = service.store.schedules(
                caller.owner.tenant, after=start, limit=step, deleted=deleted, wanted=wanted, newest_first=newest_first
            )
            fit = [one for one in page if workflow is None or _workflow(one) == workflow]
            before, skipped = skipped, min(offset, skipped + len(fit))
            found += fit[skipped - before :]
            if len(page) < step:
                break
            start = page[-1].schedule.uid
        return found

    def tell(page: Sequence[StoredSchedule]) -> list[dict[str, Any]]:
        return [schedule_document(one, now=now) for one in page]

    told, end = read_page(limit, fetch, tell)
    return told, None if end is None else write_cursor(end.schedule.uid)


def count_schedules(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """How many schedules meet every filter."""
    asked = Arguments(arguments)
    wanted, deleted = _wanted(asked)
    asked.done()
    return {"count": service.store.count_schedules(caller.owner.tenant, wanted, deleted=deleted)}


def _wanted(asked: Arguments) -> tuple[ScheduleFilter, bool]:
    """The filters of a list of schedules, and whether it is that of the deleted ones."""
    phases = _several(asked, "phase", named(SchedulePhase))
    kinds = _several(asked, "kind", {name: name for name in KINDS})
    labels = asked.labels("labels")
    if (label := asked.text("label", None, high=400)) is not None:
        name, _, value = label.partition("=")
        labels[name] = value
    deleted = asked.boolean("include_deleted", default=False) or phases == [SchedulePhase.DELETED]
    wanted = ScheduleFilter(
        user=asked.text("owner", None),
        phases=frozenset(phases),
        kinds=frozenset(one for kind in kinds for one in KINDS[kind]),
        labels=labels,
        text=asked.text("text", None),
        name=asked.text("name", None),
        target=asked.text("route", None),
    )
    return wanted, deleted


def _workflow(kept: StoredSchedule) -> str | None:
    target = kept.schedule.declaration.target
    return target.workflow_id if isinstance(target, WorkflowTarget) else None


def _several(asked: Arguments, name: str, allowed: Mapping[str, Any]) -> list[Any]:
    """One of some names, or several, as a list or with commas between."""
    value = asked.raw(name)
    if value is None:
        return []
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list) or len(given) > 2 * len(allowed):
        asked.problem(name, f"must be one or several of {', '.join(allowed)}")
        return []
    found = []
    for one in given:
        try:
            found.append(one_of(one, allowed))
        except ValueError as error:
            asked.problem(name, str(error))
    return found


def occurrences(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A page of a schedule's occurrences, the newest nominal time first."""
    asked = Arguments(arguments)
    schedule_id = asked.read("schedule_id", identifier)
    phases = frozenset(_several(asked, "phase", named(Phase)))
    if not asked.boolean("include_terminal", default=True):
        phases = frozenset(phases or LIVE) - FINAL
    limit, cursor = asked.limit(USUAL_PAGE), asked.cursor(int, str)
    asked.done()
    kept = schedules.find(service.store, caller.owner.tenant, schedule_id, deleted=True)
    start = None if cursor is None else (cursor[0], cursor[1])

    def fetch(count: int, last: Occurrence | None) -> list[Occurrence]:
        before = start if last is None else (last.nominal, last.id)
        return service.store.occurrences(kept.schedule.uid, count, before=before, phases=phases)

    def tell(page: Sequence[Occurrence]) -> list[dict[str, Any]]:
        runs = service.store.last_runs([one.id for one in page if one.has_begun])
        return occurrence_documents(page, kept.schedule, runs, largest=SMALL_TARGET)

    told, end = read_page(limit, fetch, tell)
    return {"occurrences": told, "next_cursor": None if end is None else write_cursor(end.nominal, end.id)}


def runs(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A page of a schedule's runs, the newest start first."""
    asked = Arguments(arguments)
    schedule_id = asked.read("schedule_id", identifier)
    limit, cursor = asked.limit(USUAL_PAGE), asked.cursor(int, str)
    asked.done()
    kept = schedules.find(service.store, caller.owner.tenant, schedule_id, deleted=True)
    start = None if cursor is None else (cursor[0], cursor[1])

    def fetch(count: int, last: Run | None) -> list[Run]:
        before = start if last is None else (last.started, last.id)
        return service.store.runs(kept.schedule.uid, count, before=before)

    def tell(page: Sequence[Run]) -> list[dict[str, Any]]:
        return [run_document(one, schedule_id) for one in page]

    told, end = read_page(limit, fetch, tell)
    return {"runs": told, "next_cursor": None if end is None else write_cursor(end.started, end.id)}


def occurrence(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """One occurrence as it stands."""
    asked = Arguments(arguments)
    one_id = asked.read("occurrence_id", identifier)
    asked.done()
    return told_occurrence(service, caller, one_id)


def occurrence_runs(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The runs of one occurrence, the newest start first."""
    asked = Arguments(arguments)
    one_id = asked.read("occurrence_id", identifier)
    asked.done()
    one, schedule = find_occurrence(service, caller, one_id)
    found = service.store.occurrence_runs(one.id)
    return {"runs": [run_document(run, schedule.schedule_id) for run in found], "next_cursor": None}


def run(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """One run."""
    asked = Arguments(arguments)
    run_id = asked.read("run_id", identifier)
    asked.done()
    found = service.store.run(run_id)
    snapshot = None if found is None else service.store.snapshot(found[0])
    if found is None or snapshot is None or snapshot.schedule.owner.tenant != caller.owner.tenant:
        raise NotFound(f"there is no run {run_id!r}", field="run_id")
    return run_document(found[1], snapshot.schedule.schedule_id)


def events(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A page of events, the newest first."""
    asked = Arguments(arguments)
    kind = asked.read("event_type", event_type, None)
    limit, cursor = asked.limit(USUAL_PAGE), asked.cursor(int)
    asked.done()
    start = None if cursor is None else cursor[0]

    def fetch(count: int, last: Event | None) -> list[Event]:
        before = start if last is None else last.emitted
        return service.store.events(caller.owner.tenant, count, before=before, event_type=kind)

    def tell(page: Sequence[Event]) -> list[dict[str, Any]]:
        return [event_document(one) for one in page]

    told, end = read_page(limit, fetch, tell)
    return {"events": told, "next_cursor": None if end is None else write_cursor(end.emitted)}


def nodes(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - as every operation
    """The nodes that were heard of within the last day."""
    Arguments(arguments).done()
    return {"nodes": [node_document(one) for one in service.store.nodes()]}


def notes(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A page of the audit log, the newest first: who changed what."""
    asked = Arguments(arguments)
    schedule_id = asked.read("schedule_id", identifier, None)
    limit, cursor = asked.limit(USUAL_PAGE), asked.cursor(int)
    asked.done()
    found = service.store.notes(
        caller.owner.tenant, limit + 1, before=None if cursor is None else cursor[0], schedule_id=schedule_id
    )
    page = found[:limit]
    more = write_cursor(page[-1].key or 0) if len(found) > limit else None
    return {"entries": [note_document(one) for one in page], "next_cursor": more}
