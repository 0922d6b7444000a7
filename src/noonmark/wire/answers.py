"""What callers get: the documents of answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel

from noonmark.wire.bodies import Declaration, Document, Instant, Json, Written

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


class Answer(BaseModel):
    """An answer; later versions may say more."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)


class Owner(Answer):
    """Whose it is."""

    tenant: str
    user: str


class Counters(Answer):
    """What became of a schedule's fires."""

    total: int
    successful: int
    failed: int
    missed: int
    skipped: int


class Schedule(Declaration):
    """A schedule: what was declared, and what is read of it."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    schedule_id: str
    phase: str
    revision: int
    owner: Owner
    source: str
    next_run_at: Instant | None
    next_fire_times: list[Instant]
    last_run_at: Instant | None
    last_phase: str | None
    counters: Counters
    created_at_utc: Instant
    updated_at_utc: Instant
    deleted_at_utc: Instant | None


class Occurrence(Answer):
    """One planned delivery of a schedule."""

    occurrence_id: str
    schedule_id: str
    schedule_revision: int
    superseded_by_revision: int | None
    """The edit that took it away, as long as it is the last one."""
    phase: str
    origin: str
    nominal_at_utc: Instant
    due_at_utc: Instant
    attempt: int
    attempt_count: int
    reason: str | None
    why: str | None
    """The reason as a sentence."""
    detail: Document
    failure_class: FailureClass | None
    """What was at fault with it, or with its last attempt; null when nothing failed."""
    failure_detail: str | None
    """What its last run said of the failure, on one line, or else the sentence of its reason."""
    missed_count: int | None
    missed_from: Instant | None
    missed_to: Instant | None
    waiting_for: str | None
    node: str | None
    """Who delivers it, or ran it last."""
    claimed_by: str | None
    """The same."""
    started_at_utc: Instant | None
    """When its delivery, or its last run, began."""
    dispatched_at_utc: Instant | None
    """The same."""
    completed_at_utc: Instant | None
    """When it ended, in whichever phase."""
    deadline_utc: Instant | None
    run_id: str | None
    delivery_correlation_id: str
    """Its own id, which goes along with every delivery."""
    payload: Json
    trigger_snapshot: Document | None
    """The trigger that is in force for it; like the target and the policies, null when an edit has changed the schedule
    since."""
    target_snapshot: Document | None
    """In a list, null also when it is longer than 4 KiB."""
    misfire_policy: Written | None
    overlap_policy: Written | None
    missing_target_policy: str | None


class Usage(Answer):
    """What a run has used."""

    tokens: int
    cost_usd: float


class Run(Answer):
    """One attempt to deliver an occurrence; without an end while it goes on.

    The result of a program that runs has the last of its output so far.
    """

    run_id: str
    occurrence_id: str
    schedule_id: str
    attempt: int
    node: str
    started_at_utc: Instant
    ended_at_utc: Instant | None
    duration_seconds: float | None
    outcome: str | None
    result: Json
    error: str | None
    usage: Usage | None


class Node(Answer):
    """A process that was heard of."""

    node: str
    is_alive: bool
    is_leader: bool
    routes: list[str]


class Check(Answer):
    """One thing that the doctor has looked at: the store as a whole, its schema, its rows, or the clocks."""

    check: str
    status: str
    detail: str


class DamagedRow(Answer):
    """A cell that cannot be as it is, and what to do about it."""

    table: str
    key: str
    column: str
    problem: str
    advice: str


class Diagnosis(Answer):
    """Whether a store is sound: `ok`, or `problems`."""

    status: str
    checks: list[Check]
    damaged_rows: list[DamagedRow]
    rows_checked: int
    is_complete: bool


class Secret(Answer):
    """What is told of a secret; its value is told to nobody."""

    name: str
    hosts: list[str]
    created_at_utc: Instant
    updated_at_utc: Instant


class Entry(Answer):
    """Who did what."""

    at_utc: Instant
    caller: str
    operation: str
    schedule_id: str | None
    revision_before: int | None
    revision_after: int | None
    reason: str | None
    request_id: str | None


class Secrets(Answer):
    """All secrets, by name."""

    secrets: list[Secret]


class SigningKey(Answer):
    """What requests are signed with."""

    signing_key: str


class Page(Answer):
    """Part of a list."""

    next_cursor: str | None
    """What the next page is asked for with; null on the last one."""


class Schedules(Page):
    """A page of schedules."""

    schedules: list[Schedule]


class Occurrences(Page):
    """A page of occurrences, the newest nominal time first."""

    occurrences: list[Occurrence]


class Runs(Page):
    """A page of runs, the newest start first."""

    runs: list[Run]


class Entries(Page):
    """A page of the audit log, the newest first."""

    entries: list[Entry]


class Nodes(Answer):
    """The nodes that were heard of within the last day."""

    nodes: list[Node]


class Counted(Answer):
    """How many there are."""

    count: int


class Previewed(Answer):
    """The next times, and the trigger in words."""

    fires: list[Instant]
    description: str
    warnings: list[str]


class Backfilled(Answer):
    """What is run again."""

    backfill_id: str | None
    count: int
    occurrences: list[Occurrence]


class Step(Answer):
    """One rule, what it decided and the facts behind it."""

    rule: str
    decision: str
    facts: Document


class Explanation(Answer):
    """Why something ran, or did not."""

    summary: str
    steps: list[Step]


class Worker(Answer):
    """What the driver of the node that answers does."""

    status: Annotated[str, Field(json_schema_extra={"enum": ["running", "stopped"]})]
    worker_status: Document


class Health(Answer):
    """How the server is."""

    status: str


class Launched(Answer):
    """A workflow that runs once."""

    message: str
    schedule_id: str


class Problem(Answer):
    """What went wrong, as RFC 9457 has it."""

    type: str
    title: str
    status: int
    code: str
    """Stable: programs go by it."""
    detail: str
    field: str | None = None
    """Where in the request it is."""
    problems: list[dict[str, Any]] | None = None
    """Everything that is wrong, when that is more than one thing."""
    request_id: str
    """Under which the server's log has it."""


class TaskSchedule(Answer):
    """A schedule in the words of the task routes."""

    schedule_id: str
    name: str
    cron_expression: str
    timezone: str
    task_query: str
    task_context: Document
    max_budget_per_run_usd: float
    timeout_seconds: float
    status: str
    total_runs: int
    successful_runs: int
    failed_runs: int
    next_run_at: Instant | None
    last_run_at: Instant | None


class TaskMade(Answer):
    """A schedule that was kept."""

    schedule_id: str
    message: str
    next_run_at: Instant | None


class TaskDone(Answer):
    """A change that was made."""

    success: bool
    message: str


class TaskPage(Answer):
    """Part of a list, by the number of the page."""

    total_count: int
    page: int
    page_size: int


class TaskSchedules(TaskPage):
    """A page of schedules, the newest first."""

    schedules: list[TaskSchedule]


class TaskRuns(TaskPage):
    """A page of runs, the newest first."""

    runs: list[Document]


class Returned(RootModel[Json]):
    """The answer to a call by JSON-RPC 2.0, or to each of a batch."""
