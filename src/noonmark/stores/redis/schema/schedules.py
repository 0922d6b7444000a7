"""The tables of schedules, occurrences and events, with their indexes.

Records have the columns of the SQL stores, so that a store can be copied, and a few more at the end: the tenant of a
schedule is also in its state and in its occurrences, so that what belongs to a tenant is found under its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.ids import TRIGGER, carries_steps, is_hidden
from noonmark.core.instants import MIN_INSTANT
from noonmark.core.lifecycle import FAILURES, Phase, SchedulePhase
from noonmark.core.pipeline_ownership import PREFIX
from noonmark.core.reasons import Reason
from noonmark.core.targets.work import is_bundle_route
from noonmark.stores.redis.transactions.table import Index, Lookup, Table
from noonmark.stores.rules.records import DELIVERING, UNSTARTED
from noonmark.stores.sql.halts import COLUMNS as HALT_COLUMNS
from noonmark.stores.sql.nodes import COLUMNS as NODE_COLUMNS
from noonmark.stores.sql.records import KEY_COLUMNS, ROW_COLUMNS, RUN_COLUMNS, STATE_COLUMNS
from noonmark.stores.sql.schedule_documents import COLUMNS as SCHEDULE_COLUMNS

if TYPE_CHECKING:
    from noonmark.core.instants import Micros

    Named = dict[str, Any]

CROWDED = 32
"""Schedules with fewer ended occurrences are not in the index that pruning by number reads."""
STRETCH = 25
"""How many bits of an instant are dropped for its stretch of time."""
CARRIES_STEPS = 2
"""What `is_hidden` says of a schedule that carries steps, and of its rows; see `core.ids.carries_steps`."""
PLANNED = (SchedulePhase.ACTIVE, SchedulePhase.PAUSED)


def hidden_as(schedule_id: str) -> int:
    """The column `is_hidden` of a schedule."""
    return CARRIES_STEPS if carries_steps(schedule_id) else int(is_hidden(schedule_id))


def is_listed(named: Named) -> bool:
    """Whether a schedule is not deleted."""
    return bool(named["is_listed"])


def is_shown(named: Named) -> bool:
    """Whether a schedule is not deleted, and in lists."""
    return bool(named["is_listed"]) and not is_hidden(named["schedule_id"])


def is_deleted(named: Named) -> bool:
    """Whether a schedule is deleted."""
    return not named["is_listed"]


def is_shown_as_deleted(named: Named) -> bool:
    """Whether a schedule is deleted, and in lists."""
    return not named["is_listed"] and not is_hidden(named["schedule_id"])


def is_planned(named: Named) -> bool:
    """Whether planning looks at a schedule."""
    return named["phase"] in PLANNED and named["plan_at"] is not None and named["fault"] is None


def is_ready(named: Named) -> bool:
    """Whether a pending row can be claimed at its time."""
    return named["phase"] == Phase.PENDING and not named["held"] and named["ready"] is not None


def is_live(named: Named) -> bool:
    """Whether a row has not ended."""
    return named["ended"] is None


def is_mark(named: Named) -> bool:
    """Whether an ended row is on timelines."""
    is_shown_row = named["is_hidden"] != CARRIES_STEPS and named["phase"] != Phase.SUPERSEDED
    return named["ended"] is not None and is_shown_row


def is_live_mark(named: Named) -> bool:
    """Whether a row that has not ended is on timelines."""
    return named["ended"] is None and named["is_hidden"] != CARRIES_STEPS


def is_queued(named: Named) -> bool:
    """Whether a row waits in line for the slot; see `Row.is_queued`."""
    return named["phase"] == Phase.PENDING and named["ready"] is None and named["waiting_for"] == Reason.QUEUED


def is_begun(named: Named) -> bool:
    """Whether a row is delivered, or is a workflow run that is suspended."""
    return named["phase"] in DELIVERING or (named["phase"] in UNSTARTED and named["reason"] == Reason.SUSPENDED)


def is_unstarted(named: Named) -> bool:
    """Whether a row may count as waiting, at some time; see `Row.waits`."""
    return named["phase"] in UNSTARTED and named["reason"] != Reason.SUSPENDED and not named["is_hidden"]


def waits_from(named: Named) -> Micros:
    """From when on a row that has not started counts as waiting; see `Row.waits`."""
    if named["origin"] != TRIGGER and not named["attempt"]:
        return MIN_INSTANT
    due: Micros = named["due"]
    return due


_WAITING = ("phase", "reason", "is_hidden")

SCHEDULES = Table(
    "schedules",
    SCHEDULE_COLUMNS,
    lookups=[Lookup("by_id", ("tenant", "schedule_id"), is_listed, ("is_listed",))],
    indexes=[
        Index("by_name", ("tenant", "username"), ("name", "created"),
              lambda one: is_listed(one) and one["name"] is not None, ("is_listed",)),
        Index("by_creation", ("tenant",), ("created", "schedule_id"), is_shown, ("is_listed",)),
        Index("by_owner", ("tenant", "username"), ("created", "schedule_id"), is_shown, ("is_listed",)),
        Index("deleted", ("tenant",), ("created", "schedule_id"), is_shown_as_deleted, ("is_listed",)),
        Index("of_pipelines", ("tenant",), ("schedule_id",),
              lambda one: is_listed(one) and one["schedule_id"].startswith(PREFIX), ("is_listed",)),
        Index("deleted_by_id", ("tenant",), ("schedule_id", "deleted"), is_deleted, ("is_listed",)),
        Index("by_source", ("source",), ("route",), is_listed, ("is_listed",)),
        Index("by_tenant", (), ("tenant",), is_shown, ("is_listed", "schedule_id")),
        Index("by_parent", ("tenant",), ("parent",),
              lambda one: is_listed(one) and one["parent"] is not None, ("is_listed",)),
        Index("by_fingerprint", ("tenant", "username"), ("fingerprint", "created"),
              lambda one: is_listed(one) and one["fingerprint"] is not None, ("is_listed",)),
    ],
)  # fmt: skip

STATES = Table(
    "schedule_states",
    (*STATE_COLUMNS, "tenant", "username", "route", "is_hidden"),
    lookups=[Lookup("by_uid", ("uid",))],
    indexes=[
        Index("to_plan", (), ("plan_at", "uid"), is_planned, ("phase", "fault")),
        Index(
            "by_phase", ("tenant",), ("phase", "username", "route"), lambda one: not one["is_hidden"], ("is_hidden",)
        ),
        Index("by_route", ("tenant",), ("phase", "route"), lambda one: not one["is_hidden"], ("is_hidden",)),
        Index("with_history", (), ("history",), lambda one: one["history"] >= CROWDED),
    ],
)
"""Hidden schedules are those of pipelines and the like; see `core.ids.is_hidden`."""

OCCURRENCES = Table(
    "occurrences",
    (*ROW_COLUMNS, "tenant", "is_hidden"),
    lookups=[Lookup("by_id", ("id",))],
    indexes=[
        Index("ready", ("route",), ("ready", "nominal"), is_ready, ("phase", "held")),
        Index("ready_of_owners", ("route",), ("stretch", "owner", "ready", "nominal"), is_ready, ("phase", "held"),
              {"stretch": lambda one: one["ready"] >> STRETCH}),
        Index("leased", ("route",), ("lease_end", "nominal"), lambda one: one["lease_end"] is not None),
        Index("routes", (), ("route",), is_live, ("ended",)),
        Index("live", ("schedule",), (), is_live, ("ended",)),
        Index("history", ("schedule",), ("nominal", "id")),
        Index("ended_of_schedule", ("schedule",), ("nominal", "id", "phase", "late"),
              lambda one: one["ended"] is not None, ("ended",)),
        Index("ended_of_tenant", ("tenant",), ("nominal", "phase", "late", "schedule", "owner"), is_mark,
              ("ended", "is_hidden")),
        Index("live_of_tenant", ("tenant",), ("due", "id"), is_live_mark, ("ended", "is_hidden")),
        Index("live_by_time", ("tenant",), ("nominal", "schedule", "owner"), is_live_mark,
              ("ended", "is_hidden")),
        Index("by_end", ("tenant",), ("ended", "id"),
              lambda one: one["ended"] is not None and one["is_hidden"] != CARRIES_STEPS, ("is_hidden",)),
        Index("by_end_of_schedule", ("schedule",), ("ended", "id"), lambda one: one["ended"] is not None),
        Index("gaps", ("schedule",), ("missed_last",), lambda one: one["missed_last"] is not None),
        Index("ended", (), ("ended",), lambda one: one["ended"] is not None),
        Index("failed", ("tenant", "phase"), ("ended", "id"), lambda one: one["phase"] in FAILURES),
        Index("queued", ("schedule",), ("held", "due", "nominal", "id"), is_queued,
              ("phase", "ready", "waiting_for")),
        Index("awaiting", ("schedule",), ("nominal", "id"),
              lambda one: one["phase"] == Phase.PENDING and one["waiting_for"] == Reason.DEPENDENCY_PENDING,
              ("phase", "waiting_for")),
        Index("wanting", ("wanted",), ("held", "due", "nominal", "id"), lambda one: one["wanted"] is not None),
        Index("deadlines", (), ("deadline", "id"),
              lambda one: one["deadline"] is not None and one["phase"] in DELIVERING, ("phase",)),
        Index("waiting", (), (), lambda one: one["phase"] == Phase.PENDING and one["waiting_for"] is not None,
              ("phase", "waiting_for")),
        Index("begun", ("tenant",), (), is_begun, ("phase", "reason")),
        Index("bundles", ("tenant",), (),
              lambda one: is_live(one) and one["own"] is not None and is_bundle_route(one["route"]),
              ("ended", "own", "route")),
        Index("unstarted", ("tenant",), ("waits_from",), is_unstarted, _WAITING,
              {"waits_from": waits_from}, ("origin", "attempt", "due")),
        Index("unstarted_of_owner", ("owner",), ("waits_from",), is_unstarted, _WAITING,
              {"waits_from": waits_from}, ("origin", "attempt", "due")),
    ],
)  # fmt: skip

RUNS = Table(
    "runs",
    (*RUN_COLUMNS, "occurrence_id", "cost_usd"),  # the last is what an old version wrote into a copied store
    key=2,
    indexes=[
        Index("of_schedule", ("schedule",), ("started", "occurrence_id")),
        Index("of_occurrence", ("occurrence",), ()),
    ],
)

CONCURRENCY_KEYS = Table("concurrency_keys", KEY_COLUMNS, lookups=[Lookup("by_name", ("tenant", "name"))])

DEPENDENCIES = Table(
    "dependencies",
    ("schedule", "position", "tenant", "upstream_id"),
    key=2,
    indexes=[
        Index("of_schedule", ("schedule",), ("position",)),
        Index("by_upstream", ("tenant",), ("upstream_id", "schedule")),
    ],
)

DEPENDENCY_GRAPHS = Table("dependency_graphs", ("tenant", "version"))

EVENT_LISTENERS = Table(
    "event_listeners",
    ("schedule", "event_type", "tenant", "fields", "wanted", "narrow_fields", "narrow_wanted"),
    key=2,
    indexes=[
        Index("of_schedule", ("schedule",), ()),
        Index("by_discriminator", ("tenant",), ("event_type", "narrow_fields", "narrow_wanted", "schedule")),
        Index("by_type", (), ("event_type", "tenant")),
    ],
)

EVENT_STREAMS = Table(
    "event_streams",
    ("tenant", "newest", "matched_until", "cursor", "matched"),
    indexes=[
        Index("behind", (), ("matched_until", "tenant"),
              lambda one: one["newest"] > one["matched_until"], ("newest",)),
        Index("by_count", (), ("matched",)),
    ],
)  # fmt: skip

EVENTS = Table(
    "events",
    ("key", "tenant", "event_id", "event_type", "source", "payload", "emitted", "behind"),
    lookups=[Lookup("by_id", ("tenant", "event_id"))],
    indexes=[
        Index("in_order", ("tenant",), ("emitted",)),
        Index("by_type", ("tenant",), ("event_type", "emitted")),
        Index("by_age", (), ("emitted",)),
    ],
)

HALTS = Table(
    "halts",
    HALT_COLUMNS,
    key=2,
    indexes=[Index("of_tenant", ("tenant",), ("halted", "halt_id")), Index("by_time", (), ("halted", "halt_id"))],
)

NODES = Table("nodes", NODE_COLUMNS, indexes=[Index("by_seen", (), ("seen",)), Index("by_name", (), ())])

SERVED_ROUTES = Table("served_routes", ("route", "seen"), indexes=[Index("by_seen", (), ("seen",))])

LEADERSHIP = Table("leadership", ("key", "term", "node", "until"))
