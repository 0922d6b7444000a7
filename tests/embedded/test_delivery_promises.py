"""What starts again and what never does, for each kind of loss: the table of the guide."""

import functools
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from noonmark import Scheduler
from noonmark.targets.command import supervisor
from tests.embedded.waiting import FINAL, NEVER, SOON, eventually
from tests.targets.function import worker_functions
from tests.targets.http.receiver import http_receiver

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "retries-and-delivery.md"
TWICE = {"max_attempts": 2, "backoff_seconds": 0.01}
DELIVERIES = ("at_least_once", "at_most_once")
UNKNOWN = "delivery_failed/outcome_unknown"
DONE = "completed/succeeded"
TRIED = "failed/attempts_exhausted"
LASTING = """
echo begun >> "$0"
test "$(wc -l < "$0")" = 1 && {what}
exit 0
"""
"""A program whose first beginning does as it is told."""
ROWS = {}
SLOW = ("node_killed program", "timed_out process")
"""What takes seconds, though tests of programs, of processes or of the other kind guard the same."""


def row(title, at_least_once, at_most_once, kinds=("",)):
    """One line of the table: how an occurrence ends under each promise, and how often its work was begun."""

    def keep(play):
        for kind in kinds:
            name = f"{play.__name__} {kind}".strip()
            play_kind = functools.partial(play, kind=kind) if kind else play
            ROWS[name] = (title, play_kind, {"at_least_once": at_least_once, "at_most_once": at_most_once})
        return play

    return keep


class Stage:
    """A scheduler on a file, with one job for each promise, and the marks that their beginnings leave."""

    def __init__(self, folder, receiver):
        self.folder, self.receiver = folder, receiver
        self.scheduler = Scheduler(f"sqlite:///{folder / 'jobs.db'}", max_processes=2, lease=1.0)
        self.jobs = {}

    def marks(self, delivery):
        return str(self.folder / f"{delivery}.begins")

    def begins(self, delivery):
        marks = Path(self.marks(delivery))
        sent = sum(path.endswith(f"/{delivery}") for _, path, _, _ in self.receiver.requests)
        return sent or (marks.read_text().count("begun") if marks.exists() else 0)

    def function(self, how, *, seconds=0, **options):
        for delivery in DELIVERIES:
            args = [self.marks(delivery), how, seconds]
            self.jobs[delivery] = self.scheduler.schedule(
                worker_functions.begins, name=delivery, args=args, retries=TWICE, delivery=delivery, **options
            )

    def program(self, what, **options):
        for delivery in DELIVERIES:
            argv = ["sh", "-c", LASTING.format(what=what), self.marks(delivery)]
            self.jobs[delivery] = self.scheduler.schedule_command(
                argv, name=delivery, retries=TWICE, delivery=delivery, **options
            )

    def request(self, url):
        for delivery in DELIVERIES:
            target = {"target_kind": "http", "url": f"{url}/{delivery}", "timeout_seconds": SOON}
            self.jobs[delivery] = self.scheduler.schedule(target, name=delivery, retries=TWICE, delivery=delivery)

    def begun(self):
        """Wait until both have begun once."""
        eventually(lambda: all(self.begins(one) == 1 for one in DELIVERIES))

    def ends(self):
        """How both have ended."""
        collected = {}
        for delivery, job in self.jobs.items():
            [one] = eventually(lambda job=job: self._ended(job))
            collected[delivery] = f"{one.phase}/{one.reason}"
        return collected

    def _ended(self, job):
        return [one for one in self.scheduler.occurrences(job) if str(one.phase) in FINAL]


@pytest.fixture(scope="module")
def receiver():
    with http_receiver() as made:
        yield made


@pytest.fixture
def stage(tmp_path, receiver):
    receiver.reset()
    made = Stage(tmp_path, receiver)
    yield made
    made.scheduler.close()


def child_of(node, what):
    """The process that a process has started with these words in its command."""

    def found():
        for pid in supervisor.list_processes():
            try:
                parent = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
                if parent == node and what in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
            except (FileNotFoundError, ProcessLookupError):
                continue
        return None

    return eventually(found)


@row("the function raised", (DONE, 2), (DONE, 2))
def raised(stage):
    stage.function("value")
    stage.scheduler.start()


@row(
    'its process died in the middle of the function (`executor="process"`)',
    (DONE, 2),
    (UNKNOWN, 1),
    kinds=("exit", "killed"),
)
def process_died(stage, kind):
    stage.function(kind, executor="process")
    stage.scheduler.start()


@row("its process died before the function was called", (DONE, 1), (DONE, 1))
def process_died_first(stage):
    """While it imports the module, the first time."""
    module = stage.folder / "fragile.py"
    first = stage.folder / "first"
    text = "import os, pathlib\nfrom tests.targets.function.worker_functions import begins as kept\n"
    text += f"first = pathlib.Path({str(first)!r})\n"
    text += f"if os.getpid() != {os.getpid()} and len(list(first.parent.glob('first*'))) < 2:\n"
    text += "    first.with_name(f'first{os.getpid()}').touch()\n    os._exit(4)\n"
    module.write_text(text + "def begins(*args):\n    return kept(*args)\n", encoding="utf-8")
    sys.path.insert(0, str(stage.folder))
    try:
        sys.modules.pop("fragile", None)
        import fragile  # noqa: PLC0415 - it was just written

        for delivery in DELIVERIES:
            stage.jobs[delivery] = stage.scheduler.schedule(
                fragile.begins,
                args=[stage.marks(delivery), "", 0],
                name=delivery,
                executor="process",
                retries={**TWICE, "max_attempts": 5},
                delivery=delivery,
            )
        stage.scheduler.start()
        stage.ends()
    finally:
        sys.path.remove(str(stage.folder))


@row("the program ended with another code than 0", (DONE, 2), (DONE, 2))
def program_failed(stage):
    stage.program("exit 3")
    stage.scheduler.start()


@row("the program was killed, and not by Noonmark", (DONE, 2), (UNKNOWN, 1))
def program_killed(stage):
    stage.program("kill -KILL $$")
    stage.scheduler.start()


@row(
    "the program could not be started",
    ("delivery_failed/attempts_exhausted", 0),
    ("delivery_failed/attempts_exhausted", 0),
)
def program_missing(stage):
    for delivery in DELIVERIES:
        stage.jobs[delivery] = stage.scheduler.schedule_command(
            ["/no/such/program"], name=delivery, retries=TWICE, delivery=delivery
        )
    stage.scheduler.start()


@row("the supervisor died while the program ran", (DONE, 2), (UNKNOWN, 1))
def keeper_died(stage):
    stage.program("sleep 600")
    stage.scheduler.start()
    stage.begun()
    os.kill(child_of(os.getpid(), b"supervisor.py"), signal.SIGKILL)


@row("the supervisor died before it was told to start the program", (DONE, 1), (DONE, 1))
def keeper_died_first(stage):
    warm = stage.scheduler.schedule_command(["true"], trigger=NEVER)
    stage.scheduler.start()
    stage.scheduler.run_now(warm)
    process = child_of(os.getpid(), b"supervisor.py")
    os.kill(process, signal.SIGSTOP)
    stage.program("exit 0")
    eventually(lambda: all(phase_of(stage, job) == "dispatching" for job in stage.jobs.values()))
    os.kill(process, signal.SIGKILL)


def phase_of(stage, job):
    return str(stage.scheduler.occurrences(job)[0].phase)


@row("no connection to the server", (TRIED, 0), (TRIED, 0))
def nobody_there(stage):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        stage.request(f"http://127.0.0.1:{nobody.getsockname()[1]}")
        stage.scheduler.start()
        stage.ends()


@row("the connection broke when the request was sent", (TRIED, 2), (UNKNOWN, 1))
def connection_broke(stage):
    stage.request(f"{stage.receiver.url}/drop")
    stage.scheduler.start()


@row("the server answered that it failed", (TRIED, 2), (TRIED, 2))
def server_failed(stage):
    stage.request(f"{stage.receiver.url}/status/503")
    stage.scheduler.start()


@row("a proxy lost contact with the server (502, 504)", (TRIED, 2), (UNKNOWN, 1), kinds=("502", "504"))
def proxy_lost_it(stage, kind):
    stage.request(f"{stage.receiver.url}/status/{kind}")
    stage.scheduler.start()


@row("its timeout was over", (DONE, 2), ("timed_out/timed_out", 1), kinds=("thread", "process"))
def timed_out(stage, kind):
    stage.function("value", seconds=SOON, executor=kind, timeout=0.3)
    stage.scheduler.start()


@row("the node was stopped before it had ended", (DONE, 2), (UNKNOWN, 1), kinds=("function", "program"))
def node_stopped(stage, kind):
    if kind == "function":
        stage.function("value", seconds=SOON, executor="process")
    else:
        stage.program("sleep 600")
    stage.scheduler.start()
    stage.begun()
    stage.scheduler.stop(wait=False)
    stage.scheduler.start()


@row("the node was killed", (DONE, 2), (UNKNOWN, 1), kinds=("process", "program"))
def node_killed(stage, kind):
    if kind == "program":
        stage.program("sleep 600")
    else:
        stage.function("value", seconds=SOON, executor=kind)
    url = f"sqlite:///{stage.folder / 'jobs.db'}"
    script = f"from noonmark import Scheduler; s = Scheduler({url!r}, lease=1.0); s.start(); input()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    node = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, env=environment)
    try:
        stage.begun()
    finally:
        node.kill()
        node.wait()
        node.stdin.close()
    stage.scheduler.start()


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.soak] if one in SLOW else []) for one in ROWS])
def test_what_is_lost_is_begun_again_only_where_it_may_be(stage, name):
    _, play, expected = ROWS[name]
    play(stage)
    found = {one: (end, stage.begins(one)) for one, end in stage.ends().items()}
    assert found == expected
    # Nothing of it comes later.
    threading.Event().wait(0.05)
    assert {one: stage.begins(one) for one in DELIVERIES} == {one: count for one, (_, count) in expected.items()}


def test_the_guide_has_these_rows_and_no_others():
    [table] = re.findall(r"\| what was lost.*?\n\n", GUIDE.read_text(), flags=re.DOTALL)
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[2:]]
    told = {title: said for title, *said in lines}
    assert len(told) == len(lines)
    expected = {}
    for title, _, ends in ROWS.values():
        expected[title] = [words(*ends["at_least_once"], title), words(*ends["at_most_once"], title)]
    assert told == expected


def words(end, count, title):
    """How the guide tells of an end."""
    if end == UNKNOWN:
        return "ends as `delivery_failed/outcome_unknown`"
    if end.startswith("timed_out"):
        return "ends as `timed_out`"
    if "node" in title:
        return "begun again; no attempt"
    return "retried" if count == 2 or end != DONE else "begun after all"
