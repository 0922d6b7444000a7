"""Retry: how often a failed delivery is tried again, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.frozen import frozen
from noonmark.core.ids import fraction
from noonmark.core.instants import MAX_INSTANT, SECOND, Micros, micros_to_seconds, to_text
from noonmark.core.json_values import shown, text_value
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.documents import Reader

MAX_ATTEMPTS = 100
MAX_MULTIPLIER = 100
MAX_BACKOFF_SECONDS = 604_800
MAX_EXCEPTIONS = 50
"""How many exceptions each of `on` and `not_on` may name."""
TIMEOUT = ("TimeoutError",)
"""What a run that took longer than its timeout counts as."""
LONGEST_RETRY: Micros = MAX_BACKOFF_SECONDS * SECOND
"""No retry is due later than this after the end before it."""
"""A week."""


@frozen(kw_only=True)
class RetryPolicy:
    """Up to `max_attempts` (1 to 100) deliveries.

    The pause after the first is `backoff`, and each later pause is `multiplier` (1 to 100) times as long, up to
    `max_backoff`. Both are at most a week.

    With `on`, a run that raised is tried again only if its exception is one of these; with `not_on`, only if it is not
    one of those. Both hold the names of classes, and an exception has the names of its bases too.
    """

    max_attempts: int = 1
    backoff: Micros = SECOND
    multiplier: float = 2
    max_backoff: Micros = 300 * SECOND
    on: tuple[str, ...] = ()
    not_on: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """Every setting, written out; exceptions only if there are any."""
        document: dict[str, Any] = {
            "max_attempts": self.max_attempts,
            "backoff_seconds": micros_to_seconds(self.backoff),
            "multiplier": self.multiplier,
            "max_backoff_seconds": micros_to_seconds(self.max_backoff),
        }
        if self.on:
            document["on"] = list(self.on)
        if self.not_on:
            document["not_on"] = list(self.not_on)
        return document

    def retries(self, raised: Sequence[str]) -> bool:
        """Whether an exception, given by the names of its class and its bases, is tried again.

        What failed without one, because no process could be reached, for example, is.
        """
        if not raised:
            return True
        return not set(raised).intersection(self.not_on) and (not self.on or not set(raised).isdisjoint(self.on))


@frozen(kw_only=True)
class RetryDecision:
    """Whether a failed attempt is followed by another: at `retry_at`, or never."""

    reason: Reason
    attempt: int
    max_attempts: int
    failed_at: Micros
    retry_at: Micros | None = None
    exception: str | None = None
    """The exception that the policy does not retry."""

    def facts(self) -> Mapping[str, int | float | str]:
        """The numbers behind it."""
        numbers: dict[str, int | float | str] = {"attempt": self.attempt, "max_attempts": self.max_attempts}
        if self.retry_at is not None:
            numbers["delay_seconds"] = micros_to_seconds(self.retry_at - self.failed_at)
            numbers["retry_at"] = to_text(self.retry_at)
        if self.exception is not None:
            numbers["exception"] = self.exception
        return numbers


_ONCE = RetryPolicy()


def read_retry(reader: Reader, field: str) -> RetryPolicy:
    """The policy in a field; without one, a single attempt."""
    default = _ONCE
    if reader.raw(field) is None:
        return default
    settings = reader.child(field)
    backoff = settings.seconds("backoff_seconds", default.backoff, high=MAX_BACKOFF_SECONDS)
    policy = RetryPolicy(
        max_attempts=settings.integer("max_attempts", default.max_attempts, low=1, high=MAX_ATTEMPTS),
        backoff=backoff,
        multiplier=settings.number("multiplier", default.multiplier, low=1, high=MAX_MULTIPLIER),
        # A long first pause without a maximum: the default maximum must not shorten it.
        max_backoff=settings.seconds(
            "max_backoff_seconds", max(backoff, default.max_backoff), high=MAX_BACKOFF_SECONDS
        ),
        on=_read_exceptions(settings, "on"),
        not_on=_read_exceptions(settings, "not_on"),
    )
    if policy.max_backoff < policy.backoff:
        settings.problem("max_backoff_seconds", "must not be less than backoff_seconds")
    settings.close()
    return policy


def _exception_name(value: object) -> str:
    name = text_value(value, 1, 200, multiline=False)
    if not all(part.isidentifier() or part == "<locals>" for part in name.split(".")):
        raise ValueError(f"must be the name of an exception, such as 'http.client.HTTPException', not {shown(name)}")
    return name.removeprefix("builtins.")


def _read_exceptions(settings: Reader, field: str) -> tuple[str, ...]:
    exceptions = settings.each(field, _exception_name, high=MAX_EXCEPTIONS)
    if settings.raw(field) in ([], ()):
        settings.problem(field, "must name an exception; leave it out to retry whatever is raised")
    return tuple(dict.fromkeys(exceptions))


def next_attempt(
    policy: RetryPolicy,
    *,
    attempt: int,
    failed_at: Micros,
    occurrence_id: str,
    least: Micros = 0,
    raised: Sequence[str] = (),
) -> RetryDecision:
    """What follows when attempt number `attempt` (the first is 1) has failed, and raised an exception of these names.

    A tenth of the pause, at most, is added, by a hash: many that failed together do not all come back together. The sum
    is never longer than the longest pause, unless the target asked for `least` so much.
    """
    if attempt >= policy.max_attempts:
        return RetryDecision(
            reason=Reason.ATTEMPTS_EXHAUSTED, attempt=attempt, max_attempts=policy.max_attempts, failed_at=failed_at
        )
    if not policy.retries(raised):
        return RetryDecision(
            reason=Reason.NOT_RETRIED,
            attempt=attempt,
            max_attempts=policy.max_attempts,
            failed_at=failed_at,
            exception=raised[0],
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
