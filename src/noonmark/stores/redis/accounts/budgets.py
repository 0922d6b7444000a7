"""Budgets, their counters, and calls of models.

Counters are read once, and put into the transaction at its end. What calls have spent is added up from the entries of
an index, without reading their records.
"""

from __future__ import annotations

from collections import Counter as Sums
from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.breaker import Breaker
from noonmark.core.budgets.budget import BudgetScope, Period
from noonmark.core.budgets.reservation import RunSpend, owners
from noonmark.core.budgets.spend import Amount, Usage
from noonmark.core.instants import DAY_SECONDS, SECOND
from noonmark.core.policies.runaway import HOUR
from noonmark.stores.redis.schema.accounts import BREAKERS, BUDGET_COUNTERS, BUDGETS, MODEL_CALLS, SPENT
from noonmark.stores.redis.transactions.transaction import Transaction
from noonmark.stores.rules import budget_records as rules
from noonmark.stores.rules.budget_records import Call, Counter
from noonmark.stores.rules.records import DELIVERING
from noonmark.stores.rules.usage_groups import usage_groups
from noonmark.stores.sql.budgets import budget_values, call_values, counter_values, to_budget, to_call
from noonmark.stores.sql.row_checks import RowCheck, number

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from noonmark.core.budgets.budget import Budget, Reservation, Standing
    from noonmark.core.budgets.reservation import Owner
    from noonmark.core.instants import Micros
    from noonmark.ports.budgets import Settled, UsageBy, UsageGroup, UsageRecord
    from noonmark.stores.redis.schedule_records import ScheduleRecords
    from noonmark.stores.redis.transactions.client import Question
    from noonmark.stores.redis.transactions.table import Values
    from noonmark.stores.redis.transactions.transaction import Records
    from noonmark.stores.rules.budget_records import BudgetKey
    from noonmark.stores.rules.records import Row

    CounterKey = tuple[str, str, str, str, Micros]

AT_ONCE = 1_000
"""How many calls are read at a time to add up what they have used."""
_COUNTERS, _BREAKERS = RowCheck("budget_counters", BUDGET_COUNTERS.columns), RowCheck("breakers", BREAKERS.columns)
_INDEX_OF = {
    BudgetScope.TENANT: "of_tenant",
    BudgetScope.USER: "of_user",
    BudgetScope.SCHEDULE: "of_schedule",
    BudgetScope.SESSION: "of_session",
}
_OF_OCCURRENCE = ("of_occurrence", "of_whole")
_LONGEST_PERIOD: Micros = 31 * DAY_SECONDS * SECOND


class BudgetRecords(rules.BudgetRecords):
    """What a transaction has read of budgets and calls."""

    def __init__(self, uow: ScheduleRecords) -> None:
        self._uow = uow
        self._budgets, self._stored = uow.transaction.records(BUDGETS), uow.transaction.records(BUDGET_COUNTERS)
        self._calls, self._breakers = uow.transaction.records(MODEL_CALLS), uow.transaction.records(BREAKERS)
        self._known: dict[CounterKey, Counter] = {}
        self._changed: dict[CounterKey, Counter] = {}

    def expected(
        self, reservations: Sequence[Reservation]
    ) -> tuple[list[tuple[Records, list[Values]]], list[Question]]:
        """What reservations read: records and ranges, besides counters."""
        covering = {(one.tenant, owner): None for one in reservations for owner in _owners(one)}
        spenders = {one.occurrence_id for one in reservations}
        spenders |= {one.whole.occurrence_id for one in reservations if one.whole is not None}
        records: list[tuple[Records, list[Values]]] = [
            (self._calls, [(one.tenant, one.call_id) for one in reservations]),
            (self._breakers, [(one.tenant, one.user) for one in reservations if one.fence is not None]),
            (self._budgets, [key for tenant, owner in covering for key in _budget_keys(tenant, [owner])]),
        ]
        return records, [question for one in spenders for question in self._spent_questions(one)]

    def expect_recorded(self, records: Sequence[UsageRecord]) -> None:
        """Read what reported usage needs, besides counters."""
        covering = {(one.tenant, owner): None for one in records for owner in _owners(one)}
        self._uow.transaction.read_all(
            [
                (self._calls, [(one.tenant, one.call_id) for one in records]),
                (self._budgets, [key for tenant, owner in covering for key in _budget_keys(tenant, [owner])]),
            ],
            [],
        )

    def expect_settled(self, settled: Sequence[Settled]) -> None:
        """Read what settlements need: the calls, then whatever covers them."""
        self._calls.read((one.tenant, one.call_id) for one in settled)
        calls = [call for one in settled if (call := self.call(one.tenant, one.call_id)) is not None]
        keys = {(*key, call.at): None for call in calls for key in _budget_keys(call.tenant, call.owners)}
        counters = [(*key, Period(key[3]).bounds(at)[0]) for *key, at in keys]
        self._uow.transaction.read_all(
            [
                (self._budgets, [key[:4] for key in keys]),
                (self._breakers, [(call.tenant, call.user) for call in calls]),
                (self._stored, counters),
            ],
            [],
        )

    def call(self, tenant: str, call_id: str) -> Call | None:
        values = self._calls.get(tenant, call_id)
        return None if values is None else self._call(values)

    def put_call(self, call: Call) -> None:
        self._calls.put(call_values(call))

    def delete_call(self, call: Call) -> None:
        self._calls.delete(call.tenant, call.call_id)

    def calls_not_made(self, tenant: str, occurrence_id: str) -> list[Call]:
        entries = self._calls.entries("of_occurrence", [occurrence_id], prefix=[0])
        keys = [entry[len(SPENT) :] for entry in entries]
        calls = [
            self._call(values) for values in self._calls.get_many(key for key in keys if key[0] == tenant).values()
        ]
        return [one for one in calls if not one.is_settled and not one.is_made]

    def run_spend(self, tenant: str, occurrence_id: str) -> RunSpend:
        spent = self._spent(occurrence_id)
        of_tenant = [counts for (owner, _), counts in spent.items() if owner == tenant]
        settled, reserved = _sums(of_tenant)
        call_count = sum(number(count, 0) if is_settled == 1 else 1 for is_settled, _, _, count in of_tenant)
        return RunSpend(settled=settled, reserved=reserved, model_calls=call_count)

    def fence_holds(self, occurrence_id: str, fence: int) -> bool:
        row = self._uow.row(occurrence_id)
        return row is not None and row.fence == fence and row.phase in DELIVERING

    def budget(self, key: BudgetKey) -> Budget | None:
        values = self._budgets.get(*map(str, key))
        return None if values is None else to_budget(values, self._uow.report)

    def put_budget(self, budget: Budget) -> None:
        self._budgets.put(budget_values(budget))

    def delete_budget(self, key: BudgetKey) -> None:
        place = tuple(map(str, key))
        for values in self._stored.find("of_tenant", [key[0]], prefix=place):
            self._stored.delete(*values[:5])
        self._budgets.delete(*place)
        for cache in (self._known, self._changed):
            for name in [one for one in cache if one[:4] == place]:
                del cache[name]

    def counters(self, tenant: str, covering: Collection[Owner], at: Micros) -> list[Counter]:
        return [counter for counter, _ in self._covering(tenant, covering, at)]

    def stored_counters(self, tenant: str, covering: Collection[Owner], at: Micros) -> list[Counter]:
        return [counter for counter, is_stored in self._covering(tenant, covering, at) if is_stored]

    def changed_counter(self, counter: Counter) -> None:
        key = _key(counter.budget, counter.period_start)
        self._known[key] = self._changed[key] = counter

    def count(self, budget: Budget, period_start: Micros) -> Counter:
        index = _INDEX_OF[budget.scope]
        partition = [budget.tenant] if budget.scope is BudgetScope.TENANT else [budget.tenant, budget.scope_id]
        entries = self._calls.entries(index, partition, since=(period_start,))
        settled, reserved = _sums(entry[1:5] for entry in entries)
        return Counter(budget, period_start, settled.tokens, settled.cost or 0, reserved.tokens, reserved.cost or 0)

    def breaker(self, tenant: str, user: str) -> Breaker | None:
        values = self._breakers.get(tenant, user)
        if values is None:
            return None
        if problems := _BREAKERS.problems(values):
            self._uow.report("breakers", user, problems)
            return Breaker()
        return Breaker(failures=values[2], since=values[3])

    def put_breaker(self, tenant: str, user: str, breaker: Breaker | None) -> None:
        if breaker is None:
            self._breakers.delete(tenant, user)
        else:
            self._breakers.put((tenant, user, breaker.failures, breaker.since))

    def write(self) -> None:
        """Put the counters that were changed into the transaction."""
        if self._changed:
            self._stored.put_many([counter_values(one) for one in self._changed.values()])
            self._changed.clear()

    # Reads

    def page(
        self,
        tenant: str,
        limit: int,
        scope: BudgetScope | None,
        scope_id: str | None,
        after: tuple[str, str, str] | None,
    ) -> list[Standing]:
        """Budgets with their counters, by scope, id and period."""
        scopes = [one for one in sorted(BudgetScope) if scope in (None, one)]
        prefixes: list[tuple[str, ...]] = [(tenant,)] if scope is None else [(tenant, str(scope))]
        if scope_id is not None:
            prefixes = [(tenant, str(one), scope_id) for one in scopes]
        rows: list[Values] = []
        for prefix in prefixes:
            if len(rows) < limit:
                begin, size = None, len(prefix) - 1
                if after is not None and after[:size] > prefix[1:]:
                    continue
                if after is not None and after[:size] == prefix[1:]:
                    begin = after[size:]
                rows += self._budgets.find("of_tenant", [tenant], prefix=prefix, after=begin, limit=limit - len(rows))
        budgets = [to_budget(values, self._uow.report) for values in rows]
        return [counter.standing for counter, _ in self._counters(budgets, self._uow.now())]

    def run_usage(self, occurrence_id: str) -> Usage | None:
        """What the settled calls of an occurrence used."""
        total: Usage | None = None
        calls = [
            self._call(values) for values in self._calls.get_many(self._spent(occurrence_id, settled=True)).values()
        ]
        for call in sorted(calls, key=lambda one: (one.at, one.call_id)):
            total = call.usage if total is None else total.plus(call.usage)
        return total

    def usage(  # noqa: PLR0913 - as the port has it
        self,
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
        return usage_groups(self._calls_of(tenant, user, schedule_id, since, until), by, limit)

    def costs_of_runs(self, uid: str, limit: int) -> list[int | None]:
        """What the last ended occurrences of a schedule cost; None if a price is unknown."""
        states = self._uow.load_states([uid])
        rows: list[Row] = []
        place: Any = None
        while uid in states and len(rows) < limit:
            page = self._uow.find_rows(
                "ended_of_schedule", states[uid].schedule, before=place, limit=limit, newest_first=True, hint=True
            )
            rows += [row for row in page if row.attempt]
            if len(page) < limit:
                break
            place = (page[-1].nominal, page[-1].id)
        occurrence_ids = [row.id for row in rows[:limit]]
        self._uow.transaction.preload(
            question for one in occurrence_ids for question in self._spent_questions(one, settled=True)
        )
        costs = [[cost for _, _, cost, _ in self._spent(one, settled=True).values()] for one in occurrence_ids]
        return [None if None in of_one else sum(number(cost, 0) for cost in of_one) for of_one in costs]

    def settled_calls_of(self, tenant: str, schedule_id: str, since: Micros, until: Micros) -> Iterator[Call]:
        """The settled calls of a schedule in a stretch of time."""
        calls = self._in_batches("of_schedule", [tenant, schedule_id], since, until)
        return (call for call in calls if call.is_settled)

    def spenders(self, *, since: Micros, above: int, limit: int) -> list[tuple[str, str]]:
        """The schedules that have spent more than that since a time."""
        spent: Sums[tuple[str, str]] = Sums()
        for call in self._in_batches("settled", [], since + 1, None):
            if call.schedule_id is not None:
                spent[call.tenant, call.schedule_id] += call.amount.cost or 0
        ordered = sorted(spent.items(), key=lambda one: (-one[1], one[0]))
        return [schedule for schedule, cost in ordered if cost > above][:limit]

    def spend_by_hour(self, tenant: str, schedule_id: str, *, since: Micros, until: Micros) -> list[int]:
        """What a schedule has spent in each hour before a time."""
        spent: Sums[int] = Sums()
        entries = self._calls.entries("of_schedule", [tenant, schedule_id], after=(since,), until=(until,), hint=True)
        for called, is_settled, _, cost, *_ in entries:
            if is_settled == 1:
                spent[(until - called) // HOUR] += number(cost, 0)
        return [cost for _, cost in sorted(spent.items()) if cost > 0]

    def prune(self, *, before: Micros, limit: int) -> int:
        """Delete old settled calls, and counters of periods that ended before."""
        old = self._calls.find("settled", before=(before,), limit=limit, hint=True)
        for tenant, call_id, *_ in old:
            self._calls.delete(tenant, call_id)
        past = self._stored.find("by_age", before=(before - _LONGEST_PERIOD,), limit=limit, hint=True)
        for values in past:
            self._stored.delete(*values[:5])
        return len(old)

    def _covering(self, tenant: str, covering: Collection[Owner], at: Micros) -> list[tuple[Counter, bool]]:
        """The counters of these owners' budgets, and whether each is stored."""
        budgets = self._budgets.get_many(_budget_keys(tenant, covering))
        return self._counters([to_budget(values, self._uow.report) for values in budgets.values()], at)

    def _counters(self, budgets: Collection[Budget], at: Micros) -> list[tuple[Counter, bool]]:
        keys = [_key(one, one.period.bounds(at)[0]) for one in budgets]
        self._stored.read(key for key in keys if key not in self._known)
        return [self._counter(budget, key) for budget, key in zip(budgets, keys, strict=True)]

    def _counter(self, budget: Budget, key: CounterKey) -> tuple[Counter, bool]:
        """A counter, counted again if it is damaged, and whether it is stored."""
        if key in self._known:
            return self._known[key], True
        values = self._stored.get(*key)
        if values is None:
            return Counter(budget, key[4]), False
        if problems := _COUNTERS.problems(values):
            self._uow.report("budget_counters", ", ".join(map(str, key)), problems)
            counter = self.count(budget, key[4])
        else:
            counter = Counter(budget, *values[4:])
            counter.is_warned = values[-1] == 1
        self._known[key] = counter
        return counter, True

    def _call(self, values: Values) -> Call:
        return to_call(values, self._uow.report, self._uow.now())

    def _spent(self, occurrence_id: str, *, settled: bool = False) -> dict[Values, Values]:
        """What is added up of the calls of an occurrence and of its steps, by their keys; or of the settled ones."""
        self._uow.transaction.preload(self._spent_questions(occurrence_id, settled=settled))
        return {
            entry[len(SPENT) :]: entry[: len(SPENT)]
            for index in _OF_OCCURRENCE
            for entry in self._calls.entries(index, [occurrence_id], prefix=[1] if settled else [])
        }

    def _spent_questions(self, occurrence_id: str, *, settled: bool = False) -> list[Question]:
        prefix = [1] if settled else []
        return [self._calls.question(index, [occurrence_id], prefix=prefix) for index in _OF_OCCURRENCE]

    def _calls_of(
        self, tenant: str, user: str | None, schedule_id: str | None, since: Micros, until: Micros
    ) -> Iterator[Call]:
        index, partition = "of_tenant", [tenant]
        if schedule_id is not None:
            index, partition = "of_schedule", [tenant, schedule_id]
        elif user is not None:
            index, partition = "of_user", [tenant, user]
        for call in self._in_batches(index, partition, since, until):
            if user in (None, call.user):
                yield call

    def _in_batches(self, index: str, partition: list[str], since: Micros, until: Micros | None) -> Iterator[Call]:
        """The calls of a range of an index; they are not kept, since there may be any number of them."""
        transaction, after, before = self._uow.transaction, None, None if until is None else (until,)
        while True:
            records = Transaction(transaction.client, transaction.now, transaction.damaged).records(MODEL_CALLS)
            entries = records.entries(
                index, partition, after=after, since=(since,), before=before, limit=AT_ONCE, hint=True
            )
            yield from (self._call(values) for values in records.get_many(entry[-2:] for entry in entries).values())
            if len(entries) < AT_ONCE:
                return
            after = entries[-1]


def _owners(call: Reservation | UsageRecord) -> list[Owner]:
    """Whose budgets cover a call."""
    return owners(tenant=call.tenant, user=call.user, schedule_id=call.schedule_id, session_id=call.session_id)


def _budget_keys(tenant: str, covering: Collection[Owner]) -> list[Values]:
    return [(tenant, str(scope), scope_id, str(period)) for scope, scope_id in covering for period in sorted(Period)]


def _sums(spent: Iterable[Values]) -> tuple[Amount, Amount]:
    """What is settled, and what is reserved."""
    tokens, costs = [0, 0], [0, 0]
    for is_settled, used, cost, _ in spent:
        tokens[is_settled == 1] += number(used, 0)
        costs[is_settled == 1] += number(cost, 0)
    return Amount(tokens=tokens[1], cost=costs[1]), Amount(tokens=tokens[0], cost=costs[0])


def _key(budget: Budget, period_start: Micros) -> CounterKey:
    return (budget.tenant, str(budget.scope), budget.scope_id, str(budget.period), period_start)
