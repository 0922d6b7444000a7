"""One sentence for the operator: what happened to an occurrence, and why."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from noonmark.core.describe.words import instant_words
from noonmark.core.explain.clauses import CLAUSES
from noonmark.core.explain.explanation import Rule
from noonmark.core.explain.phrases import attempts, node, plain
from noonmark.core.lifecycle import LIVE, Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.explain.deciding_rule import Case, Standing

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
        goes_on = "no other opens" if still.until is None else f"it goes on at {instant_words(still.until)}"
        lead = f"It has been suspended since {instant_words(still.since)}, when its window closed; {goes_on}"
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
