"""Tests that run in workers: their output and files, and what happens when a worker dies."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFTEST = """
import os
import pytest
from tests.workers import Workers

def pytest_configure(config):
    config.pluginmanager.register(Workers(config, 2, lambda nodeid: nodeid.partition("::")[0]))

@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with open("log", "a") as log:
        log.write(f"start {os.getpid()}\\n")
    yield tmp_path_factory.mktemp("server")
    with open("log", "a") as log:
        log.write(f"stop {os.getpid()}\\n")
    assert "STOPPED_BADLY" not in os.environ
"""
ONE = """
import os

def test_fails(server):
    print("printed", "by it")
    os.write(2, b"written " + b"by it")
    assert server is None

def test_dies(server):
    os.abort()

def test_is_run_anyway(tmp_path):
    assert os.getppid() == int(os.environ["MAIN"])
"""
OTHER = "def test_passes(server): assert list(server.iterdir()) == []"


def run(folder, *arguments, **environment):
    """Run pytest in the folder; its output, its exit code and what its session fixtures have logged."""
    program = "import os, pytest, sys; os.environ['MAIN'] = str(os.getpid()); sys.exit(pytest.main())"
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), **environment}
    command = [
        sys.executable,
        "-c",
        program,
        "-rA",
        "-p",
        "no:cacheprovider",
        f"--basetemp={folder / 'kept'}",
        *arguments,
    ]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    return done.stdout, done.returncode, (folder / "log").read_text().splitlines()


def test_a_batch_goes_on_in_another_worker_when_one_dies(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_one.py").write_text(ONE)
    (tmp_path / "test_other.py").write_text(f"{OTHER}\n{OTHER.replace('passes', 'passes_too')}")
    out, code, log = run(tmp_path)
    assert (code, "2 failed, 3 passed" in out) == (1, True), out
    assert "FAILED test_one.py::test_dies - a worker ended with exit code -6" in out
    assert out.count("printed by it") == out.count("written by it") == 1
    assert "PASSED test_one.py::test_is_run_anyway" in out
    # The fixture of the session is made once by each worker; the one that died could not end it.
    assert sorted(line.split()[0] for line in log) == ["start", "start", "stop"]


def test_what_fails_at_the_end_of_a_worker_fails_the_tests(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_other.py").write_text(OTHER)
    assert run(tmp_path)[1] == 0
    out, code, _ = run(tmp_path, STOPPED_BADLY="1")
    assert (code, "1 failed, 1 passed" in out) == (1, True), out


def test_the_first_failure_may_end_all_workers(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_other.py").write_text("import signal\ndef test_waits(server): signal.pause()\n")
    waits = "import time, pathlib\nwhile not pathlib.Path('log').exists(): time.sleep(0.01)\nassert False"
    (tmp_path / "test_two.py").write_text(
        "def test_fails():\n" + "\n".join(f"    {line}" for line in waits.split("\n"))
    )
    out, code, log = run(tmp_path, "-x")
    assert (code, "1 failed in" in out) == (1, True), out
    assert [line.split()[0] for line in log] == ["start", "stop"]
