"""Budgets, their counters, and calls of models in the tables.

Everything here is written under the lock of the tenant. Counters are read once, and written at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.breaker import Breaker
from noonmark.core.budgets.budget import Budget, BudgetScope, Period, WhenExhausted
from noonmark.core.budgets.reservation import RunSpend
from noonmark.core.budgets.spend import Amount, Usage
from noonmark.core.instants import DAY, from_micros
from noonmark.core.policies.runaway import HOUR
from noonmark.ports.budgets import UsageBy, UsageGroup
from noonmark.stores.rules import budget_records as rules
from noonmark.stores.rules.budget_records import Call, Counter
from noonmark.stores.sql.row_checks import RowCheck, number

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from noonmark.core.budgets.budget import Standing
    from noonmark.core.budgets.reservation import Owner
    from noonmark.core.instants import Micros
    from noonmark.stores.rules.budget_records import BudgetKey
    from noonmark.stores.sql.session import Session, Values

    Report = Callable[[str, object, Mapping[str, str]], None]
    CounterKey = tuple[str, str, str, str, Micros]

BUDGET_COLUMNS = (
    "tenant", "scope", "scope_id", "period", "max_cost", "max_tokens", "is_hard", "warning_threshold",
    "require_approval", "when_exhausted", "updated",
)  # fmt: skip
COUNTER_COLUMNS = (
    "tenant", "scope", "scope_id", "period", "period_start", "settled_tokens", "settled_cost", "reserved_tokens",
    "reserved_cost", "is_warned",
)  # fmt: skip
CALL_COLUMNS = (
    "tenant", "call_id", "username", "schedule_id", "session_id", "occurrence_id", "whole_id", "called", "is_settled",
    "is_made", "tokens", "cost", "model", "provider", "input_tokens", "output_tokens", "cache_read_tokens",
    "cache_write_tokens", "model_calls", "tool_calls",
)  # fmt: skip
BREAKER_COLUMNS = ("tenant", "username", "failures", "since")
_COUNTS = COUNTER_COLUMNS[4:]
_BUDGETS, _COUNTERS = RowCheck("budgets", BUDGET_COLUMNS), RowCheck("budget_counters", COUNTER_COLUMNS)
_CALLS, _BREAKERS = RowCheck("model_calls", CALL_COLUMNS), RowCheck("breakers", BREAKER_COLUMNS)

_SELECTED = f"""
    {", ".join(f"budgets.{one}" for one in BUDGET_COLUMNS)}, {", ".join(f"counter.{one}" for one in _COUNTS)}
"""
_COUNTER = """
    LEFT JOIN budget_counters AS counter ON counter.tenant = budgets.tenant AND counter.scope = budgets.scope
        AND counter.scope_id = budgets.scope_id AND counter.period = budgets.period
        AND counter.period_start = CASE budgets.period
            WHEN 'day' THEN CAST(? AS bigint) WHEN 'month' THEN CAST(? AS bigint) ELSE 0 END
"""
COVERING = f"""
    SELECT {_SELECTED} FROM ROWS(text, text) AS j
    CROSS JOIN budgets ON budgets.tenant = ? AND budgets.scope = j.c0 AND budgets.scope_id = j.c1 {_COUNTER}
"""
PAGE = f"""
    SELECT {_SELECTED} FROM budgets {_COUNTER} WHERE budgets.tenant = ? AND {{more}}
    ORDER BY budgets.scope, budgets.scope_id, budgets.period LIMIT ?
"""
_OF_KEY = "tenant = ? AND scope = ? AND scope_id = ? AND period = ?"
_BUDGET = f"SELECT {', '.join(BUDGET_COLUMNS)} FROM budgets WHERE {_OF_KEY}"
_DELETE_BUDGET = f"DELETE FROM budgets WHERE {_OF_KEY}"
_DELETE_COUNTERS = f"DELETE FROM budget_counters WHERE {_OF_KEY}"
_ALL_CALLS = f"SELECT {', '.join(CALL_COLUMNS)} FROM model_calls"
CALL = f"{_ALL_CALLS} WHERE tenant = ? AND call_id = ?"
NOT_MADE = f"{_ALL_CALLS} WHERE tenant = ? AND occurrence_id = ? AND is_settled = 0 AND is_made = 0"
_DELETE_CALL = "DELETE FROM model_calls WHERE tenant = ? AND call_id = ?"
_SUMS = """
    CAST(coalesce(sum(CASE WHEN is_settled = 1 THEN tokens END), 0) AS bigint),
    CAST(coalesce(sum(CASE WHEN is_settled = 1 THEN cost END), 0) AS bigint),
    CAST(coalesce(sum(CASE WHEN is_settled = 0 THEN tokens END), 0) AS bigint),
    CAST(coalesce(sum(CASE WHEN is_settled = 0 THEN cost END), 0) AS bigint)
"""
RUN_SPEND = f"""
    SELECT {_SUMS}, CAST(coalesce(sum(CASE WHEN is_settled = 1 THEN model_calls ELSE 1 END), 0) AS bigint)
    FROM model_calls WHERE (occurrence_id = ? OR whole_id = ?) AND tenant = ?
"""
SPENT = f"SELECT {_SUMS} FROM model_calls WHERE tenant = ? AND called >= ? AND {{owner}}"
_OWNER_COLUMNS = {
    BudgetScope.USER: "username",
    BudgetScope.SCHEDULE: "schedule_id",
    BudgetScope.SESSION: "session_id",
    BudgetScope.TENANT: "tenant",
}
DELIVERED = "SELECT 1 FROM occurrences WHERE id = ? AND fence = ? AND phase IN ('dispatching', 'awaiting_completion')"
_BREAKER = "SELECT tenant, username, failures, since FROM breakers WHERE tenant = ? AND username = ?"
_DELETE_BREAKER = "DELETE FROM breakers WHERE tenant = ? AND username = ?"
_USAGE = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "model_calls", "tool_calls")
_SUMMED = ", ".join(
    f"CAST(coalesce(sum(CASE WHEN is_settled = 1 THEN {one} END), 0) AS bigint) AS {one}" for one in (*_USAGE, "cost")
)
_GROUPED = f"""
    {_SUMMED}, count(CASE WHEN is_settled = 1 AND cost IS NULL THEN 1 END),
    CAST(coalesce(sum(CASE WHEN is_settled = 0 THEN tokens END), 0) AS bigint),
    CAST(coalesce(sum(CASE WHEN is_settled = 0 THEN cost END), 0) AS bigint)
"""
_GROUP_BY = {
    UsageBy.USER: "username",
    UsageBy.SCHEDULE: "schedule_id",
    UsageBy.SESSION: "session_id",
    UsageBy.MODEL: "model",
    UsageBy.DAY: f"called / {DAY}",
}
USAGE = f"""
    SELECT {{by}} AS name, {_GROUPED} FROM model_calls WHERE tenant = ? AND called >= ? AND called < ? {{more}}
    GROUP BY {{by}} ORDER BY {{order}} LIMIT ?
"""
RUN_USAGE = f"""
    SELECT {", ".join(_USAGE)}, cost, model, provider FROM model_calls
    WHERE (occurrence_id = ? OR whole_id = ?) AND is_settled = 1 ORDER BY called, call_id
"""
COSTS_OF_RUNS = """
    SELECT coalesce(sum(cost), 0), count(CASE WHEN model_calls.tenant IS NOT NULL AND cost IS NULL THEN 1 END)
    FROM (
        SELECT id, nominal FROM occurrences
        WHERE schedule = (SELECT schedule FROM schedule_states WHERE uid = ?) AND ended IS NOT NULL AND attempt > 0
        ORDER BY nominal DESC, id DESC LIMIT ?
    ) AS one LEFT JOIN model_calls ON (model_calls.occurrence_id = one.id OR whole_id = one.id) AND is_settled = 1
    GROUP BY one.id, one.nominal ORDER BY one.nominal DESC, one.id DESC
"""
SPENDERS = """
    WITH recent AS MATERIALIZED (
        SELECT tenant, schedule_id, cost FROM model_calls WHERE is_settled = 1 AND called > ?
    )
    SELECT tenant, schedule_id FROM recent WHERE schedule_id IS NOT NULL
    GROUP BY tenant, schedule_id HAVING sum(cost) > ? ORDER BY sum(cost) DESC, tenant, schedule_id LIMIT ?
"""
"""Materialized, so that the calls are found by their age, and not all of them read in the order of schedules."""
SPEND_BY_HOUR = f"""
    SELECT (CAST(? AS bigint) - called) / {HOUR}, CAST(sum(cost) AS bigint) FROM model_calls
    WHERE tenant = ? AND schedule_id = ? AND called > ? AND called <= ? AND is_settled = 1
    GROUP BY 1 HAVING sum(cost) > 0 ORDER BY 1
"""
PRUNE = """
    DELETE FROM model_calls WHERE (tenant, call_id) IN (
        SELECT tenant, call_id FROM model_calls WHERE is_settled = 1 AND called < ? ORDER BY called LIMIT ?
    )
"""
_COUNT_OLD = """
    SELECT count(*) FROM (SELECT 1 FROM model_calls WHERE is_settled = 1 AND called < ? ORDER BY called LIMIT ?) AS old
"""
_PRUNE_COUNTERS = "DELETE FROM budget_counters WHERE period <> 'total' AND period_start < ?"
_LONGEST_PERIOD: Micros = 31 * DAY
_OUT_OF_REACH = 0
"""The limit of a damaged budget: nothing may be spent until somebody sets it again."""


class BudgetRecords(rules.BudgetRecords):
    """What a transaction has read of budgets and calls."""

    def __init__(self, session: Session, report: Report) -> None:
        self._session, self._report = session, report
        self._known: dict[CounterKey, Counter] = {}
        self._changed: dict[CounterKey, Counter] = {}

    def call(self, tenant: str, call_id: str) -> Call | None:
        rows = self._session.query(CALL, tenant, call_id)
        return to_call(rows[0], self._report, self._session.now()) if rows else None

    def put_call(self, call: Call) -> None:
        self._session.put("model_calls", CALL_COLUMNS, [call_values(call)], key=2)

    def delete_call(self, call: Call) -> None:
        self._session.execute(_DELETE_CALL, call.tenant, call.call_id)

    def calls_not_made(self, tenant: str, occurrence_id: str) -> list[Call]:
        return [
            to_call(columns, self._report, self._session.now())
            for columns in self._session.query(NOT_MADE, tenant, occurrence_id)
        ]

    def run_spend(self, tenant: str, occurrence_id: str) -> RunSpend:
        [(tokens, cost, reserved_tokens, reserved_cost, calls)] = self._session.query(
            RUN_SPEND, occurrence_id, occurrence_id, tenant
        )
        reserved = Amount(tokens=reserved_tokens, cost=reserved_cost)
        return RunSpend(settled=Amount(tokens=tokens, cost=cost), reserved=reserved, model_calls=calls)

    def fence_holds(self, occurrence_id: str, fence: int) -> bool:
        return bool(self._session.query(DELIVERED, occurrence_id, fence))

    def budget(self, key: BudgetKey) -> Budget | None:
        rows = self._session.query(_BUDGET, *map(str, key))
        return to_budget(rows[0], self._report) if rows else None

    def put_budget(self, budget: Budget) -> None:
        self._session.put("budgets", BUDGET_COLUMNS, [budget_values(budget)], key=4)

    def delete_budget(self, key: BudgetKey) -> None:
        for statement in (_DELETE_COUNTERS, _DELETE_BUDGET):
            self._session.execute(statement, *map(str, key))

    def counters(self, tenant: str, covering: Collection[Owner], at: Micros) -> list[Counter]:
        return [counter for counter, _ in self._covering(tenant, covering, at)]

    def stored_counters(self, tenant: str, covering: Collection[Owner], at: Micros) -> list[Counter]:
        return [counter for counter, is_stored in self._covering(tenant, covering, at) if is_stored]

    def changed_counter(self, counter: Counter) -> None:
        key = _key(counter)
        self._known[key] = self._changed[key] = counter

    def count(self, budget: Budget, period_start: Micros) -> Counter:
        owner = f"{_OWNER_COLUMNS[budget.scope]} = ?"
        [counts] = self._session.query(SPENT.format(owner=owner), budget.tenant, period_start, budget.scope_id)
        return Counter(budget, period_start, *counts)

    def breaker(self, tenant: str, user: str) -> Breaker | None:
        rows = self._session.query(_BREAKER, tenant, user)
        if not rows:
            return None
        if problems := _BREAKERS.problems(rows[0]):
            self._report("breakers", user, problems)
            return Breaker()
        return Breaker(failures=rows[0][2], since=rows[0][3])

    def put_breaker(self, tenant: str, user: str, breaker: Breaker | None) -> None:
        if breaker is None:
            self._session.execute(_DELETE_BREAKER, tenant, user)
        else:
            self._session.put("breakers", BREAKER_COLUMNS, [(tenant, user, breaker.failures, breaker.since)], key=2)

    def write(self) -> None:
        """Write the counters that were changed."""
        if self._changed:
            rows = [counter_values(one) for one in self._changed.values()]
            self._session.put("budget_counters", COUNTER_COLUMNS, rows, key=5)
            self._changed.clear()

    def page(
        self,
        tenant: str,
        limit: int,
        scope: BudgetScope | None,
        scope_id: str | None,
        after: tuple[str, str, str] | None,
    ) -> list[Standing]:
        """Budgets with their counters, by scope, id and period."""
        conditions: dict[str, tuple[object, ...]] = {"1 = 1": ()}
        if scope is not None:
            conditions["budgets.scope = ?"] = (str(scope),)
        if scope_id is not None:
            conditions["budgets.scope_id = ?"] = (scope_id,)
        if after is not None:
            conditions["(budgets.scope, budgets.scope_id, budgets.period) > (?, ?, ?)"] = after
        values = [value for given in conditions.values() for value in given]
        text = PAGE.format(more=" AND ".join(conditions))
        rows = self._session.query(text, *_starts(self._session.now()), tenant, *values, limit)
        return [self._counter(columns, self._session.now())[0].standing for columns in rows]

    def _covering(self, tenant: str, covering: Collection[Owner], at: Micros) -> list[tuple[Counter, bool]]:
        """The counters of these owners' budgets, and whether each is stored."""
        owners = [(str(scope), scope_id) for scope, scope_id in covering]
        rows = self._session.query(COVERING, owners, tenant, *_starts(at))
        order = {owner: place for place, owner in enumerate(owners)}
        rows.sort(key=lambda columns: (order[columns[1], columns[2]], str(columns[3])))
        return [self._counter(columns, at) for columns in rows]

    def _counter(self, columns: Values, at: Micros) -> tuple[Counter, bool]:
        """A counter, counted again if it is damaged, and whether it is stored."""
        budget = to_budget(columns[: len(BUDGET_COLUMNS)], self._report)
        start, _ = budget.period.bounds(at)
        key = (budget.tenant, str(budget.scope), budget.scope_id, str(budget.period), start)
        if key in self._known:
            return self._known[key], True
        counts = columns[len(BUDGET_COLUMNS) :]
        if counts[0] is None:
            return Counter(budget, start), False
        if problems := _COUNTERS.problems((*key, *counts[1:])):
            self._report("budget_counters", ", ".join(map(str, key)), problems)
            counter = self.count(budget, start)
        else:
            counter = Counter(budget, start, *counts[1:])
            counter.is_warned = counts[5] == 1
        self._known[key] = counter
        return counter, True


def to_budget(columns: Values, report: Report) -> Budget:
    """A budget. Of one that is damaged, nothing may be spent."""
    tenant, scope, scope_id, period = columns[:4]
    if problems := _BUDGETS.problems(columns):
        report("budgets", f"{tenant}, {scope}, {scope_id}, {period}", problems)
        return Budget(
            tenant=str(tenant),
            scope=BudgetScope(scope) if scope in set(BudgetScope) else BudgetScope.TENANT,
            scope_id=str(scope_id),
            period=Period(period) if period in set(Period) else Period.TOTAL,
            max_tokens=_OUT_OF_REACH,
            warning_threshold=None,
        )
    max_cost, max_tokens, is_hard, threshold, approval, exhausted, updated = columns[4:]
    return Budget(
        tenant=tenant,
        scope=BudgetScope(scope),
        scope_id=scope_id,
        period=Period(period),
        max_cost=max_cost,
        max_tokens=max_tokens,
        hard=is_hard == 1,
        warning_threshold=threshold,
        require_approval=approval == 1,
        when_exhausted=WhenExhausted(exhausted),
        updated=updated,
    )


def to_call(columns: Values, report: Report, now: Micros) -> Call:
    """A call. What is damaged of it counts as nothing."""
    row = dict(zip(CALL_COLUMNS, columns, strict=True))
    if problems := _CALLS.problems(columns):
        report("model_calls", f"{row['tenant']}, {row['call_id']}", problems)
        spare = {"called": now, "username": "", "is_settled": 0, "is_made": 1}
        row |= {name: spare.get(name, 0 if name in (*_USAGE, "tokens") else None) for name in problems}
    return Call(
        call_id=row["call_id"],
        tenant=row["tenant"],
        user=row["username"],
        schedule_id=row["schedule_id"],
        session_id=row["session_id"],
        occurrence_id=row["occurrence_id"],
        whole_id=row["whole_id"],
        at=row["called"],
        is_settled=row["is_settled"] == 1,
        is_made=row["is_made"] == 1,
        amount=Amount(tokens=row["tokens"], cost=row["cost"]),
        usage=Usage(
            model=row["model"], provider=row["provider"], cost=row["cost"], **{name: row[name] for name in _USAGE}
        ),
    )


def run_usage(session: Session, occurrence_id: str) -> Usage | None:
    """What the settled calls of an occurrence used."""
    total: Usage | None = None
    for *counts, cost, model, provider in session.query(RUN_USAGE, occurrence_id, occurrence_id):
        sums = dict(zip(_USAGE, (number(one, 0) for one in counts), strict=True))
        priced = cost if type(cost) is int else None
        usage = Usage(model=model, provider=provider, cost=priced, **sums)
        total = usage if total is None else total.plus(usage)
    return total


def usage(  # noqa: PLR0913 - as the port has it
    session: Session,
    tenant: str,
    by: UsageBy,
    *,
    since: Micros,
    until: Micros,
    limit: int,
    user: str | None,
    schedule_id: str | None,
) -> list[UsageGroup]:
    """Usage of calls in a stretch of time, in groups."""
    given = {"AND username = ?": user, "AND schedule_id = ?": schedule_id}
    picked = {condition: value for condition, value in given.items() if value is not None}
    order = "1" if by is UsageBy.DAY else "cost DESC, 1"
    text = USAGE.format(by=_GROUP_BY[by], more=" ".join(picked), order=order)
    rows = session.query(text, tenant, since, until, *picked.values(), limit)
    return [_group(by, columns) for columns in rows]


def costs_of_runs(session: Session, uid: str, limit: int) -> list[int | None]:
    """What the last ended occurrences of a schedule cost."""
    return [None if unpriced else int(cost) for cost, unpriced in session.query(COSTS_OF_RUNS, uid, limit)]


def spenders(session: Session, *, since: Micros, above: int, limit: int) -> list[tuple[str, str]]:
    """The schedules that have spent more than that since a time."""
    return [(tenant, schedule_id) for tenant, schedule_id in session.query(SPENDERS, since, above, limit)]


def spend_by_hour(session: Session, tenant: str, schedule_id: str, *, since: Micros, until: Micros) -> list[int]:
    """What a schedule has spent in each hour before a time."""
    return [cost for _, cost in session.query(SPEND_BY_HOUR, until, tenant, schedule_id, since, until)]


def prune(session: Session, *, before: Micros, limit: int) -> int:
    """Delete old settled calls, and counters of periods that ended before."""
    [(count,)] = session.query(_COUNT_OLD, before, limit)
    if count:
        session.execute(PRUNE, before, limit)
    session.execute(_PRUNE_COUNTERS, before - _LONGEST_PERIOD)
    return int(count)


def budget_values(budget: Budget) -> Values:
    """The columns of a budget."""
    return (
        budget.tenant, str(budget.scope), budget.scope_id, str(budget.period), budget.max_cost, budget.max_tokens,
        int(budget.hard), budget.warning_threshold, int(budget.require_approval), str(budget.when_exhausted),
        budget.updated,
    )  # fmt: skip


def counter_values(counter: Counter) -> Values:
    """The columns of a counter."""
    return (
        *_key(counter), counter.settled_tokens, counter.settled_cost, counter.reserved_tokens, counter.reserved_cost,
        int(counter.is_warned),
    )  # fmt: skip


def call_values(call: Call) -> Values:
    """The columns of a call."""
    usage = call.usage
    return (
        call.tenant, call.call_id, call.user, call.schedule_id, call.session_id, call.occurrence_id, call.whole_id,
        call.at, int(call.is_settled), int(call.is_made), call.amount.tokens, call.amount.cost, usage.model,
        usage.provider, usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens,
        usage.model_calls, usage.tool_calls,
    )  # fmt: skip


def _group(by: UsageBy, columns: Values) -> UsageGroup:
    name, *counts = columns
    sums: dict[str, Any] = dict(zip((*_USAGE, "cost"), counts, strict=False))
    unpriced, tokens, cost = counts[-3:]
    key = name if by is not UsageBy.DAY or name is None else from_micros(name * DAY).date().isoformat()
    return UsageGroup(
        key=key,
        usage=Usage(model=key if by is UsageBy.MODEL else None, **sums),
        unpriced_calls=unpriced,
        reserved=Amount(tokens=tokens, cost=cost),
    )


def _key(counter: Counter) -> CounterKey:
    budget = counter.budget
    return (budget.tenant, str(budget.scope), budget.scope_id, str(budget.period), counter.period_start)


def _starts(at: Micros) -> tuple[Micros, Micros]:
    """When the day and the month around an instant begin."""
    return Period.DAY.bounds(at)[0], Period.MONTH.bounds(at)[0]
