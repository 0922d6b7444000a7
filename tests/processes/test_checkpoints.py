"""Several processes that write to one file and run checkpoints: nothing is lost, and no writer waits long."""

import sqlite3
from bisect import bisect_left
from contextlib import closing

import pytest

from tests.soak import SCALE

SECONDS = 1 if SCALE == 1 else 15 * SCALE
BAR_MS = 100
SMALL = 64 * 1024


def behind(commits, checkpoints):
    """How long commits waited for checkpoints of another process, in milliseconds."""
    checkpoints = sorted(checkpoints)
    longest = max((end - begin for begin, end in checkpoints), default=0)
    waits = []
    for began, ended in commits:
        for begin, end in checkpoints[bisect_left(checkpoints, [began - longest]) :]:
            if begin >= ended:
                break
            if end > began:
                waits.append((min(end, ended) - max(begin, began)) / 1_000)
    return waits


@pytest.mark.parametrize(
    ("log_bytes", "rows"),
    [
        pytest.param(SMALL, 1, id="a checkpoint after every few commits"),
        pytest.param(None, 40, id="as it is", marks=pytest.mark.soak),  # a second does not fill the log even once
    ],
)
def test_processes_that_write_and_checkpoint_lose_nothing(fleet, figure, log_bytes, rows):
    gate = fleet.folder / "gate"
    settings = {"log_bytes": log_bytes, "rows": rows, "gate": str(gate)}
    doomed, *writers = (fleet.start("writer", ready=None, seconds=one, **settings) for one in (600, SECONDS, SECONDS))
    fleet.until(lambda: len(fleet.journal.of("ready")) == 3)
    gate.touch()
    fleet.until(lambda: fleet.journal.of("written", pid=doomed.pid))
    fleet.kill(doomed)
    for writer in writers:
        assert writer.wait(60 + 2 * SECONDS) == 0, fleet.complaints()
    told = {f"{name}-{n}" for line in fleet.journal.of("written") for name in line["names"] for n in range(rows)}
    with closing(sqlite3.connect(fleet.path)) as connection:
        [sound] = connection.execute("PRAGMA integrity_check").fetchone()
        kept = {uid for (uid,) in connection.execute("SELECT uid FROM schedule_states")}
    lost = told - kept
    times = {line["pid"]: line for line in fleet.journal.of("timed")}
    waits = [0]
    for pid, line in times.items():
        others = [one for other in times if other != pid for one in times[other]["checkpoints"]]
        waits += behind(line["commits"], others)
    waits.sort(reverse=True)
    held = sorted((end - begin) / 1_000 for line in times.values() for begin, end in line["checkpoints"])
    figure(
        f"checkpoints: {len(told):,} rows by 3 processes, lost {len(lost)}, integrity {sound};"
        f" {len(held):,} checkpoints, longest {held[-1]:.1f} ms; longest wait of another's commit behind one"
        f" {waits[0]:.1f} ms (bar {BAR_MS}), 99th percentile {waits[len(waits) // 100]:.1f} ms"
    )
    assert sound == "ok"
    assert not lost
    if log_bytes:
        assert len(held) > len(writers), "not only when they closed the file"
        assert fleet.path.stat().st_size > SMALL
