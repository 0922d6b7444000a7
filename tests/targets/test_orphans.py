"""Processes that a node has left behind: whose they are, and which of them are ended."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from noonmark.core.run import Outcome
from noonmark.core.settlement import ENDS, run_id
from noonmark.stores.memory import MemoryStore
from noonmark.targets.keeper import RUN_MARK
from noonmark.targets.node_marks import NODE_MARK, drop_mark, is_gone, make_mark
from noonmark.targets.orphans import LOOK_EVERY, OrphanedPrograms
from noonmark.testing.conformance.bench import LEASE, Bench, HandClock
from tests.embedded.waiting import eventually
from tests.targets.assigned import now
from tests.targets.ordered import is_alive


@pytest.fixture
def mark():
    made = make_mark()
    yield made
    drop_mark(made)


@pytest.fixture
def left():
    """Makes processes that bear marks; none is there in the end."""
    made = []

    def make(node, run):
        environment = {**os.environ, NODE_MARK: node, RUN_MARK: run}
        made.append(subprocess.Popen(["sleep", "600"], env=environment))
        return made[-1].pid

    yield make
    for one in made:
        one.kill()
        one.wait()


def of_dead_process():
    """The mark of a process that has ended, of which somebody else may have the number by now."""
    script = "from noonmark.targets.node_marks import make_mark; print(make_mark())"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_a_mark_stands_for_its_holder_as_long_as_that_lives(mark):
    other = make_mark()
    assert (mark != other, is_gone(mark), is_gone(other)) == (True, False, False)
    drop_mark(other)
    assert (is_gone(mark), is_gone(other)) == (False, True)
    assert is_gone(of_dead_process())


def test_who_has_the_number_of_another_is_not_taken_for_it(mark):
    namespace, pid, began, number = mark.split("-")
    assert is_gone(f"{namespace}-{pid}-{int(began) - 1}-{number}")


def test_a_process_that_has_ended_and_that_nobody_asked_about_is_gone():
    script = "from noonmark.targets.node_marks import make_mark; print(make_mark(), flush=True)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as node:
        mark = node.stdout.readline().strip()
        eventually(lambda: is_gone(mark))
        assert node.returncode is None


@pytest.mark.parametrize("mark", ["", "-", "1-2-3-4", "x", "1--3-0", "0-1-1-0"])
def test_of_who_cannot_be_seen_from_here_nobody_says_that_it_is_gone(mark):
    assert not is_gone(mark)


@pytest.fixture
def bench():
    clock = HandClock()
    store = MemoryStore(clock)
    store.open()
    return Bench(store, clock)


@pytest.fixture
def begun(bench):
    """A run that has begun; the id is its own, since processes are found by it on the whole machine."""
    of = bench.create_quiet()
    return bench.run(of, f"{os.getpid()}-{now()}")


def ended(bench, one, outcome):
    """Let a run come to its end."""
    phase, reason = ENDS[outcome]
    settlement = bench.settlement(one, phase=phase, reason=reason)
    settlement = replace(settlement, run=replace(settlement.run, outcome=outcome))
    assert bench.store.settle([settlement]) == [True]


def swept(bench, pid):
    """Look for what is left; whether a process is there afterwards."""
    OrphanedPrograms(bench.store).end(now)
    return is_alive(pid)


@pytest.mark.parametrize("outcome", [None, Outcome.TIMED_OUT, Outcome.CANCELLED])
def test_what_did_not_come_to_an_end_of_its_own_is_ended(bench, begun, left, outcome):
    pid = left(of_dead_process(), run_id(begun))
    if outcome is not None:
        ended(bench, begun, outcome)
    assert not swept(bench, pid)


def test_so_is_what_another_node_has_begun_again_since(bench, begun, left):
    pid = left(of_dead_process(), run_id(begun))
    bench.advance(3 * LEASE)
    again = bench.start(bench.claim_one("node-b"))
    assert again.fence > begun.fence
    assert not swept(bench, pid)


@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.FAILED])
def test_what_a_program_left_that_came_to_its_end_is_left_alone(bench, begun, left, outcome):
    pid = left(of_dead_process(), run_id(begun))
    ended(bench, begun, outcome)
    assert swept(bench, pid)


def test_so_is_what_is_of_another_store(bench, left):
    assert swept(bench, left(of_dead_process(), "occ_0-1"))


def test_so_is_what_a_node_that_lives_has_started(bench, begun, left, mark):
    assert swept(bench, left(mark, run_id(begun)))


def test_so_is_what_is_of_the_run_that_this_very_node_is_a_part_of(bench, begun, left, monkeypatch):
    monkeypatch.setenv(RUN_MARK, run_id(begun))
    assert swept(bench, left(of_dead_process(), run_id(begun)))


def test_nobody_looks_again_at_once_unless_there_is_a_reason(bench, begun, left):
    orphans = OrphanedPrograms(bench.store)
    orphans.end(lambda: 0)
    pid = left(of_dead_process(), run_id(begun))
    orphans.end(lambda: LOOK_EVERY - 1)
    assert is_alive(pid)
    orphans.end(lambda: LOOK_EVERY - 1, at_once=True)
    assert not is_alive(pid)
    pid = left(of_dead_process(), run_id(begun))
    orphans.end(lambda: 2 * LOOK_EVERY)
    assert not is_alive(pid)
