"""Budgets, reservations against them, and the answers to reservations."""

from __future__ import annotations

from dataclasses import field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from noonmark.core.frozen import frozen
from noonmark.core.instants import DAY, from_micros, to_micros

if TYPE_CHECKING:
    from noonmark.core.budgets.spend import Amount
    from noonmark.core.instants import Micros

_LONGEST_MONTH = timedelta(days=31)


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

    def bounds(self, at: Micros) -> tuple[Micros, Micros | None]:
        """When the period around an instant begins, and when the next one does: 0 and None in all."""
        if self is Period.TOTAL:
            return 0, None
        if self is Period.DAY:
            start = at // DAY * DAY
            return start, start + DAY
        first = from_micros(at).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        return to_micros(first), to_micros((first + _LONGEST_MONTH).replace(day=1))


class WhenExhausted(StrEnum):
    """What happens to a schedule whose hard budget is used up."""

    SKIP = "skip"
    PAUSE = "pause"
    PAUSE_UNTIL_NEXT_PERIOD = "pause_until_next_period"


@frozen(kw_only=True)
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


@frozen(kw_only=True)
class Standing:
    """A budget, and its spend in the current period."""

    budget: Budget
    settled: Amount
    reserved: Amount
    period_start: Micros
    """0 in all."""
    period_end: Micros | None
    """None in all."""


@frozen(kw_only=True)
class RunLimits:
    """What one occurrence may spend, all attempts together; None is not limited."""

    max_cost: int | None = None
    max_tokens: int | None = None
    max_model_calls: int | None = None
    multiplier: float = 1
    """The priority tier of its user: a factor for the limits of that user's budgets."""


@frozen(kw_only=True)
class WholeRun:
    """The workflow run that an occurrence is a step of, and what all its steps together may spend."""

    occurrence_id: str
    limits: RunLimits


@frozen(kw_only=True)
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
    """If it is set, only a delivery with this fence may spend. Admission has none: its call is not made yet."""
    model: str
    provider: str | None
    most: Amount
    limits: RunLimits = field(default_factory=RunLimits)
    whole: WholeRun | None = None
    is_approved: bool = False
    """Somebody has approved that its run goes beyond soft limits."""


def approval_id(occurrence_id: str) -> str:
    """The id of the approval of an occurrence that goes beyond a soft budget."""
    return f"{occurrence_id}::budget"


@frozen(kw_only=True)
class Reserved:
    """The call may be made."""

    delay: Micros = 0
    """Wait this long first: its budget is nearly used up."""
    warnings: tuple[Standing, ...] = ()
    """Budgets whose threshold it is the first to cross."""


@frozen(kw_only=True)
class Refused:
    """The call must not be made; nothing was reserved."""

    scope: BudgetScope | None
    """None if the fence no longer holds."""
    scope_id: str = ""
    what: str = ""
    """`cost`, `tokens`, `model_calls`, `price` (it is unknown, and only a cost limits it), `breaker` (the provider
    failed too often for this user) or `settled` (this call was made before)."""
    limit: int = 0
    settled: int = 0
    reserved: int = 0
    requested: int = 0
    resets_at: Micros | None = None
    """When a new period begins."""
    needs_approval: bool = False
    """A soft limit that somebody may lift for this run."""
    when_exhausted: WhenExhausted = WhenExhausted.SKIP
