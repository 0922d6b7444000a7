"""Retry: how often a failed delivery is tried again, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noonmark.core.ids import fraction
from noonmark.core.instants import MAX_INSTANT, SECOND, Micros, micros_to_seconds, to_text
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.documents import Reader

MAX_ATTEMPTS = 100
MAX_MULTIPLIER = 100
MAX_BACKOFF_SECONDS = 604_800
LONGEST_RETRY: Micros = MAX_BACKOFF_SECONDS * SECOND
"""No retry is due later than this after the end before it."""
"""A week."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Up to `max_attempts` (1 to 100) deliveries.

    The pause after the first is `backoff`, and each later pause is `multiplier` (1 to 100) times as long, up to
    `max_backoff`. Both are at most a week.
    """

    max_attempts: int = 1
    backoff: Micros = SECOND
    multiplier: float = 2
    max_backoff: Micros = 300 * SECOND

    def to_document(self) -> dict[str, Any]:
        """Every setting, written out."""
        return {
            "max_attempts": self.max_attempts,
            "backoff_seconds": micros_to_seconds(self.backoff),
            "multiplier": self.multiplier,
            "max_backoff_seconds": micros_to_seconds(self.max_backoff),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDecision:
    """Whether a failed attempt is followed by another: at `retry_at`, or never."""

    reason: Reason
    attempt: int
    max_attempts: int
    failed_at: Micros
    retry_at: Micros | None = None

    def facts(self) -> Mapping[str, int | float | str]:
        """The numbers behind it."""
        numbers: dict[str, int | float | str] = {"attempt": self.attempt, "max_attempts": self.max_attempts}
        if self.retry_at is not None:
            numbers["delay_seconds"] = micros_to_seconds(self.retry_at - self.failed_at)
            numbers["retry_at"] = to_text(self.retry_at)
        return numbers


def read_retry(reader: Reader, field: str) -> RetryPolicy:
    """The policy in a field; without one, a single attempt."""
    if reader.raw(field) is None:
        return RetryPolicy()
    settings = reader.child(field)
    default = RetryPolicy()
    backoff = settings.seconds("backoff_seconds", default.backoff, high=MAX_BACKOFF_SECONDS)
    policy = RetryPolicy(
        max_attempts=settings.integer("max_attempts", default.max_attempts, low=1, high=MAX_ATTEMPTS),
        backoff=backoff,
        multiplier=settings.number("multiplier", default.multiplier, low=1, high=MAX_MULTIPLIER),
        # A long first pause alone is meant: the default maximum must not cut it short.
        max_backoff=settings.seconds(
            "max_backoff_seconds", max(backoff, default.max_backoff), high=MAX_BACKOFF_SECONDS
        ),
    )
    if policy.max_backoff < policy.backoff:
        settings.problem("max_backoff_seconds", "must not be less than backoff_seconds")
    settings.close()
    return policy


def next_attempt(
    policy: RetryPolicy, *, attempt: int, failed_at: Micros, occurrence_id: str, least: Micros = 0
) -> RetryDecision:
    """What follows when attempt number `attempt` (the first is 1) has failed.

    A tenth of the pause, at most, is added, by a hash: many that failed together do not all come back together. The sum
    is never longer than the longest pause, unless the target asked for `least` so much.
    """
    if attempt >= policy.max_attempts:
        return RetryDecision(
            reason=Reason.ATTEMPTS_EXHAUSTED, attempt=attempt, max_attempts=policy.max_attempts, failed_at=failed_at
        )
    pause = _pause(policy, attempt)
    spread = int(fraction(occurrence_id, attempt) * pause / 10)
    return RetryDecision(
        reason=Reason.RETRY_SCHEDULED,
        attempt=attempt,
        max_attempts=policy.max_attempts,
        failed_at=failed_at,
        retry_at=min(failed_at + max(min(pause + spread, policy.max_backoff), least), MAX_INSTANT),
    )


def _pause(policy: RetryPolicy, attempt: int) -> Micros:
    # No policy has more attempts than this; the bound keeps the power within what a float holds.
    growth = float(policy.multiplier) ** (min(attempt, MAX_ATTEMPTS) - 1)
    return int(min(policy.backoff * growth, policy.max_backoff))
