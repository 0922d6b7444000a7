"""An impossible version table: every command reports it in a sentence, and nothing is written."""

import sqlite3
from contextlib import closing

import pytest

from noonmark import Scheduler
from noonmark.core.errors import StoreUnavailable
from noonmark.stores.postgres import PostgresStore
from noonmark.stores.sql.schema.version import OLDEST, VERSION, stored_version
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing.conformance import HandClock
from tests.cli.runner import call
from tests.cli.terminal import NOONMARK, in_pipe

OURS = {"alembic_version", "schedules", "schedule_states", "occurrences"}
WAY_OUT = (
    "so the version of its schema is not known; restore it from a backup, or, if you know the version, from"
    f" {OLDEST} to {VERSION}, let alembic_version have one row that says it"
)
SAYS = "its table alembic_version "
ANEW = "DROP TABLE alembic_version; CREATE TABLE alembic_version ({}); INSERT INTO alembic_version VALUES ({})"
DAMAGES = {
    "empty": ("DELETE FROM alembic_version", f"{SAYS}has no row"),
    "several": ("INSERT INTO alembic_version VALUES ('0001')", f"{SAYS}has several rows"),
    "null": (ANEW.format("version_num text", "NULL"), f"{SAYS}has a row without text"),
    "garbage": ("UPDATE alembic_version SET version_num = 'g\u00e4rbage'", f"{SAYS}says 'g"),
    "blank": ("UPDATE alembic_version SET version_num = ''", f"{SAYS}says ''"),
    "unknown": ("UPDATE alembic_version SET version_num = '0000'", f"{SAYS}says '0000'"),
    "digits": ("UPDATE alembic_version SET version_num = '\u0660\u0660\u0660\u0665'", f"{SAYS}says '"),
    "missing": ("DROP TABLE alembic_version", "it has no table alembic_version"),
    "column": (ANEW.format("other text", "'0005'"), f"{SAYS}has a row without text"),
}
OF_SQLITE = {
    "blob": ("UPDATE alembic_version SET version_num = x'30303035'", f"{SAYS}has a row without text"),
    "undecodable": ("UPDATE alembic_version SET version_num = CAST(x'ff30' AS TEXT)", f"{SAYS}says "),
}
OF_POSTGRES = {
    "blob": (ANEW.format("version_num bytea", "'\\x30303035'"), f"{SAYS}says '"),
    "number": (ANEW.format("version_num int", "5"), f"{SAYS}says '5'"),
}

COLUMNS = """
    SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'noonmark' ORDER BY 1, 2
"""


@pytest.mark.parametrize(
    ("tables", "found", "version"),
    [
        (set(), [], None),
        ({"alembic_version"}, [], ""),
        (OURS, ["0001"], "0001"),
        (OURS, [VERSION], VERSION),
        (OURS, ["9999"], "9999"),
        ({"alembic_version"}, ["0003"], "0003"),
    ],
)
def test_a_version_that_can_be_is_reported(tables, found, version):
    assert stored_version(tables, found, what="it", instead="elsewhere") == version


@pytest.mark.parametrize(
    ("tables", "found"),
    [
        ({"notes"}, []),
        ({"alembic_version", "notes"}, []),
        ({"alembic_version"}, ["3f1c"]),
        ({"notes", "schedules"}, []),
    ],
)
def test_what_is_not_ours_is_that_of_another_program(tables, found):
    with pytest.raises(StoreUnavailable, match=r"^it belongs to another program; elsewhere$"):
        stored_version(tables, found, what="it", instead="elsewhere")


def test_a_long_text_is_cut():
    with pytest.raises(StoreUnavailable) as refused:
        stored_version(OURS, ["x" * 50_000], what="it", instead="elsewhere")
    assert len(refused.value.message) < 400


class File:
    """A store in a file."""

    def __init__(self, path):
        self.path, self.url, self.shown = path, f"sqlite:///{path}", f"the database {path}"

    def open(self):
        store = SqliteStore(self.path, HandClock())
        try:
            store.open()
        finally:
            store.close()

    def run(self, script):
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript(script)

    def content(self):
        with closing(sqlite3.connect(self.path)) as connection:
            connection.text_factory = bytes
            schema = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
            tables = [name.decode() for kind, name, _ in schema if kind == b"table"]
            return schema, {one: connection.execute(f'SELECT * FROM "{one}"').fetchall() for one in tables}  # noqa: S608


class Schema:
    """A store on a server."""

    def __init__(self, database):
        self.database, self.url = database, database.url
        self.shown = "the schema noonmark of "

    def open(self):
        store = PostgresStore(self.url)
        try:
            store.open()
        finally:
            store.close()

    def run(self, script):
        self.database.sql(f"SET search_path = noonmark; {script}")

    def content(self):
        columns = self.database.sql(COLUMNS)
        has_table = "alembic_version|" in columns
        return columns, has_table and self.database.sql("SELECT one FROM noonmark.alembic_version AS one ORDER BY 1")


def refusal(act):
    with pytest.raises(StoreUnavailable) as refused:
        act()
    return refused.value.message


@pytest.mark.parametrize(("damage", "fault"), [pytest.param(*v, id=k) for k, v in (DAMAGES | OF_SQLITE).items()])
def test_a_damaged_version_of_a_file_is_refused(tmp_path, damage, fault):
    place = File(tmp_path / "noonmark.db")
    place.open()
    place.run(damage)
    before = place.content()
    error = refusal(place.open)
    assert error.startswith(f"{place.shown} is damaged: {fault}"), error
    assert error.endswith(WAY_OUT)
    assert refusal(lambda: Scheduler(place.url).list_jobs()) == error
    for command in (["migrate"], ["schedule", "list"]):
        answer = call(*command, "--store", place.url)
        assert (answer.code, answer.errors) == (6, [error])
    answer = call("backup", tmp_path / "copy.db", "--store", place.url)
    assert (answer.code, answer.errors) == (6, [error])
    assert place.content() == before


def test_a_damaged_version_is_replaced_by_a_backup_on_request(tmp_path):
    place, copy = File(tmp_path / "noonmark.db"), tmp_path / "copy.db"
    place.open()
    assert call("backup", copy, "--store", place.url).code == 0
    place.run("DELETE FROM alembic_version")
    answer = call("restore", copy, "--store", place.url)
    assert answer.code == 4
    assert answer.errors[0].endswith("; --force replaces what it holds")
    assert call("restore", copy, "--store", place.url, "--force").code == 0
    place.open()


def test_damaged_versions_of_a_schema_on_a_server_are_refused(database):
    place = Schema(database)
    for damage, fault in (DAMAGES | OF_POSTGRES).values():
        place.open()
        place.run(damage)
        before = place.content()
        error = refusal(place.open)
        assert error.startswith(place.shown), error
        assert f" is damaged: {fault}" in error
        assert error.endswith(WAY_OUT)
        answer = call("migrate", "--store", place.url)
        assert (answer.code, answer.errors) == (6, [error])
        assert place.content() == before
        database.sql("DROP SCHEMA noonmark CASCADE")


@pytest.mark.parametrize("version", ["0001", "0003"])
def test_a_version_that_the_schema_does_not_have_is_refused_and_nothing_is_written(tmp_path, database, version):
    for place in (File(tmp_path / "noonmark.db"), Schema(database)):
        place.open()
        place.run(f"UPDATE alembic_version SET version_num = '{version}'")  # noqa: S608
        before = place.content()
        error = refusal(place.open)
        assert error.startswith(place.shown)
        assert "could not be brought up to date, and was left unchanged: " in error
        assert error.endswith("not of the version that its table alembic_version says, restore it from a backup")
        assert place.content() == before


def test_a_server_does_not_start_on_one(tmp_path):
    place = File(tmp_path / "noonmark.db")
    place.open()
    place.run("DELETE FROM alembic_version")
    told = in_pipe(*NOONMARK, "serve", "--store", place.url, "--port", "0")
    assert told.returncode == 6
    assert told.stderr.startswith(f"noonmark: {place.shown} is damaged: "), told.stderr
    assert "Traceback" not in told.stderr
