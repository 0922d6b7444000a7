"""The first schema."""

from __future__ import annotations

from importlib.resources import files

import sqlalchemy as sa
from alembic import op

from noonmark.stores.sql.migrations.parts import TEXT, index, key, references

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create every table."""
    _create_concurrency_keys()
    _create_dependency_graphs()
    _create_nodes()
    _create_schedules()
    _create_served_routes()
    _create_dependencies()
    _create_events()
    _create_occurrences()
    _index_occurrences()
    _create_schedule_states()
    _create_runs()
    _create_notes()
    _create_idempotency_keys()
    _create_execution_history()


def _create_concurrency_keys() -> None:
    op.create_table(
        "concurrency_keys",
        sa.Column("key", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("tenant", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("taken", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("waiting", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint("taken >= 0 AND waiting >= 0", name="places_are_counts"),
        sa.PrimaryKeyConstraint("key"),
    )
    index("concurrency_keys_by_name", "concurrency_keys", ["tenant", "name"], unique=True)


def _create_dependency_graphs() -> None:
    op.create_table(
        "dependency_graphs",
        sa.Column("tenant", TEXT, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("tenant"),
    )


def _create_nodes() -> None:
    op.create_table(
        "nodes",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("routes", TEXT, nullable=False),
        sa.Column("capacity", sa.Integer(), nullable=False),
        sa.Column("load", sa.Integer(), nullable=False),
        sa.Column("version", TEXT, nullable=False),
        sa.Column("started", sa.BigInteger(), nullable=False),
        sa.Column("lease", sa.BigInteger(), nullable=False),
        sa.Column("seen", sa.BigInteger(), nullable=False),
        sa.Column("left_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("name"),
    )
    index("nodes_seen", "nodes", ["seen"])
    op.create_table(
        "leadership",
        sa.Column("key", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("node", TEXT, nullable=True),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("key = 1", name="one_leader"),
        sa.CheckConstraint("term >= 1", name="terms_are_counted"),
        sa.PrimaryKeyConstraint("key"),
    )


def _create_schedules() -> None:
    op.create_table(
        "schedules",
        sa.Column("key", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("tenant", TEXT, nullable=False),
        sa.Column("username", TEXT, nullable=False),
        sa.Column("schedule_id", TEXT, nullable=False),
        sa.Column("declared_id", TEXT, nullable=True),
        sa.Column("name", TEXT, nullable=True),
        sa.Column("description", TEXT, nullable=False),
        sa.Column("labels", TEXT, nullable=True),
        sa.Column("trigger_type", TEXT, nullable=False),
        sa.Column("trigger_document", TEXT, nullable=True),
        sa.Column("terms_document", TEXT, nullable=False),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("route", TEXT, nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("anchored", sa.BigInteger(), nullable=True),
        sa.Column("deleted", sa.BigInteger(), nullable=True),
        sa.Column("is_listed", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    index("schedules_by_id", "schedules", ["tenant", "schedule_id"], "is_listed = 1", unique=True)
    index(
        "schedules_by_name",
        "schedules",
        ["tenant", "username", "name", "created"],
        "is_listed = 1 AND name IS NOT NULL",
    )
    index("schedules_by_creation", "schedules", ["tenant", "created", "schedule_id"], "is_listed = 1")
    index("schedules_deleted", "schedules", ["tenant", "created", "schedule_id"], "is_listed = 0")
    index("schedules_deleted_by_id", "schedules", ["tenant", "schedule_id", "deleted"], "is_listed = 0")
    index("schedules_by_source", "schedules", ["source", "route"], "is_listed = 1")


def _create_served_routes() -> None:
    op.create_table(
        "served_routes",
        sa.Column("route", TEXT, nullable=False),
        sa.Column("seen", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("route"),
    )


def _create_dependencies() -> None:
    op.create_table(
        "dependencies",
        sa.Column("schedule", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("tenant", TEXT, nullable=False),
        sa.Column("upstream_id", TEXT, nullable=False),
        *references("schedule", "schedules.key"),
        sa.PrimaryKeyConstraint("schedule", "position"),
        sqlite_with_rowid=False,
    )
    index("dependencies_by_upstream", "dependencies", ["tenant", "upstream_id"])


def _create_events() -> None:
    op.create_table(
        "event_listeners",
        sa.Column("tenant", TEXT, nullable=False),
        sa.Column("event_type", TEXT, nullable=False),
        sa.Column("schedule", sa.BigInteger(), autoincrement=False, nullable=False),
        *references("schedule", "schedules.key"),
        sa.PrimaryKeyConstraint("tenant", "event_type", "schedule"),
        sqlite_with_rowid=False,
    )
    index("event_listeners_by_schedule", "event_listeners", ["schedule"])
    op.create_table(
        "event_streams",
        sa.Column("tenant", TEXT, nullable=False),
        sa.Column("newest", sa.BigInteger(), nullable=False),
        sa.Column("matched_until", sa.BigInteger(), nullable=False),
        sa.Column("cursor", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("matched", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint("matched >= 0", name="matched_is_a_count"),
        sa.PrimaryKeyConstraint("tenant"),
    )
    index("event_streams_behind", "event_streams", ["matched_until", "tenant"], "newest > matched_until")
    index("event_streams_by_count", "event_streams", ["matched"])
    op.create_table(
        "events",
        sa.Column("key", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("tenant", TEXT, nullable=False),
        sa.Column("event_id", TEXT, nullable=False),
        sa.Column("event_type", TEXT, nullable=False),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("payload", TEXT, nullable=False),
        sa.Column("emitted", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    index("events_by_id", "events", ["tenant", "event_id"], unique=True)
    index("events_in_order", "events", ["tenant", "emitted"], unique=True)
    index("events_by_age", "events", ["emitted"])


def _create_occurrences() -> None:
    op.create_table(
        "occurrences",
        sa.Column("key", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("schedule", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("origin", TEXT, nullable=False),
        sa.Column("phase", TEXT, nullable=False),
        sa.Column("route", TEXT, nullable=False),
        sa.Column("nominal", sa.BigInteger(), nullable=False),
        sa.Column("due", sa.BigInteger(), nullable=False),
        sa.Column("first_due", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("fence", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("reason", TEXT, nullable=True),
        sa.Column("detail", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("missed_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("missed_first", sa.BigInteger(), nullable=True),
        sa.Column("missed_last", sa.BigInteger(), nullable=True),
        sa.Column("caught_up", sa.BigInteger(), nullable=True),
        sa.Column("losses", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("waiting_for", TEXT, nullable=True),
        sa.Column("holds_slot", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("payload", TEXT, nullable=True),
        sa.Column("own", TEXT, nullable=True),
        sa.Column("ready", sa.BigInteger(), nullable=True),
        sa.Column("held", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("node", TEXT, nullable=True),
        sa.Column("lease_end", sa.BigInteger(), nullable=True),
        sa.Column("started", sa.BigInteger(), nullable=True),
        sa.Column("stop", TEXT, nullable=True),
        sa.Column("deadline", sa.BigInteger(), nullable=True),
        sa.Column("place", sa.BigInteger(), nullable=True),
        sa.Column("wanted", sa.BigInteger(), nullable=True),
        sa.Column("wanted_limit", sa.Integer(), nullable=True),
        sa.Column("awaits_after", sa.BigInteger(), nullable=True),
        sa.Column("ended", sa.BigInteger(), nullable=True),
        sa.Column("owner", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "(ended IS NULL) = (phase IN ('pending', 'claimed', 'dispatching', 'awaiting_completion'))",
            name="ended_when_final",
        ),
        sa.CheckConstraint("(lease_end IS NOT NULL) = (phase IN ('claimed', 'dispatching'))", name="leased_by_a_node"),
        sa.CheckConstraint(
            "phase IN ('pending', 'claimed', 'dispatching', 'awaiting_completion', 'completed', 'failed', 'timed_out', "
            "'cancelled', 'skipped', 'misfired', 'delivery_failed', 'superseded')",
            name="phase_is_known",
        ),
        sa.CheckConstraint(
            "attempt >= 0 AND losses >= 0 AND missed_count >= 0 AND fence >= 0", name="counts_are_counts"
        ),
        sa.CheckConstraint("ended IS NULL OR reason IS NOT NULL", name="final_has_a_reason"),
        *references("place", "concurrency_keys.key"),
        *references("schedule", "schedules.key"),
        *references("wanted", "concurrency_keys.key"),
        sa.PrimaryKeyConstraint("key"),
        sa.UniqueConstraint("id"),
    )


def _index_occurrences() -> None:
    index(
        "occurrences_awaiting",
        "occurrences",
        ["schedule", "nominal"],
        "phase = 'pending' AND waiting_for = 'dependency_pending'",
    )
    index("occurrences_ended", "occurrences", ["ended"], "ended IS NOT NULL")
    index("occurrences_in_slot", "occurrences", ["schedule"], "holds_slot = 1", unique=True)
    index("occurrences_leased", "occurrences", ["route", "lease_end", "nominal", *key()], "lease_end IS NOT NULL")
    index("occurrences_live", "occurrences", ["schedule"], "ended IS NULL")
    index("occurrences_of_gaps", "occurrences", ["schedule", "missed_last"], "missed_last IS NOT NULL")
    index(
        "occurrences_of_owners",
        "occurrences",
        ["route", sa.text("(ready >> 25)"), "owner", "ready", "nominal"],
        "phase = 'pending' AND held = 0 AND ready IS NOT NULL",
    )
    index("occurrences_of_schedule", "occurrences", ["schedule", "nominal"])
    index(
        "occurrences_queued",
        "occurrences",
        ["schedule", "held", "due", "nominal", "id"],
        "phase = 'pending' AND waiting_for = 'queued' AND ready IS NULL",
    )
    index(
        "occurrences_ready",
        "occurrences",
        ["route", "ready", "nominal", *key()],
        "phase = 'pending' AND held = 0 AND ready IS NOT NULL",
    )
    index("occurrences_wanting", "occurrences", ["wanted", "held", "due", "nominal", "id"], "wanted IS NOT NULL")
    index(
        "occurrences_with_deadline",
        "occurrences",
        ["deadline", "id"],
        "deadline IS NOT NULL AND phase IN ('dispatching', 'awaiting_completion')",
    )


def _create_schedule_states() -> None:
    op.create_table(
        "schedule_states",
        sa.Column(
            "schedule", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("uid", TEXT, nullable=False),
        sa.Column("phase", TEXT, nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("updated", sa.BigInteger(), nullable=False),
        sa.Column("watermark", sa.BigInteger(), nullable=False),
        sa.Column("plan_at", sa.BigInteger(), nullable=True),
        sa.Column("exhausted", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("sent_back", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("fault", TEXT, nullable=True),
        sa.Column("patience", sa.BigInteger(), nullable=False),
        sa.Column("newest", sa.BigInteger(), nullable=True),
        sa.Column("fences", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("holder", sa.BigInteger(), nullable=True),
        sa.Column("live", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("history", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("queued", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("total", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("successful", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("failed", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("missed", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("skipped", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("admitted", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("failures_in_row", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_started", sa.BigInteger(), nullable=True),
        sa.Column("last_phase", TEXT, nullable=True),
        sa.Column("news", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("followed", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("completed_at", sa.BigInteger(), nullable=True),
        sa.Column("owner", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("phase IN ('active', 'paused', 'completed', 'deleted')", name="schedule_phase_is_known"),
        sa.CheckConstraint("live >= 0 AND history >= 0 AND queued >= 0", name="schedule_counts_are_counts"),
        *references("schedule", "schedules.key"),
        sa.PrimaryKeyConstraint("schedule"),
        sa.UniqueConstraint("uid"),
        postgresql_with={"fillfactor": 70},
    )
    index(
        "schedules_to_plan",
        "schedule_states",
        ["plan_at", "uid"],
        "phase = 'active' AND plan_at IS NOT NULL AND fault IS NULL",
    )
    index("schedules_with_history", "schedule_states", ["history"], "history >= 32")


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("occurrence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("fence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("schedule", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("node", TEXT, nullable=False),
        sa.Column("started", sa.BigInteger(), nullable=False),
        sa.Column("ended", sa.BigInteger(), nullable=True),
        sa.Column("outcome", TEXT, nullable=True),
        sa.Column("result", TEXT, nullable=True),
        sa.Column("error", TEXT, nullable=True),
        sa.Column("tokens", sa.BigInteger(), nullable=True),
        sa.Column("cost_usd", sa.Double(), nullable=True),
        *references("occurrence", "occurrences.key"),
        *references("schedule", "schedules.key"),
        sa.PrimaryKeyConstraint("occurrence", "fence"),
        sqlite_with_rowid=False,
    )
    index("runs_of_schedule", "runs", ["schedule", "started"])


def _create_notes() -> None:
    op.create_table(
        "notes",
        sa.Column("key", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("tenant", TEXT, nullable=False),
        sa.Column("noted", sa.BigInteger(), nullable=False),
        sa.Column("caller", TEXT, nullable=False),
        sa.Column("operation", TEXT, nullable=False),
        sa.Column("schedule_id", TEXT, nullable=True),
        sa.Column("uid", TEXT, nullable=True),
        sa.Column("revision_before", sa.Integer(), nullable=True),
        sa.Column("revision_after", sa.Integer(), nullable=True),
        sa.Column("reason", TEXT, nullable=True),
        sa.Column("request_id", TEXT, nullable=True),
        sa.PrimaryKeyConstraint("key"),
    )
    index("notes_in_order", "notes", ["tenant", "key"])
    index("notes_of_schedule", "notes", ["tenant", "schedule_id", "key"])
    index("notes_by_age", "notes", ["noted"])


def _create_idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("tenant", TEXT, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("fingerprint", TEXT, nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    index("idempotency_keys_by_name", "idempotency_keys", ["tenant", "name"], unique=True)
    index("idempotency_keys_by_age", "idempotency_keys", ["created"])


def _create_execution_history() -> None:
    bind = op.get_bind()
    text = files("noonmark.stores.sql.migrations").joinpath("views", f"0001_{bind.dialect.name}.sql")
    bind.exec_driver_sql(text.read_text(encoding="utf-8"))
