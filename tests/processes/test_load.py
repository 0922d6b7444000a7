"""Load on several nodes and one PostgreSQL: everything is done once, with few connections, and then it is idle."""

import os
import threading
from pathlib import Path

from noonmark.core.instants import SECOND, from_micros
from noonmark.core.triggers import IntervalTrigger, OnceTrigger
from tests.processes import work
from tests.processes.checker import check, percentile
from tests.processes.fleet import CLOCK, every
from tests.soak import SCALE

NODES = 3
POOL = 4
BACKENDS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'noonmark' AND datname = current_database()"
LEFT = "SELECT count(*) FROM occurrences WHERE ended IS NULL"
ACTIVE = "SELECT count(*) FROM schedule_states WHERE phase <> 'completed'"
PILOT = 200
QUIET, QUIET_WITHIN = 0.2, 30
"""So much of a processor at most, so many seconds after the last of it at most."""
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


def quiet_for_a_second(nodes):
    """How much of a processor each node uses, in a list; none while that is much."""
    used, since = processor_seconds(nodes), CLOCK.monotonic()
    threading.Event().wait(1)
    seconds = (CLOCK.monotonic() - since) / SECOND
    share = (processor_seconds(nodes) - used) / seconds / len(nodes)
    return [share] if share < QUIET else []


def create_in_time(fleet, count, trigger_after, **options):
    """So many schedules that are all there before their trigger first fires, in so many seconds; their ids.

    How long that takes depends on how busy this machine is. Those that were too late are left to themselves.
    """
    fleet.scheduler.nodes()  # which opens the store; that is done once, however many are created
    begun = CLOCK.monotonic()
    fleet.scheduler.create_many({"func": work.nothing, "trigger": IntervalTrigger(86_400)} for _ in range(PILOT))
    seconds = (CLOCK.monotonic() - begun) / SECOND * count / PILOT
    while True:
        seconds *= 1.5
        trigger = trigger_after(1 + seconds)
        one = {"func": work.record, "trigger": trigger, **options}
        ids = fleet.scheduler.create_many(one for _ in range(count))
        if CLOCK.micros() < trigger.next_micros(0):
            return ids


def all_completed(fleet):
    """All that was created, but for what is due tomorrow."""
    return fleet.sql(ACTIVE) == [(PILOT,)]


def test_thousands_of_occurrences_are_delivered_once_each(postgres_fleet, figure):
    fleet = postgres_fleet
    for _ in range(NODES):
        fleet.node(15.0)
    everything = {"misfire": {"type": "catch_up_all", "limit": 1_000}, "overlap": "allow"}
    ids = create_in_time(fleet, 500, lambda after: every(1, count=4 * SCALE, after=after), **everything)
    fleet.until(lambda: all_completed(fleet), 180, pause=0.5)
    verdict = check(fleet, ids)
    asked_for = set(ids)
    delivered = {line["occurrence"] for line in fleet.journal.of("end") if line["schedule"] in asked_for}
    shares = sorted(len(fleet.journal.of("end", pid=node.pid)) for node in fleet.processes)
    errors = fleet.journal.of("store_failed") + fleet.complaints()
    figure(f"thousands: {len(delivered)} delivered by {shares}, errors {len(errors)}, {verdict}")
    assert verdict.is_sound
    assert verdict.outcomes == {"completed": 2_000 * SCALE}
    assert len(delivered) == 2_000 * SCALE
    assert verdict.repeated == 0
    assert verdict.accepted == 1
    assert not errors
    assert fleet.sql(LEFT) == [(PILOT,)], "but for those that are due tomorrow"


def test_a_thundering_herd_needs_few_connections_and_leaves_quiet_nodes(postgres_fleet, figure):
    fleet = postgres_fleet
    herd = 1_000 * SCALE
    nodes = [fleet.node(15.0, store=f"{fleet.url}?pool={POOL}") for _ in range(NODES)]
    ids = create_in_time(fleet, herd, lambda after: OnceTrigger(from_micros(CLOCK.micros() + int(after * SECOND))))
    fleet.scheduler._runtime.store.close()  # so that all the connections that are left are those of the nodes
    with Sampler(lambda: fleet.sql(BACKENDS)[0][0]) as sampler:
        fleet.until(lambda: all_completed(fleet), 180, pause=0.5)
    [idle] = fleet.until(lambda: quiet_for_a_second(nodes), QUIET_WITHIN)
    verdict = check(fleet, ids)
    figure(
        f"thundering herd: {verdict}, p99 lateness {percentile(verdict.lateness, 99):.2f} s, connections at most "
        f"{max(sampler.seen)} of {NODES * (POOL + 1)}, afterwards {100 * idle:.1f} % of a processor per node"
    )
    assert verdict.is_sound
    assert verdict.outcomes == {"completed": herd}
    assert verdict.repeated == 0
    assert max(sampler.seen) <= NODES * (POOL + 1)
