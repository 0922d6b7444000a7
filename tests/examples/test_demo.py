"""`make demo`: it runs, says what happens and why, survives being killed, and is bounded when asked."""

import re
import signal
import subprocess
import sys
import threading

import httpx2
import pytest

from tests.cli.terminal import ENVIRONMENT, ROOT, in_pipe, in_terminal

COMMAND = (sys.executable, "-m", "examples.demo")
PATIENCE = 120.0
"""Seconds that the demo may take on a busy machine to show everything."""
JOBS = ("tick", "chime", "poll", "report", "flaky", "extract", "transform", "load", "order", "ship")


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "demo")


class Running:
    """The demo in a pipe, and what it has printed so far."""

    def __init__(self, folder):
        self._process = subprocess.Popen(
            COMMAND,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=ENVIRONMENT | {"DEMO_FOLDER": folder},
        )
        self.shown = ""

    def until(self, *patterns):
        """Read on until each of them was printed."""
        while not all(re.search(one, self.shown, re.MULTILINE) for one in patterns):
            line = self._process.stdout.readline()
            assert line, self.shown
            self.shown += line

    def end(self, how):
        """Send it a signal and read the rest; gives its exit code and its complaints."""
        self._process.send_signal(how)
        rest, complaints = self._process.communicate(timeout=PATIENCE)
        self.shown += rest
        return self._process.returncode, complaints

    def close(self):
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def start(folder):
    collected = []

    def run():
        collected.append(Running(folder))
        # Should it never print what is waited for, it ends, and so does the wait.
        limit = threading.Timer(PATIENCE, collected[-1]._process.kill)  # noqa: TID251 - nobody else would end it
        limit.daemon = True
        limit.start()
        return collected[-1]

    yield run
    for one in collected:
        one.close()


def test_in_a_pipe_it_prints_what_happens_and_why(start):
    demo = start()
    demo.until(
        *(rf"^[0-9:.]+ {job} +completed +The target did the work" for job in JOBS),
        r" flaky +retrying +The attempt failed",
        r" report +skipped +An earlier occurrence was still in flight",
        r"^The same in a browser: http\S+/ui$",
    )
    address = re.search(r"http\S+/ui", demo.shown)[0]
    assert "<title>Noonmark</title>" in httpx2.get(address).text
    assert httpx2.get(address.replace("/ui", "/schedules/count")).json()["count"] == len(JOBS)
    assert demo.end(signal.SIGINT) == (0, "")
    assert "10 jobs in sqlite:///" in demo.shown
    assert re.search(r"^  tick: \d+ completed(, \d+ \w+)*$", demo.shown, re.MULTILINE)


def test_it_ends_when_its_time_is_up(folder):
    done = in_pipe(*COMMAND, DEMO_FOLDER=folder, DEMO_SECONDS="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Outcomes:" in done.stdout


def test_killed_and_started_again_it_goes_on_and_says_what_it_missed(start):
    first = start()
    first.until(r" tick +completed")
    first.until(r"^The same in a browser: http\S+/ui$")
    first.end(signal.SIGKILL)
    # Ticks of the next two seconds were planned already, each by itself. Those after them are one gap.
    threading.Event().wait(6)
    again = start()
    with pytest.raises(httpx2.ConnectError):  # its server went with it
        httpx2.get(re.search(r"http\S+/ui", first.shown)[0])
    again.until(r" tick +misfired +\d+ fires? missed", r" tick +completed")
    assert again.end(signal.SIGINT) == (0, "")
    assert "10 jobs in sqlite:///" in again.shown
    assert "The jobs last ran at " in again.shown


def test_in_a_terminal_it_draws_a_board(tmp_path, monkeypatch):
    monkeypatch.setitem(ENVIRONMENT, "DEMO_FOLDER", str(tmp_path))
    monkeypatch.setitem(ENVIRONMENT, "DEMO_SECONDS", "2")
    code, shown = in_terminal(*COMMAND)
    assert code == 0, shown
    for words in (
        "next in",
        "how late starts were",
        "what happened",
        "in a browser",
        "Every second",
        "order_placed",
        "Outcomes:",
    ):
        assert words in shown
