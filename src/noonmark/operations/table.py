"""The table of operations: each one once, with its handler, scope, route and models.

REST routes, JSON-RPC methods, the OpenAPI document, the requests of the client and the reference pages are made from
this table. Handlers are named, not imported, so that a client can read the table without loading them.
"""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from noonmark.core.api_key import Scope
from noonmark.core.errors import MethodNotFound, MissingScope, NotAllowed, StoreUnavailable
from noonmark.core.frozen import evolve, frozen
from noonmark.core.instants import SECOND
from noonmark.core.json_values import shown
from noonmark.operations.changes import change_by
from noonmark.operations.creations import create_alone
from noonmark.operations.errors import hidden_cause_from
from noonmark.operations.models import answers
from noonmark.operations.models import arguments as takes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noonmark.operations.creations import Creation
    from noonmark.operations.models.fields import Arguments
    from noonmark.operations.service import Caller, Service

    Handler = Callable[[Service, Caller, Any], dict[str, Any] | Creation[dict[str, Any]]]


class Body(StrEnum):
    """Whether a route takes a body."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


SMALL_PAGE = 50


class Quick(StrEnum):
    """What the quick calls of an operation read: they take microseconds, or a few milliseconds at most."""

    RECORD = "record"
    """One record by its id; all its calls are quick."""
    PAGE = "page"
    """A page in the order of an index, of at most SMALL_PAGE entries. With a filter it may read many more."""


@frozen
class Operation:
    """One operation. Its name is also the JSON-RPC method."""

    name: str
    handler: str
    """`module.function` in this package. It gets the arguments as their model, or as JSON if the core reads them."""
    scope: Scope | None
    """The permission that it needs; None if any key will do."""
    route: str
    """The HTTP method and the path. What the path names is an argument of that name."""
    arguments: type[Arguments]
    answer: type
    status: int = 200
    body: Body | None = None
    """None: none for GET and DELETE, optional for other methods."""
    key: str | None = None
    """The argument that makes a repeated request the same request."""
    has_key_header: bool = True
    """Whether an Idempotency-Key header gives the key."""
    is_conditional: bool = False
    """Whether an If-Match header may name the expected revision."""
    is_repeatable: bool = True
    """Whether a client may send it again when it does not know if the first request arrived."""
    other_route: str | None = None
    proposed: str | None = None
    """The handler for callers with the scope `propose` and without its own scope."""
    quick: Quick | None = None
    """What its quick calls read, if it has any. A server may have them take turns in one thread."""
    is_global: bool = False
    """Whether it concerns nodes and workers, which belong to no tenant: then it needs a key of tenant `*`."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the arguments, in the order of positional JSON-RPC params."""
        return tuple(self.arguments.fields())

    @property
    def is_change(self) -> bool:
        """Whether it changes anything."""
        return self.scope is not Scope.READ and not self.route.startswith("GET ")

    @property
    def call(self) -> Handler:
        """The handler."""
        return _handler(self.handler)

    def call_for(self, caller: Caller) -> Handler:
        """The handler for a caller."""
        if self.proposed is None or self.scope in caller.scopes:
            return self.call
        return _handler(self.proposed)

    @property
    def summary(self) -> str:
        """What it does: the first line of the handler's docstring."""
        return (self.call.__doc__ or "").partition("\n")[0]


def _handler(name: str) -> Handler:
    module, _, function = name.partition(".")
    handler: Handler = getattr(import_module(f"noonmark.operations.{module}"), function)
    return handler


READ, WRITE, RUN, ADMIN = Scope.READ, Scope.WRITE, Scope.RUN, Scope.ADMIN
CREATES_SCHEDULE = "schedule/create"
SETS_SECRET = "secret/set"  # noqa: S105 - a name
"""Errors about a call of it repeat nothing of its arguments: the secret may be in the wrong place."""
CALLS_TOOL = "schedule/call"
"""It performs another operation, whose scope it needs."""
_SCHEDULE, _OCCURRENCE = "/schedules/{schedule_id}", "/occurrences/{occurrence_id}"
_WORKFLOW, _WORKFLOW_RUN = "/workflows/{workflow_id}", "/workflow-runs/{workflow_run_id}"
_BUDGET = "/budgets/{scope}/{id}"
_SESSION, _MOB = "/sessions/{session_id}", "/mobs/{mob_id}"
_BACKFILL = "/schedules/{schedule_id}/backfills/{backfill_id}"

_ROWS = (
    Operation(
        CREATES_SCHEDULE,
        "schedules.create_schedule",
        WRITE,
        "POST /schedules",
        takes.NewSchedule,
        answers.Schedule,
        status=201,
        body=Body.REQUIRED,
        key="idempotency_key",
        proposed="proposals.propose_schedule",
    ),
    Operation(
        "schedule/upsert",
        "schedules.upsert_schedule",
        WRITE,
        "POST /schedules/upsert",
        takes.NewSchedule,
        answers.Schedule,
        body=Body.REQUIRED,
    ),
    Operation(
        "schedule/update",
        "schedules.update_schedule",
        WRITE,
        f"PATCH {_SCHEDULE}",
        takes.ScheduleUpdate,
        answers.Schedule,
        body=Body.REQUIRED,
        is_conditional=True,
        is_repeatable=False,
        proposed="proposals.propose_update",
    ),
    Operation(
        "schedule/pause",
        "schedules.pause_schedule",
        WRITE,
        f"POST {_SCHEDULE}/pause",
        takes.PauseRequest,
        answers.Schedule,
        is_conditional=True,
        proposed="schedules.pause_schedule",
    ),
    Operation(
        "schedule/resume",
        "schedules.resume_schedule",
        WRITE,
        f"POST {_SCHEDULE}/resume",
        takes.ScheduleAction,
        answers.Schedule,
        is_conditional=True,
        proposed="proposals.propose_resume",
    ),
    Operation(
        "schedule/delete",
        "schedules.delete_schedule",
        WRITE,
        f"DELETE {_SCHEDULE}",
        takes.Deletion,
        answers.Schedule,
        body=Body.OPTIONAL,
        is_conditional=True,
        proposed="proposals.propose_deletion",
    ),
    Operation(
        "schedule/run",
        "occurrences.run_schedule",
        RUN,
        f"POST {_SCHEDULE}/run",
        takes.RunRequest,
        answers.Occurrence,
        status=202,
        key="key",
    ),
    Operation(
        "schedule/propose",
        "proposals.propose_schedule",
        WRITE,
        "POST /proposals",
        takes.NewSchedule,
        answers.Schedule,
        status=201,
        body=Body.REQUIRED,
        key="idempotency_key",
        proposed="proposals.propose_schedule",
    ),
    *(
        Operation(
            f"schedule/{verb}",
            f"proposals.{verb}",
            WRITE,
            f"POST {_SCHEDULE}/{verb}",
            takes.ProposalDecision,
            answers.Schedule,
            is_repeatable=False,
        )
        for verb in ("approve", "deny")
    ),
    Operation(
        "selection/pause",
        "selections.pause_schedules",
        WRITE,
        "POST /selections/pause",
        takes.SelectionPause,
        answers.Selected,
        body=Body.REQUIRED,
    ),
    Operation(
        "selection/resume",
        "selections.resume_schedules",
        WRITE,
        "POST /selections/resume",
        takes.ScheduleSelection,
        answers.Selected,
        body=Body.REQUIRED,
    ),
    Operation(
        "selection/delete",
        "selections.delete_schedules",
        WRITE,
        "POST /selections/delete",
        takes.SelectionDeletion,
        answers.Selected,
        body=Body.REQUIRED,
    ),
    Operation(
        "selection/label",
        "selections.label_schedules",
        WRITE,
        "POST /selections/label",
        takes.SelectionLabels,
        answers.Selected,
        body=Body.REQUIRED,
    ),
    Operation(
        "selection/run",
        "selections.run_schedules",
        RUN,
        "POST /selections/run",
        takes.SelectionRun,
        answers.Selected,
        body=Body.REQUIRED,
        status=202,
        key="key",
    ),
    Operation(
        "schedule/backfill",
        "occurrences.backfill",
        RUN,
        f"POST {_SCHEDULE}/backfill",
        takes.BackfillRequest,
        answers.Backfill,
        body=Body.REQUIRED,
        key="key",
    ),
    *(
        Operation(
            f"backfill/{verb}",
            f"backfills.{verb}_backfill",
            RUN,
            f"POST {_BACKFILL}/{verb}",
            takes.BackfillAction,
            answers.BackfillStatus,
            body=Body.OPTIONAL,
        )
        for verb in ("pause", "resume", "cancel")
    ),
    Operation(
        "ping/rotate",
        "pings.rotate_ping_url",
        WRITE,
        f"POST {_SCHEDULE}/ping/rotate",
        takes.ScheduleAction,
        answers.PingUrl,
        is_conditional=True,
        is_repeatable=False,
    ),
    Operation("ping/url", "pings.get_ping_url", WRITE, f"GET {_SCHEDULE}/ping", takes.OneSchedule, answers.PingUrl),
    Operation(
        "occurrence/complete",
        "occurrences.complete",
        RUN,
        f"POST {_OCCURRENCE}/complete",
        takes.Completion,
        answers.Occurrence,
        is_repeatable=False,
    ),
    Operation(
        "occurrence/fail",
        "occurrences.fail",
        RUN,
        f"POST {_OCCURRENCE}/fail",
        takes.Failure,
        answers.Occurrence,
        is_repeatable=False,
    ),
    Operation(
        "occurrence/cancel",
        "occurrences.cancel",
        RUN,
        f"POST {_OCCURRENCE}/cancel",
        takes.Cancellation,
        answers.Occurrence,
        is_repeatable=False,
    ),
    Operation(
        "occurrence/redrive",
        "history.redrive",
        RUN,
        f"POST {_OCCURRENCE}/redrive",
        takes.RedriveRequest,
        answers.Redrive,
        status=202,
        other_route="POST /occurrences/redrive",
    ),
    Operation(
        "event/emit",
        "events.emit_event",
        RUN,
        "POST /events",
        takes.NewEvent,
        answers.EmittedEvent,
        status=202,
        body=Body.REQUIRED,
        key="event_id",
        has_key_header=False,
    ),
    Operation(
        "upload/delete",
        "uploads.delete_upload",
        WRITE,
        "DELETE /uploads/{upload_id}",
        takes.OneUpload,
        answers.Upload,
        is_repeatable=False,
    ),
    Operation(
        "workflow/create",
        "workflows.create_workflow",
        WRITE,
        "POST /workflows",
        takes.NewWorkflow,
        answers.CreatedWorkflow,
        status=201,
        body=Body.REQUIRED,
    ),
    Operation(
        "workflow/delete",
        "workflows.delete_workflow",
        WRITE,
        f"DELETE {_WORKFLOW}",
        takes.WorkflowDeletion,
        answers.DeletedWorkflow,
        is_repeatable=False,
    ),
    Operation(
        "workflow/run",
        "workflows.run_workflow",
        RUN,
        f"POST {_WORKFLOW}/runs",
        takes.WorkflowRunRequest,
        answers.WorkflowRun,
        status=202,
        key="key",
    ),
    Operation(
        "bundle/run",
        "bundles.run_bundle",
        RUN,
        "POST /bundles/{bundle_id}/run",
        takes.BundleRun,
        answers.Occurrence,
        status=202,
        key="key",
    ),
    Operation(
        "workflow_run/cancel",
        "workflows.cancel_workflow_run",
        RUN,
        f"POST {_WORKFLOW_RUN}/cancel",
        takes.WorkflowRunCancellation,
        answers.WorkflowRun,
        is_repeatable=False,
    ),
    Operation(
        "session/create",
        "sessions.create_session",
        WRITE,
        "POST /sessions",
        takes.NewSession,
        answers.Session,
        status=201,
        body=Body.REQUIRED,
        is_repeatable=False,
    ),
    Operation(
        "session/send",
        "sessions.send_message",
        RUN,
        f"POST {_SESSION}/messages",
        takes.NewMessage,
        answers.Occurrence,
        status=202,
        body=Body.REQUIRED,
        key="key",
    ),
    Operation(
        "session/archive",
        "sessions.archive_session",
        WRITE,
        f"POST {_SESSION}/archive",
        takes.SessionChange,
        answers.Session,
    ),
    Operation(
        "session/delete",
        "sessions.delete_session",
        WRITE,
        f"DELETE {_SESSION}",
        takes.SessionChange,
        answers.Session,
        is_repeatable=False,
    ),
    Operation(
        "mob/create",
        "mobs.create_mob",
        WRITE,
        "POST /mobs",
        takes.NewMob,
        answers.Mob,
        status=201,
        body=Body.REQUIRED,
        is_repeatable=False,
    ),
    Operation(
        "mob/delete",
        "mobs.delete_mob",
        WRITE,
        f"DELETE {_MOB}",
        takes.MobDeletion,
        answers.Mob,
        is_repeatable=False,
    ),
    *(
        Operation(
            f"approval/{verb}",
            f"approvals.{verb}",
            RUN,
            f"POST /approvals/{{approval_id}}/{verb}",
            takes.Decision,
            answers.Approval,
        )
        for verb in ("approve", "deny")
    ),
    Operation(
        "budget/set",
        "budgets.set_budget",
        WRITE,
        f"PUT {_BUDGET}",
        takes.NewBudget,
        answers.Budget,
        body=Body.REQUIRED,
    ),
    Operation(
        "budget/delete",
        "budgets.delete_budget",
        WRITE,
        f"DELETE {_BUDGET}",
        takes.BudgetDeletion,
        answers.DeletedBudgets,
        is_repeatable=False,
    ),
    Operation("halt/set", "halts.set_halt", WRITE, "POST /halts", takes.HaltRequest, answers.NewHalt, status=201),
    Operation("halt/lift", "halts.lift_halt", WRITE, "POST /halts/lift", takes.LiftRequest, answers.LiftedHalts),
    Operation(
        "usage/record",
        "usage.record_usage",
        RUN,
        "POST /usage",
        takes.NewUsage,
        answers.RecordedUsage,
        body=Body.REQUIRED,
        key="idempotency_key",
    ),
    Operation(
        "bundle/delete",
        "bundles.delete_bundle",
        WRITE,
        "DELETE /bundles/{bundle_id}",
        takes.OneBundle,
        answers.Bundle,
        is_repeatable=False,
    ),
    Operation("bundle/list", "bundles.list_bundles", READ, "GET /bundles", takes.BundleQuery, answers.BundlePage),
    Operation(
        "bundle/get", "bundles.get_bundle", READ, "GET /bundles/{bundle_id}", takes.OneBundle, answers.BundleDetails
    ),
    Operation(
        SETS_SECRET,
        "secrets.set_secret",
        WRITE,
        "PUT /secrets/{name}",
        takes.NewSecret,
        answers.Secret,
        body=Body.REQUIRED,
    ),
    Operation(
        "secret/delete",
        "secrets.delete_secret",
        WRITE,
        "DELETE /secrets/{name}",
        takes.OneSecret,
        answers.Secret,
        is_repeatable=False,
    ),
    Operation(
        "key/create",
        "keys.create_key",
        ADMIN,
        "POST /keys",
        takes.NewKey,
        answers.CreatedKey,
        status=201,
        body=Body.REQUIRED,
        is_repeatable=False,
    ),
    Operation(
        "key/revoke", "keys.revoke_key", ADMIN, "POST /keys/{key_id}/revoke", takes.KeyRevocation, answers.ApiKey
    ),
    Operation(
        "key/rotate",
        "keys.rotate_key",
        ADMIN,
        "POST /keys/{key_id}/rotate",
        takes.KeyRotation,
        answers.CreatedKey,
        is_repeatable=False,
    ),
    *(
        Operation(
            f"worker/{verb}",
            f"nodes.{verb}_worker",
            ADMIN,
            f"POST /worker/{verb}",
            takes.NoArguments,
            answers.WorkerStatus,
            is_global=True,
        )
        for verb in ("start", "stop")
    ),
    Operation(
        "worker/confirm-time",
        "nodes.confirm_time",
        ADMIN,
        "POST /worker/confirm-time",
        takes.NoArguments,
        answers.WorkerStatus,
        is_global=True,
    ),
    Operation(
        "schedule/get",
        "schedules.get_schedule",
        READ,
        f"GET {_SCHEDULE}",
        takes.ScheduleLookup,
        answers.Schedule,
        quick=Quick.RECORD,
    ),
    Operation(
        "schedule/list",
        "schedules.list_schedules",
        READ,
        "GET /schedules",
        takes.ScheduleQuery,
        answers.SchedulePage,
        quick=Quick.PAGE,
    ),
    Operation(
        "schedule/count",
        "schedules.count_schedules",
        READ,
        "GET /schedules/count",
        takes.ScheduleFilters,
        answers.ScheduleCount,
    ),
    Operation(
        "schedule/preview",
        "preview.preview",
        READ,
        f"GET {_SCHEDULE}/preview",
        takes.PreviewRequest,
        answers.Preview,
        other_route="POST /schedules/preview",
    ),
    Operation(
        "schedule/check",
        "schedules.check_schedules",
        READ,
        "POST /schedule-checks",
        takes.ScheduleCheck,
        answers.CheckedSchedules,
        body=Body.REQUIRED,
    ),
    Operation(
        "crontab/read",
        "crontabs.read_crontab",
        READ,
        "POST /crontabs/read",
        takes.CrontabText,
        answers.CrontabSchedules,
        body=Body.REQUIRED,
    ),
    Operation(
        "schedule/occurrences",
        "occurrences.list_occurrences",
        READ,
        f"GET {_SCHEDULE}/occurrences",
        takes.OccurrenceQuery,
        answers.OccurrencePage,
    ),
    Operation(
        "schedule/runs",
        "history.list_runs",
        READ,
        f"GET {_SCHEDULE}/runs",
        takes.RunQuery,
        answers.RunPage,
        quick=Quick.PAGE,
    ),
    Operation(
        "schedule/revisions",
        "service.list_revisions",
        READ,
        f"GET {_SCHEDULE}/revisions",
        takes.RevisionQuery,
        answers.RevisionPage,
    ),
    Operation(
        "schedule/trends", "timeline.get_trends", READ, f"GET {_SCHEDULE}/trends", takes.TrendQuery, answers.Trends
    ),
    Operation(
        "schedule/explain",
        "explain.explain_schedule",
        READ,
        f"GET {_SCHEDULE}/explain",
        takes.ExplainRequest,
        answers.Explanation,
    ),
    Operation(
        "occurrence/list",
        "history.search_occurrences",
        READ,
        "GET /occurrences",
        takes.OccurrenceSearch,
        answers.OccurrencePage,
    ),
    Operation(
        "occurrence/get",
        "occurrences.get_occurrence",
        READ,
        f"GET {_OCCURRENCE}",
        takes.OneOccurrence,
        answers.Occurrence,
        quick=Quick.RECORD,
    ),
    Operation(
        "occurrence/runs",
        "history.list_occurrence_runs",
        READ,
        f"GET {_OCCURRENCE}/runs",
        takes.OneOccurrence,
        answers.RunPage,
    ),
    Operation(
        "occurrence/explain",
        "explain.explain_occurrence",
        READ,
        f"GET {_OCCURRENCE}/explain",
        takes.OneOccurrence,
        answers.Explanation,
    ),
    Operation(
        "schedule/proposals",
        "proposals.list_proposals",
        READ,
        "GET /proposals",
        takes.PageOfProposals,
        answers.ProposalPage,
    ),
    Operation(
        "schedule/proposal",
        "proposals.get_proposal",
        READ,
        f"GET {_SCHEDULE}/proposal",
        takes.OneSchedule,
        answers.Proposal,
    ),
    Operation("run/get", "history.get_run", READ, "GET /runs/{run_id}", takes.OneRun, answers.Run, quick=Quick.RECORD),
    Operation(
        "backfill/list",
        "backfills.list_backfills",
        READ,
        f"GET {_SCHEDULE}/backfills",
        takes.OneSchedule,
        answers.BackfillList,
    ),
    Operation(
        "backfill/get", "backfills.get_backfill", READ, f"GET {_BACKFILL}", takes.OneBackfill, answers.BackfillStatus
    ),
    Operation(
        "workflow/get", "workflows.get_workflow", READ, f"GET {_WORKFLOW}", takes.WorkflowLookup, answers.Workflow
    ),
    Operation(
        "workflow/list", "workflows.list_workflows", READ, "GET /workflows", takes.WorkflowQuery, answers.WorkflowPage
    ),
    Operation(
        "workflow/versions",
        "workflows.list_versions",
        READ,
        f"GET {_WORKFLOW}/versions",
        takes.WorkflowVersionQuery,
        answers.WorkflowVersionPage,
    ),
    Operation(
        "workflow_run/get",
        "workflows.get_workflow_run",
        READ,
        f"GET {_WORKFLOW_RUN}",
        takes.OneWorkflowRun,
        answers.WorkflowRun,
    ),
    Operation(
        "workflow_run/list",
        "workflows.list_workflow_runs",
        READ,
        "GET /workflow-runs",
        takes.WorkflowRunQuery,
        answers.WorkflowRunPage,
    ),
    Operation(
        "session/get",
        "sessions.get_session",
        READ,
        f"GET {_SESSION}",
        takes.OneSession,
        answers.Session,
        quick=Quick.RECORD,
    ),
    Operation("session/list", "sessions.list_sessions", READ, "GET /sessions", takes.SessionQuery, answers.SessionPage),
    Operation(
        "session/messages",
        "sessions.list_messages",
        READ,
        f"GET {_SESSION}/messages",
        takes.MessageQuery,
        answers.MessagePage,
    ),
    Operation("mob/get", "mobs.get_mob", READ, f"GET {_MOB}", takes.OneMob, answers.Mob, quick=Quick.RECORD),
    Operation("mob/list", "mobs.list_mobs", READ, "GET /mobs", takes.MobQuery, answers.MobPage),
    Operation(
        "approval/list", "approvals.list_approvals", READ, "GET /approvals", takes.ApprovalQuery, answers.ApprovalPage
    ),
    Operation("budget/list", "budgets.list_budgets", READ, "GET /budgets", takes.BudgetQuery, answers.BudgetPage),
    Operation("halt/list", "halts.list_halts", READ, "GET /halts", takes.HaltQuery, answers.HaltList),
    Operation("usage/report", "usage.report_usage", READ, "GET /usage", takes.UsageQuery, answers.UsageSummary),
    Operation(
        "usage/forecast",
        "usage.forecast_usage",
        READ,
        "GET /usage/forecast",
        takes.ForecastQuery,
        answers.UsageForecast,
    ),
    Operation("event/list", "events.list_events", READ, "GET /events", takes.EventQuery, answers.EventPage),
    Operation("secret/list", "secrets.list_secrets", READ, "GET /secrets", takes.NoArguments, answers.SecretList),
    Operation(
        "signing/key", "secrets.get_signing_key", ADMIN, "GET /signing-key", takes.NoArguments, answers.SigningKey
    ),
    Operation(
        "event/match",
        "events.match_events",
        READ,
        "POST /events/match",
        takes.MatchRequest,
        answers.Matched,
        body=Body.REQUIRED,
    ),
    Operation(
        "trigger/list", "schedules.list_triggers", READ, "GET /triggers", takes.TriggerQuery, answers.TriggerPage
    ),
    Operation("upload/list", "uploads.list_uploads", READ, "GET /uploads", takes.PageQuery, answers.UploadPage),
    Operation("key/list", "keys.list_keys", ADMIN, "GET /keys", takes.KeyQuery, answers.KeyPage),
    Operation("whoami", "keys.who_am_i", None, "GET /whoami", takes.NoArguments, answers.Identity),
    Operation("limits/get", "limits.get_limits", None, "GET /limits", takes.NoArguments, answers.LimitList),
    Operation("schedule/tools", "tools.list_tools", None, "GET /schedule/tools", takes.NoArguments, answers.ToolList),
    Operation(
        CALLS_TOOL,
        "tools.call_tool",
        None,
        "POST /schedule/call",
        takes.ToolCall,
        answers.ToolResult,
        body=Body.REQUIRED,
        is_repeatable=False,
    ),
    Operation("node/list", "nodes.list_nodes", READ, "GET /nodes", takes.NoArguments, answers.NodeList, is_global=True),
    Operation("doctor", "doctor.examine", ADMIN, "GET /doctor", takes.DoctorRequest, answers.Diagnosis, is_global=True),
    Operation("timeline", "timeline.get_timeline", READ, "GET /timeline", takes.TimelineQuery, answers.Timeline),
    Operation("overview", "overview.get_overview", READ, "GET /overview", takes.OverviewQuery, answers.Overview),
    Operation("workload", "workload.get_workload", READ, "GET /workload", takes.WorkloadQuery, answers.Workload),
    Operation("audit/list", "service.list_audit_entries", READ, "GET /audit", takes.AuditQuery, answers.AuditPage),
    Operation(
        "worker/status",
        "nodes.get_worker_status",
        READ,
        "GET /worker/status",
        takes.NoArguments,
        answers.WorkerStatus,
        is_global=True,
    ),
)

OPERATIONS: Mapping[str, Operation] = {row.name: row for row in _ROWS}


STREAMED = {"bundle/push": "POST /bundles", "upload/create": "POST /uploads"}
"""What has a route of its own and is no operation: a file is stored as it arrives, in chunks."""


def perform(service: Service, caller: Caller, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Check the arguments of an operation, perform it, and return its answer as JSON."""
    return create_alone(service.store, perform_in_steps(service, caller, name, arguments))


def perform_in_steps(
    service: Service, caller: Caller, name: str, arguments: Mapping[str, Any]
) -> Creation[dict[str, Any]]:
    """The same; an operation that creates a schedule yields its plan."""
    operation = OPERATIONS.get(name)
    if operation is None:
        streamed = f": files are not JSON; send it to {STREAMED[name]}" if name in STREAMED else ""
        raise MethodNotFound(f"there is no operation {shown(name)}{streamed}", field="method")
    check_access(operation, caller)
    if operation.is_change and name != CALLS_TOOL and not name.startswith("worker/"):
        check_clock(service)
    with hidden_cause_from(caller):
        if service.traces is None:
            answer = yield from _call(operation, service, caller, arguments)
        else:
            with service.traces.operation(name) as link_to:
                answer = yield from _call(operation, service, caller, arguments)
                link_to(answer)
    if operation.is_change and name != CALLS_TOOL:
        service.changed(change_by(caller, name, arguments, answer))
    return answer


def _call(
    operation: Operation, service: Service, caller: Caller, arguments: Mapping[str, Any]
) -> Creation[dict[str, Any]]:
    model = operation.arguments
    read = arguments if model.is_document else model.read(arguments)
    answer = operation.call_for(caller)(service, evolve(caller, operation=operation.name), read)
    return answer if isinstance(answer, dict) else (yield from answer)


def check_access(operation: Operation, caller: Caller) -> None:
    """Refuse a caller whose key does not allow the operation."""
    may_propose = operation.proposed is not None and caller.may_only_propose
    if operation.scope is not None and not may_propose:
        check_scope(operation.name, operation.scope, caller)
    if operation.is_global:
        check_all_tenants(operation.name, caller)


def check_scope(name: str, scope: Scope, caller: Caller) -> None:
    """Refuse a caller whose key does not have a scope."""
    if scope not in caller.scopes:
        held = ", ".join(one for one in Scope if one in caller.scopes) or "none"
        raise MissingScope(f"{name} needs the scope {scope}; this key has {held}")


def check_all_tenants(name: str, caller: Caller) -> None:
    """Refuse a caller whose key is of one tenant."""
    if not caller.is_root:
        raise NotAllowed(f"{name} concerns all tenants and needs a key of tenant *")


def check_clock(service: Service) -> None:
    """Refuse changes while the store's time may be wrong: what they schedule could lie years away."""
    ahead = None if service.worker is None else service.worker.clock_ahead
    if ahead is not None:
        raise StoreUnavailable(
            f"the store's time leapt ahead by {ahead // SECOND} s; changes are refused until it returns, has run on for"
            " a lease, or an operator confirms it with `noonmark worker confirm-time`; try again later"
        )
