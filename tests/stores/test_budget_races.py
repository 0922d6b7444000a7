"""Fifty runs on two nodes race for the same budgets: what is settled and reserved never exceeds a hard limit."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from noonmark.core.admission import Start
from noonmark.core.budgets.budget import Budget, BudgetScope, Period, Refused, Reservation, Reserved
from noonmark.core.budgets.spend import Amount, Usage
from noonmark.core.ids import fraction, manual
from noonmark.core.planner import first_plan
from noonmark.core.targets import TaskTarget
from noonmark.core.triggers import EventTrigger
from noonmark.ports.budgets import Settled, UsageBy
from noonmark.ports.records import Admitted
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD
from noonmark.testing.factories import NOW

RUNS, NODES = 50, 2
MOST = 1_000
LIMIT = 60 * MOST
DEADLINE = 120
TENANT = Budget(tenant="acme", scope=BudgetScope.TENANT, scope_id="acme", period=Period.TOTAL, max_cost=LIMIT)
USERS = ("ada", "bob")
OF_USER = replace(TENANT, scope=BudgetScope.USER, period=Period.DAY, max_cost=35 * MOST)


def call(run, number):
    user = USERS[run % len(USERS)]
    return Reservation(
        call_id=f"occ_{run}/1/{number}",
        tenant="acme",
        user=user,
        schedule_id=f"of {user}",
        session_id=None,
        occurrence_id=f"occ_{run}",
        fence=None,
        model="m",
        provider=None,
        most=Amount(tokens=10, cost=MOST),
    )


def spend(store, run, raised):
    """Call a model until a budget has no room, and again until it has none after it was raised; returns the costs.

    Some answers are lost, some calls are not made, and the others use less than they may.
    """
    costs = []
    for has_room_again in (raised.wait, lambda _: None):
        for number in range(len(costs), 10_000):
            reservation = call(run, number)
            [answer] = store.reserve([reservation])
            if isinstance(answer, Refused):
                assert answer.settled + answer.reserved + answer.requested > answer.limit
                break
            assert isinstance(answer, Reserved)
            fate = fraction(run, number)
            if fate < 0.2:
                costs.append(MOST)  # lost: it counts in full
            elif fate < 0.3:
                store.give_back("acme", [reservation.call_id])
                costs.append(0)
            else:
                cost = int(fate * MOST)
                used = Usage(input_tokens=10, cost=cost)
                settled = Settled(call_id=reservation.call_id, tenant="acme", usage=used)
                assert store.settle_calls([settled, settled]) == [True, False]
                costs.append(cost)
        has_room_again(DEADLINE)
    return costs


def node(make_store, runs, raised, answers):
    store = make_store()
    store.open()
    with ThreadPoolExecutor(len(runs)) as threads:
        costs = list(threads.map(lambda run: spend(store, run, raised), runs))
    store.close()
    answers.put(dict(zip(runs, costs, strict=True)))


def set_budgets(store, times=1):
    store.put_budget(replace(TENANT, max_cost=times * LIMIT))
    for user in USERS:
        store.put_budget(replace(OF_USER, scope_id=user, max_cost=times * OF_USER.max_cost))


def used(store):
    """What is used of the budget of the tenant; no budget may be exceeded, whenever one looks."""
    standings = store.budgets("acme", 9)
    for standing in standings:
        assert standing.settled.cost + standing.reserved.cost <= standing.budget.max_cost
    return sum(one.settled.cost + one.reserved.cost for one in standings if one.budget.scope is BudgetScope.TENANT)


def test_of_racing_runs_none_gets_beyond_a_hard_limit_also_when_it_is_raised(make_store):
    store = make_store()
    store.open()
    set_budgets(store)
    store.close()
    context = multiprocessing.get_context("fork")
    raised, answers = context.Event(), context.Queue()
    shares = [range(first, RUNS, NODES) for first in range(NODES)]
    processes = [context.Process(target=node, args=(make_store, list(one), raised, answers)) for one in shares]
    for process in processes:
        process.start()
    store = make_store()
    store.open()
    while used(store) <= LIMIT - MOST:
        assert all(process.is_alive() for process in processes)
    set_budgets(store, 2)
    raised.set()
    while answers.empty() and any(process.is_alive() for process in processes):
        used(store)
    costs = {run: one for _ in processes for run, one in answers.get(timeout=DEADLINE).items()}
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * NODES
    spent = sum(map(sum, costs.values()))
    assert used(store) == spent
    assert 2 * LIMIT - MOST < spent <= 2 * LIMIT
    for user in USERS:
        [group] = store.usage("acme", UsageBy.USER, since=0, until=2**60, limit=9, user=user)
        own = sum(sum(one) for run, one in costs.items() if USERS[run % len(USERS)] == user)
        assert group.usage.cost + group.reserved.cost == own
    store.close()


def test_of_racing_starts_as_many_pass_as_have_room_for_their_first_call(make_store):
    stores = [make_store() for _ in range(NODES)]
    for store in stores:
        store.open()
    stores[0].put_budget(replace(TENANT, max_cost=20 * MOST + 1))
    for run in range(RUNS):
        schedule = factories.schedule(f"uid-{run}", trigger=EventTrigger("none"), target=TaskTarget(query="look"))
        assert stores[0].create([first_plan(schedule, lookahead=LOOKAHEAD)]) == [True]
        assert stores[0].add([factories.occurrence(schedule, manual("a"), nominal=NOW)]) == [True]
    claims = stores[0].claim("node-a", ["task"], now=NOW, until=NOW, limit=RUNS, lease=LEASE)

    def start(place):
        claim = claims[place]
        first = replace(call(place, 0), occurrence_id=claim.occurrence.id)
        admission = Start(claim=claim, takes_slot=True, reservation=first)
        [answer] = stores[place % NODES].admit([admission], now=NOW, lease=LEASE)
        return isinstance(answer, Admitted)

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(start, range(RUNS))) == 20
    assert used(stores[1]) == 20 * MOST
    for store in stores:
        store.close()
