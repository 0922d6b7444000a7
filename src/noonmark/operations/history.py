"""Occurrences across schedules: search them, and run again what failed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import Conflict, InvalidRequest, NotFound
from noonmark.core.ids import OriginKind, event, kind_of, manual
from noonmark.core.instants import to_text
from noonmark.core.lifecycle import FAILURES, FINAL, Phase, SchedulePhase
from noonmark.core.occurrence import Overrides
from noonmark.core.planner import occurrence as plan_occurrence
from noonmark.core.policies.overlap import MAX_QUEUE_LIMIT, Allow, Queue
from noonmark.core.quotas import Resource
from noonmark.core.signatures import hide_text, reveal_text
from noonmark.core.targets import BundleTarget
from noonmark.operations import schedule_edits
from noonmark.operations.models.fields import NOT_A_CURSOR, write_cursor
from noonmark.operations.occurrences import find_occurrence
from noonmark.operations.serializers import (
    SMALL_TARGET,
    fitting,
    lost_nodes,
    occurrence_documents,
    read_page,
    run_document,
)
from noonmark.operations.service import cause_of_backfill, quotas_of
from noonmark.operations.target_policy import unserved_by
from noonmark.ports.records import OccurrenceFilter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.interruption import LostNode
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Run
    from noonmark.core.schedule import Schedule
    from noonmark.operations.models.arguments import (
        OccurrenceFilters,
        OccurrenceSearch,
        OneOccurrence,
        OneRun,
        RedriveRequest,
        RunQuery,
    )
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.records import NodeRecord, PageKey


def list_runs(service: Service, caller: Caller, arguments: RunQuery) -> dict[str, Any]:
    """List the runs of a schedule, latest start first."""
    stored = schedule_edits.find_for(caller, service.store, arguments.schedule_id, deleted=True)

    is_bundle = isinstance(stored.schedule.declaration.target, BundleTarget)

    def fetch(count: int, last: Run | None) -> list[Run]:
        before = arguments.cursor if last is None else (last.started, last.id)
        return service.store.runs(stored.schedule.uid, count, before=before)

    def serialize(page: Sequence[Run]) -> list[dict[str, Any]]:
        ids = {run.occurrence_id for run in page if is_bundle}
        occurrences = {one: service.store.occurrence(one) for one in ids}
        return [run_document(run, arguments.schedule_id, occurrences.get(run.occurrence_id)) for run in page]

    entries, end = read_page(arguments.limit, fetch, serialize)
    return {"runs": entries, "next_cursor": None if end is None else write_cursor(end.started, end.id)}


def list_occurrence_runs(service: Service, caller: Caller, arguments: OneOccurrence) -> dict[str, Any]:
    """List the runs of an occurrence, latest start first."""
    occurrence, schedule = find_occurrence(service, caller, arguments.occurrence_id)
    runs = service.store.occurrence_runs(occurrence.id)
    return {"runs": [run_document(run, schedule.schedule_id, occurrence) for run in runs], "next_cursor": None}


def get_run(service: Service, caller: Caller, arguments: OneRun) -> dict[str, Any]:
    """Get a run."""
    run = service.store.run(arguments.run_id)
    snapshot = None if run is None else service.store.snapshot(run[0])
    if run is None or snapshot is None or not caller.sees(snapshot.schedule):
        raise NotFound(f"there is no run {arguments.run_id!r}", field="run_id")
    return run_document(run[1], snapshot.schedule.schedule_id, service.store.occurrence(run[1].occurrence_id))


REDRIVABLE = FINAL - {Phase.COMPLETED, Phase.SUPERSEDED}


def search_occurrences(service: Service, caller: Caller, arguments: OccurrenceSearch) -> dict[str, Any]:
    """List the occurrences of all schedules that match every filter, latest end first.

    A page may be short, or empty, while others follow: one request reads a bounded part of the history.
    """
    selection = _filter(service, caller, arguments, frozenset(arguments.phase or ()))
    schedules = ScheduleReader(service)
    start = _read_position(service, caller, arguments.cursor)
    stopped_at: PageKey | None = None

    def fetch(count: int, last: Occurrence | None) -> list[Occurrence]:
        nonlocal stopped_at
        before = start if last is None else _place(last)
        page = service.store.search(caller.owner.tenant, selection, count, before=before)
        stopped_at = page.after if len(page.occurrences) < count else None
        return page.occurrences

    def serialize(page: Sequence[Occurrence]) -> list[dict[str, Any]]:
        return schedules.documents(page)

    entries, end = read_page(arguments.limit, fetch, serialize)
    following = None if end is None else write_cursor(*_place(end))
    if end is None and stopped_at is not None:
        following = _hide_position(service, caller, stopped_at)
    return {"occurrences": entries, "next_cursor": following}


HIDDEN = "~"
"""Begins a hidden position in a cursor, and the id of no occurrence."""


def _hide_position(service: Service, caller: Caller, position: PageKey) -> str:
    """The cursor of a position which may be that of an occurrence that the caller does not see."""
    text = json.dumps(position, separators=(",", ":"))
    return write_cursor(0, HIDDEN + hide_text(service.store.own_key(), caller.owner.tenant, text))


def _read_position(service: Service, caller: Caller, cursor: PageKey | None) -> PageKey | None:
    if cursor is None or not cursor[1].startswith(HIDDEN):
        return cursor
    text = reveal_text(service.store.own_key(), caller.owner.tenant, cursor[1].removeprefix(HIDDEN))
    if text is None:
        raise InvalidRequest(NOT_A_CURSOR, field="cursor")
    time, occurrence_id = json.loads(text)
    return time, occurrence_id


def list_failures(service: Service, caller: Caller, arguments: OccurrenceSearch) -> list[Occurrence]:
    """The occurrences that failed or were missed and match the filters, latest end first; up to the limit."""
    selection = _filter(service, caller, arguments, frozenset(arguments.phase or FAILURES))
    occurrences: list[Occurrence] = []
    before: PageKey | None = None
    while True:
        page = service.store.search(caller.owner.tenant, selection, arguments.limit - len(occurrences), before=before)
        occurrences += page.occurrences
        before = page.after
        if before is None or len(occurrences) >= arguments.limit:
            return occurrences


def redrive(service: Service, caller: Caller, arguments: RedriveRequest) -> dict[str, Any]:
    """Run an ended occurrence again, or all that match the filters; each runs again once.

    The new occurrence has the nominal time and the payload of the old one, which keeps its record. The new ones of a
    schedule run one after another, unless its overlap policy is allow.
    """
    schedules = ScheduleReader(service)
    rows, refused = run_again(service, caller, arguments, schedules)
    return {
        "occurrence_id": None if arguments.occurrence_id is None else rows[0].id,
        "count": len(rows),
        "occurrences": fitting(schedules.documents(rows)),
        "refused": [{"occurrence_id": old, "problem": problem} for old, problem in refused.items()],
    }


def run_again(
    service: Service, caller: Caller, arguments: RedriveRequest, schedules: ScheduleReader | None = None
) -> tuple[list[Occurrence], dict[str, str]]:
    """The occurrences that run again what was selected, and why others do not, by their ids."""
    schedules = schedules or ScheduleReader(service)
    if arguments.occurrence_id is not None:
        return [_redrive_one(service, caller, arguments, arguments.occurrence_id, schedules)], {}
    now = service.store.clock()
    planned: list[tuple[Occurrence, Occurrence]] = []
    refused: dict[str, str] = {}
    for old in _selected(service, caller, arguments):
        schedule = schedules.of(old)
        problem = _problem(old, schedule)
        if schedule is None or problem is not None:
            refused[old.id] = problem or ""
        else:
            # Due one microsecond apart, so that they start in the order of their ends.
            terms = schedules.terms(service, caller, schedule)
            planned.append((old, _again(service, old, schedule, due=now + len(planned), overrides=terms)))
    stored_ids = service.store.known([new.id for _, new in planned])
    refused |= {old.id: f"it ran again before, as {new.id}" for old, new in planned if new.id in stored_ids}
    rows = [new for _, new in planned if new.id not in stored_ids]
    if not arguments.dry_run:
        _add(service, caller, rows, schedules, arguments.comment)
    return rows, refused


def _redrive_one(
    service: Service, caller: Caller, arguments: RedriveRequest, occurrence_id: str, schedules: ScheduleReader
) -> Occurrence:
    old, schedule = find_occurrence(service, caller, occurrence_id)
    if (problem := _problem(old, schedule)) is not None:
        raise Conflict(f"it cannot run again: {problem}", field="occurrence_id")
    terms = schedules.terms(service, caller, schedule)
    new = _again(service, old, schedule, due=service.store.clock(), overrides=terms)
    if not arguments.dry_run and service.store.occurrence(new.id) is None:
        _add(service, caller, [new], schedules, arguments.comment)
    return service.store.occurrence(new.id) or new


class ScheduleReader:
    """The schedules of occurrences, each read once."""

    def __init__(self, service: Service) -> None:
        self._store, self._permissions = service.store, service.permissions
        self._nodes: Sequence[NodeRecord] | None = None
        self._known: dict[str, Schedule | None] = {}
        self._terms: dict[str, Overrides | None] = {}

    def of(self, row: Occurrence) -> Schedule | None:
        """The schedule of an occurrence; None if it cannot be read."""
        if row.uid not in self._known:
            stored = self._store.find_uid(row.uid)
            self._known[row.uid] = None if stored is None else stored.schedule
        return self._known[row.uid]

    def terms(self, service: Service, caller: Caller, schedule: Schedule) -> Overrides | None:
        """Those of a redrive: one run after another, behind what asked for them."""
        if schedule.uid not in self._terms:
            behind = cause_of_backfill(service, caller, schedule.schedule_id)
            is_serial = not isinstance(schedule.declaration.overlap_policy, Allow)
            policy = Queue(queue_limit=MAX_QUEUE_LIMIT) if is_serial else None
            terms = None if behind is None and policy is None else Overrides(overlap_policy=policy, behind=behind)
            self._terms[schedule.uid] = terms
        return self._terms[schedule.uid]

    def documents(self, rows: Sequence[Occurrence]) -> list[dict[str, Any]]:
        """The documents of occurrences of several schedules."""
        runs = self._store.last_runs([row.id for row in rows if row.has_begun])
        return [
            occurrence_documents(
                [row],
                self.of(row),
                runs,
                largest=SMALL_TARGET,
                unserved=self._unserved(row),
                lost=self._lost(row),
            )[0]
            for row in rows
        ]

    def _unserved(self, row: Occurrence) -> str | None:
        """That no live node serves its target, in words, if that is so and keeps it from starting."""
        schedule = self.of(row)
        if schedule is None or row.phase is not Phase.PENDING:
            return None
        return unserved_by(self._nodes_known(), schedule, self._permissions)

    def _lost(self, row: Occurrence) -> dict[str, LostNode]:
        if row.phase is not Phase.DISPATCHING:
            return {}
        return lost_nodes(self._nodes_known(), [row], now=self._store.clock())

    def _nodes_known(self) -> Sequence[NodeRecord]:
        if self._nodes is None:
            self._nodes = self._store.nodes()
        return self._nodes


def _filter(
    service: Service, caller: Caller, arguments: OccurrenceFilters, phases: frozenset[Phase]
) -> OccurrenceFilter:
    labels, uid = dict(arguments.labels), None
    if arguments.label is not None:
        name, _, value = arguments.label.partition("=")
        labels[name] = value
    if arguments.schedule_id is not None:
        stored = schedule_edits.find_for(caller, service.store, arguments.schedule_id, deleted=True)
        uid = stored.schedule.uid
    return OccurrenceFilter(
        phases=phases,
        reasons=frozenset(arguments.reason or ()),
        uid=uid,
        user=caller.owner.user if caller.sees_own_only else None,
        labels=labels,
        since=arguments.since,
        until=arguments.until,
    )


def _place(row: Occurrence) -> PageKey:
    return (row.due if row.ended is None else row.ended, row.id)


def _selected(service: Service, caller: Caller, arguments: RedriveRequest) -> list[Occurrence]:
    """The occurrences that the filters select, earliest end first."""
    phases = frozenset(arguments.phase or FAILURES)
    if live := phases - REDRIVABLE:
        raise InvalidRequest(
            f"{min(live)} cannot run again; only occurrences that ended as {', '.join(sorted(REDRIVABLE))} can",
            field="phase",
        )
    chosen = (arguments.phase, arguments.reason, arguments.schedule_id, arguments.label, arguments.labels)
    if not any(chosen) and arguments.since is None and arguments.until is None:
        raise InvalidRequest("say which occurrences run again: by occurrence_id, since, schedule_id, label or phase")
    selection = _filter(service, caller, arguments, phases)
    occurrences: list[Occurrence] = []
    before: PageKey | None = None
    while True:
        page = service.store.search(
            caller.owner.tenant, selection, arguments.limit + 1 - len(occurrences), before=before
        )
        occurrences += page.occurrences
        before = page.after
        if len(occurrences) > arguments.limit:
            raise InvalidRequest(
                f"more than {arguments.limit:,} occurrences match; select fewer, or raise the limit", field="limit"
            )
        if before is None:
            return occurrences[::-1]


def _problem(row: Occurrence, schedule: Schedule | None) -> str | None:
    """What keeps an occurrence from running again."""
    if schedule is None or schedule.phase is SchedulePhase.DELETED:
        return "its schedule is deleted"
    if row.overrides is not None and row.overrides.parent is not None:
        return f"it is a step of the workflow run {row.overrides.parent.occurrence_id}; run that again"
    if row.phase not in REDRIVABLE:
        return f"it is {row.phase}; run its schedule instead"
    if row.missed_count > 1 and row.missed_first is not None and row.missed_last is not None:
        first, last = to_text(row.missed_first), to_text(row.missed_last)
        return f"it stands for {row.missed_count:,} missed fires; backfill its schedule from {first} to {last}"
    return None


def _again(
    service: Service, row: Occurrence, schedule: Schedule, *, due: Micros, overrides: Overrides | None
) -> Occurrence:
    """The occurrence that runs an ended one again; its id follows from the old one."""
    if row.overrides is not None and row.overrides.target is not None:
        overrides = replace(overrides or Overrides(), target=row.overrides.target)
    if row.overrides is not None and row.overrides.scopes is not None:
        overrides = replace(overrides or Overrides(), scopes=row.overrides.scopes)
    if row.bundle is not None and row.bundle.is_workflow:  # it goes on with the steps, and so with the archive, it had
        tenant = schedule.owner.tenant
        if service.store.find_bundle(tenant, row.bundle.bundle_id, digest=row.bundle.digest) is not None:
            overrides = replace(overrides or Overrides(), bundle=row.bundle)
    key = f"redrive:{row.id}"
    origin = event(key) if kind_of(row.origin) is OriginKind.EVENT else manual(key)
    return plan_occurrence(schedule, row.nominal, due, origin=origin, payload=row.payload, overrides=overrides)


def _add(
    service: Service, caller: Caller, rows: Sequence[Occurrence], schedules: ScheduleReader, comment: str | None
) -> None:
    if not rows:
        return
    added = service.store.add(rows, limits=quotas_of(service, caller, Resource.QUEUED))
    if not any(added) and not service.store.known([row.id for row in rows]):
        raise NotFound("the schedule was deleted", field="occurrence_id")
    service.wake(None)
    entry, now = caller.audit(comment), service.store.clock()
    touched = {row.uid: schedules.of(row) for row in rows}
    service.store.add_audit_entries(
        caller.owner.tenant, [entry(schedule, schedule, now=now) for schedule in touched.values() if schedule]
    )
