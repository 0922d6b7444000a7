"""Explanations: one sentence, and the rules that were applied, in order."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Any

from noonmark.core.frozen import frozen

DOES_NOT_APPLY = "does_not_apply"
"""The schedule, or the way in which the occurrence came about, has nothing to do with this rule."""
NOT_YET = "not_yet"
"""The rule decides later."""
NOT_REACHED = "not_reached"
"""A rule before it has decided."""
NOT_KNOWN = "not_known"
"""The rule was applied, and its result is not stored."""

Facts = dict[str, Any]
"""JSON: numbers, texts, lists of such; instants as RFC 3339 text, lengths of time in seconds."""


class Rule(StrEnum):
    """The rules, in the order in which they apply."""

    TRIGGER = "trigger"
    """Whether the time was named, or what else asked for it."""
    DST = "dst"
    """What a change of the clock did to it."""
    BOUNDS = "bounds"
    """Whether it is within the life of the schedule and of its trigger."""
    PAUSE = "pause"
    """Whether the schedule was paused."""
    WINDOW = "window"
    """Whether it could still start in time."""
    MISFIRE = "misfire"
    """Whether it was taken up in time, and what the policy says about it if not."""
    DEPENDENCIES = "dependencies"
    """Whether the schedules it depends on had run."""
    OVERLAP = "overlap"
    """Whether an earlier occurrence was in its way."""
    LIMITS = "limits"
    """Whether a place under the concurrency key, one of its `max_runs`, and room in its budgets were free."""
    CLAIM = "claim"
    """Whether a node took it."""
    RUNS = "runs"
    """How its deliveries went."""
    RATE = "rate"
    """Whether the schedule at present starts and succeeds as often as expected, whatever becomes of this occurrence."""


@frozen(kw_only=True)
class Step:
    """One rule, what it decided, and the facts behind that."""

    rule: Rule
    decision: str
    """A stable word: the code of a reason where there is one."""
    facts: Facts = field(default_factory=dict, hash=False)

    def to_document(self) -> Facts:
        """As JSON."""
        return {"rule": str(self.rule), "decision": self.decision, "facts": self.facts}


@frozen(kw_only=True)
class Explanation:
    """Why something ran, runs, will run, or did not: a step for every rule, whether or not it applies."""

    summary: str
    """One sentence in plain words."""
    steps: tuple[Step, ...]
    occurrence_id: str | None = None
    """The explained occurrence; None if there is no record of one."""
    phase: str | None = None
    """The phase of that occurrence."""

    def to_document(self) -> Facts:
        """As JSON."""
        return {
            "occurrence_id": self.occurrence_id,
            "phase": self.phase,
            "summary": self.summary,
            "steps": [step.to_document() for step in self.steps],
        }
