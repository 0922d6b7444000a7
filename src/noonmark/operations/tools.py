"""Tools for agents: a selection of the operations, with schemas and words for a model.

MCP, `schedule/tools` and `schedule/call`, and the tools of a session are made from this table. A tool takes some of
the arguments of its operation and answers with the answer of its operation, cut to a size that a model can read.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from noonmark.core.agents.containment import containment_problem, is_restricted, with_policy
from noonmark.core.errors import InvalidRequest, NotAllowed, PayloadTooLarge
from noonmark.core.frozen import frozen
from noonmark.core.json_values import key_path, shown
from noonmark.core.targets import parse_target
from noonmark.core.targets.session import SessionType
from noonmark.operations import tool_texts
from noonmark.operations.errors import error_document
from noonmark.operations.models.answers import ToolResult
from noonmark.operations.models.schemas import REF, SchemaRegistry
from noonmark.operations.table import OPERATIONS, perform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from noonmark.core.errors import NoonmarkError
    from noonmark.core.instants import Micros
    from noonmark.operations.models.arguments import NoArguments, ToolCall
    from noonmark.operations.service import Caller, Service
    from noonmark.operations.table import Operation

    Render = Callable[[Mapping[str, Any], Micros], str]

ROWS = 20
"""How many entries a list has, unless more are asked for."""
MAX_ROWS = 100
MAX_ARGUMENTS = 1_048_576
"""Characters of the arguments of one call as JSON."""
_TRIGGER = """When it fires. Choose the smallest that fits:
{"type": "once", "delay_seconds": 600} or {"type": "once", "due_at_utc": "2030-01-01T09:00:00Z"};
{"type": "interval", "every_seconds": 3600};
{"type": "cron", "expression": "0 9 * * 1-5", "timezone": "Europe/Stockholm"};
{"type": "calendar", "timezone": "Europe/Stockholm", "hour": {"kind": "values", "values": [9]}, "minute": {"kind": \
"values", "values": [0]}};
{"type": "event", "event_type": "file_uploaded", "filters": {"name": {"suffix": ".csv"}}}.
Cron without a timezone is UTC. Each may have an "end_at_utc"; without it, a schedule of an agent ends by itself, and \
the answer says when."""
_TARGET = """What it runs. Examples:
{"target_kind": "session", "type": "current_session", "action": {"type": "prompt", "prompt": "Check the build."}} for \
this session, where there is one;
{"target_kind": "session", "type": "resumable_session", "session_id": "..", "action": {..}};
{"target_kind": "session", "type": "materialize_on_demand_session", "create": {"model": ".."}, "action": {..}};
{"target_kind": "task", "query": "Summarise the news"}; {"target_kind": "http", "url": "https://..", "method": "POST"};
{"target_kind": "workflow", "workflow_id": ".."}; {"target_kind": "function", "function": ".."};
{"target_kind": "event", "event_type": ".."}; {"target_kind": "mob", "type": "member", "mob_id": "..", "member_id": \
"..", "action": {"type": "send", "content": ".."}}."""
STARTING = frozenset({"schedule/create", "schedule/update", "schedule/resume"})
"""Operations after which an agent expects that something runs."""
NO_NODE = "no node is alive on this store: nothing runs until a server or a program uses it"
CURRENT = "current_session"
"""The type of a session target that stands for the session of the caller."""
TARGET_KINDS = ("session", "task", "http", "workflow", "function", "event", "mob", "bundle", "ping")
"""Tools offer no commands."""
TRIGGER_TYPES = ("once", "interval", "cron", "calendar", "event")
SAID: Mapping[str, Mapping[str, Any]] = {
    "trigger": {
        "type": "object",
        "properties": {"type": {"enum": list(TRIGGER_TYPES)}},
        "required": ["type"],
        "description": _TRIGGER,
    },
    "target": {
        "type": "object",
        "properties": {"target_kind": {"enum": list(TARGET_KINDS)}},
        "required": ["target_kind"],
        "description": _TARGET,
    },
    "schedule_id": {"type": "string", "minLength": 1, "maxLength": 128, "description": "The id of the schedule."},
    "limit": {"type": "integer", "minimum": 1, "maximum": MAX_ROWS, "description": f"Default: {ROWS}."},
    "cursor": {"type": "string", "description": "The next_cursor of the previous answer."},
}
"""Arguments whose schema says more to a model than that of the operation."""
_DECLARED = (
    "name",
    "trigger",
    "target",
    "description",
    "labels",
    "overlap_policy",
    "misfire_policy",
    "missing_target_policy",
    "retry_policy",
    "timeout_seconds",
    "window",
    "pause_on_failure",
    "depends_on",
    "budget",
    "max_runs",
)


@frozen(kw_only=True)
class Tool:
    """One tool."""

    name: str
    operation: str
    title: str
    description: str
    arguments: tuple[str, ...]
    """The arguments of the operation that it offers."""
    render: Render
    required: tuple[str, ...] = ()
    """Arguments that it requires, although the operation does not."""
    is_destructive: bool = False
    is_idempotent: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def row(self) -> Operation:
        """Its row of the table of operations."""
        return OPERATIONS[self.operation]

    @property
    def annotations(self) -> dict[str, Any]:
        """What a client is told about its effects, with the names of MCP."""
        return {
            "title": self.title,
            "readOnlyHint": not self.row.is_change,
            "destructiveHint": self.is_destructive,
            "idempotentHint": self.is_idempotent or not self.row.is_change,
            "openWorldHint": False,
        }


_ROWS = (
    Tool(
        name="noonmark_schedule_create",
        operation="schedule/create",
        title="Create a schedule",
        description="Create a durable schedule: a trigger that says when, and a target that says what runs. List first,"
        " so that there are no duplicates. The answer says when it fires next, and warns of traps such as daylight"
        " saving time.",
        arguments=(*_DECLARED, "schedule_id", "idempotency_key"),
        required=("trigger",),
        render=partial(tool_texts.schedule_text, "Created"),
    ),
    Tool(
        name="noonmark_schedule_propose",
        operation="schedule/propose",
        title="Propose a schedule",
        description="Propose a schedule, which a person approves or denies; until then nothing of it runs. The answer"
        " shows when it would fire, what it would cost, and which schedules do the same. Changes by a key that may only"
        " propose wait for a person too.",
        arguments=(*_DECLARED, "schedule_id", "idempotency_key"),
        required=("trigger",),
        render=partial(tool_texts.schedule_text, "Proposed"),
    ),
    Tool(
        name="noonmark_schedule_get",
        operation="schedule/get",
        title="Get a schedule",
        description="Get one schedule: what it declares, its phase and its next fires.",
        arguments=("schedule_id", "include_deleted"),
        render=partial(tool_texts.schedule_text, "Schedule"),
    ),
    Tool(
        name="noonmark_schedule_list",
        operation="schedule/list",
        title="List schedules",
        description="List schedules that match every filter. Deleted ones are left out, unless they are asked for.",
        arguments=("phase", "kind", "labels", "text", "name", "include_deleted", "newest_first", "limit", "cursor"),
        render=tool_texts.schedules_text,
        defaults={"limit": ROWS},
    ),
    Tool(
        name="noonmark_schedule_update",
        operation="schedule/update",
        title="Change a schedule",
        description="Change some fields of a schedule; what is not given stays. A trigger, a target or a policy is"
        " replaced as a whole.",
        arguments=("schedule_id", *_DECLARED, "expected_revision"),
        render=partial(tool_texts.schedule_text, "Changed"),
        is_destructive=True,
    ),
    Tool(
        name="noonmark_schedule_pause",
        operation="schedule/pause",
        title="Pause a schedule",
        description="Pause a schedule; fires missed meanwhile are recorded as skipped. Prefer this to deleting if it"
        " may be needed again.",
        arguments=("schedule_id", "reason", "until"),
        render=partial(tool_texts.schedule_text, "Paused"),
        is_idempotent=True,
    ),
    Tool(
        name="noonmark_schedule_resume",
        operation="schedule/resume",
        title="Resume a schedule",
        description="Resume a paused schedule from now on.",
        arguments=("schedule_id", "reason"),
        render=partial(tool_texts.schedule_text, "Resumed"),
        is_idempotent=True,
    ),
    Tool(
        name="noonmark_schedule_delete",
        operation="schedule/delete",
        title="Delete a schedule",
        description="Delete a schedule for good; its history is kept. Runs go on, unless stop_running is true.",
        arguments=("schedule_id", "reason", "stop_running"),
        render=partial(tool_texts.schedule_text, "Deleted"),
        is_destructive=True,
        is_idempotent=True,
    ),
    Tool(
        name="noonmark_schedule_occurrences",
        operation="schedule/occurrences",
        title="List what a schedule did",
        description="List the occurrences of a schedule, newest first, with their phases and reasons. This is how to"
        " learn whether something ran, and how it ended.",
        arguments=("schedule_id", "include_terminal", "phase", "limit", "cursor"),
        render=tool_texts.occurrences_text,
        defaults={"limit": ROWS},
    ),
    Tool(
        name="noonmark_schedule_preview",
        operation="schedule/preview",
        title="Preview fires",
        description="Show the next fires of a trigger before it is used, or of a schedule, with the trigger in words.",
        arguments=("schedule_id", "trigger", "after", "count"),
        render=tool_texts.preview_text,
    ),
    Tool(
        name="noonmark_schedule_explain",
        operation="schedule/explain",
        title="Explain what happened",
        description="Explain why a schedule ran or did not run at an instant, or what became of its last occurrence.",
        arguments=("schedule_id", "at"),
        render=tool_texts.explanation_text,
    ),
    Tool(
        name="noonmark_schedule_run_now",
        operation="schedule/run",
        title="Run a schedule now",
        description="Run a schedule once now, in addition to its own fires. Give a key that is unique to this request,"
        " such as its purpose and the time: the same key again, for example after a crash or a lost answer, returns the"
        " same occurrence and runs nothing. Without a key each call is another run; only in a session of Noonmark is a"
        " repeated call known by its id.",
        arguments=("schedule_id", "payload", "key", "reason"),
        render=tool_texts.occurrence_text,
    ),
    Tool(
        name="noonmark_emit_event",
        operation="event/emit",
        title="Emit an event",
        description="Emit an event, which starts the schedules that it triggers. The same event_id again is the same"
        " event.",
        arguments=("event_type", "payload", "event_id"),
        render=tool_texts.event_text,
    ),
    Tool(
        name="noonmark_usage",
        operation="usage/report",
        title="Report usage",
        description="Report what agents have used, in tokens and USD: since the beginning of the month, unless an"
        " interval is given, by schedule, session, model, user or day.",
        arguments=("by", "from", "to", "schedule_id", "limit"),
        render=tool_texts.usage_text,
        defaults={"limit": ROWS},
    ),
)
TOOLS: Mapping[str, Tool] = {tool.name: tool for tool in _ROWS}


def list_tools(service: Service, caller: Caller, arguments: NoArguments) -> dict[str, Any]:  # noqa: ARG001 - a handler
    """List the tools that the caller may use, with the schemas of their arguments and answers."""
    return {"tools": [definition(tool.name) for tool in offered_to(caller)]}


def offered_to(caller: Caller) -> Iterator[Tool]:
    """The tools that the caller may use. One that may only propose is not offered to create."""
    return (tool for tool in TOOLS.values() if _is_offered(tool, caller))


def _is_offered(tool: Tool, caller: Caller) -> bool:
    row = tool.row
    if caller.may_only_propose and row.proposed is not None:
        return row.name != "schedule/create"
    return row.scope is None or row.scope in caller.scopes


def call_tool(service: Service, caller: Caller, arguments: ToolCall) -> dict[str, Any]:
    """Call a tool by its name; the answer is that of its operation, with long values cut off."""
    tool = TOOLS.get(arguments.name)
    if tool is None:
        raise InvalidRequest(f"there is no tool {shown(arguments.name)}; there are {', '.join(TOOLS)}", field="name")
    given = arguments.arguments or {}
    read = read_arguments(tool, given)
    if isinstance(read.get("target"), dict):
        read["target"] = _resolved_target(caller, read["target"])
    answer = perform(service, caller, tool.operation, read)
    if tool.operation in STARTING and not any(node.is_alive for node in service.store.nodes()):
        answer = {**answer, "warnings": [*answer["warnings"], NO_NODE]}
    return ToolResult(tool_texts.capped(answer))


def _resolved_target(caller: Caller, target: dict[str, Any]) -> dict[str, Any]:
    """The target as it is stored: `current_session` names the session, and its helpers have its own policy."""
    session = caller.session
    if target.get("target_kind") == "session" and target.get("type") == CURRENT:
        if session is None:
            raise InvalidRequest(
                "there is no current session here; name one with resumable_session and session_id", field="target.type"
            )
        target = {**target, "type": str(SessionType.RESUMABLE), "session_id": session.session_id}
    if session is None:
        return target
    target = with_policy(session.tool_access_policy, target)
    if is_restricted(session.tool_access_policy):
        problem = containment_problem(session.session_id, session.tool_access_policy, parse_target(target))
        if problem is not None:
            raise NotAllowed(problem, field="target")
    return target


def read_arguments(tool: Tool, given: object) -> dict[str, Any]:
    """The arguments of the operation; InvalidRequest for those that the tool does not offer."""
    if not isinstance(given, dict):
        raise InvalidRequest(f"must be an object, not {shown(given)}", field="arguments")
    if len(json.dumps(given)) > MAX_ARGUMENTS:
        raise PayloadTooLarge(f"the arguments have more than {MAX_ARGUMENTS:,} characters", field="arguments")
    if unknown := [name for name in given if name not in tool.arguments]:
        allowed = ", ".join(tool.arguments)
        raise InvalidRequest(f"unknown argument; allowed are {allowed}", field=key_path(unknown[0]))
    missing = [name for name in tool.required if given.get(name) is None]
    if missing:
        raise InvalidRequest("is required", field=missing[0])
    arguments = {**tool.defaults, **given}
    limit = arguments.get("limit")
    if isinstance(limit, int) and limit > MAX_ROWS:
        arguments["limit"] = MAX_ROWS
    target = arguments.get("target")
    if isinstance(target, dict) and target.get("target_kind") == "command":
        raise NotAllowed(f"tools do not start commands; allowed are {', '.join(TARGET_KINDS)}", field="target")
    return arguments


def answer_text(name: str, arguments: Mapping[str, Any], answer: Mapping[str, Any], now: Micros) -> str:
    """The answer of a tool in words. A preview shows times in the zone of the trigger that it was asked for."""
    return TOOLS[name].render({"trigger": arguments.get("trigger"), **answer}, now)


def error_text(error: NoonmarkError) -> str:
    """The error of a tool in words."""
    return tool_texts.error_text(error_document(error))


def definition(name: str) -> dict[str, Any]:
    """A tool with its schemas, as JSON."""
    return deepcopy(_definition(name))


@cache
def _definition(name: str) -> dict[str, Any]:
    tool = TOOLS[name]
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "input_schema": _input_schema(tool),
        "output_schema": _without_words(_schema(tool.row.answer)),
        "annotations": tool.annotations,
    }


def _input_schema(tool: Tool) -> dict[str, Any]:
    model = tool.row.arguments
    schema = _schema(model, without=[name for name in model.fields() if name not in tool.arguments])
    may_reset = tool.operation == "schedule/update"
    properties = {}
    for name in tool.arguments:
        own = schema["properties"][name]
        description = SAID.get(name)
        properties[name] = (
            dict(own if description is None else description) if may_reset or description else _without_null(own)
        )
    required = [name for name in tool.arguments if name in (*schema.get("required", ()), *tool.required)]
    return {
        **{name: value for name, value in schema.items() if name not in ("title", "description")},
        "properties": properties,
        "required": required,
    }


def _schema(model: type, *, without: list[str] | None = None) -> dict[str, Any]:
    """The schema of a model, with those of the models in it under `$defs`."""
    registry = SchemaRegistry()
    registry.reference(model, without=without or ())
    schemas = {name: _with_local_references(schema) for name, schema in registry.schemas.items()}
    schema: dict[str, Any] = schemas.pop(model.__name__)
    return schema | ({"$defs": schemas} if schemas else {})


def _with_local_references(schema: dict[str, Any]) -> dict[str, Any]:
    local: dict[str, Any] = json.loads(json.dumps(schema).replace(REF.format(""), "#/$defs/"))
    return local


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an optional argument, which a model leaves out instead of sending null."""
    kinds = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if len(kinds) != 1:
        return {**schema, "anyOf": kinds} if kinds else schema
    return {**{name: value for name, value in schema.items() if name != "anyOf"}, **kinds[0]}


def _without_words(schema: Any) -> Any:
    """The schema of an answer as clients check it: a model need not read it."""
    if isinstance(schema, list):
        return [_without_words(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: {key: _without_words(one) for key, one in value.items()}
        if name in ("properties", "$defs")
        else _without_words(value)
        for name, value in schema.items()
        if name not in ("title", "description", "examples")
    }
