"""Commands whose node, supervisor or both are killed: their whole process tree ends before they start again."""

import os
import signal
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.targets.command import supervisor
from tests.processes import process_tree
from tests.processes.fleet import every
from tests.soak import SCALE
from tests.targets.command.harness import is_alive, is_stopped

ALWAYS = {"max_attempts": 100, "backoff_seconds": 0.01}
LEASE = 1.0


class Recorder:
    """What the trees of one command write."""

    def __init__(self, folder):
        self.path = folder / "beats"
        self.argv = [sys.executable, "-I", "-S", process_tree.__file__, str(self.path)]

    def trees(self):
        """The runs in the order in which they began: from when to when each was there, and its processes by role."""
        collected = {}
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        for run, role, pid, at in (line.split() for line in lines):
            began, _, roles = collected.get(run, (int(at), 0, {}))
            collected[run] = began, int(at), {**roles, role: int(pid)}
        return [(run, *collected[run]) for run in sorted(collected, key=lambda one: collected[one][0])]

    def whole(self, fleet, count):
        """Wait until so many trees have been there, the last of them as a whole; gives the processes of that one."""

        def last():
            trees = self.trees()
            return len(trees) >= count and len(trees[-1][3]) == len(process_tree.ROLES) and trees[-1][3]

        return list(fleet.until(last).values())

    def overlaps(self):
        """How often a tree was there together with the one before."""
        trees = self.trees()
        return sum(older[2] >= newer[1] for older, newer in pairwise(trees))


@pytest.fixture
def recorder(tmp_path):
    made = Recorder(tmp_path)
    yield made
    for run, _, _, roles in made.trees():
        for pid in roles.values():
            supervisor.send_signal(pid, f"{supervisor.RUN_VARIABLE}={run}".encode(), signal.SIGKILL)


def supervisor_of(node):
    """The process that starts the commands of a node."""
    for pid in supervisor.list_processes():
        try:
            parent = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
            if parent == node.pid and b"supervisor.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        except (FileNotFoundError, ProcessLookupError):
            continue
    raise AssertionError("the node has no supervisor")


def kill(fleet, node, *, both):
    """The supervisor first: so it can do nothing when its node is gone."""
    if both:
        os.kill(supervisor_of(node), signal.SIGKILL)
    fleet.kill(node)


def test_no_two_trees_of_one_command_are_there_at_once_after_any_kill(fleet, figure, recorder):
    node, count, kills = fleet.node(LEASE), 0, ("both", "supervisor", "node")
    for _ in range(SCALE):  # what was lost too often is not begun again
        job = fleet.scheduler.schedule_command(recorder.argv, overlap="skip", retries=ALWAYS)
        count += 1
        for what in kills if SCALE > 1 else kills[:2]:
            pids = recorder.whole(fleet, count)
            if what == "supervisor":
                os.kill(supervisor_of(node), signal.SIGKILL)
            else:
                kill(fleet, node, both=what == "both")
                node = fleet.node(LEASE)
            count += 1
            recorder.whole(fleet, count)
            assert not any(map(is_alive, pids)), what
        pids = recorder.whole(fleet, count)
        fleet.scheduler.cancel(job)
        fleet.until(lambda pids=pids: not any(map(is_alive, pids)))
    figure(f"trees: {count - SCALE} kills of node, supervisor or both, two at once {recorder.overlaps()} times")
    assert len(recorder.trees()) == count
    assert recorder.overlaps() == 0


def test_another_node_ends_what_is_left_before_the_next_fire_begins(fleet, figure, recorder):
    """Under at most once too, where what was lost is not begun again; and though it was suspended."""
    first = fleet.node(LEASE)
    job = fleet.scheduler.schedule_command(
        recorder.argv,
        trigger=every(3, count=1_000, after=0.5),
        overlap="skip",
        delivery="at_most_once",
        window={"duration_seconds": 1, "end_action": "pause"},
    )
    pids = recorder.whole(fleet, 1)
    other = fleet.node(LEASE)
    fleet.until(lambda: all(map(is_stopped, pids)))
    kill(fleet, first, both=True)
    recorder.whole(fleet, 2)
    assert not any(map(is_alive, pids))
    [lost] = [one for one in fleet.scheduler.occurrences(job) if one.id == recorder.trees()[0][0].rpartition("-")[0]]
    figure(f"trees: the next one began elsewhere, two at once {recorder.overlaps()} times")
    assert (lost.phase, lost.reason) == (Phase.DELIVERY_FAILED, Reason.OUTCOME_UNKNOWN)
    assert recorder.overlaps() == 0
    # It has nobody but its supervisor to end it now.
    pids = recorder.whole(fleet, 2)
    fleet.kill(other)
    fleet.until(lambda: not any(map(is_alive, pids)))


def test_a_node_that_stops_hands_a_program_back_when_all_of_it_has_ended(fleet, figure, recorder):
    node = fleet.node(LEASE, grace=0.1)
    job = fleet.scheduler.schedule_command(recorder.argv, overlap="skip")
    recorder.whole(fleet, 1)
    fleet.node(LEASE)
    node.send_signal(signal.SIGTERM)
    recorder.whole(fleet, 2)
    figure(f"trees: handed back by a node that stopped, two at once {recorder.overlaps()} times")
    assert recorder.overlaps() == 0
    [occurrence] = fleet.scheduler.occurrences(job)
    assert (occurrence.attempt, occurrence.losses) == (1, 0)
    assert node.wait(30) == 0


@pytest.mark.soak  # what is ended and what is left alone is tried by itself as well, with the leftovers
def test_what_a_program_has_left_on_purpose_is_left_alone(fleet, tmp_path):
    node = fleet.node(LEASE)
    script = "setsid sh -c 'echo $$ > left; exec sleep 600' & while ! test -s left; do sleep 0.01; done"
    job = fleet.scheduler.schedule_command(["sh", "-c", script], cwd=str(tmp_path))
    fleet.completed([job])
    left = int((tmp_path / "left").read_text())
    try:
        kill(fleet, node, both=True)
        fleet.node(LEASE)
        again = fleet.scheduler.schedule_command(["true"])
        fleet.completed([again])
        assert is_alive(left)
    finally:
        os.kill(left, signal.SIGKILL)
