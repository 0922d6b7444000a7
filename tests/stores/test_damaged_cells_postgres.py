"""Damaged cells on PostgreSQL, whose columns are typed: invalid documents, and numbers out of range."""

import pytest

from noonmark.stores.postgres import PostgresStore
from noonmark.stores.sql.row_checks import KINDS
from tests.stores.population import judged, populate, watch

DROP_CHECKS = """
    DO $$ DECLARE one record; BEGIN
    FOR one IN SELECT conrelid::regclass AS held, conname FROM pg_constraint
    WHERE contype = 'c' AND conrelid <> 0 AND connamespace <> 'information_schema'::regnamespace LOOP
    EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', one.held, one.conname); END LOOP; END $$
"""
OF = "schedule = (SELECT schedule FROM schedule_states WHERE uid = '{0}')"
WIDE, NARROW = 2**63 - 1, 2**31 - 1
DAMAGES = [
    ("schedules", "labels", "key = (SELECT schedule FROM schedule_states WHERE uid = 'down')", "down", "'{\"a'"),
    ("schedules", "terms_document", "key = (SELECT schedule FROM schedule_states WHERE uid = 'down')", "down", "'[1]'"),
    ("schedule_states", "watermark", OF.format("one"), "one", WIDE),
    ("schedule_states", "fences", OF.format("two"), "two", NARROW),
    ("schedule_states", "total", OF.format("one"), "one", NARROW),
    ("schedule_states", "phase", OF.format("one"), "one", "'nonsense'"),
    ("occurrences", "fence", OF.format("crowd"), "crowd", NARROW),
    ("occurrences", "phase", OF.format("later"), "later", "'nonsense'"),
    ("nodes", "seen", "name = 'lost'", None, WIDE),
    ("event_listeners", "narrow_fields", OF.format("picky"), "picky", "'[1'"),
    ("events", "emitted", "key = 1", None, WIDE),
    ("event_streams", "newest", "tenant = 'acme'", None, WIDE),
    ("event_streams", "matched_until", "tenant = 'acme'", None, WIDE),
]


@pytest.fixture(scope="module")
def prepared(postgres):
    url = postgres.create("damage")
    now = populate(lambda clock: PostgresStore(url, clock))
    postgres.sql(DROP_CHECKS, "damage")
    yield now
    postgres.drop("damage")


def tried(postgres, now, *damage):
    postgres.sql('CREATE DATABASE "damaged" TEMPLATE "damage"')
    try:
        for text in damage:
            postgres.sql(text, "damaged")
        url = postgres.url("damaged")
        store = PostgresStore(url, lambda: now)
        reported = {(one.table, one.column) for one in store.inspect(limit=10_000).damaged}
        store.close()
        return watch(lambda clock: PostgresStore(url, clock), now), reported
    finally:
        postgres.drop("damaged")


@pytest.fixture(scope="module")
def undamaged(postgres, prepared):
    told, reported = tried(postgres, prepared)
    assert (told.failures, reported) == ([], set())
    return told


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: f"{one[0]}.{one[1]}")
def test_a_damaged_cell_costs_at_most_its_own_schedule(postgres, prepared, undamaged, damage):
    table, column, where, owner, value = damage
    told, reported = tried(postgres, prepared, f"UPDATE {table} SET {column} = {value} WHERE {where}")  # noqa: S608 - a test's own text
    assert judged(undamaged, told, owner) == []
    if KINDS[table][column].shape is not None or isinstance(value, int) or column == "phase":
        assert (table, column) in reported
