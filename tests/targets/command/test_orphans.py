"""Orphaned processes: whose they are, and which of them are killed."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from noonmark.core.run import Outcome
from noonmark.core.settlement import ENDS, run_id
from noonmark.stores.memory import MemoryStore
from noonmark.targets.command.orphans import (
    NODE_VARIABLE,
    SCAN_INTERVAL,
    OrphanReaper,
    is_node_gone,
    register_node,
    unregister_node,
)
from noonmark.targets.command.supervisor import RUN_VARIABLE, has_variable
from noonmark.testing.conformance.bench import LEASE, Bench, HandClock
from tests.embedded.waiting import eventually
from tests.targets.assignments import now
from tests.targets.command.harness import is_alive


@pytest.fixture
def mark():
    made = register_node()
    yield made
    unregister_node(made)


@pytest.fixture
def left():
    """Start processes with the variables of a run; all are killed at the end."""
    collected = []

    def make(node, run):
        environment = {**os.environ, NODE_VARIABLE: node, RUN_VARIABLE: run}
        collected.append(subprocess.Popen(["sleep", "600"], env=environment))
        # Right after exec, the environment of a process is not readable for a moment.
        eventually(lambda: has_variable(collected[-1].pid, f"{RUN_VARIABLE}={run}".encode()))
        return collected[-1].pid

    yield make
    for one in collected:
        one.kill()
        one.wait()


def of_dead_process():
    """The name of a node whose process has ended."""
    script = "from noonmark.targets.command.orphans import register_node; print(register_node())"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_node_is_alive_until_it_is_unregistered_or_its_process_ends(mark):
    other = register_node()
    assert (mark != other, is_node_gone(mark), is_node_gone(other)) == (True, False, False)
    unregister_node(other)
    assert (is_node_gone(mark), is_node_gone(other)) == (False, True)
    assert is_node_gone(of_dead_process())


def test_reused_process_id_is_not_mistaken_for_the_node(mark):
    namespace, pid, began, number = mark.split("-")
    assert is_node_gone(f"{namespace}-{pid}-{int(began) - 1}-{number}")


def test_zombie_node_is_gone():
    script = "from noonmark.targets.command.orphans import register_node; print(register_node(), flush=True)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as node:
        mark = node.stdout.readline().strip()
        eventually(lambda: is_node_gone(mark))
        assert node.returncode is None


def test_node_whose_process_is_hidden_is_not_gone(mark, tmp_path, monkeypatch):
    """As with hidepid=invisible, which systemd's ProtectProc sets, for a node that forbids others to inspect it."""
    dead = of_dead_process()
    script = "from noonmark.targets.command.orphans import register_node; print(register_node(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as node:
        other = node.stdout.readline().strip()
        (tmp_path / "self").symlink_to("/proc/self")
        monkeypatch.setattr("noonmark.targets.command.orphans.PROC", str(tmp_path))
        assert [is_node_gone(one) for one in (mark, other, dead)] == [False, False, True]
        node.kill()
        node.wait()
        assert is_node_gone(other)


@pytest.mark.parametrize("mark", ["", "-", "1-2-3-4", "x", "1--3-0", "0-1-1-0"])
def test_invisible_node_never_counts_as_gone(mark):
    assert not is_node_gone(mark)


@pytest.fixture
def bench():
    clock = HandClock()
    store = MemoryStore(clock)
    store.open()
    return Bench(store, clock)


@pytest.fixture
def begun(bench):
    """A run that has started, with a unique id, since processes are searched on the whole machine."""
    of = bench.create_quiet()
    return bench.run(of, f"{os.getpid()}-{now()}")


def ended(bench, one, outcome):
    """End a run."""
    phase, reason = ENDS[outcome]
    settlement = bench.settlement(one, phase=phase, reason=reason)
    settlement = replace(settlement, run=replace(settlement.run, outcome=outcome))
    assert bench.store.settle([settlement]) == [True]


def survives(bench, pid):
    """Reap orphans; return whether a process still runs."""
    OrphanReaper(bench.store).reap(now)
    return is_alive(pid)


def wait_for_end(pid):
    """A killed process cannot run any more, but it may take a moment until it is a zombie."""
    return eventually(lambda: not is_alive(pid))


@pytest.mark.parametrize("outcome", [None, Outcome.TIMED_OUT, Outcome.CANCELLED])
def test_processes_of_a_lost_run_are_killed(bench, begun, left, outcome):
    pid = left(of_dead_process(), run_id(begun))
    if outcome is not None:
        ended(bench, begun, outcome)
    OrphanReaper(bench.store).reap(now)
    assert wait_for_end(pid)


def test_processes_of_a_run_restarted_elsewhere_are_killed(bench, begun, left):
    pid = left(of_dead_process(), run_id(begun))
    bench.advance(3 * LEASE)
    again = bench.start(bench.claim_one("node-b"))
    assert again.fence > begun.fence
    OrphanReaper(bench.store).reap(now)
    assert wait_for_end(pid)


@pytest.mark.parametrize("outcome", [Outcome.COMPLETED, Outcome.FAILED])
def test_processes_of_an_ended_run_are_left_alone(bench, begun, left, outcome):
    pid = left(of_dead_process(), run_id(begun))
    ended(bench, begun, outcome)
    assert survives(bench, pid)


def test_processes_of_another_store_are_left_alone(bench, left):
    assert survives(bench, left(of_dead_process(), "occ_0-1"))


def test_processes_of_a_live_node_are_left_alone(bench, begun, left, mark):
    assert survives(bench, left(mark, run_id(begun)))


def test_processes_of_the_run_of_this_node_are_left_alone(bench, begun, left, monkeypatch):
    monkeypatch.setenv(RUN_VARIABLE, run_id(begun))
    assert survives(bench, left(of_dead_process(), run_id(begun)))


def test_scans_are_rate_limited_unless_forced(bench, begun, left):
    orphans = OrphanReaper(bench.store)
    orphans.reap(lambda: 0)
    pid = left(of_dead_process(), run_id(begun))
    orphans.reap(lambda: SCAN_INTERVAL - 1)
    assert is_alive(pid)
    orphans.reap(lambda: SCAN_INTERVAL - 1, force=True)
    assert wait_for_end(pid)
    pid = left(of_dead_process(), run_id(begun))
    orphans.reap(lambda: 2 * SCAN_INTERVAL)
    assert wait_for_end(pid)
