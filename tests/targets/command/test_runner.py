"""Commands: real programs, started, read, limited and made to end."""

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
from noonmark.core.policies.overlap import CancelRunning
from noonmark.core.policies.window import EndAction, Window
from noonmark.core.reasons import Reason
from noonmark.core.triggers import IntervalTrigger
from noonmark.targets import stop
from noonmark.targets.command import process
from noonmark.targets.command.output import MAX_JSON, MAX_OUTPUT, OutputTail
from noonmark.targets.command.runner import MAX_COMMANDS
from tests.embedded.waiting import eventually
from tests.targets.assignments import now
from tests.targets.command.harness import CLAN, is_alive, is_stopped, ordered, running

PYTHON = sys.executable
FAMILY = (
    "sh -c 'trap \"\" TERM; echo $$ > child; while :; do sleep 0.05; done' & "
    "while ! test -s child; do sleep 0.01; done; echo $$ > parent; wait"
)
"""A program with a child that ignores SIGTERM; each says its number in a file, the program itself last."""
STUBBORN = "trap '' TERM; echo $$ > parent; while :; do sleep 0.05; done"


WHY = {
    Reason.CANCELLED: "someone asked for it to be cancelled",
    Reason.LEASE_LOST: "its node stopped before it had ended",
    Reason.REPLACED: "a newer occurrence took its place",
}
"""What is said of one that was asked to stop."""


@pytest.fixture(scope="module")
def runner():
    with running() as made:
        yield made


@pytest.fixture
def brief(monkeypatch):
    """Nobody waits long for a program that does not want to end."""
    monkeypatch.setattr(stop, "STOP_GRACE", SECOND // 10)


def pid_in(path):
    return int(eventually(lambda: path.exists() and path.read_text().strip()))


class TestWhatItIsGiven:
    def test_arguments_are_passed_as_they_are(self, runner):
        words = ["; rm -rf x", "$(id)", "`id`", "a\nb", "-rf", "*", "", "ä€", "\u202e", "%s", "&&"]
        done = runner.run(PYTHON, "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *words)
        assert json.loads(done.result["output"]) == words
        assert (done.outcome, done.result["exit_code"], done.error) == ("completed", 0, None)

    def test_its_environment_is_clean(self, runner, monkeypatch):
        monkeypatch.setenv("AWS_SECRET", "hush")
        monkeypatch.setenv("NOONMARK_STORE", "postgresql://u:hush@h/d")
        one = ordered("env", fields={"env": {"LEVEL": "9", "NOONMARK_ATTEMPT": "7", "B": "x=y\nz"}})
        output = runner.end_of(runner.start(one)).result["output"]
        assert "hush" not in output
        lines = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
        assert (lines["LEVEL"], lines["PATH"], lines["B"]) == ("9", os.environ["PATH"], "x=y")
        assert lines["NOONMARK_OCCURRENCE_ID"] == one.occurrence.id
        assert lines["NOONMARK_SCHEDULE_ID"] == one.schedule.schedule_id
        assert lines["NOONMARK_ATTEMPT"] == "1"
        assert lines["NOONMARK_NOMINAL_TIME"].endswith("Z")
        known = {"LEVEL", "B", "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"}
        assert {name for name in lines if not name.startswith("NOONMARK_")} <= known

    def test_it_has_no_file_of_the_node_open(self, runner):
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
    def test_it_reads_its_payload_or_its_input(self, runner, payload, fields, read):
        assert runner.run("cat", payload=payload, fields=fields).result["output"] == read

    def test_an_event_brings_its_payload_and_its_name(self, runner):
        brought = {"event_id": "e1", "event_type": "uploaded", "source": "", "payload": {"path": "/x"}}
        script = 'cat; echo; echo "$NOONMARK_EVENT_ID $NOONMARK_EVENT_TYPE"'
        done = runner.run("sh", "-c", script, payload=brought, origin=event("e1"), fields={"payload": {"else": 1}})
        assert done.result["output"] == '{"path": "/x"}\ne1 uploaded\n'

    def test_a_large_input_is_read_while_output_is_written(self, runner):
        text = "0123456789abcdef" * 16_000
        done = runner.run(PYTHON, "-c", "import sys; d = sys.stdin.read(); print(d); print(len(d))", payload=text)
        assert done.result["output"].endswith("\n256002\n")

    def test_an_input_that_nobody_reads_is_no_failure(self, runner):
        assert runner.run("true", fields={"stdin": "x" * 262_144}).outcome == "completed"

    def test_it_starts_in_its_folder(self, runner, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "jobs").mkdir()
        assert runner.run("pwd").result["output"] == f"{tmp_path}\n"
        assert runner.run("pwd", fields={"cwd": "jobs"}).result["output"] == f"{tmp_path}/jobs\n"
        done = runner.run("pwd", fields={"cwd": "/nowhere"})
        assert (done.outcome, "No such file" in done.error) == ("delivery_failed", True)


class TestWhatItSays:
    def test_another_exit_code_is_a_failure_with_the_last_lines(self, runner):
        done = runner.run("sh", "-c", "seq 1 30; echo worse >&2; exit 3")
        assert (done.outcome, done.result["exit_code"]) == ("failed", 3)
        assert done.error.splitlines() == [*map(str, range(12, 31)), "worse", "exited with code 3"]
        assert done.result["output"].startswith("1\n2\n")

    def test_a_signal_is_a_failure_too(self, runner):
        done = runner.run("sh", "-c", "kill -SEGV $$")
        assert (done.outcome, done.error) == ("failed", "was killed by SIGSEGV")

    def test_the_error_for_a_caller_in_this_process_is_that_of_subprocess(self, runner):
        one = runner.start(ordered("sh", "-c", "echo no; exit 4"))
        runner.end_of(one)
        assert isinstance(one.error, subprocess.CalledProcessError)
        assert (one.error.returncode, one.error.output) == (4, "no\n")

    def test_of_a_flood_the_end_is_kept(self, runner):
        done = runner.run("sh", "-c", "yes 0123456789 | head -c 22000000; echo the end")
        assert done.outcome == "completed"
        assert done.result["output"].endswith("0123456789\nthe end\n")
        assert len(done.result["output"]) <= MAX_OUTPUT
        assert done.result["output_dropped"] + len(done.result["output"]) == 22_000_000 + len("the end\n")

    def test_what_is_no_text_is_kept_as_far_as_it_can_be(self, runner):
        done = runner.run(PYTHON, "-c", r"import os; os.write(1, b'a\0b\xff\xfe\x1b[1m')")
        assert done.result["output"] == "a\ufffdb\ufffd\ufffd\x1b[1m"

    @pytest.mark.parametrize("piece", [b"\x01", "ä".encode(), "😀".encode(), b"\xff", b"a\n"])
    def test_what_is_kept_fits_into_a_record(self, piece):
        tail = OutputTail()
        for _ in range(5):
            tail.add(piece * 20_001)
        assert len(json.dumps(tail.text())) <= MAX_JSON
        assert tail.total == 5 * 20_001 * len(piece)
        if piece != b"\xff":
            assert "\ufffd" not in tail.text()

    def test_who_left_the_group_and_holds_the_output_is_not_waited_for(self, runner, tmp_path):
        script = "setsid sh -c 'echo $$ > child; exec sleep 600' & while ! test -s child; do sleep 0.02; done; echo ok"
        done = runner.run("sh", "-c", script, fields={"cwd": str(tmp_path)})
        assert (done.outcome, done.result["output"]) == ("completed", "ok\n")
        os.kill(pid_in(tmp_path / "child"), signal.SIGKILL)


class TestWhatIsStarted:
    def test_what_is_not_there_cannot_be_delivered(self, runner, tmp_path):
        for name in ("no-such-program", str(tmp_path / "x"), str(tmp_path), ".", ".."):
            done = runner.run(name)
            assert (done.outcome, "was not found on this node" in done.error) == ("delivery_failed", True)

    def test_what_is_no_program_cannot_be_delivered(self, runner, tmp_path):
        (tmp_path / "x").write_bytes(b"\x7fELF nonsense")
        (tmp_path / "x").chmod(0o700)
        done = runner.run(str(tmp_path / "x"))
        assert (done.outcome, "could not be started" in done.error) == ("delivery_failed", True)

    def test_arguments_that_are_too_long_cannot_be_delivered(self, runner):
        done = runner.run("true", *["x" * 131_072] * 40)
        assert (done.outcome, "too long" in done.error) == ("delivery_failed", True)

    def test_a_relative_path_is_refused(self, runner, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "x").symlink_to("/bin/true")
        for name in ("./x", "sub/x", "../x"):
            assert "is a relative path" in runner.run(name).error

    def test_a_relative_folder_of_the_path_names_nothing(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine").symlink_to("/bin/true")
        monkeypatch.setenv("PATH", f".:{os.pathsep}{os.environ['PATH']}")
        with running("mine") as made:
            assert "was not found" in made.run("mine").error
            assert "was not found" in made.run("mine", source="rest").error


class TestWhatIsAllowed:
    def test_nothing_that_came_over_the_network_unless_it_is_named(self, tmp_path):
        mine = tmp_path / "echo"
        mine.symlink_to("/bin/sh")
        with running("echo", "/bin/cat") as made:
            assert made.run("echo", "hello", source="rest").result["output"] == "hello\n"
            assert made.run("/bin/cat", source="jsonrpc").outcome == "completed"
            # Not by its path, not by a file of that name, not by another way to the same file.
            for name in ("/bin/echo", "cat", str(mine), "/bin/../bin/cat", "//bin/cat", "/bin/cat ", "sh", "*", "ECHO"):
                done = made.run(name, "x", source="rest")
                assert (done.outcome, "--allow-commands" in done.error) == ("delivery_failed", True)
            assert made.run("sh", "-c", "echo trusted").result["output"] == "trusted\n"

    def test_a_star_allows_all(self):
        with running("*") as made:
            assert made.run("sh", "-c", "exit 0", source="rest").outcome == "completed"
            assert "is a relative path" in made.run("./sh", source="rest").error

    def test_a_name_means_the_same_program_for_as_long_as_the_node_lives(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        mine = tmp_path / "mine"
        mine.symlink_to("/bin/echo")
        with running("mine") as made:
            mine.unlink()
            mine.symlink_to("/bin/cat")
            assert made.run("mine", "one", source="rest").result["output"] == "one\n"


class TestHowItIsMadeToEnd:
    def test_it_ends_by_itself_though_its_timeout_is_months_away(self, runner):
        done = runner.run("sh", "-c", "sleep 0.2; echo done", timeout=366 * 86_400 * SECOND)
        assert (done.outcome, done.result["output"]) == ("completed", "done\n")

    def test_its_timeout_ends_it_and_its_children(self, runner, tmp_path, brief):
        one = runner.start(ordered("sh", "-c", FAMILY, fields={"cwd": str(tmp_path)}, timeout=3_600 * SECOND))
        pids = pid_in(tmp_path / "parent"), pid_in(tmp_path / "child")
        one.started -= 3_600 * SECOND  # as if it had begun long ago
        one.signal.set()  # and somebody looks
        done = runner.end_of(one)
        assert (done.outcome, done.result["exit_code"]) == ("timed_out", -signal.SIGTERM)
        eventually(lambda: not any(map(is_alive, pids)))

    def test_a_short_timeout_does_too(self, runner):
        assert runner.run("sleep", "60", timeout=SECOND // 10).outcome == "timed_out"

    @pytest.mark.parametrize(("reason", "why"), WHY.items())
    def test_one_that_is_asked_to_stop_ends_with_its_children(self, runner, tmp_path, brief, reason, why):
        one = runner.start(ordered("sh", "-c", FAMILY, fields={"cwd": str(tmp_path)}))
        parent, child = pid_in(tmp_path / "parent"), pid_in(tmp_path / "child")
        one.stop(reason)
        done = runner.end_of(one)
        outcome = "lease_lost" if reason is Reason.LEASE_LOST else "cancelled"
        assert (done.outcome, done.error) == (outcome, f"was killed by SIGTERM: {why}")
        eventually(lambda: not is_alive(parent) and not is_alive(child))

    def test_one_that_does_not_want_to_is_killed(self, runner, tmp_path, brief):
        one = runner.start(ordered("sh", "-c", STUBBORN, fields={"cwd": str(tmp_path)}))
        pid = pid_in(tmp_path / "parent")
        one.stop(Reason.CANCELLED)
        done = runner.end_of(one)
        said = f"was killed by SIGKILL: {WHY[Reason.CANCELLED]}"
        assert (done.outcome, done.error, is_alive(pid)) == ("cancelled", said, False)

    def test_one_that_is_replaced_has_the_time_that_its_policy_gives(self, runner, tmp_path):
        policy = CancelRunning(cancel_grace=SECOND // 10)
        one = runner.start(ordered("sh", "-c", STUBBORN, fields={"cwd": str(tmp_path)}, overlap_policy=policy))
        pid_in(tmp_path / "parent")
        one.stop(Reason.REPLACED)
        assert runner.end_of(one).error == f"was killed by SIGKILL: {WHY[Reason.REPLACED]}"

    @pytest.mark.parametrize("how", ["timeout", *(Reason.CANCELLED, Reason.REPLACED, Reason.LEASE_LOST), "stop"])
    def test_a_whole_family_ends_that_does_not_want_to(self, tmp_path, brief, how):
        with running() as made:
            one = made.start(ordered("sh", "-c", CLAN, fields={"cwd": str(tmp_path)}, timeout=3_600 * SECOND))
            pid_in(tmp_path / "ready")
            pids = [pid_in(tmp_path / name) for name in ("parent", "child", "grandchild", "apart")]
            if how == "timeout":
                one.started -= 3_600 * SECOND  # as if it had begun long ago
                one.signal.set()  # and somebody looks
            elif how != "stop":
                one.stop(how)
            if how != "stop":
                done = made.end_of(one)
                assert done.error == f"was killed by SIGKILL: {WHY.get(how, 'no end within 3600 s')}"
                eventually(lambda: not any(map(is_alive, pids)))
        eventually(lambda: not any(map(is_alive, pids)))

    def test_who_has_left_the_session_ends_too(self, runner, tmp_path, brief):
        daemon = "setsid sh -c 'trap \"\" TERM; echo $$ > daemon; while :; do sleep 1; done' &"
        script = f"{daemon} while ! test -s daemon; do sleep 0.01; done; echo $$ > parent; wait"
        one = runner.start(ordered("sh", "-c", script, fields={"cwd": str(tmp_path)}))
        pid_in(tmp_path / "parent")
        one.stop(Reason.CANCELLED)
        assert runner.end_of(one).outcome == "cancelled"
        assert not is_alive(pid_in(tmp_path / "daemon"))

    def test_it_may_clean_up(self, runner, tmp_path):
        script = "trap 'echo cleaned; exit 0' TERM; echo $$ > parent; while :; do sleep 0.02; done"
        one = runner.start(ordered("sh", "-c", script, fields={"cwd": str(tmp_path)}))
        pid_in(tmp_path / "parent")
        one.stop(Reason.CANCELLED)
        done = runner.end_of(one)
        assert (done.outcome, done.result["output"].endswith("cleaned\n")) == ("cancelled", True)

    def test_what_it_leaves_behind_ends_with_it(self, runner, tmp_path):
        done = runner.run("sh", "-c", "sleep 600 & echo $! > child", fields={"cwd": str(tmp_path)})
        assert done.outcome == "completed"
        eventually(lambda: not is_alive(pid_in(tmp_path / "child")))

    def test_one_that_has_not_begun_never_does(self, runner, tmp_path):
        one = ordered("touch", str(tmp_path / "begun"), after=SECOND // 5)
        one.stop(Reason.CANCELLED)
        assert runner.end_of(runner.start(one)).outcome == "cancelled"
        assert not (tmp_path / "begun").exists()

    def test_nothing_begins_before_its_time(self, runner):
        one = ordered("true", after=SECOND // 5)
        assert runner.end_of(runner.start(one)).started >= one.begins

    def test_one_that_waits_can_be_taken_back(self):
        with running() as made:
            ones = [ordered("true", key=n, after=3_600 * SECOND) for n in range(2)]
            once = ordered("true", key="once", after=3_600 * SECOND, delivery=Delivery.AT_MOST_ONCE)
            made.runner.deliver([*ones, once])
            assert made.runner.withdraw() == ones

    def test_when_the_node_stops_so_does_everything(self, tmp_path):
        with running() as made:
            made.start(ordered("sh", "-c", FAMILY, fields={"cwd": str(tmp_path)}))
            pids = pid_in(tmp_path / "parent"), pid_in(tmp_path / "child")
        eventually(lambda: not any(map(is_alive, pids)))

    def test_when_the_window_closes_it_ends(self, runner):
        done = runner.run("sleep", "60", window=Window(duration=SECOND // 5))
        assert (done.outcome, done.reason) == ("cancelled", Reason.WINDOW_CLOSED)


class TestWindows:
    def test_it_ends_when_it_is_asked_to_though_the_next_is_months_away(self, runner, tmp_path):
        window = Window(duration=SECOND // 5, end_action=EndAction.PAUSE)
        trigger = IntervalTrigger(60 * 86_400, start_at=from_micros(now()))
        one = runner.start(
            ordered(
                "sh", "-c", "echo $$ > parent; sleep 600", window=window, trigger=trigger, fields={"cwd": str(tmp_path)}
            )
        )
        pid = pid_in(tmp_path / "parent")
        eventually(lambda: is_stopped(pid))
        one.stop(Reason.CANCELLED)
        assert runner.end_of(one).outcome == "cancelled"

    def test_it_is_suspended_when_its_window_closes_and_goes_on_in_the_next(self, runner, tmp_path):
        window = Window(duration=3 * SECOND // 10, end_action=EndAction.PAUSE)
        one = ordered(
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

    def test_its_children_are_suspended_with_it_and_go_on_with_it(self, runner, tmp_path, brief):
        window = Window(duration=3 * SECOND // 10, end_action=EndAction.PAUSE)
        trigger = IntervalTrigger(1, start_at=datetime(2020, 1, 1, tzinfo=UTC))
        one = runner.start(ordered("sh", "-c", CLAN, window=window, trigger=trigger, fields={"cwd": str(tmp_path)}))
        pid_in(tmp_path / "ready")
        pids = [pid_in(tmp_path / name) for name in ("parent", "child", "grandchild", "apart")]
        for is_so in (all, lambda stopped: not any(stopped), all):
            eventually(lambda is_so=is_so: is_so([is_stopped(pid) for pid in pids]))
        one.stop(Reason.LEASE_LOST)
        assert runner.end_of(one).outcome == "lease_lost"
        eventually(lambda: not any(map(is_alive, pids)))

    def test_without_a_next_one_it_stays_suspended_until_it_must_end(self, runner, tmp_path):
        window = Window(duration=SECOND // 10, end_action=EndAction.PAUSE)
        script = "echo $$ > parent; sleep 60"
        one = runner.start(ordered("sh", "-c", script, window=window, trigger=None, fields={"cwd": str(tmp_path)}))
        pid = pid_in(tmp_path / "parent")
        eventually(lambda: is_stopped(pid))
        one.stop(Reason.CANCELLED)
        assert runner.end_of(one).error == f"was killed by SIGTERM: {WHY[Reason.CANCELLED]}"
        assert not is_alive(pid)


class TestLimits:
    def test_memory(self, runner):
        script = "x = bytearray(300_000_000); print(len(x))"
        assert runner.run(PYTHON, "-c", script).outcome == "completed"
        done = runner.run(PYTHON, "-c", script, fields={"limits": {"memory_mb": 200}})
        assert (done.outcome, "MemoryError" in done.error) == ("failed", True)

    def test_time_on_a_processor(self, runner):
        done = runner.run("sh", "-c", "while :; do :; done", fields={"limits": {"cpu_seconds": 1}})
        assert (done.outcome, done.error) == ("failed", "was killed by SIGXCPU")

    def test_standing_back(self, runner):
        done = runner.run("nice", fields={"limits": {"nice": 7}})
        assert int(done.result["output"]) == min(19, os.nice(0) + 7)


class TestSupervisor:
    def test_it_is_there_only_when_it_is_needed_and_replaced_when_it_is_lost(self, tmp_path):
        with running() as made:
            assert made.runner._supervisor._process is None
            one = made.start(ordered("sh", "-c", FAMILY, fields={"cwd": str(tmp_path)}))
            parent, child = pid_in(tmp_path / "parent"), pid_in(tmp_path / "child")
            made.runner._supervisor._process.kill()
            done = made.end_of(one)
            assert (done.outcome, "was lost" in done.error, done.is_unknown) == ("failed", True, True)
            eventually(lambda: not is_alive(parent) and not is_alive(child))
            eventually(lambda: made.runner._supervisor._process.poll() is not None)
            assert made.run("echo", "again", key="two").result["output"] == "again\n"
            supervisor = made.runner._supervisor._process
        eventually(lambda: supervisor.poll() is not None)

    def test_what_it_was_not_told_to_start_in_time_it_never_starts(self, tmp_path, monkeypatch):
        with running() as made:
            made.run("true")
            monkeypatch.setattr(process, "START_LIMIT", SECOND // 10)
            supervisor = made.runner._supervisor._process
            supervisor.send_signal(signal.SIGSTOP)
            done = made.run("touch", str(tmp_path / "begun"))
            assert (done.outcome, done.is_unknown) == ("delivery_failed", False)
            assert "was not started within 0.1 s" in done.error
            monkeypatch.undo()
            supervisor.send_signal(signal.SIGCONT)
            made.run("true")  # it has come to that one since
            assert not (tmp_path / "begun").exists()

    def test_it_does_not_hear_what_is_meant_for_the_node(self):
        with running() as made:
            made.run("true")
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                made.runner._supervisor._process.send_signal(number)
            assert made.run("sh", "-c", "kill -TERM $$", key="two").error == "was killed by SIGTERM"

    def test_many_at_once_are_bounded(self):
        with running() as made:
            ones = [ordered("true", key=n) for n in range(80)]
            made.runner.deliver(ones)
            assert {made.end_of(one).outcome for one in ones} == {"completed"}
            assert made.runner._pool._threads <= MAX_COMMANDS

    def test_it_ends_everything_when_its_node_is_killed(self, tmp_path):
        script = textwrap.dedent(f"""
            import os, sys, time
            from tests.targets.command.harness import Runner, ordered
            made = Runner()
            made.start(ordered("sh", "-c", {FAMILY!r}, fields={{"cwd": {str(tmp_path)!r}}}))
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
