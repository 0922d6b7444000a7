"""`noonmark backup` while nodes are running, and `noonmark restore`."""

import os
import sqlite3
import stat
import threading
from contextlib import closing
from datetime import timedelta

import pytest

from noonmark import IntervalTrigger, OnceTrigger, Scheduler
from noonmark.core.instants import SECOND
from noonmark.ports.records import Heartbeat
from noonmark.stores.sqlite import backup
from noonmark.testing import FakeClock, ManualDriver
from tests.cli.runner import call
from tests.embedded.conftest import START
from tests.embedded.waiting import NEVER, SOON


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


@pytest.fixture
def url(path):
    return f"sqlite:///{path}"


@pytest.fixture
def scheduler(url):
    with closing(Scheduler(url)) as scheduler:
        yield scheduler


@pytest.fixture
def copy(tmp_path):
    return tmp_path / "copy.db"


def nothing():
    pass


def names(url):
    with closing(Scheduler(url)) as scheduler:
        return sorted(job.name for job in scheduler.list_jobs())


def rows(path, statement):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


class TestBackup:
    def test_it_is_one_private_sound_file(self, scheduler, url, copy):
        scheduler.schedule(nothing, name="kept", trigger=NEVER)
        before = os.umask(0)
        try:
            done = call("backup", str(copy), "--store", url)
        finally:
            os.umask(before)
        assert (done.code, done.out) == (0, f"Wrote {copy.stat().st_size:,} bytes to {copy}.\n")
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        assert sorted(one.name for one in copy.parent.iterdir() if "copy" in one.name) == ["copy.db"]
        assert rows(copy, "PRAGMA integrity_check") == [("ok",)]
        assert rows(copy, "SELECT name FROM schedules") == [("kept",)]

    def test_it_is_consistent_while_the_store_is_written(self, scheduler, url, copy):
        """Each transaction creates two schedules, so an inconsistent copy would have an odd number."""
        begun, stopping = threading.Event(), threading.Event()

        def write():
            while not stopping.is_set():
                scheduler.create_many({"func": nothing, "trigger": NEVER} for _ in range(2))
                begun.set()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert begun.wait(SOON)
            for _ in range(5):
                assert call("backup", str(copy), "--overwrite", "--store", url).code == 0
                [(count,)] = rows(copy, "SELECT count(*) FROM schedules")
                assert count % 2 == 0
                assert rows(copy, "PRAGMA integrity_check") == [("ok",)]
        finally:
            stopping.set()
            writer.join()
        assert len(scheduler.list_jobs()) >= count > 0

    def test_a_file_is_overwritten_only_when_asked(self, scheduler, url, copy):
        copy.write_text("mine")
        scheduler.list_jobs()
        done = call("backup", str(copy), "--store", url)
        assert done.errors == [f"FILE: {copy} exists; name another file, or add --overwrite"]
        assert copy.read_text() == "mine"
        assert call("backup", str(copy), "--store", url, "--overwrite").code == 0
        assert rows(copy, "SELECT count(*) FROM schedules") == [(0,)]

    def test_a_database_in_use_is_not_overwritten(self, scheduler, url, path, copy):
        scheduler.list_jobs()
        assert call("backup", str(path), "--store", url, "--overwrite").errors == [
            f"FILE: {path} is the store itself; name another file"
        ]
        with closing(Scheduler(f"sqlite:///{copy}")) as other:
            other.list_jobs()
            [message] = call("backup", str(copy), "--store", url, "--overwrite").errors
        assert message.endswith("belongs to a database in use; name another file")

    @pytest.mark.parametrize("command", ["backup", "restore"])
    @pytest.mark.parametrize(
        ("store", "message"),
        [
            ("postgresql://jobs:secret@db/jobs", "postgresql://jobs:***@db/jobs is not a SQLite file; for PostgreSQL"),
            ("memory://", "memory:// is not a SQLite file"),
        ],
    )
    def test_another_store_is_refused_with_advice(self, copy, command, store, message):
        done = call(command, str(copy), "--store", store)
        assert done.code != 0
        assert message in done.err
        assert "secret" not in done.err

    def test_missing_and_foreign_files_are_refused(self, url, path, copy, tmp_path):
        assert call("backup", str(copy), "--store", url).errors == [f"--store: there is no file {path}"]
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE somebody_elses (a)")
        assert call("backup", str(copy), "--store", url).errors == [f"{path} is not a database of Noonmark"]
        [message] = call("backup", str(tmp_path / "no" / "copy.db"), "--store", url).errors
        assert message == f"FILE: there is no folder {tmp_path / 'no'}"
        assert not copy.exists()


class TestRestore:
    def test_everything_is_as_it_was(self, scheduler, url, copy, tmp_path):
        scheduler.schedule(nothing, name="kept", trigger=NEVER)
        call("backup", str(copy), "--store", url)
        scheduler.schedule(nothing, name="later", trigger=NEVER)
        done = call("restore", str(copy), "--store", url)
        assert (done.code, done.out) == (0, f"Restored {url} from {copy}. Restart its nodes.\n")
        assert [job.name for job in scheduler.list_jobs()] == ["kept"], "also for whoever has it open"
        fresh = f"sqlite:///{tmp_path / 'fresh.db'}"
        assert call("restore", str(copy), "--store", fresh).code == 0
        assert names(fresh) == ["kept"]
        assert stat.S_IMODE((tmp_path / "fresh.db").stat().st_mode) == 0o600

    def test_the_store_keeps_its_page_size(self, scheduler, url, path, copy):
        scheduler.schedule(nothing, name="kept", trigger=NEVER)
        call("backup", str(copy), "--store", url)
        scheduler.schedule(nothing, name="later", trigger=NEVER)
        before = rows(path, "PRAGMA page_size")
        with closing(sqlite3.connect(copy)) as connection:  # as one of an earlier version
            connection.execute("PRAGMA page_size = 4096")
            connection.execute("VACUUM")
        assert rows(copy, "PRAGMA page_size") == [(4096,)] != before
        assert call("restore", str(copy), "--store", url).code == 0
        assert [job.name for job in scheduler.list_jobs()] == ["kept"]
        assert rows(path, "PRAGMA page_size") == before

    def test_it_is_refused_while_a_node_is_alive(self, scheduler, url, copy):
        scheduler.schedule(nothing, name="kept", trigger=NEVER)
        call("backup", str(copy), "--store", url)
        scheduler.schedule(nothing, name="later", trigger=NEVER)
        store = scheduler._store
        store.beat(Heartbeat(node="busy-node", lease=60 * SECOND), now=store.clock())
        [message] = call("restore", str(copy), "--store", url).errors
        assert message.startswith("--store: busy-node may still be at work in ")
        assert len(names(url)) == 2
        assert call("restore", str(copy), "--store", url, "--force").code == 0
        assert names(url) == ["kept"]
        assert call("restore", str(copy), "--store", url).code == 0, "no node of the backup is alive"

    def test_an_unsound_backup_changes_nothing(self, scheduler, url, copy, tmp_path):
        before = scheduler.create_many({"func": nothing, "trigger": NEVER} for _ in range(200))
        call("backup", str(copy), "--store", url)
        content = copy.read_bytes()
        damaged = tmp_path / "damaged.db"
        half = len(content) // 8192 * 4096
        damaged.write_bytes(content[:half] + b"\xff" * 4096 + content[half + 4096 :])
        newer = tmp_path / "newer.db"
        newer.write_bytes(content)
        with closing(sqlite3.connect(newer)) as connection:
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
            connection.commit()
        text = tmp_path / "text.db"
        text.write_text("not a database, but long enough to be taken for one at first glance" * 20)
        for file, message in [
            (damaged, "damaged"),
            (newer, "has schema version 9999, and this Noonmark knows 0001 to"),
            (text, "it is not an SQLite database"),
            (tmp_path / "none.db", "FILE: there is no file"),
        ]:
            done = call("restore", str(file), "--store", url)
            assert done.code != 0
            assert message in done.err
        assert sorted(job.id for job in scheduler.list_jobs()) == sorted(before)
        assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []

    def test_a_damaged_store_is_replaced_when_forced(self, scheduler, url, copy, tmp_path):
        scheduler.schedule(nothing, name="kept", trigger=NEVER)
        call("backup", str(copy), "--store", url)
        broken = tmp_path / "broken.db"
        broken.write_text("what the disk made of it" * 100)
        broken.with_name("broken.db-wal").write_text("the log of another life")
        there = f"sqlite:///{broken}"
        [message] = call("restore", str(copy), "--store", there).errors
        assert "--force replaces it" in message
        assert call("restore", str(copy), "--store", there, "--force").code == 0
        assert names(there) == ["kept"]

    def test_the_target_of_a_link_is_replaced_with_its_log(self, scheduler, url, copy, tmp_path):
        scheduler.schedule(nothing, name="kept", trigger=NEVER)
        call("backup", str(copy), "--store", url)
        link, real = tmp_path / "link.db", tmp_path / "real" / "jobs.db"
        real.parent.mkdir()
        real.write_text("what the disk made of it" * 100)
        real.with_name("jobs.db-wal").write_text("the log of another life")
        link.symlink_to(real)
        assert call("restore", str(copy), "--store", f"sqlite:///{link}", "--force").code == 0
        assert link.is_symlink()
        assert [one.name for one in real.parent.iterdir()] == ["jobs.db"]
        assert names(f"sqlite:///{link}") == ["kept"]
        assert call("backup", str(link), "--store", url, "--overwrite").code == 0
        assert link.is_symlink()

    def test_force_does_not_replace_a_locked_store(self, scheduler, url, copy, tmp_path, monkeypatch):
        monkeypatch.setattr(backup, "BUSY_SECONDS", 0.1)
        scheduler.schedule(nothing, name="kept", trigger=NEVER)
        call("backup", str(copy), "--store", url)
        locked = tmp_path / "locked.db"
        there = f"sqlite:///{locked}"
        assert call("restore", str(copy), "--store", there).code == 0
        before = locked.stat().st_ino
        with closing(sqlite3.connect(locked, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            [message] = call("restore", str(copy), "--store", there, "--force").errors
        assert "another process keeps it locked" in message
        assert locked.stat().st_ino == before

    @pytest.mark.parametrize("force", [(), ("--force",)], ids=["plain", "forced"])
    def test_only_a_regular_file_is_replaced(self, scheduler, url, copy, tmp_path, force):
        scheduler.list_jobs()
        call("backup", str(copy), "--store", url)
        pipe, folder = tmp_path / "pipe", tmp_path / "folder"
        os.mkfifo(pipe)
        folder.mkdir()
        for place in (pipe, folder):
            done = call("restore", str(copy), "--store", f"sqlite:///{place}", *force)
            assert done.errors == [f"--store: {place} is not a regular file; name another one"]
        done = call("backup", str(pipe), "--store", url, "--overwrite")
        assert done.errors == [f"FILE: {pipe} is not a regular file; name another one"]
        assert pipe.is_fifo()
        assert folder.is_dir()

    def test_the_database_of_another_program_is_never_replaced(self, scheduler, url, copy, tmp_path):
        scheduler.list_jobs()
        call("backup", str(copy), "--store", url)
        other = tmp_path / "other.db"
        with closing(sqlite3.connect(other)) as connection:
            connection.execute("CREATE TABLE somebody_elses (a)")
        done = call("restore", str(copy), "--store", f"sqlite:///{other}", "--force")
        assert done.errors == [f"{other} is not a database of Noonmark"]
        assert rows(other, "SELECT count(*) FROM somebody_elses") == [(0,)]

    def test_nothing_runs_again_outside_the_misfire_window_and_fences_rise(self, url, path, copy):
        clock, ran = FakeClock(START), []
        scheduler = Scheduler(url, clock=clock)
        driver = ManualDriver(scheduler)
        hourly = IntervalTrigger(3600, start_at=START)
        job = scheduler.schedule(lambda context: ran.append(context.nominal_at), trigger=hourly, function_name="work")
        once = OnceTrigger(START + timedelta(hours=5))
        scheduler.schedule(lambda: ran.append("once"), trigger=once, function_name="once", misfire="skip")
        driver.run_until(START + timedelta(hours=2))
        assert call("backup", str(copy), "--store", url).code == 0
        driver.run_until(START + timedelta(hours=23, minutes=30))
        before = list(ran)
        assert "once" in before
        fences = rows(path, "SELECT id, fence FROM occurrences")
        scheduler.close()

        # The node was last heard of at a time that has not come yet.
        assert call("restore", str(copy), "--store", url, "--force").code == 0
        scheduler = Scheduler(url, clock=clock)
        driver = ManualDriver(scheduler)
        scheduler.register_function("work", lambda context: ran.append(context.nominal_at))
        scheduler.register_function("once", lambda: ran.append("once"))
        driver.run_due()
        assert ran == before, "all of it lies outside the misfire window"
        driver.run_until(START + timedelta(hours=25))
        assert ran[len(before) :] == [START + timedelta(hours=24), START + timedelta(hours=25)]
        phases = {str(one.phase) for one in scheduler.occurrences(job)}
        assert phases == {"completed", "misfired", "pending"}
        after = dict(rows(path, "SELECT id, fence FROM occurrences WHERE ended IS NULL OR phase = 'misfired'"))
        assert all(after[one] > fence for one, fence in fences if one in after)
        assert after
        assert rows(path, "PRAGMA integrity_check") == [("ok",)]
        scheduler.close()
