"""A damaged budget blocks all spending until it is set again; a damaged counter is counted again."""

import sqlite3
from contextlib import closing

import pytest

from noonmark.core.budgets.budget import Budget, BudgetScope, Period, Refused, Reserved
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing.conformance import HandClock
from tests.stores.population import a_call

BUDGET = Budget(tenant="acme", scope=BudgetScope.USER, scope_id="ada", period=Period.TOTAL, max_cost=1_000)


@pytest.fixture
def store(tmp_path):
    store = SqliteStore(str(tmp_path / "noonmark.db"), HandClock())
    store.open()
    store.put_budget(BUDGET)
    assert store.reserve([a_call("acme", "a"), a_call("acme", "b")]) == [Reserved(), Reserved()]
    yield store
    store.close()


def damage(tmp_path, statement):
    with closing(sqlite3.connect(tmp_path / "noonmark.db", isolation_level=None)) as connection:
        connection.execute(statement)


def test_a_damaged_budget_refuses_everything_until_it_is_set_again(store, tmp_path):
    damage(tmp_path, "UPDATE budgets SET max_cost = 'garbage'")
    [refused] = store.reserve([a_call("acme", "c")])
    assert isinstance(refused, Refused)
    assert (refused.what, refused.limit) == ("tokens", 0)
    assert store.put_budget(BUDGET).reserved.cost == 180
    assert store.reserve([a_call("acme", "c")]) == [Reserved()]


def test_a_damaged_counter_is_counted_again(store, tmp_path):
    damage(tmp_path, "UPDATE budget_counters SET reserved_cost = 'garbage'")
    [standing] = store.budgets("acme", 9)
    assert standing.reserved.cost == 180
    store.give_back("acme", ["a"])
    assert store.reserve([a_call("acme", "c")]) == [Reserved()]
    with closing(sqlite3.connect(tmp_path / "noonmark.db")) as connection:
        assert connection.execute("SELECT reserved_cost FROM budget_counters").fetchall() == [(180,)]
