"""The schema as text, so that a new database needs no SQLAlchemy: `python -m noonmark.stores.sql.schema.ddl sqlite`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from noonmark.stores.sql.schema.tables import metadata

if TYPE_CHECKING:
    from sqlalchemy import Column, ForeignKeyConstraint, Index


INSTANTS = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%S', {0} / 1000000, 'unixepoch') || printf('.%06dZ', {0} % 1000000)",
    "postgresql": "to_char(to_timestamp({0} / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS')"
    " || '.' || lpad(CAST({0} % 1000000 AS TEXT), 6, '0') || 'Z'",
}
"""An instant, in microseconds, as text in UTC that sorts as the instants do; nothing becomes nothing."""

_OCCURRENCE = """schedules.schedule_id,
    schedules.name AS schedule_name,
    schedules.tenant,
    schedules.username,
    occurrences.id AS occurrence_id,
    occurrences.origin,
    occurrences.phase,
    occurrences.reason,
    occurrences.missed_count,
    occurrences.nominal,
    occurrences.due,
    occurrences.ended AS occurrence_ended"""
_RUN = """occurrences.id || '-' || CAST(runs.fence AS TEXT) AS run_id,
    runs.attempt,
    runs.node,
    runs.started,
    runs.ended,
    runs.outcome,
    runs.error,
    runs.tokens,
    coalesce(CAST(runs.cost AS DOUBLE PRECISION) / 1000000000, runs.cost_usd) AS cost_usd"""
# The start is committed a little before it is due, but nothing begins before that.
_OPEN_RUN = """occurrences.id || '-' || CAST(occurrences.fence AS TEXT),
    occurrences.attempt,
    occurrences.node,
    CASE WHEN occurrences.started < occurrences.due THEN occurrences.due ELSE occurrences.started END,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL"""
_TOLD = ("nominal", "due", "started", "ended", "occurrence_ended")


def execution_history(dialect: str) -> str:
    """The statement that creates the view `schedule_execution_history`.

    A run in progress without progress reports is in no table yet, so it is derived from its occurrence; the index finds
    it.
    """
    texts = ",\n    ".join(f"{INSTANTS[dialect].format(name)} AS {name}_at" for name in _TOLD)
    return f"""CREATE VIEW schedule_execution_history AS
SELECT
    history.*,
    CAST(ended - started AS DOUBLE PRECISION) / 1000000 AS duration_seconds,
    {texts}
FROM (
SELECT
    {_OCCURRENCE},
    {_RUN}
FROM schedules
JOIN occurrences ON occurrences.schedule = schedules.key
LEFT JOIN runs ON runs.occurrence = occurrences.key
WHERE occurrences.phase <> 'dispatching' OR runs.occurrence IS NOT NULL
UNION ALL
SELECT
    {_OCCURRENCE},
    {_OPEN_RUN}
FROM schedules
JOIN occurrences ON occurrences.schedule = schedules.key
WHERE occurrences.phase = 'dispatching' AND occurrences.ended IS NULL AND NOT EXISTS (
    SELECT 1 FROM runs WHERE runs.occurrence = occurrences.key AND runs.fence = occurrences.fence
)
) AS history"""


_CHANGED = "AFTER UPDATE OF trigger_document ON schedules"
_EMPTY = "fields = '', wanted = '', narrow_fields = '', narrow_wanted = ''"
_FORGET = f"UPDATE {{}}event_listeners SET {_EMPTY} WHERE schedule = {{}}"
# Each on one line: a semicolon at the end of one would be taken for the end of all.
_SQLITE_TRIGGER = f"""
    CREATE TRIGGER discriminators_follow {_CHANGED} WHEN OLD.trigger_document IS NOT NEW.trigger_document
    BEGIN {_FORGET.format("", "NEW.key")}; END
"""
_FORGET_FUNCTION = f"""
    CREATE FUNCTION forget_discriminator() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    EXECUTE format($x${_FORGET.format("%I.", "$1")}$x$, TG_TABLE_SCHEMA) USING NEW.key; RETURN NULL; END $$
"""
_POSTGRES_TRIGGER = f"""
    CREATE TRIGGER discriminators_follow {_CHANGED}
    FOR EACH ROW WHEN (OLD.trigger_document IS DISTINCT FROM NEW.trigger_document)
    EXECUTE FUNCTION forget_discriminator()
"""
"""A node of an older version, which runs on during an upgrade, changes the filters of an event trigger without its
discriminator. With the old one, the trigger would not be found for the events that it wants now. So the database
clears the discriminator of a trigger that changes: the schedule is then asked about every event of its type, until a
node that knows of discriminators writes it."""
DIALECTS = {"sqlite": sqlite.dialect, "postgres": postgresql.dialect}


def ddl(name: str) -> str:
    """Every table, index, view and guard, one after another, each closed by a semicolon at the end of a line."""
    dialect = DIALECTS[name]()
    statements: list[str] = []
    for table in metadata.sorted_tables:
        # PostgreSQL would look every reference up, and lock what it refers to; a transaction writes both ends together.
        keys: list[ForeignKeyConstraint] | None = [] if name == "postgres" else None
        creation = CreateTable(table, include_foreign_key_constraints=keys)
        creation.columns = [one for one in creation.columns if _is_of(one.element, dialect.name)]
        statements.append(str(creation.compile(dialect=dialect)))
        own = [index for index in table.indexes if _is_of(index, dialect.name)]
        indexes = sorted(own, key=lambda index: str(index.name))
        statements += [str(CreateIndex(index).compile(dialect=dialect)) for index in indexes]
    statements += [execution_history(dialect.name), *_discriminator_triggers(dialect.name)]
    lines = [line.rstrip().replace("\t", "    ") for one in statements for line in f"{one.strip()};".splitlines()]
    return "\n".join(lines) + "\n"


def _is_of(item: Column[Any] | Index, dialect: str) -> bool:
    """Whether a database has a column or an index."""
    return bool(item.info.get("dialect", dialect) == dialect)


def _discriminator_triggers(dialect: str) -> list[str]:
    """The statements that clear the discriminator of a trigger that changes."""
    statements = [_FORGET_FUNCTION, _POSTGRES_TRIGGER] if dialect == "postgresql" else [_SQLITE_TRIGGER]
    return [" ".join(one.split()) for one in statements]


if __name__ == "__main__":
    sys.stdout.write(ddl(sys.argv[1]))
