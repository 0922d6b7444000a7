"""`make demo`: it runs, says what happens and why, survives being killed, and is bounded when asked."""

import re
import signal
import subprocess
import sys
import threading

import pytest

from tests.cli.terminal import ENVIRONMENT, ROOT, in_pipe, in_terminal

COMMAND = (sys.executable, "-m", "examples.demo")
JOBS = ("tick", "chime", "poll", "report", "flaky", "extract", "transform", "load", "order", "ship")


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "demo")


def test_in_a_pipe_it_prints_what_happens_and_why(folder):
    done = in_pipe(*COMMAND, DEMO_FOLDER=folder, DEMO_SECONDS="9")
    assert (done.returncode, done.stderr) == (0, "")
    assert "10 jobs in sqlite:///" in done.stdout
    for job in JOBS:
        assert re.search(rf"^[0-9:.]+ {job} +completed +The target did the work", done.stdout, re.MULTILINE), job
    assert re.search(r" flaky +retrying +The attempt failed", done.stdout)
    assert re.search(r" report +skipped +An earlier occurrence was still in flight", done.stdout)
    assert re.search(r"^  tick: \d+ completed$", done.stdout, re.MULTILINE)


def test_killed_and_started_again_it_goes_on_and_says_what_it_missed(folder):
    with subprocess.Popen(
        COMMAND, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=ENVIRONMENT | {"DEMO_FOLDER": folder}
    ) as first:
        lines = iter(first.stdout.readline, "")
        assert any(" tick " in line for line in lines)
        first.send_signal(signal.SIGKILL)
    threading.Event().wait(3.5)  # at least three ticks pass that nobody runs
    done = in_pipe(*COMMAND, DEMO_FOLDER=folder, DEMO_SECONDS="3")
    assert done.returncode == 0, done.stderr
    assert "10 jobs in sqlite:///" in done.stdout
    assert "The jobs were last run at " in done.stdout
    missed = re.search(r" tick +misfired +(\d+) fires? missed", done.stdout)
    assert missed, done.stdout
    assert re.search(r" tick +completed", done.stdout)


def test_in_a_terminal_it_draws_a_board(tmp_path, monkeypatch):
    monkeypatch.setitem(ENVIRONMENT, "DEMO_FOLDER", str(tmp_path))
    monkeypatch.setitem(ENVIRONMENT, "DEMO_SECONDS", "2")
    code, shown = in_terminal(*COMMAND)
    assert code == 0, shown
    for words in ("next in", "how late starts were", "what happened", "Every second", "order_placed", "What became"):
        assert words in shown
