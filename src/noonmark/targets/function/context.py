"""The context of a run: what a function learns about it, and the event that asks it to stop.

A worker process loads this module, so its imports stay light.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import field
from threading import Event
from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.reported import usage_of
from noonmark.core.frozen import frozen
from noonmark.core.instants import from_micros
from noonmark.core.json_values import number_value, storable
from noonmark.core.run import MAX_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from decimal import Decimal

    from noonmark.core.budgets.spend import Usage

logger = logging.getLogger("noonmark.jobs")


class CancelEvent(Event):
    """Set when a run should end early. It remembers whether the run has checked it since."""

    def __init__(self) -> None:
        super().__init__()
        self.was_seen = False

    def is_set(self) -> bool:
        """Whether the run should end."""
        self.was_seen = super().is_set()
        return self.was_seen

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the run should end; False when the timeout passes first."""
        self.was_seen = super().wait(timeout)
        return self.was_seen


class UpstreamResults(Mapping[str, Any]):
    """The results of the runs that a run depends on, by the ids of their schedules; their names find them too."""

    def __init__(self, upstreams: Mapping[str, Mapping[str, Any]]) -> None:
        self._results = {schedule_id: upstream["result"] for schedule_id, upstream in upstreams.items()}
        self._ids = {upstream["name"]: schedule_id for schedule_id, upstream in upstreams.items()}

    def __getitem__(self, key: str) -> Any:
        """The result of one; KeyError if the job does not depend on it, or if it has not run."""
        return self._results[key if key in self._results else self._ids.get(key, key)]

    def __iter__(self) -> Iterator[str]:
        """The ids."""
        return iter(self._results)

    def __len__(self) -> int:
        """How many have run."""
        return len(self._results)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._results!r})"


@frozen
class Context:
    """What a function learns about its run, when it has a parameter named `context`."""

    occurrence_id: str
    """The same in every attempt, so it can serve as an idempotency key."""
    schedule_id: str
    """The id of the job."""
    nominal_at: datetime
    """The time that the trigger computed, in UTC."""
    due_at: datetime
    """That time with jitter, or the time of a retry."""
    attempt: int
    """1, and more after a failure."""
    payload: Any
    """The payload of `run_now` or of the event, else that of the job."""
    event: Any
    """The event that triggered the run, if one did."""
    upstream: UpstreamResults
    """The result of each schedule that the job depends on, by its id or its name, as far as it is stored."""
    cancelled: Event
    """Set when the run should end early: it timed out, was cancelled, or this node lost it."""
    logger: logging.LoggerAdapter[logging.Logger]
    """Adds the ids of the occurrence and of the job to each record."""
    _send: Callable[[dict[str, Any]], None] = field(repr=False, compare=False)
    _send_usage: Callable[[Usage], None] = field(repr=False, compare=False)

    def progress(self, fraction: float, message: str = "") -> None:
        """Say how far the run has come, from 0 to 1, with a short text. Shown while it runs; the newest is stored.

        It may be called as often as you like, from any thread: at most one a second is written.
        """
        try:
            done = number_value(fraction, 0, 1)
        except ValueError as error:
            raise ValueError(f"the fraction {error}") from None
        self._send({"fraction": done, "message": storable(message)[:MAX_MESSAGE]})

    def report_usage(  # noqa: PLR0913 - what a call of a model uses
        self,
        *,
        model: str | None = None,
        provider: str | None = None,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
        cost_usd: float | Decimal | str | None = None,
        model_calls: int = 1,
        tool_calls: int = 0,
    ) -> None:
        """Report what a call of a model has used. It is stored with the run, and counts against budgets.

        Call it after each call, from any thread: the run adds them up. A cost that you leave out is unknown, not 0.
        ValueError says what is wrong.
        """
        usage = usage_of(
            model=model,
            provider=provider,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            cache_read_tokens=cache_read_tokens,
            cache_write_tokens=cache_write_tokens,
            cost_usd=cost_usd,
            model_calls=model_calls,
            tool_calls=tool_calls,
        )
        self._send_usage(usage)


def make_context(
    fields: dict[str, Any],
    cancelled: CancelEvent,
    send: Callable[[dict[str, Any]], None],
    send_usage: Callable[[Usage], None],
) -> Context:
    """Create the context of a run from its JSON fields; `send` takes its progress, `send_usage` its usage."""
    ids = {"occurrence_id": fields["occurrence_id"], "schedule_id": fields["schedule_id"]}
    return Context(
        **ids,
        nominal_at=from_micros(fields["nominal"]),
        due_at=from_micros(fields["due"]),
        attempt=fields["attempt"],
        payload=fields["payload"],
        event=fields["event"],
        upstream=UpstreamResults(fields["upstream"]),
        cancelled=cancelled,
        logger=logging.LoggerAdapter(logger, ids),
        _send=send,
        _send_usage=send_usage,
    )
