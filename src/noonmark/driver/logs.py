"""Log lines: what was missed, failed or skipped, and why."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from noonmark.core.instants import SECOND, micros_to_seconds, to_text
from noonmark.core.lifecycle import Phase
from noonmark.core.log_summary import log_summary

if TYPE_CHECKING:
    from noonmark.core.clock_trust import Trust
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.plans import Plan
    from noonmark.core.schedule import Schedule
    from noonmark.core.settlement import Settlement

logger = logging.getLogger("noonmark.driver")
UNSERVED_INTERVAL: Micros = 3_600 * SECOND
"""How often it is logged that no node serves the target of a schedule."""

jobs = logging.getLogger("noonmark.jobs")


def ended(schedule: Schedule, row: Occurrence) -> None:
    """An occurrence ended without delivery: info if it was skipped or cancelled as declared, else a warning."""
    was_asked_for = row.phase in (Phase.SKIPPED, Phase.CANCELLED) and not row.missed_count
    level = logging.INFO if was_asked_for else logging.WARNING
    if not logger.isEnabledFor(level):
        return
    first, last = to_text(row.missed_first or row.nominal), to_text(row.missed_last or row.nominal)
    when = f"the fire of {first}" if first == last else f"{row.missed_count:,} fires, {first} to {last},"
    why = "" if row.reason is None else row.reason.sentence
    logger.log(level, "%s: %s ended as %s. %s", _called(schedule), when, row.phase, why, extra=_ids(row))


def unserved(warned: dict[str, Micros], schedule: Schedule, row: Occurrence, *, now: Micros) -> None:
    """No live node serves the target of a schedule: one warning per schedule and hour."""
    for uid in [uid for uid, time in warned.items() if not now - UNSERVED_INTERVAL < time <= now]:
        del warned[uid]
    if schedule.uid in warned:
        return
    warned[schedule.uid] = now
    logger.warning(
        "%s: no live node serves its target, %s: the fire of %s ended as %s."
        " `noonmark schedule explain %s` says more; this is not repeated for an hour",
        _called(schedule),
        row.route,
        to_text(row.nominal),
        row.phase,
        schedule.schedule_id,
        extra=_ids(row),
    )


def failed(schedule: Schedule, settlement: Settlement) -> None:
    """A run did not complete."""
    run, allowed = settlement.run, schedule.declaration.retry_policy.max_attempts
    then = "" if settlement.retry_at is None else f", retry at {to_text(settlement.retry_at)}"
    jobs.warning(
        "%s: the run of %s %s, attempt %d of %d%s%s",
        _called(schedule),
        to_text(settlement.occurrence.nominal),
        run.outcome,
        run.attempt,
        allowed,
        then,
        log_summary(schedule.declaration.target.kind, run, settlement.reason, settlement.own_words),
        extra=_ids(settlement.occurrence) | {"run_id": run.id},
    )


def leader(node: str, leads: str | None, term: int) -> None:
    """The leader changed."""
    if leads is None:
        logger.info("%s stops and gives up leadership, term %d", node, term)
    elif leads == node:
        logger.info("%s is now the leader, term %d", node, term)
    else:
        logger.info("%s is no longer the leader: %s is, term %d", node, leads, term)


def overdue(schedule: Schedule, row: Occurrence) -> None:
    """A run takes longer than expected."""
    expected = schedule.declaration.expected
    limit = "expected" if expected is None else f"the expected {micros_to_seconds(expected):g} s"
    logger.warning("%s is still running after more than %s", _called(schedule), limit, extra=_ids(row))


def lost(node: str, seen: Micros) -> None:
    """Another node is lost."""
    logger.warning("node %s is lost: its last heartbeat was at %s, and it did not stop cleanly", node, to_text(seen))


def clock(before: Trust, after: Trust) -> None:
    """The store's clock leapt ahead, was confirmed, or came back."""
    if after.doubt is not None and (before.doubt is None or before.doubt.since != after.doubt.since):
        logger.warning(
            "the store's clock leapt ahead by %d s, to %s: nothing is planned, started or pruned until it returns,"
            " keeps running for a lease, or an operator confirms it",
            after.doubt.ahead // SECOND,
            to_text(after.doubt.since.time),
        )
    elif before.doubt is not None and after.doubt is None and after.last is not None:
        meaning = "is trusted" if after.last.time >= before.doubt.since.time else "is back"
        logger.warning("the store's clock %s: it is %s", meaning, to_text(after.last.time))
    if after.has_fallen_back and after.last is not None:
        logger.warning("the store's clock fell back to %s: checking what was planned ahead", to_text(after.last.time))


def rewound(schedule: Schedule, plan: Plan) -> None:
    """A schedule that a fast clock planned too far is planned again."""
    logger.warning(
        "%s was planned up to %s by a clock that was ahead; planning it again from %s",
        _called(schedule),
        to_text(plan.snapshot.watermark),
        to_text(plan.watermark),
    )


def _ids(row: Occurrence) -> dict[str, str]:
    """Fields to find all lines about an occurrence or a schedule."""
    return {"occurrence_id": row.id, "schedule_id": row.schedule_id}


def _called(schedule: Schedule) -> str:
    """The schedule's name, or else its id and its route."""
    return schedule.declaration.name or f"{schedule.schedule_id} ({schedule.declaration.target.route})"
