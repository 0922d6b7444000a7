"""The schema of SQLite, by migrations, tables and `schema.sql`; old databases are opened, newer and foreign refused."""

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from noonmark.core import edits
from noonmark.core.budgets.spend import Usage
from noonmark.core.errors import StoreUnavailable
from noonmark.core.event import Event
from noonmark.core.filters.index import discriminator
from noonmark.core.lifecycle import LIVE, STORED_PHASES, Phase
from noonmark.core.triggers import EventTrigger
from noonmark.stores.sql.reads.history import CROWDED
from noonmark.stores.sql.schema.ddl import ddl
from noonmark.stores.sql.schema.upgrade import scripts
from noonmark.stores.sql.schema.version import VERSION
from noonmark.stores.sqlite import SqliteStore
from noonmark.stores.sqlite.bootstrap import upgrade
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import LEASE, ROUTE, Bench
from noonmark.testing.factories import MINUTE

SCHEMA = files("noonmark.stores.sqlite").joinpath("schema.sql").read_text(encoding="utf-8")
FIRST = Path(__file__).parent / "data" / "first.sql"


def made(path, script):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def tables_of(path):
    """Every table and index; how a statement is laid out does not matter, nor the order of constraints."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {name: sorted(parts(sql)) for name, sql in rows}


def parts(sql):
    """What a statement says, one definition after another."""
    depth, words = 0, [""]
    for character in re.sub(r"\s+", " ", sql):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if (character == "," and depth == 1) or (character == ")" and depth == 0) or (character == "(" and depth == 1):
            words.append("")
        else:
            words[-1] += character
    return [word.strip() for word in words]


def held(path, among=None):
    """What every table of the first schema holds, by columns: all of them, or those that were held before."""
    with closing(sqlite3.connect(path)) as connection:
        collected = {}
        for name in re.findall(r"CREATE TABLE (\w+)", FIRST.read_text(encoding="utf-8")):
            columns = "*" if among is None else ", ".join(among[name][0])
            cursor = connection.execute(f"SELECT {columns} FROM {name}")  # noqa: S608 - ours
            collected[name] = [f'"{one[0]}"' for one in cursor.description], cursor.fetchall()
        return collected


def opened(path, clock=None):
    store = SqliteStore(path, clock or HandClock(), busy_seconds=1)
    store.open()
    return store


def test_metadata_text_and_migrations_are_one_schema(tmp_path):
    assert ddl("sqlite") == SCHEMA
    made(tmp_path / "text.db", SCHEMA)
    made(tmp_path / "migrated.db", SCHEMA.partition(";")[0])
    upgrade(lambda: sqlite3.connect(tmp_path / "migrated.db", isolation_level=None), VERSION)
    assert tables_of(tmp_path / "migrated.db") == tables_of(tmp_path / "text.db")


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_the_version_is_that_of_the_newest_migration(dialect):
    assert [number for number, _ in scripts(dialect)] == [f"{number:04}" for number in range(1, int(VERSION) + 1)]


def test_checks_follow_the_life_cycles():
    def listed(check):
        [names] = re.findall(rf"CONSTRAINT {check} CHECK .*?IN \(([^)]*)\)", SCHEMA)
        return {name.strip("' ") for name in names.split(",")}

    assert listed("phase_is_known") == set(Phase)
    assert listed("schedule_phase_is_known") == set(STORED_PHASES)
    assert listed("ended_when_final") == LIVE
    assert f"(history) WHERE history >= {CROWDED};" in SCHEMA
    assert listed("leased_by_a_node") == {Phase.CLAIMED, Phase.DISPATCHING}


def test_an_older_database_is_brought_up_to_date(tmp_path):
    path = tmp_path / "noonmark.db"
    made(path, SCHEMA.partition(";")[0])
    store = opened(path)
    store.close()
    made(tmp_path / "text.db", SCHEMA)
    assert tables_of(path) == tables_of(tmp_path / "text.db")
    opened(path).close()


def test_what_the_first_schema_held_is_there_after_an_upgrade(tmp_path):
    path = tmp_path / "noonmark.db"
    made(path, FIRST.read_text(encoding="utf-8"))
    before = held(path)
    assert before["alembic_version"][1] == [("0001",)]
    opened(path).close()
    made(tmp_path / "text.db", SCHEMA)
    assert tables_of(path) == tables_of(tmp_path / "text.db")
    assert held(path, before) == before | {"alembic_version": (['"version_num"'], [(VERSION,)])}


LISTENING = {
    11: '{"type": "event", "event_type": ["seen", "told"], "filters": {"n": 1.0, "m": {"gt": 2}}}',
    12: '{"type": "event", "event_type": "seen", "filters": {"m": {"gt": 2}}}',
    13: '{"type": "event", "event_type": "seen", "filters": {"n": {"about": 1}}}',
    14: '{"type": "event", "event_type": "seen", "filters": [1]}',
    15: '{"type": "event"',
    16: None,
}
"""Triggers that listen, as earlier versions kept them: some cannot be read."""


KEPT = """
    INSERT INTO {0}schedules (key, tenant, username, schedule_id, description, trigger_type, trigger_document,
        terms_document, source, route, created, is_listed)
    VALUES ({1}, 'acme', 'ada', 's{1}', '', 'event', {2}, '{{}}', 'test', 'function:work', 0, 1);
    INSERT INTO {0}event_listeners (tenant, event_type, schedule) VALUES ('acme', 'seen', {1});
"""


def listening(schema=""):
    """A script that keeps these triggers in a schema of an earlier version."""
    quoted = {key: "NULL" if document is None else f"'{document}'" for key, document in LISTENING.items()}
    kept = [KEPT.format(schema, key, document) for key, document in quoted.items()]
    return "".join([*kept, f"INSERT INTO {schema}event_listeners VALUES ('acme', 'told', {min(LISTENING)})"])  # noqa: S608 - ours


def test_triggers_get_their_discriminators_in_an_upgrade(tmp_path):
    path = tmp_path / "noonmark.db"
    made(path, FIRST.read_text(encoding="utf-8") + listening())
    opened(path).close()
    with closing(sqlite3.connect(path)) as connection:
        before, now = (
            connection.execute(f"SELECT schedule, {own} FROM event_listeners ORDER BY schedule").fetchall()  # noqa: S608 - ours
            for own in ("fields, wanted", "narrow_fields, narrow_wanted")
        )
    own, above = discriminator({"n": 1}), {"m": {"gt": 2}}
    assert before == [(2, "", ""), (11, *own), (11, *own), *((key, "", "") for key in range(12, 17))]
    own = discriminator({"n": 1} | above)
    unread = [(key, "", "") for key in range(13, 17)]
    assert now == [(2, "", ""), (11, *own), (11, *own), (12, *discriminator(above)), *unread]


TALKING = {
    21: ("session", '{"session_id": "desk"}'),
    22: ("session", '{"create": {"model": "test"}, "bound_session_id": "own"}'),
    23: ("session", '{"create": {"model": "test"}}'),
    24: ("mob", '{"mob_id": "crew"}'),
    25: ("mob", '{"mob_id": 1}'),
    26: ("mob", "[1]"),
}
"""Targets of agents, as earlier versions kept them."""
TALKS = """
    INSERT INTO schedules (key, tenant, username, schedule_id, description, trigger_type, terms_document, source, route,
        created, is_listed)
    VALUES ({0}, 'acme', 'ada', 's{0}', '', '', '{{"target": {2}}}', 'test', '{1}', 0, 1);
"""


def test_sessions_and_mobs_that_schedules_name_are_known_after_an_upgrade(tmp_path):
    path = tmp_path / "noonmark.db"
    talking = "".join(TALKS.format(key, *one) for key, one in TALKING.items())
    made(path, FIRST.read_text(encoding="utf-8") + talking)
    opened(path).close()
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT schedule, kind, name FROM target_uses WHERE schedule > 20").fetchall()
    assert sorted(rows) == [(21, "session", "desk"), (22, "session", "own"), (24, "mob", "crew")]


def test_a_trigger_that_an_older_node_changes_is_shown_every_event_until_a_newer_one_writes_it(tmp_path):
    path = tmp_path / "noonmark.db"
    bench = Bench(opened(path), HandClock())
    listens = bench.create(trigger=EventTrigger("seen", {"n": {"gte": 1, "lt": 2}}))

    def wanted():
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(
                "SELECT fields, wanted, narrow_fields, narrow_wanted FROM event_listeners"
            ).fetchall()

    own = [("", "", *discriminator({"n": {"gte": 1, "lt": 2}}))]
    assert wanted() == own
    made(path, "UPDATE schedules SET trigger_document = trigger_document, name = 'Paused, say'")
    assert wanted() == own
    made(path, "UPDATE schedules SET trigger_document = replace(trigger_document, '2', '200')")
    made(path, "UPDATE schedule_states SET version = version + 1")
    assert wanted() == [("", "", "", "")]
    assert bench.store.emit("acme", [Event(event_type="seen", emitted=0, event_id="e", payload={"n": 150})])
    [audience] = bench.store.unmatched(9)
    assert [one.declaration.trigger.filters for one in audience.listeners] == [{"n": {"gte": 1, "lt": 200}}]
    renamed = replace(audience.listeners[0].declaration, trigger=EventTrigger("seen", {"n": 3}))
    assert bench.commit(edits.edit(bench.snapshot(listens), renamed, now=bench.now, lookahead=0))
    assert wanted() == [discriminator({"n": 3}) * 2]
    bench.store.close()


def test_a_newer_database_is_refused(tmp_path):
    path = tmp_path / "noonmark.db"
    opened(path).close()
    made(path, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreUnavailable, match=rf"schema version 9999.*up to {VERSION}; upgrade Noonmark"):
        opened(path)


def test_a_database_of_another_program_is_refused(tmp_path):
    path = tmp_path / "noonmark.db"
    made(path, "CREATE TABLE notes (text)")
    with pytest.raises(StoreUnavailable, match="belongs to another program"):
        opened(path)


def test_a_file_that_is_not_a_database_is_refused(tmp_path):
    path = tmp_path / "noonmark.db"
    path.write_text("not a database at all, but long enough to be taken for the header of one" * 20)
    with pytest.raises(StoreUnavailable, match="is not an SQLite database"):
        opened(path)


USED = """
    UPDATE {0}runs SET tokens = 120, cost_usd = 0.3 WHERE occurrence = (SELECT min(occurrence) FROM {0}runs)
"""


def test_costs_of_earlier_runs_become_exact_in_an_upgrade(tmp_path):
    path = tmp_path / "noonmark.db"
    made(path, FIRST.read_text(encoding="utf-8") + ";" + USED.format(""))
    store = opened(path)
    [run] = store.runs("uid-1")
    assert run.usage == Usage(input_tokens=120, cost=300_000_000)
    store.close()
    # As a node of the earlier version goes on to write it.
    made(path, "UPDATE runs SET cost = NULL, cost_usd = 0.7")
    store = opened(path)
    assert [one.usage.cost for one in store.runs("uid-1")] == [700_000_000]
    store.close()


def test_the_first_database_is_opened_and_works(tmp_path):
    path = tmp_path / "noonmark.db"
    made(path, FIRST.read_text(encoding="utf-8"))
    clock = HandClock()
    store = opened(path, clock)
    bench = Bench(store, clock)
    kept = store.find("acme", "schedule-of-uid-1")
    assert (kept.counters.successful, kept.schedule.declaration.name) == (1, "nightly")
    assert [run.result for run in store.runs("uid-1")] == [{"rows": 3}]
    clock.now += 2 * MINUTE
    claims = store.claim("node-b", [ROUTE], now=clock.now, until=clock.now, limit=9, lease=LEASE)
    assert {claim.occurrence.origin for claim in claims} == {"trigger", "manual:waits"}
    [claim] = [claim for claim in claims if claim.occurrence.origin == "manual:waits"]
    assert claim.occurrence.payload == {"day": 1}
    assert bench.settle(bench.start(claim))
    store.close()


def test_neither_a_new_nor_an_older_database_needs_sqlalchemy(tmp_path):
    script = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from noonmark.stores.sqlite import SqliteStore\n"
        "for path in sys.argv[1:]: SqliteStore(path, lambda: 0).open()\n"
    )
    made(tmp_path / "older.db", FIRST.read_text(encoding="utf-8"))
    command = [sys.executable, "-c", script, tmp_path / "new.db", tmp_path / "older.db"]
    subprocess.run(command, check=True)
    assert tables_of(tmp_path / "older.db") == tables_of(tmp_path / "new.db")
