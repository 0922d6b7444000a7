"""A server is killed during commands and calls: another one continues, and every outcome is recorded."""

import signal
from collections import Counter

import pytest

from tests.cli.runner import call
from tests.embedded.waiting import FINAL, eventually
from tests.service.server import serving
from tests.targets.command.harness import is_alive
from tests.targets.http.receiver import arrived, http_receiver

WORK = """#!/bin/sh
echo "begun $1"
echo begun >> "$1.begins"
test -e go && exit 0
trap '' TERM
sh -c 'trap "" TERM; sleep 600 & echo $$ $! > "$0.below"; wait' "$1" &
while ! test -s "$1.below"; do sleep 0.01; done
echo "$$ $(cat "$1.below")" > "$1.pids"
wait
"""
NEVER = {"type": "cron", "expression": "0 0 1 1 *"}
ONCE = {"delivery": "at_most_once"}
COMMANDS = {"a": {}, "b": {}, "c": {}, "d": ONCE, "e": ONCE}
CALLS = {"/wait/1": {}, "/wait/2": {}, "/wait/3": {}, "/wait/4": ONCE, "/wait/5": ONCE}
UNKNOWN = ("delivery_failed", "outcome_unknown")
AGAIN = ("completed", "succeeded")


@pytest.fixture(scope="module")
def receiver():
    with http_receiver() as made:
        yield made


def ask(server, target, **fields):
    """Create a schedule and ask for a run of it; the occurrence."""
    answer = server.ask("POST", "/schedules", {"trigger": NEVER, "target": target, **fields})
    assert answer.status == 201, answer.text
    return server.ask("POST", f"/schedules/{answer.json['schedule_id']}/run", {}).json["occurrence_id"]


def begin(server, folder, receiver):
    """Have everything begun there; the occurrences of the programs and of the calls, and the numbers of processes."""
    programs = {
        name: ask(server, {"target_kind": "command", "argv": [f"{folder}/work", name], "cwd": str(folder)}, **fields)
        for name, fields in COMMANDS.items()
    }
    calls = {
        path: ask(server, {"target_kind": "http", "url": f"{receiver.url}{path}", "timeout_seconds": 600}, **fields)
        for path, fields in CALLS.items()
    }
    files = [folder / f"{name}.pids" for name in COMMANDS]
    pids = [int(pid) for one in files for pid in eventually(lambda one=one: one.exists() and one.read_text().split())]
    arrived(receiver, len(CALLS))
    return programs, calls, pids


def runs(server, occurrence):
    return server.get(f"/occurrences/{occurrence}/runs").json["runs"]


def end_of(server, occurrence):
    result = eventually(lambda: (one := server.get(f"/occurrences/{occurrence}").json)["phase"] in FINAL and one)
    return result["phase"], result["reason"]


def test_another_node_continues_and_at_most_once_holds(database, tmp_path, receiver, record_property):
    (tmp_path / "work").write_text(WORK)
    (tmp_path / "work").chmod(0o755)
    options = (
        "--store",
        database.url,
        "--lease",
        "2",
        "--allow-commands",
        f"{tmp_path}/work",
        "--allow-cwd",
        str(tmp_path),
    )
    with serving(tmp_path, *options, "--migrate", name="first") as first:
        programs, calls, pids = begin(first, tmp_path, receiver)
        with serving(tmp_path, *options, name="second") as second:
            said = {name: {"output": f"begun {name}\n"} for name in COMMANDS}
            # What they have written can be read at the other server while they run.
            eventually(lambda: all(runs(second, one)[0]["result"] == said[name] for name, one in programs.items()))
            (tmp_path / "go").touch()
            first.stop(signal.SIGKILL)
            receiver.opened.set()
            eventually(lambda: not any(map(is_alive, pids)))
            ends = {name: end_of(second, one) for name, one in {**programs, **calls}.items()}
            told = {name: runs(second, one) for name, one in {**programs, **calls}.items()}
    expected = {name: UNKNOWN if fields == ONCE else AGAIN for name, fields in {**COMMANDS, **CALLS}.items()}
    assert ends == expected
    for name, fields in {**COMMANDS, **CALLS}.items():
        outcomes = [run["outcome"] for run in told[name]]
        assert outcomes == (["lease_lost"] if fields == ONCE else ["completed", "lease_lost"]), name
    assert [told[name][-1]["result"] for name in COMMANDS] == list(said.values())
    begins = {name: len((tmp_path / f"{name}.begins").read_text().splitlines()) for name in COMMANDS}
    assert begins == {name: 1 if fields == ONCE else 2 for name, fields in COMMANDS.items()}
    keys = Counter((path, headers["Idempotency-Key"]) for _, path, headers, _ in receiver.requests)
    assert keys == {(path, calls[path]): 1 if fields == ONCE else 2 for path, fields in CALLS.items()}
    record_property(
        "figure",
        f"killed in the middle of {len(COMMANDS)} programs and {len(CALLS)} calls: of {len(pids)} processes 0 left; "
        f"begun again {sum(count == 2 for count in [*begins.values(), *keys.values()])} of 6 that may be, 0 of 4 that "
        f"must not, those as outcome_unknown; keys of calls {len({key for _, key in keys})}, "
        f"outputs kept {len(said)} of {len(COMMANDS)}",
    )


def test_nothing_is_said_to_run_while_no_node_is_alive(tmp_path):
    (tmp_path / "work").write_text(WORK)
    (tmp_path / "work").chmod(0o755)
    store = ("--store", f"sqlite:///{tmp_path}/alone.db")
    options = (*store, "--lease", "2", "--allow-commands", f"{tmp_path}/work", "--allow-cwd", str(tmp_path))
    target = {"target_kind": "command", "argv": [f"{tmp_path}/work", "a"], "cwd": str(tmp_path)}
    with serving(tmp_path, *options, name="first") as first:
        occurrence = ask(first, target, name="nap", retry_policy={"max_attempts": 3})
        eventually((tmp_path / "a.pids").exists)
        [node] = first.get("/nodes").json["nodes"]
        assert "It is running: " in call("schedule", "explain", occurrence, *store).out
        assert "  1 node alive" in call("top", "--once", *store).out
        first.stop(signal.SIGKILL)
    eventually(lambda: "  0 nodes alive" in call("top", "--once", *store).out)
    assert "1 running (1 lost)  " in call("top", "--once", *store).out
    for named in (occurrence, "nap"):
        told = " ".join(call("schedule", "explain", named, *store).out.split())
        assert f"t has not ended: node `{node['node']}` started attempt 1 of 3 at " in told
        assert ", and has sent no heartbeat since " in told
        assert "; it begins again when a node that serves `command` is alive" in told
        assert "running" not in told
    assert "unknown, node silent" in call("schedule", "runs", "nap", *store).out
    shown = call("schedule", "status", "nap", *store).out
    assert "unknown, node silent" in shown
    assert "It has not ended: its node has sent no heartbeat since " in shown
    (tmp_path / "go").touch()
    with serving(tmp_path, *options, name="second") as second:
        assert end_of(second, occurrence) == AGAIN
