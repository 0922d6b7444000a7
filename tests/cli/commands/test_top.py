"""`noonmark top`: one frame in a pipe, and the live view on a real terminal."""

import re

import pytest

from noonmark.clocks import SystemClock
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.operations.service import LOCAL
from noonmark.ports.records import Heartbeat
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LEASE, Bench, HandClock
from tests.cli.runner import call
from tests.cli.terminal import NOONMARK, in_terminal

ROUTE = "function:work"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store in which one runs, one failed, one is due, one comes next, and a node is dead."""
    path = tmp_path_factory.mktemp("top") / "noonmark.db"
    clock = SystemClock().micros
    opened = SqliteStore(path, clock)
    opened.open()
    now = clock()
    owner = {"owner": LOCAL.owner}
    collected = {}
    bench = Bench(opened, HandClock(now))
    for name in ("runs", "fails", "queued", "later"):
        # One has no name, and is shown with its id.
        names = {} if name == "later" else {"name": f"it {name}"}
        collected[name] = bench.create_quiet(f"uid-{name}", schedule_id=f"{name}-id", **names, **owner)
    late = now - factories.NOW
    failed = bench.run(collected["fails"], "f", late - SECOND)
    assert bench.settle(failed, phase=Phase.FAILED, reason=Reason.FAILED)
    bench.run(collected["runs"], "r", late - SECOND)
    bench.add(collected["queued"], "q", late - SECOND)
    bench.add(collected["later"], "l", late + 3_600 * SECOND)
    opened.beat(Heartbeat(node="node-a", routes=(ROUTE,), capacity=4, load=1, lease=3_600 * SECOND), now=now)
    opened.beat(Heartbeat(node="node-b", routes=(ROUTE,), capacity=4, lease=LEASE), now=now - 600 * SECOND)
    opened.close()
    return f"sqlite:///{path}"


def test_one_frame(store):
    done = call("top", "--once", "--store", store)
    assert (done.code, done.err) == (0, "")
    for words in (
        "1 running  1 due  0 waiting  0 overdue  1 failed  1 node alive",
        r"node-a +alive +1 +1 of 4",
        r"node-b +dead",
        r"it runs +[\d.]+ .*node-a +occ_",
        r"it queued +.* a node +occ_",
        r"it fails .* failed ",
        r"later-id +in ",
    ):
        assert re.search(words, done.out), (words, done.out)


def test_json_has_the_workload_and_the_nodes(store):
    answer = call("top", "--json", "--store", store).json
    assert [row["schedule_id"] for row in answer["running"]["occurrences"]] == ["runs-id"]
    assert [node["node"] for node in answer["nodes"]] == ["node-a", "node-b"]


def test_the_interval_has_bounds(store):
    done = call("top", "--interval", "0", "--store", store)
    assert (done.code, "--interval" in done.err) == (2, True)


def test_a_server_that_cannot_be_reached():
    assert call("top", "--once", "--server", "http://127.0.0.1:1").code == 6


def test_a_key_ends_the_live_view_and_restores_the_terminal(store):
    code, shown = in_terminal(*NOONMARK, "top", "--interval", "3600", "--store", store, typed="xq")
    assert code == 0, shown
    assert "node-b" in shown
    assert shown.rstrip().endswith("\x1b[?25h\x1b[?1049l")
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    assert all(len(line) <= 80 for line in plain.splitlines())
