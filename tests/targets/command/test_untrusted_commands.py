"""Commands from the network: their directory, their environment, and pinned programs."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from noonmark.core.targets.command import CommandRules
from noonmark.targets.command import programs
from noonmark.targets.command.client import CommandRequest, SupervisorClient
from noonmark.targets.command.programs import Pin
from noonmark.targets.command.run_directories import RunDirectories
from noonmark.targets.command.supervisor import RUN_VARIABLE
from tests.embedded.waiting import eventually
from tests.targets.command.harness import command_assignment, command_runner

PYTHON = os.path.realpath(sys.executable)
VARIABLES = [
    *("TAR_OPTIONS", "MAKEFILES", "OPENSSL_CONF", "HOME", "COMPILER_PATH", "LD_PRELOAD", "PATH", "BASH_ENV"),
    *("PYTHONPATH", "NODE_OPTIONS", "GIT_SSH_COMMAND", "NOONMARK_STORE", "NOONMARK_ATTEMPT", "FINE"),
]
RULES = CommandRules(reserved=frozenset({"NOONMARK_STORE"}))


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """The parent of run directories."""
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(made))
    return made


@pytest.fixture
def script(tmp_path):
    def write(text, name="script"):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return write


def run(made, *argv, **fields):
    return made.run(*argv, source="rest", fields=fields)


class TestEnvironment:
    @pytest.mark.parametrize("name", VARIABLES)
    def test_variables_that_are_not_allowed_are_refused(self, name):
        with command_runner("env", rules=RULES) as runner:
            done = run(runner, "env", env={name: "/x"})
            assert (done.outcome, done.result, f"env.{name}: " in done.error) == ("delivery_failed", None, True)

    def test_allowed_and_private_variables_are_passed(self):
        with command_runner("env", rules=CommandRules(env=frozenset({"LEVEL"}))) as runner:
            output = run(runner, "env", env={"LEVEL": "9", "NOONMARK_MINE": "1"}).result["output"]
        assert {"LEVEL=9", "NOONMARK_MINE=1"} <= set(output.splitlines())

    def test_path_has_no_relative_folder(self, monkeypatch):
        monkeypatch.setenv("PATH", f".:{os.environ['PATH']}::bin")
        with command_runner("env") as runner:
            lines = run(runner, "env").result["output"].splitlines()
        [path] = [line for line in lines if line.startswith("PATH=")]
        assert all(one.startswith("/") for one in path.removeprefix("PATH=").split(":"))

    def test_trusted_commands_are_not_restricted(self, tmp_path):
        with command_runner("env") as runner:
            done = runner.run("sh", "-c", "pwd; echo $HOME $LD_X", fields={"env": {"LD_X": "1"}, "cwd": str(tmp_path)})
        assert done.result["output"] == f"{tmp_path}\n{os.environ['HOME']} 1\n"


class TestRunDirectories:
    def test_each_run_has_a_private_home_which_is_removed(self, script, temporary):
        look = script(
            'pwd; echo "$HOME"; ls -A; stat -c %a .; mkdir -p a/b; ln -s / a/link; touch a/b/c; chmod 0 a/b a'
        )
        with command_runner(look) as runner:
            outputs = [run(runner, look).result["output"].splitlines() for _ in range(2)]
            assert [(cwd == home, mode) for cwd, home, mode in outputs] == [(True, "700")] * 2
            assert len({cwd for cwd, _, _ in outputs}) == 2
            assert not any(Path(cwd).exists() for cwd, _, _ in outputs)
        assert list(temporary.iterdir()) == []

    def test_home_is_removed_when_the_node_stops(self, script, temporary, tmp_path):
        waits = script(f"touch {tmp_path}/begun; sleep 600")
        with command_runner(waits) as runner:
            runner.start(command_assignment(waits, source="rest"))
            eventually((tmp_path / "begun").exists)
            assert list(temporary.iterdir()) != []
        eventually(lambda: list(temporary.iterdir()) == [])

    def test_only_stale_directories_are_removed(self, temporary):
        left, other, mine = RunDirectories(), RunDirectories(), temporary / "noonmark-runs-not-mine"
        with left.create() as lost, other.create() as kept:
            Path(lost, "data").write_text("x")
            mine.mkdir()
            (temporary / f"noonmark-runs-{os.geteuid()}-link").symlink_to(mine)
            os.close(left._lock_fd)  # as the kernel does when a process is gone
            RunDirectories().remove_stale()
            assert (Path(lost).parent.exists(), Path(kept).exists(), mine.exists()) == (False, True, True)
            left._lock_fd = -1

    def test_deleted_base_directory_is_created_again(self, temporary):
        folders = RunDirectories()
        with folders.create():
            pass
        [base] = temporary.iterdir()
        shutil.rmtree(base)
        with folders.create() as folder:
            assert Path(folder).is_dir()
        folders.close()
        with pytest.raises(OSError, match="is stopping"), folders.create():
            pass

    def test_links_do_not_lead_out_of_the_allowed_folders(self, script, tmp_path):
        allowed, uploads, elsewhere = tmp_path / "jobs", tmp_path / "jobs" / "uploads", tmp_path / "elsewhere"
        for one in (allowed / "inner", uploads / "upl_1", elsewhere):
            one.mkdir(parents=True)
        (allowed / "out").symlink_to(elsewhere)
        (allowed / "link").symlink_to(uploads / "upl_1")
        (tmp_path / "way").symlink_to(allowed)
        where = script("pwd -P")
        rules = CommandRules(folders=(str(tmp_path / "way"),))
        way = str(tmp_path / "way")
        with command_runner(where, rules=rules, uploads=uploads) as runner:
            for cwd in (way, f"{way}/inner", f"{way}/inner/../inner"):
                assert run(runner, where, cwd=cwd).result["output"].startswith(str(allowed)), cwd
            for cwd, why in {
                str(allowed): "not below a folder",
                "inner": "absolute path",
                f"{way}/out": "not below a folder",
                f"{way}/..": "not below a folder",
                f"{way}/uploads": "uploaded files",
                f"{way}/uploads/upl_1": "uploaded files",
                f"{way}/link": "uploaded files",
                f"{way}/inner/../link": "uploaded files",
                f"{way}/nowhere": "No such file",
            }.items():
                done = run(runner, where, cwd=cwd)
                assert (done.outcome, why in done.error) == ("delivery_failed", True), (cwd, done)

    def test_no_folder_is_allowed_by_default(self, script, tmp_path):
        where = script("pwd")
        with command_runner(where) as runner:
            assert run(runner, where, cwd=str(tmp_path)).outcome == "delivery_failed"


class TestPinnedPrograms:
    def test_replaced_script_is_not_started(self, script, tmp_path):
        path = script("echo old")
        with command_runner(path) as runner:
            assert run(runner, path).result["output"] == "old\n"
            Path(script("echo new", "other")).rename(path)
            for _ in range(2):
                done = run(runner, path)
                assert (done.outcome, done.result) == ("delivery_failed", None)
                assert "was replaced on disk since this node started" in done.error
                assert "Restart the server" in done.error
            # Trusted schedules may start it.
            assert runner.run(path).result["output"] == "new\n"
        with command_runner(path) as again:
            assert run(again, path).result["output"] == "new\n"

    def test_overwritten_or_removed_program_is_not_started(self, script):
        path = script("echo old")
        with command_runner(path) as runner:
            Path(path).write_text("#!/bin/sh\necho somewhat longer\n")
            assert "was replaced on disk" in run(runner, path).error
            Path(path).unlink()
            assert "cannot be read any more" in run(runner, path).error

    def test_replaced_binary_is_not_started(self, tmp_path):
        path = tmp_path / "binary"
        shutil.copy("/bin/echo", path)
        with command_runner(str(path)) as runner:
            assert run(runner, str(path), "old").result["output"] == "old\n"
            shutil.copy("/bin/echo", tmp_path / "other")
            (tmp_path / "other").rename(path)
            assert "was replaced on disk" in run(runner, str(path), "new").error

    def test_digest_pin_accepts_the_same_content(self, script):
        path = script("echo old")
        with command_runner(path, pin=Pin.DIGEST) as runner:
            Path(script("echo old", "other")).rename(path)
            assert run(runner, path).result["output"] == "old\n"
            before = Path(path).stat()
            Path(path).write_text("#!/bin/sh\necho new\n")
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            assert "was replaced on disk" in run(runner, path).error

    def test_unreadable_program_does_not_prevent_the_start_of_a_node(self, monkeypatch):
        """A program may be runnable and not readable. Root can read everything, so the digest fails instead."""

        def refuse(*_):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(programs, "file_digest", refuse)
        with command_runner("cat", pin=Pin.DIGEST) as runner:
            assert "could not be read or run" in run(runner, "cat").error

    @pytest.mark.parametrize("kind", ["script", "binary"])
    def test_program_replaced_after_the_check_is_not_started(self, script, tmp_path, kind):
        path = script("echo new") if kind == "script" else shutil.copy("/bin/echo", tmp_path / "echo")
        before = Path("/bin/cat").stat()
        identity = (before.st_dev, before.st_ino, before.st_size, before.st_mtime_ns)
        assert "has just been replaced" in started(str(path), cwd="/", identity=identity)["error"]

    def test_program_is_not_started_in_a_replaced_folder(self, tmp_path):
        assert (
            "directory has just been replaced" in started("/bin/true", cwd=str(tmp_path), cwd_identity=(1, 1))["error"]
        )
        found = tmp_path.stat()
        assert "pid" in started("/bin/true", cwd=str(tmp_path), cwd_identity=(found.st_dev, found.st_ino))

    def test_binary_inherits_no_file_descriptor(self):
        with command_runner(PYTHON) as runner:
            done = run(runner, PYTHON, "-c", "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:4])")
        assert done.result["output"] == "[0, 1, 2, 3]\n"

    def test_unreadable_program_is_started_by_its_path(self, tmp_path):
        path = tmp_path / "binary"
        shutil.copy("/bin/echo", path)
        path.chmod(0o111)
        with command_runner(str(path)) as runner:
            assert run(runner, str(path), "x").result["output"] == "x\n"

    def test_script_knows_its_own_path(self, script):
        path = script('echo "$0"')
        with command_runner(path) as runner:
            assert run(runner, path).result["output"] == f"{path}\n"


def started(program, **fields):
    """The answer of the supervisor to a request."""
    keeping = SupervisorClient()
    order = CommandRequest(
        program=program,
        argv=(program,),
        env={RUN_VARIABLE: f"{os.getpid()}-{id(keeping)}"},
        limits={},
        stdin=b"",
        **fields,
    )
    kept = keeping.start(order)
    try:
        assert eventually(lambda: kept.receive(1)) == [{"ready": True}]
        assert kept.go()
        return eventually(lambda: kept.receive(1))[0]
    finally:
        kept.close()
        keeping.close()
