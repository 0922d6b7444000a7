"""The page about JSON-RPC: methods, codes, and calls as a service answers them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from docs.generating.words import NOTE, names
from noonmark.operations.errors import STATUS
from noonmark.operations.models.arguments import ScheduleFields
from noonmark.operations.service import LOCAL, Service
from noonmark.operations.table import OPERATIONS
from noonmark.server.jsonrpc import MAX_ANSWER, MAX_CALLS, answer
from noonmark.stores.memory import MemoryStore
from noonmark.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noonmark.operations.table import Operation


def jsonrpc_page() -> str:
    """Every method with its params, every error code, and calls as a service answers them."""
    fields = names(ScheduleFields.fields())
    methods = [
        f"| `{one.name}` | {names(one.parameters).replace(fields, '*fields*')} | {_scope(one)} | {one.summary} |"
        for one in OPERATIONS.values()
    ]
    codes = [
        f"| {number} | {names(code for code, row in STATUS.items() if row.jsonrpc == number)} |"
        for number in sorted({row.jsonrpc for row in STATUS.values()}, reverse=True)
    ]
    return (
        f"{NOTE}# JSON-RPC\n\n"
        "`POST /rpc` speaks [JSON-RPC 2.0](https://www.jsonrpc.org/specification): every operation is a method, and\n"
        "its params are an object, or an array in the order below.\n\n"
        + "".join(_conversation())
        + f"A batch has at most {MAX_CALLS} calls, which are carried out and answered in order. A call without an\n"
        "`id` is a notification: it is carried out without an answer. Where nothing else came, the\n"
        "answer is 204, without a body.\n\n"
        f"When the answers of a batch have more than {MAX_ANSWER >> 20} MiB, the calls after that are not executed:\n"
        "each call is `answer_too_large`, and for notifications among them there is one such error with id `null`. So\n"
        "every call before the first of these errors was carried out, and none after it; send the others again.\n\n"
        "## Methods\n\n"
        "| method | params, in order | scope | |\n| --- | --- | --- | --- |\n" + "\n".join(methods) + "\n\n"
        "*scope* is what a [key](../guides/keys-and-tenants.md) needs; with a star, it must be one of tenant `*`.\n\n"
        f"*fields* are those of a [schedule document](schedules.md): {fields}.\n\n"
        "## Errors\n\n"
        "`error.data` has the stable `code` of the [error](errors.md), a `detail` for people, the `field` it speaks\n"
        "of, if there is one, the `problems`, if there are several, and the `request_id` under which the server logs\n"
        "it. A body that is not strict JSON is -32700, and a call that is none -32600, with `invalid_request`.\n\n"
        "| code | errors |\n| --- | --- |\n" + "\n".join(codes) + "\n"
    )


def _scope(operation: Operation) -> str:
    scope = "any" if operation.scope is None else f"`{operation.scope}`"
    return f"{scope} *" if operation.is_global else scope


def _conversation() -> Iterable[str]:
    """A call and a batch, each with what a service answers."""
    clock = FakeClock(datetime(2026, 3, 1, 12, tzinfo=UTC))
    service = Service(store=MemoryStore(clock.micros), lookahead=0, fresh_id=lambda: "1")
    caller = replace(LOCAL, source="jsonrpc", request_id="req_1")
    trigger = {"type": "cron", "expression": "0 9 * * 1-5", "timezone": "Europe/Stockholm"}
    document = {"name": "report", "trigger": trigger, "target": {"target_kind": "function", "function": "report"}}
    for call in (
        {"jsonrpc": "2.0", "id": 1, "method": "schedule/preview", "params": {"trigger": trigger, "count": 2}},
        [
            {"jsonrpc": "2.0", "method": "schedule/create", "params": document},
            {"jsonrpc": "2.0", "id": 2, "method": "schedule/count"},
            {"jsonrpc": "2.0", "id": 3, "method": "schedule/get", "params": ["nowhere"]},
        ],
    ):
        given = answer(service, caller, json.dumps(call).encode()) or b"null"
        for text in (json.dumps(call, indent=2), json.dumps(json.loads(given), indent=2)):
            yield f"```jsonc\n{text}\n```\n\n"
