"""The command runner, with real programs."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path

import pytest

from noonmark.core.ids import event
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.policies.delivery import Delivery
from noonmark.core.policies.overlap import CancelRunning, Terminate
from noonmark.core.policies.window import EndAction, Window
from noonmark.core.reasons import Reason
from noonmark.core.secret import Secret
from noonmark.core.triggers import IntervalTrigger
from noonmark.stores.memory import MemoryStore
from noonmark.targets import process_control
from noonmark.targets.command import process
from noonmark.targets.command.output import MAX_JSON, MAX_OUTPUT, OutputTail
from noonmark.targets.command.runner import MAX_COMMANDS
from noonmark.targets.secrets import SecretResolver
from tests.embedded.waiting import eventually
from tests.targets.assignments import now
from tests.targets.bundle.harness import Plain
from tests.targets.command.harness import PROCESS_TREE, command_assignment, command_runner, is_alive, is_stopped

PYTHON = sys.executable
FAMILY = (
    "sh -c 'trap \"\" TERM; echo $$ > child; while :; do sleep 0.05; done' & "
    "while ! test -s child; do sleep 0.01; done; echo $$ > parent; wait"
)
"""A program with a child that ignores SIGTERM; each writes its pid to a file, the program last."""
STUBBORN = "trap '' TERM; echo $$ > parent; while :; do sleep 0.05; done"


WHY = {
    Reason.CANCELLED: "someone asked for it to be cancelled",
    Reason.LEASE_LOST: "its node stopped before it had ended",
    Reason.REPLACED: "a newer occurrence took its place",
}
"""Error texts by stop reason."""


@pytest.fixture(scope="module")
def runner():
    with command_runner() as made:
        yield made


@pytest.fixture
def brief(monkeypatch):
    """Shorten the grace period."""
    monkeypatch.setattr(process_control, "STOP_GRACE", SECOND // 10)


def pid_in(path):
    return int(eventually(lambda: path.exists() and path.read_text().strip()))


class TestInput:
    def test_arguments_are_passed_unchanged(self, runner):
        words = ["; rm -rf x", "$(id)", "`id`", "a\nb", "-rf", "*", "", "ä€", "\u202e", "%s", "&&"]
        done = runner.run(PYTHON, "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *words)
        assert json.loads(done.result["output"]) == words
        assert (done.outcome, done.result["exit_code"], done.error) == ("completed", 0, None)

    def test_environment_is_clean(self, runner, monkeypatch):
        monkeypatch.setenv("AWS_SECRET", "hush")
        monkeypatch.setenv("NOONMARK_STORE", "postgresql://u:hush@h/d")
        one = command_assignment("env", fields={"env": {"LEVEL": "9", "NOONMARK_ATTEMPT": "7", "B": "x=y\nz"}})
        output = runner.end_of(runner.start(one)).result["output"]
        assert "hush" not in output
        lines = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
        assert (lines["LEVEL"], lines["PATH"], lines["B"]) == ("9", os.environ["PATH"], "x=y")
        assert lines["NOONMARK_OCCURRENCE_ID"] == one.occurrence.id
        assert lines["NOONMARK_SCHEDULE_ID"] == one.schedule.schedule_id
        assert lines["NOONMARK_ATTEMPT"] == "1"
        assert lines["NOONMARK_NOMINAL_TIME"].endswith("Z")
        known = {"LEVEL", "B", "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"}
        known.add("TRACEPARENT")
        assert {name for name in lines if not name.startswith("NOONMARK_")} <= known

    def test_no_file_descriptor_of_the_node_is_inherited(self, runner):
        done = runner.run(PYTHON, "-c", "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:4])")
        assert done.result["output"] == "[0, 1, 2, 3]\n"

    @pytest.mark.parametrize(
        ("payload", "fields", "read"),
        [
            (None, {}, ""),
            ({"a": "ä\n"}, {}, '{"a": "ä\\n"}'),
            (None, {"payload": [1, 2]}, "[1, 2]"),
            ({"b": 2}, {"payload": [1, 2]}, '{"b": 2}'),
            ({"b": 2}, {"stdin": "word\nfor word", "payload": 1}, "word\nfor word"),
        ],
    )
    def test_stdin_is_the_payload_or_the_declared_text(self, runner, payload, fields, read):
        assert runner.run("cat", payload=payload, fields=fields).result["output"] == read

    def test_event_sets_payload_and_variables(self, runner):
        brought = {"event_id": "e1", "event_type": "uploaded", "source": "", "payload": {"path": "/x"}}
        script = 'cat; echo; echo "$NOONMARK_EVENT_ID $NOONMARK_EVENT_TYPE"'
        done = runner.run("sh", "-c", script, payload=brought, origin=event("e1"), fields={"payload": {"else": 1}})
        assert done.result["output"] == '{"path": "/x"}\ne1 uploaded\n'

    def test_large_stdin_and_output_do_not_block_each_other(self, runner):
        text = "0123456789abcdef" * 16_000
        done = runner.run(PYTHON, "-c", "import sys; d = sys.stdin.read(); print(d); print(len(d))", payload=text)
        assert done.result["output"].endswith("\n256002\n")

    def test_unread_stdin_is_not_a_failure(self, runner):
        assert runner.run("true", fields={"stdin": "x" * 262_144}).outcome == "completed"

    def test_working_directory(self, runner, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "jobs").mkdir()
        assert runner.run("pwd").result["output"] == f"{tmp_path}\n"
        assert runner.run("pwd", fields={"cwd": "jobs"}).result["output"] == f"{tmp_path}/jobs\n"
        done = runner.run("pwd", fields={"cwd": "/nowhere"})
        assert (done.outcome, "No such file" in done.error) == ("delivery_failed", True)


class TestOutput:
    def test_nonzero_exit_code_is_a_failure_with_the_last_lines(self, runner):
        done = runner.run("sh", "-c", "seq 1 30; echo worse >&2; exit 3")
        assert (done.outcome, done.result["exit_code"]) == ("failed", 3)
        assert done.error.splitlines() == [*map(str, range(12, 31)), "worse", "exited with code 3"]
        assert done.result["output"].startswith("1\n2\n")

    def test_signal_is_a_failure(self, runner):
        done = runner.run("sh", "-c", "kill -SEGV $$")
        assert (done.outcome, done.error) == ("failed", "was killed by SIGSEGV")

    def test_assignment_error_is_that_of_subprocess(self, runner):
        delivery = runner.start(command_assignment("sh", "-c", "echo no; exit 4"))
        runner.end_of(delivery)
        assert isinstance(delivery.error, subprocess.CalledProcessError)
        assert (delivery.error.returncode, delivery.error.output) == (4, "no\n")

    def test_end_of_large_output_is_stored(self, runner):
        done = runner.run("sh", "-c", "yes 0123456789 | head -c 22000000; echo the end")
        assert done.outcome == "completed"
        assert done.result["output"].endswith("0123456789\nthe end\n")
        assert len(done.result["output"]) <= MAX_OUTPUT
        assert done.result["output_dropped"] + len(done.result["output"]) == 22_000_000 + len("the end\n")

    def test_binary_output_is_stored_as_text(self, runner):
        done = runner.run(PYTHON, "-c", r"import os; os.write(1, b'a\0b\xff\xfe\x1b[1m')")
        assert done.result["output"] == "a\ufffdb\ufffd\ufffd\x1b[1m"

    @pytest.mark.parametrize("piece", [b"\x01", "ä".encode(), "😀".encode(), b"\xff", b"a\n"])
    def test_stored_output_fits_into_a_record(self, piece):
        tail = OutputTail()
        for _ in range(5):
            tail.add(piece * 20_001)
        assert len(json.dumps(tail.text())) <= MAX_JSON
        assert tail.total == 5 * 20_001 * len(piece)
        if piece != b"\xff":
            assert "\ufffd" not in tail.text()

    def test_daemon_that_holds_the_output_is_not_waited_for(self, runner, tmp_path):
        script = "setsid sh -c 'echo $$ > child; exec sleep 600' & while ! test -s child; do sleep 0.02; done; echo ok"
        done = runner.run("sh", "-c", script, fields={"cwd": str(tmp_path)})
        assert (done.outcome, done.result["output"]) == ("completed", "ok\n")
        os.kill(pid_in(tmp_path / "child"), signal.SIGKILL)


class TestLookup:
    def test_missing_program_is_undeliverable(self, runner, tmp_path):
        for name in ("no-such-program", str(tmp_path / "x"), str(tmp_path), ".", ".."):
            done = runner.run(name)
            assert (done.outcome, "was not found on this node" in done.error) == ("delivery_failed", True)

    def test_non_executable_file_is_undeliverable(self, runner, tmp_path):
        (tmp_path / "x").write_bytes(b"\x7fELF nonsense")
        (tmp_path / "x").chmod(0o700)
        done = runner.run(str(tmp_path / "x"))
        assert (done.outcome, "could not be started" in done.error) == ("delivery_failed", True)

    def test_too_long_arguments_are_undeliverable(self, runner):
        done = runner.run("true", *["x" * 131_072] * 40)
        assert (done.outcome, "too long" in done.error) == ("delivery_failed", True)

    def test_relative_path_is_refused(self, runner, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "x").symlink_to("/bin/true")
        for name in ("./x", "sub/x", "../x"):
            assert "is a relative path" in runner.run(name).error

    def test_relative_folders_of_path_are_ignored(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine").symlink_to("/bin/true")
        monkeypatch.setenv("PATH", f".:{os.pathsep}{os.environ['PATH']}")
        with command_runner("mine") as runner:
            assert "was not found" in runner.run("mine").error
            assert "was not found" in runner.run("mine", source="rest").error


class TestAllowlist:
    def test_network_schedules_start_only_allowed_programs(self, tmp_path):
        mine = tmp_path / "echo"
        mine.symlink_to("/bin/sh")
        with command_runner("echo", "/bin/cat") as runner:
            assert runner.run("echo", "hello", source="rest").result["output"] == "hello\n"
            assert runner.run("/bin/cat", source="jsonrpc").outcome == "completed"
            # Neither its path, nor a file of that name, nor another path to the same file is allowed.
            for name in ("/bin/echo", "cat", str(mine), "/bin/../bin/cat", "//bin/cat", "/bin/cat ", "sh", "*", "ECHO"):
                done = runner.run(name, "x", source="rest")
                assert (done.outcome, "--allow-commands" in done.error) == ("delivery_failed", True)
            assert runner.run("sh", "-c", "echo trusted").result["output"] == "trusted\n"

    def test_star_allows_all_programs(self):
        with command_runner("*") as runner:
            assert runner.run("sh", "-c", "exit 0", source="rest").outcome == "completed"
            assert "is a relative path" in runner.run("./sh", source="rest").error

    def test_name_is_looked_up_once(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        mine = tmp_path / "mine"
        mine.symlink_to("/bin/echo")
        with command_runner("mine") as runner:
            mine.unlink()
            mine.symlink_to("/bin/cat")
            assert runner.run("mine", "one", source="rest").result["output"] == "one\n"


class TestEnd:
    def test_very_long_timeout(self, runner):
        done = runner.run("sh", "-c", "sleep 0.2; echo done", timeout=366 * 86_400 * SECOND)
        assert (done.outcome, done.result["output"]) == ("completed", "done\n")

    def test_timeout_ends_command_and_children(self, runner, tmp_path, brief):
        delivery = runner.start(
            command_assignment("sh", "-c", FAMILY, fields={"cwd": str(tmp_path)}, timeout=3_600 * SECOND)
        )
        pids = pid_in(tmp_path / "parent"), pid_in(tmp_path / "child")
        runner.set_back_start(delivery, 3_600 * SECOND)
        done = runner.end_of(delivery)
        assert (done.outcome, done.result["exit_code"]) == ("timed_out", -signal.SIGTERM)
        eventually(lambda: not any(map(is_alive, pids)))

    def test_short_timeout(self, runner):
        assert runner.run("sleep", "60", timeout=SECOND // 10).outcome == "timed_out"

    @pytest.mark.parametrize(("reason", "why"), WHY.items())
    def test_stop_request_ends_command_and_children(self, runner, tmp_path, brief, reason, why):
        delivery = runner.start(command_assignment("sh", "-c", FAMILY, fields={"cwd": str(tmp_path)}))
        parent, child = pid_in(tmp_path / "parent"), pid_in(tmp_path / "child")
        delivery.stop(reason)
        done = runner.end_of(delivery)
        outcome = "lease_lost" if reason is Reason.LEASE_LOST else "cancelled"
        assert (done.outcome, done.error) == (outcome, f"was killed by SIGTERM: {why}")
        eventually(lambda: not is_alive(parent) and not is_alive(child))

    def test_command_that_ignores_sigterm_is_killed(self, runner, tmp_path, brief):
        delivery = runner.start(command_assignment("sh", "-c", STUBBORN, fields={"cwd": str(tmp_path)}))
        pid = pid_in(tmp_path / "parent")
        delivery.stop(Reason.CANCELLED)
        done = runner.end_of(delivery)
        said = f"was killed by SIGKILL: {WHY[Reason.CANCELLED]}"
        assert (done.outcome, done.error, is_alive(pid)) == ("cancelled", said, False)

    def test_replaced_command_has_the_grace_period_of_its_policy(self, runner, tmp_path):
        policy = CancelRunning(cancel_grace=SECOND // 10)
        delivery = runner.start(
            command_assignment("sh", "-c", STUBBORN, fields={"cwd": str(tmp_path)}, overlap_policy=policy)
        )
        pid_in(tmp_path / "parent")
        delivery.stop(Reason.REPLACED)
        assert runner.end_of(delivery).error == f"was killed by SIGKILL: {WHY[Reason.REPLACED]}"

    @pytest.mark.parametrize(
        ("policy", "is_asked"), [(Terminate(), False), (CancelRunning(cancel_grace=60 * SECOND), True)]
    )
    def test_replaced_command_is_killed_and_not_asked_under_terminate(self, runner, tmp_path, policy, is_asked):
        script = "trap 'echo asked; kill -9 $$' TERM; echo $$ > parent; while :; do sleep 0.02; done"
        delivery = runner.start(
            command_assignment("sh", "-c", script, fields={"cwd": str(tmp_path)}, overlap_policy=policy)
        )
        pid = pid_in(tmp_path / "parent")
        delivery.stop(Reason.REPLACED)
        done = runner.end_of(delivery)
        assert done.error.endswith(f"was killed by SIGKILL: {WHY[Reason.REPLACED]}")
        assert ("asked" in done.result["output"]) is is_asked
        assert not is_alive(pid)

    @pytest.mark.parametrize("how", ["timeout", *(Reason.CANCELLED, Reason.REPLACED, Reason.LEASE_LOST), "stop"])
    def test_all_process_groups_are_killed(self, tmp_path, brief, how):
        with command_runner() as runner:
            delivery = runner.start(
                command_assignment("sh", "-c", PROCESS_TREE, fields={"cwd": str(tmp_path)}, timeout=3_600 * SECOND)
            )
            pid_in(tmp_path / "ready")
            pids = [pid_in(tmp_path / name) for name in ("parent", "child", "grandchild", "apart")]
            if how == "timeout":
                runner.set_back_start(delivery, 3_600 * SECOND)
            elif how != "stop":
                delivery.stop(how)
            if how != "stop":
                done = runner.end_of(delivery)
                assert done.error == f"was killed by SIGKILL: {WHY.get(how, 'no end within 3600 s')}"
                eventually(lambda: not any(map(is_alive, pids)))
        eventually(lambda: not any(map(is_alive, pids)))

    def test_processes_outside_the_session_are_killed(self, runner, tmp_path, brief):
        daemon = "setsid sh -c 'trap \"\" TERM; echo $$ > daemon; while :; do sleep 1; done' &"
        script = f"{daemon} while ! test -s daemon; do sleep 0.01; done; echo $$ > parent; wait"
        delivery = runner.start(command_assignment("sh", "-c", script, fields={"cwd": str(tmp_path)}))
        pid_in(tmp_path / "parent")
        delivery.stop(Reason.CANCELLED)
        assert runner.end_of(delivery).outcome == "cancelled"
        assert not is_alive(pid_in(tmp_path / "daemon"))

    def test_command_may_clean_up(self, runner, tmp_path):
        script = "trap 'echo cleaned; exit 0' TERM; echo $$ > parent; while :; do sleep 0.02; done"
        delivery = runner.start(command_assignment("sh", "-c", script, fields={"cwd": str(tmp_path)}))
        pid_in(tmp_path / "parent")
        delivery.stop(Reason.CANCELLED)
        done = runner.end_of(delivery)
        assert (done.outcome, done.result["output"].endswith("cleaned\n")) == ("cancelled", True)

    def test_background_processes_end_with_the_command(self, runner, tmp_path):
        done = runner.run("sh", "-c", "sleep 600 & echo $! > child", fields={"cwd": str(tmp_path)})
        assert done.outcome == "completed"
        eventually(lambda: not is_alive(pid_in(tmp_path / "child")))

    def test_stopped_before_its_start_never_starts(self, runner, tmp_path):
        one = command_assignment("touch", str(tmp_path / "begun"), after=SECOND // 5)
        one.stop(Reason.CANCELLED)
        assert runner.end_of(runner.start(one)).outcome == "cancelled"
        assert not (tmp_path / "begun").exists()

    def test_nothing_starts_early(self, runner):
        one = command_assignment("true", after=SECOND // 5)
        assert runner.end_of(runner.start(one)).started >= one.begins

    def test_the_duration_of_a_short_command_includes_its_start(self, runner):
        done = [runner.run("true") for _ in range(10)]
        # A fork and an exec take longer than this, also when the end is reported together with the start.
        assert min(one.ended - one.started for one in done) > 100

    def test_queued_command_can_be_withdrawn(self):
        with command_runner() as runner:
            ones = [command_assignment("true", key=n, after=3_600 * SECOND) for n in range(2)]
            once = command_assignment("true", key="once", after=3_600 * SECOND, delivery=Delivery.AT_MOST_ONCE)
            runner.runner.deliver([*ones, once])
            assert runner.runner.withdraw() == ones

    def test_closing_the_runner_ends_all_commands(self, tmp_path):
        with command_runner() as runner:
            runner.start(command_assignment("sh", "-c", FAMILY, fields={"cwd": str(tmp_path)}))
            pids = pid_in(tmp_path / "parent"), pid_in(tmp_path / "child")
        eventually(lambda: not any(map(is_alive, pids)))

    def test_closing_window_ends_the_command(self, runner):
        done = runner.run("sleep", "60", window=Window(duration=SECOND // 5))
        assert (done.outcome, done.reason) == ("cancelled", Reason.WINDOW_CLOSED)


class TestWindows:
    def test_suspended_command_can_be_stopped(self, runner, tmp_path):
        window = Window(duration=SECOND // 5, end_action=EndAction.PAUSE)
        trigger = IntervalTrigger(60 * 86_400, start_at=from_micros(now()))
        delivery = runner.start(
            command_assignment(
                "sh", "-c", "echo $$ > parent; sleep 600", window=window, trigger=trigger, fields={"cwd": str(tmp_path)}
            )
        )
        pid = pid_in(tmp_path / "parent")
        eventually(lambda: is_stopped(pid))
        delivery.stop(Reason.CANCELLED)
        assert runner.end_of(delivery).outcome == "cancelled"

    def test_command_is_suspended_between_windows(self, runner, tmp_path):
        window = Window(duration=3 * SECOND // 10, end_action=EndAction.PAUSE)
        one = command_assignment(
            "sh",
            "-c",
            "echo $$ > parent; while ! test -e go; do sleep 0.02; done; echo went",
            window=window,
            trigger=IntervalTrigger(1, start_at=datetime(2020, 1, 1, tzinfo=UTC)),
            fields={"cwd": str(tmp_path)},
        )
        runner.start(one)
        pid = pid_in(tmp_path / "parent")
        eventually(lambda: is_stopped(pid))
        (tmp_path / "go").touch()
        done = runner.end_of(one)
        assert (done.outcome, done.result["output"]) == ("completed", "went\n")

    def test_children_are_suspended_and_resumed(self, runner, tmp_path, brief):
        window = Window(duration=3 * SECOND // 10, end_action=EndAction.PAUSE)
        trigger = IntervalTrigger(1, start_at=datetime(2020, 1, 1, tzinfo=UTC))
        delivery = runner.start(
            command_assignment("sh", "-c", PROCESS_TREE, window=window, trigger=trigger, fields={"cwd": str(tmp_path)})
        )
        pid_in(tmp_path / "ready")
        pids = [pid_in(tmp_path / name) for name in ("parent", "child", "grandchild", "apart")]
        for is_so in (all, lambda stopped: not any(stopped), all):
            eventually(lambda is_so=is_so: is_so([is_stopped(pid) for pid in pids]))
        delivery.stop(Reason.LEASE_LOST)
        assert runner.end_of(delivery).outcome == "lease_lost"
        eventually(lambda: not any(map(is_alive, pids)))

    def test_command_without_a_next_window_is_cancelled(self, runner, tmp_path):
        window = Window(duration=SECOND // 10, end_action=EndAction.PAUSE)
        script = "echo $$ > parent; sleep 60"
        delivery = runner.start(
            command_assignment("sh", "-c", script, window=window, trigger=None, fields={"cwd": str(tmp_path)})
        )
        done = runner.end_of(delivery)
        assert (done.outcome, done.reason) == ("cancelled", Reason.WINDOW_CLOSED)
        assert not is_alive(pid_in(tmp_path / "parent"))


class TestLimits:
    def test_memory_limit(self, runner):
        script = "x = bytearray(300_000_000); print(len(x))"
        assert runner.run(PYTHON, "-c", script).outcome == "completed"
        done = runner.run(PYTHON, "-c", script, fields={"limits": {"memory_mb": 200}})
        assert (done.outcome, "MemoryError" in done.error) == ("failed", True)

    def test_cpu_limit(self, runner):
        done = runner.run("sh", "-c", "while :; do :; done", fields={"limits": {"cpu_seconds": 1}})
        assert (done.outcome, done.error) == ("failed", "was killed by SIGXCPU")

    def test_nice(self, runner):
        done = runner.run("nice", fields={"limits": {"nice": 7}})
        assert int(done.result["output"]) == min(19, os.nice(0) + 7)


class TestSupervisor:
    def test_supervisor_starts_on_demand_and_is_replaced_when_lost(self, tmp_path):
        with command_runner() as runner:
            assert runner.runner._supervisor._process is None
            delivery = runner.start(command_assignment("sh", "-c", FAMILY, fields={"cwd": str(tmp_path)}))
            parent, child = pid_in(tmp_path / "parent"), pid_in(tmp_path / "child")
            runner.runner._supervisor._process.kill()
            done = runner.end_of(delivery)
            assert (done.outcome, "was lost" in done.error, done.is_unknown) == ("failed", True, True)
            eventually(lambda: not is_alive(parent) and not is_alive(child))
            eventually(lambda: runner.runner._supervisor._process.poll() is not None)
            assert runner.run("echo", "again", key="two").result["output"] == "again\n"
            supervisor = runner.runner._supervisor._process
        eventually(lambda: supervisor.poll() is not None)

    def test_command_that_timed_out_before_its_start_never_starts(self, tmp_path, monkeypatch):
        with command_runner() as runner:
            runner.run("true")
            monkeypatch.setattr(process, "START_LIMIT", SECOND // 10)
            supervisor = runner.runner._supervisor._process
            supervisor.send_signal(signal.SIGSTOP)
            done = runner.run("touch", str(tmp_path / "begun"))
            assert (done.outcome, done.is_unknown) == ("delivery_failed", False)
            assert "was not started within 0.1 s" in done.error
            monkeypatch.undo()
            supervisor.send_signal(signal.SIGCONT)
            runner.run("true")  # it has come to that one since
            assert not (tmp_path / "begun").exists()

    def test_supervisor_ignores_signals_for_the_node(self):
        with command_runner() as runner:
            runner.run("true")
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                runner.runner._supervisor._process.send_signal(number)
            assert runner.run("sh", "-c", "kill -TERM $$", key="two").error == "was killed by SIGTERM"

    def test_number_of_commands_is_limited(self):
        with command_runner() as runner:
            ones = [command_assignment("true", key=n) for n in range(80)]
            runner.runner.deliver(ones)
            assert {runner.end_of(one).outcome for one in ones} == {"completed"}
            assert runner.runner._pool._threads <= MAX_COMMANDS

    def test_supervisor_ends_everything_when_its_node_is_killed(self, tmp_path):
        script = textwrap.dedent(f"""
            import os, sys, time
            from tests.targets.command.harness import CommandHarness, command_assignment
            made = CommandHarness()
            made.start(command_assignment("sh", "-c", {FAMILY!r}, fields={{"cwd": {str(tmp_path)!r}}}))
            if not os.fork():  # who holds its files, but is not the node
                time.sleep(600)
            time.sleep(600)
        """)
        node = subprocess.Popen([PYTHON, "-c", script], cwd=Path(__file__).parents[3], start_new_session=True)
        pids = pid_in(tmp_path / "parent"), pid_in(tmp_path / "child")
        node.kill()
        node.wait()
        eventually(lambda: not any(map(is_alive, pids)))
        os.killpg(node.pid, signal.SIGKILL)


def test_secrets_of_a_command_reach_the_program_they_are_bound_to():
    store = MemoryStore(now)
    secret = Secret(name="hub", hosts=(), sealed="s3cr3t-value", created=1, updated=1, programs=("sh",))
    store.put_secret("acme", secret, most=9)
    fields = {"secret_env": {"TOKEN": "hub"}}
    script = ("-c", "echo $TOKEN; echo done")
    with command_runner(secrets=SecretResolver(store, Plain())) as runner:
        assert runner.run("sh", *script, fields=fields).result["output"] == "***\ndone\n"
        refused = runner.run("bash", *script, fields=fields)
        assert (refused.outcome, "--program bash" in refused.error) == ("delivery_failed", True)
    with command_runner() as runner:
        assert "cannot read secrets" in runner.run("sh", *script, fields=fields).error
