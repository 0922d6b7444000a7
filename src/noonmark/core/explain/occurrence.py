"""Explanations of an occurrence, and of the latest outcome of a schedule: one sentence, and the rules behind it."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from noonmark.core.describe.words import duration_words, instant_words, words
from noonmark.core.explain.clauses import (
    CLAUSES,
    halted,
    listed,
    lost_delivery,
    node,
    pause_words,
    plain,
    rate_words,
    started_words,
    unserved_clause,
)
from noonmark.core.explain.deciding_rule import LEASED, Case, open_run, standing
from noonmark.core.explain.explanation import Explanation, Rule
from noonmark.core.explain.steps import chain
from noonmark.core.ids import OriginKind, kind_of
from noonmark.core.instants import SECOND
from noonmark.core.interruption import PINGED, is_begun, is_unpinged
from noonmark.core.lifecycle import FINAL, LIVE, Phase, SchedulePhase
from noonmark.core.occurrence import in_force
from noonmark.core.reasons import Reason
from noonmark.core.targets import AGENT_ROUTES
from noonmark.core.triggers import EventTrigger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.explain.deciding_rule import Standing
    from noonmark.core.instants import Micros
    from noonmark.core.interruption import LostNode
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.expected_rate import RateWindow
    from noonmark.core.run import Run
    from noonmark.core.schedule import Schedule

LEADS: Mapping[Phase, str] = MappingProxyType(
    {
        Phase.PENDING: "It has not run yet",
        Phase.CLAIMED: "It has not run yet",
        Phase.DISPATCHING: "It is running",
        Phase.AWAITING_COMPLETION: "It is running",
        Phase.COMPLETED: "It ran",
        Phase.FAILED: "It ran and failed",
        Phase.TIMED_OUT: "It ran and timed out",
        Phase.CANCELLED: "It did not run",
        Phase.SKIPPED: "It did not run",
        Phase.MISFIRED: "It did not run",
        Phase.DELIVERY_FAILED: "It could not be delivered",
        Phase.SUPERSEDED: "It did not run",
    }
)
ONCE_BEGUN: Mapping[Phase, str] = MappingProxyType(
    {
        Phase.PENDING: "It has not ended yet",
        Phase.CLAIMED: "It has not ended yet",
        Phase.CANCELLED: "It was started and then cancelled",
    }
)
"""Where it makes a difference that it was started."""


def sentence(case: Case, at: Standing) -> str:
    """Its state, and why."""
    phase = case.occurrence.phase
    lead = ONCE_BEGUN.get(phase, LEADS[phase]) if case.has_begun else LEADS[phase]
    if is_unpinged(case.occurrence.route, case.occurrence.reason):
        lead = "It was missed"
    elif phase is Phase.AWAITING_COMPLETION and case.occurrence.route == PINGED and not is_begun(case.occurrence):
        lead = "It has not reported"
    if case.lost_node is not None and phase is Phase.DISPATCHING:
        lead = "It has not ended"
    if (still := case.suspended) is not None:
        since, until = instant_words(still.since), instant_words(still.until)
        lead = f"It has been suspended since {since}, when its window closed; it goes on at {until}"
    return f"{lead}: {_clause(case, at)}{_overrun(case)}."


def _overrun(case: Case) -> str:
    """That its run is longer than its interval."""
    if (overrun := case.overrun) is None:
        return ""
    length = overrun.length // SECOND * SECOND or overrun.length
    lead = "it has run" if overrun.is_going else "it ran"
    return f"; {lead} for {duration_words(length)}, longer than its interval of {duration_words(overrun.interval)}"


def _clause(case: Case, at: Standing) -> str:
    row = case.occurrence
    if at.reason is not None:
        return CLAUSES[at.reason](case)
    if case.lost_node is not None:
        return lost_delivery(case, case.lost_node)
    if at.rule is Rule.CLAIM:
        return f"{node(row.node)} has claimed it, and starts it at {instant_words(row.due)}"
    if row.phase not in LIVE:
        return "the record does not say why"
    why = "" if row.stop is None else halted(case) if row.stop is Reason.HALTED else plain(row.stop)
    stop = why and f"; it was asked to stop: {why}"
    waits = "" if (message := agent_wait(row, case.runs)) is None else f"; {message}"
    return f"{started_words(case)}{stop}{waits}"


def agent_wait(occurrence: Occurrence, runs: Sequence[Run]) -> str | None:
    """What a running turn of an agent waits for; None if it does not wait."""
    if occurrence.phase is not Phase.DISPATCHING or occurrence.route not in AGENT_ROUTES:
        return None
    run = open_run(occurrence, runs)
    return None if run is None or run.progress is None else run.progress.message or None


def explain_occurrence(  # noqa: PLR0913 - each is what was read about it
    schedule: Schedule,
    occurrence: Occurrence,
    runs: Sequence[Run] = (),
    *,
    now: Micros,
    gap: Occurrence | None = None,
    unserved: str | None = None,
    rate_window: RateWindow | None = None,
    lost_node: LostNode | None = None,
) -> Explanation:
    """Explain a stored occurrence of a schedule; runs of others are passed over.

    `gap` is the row of the fires that were missed just before it, where there is one. `unserved` says that no live
    node serves its target. `rate_window` is what is counted for the expected rate of the schedule. `lost_node` is its
    node if that is not alive, which only matters while a node holds it.
    """
    own = sorted((run for run in runs if run.occurrence_id == occurrence.id), key=lambda run: (run.started, run.id))
    case = Case(
        schedule=in_force(schedule, occurrence),
        occurrence=occurrence,
        now=now,
        runs=tuple(own),
        gap=gap,
        unserved=unserved,
        rate_window=rate_window,
        lost_node=lost_node if occurrence.phase in LEASED else None,
    )
    at = standing(case)
    return Explanation(
        summary=sentence(case, at),
        steps=chain(case, at),
        occurrence_id=occurrence.id,
        phase=str(occurrence.phase),
    )


OF: Mapping[OriginKind, str] = MappingProxyType(
    {
        OriginKind.TRIGGER: "of",
        OriginKind.MANUAL: "asked for at",
        OriginKind.EVENT: "triggered by an event at",
        OriginKind.BACKFILL: "made up for",
    }
)
"""How each came to the time that it has."""


def latest(rows: Sequence[Occurrence], *, now: Micros) -> Occurrence | None:
    """The occurrence with which something happened last; None when nothing has been due yet."""
    past = [row for row in rows if row.phase is not Phase.SUPERSEDED and _has_come(row, now)]
    return max(past, key=lambda row: _since(row, now), default=None)


def explain_latest(  # noqa: PLR0913 - likewise
    schedule: Schedule,
    row: Occurrence,
    runs: Sequence[Run],
    *,
    now: Micros,
    next_run: Micros | None,
    unserved: str | None = None,
    rate_window: RateWindow | None = None,
    lost_node: LostNode | None = None,
) -> Explanation:
    """Explain the last occurrence of a schedule, and say when it is due again, and whether its rate is as expected."""
    explanation = explain_occurrence(
        schedule, row, runs, now=now, unserved=unserved, rate_window=rate_window, lost_node=lost_node
    )
    which = f"`{row.id}`, {OF[kind_of(row.origin)]} {instant_words(row.nominal)}"
    summary = explanation.summary[0].lower() + explanation.summary[1:].removesuffix(".")
    after = _after(schedule) if next_run is None else _next(schedule, max(now, row.due), next_run)
    will_wait = row.phase in FINAL and next_run is not None
    at_present = f"; at present, {unserved_clause(unserved)}" if unserved is not None and will_wait else ""
    rate = rate_words(rate_window)
    return replace(explanation, summary=f"About its last occurrence, {which}: {summary}; {after}{at_present}{rate}.")


def _has_come(row: Occurrence, now: Micros) -> bool:
    return row.phase in FINAL or row.has_begun or row.due <= now


def _since(row: Occurrence, now: Micros) -> Micros:
    """When it reached its state, as far as the row says; one that waits for another attempt has just failed."""
    return min(row.due, now) if row.ended is None else row.ended


def _next(schedule: Schedule, after: Micros, next_run: Micros) -> str:
    """When it is next due, after the explained occurrence."""
    trigger = schedule.declaration.trigger
    following = next_run if next_run > after or trigger is None else trigger.next_micros(after)
    return "no other time is planned" if following is None else f"it is next due at {instant_words(following)}"


def _after(schedule: Schedule) -> str:
    """What is to come of a schedule that is not due at any time that is known."""
    trigger, upstreams = schedule.declaration.trigger, schedule.declaration.depends_on
    if schedule.phase is SchedulePhase.PAUSED:
        return pause_words(schedule)
    if schedule.phase is not SchedulePhase.ACTIVE:
        return f"the schedule is {schedule.phase}"
    if isinstance(trigger, EventTrigger):
        return f"the next event may trigger it ({words(trigger)})"
    if trigger is None and upstreams:
        return f"it fires again when all of {listed([one.schedule_id for one in upstreams])} have ended"
    return "no other time is planned"
