"""Commands that came over the network: where they start, with what environment, and that they are what was allowed."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from noonmark.core.targets.command import CommandRules
from noonmark.targets import programs
from noonmark.targets.keeper import RUN_MARK
from noonmark.targets.keeping import Keeping, Order
from noonmark.targets.programs import Pin
from noonmark.targets.run_folders import RunFolders
from tests.embedded.waiting import eventually
from tests.targets.ordered import ordered, running

PYTHON = os.path.realpath(sys.executable)
VARIABLES = [
    *("TAR_OPTIONS", "MAKEFILES", "OPENSSL_CONF", "HOME", "COMPILER_PATH", "LD_PRELOAD", "PATH", "BASH_ENV"),
    *("PYTHONPATH", "NODE_OPTIONS", "GIT_SSH_COMMAND", "NOONMARK_STORE", "NOONMARK_ATTEMPT", "FINE"),
]
RULES = CommandRules(reserved=frozenset({"NOONMARK_STORE"}))


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Where the folders of runs are made."""
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
    def test_no_variable_is_taken_that_is_not_named(self, name):
        with running("env", rules=RULES) as made:
            done = run(made, "env", env={name: "/x"})
            assert (done.outcome, done.result, f"env.{name}: " in done.error) == ("delivery_failed", None, True)

    def test_those_that_are_named_and_names_of_its_own_are(self):
        with running("env", rules=CommandRules(env=frozenset({"LEVEL"}))) as made:
            output = run(made, "env", env={"LEVEL": "9", "NOONMARK_MINE": "1"}).result["output"]
        assert {"LEVEL=9", "NOONMARK_MINE=1"} <= set(output.splitlines())

    def test_path_has_no_folder_that_depends_on_where_it_starts(self, monkeypatch):
        monkeypatch.setenv("PATH", f".:{os.environ['PATH']}::bin")
        with running("env") as made:
            lines = run(made, "env").result["output"].splitlines()
        [path] = [line for line in lines if line.startswith("PATH=")]
        assert all(one.startswith("/") for one in path.removeprefix("PATH=").split(":"))

    def test_what_a_program_declared_keeps_its_freedom(self, tmp_path):
        with running("env") as made:
            done = made.run("sh", "-c", "pwd; echo $HOME $LD_X", fields={"env": {"LD_X": "1"}, "cwd": str(tmp_path)})
        assert done.result["output"] == f"{tmp_path}\n{os.environ['HOME']} 1\n"


class TestFolder:
    def test_each_run_has_an_empty_one_of_its_own_which_is_its_home_and_is_removed(self, script, temporary):
        look = script(
            'pwd; echo "$HOME"; ls -A; stat -c %a .; mkdir -p a/b; ln -s / a/link; touch a/b/c; chmod 0 a/b a'
        )
        with running(look) as made:
            outputs = [run(made, look).result["output"].splitlines() for _ in range(2)]
            assert [(cwd == home, mode) for cwd, home, mode in outputs] == [(True, "700")] * 2
            assert len({cwd for cwd, _, _ in outputs}) == 2
            assert not any(Path(cwd).exists() for cwd, _, _ in outputs)
        assert list(temporary.iterdir()) == []

    def test_it_is_removed_when_the_node_stops_before_the_program_has_ended(self, script, temporary, tmp_path):
        waits = script(f"touch {tmp_path}/begun; sleep 600")
        with running(waits) as made:
            made.start(ordered(waits, source="rest"))
            eventually((tmp_path / "begun").exists)
            assert list(temporary.iterdir()) != []
        eventually(lambda: list(temporary.iterdir()) == [])

    def test_what_a_process_left_that_was_killed_is_removed_by_the_next_and_nothing_else(self, temporary):
        left, other, mine = RunFolders(), RunFolders(), temporary / "noonmark-runs-not-mine"
        with left.lend() as lost, other.lend() as kept:
            Path(lost, "data").write_text("x")
            mine.mkdir()
            (temporary / f"noonmark-runs-{os.geteuid()}-link").symlink_to(mine)
            os.close(left._held)  # as the kernel does when a process is gone
            RunFolders().sweep()
            assert (Path(lost).parent.exists(), Path(kept).exists(), mine.exists()) == (False, True, True)
            left._held = -1

    def test_one_that_was_tidied_away_is_made_again(self, temporary):
        folders = RunFolders()
        with folders.lend():
            pass
        [base] = temporary.iterdir()
        shutil.rmtree(base)
        with folders.lend() as made:
            assert Path(made).is_dir()
        folders.close()
        with pytest.raises(OSError, match="about to stop"), folders.lend():
            pass

    def test_it_starts_below_what_is_allowed_wherever_links_lead(self, script, tmp_path):
        allowed, uploads, elsewhere = tmp_path / "jobs", tmp_path / "jobs" / "uploads", tmp_path / "elsewhere"
        for one in (allowed / "inner", uploads / "upl_1", elsewhere):
            one.mkdir(parents=True)
        (allowed / "out").symlink_to(elsewhere)
        (allowed / "link").symlink_to(uploads / "upl_1")
        (tmp_path / "way").symlink_to(allowed)
        where = script("pwd -P")
        rules = CommandRules(folders=(str(tmp_path / "way"),))
        way = str(tmp_path / "way")
        with running(where, rules=rules, uploads=uploads) as made:
            for cwd in (way, f"{way}/inner", f"{way}/inner/../inner"):
                assert run(made, where, cwd=cwd).result["output"].startswith(str(allowed)), cwd
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
                done = run(made, where, cwd=cwd)
                assert (done.outcome, why in done.error) == ("delivery_failed", True), (cwd, done)

    def test_without_a_list_there_is_no_other_folder(self, script, tmp_path):
        where = script("pwd")
        with running(where) as made:
            assert run(made, where, cwd=str(tmp_path)).outcome == "delivery_failed"


class TestProgram:
    def test_a_script_that_was_replaced_is_not_started(self, script, tmp_path):
        path = script("echo old")
        with running(path) as made:
            assert run(made, path).result["output"] == "old\n"
            Path(script("echo new", "other")).rename(path)
            for _ in range(2):
                done = run(made, path)
                assert (done.outcome, done.result) == ("delivery_failed", None)
                assert "was replaced on disk since this node started" in done.error
                assert "Restart the server" in done.error
            # Who could start it himself may do so.
            assert made.run(path).result["output"] == "new\n"
        with running(path) as again:
            assert run(again, path).result["output"] == "new\n"

    def test_nor_is_one_that_was_written_over_or_is_gone(self, script):
        path = script("echo old")
        with running(path) as made:
            Path(path).write_text("#!/bin/sh\necho somewhat longer\n")
            assert "was replaced on disk" in run(made, path).error
            Path(path).unlink()
            assert "cannot be read any more" in run(made, path).error

    def test_nor_is_a_binary(self, tmp_path):
        path = tmp_path / "binary"
        shutil.copy("/bin/echo", path)
        with running(str(path)) as made:
            assert run(made, str(path), "old").result["output"] == "old\n"
            shutil.copy("/bin/echo", tmp_path / "other")
            (tmp_path / "other").rename(path)
            assert "was replaced on disk" in run(made, str(path), "new").error

    def test_by_its_digest_the_same_content_is_the_same_program(self, script):
        path = script("echo old")
        with running(path, pin=Pin.DIGEST) as made:
            Path(script("echo old", "other")).rename(path)
            assert run(made, path).result["output"] == "old\n"
            before = Path(path).stat()
            Path(path).write_text("#!/bin/sh\necho new\n")
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            assert "was replaced on disk" in run(made, path).error

    def test_one_that_cannot_be_read_keeps_no_node_from_starting(self, monkeypatch):
        """A program may be runnable and not readable. Root can read everything, so the digest fails instead."""

        def refuse(*_):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(programs, "file_digest", refuse)
        with running("cat", pin=Pin.DIGEST) as made:
            assert "could not be read or run" in run(made, "cat").error

    @pytest.mark.parametrize("kind", ["script", "binary"])
    def test_nor_is_one_that_was_replaced_after_it_was_checked(self, script, tmp_path, kind):
        path = script("echo new") if kind == "script" else shutil.copy("/bin/echo", tmp_path / "echo")
        before = Path("/bin/cat").stat()
        identity = (before.st_dev, before.st_ino, before.st_size, before.st_mtime_ns)
        assert "was replaced a moment before" in started(str(path), cwd="/", identity=identity)["error"]

    def test_nor_in_a_folder_that_was(self, tmp_path):
        assert "folder was replaced" in started("/bin/true", cwd=str(tmp_path), place=(1, 1))["error"]
        found = tmp_path.stat()
        assert "pid" in started("/bin/true", cwd=str(tmp_path), place=(found.st_dev, found.st_ino))

    def test_a_binary_has_no_file_open_that_it_has_not_opened(self):
        with running(PYTHON) as made:
            done = run(made, PYTHON, "-c", "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:4])")
        assert done.result["output"] == "[0, 1, 2, 3]\n"

    def test_one_that_cannot_be_read_is_started_all_the_same(self, tmp_path):
        path = tmp_path / "binary"
        shutil.copy("/bin/echo", path)
        path.chmod(0o111)
        with running(str(path)) as made:
            assert run(made, str(path), "x").result["output"] == "x\n"

    def test_a_script_knows_its_own_path(self, script):
        path = script('echo "$0"')
        with running(path) as made:
            assert run(made, path).result["output"] == f"{path}\n"


def started(program, **fields):
    """What the keeper says to an order."""
    keeping = Keeping()
    order = Order(
        program=program, argv=(program,), env={RUN_MARK: f"{os.getpid()}-{id(keeping)}"}, limits={}, stdin=b"", **fields
    )
    kept = keeping.start(order)
    try:
        assert eventually(lambda: kept.hear(1)) == [{"ready": True}]
        assert kept.go()
        return eventually(lambda: kept.hear(1))[0]
    finally:
        kept.close()
        keeping.close()
