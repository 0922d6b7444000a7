"""The tables of the SQL stores.

Integer keys inside, identities as text outside. What a burst rewrites (`schedule_states`, `occurrences`) is kept apart
from what is seldom written (`schedules`). Work is found in partial indexes, which hold that work and nothing else: the
cost follows what is due. Booleans are 0 and 1, instants are microseconds since the epoch.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Computed,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    text,
)
from sqlalchemy import Text as AnyText

from noonmark.core.lifecycle import FAILURES, LIVE, STORED_PHASES, Phase
from noonmark.core.workflows.run import StepPhase
from noonmark.stores.sql.session import listed

Text = AnyText().with_variant(AnyText(collation="C"), "postgresql")
"""Text that is compared byte by byte, in whichever language the database was made for."""
KEY = BigInteger().with_variant(Integer, "sqlite")
"""An integer primary key that SQLite takes for its row number."""


def index(name: str, table: Table, columns: str, where: str | None = None, *, unique: bool = False) -> None:
    """An index, over all rows or over those that meet a condition."""
    condition = None if where is None else text(where)
    picked = [text(one) if one.startswith("(") else table.c[one] for one in columns.split(", ")]
    Index(name, *picked, unique=unique, sqlite_where=condition, postgresql_where=condition)


def index_by_key(name: str, table: Table, columns: str, where: str) -> None:
    """An index with the row's number at the end. SQLite does that itself."""
    picked = [table.c[column] for column in columns.split(", ")]
    Index(name, *picked, sqlite_where=text(where), info={"dialect": "sqlite"})
    Index(name, *picked, table.c.key, postgresql_where=text(where), info={"dialect": "postgresql"})


def instant(name: str, *, required: bool = False) -> Column[int]:
    """Microseconds since the epoch."""
    return Column(name, BigInteger, nullable=not required)


def count(name: str) -> Column[int]:
    """A number that begins at 0."""
    return Column(name, Integer, nullable=False, server_default=text("0"))


def total(name: str) -> Column[int]:
    """A sum of tokens or of nano-dollars; 0 at first."""
    return Column(name, BigInteger, nullable=False, server_default=text("0"))


def flag(name: str) -> Column[int]:
    """0 or 1; 0 at first."""
    return Column(name, SmallInteger, nullable=False, server_default=text("0"))


metadata = MetaData()

CROWDED = 32
"""Schedules with fewer ended occurrences are not in the index that pruning by number reads."""
BUCKET = 25
"""How many ended occurrences make a bucket of that index on PostgreSQL; those of the first one are not in it."""
STRETCH = 25
"""How many bits of an instant are dropped for its stretch of time."""
DELIVERING = (Phase.DISPATCHING, Phase.AWAITING_COMPLETION)
FAILED = sorted(FAILURES)
LEASED = (Phase.CLAIMED, Phase.DISPATCHING)

schedules = Table(
    "schedules",
    metadata,
    Column("key", KEY, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("username", Text, nullable=False),
    Column("schedule_id", Text, nullable=False),
    Column("declared_id", Text),
    Column("name", Text),
    Column("description", Text, nullable=False),
    Column("labels", Text),
    Column("trigger_type", Text, nullable=False),
    Column("trigger_document", Text),
    Column("terms_document", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("route", Text, nullable=False),
    instant("created", required=True),
    instant("anchored"),
    instant("deleted"),
    Column("is_listed", SmallInteger, nullable=False),
    Column("pause", Text),
    Column("lineage", Text),
    Column("parent", Text),
    Column("fingerprint", Text),
)
index("schedules_by_id", schedules, "tenant, schedule_id", "is_listed = 1", unique=True)
index("schedules_by_name", schedules, "tenant, username, name, created", "is_listed = 1 AND name IS NOT NULL")
index("schedules_by_owner", schedules, "tenant, username", "is_listed = 1")
index("schedules_by_creation", schedules, "tenant, created, schedule_id", "is_listed = 1")
index("schedules_deleted", schedules, "tenant, created, schedule_id", "is_listed = 0")
index("schedules_deleted_of_owner", schedules, "tenant, username", "is_listed = 0")
index("schedules_deleted_by_id", schedules, "tenant, schedule_id, deleted", "is_listed = 0")
index("schedules_by_source", schedules, "source, route", "is_listed = 1")
index("schedules_by_parent", schedules, "tenant, parent", "is_listed = 1 AND parent IS NOT NULL")
index(
    "schedules_by_fingerprint",
    schedules,
    "tenant, username, fingerprint, created",
    "is_listed = 1 AND fingerprint IS NOT NULL",
)

schedule_states = Table(
    "schedule_states",
    metadata,
    Column("schedule", KEY, ForeignKey("schedules.key"), primary_key=True, autoincrement=False),
    Column("uid", Text, nullable=False, unique=True),
    Column("phase", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    instant("updated", required=True),
    instant("watermark", required=True),
    instant("plan_at"),
    flag("exhausted"),
    flag("sent_back"),
    Column("fault", Text),
    instant("patience", required=True),
    instant("newest"),
    count("fences"),
    Column("holder", BigInteger),
    count("live"),
    count("history"),
    count("queued"),
    count("total"),
    count("successful"),
    count("failed"),
    count("missed"),
    count("skipped"),
    count("admitted"),
    count("failures_in_row"),
    instant("last_started"),
    Column("last_phase", Text),
    count("news"),
    flag("followed"),
    instant("ended_at"),
    instant("completed_at"),
    Column("owner", BigInteger, nullable=False),
    Column("leads", Text),
    Column("rate_window", Text),
    Column("runaway", Text),
    # PostgreSQL writes to all indexes of a row if an update changes what one of them names. This column seldom changes.
    Column(
        "history_bucket",
        Integer,
        Computed(f"(history - 1) / {BUCKET}", persisted=True),
        info={"dialect": "postgresql"},
    ),
    CheckConstraint(f"phase IN ({listed(STORED_PHASES)})", name="schedule_phase_is_known"),
    CheckConstraint("live >= 0 AND history >= 0 AND queued >= 0", name="schedule_counts_are_counts"),
    # Every row is written several times for each fire: with room beside it, in its own page, and the table half as big.
    postgresql_with={"fillfactor": 70},
)
index(
    "schedules_to_plan",
    schedule_states,
    "plan_at, uid",
    "phase IN ('active', 'paused') AND plan_at IS NOT NULL AND fault IS NULL",
)
index("schedules_of_owner", schedule_states, "owner, phase")
Index(
    "schedules_with_history",
    schedule_states.c.history,
    sqlite_where=text(f"history >= {CROWDED}"),
    info={"dialect": "sqlite"},
)
Index(
    "schedules_with_history",
    schedule_states.c.history_bucket,
    postgresql_where=text("history_bucket >= 1"),
    info={"dialect": "postgresql"},
)

occurrences = Table(
    "occurrences",
    metadata,
    Column("key", KEY, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("schedule", BigInteger, ForeignKey("schedules.key"), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("origin", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("route", Text, nullable=False),
    instant("nominal", required=True),
    instant("due", required=True),
    instant("first_due", required=True),
    count("attempt"),
    count("fence"),
    Column("reason", Text),
    Column("detail", Text, nullable=False, server_default=text("''")),
    count("missed_count"),
    instant("missed_first"),
    instant("missed_last"),
    instant("caught_up"),
    count("losses"),
    Column("waiting_for", Text),
    flag("holds_slot"),
    Column("payload", Text),
    Column("own", Text),
    instant("ready"),
    flag("held"),
    Column("node", Text),
    instant("lease_end"),
    instant("started"),
    Column("stop", Text),
    instant("deadline"),
    Column("place", BigInteger, ForeignKey("concurrency_keys.key")),
    Column("wanted", BigInteger, ForeignKey("concurrency_keys.key")),
    Column("wanted_limit", Integer),
    instant("awaits_after"),
    instant("ended"),
    Column("owner", BigInteger, nullable=False),
    Column("behind", Text),
    Column("other_keys", Text),
    instant("late"),
    CheckConstraint(f"phase IN ({listed(Phase)})", name="phase_is_known"),
    CheckConstraint(
        f"(ended IS NULL) = (phase IN ({listed(phase for phase in Phase if phase in LIVE)}))",
        name="ended_when_final",
    ),
    CheckConstraint("ended IS NULL OR reason IS NOT NULL", name="final_has_a_reason"),
    CheckConstraint(f"(lease_end IS NOT NULL) = (phase IN ({listed(LEASED)}))", name="leased_by_a_node"),
    CheckConstraint("attempt >= 0 AND losses >= 0 AND missed_count >= 0 AND fence >= 0", name="counts_are_counts"),
)
index_by_key(
    "occurrences_ready",
    occurrences,
    "route, ready, nominal",
    "phase = 'pending' AND held = 0 AND ready IS NOT NULL",
)
# Who has something due in a stretch of half a minute: a claim that steps from owner to owner skips what else they
# have, and does not meet those who have nothing due yet.
index(
    "occurrences_of_owners",
    occurrences,
    f"route, (ready >> {STRETCH}), owner, ready, nominal",
    "phase = 'pending' AND held = 0 AND ready IS NOT NULL",
)
index_by_key("occurrences_leased", occurrences, "route, lease_end, nominal", "lease_end IS NOT NULL")
index("occurrences_live", occurrences, "schedule", "ended IS NULL")
index("occurrences_of_schedule", occurrences, "schedule, nominal")
# All that is counted on a timeline of the schedules of an owner. SQLite reads the end as well, though it is implied.
index("occurrences_live_of_owner", occurrences, "owner, nominal, schedule, ended", "ended IS NULL")
index("occurrences_ended_of_owner", occurrences, "owner, nominal, phase, late, schedule, ended", "ended IS NOT NULL")
index("occurrences_of_gaps", occurrences, "schedule, missed_last", "missed_last IS NOT NULL")
index("occurrences_ended", occurrences, "ended", "ended IS NOT NULL")
index("occurrences_failed", occurrences, "phase, ended, id", f"phase IN ({listed(FAILED)})")
index("occurrences_in_slot", occurrences, "schedule", "holds_slot = 1", unique=True)
index(
    "occurrences_queued",
    occurrences,
    "schedule, held, due, nominal, id",
    "phase = 'pending' AND waiting_for = 'queued' AND ready IS NULL",
)
index(
    "occurrences_awaiting",
    occurrences,
    "schedule, nominal",
    "phase = 'pending' AND waiting_for = 'dependency_pending'",
)
index(
    "occurrences_suspended",
    occurrences,
    "schedule",
    "phase = 'pending' AND waiting_for IN ('approval', 'step_pending')",
)
index("occurrences_wanting", occurrences, "wanted, held, due, nominal, id", "wanted IS NOT NULL")
index(
    "occurrences_with_deadline",
    occurrences,
    "deadline, id",
    f"deadline IS NOT NULL AND phase IN ({listed(DELIVERING)})",
)

runs = Table(
    "runs",
    metadata,
    Column("occurrence", BigInteger, ForeignKey("occurrences.key"), primary_key=True, autoincrement=False),
    Column("fence", Integer, primary_key=True, autoincrement=False),
    Column("schedule", BigInteger, ForeignKey("schedules.key"), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("node", Text, nullable=False),
    instant("started", required=True),
    instant("ended"),
    Column("outcome", Text),
    Column("result", Text),
    Column("error", Text),
    Column("tokens", BigInteger),
    # Written by nodes of an earlier version only. Nano-dollars are exact.
    Column("cost_usd", Double),
    Column("cost", BigInteger),
    Column("usage", Text),
    sqlite_with_rowid=False,
)
index("runs_of_schedule", runs, "schedule, started")

concurrency_keys = Table(
    "concurrency_keys",
    metadata,
    Column("key", KEY, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    count("taken"),
    count("waiting"),
    CheckConstraint("taken >= 0 AND waiting >= 0", name="places_are_counts"),
)
index("concurrency_keys_by_name", concurrency_keys, "tenant, name", unique=True)

dependencies = Table(
    "dependencies",
    metadata,
    Column("schedule", BigInteger, ForeignKey("schedules.key"), primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("tenant", Text, nullable=False),
    Column("upstream_id", Text, nullable=False),
    sqlite_with_rowid=False,
)
index("dependencies_by_upstream", dependencies, "tenant, upstream_id")

dependency_graphs = Table(
    "dependency_graphs",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("version", Integer, nullable=False),
)

event_listeners = Table(
    "event_listeners",
    metadata,
    Column("tenant", Text, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("schedule", BigInteger, ForeignKey("schedules.key"), nullable=False, autoincrement=False),
    # A discriminator of its trigger by which versions before 0028 find it.
    Column("fields", Text, nullable=False, server_default=text("''")),
    Column("wanted", Text, nullable=False, server_default=text("''")),
    # The discriminator of its trigger. Without one, or where an older version wrote the row, both are empty.
    Column("narrow_fields", Text, nullable=False, server_default=text("''")),
    Column("narrow_wanted", Text, nullable=False, server_default=text("''")),
    # Not by tenant and type: PostgreSQL would look for listeners there, and read all of a type to find one.
    PrimaryKeyConstraint("schedule", "event_type"),
    sqlite_with_rowid=False,
)
index(
    "event_listeners_by_narrow_discriminator",
    event_listeners,
    "tenant, event_type, narrow_fields, narrow_wanted, schedule",
)
index("event_listeners_by_discriminator", event_listeners, "tenant, event_type, fields, wanted, schedule")

event_streams = Table(
    "event_streams",
    metadata,
    Column("tenant", Text, primary_key=True),
    instant("newest", required=True),
    instant("matched_until", required=True),
    Column("cursor", BigInteger, nullable=False, server_default=text("0")),
    count("matched"),
    CheckConstraint("matched >= 0", name="matched_is_a_count"),
)
index("event_streams_behind", event_streams, "matched_until, tenant", "newest > matched_until")
index("event_streams_by_count", event_streams, "matched")

events = Table(
    "events",
    metadata,
    Column("key", KEY, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("payload", Text, nullable=False),
    instant("emitted", required=True),
    Column("behind", Text),
)
index("events_by_id", events, "tenant, event_id", unique=True)
index("events_in_order", events, "tenant, emitted", unique=True)
index("events_by_age", events, "emitted")

notes = Table(
    "notes",
    metadata,
    Column("key", KEY, primary_key=True),
    Column("tenant", Text, nullable=False),
    instant("noted", required=True),
    Column("caller", Text, nullable=False),
    Column("operation", Text, nullable=False),
    Column("schedule_id", Text),
    Column("uid", Text),
    Column("revision_before", Integer),
    Column("revision_after", Integer),
    Column("reason", Text),
    Column("request_id", Text),
    Column("key_id", Text),
    Column("session_id", Text),
    Column("tool_call_id", Text),
    Column("parent_schedule_id", Text),
    Column("source", Text),
    Column("changes", Text),
)
index("notes_in_order", notes, "tenant, key")
index("notes_of_schedule", notes, "tenant, schedule_id, key")
index("notes_by_age", notes, "noted")

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("key", KEY, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    instant("created", required=True),
)
index("idempotency_keys_by_name", idempotency_keys, "tenant, name", unique=True)
index("idempotency_keys_by_age", idempotency_keys, "created")

secrets = Table(
    "secrets",
    metadata,
    Column("key", KEY, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("hosts", Text, nullable=False),
    Column("sealed", Text, nullable=False),
    instant("created", required=True),
    instant("updated", required=True),
    Column("programs", Text, nullable=False, server_default=text("'[]'")),
)
index("secrets_by_name", secrets, "tenant, name", unique=True)

api_keys = Table(
    "api_keys",
    metadata,
    Column("key", KEY, primary_key=True),
    Column("key_id", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("username", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("name", Text),
    flag("is_agent"),
    instant("created", required=True),
    instant("expires"),
    instant("revoked"),
    instant("used"),
)
index("api_keys_by_id", api_keys, "key_id", unique=True)
index("api_keys_of_tenant", api_keys, "tenant, created, key_id")
index("api_keys_by_creation", api_keys, "created, key_id")

# An archive without a time of its push is not complete yet, and has neither an id nor a digest.
bundles = Table(
    "bundles",
    metadata,
    Column("key", KEY, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("content_id", Text, nullable=False),
    Column("bundle_id", Text),
    Column("digest", Text),
    Column("manifest", Text),
    Column("size", BigInteger, nullable=False),
    count("files"),
    Column("username", Text, nullable=False, server_default=text("''")),
    Column("source", Text, nullable=False, server_default=text("''")),
    instant("created", required=True),
    instant("pushed"),
    Column("workflow_version", Integer),
)
index("bundles_by_content", bundles, "tenant, content_id", unique=True)
index("bundles_by_id", bundles, "tenant, bundle_id, pushed", "pushed IS NOT NULL", unique=True)
index("bundles_by_digest", bundles, "tenant, digest", "pushed IS NOT NULL")
index("bundles_unfinished", bundles, "created", "pushed IS NULL")
index("bundles_by_push", bundles, "pushed", "pushed IS NOT NULL")

bundle_chunks = Table(
    "bundle_chunks",
    metadata,
    Column("bundle", BigInteger, ForeignKey("bundles.key"), primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
)

workflows = Table(
    "workflows",
    metadata,
    Column("key", KEY, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("workflow_id", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("document", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("username", Text, nullable=False),
    instant("created", required=True),
    instant("deleted"),
)
index("workflows_by_version", workflows, "tenant, workflow_id, version", unique=True)
index("workflows_deleted", workflows, "deleted", "deleted IS NOT NULL")

# Everything about a run is written under the lock of its occurrence.
workflow_runs = Table(
    "workflow_runs",
    metadata,
    Column("occurrence", BigInteger, ForeignKey("occurrences.key"), primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("workflow_id", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("inputs", Text, nullable=False),
    instant("started", required=True),
    Column("attempt", Integer, nullable=False),
    Column("closing", Text),
)
index("workflow_runs_of_tenant", workflow_runs, "tenant, started, id")
index("workflow_runs_of_workflow", workflow_runs, "tenant, workflow_id, started, id")

workflow_steps = Table(
    "workflow_steps",
    metadata,
    Column("occurrence", BigInteger, ForeignKey("occurrences.key"), primary_key=True, autoincrement=False),
    Column("step_id", Text, primary_key=True),
    # -1 is the step itself.
    Column("element", Integer, primary_key=True, autoincrement=False),
    Column("phase", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    instant("started"),
    instant("ended"),
    Column("result", Text),
    Column("error", Text),
    flag("is_external"),
    instant("ready"),
    Column("sequence", Integer, nullable=False),
    Column("elements", Integer),
    Column("child", Text),
    Column("compensation", Text),
    CheckConstraint(f"phase IN ({listed(StepPhase)})", name="step_phase_is_known"),
    sqlite_with_rowid=False,
)
index("workflow_steps_ended_elsewhere", workflow_steps, "occurrence", "is_external = 1 AND ended IS NOT NULL")

step_waits = Table(
    "step_waits",
    metadata,
    Column("occurrence", BigInteger, ForeignKey("occurrences.key"), primary_key=True, autoincrement=False),
    Column("step_id", Text, primary_key=True),
    Column("event_type", Text, primary_key=True),
    Column("occurrence_id", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("filters", Text, nullable=False),
    instant("since", required=True),
    Column("fields", Text, nullable=False, server_default=text("''")),
    Column("wanted", Text, nullable=False, server_default=text("''")),
    sqlite_with_rowid=False,
)
index("step_waits_by_discriminator", step_waits, "event_type, tenant, fields, wanted")

approvals = Table(
    "approvals",
    metadata,
    Column("key", KEY, primary_key=True),
    Column("approval_id", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("occurrence", BigInteger, ForeignKey("occurrences.key"), nullable=False),
    Column("occurrence_id", Text, nullable=False),
    Column("step_id", Text, nullable=False),
    Column("message", Text, nullable=False),
    instant("requested", required=True),
    instant("expires", required=True),
    Column("state", Text, nullable=False),
    Column("decider", Text),
    Column("comment", Text),
    instant("decided"),
)
index("approvals_by_id", approvals, "tenant, approval_id", unique=True)
index("approvals_of_tenant", approvals, "tenant, requested, approval_id")
index("approvals_pending", approvals, "tenant, requested, approval_id", "state = 'pending'")
index("approvals_of_occurrence", approvals, "occurrence")

sessions = Table(
    "sessions",
    metadata,
    Column("key", KEY, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("session_id", Text, nullable=False),
    Column("username", Text, nullable=False),
    Column("spec", Text, nullable=False),
    Column("tool_access_policy", Text),
    Column("state", Text, nullable=False),
    Column("schedule_id", Text),
    Column("mob_id", Text),
    Column("member_id", Text),
    Column("role", Text),
    Column("turn", Text),
    count("messages"),
    Column("bytes", BigInteger, nullable=False, server_default=text("0")),
    Column("usage", Text, nullable=False),
    instant("created", required=True),
    instant("updated", required=True),
    flag("is_task"),
    Column("scopes", Text),
)
index("sessions_by_id", sessions, "tenant, session_id", unique=True)
index("sessions_by_creation", sessions, "tenant, created, session_id")
index("sessions_by_size", sessions, "bytes")
index("sessions_of_mobs", sessions, "tenant, mob_id", "mob_id IS NOT NULL")
index("sessions_of_tasks", sessions, "updated", "is_task = 1")

session_messages = Table(
    "session_messages",
    metadata,
    Column("session", BigInteger, ForeignKey("sessions.key"), primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("role", Text, nullable=False),
    Column("parts", Text, nullable=False),
    Column("data", Text),
    Column("occurrence_id", Text),
    Column("usage", Text),
    Column("bytes", BigInteger, nullable=False),
    instant("created", required=True),
)
index("session_messages_of_turns", session_messages, "session, occurrence_id, number")
index("session_messages_by_age", session_messages, "created")

mobs = Table(
    "mobs",
    metadata,
    Column("key", KEY, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("mob_id", Text, nullable=False),
    Column("username", Text, nullable=False),
    Column("document", Text, nullable=False),
    instant("created", required=True),
    instant("updated", required=True),
)
index("mobs_by_id", mobs, "tenant, mob_id", unique=True)

# The workflow, bundle, session or mob that the target of a schedule names, as long as the schedule is not deleted.
target_uses = Table(
    "target_uses",
    metadata,
    Column("schedule", BigInteger, ForeignKey("schedules.key"), primary_key=True, autoincrement=False),
    Column("kind", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    sqlite_with_rowid=False,
)
index("target_uses_by_name", target_uses, "tenant, kind, name, schedule")

# Costs are in nano-dollars. Budgets, counters and calls of a tenant are written under its lock.
budgets = Table(
    "budgets",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("scope_id", Text, primary_key=True),
    Column("period", Text, primary_key=True),
    Column("max_cost", BigInteger),
    Column("max_tokens", BigInteger),
    flag("is_hard"),
    Column("warning_threshold", Double),
    flag("require_approval"),
    Column("when_exhausted", Text, nullable=False),
    instant("updated", required=True),
    sqlite_with_rowid=False,
)

# What is spent of a budget in one period. A counter of the current period that is not here is 0.
budget_counters = Table(
    "budget_counters",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("scope_id", Text, primary_key=True),
    Column("period", Text, primary_key=True),
    Column("period_start", BigInteger, primary_key=True, autoincrement=False),
    total("settled_tokens"),
    total("settled_cost"),
    total("reserved_tokens"),
    total("reserved_cost"),
    flag("is_warned"),
    sqlite_with_rowid=False,
)
index("budget_counters_by_age", budget_counters, "period_start")

# One call of a model each: what is reserved for it, and once it is settled, what it used.
model_calls = Table(
    "model_calls",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("call_id", Text, primary_key=True),
    Column("username", Text, nullable=False),
    Column("schedule_id", Text),
    Column("session_id", Text),
    Column("occurrence_id", Text),
    instant("called", required=True),
    flag("is_settled"),
    flag("is_made"),
    total("tokens"),
    Column("cost", BigInteger),
    Column("model", Text),
    Column("provider", Text),
    total("input_tokens"),
    total("output_tokens"),
    total("cache_read_tokens"),
    total("cache_write_tokens"),
    count("model_calls"),
    count("tool_calls"),
    Column("whole_id", Text),
    sqlite_with_rowid=False,
)
index("model_calls_of_occurrence", model_calls, "occurrence_id", "occurrence_id IS NOT NULL")
index("model_calls_of_whole", model_calls, "whole_id", "whole_id IS NOT NULL")
index("model_calls_in_order", model_calls, "tenant, called")
index("model_calls_of_schedule", model_calls, "tenant, schedule_id, called", where="schedule_id IS NOT NULL")
index("model_calls_by_age", model_calls, "called", "is_settled = 1")

# Failures of providers in a row, for each user whose last call failed.
breakers = Table(
    "breakers",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("username", Text, primary_key=True),
    count("failures"),
    instant("since", required=True),
    sqlite_with_rowid=False,
)

# Who has signed in to the web page.
page_sessions = Table(
    "page_sessions",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("key_id", Text, nullable=False),
    instant("created", required=True),
    instant("used", required=True),
    sqlite_with_rowid=False,
)
index("page_sessions_of_key", page_sessions, "key_id, used")

# What is stopped. Admission reads it in the transaction of every start, so it is usually empty, and always small.
halts = Table(
    "halts",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("halt_id", Text, primary_key=True),
    instant("halted", required=True),
    Column("caller", Text, nullable=False),
    Column("reason", Text),
    Column("labels", Text),
    Column("lineage", Text),
    sqlite_with_rowid=False,
)

# What waits for somebody's approval. A proposed schedule is nowhere else until then.
proposals = Table(
    "proposals",
    metadata,
    Column("tenant", Text, primary_key=True),
    Column("schedule_id", Text, primary_key=True),
    Column("proposal_id", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("uid", Text, nullable=False),
    Column("name", Text),
    Column("username", Text, nullable=False),
    Column("document", Text, nullable=False),
    Column("base_revision", Integer),
    Column("source", Text, nullable=False),
    Column("proposer", Text, nullable=False),
    Column("key_id", Text),
    flag("is_agent"),
    Column("reason", Text),
    instant("proposed", required=True),
    instant("expires", required=True),
    Column("lineage", Text),
    sqlite_with_rowid=False,
)
index("proposals_in_order", proposals, "tenant, proposed, schedule_id")
index("proposals_by_expiry", proposals, "expires")

# When each bucket of tokens is full again. One that is full is like one that is not here.
rate_buckets = Table(
    "rate_buckets", metadata, Column("name", Text, primary_key=True), instant("full_at", required=True)
)
index("rate_buckets_by_age", rate_buckets, "full_at")

nodes = Table(
    "nodes",
    metadata,
    Column("name", Text, primary_key=True),
    Column("routes", Text, nullable=False),
    Column("capacity", Integer, nullable=False),
    Column("load", Integer, nullable=False),
    Column("version", Text, nullable=False),
    instant("started", required=True),
    instant("lease", required=True),
    instant("seen", required=True),
    instant("left_at"),
    Column("zone_data", Text, nullable=False, server_default=text("''")),
    Column("process_lock", Text),
    instant("gone_at"),
    # The one that its code knows.
    Column("schema_version", Text),
)
index("nodes_seen", nodes, "seen")

# One row: the leader, and for how long. Without a node there is no leader, but the term stays.
leadership = Table(
    "leadership",
    metadata,
    Column("key", SmallInteger, primary_key=True, autoincrement=False),
    Column("term", BigInteger, nullable=False),
    Column("node", Text),
    instant("until", required=True),
    CheckConstraint("key = 1", name="one_leader"),
    CheckConstraint("term >= 1", name="terms_are_counted"),
)

served_routes = Table(
    "served_routes", metadata, Column("route", Text, primary_key=True), instant("seen", required=True)
)

alembic_version = Table(
    "alembic_version",
    metadata,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
