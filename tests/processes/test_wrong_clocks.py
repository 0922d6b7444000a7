"""Nodes on PostgreSQL with wrong clocks: only the server's time counts."""

from noonmark.core.instants import DAY_SECONDS, SECOND, from_micros
from noonmark.core.triggers import OnceTrigger
from tests.processes import work
from tests.processes.checker import check
from tests.processes.clocks import set_clock
from tests.processes.fleet import CLOCK, every
from tests.soak import SCALE

HOUR = 3_600
WRONG = ({"offset": 90}, {"offset": -90}, {"gain": 0.05}, {"gain": -0.05}, None)
ALL = {"type": "catch_up_all", "limit": 1_000}


def declare(fleet, *, count, schedules, after=2):
    return [
        fleet.scheduler.schedule(
            work.record,
            trigger=every(0.5, count=count * SCALE, after=after, offset=n * 23_003),
            overlap="allow",
            misfire=ALL,
        )
        for n in range(schedules)
    ]


def test_nodes_whose_clocks_are_wrong_begin_nothing_early_and_steal_nothing(postgres_fleet, figure):
    """The journal goes by the clock of this machine, which is the server's."""
    fleet = postgres_fleet
    nodes = [fleet.node(15.0, clock=clock) for clock in WRONG]
    ids = declare(fleet, count=8, schedules=10)
    fleet.completed(ids)
    verdict = check(fleet, ids)
    stolen = fleet.journal.of("lost") + fleet.journal.of("claimed", found_in="claimed")
    stolen += fleet.journal.of("claimed", found_in="dispatching")
    begun = {str(clock): len(fleet.journal.of("begin", pid=node.pid)) for clock, node in zip(WRONG, nodes, strict=True)}
    figure(f"wrong clocks, {begun}: {verdict}, stolen {len(stolen)}")
    assert verdict.is_sound
    assert verdict.outcomes == {"completed": verdict.fires}
    assert verdict.repeated == 0
    assert not stolen
    # A node whose clock is slow may lose every race for a claim.
    assert sum(map(bool, begun.values())) >= 3


def test_clocks_that_are_set_in_flight_repeat_nothing_and_skip_nothing(postgres_fleet, figure, tmp_path):
    fleet = postgres_fleet
    files = [tmp_path / f"clock-{n}" for n in range(2)]
    for file in files:
        fleet.node(clock={"file": str(file)})
    fleet.node()
    ids = declare(fleet, count=11, schedules=6)
    far = fleet.scheduler.schedule(work.record, trigger=OnceTrigger(from_micros(CLOCK.micros() + HOUR * SECOND)))
    jumps = (-HOUR, HOUR, DAY_SECONDS, 0)
    for n, seconds in enumerate(jumps, 1):
        fleet.until(lambda n=n: len(fleet.journal.of("settled")) > n * 12 * SCALE)
        for sign, file in zip((1, -1), files, strict=True):
            set_clock(file, sign * seconds)
    fleet.completed(ids)
    verdict = check(fleet, ids)
    [(rows,)] = fleet.sql("SELECT count(*) FROM noonmark.occurrences")
    figure(f"clocks set by {jumps} s and back: {verdict}, {rows} rows")
    assert verdict.is_sound
    assert verdict.outcomes == {"completed": verdict.fires}
    assert verdict.repeated == 0
    assert rows == verdict.fires + 1, "nothing was planned beyond what is named"
    assert not fleet.journal.begins(far)
