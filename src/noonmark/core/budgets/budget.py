"""Budgets, reservations against them, and what becomes of these."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noonmark.core.budgets.spend import Amount
    from noonmark.core.instants import Micros


class BudgetScope(StrEnum):
    """Whose spending a budget limits."""

    TENANT = "tenant"
    USER = "user"
    SCHEDULE = "schedule"
    SESSION = "session"
    RUN = "run"
    """One occurrence, all attempts together; declared by its schedule, not stored as a budget."""


class Period(StrEnum):
    """How long a budget lasts; days and months are those of UTC."""

    DAY = "day"
    MONTH = "month"
    TOTAL = "total"


class WhenExhausted(StrEnum):
    """What happens to a schedule that finds a hard budget used up."""

    SKIP = "skip"
    PAUSE = "pause"
    PAUSE_UNTIL_NEXT_PERIOD = "pause_until_next_period"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A limit on what an owner, a schedule or a session spends."""

    tenant: str
    scope: BudgetScope
    scope_id: str
    """The user, schedule or session; of a tenant, its name."""
    period: Period
    max_cost: int | None = None
    """Nano-dollars."""
    max_tokens: int | None = None
    hard: bool = True
    warning_threshold: float | None = 0.8
    require_approval: bool = False
    """Beyond a soft limit, a run waits for somebody's approval."""
    when_exhausted: WhenExhausted = WhenExhausted.SKIP
    updated: Micros = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A budget, and what is spent of it in its current period."""

    budget: Budget
    settled: Amount
    reserved: Amount
    period_start: Micros
    """0 in all."""
    period_end: Micros | None
    """None in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """What one occurrence may spend, all attempts together; None is not limited."""

    max_cost: int | None = None
    max_tokens: int | None = None
    max_model_calls: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The most that one call of a model can use."""

    call_id: str
    """Unique within the tenant. To reserve it again replaces the amount, unless it is settled."""
    tenant: str
    user: str
    schedule_id: str | None
    session_id: str | None
    occurrence_id: str
    fence: int | None
    """If it is set, only a delivery with this fence may spend."""
    model: str
    provider: str | None
    most: Amount
    limits: RunLimits = field(default_factory=RunLimits)
    is_approved: bool = False
    """Somebody has approved that its run goes beyond soft limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """The call may be made."""

    delay: Micros = 0
    """Wait so long first: its budget is nearly used up."""
    warnings: tuple[Standing, ...] = ()
    """Budgets whose threshold it is the first to cross."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The call must not be made; nothing was reserved."""

    scope: BudgetScope | None
    """None if the fence no longer holds."""
    scope_id: str = ""
    what: str = ""
    """`cost`, `tokens`, `model_calls`, `price` (it is unknown, and only a cost limits it) or `breaker`."""
    limit: int = 0
    settled: int = 0
    reserved: int = 0
    requested: int = 0
    resets_at: Micros | None = None
    """When a new period begins."""
    needs_approval: bool = False
    """A soft limit that somebody may lift for this run."""
    when_exhausted: WhenExhausted = WhenExhausted.SKIP
