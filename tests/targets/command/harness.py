"""A command runner for tests with real processes."""

import os
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from noonmark.core.ids import manual
from noonmark.core.settlement import RunInProgress
from noonmark.core.targets import parse_target
from noonmark.ports.target import Assignment
from noonmark.stores.memory import MemoryStore
from noonmark.targets.command.orphans import OrphanReaper
from noonmark.targets.command.process import FOREVER
from noonmark.targets.command.programs import ProgramPolicy
from noonmark.targets.command.runner import CommandRunner
from noonmark.testing import factories
from tests.embedded.waiting import eventually
from tests.targets.assignments import SOON, now

PROCESS_TREE = """
trap '' TERM
sh -c 'echo $$ > child; sleep 600 & echo $! > grandchild; wait' &
timeout 600 sh -c 'echo $$ > apart; sleep 600; sleep 600' &
while ! test -s grandchild || ! test -s apart; do sleep 0.01; done
echo $$ > parent; echo 1 > ready
wait; wait
"""
"""Three generations, and one process in its own group, as `timeout` makes it; all ignore SIGTERM."""

_numbers = count()


def command_assignment(
    *argv, key="one", source="embedded", payload=None, origin=None, fields=None, after=0, **declared
):
    """Make the assignment of a command, due after a delay; `fields` are further fields of its target."""
    begins = now() + after
    target = parse_target({"target_kind": "command", "argv": list(argv), **(fields or {})})
    schedule = replace(factories.schedule(target=target, **declared), source=source)
    # Processes are found by run id, also those of other tests at the same time.
    origin = origin or manual(f"{key}-{os.getpid()}-{next(_numbers)}")
    occurrence = factories.occurrence(schedule, origin, nominal=begins, attempt=1, payload=payload)
    return Assignment(occurrence, schedule, begins=begins)


class CommandHarness:
    """A command runner, and its reports."""

    def __init__(self, *allowed, secrets=None, **rules):
        self.runner = CommandRunner(ProgramPolicy(allowed, **rules), OrphanReaper(MemoryStore(now)), secrets)
        self._reported, self._news = {}, threading.Condition()
        self.told = []
        """Progress reports, with their times."""
        self.runner.open(self._report, now)

    def _report(self, assignment, delivered):
        with self._news:
            assert assignment not in self._reported
            if isinstance(delivered, RunInProgress):
                self.told.append((assignment, delivered, now()))
            else:
                self._reported[assignment] = delivered
            self._news.notify_all()

    def start(self, assignment):
        self.runner.deliver([assignment])
        return assignment

    def set_back_start(self, assignment, micros):
        """Let a command have begun earlier, once the runner has noted its start; and let somebody look."""
        [process] = eventually(lambda: [one for one in self.runner._running if one._assignment is assignment])
        eventually(lambda: process._report_at < FOREVER)
        assignment.started -= micros
        assignment.signal.set()

    def end_of(self, assignment):
        with self._news:
            assert self._news.wait_for(lambda: assignment in self._reported, SOON)
            return self._reported[assignment]

    def told_of(self, assignment):
        return [underway.result for one, underway, _ in self.told if one is assignment]

    def run(self, *argv, **options):
        return self.end_of(self.start(command_assignment(*argv, **options)))


@contextmanager
def command_runner(*allowed, **rules):
    """A command runner that is closed at the end."""
    made = CommandHarness(*allowed, **rules)
    try:
        yield made
    finally:
        made.runner.close()


def is_alive(pid):
    """Whether a process runs; a zombie does not."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def is_stopped(pid):
    """Whether a process is suspended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
