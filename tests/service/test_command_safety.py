"""Commands under attack, on a real server: what clients can start, pass, read, leave running and fill up."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.terminal import NOONMARK, in_pipe
from tests.embedded.waiting import FINAL, eventually
from tests.service.server import serving
from tests.targets.command.harness import is_alive
from tests.targets.http.receiver import http_receiver

SCRIPTS = {
    "show": """for one in "$@"; do printf '<%s>' "$one"; done""",
    "environments": r"cat /proc/$$/environ /proc/$PPID/environ | tr '\0' '\n'",
    "family": """trap '' TERM
        sh -c 'trap "" TERM; sleep 600 & echo $$ $! > "$0.below"; wait' "$1" &
        while ! test -s "$1.below"; do sleep 0.02; done
        echo "$$ $(cat "$1.below")" > "$1.pids"
        wait""",
    "flood": "yes 0123456789 | head -c 44000000; echo the end",
    "where": "pwd",
    "replaced": "echo old",
    "look": r"tr '\0' '\n' < /proc/$1/environ",
    "leak": "cat; echo 'hush, the output'; exit 3",
}
LIKE_ANYBODY = """
import ctypes, os, sys
for capability in range(64):
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Starts a program that may do, as root, no more than others may: it cannot look into any process it likes."""
LASTS = """
import pathlib, threading

def lasts():
    pathlib.Path("begun").touch()
    threading.Event().wait()
"""
NEVER = {"type": "cron", "expression": "0 0 1 1 *"}
SECRETS = {
    "NOONMARK_SIGNING_KEY": "hush, the key of signatures",
    "NOONMARK_PUBLIC_URL": "http://hush.example.com",
    "AWS_SECRET_ACCESS_KEY": "hush",
    "DATABASE_URL": "postgresql://u:hush@h/d",
    "PGPASSWORD": "hush",
    "HUSH_TOKEN": "1",
}
FAMILIES = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("safety")
    for name, text in SCRIPTS.items():
        (made / name).write_text(f"#!/bin/sh\n{text}\n")
        (made / name).chmod(0o755)
    return made


@pytest.fixture(scope="module")
def server(folder):
    allowed = ",".join(f"{folder}/{name}" for name in SCRIPTS)
    options = ("--allow-commands", allowed, "--allow-env", "LEVEL", "--allow-cwd", str(folder))
    with serving(folder, "--store", "memory://", *options, "--allow-hosts", "127.0.0.1", **SECRETS) as made:
        yield made


@pytest.fixture
def figure(record_property):
    return lambda text: record_property("figure", f"commands: {text}")


def create(server, *argv, **fields):
    target = {"target_kind": "command", "argv": list(argv), **fields.pop("target", {})}
    return server.ask("POST", "/schedules", {"trigger": NEVER, "target": target, **fields})


def start(server, schedule_id):
    return server.ask("POST", f"/schedules/{schedule_id}/run", {}).json["occurrence_id"]


def end_of(server, occurrence):
    """How it ended: its phase, and its last run."""
    result = eventually(lambda: (one := server.get(f"/occurrences/{occurrence}").json)["phase"] in FINAL and one)
    return result["phase"], server.get(f"/occurrences/{occurrence}/runs").json["runs"][0]


def run(server, *argv, **fields):
    schedule = create(server, *argv, **fields)
    assert schedule.status == 201, schedule.text
    return end_of(server, start(server, schedule.json["schedule_id"]))


def resident(server):
    """Bytes of memory that a server has."""
    [size] = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
    return int(size) * 1_024


def test_by_default_no_command_is_started(tmp_path, figure):
    marker = tmp_path / "started"
    target = {"target_kind": "command", "argv": ["touch", str(marker)]}
    with serving(tmp_path, "--store", "memory://") as server:
        tried = [create(server, "touch", str(marker)).json["schedule_id"]]
        rpc = {"jsonrpc": "2.0", "id": 1, "method": "schedule/create", "params": {"trigger": NEVER, "target": target}}
        tried.append(server.ask("POST", "/rpc", rpc).json["result"]["schedule_id"])
        words = ("schedule", "create", "--id", "typed", "--cron", "0 0 1 1 *", "--", "touch", str(marker))
        assert in_pipe(*NOONMARK, *words, NOONMARK_SERVER=server.url).returncode == 0
        harmless = {"trigger": NEVER, "target": {"target_kind": "event", "event_type": "x"}, "schedule_id": "changed"}
        assert server.ask("POST", "/schedules", harmless).status == 201
        assert server.ask("PATCH", "/schedules/changed", {"target": target}).status == 200
        ends = [end_of(server, start(server, one)) for one in [*tried, "typed", "changed"]]
        heard = {"trigger": {"type": "event", "event_type": "go"}, "target": target, "schedule_id": "heard"}
        assert server.ask("POST", "/schedules", heard).status == 201
        assert server.ask("POST", "/events", {"event_type": "go"}).status == 202
        [one] = eventually(lambda: server.get("/schedules/heard/occurrences").json["occurrences"])
        ends.append(end_of(server, one["occurrence_id"]))
    assert {phase for phase, _ in ends} == {"delivery_failed"}
    assert all("--allow-commands does not name it" in told["error"] for _, told in ends)
    assert not marker.exists()
    figure(f"without --allow-commands, tried {len(ends)} ways, started 0")


def test_only_allowed_commands_are_started(server, folder, figure):
    (folder / "link").symlink_to(folder / "show")
    others = ["sh", "/bin/sh", "show", "./show", f"{folder}/../{folder.name}/show", f"{folder}//show", f"{folder}/link"]
    others += [f"{folder}/show ", f"{folder}/SHOW", f"{folder}/show;id", f"{folder}/", "*", "/proc/self/exe"]
    ends = [run(server, one, "x") for one in others]
    assert [phase for phase, _ in ends] == ["delivery_failed"] * len(others)
    assert [told["result"] for _, told in ends] == [None] * len(others)
    assert run(server, f"{folder}/show", "x")[0] == "completed"
    figure(f"other names for what is allowed: {len(others)} tried, started 0")


def test_only_allowed_variables_and_folders_are_accepted(server, folder, figure):
    names = ["TAR_OPTIONS", "MAKEFILES", "OPENSSL_CONF", "HOME", "COMPILER_PATH", "LD_PRELOAD", "PATH", "BASH_ENV"]
    names += ["ENV", "PYTHONSTARTUP", "GIT_SSH_COMMAND", "level", "NOONMARK_STORE", "NOONMARK_FUNCTIONS"]
    names += ["NOONMARK_CONFIG", "NOONMARK_SERVER", "NOONMARK_OCCURRENCE_ID"]
    for name in names:
        refused = create(server, f"{folder}/show", target={"env": {name: "/x"}})
        told = refused.json
        assert (refused.status, told["code"], told["field"]) == (403, "not_allowed", f"target.env.{name}")
    for cwd in ("/", "/etc", "inner", ".", f"{folder}/..", f"{folder}2", f"{folder}/../.."):
        refused = create(server, f"{folder}/show", target={"cwd": cwd})
        assert (refused.status, refused.json["code"], refused.json["field"]) == (403, "not_allowed", "target.cwd")
    schedule = create(
        server, f"{folder}/show", target={"env": {"LEVEL": "1", "NOONMARK_MINE": "2"}, "cwd": str(folder)}
    )
    assert schedule.status == 201
    figure(f"variables that were not named: refused {len(names)} of {len(names)}; folders likewise 7 of 7")


def test_no_command_runs_inside_the_upload_folder(tmp_path):
    script = tmp_path / "build"
    script.write_text("#!/bin/sh\nif test -e Makefile; then sh ./Makefile; fi\necho built\n")
    script.chmod(0o755)
    (tmp_path / "Makefile").write_text(f"touch {tmp_path}/pwned\n")
    with serving(tmp_path, "--allow-commands", str(script), "--allow-cwd", str(tmp_path)) as server:
        sent = in_pipe(*NOONMARK, "upload", str(tmp_path / "Makefile"), NOONMARK_SERVER=server.url)
        assert sent.returncode == 0, sent.stderr
        (tmp_path / "Makefile").unlink()
        [kept] = tmp_path.rglob("Makefile")
        (tmp_path / "link").symlink_to(kept.parent)
        for cwd in (kept.parent, kept.parent.parent, tmp_path / "noonmark.db.uploads", tmp_path / "link"):
            phase, told = run(server, str(script), target={"cwd": str(cwd)})
            assert (phase, "uploaded files" in told["error"]) == ("delivery_failed", True)
        assert run(server, str(script), target={"cwd": str(tmp_path)})[1]["result"]["output"] == "built\n"
        assert run(server, str(script))[1]["result"]["output"] == "built\n"
    assert not (tmp_path / "pwned").exists()


def test_an_allowed_program_that_was_replaced_is_not_started(server, folder):
    assert run(server, f"{folder}/replaced")[1]["result"]["output"] == "old\n"
    (folder / "other").write_text("#!/bin/sh\necho new\n")
    (folder / "other").chmod(0o755)
    (folder / "other").rename(folder / "replaced")
    phase, told = run(server, f"{folder}/replaced")
    assert (phase, told["result"]) == ("delivery_failed", None)
    assert "was replaced on disk since this node started" in told["error"]


def test_arguments_are_passed_verbatim_and_never_interpreted(server, folder, figure):
    words = ["; touch pwned", "$(touch pwned)", "`touch pwned`", "| touch pwned", "a\ntouch pwned", "-rf", "--", "-"]
    words += ["&& touch pwned", "> pwned", "*", "~", "$HOME", "%s", "\\", "'", '"', "", " ", "\u202e", "{{attempt}}"]
    phase, told = run(server, f"{folder}/show", *words)
    assert (phase, told["result"]["output"]) == ("completed", "".join(f"<{one}>" for one in words))
    for field, argv, target in [
        ("target.argv[1]", ["a\0b"], {}),
        ("target.env.A", [], {"env": {"A": "x\0B=y"}}),
        ("target.env.A=B", [], {"env": {"A=B": "c"}}),
        ("target.env", [], {"env": {"A\0B": "c"}}),
        ("target.cwd", [], {"cwd": "/x\0y"}),
        ("target.argv", "rm -rf x", {}),
        ("target.shell", [], {"shell": True}),
    ]:
        list_of = [f"{folder}/show", *argv] if isinstance(argv, list) else argv
        document = {"trigger": NEVER, "target": {"target_kind": "command", "argv": list_of, **target}}
        refused = server.ask("POST", "/schedules", document)
        assert (refused.status, refused.json["field"]) == (400, field)
    assert not list(folder.rglob("pwned*"))
    figure(f"hostile arguments passed as they are {len(words)} of {len(words)}, refused with NUL and the like 7 of 7")


def test_the_environment_of_the_server_is_not_visible(server, folder, figure):
    phase, told = run(server, f"{folder}/environments", target={"env": {"LEVEL": "9"}})
    output = told["result"]["output"]
    assert (phase, "LEVEL=9" in output, f"PATH={os.environ['PATH']}" in output) == ("completed", True, True)
    names = set(re.findall(r"^(\w+)=", output, re.MULTILINE))
    told_of_it = "OCCURRENCE_ID SCHEDULE_ID NOMINAL_TIME ATTEMPT RUN_ID PROGRESS_FD USAGE_FILE NODE CHAIN"
    ours = {f"NOONMARK_{name}" for name in told_of_it.split()}
    assert {name for name in names if name.startswith("NOONMARK_")} == ours
    assert "hush" not in output.lower()
    assert not names & SECRETS.keys()
    figure(f"variables of the server in the environment of a program or of what started it: 0 of {len(SECRETS)}")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no such protection")
def test_a_program_cannot_inspect_the_server(folder, tmp_path, figure):
    (tmp_path / "jobs.py").write_text(LASTS)
    through = (sys.executable, "-c", LIKE_ANYBODY) if os.geteuid() == 0 else ()
    options = ("--store", "memory://", "--allow-commands", f"{folder}/look", "--function", "lasts=jobs:lasts")
    function = {"target_kind": "function", "function": "lasts", "executor": "process"}
    with serving(tmp_path, *options, through=through, **SECRETS) as server:
        schedule_id = server.ask("POST", "/schedules", {"trigger": NEVER, "target": function}).json["schedule_id"]
        start(server, schedule_id)
        eventually((tmp_path / "begun").exists)
        pids = [server.process.pid]
        for task in Path(f"/proc/{server.process.pid}/task").iterdir():
            found = map(int, (task / "children").read_text().split())
            pids += [
                pid
                for pid in found
                if b"noonmark.targets.function.process_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
            ]
        ends = [run(server, f"{folder}/look", str(pid)) for pid in pids]
        with subprocess.Popen([*through, "sleep", "600"], env=SECRETS) as open_to_all:  # it is not for want of trying
            eventually(lambda: Path(f"/proc/{open_to_all.pid}/cmdline").read_bytes().startswith(b"sleep"))
            phase, told = run(server, f"{folder}/look", str(open_to_all.pid))
            open_to_all.kill()
    assert [phase for phase, _ in ends] == ["failed"] * 2
    assert not any("hush" in told["error"].lower() for _, told in ends)
    assert all("Permission denied" in told["error"] for _, told in ends)
    assert (phase, told["result"]["output"].lower().count("hush")) == ("completed", 6)
    figure("processes of the server whose environment a program could read: 0 of 2")


def test_input_and_output_are_in_the_run_and_not_in_the_log(server, folder):
    payload, hook = {"payload": {"hush": 1}}, {"name": "hook", "trigger": NEVER}
    phase, told = run(server, f"{folder}/leak", name="leaky", target=payload)
    assert (phase, told["error"]) == ("failed", '{"hush": 1}hush, the output\nexited with code 3')
    with http_receiver() as receiver:
        receiver.answers.append((500, b"hush, the answer", {"Location": "/hush", "X_Request_Id": "hush"}))
        target = {"target_kind": "http", "url": f"{receiver.url}/next", "body": "hush"}
        answer = server.ask("POST", "/schedules", {**hook, "target": target}).json
        phase, answered = end_of(server, start(server, answer["schedule_id"]))
    assert (phase, answered["result"]["body"]) == ("failed", "hush, the answer")
    ends = {"leaky: the run of ": ": it exited with code 3 (failed)", "hook: the run of ": "with status 500 (failed)"}
    for one, (begin, end) in zip((told, answered), ends.items(), strict=True):
        [line] = eventually(lambda one=one: [found for found in server.records if found.get("run_id") == one["run_id"]])
        assert (line["event"].startswith(begin), f"{end}; `noonmark " in line["event"]) == (True, True), line
        assert line["occurrence_id"] == one["occurrence_id"]
    assert "hush" not in server.log.replace("--server http://hush.example.com", "")


def test_a_command_starts_in_its_folder_or_not_at_all(server, folder):
    (folder / "inner").mkdir()
    for cwd in (str(folder / "inner"), f"{folder}/../{folder.name}/inner/"):
        phase, told = run(server, f"{folder}/where", target={"cwd": cwd})
        assert (phase, told["result"]["output"]) == ("completed", f"{folder}/inner\n")
    for cwd in (str(folder / "nowhere"), str(folder / "show")):
        phase, told = run(server, f"{folder}/where", target={"cwd": cwd})
        assert (phase, "could not be started" in told["error"]) == ("delivery_failed", True)


def test_a_timeout_ends_the_whole_process_family(server, folder, figure):
    ones = [
        start(server, create(server, f"{folder}/family", f"{folder}/{n}", timeout_seconds=1).json["schedule_id"])
        for n in range(FAMILIES)
    ]
    files = [folder / f"{n}.pids" for n in range(FAMILIES)]
    pids = [int(pid) for one in files for pid in eventually(lambda one=one: one.exists() and one.read_text().split())]
    assert len(pids) == 3 * FAMILIES
    assert {end_of(server, one)[0] for one in ones} == {"timed_out"}
    eventually(lambda: not any(map(is_alive, pids)))  # to kill takes a moment
    figure(f"processes that ignore SIGTERM, gone after their timeout: {len(pids)} of {len(pids)}")


def test_a_flood_of_output_takes_neither_memory_nor_disk(server, folder, figure):
    before = resident(server)
    phase, told = run(server, f"{folder}/flood")
    result = told["result"]
    written = result["output_dropped"] + len(result["output"])
    assert (phase, result["output"].endswith("0123456789\nthe end\n")) == ("completed", True)
    assert written > 10_000_000
    assert len(result["output"]) <= 32_768
    grown = resident(server) - before
    assert grown < 32 * 1_048_576
    figure(f"a program that wrote {written // 1_000_000} MB: kept {len(result['output'])} bytes")
