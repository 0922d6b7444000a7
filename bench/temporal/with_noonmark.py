"""Noonmark: occurrences that are due at one instant, carried out by Temporal workflows."""

from __future__ import annotations

import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

from noonmark import Allow, OnceTrigger
from noonmark.core.lifecycle import FINAL, Phase
from noonmark.targets.temporal.settings import parse_engine
from tests.targets.temporal.rig import FUNCTION, Rig, function

AHEAD = timedelta(seconds=2)
LOOK = 0.05


def noonmark_engine(address: str, count: int) -> dict[str, float]:
    """From the instant at which they are due until the last end is written."""
    queue = f"noonmark-{time.monotonic_ns()}"
    server = SimpleNamespace(url=lambda **_: f"temporal://{address}/default?task_queue={queue}")
    assert parse_engine(server.url()).task_queue == queue
    with tempfile.TemporaryDirectory(prefix="noonmark-engine-") as folder:
        rig = Rig(server, folder, routes=(FUNCTION,))
        with rig.running():
            rig.ended(rig.run(function("add")))  # connections are open then, and code is loaded
            due = datetime.now(UTC) + AHEAD
            jobs = [
                rig.scheduler.schedule(function("add"), f"job {number}", OnceTrigger(due), overlap=Allow())
                for number in range(count)
            ]
            ids = [rig.scheduler.occurrences(job)[0].id for job in jobs]
            while due > datetime.now(UTC):
                threading.Event().wait(LOOK)
            begun = time.perf_counter()
            waiting = set(ids)
            while waiting:
                threading.Event().wait(LOOK)
                waiting = {one for one in waiting if rig.occurrence(one).phase not in FINAL}
            seconds = time.perf_counter() - begun
            assert all(rig.occurrence(one).phase is Phase.COMPLETED for one in ids)
    return {"rate": count / seconds}
