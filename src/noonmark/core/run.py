"""Runs: one attempt to deliver an occurrence each."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from noonmark.core.instants import Micros, from_micros

if TYPE_CHECKING:
    from datetime import datetime


class Outcome(StrEnum):
    """How a run ended; the first five are also phases in which its occurrence may end."""

    __hash__ = str.__hash__

    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    DELIVERY_FAILED = "delivery_failed"
    LEASE_LOST = "lease_lost"
    """Its node was lost with it; it does not count as an attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a run spent."""

    tokens: int = 0
    cost_usd: float = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Start, end and outcome; `ended` and `outcome` are None while it runs. `result` is JSON, `error` is for people."""

    id: str
    occurrence_id: str
    attempt: int
    node: str
    started: Micros
    ended: Micros | None = None
    outcome: Outcome | None = None
    result: Any = field(default=None, hash=False)
    error: str | None = None
    usage: Usage | None = None

    @property
    def started_at(self) -> datetime:
        """When delivery began, in UTC."""
        return from_micros(self.started)

    @property
    def ended_at(self) -> datetime | None:
        """When it ended, in UTC."""
        return None if self.ended is None else from_micros(self.ended)
