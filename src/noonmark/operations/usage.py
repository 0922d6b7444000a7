"""Usage of models, its cost, and a forecast of what schedules will cost this month."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.forecast import RUNS_READ, forecast, month_of
from noonmark.core.budgets.spend import Amount, Usage, to_dollars, to_nanos
from noonmark.core.errors import InvalidRequest, NotAllowed, NotFound
from noonmark.core.ids import is_hidden
from noonmark.core.instants import DAY
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.targets import AGENT_KINDS
from noonmark.core.triggers import EventTrigger
from noonmark.operations import schedule_edits
from noonmark.operations.models.fields import MAX_PAGE
from noonmark.operations.occurrences import find_occurrence, usage_of_report
from noonmark.operations.serializers import text
from noonmark.ports.budgets import UsageBy, UsageGroup, UsageRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noonmark.core.budgets.forecast import Forecast
    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Declaration, Schedule
    from noonmark.core.triggers import Trigger
    from noonmark.operations.models.arguments import ForecastQuery, NewUsage, UsageQuery
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.records import StoredSchedule
    from noonmark.ports.store import Store

LATELY: Micros = 31 * DAY
"""A schedule without usage for this long has no forecast, unless it is named by its id."""


def report_usage(service: Service, caller: Caller, arguments: UsageQuery) -> dict[str, Any]:
    """Report usage by user, schedule, session, model or day, the most expensive first; by default of this UTC month."""
    now, tenant = service.store.clock(), caller.owner.tenant
    since = month_of(now)[0] if arguments.from_ is None else arguments.from_
    until = now + 1 if arguments.to is None else arguments.to
    if until <= since:
        raise InvalidRequest(f"must be later than {text(since)}, where the report begins", field="to")
    user = _user_of(caller, arguments.user)
    which: dict[str, Any] = {
        "since": since,
        "until": until,
        "user": user,
        "schedule_id": arguments.schedule_id,
    }
    groups = service.store.usage(tenant, arguments.by, limit=arguments.limit, **which)
    models = service.store.usage(tenant, UsageBy.MODEL, limit=MAX_PAGE, **which)
    names = _Names(service, caller) if arguments.by is UsageBy.SCHEDULE else None
    return {
        "by": str(arguments.by),
        "from_utc": text(since),
        "to_utc": text(until),
        "groups": [
            {"key": group.key, "name": None if names is None else names.of(group.key), **_group(group)}
            for group in groups
        ],
        "total": _group(_sum(models)),
    }


def _user_of(caller: Caller, user: str | None) -> str | None:
    """The user whose usage a caller may see; None for all of the tenant."""
    if not caller.sees_own_only:
        return user
    if user not in (None, caller.owner.user):
        raise NotAllowed("you see your own usage only", field="user")
    return caller.owner.user


class _Names:
    """The names of schedules that the caller sees."""

    def __init__(self, service: Service, caller: Caller) -> None:
        self._service, self._caller = service, caller

    def of(self, schedule_id: str | None) -> str | None:
        """The name of a schedule, even if it was deleted."""
        if schedule_id is None:
            return None
        stored = self._service.store.find(self._caller.owner.tenant, schedule_id, deleted=True)
        seen = stored is not None and self._caller.sees(stored.schedule)
        return stored.schedule.declaration.name if stored is not None and seen else None


def _sum(groups: Iterable[UsageGroup]) -> UsageGroup:
    all_groups = list(groups)
    return UsageGroup(
        key=None,
        usage=reduce(Usage.plus, (group.usage for group in all_groups), Usage()),
        unpriced_calls=sum(group.unpriced_calls for group in all_groups),
        reserved=Amount(
            tokens=sum(group.reserved.tokens for group in all_groups),
            cost=sum(group.reserved.cost or 0 for group in all_groups),
        ),
    )


def _group(group: UsageGroup) -> dict[str, Any]:
    usage, reserved = group.usage, group.reserved
    cost = usage.cost or 0
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "total_tokens": usage.total_tokens,
        "model_calls": usage.model_calls,
        "tool_calls": usage.tool_calls,
        "cost_usd": None if group.unpriced_calls and not cost else to_dollars(cost),
        "unpriced_calls": group.unpriced_calls,
        "reserved_tokens": reserved.tokens,
        "reserved_usd": None if reserved.cost is None else to_dollars(reserved.cost),
    }


def record_usage(service: Service, caller: Caller, arguments: NewUsage) -> dict[str, Any]:
    """Record usage of work that runs elsewhere. The same idempotency key again changes nothing.

    It counts against budgets; it refuses nothing, because it has happened.
    """
    now = service.store.clock()
    user, schedule_id = _attributed(service, caller, arguments)
    if arguments.at is not None and arguments.at > now:
        raise InvalidRequest(f"must not be in the future; it is {text(now)} now", field="at")
    usage = usage_of_report(arguments)
    record = UsageRecord(
        # Ids of calls that nodes make never begin like this.
        call_id=f"reported:{arguments.idempotency_key}",
        tenant=caller.owner.tenant,
        user=user,
        usage=usage,
        schedule_id=schedule_id,
        session_id=arguments.session_id,
        occurrence_id=arguments.occurrence_id,
        at=now if arguments.at is None else arguments.at,
    )
    [recorded] = service.store.record_usage([record])
    service.wake(None)
    return {
        "idempotency_key": arguments.idempotency_key,
        "recorded": recorded,
        "user": user,
        "schedule_id": schedule_id,
        "session_id": arguments.session_id,
        "occurrence_id": arguments.occurrence_id,
        "usage": usage.to_document(),
    }


def _attributed(service: Service, caller: Caller, arguments: NewUsage) -> tuple[str, str | None]:
    """Whose usage it is, and of which schedule; NotFound where the caller does not see what it names."""
    user, schedule_id = caller.owner.user, arguments.schedule_id
    if arguments.session_id is not None:
        session = service.store.session(caller.owner.tenant, arguments.session_id)
        if session is None or (caller.sees_own_only and session.user != user):
            raise NotFound(f"there is no session {arguments.session_id!r}", field="session_id")
        user = session.user
    if arguments.occurrence_id is not None:
        occurrence, schedule = find_occurrence(service, caller, arguments.occurrence_id)
        if schedule_id not in (None, occurrence.schedule_id):
            raise InvalidRequest(f"the occurrence is one of {occurrence.schedule_id!r}", field="schedule_id")
        user, schedule_id = schedule.owner.user, occurrence.schedule_id
    elif schedule_id is not None:
        stored = schedule_edits.find_for(caller, service.store, schedule_id, deleted=True)
        user = stored.schedule.owner.user
    if arguments.user is not None and arguments.user != user:
        if not caller.is_admin:
            raise NotAllowed(
                f"only an administrator may record usage of another user; this is of {user!r}", field="user"
            )
        user = arguments.user
    return user, schedule_id


def forecast_usage(service: Service, caller: Caller, arguments: ForecastQuery) -> dict[str, Any]:
    """Forecast what schedules will have cost at the end of the UTC month, from their last runs and the fires left.

    Without an id, it is about the schedules with usage within the last 31 days, the most expensive first.
    """
    store, now = service.store, service.store.clock()
    if arguments.schedule_id is not None:
        schedules = [schedule_edits.find_for(caller, store, arguments.schedule_id)]
    else:
        schedules = spenders(service, caller, arguments.limit, now=now)
    forecasts = [
        forecast_of(store, stored, store.costs_of_runs(stored.schedule.uid, RUNS_READ), now=now) for stored in schedules
    ]
    complete = [one for one in forecasts if one.p50 is not None and one.p90 is not None]
    start, end = month_of(now)
    return {
        "month_start_utc": text(start),
        "month_end_utc": text(end),
        "spent_usd": to_dollars(sum(one.spent for one in forecasts)),
        "p50_usd": to_dollars(sum(one.p50 or 0 for one in complete)) if complete or not forecasts else None,
        "p90_usd": to_dollars(sum(one.p90 or 0 for one in complete)) if complete or not forecasts else None,
        "unknown": len(forecasts) - len(complete),
        "schedules": [
            {
                "schedule_id": stored.schedule.schedule_id,
                "name": stored.schedule.declaration.name,
                **one.to_document(),
            }
            for stored, one in zip(schedules, forecasts, strict=True)
        ],
    }


def spenders(service: Service, caller: Caller, limit: int, *, now: Micros) -> list[StoredSchedule]:
    """The schedules that the caller sees with usage lately, the most expensive first."""
    tenant, user = caller.owner.tenant, caller.owner.user if caller.sees_own_only else None
    groups = service.store.usage(tenant, UsageBy.SCHEDULE, since=now - LATELY, until=now + 1, limit=limit, user=user)
    result = []
    for group in groups:
        if group.key is not None and not is_hidden(group.key):
            stored = service.store.find(tenant, group.key)
            if stored is not None and caller.sees(stored.schedule):
                result.append(stored)
    return result


def forecast_of(store: Store, stored: StoredSchedule, costs: Sequence[int | None], *, now: Micros) -> Forecast:
    """The forecast of a schedule whose last runs cost this much."""
    schedule, (start, end) = stored.schedule, month_of(now)
    groups = store.usage(
        schedule.owner.tenant,
        UsageBy.SCHEDULE,
        since=start,
        until=end,
        limit=1,
        schedule_id=schedule.schedule_id,
    )
    return forecast(
        costs,
        fires=_fires_left(schedule, stored.counters.admitted, now=now),
        spent=sum(group.usage.cost or 0 for group in groups),
        limit=_limit(schedule.declaration),
        now=now,
    )


def _limit(declaration: Declaration) -> int | None:
    budget = declaration.budget
    return None if budget is None or budget.max_cost_usd is None else to_nanos(budget.max_cost_usd)


def _fires_left(schedule: Schedule, admitted: int, *, now: Micros) -> int | None:
    """How many fires a schedule has left this month; none while it is paused, until it resumes by itself."""
    end, since = month_of(now)[1], now
    if schedule.phase is SchedulePhase.PAUSED:
        since = end if schedule.pause is None or schedule.pause.until is None else max(now, schedule.pause.until)
    elif schedule.phase not in (SchedulePhase.ACTIVE, SchedulePhase.PROPOSED):
        since = end
    fires = fires_until(schedule.declaration.trigger, since, end)
    most = schedule.declaration.max_runs
    return fires if fires is None or most is None else min(fires, max(0, most - admitted))


def fires_until(trigger: Trigger | None, since: Micros, end: Micros) -> int | None:
    """How many fires a trigger has before the end; None if that does not depend on time."""
    if since >= end:
        return 0
    if trigger is None or isinstance(trigger, EventTrigger):
        return None
    return trigger.count_micros(since, end - 1)


def schedule_forecast(store: Store, stored: StoredSchedule, *, now: Micros) -> dict[str, Any] | None:
    """The forecast of a schedule that calls models, or whose runs report usage; None for any other."""
    costs = store.costs_of_runs(stored.schedule.uid, RUNS_READ)
    if stored.schedule.declaration.target.kind not in AGENT_KINDS and not any(cost != 0 for cost in costs):
        return None
    return forecast_of(store, stored, costs, now=now).to_document()
