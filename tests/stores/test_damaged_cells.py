"""One damaged cell, in any column of any table, affects at most the schedule or row that it belongs to."""

import os
import shutil
import sqlite3

import pytest

from noonmark.core.instants import DAY_SECONDS, SECOND
from noonmark.stores.sql.row_checks import KINDS
from noonmark.stores.sql.schema.tables import metadata
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing.factories import MINUTE, NOW
from tests.stores.population import MINUTES, TOGETHER, judged, populate, watch

EVERY = "NOONMARK_SOAK" in os.environ
AT_ONCE = 1 if EVERY else 6
"""So many cells are damaged at once in `make test`; each of them alone, where that does not go well."""
VALUES = {
    "garbage": "garbage",
    "blob": b"\x00\xff",
    "huge": 2**63 - 1,
    "negative": -1,
    "nothing": None,
    "far": 2**53,
    "ancient": -(2**62),
    "empty": "",
    "broken": '{"a',
    "shape": "[1]",
    "other shape": '{"a": 1}',
    "real": 1e300,
    "zero": 0,
    "soon": NOW + 2 * DAY_SECONDS * SECOND,
    "fraction": NOW + 3 * MINUTE + 0.5,
}
USUAL = tuple(VALUES)[:4]
"""`make test` tries what once stopped everything, and one of these in each other column; `make soak` every value."""
ONCE = {
    ("schedules", "labels"): ("down", "empty"),
    ("schedules", "terms_document"): ("down", "shape"),
    ("schedules", "tenant"): ("one", "blob"),
    ("schedule_states", "watermark"): ("up", "garbage"),
    ("schedule_states", "fences"): ("two", "empty"),
    ("schedule_states", "total"): ("up", "broken"),
    ("schedule_states", "phase"): ("one", "far"),
    ("schedule_states", "queued"): ("gated", "negative"),
    ("schedule_states", "history"): ("gone", "shape"),
    ("occurrences", "ended"): ("crowd", "shape"),
    ("occurrences", "lease_end"): ("three", "negative"),
    ("occurrences", "key"): ("up", "huge"),
    ("nodes", "seen"): ("name = 'lost'", "shape"),
    ("event_listeners", "narrow_fields"): ("picky", "shape"),
    ("events", "emitted"): ("key = 1", "huge"),
    ("event_streams", "newest"): ("tenant = 'acme'", "garbage"),
    ("event_streams", "matched_until"): ("tenant = 'other'", "garbage"),
    ("event_streams", "cursor"): ("tenant = 'other'", "blob"),
}
"""Some that did, for each of the ways in which they did."""
AGAIN = {
    ("occurrences", "lease_end"): ("one", "far"),
    ("events", "emitted"): ("key = 1", "fraction"),
}
"""And some of what looks like a clock that was ahead."""
LEFT_OUT = {"alembic_version"}
"""Whoever opens a store sees to the version of its schema."""
NOBODYS = {
    "events", "event_streams", "nodes", "leadership", "served_routes", "notes", "idempotency_keys", "secrets",
    "api_keys", "rate_buckets", "dependency_graphs", "bundles", "bundle_chunks", "workflows", "workflow_runs",
    "workflow_steps", "step_waits", "approvals", "sessions", "session_messages", "mobs",
    "budgets", "budget_counters", "model_calls", "breakers", "halts", "proposals",
    "page_sessions",
}  # fmt: skip
"""These belong to no schedule: every one must go on."""
RELATED = (
    {"events", "event_streams"},
    {"nodes", "leadership", "served_routes"},
    {"bundles", "bundle_chunks"},
    {"workflows", "workflow_runs", "workflow_steps", "step_waits", "approvals"},
    {"sessions", "session_messages", "mobs"},
    {"budgets", "budget_counters", "model_calls", "breakers"},
)
"""Of these tables, damage to one might hide that to another; the rest have nothing to do with each other."""
TABLES = [table for table in metadata.tables if table not in LEFT_OUT]


def unsynced(path, clock):
    store = SqliteStore(path, clock)
    with store._connections.bare() as connection:
        connection.execute("PRAGMA synchronous = OFF")
    return store


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    path = tmp_path_factory.mktemp("damage") / "prepared.db"
    now = populate(lambda clock: unsynced(path, clock))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    return path, now


@pytest.fixture(scope="module")
def undamaged(prepared, tmp_path_factory):
    return tried(prepared, tmp_path_factory.mktemp("undamaged") / "noonmark.db")


def tried(prepared, path, *damages):
    """What becomes of a copy in which cells are damaged; None where the database itself refuses all of that."""
    original, now = prepared
    shutil.copyfile(original, path)
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    stored = []
    for table, column, where, value in damages:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA ignore_check_constraints = 1")
        try:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))  # noqa: S608 - a test's own text
            found = connection.execute(f"SELECT {column} FROM {table} WHERE {where}").fetchone()  # noqa: S608 - likewise
            stored.append((table, column, found))
        except sqlite3.IntegrityError:
            continue
        finally:
            connection.close()
    if damages and not stored:
        return None
    reported = inspected(unsynced(path, lambda: now))
    lines = watch(lambda clock: unsynced(path, clock), now)
    for table, column, found in stored:
        kind = None if found is None else KINDS[table].get(column)
        if kind is not None and kind.problem(found[0]) and (table, column) not in reported:
            lines.failures.append(f"{table}.{column}: the damage is not reported")
    return lines


def inspected(store):
    """The tables and columns in which an inspection finds damage."""
    found, after = set(), None
    while True:
        page = store.inspect(after, limit=10_000)
        found |= {(one.table, one.column) for one in page.damaged}
        after = page.after
        if after is None:
            store.close()
            return found


def rows(path, table):
    """The rows of a table: what finds each, and whose it is."""
    connection = sqlite3.connect(path)
    names = dict(connection.execute("SELECT schedule, uid FROM schedule_states").fetchall())
    keys = [column.name for column in metadata.tables[table].primary_key]
    cursor = connection.execute(f"SELECT * FROM {table} ORDER BY {', '.join(keys)}")  # noqa: S608 - likewise
    collected = []
    for values in cursor.fetchall():
        row = dict(zip([one[0] for one in cursor.description], values, strict=True))
        where = " AND ".join(f"{key} = {row[key]!r}" for key in keys)
        if table in NOBODYS:
            collected.append((where, None))
        elif table == "concurrency_keys":
            collected.append((where, "keyed"))
        else:
            collected.append((where, names[row["key" if table == "schedules" else "schedule"]]))
    connection.close()
    return collected


def cases(path, table):
    """Every cell of a table that is damaged, and how."""
    found = rows(path, table)
    assert found, f"there is no row in {table}"
    for place, column in enumerate(one for one in metadata.tables[table].columns if one.computed is None):
        if EVERY:
            yield from ((table, column.name, where, owner, name) for where, owner in found for name in VALUES)
            continue
        known = [once[table, column.name] for once in (ONCE, AGAIN) if (table, column.name) in once]
        for whose, name in known:
            where, owner = [one for one in found if whose in one][-1]
            yield table, column.name, where, owner, name
        if not known:
            where, owner = found[7 * place % len(found)]
            yield table, column.name, where, owner, USUAL[(place + len(table)) % len(USUAL)]


def batches(cases):
    """Cases that are tried together first: of rows and schedules that have nothing to do with each other."""
    collected = []
    for case in cases:
        fit = [batch for batch in collected if len(batch) < AT_ONCE and all(are_apart(case, one) for one in batch)]
        if fit:
            fit[0].append(case)
        else:
            collected.append([case])
    return collected


def are_apart(case, other):
    """Whether two cells can be damaged at once, and neither hides what comes of the other."""
    (table, _, where, owner, _), (their_table, _, their_where, their_owner, _) = case, other
    if owner is not None or their_owner is not None:
        is_same_row = (table, where) == (their_table, their_where)
        return not is_same_row and their_owner not in TOGETHER.get(owner, {owner})
    if table == their_table:
        return where != their_where
    return not any({table, their_table} <= related for related in RELATED)


def test_an_undamaged_store_works(undamaged):
    assert undamaged.failures == []
    assert {undamaged.fires[one] for one in ("one", "two", "three", "up", "down", "gated")} == {MINUTES}
    assert {undamaged.fires[one] for one in ("ears", "picky", "abroad")} == {MINUTES}


@pytest.mark.parametrize("tables", [[table] for table in TABLES] if EVERY else [TABLES], ids=lambda one: one[-1])
def test_a_damaged_cell_costs_at_most_its_own_schedule(prepared, undamaged, tmp_path, tables):
    def problems_of(*damaged):
        cells = [(table, column, where, VALUES[name]) for table, column, where, _, name in damaged]
        told = tried(prepared, tmp_path / "noonmark.db", *cells)
        return [] if told is None else judged(undamaged, told, *(owner for *_, owner, _ in damaged))

    wrong = {}
    for batch in batches(case for table in tables for case in cases(prepared[0], table)):
        if not problems_of(*batch):
            continue
        for case in batch:
            table, column, where, owner, name = case
            if problems := problems_of(case):
                wrong[f"{table}.{column} = {name} of {owner or where}"] = problems[:3]
    assert not wrong, "\n".join(f"{one}: {problems}" for one, problems in wrong.items())


def test_every_column_has_a_kind():
    expected = {
        table.name: {
            column.name: (column.type.python_type, column.nullable)
            for column in table.columns
            if column.computed is None
        }
        for table in metadata.tables.values()
        if table.name not in LEFT_OUT
    }
    del expected["bundle_chunks"]["data"]  # too large to be inspected
    assert {
        table: {name: (kind.holds, kind.is_optional) for name, kind in kinds.items()} for table, kinds in KINDS.items()
    } == expected
