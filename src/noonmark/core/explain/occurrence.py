"""Why an occurrence is as it is: one sentence for the operator, and the rules behind it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from noonmark.core.describe.words import instant_words
from noonmark.core.explain.clauses import CLAUSES, attempts, node, plain
from noonmark.core.explain.deciding_rule import Case, standing
from noonmark.core.explain.explanation import Explanation, Rule
from noonmark.core.explain.steps import chain
from noonmark.core.lifecycle import LIVE, Phase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.explain.deciding_rule import Standing
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
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
    """How it stands, and why."""
    phase = case.occurrence.phase
    lead = ONCE_BEGUN.get(phase, LEADS[phase]) if case.has_begun else LEADS[phase]
    if (still := case.suspended) is not None:
        since, until = instant_words(still.since), instant_words(still.until)
        lead = f"It has been suspended since {since}, when its window closed; it goes on at {until}"
    return f"{lead}: {_clause(case, at)}."


def _clause(case: Case, at: Standing) -> str:
    row = case.occurrence
    if at.reason is not None:
        return CLAUSES[at.reason](case)
    if at.rule is Rule.CLAIM:
        return f"{node(row.node)} has claimed it, and starts it at {instant_words(row.due)}"
    if row.phase not in LIVE:
        return "the record does not say why"
    since = "" if row.started is None else f" at {instant_words(max(row.started, row.due))}"
    stop = "" if row.stop is None else f"; it was asked to stop: {plain(row.stop)}"
    return f"{node(row.node)} started attempt {attempts(case)}{since}{stop}"


def explain_occurrence(
    schedule: Schedule,
    occurrence: Occurrence,
    runs: Sequence[Run] = (),
    *,
    now: Micros,
    gap: Occurrence | None = None,
    unserved: str | None = None,
) -> Explanation:
    """Explain a stored occurrence of a schedule; runs of others are passed over.

    `gap` is the row of the fires that were missed just before it, where there is one. `unserved` says that no live
    node serves its target.
    """
    own = sorted((run for run in runs if run.occurrence_id == occurrence.id), key=lambda run: (run.started, run.id))
    case = Case(schedule=schedule, occurrence=occurrence, now=now, runs=tuple(own), gap=gap, unserved=unserved)
    at = standing(case)
    return Explanation(
        summary=sentence(case, at),
        steps=chain(case, at),
        occurrence_id=occurrence.id,
        phase=str(occurrence.phase),
    )
