"""The documents of the cron service and of the task routes."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - read at run time, from the annotations
from typing import Annotated, Any

from noonmark.core.frozen import frozen
from noonmark.operations.models.arguments import Revision  # noqa: TC001 - read at run time, from the annotations
from noonmark.operations.models.fields import (
    MAX_INTEGER,
    Arguments,
    Boolean,
    Id,
    Instant,
    Name,
    Object,
    Reason,
    integer,
    raw,
    text,
)

Expression = Annotated[str, text(high=1_000)]
Text = Annotated[str, raw({"type": "string"})]
Query = Annotated[str, raw({"type": "string", "minLength": 1})]
Amount = Annotated[float, raw({"type": "number", "minimum": 0})]


class CronServiceSchedule(Arguments):
    """A schedule in the words of the cron service."""

    schedule_id: Id | None = None
    workflow_id: Name
    version: Annotated[int, integer(0, MAX_INTEGER)] | None = None
    user_id: Name | None = None
    cron_expr: Expression
    timezone: Text | None = None
    start_at: Instant | None = None
    end_at: Instant | None = None
    jitter_ms: Amount | None = None
    overlap_policy: Text | None = None
    """allow, skip or queue."""
    catchup_policy: Text | None = None
    """none, fire_immediately or spread."""


class CronServicePause(Arguments):
    """What pauses a schedule; or resumes it, with `paused` false."""

    paused: Boolean
    reason: Reason | None = None
    """Recorded in the audit log."""
    expected_revision: Revision | None = None
    expected_updated_at_utc: Instant | None = None


@frozen(kw_only=True)
class StartedWorkflow:
    """A run of a workflow, and what became of it."""

    message: str
    run_id: str
    """The id of the workflow run."""
    phase: str
    workflow_id: str
    version: int
    scheduled_for: datetime
    idempotency_key: str


class NewTask(Arguments):
    """A query to repeat."""

    name: Name
    description: Annotated[str, text(0, 10_000)] | None = None
    cron_expression: Expression
    timezone: Text | None = None
    task_query: Query
    task_context: Object | None = None
    max_budget_per_run_usd: Amount | None = None
    timeout_seconds: Amount | None = None
    user_id: Name | None = None


class TaskChanges(Arguments):
    """The fields of a task to change; null leaves a field as it is."""

    name: Name | None = None
    description: Annotated[str, text(0, 10_000)] | None = None
    cron_expression: Expression | None = None
    timezone: Text | None = None
    task_query: Query | None = None
    task_context: Object | None = None
    max_budget_per_run_usd: Amount | None = None
    timeout_seconds: Amount | None = None
    clear_task_context: Boolean | None = None


class TaskAction(Arguments):
    """Why a task is paused, resumed or deleted."""

    reason: Reason | None = None
    """Recorded in the audit log."""


@frozen(kw_only=True)
class TaskCreated:
    """A task that was created."""

    schedule_id: str
    message: str
    next_run_at: datetime | None


@frozen(kw_only=True)
class TaskResult:
    """A change that was made."""

    success: bool
    message: str
    next_run_at: datetime | None = None


@frozen(kw_only=True)
class TaskSchedule:
    """A schedule in the words of the task routes."""

    id: str
    schedule_id: str
    user_id: str
    tenant_id: str
    name: str
    description: str
    cron_expression: str
    timezone: str
    task_query: str
    task_context: dict[str, Any]
    max_budget_per_run_usd: float
    timeout_seconds: float
    temporal_schedule_id: None
    """Always null: Noonmark is the clock, and Temporal has no schedule."""
    status: str
    created_at: datetime
    updated_at: datetime
    last_run_at: datetime | None
    next_run_at: datetime | None
    total_runs: int
    successful_runs: int
    failed_runs: int


@frozen(kw_only=True)
class TaskRun:
    """A run in the words of the task routes; model and provider are those of its last call."""

    workflow_id: str
    """The id of the Temporal workflow, if one has carried it out, and otherwise of the run."""
    query: str
    status: str
    result: Any
    error_message: str | None
    model_used: str | None
    provider: str | None
    total_tokens: int
    total_cost_usd: float | None
    duration_ms: int | None
    triggered_at: datetime
    started_at: datetime
    completed_at: datetime | None


@frozen(kw_only=True)
class TaskSchedulePage:
    """A page of tasks, newest first."""

    schedules: list[TaskSchedule]
    total_count: int
    page: int
    page_size: int


@frozen(kw_only=True)
class TaskRunPage:
    """A page of runs, newest first."""

    runs: list[TaskRun]
    total_count: int
    page: int
    page_size: int
