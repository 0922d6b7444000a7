"""Event triggers are found by what tells them apart.

Triggers that are stored get their discriminators here: whoever wrote them may never write them again. What cannot be
read has none, and is shown every event of its type.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

from noonmark.core.filters.index import NONE, Discriminator, discriminator
from noonmark.core.filters.match import filter_problems
from noonmark.stores.sql.migrations.parts import TEXT, index, references

revision = "0004"
down_revision = "0003"

_AT_ONCE = 1_000
_GUARDS = {
    "sqlite": """
        CREATE TRIGGER discriminators_follow AFTER UPDATE OF trigger_document ON schedules
        WHEN OLD.trigger_document IS NOT NEW.trigger_document
        BEGIN UPDATE event_listeners SET fields = '', wanted = '' WHERE schedule = NEW.key; END
    """,
    "postgresql": """
        CREATE TRIGGER discriminators_follow AFTER UPDATE OF trigger_document ON schedules
        FOR EACH ROW WHEN (OLD.trigger_document IS DISTINCT FROM NEW.trigger_document)
        EXECUTE FUNCTION forget_discriminator()
    """,
}
_FUNCTION = """
    CREATE FUNCTION forget_discriminator() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    EXECUTE format($x$UPDATE %I.event_listeners SET fields = '', wanted = '' WHERE schedule = $1$x$, TG_TABLE_SCHEMA)
    USING NEW.key; RETURN NULL; END $$
"""
_LISTENING = sa.text("""
    SELECT key, trigger_document FROM schedules WHERE key > :last AND trigger_type = 'event' AND is_listed = 1
    ORDER BY key LIMIT :many
""")
_FILL = {
    "sqlite": """
        UPDATE event_listeners SET fields = json_extract(j.value, '$[1]'), wanted = json_extract(j.value, '$[2]')
        FROM json_each(:rows) AS j WHERE schedule = json_extract(j.value, '$[0]')
    """,
    "postgresql": """
        UPDATE event_listeners SET fields = j.value ->> 1, wanted = j.value ->> 2
        FROM json_array_elements(CAST(:rows AS json)) AS j(value) WHERE schedule = CAST(j.value ->> 0 AS bigint)
    """,
}


def upgrade() -> None:
    """Make places for discriminators, see to it that none outlives its trigger, and fill them in."""
    bind = op.get_bind()
    if bind.dialect.name == "postgresql":
        _change_table()
        bind.exec_driver_sql(_line(_FUNCTION))
    else:
        _replace_table()
    bind.exec_driver_sql(_line(_GUARDS[bind.dialect.name]))
    # From here on nobody else changes a trigger before this is committed.
    _fill_in(bind)
    index(
        "event_listeners_by_discriminator", "event_listeners", ["tenant", "event_type", "fields", "wanted", "schedule"]
    )


def _columns() -> list[sa.Column[str]]:
    return [sa.Column(name, TEXT, nullable=False, server_default=sa.text("''")) for name in ("fields", "wanted")]


def _change_table() -> None:
    for column in _columns():
        op.add_column("event_listeners", column)
    op.drop_constraint("event_listeners_pkey", "event_listeners")
    op.create_primary_key("event_listeners_pkey", "event_listeners", ["schedule", "event_type"])
    op.drop_index("event_listeners_by_schedule", "event_listeners")


def _replace_table() -> None:
    """SQLite cannot change a primary key."""
    op.rename_table("event_listeners", "older_listeners")
    op.create_table(
        "event_listeners",
        sa.Column("tenant", TEXT, nullable=False),
        sa.Column("event_type", TEXT, nullable=False),
        sa.Column("schedule", sa.BigInteger, nullable=False, autoincrement=False),
        *_columns(),
        sa.PrimaryKeyConstraint("schedule", "event_type"),
        *references("schedule", "schedules.key"),
        sqlite_with_rowid=False,
    )
    op.execute("INSERT INTO event_listeners (tenant, event_type, schedule) SELECT * FROM older_listeners")
    op.drop_table("older_listeners")


def _fill_in(bind: sa.Connection) -> None:
    fill, last = sa.text(_FILL[bind.dialect.name]), -1
    while found := bind.execute(_LISTENING, {"last": last, "many": _AT_ONCE}).all():
        last = found[-1].key
        owned = [(one.key, *_discriminator(one.trigger_document)) for one in found]
        bind.execute(fill, {"rows": json.dumps(owned)})


def _line(statement: str) -> str:
    """On one line, as in the text of the whole schema."""
    return " ".join(statement.split())


def _discriminator(document: str | None) -> Discriminator:
    try:
        read: Any = json.loads(document or "null")
        filters = read["filters"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return NONE
    return NONE if filter_problems(filters) else discriminator(filters)
