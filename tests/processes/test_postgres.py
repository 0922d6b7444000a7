"""Nodes on PostgreSQL: whatever the line between them does, and whatever their clocks say, every fire ends once."""

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.triggers import IntervalTrigger
from tests.processes import work
from tests.processes.checker import check
from tests.processes.fleet import CLOCK, SCALE, PostgresFleet, every
from tests.servers.postgres import Database
from tests.servers.proxy import TO_CLIENT, TO_SERVER
from tests.servers.wires import wired

ALL = {"type": "catch_up_all", "limit": 1_000}
LEASE = 2.0


@pytest.fixture
def fleet(tmp_path, database):
    fleet = PostgresFleet(tmp_path, database)
    fleet.may_complain = True  # nodes tell that they have to try again
    yield fleet
    fleet.close()


def declare(fleet, *, count=10, schedules=20, seconds=0.5):
    return [
        fleet.scheduler.schedule(
            work.record,
            trigger=every(seconds, count=count * SCALE, after=2, offset=n * 23_003),
            overlap="allow",
            misfire=ALL,
        )
        for n in range(schedules)
    ]


@pytest.mark.parametrize("way", ["both", TO_SERVER, TO_CLIENT])
def test_a_node_that_is_parted_from_the_store_is_replaced_and_comes_back(tmp_path, figure, way):
    with wired() as wire:
        wire.server.create("parted")
        fleet = PostgresFleet(tmp_path, Database(wire.server, "parted"))
        try:
            parted = fleet.node(LEASE, store=wire.url("parted"), command=wire.command)
            other = fleet.node(LEASE)
            ids = declare(fleet, count=24)
            steady = fleet.scheduler.schedule(work.record, trigger=IntervalTrigger(0.1), overlap="allow")
            fleet.until(lambda: fleet.journal.of("begin", pid=parted.pid))
            wire.pull() if way == "both" else wire.lose(way)
            began = CLOCK.micros()
            fleet.until(lambda: CLOCK.micros() > began + 5 * SECOND)
            healed = CLOCK.micros()
            wire.plug()
            fleet.until(lambda: fleet.journal.of("begin", pid=parted.pid)[-1]["at"] > healed)
            fleet.scheduler.delete(steady)
            fleet.completed(ids)
            verdict = check(fleet, ids)
            begins = [line["at"] for line in fleet.journal.of("begin", pid=parted.pid)]
            # What it was told before may begin until its lease has run out.
            alone = [at for at in begins if began + LEASE * SECOND < at < healed]
            back = min(at for at in begins if at > healed) - healed
            figure(
                f"parted by {wire.kind}, {way}: {verdict}, begun there meanwhile {len(alone)}, "
                f"back after {back / SECOND:.1f} s"
            )
            assert other.poll() is None
            assert verdict.is_sound
            assert verdict.outcomes == {"completed": verdict.fires}
            assert not alone
        finally:
            fleet.close()


@pytest.mark.parametrize("clock", [{"offset": 90}, {"offset": -90}, {"gain": 0.05}, {"gain": -0.05}], ids=str)
def test_a_node_whose_clock_is_wrong_begins_nothing_early_and_steals_nothing(fleet, figure, clock):
    wrong = fleet.node(15.0, clock=clock)
    fleet.node(15.0)
    ids = declare(fleet)
    fleet.completed(ids)
    verdict = check(fleet, ids)
    figure(f"wrong clock, {clock}: {verdict}")
    assert verdict.is_sound
    assert verdict.outcomes == {"completed": verdict.fires}
    assert verdict.repeated == 0
    assert not fleet.journal.of("lost")
    assert fleet.journal.of("begin", pid=wrong.pid)
