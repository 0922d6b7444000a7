"""Much to do for several nodes on one PostgreSQL: everything is done once, by few connections, and then it is quiet."""

import os
import threading
from pathlib import Path

from noonmark.core.instants import SECOND, from_micros, to_micros
from noonmark.core.triggers import IntervalTrigger, OnceTrigger
from noonmark.driver.drive import drive
from tests.processes import work
from tests.processes.checker import check, percentile
from tests.processes.fleet import CLOCK, SCALE, every

NODES = 3
POOL = 4
BACKENDS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'noonmark' AND datname = current_database()"
LEFT = "SELECT count(*) FROM occurrences WHERE ended IS NULL"
COMPLETED = "SELECT count(*) FROM schedule_states WHERE phase = 'completed'"
LAST_CREATED = "SELECT max(created) FROM schedules"
PILOT = 200
TICKS = os.sysconf("SC_CLK_TCK")


class Sampler:
    """Looks at something again and again, beside what the test does."""

    def __init__(self, look):
        self._look, self.seen = look, []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()

    def _run(self):
        while not self._is_over.wait(0.25):
            self.seen.append(self._look())


def processor_seconds(processes):
    """What some processes have used since they were started."""
    stats = [Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split() for one in processes]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / TICKS


def seconds_to_create(fleet, count):
    """How long it takes to create so many, on a machine that is as busy as this one."""
    assert fleet.scheduler
    begun = CLOCK.monotonic()
    fleet.scheduler.create_many({"func": work.nothing, "trigger": IntervalTrigger(86_400)} for _ in range(PILOT))
    return (CLOCK.monotonic() - begun) / SECOND * count / PILOT


def test_ten_thousand_occurrences_are_delivered_once_each(postgres_fleet, figure):
    fleet = postgres_fleet
    for _ in range(NODES):
        fleet.node(15.0)
    trigger = every(1, count=5 * SCALE, after=1 + 1.5 * seconds_to_create(fleet, 2_000))
    everything = {"misfire": {"type": "catch_up_all", "limit": 1_000}, "overlap": "allow"}
    ids = fleet.scheduler.create_many({"func": work.record, "trigger": trigger, **everything} for _ in range(2_000))
    fleet.until(lambda: fleet.sql(COMPLETED) == [(len(ids),)], 180, pause=0.5)
    assert fleet.sql(LAST_CREATED) < [(to_micros(trigger.start_at),)], "all were there in time"
    verdict = check(fleet, ids)
    delivered = {line["occurrence"] for line in fleet.journal.of("end")}
    shares = sorted(len(fleet.journal.of("end", pid=node.pid)) for node in fleet.processes)
    errors = fleet.journal.of("store_failed") + fleet.complaints()
    figure(f"ten thousand: {len(delivered)} delivered by {shares}, errors {len(errors)}, {verdict}")
    assert verdict.is_sound
    assert verdict.outcomes == {"completed": 10_000 * SCALE}
    assert len(delivered) == 10_000 * SCALE
    assert verdict.repeated == 0
    assert verdict.accepted == 1
    assert not errors
    assert all(shares)
    assert fleet.sql(LEFT) == [(PILOT,)], "but for those that are due tomorrow"


def test_a_thundering_herd_needs_few_connections_and_leaves_quiet_nodes(postgres_fleet, figure):
    fleet = postgres_fleet
    herd = 5_000 * SCALE
    nodes = [fleet.node(15.0, store=f"{fleet.url}?pool={POOL}") for _ in range(NODES)]
    second = from_micros(CLOCK.micros() + int(seconds_to_create(fleet, herd) * 1.5 * SECOND) + 2 * SECOND)
    ids = fleet.scheduler.create_many({"func": work.record, "trigger": OnceTrigger(second)} for _ in range(herd))
    drive(fleet.scheduler.runtime.store.close())  # so that all the connections that are left are those of the nodes
    assert fleet.sql(LAST_CREATED) < [(to_micros(second),)], "all were there in time"
    with Sampler(lambda: fleet.sql(BACKENDS)[0][0]) as sampler:
        fleet.until(lambda: fleet.sql(COMPLETED) == [(herd,)], 180, pause=0.5)
    used, quiet = processor_seconds(nodes), CLOCK.monotonic()
    fleet.until(lambda: CLOCK.monotonic() > quiet + 3 * SECOND)
    idle = (processor_seconds(nodes) - used) / ((CLOCK.monotonic() - quiet) / SECOND)
    verdict = check(fleet, ids)
    figure(
        f"thundering herd: {verdict}, p99 lateness {percentile(verdict.lateness, 99):.2f} s, connections at most "
        f"{max(sampler.seen)} of {NODES * (POOL + 1)}, afterwards {100 * idle / NODES:.1f} % of a processor per node"
    )
    assert verdict.is_sound
    assert verdict.outcomes == {"completed": herd}
    assert verdict.repeated == 0
    assert max(sampler.seen) <= NODES * (POOL + 1)
    assert idle / NODES < 0.2
