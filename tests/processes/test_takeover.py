"""Takeover: the work of a dead process starts again at once, and never while any of its processes lives.

Leases are so long, where nothing else is said, that a test which waits for one fails.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.core.triggers import IntervalTrigger
from noonmark.node_locks import NodeLocks
from tests.processes import work
from tests.processes.fleet import ROOT, is_stopped
from tests.soak import SCALE

LONG = 120.0
"""Seconds of a lease that no test waits for."""
SHORT = 3.0
on_each_store = pytest.mark.parametrize("fleet", ["sqlite", "postgres"], indirect=True)

LEASE_END = "SELECT lease_end FROM occurrences WHERE phase = 'dispatching' AND node LIKE '%-{}-%'"


def begun(fleet, job, times=1):
    """Wait until a job has begun so often; the last beginning."""
    return fleet.until(lambda: len(fleet.journal.begins(job)) >= times and fleet.journal.begins(job)[times - 1])


def looks(fleet, steady, count=8):
    """Let the neighbour look at the locks several times: it looks twice a second, and a schedule fires as often."""
    before = len(fleet.journal.begins(steady))
    fleet.until(lambda: len(fleet.journal.begins(steady)) >= before + count)


def every_half_second(fleet):
    return fleet.scheduler.schedule(work.record, trigger=IntervalTrigger(0.5), overlap="allow", args=[0, "steady"])


@pytest.mark.parametrize("fleet", ["sqlite", "postgres", "redis"], indirect=True)
def test_work_of_a_killed_process_begins_again_at_once(fleet, figure, tmp_path):
    nodes = {node.pid: node for node in (fleet.node(LONG), fleet.node(LONG))}
    waits = []
    for number in range(SCALE):
        folder = tmp_path / f"held-{number}"
        folder.mkdir()
        (folder / "let-second-go").touch()
        job = fleet.scheduler.schedule(work.hold, args=[str(folder)], kwargs={"obeys": True})
        victim = nodes.pop(begun(fleet, job)["pid"])
        killed = fleet.kill(victim)
        again = begun(fleet, job, 2)
        waits.append((again["at"] - killed) / SECOND)
        assert again["pid"] in nodes
        fleet.completed([job])
        assert [run.outcome for run in fleet.scheduler.runs(job)] == ["completed", "lease_lost"]
        [_, lost] = fleet.scheduler.runs(job)
        assert re.fullmatch(rf"the process of node \S+-{victim.pid}-\w+ was gone before it had ended", lost.error)
        gone = {record.name.split("-")[-2]: record for record in fleet.scheduler.nodes()}[str(victim.pid)]
        assert (gone.is_alive, gone.left_at, gone.gone_at is None) == (False, None, False)
        node = fleet.node(LONG)
        nodes[node.pid] = node
    figure(
        f"{type(fleet).__name__}: {SCALE} kills, begins again after {min(waits):.2f} to {max(waits):.2f} s, median "
        f"{median(waits):.2f} s, of a lease of {LONG} s"
    )
    assert max(waits) < LONG / 4, "the lease decided"


@on_each_store
def test_what_may_begin_once_ends_at_once_when_its_process_is_killed(fleet):
    node = fleet.node(LONG)
    job = fleet.scheduler.schedule(work.obey, args=[LONG], delivery="at_most_once")
    begun(fleet, job)
    fleet.node(LONG)
    fleet.kill(node)
    fleet.completed([job])
    [row] = fleet.scheduler.occurrences(job)
    assert (row.phase, row.reason) == (Phase.DELIVERY_FAILED, Reason.OUTCOME_UNKNOWN)
    assert "the process of its node was gone" in fleet.scheduler.explain(job).summary
    assert len(fleet.journal.begins(job)) == 1


@on_each_store
def test_nothing_is_taken_from_a_frozen_process(fleet):
    node = fleet.node(LONG)
    job = fleet.scheduler.schedule(work.obey, args=[LONG])
    begun(fleet, job)
    neighbour = fleet.node(LONG)
    fleet.freeze_between_transactions(node)
    looks(fleet, every_half_second(fleet))
    assert is_stopped(node.pid)
    assert len(fleet.journal.begins(job)) == 1
    fleet.kill(node)
    assert begun(fleet, job, 2)["pid"] == neighbour.pid


@pytest.mark.parametrize("executor", ["thread", "process"])
@pytest.mark.parametrize(("function", "options"), [(work.fork, {"hooks": True}), (work.spawn, {})])
def test_what_a_function_leaves_behind_delays_nothing(fleet, tmp_path, function, options, executor):
    """Neither a fork of the process that called it nor a program that was started from there holds the lock."""
    node = fleet.node(LONG)
    job = fleet.scheduler.schedule(function, args=[str(tmp_path)], kwargs=options, executor=executor)
    begun(fleet, job)
    neighbour = fleet.node(LONG)
    fleet.kill(node)
    try:
        again = begun(fleet, job, 2)["pid"]
        assert again == neighbour.pid or executor == "process"
    finally:
        (tmp_path / "let-go").touch()


def test_a_leaked_copy_of_the_lock_leaves_it_to_the_lease(fleet, tmp_path):
    node = fleet.node(SHORT)
    job = fleet.scheduler.schedule(work.fork, args=[str(tmp_path)], kwargs={"hooks": False})
    begun(fleet, job)
    fleet.node(SHORT)
    fleet.kill(node)
    [(until,)] = fleet.sql(LEASE_END.format(node.pid))
    try:
        again = begun(fleet, job, 2)
    finally:
        (tmp_path / "let-go").touch()
    assert again["at"] >= until


STUBBORN = """
trap '' TERM
while :; do date +%s%N >> "$1/$$"; sleep 0.02; done
"""


def make_signs(folder):
    """A folder that no earlier test had: a command may outlive its test by a second, and goes on writing."""
    return Path(tempfile.mkdtemp(dir=folder))


def command_files(folder):
    """What each run of the command wrote, in the order in which they began: its signs of life, in nanoseconds."""
    files = [[int(line) for line in file.read_text().split()] for file in folder.iterdir()]
    return sorted(lines for lines in files if lines)


@on_each_store
def test_a_command_has_ended_before_it_begins_again(fleet, tmp_path, figure):
    signs = make_signs(tmp_path)
    node = fleet.node(LONG)
    fleet.scheduler.schedule_command(["sh", "-c", STUBBORN, "sh", str(signs)])
    fleet.until(lambda: command_files(signs))
    fleet.node(LONG)
    killed = fleet.kill(node)
    fleet.until(lambda: len(command_files(signs)) == 2)
    first, second = command_files(signs)
    figure(
        f"command: outlived its node by {first[-1] / 1e9 - killed / SECOND:.2f} s, and began again "
        f"{(second[0] - first[-1]) / 1e9:.2f} s later"
    )
    assert first[-1] // 1_000 > killed, "it ended with its node, so nothing was shown"
    assert second[0] > first[-1]


def test_a_command_whose_supervisor_is_frozen_begins_again_when_its_lease_ends(fleet, tmp_path):
    signs = make_signs(tmp_path)
    node = fleet.node(SHORT)
    fleet.scheduler.schedule_command(["sh", "-c", STUBBORN, "sh", str(signs)])
    fleet.until(lambda: command_files(signs))
    [command] = map(int, (file.name for file in signs.iterdir()))
    supervisor = int(Path(f"/proc/{command}/stat").read_text().rpartition(")")[2].split()[1])
    fleet.node(SHORT)
    os.kill(supervisor, signal.SIGSTOP)
    try:
        fleet.until(lambda: is_stopped(supervisor))
        fleet.kill(node)
        [(until,)] = fleet.sql(LEASE_END.format(node.pid))
        fleet.until(lambda: len(command_files(signs)) == 2)
    finally:
        os.kill(supervisor, signal.SIGKILL)
    first, second = command_files(signs)
    assert second[0] // 1_000 >= until
    assert second[0] > first[-1]


def test_a_worker_process_holds_the_lock_of_its_node(fleet):
    node = fleet.node(LONG)
    job = fleet.scheduler.schedule(work.obey, args=[LONG], executor="process")
    worker = begun(fleet, job)["pid"]
    assert worker != node.pid
    [lock] = Path(f"{fleet.path}.nodes").iterdir()
    assert lock.stat().st_ino in {file.stat().st_ino for file in Path(f"/proc/{worker}/fd").iterdir()}
    neighbour = fleet.node(LONG)
    fleet.kill(node)
    begun(fleet, job, 2)
    assert neighbour.poll() is None
    assert not Path(f"/proc/{worker}/fd").exists() or not list(Path(f"/proc/{worker}/fd").iterdir())


def unshare(*options):
    """The command that starts another with namespaces of its own; without them, the test cannot be made."""
    options = options if os.geteuid() == 0 else ("--user", "--map-root-user", *options)
    command = ["unshare", *options]
    try:
        done = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("NOT TESTED: there is no program unshare")
    if done.returncode:
        pytest.skip(f"NOT TESTED: the kernel refuses {' '.join(command)}: {done.stderr.strip()}")
    return command


CONTAINER = """
mount -t tmpfs tmpfs "$0" && touch "$0/$1" && shift && exec "$@"
"""


def test_a_process_that_sees_another_file_leaves_it_to_the_lease(fleet):
    """In another container, where there is a free lock file of the same name: only device and inode differ."""
    node = fleet.node(SHORT)
    job = fleet.scheduler.schedule(work.obey, args=[60])
    begun(fleet, job)
    nodes = Path(f"{fleet.path}.nodes")
    [lock] = nodes.iterdir()
    fleet.start("node", command=(*unshare("--mount"), "sh", "-c", CONTAINER, str(nodes), lock.name), lease=SHORT)
    steady = every_half_second(fleet)
    looks(fleet, steady, 4)
    assert len(fleet.journal.begins(job)) == 1
    fleet.kill(node)
    [(until,)] = fleet.sql(LEASE_END.format(node.pid))
    assert begun(fleet, job, 2)["at"] >= until


HOLDER = """
import os, sys
from pathlib import Path
from noonmark.node_locks import NodeLocks
locks = NodeLocks(lambda: Path(sys.argv[1]))
print(locks.acquire("node-a"), flush=True)
if sys.argv[2:] == ["close"]:
    os.closerange(3, 256)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("within", ["the same container", "another pid namespace", "all its files closed"])
def test_a_process_holds_its_lock_until_it_ends(tmp_path, within):
    locks = NodeLocks(lambda: tmp_path / "nodes")
    command = unshare("--pid", "--fork", "--kill-child") if within == "another pid namespace" else []
    arguments = ["close"] if within == "all its files closed" else []
    holder = subprocess.Popen(
        [*command, sys.executable, "-c", HOLDER, str(tmp_path / "nodes"), *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        lock = holder.stdout.readline().strip()
        assert holder.stdout.readline() == "ready\n"
        locks.acquire("node-b")
        assert locks.find_gone() == {}
        holder.kill()
    while (gone := locks.find_gone()) == {}:  # the process in the namespace is killed a moment later
        pass
    assert gone == {"node-a": lock}
    locks.remove("node-a")
    locks.release("node-b")
