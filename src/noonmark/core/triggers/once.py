"""Once: a single instant, or a delay from the moment of creation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from noonmark.core.errors import InvalidTrigger
from noonmark.core.instants import Micros, from_micros, micros_to_seconds, to_text
from noonmark.core.triggers.trigger import Trigger, duration_argument, in_range

if TYPE_CHECKING:
    from datetime import datetime, timedelta

MAX_DELAY_SECONDS = 3_155_760_000
"""A century."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class OnceTrigger(Trigger):
    """Fires at one instant. With a delay instead, it has no fire until `bind` counts it from creation."""

    due: Micros | None
    delay: Micros | None

    type: ClassVar[str] = "once"

    def __init__(
        self,
        at: datetime | None = None,
        *,
        delay_seconds: float | timedelta | None = None,
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        jitter_seconds: float | timedelta = 0,
    ) -> None:
        """Give `at` or `delay_seconds`, one of the two."""
        if (at is None) == (delay_seconds is None):
            raise InvalidTrigger("give either an instant or a delay", field="at")
        self._set_bounds(start_at, end_at, jitter_seconds)
        self._set(due=None, delay=None)
        if at is not None:
            self._set_instant("at", at)
            self._require_a_fire()
        if delay_seconds is not None:
            self._set(delay=duration_argument("delay_seconds", delay_seconds, low=0, high=MAX_DELAY_SECONDS))

    @property
    def at(self) -> datetime | None:
        """The instant, once it is known; a naive datetime as it was given."""
        return self._instant("at")

    def bind(self, *, now: datetime, key: str = "") -> OnceTrigger:  # noqa: ARG002 - every trigger binds alike
        """Count the delay from now."""
        moment = self._check_bind(now)
        if self.delay is None:
            return self
        due = in_range(moment + self.delay)
        if due is None:
            raise InvalidTrigger("ends after the year 9999", field="delay_seconds")
        return OnceTrigger(
            from_micros(due), start_at=self.start_at, end_at=self.end_at, jitter_seconds=self.jitter_seconds
        )

    def to_document(self) -> dict[str, Any]:
        """`due_at_utc`, or `delay_seconds` while unbound."""
        when: dict[str, Any] = {"type": self.type}
        if self.due is not None:
            when["due_at_utc"] = to_text(self.due)
        if self.delay is not None:
            when["delay_seconds"] = micros_to_seconds(self.delay)
        return when | self._bounds_document()

    @property
    def _must_fire(self) -> bool:
        return self.delay is None

    def _next(self, after: Micros) -> Micros | None:
        return self.due if self.due is not None and self.due > after else None

    def _previous(self, before: Micros) -> Micros | None:
        return self.due if self.due is not None and self.due < before else None

    def _count(self, after: Micros, until: Micros) -> int:
        return int(self.due is not None and after < self.due <= until)
