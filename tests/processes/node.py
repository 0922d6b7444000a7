"""A node: `python -m tests.processes.node '{"store": "sqlite:////..", "lease": 1.0}'`. SIGTERM stops it gently.

With `"is_quiet": true` it writes down nothing of what it does: for schedules that fire all the time.

With `"clock": {"offset": 90, "gain": 0.05, "file": ".."}` it goes by a clock that is wrong; with `"is_stores": true`,
so does its store, whatever the time of a server is.
"""

import json
import signal
import sys
import threading
from contextlib import nullcontext

from noonmark import Scheduler
from noonmark.ports import events
from noonmark.stores.postgres import PostgresStore
from noonmark.stores.sqlite import SqliteStore
from tests.processes.clocks import WrongClock
from tests.processes.work import note


class JournalSink:
    """Writes down what the node was told by the store."""

    def __init__(self, *, freezes):
        """One that freezes stops its own process at its first claim, before it can start anything."""
        self._freezes = freezes
        self.store = None

    def report(self, happenings):
        for one in happenings:
            _note(one)
        if self._freezes and any(isinstance(one, events.Claimed) for one in happenings):
            self._freezes = False
            # The signal goes to this thread, so that it does not leave the lock before all of them stand still.
            with between_transactions(self.store):
                note("freezing")
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def between_transactions(store):
    """In the middle of a transaction, a process that stands still would keep the others from a file."""
    return store._connections._writing if isinstance(store, SqliteStore) else nullcontext()


def _note(one):
    match one:
        case events.Claimed(occurrence, found_in):
            note("claimed", occurrence=occurrence.id, fence=occurrence.fence, found_in=found_in)
        case events.Started(occurrence):
            note("started", occurrence=occurrence.id, fence=occurrence.fence, revision=occurrence.revision)
        case events.Settled(occurrence, phase, reason):
            note("settled", occurrence=occurrence.id, fence=occurrence.fence, phase=phase, reason=reason)
        case events.LeaseLost(occurrence_id, run):
            note("lost", occurrence=occurrence_id, had_ended=run is not None)
        case events.LeaderChanged(node, term, leader):
            note("leader", term=term, leads=leader == node)
        case events.StoreFailed(duty, error):
            note("store_failed", duty=duty, error=error)


def main():
    settings = json.loads(sys.argv[1])
    # Blocked before there is any thread, so that it waits for the call that takes it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    journal = JournalSink(freezes=settings.pop("freezes", False))
    grace = settings.pop("grace", 5)
    clock = settings.pop("clock", None)
    is_stores = clock is not None and clock.pop("is_stores", False)
    clock = None if clock is None else WrongClock(**clock)
    sinks = {} if settings.pop("is_quiet", False) else {"sink": journal}
    scheduler = Scheduler(settings.pop("store"), clock=clock, **sinks, **settings)
    journal.store = scheduler._store
    if is_stores and isinstance(journal.store, PostgresStore):
        journal.store._clock = clock.micros
    scheduler.start()
    note("ready")
    signal.sigwait({signal.SIGTERM})
    note("stopping")
    scheduler.stop(timeout=grace)
    note("stopped")


if __name__ == "__main__":
    main()
