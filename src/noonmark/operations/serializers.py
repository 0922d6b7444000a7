"""Serializers: schedules, occurrences, runs, nodes, secrets and audit entries as JSON documents.

A document has the fields of its model in `models.answers`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from threading import BoundedSemaphore
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from noonmark.core.api_key import Scope
from noonmark.core.ids import is_hidden, shown_name, visible_id
from noonmark.core.instants import SECOND, micros_to_seconds, to_text
from noonmark.core.interruption import PINGED, LostNode, real_deadline
from noonmark.core.lifecycle import FINAL, Phase, SchedulePhase
from noonmark.core.occurrence import backfill_pause
from noonmark.core.policies.jitter import due_at
from noonmark.core.reasons import Reason, reason_sentence
from noonmark.core.run import Outcome
from noonmark.core.settlement import run_id
from noonmark.core.triggers import EventTrigger
from noonmark.ports.records import NODE_LISTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from noonmark.core.api_key import ApiKey
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.outcomes import Mark
    from noonmark.core.run import Run
    from noonmark.core.schedule import AuditEntry, Schedule
    from noonmark.core.secret import Secret
    from noonmark.core.triggers import Trigger
    from noonmark.ports.records import NodeRecord, StoredSchedule


Row = TypeVar("Row")
Place = TypeVar("Place")

MAX_BYTES = 2_097_152
"""A page ends before the entry that would make it larger, unless that is its first."""
FIRST = 51
"""How many rows are read before their size is known: a page of 50 is read at once, with the row after it."""
_encode = json.JSONEncoder(separators=(",", ":")).encode
_AT_ONCE = BoundedSemaphore(8)
"""How many pages are built at a time: each takes memory, and the processor from other requests."""


class Page(NamedTuple):
    """Entries of a list, and the row after which the next page begins; None on the last page."""

    entries: list[dict[str, Any]]
    end: Any


def read_page(
    limit: int,
    fetch: Callable[[int, Row | None], Sequence[Row]],
    serialize: Callable[[Sequence[Row]], list[dict[str, Any]]],
    measure: Callable[[Row], int] | None = None,
) -> Page:
    """Read a page of at most `limit` entries.

    `fetch` reads a number of rows after a row, or the first ones; fewer mean the end. `serialize` makes the entries.
    `measure` gives the size of an entry, or a little more, where that is quicker than writing it.
    """
    entries: list[dict[str, Any]] = []
    size, last, step = 0, None, min(limit + 1, FIRST)
    with _AT_ONCE:
        while True:
            rows = fetch(step, last)
            documents = serialize(rows)
            sizes = map(size_of, documents) if measure is None else map(measure, rows)
            fits, size = _fitting(documents[: limit - len(entries)], sizes, size, is_first=not entries)
            entries += fits
            last = rows[len(fits) - 1] if fits else last
            if len(fits) < len(documents):
                return Page(entries, last)
            if len(rows) < step:
                return Page(entries, None)
            mean = max(1, size // len(entries))
            step = max(1, min(limit + 1 - len(entries), (MAX_BYTES - size) // mean + 1))


def visible(
    read: Callable[[int, Place | None], Sequence[Row]],
    place_of: Callable[[Row], Place],
    is_seen: Callable[[Row], bool],
    start: Place | None,
) -> Callable[[int, Row | None], list[Row]]:
    """The `fetch` of a list of which the caller sees some rows: it reads on until it has as many as are asked for.

    `read` reads a number of rows after a place; `start` is the place of the cursor.
    """

    def fetch(count: int, last: Row | None) -> list[Row]:
        place = start if last is None else place_of(last)
        rows: list[Row] = []
        while len(rows) < count:
            page = read(count, place)
            rows += filter(is_seen, page)
            if len(page) < count:
                break
            place = place_of(page[-1])
        return rows[:count]

    return fetch


def fitting(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first entries that fit into a page by their size."""
    return _fitting(entries, map(size_of, entries), 0, is_first=True)[0]


def _fitting(
    entries: list[dict[str, Any]], sizes: Iterable[int], size: int, *, is_first: bool
) -> tuple[list[dict[str, Any]], int]:
    """The entries that fit after others of that size, and the size of all; the first of a page always fits."""
    for count, own in enumerate(islice(sizes, len(entries))):
        following = size + own
        if following > MAX_BYTES and (count or not is_first):
            return entries[:count], size
        size = following
    return entries, size


def size_of(document: object) -> int:
    """The bytes of a document as JSON, or a few more."""
    return len(_encode(document))


NEXT_FIRES = 5
STATE_BYTES = 512
"""The bytes of the state of a schedule in its document, at most: its next fires, its last run and its counters."""
MAX_REMEMBERED = 2_048
"""Of how many schedules and triggers documents are remembered, in parts."""
SMALL_TARGET = 4_096
"""Longer targets are left out of the occurrences of a list."""
PING_SENTENCES: Mapping[Reason | None, str] = MappingProxyType(
    {Reason.ACCEPTED: "It waits for a ping of its job.", Reason.COMPLETION_TIMED_OUT: "No ping came in time."}
)
"""What reasons mean where a job that runs elsewhere is expected to call."""
TERMS = ("trigger_snapshot", "target_snapshot", "misfire_policy", "overlap_policy", "missing_target_policy")
"""The fields of an occurrence document that come from the declaration in force for it."""


_text = lru_cache(8_192)(to_text)


def text(instant: Micros | None) -> str | None:
    """Write an instant as RFC 3339, in UTC."""
    return None if instant is None else to_text(instant)


def schedule_document(stored: StoredSchedule, *, now: Micros) -> dict[str, Any]:
    """A schedule: what it declares, and its state. Documents share their parts, so these are not to be changed."""
    cached, counters = _schedule_fields(stored.schedule), stored.counters
    fires = _next_fires(stored, cached.fires, now=now)
    return {
        **cached.fields,
        "next_run_at": None if (next_run := _next_run(stored, fires)) is None else _text(next_run),
        "next_fire_times": [_text(time) for time in fires],  # many schedules have the same ones
        "last_run_at": text(counters.last_started),
        "last_phase": None if counters.last_phase is None else str(counters.last_phase),
        "counters": {
            "total": counters.total,
            "successful": counters.successful,
            "failed": counters.failed,
            "missed": counters.missed,
            "skipped": counters.skipped,
        },
    }


def schedule_size(stored: StoredSchedule) -> int:
    """The bytes of the document of a schedule, or some more."""
    cached = _schedule_fields(stored.schedule)
    if cached.size is None:
        cached.size = size_of(cached.fields)
    return cached.size + STATE_BYTES


@dataclass(slots=True)
class _ScheduleFields:
    """The fields of a document that change only with the schedule itself; those of its state are None there."""

    schedule: Schedule
    fields: dict[str, Any]
    fires: _Fires | None
    """None if its trigger has no times."""
    size: int | None = None


_fields_of: dict[int, _ScheduleFields] = {}
"""By the identity of a schedule, which does not change: comparing schedules would take longer than writing them."""


def _schedule_fields(schedule: Schedule) -> _ScheduleFields:
    cached = _fields_of.get(id(schedule))
    if cached is not None and cached.schedule is schedule:
        return cached
    fields = {
        "schedule_id": schedule.schedule_id,
        "name": None,
        "description": "",
        "labels": {},
        "trigger": None,
        **{name: value for name, value in schedule.declaration.to_document().items() if name != "schedule_id"},
        # As it would be declared again: paused or not.
        "enabled": schedule.phase is not SchedulePhase.PAUSED,
        "phase": str(schedule.phase),
        "revision": schedule.revision,
        "owner": {"tenant": schedule.owner.tenant, "user": schedule.owner.user},
        "source": schedule.source,
        **dict.fromkeys(("next_run_at", "next_fire_times", "last_run_at", "last_phase", "counters")),
        "paused": None if schedule.pause is None else schedule.pause.to_document(),
        "created_at_utc": text(schedule.created),
        "updated_at_utc": text(schedule.updated),
        "deleted_at_utc": text(schedule.deleted),
        **({} if schedule.lineage is None else {"lineage": schedule.lineage.to_document()}),
    }
    if len(_fields_of) >= MAX_REMEMBERED:
        _fields_of.clear()
    cached = _fields_of[id(schedule)] = _ScheduleFields(schedule, fields, _fires_of(schedule))
    return cached


def outcome_document(mark: Mark) -> dict[str, Any]:
    """An outcome in a list of schedules."""
    return {
        "occurrence_id": mark.occurrence_id,
        "state": str(mark.state),
        "late_seconds": None if mark.late is None else micros_to_seconds(mark.late),
        "at_utc": to_text(mark.at),
    }


def next_run(stored: StoredSchedule, *, now: Micros) -> Micros | None:
    """When a schedule is next due by its trigger, as far as that is known."""
    return _next_run(stored, _next_fires(stored, _fires_of(stored.schedule), now=now))


def _next_fires(stored: StoredSchedule, fires: _Fires | None, *, now: Micros) -> list[Micros]:
    """The next nominal times of its trigger, limited by the runs it has left; none unless it is active."""
    schedule, max_runs = stored.schedule, stored.schedule.declaration.max_runs
    if fires is None or schedule.phase not in (SchedulePhase.ACTIVE, SchedulePhase.PROPOSED):
        return []
    runs_left = NEXT_FIRES if max_runs is None else min(NEXT_FIRES, max(0, max_runs - stored.counters.admitted))
    return fires.after(now)[:runs_left]


class _Fires:
    """The next fires of a trigger: the same ones until the first of them has passed."""

    def __init__(self, trigger: Trigger) -> None:
        self._trigger = trigger
        self._known: tuple[Micros, list[Micros]] | None = None

    def after(self, now: Micros) -> list[Micros]:
        """The next ones after a time."""
        cached = self._known
        if cached is not None and cached[0] <= now and (not cached[1] or now < cached[1][0]):
            return cached[1]
        times: list[Micros] = []
        time: Micros | None = now
        while len(times) < NEXT_FIRES and time is not None:
            time = self._trigger.next_micros(time)
            times += [] if time is None else [time]
        self._known = (now, times)
        return times


_fires = lru_cache(MAX_REMEMBERED)(_Fires)


def _fires_of(schedule: Schedule) -> _Fires | None:
    trigger = schedule.declaration.trigger
    return None if trigger is None or isinstance(trigger, EventTrigger) else _fires(trigger)


def _next_run(stored: StoredSchedule, fires: list[Micros]) -> Micros | None:
    """When it is next due by its trigger: as planned, else its next nominal time with its jitter."""
    trigger = stored.schedule.declaration.trigger
    if stored.next_own is not None or trigger is None or not fires:
        return stored.next_own
    return due_at(trigger, stored.schedule.uid, fires[0])


NO_NODES: Mapping[str, LostNode] = MappingProxyType({})


def lost_nodes(nodes: Sequence[NodeRecord], rows: Iterable[Occurrence], *, now: Micros) -> dict[str, LostNode]:
    """The nodes that are not alive, by name: of the list, and of rows whose nodes are not listed any more."""
    lost = {node.name: LostNode(seen=node.seen, left=node.left, gone=node.gone) for node in nodes if not node.is_alive}
    known = {node.name for node in nodes}
    for row in rows:
        # A node that is alive is listed. One that has just started a run may not have sent a heartbeat yet.
        is_old = row.started is not None and row.started < now - NODE_LISTED
        if row.node is not None and row.node not in known and is_old:
            lost[row.node] = LostNode(seen=None)
    return lost


def occurrence_document(
    occurrence: Occurrence,
    schedule: Schedule | None = None,
    run: Run | None = None,
    *,
    unserved: str | None = None,
    lost: Mapping[str, LostNode] = NO_NODES,
) -> dict[str, Any]:
    """An occurrence.

    With its schedule, the document has the terms under which it runs, as long as the current declaration is in force
    for it; with its last run, when and where that was. `unserved` says that no live node serves its target, which is
    what it waits for if it waits for nothing else. `lost` is as in `occurrence_documents`.
    """
    runs = {} if run is None else {occurrence.id: run}
    return occurrence_documents([occurrence], schedule, runs, unserved=unserved, lost=lost)[0]


def occurrence_documents(
    rows: Sequence[Occurrence],
    schedule: Schedule | None,
    runs: Mapping[str, Run],
    *,
    largest: int | None = None,
    unserved: str | None = None,
    lost: Mapping[str, LostNode] = NO_NODES,
) -> list[dict[str, Any]]:
    """Occurrences of one schedule; `runs` has the last run of each, by its id.

    A target of more than `largest` characters is left out. What a node holds that is not alive, by `lost_nodes`, is not
    said to be running.
    """
    terms = dict.fromkeys(TERMS) if schedule is None else _terms(schedule, largest)
    return [_occurrence(occurrence, schedule, terms, runs.get(occurrence.id), unserved, lost) for occurrence in rows]


def _terms(schedule: Schedule, largest: int | None) -> dict[str, Any]:
    """The terms of the current declaration."""
    declared = schedule.declaration.to_document()
    target = declared["target"]
    if largest is not None and len(json.dumps(target)) > largest:
        target = None
    policies = {name: declared.get(name) for name in TERMS[2:]}
    return {"trigger_snapshot": declared.get("trigger"), "target_snapshot": target} | policies


def _occurrence(
    occurrence: Occurrence,
    schedule: Schedule | None,
    terms: dict[str, Any],
    run: Run | None,
    unserved: str | None,
    lost: Mapping[str, LostNode],
) -> dict[str, Any]:
    if schedule is None or occurrence.revision != schedule.revision:
        terms = dict.fromkeys(TERMS)
    if is_hidden(occurrence.schedule_id):
        terms = terms | {"trigger_snapshot": None}  # it never fires, and means nothing to anyone
    if occurrence.overrides is not None and occurrence.overrides.overlap_policy is not None:
        terms = terms | {"overlap_policy": occurrence.overrides.overlap_policy.to_document()}
    last = run if occurrence.phase in FINAL else None
    waiting_for, reason = occurrence.waiting_for, occurrence.reason or occurrence.waiting_for
    why = None if reason is None else reason_sentence(reason, occurrence.detail)
    if occurrence.route == PINGED and reason in PING_SENTENCES:
        why = PING_SENTENCES[reason]
    if reason is None and unserved is not None and occurrence.phase is Phase.PENDING:
        waiting_for, why = Reason.TARGET_MISSING, f"{unserved[0].upper()}{unserved[1:]}"
    elif reason is None and occurrence.phase is Phase.DISPATCHING:
        why = _running_sentence(lost.get(occurrence.node or ""))
    if backfill_pause(occurrence) is not None:
        waiting_for, why = Reason.PAUSED, _backfill_pause_sentence(occurrence)
    node, started = (occurrence.node, _began(occurrence)) if last is None else (last.node, last.started)
    return {
        "occurrence_id": occurrence.id,
        "schedule_id": visible_id(occurrence.schedule_id),
        "schedule_name": _name(occurrence, schedule),
        "schedule_revision": occurrence.revision,
        "superseded_by_revision": _superseded_by(occurrence, schedule),
        "phase": str(occurrence.phase),
        "origin": str(occurrence.origin),
        "nominal_at_utc": text(occurrence.nominal),
        "due_at_utc": text(occurrence.due),
        "attempt": occurrence.attempt,
        "attempt_count": occurrence.attempt,
        "reason": None if occurrence.reason is None else str(occurrence.reason),
        "why": why,
        "detail": _detail(occurrence.detail),
        "failure_class": failure_class(occurrence, run),
        "failure_detail": failure_detail(occurrence, run),
        "missed_count": occurrence.missed_count,
        "missed_from": text(occurrence.missed_first),
        "missed_to": text(occurrence.missed_last),
        "waiting_for": None if waiting_for is None else str(waiting_for),
        "node": node,
        "claimed_by": node,
        "started_at_utc": text(started),
        "dispatched_at_utc": text(started),
        "completed_at_utc": text(occurrence.ended),
        "deadline_utc": text(occurrence.deadline if occurrence.phase in FINAL else real_deadline(occurrence)),
        "run_id": last.id if last is not None else None if occurrence.started is None else run_id(occurrence),
        "delivery_correlation_id": occurrence.id,
        "payload": occurrence.payload,
        "bundle": _bundle(occurrence),
        **terms,
    }


def _running_sentence(lost: LostNode | None) -> str:
    if lost is None:
        return "It is running."
    from noonmark.core.explain.clauses import lost_words  # noqa: PLC0415 - loads cron-descriptor

    return f"It has not ended: its node {lost_words(lost)}."


def _backfill_pause_sentence(occurrence: Occurrence) -> str:
    from noonmark.core.explain.clauses import backfill_pause_words  # noqa: PLC0415 - loads cron-descriptor

    words = backfill_pause_words(occurrence) or ""
    return f"{words[0].upper()}{words[1:]}."


def _began(occurrence: Occurrence) -> Micros | None:
    """When the current delivery began: a start may be committed early, but nothing begins before it is due."""
    return None if occurrence.started is None else max(occurrence.started, occurrence.due)


def _superseded_by(occurrence: Occurrence, schedule: Schedule | None) -> int | None:
    """The revision that superseded it, while no later occurrence could have."""
    is_known = (
        schedule is not None and occurrence.phase is Phase.SUPERSEDED and schedule.revision == occurrence.revision + 1
    )
    return occurrence.revision + 1 if is_known else None


def _detail(detail: str) -> dict[str, Any]:
    """The facts behind its reason."""
    try:
        facts = json.loads(detail) if detail else {}
    except ValueError:
        facts = {"text": detail}
    return facts if isinstance(facts, dict) else {"text": detail}


REJECTED, MOB_REJECTED, TRANSPORT = "runtime_rejected", "mob_rejected", "transport_error"
CLASSES: Mapping[Reason, str] = MappingProxyType(
    {
        Reason.TARGET_MISSING: "target_missing",
        Reason.TARGET_BUSY: "target_busy",
        Reason.OVERLAP: "target_busy",
        Reason.QUEUE_FULL: "target_busy",
        Reason.FAILED: REJECTED,
        Reason.TIMED_OUT: REJECTED,
        Reason.BUDGET_EXCEEDED: REJECTED,
        Reason.TOOL_LOOP: REJECTED,
        Reason.UNDELIVERABLE: TRANSPORT,
        Reason.COMPLETION_TIMED_OUT: TRANSPORT,
        Reason.LEASE_LOST: "lease_lost",
        Reason.POISON: "lease_lost",
        Reason.OUTCOME_UNKNOWN: "lease_lost",
        Reason.UNREADABLE: "internal_error",
    }
)
"""By reason. What was intended is not a failure: a pause, an edit, a cancellation, a policy that drops late fires."""
TRIED = frozenset({Reason.RETRY_SCHEDULED, Reason.ATTEMPTS_EXHAUSTED, Reason.NOT_RETRIED})
"""Reasons of a failed attempt, whose class follows from its outcome."""


def failure_class(occurrence: Occurrence, run: Run | None) -> str | None:
    """What failed, in an occurrence or its last attempt; None when nothing failed."""
    if occurrence.reason is None:
        return None
    kind = CLASSES.get(occurrence.reason)
    if occurrence.reason in TRIED:
        was_refused = occurrence.phase is Phase.DELIVERY_FAILED or (
            run is not None and run.outcome is Outcome.DELIVERY_FAILED
        )
        kind = TRANSPORT if was_refused else REJECTED
    return MOB_REJECTED if kind == REJECTED and occurrence.route == "mob" else kind


def failure_detail(occurrence: Occurrence, run: Run | None) -> str | None:
    """The error of the last run on occurrence line, or else the sentence of the reason."""
    if occurrence.reason is None or failure_class(occurrence, run) is None:
        return None
    summary = None if run is None or run.outcome is Outcome.COMPLETED else run.summary
    return summary or reason_sentence(occurrence.reason, occurrence.detail)


def _name(occurrence: Occurrence, schedule: Schedule | None) -> str | None:
    """The name of its schedule; what it runs, if it has none that callers see."""
    if is_hidden(occurrence.schedule_id):
        return shown_name(occurrence.schedule_id)
    return None if schedule is None else schedule.declaration.name


def _bundle(occurrence: Occurrence | None) -> dict[str, Any] | None:
    """The archive of a bundle that an occurrence runs."""
    bundle = None if occurrence is None else occurrence.bundle
    return None if bundle is None else {"bundle_id": bundle.bundle_id, "digest": bundle.digest}


def run_document(run: Run, schedule_id: str, occurrence: Occurrence | None = None) -> dict[str, Any]:
    """A run, with the bundle that its occurrence runs, if that is given; it has no end while it goes on."""
    usage, progress = run.usage, run.progress
    return {
        "run_id": run.id,
        "occurrence_id": run.occurrence_id,
        "schedule_id": visible_id(schedule_id),
        "attempt": run.attempt,
        "node": run.node,
        "started_at_utc": text(run.started),
        "ended_at_utc": text(run.ended),
        "duration_seconds": None if run.ended is None else (run.ended - run.started) / SECOND,
        "outcome": None if run.outcome is None else str(run.outcome),
        "progress": None if progress is None else {"fraction": progress.fraction, "message": progress.message},
        "result": run.result,
        "error": run.error,
        "usage": None if usage is None else usage.to_document(),
        "bundle": _bundle(occurrence),
    }


def node_document(node: NodeRecord) -> dict[str, Any]:
    """A node, as of its last heartbeat."""
    return {
        "node": node.name,
        "is_alive": node.is_alive,
        "is_leader": node.is_leader,
        "routes": list(node.routes),
        "capacity": node.capacity,
        "load": node.load,
        "version": node.version,
        "zone_data": node.zone_data,
        "started_at_utc": text(node.started),
        "seen_at_utc": text(node.seen),
        "left_at_utc": text(node.left),
        "gone_at_utc": text(node.gone),
    }


def audit_document(entry: AuditEntry, *, is_numbered: bool) -> dict[str, Any]:
    """An entry of the audit log, perhaps with its number."""
    return {
        "entry": entry.key if is_numbered else None,
        "at_utc": text(entry.at),
        "caller": entry.caller,
        "operation": entry.operation,
        "schedule_id": entry.schedule_id,
        "revision_before": entry.revision_before,
        "revision_after": entry.revision_after,
        "reason": entry.reason,
        "request_id": entry.request_id,
        "key_id": entry.key_id,
        "session_id": entry.session_id,
        "tool_call_id": entry.tool_call_id,
        "parent_schedule_id": entry.parent_schedule_id,
    }


def secret_document(secret: Secret) -> dict[str, Any]:
    """A secret without its value."""
    return {
        "name": secret.name,
        "hosts": list(secret.hosts),
        "programs": list(secret.programs),
        "created_at_utc": text(secret.created),
        "updated_at_utc": text(secret.updated),
    }


def key_document(key: ApiKey, *, now: Micros) -> dict[str, Any]:
    """An API key without the key itself."""
    return {
        "key_id": key.key_id,
        "tenant": key.tenant,
        "user": key.user,
        "scopes": sorted(key.scopes, key=list(Scope).index),
        "name": key.name,
        "agent": key.is_agent,
        "status": str(key.status(now)),
        "created_at_utc": text(key.created),
        "expires_at_utc": text(key.expires),
        "revoked_at_utc": text(key.revoked),
        "last_used_at_utc": text(key.used),
    }
