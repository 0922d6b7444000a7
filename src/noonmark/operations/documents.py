"""Documents: schedules, occurrences, runs, events and nodes as every surface tells them, in JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.core.instants import SECOND, to_text
from noonmark.core.lifecycle import FINAL, Phase, SchedulePhase
from noonmark.core.policies.jitter import due_at
from noonmark.core.settlement import run_id
from noonmark.core.triggers import EventTrigger
from noonmark.operations.failures import failure_class, failure_detail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.audit import AuditEntry
    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Run
    from noonmark.core.schedule import Schedule
    from noonmark.ports.records import NodeRecord, StoredSchedule

NEXT_FIRES = 5
SMALL_TARGET = 4_096
"""Longer targets are not told again with every occurrence of a list."""
TERMS = ("trigger_snapshot", "target_snapshot", "misfire_policy", "overlap_policy", "missing_target_policy")
"""What an occurrence document tells of the declaration that is in force for it."""


def text(instant: Micros | None) -> str | None:
    """An instant as RFC 3339, in UTC."""
    return None if instant is None else to_text(instant)


def schedule_document(kept: StoredSchedule, *, now: Micros) -> dict[str, Any]:
    """A schedule: what was declared, and what is read of it."""
    schedule, counters = kept.schedule, kept.counters
    fires = _next_fires(kept, now=now)
    return {
        "schedule_id": schedule.schedule_id,
        "name": None,
        "description": "",
        "labels": {},
        "trigger": None,
        **{name: value for name, value in schedule.declaration.to_document().items() if name != "schedule_id"},
        # What it says when it is declared again: paused or not.
        "enabled": schedule.phase is not SchedulePhase.PAUSED,
        "phase": str(schedule.phase),
        "revision": schedule.revision,
        "owner": {"tenant": schedule.owner.tenant, "user": schedule.owner.user},
        "source": schedule.source,
        "next_run_at": text(_next_run(kept, fires)),
        "next_fire_times": [to_text(time) for time in fires],
        "last_run_at": text(counters.last_started),
        "last_phase": None if counters.last_phase is None else str(counters.last_phase),
        "counters": {
            "total": counters.total,
            "successful": counters.successful,
            "failed": counters.failed,
            "missed": counters.missed,
            "skipped": counters.skipped,
        },
        "created_at_utc": text(schedule.created),
        "updated_at_utc": text(schedule.updated),
        "deleted_at_utc": text(schedule.deleted),
    }


def next_run(kept: StoredSchedule, *, now: Micros) -> Micros | None:
    """When a schedule is next due by itself, as far as that is known."""
    return _next_run(kept, _next_fires(kept, now=now))


def _next_fires(kept: StoredSchedule, *, now: Micros) -> list[Micros]:
    """The next nominal times of its trigger, no more than the runs it has left; none while it is not active."""
    schedule = kept.schedule
    trigger, max_runs = schedule.declaration.trigger, schedule.declaration.max_runs
    if schedule.phase is not SchedulePhase.ACTIVE or trigger is None or isinstance(trigger, EventTrigger):
        return []
    left = NEXT_FIRES if max_runs is None else min(NEXT_FIRES, max(0, max_runs - kept.counters.admitted))
    found: list[Micros] = []
    time: Micros | None = now
    while len(found) < left and time is not None:
        time = trigger.next_micros(time)
        found += [] if time is None else [time]
    return found


def _next_run(kept: StoredSchedule, fires: list[Micros]) -> Micros | None:
    """When it is next due by itself: what is planned already, else its next nominal time with its jitter."""
    trigger = kept.schedule.declaration.trigger
    if kept.next_own is not None or trigger is None or not fires:
        return kept.next_own
    return due_at(trigger, kept.schedule.uid, fires[0])


def occurrence_document(one: Occurrence, schedule: Schedule | None = None, run: Run | None = None) -> dict[str, Any]:
    """An occurrence as it stands.

    With its schedule, it tells the terms under which it runs, as long as the present declaration is the one in force
    for it; with its last run, when and where that was.
    """
    return occurrence_documents([one], schedule, {} if run is None else {one.id: run})[0]


def occurrence_documents(
    rows: Sequence[Occurrence], schedule: Schedule | None, runs: Mapping[str, Run], *, largest: int | None = None
) -> list[dict[str, Any]]:
    """Occurrences of one schedule, with the last runs of those that have one, by their ids.

    A target that takes more than so many characters is left out.
    """
    terms = dict.fromkeys(TERMS) if schedule is None else _terms(schedule, largest)
    return [_occurrence(one, schedule, terms, runs.get(one.id)) for one in rows]


def _terms(schedule: Schedule, largest: int | None) -> dict[str, Any]:
    """What the present declaration says of every occurrence."""
    declared = schedule.declaration.to_document()
    target = declared["target"]
    if largest is not None and len(json.dumps(target)) > largest:
        target = None
    policies = {name: declared.get(name) for name in TERMS[2:]}
    return {"trigger_snapshot": declared.get("trigger"), "target_snapshot": target} | policies


def _occurrence(one: Occurrence, schedule: Schedule | None, terms: dict[str, Any], run: Run | None) -> dict[str, Any]:
    if schedule is None or one.revision != schedule.revision:
        terms = dict.fromkeys(TERMS)
    if one.overrides is not None and one.overrides.overlap_policy is not None:
        terms = terms | {"overlap_policy": one.overrides.overlap_policy.to_document()}
    last = run if one.phase in FINAL else None
    node, started = (one.node, _began(one)) if last is None else (last.node, last.started)
    return {
        "occurrence_id": one.id,
        "schedule_id": one.schedule_id,
        "schedule_revision": one.revision,
        "superseded_by_revision": _superseded_by(one, schedule),
        "phase": str(one.phase),
        "origin": str(one.origin),
        "nominal_at_utc": text(one.nominal),
        "due_at_utc": text(one.due),
        "attempt": one.attempt,
        "attempt_count": one.attempt,
        "reason": None if one.reason is None else str(one.reason),
        "why": None if one.reason is None else one.reason.sentence,
        "detail": _detail(one.detail),
        "failure_class": failure_class(one, run),
        "failure_detail": failure_detail(one, run),
        "missed_count": one.missed_count,
        "missed_from": text(one.missed_first),
        "missed_to": text(one.missed_last),
        "waiting_for": None if one.waiting_for is None else str(one.waiting_for),
        "node": node,
        "claimed_by": node,
        "started_at_utc": text(started),
        "dispatched_at_utc": text(started),
        "completed_at_utc": text(one.ended),
        "deadline_utc": text(one.deadline),
        "run_id": last.id if last is not None else None if one.started is None else run_id(one),
        "delivery_correlation_id": one.id,
        "payload": one.payload,
        **terms,
    }


def _began(one: Occurrence) -> Micros | None:
    """When the delivery that goes on began: a start may be committed early, but nothing begins before it is due."""
    return None if one.started is None else max(one.started, one.due)


def _superseded_by(one: Occurrence, schedule: Schedule | None) -> int | None:
    """The revision whose rule does not name it, as long as there is no later one that may have been it."""
    is_known = schedule is not None and one.phase is Phase.SUPERSEDED and schedule.revision == one.revision + 1
    return one.revision + 1 if is_known else None


def _detail(detail: str) -> dict[str, Any]:
    """The numbers behind its reason."""
    try:
        facts = json.loads(detail) if detail else {}
    except ValueError:
        facts = {"text": detail}
    return facts if isinstance(facts, dict) else {"text": detail}


def run_document(run: Run, schedule_id: str) -> dict[str, Any]:
    """A run; without an end while it goes on."""
    usage = run.usage
    return {
        "run_id": run.id,
        "occurrence_id": run.occurrence_id,
        "schedule_id": schedule_id,
        "attempt": run.attempt,
        "node": run.node,
        "started_at_utc": text(run.started),
        "ended_at_utc": text(run.ended),
        "duration_seconds": None if run.ended is None else (run.ended - run.started) / SECOND,
        "outcome": None if run.outcome is None else str(run.outcome),
        "result": run.result,
        "error": run.error,
        "usage": None if usage is None else {"tokens": usage.tokens, "cost_usd": usage.cost_usd},
    }


def event_document(event: Event) -> dict[str, Any]:
    """An event as it is kept."""
    return event.to_envelope()


def node_document(node: NodeRecord) -> dict[str, Any]:
    """A node as it was last heard of."""
    return {
        "node": node.name,
        "is_alive": node.is_alive,
        "is_leader": node.is_leader,
        "routes": list(node.routes),
        "capacity": node.capacity,
        "load": node.load,
        "version": node.version,
        "started_at_utc": text(node.started),
        "seen_at_utc": text(node.seen),
        "left_at_utc": text(node.left),
    }


def note_document(note: AuditEntry) -> dict[str, Any]:
    """An entry of the audit log."""
    return {
        "entry": note.key,
        "at_utc": text(note.at),
        "caller": note.caller,
        "operation": note.operation,
        "schedule_id": note.schedule_id,
        "revision_before": note.revision_before,
        "revision_after": note.revision_after,
        "reason": note.reason,
        "request_id": note.request_id,
    }
