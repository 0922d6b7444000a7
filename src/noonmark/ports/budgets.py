"""Budgets and usage in a store.

Before each call of a model, the most that it can use is *reserved* against every budget that covers it, in one
transaction; after it, the call is *settled* with what it did use, and the rest is given back. A reservation whose
answer was lost counts in full until it is settled. For every budget, settled + reserved never exceeds a hard limit,
unless a call uses more than was reserved for it.

A budget is counted in periods (UTC days, UTC months, or in all). Its counter begins with the usage that is recorded in
the current period, so that a budget that is set today knows what was spent this month.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from noonmark.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.budgets.budget import Budget, BudgetScope, Period, Refused, Reservation, Reserved, Standing
    from noonmark.core.budgets.spend import Amount, Usage
    from noonmark.core.instants import Micros
    from noonmark.core.schedule import AuditEntry
    from noonmark.core.settlement import Settlement


@frozen(kw_only=True)
class Settled:
    """What a call did use."""

    call_id: str
    tenant: str
    usage: Usage


@frozen(kw_only=True)
class UsageRecord:
    """Usage that somebody reports, without a reservation before it."""

    call_id: str
    """The idempotency key: the same one again is ignored."""
    tenant: str
    user: str
    usage: Usage
    schedule_id: str | None = None
    session_id: str | None = None
    occurrence_id: str | None = None
    at: Micros = 0


def reported_usage(settlement: Settlement) -> list[UsageRecord]:
    """What a run reports to have used, under its id: the same run again is not counted again."""
    if not settlement.reported:
        return []
    run, occurrence = settlement.run, settlement.occurrence
    return [
        UsageRecord(
            call_id=f"{run.id}/{number}",
            tenant=settlement.tenant,
            user=settlement.user,
            usage=usage,
            schedule_id=occurrence.schedule_id,
            occurrence_id=occurrence.id,
            at=run.ended or 0,
        )
        for number, usage in enumerate(settlement.reported)
    ]


class UsageBy(StrEnum):
    """What a report is grouped by."""

    USER = "user"
    SCHEDULE = "schedule"
    SESSION = "session"
    MODEL = "model"
    DAY = "day"


@frozen(kw_only=True)
class UsageGroup:
    """The usage of one user, schedule, session, model or day."""

    key: str | None
    usage: Usage
    """The cost is of the calls whose price is known."""
    unpriced_calls: int = 0
    reserved: Amount
    """Reserved and not yet settled."""


class BudgetStore(Protocol):
    """The verbs about budgets and usage. Each is one transaction."""

    def put_budget(self, budget: Budget, *, note: AuditEntry | None = None) -> Standing:
        """Set a budget; the one with its tenant, scope, id and period is replaced, and what is spent stays spent."""

    def delete_budget(
        self, tenant: str, scope: BudgetScope, scope_id: str, period: Period, *, note: AuditEntry | None = None
    ) -> bool:
        """Delete a budget; False if there is none."""

    def budgets(
        self,
        tenant: str,
        limit: int,
        *,
        scope: BudgetScope | None = None,
        scope_id: str | None = None,
        after: tuple[str, str, str] | None = None,
    ) -> list[Standing]:
        """Budgets by scope, id and period; `after` continues after one."""

    def reserve(self, reservations: Sequence[Reservation]) -> list[Reserved | Refused]:
        """Reserve calls, in their order; each one against every budget that covers it and the limits of its run.

        It counts in the periods of now. A refusal changes nothing, and what is reserved under its id stays so.
        """

    def settle_calls(self, settled: Sequence[Settled]) -> list[bool]:
        """Record what calls used, and give the rest back; False where a call is unknown or was settled before."""

    def give_back(self, tenant: str, call_ids: Sequence[str]) -> None:
        """Give back what is reserved for calls that were certainly not made."""

    def provider_failed(self, tenant: str, user: str) -> None:
        """Count a failed call of a provider: several in a row open the breaker of the user, a settled call closes it.

        What is reserved for the call stays; `give_back` it if it was certainly not made.
        """

    def record_usage(self, records: Sequence[UsageRecord]) -> list[bool]:
        """Record reported usage; it counts against budgets, though it refuses nothing. False for a known call id."""

    def run_usage(self, occurrence_id: str) -> Usage | None:
        """What the calls of an occurrence and its steps have used, all attempts together; None if there were none."""

    def usage(  # noqa: PLR0913 - each says which calls
        self,
        tenant: str,
        by: UsageBy,
        *,
        since: Micros,
        until: Micros,
        limit: int,
        user: str | None = None,
        schedule_id: str | None = None,
    ) -> list[UsageGroup]:
        """Usage from `since` on and before `until`, the most expensive first; days in their order."""

    def costs_of_runs(self, uid: str, limit: int) -> list[int | None]:
        """What the last ended occurrences of a schedule cost, newest first; None where a price was unknown."""

    def spenders(self, *, since: Micros, above: int, limit: int) -> list[tuple[str, str]]:
        """The tenants and ids of schedules whose settled calls after `since` cost more nano-dollars than that.

        The most expensive ones first.
        """

    def spend_by_hour(self, tenant: str, schedule_id: str, *, since: Micros, until: Micros) -> list[int]:
        """What the settled calls of a schedule cost in each hour before `until`, after `since`, the last hour first.

        In nano-dollars; hours that cost nothing are left out.
        """

    def prune_usage(self, *, before: Micros, limit: int) -> int:
        """Delete older settled calls; counters of budgets keep what they have counted."""
