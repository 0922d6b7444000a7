"""Budgets: what is reserved and settled never exceeds a hard limit, and nothing that was spent is forgotten."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.breaker import MAX_FAILURES, OPEN_FOR
from noonmark.core.budgets.budget import (
    Budget,
    BudgetScope,
    Period,
    Refused,
    Reservation,
    Reserved,
    RunLimits,
    WholeRun,
)
from noonmark.core.budgets.spend import Amount, Usage
from noonmark.core.instants import DAY, SECOND
from noonmark.core.schedule import AuditEntry
from noonmark.core.system_events import SystemEvent
from noonmark.core.triggers import EventTrigger
from noonmark.ports.budgets import Settled, UsageBy, UsageGroup, UsageRecord
from noonmark.testing.conformance.bench import case
from noonmark.testing.factories import NOW

if TYPE_CHECKING:
    from noonmark.core.budgets.budget import Standing
    from noonmark.testing.conformance.bench import Bench

MOST = Amount(tokens=100, cost=1_000)


def _reservation(call_id: str, most: Amount = MOST, **changes: Any) -> Reservation:
    values: dict[str, Any] = {
        "tenant": "acme",
        "user": "ada",
        "schedule_id": "report",
        "session_id": "talk",
        "occurrence_id": "occ_1",
        "fence": None,
        "model": "m-1",
        "provider": "p",
    }
    return Reservation(call_id=call_id, most=most, **values | changes)


def _reserve(bench: Bench, call_id: str, most: Amount = MOST, **changes: Any) -> Reserved | Refused:
    [answer] = bench.store.reserve([_reservation(call_id, most, **changes)])
    return answer


def _settle(bench: Bench, call_id: str, usage: Usage, tenant: str = "acme") -> bool:
    [done] = bench.store.settle_calls([Settled(call_id=call_id, tenant=tenant, usage=usage)])
    return done


def _budget(**changes: Any) -> Budget:
    values: dict[str, Any] = {
        "tenant": "acme",
        "scope": BudgetScope.USER,
        "scope_id": "ada",
        "period": Period.DAY,
        "max_cost": 3_000,
        "warning_threshold": None,
    }
    return Budget(**values | changes)


def _standing(bench: Bench, **filters: Any) -> Standing:
    [standing] = bench.store.budgets("acme", 9, **filters)
    return standing


def _spent(standing: Standing) -> tuple[int, int | None, int, int | None]:
    return standing.settled.tokens, standing.settled.cost, standing.reserved.tokens, standing.reserved.cost


USED = Usage(input_tokens=30, output_tokens=10, model_calls=1, cost=400)


@case
def a_call_is_reserved_settled_and_the_rest_given_back(bench: Bench) -> None:
    bench.store.put_budget(_budget())
    assert isinstance(_reserve(bench, "a"), Reserved)
    assert _spent(_standing(bench)) == (0, 0, 100, 1_000)
    assert _settle(bench, "a", USED)
    assert _spent(_standing(bench)) == (40, 400, 0, 0)
    assert not _settle(bench, "a", USED)
    assert not _settle(bench, "unknown", USED)
    assert not _settle(bench, "a", USED, "elsewhere")
    assert _spent(_standing(bench)) == (40, 400, 0, 0)
    used = bench.store.run_usage("occ_1")
    assert used == replace(USED, model="m-1", provider="p")
    assert bench.store.run_usage("occ_2") is None


@case
def a_hard_limit_is_never_exceeded(bench: Bench) -> None:
    bench.store.put_budget(_budget())
    answers = bench.store.reserve([_reservation(f"call-{number}") for number in range(4)])
    assert [isinstance(one, Reserved) for one in answers] == [True, True, True, False]
    refused = answers[3]
    assert isinstance(refused, Refused)
    assert (refused.scope, refused.scope_id, refused.what) == (BudgetScope.USER, "ada", "cost")
    assert (refused.limit, refused.settled, refused.reserved, refused.requested) == (3_000, 0, 3_000, 1_000)
    assert refused.resets_at == (bench.now // DAY + 1) * DAY
    assert _settle(bench, "call-0", USED)
    assert isinstance(_reserve(bench, "more"), Refused)
    assert isinstance(_reserve(bench, "less", Amount(tokens=1, cost=600)), Reserved)
    assert _spent(_standing(bench)) == (40, 400, 201, 2_600)
    # A lost answer counts in full, until it is known.
    assert _settle(bench, "call-1", USED)
    assert isinstance(_reserve(bench, "fits", Amount(tokens=1, cost=600)), Reserved)


@case
def every_budget_that_covers_a_call_counts_it(bench: Bench) -> None:
    scopes = {
        BudgetScope.TENANT: "acme",
        BudgetScope.USER: "ada",
        BudgetScope.SCHEDULE: "report",
        BudgetScope.SESSION: "talk",
    }
    for scope, name in scopes.items():
        bench.store.put_budget(_budget(scope=scope, scope_id=name, max_cost=10_000))
        bench.store.put_budget(_budget(scope=scope, scope_id="other", max_cost=10_000))
    bench.store.put_budget(_budget(tenant="elsewhere", max_cost=0))
    assert isinstance(_reserve(bench, "a"), Reserved)
    assert isinstance(_reserve(bench, "b", schedule_id=None, session_id=None), Reserved)
    counted = {(one.budget.scope, one.budget.scope_id): one.reserved.cost for one in bench.store.budgets("acme", 9)}
    assert counted == dict.fromkeys(((scope, "other") for scope in scopes), 0) | {
        (BudgetScope.TENANT, "acme"): 2_000,
        (BudgetScope.USER, "ada"): 2_000,
        (BudgetScope.SCHEDULE, "report"): 1_000,
        (BudgetScope.SESSION, "talk"): 1_000,
    }
    for scope, name in scopes.items():
        bench.store.put_budget(_budget(scope=scope, scope_id=name, max_cost=1_000))
        refused = _reserve(bench, "c")
        assert isinstance(refused, Refused)
        assert (refused.scope, refused.scope_id) == (scope, name)
        bench.store.put_budget(_budget(scope=scope, scope_id=name, max_cost=10_000))
    assert isinstance(_reserve(bench, "c"), Reserved)


@case
def a_call_that_is_reserved_again_replaces_its_amount(bench: Bench) -> None:
    bench.store.put_budget(_budget(max_cost=2_000))
    assert isinstance(_reserve(bench, "occ_1/first"), Reserved)
    assert isinstance(_reserve(bench, "occ_1/first", Amount(tokens=50, cost=2_000)), Reserved)
    assert _spent(_standing(bench)) == (0, 0, 50, 2_000)
    # What is refused leaves what is reserved.
    assert isinstance(_reserve(bench, "occ_1/first", Amount(tokens=50, cost=2_001)), Refused)
    assert _spent(_standing(bench)) == (0, 0, 50, 2_000)
    limits = RunLimits(max_model_calls=1, max_tokens=50)
    assert isinstance(_reserve(bench, "occ_1/first", Amount(tokens=50, cost=1), limits=limits), Reserved)
    assert _settle(bench, "occ_1/first", USED)
    assert isinstance(_reserve(bench, "occ_1/first"), Reserved)  # an admission that asks once more
    assert _spent(_standing(bench)) == (40, 400, 0, 0)


@case
def calls_that_were_not_made_are_given_back(bench: Bench) -> None:
    bench.store.put_budget(_budget())
    for call_id in ("a", "b", "c"):
        assert isinstance(_reserve(bench, call_id), Reserved)
    assert _settle(bench, "c", USED)
    bench.store.give_back("acme", ["a", "c", "unknown"])
    bench.store.give_back("elsewhere", ["b"])
    assert _spent(_standing(bench)) == (40, 400, 100, 1_000)
    assert not _settle(bench, "a", USED)


@case
def only_the_delivery_that_holds_the_fence_may_spend(bench: Bench) -> None:
    schedule = bench.create_quiet()
    occurrence = bench.run(schedule, "a")
    held: dict[str, Any] = {"occurrence_id": occurrence.id, "fence": occurrence.fence}
    assert isinstance(_reserve(bench, "a", **held), Reserved)
    assert _reserve(bench, "b", **held | {"fence": occurrence.fence + 1}) == Refused(scope=None)
    assert _settle(bench, "a", USED)
    answered = _reserve(bench, "a", **held)
    assert isinstance(answered, Refused)
    assert answered.what == "settled"
    assert bench.settle(occurrence)
    assert _reserve(bench, "c", **held) == Refused(scope=None)


@case
def the_limits_of_a_run_count_all_of_its_calls(bench: Bench) -> None:
    limits = RunLimits(max_cost=2_500, max_tokens=250, max_model_calls=3)
    assert isinstance(_reserve(bench, "a", limits=limits), Reserved)
    assert isinstance(_reserve(bench, "b", limits=limits), Reserved)
    refused = _reserve(bench, "c", limits=limits)
    assert isinstance(refused, Refused)
    assert (refused.scope, refused.scope_id, refused.what) == (BudgetScope.RUN, "occ_1", "tokens")
    assert (refused.limit, refused.settled, refused.reserved, refused.requested) == (250, 0, 200, 100)
    assert isinstance(_reserve(bench, "other", limits=limits, occurrence_id="occ_2"), Reserved)
    assert _settle(bench, "a", USED)
    assert isinstance(_reserve(bench, "c", limits=limits), Reserved)
    assert _settle(bench, "b", USED)
    refused = _reserve(bench, "d", Amount(tokens=1, cost=1), limits=limits)
    assert isinstance(refused, Refused)
    assert (refused.what, refused.limit, refused.settled, refused.requested) == ("model_calls", 3, 3, 1)
    costs = RunLimits(max_cost=1_799)
    refused = _reserve(bench, "d", Amount(tokens=1, cost=1), limits=costs)
    assert isinstance(refused, Refused)
    assert (refused.what, refused.settled, refused.reserved) == ("cost", 800, 1_000)


@case
def the_steps_of_a_run_share_its_limits(bench: Bench) -> None:
    whole = WholeRun(occurrence_id="occ_1", limits=RunLimits(max_tokens=250))

    def step(name: str) -> Reserved | Refused:
        limits = RunLimits(max_model_calls=1)
        return _reserve(bench, f"{name}/first", occurrence_id=name, limits=limits, whole=whole)

    assert isinstance(_reserve(bench, "step_1/first", occurrence_id="step_1"), Reserved)  # admission knows no run
    for name in ("step_1", "step_2", "step_1"):
        assert isinstance(step(name), Reserved)
    refused = step("step_3")
    assert isinstance(refused, Refused)
    assert (refused.scope_id, refused.limit, refused.reserved, refused.requested) == ("occ_1", 250, 200, 100)
    assert _settle(bench, "step_1/first", USED)
    assert isinstance(step("step_3"), Reserved)
    own, of_all = bench.store.run_usage("step_1"), bench.store.run_usage("occ_1")
    assert own == of_all == replace(USED, model="m-1", provider="p")
    assert _settle(bench, "step_3/first", USED)
    of_all = bench.store.run_usage("occ_1")
    assert of_all is not None
    assert (of_all.total_tokens, of_all.cost) == (80, 800)


@case
def an_unknown_price_counts_by_its_tokens(bench: Bench) -> None:
    bench.store.put_budget(_budget())
    unknown = Amount(tokens=100, cost=None)
    refused = _reserve(bench, "a", unknown)
    assert isinstance(refused, Refused)
    assert refused.what == "price"
    bench.store.put_budget(_budget(max_tokens=150))
    assert isinstance(_reserve(bench, "a", unknown), Reserved)
    assert isinstance(_reserve(bench, "b", unknown), Refused)
    assert _settle(bench, "a", Usage(input_tokens=60, cost=None))
    assert _spent(_standing(bench)) == (60, 0, 0, 0)
    used = bench.store.run_usage("occ_1")
    assert used is not None
    assert used.cost is None
    assert (used.model, used.model_calls) == ("m-1", 1)


@case
def a_new_period_begins_with_nothing_spent(bench: Bench) -> None:
    bench.store.put_budget(_budget())
    bench.store.put_budget(_budget(period=Period.TOTAL, max_cost=9_000))
    for number in range(3):
        assert isinstance(_reserve(bench, f"call-{number}"), Reserved)
    assert _settle(bench, "call-0", USED)
    bench.advance(DAY)
    days, total = bench.store.budgets("acme", 9)
    assert (days.budget.period, _spent(days)) == (Period.DAY, (0, 0, 0, 0))
    assert (days.period_start, days.period_end) == (bench.now // DAY * DAY, (bench.now // DAY + 1) * DAY)
    assert (total.period_start, total.period_end, _spent(total)) == (0, None, (40, 400, 200, 2_000))
    # What was reserved before belongs to the day on which it was reserved.
    assert isinstance(_reserve(bench, "today", Amount(tokens=1, cost=5)), Reserved)
    assert _settle(bench, "call-1", USED)
    assert _spent(bench.store.budgets("acme", 1)[0]) == (0, 0, 1, 5)
    bench.store.give_back("acme", ["today"])
    # Unless it is reserved again.
    assert isinstance(_reserve(bench, "call-2", Amount(tokens=7, cost=70)), Reserved)
    days, total = bench.store.budgets("acme", 9)
    assert _spent(days) == (0, 0, 7, 70)
    assert _spent(total) == (80, 800, 7, 70)


@case
def a_budget_that_is_set_counts_what_its_period_has_seen(bench: Bench) -> None:
    for number, user in enumerate(("ada", "ada", "bob")):
        assert isinstance(_reserve(bench, f"old-{number}", user=user), Reserved)
        assert _settle(bench, f"old-{number}", USED)
    bench.advance(DAY)
    assert isinstance(_reserve(bench, "a"), Reserved)
    assert isinstance(_reserve(bench, "b"), Reserved)
    assert _settle(bench, "a", USED)
    assert _spent(bench.store.put_budget(_budget())) == (40, 400, 100, 1_000)
    assert _spent(bench.store.put_budget(_budget(period=Period.MONTH))) == (120, 1_200, 100, 1_000)
    everybody = _budget(scope=BudgetScope.TENANT, scope_id="acme", period=Period.TOTAL)
    assert _spent(bench.store.put_budget(everybody)) == (160, 1_600, 100, 1_000)
    assert _settle(bench, "b", USED)
    assert [_spent(one) for one in bench.store.budgets("acme", 9)] == [
        (200, 2_000, 0, 0), (80, 800, 0, 0), (160, 1_600, 0, 0),
    ]  # fmt: skip


@case
def a_budget_is_raised_while_it_is_used(bench: Bench) -> None:
    note = AuditEntry(at=bench.now, caller="ada", operation="budget/put")
    bench.store.put_budget(_budget(max_cost=1_000), note=note)
    assert isinstance(_reserve(bench, "a"), Reserved)
    assert isinstance(_reserve(bench, "b"), Refused)
    raised = bench.store.put_budget(_budget(max_cost=2_000))
    assert (raised.budget.max_cost, raised.budget.updated, _spent(raised)) == (2_000, bench.now, (0, 0, 100, 1_000))
    assert isinstance(_reserve(bench, "b"), Reserved)
    assert [one.operation for one in bench.store.audit_entries("acme", 9)] == ["budget/put"]
    key = (BudgetScope.USER, "ada", Period.DAY)
    assert bench.store.delete_budget("acme", *key, note=replace(note, operation="budget/delete"))
    assert not bench.store.delete_budget("acme", *key, note=note)
    assert bench.store.budgets("acme", 9) == []
    assert [one.operation for one in bench.store.audit_entries("acme", 9)] == ["budget/delete", "budget/put"]
    assert isinstance(_reserve(bench, "c", Amount(tokens=1, cost=10**9)), Reserved)
    # What was spent meanwhile counts again.
    assert _spent(bench.store.put_budget(_budget())) == (0, 0, 201, 10**9 + 2_000)


@case
def budgets_are_listed_in_pages(bench: Bench) -> None:
    made = [
        _budget(scope=scope, scope_id=name, period=period)
        for scope in (BudgetScope.SCHEDULE, BudgetScope.USER)
        for name in ("a", "b")
        for period in (Period.DAY, Period.MONTH, Period.TOTAL)
    ]
    for budget in reversed(made):
        bench.store.put_budget(budget)
    bench.store.put_budget(_budget(tenant="elsewhere"))
    listed, after = [], None
    while page := bench.store.budgets("acme", 5, after=after):
        listed += [replace(one.budget, updated=0) for one in page]
        last = page[-1].budget
        after = (str(last.scope), last.scope_id, str(last.period))
    assert listed == made
    assert len(bench.store.budgets("acme", 9, scope=BudgetScope.USER)) == 6
    assert len(bench.store.budgets("acme", 9, scope=BudgetScope.USER, scope_id="b")) == 3
    full = replace(made[0], max_tokens=7, hard=False, warning_threshold=0.75, require_approval=True, updated=bench.now)
    bench.store.put_budget(full)
    assert bench.store.budgets("acme", 1)[0].budget == full


@case
def a_soft_limit_can_ask_for_approval(bench: Bench) -> None:
    bench.store.put_budget(_budget(hard=False, max_cost=500))
    passed = _reserve(bench, "a")
    assert isinstance(passed, Reserved)
    assert passed.delay == 5 * SECOND
    bench.store.put_budget(_budget(hard=False, max_cost=500, require_approval=True))
    refused = _reserve(bench, "b")
    assert isinstance(refused, Refused)
    assert (refused.needs_approval, refused.what) == (True, "cost")
    assert isinstance(_reserve(bench, "b", is_approved=True), Reserved)


@case
def a_threshold_is_crossed_once_in_each_period(bench: Bench) -> None:
    bench.create(trigger=EventTrigger(str(SystemEvent.BUDGET_THRESHOLD)))
    bench.store.put_budget(_budget(max_cost=10_000, warning_threshold=0.2))
    bench.store.put_budget(_budget(tenant="elsewhere", max_cost=1, hard=False, warning_threshold=0.2))

    def warned(call_id: str) -> list[int | None]:
        answer = _reserve(bench, call_id)
        assert isinstance(answer, Reserved)
        return [one.reserved.cost for one in answer.warnings]

    assert warned("a") == []
    assert warned("b") == [2_000]
    assert warned("c") == []
    bench.store.put_budget(_budget(max_cost=40_000, warning_threshold=0.2))
    assert [len(warned(f"raised-{number}")) for number in range(6)] == [0, 0, 0, 0, 1, 0]
    bench.advance(DAY)
    record = UsageRecord(call_id="told", tenant="acme", user="ada", usage=Usage(input_tokens=1, cost=9_000))
    assert bench.store.record_usage([record, replace(record, call_id="again")]) == [True, True]
    assert isinstance(_reserve(bench, "elsewhere", tenant="elsewhere"), Reserved)
    emitted = bench.store.events("acme", 9)
    assert [one.event_type for one in emitted] == [str(SystemEvent.BUDGET_THRESHOLD)] * 3
    first = emitted[-1].payload
    assert (first["scope"], first["scope_id"], first["period"]) == ("user", "ada", "day")
    assert (first["reserved_cost_usd"], first["max_cost_usd"]) == (0.000002, 0.00001)
    assert bench.store.events("elsewhere", 9) == []


@case
def reported_usage_counts_once_and_refuses_nothing(bench: Bench) -> None:
    bench.store.put_budget(_budget(max_cost=100))
    used = Usage(model="m-2", provider="q", input_tokens=3, cache_read_tokens=4, tool_calls=2, cost=150)
    record = UsageRecord(call_id="r-1", tenant="acme", user="ada", usage=used, occurrence_id="occ_1")
    assert bench.store.record_usage([record, record]) == [True, False]
    assert bench.store.record_usage([record, replace(record, tenant="elsewhere")]) == [False, True]
    assert _spent(_standing(bench)) == (7, 150, 0, 0)
    assert bench.store.run_usage("occ_1") == replace(used, cost=300, input_tokens=6, cache_read_tokens=8, tool_calls=4)
    assert isinstance(_reserve(bench, "a", Amount()), Refused)
    # It counts in the period in which it was used; the future is now.
    late = replace(record, call_id="r-2", at=bench.now - DAY, occurrence_id=None)
    assert bench.store.record_usage([late, replace(late, call_id="r-3", at=bench.now + DAY)]) == [True, True]
    assert _spent(_standing(bench)) == (14, 300, 0, 0)
    groups = bench.store.usage("acme", UsageBy.DAY, since=0, until=bench.now + 1, limit=9)
    assert [one.usage.cost for one in groups] == [150, 300]


@case
def what_a_run_reports_is_recorded_with_its_end(bench: Bench) -> None:
    bench.store.put_budget(_budget(scope=BudgetScope.SCHEDULE, scope_id="sch-1"))
    schedule = bench.create_quiet(schedule_id="sch-1")
    occurrence = bench.run(schedule, "one")
    settlement = bench.settlement(occurrence)
    reported = (replace(USED, model="a"), replace(USED, model="b", cost=None))
    run = replace(settlement.run, usage=reported[0].plus(reported[1]))
    end = replace(settlement, run=run, user="ada", reported=reported)
    lost = replace(end, occurrence=replace(occurrence, fence=occurrence.fence + 1))
    assert bench.store.settle([lost, end]) == [False, True]
    assert bench.store.settle([end]) == [False]
    assert _spent(_standing(bench)) == (80, 400, 0, 0)
    assert bench.store.run_usage(occurrence.id) == run.usage
    [stored] = bench.store.occurrence_runs(occurrence.id)
    assert stored.usage == run.usage
    groups = bench.store.usage("acme", UsageBy.USER, since=0, until=bench.now + 1, limit=9, schedule_id="sch-1")
    assert [(one.key, one.usage.cost, one.unpriced_calls) for one in groups] == [("ada", 400, 1)]
    assert bench.store.costs_of_runs(schedule.uid, 9) == [None]


@case
def usage_is_reported_in_groups(bench: Bench) -> None:
    callers = (("ada", "s-1", "talk"), ("ada", "s-2", None), ("bob", None, None))
    for number, (user, schedule, session) in enumerate(callers):
        call = f"call-{number}"
        changes: dict[str, Any] = {
            "user": user,
            "schedule_id": schedule,
            "session_id": session,
            "model": f"m-{number % 2}",
        }
        assert isinstance(_reserve(bench, call, **changes), Reserved)
        assert _settle(bench, call, replace(USED, cost=100 * number or None, tool_calls=number))
        assert isinstance(_reserve(bench, f"open-{number}", **changes), Reserved)
        bench.advance(DAY)
    assert isinstance(_reserve(bench, "else", tenant="elsewhere"), Reserved)

    def shown(by: UsageBy, **filters: Any) -> list[UsageGroup]:
        return bench.store.usage("acme", by, **{"since": NOW, "until": bench.now, "limit": 9} | filters)

    def brief(groups: list[UsageGroup]) -> list[tuple[object, ...]]:
        return [(one.key, one.usage.cost, one.usage.total_tokens, one.unpriced_calls, one.reserved) for one in groups]

    assert brief(shown(UsageBy.USER)) == [
        ("bob", 200, 40, 0, MOST),
        ("ada", 100, 80, 1, Amount(tokens=200, cost=2_000)),
    ]
    assert brief(shown(UsageBy.USER, limit=1)) == [("bob", 200, 40, 0, MOST)]
    assert brief(shown(UsageBy.SCHEDULE, user="ada")) == [("s-2", 100, 40, 0, MOST), ("s-1", 0, 40, 1, MOST)]
    assert [one.key for one in shown(UsageBy.SESSION)] == [None, "talk"]
    assert [(one.key, one.usage.model) for one in shown(UsageBy.MODEL)] == [("m-0", "m-0"), ("m-1", "m-1")]
    days = shown(UsageBy.DAY)
    assert [one.usage.cost for one in days] == [0, 100, 200]
    assert [one.key for one in days] == sorted(str(one.key) for one in days)
    assert len(str(days[0].key)) == len("2026-01-01")
    assert [one.usage.cost for one in shown(UsageBy.DAY, since=NOW + DAY, until=NOW + 2 * DAY)] == [100]
    [bound] = shown(UsageBy.USER, schedule_id="s-2")
    assert bound.usage == Usage(input_tokens=30, output_tokens=10, model_calls=1, tool_calls=1, cost=100)


@case
def the_costs_of_the_last_runs_of_a_schedule_are_known(bench: Bench) -> None:
    schedule = bench.create_quiet()
    for number, costs in enumerate(((5, 7), (None, 3), ())):
        occurrence = bench.run(schedule, f"run-{number}", number)
        for place, cost in enumerate(costs):
            held: dict[str, Any] = {"occurrence_id": occurrence.id, "fence": occurrence.fence}
            call = f"{occurrence.id}/{place}"
            assert isinstance(_reserve(bench, call, **held), Reserved)
            assert _settle(bench, call, Usage(input_tokens=1, cost=cost))
        assert bench.settle(occurrence)
        bench.advance(1)
    waiting = bench.add(schedule, "never", 9)
    assert bench.store.cancel(waiting.id)
    assert bench.store.costs_of_runs(schedule.uid, 9) == [0, None, 12]
    assert bench.store.costs_of_runs(schedule.uid, 2) == [0, None]
    assert bench.store.costs_of_runs("unknown", 9) == []


@case
def old_calls_are_deleted_and_stay_counted(bench: Bench) -> None:
    bench.store.put_budget(_budget(period=Period.TOTAL))
    for call in ("a", "b", "open"):
        assert isinstance(_reserve(bench, call), Reserved)
    assert _settle(bench, "a", USED)
    assert _settle(bench, "b", USED)
    bench.advance(DAY)
    assert isinstance(_reserve(bench, "new", Amount(tokens=1, cost=1)), Reserved)
    assert _settle(bench, "new", Usage(input_tokens=1, cost=1))
    assert bench.store.prune_usage(before=NOW, limit=9) == 0
    assert bench.store.prune_usage(before=bench.now, limit=1) == 1
    assert bench.store.prune_usage(before=bench.now, limit=9) == 1
    assert bench.store.prune_usage(before=bench.now, limit=9) == 0
    assert _spent(_standing(bench)) == (81, 801, 100, 1_000)
    assert _settle(bench, "open", USED)
    [group] = bench.store.usage("acme", UsageBy.USER, since=0, until=bench.now + 1, limit=9)
    assert group.usage.cost == 401


@case
def failures_of_a_provider_in_a_row_open_the_breaker_of_a_user(bench: Bench) -> None:
    occurrence = bench.run(bench.create_quiet(), "a")
    held: dict[str, Any] = {"occurrence_id": occurrence.id, "fence": occurrence.fence}

    def outcome(call_id: str, user: str = "ada") -> str:
        answer = _reserve(bench, call_id, user=user, **held)
        return answer.what if isinstance(answer, Refused) else "reserved"

    for _ in range(MAX_FAILURES - 1):
        bench.store.provider_failed("acme", "ada")
    assert outcome("a") == "reserved"
    assert _settle(bench, "a", USED)
    for _ in range(MAX_FAILURES):
        assert outcome("b") == "reserved"
        bench.store.provider_failed("acme", "ada")
    refused = _reserve(bench, "c", **held)
    assert isinstance(refused, Refused)
    assert (refused.scope, refused.scope_id, refused.what) == (BudgetScope.USER, "ada", "breaker")
    assert refused.resets_at == bench.now + OPEN_FOR
    assert outcome("d", "bob") == "reserved"
    assert isinstance(_reserve(bench, "e"), Reserved)  # an admission calls nobody
    bench.advance(OPEN_FOR)
    # Half-open: one call, until it has ended.
    assert [outcome("f"), outcome("g")] == ["reserved", "breaker"]
    bench.store.provider_failed("acme", "ada")
    assert outcome("g") == "breaker"
    bench.advance(OPEN_FOR)
    assert outcome("g") == "reserved"
    assert _settle(bench, "g", USED)
    assert [outcome("h"), outcome("i")] == ["reserved", "reserved"]
