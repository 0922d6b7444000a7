"""The tables of budgets, proposals, keys, secrets and the audit log, with their indexes.

Their columns are those of the SQL stores.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.budget import Period
from noonmark.stores.redis.transactions.table import Index, Lookup, Table
from noonmark.stores.sql.api_keys import COLUMNS as API_KEY_COLUMNS
from noonmark.stores.sql.audit_log import NOTE_COLUMNS
from noonmark.stores.sql.budgets import BREAKER_COLUMNS, BUDGET_COLUMNS, CALL_COLUMNS, COUNTER_COLUMNS
from noonmark.stores.sql.page_sessions import COLUMNS as PAGE_SESSION_COLUMNS
from noonmark.stores.sql.proposals import COLUMNS as PROPOSAL_COLUMNS
from noonmark.stores.sql.secret_store import NAMES as SECRET_COLUMNS

if TYPE_CHECKING:
    Named = dict[str, Any]

SPENT = ("is_settled", "tokens", "cost", "model_calls")
"""What is added up of the calls of an occurrence or a budget, without reading their records."""
_CHANGE = ("changes", "revision_before", "revision_after")


def has_changes(named: Named) -> bool:
    """Whether a schedule was changed; entries of an earlier version do not say how."""
    return named["changes"] is not None or (named["revision_before"] or 0) != (named["revision_after"] or 0)


def is_settled(named: Named) -> bool:
    """Whether it is known what a call used."""
    return bool(named["is_settled"] == 1)


def fingerprint_of(named: Named) -> str | None:
    """The fingerprint in the lineage of a proposal, unless it is damaged."""
    try:
        fingerprint = json.loads(named["lineage"])["fingerprint"]
    except (TypeError, ValueError, KeyError, RecursionError):
        return None
    return fingerprint if isinstance(fingerprint, str) else None


NOTES = Table(
    "notes",
    NOTE_COLUMNS,
    indexes=[
        Index("in_order", ("tenant",), ()),
        Index("of_schedule", ("tenant", "schedule_id"), (), lambda one: one["schedule_id"] is not None),
        Index("changes", ("tenant",), (), has_changes, _CHANGE),
        Index("changes_of_schedule", ("tenant", "schedule_id"), (),
              lambda one: one["schedule_id"] is not None and has_changes(one), _CHANGE),
        Index("by_age", (), ("noted",)),
    ],
)  # fmt: skip

IDEMPOTENCY_KEYS = Table(
    "idempotency_keys",
    ("key", "tenant", "name", "fingerprint", "created"),
    lookups=[Lookup("by_name", ("tenant", "name"))],
    indexes=[Index("by_age", (), ("created",))],
)

SECRETS = Table(
    "secrets",
    ("key", *SECRET_COLUMNS),
    lookups=[Lookup("by_name", ("tenant", "name"))],
    indexes=[Index("of_tenant", ("tenant",), ("name",))],
)

API_KEYS = Table(
    "api_keys",
    ("key", *API_KEY_COLUMNS),
    lookups=[Lookup("by_id", ("key_id",))],
    indexes=[
        Index("by_creation", (), ("created", "key_id")),
        Index("of_tenant", ("tenant",), ("created", "key_id")),
        Index("active", ("tenant",), (), lambda one: one["revoked"] is None, ("revoked",)),
    ],
)

PAGE_SESSIONS = Table(
    "page_sessions",
    PAGE_SESSION_COLUMNS,
    indexes=[
        Index("of_key", ("key_id",), ("used",)),
        Index("by_use", (), ("used",)),
        Index("by_creation", (), ("created",)),
    ],
)

RATE_BUCKETS = Table("rate_buckets", ("name", "full_at"), indexes=[Index("by_age", (), ("full_at",))])

PROPOSALS = Table(
    "proposals",
    PROPOSAL_COLUMNS,
    key=2,
    indexes=[
        Index("in_order", ("tenant",), ("proposed", "schedule_id")),
        Index("of_user", ("tenant", "username"), ("proposed", "schedule_id")),
        Index("by_proposer", ("tenant", "proposer"), ()),
        Index("by_fingerprint", ("tenant", "username"), ("fingerprint", "proposed"),
              lambda one: one["lineage"] is not None, ("lineage",), {"fingerprint": fingerprint_of}),
        Index("by_expiry", (), ("expires",)),
    ],
)  # fmt: skip

BUDGETS = Table("budgets", BUDGET_COLUMNS, key=4, indexes=[Index("of_tenant", ("tenant",), ())])

BUDGET_COUNTERS = Table(
    "budget_counters",
    COUNTER_COLUMNS,
    key=5,
    indexes=[
        Index("of_tenant", ("tenant",), ()),
        Index("by_age", (), ("period_start",), lambda one: one["period"] != Period.TOTAL, ("period",)),
    ],
)

MODEL_CALLS = Table(
    "model_calls",
    CALL_COLUMNS,
    key=2,
    indexes=[
        Index("of_tenant", ("tenant",), ("called", *SPENT)),
        Index("of_user", ("tenant", "username"), ("called", *SPENT)),
        Index("of_schedule", ("tenant", "schedule_id"), ("called", *SPENT), lambda one: one["schedule_id"] is not None),
        Index("of_session", ("tenant", "session_id"), ("called", *SPENT), lambda one: one["session_id"] is not None),
        Index("of_occurrence", ("occurrence_id",), SPENT, lambda one: one["occurrence_id"] is not None),
        Index("of_whole", ("whole_id",), SPENT, lambda one: one["whole_id"] is not None),
        Index("settled", (), ("called",), is_settled, ("is_settled",)),
    ],
)

BREAKERS = Table("breakers", BREAKER_COLUMNS, key=2)
