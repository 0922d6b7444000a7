import sys
from types import SimpleNamespace

import pytest

from bench.ledger.child import measure
from bench.postgres import contestants, harness, tables
from bench.postgres.agenda import Load, Outcome
from bench.postgres.contestants import CELERY, PROCRASTINATE, Contestant
from bench.redis import tables as redis_tables
from bench.redis.tables import SYNCS
from bench.report import MISS, PASS
from bench.settings import QUICK as SMALL
from tests.servers import postgres, redis


@pytest.fixture(scope="module")
def servers():
    with postgres.running(**postgres.QUICK) as database, redis.running() as broker:
        yield tables.Servers(database, broker)


def test_a_measurement_leaves_nothing_behind(servers):
    with pytest.raises(RuntimeError, match="nobody"), servers.room() as url:
        measure("server_burst", contestant="nobody", url=url, count=1)
    assert tables.DATABASE not in servers.postgres.sql("SELECT datname FROM pg_database").split()


def test_jobs_that_did_not_run_are_noticed(monkeypatch):
    loser = Contestant(name="loser", module="loser", stores=1_000)
    work = SimpleNamespace(work=lambda url, load: Outcome(lateness=[0.1] * (load.count - 1), seconds=1))
    monkeypatch.setitem(sys.modules, "loser", work)
    monkeypatch.setitem(contestants.CONTESTANTS, "loser", loser)
    with pytest.raises(AssertionError, match="9 of 10 have run"):
        harness.server_burst("loser", "", 10)
    assert harness.server_steady("loser", "", 5, 2)["lost"] == 1


def test_jobs_that_ran_too_soon_are_noticed(monkeypatch):
    hasty = Contestant(name="hasty", module="hasty", stores=1_000)
    work = SimpleNamespace(work=lambda url, load: Outcome(lateness=[0.1, -0.1], seconds=1))
    monkeypatch.setitem(sys.modules, "hasty", work)
    monkeypatch.setitem(contestants.CONTESTANTS, "hasty", hasty)
    with pytest.raises(AssertionError, match="before its time"):
        harness.server_burst("hasty", "", 2)


def test_jobs_that_were_due_while_they_were_stored_are_noticed():
    with pytest.raises(AssertionError, match="due before all of them were there"):
        Load(count=1, lead=-1, patience=0).begin().all_stored()


def test_the_jobs_of_a_load_are_spread_evenly():
    agenda = Load(count=4, seconds=2, lead=0, patience=0).begin()
    assert [due - agenda.begin for due in agenda.dues()] == pytest.approx([0, 0.5, 1, 1.5], abs=1e-5)
    burst = Load(count=4, lead=0, patience=0).begin()
    assert set(burst.dues()) == {burst.begin}


def test_a_contestant_stands_beneath_the_raw_loop_that_had_claimed_as_much(monkeypatch):
    quick = Contestant(name="quick", module="", stores=1, claims_ahead=True, bar=10)
    slow = Contestant(name="slow", module="", stores=1, bar=10)
    entered = {each.name: each for each in (PROCRASTINATE, CELERY, quick, slow)}
    monkeypatch.setattr(tables, "CONTESTANTS", entered)
    rates = {"Procrastinate": 100, "Celery on Redis": 200, "quick": 1_000, "slow": 999}
    best = {name: {"ran": 50, "rate": rate, "first": 0.5} for name, rate in rates.items()}
    best |= {name: {"ran": 50, "rate": 1_000 if overdue else 2_000} for name, overdue in tables.RAW.items()}
    rows = tables.burst_table(SMALL, "18", best).rows
    assert [(row[0], *row[-3:]) for row in rows] == [
        ("raw SQL, claimed ahead", "", "20.0", ""),
        ("Celery on Redis", "0.100", "2.0", ""),
        ("quick", "0.500", "10.0", PASS),
        ("raw SQL, overdue at start", "", "10.0", ""),
        ("Procrastinate", "0.100", "1.0", ""),
        ("slow", "0.999", "10.0", MISS),
    ]


def test_on_redis_each_contestant_is_compared_with_celery_on_the_same_server():
    rates = {"Noonmark on Redis": 300, "Celery on Redis": 100, "Dramatiq on Redis": 50}
    best = {(sync, name): {"ran": 5, "rate": rate, "first": 0.1} for sync in SYNCS for name, rate in rates.items()}
    best["always", "Celery on Redis"]["rate"] = 50
    rows = redis_tables.burst_table(SMALL, best).rows
    assert rates.keys() == contestants.ON_REDIS.keys()
    assert [row[-1] for row in rows] == ["3.0", "1.0", "0.5", "6.0", "1.0", "1.0"]


def test_a_burst_on_redis_is_measured(servers):
    figures = servers.measure("server_burst", "redis", contestant="Noonmark on Redis", count=20)
    assert figures["ran"] == 20
