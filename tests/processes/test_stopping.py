"""A node that is asked to stop under load: it finishes what it can, hands back the rest, and ends in time."""

import signal

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.run import Outcome
from tests.processes import work
from tests.processes.checker import check
from tests.processes.fleet import CLOCK, Chance, every
from tests.soak import SCALE

GRACE = 4
"""Seconds; so many that what takes a moment ends in it on a busy machine, too."""
MARGIN = 20
"""Seconds beyond the grace until a process must be gone, on a busy machine."""
on_each_store = pytest.mark.parametrize(
    "fleet", [pytest.param("sqlite", marks=pytest.mark.soak), "postgres"], indirect=True
)


@on_each_store
def test_sigterm_under_load_cuts_no_run_and_loses_none(fleet, figure):
    stops = 1 if SCALE == 1 else 4 * SCALE  # each takes all of the grace
    nodes = [fleet.node(15.0, grace=GRACE) for _ in range(2)]
    ids = [
        fleet.scheduler.schedule(
            work.record,
            trigger=every(0.4, count=10 + 10 * stops, offset=n * 33_333),
            args=[0.2],
            overlap="allow",
            misfire={"type": "catch_up_all", "limit": 1_000},
        )
        for n in range(6)
    ]
    long = fleet.scheduler.schedule(work.obey, args=[60])
    fleet.until(lambda: fleet.journal.begins(long))
    chance, slowest, stopped = Chance("stops"), 0.0, set()
    for _ in range(stops):
        chance.pause(0.4, 0.8)
        [node] = [one for one in nodes if one.pid == fleet.journal.begins(long)[-1]["pid"]]
        nodes[nodes.index(node)] = fleet.node(15.0, grace=GRACE)
        begun = CLOCK.monotonic()
        node.send_signal(signal.SIGTERM)
        assert node.wait(GRACE + MARGIN) == 0, fleet.complaints()
        slowest = max(slowest, (CLOCK.monotonic() - begun) / SECOND)
        stopped.add(node.pid)
        fleet.until(lambda gone=node.pid: fleet.journal.begins(long)[-1]["pid"] != gone)
    fleet.completed(ids)
    verdict = check(fleet, ids)
    ended = {line["occurrence"] for line in fleet.journal.of("end")}
    cut = [
        line
        for line in fleet.journal.of("begin")
        if line["pid"] in stopped and line["occurrence"] not in ended and line["schedule"] != long
    ]
    handed_back = [run.outcome for run in fleet.scheduler.runs(long) if run.outcome is not None]
    occurrence = fleet.journal.begins(long)[0]["occurrence"]
    tellers = [line["pid"] for line in fleet.journal.of("settled", occurrence=occurrence, phase="pending")]
    figure(
        f"SIGTERM: {stops} stops, slowest {slowest:.1f} s with a grace of {GRACE} s, cut {len(cut)}, "
        f"handed back {len(handed_back)}, {verdict}"
    )
    assert verdict.is_sound
    assert verdict.outcomes == {"completed": verdict.fires}
    assert verdict.repeated == 0
    assert not cut
    assert handed_back == [Outcome.LEASE_LOST] * stops
    assert set(tellers) == stopped, "nobody had to wait for the end of a lease"
