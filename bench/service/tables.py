"""The tables of the service: creates and reads over HTTP, commands, health under load, and running now."""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.ledger import ours
from bench.ledger.child import ROOT, measure
from bench.ledger.ours import percentiles
from bench.report import Table, bar, duration
from bench.service import bare, jobs
from bench.service.loads import CONNECTIONS, PAUSE
from bench.timing import timed
from noonmark import CronTrigger, OnceTrigger, Scheduler
from noonmark.core.instants import SECOND, from_micros
from tests.cli.terminal import NOONMARK, in_pipe
from tests.servers import postgres
from tests.service.server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.settings import Settings
    from tests.service.server import Server

MAX_HEALTH, MAX_COMMAND = 0.2, 0.25
BARE, SQLITE, POSTGRES = "Starlette that stores nothing", "SQLite", "PostgreSQL"
MIN_CREATES = {SQLITE: 1_500, POSTGRES: 600}
PAGE = 50
READS = {
    "nothing to do: GET /health/live": ("/health/live", None),
    "one schedule": ("/schedules/{one}", 1_500),
    f"a page of {PAGE}": (f"/schedules?limit={PAGE}", 400),
    f"a page of {PAGE}, by a label": (f"/schedules?limit={PAGE}&label=team%3Dteam-7", None),
}
"""The path of each, and how many a second are the bar."""
LIST = "noonmark schedule list"
COMMANDS = {
    "python -c pass": ((sys.executable, "-c", "pass"), None),
    LIST: ((*NOONMARK, "schedule", "list"), MAX_COMMAND),
    f"{LIST} --json": ((*NOONMARK, "schedule", "list", "--json"), MAX_COMMAND),
}
"""What is run, and the bar of its median, in seconds."""
LISTED = 100
APART = 2.0
"""Seconds from one burst to the next."""


def tables(settings: Settings) -> Iterator[Table]:
    """All of them."""
    yield _creates(settings)
    with _listed(settings) as (server, one):
        yield _reads(settings, server, one)
        yield _commands(settings, server)
    with server_on() as server:
        yield _healths(settings, server)
        yield _runs(settings, server)


@contextmanager
def server_on(url: str | None = None) -> Iterator[Server]:
    """A server with the functions of the bench, on that store or on a SQLite file of its own."""
    with tempfile.TemporaryDirectory() as folder:
        options = [part for name in jobs.FUNCTIONS for part in ("--function", f"{name}={jobs.__name__}:{name}")]
        store = url or _file(Path(folder))
        with serving(Path(folder), "--store", store, "--migrate", *options, PYTHONPATH=str(ROOT)) as server:
            yield server


def _file(folder: Path) -> str:
    return f"sqlite:///{folder}/bench.db"


def _creates(settings: Settings) -> Table:
    table = Table(
        f"Create over HTTP: {settings.requests:,} schedules, {CONNECTIONS} at a time, durable when they are answered",
        ("what", "requests/s", "of bare", "of embedded", "p50", "p99", "bar"),
        notes=(
            f"Median of {settings.server_rounds}, in turn. Embedded: Scheduler.schedule in this process, one by one.",
            f"Bare, {BARE}: the same web server reads the body as JSON and gives the same answer every time.",
            f"Bar: {', '.join(f'{rate:,}/s on {store}' for store, rate in MIN_CREATES.items())}.",
        ),
    )
    found = _measured_creates(settings)
    raw = found[BARE]["rate"]
    table.add(f"bare: {BARE}", f"{raw:,.0f}", "", "", *_times(found[BARE]), "")
    for store in (SQLITE, POSTGRES):
        embedded, served = found[f"embedded, {store}"], found[store]
        table.add(f"embedded, {store}", f"{embedded['rate']:,.0f}", "", "", *_times(embedded), "")
        shares = [f"{served['rate'] / rate:.2f}" for rate in (raw, embedded["rate"])]
        judged = bar(met=served["rate"] >= MIN_CREATES[store])
        table.add(f"noonmark serve, {store}", f"{served['rate']:,.0f}", *shares, *_times(served), judged)
    return table


def _measured_creates(settings: Settings) -> dict[str, dict[str, float]]:
    """The median of each."""
    rounds: dict[str, list[dict[str, float]]] = {}
    count = settings.requests
    with (
        postgres.running() as database,
        tempfile.TemporaryDirectory() as folder,
        bare.serving() as bare_port,
        server_on() as file_server,
        server_on(database.create("served")) as database_server,
    ):
        embedded = database.create("embedded")
        for _ in range(settings.server_rounds):
            found = {
                BARE: measure("http_create", port=bare_port, count=count),
                SQLITE: measure("http_create", port=file_server.port, count=count),
                POSTGRES: measure("http_create", port=database_server.port, count=count),
                f"embedded, {SQLITE}": measure("embedded_create", url=f"sqlite:///{folder}/embedded.db", count=count),
                f"embedded, {POSTGRES}": measure("embedded_create", url=embedded, count=count),
            }
            for name, one in found.items():
                rounds.setdefault(name, []).append(one)
    return {name: _median(measured) for name, measured in rounds.items()}


def _median(measured: list[dict[str, float]]) -> dict[str, float]:
    """The median by rate."""
    return sorted(measured, key=lambda one: one["rate"])[len(measured) // 2]


@contextmanager
def _listed(settings: Settings) -> Iterator[tuple[Server, str]]:
    """A server that has many schedules, and the id of one of them."""
    with tempfile.TemporaryDirectory() as folder:
        url = _file(Path(folder))
        one = _fill(url, settings.listed)
        with server_on(url) as server:
            yield server, one


def _reads(settings: Settings, server: Server, one: str) -> Table:
    table = Table(
        f"Reads over HTTP: {settings.listed:,} schedules on SQLite, {CONNECTIONS} requests at a time",
        ("what", "requests/s", "p50", "p99", "answer", "bar"),
        notes=(
            f"Median of {settings.server_rounds}, in turn. One schedule in {jobs.TEAMS} has the label.",
            f"Bar: {', '.join(f'{what} {least:,}/s' for what, (_, least) in READS.items() if least is not None)}.",
        ),
    )
    paths = {what: pattern.format(one=one) for what, (pattern, _) in READS.items()}
    rounds: dict[str, list[dict[str, float]]] = {what: [] for what in READS}
    for _ in range(settings.server_rounds):
        for what, path in paths.items():
            _check_page(server, path, settings.listed)
            count = settings.requests // 2 if "limit" in path else settings.requests * 2
            rounds[what].append(measure("http_get", port=server.port, path=path, count=count))
    for what, (_, least) in READS.items():
        found = _median(rounds[what])
        judged = "" if least is None else bar(met=found["rate"] >= least)
        table.add(what, f"{found['rate']:,.0f}", *_times(found), f"{found['bytes'] / 1_000:.1f} kB", judged)
    return table


def _commands(settings: Settings, server: Server) -> Table:
    table = Table(
        f"Command line: from the start of the process to its end, {settings.rounds} times, in turn",
        ("what", "p50", "longest", "bar"),
        notes=(
            f"{settings.listed:,} schedules on the server; the first {LISTED} are shown.",
            f"Bar: p50 <= {duration(MAX_COMMAND)}.",
        ),
    )
    took: dict[str, list[float]] = {what: [] for what in COMMANDS}
    for _ in range(settings.rounds):
        for what, (command, _) in COMMANDS.items():
            seconds, done = timed(lambda command=command: in_pipe(*command, NOONMARK_SERVER=server.url))
            assert done.returncode == 0, done.stderr
            took[what].append(seconds)
    for what, seconds in took.items():
        found, most = percentiles(seconds), COMMANDS[what][1]
        judged = "" if most is None else bar(met=found["p50"] <= most)
        table.add(what, duration(found["p50"]), duration(found["last"]), judged)
    return table


def _fill(url: str, count: int) -> str:
    """Create schedules; returns the id of one in the middle."""
    scheduler = Scheduler(url)
    trigger = CronTrigger("0 9 * * 1-5", timezone="America/New_York")
    declared = (jobs.document(number) for number in range(count))
    ids = scheduler.create_many(
        {
            "func": jobs.nothing,
            "function_name": "nothing",
            "trigger": trigger,
            "labels": one["labels"],
            "description": one["description"],
            "retries": one["retry_policy"],
        }
        for one in declared
    )
    scheduler.close()
    return ids[count // 2]


def _check_page(server: Server, path: str, stored: int) -> None:
    """What is measured is what it is said to be."""
    document = server.get(path).json
    if "limit" in path:
        matching = stored // jobs.TEAMS if "label" in path else stored
        found = len(document["schedules"])
        assert found == min(PAGE, matching), f"{path} gave {found} schedules"


def _healths(settings: Settings, server: Server) -> Table:
    size, bursts = settings.probed_burst, settings.probed_bursts
    table = Table(
        f"Health: GET /health on one connection, {PAUSE * 1e3:g} ms after the answer before, on SQLite",
        ("while the server", "probes", "p50", "p99", "longest", "bar"),
        notes=(
            f"Bar: p99 < {duration(MAX_HEALTH)}. {settings.requests:,} creates, {CONNECTIONS} at a time.",
            f"The occurrences are due at one instant, {bursts} times; probes count until the last of them has ended.",
        ),
    )
    figures = measure("health_alone", port=server.port, count=settings.requests)
    table.add("has nothing to do", *_health_cells(figures))
    figures = measure("health_beside_creates", port=server.port, count=settings.requests)
    table.add("creates schedules", *_health_cells(figures))
    figures = measure(
        "health_beside_bursts",
        port=server.port,
        first=_add_bursts(_file(server.folder), size, bursts),
        apart=APART,
        bursts=bursts,
        size=size,
    )
    table.add(f"runs bursts of {size:,}, {figures['rate']:,.0f}/s", *_health_cells(figures))
    return table


def _add_bursts(url: str, size: int, bursts: int) -> float:
    """Create schedules that are due at the same instants, several times; returns the first of them."""
    scheduler = Scheduler(url)
    first = time.time() + 3 + size * bursts / 4_000
    due = [from_micros(int((first + number * APART) * SECOND)) for number in range(bursts)]
    triggers = [OnceTrigger(one) for one in due for _ in range(size)]
    ours.keep(scheduler, ours._schedules(scheduler, "nothing", triggers))
    scheduler.close()
    assert time.time() < first, "the first were due before all of them were there"
    return first


def _runs(settings: Settings, server: Server) -> Table:
    count = settings.requests // 2
    table = Table(
        f"Run now: POST /schedules/ID/run on SQLite, {count:,} times, one after another",
        ("what", "p50", "p99"),
        notes=("The occurrence is durable before it is answered, and its start before the function is called.",),
    )
    declared = jobs.document(0) | {"target": {"target_kind": "function", "function": "tell"}, "overlap_policy": "allow"}
    created = server.ask("POST", "/schedules", declared)
    assert created.status == 201, created.text
    figures = measure("run_now", port=server.port, schedule_id=created.json["schedule_id"], count=count)
    table.add("to the start of the function", *_times(figures))
    table.add("to the answer", duration(figures["answer"]), duration(figures["slow_answer"]))
    return table


def _times(found: dict[str, float]) -> tuple[str, str]:
    return duration(found["p50"]), duration(found["p99"])


def _health_cells(found: dict[str, float]) -> tuple[str, ...]:
    met = bar(met=found["p99"] < MAX_HEALTH)
    return f"{found['probes']:,.0f}", *_times(found), duration(found["last"]), met
