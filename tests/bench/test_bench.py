import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from bench import cron, first_fire, page
from bench.__main__ import main
from bench.contestants import CONTESTANTS, CRONSIM, NEW_YORK, NOONMARK, Contestant
from bench.counting import COUNTS, POLICIES
from bench.history import tables as history
from bench.hostile import FOREIGN, PARSERS
from bench.postgres.contestants import CONTESTANTS as CONTESTANTS_ON_SERVERS
from bench.postgres.tables import CLAIMS, NODES, RAW
from bench.report import MISS, PASS, Table, tail
from bench.service.tables import COMMANDS, READS
from bench.settings import FULL, QUICK
from bench.suites import SUITES
from bench.temporal.tables import CONTESTANTS as CONTESTANTS_ON_TEMPORAL
from bench.workflows import tables as workflows
from tests.web.chromium import find

ROOT = Path(__file__).parents[2]
ROWS = {
    "Fires per second, parsed once": 2 * len(cron.EXPRESSIONS),
    "Cold": len(cron.COLD),
    "Parse 0 9 * * 1-5 and find its first fire": 2,
    f"count_between in {NEW_YORK}": len(COUNTS),
    "Catching up after a year away": len(POLICIES),
    "Hostile input": sum(len(inputs) for _, inputs in PARSERS.values()),
    "Burst": 4,
    "Create": 1,
    "Import and events": 3,
    "Steady": 3,
    "Journal": 1,
    "Stored": len(QUICK.stored) + 1,
    "Stored on SQLite": len(history.MEASURES),
    "Stored on PostgreSQL": len(history.MEASURES),
    "Lookups": 5,
    "Reservations": 12,
    "Calls": 3,
    "Events": 4,
    "Agents": 5,
    "Page": 1 + 2 * len(page.VIEWS) if find() else 1,
}
ROWS_ON_SERVERS = {
    "Burst on servers": len(RAW) + len(CONTESTANTS_ON_SERVERS),
    "Several nodes": len(NODES),
    "Steady on servers": len(CONTESTANTS_ON_SERVERS),
    "Claim on PostgreSQL": 2 * len(CLAIMS),
    "Wake-up on PostgreSQL": 4,
}
ROWS_OF_WORKFLOWS = {"Workflows": len(workflows.measurements(QUICK)), "Many workflow runs": 1}
ROWS_OF_THE_SERVICE = {
    "Create over HTTP": 5,
    "Reads over HTTP": len(READS),
    "Command line": len(COMMANDS),
    "Health": 3,
    "Run now": 2,
}


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def blocks(printed):
    """The printed blocks by their first lines, without what follows a colon."""
    return {block.partition("\n")[0].partition(":")[0]: block.splitlines() for block in printed.strip().split("\n\n")}


@pytest.mark.soak
def test_the_whole_bench_runs_and_says_what_was_measured_with_what():
    """All but what needs servers, which is tried by itself. It is run once, since it takes long."""
    on_servers = {"postgres", "redis", "service", "workflows", "engine"}
    ran = run("--quick", *(name for name in SUITES if name not in on_servers))
    assert ran.returncode == 0, ran.stderr
    printed = blocks(ran.stdout)
    head = "\n".join(printed["Noonmark bench"])
    assert re.search(r"Python 3\.\d+\.\d+.*, \d+ CPUs", head)
    for library in ("noonmark", "cronsim", "croniter", "APScheduler", "tzdata", "procrastinate", "dbos", "celery"):
        assert re.search(rf"{library} \d", head)
    assert str(QUICK) in head
    has_rows(printed, ROWS)
    assert not [line for line in printed["Hostile input"][3:] if FOREIGN in line]


@pytest.mark.soak
def test_every_table_of_the_servers_has_its_rows():
    ran = run("--quick", "postgres")
    assert ran.returncode == 0, ran.stderr
    has_rows(blocks(ran.stdout), ROWS_ON_SERVERS)


@pytest.mark.soak
def test_every_table_of_the_service_has_its_rows():
    ran = run("--quick", "service")
    assert ran.returncode == 0, ran.stderr
    has_rows(blocks(ran.stdout), ROWS_OF_THE_SERVICE)


@pytest.mark.soak
def test_every_table_of_workflows_has_its_rows():
    ran = run("--quick", "workflows")
    assert ran.returncode == 0, ran.stderr
    has_rows(blocks(ran.stdout), ROWS_OF_WORKFLOWS)


@pytest.mark.soak
def test_the_table_of_the_engine_has_its_rows():
    ran = run("--quick", "engine")
    assert ran.returncode == 0, ran.stderr
    has_rows(blocks(ran.stdout), {"Engine": len(CONTESTANTS_ON_TEMPORAL)})


def has_rows(printed, expected):
    for name, rows in expected.items():
        title, columns, rule, *lines = printed[name]
        assert set(rule.strip()) == {"-"}
        assert len(lines) >= rows, title
        # The last columns are bars and may be empty, but every row begins in the first.
        assert all(re.match(r" +\S", line) for line in lines[:rows])
        assert columns.startswith("  ")
    assert len(printed) == len(expected) + 2


def test_a_suite_can_be_named():
    printed = blocks(run("--quick", "counting").stdout)
    assert list(printed)[1:3] == [f"count_between in {NEW_YORK}", "Catching up after a year away"]
    assert len(printed) == 4


def test_an_unknown_suite_is_refused_with_the_known_ones(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench", "--quick", "lunch"])
    with pytest.raises(SystemExit) as refused:
        main()
    assert refused.value.code == 2
    assert f"there is no suite 'lunch'; choose from {', '.join(SUITES)}" in capsys.readouterr().err


def test_how_much_is_stored_can_be_chosen(monkeypatch):
    for name in ("BENCH_SCHEDULES", "BENCH_HISTORY"):
        monkeypatch.delenv(name, raising=False)
    assert history.sizes(QUICK) == list(zip(QUICK.history_schedules, QUICK.history, strict=True))
    monkeypatch.setenv("BENCH_SCHEDULES", "1000,500000")
    monkeypatch.setenv("BENCH_HISTORY", "10000,5000000")
    assert history.sizes(QUICK) == [(1_000, 10_000), (500_000, 5_000_000)]


def test_every_database_has_as_many_schedules_as_were_asked_for(monkeypatch):
    monkeypatch.setenv("BENCH_SCHEDULES", "1000")
    with pytest.raises(ValueError, match="longer"):
        history.sizes(FULL)


@pytest.mark.parametrize("zone", ["UTC", NEW_YORK])
@pytest.mark.parametrize("expression", cron.EXPRESSIONS)
def test_the_contestants_agree(expression, zone):
    cron._agree(expression, zone, 40)


def test_a_contestant_that_is_wrong_is_noticed(monkeypatch):
    def an_hour_late(expression, zone, start):
        walk = CRONSIM.parse(expression, zone, start)
        return lambda count: [fire + timedelta(hours=1) for fire in walk(count)]

    liar = Contestant("liar", an_hour_late)
    monkeypatch.setattr(cron, "CONTESTANTS", (*CONTESTANTS, liar))
    with pytest.raises(AssertionError, match="liar disagrees on 30 2"):
        cron._agree("30 2 * * *", NEW_YORK, 10)
    monkeypatch.setattr(first_fire, "OTHERS", (CRONSIM, liar))
    with pytest.raises(AssertionError, match="liar disagrees on the first fire"):
        first_fire._averages(NEW_YORK, 1)


def test_nothing_is_remembered_where_nothing_may_be():
    assert "_parse" in first_fire.PARSED
    NOONMARK.walk("0 9 * * 1-5", "UTC", cron.START)(1)
    first_fire.forget_expressions()
    NOONMARK.walk("0 9 * * 1-5", "UTC", cron.START)
    parse = first_fire.PARSED["_parse"].__self__
    assert (parse.cache_info().hits, parse.cache_info().misses) == (0, 1)


def test_the_median_of_each_workflow_is_judged_beside_that_of_its_peer():
    measured = workflows.measurements(QUICK)
    rates = {what: ([1, 50, 90], [10, 10, 1_000]) for what in measured}
    one_chain, *_, fan_out = measured
    rates[one_chain] = ([9, 9, 90], [10, 10, 10])
    rates[fan_out] = ([49, 49, 90], [10, 10, 10])
    rows = workflows.beside_dbos(QUICK, rates).rows
    assert [row[1:] for row in rows] == [
        ("9", "10", "0.9", MISS),
        ("50", "10", "5.0", PASS),
        ("50", "10", "5.0", ""),
        ("49", "10", "4.9", MISS),
    ]


def test_a_missed_bar_is_told_in_the_end():
    table = Table("Speed: of things", ("thing", "rate", "bar"))
    table.add("snail", "1", MISS)
    table.add("hare", "1,000", PASS)
    table.add("stone", "0", "")
    assert tail([table], 2) == ["1 of 2 bars met, in 2 s", "  MISS  Speed: snail  1"]


def test_numbers_stand_to_the_right_and_text_to_the_left():
    table = Table("Speed", ("thing", "rate", "bar"), notes=("A note.",))
    table.add("snail", "1", "")
    table.add("hare", "1,000", PASS)
    assert table.lines() == [
        "Speed",
        "  thing   rate  bar",
        "  ------------------",
        "  snail      1",
        "  hare   1,000  PASS",
        "  A note.",
    ]


def test_a_row_needs_a_cell_for_every_column():
    with pytest.raises(ValueError, match="2 cells for 3 columns"):
        Table("Speed", ("thing", "rate", "bar")).add("snail", "1")
