"""Settlement: what becomes of an occurrence when its delivery has ended, in whichever way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from noonmark.core.lifecycle import Phase, step
from noonmark.core.policies.delivery import Delivery
from noonmark.core.policies.retry import next_attempt
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome, Run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Usage
    from noonmark.core.schedule import Declaration

FAILURES = {
    Outcome.FAILED: (Phase.FAILED, Reason.FAILED),
    Outcome.TIMED_OUT: (Phase.TIMED_OUT, Reason.TIMED_OUT),
    Outcome.DELIVERY_FAILED: (Phase.DELIVERY_FAILED, Reason.UNDELIVERABLE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """How one delivery ended: what the target said, and when it began and ended."""

    outcome: Outcome
    started: Micros
    ended: Micros
    result: Any = field(default=None, hash=False)
    error: str | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What to write, on condition that the fence is still this one.

    `retry_at` is set exactly when the phase is `pending`: the occurrence keeps its slot and comes back then. Any other
    phase frees the slot and the place under its concurrency key, and wakes whoever waits for them.
    """

    occurrence: Occurrence
    phase: Phase
    reason: Reason
    run: Run
    attempt: int
    """How many attempts it has had; a lease that was lost takes its attempt back."""
    retry_at: Micros | None = None
    pause_after: int | None = None
    """Pause the schedule when so many of its occurrences failed in a row."""
    facts: Mapping[str, int | float | str] = field(default_factory=dict)

    @property
    def is_failure(self) -> bool:
        """Whether it counts for `pause_on_failure`."""
        return self.phase in (Phase.FAILED, Phase.TIMED_OUT, Phase.DELIVERY_FAILED)


def settle(occurrence: Occurrence, declaration: Declaration, delivered: Delivered, *, node: str) -> Settlement:
    """Decide what the end of a delivery means: an end, or another attempt."""
    run = Run(
        id=f"{occurrence.id}-{occurrence.fence}",
        occurrence_id=occurrence.id,
        attempt=occurrence.attempt,
        node=node,
        started=delivered.started,
        ended=delivered.ended,
        outcome=delivered.outcome,
        result=delivered.result,
        error=delivered.error,
        usage=delivered.usage,
    )
    if delivered.outcome is Outcome.COMPLETED:
        return _end(occurrence, run, Phase.COMPLETED, Reason.SUCCEEDED)
    if delivered.outcome is Outcome.CANCELLED:
        return _end(occurrence, run, Phase.CANCELLED, Reason.CANCELLED)
    if delivered.outcome is Outcome.LEASE_LOST:
        return _hand_back(occurrence, declaration, run)
    return _failed(occurrence, declaration, run)


def _failed(occurrence: Occurrence, declaration: Declaration, run: Run) -> Settlement:
    phase, reason = FAILURES[run.outcome or Outcome.FAILED]
    ended = run.started if run.ended is None else run.ended
    decision = next_attempt(
        declaration.retry_policy, attempt=occurrence.attempt, failed_at=ended, occurrence_id=occurrence.id
    )
    # Under at_most_once a run that timed out may still be at work, so it must not begin again.
    unknown = declaration.delivery is Delivery.AT_MOST_ONCE and run.outcome is Outcome.TIMED_OUT
    window = declaration.window
    closes_at = None if window is None else window.closes_at(occurrence.first_due)
    too_late = decision.retry_at is not None and closes_at is not None and decision.retry_at >= closes_at
    if decision.retry_at is not None and not unknown and not too_late:
        return Settlement(
            occurrence=occurrence,
            phase=step(occurrence.phase, Phase.PENDING),
            reason=decision.reason,
            run=run,
            retry_at=decision.retry_at,
            attempt=occurrence.attempt,
            facts=decision.facts(),
        )
    if declaration.retry_policy.max_attempts > 1 and decision.retry_at is None:
        reason = decision.reason
    return replace(
        _end(occurrence, run, phase, reason), pause_after=declaration.pause_on_failure, facts=decision.facts()
    )


def _hand_back(occurrence: Occurrence, declaration: Declaration, run: Run) -> Settlement:
    """A node that stops gives back what it cannot finish; that was no attempt, unless it must not begin twice."""
    if declaration.delivery is Delivery.AT_MOST_ONCE:
        unknown = _end(occurrence, run, Phase.DELIVERY_FAILED, Reason.OUTCOME_UNKNOWN)
        return replace(unknown, pause_after=declaration.pause_on_failure)
    return Settlement(
        occurrence=occurrence,
        phase=step(occurrence.phase, Phase.PENDING),
        reason=Reason.LEASE_LOST,
        run=run,
        retry_at=run.ended,
        attempt=occurrence.attempt - 1,
    )


def _end(occurrence: Occurrence, run: Run, phase: Phase, reason: Reason) -> Settlement:
    return Settlement(
        occurrence=occurrence,
        phase=step(occurrence.phase, phase),
        reason=reason,
        run=run,
        attempt=occurrence.attempt,
    )
