"""Commands of a server: which are allowed, how they are stopped, and what remains when the server is killed."""

import json

import pytest

from noonmark import Scheduler
from tests.cli.terminal import NOONMARK, in_pipe
from tests.embedded.waiting import FINAL, ended, eventually
from tests.service.server import serving
from tests.targets.command.harness import is_alive

WORK = """#!/bin/sh
cat > "$1.in"
echo at work
sleep 600 &
echo $! > "$1.child"
echo $$ > "$1.pid"
test -e "$1.go" || wait
echo done
"""
TRAP = """#!/bin/sh
trap 'echo asked >> "$1.asked"; exit 3' TERM
echo $$ > "$1.pid"
test -e "$1.go" && exit
while :; do sleep 0.02; done
"""
"""It leaves a note when it is asked to stop."""
NEVER = {"type": "cron", "expression": "0 0 1 1 *"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("commands")
    for name, script in (("work", WORK), ("trap", TRAP)):
        (made / name).write_text(script)
        (made / name).chmod(0o755)
    return made


@pytest.fixture(scope="module")
def server(folder):
    with serving(folder, "--allow-commands", f"echo,nosuch,{folder}/work,{folder}/trap", HUSH="hush") as made:
        yield made


def create(server, *argv, **fields):
    target = {"target_kind": "command", "argv": list(argv), **fields.pop("target", {})}
    answer = server.ask("POST", "/schedules", {"trigger": NEVER, "target": target, **fields})
    assert answer.status == 201, answer.text
    return answer.json["schedule_id"]


def start(server, schedule_id, payload=None):
    answer = server.ask("POST", f"/schedules/{schedule_id}/run", {} if payload is None else {"payload": payload})
    assert answer.status == 202, answer.text
    return answer.json["occurrence_id"]


def end_of(server, occurrence):
    def found():
        answer = server.get(f"/occurrences/{occurrence}").json
        return answer["phase"] in FINAL and answer

    return eventually(found)


def last_run(server, schedule_id):
    return server.get(f"/schedules/{schedule_id}/runs").json["runs"][0]


def outcomes(server, schedule_id):
    """How its runs have ended, once all of them have."""
    found = [run["outcome"] for run in server.get(f"/schedules/{schedule_id}/runs").json["runs"]]
    return found if all(found) else []


def pid_in(path):
    return int(eventually(lambda: path.exists() and path.read_text().strip()))


@pytest.mark.parametrize(("policy", "is_asked"), [("cancel_running", True), ("terminate", False)])
def test_terminate_kills_what_runs_and_cancel_running_asks_it_first(server, folder, policy, is_asked):
    schedule = create(server, f"{folder}/trap", f"{folder}/{policy}", overlap_policy=policy)
    replaced = start(server, schedule)
    pid = pid_in(folder / f"{policy}.pid")
    (folder / f"{policy}.go").touch()
    assert end_of(server, start(server, schedule))["phase"] == "completed"
    ended_first = end_of(server, replaced)
    assert (ended_first["phase"], ended_first["reason"]) == ("cancelled", "replaced")
    assert (folder / f"{policy}.asked").exists() is is_asked
    assert not is_alive(pid)


def test_a_run_that_is_suspended_between_two_windows_is_explained(server, folder):
    window = {"duration_seconds": 0.2, "end_action": "pause"}
    schedule = create(server, f"{folder}/work", f"{folder}/still", window=window)
    occurrence = start(server, schedule)

    def suspended():
        told = server.get(f"/occurrences/{occurrence}/explain").json
        return "suspended" in told["summary"] and told

    told = eventually(suspended)
    assert "It has been suspended since " in told["summary"]
    assert "; it goes on at 20" in told["summary"]
    steps = {step["rule"]: step for step in told["steps"]}
    assert (steps["window"]["decision"], steps["runs"]["decision"]) == ("window_closed", "suspended")
    assert steps["window"]["facts"]["suspended_since"] == steps["window"]["facts"]["closes_at"]
    assert steps["window"]["facts"]["goes_on_at"].endswith("-01-01T00:00:00Z")
    assert server.ask("POST", f"/occurrences/{occurrence}/cancel", {}).status == 200
    assert end_of(server, occurrence)["phase"] == "cancelled"


def test_an_allowed_program_that_is_not_there_is_named_at_the_start(server):
    warnings = [record["event"] for record in server.records if record["level"] == "warning"]
    [warning] = [message for message in warnings if "--allow-commands" in message]
    assert '"nosuch", which was not found' in warning


def test_an_allowed_program_is_started(server):
    schedule = create(server, "echo", "$HUSH", "; id", "-n")
    assert end_of(server, start(server, schedule))["phase"] == "completed"
    run = last_run(server, schedule)
    assert (run["outcome"], run["result"]) == ("completed", {"exit_code": 0, "output": "$HUSH ; id -n\n"})


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["sh", "-c", "touch pwned"], "--allow-commands"),
        (["/bin/echo"], "--allow-commands"),
        (["./work"], "relative path"),
    ],
)
def test_a_program_that_is_not_allowed_fails_with_a_reason(server, folder, argv, why):
    schedule = create(server, *argv)
    told = end_of(server, start(server, schedule))
    assert (told["phase"], told["reason"]) == ("delivery_failed", "undeliverable")
    assert why in last_run(server, schedule)["error"]
    assert not (folder / "pwned").exists()


def test_cancelling_ends_a_program_and_its_children(server, folder):
    schedule = create(server, f"{folder}/work", f"{folder}/cancelled")
    occurrence = start(server, schedule, {"a": 1})
    pids = pid_in(folder / "cancelled.pid"), pid_in(folder / "cancelled.child")
    assert json.loads((folder / "cancelled.in").read_text()) == {"a": 1}
    assert server.ask("POST", f"/occurrences/{occurrence}/cancel", {}).status in (200, 202)
    assert end_of(server, occurrence)["phase"] == "cancelled"
    eventually(lambda: not any(map(is_alive, pids)))


def test_output_is_visible_over_every_transport(server, folder):
    schedule = create(server, f"{folder}/work", f"{folder}/talks")
    occurrence = start(server, schedule)
    said = {"output": "at work\n"}
    pid_in(folder / "talks.pid")
    result = eventually(lambda: (run := last_run(server, schedule))["result"] == said and run)
    assert (result["outcome"], result["ended_at_utc"], result["duration_seconds"]) == (None, None, None)
    assert server.get(f"/runs/{result['run_id']}").json == result
    assert server.get(f"/occurrences/{occurrence}/runs").json["runs"] == [result]
    params = {"occurrence_id": occurrence}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "occurrence/runs", "params": params}
    assert server.ask("POST", "/rpc", asked).json["result"]["runs"] == [result]
    typed = in_pipe(*NOONMARK, "schedule", "runs", schedule, NOONMARK_SERVER=server.url).stdout
    assert "running" in typed
    assert r'{"output": "at work\n"}' in typed
    assert server.ask("POST", f"/occurrences/{occurrence}/cancel", {}).status in (200, 202)
    assert end_of(server, occurrence)["phase"] == "cancelled"
    ended = last_run(server, schedule)
    assert (ended["run_id"], ended["outcome"], ended["result"]["output"]) == (
        result["run_id"],
        "cancelled",
        "at work\n",
    )


def test_a_timeout_ends_a_program(server, folder):
    schedule = create(server, f"{folder}/work", f"{folder}/slow", timeout_seconds=0.5)
    assert end_of(server, start(server, schedule))["phase"] == "timed_out"
    assert last_run(server, schedule)["error"].endswith("was killed by SIGTERM: no end within 0.5 s")


def test_the_command_line_does_the_same(server):
    def noonmark(*words):
        done = in_pipe(*NOONMARK, *words, NOONMARK_SERVER=server.url)
        assert done.returncode == 0, done.stderr
        return done.stdout

    noonmark("schedule", "create", "--cron", "0 0 1 1 *", "--id", "by-hand", "--command", "echo 'two words' end")
    noonmark("schedule", "create", "--cron", "0 0 1 1 *", "--id", "dashes", "--", "echo", "--flag", "x y")
    for one, said in (("by-hand", "two words end\n"), ("dashes", "--flag x y\n")):
        noonmark("schedule", "run-now", one)
        assert eventually(lambda one=one: outcomes(server, one)) == ["completed"]
        assert last_run(server, one)["result"]["output"] == said
        assert "completed" in noonmark("schedule", "runs", one)


def test_a_schedule_emits_an_event(server):
    document = {"target_kind": "event", "event_type": "report.made", "payload": {"rows": 3}}
    answer = server.ask("POST", "/schedules", {"trigger": NEVER, "target": document, "schedule_id": "emits"})
    assert answer.status == 201
    heard = {"trigger": {"type": "event", "event_type": "report.made"}, "schedule_id": "hears"}
    assert (
        server.ask("POST", "/schedules", heard | {"target": {"target_kind": "command", "argv": ["echo"]}}).status == 201
    )
    assert end_of(server, start(server, "emits"))["phase"] == "completed"
    assert eventually(lambda: server.get("/schedules/hears/runs").json["runs"])
    [event] = [one for one in server.get("/events").json["events"] if one["event_type"] == "report.made"]
    assert (event["source"], event["payload"]) == ("schedule:emits", {"rows": 3})


def test_a_killed_server_leaves_nothing_running_and_another_one_retries(folder):
    options = ["--store", "sqlite:///killed.db", "--allow-commands", f"{folder}/work", "--lease", "1"]
    temporary = folder / "temporary"
    temporary.mkdir()
    with serving(folder, *options, name="first", TMPDIR=str(temporary)) as first:
        schedule = create(first, f"{folder}/work", f"{folder}/killed")
        occurrence = start(first, schedule)
        pids = pid_in(folder / "killed.pid"), pid_in(folder / "killed.child")
        first.process.kill()
        first.process.wait()
    eventually(lambda: not any(map(is_alive, pids)))
    (folder / "killed.go").touch()
    [left] = temporary.iterdir()  # the folder of the run
    with serving(folder, *options, name="second", TMPDIR=str(temporary)) as second:
        eventually(lambda: not left.exists())
        assert end_of(second, occurrence)["phase"] == "completed"
        assert [run["outcome"] for run in second.get(f"/schedules/{schedule}/runs").json["runs"]] == [
            "completed",
            "lease_lost",
        ]


def test_a_program_runs_its_own_commands_without_permission_and_clients_cannot_change_them(folder, server):
    scheduler = Scheduler(f"sqlite:///{folder / 'noonmark.db'}")
    job = scheduler.schedule_command(["sh", "-c", "echo $0 made it", "program"], name="mine")
    assert ended(scheduler, job) == ["completed"]
    changed = {"target": {"target_kind": "command", "argv": ["sh", "-c", "touch pwned"]}}
    answer = server.ask("PATCH", f"/schedules/{job}", changed)
    assert (answer.status, answer.json["code"]) == (403, "not_allowed")
    scheduler.close()
