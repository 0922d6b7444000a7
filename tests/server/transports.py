"""Every way to call an operation, with one interface: `call` returns the answer or raises CallError."""

import json
import re
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import NamedTuple

from noonmark.core.errors import NoonmarkError
from noonmark.core.instants import to_micros, to_text
from noonmark.operations.errors import STATUS, tool_code
from noonmark.operations.service import LOCAL
from noonmark.operations.table import CALLS_TOOL, OPERATIONS, Body, perform
from noonmark.server.routes import ROUTES
from tests.cli.runner import call


class CallError(Exception):
    """The code and field of an error; checks that the number of the transport belongs to the code."""

    def __init__(self, code, field, *, number=None, right=None):
        assert number == right, (code, number)
        super().__init__(code, field)


class InProcess:
    """The operation itself, in this process."""

    source = "local"

    def __init__(self, service):
        self.service = service

    def call(self, row, arguments):
        try:
            return perform(self.service, LOCAL, row.operation, arguments)
        except NoonmarkError as error:
            raise CallError(error.code, error.field) from error


class Rest:
    """The route of the operation; of two, the one whose path has the schedule id, unless an object needs a body."""

    source = "rest"

    def __init__(self, http):
        self.http = http

    def call(self, row, arguments):
        rest, routes = dict(arguments), [one for one in ROUTES if one.operation == row.operation]
        needs_body = any(isinstance(value, dict) for name, value in rest.items() if name != "labels")
        fit = [one for one in routes if one.body is not Body.NONE or not needs_body]
        route = next((one for one in fit if set(re.findall(r"{(\w+)}", one.path)) <= rest.keys()), routes[0])
        path = route.path
        for name in [one for one in rest if f"{{{one}}}" in path]:
            path = path.replace(f"{{{name}}}", rest.pop(name))
        if route.body is Body.NONE:
            labels = [f"{name}={value}" for name, value in rest.pop("labels", {}).items()]
            query = [("label", one) for one in labels] + [(name, _query(value)) for name, value in rest.items()]
            answer = self.http.request(route.method, path, params=query)
        else:
            answer = self.http.request(route.method, path, json=rest)
        document = answer.json()
        if not answer.is_success:
            assert answer.headers["content-type"] == "application/problem+json"
            code = document["code"]
            raise CallError(code, document.get("field", ""), number=answer.status_code, right=STATUS[code].http)
        assert answer.status_code == route.status
        return strip_extras(row, document)


EXTRAS = {"schedule/delete": {"message"}}
"""Fields that a route adds to the answer of the operation."""


def strip_extras(row, document):
    """The answer of the operation, without what the route adds."""
    return {name: value for name, value in document.items() if name not in EXTRAS.get(row.operation, ())}


def _query(value):
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list) else str(value)


class JsonRpc:
    """JSON-RPC, with params by name or in order."""

    source = "jsonrpc"

    def __init__(self, http, *, in_order=False):
        self.http, self.in_order = http, in_order

    def call(self, row, arguments):
        params = arguments
        if self.in_order:
            names = OPERATIONS[row.operation].parameters
            last = max((names.index(one) for one in arguments), default=-1)
            params = [arguments.get(one) for one in names[: last + 1]]
        body = {"jsonrpc": "2.0", "id": 7, "method": row.operation, "params": params}
        answer = self.http.post("/rpc", json=body).json()
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", 7)
        if "error" not in answer:
            return answer["result"]
        code = answer["error"]["data"]["code"]
        number = answer["error"]["code"]
        right = tool_code(code) if row.operation == CALLS_TOOL else STATUS[code].jsonrpc
        raise CallError(code, answer["error"]["data"].get("field", ""), number=number, right=right)


class Method(NamedTuple):
    """A client method: its positional arguments, and the field of the answer that it returns."""

    name: str
    positional: tuple[str, ...] = ()
    entries: str = ""
    """The field of the answer that the method returns: a list, or the only value."""


METHODS = {
    "bundle/list": Method("bundles", (), "bundles"),
    "bundle/get": Method("bundle", ("bundle_id",)),
    "bundle/run": Method("run_bundle", ("bundle_id",)),
    "bundle/delete": Method("delete_bundle", ("bundle_id",)),
    "schedule/create": Method("create"),
    "schedule/upsert": Method("upsert"),
    "schedule/get": Method("get", ("schedule_id",)),
    "schedule/list": Method("list", (), "schedules"),
    "schedule/count": Method("count", (), "count"),
    "schedule/update": Method("update", ("schedule_id",)),
    "schedule/pause": Method("pause", ("schedule_id",)),
    "schedule/resume": Method("resume", ("schedule_id",)),
    "schedule/delete": Method("delete", ("schedule_id",)),
    "schedule/run": Method("run_now", ("schedule_id",)),
    "selection/pause": Method("pause_many"),
    "selection/resume": Method("resume_many"),
    "selection/delete": Method("delete_many"),
    "selection/label": Method("label_many"),
    "selection/run": Method("run_many"),
    "schedule/backfill": Method("backfill", ("schedule_id", "from", "to")),
    "backfill/list": Method("backfills", ("schedule_id",), "backfills"),
    "backfill/get": Method("get_backfill", ("schedule_id", "backfill_id")),
    "backfill/pause": Method("pause_backfill", ("schedule_id", "backfill_id")),
    "backfill/resume": Method("resume_backfill", ("schedule_id", "backfill_id")),
    "backfill/cancel": Method("cancel_backfill", ("schedule_id", "backfill_id")),
    "schedule/preview": Method("preview", ("schedule_id", "trigger")),
    "schedule/check": Method("check", ("schedules",), "checks"),
    "crontab/read": Method("read_crontab", ("text",)),
    "schedule/occurrences": Method("occurrences", ("schedule_id",), "occurrences"),
    "schedule/runs": Method("runs", ("schedule_id",), "runs"),
    "schedule/explain": Method("explain_at", ("schedule_id",)),
    "occurrence/get": Method("occurrence", ("occurrence_id",)),
    "occurrence/runs": Method("occurrence_runs", ("occurrence_id",), "runs"),
    "occurrence/explain": Method("explain", ("occurrence_id",)),
    "occurrence/complete": Method("complete", ("occurrence_id",)),
    "occurrence/fail": Method("fail", ("occurrence_id",)),
    "occurrence/cancel": Method("cancel", ("occurrence_id",)),
    "occurrence/list": Method("search_occurrences", (), "occurrences"),
    "occurrence/redrive": Method("redrive", ("occurrence_id",)),
    "run/get": Method("run", ("run_id",)),
    "event/emit": Method("emit", ("event_type",), "event_id"),
    "event/list": Method("events", (), "events"),
    "secret/set": Method("set_secret", ("name", "value")),
    "secret/list": Method("secrets", (), "secrets"),
    "secret/delete": Method("delete_secret", ("name",)),
    "ping/url": Method("ping_url", ("schedule_id",)),
    "ping/rotate": Method("rotate_ping_url", ("schedule_id",)),
    "signing/key": Method("signing_key", (), "signing_key"),
    "event/match": Method("match_events"),
    "trigger/list": Method("triggers", (), "triggers"),
    "workflow/create": Method("create_workflow"),
    "workflow/get": Method("get_workflow", ("workflow_id",)),
    "workflow/list": Method("workflows", (), "workflows"),
    "workflow/versions": Method("workflow_versions", ("workflow_id",), "versions"),
    "workflow/delete": Method("delete_workflow", ("workflow_id",)),
    "workflow/run": Method("run_workflow", ("workflow_id", "inputs")),
    "workflow_run/get": Method("workflow_run", ("workflow_run_id",)),
    "workflow_run/list": Method("workflow_runs", (), "workflow_runs"),
    "workflow_run/cancel": Method("cancel_workflow_run", ("workflow_run_id",)),
    "session/create": Method("create_session"),
    "session/get": Method("get_session", ("session_id",)),
    "session/list": Method("list_sessions", (), "sessions"),
    "session/messages": Method("session_messages", ("session_id",), "messages"),
    "session/send": Method("send_message", ("session_id", "prompt")),
    "session/archive": Method("archive_session", ("session_id",)),
    "session/delete": Method("delete_session", ("session_id",)),
    "mob/create": Method("create_mob", ("mob_id", "members")),
    "mob/get": Method("get_mob", ("mob_id",)),
    "mob/list": Method("list_mobs", (), "mobs"),
    "mob/delete": Method("delete_mob", ("mob_id",)),
    "approval/list": Method("approvals", (), "approvals"),
    "approval/approve": Method("approve", ("approval_id",)),
    "approval/deny": Method("deny", ("approval_id",)),
    "halt/set": Method("halt"),
    "halt/lift": Method("unhalt", ("halt_id",), "lifted"),
    "halt/list": Method("halts", (), "halts"),
    "schedule/propose": Method("propose"),
    "schedule/proposals": Method("proposals", (), "proposals"),
    "schedule/proposal": Method("proposal", ("schedule_id",)),
    "schedule/approve": Method("approve_schedule", ("schedule_id",)),
    "schedule/deny": Method("deny_schedule", ("schedule_id",)),
    "budget/set": Method("set_budget", ("scope", "id")),
    "budget/list": Method("budgets", (), "budgets"),
    "budget/delete": Method("delete_budget", ("scope", "id"), "deleted"),
    "usage/report": Method("usage", ("by", "from", "to")),
    "usage/record": Method("record_usage"),
    "usage/forecast": Method("forecast_usage", ("schedule_id",)),
    "upload/list": Method("uploads", (), "uploads"),
    "upload/delete": Method("delete_upload", ("upload_id",)),
    "key/create": Method("create_key"),
    "key/list": Method("keys", (), "keys"),
    "key/revoke": Method("revoke_key", ("key_id",)),
    "key/rotate": Method("rotate_key", ("key_id",)),
    "whoami": Method("whoami"),
    "limits/get": Method("limits"),
    "schedule/tools": Method("schedule_tools", (), "tools"),
    "schedule/call": Method("call_schedule_tool", ("name", "arguments")),
    "node/list": Method("nodes", (), "nodes"),
    "timeline": Method("timeline", ("from", "to")),
    "schedule/revisions": Method("revisions", ("schedule_id",), "revisions"),
    "schedule/trends": Method("trends", ("schedule_id", "from", "to")),
    "overview": Method("overview"),
    "workload": Method("workload"),
    "doctor": Method("doctor"),
    "audit/list": Method("audit", (), "entries"),
    "worker/start": Method("worker_start"),
    "worker/stop": Method("worker_stop"),
    "worker/confirm-time": Method("worker_confirm_time"),
    "worker/status": Method("worker_status"),
}
NOT_PAGED = (
    "tools",
    "deleted",
    "checks",
    "backfills",
    "nodes",
    "secrets",
    "halts",
    "lifted",
    "event_id",
    "count",
    "signing_key",
)


class ClientMethods:
    """The methods of a client; their answers are turned back into documents."""

    source = "rest"

    def __init__(self, client):
        self.client = client

    def call(self, row, arguments):
        method, named = METHODS[row.operation], dict(arguments)
        positional = [named.pop(one) for one in method.positional if one in named]
        if "limit" in named and method.entries:
            named["page_size"] = named.pop("limit")
        try:
            answer = getattr(self.client, method.name)(*positional, **named)
            if not method.entries:
                return strip_extras(row, to_document(answer))
            value = answer if isinstance(answer, str | int) else [to_document(one) for one in answer]
        except NoonmarkError as error:
            raise CallError(error.code, error.field) from error
        return {method.entries: value} | ({} if method.entries in NOT_PAGED else {"next_cursor": None})


def to_document(value):
    """The document that a value was read from; checks that they agree."""
    if isinstance(value, datetime):
        return to_text(to_micros(value))
    if isinstance(value, list):
        return [to_document(one) for one in value]
    if not is_dataclass(value):
        return value
    document = {one.name: to_document(getattr(value, one.name)) for one in fields(value) if one.name != "document"}
    if hasattr(value, "document"):
        assert {name: value.document.get(name) for name in document} == document
        return value.document
    # The explanation of an occurrence has no `at`.
    return {name: one for name, one in document.items() if (name, one) != ("at", None)}


class ClientCall:
    """`Client.call` with the name of the operation."""

    source = "jsonrpc"

    def __init__(self, client):
        self.client = client

    def call(self, row, arguments):
        try:
            return self.client.call(row.operation, arguments)
        except NoonmarkError as error:
            raise CallError(error.code, error.field) from error


def is_report(row, done):
    """Whether a command that failed has answered: the doctor exits with 1 when it reports problems."""
    return (row.operation, done.code) == ("doctor", 1) and not done.err


class Command:
    """The command of the operation, or `noonmark call` for any operation."""

    def __init__(self, *place, source, by_name=False):
        self.place, self.source, self.by_name = place, source, by_name

    def call(self, row, arguments):
        if self.by_name:
            words = ("call", row.operation, "--arguments-json", json.dumps(arguments))
        else:
            words = row.command(arguments)
        done = call(*words, *self.place, "--json")
        if done.code and not is_report(row, done):
            problem = done.problem
            code = problem["code"]
            raise CallError(code, problem.get("field", ""), number=done.code, right=STATUS[code].exit)
        return done.json if self.by_name else row.of_command(done.json)
