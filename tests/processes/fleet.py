"""The processes of one test: nodes and callers on one store, started and killed by process id."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import zlib
from collections import Counter
from contextlib import closing
from pathlib import Path

import psycopg

from noonmark import Scheduler
from noonmark.clocks import SystemClock
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.triggers import IntervalTrigger
from noonmark.embedded.declarations import OWNER
from tests.processes.journal import Journal
from tests.processes.work import JOURNAL
from tests.servers.forked import start_forked
from tests.soak import SCALE

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
"""Seconds until a test gives up waiting for something that takes a moment; a busy machine must not fail it."""
PAGE = 1_000
OCCURRENCES = """
    SELECT schedule_id, id, origin, phase, nominal, first_due, missed_count, missed_first, missed_last,
        (SELECT count(*) FROM runs WHERE occurrence = occurrences.key AND outcome = 'completed')
    FROM occurrences JOIN schedules ON schedules.key = occurrences.schedule
"""
OCCURRENCE_COLUMNS = (
    "id", "origin", "phase", "nominal", "first_due", "missed_count", "missed_first", "missed_last"
)  # fmt: skip
CLOCK = SystemClock()
STORES = ["sqlite", "postgres", *(["redis"] if SCALE > 1 else [])]
"""The kinds of fleets; on Redis, `make test` kills nodes in `test_redis_faults`, and `make soak` in every way."""


class Fleet:
    """One store, one journal, any number of processes. Each kind has `sql`, to read the tables beside Noonmark."""

    def __init__(self, folder, url):
        self.folder = folder
        self.url = url
        self.journal = Journal(folder / "journal.jsonl")
        self.processes = []
        self.may_complain = False
        self._reader = None

    @property
    def scheduler(self):
        """A scheduler of the test itself, which declares and reads, and runs nothing."""
        if self._reader is None:
            self._reader = Scheduler(self.url)
        return self._reader

    def start(self, program, *, ready="ready", command=(), source=None, **settings):
        """Start a program of this folder and wait until it says that it is ready.

        With a command it runs within that one, which becomes it: at the far end of a wire, for instance. With a source
        it uses the Noonmark in that folder.
        """
        module, arguments = f"tests.processes.{program}", [json.dumps({"store": self.url, **settings})]
        folders = [*([] if source is None else [str(source)]), *sys.path, str(ROOT)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders), JOURNAL: str(self.journal.path)}
        log = (self.folder / f"{program}-{len(self.processes)}.log").open("wb")
        with log:
            if command or source:
                process = subprocess.Popen(
                    [*command, sys.executable, "-m", module, *arguments],
                    cwd=ROOT,
                    env=environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            else:
                process = start_forked(
                    module, *arguments, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
                )
        self.processes.append(process)
        if ready:
            self.until(lambda: process.poll() is not None or self.journal.of(ready, pid=process.pid))
            assert self.journal.of(ready, pid=process.pid), f"{program} ended at once: {self.complaints()}"
        return process

    def node(self, lease=2.0, **settings):
        """A node whose leases are short, but not so short that it loses them whenever the machine is busy.

        With the settings of a scheduler, and what `node` has of its own: `freezes`, `grace`, `clock`.
        """
        return self.start("node", lease=lease, **settings)

    def kill(self, process):
        """SIGKILL; says when."""
        now = CLOCK.micros()
        process.send_signal(signal.SIGKILL)
        process.wait()
        return now

    def freeze(self, process):
        """SIGSTOP, at whatever it is doing; in a transaction it keeps its locks."""
        process.send_signal(signal.SIGSTOP)
        self.until(lambda: is_stopped(process.pid))

    def thaw(self, process):
        process.send_signal(signal.SIGCONT)

    def until(self, holds, seconds=PATIENCE, pause=0.05):
        """Wait until a condition holds, and give what it gave; AssertionError when it does not come to hold.

        One that is dear to look at is looked at less often, with a longer pause: that time is taken from the nodes.
        """
        deadline = CLOCK.monotonic() + seconds * SECOND
        while not (answer := holds()):
            assert CLOCK.monotonic() < deadline, f"after {seconds} s still not: {holds}; {self.complaints()}"
            threading.Event().wait(pause)
        return answer

    def completed(self, ids, seconds=PATIENCE):
        """Wait until no fire of these schedules is to come, and nothing of them is live."""
        waiting = list(ids)

        def nothing_is_left():
            # One after another: the store has better things to do than to tell again and again of all of them.
            while waiting and self.phase(waiting[-1]) is SchedulePhase.COMPLETED:
                waiting.pop()
            return not waiting

        self.until(nothing_is_left, seconds)

    def phase(self, schedule_id):
        return self.kept(schedule_id).schedule.phase

    def kept(self, schedule_id):
        return self.scheduler._store.find(OWNER.tenant, schedule_id)

    def occurrences(self):
        """What the tables say of all occurrences, with the number of runs that completed."""
        return self.sql(OCCURRENCES)

    def schedules(self):
        """All schedules that are not deleted, by id."""
        found, page = {}, None
        while page is None or len(page) == PAGE:
            last = page[-1].schedule.uid if page else None
            page = self.scheduler._store.schedules(OWNER.tenant, after=last, limit=PAGE)
            found |= {kept.schedule.schedule_id: kept.schedule for kept in page}
        return found

    def complaints(self, *marks):
        """What the processes wrote about themselves that looks like an accident; the first of each."""
        marks = marks or ("Traceback", "Error", "ERROR", "failed, again", "database is locked")
        found = (
            [line for line in log.read_text().splitlines() if any(mark in line for mark in marks)]
            for log in sorted(self.folder.glob("*.log"))
        )
        return [line for lines in found for line in lines[:3]]

    def accidents(self):
        """The whole logs in which a traceback is found: the first line of one does not tell what went wrong."""
        texts = [log.read_text() for log in sorted(self.folder.glob("*.log"))]
        return [text for text in texts if "Traceback" in text]

    def close(self):
        """End everything that was started, whatever it is doing."""
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if self._reader is not None:
            self._reader._runtime.store.close()


class SqliteFleet(Fleet):
    """On one file."""

    def __init__(self, folder):
        self.path = folder / "schedules.db"
        super().__init__(folder, f"sqlite:///{self.path}")

    def freeze_between_transactions(self, process):
        """SIGSTOP while it does not keep the others from the file."""

        def has_no_lock():
            self.freeze(process)
            if self.is_locked():
                self.thaw(process)
                return False
            return True

        self.until(has_no_lock)

    def is_locked(self):
        with closing(sqlite3.connect(self.path, timeout=0, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            connection.execute("ROLLBACK")
            return False

    def sql(self, statement, *values):
        """Read or damage the file beside Noonmark."""
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as connection:
            return connection.execute(statement, values).fetchall()


class PostgresFleet(Fleet):
    """On one database."""

    def __init__(self, folder, database):
        super().__init__(folder, database.url)

    def freeze_between_transactions(self, process):
        """SIGSTOP at any time: what a transaction keeps from the others, the server takes back from it."""
        self.freeze(process)

    def sql(self, statement, *values):
        """Read or damage the database beside Noonmark."""
        with psycopg.connect(self.url, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []


class RedisFleet(Fleet):
    """On one database of a Redis server."""

    def __init__(self, folder, server):
        super().__init__(folder, server.url())
        self.server = server

    def freeze_between_transactions(self, process):
        """SIGSTOP at any time: a transaction keeps nothing from the others."""
        self.freeze(process)

    def table(self, name):
        """All records of a table, read beside Noonmark."""
        from noonmark.stores.redis.schema.tables import TABLES  # noqa: PLC0415 - few tests need it

        with self.server.client() as client:
            stored = client.hvals(f"noonmark:{name}")
        return [TABLES[name].named(TABLES[name].from_text(one.partition(b":")[2])) for one in stored]

    def occurrences(self):
        # First, since the last command of a program that was killed may create another schedule meanwhile.
        occurrences = self.table("occurrences")
        ids = {one["key"]: one["schedule_id"] for one in self.table("schedules")}
        completed = Counter(one["occurrence"] for one in self.table("runs") if one["outcome"] == "completed")
        return [
            (ids[one["schedule"]], *(one[column] for column in OCCURRENCE_COLUMNS), completed[one["key"]])
            for one in occurrences
        ]


class Chance:
    """Picks that look random and are the same every time."""

    def __init__(self, seed):
        self._seed, self._count = seed, 0

    def below(self, limit):
        self._count += 1
        return zlib.crc32(f"{self._seed}/{self._count}".encode()) % limit

    def of(self, values):
        return values[self.below(len(values))]

    def pause(self, low, high):
        """Let a while pass, between so many seconds."""
        threading.Event().wait(low + (high - low) * self.below(1_000) / 1_000)


def every(seconds, *, count, after=2.5, offset=0):
    """So many fires, the first a while from now: what is created after it would not have all of them."""
    start = CLOCK.micros() + int(after * SECOND) + offset
    last = start + (count - 1) * int(seconds * SECOND)
    return IntervalTrigger(seconds, start_at=from_micros(start), end_at=from_micros(last))


def is_stopped(pid):
    """Whether every thread of a process stands still."""
    states = [task.read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) == {"T"}
