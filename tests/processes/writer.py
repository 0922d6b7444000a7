"""A process that commits to one file as fast as it can, and runs a checkpoint when the log is too large.

It notes what was acknowledged, how long each commit took, and how long each checkpoint kept the others waiting.
"""

import json
import os
import sys
import threading
from pathlib import Path

from noonmark.core.instants import SECOND
from noonmark.core.planner import first_plan
from noonmark.stores.sqlite import SqliteStore, checkpoint, connections
from noonmark.testing import factories
from tests.processes.work import CLOCK, note


def main():
    settings = json.loads(sys.argv[1])
    if settings["log_bytes"]:
        checkpoint.LOG_BYTES = connections.LOG_BYTES = settings["log_bytes"]
    checkpoints, commits, names = [], [], []
    timed(checkpoints)
    store = SqliteStore(settings["store"].removeprefix("sqlite:///"), CLOCK.micros)
    store.open()
    note("ready")
    while not Path(settings["gate"]).exists():
        threading.Event().wait(0.01)
    end = CLOCK.monotonic() + int(settings["seconds"] * SECOND)
    while (began := CLOCK.monotonic()) < end:
        prefix = f"{os.getpid()}-{len(commits)}"
        plans = [first_plan(factories.schedule(f"{prefix}-{n}"), lookahead=SECOND) for n in range(settings["rows"])]
        began = CLOCK.monotonic()
        assert all(store.create(plans))
        commits.append((began, CLOCK.monotonic()))
        names.append(prefix)
        if len(names) >= 10:
            note("written", names=names)
            names = []
    note("written", names=names)
    store.close()
    note("timed", commits=commits, checkpoints=checkpoints)


def timed(checkpoints):
    """From the moment it has the lock until others may have it."""
    run, opened = checkpoint.Checkpoints.run, checkpoint.Checkpoints._open

    def open_timed(self):
        checkpoints.append([CLOCK.monotonic(), None])
        return opened(self)

    def run_timed(self, writer):
        before, answer = len(checkpoints), run(self, writer)
        for one in checkpoints[before:]:
            one[1] = CLOCK.monotonic()
        return answer

    checkpoint.Checkpoints.run, checkpoint.Checkpoints._open = run_timed, open_timed


if __name__ == "__main__":
    main()
