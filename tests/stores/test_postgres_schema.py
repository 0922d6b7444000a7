"""The schema of PostgreSQL, by migrations, tables and `schema.sql`: old ones are upgraded, others refused."""

# ruff: noqa: S608 - the statements are the test's own

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from itertools import count
from pathlib import Path

import psycopg
import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.core.filters.index import discriminator
from noonmark.stores.postgres import PostgresStore, bootstrap
from noonmark.stores.postgres import upgrade as postgres_upgrade
from noonmark.stores.postgres.address import parse_address
from noonmark.stores.postgres.session import column_types
from noonmark.stores.sql import migrations
from noonmark.stores.sql.schema import upgrade
from noonmark.stores.sql.schema.ddl import ddl
from noonmark.stores.sql.schema.tables import metadata
from noonmark.stores.sql.schema.version import VERSION
from noonmark.testing.conformance import CASES, HandClock, try_case
from noonmark.testing.conformance.bench import Bench
from tests.cli.runner import call
from tests.embedded.waiting import eventually
from tests.stores.test_sqlite_cost import a_day_of_events, a_day_of_waiting, a_day_of_work
from tests.stores.test_sqlite_schema import listening

SCHEMA = files("noonmark.stores.postgres").joinpath("schema.sql").read_text(encoding="utf-8")
NAMES = count(1)
NODES = 6
KINDS = {
    "bigint": ("BigInteger", "Integer", "SmallInteger"),
    "double precision": ("Double",),
    "text": ("Text", "String"),
    "bytea": ("LargeBinary",),
}
NEXT = f"{int(VERSION) + 1:04}"
NEXT_MIGRATION = """
ALTER TABLE schedules ADD COLUMN colour TEXT NOT NULL DEFAULT 'red';
INSERT INTO served_routes (route, seen) VALUES ('migrated', 0);
"""
# What PostgreSQL itself knows of a schema; names of sequences and constraints are as it made them.
CATALOGUES = {
    "columns": """
        SELECT table_name, column_name, ordinal_position, data_type, character_maximum_length, is_nullable,
            generation_expression, replace(column_default, %(schema)s || '.', ''), collation_name
        FROM information_schema.columns WHERE table_schema = %(schema)s
    """,
    "indexes": """
        SELECT tablename, indexname, replace(indexdef, %(schema)s || '.', '') FROM pg_indexes
        WHERE schemaname = %(schema)s
    """,
    "constraints": """
        SELECT conrelid::regclass::text, conname, contype, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = %(schema)s::regnamespace AND contype <> 'n'
    """,
    "triggers": """
        SELECT tgname, replace(pg_get_triggerdef(oid), %(schema)s || '.', '') FROM pg_trigger
        WHERE tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = %(schema)s::regnamespace)
    """,
    "functions": """
        SELECT proname, prosrc FROM pg_proc WHERE pronamespace = %(schema)s::regnamespace
    """,
    "tables": """
        SELECT relname, relkind, relpersistence, reloptions FROM pg_class
        WHERE relnamespace = %(schema)s::regnamespace
    """,
}


@pytest.fixture
def schema():
    return f"schema_{next(NAMES)}"


def opened(postgres, schema, clock=None):
    store = PostgresStore(f"{postgres.url()}?schema={schema}", clock or HandClock())
    store.open()
    return store


def made(postgres, schema):
    opened(postgres, schema).close()


def catalogue(postgres, schema):
    """What there is in a schema, without the name of the schema."""
    return {
        name: sorted(
            line.replace(f"{schema}.", "") for line in postgres.sql(text % {"schema": f"'{schema}'"}).splitlines()
        )
        for name, text in CATALOGUES.items()
    }


@pytest.fixture
def _two_versions(tmp_path, monkeypatch):
    """A Noonmark that is one migration newer than the real one."""
    scripts = tmp_path / "migrations"
    shutil.copytree(Path(migrations.__file__).parent, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    (scripts / f"{NEXT}_next.postgres.sql").write_text(NEXT_MIGRATION)
    monkeypatch.setattr(upgrade, "SCRIPTS", scripts)
    monkeypatch.setattr(bootstrap, "VERSION", NEXT)


def test_the_text_is_that_of_the_tables():
    assert ddl("postgres") == SCHEMA


def test_text_and_migrations_are_one_schema(postgres, schema):
    postgres.sql(f"CREATE SCHEMA {schema}; SET search_path = {schema}; {SCHEMA.partition(';')[0]}")
    made(postgres, schema)
    made(postgres, f"{schema}_from_text")
    found, expected = catalogue(postgres, schema), catalogue(postgres, f"{schema}_from_text")
    for name in CATALOGUES:
        assert found[name] == expected[name]
        assert len(found[name]) > (0 if name in {"triggers", "functions"} else 10), f"there are no {name} to compare"
    assert not any("FOREIGN KEY" in one for one in found["constraints"])
    texts = [one for one in found["columns"] if "|text|" in one and not one.startswith("schedule_execution_history")]
    assert all(one.endswith("|C") for one in texts)


@pytest.mark.usefixtures("_two_versions")
def test_an_older_schema_is_brought_up_to_date(postgres, schema, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(bootstrap, "VERSION", VERSION)
        bench = Bench(opened(postgres, schema), HandClock())
        schedule = bench.create()
        bench.store.close()
    bench = Bench(opened(postgres, schema), bench.clock)
    assert bench.stored(schedule).schedule == schedule
    assert postgres.sql(f"SELECT version_num FROM {schema}.alembic_version") == NEXT
    assert postgres.sql(f"SELECT colour FROM {schema}.schedules") == "red"
    bench.store.close()


def test_what_the_first_schema_held_is_there_after_an_upgrade(postgres, schema):
    postgres.sql(f"CREATE SCHEMA {schema}; SET search_path = {schema}; {SCHEMA.partition(';')[0]}")
    postgres_upgrade.upgrade(parse_address(f"{postgres.url()}?schema={schema}"), "0001", lock="SELECT 1")
    assert postgres.sql(f"SELECT to_regclass('{schema}.secrets') IS NULL") == "t"
    postgres.sql(f"INSERT INTO {schema}.notes (tenant, noted, caller, operation) VALUES ('acme', 7, 'ada', 'told')")
    store = opened(postgres, schema)
    assert [note.caller for note in store.audit_entries("acme", 9)] == ["ada"]
    assert store.secrets("acme") == []
    store.close()
    made(postgres, f"{schema}_new")
    assert catalogue(postgres, schema) == catalogue(postgres, f"{schema}_new")


def test_triggers_get_their_discriminators_in_an_upgrade_and_lose_them_when_an_older_node_changes_them(
    postgres, schema
):
    postgres.sql(f"CREATE SCHEMA {schema}; SET search_path = {schema}; {SCHEMA.partition(';')[0]}")
    address = parse_address(f"{postgres.url()}?schema={schema}")
    postgres_upgrade.upgrade(address, "0003", lock="SELECT 1")
    postgres.sql(listening(f"{schema}."))
    postgres_upgrade.upgrade(address, VERSION, lock="SELECT 1")
    above = {"m": {"gt": 2}}
    own = "|".join((*discriminator({"n": 1}), *discriminator({"n": 1} | above)))
    found = f"SELECT schedule, fields, wanted, narrow_fields, narrow_wanted FROM {schema}.event_listeners ORDER BY 1"
    others = [f"12|||{'|'.join(discriminator(above))}", *(f"{key}||||" for key in range(13, 17))]
    assert postgres.sql(found).splitlines() == [f"11|{own}", f"11|{own}", *others]
    postgres.sql(f"UPDATE {schema}.schedules SET trigger_document = trigger_document, name = 'Paused, say'")
    assert postgres.sql(found).splitlines() == [f"11|{own}", f"11|{own}", *others]
    postgres.sql(f"UPDATE {schema}.schedules SET trigger_document = replace(trigger_document, '1.0', '2')")
    assert postgres.sql(found).splitlines() == ["11||||", "11||||", *others]


def test_an_upgrade_that_meets_nodes_at_work_is_tried_again(postgres, schema):
    address = parse_address(f"{postgres.url()}?schema={schema}&timeout=4")
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'CREATE OR REPLACE VIEW%'"
    postgres.sql(f"CREATE SCHEMA {schema}; SET search_path = {schema}; {SCHEMA.partition(';')[0]}")
    postgres_upgrade.upgrade(address, "0001", lock="SELECT 1")
    with psycopg.connect(postgres.url()) as reader, ThreadPoolExecutor(1) as pool:
        reader.execute(f"SELECT count(*) FROM {schema}.schedule_execution_history")
        upgraded = pool.submit(postgres_upgrade.upgrade, address, VERSION, lock="SELECT 1")
        first = eventually(lambda: postgres.sql(waiting))
        eventually(lambda: postgres.sql(waiting) not in {"", first})
        reader.close()
        upgraded.result()
    assert postgres.sql(f"SELECT version_num FROM {schema}.alembic_version") == VERSION


@pytest.mark.usefixtures("_two_versions")
def test_of_nodes_that_start_together_one_brings_the_schema_up_to_date(postgres, schema, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(bootstrap, "VERSION", VERSION)
        made(postgres, schema)
    with ThreadPoolExecutor(NODES) as pool:
        list(pool.map(lambda _: made(postgres, schema), range(NODES)))
    assert postgres.sql(f"SELECT version_num FROM {schema}.alembic_version") == NEXT
    assert postgres.sql(f"SELECT count(*) FROM {schema}.served_routes") == "1"


@pytest.mark.usefixtures("_two_versions")
def test_an_upgrade_that_fails_leaves_everything_as_it_was(postgres, schema, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(bootstrap, "VERSION", VERSION)
        made(postgres, schema)
    postgres.sql(f"INSERT INTO {schema}.served_routes (route, seen) VALUES ('migrated', 0)")
    unchanged = catalogue(postgres, schema)
    with pytest.raises(StoreUnavailable) as caught:
        made(postgres, schema)
    message = str(caught.value)
    assert message.startswith(
        f"the schema {schema} of {postgres.url().replace('noonmark@', '')} could not be brought up"
    )
    assert "served_routes_pkey" in message
    assert "INSERT" not in message
    assert catalogue(postgres, schema) == unchanged
    assert postgres.sql(f"SELECT version_num FROM {schema}.alembic_version") == VERSION


def test_of_nodes_that_start_together_one_makes_the_schema(postgres, schema):
    with ThreadPoolExecutor(NODES) as pool:
        list(pool.map(lambda _: made(postgres, schema), range(NODES)))
    assert postgres.sql(f"SELECT count(*) FROM {schema}.alembic_version") == "1"


def test_a_newer_schema_is_refused(postgres, schema):
    made(postgres, schema)
    postgres.sql(f"UPDATE {schema}.alembic_version SET version_num = '9999'")
    with pytest.raises(
        StoreUnavailable, match=rf"the schema {schema} of .* has version 9999.*up to {VERSION}; upgrade Noonmark"
    ):
        made(postgres, schema)


@pytest.mark.parametrize(
    "tables",
    [
        "CREATE TABLE {}.notes (text text)",
        "CREATE TABLE {}.alembic_version (version_num text); INSERT INTO {}.alembic_version VALUES ('3f1c0ffee123')",
    ],
)
def test_a_schema_of_another_program_is_refused(postgres, schema, tables):
    postgres.sql(f"CREATE SCHEMA {schema}; {tables.format(schema, schema)}")
    with pytest.raises(StoreUnavailable, match=rf"the schema {schema} of .* belongs to another program"):
        made(postgres, schema)


def test_schemas_of_one_database_know_nothing_of_each_other(postgres, schema):
    first, second = (Bench(opened(postgres, f"{schema}_{n}"), HandClock()) for n in range(2))
    schedule = first.create()
    assert second.store.find(schedule.owner.tenant, schedule.schedule_id) is None
    assert second.create() == schedule
    for bench in (first, second):
        bench.store.close()


def test_a_schema_may_have_a_name_that_is_a_word_of_sql(postgres):
    for _ in range(2):
        made(postgres, "table")


def test_a_schema_that_somebody_made_for_us_is_used(postgres, schema):
    postgres.sql(f"CREATE ROLE {schema} LOGIN; CREATE SCHEMA {schema} AUTHORIZATION {schema}")
    url = postgres.url().replace("//noonmark@", f"//{schema}@")
    store = PostgresStore(f"{url}?schema={schema}")
    store.open()
    store.close()
    with pytest.raises(StoreUnavailable, match="permission denied for database"):
        PostgresStore(f"{url}?schema={schema}_other").open()


@pytest.mark.parametrize("work", [a_day_of_work, a_day_of_waiting, a_day_of_events])
def test_a_running_node_goes_on_after_a_newer_one_added_columns(postgres, schema, work):
    """It has prepared its statements by then, and those of whole rows get a column that it does not know."""
    clock = HandClock()
    store = opened(postgres, schema, clock)
    work(Bench(store, clock))
    for table in ("schedules", "schedule_states", "occurrences", "runs", "events", "concurrency_keys"):
        postgres.sql(f"ALTER TABLE {schema}.{table} ADD COLUMN colour text NOT NULL DEFAULT 'red'")
    postgres.sql(f"TRUNCATE {', '.join(f'{schema}.{name}' for name in tables_of(postgres, schema))}")
    store._schedule_cache.forget()
    work(Bench(store, clock))
    store.close()


def tables_of(postgres, schema):
    found = postgres.sql(
        f"SELECT relname FROM pg_class WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r'"
    )
    return [name for name in found.splitlines() if name != "alembic_version"]


@pytest.mark.parametrize("case", CASES[:: len(CASES) // 12], ids=lambda case: case.__name__)
def test_a_schema_with_columns_of_a_newer_version_is_used(postgres, schema, case):
    made(postgres, schema)
    for table in ("schedules", "schedule_states", "occurrences", "runs"):
        postgres.sql(f"ALTER TABLE {schema}.{table} ADD COLUMN colour text NOT NULL DEFAULT 'red'")
    try_case(case, lambda clock: PostgresStore(f"{postgres.url()}?schema={schema}", clock))


def test_the_types_in_which_columns_are_sent_are_those_of_the_tables():
    kinds = {name: kind for kind, names in KINDS.items() for name in names}
    assert column_types(SCHEMA) == {
        table.name: {column.name: kinds[type(column.type).__name__] for column in table.columns}
        for table in metadata.tables.values()
    }


def test_neither_a_new_nor_an_older_schema_needs_sqlalchemy(postgres, schema):
    script = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from noonmark.stores.postgres import PostgresStore; store = PostgresStore(sys.argv[1]).open()"
    )
    postgres.sql(f"CREATE SCHEMA {schema}; SET search_path = {schema}; {SCHEMA.partition(';')[0]}")
    for name in (schema, f"{schema}_new"):
        command = [sys.executable, "-W", "ignore", "-c", script, f"{postgres.url()}?schema={name}"]
        subprocess.run(command, check=True)
    assert catalogue(postgres, schema) == catalogue(postgres, f"{schema}_new")


READING = (
    ("schedule", "list"),
    ("failures",),
    ("top", "--once"),
    ("audit", "list"),
    ("node", "list"),
    ("export",),
    ("whoami",),
)


def test_reading_commands_create_no_schema_and_the_doctor_says_that_it_is_missing(postgres, schema):
    store = ("--store", f"{postgres.url()}?schema={schema}")
    for command in READING:
        refused = call(*command, *store)
        assert refused.code == 6, refused
        assert "does not exist yet" in refused.err
        assert "run `noonmark migrate`" in refused.err
    answer = call("doctor", *store)
    assert answer.code == 1, answer
    assert "schema    problem  there is none yet" in answer.out
    assert postgres.sql(f"SELECT to_regnamespace('{schema}') IS NULL") == "t"
    assert call("migrate", *store).code == 0
    assert call("schedule", "list", *store).out == "0 schedules\n"
