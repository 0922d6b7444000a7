"""The arguments of every operation."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import Annotated, Any, ClassVar

from noonmark.core.agents.session import SessionState
from noonmark.core.api_key import MAX_NAME, Scope, scopes_of, tenant_or_all
from noonmark.core.budgets.budget import BudgetScope, Period, WhenExhausted
from noonmark.core.budgets.reported import MAX_CALLS, MAX_TOKENS, MAX_USD, dollars
from noonmark.core.documents import named, one_of
from noonmark.core.lifecycle import MarkState, Phase, SchedulePhase
from noonmark.core.local_spans import LocalUnit
from noonmark.core.reasons import Reason as OccurrenceReason
from noonmark.operations.models.fields import (
    ID_SCHEMA,
    MAX_INTEGER,
    MAX_LABEL,
    MAX_PAGE,
    OBJECT,
    Arguments,
    Boolean,
    EventType,
    Id,
    Instant,
    Json,
    Kind,
    Labels,
    Name,
    Object,
    PageSize,
    Policy,
    Reason,
    cursor,
    identifiers,
    integer,
    json_object,
    number,
    objects,
    raw,
    several,
    text,
)
from noonmark.ports.budgets import UsageBy
from noonmark.ports.workflows import ApprovalState

USUAL_PAGE = 100
USUAL_PREVIEW, MAX_PREVIEW = 5, 1_000
USUAL_BACKFILL, MAX_BACKFILL = 1_000, 10_000
"""How many fires one backfill runs."""
USUAL_REDRIVE, MAX_REDRIVE = 1_000, 10_000
"""How many occurrences one request runs again."""
USUAL_SELECTED, MAX_SELECTED = 1_000, 10_000
"""How many schedules one request acts on."""
MAX_CRONTAB = 65_536
MAX_CHECKED = 100
"""How many schedules one request checks."""
USUAL_ROWS, MAX_ROWS = 100_000, 10_000_000
USUAL_WORKLOAD, MAX_WORKLOAD = 20, 100
USUAL_MARKS, MAX_MARKS = 200, 2_000
"""How many marks a row of a timeline has."""
USUAL_BUCKETS, MAX_BUCKETS = 96, 1_000
USUAL_TIMELINES, MAX_TIMELINES = 20, 100
MAX_OUTCOMES = 30
"""How many of its last outcomes a schedule in a list has."""
MAX_OFFSET = 10_000
MAX_KEY = 255
KINDS = {
    "periodic": ("interval", "cron", "calendar"),
    "delayed": ("once",),
    "event": ("event",),
    **{one: (one,) for one in ("once", "interval", "cron", "calendar")},
    "dependent": ("",),
}
"""The kinds of schedules that a list can be filtered by, and the types of trigger they stand for."""

Text = Annotated[Any, raw({"type": "string"})]
Label = Annotated[str, text(high=MAX_LABEL)]
Revision = Annotated[int, integer()]
Offset = Annotated[int, integer(0, MAX_OFFSET)]
IdCursor = Annotated[tuple[str], cursor(str)]
TimeCursor = Annotated[tuple[int], cursor(int)]
TimeIdCursor = Annotated[tuple[int, str], cursor(int, str)]
SecretName = Annotated[str, raw({"type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}$"})]
Flag = Annotated[Any, raw({"type": "boolean"})]
Key = Annotated[Any, raw({"type": "string", "minLength": 1, "maxLength": MAX_KEY})]
Seconds = Annotated[Any, raw({"type": "number", "minimum": 0.001, "maximum": 3_155_760_000})]
Failures = Annotated[Any, raw({"type": "integer", "minimum": 0, "maximum": MAX_INTEGER})]
Count = Annotated[Any, raw({"type": "integer", "minimum": 1, "maximum": MAX_INTEGER})]
ScheduleIds = Annotated[list[str], Kind(identifiers, {"type": "array", "items": ID_SCHEMA, "maxItems": MAX_PAGE})]
SchedulePhases = Annotated[list[SchedulePhase], several(named(SchedulePhase))]
Phases = Annotated[list[Phase], several(named(Phase))]
Reasons = Annotated[list[OccurrenceReason], several(named(OccurrenceReason))]
TenantName = Annotated[
    str, Kind(tenant_or_all, {"type": "string", "pattern": "^([A-Za-z0-9_-][A-Za-z0-9._-]{0,62}|[*])$"})
]
KeyId = Annotated[str, text(high=128)]
Scopes = Annotated[
    frozenset[Scope],
    Kind(
        scopes_of,
        {
            "anyOf": [
                {"type": "array", "items": {"enum": list(Scope)}, "minItems": 1, "maxItems": 10},
                {"type": "string"},
            ]
        },
    ),
]
Lifetime = Annotated[float, number(1, 3_155_760_000)]
Version = Annotated[int, integer(1)]
ApprovalStateName = Annotated[
    ApprovalState, Kind(partial(one_of, allowed=named(ApprovalState)), {"enum": list(ApprovalState)})
]
BUDGETED = {str(scope): scope for scope in BudgetScope if scope is not BudgetScope.RUN}
"""The scopes of stored budgets; the budget of a run is declared by its schedule."""
BudgetScopeName = Annotated[
    BudgetScope, Kind(partial(one_of, allowed=BUDGETED), {"type": "string", "enum": list(BUDGETED)})
]
PeriodName = Annotated[Period, Kind(partial(one_of, allowed=named(Period)), {"type": "string", "enum": list(Period)})]
WhenExhaustedName = Annotated[
    WhenExhausted,
    Kind(partial(one_of, allowed=named(WhenExhausted)), {"type": "string", "enum": list(WhenExhausted)}),
]
UsageByName = Annotated[
    UsageBy, Kind(partial(one_of, allowed=named(UsageBy)), {"type": "string", "enum": list(UsageBy)})
]


def _zone_name(value: object) -> str:
    from noonmark.core.triggers.zones import load_zone  # noqa: PLC0415 - a client that reads this module needs no zones

    return load_zone(value).name


ZoneName = Annotated[
    str, Kind(_zone_name, {"type": "string", "minLength": 1, "maxLength": 64, "examples": ["Europe/Stockholm"]})
]


class TimelineBy(StrEnum):
    """What has a row of a timeline."""

    SCHEDULE = "schedule"
    ALL = "all"


TimelineByName = Annotated[
    TimelineBy, Kind(partial(one_of, allowed=named(TimelineBy)), {"type": "string", "enum": list(TimelineBy)})
]
UnitName = Annotated[
    LocalUnit, Kind(partial(one_of, allowed=named(LocalUnit)), {"type": "string", "enum": list(LocalUnit)})
]
LastStates = Annotated[
    list[MarkState], several({str(one): one for one in (MarkState.COMPLETED, MarkState.FAILED, MarkState.SKIPPED)})
]
Dollars = Annotated[int, Kind(dollars, {"type": "number", "minimum": 0, "maximum": MAX_USD})]
"""Read as nano-dollars."""
Tokens = Annotated[int, integer(0, MAX_TOKENS)]
Calls = Annotated[int, integer(0, MAX_CALLS)]
BudgetCursor = Annotated[tuple[str, str, str], cursor(str, str, str)]
SessionStateName = Annotated[
    SessionState, Kind(partial(one_of, allowed=named(SessionState)), {"enum": list(SessionState)})
]
Array = Annotated[Any, raw({"type": "array"})]
MobName = Annotated[Any, raw({"type": "string", "pattern": "^[A-Za-z0-9._-]{1,60}$"})]
TriggerKinds = Annotated[list[str], several({name: name for name in KINDS})]


class NoArguments(Arguments):
    """No arguments."""


class ScheduleFields(Arguments):
    """What a schedule declares."""

    is_document: ClassVar[bool] = True

    name: Name | None = None
    trigger: Object | None = None
    """When it fires: an object whose `type` is once, interval, cron, calendar or event."""
    target: Object | None = None
    """What it runs: an object whose `target_kind` is function, http, command, workflow, bundle, event, session, mob,
    task or ping."""
    description: Annotated[str, text(0, 10_000)] | None = None
    labels: Labels | None = None
    overlap_policy: Policy | None = None
    """skip, queue, queue_one, allow, cancel_running or terminate."""
    misfire_policy: Policy | None = None
    """skip, catch_up_one, catch_up_all, catch_up_within or spread."""
    missing_target_policy: Text | None = None
    """mark_misfired or skip."""
    retry_policy: Object | None = None
    timeout_seconds: Seconds | None = None
    expected_seconds: Seconds | None = None
    """How long a run usually takes; one that takes longer is reported, and goes on."""
    expected_rate: Object | None = None
    """`at_least` successes and `at_most` starts `per_seconds`; what deviates is reported."""
    window: Object | None = None
    delivery: Text | None = None
    """at_least_once or at_most_once."""
    pause_on_failure: Failures | None = None
    runaway: Object | None = None
    """Pause it beyond `max_fires_per_hour`, `max_spend_factor` and `max_identical_results`; 0 turns a rule off."""
    concurrency_key: Name | None = None
    concurrency_limit: Annotated[int, integer(1, 100_000)] | None = None
    depends_on: Annotated[Any, raw({"type": "array", "items": OBJECT, "maxItems": 100})] | None = None
    budget: Object | None = None
    """`max_cost_usd`, `max_tokens`, `max_model_calls` and `max_tool_calls` of one run."""
    max_runs: Count | None = None
    ping_urls: Object | None = None
    """URLs that are called when an occurrence starts (`start`), succeeds (`success`) and fails (`failure`)."""
    accepts_payload: Flag | None = None
    """Whether a run may bring a payload although a program declared the function; only a program can set this then."""
    planning_horizon_days: Annotated[int, integer(1, 366)] | None = None
    planning_horizon_occurrences: Annotated[int, integer(1, 64)] | None = None
    enabled: Flag | None = None


class NewSchedule(ScheduleFields):
    """A schedule to create."""

    target: Object
    """What it runs: an object whose `target_kind` is function, http, command, workflow, bundle, event, session, mob,
    task or ping."""
    schedule_id: Id | None = None
    user_id: Name | None = None
    """The owner: the caller, unless an admin names someone else."""
    idempotency_key: Key | None = None
    prohibit_overlap: Flag | None = None
    """Another way to say the overlap policy: true is skip, false is allow."""


class OneSchedule(Arguments):
    """A schedule by its id."""

    schedule_id: Id


class ExpectedSchedule(OneSchedule):
    """A schedule as the caller has read it; a change is refused if it has changed since."""

    expected_revision: Revision | None = None
    expected_updated_at_utc: Instant | None = None


class ScheduleUpdate(ScheduleFields, ExpectedSchedule):
    """The fields of a schedule to change; null resets a field."""


class ScheduleAction(OneSchedule):
    """What pauses or resumes a schedule."""

    reason: Reason | None = None
    """Recorded in the audit log."""
    expected_revision: Revision | None = None
    expected_updated_at_utc: Instant | None = None


class PauseRequest(ScheduleAction):
    """What pauses a schedule."""

    until: Instant | None = None
    """When it resumes automatically; by default never."""


class Deletion(ScheduleAction):
    """What deletes a schedule."""

    stop_running: Boolean = False
    """Ask its runs to stop, suspended ones too."""


class RunRequest(OneSchedule):
    """A run to start now."""

    payload: Json | None = None
    overlap: Policy | None = None
    """The overlap policy of this run alone."""
    key: Name | None = None
    """The same key again returns the same occurrence."""
    reason: Reason | None = None
    """Recorded in the audit log."""


class BackfillRequest(OneSchedule):
    """Past fires to run again, from the first to the last inclusive."""

    from_: Instant
    to: Instant
    dry_run: Boolean = False
    limit: Annotated[int, integer(1, MAX_BACKFILL)] = USUAL_BACKFILL
    concurrency: Annotated[int, integer(1, 1_000)] | None = None
    key: Name | None = None
    """The same key again runs nothing twice."""


class OneBackfill(OneSchedule):
    """A backfill of a schedule by its id."""

    backfill_id: Name


class BackfillAction(OneBackfill):
    """What pauses, resumes or cancels a backfill."""

    reason: Reason | None = None
    """Recorded in the audit log."""


class ScheduleLookup(OneSchedule):
    """The schedule to get."""

    include_deleted: Boolean = False


class ScheduleFilters(Arguments):
    """Filters; a schedule must match all of them."""

    phase: SchedulePhases | None = None
    kind: TriggerKinds | None = None
    label: Label | None = None
    """`name=value`."""
    labels: Labels = {}  # noqa: RUF012 - a field, and never changed
    owner: Name | None = None
    text: Name | None = None
    name: Name | None = None
    route: Name | None = None
    include_deleted: Boolean = False
    next_after: Instant | None = None
    """It is next due by its trigger at this instant or later."""
    next_before: Instant | None = None
    """It is next due by its trigger before this instant."""
    last_phase: Phases | None = None
    """Its last occurrence that ended did so in one of these phases."""
    last_state: LastStates | None = None
    """The same in one word: completed, failed or skipped."""


class ScheduleSelection(Arguments):
    """Filters that select the schedules to act on; a schedule must match all of them, and there must be one."""

    phase: SchedulePhases | None = None
    kind: TriggerKinds | None = None
    label: Label | None = None
    """`name=value`."""
    labels: Labels = {}  # noqa: RUF012 - a field, and never changed
    owner: Name | None = None
    text: Name | None = None
    name: Name | None = None
    route: Name | None = None
    schedule_ids: ScheduleIds | None = None
    """These schedules, instead of filters."""
    limit: Annotated[int, integer(1, MAX_SELECTED)] = USUAL_SELECTED
    """A selection of more schedules is refused."""
    dry_run: Boolean = False
    """Only report the selection."""
    reason: Reason | None = None
    """Recorded in the audit log."""


class SelectionPause(ScheduleSelection):
    """The schedules to pause."""

    until: Instant | None = None
    """When they resume by themselves; default: when they are resumed."""


class SelectionDeletion(ScheduleSelection):
    """The schedules to delete."""

    stop_running: Boolean = False
    """Ask their runs to stop, suspended ones too."""


class SelectionRun(ScheduleSelection):
    """The schedules to run now."""

    payload: Json | None = None
    overlap: Policy | None = None
    """The overlap policy of these runs alone."""
    key: Name | None = None
    """The same key again runs nothing twice."""


class SelectionLabels(ScheduleSelection):
    """The schedules to label."""

    set_labels: Labels
    """Added to the labels of each; an empty value removes one."""


class ScheduleQuery(ScheduleFilters):
    """The schedules to list."""

    workflow_id: Name | None = None
    outcomes: Annotated[int, integer(0, MAX_OUTCOMES)] = 0
    """How many of its last outcomes each schedule has."""
    newest_first: Boolean = False
    limit: PageSize = USUAL_PAGE
    offset: Offset = 0
    cursor: IdCursor | None = None


class TriggerQuery(Arguments):
    """The event-triggered schedules to list."""

    event_type: EventType | None = None
    phase: SchedulePhases | None = None
    label: Label | None = None
    """`name=value`."""
    labels: Labels = {}  # noqa: RUF012 - a field, and never changed
    owner: Name | None = None
    text: Name | None = None
    name: Name | None = None
    route: Name | None = None
    include_deleted: Boolean = False
    newest_first: Boolean = False
    limit: PageSize = USUAL_PAGE
    offset: Offset = 0
    cursor: IdCursor | None = None


class PreviewRequest(Arguments):
    """A schedule or a trigger whose next fires are wanted."""

    schedule_id: Id | None = None
    trigger: Object | None = None
    target: Object | None = None
    """With a trigger: what it would start, to learn whether a live node serves it."""
    changes: Object | None = None
    """With a schedule: fields as in an update, to learn what they would change."""
    after: Instant | None = None
    count: Annotated[int, integer(1, MAX_PREVIEW)] = USUAL_PREVIEW
    key: Annotated[str, text(0)] = ""
    """What `H` in a cron expression hashes."""


class ScheduleCheck(Arguments):
    """Schedules that would be created or changed."""

    schedules: Annotated[list[dict[str, Any]], objects(MAX_CHECKED)]
    """Documents of schedules. One with the `schedule_id` of a schedule has the fields that would change."""


class CrontabText(Arguments):
    """A crontab to read."""

    text: Annotated[str, text(1, MAX_CRONTAB, multiline=True)]
    timezone: Annotated[str, text(1)] = "UTC"
    """The zone of lines without a CRON_TZ above them."""
    has_user: Boolean = False
    """Whether a user stands before each command, as in /etc/crontab."""


class OccurrenceQuery(OneSchedule):
    """The occurrences to list."""

    include_terminal: Boolean = True
    phase: Phases | None = None
    limit: PageSize = USUAL_PAGE
    cursor: TimeIdCursor | None = None


class OccurrenceFilters(Arguments):
    """Filters over the occurrences of all schedules; an occurrence must match all of them."""

    phase: Phases | None = None
    reason: Reasons | None = None
    """Why it is in its phase, such as overlap or target_missing."""
    schedule_id: Id | None = None
    label: Label | None = None
    """A label of its schedule: `name=value`."""
    labels: Labels = {}  # noqa: RUF012 - a field, and never changed
    since: Instant | None = None
    """It ended at this instant or later; as long as it has not ended, its due time counts."""
    until: Instant | None = None
    """It ended at this instant or earlier."""


class OccurrenceSearch(OccurrenceFilters):
    """The occurrences to find, across schedules."""

    limit: PageSize = USUAL_PAGE
    cursor: TimeIdCursor | None = None


class RedriveRequest(OccurrenceFilters):
    """The occurrence to run again; or filters that select ended ones: failures, unless `phase` says others."""

    occurrence_id: Id | None = None
    limit: Annotated[int, integer(1, MAX_REDRIVE)] = USUAL_REDRIVE
    """A selection of more occurrences is refused."""
    dry_run: Boolean = False
    comment: Reason | None = None
    """Recorded in the audit log."""


class RunQuery(OneSchedule):
    """The runs to list."""

    limit: PageSize = USUAL_PAGE
    cursor: TimeIdCursor | None = None


class ExplainRequest(OneSchedule):
    """The instant to explain; without one, the last occurrence."""

    at: Instant | None = None


class OneOccurrence(Arguments):
    """An occurrence by its id."""

    occurrence_id: Id


class UsageReport(Arguments):
    """What a run has used. A cost that is missing is unknown."""

    model: Name | None = None
    provider: Name | None = None
    input_tokens: Tokens = 0
    output_tokens: Tokens = 0
    cache_read_tokens: Tokens = 0
    cache_write_tokens: Tokens = 0
    tokens: Tokens = 0
    """Tokens that are not told apart, instead of the others."""
    model_calls: Calls = 1
    tool_calls: Calls = 0
    cost_usd: Dollars | None = None


class Completion(OneOccurrence):
    """The result of an occurrence that awaits its completion."""

    result: Json | None = None
    usage: UsageReport | None = None
    token: Name | None = None
    """Proves that the caller has the work."""


class Failure(OneOccurrence):
    """The error of an occurrence that awaits its completion."""

    error: Annotated[str, text(high=65_536, multiline=True)] = "reported as failed"
    usage: UsageReport | None = None
    token: Name | None = None
    """Proves that the caller has the work."""


class Cancellation(OneOccurrence):
    """The occurrence to cancel."""

    reason: Reason | None = None
    """Recorded in the audit log."""


class OneRun(Arguments):
    """A run by its id."""

    run_id: Id


class NewEvent(Arguments):
    """An event to emit."""

    is_document: ClassVar[bool] = True

    event_type: EventType
    payload: Json | None = None
    source: Annotated[str, text(0)] | None = None
    """Who emits it: anything but `noonmark`, the source of system events."""
    event_id: Id | None = None
    """The same id again is the same event."""


class EventQuery(Arguments):
    """The events to list."""

    event_type: EventType | None = None
    limit: PageSize = USUAL_PAGE
    cursor: TimeCursor | None = None


_EVENT_TYPES = {
    "anyOf": [
        EventType.__metadata__[0].schema,  # type: ignore[attr-defined] # of Annotated
        {"type": "array", "items": EventType.__metadata__[0].schema, "minItems": 1, "maxItems": 100},  # type: ignore[attr-defined]
    ]
}


class MatchRequest(Arguments):
    """What to match events with: filters, perhaps for some event types; a trigger; or a schedule."""

    event_type: Annotated[Any, raw(_EVENT_TYPES)] | None = None
    """All types, if absent."""
    filters: Annotated[Any, raw(OBJECT, maxProperties=100)] | None = None
    limit: Annotated[int, integer(1, MAX_PAGE)] = USUAL_PAGE
    """How many of the newest events are checked: 100 by default."""
    event: Object | None = None
    """A draft of an event to check instead of the stored ones."""
    trigger: Object | None = None
    """An event trigger, instead of filters."""
    schedule_id: Id | None = None
    """A schedule with an event trigger, instead of filters."""


class NewSecret(Arguments):
    """A secret, and the hosts that may receive it."""

    is_document: ClassVar[bool] = True

    name: SecretName
    value: Annotated[
        str,
        raw(
            {
                "type": "string",
                "minLength": 4,
                "maxLength": 8_192,
                "pattern": "^[!-~]([ -~]*[!-~])?$",
                "writeOnly": True,
            }
        ),
    ]
    """The whole value of the header that carries it. No answer contains it."""
    hosts: Annotated[
        list[str],
        raw(
            {
                "type": "array",
                "items": {"type": "string", "examples": ["api.example.com"]},
                "maxItems": 20,
            }
        ),
    ] = []  # noqa: RUF012 - only shown
    """Where requests may take it: api.example.com, api.example.com:8443, or *.example.com for all subdomains."""
    programs: Annotated[
        list[str],
        raw(
            {
                "type": "array",
                "items": {"type": "string", "examples": ["bundle:eval"]},
                "maxItems": 20,
            }
        ),
    ] = []  # noqa: RUF012 - likewise
    """Programs that may get it in their environment: what a command starts with, or `bundle:` and the id of a bundle.

    There must be a host or a program."""


class OneSecret(Arguments):
    """A secret by its name."""

    is_document: ClassVar[bool] = True

    name: SecretName


class NewWorkflow(Arguments):
    """A version of a workflow. Versions never change."""

    is_document: ClassVar[bool] = True

    workflow_id: Id
    version: Count | None = None
    """Default: the next number. The same definition as the newest version is that version."""
    name: Name | None = None
    description: Annotated[str, text(0, 10_000)] | None = None
    inputs: Object | None = None
    """The inputs by name: a default, or an object with `type`, `default`, `required` and `description`. Without it, any
    inputs are accepted."""
    steps: Annotated[Any, raw({"type": "array", "items": OBJECT, "minItems": 1, "maxItems": 1_000})]
    """The steps, each with an `id` and one of `target`, `wait` and `approval`."""
    on_failure: Text | None = None
    """stop or continue."""


class OneWorkflow(Arguments):
    """A workflow by its id."""

    workflow_id: Id


class WorkflowLookup(OneWorkflow):
    """The version of a workflow to get."""

    version: Version | None = None
    """Default: the newest."""


class WorkflowQuery(Arguments):
    """The workflows to list."""

    limit: PageSize = USUAL_PAGE
    cursor: IdCursor | None = None


class WorkflowVersionQuery(OneWorkflow):
    """The versions of a workflow to list."""

    limit: PageSize = USUAL_PAGE
    cursor: TimeCursor | None = None


class WorkflowDeletion(OneWorkflow):
    """The workflow to delete."""

    reason: Reason | None = None
    """Recorded in the audit log."""


class WorkflowRunRequest(OneWorkflow):
    """A run of a workflow to start now."""

    inputs: Annotated[dict[str, Any], Kind(json_object, OBJECT)] | None = None
    version: Version | None = None
    """Default: the newest."""
    payload: Json | None = None
    """What steps find as `{{ payload }}`."""
    key: Name | None = None
    """The same key again returns the same run."""
    reason: Reason | None = None
    """Recorded in the audit log."""


class OneWorkflowRun(Arguments):
    """A run of a workflow by its id, which is the id of its occurrence."""

    workflow_run_id: Id


class WorkflowRunQuery(Arguments):
    """The runs of workflows to list."""

    workflow_id: Id | None = None
    phase: Phases | None = None
    limit: PageSize = USUAL_PAGE
    cursor: TimeIdCursor | None = None


class WorkflowRunCancellation(OneWorkflowRun):
    """The run of a workflow to cancel."""

    reason: Reason | None = None
    """Recorded in the audit log."""


class ApprovalQuery(Arguments):
    """The approvals to list."""

    state: ApprovalStateName = ApprovalState.PENDING
    """pending, approved, denied, expired or cancelled."""
    limit: PageSize = USUAL_PAGE
    cursor: TimeIdCursor | None = None


class Decision(Arguments):
    """The decision about an approval."""

    approval_id: Id
    comment: Reason | None = None
    """Stored with the decision."""


class ProposalDecision(OneSchedule):
    """The decision about a proposal."""

    comment: Reason | None = None
    """Recorded in the audit log."""


class PageOfProposals(Arguments):
    """The proposals to list."""

    limit: PageSize = USUAL_PAGE
    cursor: TimeIdCursor | None = None


class OneBudget(Arguments):
    """Whose budget it is."""

    scope: BudgetScopeName
    """tenant, user, schedule or session."""
    id_: Name
    """The id of the schedule or the session, or the name of the user or the tenant."""


class NewBudget(OneBudget):
    """What a user, a schedule, a session or the tenant may spend in a period."""

    period: PeriodName
    """day or month, those of UTC, or total."""
    max_cost_usd: Dollars | None = None
    max_tokens: Tokens | None = None
    """There must be a limit on the cost, on tokens, or on both."""
    hard: Boolean | None = None
    """Whether nothing goes beyond it; by default true, unless `require_approval` is."""
    warning_threshold: Annotated[float, number(0.01, 1)] = 0.8
    """The share of it at which the event `budget.threshold` is emitted."""
    require_approval: Boolean = False
    """Whether a run that would go beyond a soft limit waits until somebody approves it."""
    when_exhausted: WhenExhaustedName = WhenExhausted.SKIP
    """What happens to a schedule that finds a hard budget used up: skip its occurrence, pause the schedule, or
    pause_until_next_period."""


class BudgetDeletion(OneBudget):
    """The budget to delete."""

    period: PeriodName | None = None
    """Default: the budgets of all periods."""


class BudgetQuery(Arguments):
    """The budgets to list."""

    scope: BudgetScopeName | None = None
    id_: Name | None = None
    limit: PageSize = USUAL_PAGE
    cursor: BudgetCursor | None = None


class HaltRequest(Arguments):
    """What to halt."""

    labels: Labels = {}  # noqa: RUF012 - a field, and never changed
    """Only schedules with all of these labels; default: everything of the tenant."""
    lineage: Name | None = None
    """Only the session or the schedule with this id, and every schedule and session that it made, directly or not."""
    reason: Reason | None = None


class LiftRequest(Arguments):
    """The halts to lift."""

    halt_id: Name | None = None
    """Default: those with exactly these labels, or this lineage."""
    labels: Labels = {}  # noqa: RUF012 - a field, and never changed
    lineage: Name | None = None
    reason: Reason | None = None


class HaltQuery(Arguments):
    """The halts of the tenant."""


class UsageQuery(Arguments):
    """The usage to report."""

    by: UsageByName = UsageBy.USER
    """user, schedule, session, model or day."""
    from_: Instant | None = None
    """Default: the beginning of the UTC month."""
    to: Instant | None = None
    """Default: now."""
    user: Name | None = None
    schedule_id: Id | None = None
    limit: PageSize = USUAL_PAGE
    """How many groups are reported; the total is of all."""


class NewUsage(UsageReport):
    """Usage to record."""

    idempotency_key: Name
    """The same key again is the same usage."""
    user: Name | None = None
    """By default the owner of the schedule or the session, or else the caller; an administrator may name another."""
    schedule_id: Id | None = None
    session_id: Id | None = None
    occurrence_id: Id | None = None
    at: Instant | None = None
    """When it was used; default: now."""


class ForecastQuery(Arguments):
    """The schedules whose cost is wanted."""

    schedule_id: Id | None = None
    """Default: those with usage within the last 31 days."""
    limit: PageSize = USUAL_PAGE


class NewSession(Arguments):
    """A session to create: a conversation with an agent."""

    is_document: ClassVar[bool] = True

    session_id: Id | None = None
    """Default: one is drawn. `schedule:` and `mob:` are for the sessions that schedules and mobs create."""
    model: Name | None = None
    """Such as `openai:gpt-5`; `test` answers without a provider. Default: that of the server, if it has one."""
    system_prompt: Text | None = None
    labels: Labels | None = None
    max_tokens: Count | None = None
    """The most tokens of one answer."""
    provider: Text | None = None
    """anthropic, openai, gemini or other."""
    output_schema: Object | None = None
    """A JSON Schema: the answer of each turn is a value that fits it."""
    structured_output_retries: Annotated[Any, raw({"type": "integer", "minimum": 0, "maximum": 100})] | None = None
    provider_params: Object | None = None
    preload_skills: Array | None = None
    """Skills that every turn has, by name."""
    additional_instructions: Array | None = None
    tool_access_policy: Object | None = None
    """An object with a `type` (inherit, allow_list or deny_list), and the names of tools as its `value`."""
    comms_name: Name | None = None
    peer_meta: Object | None = None
    realm_id: Name | None = None
    instance_id: Name | None = None
    backend: Name | None = None
    config_generation: Annotated[Any, raw({"type": "integer", "minimum": 0})] | None = None
    keep_alive: Flag | None = None
    enable_schedule: Flag | None = None
    """Whether its agent has the tools with which it makes schedules of its own."""
    app_context: Json | None = None


class OneSession(Arguments):
    """A session by its id."""

    session_id: Id


class SessionQuery(Arguments):
    """The sessions to list."""

    state: SessionStateName | None = None
    """idle, active, suspended or archived."""
    label: Label | None = None
    """`name=value`."""
    labels: Labels = {}  # noqa: RUF012 - a field, and never changed
    owner: Name | None = None
    mob_id: Id | None = None
    limit: PageSize = USUAL_PAGE
    cursor: TimeIdCursor | None = None


class MessageQuery(OneSession):
    """The messages to list."""

    after: Annotated[int, integer()] | None = None
    """Only messages with a higher number: those that are new since then."""
    occurrence_id: Id | None = None
    """Only messages of the turn of this occurrence."""
    newest_first: Boolean = False
    limit: PageSize = USUAL_PAGE
    cursor: TimeCursor | None = None


class NewMessage(Arguments):
    """A message to send to a session."""

    is_document: ClassVar[bool] = True

    session_id: Id
    prompt: Annotated[Any, raw({"anyOf": [{"type": "string"}, {"type": "array", "items": OBJECT}]})]
    """Text, or an array of content blocks."""
    system_prompt: Text | None = None
    """Replaces that of the session for this turn."""
    render_metadata: Object | None = None
    skill_refs: Array | None = None
    additional_instructions: Array | None = None
    key: Name | None = None
    """The same key again returns the same occurrence."""


class SessionChange(OneSession):
    """The session to archive or to delete."""

    reason: Reason | None = None
    """Recorded in the audit log."""


class NewMob(Arguments):
    """A mob to create: a named group of agents."""

    is_document: ClassVar[bool] = True

    mob_id: MobName
    members: Annotated[Any, raw({"type": "array", "items": OBJECT, "minItems": 1, "maxItems": 100})]
    """Each has a `member_id`, a `model`, perhaps a `role`, and whatever else a session is created with."""
    flows: Object | None = None
    """By id: workflows whose steps have a `member_id` and a `prompt` in place of a target."""


class OneMob(Arguments):
    """A mob by its id."""

    mob_id: Id


class MobQuery(Arguments):
    """The mobs to list."""

    limit: PageSize = USUAL_PAGE
    cursor: IdCursor | None = None


class MobDeletion(OneMob):
    """The mob to delete."""

    reason: Reason | None = None
    """Recorded in the audit log."""


class PageQuery(Arguments):
    """A page of a list."""

    limit: PageSize = USUAL_PAGE
    cursor: TimeIdCursor | None = None


class OneUpload(Arguments):
    """An upload by its id."""

    upload_id: Id


class OneBundle(Arguments):
    """A bundle by its id."""

    bundle_id: Id


class BundleQuery(Arguments):
    """A page of bundles."""

    limit: PageSize = USUAL_PAGE
    cursor: Name | None = None


class BundleRun(OneBundle):
    """A run of a bundle to start now."""

    payload: Json | None = None
    key: Name | None = None
    """The same key again returns the same occurrence."""


class TimelineQuery(ScheduleFilters):
    """The part of the timeline to show, and filters; a schedule must match all of them."""

    from_: Instant | None = None
    """Default: six hours ago."""
    to: Instant | None = None
    """Default: six hours from now, or after `from` if that is later. At most 400 days after `from`."""
    by: TimelineByName = TimelineBy.SCHEDULE
    """schedule: one row for each schedule; all: one row for all of them."""
    schedule_id: Id | None = None
    """This schedule alone, even if it is deleted; the filters are not asked then."""
    max_marks: Annotated[int, integer(0, MAX_MARKS)] = USUAL_MARKS
    """A row with more marks has buckets instead; so have the rows after 10,000 marks in all."""
    buckets: Annotated[int, integer(1, MAX_BUCKETS)] = USUAL_BUCKETS
    """Into how many buckets the time is divided, at most; none is shorter than a second."""
    limit: Annotated[int, integer(1, MAX_TIMELINES)] = USUAL_TIMELINES
    """How many rows a page has."""
    cursor: TimeIdCursor | None = None


class RevisionQuery(OneSchedule):
    """The schedule whose revisions to list; it may be deleted."""

    limit: PageSize = USUAL_PAGE
    cursor: IdCursor | None = None


class TrendQuery(OneSchedule):
    """The stretch of time, and how it is divided."""

    from_: Instant | None = None
    """Default: 30 units before `to`."""
    to: Instant | None = None
    """Default: now. The unit in which it lies is there as a whole."""
    unit: UnitName = LocalUnit.DAY
    """hour, day, week (from Monday on) or month."""
    timezone: ZoneName | None = None
    """An IANA name; default: that of the trigger, or else UTC."""


class OverviewQuery(Arguments):
    """In which time zone a day begins."""

    timezone: ZoneName = "UTC"
    """An IANA name."""


class WorkloadQuery(Arguments):
    """How many occurrences of each kind to list."""

    limit: Annotated[int, integer(1, MAX_WORKLOAD)] = USUAL_WORKLOAD


class DoctorRequest(Arguments):
    """How many rows to check."""

    rows: Annotated[int, integer(1, MAX_ROWS)] = USUAL_ROWS


class AuditQuery(Arguments):
    """The audit entries to list."""

    schedule_id: Id | None = None
    limit: PageSize = USUAL_PAGE
    cursor: IdCursor | None = None


class NewKey(Arguments):
    """An API key to create."""

    scopes: Scopes
    """read, write, run, propose and admin, which includes the others; as an array, or as text with commas between."""
    tenant: TenantName | None = None
    """By default the caller's. Only a key of tenant `*` may name another, or `*` for all."""
    user: Annotated[str, text(high=MAX_NAME)] | None = None
    """The owner of what is made with the key; by default `local`."""
    name: Name | None = None
    """What the key is for."""
    expires_in_seconds: Lifetime | None = None
    """By default it does not expire."""
    expires_at_utc: Instant | None = None
    agent: Boolean = False
    """Whether a program that decides by itself uses it, such as an AI agent."""


class KeyQuery(Arguments):
    """The API keys to list."""

    tenant: TenantName | None = None
    limit: PageSize = USUAL_PAGE
    cursor: TimeIdCursor | None = None


class KeyRevocation(Arguments):
    """An API key to revoke."""

    key_id: KeyId
    reason: Reason | None = None


class KeyRotation(KeyRevocation):
    """An API key to replace."""

    grace_seconds: Annotated[float, number(0, 31_557_600)] = 0
    """How long the old key is still good."""
    expires_in_seconds: Lifetime | None = None
    """By default the new key lasts as long as the old one did from its creation."""
    expires_at_utc: Instant | None = None


class ToolCall(Arguments):
    """A tool to call."""

    name: Name
    arguments: Object | None = None
    """As its input schema says."""
