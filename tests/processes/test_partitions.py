"""Network partitions between a node and PostgreSQL: others take over, and it recovers."""

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.triggers import IntervalTrigger
from tests.processes import work
from tests.processes.checker import check
from tests.processes.fleet import CLOCK, PostgresFleet, every
from tests.servers.postgres import Database
from tests.servers.proxy import TO_CLIENT, TO_SERVER
from tests.servers.wires import wired
from tests.soak import SCALE

LEASE = 1.0
PARTED = 6 * SCALE
"""Seconds."""
BACK_WITHIN = 5.0
"""Seconds after the end of it, in which a node on a machine of its own is at work again."""
SLACK = 20.0
"""Seconds more, on a machine that is busy with other tests."""


@pytest.mark.parametrize(
    "way", ["both", *(pytest.param(way, marks=pytest.mark.soak) for way in (TO_SERVER, TO_CLIENT))]
)
def test_a_node_that_is_parted_from_the_store_is_replaced_and_comes_back(tmp_path, figure, way):
    with wired() as wire:
        wire.server.create("parted")
        fleet = PostgresFleet(tmp_path, Database(wire.server, "parted"))
        try:
            # What is cut off in the middle of a transaction keeps its locks for half of this.
            parted = fleet.node(LEASE, store=f"{wire.url('parted')}?timeout=4", command=wire.command)
            other = fleet.node(LEASE, store=f"{fleet.url}?timeout=4")
            ids = [
                fleet.scheduler.schedule(
                    work.record,
                    trigger=every(0.5, count=2 * PARTED + 4, offset=n * 53_003),
                    overlap="allow",
                    misfire={"type": "catch_up_all", "limit": 1_000},
                )
                for n in range(5)
            ]
            steady = fleet.scheduler.schedule(work.record, trigger=IntervalTrigger(0.1), overlap="allow")
            fleet.until(lambda: fleet.journal.of("begin", pid=parted.pid))
            began = CLOCK.micros()
            wire.pull() if way == "both" else wire.lose(way)
            fleet.until(lambda: CLOCK.micros() > began + PARTED * SECOND)
            healed = CLOCK.micros()
            wire.plug()
            fleet.until(lambda: answers(fleet.journal, parted, after=healed))
            fleet.scheduler.delete(steady)
            fleet.completed(ids)
            assert other.poll() is None
            judge(fleet, ids, parted, way=f"{wire.kind}, {way}", began=began, healed=healed, tell=figure)
        finally:
            fleet.close()


def judge(fleet, ids, parted, *, way, began, healed, tell):
    verdict = check(fleet, ids)
    begins = [line["at"] for line in fleet.journal.of("begin", pid=parted.pid)]
    # What it was told before may begin until its lease has run out.
    alone = [at for at in begins if began + LEASE * SECOND < at < healed]
    elsewhere = [line for line in fleet.journal.of("begin") if line["pid"] != parted.pid]
    taken_over = [line for line in elsewhere if began + LEASE * SECOND < line["at"] < healed]
    back = (answers(fleet.journal, parted, after=healed)[0] - healed) / SECOND
    stale = stale_effects(fleet.journal)
    tell(
        f"parted by {way}, {PARTED} s: {verdict}, begun there meanwhile {len(alone)}, elsewhere {len(taken_over)}, "
        f"begun with a fence that was no longer valid {len(stale)}, back after {back:.1f} s"
    )
    assert verdict.is_sound
    assert verdict.outcomes == {"completed": verdict.fires}
    assert verdict.accepted == 1
    assert not alone
    assert taken_over
    assert not stale
    assert back < BACK_WITHIN + SLACK


def answers(journal, process, *, after):
    """When the store has told a node something, from a time on: of claims, starts and ends, or that they were lost."""
    lines = [line for what in ("claimed", "started", "settled", "lost") for line in journal.of(what, pid=process.pid)]
    return sorted(line["at"] for line in lines if line["at"] > after)


def stale_effects(journal):
    """Runs that began in one process after another one had been told that it holds their occurrence."""
    claims = {}
    for line in journal.of("claimed"):
        claims.setdefault(line["occurrence"], []).append(line)
    collected = []
    for begun in journal.of("begin"):
        held = [one for one in claims.get(begun["occurrence"], ()) if one["at"] < begun["at"]]
        if held and max(held, key=lambda one: one["fence"])["pid"] != begun["pid"]:
            collected.append(begun)
    return collected
