"""Log lines: what ran, what was missed, failed or skipped, and why."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from noonmark.core.documents import present
from noonmark.core.ids import is_hidden, visible_id
from noonmark.core.instants import HOUR, SECOND, micros_to_seconds, to_text
from noonmark.core.interruption import failure_line, log_name, more_about, pause_line, rate_line, runaway_line
from noonmark.core.lifecycle import Phase
from noonmark.core.occurrence import kept_facts
from noonmark.core.reasons import reason_sentence
from noonmark.core.run import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.clock_trust import Trust
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.planner import Plan
    from noonmark.core.policies.expected_rate import RateAlert
    from noonmark.core.policies.runaway import Breach
    from noonmark.core.schedule import Schedule
    from noonmark.core.settlement import Settlement

logger = logging.getLogger("noonmark.driver")
jobs = logging.getLogger("noonmark.jobs")

WARNING_INTERVAL: Micros = HOUR
"""How often the same warning about a schedule is logged."""
MAX_WARNED = 10_000
"""A node remembers its warnings about this many schedules; beyond that, an older one may be repeated early."""
MAX_COMPLETED_LINES = 50
"""Up to this many completions that are written together get a line each: a line takes longer than a run."""
QUIET = frozenset({Outcome.COMPLETED, Outcome.LEASE_LOST, Outcome.SUSPENDED, Outcome.CANCELLED})
"""Outcomes that are not failures."""
FAILED = frozenset({Phase.FAILED, Phase.TIMED_OUT, Phase.DELIVERY_FAILED})


def ended(schedule: Schedule, row: Occurrence, *, reach: str | None = "") -> None:
    """An occurrence ended undelivered: info if skipped or cancelled as declared, an error if failed, else a warning."""
    was_asked_for = row.phase in (Phase.SKIPPED, Phase.CANCELLED) and not row.missed_count
    level = logging.INFO if was_asked_for else logging.ERROR if row.phase in FAILED else logging.WARNING
    if not logger.isEnabledFor(level):
        return
    first, last = to_text(row.missed_first or row.nominal), to_text(row.missed_last or row.nominal)
    when = f"the fire of {first}" if first == last else f"{row.missed_count:,} fires, {first} to {last},"
    why = "" if row.reason is None else reason_sentence(row.reason, row.detail)
    more = f" {more_about(row.id, reach)}" if row.phase in FAILED else ""
    logger.log(level, "%s: %s ended as %s. %s%s", log_name(schedule), when, row.phase, why, more, extra=_ids(row))


def skipped(
    warned: dict[str, Micros], schedule: Schedule, row: Occurrence, *, now: Micros, reach: str | None = ""
) -> None:
    """An occurrence was skipped because an earlier one has not ended: a warning per schedule and hour, else info."""
    if not _is_first(warned, schedule, now=now):
        ended(schedule, row, reach=reach)
        return
    earlier = (kept_facts(row) or {}).get("in_flight")
    logger.warning(
        "%s: the fire of %s was skipped, because an earlier one%s has not ended. %s;"
        " further skips are logged at level info for an hour",
        log_name(schedule),
        to_text(row.nominal),
        "" if earlier is None else f" ({earlier})",
        more_about(row.id, reach),
        extra=_ids(row),
    )


def unserved(
    warned: dict[str, Micros], schedule: Schedule, row: Occurrence, *, now: Micros, reach: str | None = ""
) -> None:
    """No live node serves the target of a schedule: one warning per schedule and hour."""
    if not _is_first(warned, schedule, now=now):
        return
    logger.warning(
        "%s: no live node serves its target, %s: the fire of %s ended as %s. %s; this is not repeated for an hour",
        log_name(schedule),
        row.route,
        to_text(row.nominal),
        row.phase,
        more_about(row.id if is_hidden(row.schedule_id) else row.schedule_id, reach),
        extra=_ids(row),
    )


def begins_again(schedule: Schedule, row: Occurrence) -> None:
    """A run starts once more, because the node that ran it was lost or stopped."""
    jobs.info(
        "%s: the run of %s begins again, because the node that ran it was killed, stopped or lost",
        log_name(schedule),
        to_text(row.nominal),
        extra=_ids(row),
    )


def completed(runs: Sequence[tuple[Schedule, Settlement]]) -> None:
    """Runs completed: a line each, or one for many."""
    if len(runs) > MAX_COMPLETED_LINES:
        jobs.info("%d runs completed", len(runs))
        return
    for schedule, settlement in runs:
        run = settlement.run
        jobs.info(
            "%s: the run of %s completed in %.6f s",
            log_name(schedule),
            to_text(settlement.occurrence.nominal),
            0 if run.ended is None else micros_to_seconds(run.ended - run.started),
            extra=_ids(settlement.occurrence) | {"run_id": run.id},
        )


def failed(schedule: Schedule, settlement: Settlement, *, reach: str | None = "") -> None:
    """A run did not complete: a warning if it is retried, else an error. Nothing if it did, or was cancelled."""
    run, phase = settlement.run, settlement.phase
    if phase in (Phase.COMPLETED, Phase.AWAITING_COMPLETION) or run.outcome in QUIET:
        return
    line = failure_line(
        schedule,
        settlement.occurrence,
        run,
        settlement.reason,
        retry_at=settlement.retry_at,
        own_words=settlement.own_words,
        reach=reach,
    )
    level = logging.ERROR if settlement.retry_at is None else logging.WARNING
    jobs.log(level, "%s", line, extra=_ids(settlement.occurrence) | {"run_id": run.id})


def paused(schedule: Schedule, settlement: Settlement, *, reach: str | None = "") -> bool:
    """A schedule was paused because of its last run; nothing if it was not, or not for that. Returns whether it was."""
    line = pause_line(schedule, settlement.run, reach)
    if line is not None:
        logger.warning("%s", line, extra={"schedule_id": schedule.schedule_id})
    return line is not None


def stopping(count: int, grace: Micros | None) -> None:
    """A node stops, and waits for its runs: up to the grace period, or until they end."""
    limit = "" if grace is None else f" up to {micros_to_seconds(grace):g} s"
    logger.info("stopping: waiting%s for %s to end", limit, "1 run" if count == 1 else f"{count:,} runs")


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
    limit = (
        "at its next fire" if expected is None else f"after more than the expected {micros_to_seconds(expected):g} s"
    )
    logger.warning("%s is still running %s", log_name(schedule), limit, extra=_ids(row))


def rate(schedule: Schedule, alert: RateAlert) -> None:
    """A schedule started too often, or succeeded too rarely."""
    logger.warning("%s", rate_line(schedule, alert), extra={"schedule_id": schedule.schedule_id})


def runaway(schedule: Schedule, breach: Breach, *, reach: str | None = "") -> None:
    """A schedule has broken a rule of the runaway guard."""
    logger.warning("%s", runaway_line(schedule, breach, reach), extra={"schedule_id": schedule.schedule_id})


def lost(node: str, seen: Micros) -> None:
    """Another node is lost."""
    logger.warning("node %s is lost: its last heartbeat was at %s, and it did not stop cleanly", node, to_text(seen))


def process_gone(node: str, leases: int) -> None:
    """The process of another node on this machine is gone, and what it held begins again."""
    logger.warning(
        "the process of node %s is gone: its %s now", node, "lease ends" if leases == 1 else f"{leases:,} leases end"
    )


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
        log_name(schedule),
        to_text(plan.snapshot.watermark),
        to_text(plan.watermark),
    )


def _ids(row: Occurrence) -> dict[str, str]:
    """Fields to find all lines about an occurrence or a schedule; a hidden one has no id to find it by."""
    return present(occurrence_id=row.id, schedule_id=visible_id(row.schedule_id))


def _is_first(warned: dict[str, Micros], schedule: Schedule, *, now: Micros) -> bool:
    """Whether a schedule has had no such warning for an hour; if so, this one is remembered."""
    before = warned.get(schedule.uid)
    if before is not None and before <= now < before + WARNING_INTERVAL:
        return False
    warned.pop(schedule.uid, None)
    if len(warned) >= MAX_WARNED:
        del warned[next(iter(warned))]  # the oldest
    warned[schedule.uid] = now
    return True
