"""A site: a real server, notebook or script, started as its users start it, on one store with a journal beside it."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request

from noonmark.core.instants import MAX_INSTANT
from noonmark.core.lifecycle import Phase
from noonmark.driver.drive import drive
from tests.processes.fleet import CLOCK, PATIENCE, ROOT, SqliteFleet
from tests.processes.work import JOURNAL

STORE = "SITE_STORE"
LEASE = 600
"""Seconds; so long that whatever runs at once was handed back, and not taken over."""
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")
HELD = "SELECT count(*) FROM occurrences WHERE phase IN ('claimed', 'dispatching')"


class Site(SqliteFleet):
    """What runs is known by the journal, and by what each program printed."""

    def run(self, *command, folder=ROOT, **environment):
        """Start a program in a session of its own, so that nothing but its own signals reaches it."""
        log = self.log(len(self.processes))
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *map(str, command)],
                cwd=folder,
                env=self.environment | environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def script(self, text, **environment):
        """Start a script as a user does, in the folder of the test."""
        path = self.folder / f"script_{len(self.processes)}.py"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return self.run(path.name, folder=self.folder, **environment)

    @property
    def environment(self):
        path = os.pathsep.join([str(ROOT), *sys.path])
        return os.environ | {
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
            JOURNAL: str(self.journal.path),
            STORE: self.url,
        }

    def log(self, number):
        return self.folder / f"site-{number}.log"

    def shown(self, process):
        """Everything that a program has printed so far."""
        return self.log(self.processes.index(process)).read_text(encoding="utf-8")

    def address(self, process):
        """Where a server listens, as soon as it says so."""

        def said():
            assert process.poll() is None, self.shown(process)
            return ADDRESS.search(self.shown(process))

        return f"http://127.0.0.1:{self.until(said)[1]}"

    def end(self, process, *signals, codes=(0,), seconds=PATIENCE):
        """Send signals, and wait for the end; how many seconds it took."""
        began = CLOCK.monotonic()
        for one in signals:
            process.send_signal(one)
        assert process.wait(seconds) in codes, self.shown(process)
        return (CLOCK.monotonic() - began) / 1_000_000

    def end_all(self, process, one=signal.SIGINT):
        """A key on the terminal reaches every process there."""
        os.killpg(process.pid, one)
        return self.end(process)

    def phase_counts(self, schedule_id):
        """How many fires of the trigger ended how, and all runs of it, by process."""
        schedule = self.kept(schedule_id).schedule
        marks = self.journal.begun_nominals(schedule_id)
        trigger, times = schedule.declaration.trigger, []
        time = schedule.created
        while (time := trigger.next_micros(time)) is not None and time <= max(marks, default=-MAX_INSTANT):
            times.append(time)
        rows = drive(self.scheduler.runtime.store.occurrences(schedule.uid))
        completed = [row.nominal for row in rows if row.phase is Phase.COMPLETED and row.origin == "trigger"]
        return times, sorted(marks), sorted(completed)

    def assert_each_fire_ran_once(self, *schedule_ids):
        for one in schedule_ids:
            times, marks, completed = self.phase_counts(one)
            assert marks == times, "every nominal fire has begun once"
            assert completed == times, "and is recorded once"

    def assert_nothing_is_held(self):
        assert self.sql(HELD) == [(0,)]

    def pids(self, *schedule_ids):
        return {line["pid"] for one in schedule_ids for line in self.journal.begins(one)}

    def job_named(self, ending):
        """The one job whose name ends so."""
        [job] = [one for one in self.scheduler.list_jobs() if one.name and one.name.endswith(ending)]
        return job

    def fires(self, count, *endings):
        """Wait until each of these jobs has run so often; their ids."""
        ids = [self.job_named(ending).id for ending in endings]
        self.until(lambda: all(len(self.journal.begins(one)) >= count for one in ids))
        return ids


def ask(url, method="GET", body=None):
    """A request over a real socket; the document that comes back."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310 - our own server
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def read(url):
    """Whatever a page holds."""
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310 - our own server
        return answer.read()
