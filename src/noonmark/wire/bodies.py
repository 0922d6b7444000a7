"""What callers send: the bodies of requests. What triggers, targets and policies may say, the core judges."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, RootModel

Json = Any
Document = dict[str, Any]
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,128}$", examples=["nightly-report"])]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Reason = Annotated[str, Field(min_length=1, max_length=1_000)]
Instant = Annotated[str, Field(json_schema_extra={"format": "date-time"}, examples=["2030-01-01T00:00:00Z"])]
Seconds = Annotated[float, Field(ge=0.001, le=3_155_760_000)]
Revision = Annotated[int, Field(ge=0, le=2**31 - 1)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Labels = dict[Annotated[str, Field(min_length=1, max_length=63)], Annotated[str, Field(max_length=256)]]
EventType = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,160}$", examples=["file_uploaded"])]
Written = str | Document
"""A policy: its name alone, or an object with its `type` and its settings."""


class Body(BaseModel):
    """A body; what is not described here is refused."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Declaration(Body):
    """What a schedule document says."""

    name: Name | None = None
    description: Annotated[str, Field(max_length=10_000)] | None = None
    labels: Labels | None = None
    trigger: Document | None = None
    """When: an object whose `type` is once, interval, cron, calendar or event."""
    target: Document | None = None
    """What: an object whose `target_kind` is function, http, command, workflow, bundle, event, session, mob or task."""
    overlap_policy: Written | None = None
    """skip, queue, queue_one, allow or cancel_running."""
    misfire_policy: Written | None = None
    """skip, catch_up_one, catch_up_all, catch_up_within or spread."""
    missing_target_policy: str | None = None
    """mark_misfired or skip."""
    retry_policy: Document | None = None
    timeout_seconds: Seconds | None = None
    window: Document | None = None
    delivery: str | None = None
    """at_least_once or at_most_once."""
    pause_on_failure: Count | None = None
    concurrency_key: Name | None = None
    concurrency_limit: Annotated[int, Field(ge=1, le=100_000)] | None = None
    depends_on: Annotated[list[Document], Field(max_length=100)] | None = None
    budget: Document | None = None
    """`max_cost_usd` and `max_tokens`, of one run."""
    max_runs: Count | None = None
    accepts_payload: bool | None = None
    """Whether a run may bring a payload though a program declared what is called; only a program can say so then."""
    planning_horizon_days: Annotated[int, Field(ge=1, le=366)] | None = None
    planning_horizon_occurrences: Annotated[int, Field(ge=1, le=64)] | None = None
    enabled: bool | None = None


class NewSchedule(Declaration):
    """A schedule to keep."""

    target: Document
    """What: an object whose `target_kind` is function, http, command, workflow, bundle, event, session, mob or task."""
    schedule_id: Id | None = None
    user_id: Name | None = None
    """Whose it is to be; the caller's own, unless an admin says otherwise."""
    idempotency_key: Annotated[str, Field(min_length=1, max_length=255)] | None = None


class ScheduleChanges(Declaration):
    """What is to change of a schedule; null takes a field back."""

    expected_revision: Revision | None = None


class Why(Body):
    """Why something is asked for; it stands in the audit log."""

    reason: Reason | None = None


class Steer(Why):
    """Why a schedule is steered, and on which condition."""

    expected_revision: Revision | None = None


class Pause(Steer):
    """What pauses a schedule; or resumes it, with `paused` false, as the cron service has it."""

    paused: bool = True


class RunNow(Why):
    """A run that is asked for by hand."""

    payload: Json = None
    overlap: Written | None = None
    """Another overlap policy, for this run alone."""
    key: Name | None = None
    """The same key again is the same occurrence."""


class Backfill(Body):
    """Past times that are to run again, from the first to the last inclusive."""

    from_: Annotated[Instant, Field(alias="from")]
    to: Instant
    dry_run: bool | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] | None = None
    concurrency: Annotated[int, Field(ge=1, le=1_000)] | None = None
    key: Name | None = None


class PreviewTrigger(Body):
    """A trigger whose next times are wanted."""

    trigger: Document
    after: Instant | None = None
    count: Annotated[int, Field(ge=1, le=1_000)] | None = None
    key: Annotated[str, Field(max_length=200)] | None = None
    """What `H` in a cron expression hashes."""


class Spent(Body):
    """What a run has used."""

    tokens: Annotated[int, Field(ge=0, le=2**53)] | None = None
    cost_usd: Annotated[float, Field(ge=0, le=1e9)] | None = None


class Complete(Body):
    """The result of what awaited its completion."""

    token: Name | None = None
    result: Json = None
    usage: Spent | None = None


class Fail(Body):
    """Why what awaited its completion failed."""

    token: Name | None = None
    error: Annotated[str, Field(min_length=1, max_length=65_536)] | None = None
    usage: Spent | None = None


class NewEvent(Body):
    """Something that happened."""

    event_type: EventType
    payload: Json = None
    source: Annotated[str, Field(max_length=200)] | None = None
    """Who says so: anybody but `noonmark`, which is the source of what it tells of itself."""
    event_id: Id | None = None
    """The same id again is the same event."""


class NewSecret(Body):
    """A secret, and who may see it."""

    value: Annotated[
        str,
        Field(
            min_length=4,
            max_length=8_192,
            pattern=r"^[!-~]([ -~]*[!-~])?$",
            json_schema_extra={"writeOnly": True},
        ),
    ]
    """The whole value of the header that carries it. It is never told again."""
    hosts: Annotated[list[Annotated[str, Field(examples=["api.example.com"])]], Field(min_length=1, max_length=20)]
    """Where requests may take it: api.example.com, api.example.com:8443, or *.example.com for all below."""


class MatchEvents(Body):
    """What is to be heard of: filters, perhaps of some types of events; a trigger; or a schedule."""

    event_type: EventType | Annotated[list[EventType], Field(min_length=1, max_length=100)] | None = None
    """Of any type, if none is named."""
    filters: Annotated[Document, Field(max_length=100)] | None = None
    trigger: Document | None = None
    """A whole event trigger, instead."""
    schedule_id: Id | None = None
    """A schedule that events set off, instead."""
    limit: Annotated[int, Field(ge=1, le=1_000)] | None = None
    """How many of the last events are looked at: 100 unless given."""
    event: Document | None = None
    """An event as it could be emitted, to be looked at instead of those that were."""


class CronServiceSchedule(Body):
    """A schedule in the words of the cron service."""

    schedule_id: Id | None = None
    workflow_id: Name
    version: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    user_id: Name | None = None
    cron_expr: Annotated[str, Field(min_length=1, max_length=1_000)]
    timezone: str | None = None
    start_at: Instant | None = None
    end_at: Instant | None = None
    jitter_ms: Annotated[float, Field(ge=0)] | None = None
    overlap_policy: str | None = None
    """allow, skip or queue."""
    catchup_policy: str | None = None
    """none, fire_immediately or spread."""


class TaskChanges(Body):
    """What the task routes change; null leaves a field as it is."""

    name: Name | None = None
    description: Annotated[str, Field(max_length=10_000)] | None = None
    cron_expression: Annotated[str, Field(min_length=1, max_length=1_000)] | None = None
    timezone: str | None = None
    task_query: Annotated[str, Field(min_length=1)] | None = None
    task_context: Document | None = None
    max_budget_per_run_usd: Annotated[float, Field(ge=0)] | None = None
    timeout_seconds: Annotated[float, Field(ge=0)] | None = None
    clear_task_context: bool | None = None


class NewTask(Body):
    """A question that is asked again and again."""

    name: Name
    description: Annotated[str, Field(max_length=10_000)] | None = None
    cron_expression: Annotated[str, Field(min_length=1, max_length=1_000)]
    timezone: str | None = None
    task_query: Annotated[str, Field(min_length=1)]
    task_context: Document | None = None
    max_budget_per_run_usd: Annotated[float, Field(ge=0)] | None = None
    timeout_seconds: Annotated[float, Field(ge=0)] | None = None
    user_id: Name | None = None


class Call(RootModel[Json]):
    """A call by JSON-RPC 2.0, or a batch of calls."""
