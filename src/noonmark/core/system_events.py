"""System events: the events that Noonmark emits about schedules, occurrences and nodes.

A store writes such an event in the transaction that makes it true, and only if a schedule of the tenant listens for its
type. The list is closed; everything in it is also on record where it happened.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.spend import to_dollars
from noonmark.core.causation import FIRST_FACT, chain_of_system_event
from noonmark.core.event import NOONMARK, Event
from noonmark.core.ids import fact_id, shown_name
from noonmark.core.instants import SECOND, micros_to_seconds, to_text
from noonmark.core.json_values import storable
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.policies.expected_rate import RateProblem
from noonmark.core.reasons import Explained, reason_sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.budgets.budget import Standing
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.expected_rate import RateAlert
    from noonmark.core.policies.runaway import Breach
    from noonmark.core.proposals import Proposal
    from noonmark.core.reasons import Reason
    from noonmark.core.run import Run
    from noonmark.core.schedule import AuditEntry, Schedule

LATE: Micros = SECOND
"""What starts later than that after its due time is late."""
MAX_ERROR = 2_000
MAX_LINE = 300


class SystemEvent(Explained):
    """The type of an event; `sentence` says when it is emitted."""

    COMPLETED = "occurrence.completed", "The work was done."
    FAILED = "occurrence.failed", "The work failed, and no attempt is left."
    TIMED_OUT = "occurrence.timed_out", "The last attempt took too long."
    CANCELLED = "occurrence.cancelled", "A caller cancelled it, or its schedule was deleted."
    SKIPPED = "occurrence.skipped", "A policy kept it from starting: overlap, a pause, a window, what it depends on."
    MISFIRED = "occurrence.misfired", "It was missed: one fire, or a whole gap of them with its count."
    DELIVERY_FAILED = "occurrence.delivery_failed", "The target was out of reach, or it is not known how it ended."
    RETRYING = "occurrence.retrying", "An attempt failed, and another one follows."
    STARTED_LATE = "occurrence.late", "It first started more than a second after its due time."
    OVERDUE = "occurrence.overdue", "It is still running after `expected_seconds`, or, as an agent, at the next fire."
    SCHEDULE_CREATED = "schedule.created", "A schedule is new."
    SCHEDULE_UPDATED = "schedule.updated", "Something about a schedule was declared anew."
    SCHEDULE_PAUSED = "schedule.paused", "A caller paused a schedule, or a rule did: failures, a budget, a runaway."
    SCHEDULE_RESUMED = "schedule.resumed", "A schedule that was paused goes on."
    SCHEDULE_COMPLETED = "schedule.completed", "A schedule has no further fire, and nothing of it is under way."
    SCHEDULE_DELETED = "schedule.deleted", "A schedule was deleted."
    SCHEDULE_PROPOSED = "schedule.proposed", "A schedule, or a change of one, waits for somebody's approval."
    SCHEDULE_APPROVED = "schedule.approved", "Somebody approved a proposal, and it is in force."
    SCHEDULE_DENIED = "schedule.denied", "Somebody denied a proposal, it was withdrawn, or it expired."
    RUNAWAY = "schedule.runaway", "A schedule broke a rule of its runaway guard, and was paused."
    TOO_OFTEN = "schedule.too_often", "A schedule started more often within a window than `expected_rate` says."
    TOO_RARE = "schedule.too_rare", "A window ended with fewer successes of a schedule than `expected_rate` says."
    PING_EARLY = "ping.early", "A ping came before a node had opened the occurrence that it counts for."
    PING_UNEXPECTED = "ping.unexpected", "A ping came that no occurrence expected: too early, too late, or once more."
    APPROVAL_REQUESTED = "approval.requested", "An occurrence goes beyond a soft budget, and waits for an approval."
    BUDGET_THRESHOLD = "budget.threshold", "A budget is used as far as its `warning_threshold`, once in each period."
    NODE_LOST = "node.lost", "A node sent no heartbeat for two leases, without having stopped."


ENDS = {
    Phase.COMPLETED: SystemEvent.COMPLETED,
    Phase.FAILED: SystemEvent.FAILED,
    Phase.TIMED_OUT: SystemEvent.TIMED_OUT,
    Phase.CANCELLED: SystemEvent.CANCELLED,
    Phase.SKIPPED: SystemEvent.SKIPPED,
    Phase.MISFIRED: SystemEvent.MISFIRED,
    Phase.DELIVERY_FAILED: SystemEvent.DELIVERY_FAILED,
}
"""The event of each ended phase; a superseded occurrence has none."""
RATE_PROBLEMS = {RateProblem.TOO_OFTEN: SystemEvent.TOO_OFTEN, RateProblem.TOO_RARE: SystemEvent.TOO_RARE}


def is_late(first_due: Micros, started: Micros) -> bool:
    """Whether a first start at that moment is worth telling."""
    return started - first_due > LATE


def change(before: Schedule, after: Schedule) -> SystemEvent:
    """What has happened to a schedule that is another one now."""
    if before.phase is after.phase:
        return SystemEvent.SCHEDULE_UPDATED
    match after.phase:
        case SchedulePhase.PAUSED:
            return SystemEvent.SCHEDULE_PAUSED
        case SchedulePhase.DELETED:
            return SystemEvent.SCHEDULE_DELETED
        case _:
            return (
                SystemEvent.SCHEDULE_RESUMED if before.phase is SchedulePhase.PAUSED else SystemEvent.SCHEDULE_UPDATED
            )


def of_occurrence(
    fact: SystemEvent,
    schedule: Schedule,
    occurrence: Occurrence,
    *,
    run: Run | None = None,
    waited_for: Reason | None = None,
) -> Event | None:
    """The event about an occurrence as it is now, its last run if that has just ended, and what it waited for.

    Every such fact has the same fields, so that a message which names them never lacks one. None when its chain has no
    room for it.
    """
    chain = chain_of_system_event(occurrence)
    if chain is None:
        return None
    payload = {
        "occurrence_id": occurrence.id,
        **_schedule(schedule),
        "origin": str(occurrence.origin),
        "phase": str(occurrence.phase),
        "reason": None if occurrence.reason is None else str(occurrence.reason),
        "summary": fact.sentence
        if occurrence.reason is None
        else reason_sentence(occurrence.reason, occurrence.detail),
        "detail": _detail(occurrence.detail),
        "nominal_at": to_text(occurrence.nominal),
        "due_at": to_text(occurrence.first_due),
        "attempt": occurrence.attempt,
        "retry_at": to_text(occurrence.due) if fact is SystemEvent.RETRYING else None,
        "late_seconds": _late_seconds(occurrence) if fact is SystemEvent.STARTED_LATE else None,
        "expected_seconds": _expected_seconds(schedule) if fact is SystemEvent.OVERDUE else None,
        "waited_for": None if waited_for is None else str(waited_for),
        "missed_count": occurrence.missed_count,
        "missed_from": None if occurrence.missed_first is None else to_text(occurrence.missed_first),
        "missed_to": None if occurrence.missed_last is None else to_text(occurrence.missed_last),
        **_error(run),
        "depth": chain.depth,
        "chain": [*chain.schedules, schedule.schedule_id],
    }
    return _event(fact, payload, chain.event_id(fact_id(fact, occurrence.id, occurrence.attempt)))


def of_schedule(fact: SystemEvent, schedule: Schedule, *, note: AuditEntry | None = None, failures: int = 0) -> Event:
    """The event about a schedule as it is now: who asked for the change, or how many failures in a row caused it."""
    payload = {
        **_schedule(schedule),
        "trigger_type": None if schedule.declaration.trigger is None else schedule.declaration.trigger.type,
        "phase": str(schedule.phase),
        "revision": schedule.revision,
        "at": to_text(schedule.updated),
        "by": None if note is None else note.caller,
        "reason": "pause_on_failure" if failures else None if note is None else note.reason,
        "failures_in_row": failures,
        "depth": FIRST_FACT.depth,
        "chain": [schedule.schedule_id],
    }
    key = fact_id(fact, schedule.uid, schedule.revision, schedule.updated)
    return _event(fact, payload, FIRST_FACT.event_id(key))


def of_proposal(fact: SystemEvent, proposal: Proposal, *, by: str, reason: str | None, at: Micros) -> Event:
    """The event about a proposal: that it waits, or how it was decided, by whom and why."""
    payload = {
        "schedule_id": proposal.schedule_id,
        "schedule_name": proposal.name,
        "user": proposal.owner.user,
        "proposal_id": proposal.proposal_id,
        "action": str(proposal.action),
        "base_revision": proposal.base_revision,
        "proposed_by": proposal.by,
        "proposed_at": to_text(proposal.proposed),
        "expires_at": to_text(proposal.expires),
        "by": by,
        "reason": reason,
        "at": to_text(at),
        "depth": FIRST_FACT.depth,
        "chain": [proposal.schedule_id],
    }
    return _event(fact, payload, FIRST_FACT.event_id(fact_id(fact, proposal.proposal_id)))


def of_rate(schedule: Schedule, alert: RateAlert) -> Event:
    """The event about a schedule that started too often, or succeeded too rarely, in a window."""
    fact = RATE_PROBLEMS[alert.problem]
    payload = {
        **_schedule(schedule),
        "summary": alert.to_sentence(),
        "expected_rate": alert.rate.to_document(),
        "count": alert.count,
        "windows": alert.windows,
        "window_from": to_text(alert.first),
        "window_to": to_text(alert.last),
        "depth": FIRST_FACT.depth,
        "chain": [schedule.schedule_id],
    }
    return _event(fact, payload, FIRST_FACT.event_id(fact_id(fact, schedule.uid, alert.last)))


def of_runaway(schedule: Schedule, breach: Breach) -> Event:
    """The event about a schedule that has broken a rule of the runaway guard."""
    payload = {
        **_schedule(schedule),
        "summary": breach.text,
        "rule": str(breach.rule),
        "seen": breach.seen,
        "limit": breach.limit,
        "since": to_text(breach.since),
        "phase": str(schedule.phase),
        "depth": FIRST_FACT.depth,
        "chain": [schedule.schedule_id],
    }
    # A schedule that is resumed and runs away once more in the same hour is paused at another time.
    key = fact_id(SystemEvent.RUNAWAY, schedule.uid, str(breach.rule), schedule.updated)
    return _event(SystemEvent.RUNAWAY, payload, FIRST_FACT.event_id(key))


def of_ping(fact: SystemEvent, schedule: Schedule, key: str, fields: Mapping[str, Any]) -> Event:
    """The event about a ping that counts later, or not at all."""
    payload = {**_schedule(schedule), **fields, "depth": FIRST_FACT.depth, "chain": [schedule.schedule_id]}
    return _event(fact, payload, key)


def early_ping_id(occurrence_id: str, *, is_start: bool) -> str:
    """The id of the event of an early ping: one start and one end for each occurrence."""
    return FIRST_FACT.event_id(fact_id(SystemEvent.PING_EARLY, occurrence_id, int(is_start)))


def unexpected_ping_id(uid: str, at: Micros) -> str:
    """The id of the event of an unexpected ping: at most one in a second for each schedule."""
    return FIRST_FACT.event_id(fact_id(SystemEvent.PING_UNEXPECTED, uid, at // SECOND))


def of_budget(standing: Standing) -> Event:
    """The event about a budget that is used as far as its threshold: what is settled, and what is reserved."""
    budget = standing.budget
    spent = {"settled": standing.settled, "reserved": standing.reserved}
    payload = {
        "scope": str(budget.scope),
        "scope_id": budget.scope_id,
        "period": str(budget.period),
        "period_start": to_text(standing.period_start),
        "period_end": None if standing.period_end is None else to_text(standing.period_end),
        "warning_threshold": budget.warning_threshold,
        "max_cost_usd": None if budget.max_cost is None else to_dollars(budget.max_cost),
        "max_tokens": budget.max_tokens,
        **{f"{name}_cost_usd": to_dollars(amount.cost or 0) for name, amount in spent.items()},
        **{f"{name}_tokens": amount.tokens for name, amount in spent.items()},
        "hard": budget.hard,
        "depth": FIRST_FACT.depth,
    }
    limits = [-1 if limit is None else limit for limit in (budget.max_cost, budget.max_tokens)]
    parts: tuple[str, ...] = (budget.tenant, budget.scope, budget.scope_id, budget.period)
    # A budget that was raised is another one: its threshold can be crossed again.
    key = fact_id(SystemEvent.BUDGET_THRESHOLD, *parts, standing.period_start, *limits)
    return _event(SystemEvent.BUDGET_THRESHOLD, payload, FIRST_FACT.event_id(key))


def of_lost_node(
    name: str, *, seen: Micros, started: Micros, version: str, load: int, routes: tuple[str, ...]
) -> Event:
    """The event about a lost node, with its last heartbeat."""
    payload = {
        "node": name,
        "seen_at": to_text(seen),
        "started_at": to_text(started),
        "version": version,
        "load": load,
        "routes": list(routes),
        "depth": FIRST_FACT.depth,
    }
    return _event(SystemEvent.NODE_LOST, payload, FIRST_FACT.event_id(fact_id(SystemEvent.NODE_LOST, name, seen)))


def _event(fact: SystemEvent, payload: dict[str, Any], key: str) -> Event:
    # The store replaces this moment with its own.
    return Event(event_type=str(fact), emitted=0, event_id=key, source=NOONMARK, payload=payload)


def _schedule(schedule: Schedule) -> dict[str, Any]:
    declared = schedule.declaration
    return {
        "schedule_id": schedule.schedule_id,
        "schedule_name": shown_name(schedule.schedule_id) if declared.name is None else declared.name,
        "labels": dict(declared.labels),
        "user": schedule.owner.user,
        "target_kind": declared.target.kind,
    }


def _detail(detail: str) -> Any:
    """The numbers behind a reason; a damaged record has none."""
    try:
        return json.loads(detail) if detail else {}
    except ValueError:
        return {}


def _error(run: Run | None) -> dict[str, str]:
    """What went wrong, on one line for a message, and the end of the whole text: there a traceback says what it was."""
    text = "" if run is None or run.error is None else storable(run.error).strip()
    last = text.rpartition("\n")[2].strip()
    return {"error": last if len(last) <= MAX_LINE else f"{last[: MAX_LINE - 1]}…", "error_text": text[-MAX_ERROR:]}


def _expected_seconds(schedule: Schedule) -> int | float | None:
    expected = schedule.declaration.expected
    return None if expected is None else micros_to_seconds(expected)


def _late_seconds(occurrence: Occurrence) -> int | float:
    return micros_to_seconds(
        (occurrence.first_due if occurrence.started is None else occurrence.started) - occurrence.first_due
    )
