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
from collections import Counter

from noonmark.core.lifecycle import Phase
from noonmark.core.run import Outcome
from tests.processes.fleet import PATIENCE, ROOT, SqliteFleet
from tests.processes.work import JOURNAL

STORE = "SITE_STORE"
LEASE = 600
"""Seconds; so long that whatever runs at once was handed back, and not taken over."""
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")
HELD = "SELECT count(*) FROM occurrences WHERE phase IN ('claimed', 'dispatching')"


class Site(SqliteFleet):
    """What runs is known by the journal, and by what each program printed."""

    def __init__(self, folder):
        super().__init__(folder)
        self._settled = {}
        """Of each job that was waited for, the fires that had completed by then, without a gap."""

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
        """Send signals, and wait for the end."""
        for one in signals:
            process.send_signal(one)
        assert process.wait(seconds) in codes, self.shown(process)

    def end_all(self, process, one=signal.SIGINT):
        """A key on the terminal reaches every process there."""
        os.killpg(process.pid, one)
        self.end(process)

    def completed_fires(self, schedule_id):
        """The nominal times of the trigger that have completed, oldest first."""
        rows = self.scheduler._store.occurrences(self.kept(schedule_id).schedule.uid)
        return sorted(row.nominal for row in rows if row.phase is Phase.COMPLETED and row.origin == "trigger")

    def nominal_fires(self, schedule_id, last):
        """All the times that the trigger names, until a last one."""
        schedule = self.kept(schedule_id).schedule
        times, time = [], schedule.created
        while (time := schedule.declaration.trigger.next_micros(time)) is not None and time <= last:
            times.append(time)
        return times

    def assert_each_fire_ran_once(self, *schedule_ids):
        """What a program was at when it was told to end may have been handed back: that it is told is enough."""
        for one in schedule_ids:
            marks, completed = sorted(self.journal.begun_nominals(one)), self.completed_fires(one)
            by_then, handed_back = self._settled[one], self.handed_back(one)
            assert marks[: len(by_then)] == by_then  # each has begun once
            assert completed[: len(by_then)] == by_then  # and is recorded once
            later = Counter(set(marks))
            assert set(later) <= set(self.nominal_fires(one, marks[-1]))
            assert Counter(marks) <= later + handed_back  # none has begun again unless it was handed back
            assert later <= Counter(completed) + handed_back  # and what has begun is recorded

    def handed_back(self, schedule_id):
        """How often runs of each nominal time were handed back."""
        nominal = {row.id: row.nominal for row in self.scheduler.occurrences(schedule_id)}
        runs = self.scheduler.runs(schedule_id)
        return Counter(nominal[run.occurrence_id] for run in runs if run.outcome is Outcome.LEASE_LOST)

    def assert_nothing_is_held(self):
        assert self.sql(HELD) == [(0,)]

    def pids(self, *schedule_ids):
        return {line["pid"] for one in schedule_ids for line in self.journal.begins(one)}

    def job_named(self, ending):
        """The one job whose name ends so."""
        [job] = [one for one in self.scheduler.list_jobs() if one.name and one.name.endswith(ending)]
        return job

    def fires(self, count, *endings):
        """Wait until each of these jobs has completed its first fires, so many of them; their ids."""
        ids = [self.job_named(ending).id for ending in endings]
        self.until(lambda: all(len(self.settled(one)) >= count for one in ids))
        self._settled = {one: self.settled(one) for one in ids}
        return ids

    def settled(self, schedule_id):
        """The nominal times up to which all have completed."""
        completed = self.completed_fires(schedule_id)
        named = self.nominal_fires(schedule_id, max(completed, default=0))
        return [time for time, nominal in zip(completed, named, strict=False) if time == nominal]


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
