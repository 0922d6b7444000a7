"""The tables of workflows, bundles and sessions, with their indexes. Their columns are those of the SQL stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.workflows.run import StepPhase
from noonmark.ports.workflows import ApprovalState
from noonmark.stores.redis.transactions.table import Index, Lookup, Table
from noonmark.stores.sql.bundles import COLUMNS as BUNDLE_COLUMNS
from noonmark.stores.sql.sessions import MESSAGE_COLUMNS, MOB_COLUMNS, SESSION_COLUMNS
from noonmark.stores.sql.workflows import (
    APPROVAL_COLUMNS,
    RUN_COLUMNS,
    STEP_COLUMNS,
    USE_COLUMNS,
    VERSION_COLUMNS,
    WAIT_COLUMNS,
)

if TYPE_CHECKING:
    Named = dict[str, Any]


def is_pushed(named: Named) -> bool:
    """Whether the push of a bundle is complete."""
    return named["pushed"] is not None


WORKFLOWS = Table(
    "workflows",
    ("key", *VERSION_COLUMNS),
    lookups=[Lookup("by_version", ("tenant", "workflow_id", "version"))],
    indexes=[
        Index("in_order", ("tenant",), ("workflow_id", "version")),
        Index("listed", ("tenant",), ("workflow_id", "version"), lambda one: one["deleted"] is None, ("deleted",)),
        Index("deleted", (), ("deleted",), lambda one: one["deleted"] is not None),
    ],
)

WORKFLOW_RUNS = Table(
    "workflow_runs",
    RUN_COLUMNS,
    indexes=[
        Index("of_tenant", ("tenant",), ("started", "id")),
        Index("of_workflow", ("tenant", "workflow_id"), ("started", "id")),
        Index("of_version", ("tenant", "workflow_id"), ("version",)),
    ],
)

WORKFLOW_STEPS = Table(
    "workflow_steps",
    STEP_COLUMNS,
    key=3,
    indexes=[
        Index("of_run", ("occurrence",), ()),
        Index("open", ("occurrence",), (),
              lambda one: one["phase"] in (StepPhase.PENDING, StepPhase.RUNNING), ("phase",)),
        Index("ended_elsewhere", ("occurrence",), (),
              lambda one: one["is_external"] == 1 and one["ended"] is not None, ("is_external", "ended")),
    ],
)  # fmt: skip

STEP_WAITS = Table(
    "step_waits",
    WAIT_COLUMNS,
    key=3,
    indexes=[
        Index("of_run", ("occurrence",), ()),
        Index("by_discriminator", ("tenant", "event_type"), ("fields", "wanted")),
        Index("by_type", (), ("event_type", "tenant")),
    ],
)

APPROVALS = Table(
    "approvals",
    ("key", *APPROVAL_COLUMNS),
    lookups=[Lookup("by_id", ("tenant", "approval_id"))],
    indexes=[
        Index("of_tenant", ("tenant",), ("requested", "approval_id")),
        Index("of_state", ("tenant", "state"), ("requested", "approval_id")),
        Index("of_occurrence", ("occurrence",), ()),
        Index("pending_of_occurrence", ("occurrence",), ("step_id",),
              lambda one: one["state"] == ApprovalState.PENDING, ("state",)),
        Index("pending", (), ("requested", "tenant"), lambda one: one["state"] == ApprovalState.PENDING, ("state",)),
    ],
)  # fmt: skip

TARGET_USES = Table(
    "target_uses",
    USE_COLUMNS,
    key=3,
    indexes=[
        Index("of_schedule", ("schedule",), ()),
        Index("by_name", ("tenant", "kind"), ("name",)),
    ],
)

BUNDLES = Table(
    "bundles",
    ("key", *BUNDLE_COLUMNS),
    lookups=[Lookup("by_content", ("tenant", "content_id"))],
    indexes=[
        Index("by_id", ("tenant", "bundle_id"), ("pushed",), is_pushed),
        Index("by_digest", ("tenant", "digest"), ("pushed",), is_pushed),
        Index("listed", ("tenant",), ("bundle_id", "pushed"), is_pushed),
        Index("sizes", ("tenant",), ("size",)),
        Index("by_push", (), ("pushed", "tenant", "bundle_id", "digest"), is_pushed),
        Index("unfinished", (), ("created",), lambda one: not is_pushed(one), ("pushed",)),
    ],
)
"""The sizes of a tenant's bundles are added up without reading their records."""

BUNDLE_CHUNKS = Table(
    "bundle_chunks",
    ("bundle", "number", "data"),
    key=2,
    binary=("data",),
    indexes=[Index("of_bundle", ("bundle",), ())],
)
"""Chunks are large: they are deleted without being read, so indexes may name columns of the key only."""

SESSIONS = Table(
    "sessions",
    SESSION_COLUMNS,
    lookups=[Lookup("by_id", ("tenant", "session_id"))],
    indexes=[
        Index("by_creation", ("tenant",), ("created", "session_id")),
        Index("of_user", ("tenant", "username"), ("created", "session_id")),
        Index("of_mob", ("tenant", "mob_id"), ("created", "session_id"), lambda one: one["mob_id"] is not None),
        Index("by_size", (), ("bytes",)),
        Index("empty_tasks", (), ("updated",),
              lambda one: one["is_task"] == 1 and one["bytes"] == 0, ("is_task", "bytes")),
    ],
)  # fmt: skip

SESSION_MESSAGES = Table(
    "session_messages",
    MESSAGE_COLUMNS,
    key=2,
    indexes=[
        Index("of_session", ("session",), ()),
        Index("of_turn", ("session", "occurrence_id"), (), lambda one: one["occurrence_id"] is not None),
        Index("by_age", (), ("created",)),
    ],
)

MOBS = Table(
    "mobs",
    MOB_COLUMNS,
    lookups=[Lookup("by_id", ("tenant", "mob_id"))],
    indexes=[Index("of_tenant", ("tenant",), ("mob_id",))],
)
