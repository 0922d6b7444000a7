"""The documents that operations answer with. The client gives them as these values, with instants as datetimes."""

from __future__ import annotations

from dataclasses import MISSING, field, fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from noonmark.core.errors import NoonmarkError
from noonmark.core.frozen import frozen
from noonmark.core.instants import from_micros, parse_instant

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

Document = dict[str, Any]
"""JSON."""
FailureClass = Literal[
    "target_materialization_failed",
    "target_missing",
    "target_busy",
    "runtime_rejected",
    "mob_rejected",
    "lease_lost",
    "transport_error",
    "internal_error",
]


@frozen(kw_only=True)
class Owner:
    """The owner of a schedule."""

    tenant: str
    user: str


@frozen(kw_only=True)
class Counters:
    """How the occurrences of a schedule have ended so far."""

    total: int
    successful: int
    failed: int
    missed: int
    skipped: int


MarkState = Literal["planned", "queued", "running", "completed", "failed", "skipped"]


@frozen(kw_only=True)
class LastOutcome:
    """What became of an occurrence, in short."""

    occurrence_id: str
    state: MarkState
    """queued, running, completed, failed or skipped. A missed fire is failed."""
    late_seconds: float | None
    """How late it started; null if that was within a second of its due time, or it has not started."""
    at_utc: datetime
    """Its nominal time."""


@frozen(kw_only=True)
class Pause:
    """Why a schedule is paused."""

    reason: str | None
    by: str | None
    """The caller; `noonmark` if it was automatic."""
    at_utc: datetime
    until_utc: datetime | None
    """When it resumes automatically."""


@frozen(kw_only=True)
class Lineage:
    """The session or the schedule that made a schedule."""

    session_id: str | None
    schedule_id: str | None
    tool_call_id: str | None
    depth: int
    """How many schedules made each other up to this one."""
    chain: list[str]
    """Every session and schedule before it, outermost first, such as `session:ID`."""
    scopes: list[str] | None
    """What its sessions may do at most, where those who made it could not do more."""


@frozen(kw_only=True)
class ChangedField:
    """A field that a proposal changes."""

    field: str
    before: Any
    after: Any


@frozen(kw_only=True)
class Proposal:
    """What somebody proposes for a schedule, until it is decided."""

    proposal_id: str
    schedule_id: str
    schedule_name: str | None
    action: Literal["create", "update", "resume", "delete"]
    base_revision: int | None
    """The revision that a change is based on; null for a new schedule."""
    by: str
    agent: bool
    """Whether an agent proposed it."""
    reason: str | None
    proposed_at_utc: datetime
    expires_at_utc: datetime
    changes: list[ChangedField]
    """What would change; empty for a new schedule."""
    conflicts: list[str]
    """What speaks against it, such as another schedule that does the same."""
    document: Document = field(metadata={"is_whole": True})
    """The whole answer, as JSON."""


@frozen(kw_only=True)
class Schedule:
    """A schedule: what it declares, and its state."""

    schedule_id: str
    name: str | None
    description: str
    labels: dict[str, str]
    trigger: Document | None
    target: Document
    overlap_policy: str | Document | None = None
    misfire_policy: str | Document | None = None
    missing_target_policy: str | None = None
    retry_policy: Document | None = None
    timeout_seconds: float | None = None
    expected_seconds: float | None = None
    expected_rate: Document | None = None
    window: Document | None = None
    delivery: str | None = None
    pause_on_failure: int | None = None
    runaway: Document | None = None
    concurrency_key: str | None = None
    concurrency_limit: int | None = None
    depends_on: list[Document] | None = None
    budget: Document | None = None
    max_runs: int | None = None
    ping_urls: Document | None = None
    accepts_payload: bool | None = None
    planning_horizon_days: int | None = None
    planning_horizon_occurrences: int | None = None
    enabled: bool
    phase: str
    revision: int
    owner: Owner
    source: str
    next_run_at: datetime | None
    next_fire_times: list[datetime]
    last_run_at: datetime | None
    last_phase: str | None
    counters: Counters
    paused: Pause | None
    """Why it is paused, if it is; null also if an earlier release paused it."""
    created_at_utc: datetime
    updated_at_utc: datetime
    deleted_at_utc: datetime | None
    warnings: list[str] | None = None
    """What may surprise about it, such as a target that no live node serves; null in lists."""
    stopped_runs: int | None = None
    """How many runs were asked to stop; in the answer of delete."""
    unfinished_runs: int | None = None
    """How many runs go on; in the answer of delete."""
    ping_url: str | None = None
    """The URL that the job calls, if the target is a ping and this is the answer to its creation."""
    lineage: Lineage | None = None
    """What made it; null if a person or a program did."""
    proposal: Proposal | None = None
    """The proposal for it, if it is proposed itself or this is the answer to a proposal."""
    forecast: Forecast | None = None
    """What it will cost this month, if it calls models and this is the answer to its creation or an edit."""
    outcomes: list[LastOutcome] | None = None
    """The last ones that were due, oldest first, in a list that asks for them."""
    document: Document = field(metadata={"is_whole": True})
    """The whole document, as JSON."""


@frozen(kw_only=True)
class PingUrl:
    """The URL that the job of a schedule calls."""

    schedule_id: str
    ping_url: str


@frozen(kw_only=True)
class Ping:
    """What became of a ping."""

    schedule_id: str
    verdict: str
    """counted, early, repeated, unexpected or paused."""
    why: str
    """The verdict as a sentence."""
    occurrence_id: str | None


@frozen(kw_only=True)
class RunBundle:
    """The archive of a bundle that an occurrence runs, in every attempt."""

    bundle_id: str
    digest: str


@frozen(kw_only=True)
class Occurrence:
    """One planned delivery of a schedule."""

    occurrence_id: str
    schedule_id: str | None
    schedule_name: str | None = None
    schedule_revision: int
    superseded_by_revision: int | None
    """The edit that superseded it, while that is the latest one."""
    phase: str
    origin: str
    nominal_at_utc: datetime
    due_at_utc: datetime
    attempt: int
    attempt_count: int
    reason: str | None
    why: str | None
    """The reason as a sentence."""
    detail: Document
    failure_class: FailureClass | None
    """What failed, in the occurrence or its last attempt; null when nothing failed."""
    failure_detail: str | None
    """The error of the last run on one line, or else the sentence of the reason."""
    missed_count: int
    missed_from: datetime | None
    missed_to: datetime | None
    waiting_for: str | None
    node: str | None
    """The node that delivers it, or ran it last."""
    claimed_by: str | None
    """The same."""
    started_at_utc: datetime | None
    """When its delivery, or its last run, began."""
    dispatched_at_utc: datetime | None
    """The same."""
    completed_at_utc: datetime | None
    """When it ended, in any phase."""
    deadline_utc: datetime | None
    run_id: str | None
    delivery_correlation_id: str
    """Its own id, which every delivery carries."""
    payload: Any
    bundle: RunBundle | None = None
    """The archive that it runs, once it has started, if its target is a bundle."""
    trigger_snapshot: Document | None
    """The trigger in force for it; like the target and the policies, null when the schedule was edited since."""
    target_snapshot: Document | None
    """In a list, null also when it is longer than 4 KiB."""
    misfire_policy: str | Document | None
    overlap_policy: str | Document | None
    missing_target_policy: str | None


@frozen(kw_only=True)
class Usage:
    """What a run, a session or a call of a model has used."""

    model: str | None
    """The last one, where there were several."""
    provider: str | None
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    total_tokens: int
    model_calls: int
    tool_calls: int
    cost_usd: float | None
    """Null if a price is unknown."""


@frozen(kw_only=True)
class Progress:
    """The progress of a run, from 0 to 1, as last reported."""

    fraction: float
    message: str


@frozen(kw_only=True)
class Run:
    """One attempt to deliver an occurrence; it has no end and no outcome while it runs.

    The result of a running command is the last of its output so far.
    """

    run_id: str
    occurrence_id: str
    schedule_id: str | None
    attempt: int
    node: str
    started_at_utc: datetime
    ended_at_utc: datetime | None
    duration_seconds: float | None
    outcome: str | None
    progress: Progress | None
    result: Any
    error: str | None
    usage: Usage | None
    bundle: RunBundle | None = None
    """The archive that it ran, if it ran a bundle."""


@frozen(kw_only=True)
class Forecast:
    """What a schedule has cost this UTC month, and what it will have cost at the end of it. Null is unknown."""

    month_start_utc: datetime
    month_end_utc: datetime
    spent_usd: float
    """The spend so far, as far as prices are known."""
    runs: int
    """How many of the last runs have a known cost; the figures are made from those."""
    unpriced_runs: int
    fires_left: int | None
    """Null if no trigger says how often it fires."""
    run_p50_usd: float | None
    """What half of the runs cost at most."""
    run_p90_usd: float | None
    """What nine of ten runs cost at most."""
    p50_usd: float | None
    """What the month will have cost, if each fire that is left costs as much as half of the runs at most."""
    p90_usd: float | None
    at_most_usd: float | None
    """What it can cost at most by the `max_cost_usd` of its runs."""
    is_rough: bool
    """Whether it is made from fewer than five runs."""
    unknown: str | None
    """Why the figures of the month are unknown."""


@frozen(kw_only=True)
class ClockChange:
    """A change of the clock in the zone of a trigger."""

    at_utc: datetime
    shift_seconds: int
    """How far the clock jumps ahead; less than 0 where it goes back."""
    text: str
    is_affected: bool
    """Whether a time of the trigger is jumped over or comes twice."""


@frozen(kw_only=True)
class ChangedFire:
    """A fire that moves, is added or is removed."""

    before_utc: datetime | None
    """Null if it is added."""
    after_utc: datetime | None
    """Null if it is removed."""


@frozen(kw_only=True)
class EditImpact:
    """What a change of a schedule would do; nothing is changed."""

    changes: list[ChangedField]
    revision_before: int
    revision_after: int
    """The same if nothing that runs is changed."""
    before: list[datetime]
    """The next fires as the schedule is."""
    until_utc: datetime
    """The fires up to here are compared: the next twelve of the rarer rule."""
    kept: int
    moved: int
    added: int
    removed: int
    fires: list[ChangedFire]
    """The first 100 that move, are added or are removed."""


@frozen(kw_only=True)
class Preview:
    """The next fires of a trigger, with the trigger in words."""

    fires: list[datetime]
    description: str
    warnings: list[str]
    forecast: Forecast | None = None
    """What it will cost this month, if it calls models or has reported usage."""
    clock_changes: list[ClockChange] = field(default_factory=list)
    """The clock changes of the year to come, and what they do to its fires."""
    impact: EditImpact | None = None
    """With `changes`: what they would do."""


@frozen(kw_only=True)
class CrontabSchedule:
    """A line of a crontab as a schedule."""

    line: int
    schedule: dict[str, Any]
    """The document to create it with."""


@frozen(kw_only=True)
class CrontabNote:
    """A problem with a line of a crontab, or a difference in its meaning."""

    line: int
    detail: str


@frozen(kw_only=True)
class CrontabSchedules:
    """The schedules of a crontab; nothing is created."""

    schedules: list[CrontabSchedule]
    problems: list[CrontabNote]
    """Lines that could not be read."""
    notes: list[CrontabNote]


@frozen(kw_only=True)
class DocumentProblem:
    """A problem with a field."""

    field: str
    code: str
    detail: str


@frozen(kw_only=True)
class CheckedSchedule:
    """Whether a schedule would be accepted, and what may surprise about it."""

    schedule_id: str | None
    problems: list[DocumentProblem]
    """Why it would be refused."""
    warnings: list[str]


@frozen(kw_only=True)
class CheckedSchedules:
    """What a server says about schedules, in the order of the request."""

    checks: list[CheckedSchedule]


@frozen(kw_only=True)
class SelectedSchedule:
    """A schedule of a selection, and what became of it."""

    schedule_id: str
    name: str | None
    phase: str
    occurrence_id: str | None
    """The run that was requested."""
    problem: str | None
    """Why it stays as it was; null if it does not."""
    stopped_runs: int | None = None
    """How many of its runs were asked to stop when it was deleted."""
    unfinished_runs: int | None = None
    """How many of its runs go on although it was deleted."""


@frozen(kw_only=True)
class Selected:
    """The schedules of a selection, in the order of their creation."""

    count: int
    """How many were changed or run, or would be."""
    schedules: list[SelectedSchedule]


@frozen(kw_only=True)
class RefusedRedrive:
    """An occurrence of a selection that does not run again, and why."""

    occurrence_id: str
    problem: str


@frozen(kw_only=True)
class Redrive:
    """Occurrences that run again: each as a new occurrence with the nominal time and the payload of the old one."""

    occurrence_id: str | None
    """The new occurrence of the one that was asked for by its id; null for a selection."""
    count: int
    occurrences: list[Occurrence]
    """The new occurrences; of many, the first that fit on a page."""
    refused: list[RefusedRedrive]


@frozen(kw_only=True)
class Backfill:
    """Past fires that run again; without an id after a dry run."""

    backfill_id: str | None
    count: int
    occurrences: list[Occurrence]


@frozen(kw_only=True)
class BackfillStatus:
    """A backfill, and how far it is; it counts the occurrences that are still kept."""

    backfill_id: str
    schedule_id: str
    phase: str
    """active, paused or completed."""
    requested_at_utc: datetime
    from_utc: datetime
    """The first fire that it runs again."""
    to_utc: datetime
    """The last one."""
    count: int
    ended: int
    phases: dict[str, int]
    """How many of its occurrences are in each phase."""


@frozen(kw_only=True)
class BackfillList:
    """The backfills of a schedule, the last one requested first."""

    backfills: list[BackfillStatus]


@frozen(kw_only=True)
class Step:
    """One rule, its decision and the facts behind it."""

    rule: str
    decision: str
    facts: Document


@frozen(kw_only=True)
class Explanation:
    """Why something ran or did not: a sentence, and each rule that was applied."""

    schedule_id: str | None
    phase: str | None
    summary: str
    steps: list[Step]
    occurrence_id: str | None = None
    at: datetime | None = None


@frozen(kw_only=True)
class Event:
    """A stored event."""

    event_id: str
    event_type: str
    source: str
    payload: Any
    emitted_at: datetime


@frozen(kw_only=True)
class EmittedEvent:
    """The id of an event that is stored."""

    event_id: str
    duplicate: bool | None = None
    """True if the id was used before for an event of another type or payload, which is kept."""


@frozen(kw_only=True)
class MatchedEvent:
    """An event, and whether it matches."""

    event_id: str | None
    """Null for a draft."""
    event_type: str
    source: str
    payload: Any
    emitted_at: datetime
    matches: bool
    why: str | None
    """Why it does not match: the first filter that fails, and the value found there."""


@frozen(kw_only=True)
class Matched:
    """The newest events, newest first, and how many of them match."""

    checked: int
    matched: int
    events: list[MatchedEvent]


@frozen(kw_only=True)
class Upload:
    """A stored file."""

    upload_id: str
    filename: str
    path: str
    """The path that the sender gave; not a place on disk."""
    content_type: str
    size: int
    sha256: str
    bucket: str
    created_at_utc: datetime
    event_id: str
    """The event that announces it."""


@frozen(kw_only=True)
class Bundle:
    """A bundle: its newest archive."""

    bundle_id: str
    digest: str
    """The SHA-256 of the archive."""
    name: str
    size: int
    """Of the archive, in bytes."""
    files: int
    target: Document
    """The target of a schedule that runs it."""
    pushed_by: str
    created_at_utc: datetime
    """When this archive was first pushed."""
    pushed_at_utc: datetime
    """When it was last pushed."""


@frozen(kw_only=True)
class BundleVersion:
    """One archive of a bundle."""

    digest: str
    size: int
    pushed_at_utc: datetime


@frozen(kw_only=True)
class BundleDetails(Bundle):
    """A bundle with its manifest and its archives."""

    manifest: Document
    versions: list[BundleVersion]
    """Newest first."""
    schedules: list[str]
    """The schedules that its manifest declares."""


@frozen(kw_only=True)
class ManagedSchedule:
    """What a push did with a schedule of the manifest."""

    schedule_id: str
    name: str | None
    action: Literal["created", "updated", "unchanged", "deleted"]


@frozen(kw_only=True)
class PushedBundle(Bundle):
    """A bundle that was pushed."""

    event_id: str
    """The event that announces it."""
    schedules: list[ManagedSchedule]
    triggers: list[ManagedSchedule]


@frozen(kw_only=True)
class BundlePage:
    """A page of bundles."""

    bundles: list[Bundle]
    next_cursor: str | None


@frozen(kw_only=True)
class Node:
    """A node, as of its last heartbeat."""

    node: str
    is_alive: bool
    is_leader: bool
    routes: list[str]
    capacity: int
    load: int
    version: str
    zone_data: str
    started_at_utc: datetime
    seen_at_utc: datetime
    left_at_utc: datetime | None
    gone_at_utc: datetime | None


@frozen(kw_only=True)
class Secret:
    """A secret without its value, which no answer contains."""

    name: str
    hosts: list[str]
    programs: list[str]
    created_at_utc: datetime
    updated_at_utc: datetime


@frozen(kw_only=True)
class SigningKey:
    """The key that requests are signed with."""

    signing_key: str


@frozen(kw_only=True)
class AuditEntry:
    """One change: who made it, and of what."""

    entry: int | None
    """Its number among the entries of all tenants, for callers that may see all of them."""
    at_utc: datetime
    caller: str
    operation: str
    schedule_id: str | None
    revision_before: int | None
    revision_after: int | None
    reason: str | None
    request_id: str | None
    key_id: str | None
    """The API key that the caller used."""
    session_id: str | None
    """The session whose agent made the change."""
    tool_call_id: str | None
    """The call of a tool by which it did."""
    parent_schedule_id: str | None
    """The schedule whose fire began the turn of that session."""


@frozen(kw_only=True)
class Check:
    """One check of the doctor: `ok`, `warning` or `problem`; unless it is ok, `advice` says what to do."""

    check: str
    status: str
    detail: str
    advice: str | None


@frozen(kw_only=True)
class DamagedRow:
    """A damaged cell of the store, and how to repair it."""

    table: str
    key: str
    column: str
    schedule_id: str | None
    problem: str
    advice: str


@frozen(kw_only=True)
class Diagnosis:
    """The state of the store, its nodes and its server: `ok`, `warnings` or `problems`."""

    status: str
    checks: list[Check]
    damaged_rows: list[DamagedRow]
    rows_checked: int
    is_complete: bool


@frozen(kw_only=True)
class OccurrenceGroup:
    """The first occurrences of a kind, and how many there are; if they are not all counted, at least so many."""

    count: int
    is_complete: bool
    occurrences: list[Occurrence]


@frozen(kw_only=True)
class Workload:
    """What runs, is due, waits, comes next and is overdue, and what failed within the last hour, latest end first.

    `runs` are the runs in progress, with their progress and without results; `halts` is what does not start.
    """

    running: OccurrenceGroup
    due: OccurrenceGroup
    waiting: OccurrenceGroup
    upcoming: OccurrenceGroup
    overdue: OccurrenceGroup
    failed: list[Occurrence]
    runs: list[Run]
    halts: list[Halt]


@frozen(kw_only=True)
class Mark:
    """An occurrence on a timeline, or a fire to come."""

    occurrence_id: str | None
    """Null for a fire to come that is not stored yet."""
    schedule_id: str | None
    """Null if it runs without a schedule."""
    schedule_name: str
    """The name of its schedule, or else the id."""
    at_utc: datetime
    """Where it stands: its nominal time. A backfill stands at the time that it makes up for."""
    due_at_utc: datetime
    """When it is due; after a failed attempt, when the next one is."""
    started_at_utc: datetime | None
    """When it first started."""
    ended_at_utc: datetime | None
    state: MarkState
    """planned, queued, running, completed, failed or skipped. A missed fire is failed."""
    late_seconds: float | None
    """How late it started; null if that was within a second of its due time, or it has not started."""
    reason: str | None
    why: str | None
    """The reason in words."""
    origin: str
    """`trigger`, or `manual:`, `event:` or `backfill:` and a key."""
    missed_count: int
    """How many missed fires it stands for."""
    missed_to_utc: datetime | None
    """The last of them."""


@frozen(kw_only=True)
class TimelineBucket:
    """How many marks a stretch of a timeline has; each counts once."""

    from_utc: datetime
    completed: int
    """Completed, and started on time."""
    late: int
    """Completed, and started late."""
    failed: int
    skipped: int
    running: int
    queued: int
    planned: int


@frozen(kw_only=True)
class TimelineRow:
    """The timeline of a schedule, or of all of them."""

    schedule_id: str | None
    """Null in the row of all schedules."""
    name: str | None
    """The name of the schedule, or else its id; null in the row of all schedules."""
    timezone: str | None
    """The time zone of its trigger, if it has one."""
    phase: str | None
    marks: list[Mark] | None
    """In order; null if there are more than asked for."""
    buckets: list[TimelineBucket] | None
    """In order, without empty ones; null if there are marks."""


@frozen(kw_only=True)
class Timeline:
    """Past and future on one axis.

    Rows with something overdue come first, then those that failed within the last day, run, wait, and fire next, the
    soonest first; the others follow in the order of their creation.
    """

    from_utc: datetime
    to_utc: datetime
    now_utc: datetime
    bucket_seconds: int
    planned_until_utc: datetime | None
    """Fires to come are complete up to here; null if they are complete."""
    rows: list[TimelineRow]
    next_cursor: str | None
    """The cursor of the next page of rows; null on the last one."""


@frozen(kw_only=True)
class TrendBucket:
    """What a schedule did in a local hour, day, week or month; each mark counts once."""

    from_utc: datetime
    local_date: str
    """The local date on which it begins; of an hour with its time."""
    completed: int
    """Completed, and started on time."""
    late: int
    """Completed, and started late."""
    failed: int
    skipped: int
    running: int
    queued: int
    planned: int
    """Due later, also fires to come that are not stored yet."""
    duration_p50_seconds: float | None
    """Of the completed runs that started in it; null if there were none."""
    duration_p95_seconds: float | None
    cost_usd: float | None
    """What models cost; null if no price is known."""
    input_tokens: int
    output_tokens: int


@frozen(kw_only=True)
class Trends:
    """What a schedule did in each local hour, day, week or month, in order."""

    schedule_id: str
    unit: Literal["hour", "day", "week", "month"]
    timezone: str
    from_utc: datetime
    to_utc: datetime
    """The end of the last bucket."""
    now_utc: datetime
    buckets: list[TrendBucket]


@frozen(kw_only=True)
class ScheduleTotals:
    """How many schedules there are, by phase."""

    total: int
    active: int
    paused: int
    completed: int


@frozen(kw_only=True)
class DaySpend:
    """What the models of a day cost."""

    today_usd: float
    limit_usd: float | None
    """The limit of the budget of this day; null without one."""
    forecast_usd: float | None
    """What the day will have cost, from the last runs of the schedules with usage and the fires left."""


@frozen(kw_only=True)
class NodeTotals:
    """The nodes that are alive."""

    live: int
    leader: str | None
    """The name of the leader; null if there is none, or for a key of one tenant."""


@frozen(kw_only=True)
class Attention:
    """Something that needs attention."""

    kind: Literal[
        "halt",
        "no_node",
        "paused",
        "not_served",
        "overdue",
        "failed",
        "missed",
        "late",
        "budget",
        "approval",
        "proposal",
    ]
    schedule_id: str | None
    schedule_name: str | None
    occurrence_id: str | None
    at_utc: datetime
    """Since when."""
    text: str
    """One sentence about it."""
    action: str | None
    """The operation that deals with it, if there is one."""
    id: str | None
    """What that operation names: the halt, the approval, the budget."""


@frozen(kw_only=True)
class Overview:
    """The state of a tenant at a glance; the numbers of the day begin at midnight in the given time zone."""

    now_utc: datetime
    """The time of the store."""
    day_from_utc: datetime
    """Midnight."""
    fires_today: int
    """Today's fires: run, running, waiting, failed, missed and skipped."""
    on_time_share: float | None
    """Which share of the fires that started, failed or were missed today started within a second of their due time;
    null if there were none."""
    lateness_p99_seconds: float | None
    """Of the starts within the last hour; null if there were none."""
    failed_last_day: int
    """What failed or was missed, due within the last 24 hours."""
    running: int
    queued: int
    schedules: ScheduleTotals
    spend: DaySpend
    approvals_waiting: int
    """Up to 100; so for proposals."""
    proposals_waiting: int
    nodes: NodeTotals
    halts: list[Halt]
    needs_look: list[Attention]
    """What it costs most to ignore comes first; at most 20, with room for each kind."""


@frozen(kw_only=True)
class WorkerStatus:
    """Whether the worker of this node runs, and its settings."""

    status: Literal["running", "stopped"]
    worker_status: Document


@frozen(kw_only=True)
class ScheduleCount:
    """How many schedules match."""

    count: int


@frozen(kw_only=True)
class _Page:
    next_cursor: str | None
    """The cursor of the next page; null on the last one."""


@frozen(kw_only=True)
class SchedulePage(_Page):
    """A page of schedules; the first one has a warning for each schedule that cannot be read."""

    schedules: list[Schedule]
    warnings: list[str] | None = None


@frozen(kw_only=True)
class TriggerPage(_Page):
    """A page of event-triggered schedules."""

    triggers: list[Schedule]


@frozen(kw_only=True)
class OccurrencePage(_Page):
    """A page of occurrences, latest nominal time first."""

    occurrences: list[Occurrence]


@frozen(kw_only=True)
class RunPage(_Page):
    """A page of runs, latest start first."""

    runs: list[Run]


@frozen(kw_only=True)
class EventPage(_Page):
    """A page of events, newest first."""

    events: list[Event]


@frozen(kw_only=True)
class UploadPage(_Page):
    """A page of uploads, newest first."""

    uploads: list[Upload]


@frozen(kw_only=True)
class Revision:
    """One change of a schedule: who made it, when, and what it changed."""

    revision: int | None
    """That of the schedule after it. Changes of its name, labels or phase keep the revision."""
    at_utc: datetime
    by: str
    """The caller; `noonmark` if it was automatic."""
    operation: str
    source: str | None
    """The surface: rest, jsonrpc, mcp, cli, client or `session:` and an id; null if it is not known."""
    key_id: str | None
    session_id: str | None
    """The session whose agent made it."""
    reason: str | None
    changes: list[ChangedField] | None
    """What it changed, field by field; empty for the creation, null if that was not recorded. Long values are cut."""


@frozen(kw_only=True)
class RevisionPage(_Page):
    """A page of the revisions of a schedule, newest first."""

    revisions: list[Revision]


@frozen(kw_only=True)
class AuditPage(_Page):
    """A page of the audit log, newest first."""

    entries: list[AuditEntry]


@frozen(kw_only=True)
class CreatedWorkflow:
    """The version that a definition has."""

    workflow_id: str
    version: int
    warnings: list[str]
    """What may surprise about it, such as a target that no live node serves."""


@frozen(kw_only=True)
class WorkflowVersion:
    """A version of a workflow without its definition."""

    workflow_id: str
    version: int
    name: str | None
    description: str
    step_count: int
    source: str
    """The surface that it was created through; its steps may do what that allows."""
    created_by: str
    created_at_utc: datetime


@frozen(kw_only=True)
class Workflow:
    """A version of a workflow."""

    workflow_id: str
    version: int
    name: str | None
    description: str
    inputs: Document | None
    """The inputs by name; null if any are accepted."""
    steps: list[Document]
    on_failure: str
    """stop: the other steps are cancelled when one fails; continue: those that do not depend on it go on."""
    source: str
    """The surface that it was created through; its steps may do what that allows."""
    created_by: str
    created_at_utc: datetime
    warnings: list[str]
    """What may surprise about it, such as a target that no live node serves."""


@frozen(kw_only=True)
class DeletedWorkflow:
    """A deleted workflow. Runs that have begun go on."""

    workflow_id: str
    version: int
    """The newest version that it had."""


@frozen(kw_only=True)
class WorkflowPage(_Page):
    """A page of workflows, by id, each with its newest version."""

    workflows: list[WorkflowVersion]


@frozen(kw_only=True)
class WorkflowVersionPage(_Page):
    """A page of the versions of a workflow, newest first."""

    versions: list[WorkflowVersion]


@frozen(kw_only=True)
class Session:
    """A session: a conversation with an agent."""

    session_id: str
    state: str
    """idle, active while a turn is in flight, suspended after a turn without an answer, or archived."""
    owner: Owner
    model: str
    system_prompt: str | None = None
    labels: dict[str, str]
    max_tokens: int | None = None
    provider: str | None = None
    output_schema: Document | None = None
    structured_output_retries: int = 0
    provider_params: Document | None = None
    preload_skills: list[Any] | None = None
    additional_instructions: list[str] | None = None
    tool_access_policy: Document | None = None
    comms_name: str | None = None
    peer_meta: Document | None = None
    realm_id: str | None = None
    instance_id: str | None = None
    backend: str | None = None
    config_generation: int | None = None
    keep_alive: bool = False
    enable_schedule: bool = False
    app_context: Any = None
    schedule_id: str | None
    """The schedule that created it and is bound to it."""
    mob_id: str | None
    member_id: str | None
    role: str | None
    """Its role in the mob."""
    occurrence_id: str | None
    """The occurrence whose turn was the last to begin."""
    message_count: int
    """How many messages it has had; old ones may be deleted."""
    usage: Usage
    cost_usd: float | None
    """What all turns have cost; null while a price is unknown."""
    created_at_utc: datetime
    updated_at_utc: datetime


@frozen(kw_only=True)
class SessionPage(_Page):
    """A page of sessions, latest creation first."""

    sessions: list[Session]


@frozen(kw_only=True)
class Message:
    """A message of a session."""

    number: int
    """1 and more, in the order of the conversation."""
    role: str
    """system, user, assistant, tool or event."""
    text: str
    """The text of its parts."""
    parts: list[Document]
    """Each has a `type`: text, tool_call, tool_result, or that of a block of content."""
    at_utc: datetime
    occurrence_id: str | None
    """The occurrence whose turn it belongs to."""
    usage: Usage | None
    """Of the call of a model that it answers."""


@frozen(kw_only=True)
class MessagePage(_Page):
    """A page of messages, by their numbers."""

    messages: list[Message]


@frozen(kw_only=True)
class Mob:
    """A mob: a named group of agents."""

    mob_id: str
    owner: Owner
    members: list[Document]
    """Each with its `member_id`, its `session_id` and what its session was created with."""
    flows: dict[str, Document]
    created_at_utc: datetime
    updated_at_utc: datetime


@frozen(kw_only=True)
class MobPage(_Page):
    """A page of mobs, by id."""

    mobs: list[Mob]


@frozen(kw_only=True)
class WorkflowStep:
    """A step of a run, or one element of a step with `for_each`."""

    step_id: str
    index: int | None
    """The place of the element in its list; null for the step itself."""
    phase: Literal["pending", "running", "completed", "failed", "skipped", "cancelled", "compensated"]
    attempt: int
    started_at_utc: datetime | None
    ended_at_utc: datetime | None
    result: Any
    """What it returned; null also where the document would be too large, see `has_result`."""
    has_result: bool
    error: str | None
    waiting_for: Literal["approval", "event", "time", "retry", "occurrence"] | None
    """What a running step waits for."""
    ready_at_utc: datetime | None
    """When its next attempt is due, its wait ends or its approval expires."""
    approval_id: str | None
    """The approval that it waits for."""
    occurrence_id: str | None
    """The occurrence that does its work, if the node that runs the workflow does not do it."""
    count: int | None
    """How many elements its list has."""
    compensation: str | None
    """`running` while it is being undone, `failed` if that failed."""


@frozen(kw_only=True)
class WorkflowRun:
    """A run of a workflow."""

    workflow_run_id: str
    """The id of its occurrence."""
    workflow_id: str
    version: int | None
    """Null if the workflow was unknown when it was due."""
    phase: str
    """That of its occurrence."""
    reason: str | None
    why: str | None
    """The reason as a sentence."""
    waiting_for: str | None
    schedule_id: str | None
    """The schedule that started it; null if a caller did."""
    inputs: Document
    attempt: int
    due_at_utc: datetime
    started_at_utc: datetime | None
    """When its current or last attempt began."""
    ended_at_utc: datetime | None
    steps: list[WorkflowStep] | None
    """In the order of the definition; null in lists."""
    result: Any
    """The results of its completed steps by their ids, once it has completed; null in lists, and where it is too large.
    """
    error: str | None


@frozen(kw_only=True)
class WorkflowRunPage(_Page):
    """A page of runs of workflows, latest first."""

    workflow_runs: list[WorkflowRun]


@frozen(kw_only=True)
class Approval:
    """An occurrence, or a step of a workflow, that waits, or waited, for somebody's decision."""

    approval_id: str
    occurrence_id: str
    schedule_id: str | None
    """Null for the run of a workflow that a caller started, and for a message to a session."""
    schedule_name: str | None
    """For a message to a session, the session."""
    workflow_run_id: str | None
    """Null if the occurrence itself waits, as one that goes beyond a budget does."""
    workflow_id: str | None
    step_id: str | None
    message: str
    state: Literal["pending", "approved", "denied", "expired", "cancelled"]
    requested_at_utc: datetime
    expires_at_utc: datetime
    decided_at_utc: datetime | None
    by: str | None
    """Who decided."""
    comment: str | None


@frozen(kw_only=True)
class ApprovalPage(_Page):
    """A page of approvals, latest request first."""

    approvals: list[Approval]


@frozen(kw_only=True)
class ProposalPage(_Page):
    """A page of proposals, oldest first."""

    proposals: list[Proposal]


@frozen(kw_only=True)
class Budget:
    """A budget, and its spend in the current period."""

    scope: Literal["tenant", "user", "schedule", "session"]
    id: str
    period: Literal["day", "month", "total"]
    max_cost_usd: float | None
    max_tokens: int | None
    hard: bool
    warning_threshold: float | None
    require_approval: bool
    when_exhausted: Literal["skip", "pause", "pause_until_next_period"]
    spent_usd: float | None
    """The spend, as far as prices are known."""
    spent_tokens: int
    reserved_usd: float | None
    """The reservations of calls that have not ended, or whose answer was lost."""
    reserved_tokens: int
    period_start_utc: datetime | None
    """Null in all."""
    period_end_utc: datetime | None
    """When it begins anew."""
    updated_at_utc: datetime


@frozen(kw_only=True)
class BudgetPage(_Page):
    """A page of budgets, by scope, id and period."""

    budgets: list[Budget]


@frozen(kw_only=True)
class DeletedBudgets:
    """The budgets that were deleted."""

    deleted: list[Budget]


@frozen(kw_only=True)
class Halt:
    """What does not start, since somebody halted it."""

    halt_id: str
    labels: dict[str, str]
    """Only schedules with all of these; empty: everything of the tenant, or of the lineage."""
    lineage: str | None
    """Only the session or the schedule with this id, and what it made, directly or not."""
    halted_by: str
    halted_at_utc: datetime
    reason: str | None


@frozen(kw_only=True)
class NewHalt(Halt):
    """A halt that was set."""

    stopped: int
    """How many occurrences were running, and are asked to stop."""


@frozen(kw_only=True)
class HaltList:
    """The halts of a tenant, oldest first."""

    halts: list[Halt]


@frozen(kw_only=True)
class LiftedHalts:
    """The halts that were lifted."""

    lifted: list[Halt]


@frozen(kw_only=True)
class UsageTotal:
    """What some calls of models have used."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    total_tokens: int
    model_calls: int
    tool_calls: int
    cost_usd: float | None
    """The cost of the calls whose price is known; null if none is."""
    unpriced_calls: int
    """How many calls have an unknown price."""
    reserved_tokens: int
    """Reserved and not yet settled."""
    reserved_usd: float | None


@frozen(kw_only=True)
class UsageGroup(UsageTotal):
    """The usage of one user, schedule, session, model or day."""

    key: str | None
    """Null for calls without one."""
    name: str | None
    """The name of the schedule."""


@frozen(kw_only=True)
class UsageSummary:
    """Usage in groups, the most expensive first, or day after day."""

    by: Literal["user", "schedule", "session", "model", "day"]
    from_utc: datetime
    to_utc: datetime
    groups: list[UsageGroup]
    total: UsageTotal
    """Of all groups, also of those that are not listed."""


@frozen(kw_only=True)
class RecordedUsage:
    """Usage that was recorded."""

    idempotency_key: str
    recorded: bool
    """False if its key was recorded before; then nothing was changed."""
    user: str
    schedule_id: str | None
    session_id: str | None
    occurrence_id: str | None
    usage: Usage


@frozen(kw_only=True)
class ScheduleForecast(Forecast):
    """The forecast of a schedule."""

    schedule_id: str
    name: str | None


@frozen(kw_only=True)
class UsageForecast:
    """What schedules will have cost at the end of the UTC month, the most expensive first."""

    month_start_utc: datetime
    month_end_utc: datetime
    spent_usd: float
    p50_usd: float | None
    """Of all whose cost is known; null if none is."""
    p90_usd: float | None
    unknown: int
    """How many have an unknown cost."""
    schedules: list[ScheduleForecast]


@frozen(kw_only=True)
class NodeList:
    """The nodes seen within the last day."""

    nodes: list[Node]


@frozen(kw_only=True)
class SecretList:
    """All secrets, by name."""

    secrets: list[Secret]


@frozen(kw_only=True)
class ApiKey:
    """An API key without the key itself."""

    key_id: str
    """The public beginning of the key."""
    tenant: str
    user: str
    scopes: list[str]
    name: str | None
    agent: bool
    status: str
    """active, expired or revoked."""
    created_at_utc: datetime
    expires_at_utc: datetime | None
    revoked_at_utc: datetime | None
    last_used_at_utc: datetime | None
    """To the minute."""


@frozen(kw_only=True)
class CreatedKey(ApiKey):
    """A new API key; no other answer contains the key."""

    key: str


@frozen(kw_only=True)
class KeyPage(_Page):
    """A page of API keys, oldest first."""

    keys: list[ApiKey]


@frozen(kw_only=True)
class Limit:
    """A limit of the caller."""

    name: str
    """The limited resource, such as `schedules`, `tasks` (those under `/api/v1`), `queued` or `upload_bytes`."""
    scope: str
    """Whose use counts: `user`, `tenant`, `key`, `address`, or `schedule` for what each schedule must keep to."""
    value: float
    used: int | None
    """How much is used; null where nothing is used up."""


@frozen(kw_only=True)
class LimitList:
    """All limits of the caller; anything not listed is unlimited."""

    limits: list[Limit]


@frozen(kw_only=True)
class Identity:
    """Who the caller is, and what its key allows."""

    tenant: str
    """The tenant that it acts for."""
    user: str
    scopes: list[str]
    all_tenants: bool
    """Whether it may act for other tenants too, and on nodes and workers."""
    key_id: str | None
    agent: bool
    expires_at_utc: datetime | None


@frozen(kw_only=True)
class ToolDefinition:
    """A tool for agents."""

    name: str
    title: str
    description: str
    input_schema: Document
    output_schema: Document
    annotations: Document
    """What it does, with the names of MCP: `readOnlyHint`, `destructiveHint`, `idempotentHint`."""


@frozen(kw_only=True)
class ToolList:
    """The tools that the caller may use."""

    tools: list[ToolDefinition]


class ToolResult(dict[str, Any]):
    """What a tool answers: the answer of its operation, with long values cut off."""


def read(model: Callable[..., T], document: Document) -> T:
    """A document as a value of its model; fields that the model does not have are ignored."""
    hints = _hints(model)
    given = {"document": document, **document}
    missing = [name for name, (_, is_required) in hints.items() if is_required and name not in given]
    if missing:
        raise NoonmarkError(f"the answer has no {missing[0]!r}: is this a Noonmark server, and of this version?")
    return model(**{name: _value(hint, given[name]) for name, (hint, _) in hints.items() if name in given})


@cache
def _hints(model: Any) -> dict[str, tuple[Any, bool]]:
    """Each field of a model with its type, and whether it is required."""
    hints = get_type_hints(model)
    return {field.name: (hints[field.name], field.default is MISSING) for field in fields(model)}


def _value(hint: Any, value: Any) -> Any:
    if value is None or hint is Any:
        return value
    kinds = [part for part in get_args(hint) if part is not type(None)]
    if get_origin(hint) is list:
        return [_value(kinds[0], entry) for entry in value]
    kind = hint if get_origin(hint) is None and not kinds else kinds[0]
    if get_origin(kind) is list:
        return _value(kind, value)
    if kind is datetime:
        return from_micros(parse_instant(value))
    return read(kind, value) if isinstance(kind, type) and is_dataclass(kind) else value
