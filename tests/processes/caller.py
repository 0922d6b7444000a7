"""A process that calls a scheduler: `python -m tests.processes.caller '{"store": "sqlite:////..", "does": "create"}'`.

What it was told is written to the journal after the call returned: an id is acknowledged, an error was shown.
"""

import json
import os
import resource
import signal
import sys
import threading
from pathlib import Path

from noonmark import Scheduler
from noonmark.clocks import SystemClock
from noonmark.core.errors import NoonmarkError, StoreUnavailable
from noonmark.core.instants import SECOND
from noonmark.core.triggers import IntervalTrigger
from tests.processes import work
from tests.processes.work import note

HOUR = IntervalTrigger(3_600)


def create(store, count):
    """Create so many schedules, one after another."""
    scheduler = Scheduler(store)
    for n in range(count):
        note("created", id=scheduler.schedule(work.nothing, name=f"{os.getpid()}-{n}", trigger=HOUR))


def insist(store):
    """Create schedules without end, also while the store refuses: what was acknowledged must be there for good."""
    scheduler = Scheduler(store)
    while True:
        try:
            note("created", id=scheduler.schedule(work.nothing, trigger=HOUR))
        except StoreUnavailable as error:
            note("refused", error=str(error))
            threading.Event().wait(0.05)


def create_and_die(store):
    """Be killed as soon as the id is there."""
    job = Scheduler(store).schedule(work.nothing, trigger=HOUR)
    note("created", id=job)
    os.kill(os.getpid(), signal.SIGKILL)


def declare_together(store, rounds):
    """Open one new file after another and declare one name, at the moment at which everybody does."""
    for n in range(rounds):
        note("ready", round=n)
        path = Path(store.removeprefix("sqlite:///")).with_name(f"{n}.db")
        while not path.with_suffix(".gate").exists():
            threading.Event().wait(0.001)
        note("created", round=n, id=Scheduler(f"sqlite:///{path}").schedule(work.nothing, name="same", trigger=HOUR))


def contend(store, seconds, number):
    """Create, run and edit as fast as it goes, beside a node in the same process; no two edits are alike."""
    clock = SystemClock()
    with Scheduler(store) as scheduler:
        note("ready")
        end = clock.monotonic() + int(seconds * SECOND)
        n = 0
        while clock.monotonic() < end:
            n += 1
            try:
                note("created", id=scheduler.schedule(work.record))
                scheduler.schedule(work.nothing, name="shared", trigger=HOUR, timeout=100 * n + number)
                note("edited")
            except NoonmarkError as error:
                note("refused", error=repr(error))
            except Exception as error:  # noqa: BLE001 - whatever a caller is shown counts
                note("shown", error=repr(error))


def fill(store, room):
    """Create until the file may not grow any more, go on trying, then have the limit lifted."""
    scheduler = Scheduler(store)
    scheduler.start()
    steady = scheduler.schedule(work.record, trigger=IntervalTrigger(0.1), misfire="catch_up_all", overlap="queue")
    note("steady", id=steady)
    _create(scheduler)
    path = Path(store.removeprefix("sqlite:///"))
    size = max(path.with_name(path.name + suffix).stat().st_size for suffix in ("", "-wal"))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, hard))
    refused = 0
    while refused < 20:
        refused += not _create(scheduler)
        threading.Event().wait(0.05)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    note("lifted")
    lifted = SystemClock().micros()
    for _ in range(5):
        assert _create(scheduler), "there is room again"
    note("ran", result=scheduler.run_now(scheduler.schedule(work.nothing, trigger=HOUR)))
    while not any(one.started > lifted for one in scheduler.runs(steady, limit=1)):
        threading.Event().wait(0.05)
    scheduler.delete(steady)
    scheduler.stop()
    scheduler._runtime.store.close()


def _create(scheduler):
    """Whether it was created; only one kind of refusal is in order."""
    try:
        note("created", id=scheduler.schedule(work.nothing, trigger=HOUR, labels={"filler": "x" * 250}))
    except StoreUnavailable as error:
        note("refused", error=str(error))
        return False
    return True


def main():
    settings = json.loads(sys.argv[1])
    does = {one.__name__: one for one in (create, insist, create_and_die, declare_together, contend, fill)}
    does[settings.pop("does")](**settings)


if __name__ == "__main__":
    main()
