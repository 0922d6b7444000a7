"""Commands given to a runner, for tests with real processes."""

import os
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from noonmark.core.ids import manual
from noonmark.core.settlement import Underway
from noonmark.core.targets import parse_target
from noonmark.ports.target import Assignment
from noonmark.stores.memory import MemoryStore
from noonmark.targets.commands import CommandRunner
from noonmark.targets.orphans import OrphanedPrograms
from noonmark.targets.programs import Programs
from noonmark.testing import factories
from tests.targets.assigned import SOON, now

CLAN = """
trap '' TERM
sh -c 'echo $$ > child; sleep 600 & echo $! > grandchild; wait' &
timeout 600 sh -c 'echo $$ > apart; sleep 600; sleep 600' &
while ! test -s grandchild || ! test -s apart; do sleep 0.01; done
echo $$ > parent; echo 1 > ready
wait; wait
"""
"""Three generations and one in a group of its own, as `timeout` makes it; all of them ignore SIGTERM."""

_numbers = count()


def ordered(*argv, key="one", source="embedded", payload=None, origin=None, fields=None, after=0, **declared):
    """One start of a program, now or a while after; `fields` are the others of its target."""
    begins = now() + after
    target = parse_target({"target_kind": "command", "argv": list(argv), **(fields or {})})
    made = replace(factories.schedule(target=target, **declared), source=source)
    # Programs are found by the ids of their runs, also those of other tests at the same time.
    origin = origin or manual(f"{key}-{os.getpid()}-{next(_numbers)}")
    one = factories.occurrence(made, origin, nominal=begins, attempt=1, payload=payload)
    return Assignment(one, made, begins=begins)


class Runner:
    """A runner, and what it reported."""

    def __init__(self, *allowed, **rules):
        self.runner = CommandRunner(Programs(allowed, **rules), OrphanedPrograms(MemoryStore(now)))
        self._reported, self._news = {}, threading.Condition()
        self.told = []
        """What it told of those that went on, and when."""
        self.runner.open(self._report, now)

    def _report(self, assignment, delivered):
        with self._news:
            assert assignment not in self._reported
            if isinstance(delivered, Underway):
                self.told.append((assignment, delivered, now()))
            else:
                self._reported[assignment] = delivered
            self._news.notify_all()

    def start(self, assignment):
        self.runner.deliver([assignment])
        return assignment

    def end_of(self, assignment):
        with self._news:
            assert self._news.wait_for(lambda: assignment in self._reported, SOON)
            return self._reported[assignment]

    def told_of(self, assignment):
        return [underway.result for one, underway, _ in self.told if one is assignment]

    def run(self, *argv, **options):
        return self.end_of(self.start(ordered(*argv, **options)))


@contextmanager
def running(*allowed, **rules):
    """A runner that is closed in the end."""
    made = Runner(*allowed, **rules)
    try:
        yield made
    finally:
        made.runner.close()


def is_alive(pid):
    """Whether a process is there; one that has ended and that nobody asked about is not."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def is_stopped(pid):
    """Whether a process is suspended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
