"""Every request of the client, with its arguments and its answer; each is a method of both clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from noonmark.client.transport import (
    Http,
    Listing,
    Page,
    Request,
    read_result,
    rest_request,
    rpc_request,
    to_arguments,
    to_json,
)
from noonmark.operations.models.answers import (
    ApiKey,
    Approval,
    AuditEntry,
    Backfill,
    BackfillStatus,
    Budget,
    Bundle,
    BundleDetails,
    CheckedSchedule,
    CreatedKey,
    CreatedWorkflow,
    CrontabSchedules,
    DeletedWorkflow,
    Diagnosis,
    Document,
    Event,
    Explanation,
    Halt,
    Identity,
    LimitList,
    Matched,
    Message,
    Mob,
    NewHalt,
    Node,
    Occurrence,
    Overview,
    PingUrl,
    Preview,
    Proposal,
    RecordedUsage,
    Redrive,
    Revision,
    Run,
    Schedule,
    Secret,
    Selected,
    Session,
    Timeline,
    ToolDefinition,
    Trends,
    Upload,
    UsageForecast,
    UsageSummary,
    WorkerStatus,
    Workflow,
    WorkflowRun,
    WorkflowVersion,
    Workload,
    read,
)
from noonmark.operations.table import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from noonmark.core.triggers import Trigger

T = TypeVar("T")


class Fields(TypedDict, total=False):
    """What a schedule declares; in an update, None resets a field."""

    name: str | None
    trigger: Trigger | Document | None
    target: Document
    description: str | None
    labels: Mapping[str, str] | None
    overlap_policy: str | Document | None
    misfire_policy: str | Document | None
    missing_target_policy: str | None
    retry_policy: Document | None
    timeout_seconds: float | None
    expected_seconds: float | None
    expected_rate: Document | None
    window: Document | None
    delivery: str | None
    pause_on_failure: int | None
    runaway: Document | None
    concurrency_key: str | None
    concurrency_limit: int | None
    depends_on: list[Document] | None
    budget: Document | None
    max_runs: int | None
    ping_urls: Document | None
    accepts_payload: bool | None
    planning_horizon_days: int | None
    planning_horizon_occurrences: int | None
    enabled: bool | None


class NewFields(Fields, total=False):
    """Further fields of a new schedule."""

    schedule_id: str
    user_id: str
    prohibit_overlap: bool


class Expected(TypedDict, total=False):
    """The schedule as it was read; RevisionConflict if it has changed since."""

    expected_revision: int | None
    expected_updated_at_utc: datetime | str | None


class TriggerFilters(TypedDict, total=False):
    """Filters of event-triggered schedules; a schedule must match all of them."""

    phase: str | Iterable[str]
    labels: Mapping[str, str]
    owner: str
    text: str
    name: str
    route: str
    include_deleted: bool


class Filters(TriggerFilters, total=False):
    """Filters of schedules; a schedule must match all of them."""

    kind: str | Iterable[str]
    next_after: datetime | str
    next_before: datetime | str
    last_phase: str | Iterable[str]
    last_state: str | Iterable[str]


class Selection(TypedDict, total=False):
    """Filters that select the schedules to act on; a schedule must match all of them, and there must be one."""

    phase: str | Iterable[str]
    kind: str | Iterable[str]
    labels: Mapping[str, str]
    owner: str
    text: str
    name: str
    route: str
    schedule_ids: Iterable[str]
    """These schedules, instead of filters: up to 1,000."""
    limit: int
    """A selection of more schedules is refused: 1,000 by default."""
    dry_run: bool
    """Only report the selection."""
    reason: str


class OccurrenceFilters(TypedDict, total=False):
    """Filters over the occurrences of all schedules; an occurrence must match all of them."""

    phase: str | Iterable[str]
    reason: str | Iterable[str]
    schedule_id: str
    labels: Mapping[str, str]
    since: datetime | str
    """It ended at this instant or later; as long as it has not ended, its due time counts."""
    until: datetime | str


class WorkflowFields(TypedDict, total=False):
    """The definition of a workflow."""

    workflow_id: str
    version: int | None
    name: str | None
    description: str | None
    inputs: Document | None
    steps: list[Document]
    on_failure: str | None


class SessionFields(TypedDict, total=False):
    """What a session is created with."""

    session_id: str | None
    model: str | None
    system_prompt: str | None
    labels: Mapping[str, str] | None
    max_tokens: int | None
    provider: str | None
    output_schema: Document | None
    structured_output_retries: int | None
    provider_params: Document | None
    preload_skills: list[Any] | None
    additional_instructions: list[str] | None
    tool_access_policy: Document | None
    comms_name: str | None
    peer_meta: Document | None
    realm_id: str | None
    instance_id: str | None
    backend: str | None
    config_generation: int | None
    keep_alive: bool | None
    enable_schedule: bool | None
    app_context: Any


def create(*, idempotency_key: str | None = None, **fields: Unpack[NewFields]) -> Request[Schedule]:
    """Create a schedule. The same request with the same idempotency key returns the schedule it has created."""
    return rest_request(
        "schedule/create", _one(Schedule), {**to_arguments(**fields), **to_arguments(idempotency_key=idempotency_key)}
    )


def propose(*, idempotency_key: str | None = None, **fields: Unpack[NewFields]) -> Request[Schedule]:
    """Propose a schedule. The same request with the same idempotency key returns the schedule it has proposed."""
    return rest_request(
        "schedule/propose", _one(Schedule), {**to_arguments(**fields), **to_arguments(idempotency_key=idempotency_key)}
    )


def upsert(**fields: Unpack[NewFields]) -> Request[Schedule]:
    """Create a schedule, or replace its declaration; the same declaration again changes nothing.

    It is identified by `schedule_id`, or else by its owner and its workflow or name. A paused schedule stays paused.
    """
    return rest_request("schedule/upsert", _one(Schedule), to_arguments(**fields))


def get(schedule_id: str, *, include_deleted: bool | None = None) -> Request[Schedule]:
    """Get a schedule; a deleted one only with `include_deleted`."""
    return rest_request(
        "schedule/get", _one(Schedule), to_arguments(schedule_id=schedule_id, include_deleted=include_deleted)
    )


def list_schedules(
    *,
    workflow_id: str | None = None,
    outcomes: int | None = None,
    newest_first: bool | None = None,
    page_size: int | None = None,
    **filters: Unpack[Filters],
) -> Listing[Schedule]:
    """List the schedules that match every filter, in the order of their creation or newest first."""
    which = to_arguments(workflow_id=workflow_id, outcomes=outcomes, newest_first=newest_first, limit=page_size)
    arguments = to_arguments(**filters, **which)
    return _listing("schedule/list", "schedules", Schedule, arguments)


def count(**filters: Unpack[Filters]) -> Request[int]:
    """Count the schedules that match every filter."""
    return rest_request("schedule/count", lambda document: int(document["count"]), to_arguments(**filters))


def update(
    schedule_id: str,
    *,
    expected_revision: int | None = None,
    expected_updated_at_utc: datetime | str | None = None,
    **changes: Unpack[Fields],
) -> Request[Schedule]:
    """Change some fields of a schedule; null resets a field, and `enabled` pauses or resumes it.

    None is null. RevisionConflict if the schedule is not as expected any more.
    """
    expected = {"expected_revision": expected_revision, "expected_updated_at_utc": expected_updated_at_utc}
    arguments = to_arguments(schedule_id=schedule_id, **expected)
    return rest_request(
        "schedule/update", _one(Schedule), arguments | {name: to_json(value) for name, value in changes.items()}
    )


def pause(
    schedule_id: str,
    *,
    reason: str | None = None,
    until: datetime | str | None = None,
    **expected: Unpack[Expected],
) -> Request[Schedule]:
    """Pause a schedule; fires missed meanwhile are recorded as skipped, and running work is finished.

    With `until`, it resumes by itself at that time.
    """
    arguments = to_arguments(schedule_id=schedule_id, reason=reason, until=until, **expected)
    return rest_request("schedule/pause", _one(Schedule), arguments)


def resume(schedule_id: str, *, reason: str | None = None, **expected: Unpack[Expected]) -> Request[Schedule]:
    """Resume a paused schedule from now on."""
    arguments = to_arguments(schedule_id=schedule_id, reason=reason, **expected)
    return rest_request("schedule/resume", _one(Schedule), arguments)


def delete(
    schedule_id: str, *, stop_running: bool | None = None, reason: str | None = None, **expected: Unpack[Expected]
) -> Request[Schedule]:
    """Delete a schedule; its history is kept. Runs go on, unless they are to stop. Deleting it again changes nothing.

    `stop_running` asks them to stop. The answer has `stopped_runs` and `unfinished_runs`.
    """
    arguments = to_arguments(schedule_id=schedule_id, stop_running=stop_running, reason=reason, **expected)
    return rest_request("schedule/delete", _one(Schedule), arguments)


def run_now(
    schedule_id: str,
    *,
    payload: Any = None,
    overlap: str | Document | None = None,
    key: str | None = None,
    reason: str | None = None,
) -> Request[Occurrence]:
    """Run a schedule now; its next fire stays. The same key again returns the same occurrence.

    It does not wait for the run.
    """
    arguments = to_arguments(schedule_id=schedule_id, payload=payload, overlap=overlap, key=key, reason=reason)
    return rest_request("schedule/run", _one(Occurrence), arguments)


def pause_many(
    *,
    until: datetime | str | None = None,
    **selection: Unpack[Selection],
) -> Request[Selected]:
    """Pause all active schedules that match every filter."""
    return rest_request("selection/pause", _one(Selected), to_arguments(until=until, **selection))


def resume_many(
    **selection: Unpack[Selection],
) -> Request[Selected]:
    """Resume all paused schedules that match every filter."""
    return rest_request("selection/resume", _one(Selected), to_arguments(**selection))


def delete_many(
    *,
    stop_running: bool | None = None,
    **selection: Unpack[Selection],
) -> Request[Selected]:
    """Delete all schedules that match every filter; their history is kept."""
    return rest_request("selection/delete", _one(Selected), to_arguments(stop_running=stop_running, **selection))


def label_many(
    *,
    set_labels: Mapping[str, str],
    **selection: Unpack[Selection],
) -> Request[Selected]:
    """Set labels of all schedules that match every filter; an empty value removes one."""
    return rest_request("selection/label", _one(Selected), to_arguments(set_labels=set_labels, **selection))


def run_many(
    *,
    payload: Any = None,
    overlap: str | Document | None = None,
    key: str | None = None,
    **selection: Unpack[Selection],
) -> Request[Selected]:
    """Run all schedules that match every filter now; their next fires stay."""
    return rest_request(
        "selection/run", _one(Selected), to_arguments(payload=payload, overlap=overlap, key=key, **selection)
    )


def backfill(  # noqa: PLR0913 - as the operation
    schedule_id: str,
    first: datetime | str,
    last: datetime | str,
    *,
    dry_run: bool | None = None,
    limit: int | None = None,
    concurrency: int | None = None,
    key: str | None = None,
) -> Request[Backfill]:
    """Run past fires of a schedule again, one after another or several at a time."""
    arguments = to_arguments(schedule_id=schedule_id, dry_run=dry_run, limit=limit, concurrency=concurrency, key=key)
    return rest_request("schedule/backfill", _one(Backfill), {**arguments, "from": to_json(first), "to": to_json(last)})


def backfills(schedule_id: str) -> Request[list[BackfillStatus]]:
    """List the backfills of a schedule, the last one requested first."""
    return rest_request("backfill/list", _all("backfills", BackfillStatus), to_arguments(schedule_id=schedule_id))


def get_backfill(schedule_id: str, backfill_id: str) -> Request[BackfillStatus]:
    """Get a backfill, and how far it is."""
    return rest_request(
        "backfill/get", _one(BackfillStatus), to_arguments(schedule_id=schedule_id, backfill_id=backfill_id)
    )


def pause_backfill(schedule_id: str, backfill_id: str, *, reason: str | None = None) -> Request[BackfillStatus]:
    """Pause a backfill: what runs is finished, and nothing more of it starts until it is resumed."""
    return rest_request("backfill/pause", _one(BackfillStatus), _of_backfill(schedule_id, backfill_id, reason))


def resume_backfill(schedule_id: str, backfill_id: str, *, reason: str | None = None) -> Request[BackfillStatus]:
    """Resume a paused backfill."""
    return rest_request("backfill/resume", _one(BackfillStatus), _of_backfill(schedule_id, backfill_id, reason))


def cancel_backfill(schedule_id: str, backfill_id: str, *, reason: str | None = None) -> Request[BackfillStatus]:
    """Cancel a backfill: what waits never runs, and what runs is asked to stop."""
    return rest_request("backfill/cancel", _one(BackfillStatus), _of_backfill(schedule_id, backfill_id, reason))


def _of_backfill(schedule_id: str, backfill_id: str, reason: str | None) -> dict[str, Any]:
    return to_arguments(schedule_id=schedule_id, backfill_id=backfill_id, reason=reason)


def preview(
    what: str | Trigger | Document,
    *,
    target: Document | None = None,
    changes: Document | None = None,
    after: datetime | str | None = None,
    count: int | None = None,
    key: str | None = None,
) -> Request[Preview]:
    """Preview the next fires of a schedule or a trigger, with the trigger in words.

    `key` is what `H` in a cron expression hashes. With a trigger, `target` is what it would start: the answer warns if
    no live node serves it. With a schedule, `changes` are fields as in an update: the answer has their impact.
    """
    arguments = to_arguments(target=target, changes=changes, after=after, count=count, key=key)
    if isinstance(what, str) and changes is not None:
        return rest_request(
            "schedule/preview",
            _one(Preview),
            {"schedule_id": what, **arguments},
            route=OPERATIONS["schedule/preview"].other_route,
        )
    if isinstance(what, str):
        return rest_request("schedule/preview", _one(Preview), {"schedule_id": what, **arguments})
    return rest_request(
        "schedule/preview",
        _one(Preview),
        {"trigger": to_json(what), **arguments},
        route=OPERATIONS["schedule/preview"].other_route,
    )


def read_crontab(text: str, *, timezone: str | None = None, has_user: bool | None = None) -> Request[CrontabSchedules]:
    """Read a crontab: the schedules of its lines, and what could not be read. Nothing is created.

    `timezone` is that of lines without a `CRON_TZ` above them, UTC by default. With `has_user`, a user stands before
    each command, as in /etc/crontab.
    """
    arguments = to_arguments(text=text, timezone=timezone, has_user=has_user)
    return rest_request("crontab/read", _one(CrontabSchedules), arguments)


def check(schedules: Iterable[Document]) -> Request[list[CheckedSchedule]]:
    """Check schedules as if they were created, or changed where they exist. Nothing is changed.

    The answers, in their order, have the problems for which this server would refuse each, and warnings.
    """
    return rest_request("schedule/check", _all("checks", CheckedSchedule), {"schedules": list(schedules)})


def occurrences(
    schedule_id: str,
    *,
    include_terminal: bool | None = None,
    phase: str | Iterable[str] | None = None,
    page_size: int | None = None,
) -> Listing[Occurrence]:
    """List the occurrences of a schedule, latest nominal time first."""
    arguments = to_arguments(schedule_id=schedule_id, include_terminal=include_terminal, phase=phase, limit=page_size)
    return _listing("schedule/occurrences", "occurrences", Occurrence, arguments)


def search_occurrences(*, page_size: int | None = None, **filters: Unpack[OccurrenceFilters]) -> Listing[Occurrence]:
    """List the occurrences of all schedules that match every filter, latest end first."""
    return _listing("occurrence/list", "occurrences", Occurrence, to_arguments(**filters, limit=page_size))


def redrive(
    occurrence_id: str | None = None,
    *,
    limit: int | None = None,
    dry_run: bool | None = None,
    comment: str | None = None,
    **filters: Unpack[OccurrenceFilters],
) -> Request[Redrive]:
    """Run an ended occurrence again, or all that match the filters; each runs again once.

    The filters select failures, unless `phase` says others.
    """
    arguments = to_arguments(occurrence_id=occurrence_id, limit=limit, dry_run=dry_run, comment=comment, **filters)
    route = OPERATIONS["occurrence/redrive"].other_route if occurrence_id is None else None
    return rest_request("occurrence/redrive", _one(Redrive), arguments, route=route)


def occurrence(occurrence_id: str) -> Request[Occurrence]:
    """Get an occurrence."""
    return rest_request("occurrence/get", _one(Occurrence), to_arguments(occurrence_id=occurrence_id))


def occurrence_runs(occurrence_id: str) -> Request[list[Run]]:
    """List the runs of an occurrence, latest start first."""
    return rest_request("occurrence/runs", _all("runs", Run), to_arguments(occurrence_id=occurrence_id))


def explain(occurrence_id: str) -> Request[Explanation]:
    """Explain the state of an occurrence: each rule with its decision, and one sentence."""
    return rest_request("occurrence/explain", _one(Explanation), to_arguments(occurrence_id=occurrence_id))


def explain_at(schedule_id: str, at: datetime | str | None = None) -> Request[Explanation]:
    """Explain what a schedule did, does or will do at an instant; without one, its last occurrence."""
    return rest_request("schedule/explain", _one(Explanation), to_arguments(schedule_id=schedule_id, at=at))


def runs(schedule_id: str, *, page_size: int | None = None) -> Listing[Run]:
    """List the runs of a schedule, latest start first."""
    return _listing("schedule/runs", "runs", Run, to_arguments(schedule_id=schedule_id, limit=page_size))


def run(run_id: str) -> Request[Run]:
    """Get a run."""
    return rest_request("run/get", _one(Run), to_arguments(run_id=run_id))


def complete(
    occurrence_id: str,
    *,
    result: Any = None,
    usage: Document | None = None,
    token: str | None = None,
) -> Request[Occurrence]:
    """Complete an occurrence that its target has accepted."""
    arguments = to_arguments(occurrence_id=occurrence_id, result=result, usage=usage, token=token)
    return rest_request("occurrence/complete", _one(Occurrence), arguments)


def fail(
    occurrence_id: str, *, error: str | None = None, usage: Document | None = None, token: str | None = None
) -> Request[Occurrence]:
    """Fail an occurrence that its target has accepted; its retry policy applies."""
    arguments = to_arguments(occurrence_id=occurrence_id, error=error, usage=usage, token=token)
    return rest_request("occurrence/fail", _one(Occurrence), arguments)


def cancel(occurrence_id: str, *, reason: str | None = None) -> Request[Occurrence]:
    """Cancel an occurrence; a running one is asked to stop."""
    return rest_request("occurrence/cancel", _one(Occurrence), to_arguments(occurrence_id=occurrence_id, reason=reason))


def emit(
    event_type: str,
    payload: Any = None,
    *,
    source: str | None = None,
    event_id: str | None = None,
) -> Request[str]:
    """Emit an event; schedules with a matching trigger start by themselves.

    Returns its id. The same id again is the same event.
    """
    arguments = to_arguments(event_type=event_type, payload=payload, source=source, event_id=event_id)
    return rest_request("event/emit", lambda document: str(document["event_id"]), arguments)


def events(*, event_type: str | None = None, page_size: int | None = None) -> Listing[Event]:
    """List events, newest first."""
    return _listing("event/list", "events", Event, to_arguments(event_type=event_type, limit=page_size))


def set_secret(name: str, value: str, *, hosts: Iterable[str] = (), programs: Iterable[str] = ()) -> Request[Secret]:
    """Set a secret for requests to some hosts, or for some programs; an existing one gets the new value, and these."""
    arguments = to_arguments(name=name, value=value, hosts=_as_list(hosts), programs=_as_list(programs))
    return rest_request("secret/set", _one(Secret), arguments)


def secrets() -> Request[list[Secret]]:
    """List the secrets by name, each with its hosts and programs and without its value."""
    return rest_request("secret/list", _all("secrets", Secret), {})


def delete_secret(name: str) -> Request[Secret]:
    """Delete a secret; requests that need it are no longer sent, and say why."""
    return rest_request("secret/delete", _one(Secret), to_arguments(name=name))


def ping_url(schedule_id: str) -> Request[PingUrl]:
    """Get the URL that the job of a schedule calls; anyone who has it can call it."""
    return rest_request("ping/url", _one(PingUrl), to_arguments(schedule_id=schedule_id))


def rotate_ping_url(schedule_id: str, *, reason: str | None = None, **expected: Unpack[Expected]) -> Request[PingUrl]:
    """Replace the URL that the job of a schedule calls; the old one is unknown from then on."""
    return rest_request("ping/rotate", _one(PingUrl), to_arguments(schedule_id=schedule_id, reason=reason, **expected))


def signing_key() -> Request[str]:
    """Get the key that requests are signed with, for receivers that verify them; the access is recorded.

    Receivers verify requests with `noonmark.client.verify`.
    """
    return rest_request("signing/key", lambda document: str(document["signing_key"]), {})


def match_events(
    event_type: str | Iterable[str] | None = None,
    filters: Document | None = None,
    *,
    limit: int | None = None,
    event: Document | None = None,
    trigger: Trigger | Document | None = None,
    schedule_id: str | None = None,
) -> Request[Matched]:
    """Match the newest events, or a draft, against filters, a trigger or a schedule; each mismatch has its reason.

    A draft is a document such as `{"payload": {..}}`. Nothing is started.
    """
    types = event_type if event_type is None or isinstance(event_type, str) else list(event_type)
    arguments = to_arguments(
        event_type=types, filters=filters, limit=limit, event=event, trigger=trigger, schedule_id=schedule_id
    )
    return rest_request("event/match", _one(Matched), arguments)


def triggers(
    *,
    event_type: str | None = None,
    newest_first: bool | None = None,
    page_size: int | None = None,
    **filters: Unpack[TriggerFilters],
) -> Listing[Schedule]:
    """List the schedules with an event trigger that match every filter."""
    arguments = to_arguments(**filters, event_type=event_type, newest_first=newest_first, limit=page_size)
    return _listing("trigger/list", "triggers", Schedule, arguments)


def create_workflow(definition: Document | None = None, **fields: Unpack[WorkflowFields]) -> Request[CreatedWorkflow]:
    """Create a version of a workflow; the definition of the newest version again is that version.

    The definition is a document, or is given by its fields.
    """
    return rest_request("workflow/create", _one(CreatedWorkflow), {**(definition or {}), **to_arguments(**fields)})


def get_workflow(workflow_id: str, *, version: int | None = None) -> Request[Workflow]:
    """Get a version of a workflow; by default the newest."""
    return rest_request("workflow/get", _one(Workflow), to_arguments(workflow_id=workflow_id, version=version))


def workflows(*, page_size: int | None = None) -> Listing[WorkflowVersion]:
    """List the workflows by id, each with its newest version."""
    return _listing("workflow/list", "workflows", WorkflowVersion, to_arguments(limit=page_size))


def workflow_versions(workflow_id: str, *, page_size: int | None = None) -> Listing[WorkflowVersion]:
    """List the versions of a workflow, newest first."""
    arguments = to_arguments(workflow_id=workflow_id, limit=page_size)
    return _listing("workflow/versions", "versions", WorkflowVersion, arguments)


def delete_workflow(workflow_id: str, *, reason: str | None = None) -> Request[DeletedWorkflow]:
    """Delete a workflow with all its versions, unless schedules name it; runs that have begun go on."""
    return rest_request("workflow/delete", _one(DeletedWorkflow), to_arguments(workflow_id=workflow_id, reason=reason))


def run_workflow(
    workflow_id: str,
    inputs: Document | None = None,
    *,
    version: int | None = None,
    payload: Any = None,
    key: str | None = None,
    reason: str | None = None,
) -> Request[WorkflowRun]:
    """Run a workflow now. The same key again returns the same run.

    It does not wait for the run.
    """
    arguments = to_arguments(
        workflow_id=workflow_id, inputs=inputs, version=version, payload=payload, key=key, reason=reason
    )
    return rest_request("workflow/run", _one(WorkflowRun), arguments)


def workflow_run(workflow_run_id: str) -> Request[WorkflowRun]:
    """Get a run of a workflow, with its steps."""
    return rest_request("workflow_run/get", _one(WorkflowRun), to_arguments(workflow_run_id=workflow_run_id))


def workflow_runs(
    *, workflow_id: str | None = None, phase: str | Iterable[str] | None = None, page_size: int | None = None
) -> Listing[WorkflowRun]:
    """List the runs of workflows, latest first."""
    arguments = to_arguments(workflow_id=workflow_id, phase=phase, limit=page_size)
    return _listing("workflow_run/list", "workflow_runs", WorkflowRun, arguments)


def cancel_workflow_run(workflow_run_id: str, *, reason: str | None = None) -> Request[WorkflowRun]:
    """Cancel a run of a workflow; its running steps are asked to stop, and completed ones are compensated."""
    return rest_request(
        "workflow_run/cancel", _one(WorkflowRun), to_arguments(workflow_run_id=workflow_run_id, reason=reason)
    )


def create_session(**fields: Unpack[SessionFields]) -> Request[Session]:
    """Create a session; a conflict if its id is taken.

    Without a `session_id`, one is drawn.
    """
    return rest_request("session/create", _one(Session), to_arguments(**fields))


def get_session(session_id: str) -> Request[Session]:
    """Get a session: its state, what it was created with, and what it has used."""
    return rest_request("session/get", _one(Session), to_arguments(session_id=session_id))


def list_sessions(
    *,
    state: str | None = None,
    labels: Mapping[str, str] | None = None,
    owner: str | None = None,
    mob_id: str | None = None,
    page_size: int | None = None,
) -> Listing[Session]:
    """List the sessions that match every filter, latest creation first."""
    arguments = to_arguments(state=state, labels=labels, owner=owner, mob_id=mob_id, limit=page_size)
    return _listing("session/list", "sessions", Session, arguments)


def session_messages(
    session_id: str,
    *,
    after: int | None = None,
    occurrence_id: str | None = None,
    newest_first: bool | None = None,
    page_size: int | None = None,
) -> Listing[Message]:
    """List the messages of a session in their order, or newest first.

    With `after`, only those with a higher number.
    """
    arguments = to_arguments(
        session_id=session_id,
        after=after,
        occurrence_id=occurrence_id,
        newest_first=newest_first,
        limit=page_size,
    )
    return _listing("session/messages", "messages", Message, arguments)


def send_message(  # noqa: PLR0913 - what a caller may say about a turn
    session_id: str,
    prompt: str | list[Document],
    *,
    system_prompt: str | None = None,
    render_metadata: Document | None = None,
    skill_refs: list[Any] | None = None,
    additional_instructions: list[str] | None = None,
    key: str | None = None,
) -> Request[Occurrence]:
    """Send a message to a session. The same key again is the same turn.

    It does not wait for the answer: the occurrence that it returns ends with it.
    """
    arguments = to_arguments(
        session_id=session_id,
        prompt=prompt,
        system_prompt=system_prompt,
        render_metadata=render_metadata,
        skill_refs=skill_refs,
        additional_instructions=additional_instructions,
        key=key,
    )
    return rest_request("session/send", _one(Occurrence), arguments)


def archive_session(session_id: str, *, reason: str | None = None) -> Request[Session]:
    """Archive a session: its transcript is kept, and it takes no messages."""
    return rest_request("session/archive", _one(Session), to_arguments(session_id=session_id, reason=reason))


def delete_session(session_id: str, *, reason: str | None = None) -> Request[Session]:
    """Delete a session with its messages, unless a turn of it is in flight or a schedule names it."""
    return rest_request("session/delete", _one(Session), to_arguments(session_id=session_id, reason=reason))


def create_mob(mob_id: str, members: list[Document], *, flows: Document | None = None) -> Request[Mob]:
    """Create a mob with a session for each member; a conflict if its id is taken."""
    return rest_request("mob/create", _one(Mob), to_arguments(mob_id=mob_id, members=members, flows=flows))


def get_mob(mob_id: str) -> Request[Mob]:
    """Get a mob: its members and its flows."""
    return rest_request("mob/get", _one(Mob), to_arguments(mob_id=mob_id))


def list_mobs(*, page_size: int | None = None) -> Listing[Mob]:
    """List the mobs by id."""
    return _listing("mob/list", "mobs", Mob, to_arguments(limit=page_size))


def delete_mob(mob_id: str, *, reason: str | None = None) -> Request[Mob]:
    """Delete a mob, unless schedules name it; the sessions of its members are archived."""
    return rest_request("mob/delete", _one(Mob), to_arguments(mob_id=mob_id, reason=reason))


def approvals(*, state: str | None = None, page_size: int | None = None) -> Listing[Approval]:
    """List the approvals that are pending, or in another state, latest request first."""
    return _listing("approval/list", "approvals", Approval, to_arguments(state=state, limit=page_size))


def approve(approval_id: str, *, comment: str | None = None) -> Request[Approval]:
    """Approve: the occurrence starts, or the step completes and what depends on it starts.

    The same decision again changes nothing.
    """
    return rest_request("approval/approve", _one(Approval), to_arguments(approval_id=approval_id, comment=comment))


def deny(approval_id: str, *, comment: str | None = None) -> Request[Approval]:
    """Deny: the occurrence is skipped, or the step fails. The same decision again changes nothing."""
    return rest_request("approval/deny", _one(Approval), to_arguments(approval_id=approval_id, comment=comment))


def halt(
    *, labels: Mapping[str, str] | None = None, lineage: str | None = None, reason: str | None = None
) -> Request[NewHalt]:
    """Halt: running occurrences are cancelled, and nothing starts, schedules created later included.

    With labels, only schedules that have all of them; with the id of a session or a schedule as `lineage`, only that
    one and every schedule and session that it made, directly or not; otherwise everything of the tenant.
    """
    return rest_request("halt/set", _one(NewHalt), to_arguments(labels=labels, lineage=lineage, reason=reason))


def unhalt(
    halt_id: str | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    lineage: str | None = None,
    reason: str | None = None,
) -> Request[list[Halt]]:
    """Lift a halt, or all with these labels or this lineage. Skipped fires stay skipped."""
    arguments = to_arguments(halt_id=halt_id, labels=labels, lineage=lineage, reason=reason)
    return rest_request("halt/lift", _all("lifted", Halt), arguments)


def halts() -> Request[list[Halt]]:
    """List the halts of the tenant, oldest first."""
    return rest_request("halt/list", _all("halts", Halt), {})


def proposals(*, page_size: int | None = None) -> Listing[Proposal]:
    """List the proposals about schedules, which wait for somebody's decision, oldest first."""
    return _listing("schedule/proposals", "proposals", Proposal, to_arguments(limit=page_size))


def proposal(schedule_id: str) -> Request[Proposal]:
    """Get the proposal for a schedule, with its changes."""
    return rest_request("schedule/proposal", _one(Proposal), {"schedule_id": schedule_id})


def approve_schedule(schedule_id: str, *, comment: str | None = None) -> Request[Schedule]:
    """Approve a proposal: it takes effect now, and the schedule is planned."""
    return rest_request("schedule/approve", _one(Schedule), to_arguments(schedule_id=schedule_id, comment=comment))


def deny_schedule(schedule_id: str, *, comment: str | None = None) -> Request[Schedule]:
    """Deny a proposal: a proposed schedule is deleted, any other stays unchanged."""
    return rest_request("schedule/deny", _one(Schedule), to_arguments(schedule_id=schedule_id, comment=comment))


def set_budget(  # noqa: PLR0913 - as the operation
    scope: str,
    id: str,  # noqa: A002 - as the operation
    *,
    period: str,
    max_cost_usd: float | None = None,
    max_tokens: int | None = None,
    hard: bool | None = None,
    warning_threshold: float | None = None,
    require_approval: bool | None = None,
    when_exhausted: str | None = None,
) -> Request[Budget]:
    """Set a budget. It replaces the one of the same period and keeps its spend, which is how to top up a budget.

    `scope` is tenant, user, schedule or session; `period` is day, month or total.
    """
    arguments = to_arguments(
        scope=scope,
        id=id,
        period=period,
        max_cost_usd=max_cost_usd,
        max_tokens=max_tokens,
        hard=hard,
        warning_threshold=warning_threshold,
        require_approval=require_approval,
        when_exhausted=when_exhausted,
    )
    return rest_request("budget/set", _one(Budget), arguments)


def budgets(*, scope: str | None = None, id: str | None = None, page_size: int | None = None) -> Listing[Budget]:  # noqa: A002 - as the operation
    """List budgets by scope, id and period, each with its spend."""
    return _listing("budget/list", "budgets", Budget, to_arguments(scope=scope, id=id, limit=page_size))


def delete_budget(scope: str, id: str, *, period: str | None = None) -> Request[list[Budget]]:  # noqa: A002 - as the operation
    """Delete the budget of a period, or all budgets of an owner. Their spend stays in the reports."""
    return rest_request("budget/delete", _all("deleted", Budget), to_arguments(scope=scope, id=id, period=period))


def usage(
    by: str | None = None,
    first: datetime | str | None = None,
    last: datetime | str | None = None,
    *,
    user: str | None = None,
    schedule_id: str | None = None,
    limit: int | None = None,
) -> Request[UsageSummary]:
    """Report usage by user, schedule, session, model or day, the most expensive first; by default of this UTC month.

    It is that from `first` on and before `last`.
    """
    arguments = to_arguments(by=by, to=last, user=user, schedule_id=schedule_id, limit=limit, **{"from": first})
    return rest_request("usage/report", _one(UsageSummary), arguments)


def record_usage(  # noqa: PLR0913 - as the operation
    *,
    idempotency_key: str | None = None,
    model: str | None = None,
    provider: str | None = None,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    cache_read_tokens: int | None = None,
    cache_write_tokens: int | None = None,
    tokens: int | None = None,
    model_calls: int | None = None,
    tool_calls: int | None = None,
    cost_usd: float | None = None,
    user: str | None = None,
    schedule_id: str | None = None,
    session_id: str | None = None,
    occurrence_id: str | None = None,
    at: datetime | str | None = None,
) -> Request[RecordedUsage]:
    """Record usage of work that runs elsewhere. The same idempotency key again changes nothing.

    A cost that is left out is unknown, not 0.
    """
    arguments = to_arguments(
        idempotency_key=idempotency_key,
        model=model,
        provider=provider,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=cache_read_tokens,
        cache_write_tokens=cache_write_tokens,
        tokens=tokens,
        model_calls=model_calls,
        tool_calls=tool_calls,
        cost_usd=cost_usd,
        user=user,
        schedule_id=schedule_id,
        session_id=session_id,
        occurrence_id=occurrence_id,
        at=at,
    )
    return rest_request("usage/record", _one(RecordedUsage), arguments)


def forecast_usage(schedule_id: str | None = None, *, limit: int | None = None) -> Request[UsageForecast]:
    """Forecast what schedules will have cost at the end of the UTC month, from their last runs and the fires left.

    Without an id, it is about the schedules with usage within the last 31 days, the most expensive first.
    """
    return rest_request("usage/forecast", _one(UsageForecast), to_arguments(schedule_id=schedule_id, limit=limit))


def bundles(*, page_size: int | None = None) -> Listing[Bundle]:
    """List the bundles by id, each with its newest archive."""
    return _listing("bundle/list", "bundles", Bundle, to_arguments(limit=page_size))


def bundle(bundle_id: str) -> Request[BundleDetails]:
    """Get a bundle: its manifest, its archives, newest first, and the schedules that its manifest declares."""
    return rest_request("bundle/get", _one(BundleDetails), to_arguments(bundle_id=bundle_id))


def run_bundle(
    bundle_id: str,
    *,
    payload: Any = None,
    key: str | None = None,
) -> Request[Occurrence]:
    """Run a bundle now, without a schedule. The same key again returns the same occurrence."""
    arguments = to_arguments(bundle_id=bundle_id, payload=payload, key=key)
    return rest_request("bundle/run", _one(Occurrence), arguments)


def delete_bundle(bundle_id: str) -> Request[Bundle]:
    """Delete a bundle with all its archives; a conflict while a schedule names it, or a run of it has not ended."""
    return rest_request("bundle/delete", _one(Bundle), to_arguments(bundle_id=bundle_id))


def uploads(*, page_size: int | None = None) -> Listing[Upload]:
    """List the uploads, newest first."""
    return _listing("upload/list", "uploads", Upload, to_arguments(limit=page_size))


def delete_upload(upload_id: str) -> Request[Upload]:
    """Delete an upload; runs that its event has started go on."""
    return rest_request("upload/delete", _one(Upload), to_arguments(upload_id=upload_id))


def create_key(  # noqa: PLR0913 - as the operation
    *,
    scopes: Iterable[str],
    tenant: str | None = None,
    user: str | None = None,
    name: str | None = None,
    expires_in_seconds: float | None = None,
    expires_at_utc: datetime | str | None = None,
    agent: bool = False,
) -> Request[CreatedKey]:
    """Create an API key. The answer contains the key; it is not shown again."""
    arguments = to_arguments(
        scopes=_as_list(scopes),
        tenant=tenant,
        user=user,
        name=name,
        expires_in_seconds=expires_in_seconds,
        expires_at_utc=expires_at_utc,
        agent=agent,
    )
    return rest_request("key/create", _one(CreatedKey), arguments)


def keys(*, tenant: str | None = None, page_size: int | None = None) -> Listing[ApiKey]:
    """List API keys, oldest first, without the keys themselves. A key of tenant `*` lists those of all tenants."""
    return _listing("key/list", "keys", ApiKey, to_arguments(tenant=tenant, limit=page_size))


def revoke_key(key_id: str, *, reason: str | None = None) -> Request[ApiKey]:
    """Revoke an API key. Every node refuses it within seconds; revoking it again changes nothing."""
    return rest_request("key/revoke", _one(ApiKey), to_arguments(key_id=key_id, reason=reason))


def rotate_key(
    key_id: str,
    *,
    grace_seconds: float | None = None,
    expires_in_seconds: float | None = None,
    expires_at_utc: datetime | str | None = None,
    reason: str | None = None,
) -> Request[CreatedKey]:
    """Replace an API key by a new one on the same terms. The answer contains the new key; it is not shown again."""
    arguments = to_arguments(
        key_id=key_id,
        grace_seconds=grace_seconds,
        expires_in_seconds=expires_in_seconds,
        expires_at_utc=expires_at_utc,
        reason=reason,
    )
    return rest_request("key/rotate", _one(CreatedKey), arguments)


def whoami() -> Request[Identity]:
    """Get who the caller is: the tenant and the user that it acts for, and the scopes of its key."""
    return rest_request("whoami", _one(Identity), {})


def limits() -> Request[LimitList]:
    """Get the limits of the caller, and how much of each is used. Anything not listed is unlimited."""
    return rest_request("limits/get", _one(LimitList), {})


def schedule_tools() -> Request[list[ToolDefinition]]:
    """List the tools that the caller may use, with the schemas of their arguments and answers."""
    return rest_request("schedule/tools", _all("tools", ToolDefinition), {})


def call_schedule_tool(name: str, arguments: Document | None = None) -> Request[Document]:
    """Call a tool by its name; the answer is that of its operation, with long values cut off."""
    return rest_request("schedule/call", lambda document: document, to_arguments(name=name, arguments=arguments))


def nodes() -> Request[list[Node]]:
    """List the nodes seen within the last day."""
    return rest_request("node/list", _all("nodes", Node), {})


def audit(*, schedule_id: str | None = None, page_size: int | None = None) -> Listing[AuditEntry]:
    """List the entries of the audit log, newest first."""
    return _listing("audit/list", "entries", AuditEntry, to_arguments(schedule_id=schedule_id, limit=page_size))


def worker_start() -> Request[WorkerStatus]:
    """Start the worker of the node that answers; a running one goes on."""
    return rest_request("worker/start", _one(WorkerStatus), {})


def worker_stop() -> Request[WorkerStatus]:
    """Stop the worker of the node that answers; running work is finished, and other nodes go on."""
    return rest_request("worker/stop", _one(WorkerStatus), {})


def worker_confirm_time() -> Request[WorkerStatus]:
    """Confirm to the node that answers that the store's time is right although it leapt ahead."""
    return rest_request("worker/confirm-time", _one(WorkerStatus), {})


def worker_status() -> Request[WorkerStatus]:
    """Get the status of the worker of the node that answers."""
    return rest_request("worker/status", _one(WorkerStatus), {})


def health() -> Request[Document]:
    """Get the state and the version of the server."""
    return Request(http=Http("GET", "/health"), read=dict)


def timeline(  # noqa: PLR0913 - as the operation
    first: datetime | str | None = None,
    last: datetime | str | None = None,
    *,
    by: str | None = None,
    schedule_id: str | None = None,
    max_marks: int | None = None,
    buckets: int | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    **filters: Unpack[Filters],
) -> Request[Timeline]:
    """Get what schedules did, do and will do between two instants: marks, or counts in buckets where there are many.

    From `first` on and before `last`: by default six hours back and six ahead. `by="all"` gives one row for all.
    """
    which = to_arguments(by=by, schedule_id=schedule_id, max_marks=max_marks, buckets=buckets, limit=limit)
    arguments = to_arguments(to=last, cursor=cursor, **which, **filters, **{"from": first})
    return rest_request("timeline", _one(Timeline), arguments)


def revisions(schedule_id: str, *, page_size: int | None = None) -> Listing[Revision]:
    """List the changes of a schedule, newest first: who made each, and which fields it changed."""
    arguments = to_arguments(schedule_id=schedule_id, limit=page_size)
    return _listing("schedule/revisions", "revisions", Revision, arguments)


def trends(
    schedule_id: str,
    first: datetime | str | None = None,
    last: datetime | str | None = None,
    *,
    unit: str | None = None,
    timezone: str | None = None,
) -> Request[Trends]:
    """Get what a schedule did in each local hour, day, week or month: outcomes, durations, cost and tokens.

    From `first` on and before `last`: by default the last 30 of them.
    """
    arguments = to_arguments(schedule_id=schedule_id, to=last, unit=unit, timezone=timezone, **{"from": first})
    return rest_request("schedule/trends", _one(Trends), arguments)


def overview(*, timezone: str | None = None) -> Request[Overview]:
    """Get today's figures: fires, lateness, failures, runs, schedules, spend, nodes, and what needs attention."""
    return rest_request("overview", _one(Overview), to_arguments(timezone=timezone))


def workload(*, limit: int | None = None) -> Request[Workload]:
    """Get what runs, is due, waits, comes next, is overdue, and failed within the last hour."""
    return rest_request("workload", _one(Workload), to_arguments(limit=limit))


def doctor(*, rows: int | None = None) -> Request[Diagnosis]:
    """Check the store, its rows, the clocks, the nodes, the disk and the settings; changes nothing."""
    return rest_request("doctor", _one(Diagnosis), to_arguments(rows=rows))


def call(name: str, arguments: Mapping[str, Any] | None = None) -> Request[Document]:
    """Call any operation by its name, over JSON-RPC; returns its answer as JSON."""
    return rpc_request(name, read_result, arguments or {})


def _as_list(hosts: object) -> object:
    """A list; a single text is left for the server to refuse, rather than split into characters."""
    return hosts if isinstance(hosts, str) or not isinstance(hosts, Iterable) else list(hosts)


def _one(kind: type[T]) -> Callable[[Document], T]:
    return lambda document: read(kind, document)


def _all(name: str, kind: type[T]) -> Callable[[Document], list[T]]:
    return lambda document: [read(kind, entry) for entry in document[name]]


def _listing(operation: str, name: str, kind: type[T], arguments: Document) -> Listing[T]:
    many = _all(name, kind)
    return Listing(operation=operation, arguments=arguments, read=lambda one: Page(many(one), one["next_cursor"]))
