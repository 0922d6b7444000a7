"""The page about HTTP: every route and every document, as the description that a server gives of itself has them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from docs.generating.words import NOTE, names
from noonmark.operations.errors import STATUS
from noonmark.server import openapi

if TYPE_CHECKING:
    from collections.abc import Iterator

TITLES = {
    "schedule": "Schedules",
    "selection": "Selections of schedules",
    "backfill": "Backfills",
    "occurrence": "Occurrences",
    "run": "Runs",
    "event": "Events",
    "trigger": "Triggers",
    "crontab": "Crontabs",
    "workflow": "Workflows",
    "workflow_run": "Workflow runs",
    "session": "Sessions",
    "mob": "Mobs",
    "approval": "Approvals",
    "budget": "Budgets",
    "halt": "Halts",
    "usage": "Usage",
    "upload": "Uploads",
    "bundle": "Bundles",
    "secret": "Secrets",
    "ping": "Pings",
    "key": "API keys",
    "whoami": "The caller",
    "limits": "Limits",
    "signing": "Signatures",
    "node": "Nodes",
    "timeline": "Timelines",
    "overview": "The overview",
    "workload": "The workload",
    "doctor": "The doctor",
    "audit": "The audit log",
    "worker": "The worker",
    "stream": "The stream of changes",
    "page": "The web page",
    "health": "Health",
    "json-rpc": "JSON-RPC",
    "mcp": "The Model Context Protocol",
    "cron service": "The cron service's launcher",
    "tasks": "The task routes",
}
UNBOUNDED = 2**31 - 1
HEADERS = {"Idempotency-Key", "If-Match", "Last-Event-ID"}
"""They are told of once, for all routes that take them."""


def http_page() -> str:
    """Every route by subject, then every document that is sent or answered, then the errors."""
    described = openapi.document("")
    routes = [
        (method.upper(), path, one) for path, methods in described["paths"].items() for method, one in methods.items()
    ]
    parts = []
    for tag, title in TITLES.items():
        parts += [f"## {title}\n", *(_route(*route) for route in routes if route[2]["tags"] == [tag])]
    if missed := {tag for _, _, one in routes for tag in one["tags"]} - set(TITLES):
        raise LookupError(f"no title for {', '.join(missed)}")
    schemas = described["components"]["schemas"]
    return (
        f"{NOTE}# HTTP\n\n{ABOUT}\n"
        + "\n".join(parts)
        + "\n## Documents\n\nFields with a star are required in what you send.\n\n"
        + "\n".join(_schema(name, schemas[name]) for name in sorted(schemas))
        + f"\n## Errors\n\n{PROBLEMS}\n"
        + "".join(_errors())
    )


ABOUT = """\
Every operation has a route; [JSON-RPC](jsonrpc.md) does the same by one route, and [the client](client.md) in Python.
`GET /openapi.json` has all of this for programs.

- Bodies are JSON objects in UTF-8, of type `application/json`, not packed, and of 1 MiB at the most. A key that
  comes twice, a number beyond 64 bits, NaN, NUL, half a character, too many levels and unknown fields
  are refused, as are parameters that a route does not have. A body that has not come after `request_timeout`
  (20 seconds) is given up, and an answer of which nothing is read for `send_timeout` (20 seconds).
- Instants are RFC 3339 with `Z` or an offset, and are answered in UTC.
- A list is `{"schedules": [..], "next_cursor": ..}`, or the like. Ask again with `cursor` until that is null;
  `limit` is 100 unless given, and 1,000 at the most; a larger one is taken as 1,000. A page also ends before the entry
  that would make it larger than 2 MiB, so that fewer entries do not mean that there are no more. `event/match` looks
  at no more events than that, and `backfill` tells no more of its occurrences; its `count` has all of them.
- A request whose head two readers could understand differently is 400, and ends its connection: a body with both
  `Content-Length` and `Transfer-Encoding`, either of them twice, folded headers, lines that end without CR LF.
- A schedule comes with an `ETag`: its revision, and when it was last changed. A change with `If-Match` is made
  only if that is still so, else it is 412. Send the whole ETag, such as `"3-2027-01-02T09:00:00Z"`: the revision alone,
  `"3"`, is accepted too, but does not notice a change of the name, the description or the labels, nor a pause: these
  keep the revision. In the body, `expected_updated_at_utc` notices every change, and `expected_revision` misses the
  same ones; there it is 409.
- `POST /schedules` with an `Idempotency-Key` makes one schedule, however often it is sent within 24 hours; with
  another body it is 409. `run` and `backfill` take one, too.
- `X-Request-Id` comes back as it was sent, if it is 1 to 128 letters, digits, `-`, `_`, `.` or `:`; otherwise the
  server makes one up. Its log lines carry it.
- From the first [key](../guides/keys-and-tenants.md) on, every call needs one: `Authorization: Bearer KEY`. Without a
  good one it is 401, without the scope that a route needs 403, and what another tenant has is 404. A key of tenant `*`
  acts for the tenant that the header `Noonmark-Tenant` names. On a server without any key, no route needs one. The
  cookie of the [web page](../guides/web-page.md#sign-in) is as good as its key, if there is no `Authorization`;
  whatever changes something with it also needs `Noonmark-Page: 1` and an `Origin`.
- `Host` must be a loopback address or name, or one of the `allowed_hosts`, and `Origin`, if a browser sends it, the
  same. Everything else is 403, on every route; and so is whatever would change something and comes, by its
  `Sec-Fetch-Site`, from a page of another site, or of another port of this machine.
"""
PROBLEMS = """\
An error of any route is `application/problem+json`: `type`, `title`, `status`, the stable `code` of the
[error](errors.md), a `detail` for people, the `field` it speaks of, if there is one, the `problems`, if there are
several, and the `request_id` under which the server logs it. The task routes have the same sentence as `error`, too.
"""


def _route(method: str, path: str, one: dict[str, Any]) -> str:
    """One route: what it does, what it takes, what it answers."""
    lines = [f"### `{method} {path}`\n", f"{one['summary']} {one['description']}\n"]
    query = [part for part in one["parameters"] if part["in"] == "query"]
    if query:
        lines.append(f"Parameters: {', '.join(_parameter(part) for part in query)}.\n")
    if headers := [part["name"] for part in one["parameters"] if part["name"] in HEADERS]:
        lines.append(f"Headers: {names(headers)}.\n")
    body = one.get("requestBody")
    if body and "application/json" not in body["content"]:
        lines.append(f"Body: the file, {' or '.join(f'as `{media}`' for media in body['content'])}.\n")
    elif body:
        content = body["content"]["application/json"]
        needed = "" if body["required"] else ", or none"
        lines.append(f"Body: {_kind(content['schema'])}{needed}.\n")
        lines += [
            f"```jsonc\n// {title}\n{json.dumps(example['value'], indent=2)}\n```\n"
            for title, example in content.get("examples", {}).items()
        ]
    status, answer = next(iter(one["responses"].items()))
    lines.append(f"Answer: {status}, {_shape(answer)}.\n")
    return "\n".join(lines)


def _shape(answer: dict[str, Any]) -> str:
    """What an answer contains."""
    if "content" not in answer:
        return "without content"
    [(media, told)] = answer["content"].items()
    if media == "application/json":
        return _kind(told["schema"])
    return {"text/plain": "text", "text/event-stream": "server-sent events"}.get(media, "the file")


def _parameter(part: dict[str, Any]) -> str:
    told = [_kind(part["schema"]), *(["required"] if part["required"] else [])]
    return f"`{part['name']}` ({', '.join(told)})"


def _kind(schema: dict[str, Any]) -> str:
    """What a value is, in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()}-document)"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if schema.get("format") == "date-time":
        return "instant"
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{one}`" for one in schema.get("enum", [schema.get("const")]))
    words = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false", "null": "null"}
    kind = words.get(schema.get("type", ""), "object" if schema.get("type") == "object" else "anything")
    return kind + _bounds(schema)


def _bounds(schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum", schema.get("minLength")), schema.get("maximum", schema.get("maxLength"))
    if high is None or high >= UNBOUNDED:
        return ""
    what = " characters" if schema.get("type") == "string" else ""
    return f" of {low or 0:,} to {high:,}{what}"


def _schema(name: str, schema: dict[str, Any]) -> str:
    # What is answered may say more than this, and has all of it.
    required = set() if schema.get("additionalProperties") else set(schema.get("required", ()))
    rows = [
        f"| `{field}`{'*' if field in required else ''} | {_kind(one)} | {one.get('description', '')} |"
        for field, one in schema.get("properties", {}).items()
    ]
    about = re.sub(r"\s+", " ", schema.get("description", ""))
    table = "| field | is | |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n" if rows else ""
    return f"### {name} document\n\n{about}\n\n{table}"


def _errors() -> Iterator[str]:
    yield "\n| status | when | codes |\n| --- | --- | --- |\n"
    for status, words in openapi.ERROR_STATUSES.items():
        yield f"| {status} | {words} | {names(code for code, row in STATUS.items() if row.http == status)} |\n"
