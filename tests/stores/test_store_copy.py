"""`noonmark store copy`, between real files and real databases, in processes of its own where it is killed."""

import json
import shutil
import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest

from noonmark import OnceTrigger, Scheduler
from noonmark.clocks import SystemClock
from noonmark.core.errors import Conflict, StoreUnavailable
from noonmark.stores.postgres import PostgresStore
from noonmark.stores.postgres.address import parse_address
from noonmark.stores.postgres.connections import connect
from noonmark.stores.redis.copy_endpoint import HOLD_SECONDS, RedisEndpoint
from noonmark.stores.redis.store import RedisStore
from noonmark.stores.sql.copy_tables import NOT_COPIED, copy_tables
from noonmark.stores.sql.schema.tables import metadata
from noonmark.stores.sql.schema.version import VERSION
from noonmark.stores.sqlite import SqliteStore
from noonmark.stores.sqlite.copy_endpoint import SqliteEndpoint
from noonmark.stores.store_copy.endpoint import mark_of
from tests.cli.runner import call
from tests.cli.terminal import ENVIRONMENT, NOONMARK, ROOT, in_terminal
from tests.embedded.waiting import NEVER, SOON, ended, eventually, phases
from tests.servers.forked import start_forked
from tests.stores.population import populate, watch
from tests.stores.test_sqlite_file import plans

NAMES = {table.name for table in copy_tables()}


@pytest.fixture(scope="module")
def populated(tmp_path_factory):
    """A file with rows in every table, and the time at which it was left."""
    path = tmp_path_factory.mktemp("populated") / "populated.db"
    return path, populate(lambda clock: SqliteStore(path, clock))


@pytest.fixture
def source(populated, tmp_path):
    path = tmp_path / "source.db"
    shutil.copyfile(populated[0], path)
    return path


def url(path):
    return f"sqlite:///{path}"


def copied(*arguments):
    """Copy a store that can be copied."""
    result = call("store", "copy", *arguments, "--json")
    assert result.code == 0, result
    return json.loads(result.out)


def content(path):
    """All rows of all tables that are copied."""
    with closing(sqlite3.connect(path)) as connection:
        return {
            table.name: connection.execute(
                f"SELECT {', '.join(table.columns)} FROM {table.name} ORDER BY {', '.join(table.key_columns)}"  # noqa: S608 - our own names
            ).fetchall()
            for table in copy_tables()
        }


def execute(path, *statements):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def started(folder, *arguments):
    """The command as a process that goes on; its messages are in a file."""
    with (folder / "out.txt").open("wb") as out, (folder / "err.txt").open("wb") as err:
        return start_forked(
            "noonmark", "store", "copy", *arguments, cwd=folder, env=ENVIRONMENT, stdout=out, stderr=err
        )


def test_every_table_is_copied_or_named_as_left_behind():
    assert NAMES | set(NOT_COPIED) == set(metadata.tables)
    for table in copy_tables():
        declared = metadata.tables[table.name]
        assert set(table.columns) == {column.name for column in declared.columns if column.computed is None}
        assert set(table.key_columns) == {column.name for column in declared.primary_key}
        assert (table.columns[0] == "key") == ("key" in table.columns), "its numbers go on"
    guide = (ROOT / "docs" / "guides" / "moving.md").read_text("utf-8")
    assert [name for name, reason in NOT_COPIED.items() if f"| `{name}` | {reason} |" not in guide] == []


def test_there_and_back_everything_is_equal_and_both_copies_run_on(populated, source, database, tmp_path):
    before = content(source)
    assert all(before.values()), "a table without rows proves nothing"
    plan = call("store", "copy", url(source), database.url, "--dry-run")
    assert (plan.code, f"{sum(map(len, before.values()))} rows would be copied" in plan.out) == (0, True), plan
    assert call("store", "copy", url(source), database.url).code == 6, "a schema is created on request only"
    there = copied(url(source), database.url, "--migrate")
    assert there["is_equal"]
    assert {one["table"]: one["rows"] for one in there["tables"]} == {name: len(rows) for name, rows in before.items()}
    assert there["sealed_secrets"] == 4
    back = tmp_path / "back.db"
    assert copied(database.url, url(back)) == there, "the digests do not depend on the database"
    assert content(back) == content(source) == before
    other = f"{database.url}?schema=other"
    assert copied(database.url, other, "--migrate") == there
    now = populated[1]
    expected = watch(lambda clock: SqliteStore(source, clock), now)
    assert expected.failures == []
    lines = [line for line in expected.lines if not line.startswith("node ")]  # the copies do not know these nodes
    assert len(lines) < len(expected.lines)
    for make in (lambda clock: PostgresStore(database.url, clock), lambda clock: SqliteStore(back, clock)):
        told = watch(make, now)
        assert (told.fires, told.failures, told.lines) == (expected.fires, [], lines)


def test_redis_and_the_others_have_the_same_rows_and_digests(populated, source, database, redis_url, tmp_path):
    there = copied(url(source), redis_url)
    assert there["is_equal"]
    assert {one["table"]: one["rows"] for one in there["tables"]} == {
        name: len(rows) for name, rows in content(source).items()
    }
    back, other, now = tmp_path / "back.db", f"{redis_url}?prefix=other", populated[1]
    assert copied(redis_url, url(back)) == copied(redis_url, other) == there
    assert copied(other, database.url, "--migrate") == there
    assert content(back) == content(source)
    expected = watch(lambda clock: SqliteStore(source, clock), now)
    told = watch(lambda clock: RedisStore(redis_url, clock), now)
    lines = [line for line in expected.lines if not line.startswith("node ")]  # the copy does not know these nodes
    promised, *others = told.lines
    assert "loses what the system has not written yet" in promised
    assert (told.fires, told.failures, others) == (expected.fires, [], lines)
    full = call("store", "copy", url(source), redis_url)
    assert (full.code, "TO: is not empty" in full.err) == (4, True)


def test_a_killed_copy_to_redis_keeps_nodes_out_and_goes_on(source, redis, redis_url, tmp_path):
    # It stops where the target takes no writes, after others are copied.
    end = RedisEndpoint(redis_url)
    mark = mark_of(SqliteEndpoint(str(source), SystemClock().micros), VERSION)
    with closing(end):
        end.begin(mark, copy_tables(), migrates=False)
        with SqliteEndpoint(str(source), SystemClock().micros).snapshot() as reader:
            for table in copy_tables()[:-5]:
                end.write(mark, table, remove=(), add=reader.read(table, None))
        with pytest.raises(Conflict, match="another process"):
            end.write(mark.replace("copy 0", "copy 1"), copy_tables()[0], remove=(), add=())
    with pytest.raises(StoreUnavailable, match="unfinished copy"):
        RedisStore(redis_url).open()
    # Meanwhile the source went on; an old version had written costs.
    execute(
        source,
        "DELETE FROM notes WHERE key = 1",
        "UPDATE secrets SET name = 'x' WHERE tenant = 'acme' AND name = 's0'",
        "UPDATE secrets SET name = 's0' WHERE tenant = 'acme' AND name = 's1'",
        "UPDATE secrets SET name = 's1' WHERE tenant = 'acme' AND name = 'x'",
        "INSERT INTO notes (key, tenant, noted, caller, operation) VALUES (99999, 'acme', 1, 'ada', 'test')",
        "UPDATE runs SET cost_usd = 0.25 WHERE fence = 1",
    )
    result = call("store", "copy", url(source), redis_url)
    assert (result.code, "Continuing" in result.err) == (0, True), result
    assert copied(redis_url, url(tmp_path / "back.db"))["is_equal"]
    assert content(tmp_path / "back.db") == content(source)
    assert redis.run("GET", "noonmark:numbers:notes") == b"99999", "numbers go on"


def test_a_held_store_is_read_and_not_written_to(redis, redis_url):
    store = RedisStore(redis_url)
    store.open()
    with closing(store), closing(RedisEndpoint(redis_url)) as end:
        with end.hold():
            with pytest.raises(StoreUnavailable, match="is being copied; nothing was written"):
                store.create(plans(1))
            assert store.schedules("acme", after=None, limit=10) == []
            other = closing(RedisEndpoint(redis_url))
            with other as second, pytest.raises(Conflict, match="another process copies this store"), second.hold():
                pass
            assert 0 < redis.run("TTL", "noonmark:hold") <= HOLD_SECONDS, "it ends with its process"
        assert store.create(plans(1)) == [True]


def test_a_damaged_record_of_redis_ends_the_copy(populated, source, redis, redis_url, tmp_path):
    copied(url(source), redis_url)
    [field] = redis.run("HKEYS", "noonmark:dependency_graphs")
    redis.run("HSET", "noonmark:dependency_graphs", field, "1:nonsense")
    result = call("store", "copy", redis_url, url(tmp_path / "back.db"))
    assert (result.code, "of dependency_graphs cannot be read" in result.err) == (4, True), result


def test_a_killed_copy_keeps_nodes_out_and_goes_on(source, database, tmp_path):
    assert call("migrate", "--store", database.url).code == 0
    with closing(connect(parse_address(f"{database.url}?timeout=120"))) as other:
        # It stops where somebody holds a table, after others are copied.
        other.run("BEGIN; LOCK TABLE runs IN SHARE MODE")
        process = started(tmp_path, url(source), database.url)
        waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'runs'::regclass"
        eventually(lambda: other.fetch(waits))
        process.kill()
        process.wait(SOON)
        other.run("ROLLBACK")
        [(half,)] = other.fetch("SELECT count(*) FROM occurrences")
    assert half == len(content(source)["occurrences"])
    with pytest.raises(StoreUnavailable, match="unfinished copy"):
        PostgresStore(database.url).open()
    back = call("store", "copy", database.url, url(tmp_path / "no.db"))
    assert (back.code, "unfinished copy" in back.err) == (6, True)
    strangers = tmp_path / "stranger.db"
    assert call("migrate", "--store", url(strangers)).code == 0
    refused = call("store", "copy", url(strangers), database.url)
    assert (refused.code, "unfinished copy of another store" in refused.err) == (4, True)
    # Meanwhile the source went on: a row is gone, one is new, and two have exchanged what only one may have.
    execute(
        source,
        "DELETE FROM notes WHERE key = 1",
        "UPDATE secrets SET name = 'x' WHERE tenant = 'acme' AND name = 's0'",
        "UPDATE secrets SET name = 's0' WHERE tenant = 'acme' AND name = 's1'",
        "UPDATE secrets SET name = 's1' WHERE tenant = 'acme' AND name = 'x'",
        "INSERT INTO notes (key, tenant, noted, caller, operation) VALUES (99999, 'acme', 1, 'ada', 'test')",
    )
    result = call("store", "copy", url(source), database.url)
    assert (result.code, "Continuing" in result.err) == (0, True), result
    assert copied(database.url, url(tmp_path / "back.db"))["is_equal"]
    assert content(tmp_path / "back.db") == content(source)
    full = call("store", "copy", url(source), database.url)
    assert (full.code, "TO: is not empty" in full.err) == (4, True)


def test_a_row_that_differs_is_found(source, tmp_path):
    target = tmp_path / "target.db"
    assert call("migrate", "--store", url(target)).code == 0
    execute(
        target,
        "CREATE TRIGGER changed AFTER INSERT ON notes WHEN NEW.key = 1"
        " BEGIN UPDATE notes SET caller = 'eve' WHERE key = 1; END",
    )
    result = call("store", "copy", url(source), url(target))
    assert result.code == 1, result
    assert [line.split()[0] for line in result.out.splitlines() if line.endswith("different")] == ["notes"]
    assert "differs from the source in notes" in result.err
    assert call("schedule", "list", "--store", url(target)).code == 6, "no node starts on it"
    execute(target, "DROP TRIGGER changed")
    code, shown = in_terminal(*NOONMARK, "store", "copy", url(source), url(target))
    assert (code, "100%" in shown, "different" in shown) == (0, True, False), shown
    assert content(target) == content(source)


def test_what_cannot_be_copied_is_refused(source, database, tmp_path):
    for ends, code, words in (
        ((url(tmp_path / "none.db"), database.url), 3, "there is no file"),
        (("memory://", database.url), 2, "cannot be copied"),
        ((url(source), "mongodb://127.0.0.1"), 2, "names no store"),
        (("redis://127.0.0.1:1", url(tmp_path / "none.db")), 6, "did not answer"),
        ((url(source), "redis://127.0.0.1/name"), 2, "cannot be read"),
        ((url(source), url(source)), 4, "the same store"),
    ):
        result = call("store", "copy", *ends)
        assert (result.code, words in result.err) == (code, True), result
    assert not (tmp_path / "none.db").exists()
    execute(source, "PRAGMA ignore_check_constraints = 1", "UPDATE notes SET revision_after = 'new' WHERE key = 1")
    damaged = call("store", "copy", url(source), database.url, "--migrate")
    assert (damaged.code, "a row of notes" in damaged.err) == (4, True), damaged


@pytest.mark.parametrize(("kind", "other_kind"), [("sqlite", "postgresql"), ("redis", "sqlite"), ("sqlite", "redis")])
def test_while_nodes_run_it_copies_online_and_ends_when_they_have_stopped(tmp_path, request, kind, other_kind):
    stores = {
        "sqlite": lambda: url(tmp_path / "store.db"),
        "postgresql": lambda: request.getfixturevalue("database").url,
        "redis": lambda: request.getfixturevalue("redis_url"),
    }
    path, target, ran = stores[kind](), stores[other_kind](), []
    with closing(Scheduler(path)) as scheduler:
        first = scheduler.schedule(ran.append, args=["source"], name="first", function_name="tell", trigger=NEVER)
        scheduler.start()
        eventually(scheduler._store.nodes)
        refused = call("store", "copy", path, target, "--migrate")
        assert (refused.code, "--online" in refused.err) == (4, True), refused
        process = started(tmp_path, path, target, "--migrate", "--online")
        eventually(lambda: "Stop the nodes" in (tmp_path / "err.txt").read_text() or process.poll() is not None)
        scheduler.schedule(ran.append, args=["source"], name="second", function_name="tell", trigger=NEVER)
        scheduler.run_now(first)
        assert ended(scheduler, first) == ["completed"]
        scheduler.stop()
    assert process.wait(SOON) == 0, (tmp_path / "err.txt").read_text()
    assert "Start nodes on the target only." in (tmp_path / "out.txt").read_text()
    with closing(Scheduler(target)) as scheduler:
        assert {job.name for job in scheduler.list_jobs()} == {"first", "second"}
        assert phases(scheduler, first)[0] == "completed"


def test_what_is_due_during_the_move_runs_once_on_the_target(tmp_path, database):
    path, ran = tmp_path / "target.db", []
    with closing(Scheduler(database.url)) as scheduler:
        due = OnceTrigger(SystemClock().now() + timedelta(milliseconds=200))
        job = scheduler.schedule(ran.append, args=["ran"], function_name="tell", trigger=due)
        copied(database.url, url(path))
        with closing(Scheduler(url(path))) as moved:
            moved.register_function("tell", ran.append)
            moved.start()
            assert ended(moved, job) == ["completed"]
            moved.stop()
            assert phases(moved, job) == ["completed"]
        assert "completed" not in phases(scheduler, job)
    assert ran == ["ran"]
