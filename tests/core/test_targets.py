"""Targets: what receives the work, read from documents and written back."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonmark.core.documents import Reader
from noonmark.core.errors import InvalidSchedule, NoonmarkError
from noonmark.core.targets import parse_target
from noonmark.core.targets.work import is_bundle_route
from tests.core.declared import (
    FULL_TARGETS,
    HOSTILE,
    PROMPT,
    assert_fit_for_a_log,
    changed,
    entangled,
    hostile_pairs,
    junk,
    places,
    target_documents,
)

SEND = {"type": "send", "content": "Good morning."}


def problems_of(document):
    with pytest.raises(InvalidSchedule) as caught:
        parse_target(document)
    return [(problem.field, problem.message) for problem in caught.value.problems]


def http(**fields):
    return {"target_kind": "http", "url": "https://example.com/", **fields}


def command(**fields):
    return {"target_kind": "command", "argv": ["true"], **fields}


def session(**fields):
    return {"target_kind": "session", "type": "exact_session", "session_id": "s", "action": PROMPT, **fields}


def prompted(prompt):
    return session(action={"type": "prompt", "prompt": prompt})


def on_demand(**create):
    document = session(type="materialize_on_demand_session", create={"model": "m", **create})
    del document["session_id"]
    return document


def spawned(**fields):
    return {
        "target_kind": "mob",
        "type": "spawn_helper",
        "mob_id": "m",
        "member_id": "h",
        "prompt": "Go.",
        **fields,
    }


@pytest.mark.parametrize("name", FULL_TARGETS)
def test_a_full_document_keeps_every_field(name):
    assert parse_target(FULL_TARGETS[name]).to_document() == FULL_TARGETS[name]


@pytest.mark.parametrize(
    "document",
    [
        {"target_kind": "function", "function": "f", "args": [], "kwargs": {}},
        {"target_kind": "http", "method": "POST", "url": "http://a"},
        {"target_kind": "command", "argv": ["true"]},
        {"target_kind": "workflow", "workflow_id": "w"},
        {"target_kind": "bundle", "bundle_id": "b"},
        {"target_kind": "bundle", "digest": "0f" * 32},
        {"target_kind": "event", "event_type": "e", "payload": {}},
        {"target_kind": "task", "query": "q"},
        session(),
        session(action={"type": "event", "event_type": "e"}),
        on_demand(),
        {"target_kind": "mob", "type": "member", "mob_id": "m", "member_id": "a", "action": SEND},
        {"target_kind": "mob", "type": "flow", "mob_id": "m", "flow_id": "f", "params": None},
        spawned(),
        spawned(type="fork_helper", source_member_id="a", fork_context={"type": "full_history"}),
    ],
    ids=lambda document: document.get("type", document["target_kind"]),
)
def test_an_omitted_field_is_not_invented(document):
    assert parse_target(document).to_document() == document


@pytest.mark.parametrize("name", FULL_TARGETS)
def test_a_target_can_be_a_key(name):
    assert {parse_target(FULL_TARGETS[name]): name}[parse_target(FULL_TARGETS[name])] == name


@pytest.mark.parametrize(
    ("name", "route"),
    [
        ("function", "function:reports:weekly"),
        ("http", "http"),
        ("command", "command"),
        ("workflow", "workflow"),
        ("bundle", "bundle"),
        ("bundle on labelled nodes", "bundle:gpu=a100,zone=a"),
        ("event", "event"),
        ("task", "task"),
        ("exact session", "session"),
        ("session on demand", "session"),
        ("mob member", "mob"),
        ("mob flow", "workflow"),
        ("mob spawn helper", "mob"),
        ("mob fork helper", "mob"),
    ],
)
def test_the_route_says_what_a_node_must_serve(name, route):
    assert parse_target(FULL_TARGETS[name]).route == route


def test_the_labels_of_a_bundle_are_part_of_its_route():
    target = parse_target(FULL_TARGETS["bundle on labelled nodes"])
    assert [is_bundle_route(one) for one in (target.route, "bundle", "bundles:x")] == [True, True, False]
    needs_slots = [replace(target, slots=slots).route for slots in (2, 33)]
    assert needs_slots == ["bundle:gpu=a100,zone=a,slots:2", "bundle:gpu=a100,zone=a,slots:32"]
    assert parse_target({"target_kind": "bundle", "bundle_id": "b", "slots": 1}).route == "bundle:slots:1"
    assert parse_target({"target_kind": "bundle", "digest": "sha256:" + "0F" * 32}).digest == "0f" * 32


def test_every_kind_is_in_the_message_when_the_kind_is_wrong():
    ((field, message),) = problems_of({"target_kind": "Session", "session_id": 5})
    assert field == "target.target_kind"
    for kind in ("function", "http", "command", "workflow", "bundle", "event", "session", "mob", "task"):
        assert kind in message


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        pytest.param(None, "target", "required", id="no target"),
        pytest.param([], "target", "must be an object", id="not an object"),
        pytest.param({}, "target.target_kind", "function", id="no kind"),
        pytest.param({"target_kind": "function"}, "target.function", "required", id="no function"),
        pytest.param({"target_kind": "function", "function": ""}, "target.function", "1 to 500", id="empty function"),
        pytest.param(
            {"target_kind": "function", "function": "f", "args": {"a": 1}}, "target.args", "array", id="args an object"
        ),
        pytest.param(
            {"target_kind": "function", "function": "f", "args": [float("nan")]}, "target.args", "NaN", id="args NaN"
        ),
        pytest.param(
            {"target_kind": "function", "function": "f", "kwargs": [1]}, "target.kwargs", "object", id="kwargs a list"
        ),
        pytest.param(
            {"target_kind": "function", "function": "f", "trusted": True}, "target.trusted", "args", id="trusted"
        ),
        pytest.param(
            {"target_kind": "function", "function": "f", "executor": "fork"},
            "target.executor",
            "thread, process",
            id="executor",
        ),
        pytest.param(
            {"target_kind": "function", "function": "f", "payload": float("inf")},
            "target.payload",
            "infinity",
            id="payload",
        ),
        pytest.param(http(method="TRACE"), "target.method", "GET, HEAD, POST", id="method"),
        pytest.param({"target_kind": "http"}, "target.url", "required", id="no url"),
        pytest.param(http(url="example.com"), "target.url", "absolute http or https", id="relative url"),
        pytest.param(http(url="//example.com/"), "target.url", "absolute http or https", id="no scheme"),
        pytest.param(http(url="ftp://example.com/"), "target.url", "absolute http or https", id="scheme"),
        pytest.param(http(url="file:///etc/passwd"), "target.url", "absolute http or https", id="file"),
        pytest.param(http(url="http:///path"), "target.url", "valid host", id="no host"),
        pytest.param(http(url="http://:80/"), "target.url", "valid host", id="port without host"),
        pytest.param(http(url="https://user@example.com/"), "target.url", "user name", id="user"),
        pytest.param(http(url="https://u:p@example.com/"), "target.url", "password", id="password"),
        pytest.param(http(url="https://@example.com/"), "target.url", "user name", id="empty user"),
        pytest.param(http(url="https://example.com/a b"), "target.url", "%20", id="blank"),
        pytest.param(http(url="https://example.com/\u00a0"), "target.url", "%20", id="no-break space"),
        pytest.param(http(url="https://good.example\\@evil.example/"), "target.url", "user name", id="backslash host"),
        pytest.param(http(url="https://example.com\\x"), "target.url", "%5C", id="backslash"),
        pytest.param(http(url="https://example.com/\r\nHost: x"), "target.url", "control character", id="CR LF"),
        pytest.param(http(url="https://example.com:99999/"), "target.url", "from 1 to 65535", id="port too large"),
        pytest.param(http(url="https://example.com:x/"), "target.url", "valid host and port", id="port a word"),
        pytest.param(http(url="https://example.com:0/"), "target.url", "host and port", id="port zero"),
        pytest.param(http(url="https://[::1/"), "target.url", "valid host", id="open bracket"),
        pytest.param(http(url="https://[dead]/"), "target.url", "addresses are written as", id="not IPv6"),
        pytest.param(http(url="https://[v1.a]/"), "target.url", "host and port", id="a later IP version"),
        pytest.param(http(url="https://[fe80::1%25eth0]/"), "target.url", "host and port", id="IPv6 scope"),
        pytest.param(http(url="https://{host}/"), "target.url", "host and port", id="placeholder host"),
        pytest.param(http(url="https://a..b/"), "target.url", "host and port", id="empty label"),
        pytest.param(http(url="https://a%2eb/"), "target.url", "host and port", id="encoded host"),
        pytest.param(http(url="https://example.com/" + "a" * 5_000), "target.url", "4,096", id="long url"),
        pytest.param(http(headers=["a"]), "target.headers", "object", id="headers a list"),
        pytest.param(http(headers={"a b": "c"}), "target.headers[0]", "the name must be letters", id="header name"),
        pytest.param(http(headers={"": "c"}), "target.headers[0]", "the name must be letters", id="no header name"),
        pytest.param(http(headers={"A:": "c"}), "target.headers[0]", "the name must be letters", id="colon"),
        pytest.param(http(headers={1: "c"}), "target.headers[0]", "the name must be letters", id="a number"),
        pytest.param(http(headers={"A": "b\r\nC: d"}), "target.headers.A", "line break", id="header injection"),
        pytest.param(http(headers={"A": "b\0"}), "target.headers.A", "NUL", id="header NUL"),
        pytest.param(http(headers={"A": "\x1b[1m"}), "target.headers.A", "control character", id="header escape"),
        pytest.param(http(headers={"A": 1}), "target.headers.A", "must be text", id="header number"),
        pytest.param(http(headers={"A": "1", "a": "2"}), "target.headers", "twice", id="header twice"),
        pytest.param(http(headers={f"A{n}": "" for n in range(101)}), "target.headers", "at most 100", id="headers"),
        pytest.param(http(headers={"host": "x"}), "target.headers.host", "by the connection", id="host header"),
        pytest.param(http(headers={"Proxy-Auth": ""}), "target.headers.Proxy-Auth", "connection", id="proxy header"),
        pytest.param(http(headers={"Idempotency-Key": "x"}), "target.headers.Idempotency-Key", "already", id="own"),
        pytest.param(http(headers={"noonmark-x": ""}), "target.headers.noonmark-x", "already", id="own header"),
        pytest.param(http(secret_headers=["s3cr3t"]), "target.secret_headers", "must be an object", id="secret itself"),
        pytest.param(http(secret_headers={"A": "a b"}), "target.secret_headers.A", "name of a secret", id="no name"),
        pytest.param(http(secret_headers={"a b": "c"}), "target.secret_headers[0]", "letters", id="secret's header"),
        pytest.param(http(secret_headers={"A": "b", "a": "b"}), "target.secret_headers", "twice", id="secrets twice"),
        pytest.param(http(secret_headers={"Host": "b"}), "target.secret_headers.Host", "connection", id="secret host"),
        pytest.param(
            http(headers={"x-key": "b"}, secret_headers={"X-Key": "b"}),
            "target.secret_headers.X-Key",
            "is one of the headers too",
            id="secret and not",
        ),
        pytest.param(
            http(url="ftp://me:s3cr3t@example.org"), "target.url", "absolute http or https", id="url's password"
        ),
        pytest.param(http(url="http://me:s3cr3t@h:99999"), "target.url", "user name", id="password, port"),
        pytest.param(http(headers={"A": "{{ os }}"}), "target.headers.A", "unknown placeholder; allowed", id="os"),
        pytest.param(http(body={"a": ["{{payload.}}"]}), "target.body", "unknown placeholder", id="body placeholder"),
        pytest.param(http(body="{{attempt + 1}}"), "target.body", "schedule_id, schedule_name", id="an expression"),
        pytest.param(http(url="https://a/{{x}}"), "target.url", "unknown placeholder", id="url placeholder"),
        pytest.param(http(url="{{payload.url}}"), "target.url", "only after them", id="placeholder for a url"),
        pytest.param(http(url="https://{{payload.a}}/"), "target.url", "only after them", id="placeholder for a host"),
        pytest.param(http(url="https://a{{payload.a/b}}"), "target.url", "only after them", id="half a host"),
        pytest.param(http(url="https://a:{{attempt}}/"), "target.url", "only after them", id="placeholder for a port"),
        pytest.param(http(url="ht{{attempt}}://a/"), "target.url", "absolute", id="placeholder in the scheme"),
        pytest.param(http(expected_statuses=[]), "target.expected_statuses", "at least one", id="no statuses"),
        pytest.param(http(expected_statuses=200), "target.expected_statuses", "array", id="a status"),
        pytest.param(http(retry_statuses=[99]), "target.retry_statuses[0]", "100 to 599", id="low status"),
        pytest.param(http(retry_statuses=[True]), "target.retry_statuses[0]", "an integer", id="true status"),
        pytest.param(http(retry_statuses=["6xx"]), "target.retry_statuses[0]", "such as 5xx", id="class of statuses"),
        pytest.param(
            http(completion_timeout_seconds=0.5), "target.completion_timeout_seconds", "1 to 2", id="no time to end"
        ),
        pytest.param(
            http(completion_timeout_seconds=2_592_001),
            "target.completion_timeout_seconds",
            "1 to 2",
            id="too long to end",
        ),
        pytest.param(
            http(completion_timeout_seconds="1h"),
            "target.completion_timeout_seconds",
            "number",
            id="time to end as text",
        ),
        pytest.param(http(timeout_seconds=0), "target.timeout_seconds", "0.001", id="no time"),
        pytest.param(http(body="x" * 300_000), "target.body", "256 KiB", id="large body"),
        pytest.param(command(argv=[]), "target.argv", "name of a program", id="no argv"),
        pytest.param(command(argv=None), "target.argv", "name of a program", id="argv null"),
        pytest.param(command(argv=[""]), "target.argv", "name of a program", id="empty program"),
        pytest.param(command(argv="ls -l"), "target.argv", "must be an array", id="argv a text"),
        pytest.param(command(argv=["ls", 1]), "target.argv[1]", "must be text", id="argv a number"),
        pytest.param(command(argv=["ls", "a\0b"]), "target.argv[1]", "NUL", id="argv NUL"),
        pytest.param(command(env={"A=B": "c"}), "target.env.A=B", "the name must not contain =", id="env name"),
        pytest.param(command(env={"A": True}), "target.env.A", "must be text", id="env boolean"),
        pytest.param(command(cwd="a" * 4_097), "target.cwd", "1 to 4,096", id="long cwd"),
        pytest.param(command(cwd="/a\n"), "target.cwd", "control character", id="cwd"),
        pytest.param(command(stdin={"a": 1}), "target.stdin", "must be text", id="stdin JSON"),
        pytest.param(command(stdin="a\0"), "target.stdin", "NUL", id="stdin NUL"),
        pytest.param(command(stdin="a" * 262_145), "target.stdin", "262,144", id="long stdin"),
        pytest.param(command(limits=[]), "target.limits", "object", id="limits a list"),
        pytest.param(command(limits={"memory_mb": 15}), "target.limits.memory_mb", "16", id="little memory"),
        pytest.param(
            command(limits={"cpu_seconds": 0.5}), "target.limits.cpu_seconds", "an integer", id="half a second"
        ),
        pytest.param(command(limits={"nice": -1}), "target.limits.nice", "0", id="before others"),
        pytest.param(command(limits={"nice": 20}), "target.limits.nice", "19", id="too nice"),
        pytest.param(command(limits={"files": 1}), "target.limits.files", "unknown", id="limit unknown"),
        pytest.param(
            {"target_kind": "workflow", "workflow_id": "w", "version": "3"},
            "target.version",
            "an integer",
            id="version",
        ),
        pytest.param({"target_kind": "workflow", "workflow_id": "a b"}, "target.workflow_id", "1 to 128", id="blank"),
        pytest.param(
            {"target_kind": "workflow", "workflow_id": "w", "version": 0}, "target.version", "from 1", id="version 0"
        ),
        pytest.param(
            {"target_kind": "command", "argv": ["x"], "env": {"A": "1"}, "secret_env": {"A": "s"}},
            "target.secret_env.A",
            "also in env",
            id="secret and plain",
        ),
        pytest.param({"target_kind": "bundle", "bundle_id": None}, "target.bundle_id", "required", id="bundle"),
        pytest.param(
            {"target_kind": "bundle", "bundle_id": "b", "digest": "0" * 64}, "target.bundle_id", "one of", id="both"
        ),
        pytest.param({"target_kind": "bundle", "digest": "0f"}, "target.digest", "64 hexadecimal", id="digest"),
        pytest.param(http(literal="yes"), "target.literal", "true or false", id="literal"),
        pytest.param(http(literal=True, url="https://{{payload.x}}/"), "target.url", "placeholder", id="literal host"),
        pytest.param(http(literal=True, headers={"X": "a\nb"}), "target.headers.X", "line break", id="literal header"),
        pytest.param({"target_kind": "event", "event_type": "a b"}, "target.event_type", "160", id="event type"),
        pytest.param({"target_kind": "event", "event_type": "é"}, "target.event_type", "160", id="event type letters"),
        pytest.param({"target_kind": "task", "query": ""}, "target.query", "200,000", id="query"),
        pytest.param(
            {"target_kind": "session"},
            "target.type",
            "exact_session, resumable_session, materialize_on_demand_session",
            id="session without type",
        ),
        pytest.param(session(session_id="a/b"), "target.session_id", "1 to 128 letters", id="session id"),
        pytest.param(session(session_id="a" * 129), "target.session_id", "1 to 128 letters", id="long session id"),
        pytest.param(session(create={}), "target.create", "unknown field", id="create an exact session"),
        pytest.param(session(action=None), "target.action", "required", id="no action"),
        pytest.param(session(action="hello"), "target.action", "must be an object", id="action a text"),
        pytest.param(session(action={"type": "shout"}), "target.action.type", "prompt, event", id="action type"),
        pytest.param(session(action={"type": "prompt"}), "target.action.prompt", "required", id="no prompt"),
        pytest.param(prompted(""), "target.action.prompt", "1 to 200,000", id="empty prompt"),
        pytest.param(prompted([]), "target.action.prompt", "at least one block", id="no blocks"),
        pytest.param(prompted({"type": "text"}), "target.action.prompt", "at least one block", id="block not in array"),
        pytest.param(prompted(["hi"]), "target.action.prompt[0]", "must be an object", id="block a text"),
        pytest.param(
            prompted([{"type": "pdf"}]), "target.action.prompt[0].type", "text, image, video", id="block type"
        ),
        pytest.param(prompted([{"type": "text"}]), "target.action.prompt[0].text", "required", id="block without text"),
        pytest.param(
            prompted([{"type": "image", "media_type": "image/png"}]),
            "target.action.prompt[0].data",
            "required",
            id="image without data",
        ),
        pytest.param(
            prompted([{"type": "image", "media_type": "m", "source": "uri", "data": "x", "uri": "y"}]),
            "target.action.prompt[0].data",
            "unknown field",
            id="data of another source",
        ),
        pytest.param(
            prompted([{"type": "image", "media_type": "m", "data": "x", "duration_ms": 5}]),
            "target.action.prompt[0].duration_ms",
            "unknown field",
            id="an image has no length",
        ),
        pytest.param(
            prompted([{"type": "video", "media_type": "m", "data": "x", "duration_ms": 0}]),
            "target.action.prompt[0].duration_ms",
            "from 1",
            id="a video of no length",
        ),
        pytest.param(
            prompted([{"type": "text", "text": "x"}] * 101), "target.action.prompt", "at most 100", id="blocks"
        ),
        pytest.param(prompted([{"type": "text", "text": float("inf")}]), "target.action.prompt", "NaN", id="block inf"),
        pytest.param(
            session(action={**PROMPT, "skill_refs": [5]}), "target.action.skill_refs[0]", "must be text", id="skill"
        ),
        pytest.param(
            session(action={**PROMPT, "skill_refs": [{"a": {1}}]}),
            "target.action.skill_refs[0]",
            "not JSON",
            id="skill not JSON",
        ),
        pytest.param(
            session(action={"type": "event", "event_type": "x", "prompt": "y"}),
            "target.action.prompt",
            "unknown field",
            id="prompt in an event",
        ),
        pytest.param(on_demand(model=None), "target.create.model", "required", id="no model"),
        pytest.param(
            on_demand(provider="acme"), "target.create.provider", "anthropic, openai, gemini, other", id="llm"
        ),
        pytest.param(on_demand(max_tokens=0), "target.create.max_tokens", "from 1", id="max tokens"),
        pytest.param(
            on_demand(structured_output_retries=101), "target.create.structured_output_retries", "to 100", id="retries"
        ),
        pytest.param(on_demand(labels={"a": 1}), "target.create.labels.a", "must be text", id="labels"),
        pytest.param(on_demand(keep_alive="yes"), "target.create.keep_alive", "true or false", id="keep alive"),
        pytest.param({**on_demand(), "create": None}, "target.create", "required", id="no create"),
        pytest.param({**on_demand(), "session_id": "s"}, "target.session_id", "bound_session_id", id="id on demand"),
        pytest.param(
            {"target_kind": "mob", "type": "swarm"}, "target.type", "member, flow, spawn_helper", id="mob type"
        ),
        pytest.param(spawned(mob_id=""), "target.mob_id", "1 to 200", id="mob id"),
        pytest.param(spawned(options=5), "target.options", "must be an object", id="options"),
        pytest.param(
            spawned(options={"backend": "cloud"}), "target.options.backend", "session, external", id="backend"
        ),
        pytest.param(
            spawned(options={"runtime_mode": "x"}),
            "target.options.runtime_mode",
            "autonomous_host, turn_driven",
            id="mode",
        ),
        pytest.param(
            spawned(options={"tool_access_policy": {}}),
            "target.options.tool_access_policy.type",
            "inherit, allow_list, deny_list",
            id="tool access",
        ),
        pytest.param(
            spawned(options={"tool_access_policy": {"type": "inherit", "value": []}}),
            "target.options.tool_access_policy.value",
            "unknown field",
            id="inherited tools",
        ),
        pytest.param(spawned(options={"role": "x"}), "target.options.role", "role_name", id="unknown option"),
        pytest.param(spawned(fork_context={}), "target.fork_context", "unknown field", id="a fork is not a spawn"),
        pytest.param(
            spawned(type="fork_helper", source_member_id="a", fork_context={"type": "last_messages"}),
            "target.fork_context.count",
            "required",
            id="no count",
        ),
        pytest.param(
            spawned(type="fork_helper", source_member_id="a", fork_context={"type": "last_messages", "count": 0}),
            "target.fork_context.count",
            "from 1",
            id="the last no messages",
        ),
        pytest.param(
            spawned(type="fork_helper", source_member_id="a", fork_context={"type": "full_history", "count": 5}),
            "target.fork_context.count",
            "unknown field",
            id="a count of everything",
        ),
        pytest.param(
            spawned(type="fork_helper", source_member_id="a", fork_context={"type": "some"}),
            "target.fork_context.type",
            "full_history, last_messages",
            id="fork context",
        ),
        pytest.param(
            {"target_kind": "mob", "type": "member", "mob_id": "m", "member_id": "a", "action": {"type": "prompt"}},
            "target.action.type",
            "send",
            id="mob action",
        ),
        pytest.param(
            {"target_kind": "mob", "type": "member", "mob_id": "m", "member_id": "a", "action": {**SEND, "to": "b"}},
            "target.action.to",
            "content",
            id="unknown field of a mob action",
        ),
        pytest.param(
            {"target_kind": "mob", "type": "member", "mob_id": "m", "member_id": "a"},
            "target.action",
            "required",
            id="no mob action",
        ),
    ],
)
def test_a_wrong_document_is_refused_where_it_is_wrong(document, field, words):
    ((where, message),) = problems_of(document)
    assert where == field
    assert words in message


def test_all_problems_are_reported_at_once():
    document = {
        "target_kind": "session",
        "type": "materialize_on_demand_session",
        "create": {"model": 5, "provider": "acme", "typo": 1},
        "action": {"type": "prompt", "prompt": [{"type": "text"}, {"type": "image"}], "skill_refs": "x"},
        "session_id": "s",
    }
    assert {field for field, _ in problems_of(document)} == {
        "target.action.prompt[0].text",
        "target.action.prompt[1].media_type",
        "target.action.prompt[1].data",
        "target.action.skill_refs",
        "target.create.model",
        "target.create.provider",
        "target.create.typo",
        "target.session_id",
    }


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost",
        "HTTPS://Example.COM/",
        "http://127.0.0.1:8080/x?y=1#z",
        "http://[2001:db8::1]:8080/",
        "http://my_service:9000/",
        "https://bücher.example/straße",
        "https://example.com./",
        "https://example.com/a@b",
        "https://example.com/{nominal_at}?at={{due_at}}",
    ],
)
def test_urls_that_people_use_are_kept_as_written(url):
    assert parse_target(http(url=url)).url == url


def test_where_a_request_goes_is_known_before_it_is_filled_in():
    address = parse_target(http(url="https://a.example:8443/{{payload}}")).address
    assert (address.scheme, address.host, address.port) == ("https", "a.example", 8443)


def test_a_document_that_brings_a_secret_is_refused_without_a_word_of_it():
    problems = []
    reader = Reader({"s3cr3t": 1, "list": "s3cr3t"}, path="", code="", problems=problems, repeats=False)
    assert reader.each("list", str, high=9) == ()
    reader.close()
    assert [str(one) for one in problems] == ["list: must be an array", "has 1 unknown fields; allowed are list"]


@pytest.mark.parametrize(("method", "stored"), [("get", "GET"), ("PATCH", "PATCH"), (None, "POST")])
def test_a_method_is_stored_in_capitals_and_post_is_the_default(method, stored):
    assert parse_target(http(method=method)).to_document()["method"] == stored


@pytest.mark.parametrize("document", [{"payload": None}, {}])
def test_an_event_without_a_payload_has_an_empty_one(document):
    assert parse_target({"target_kind": "event", "event_type": "e", **document}).payload == {}


@pytest.mark.parametrize("fields", [{}, {"fork_context": {"type": "full_history"}}, {"options": {}}])
def test_a_fork_takes_the_whole_history_by_default(fields):
    target = parse_target(spawned(type="fork_helper", source_member_id="a", **fields))
    assert target.to_document()["fork_context"] == {"type": "full_history"}


def test_media_without_a_source_is_inline():
    target = parse_target(prompted([{"type": "image", "media_type": "image/png", "data": "aGk="}]))
    assert target.to_document()["action"]["prompt"][0]["source"] == "inline"


def test_a_flow_may_have_no_parameters():
    document = {"target_kind": "mob", "type": "flow", "mob_id": "m", "flow_id": "f"}
    assert parse_target({**document, "params": None}) == parse_target(document)


def test_later_changes_to_the_callers_document_do_not_reach_the_target():
    arguments = {"days": [1, 2]}
    target = parse_target({"target_kind": "function", "function": "f", "kwargs": arguments})
    arguments["days"].append(3)
    assert target.kwargs == {"days": [1, 2]}


def test_tuples_are_arrays():
    written = parse_target({"target_kind": "function", "function": "f", "args": ((1, 2), {"a": (3,)})})
    stored = parse_target({"target_kind": "function", "function": "f", "args": [[1, 2], {"a": [3]}]})
    assert written == stored


@given(target_documents)
def test_a_target_survives_being_stored(document):
    target = parse_target(document)
    stored = json.loads(json.dumps(target.to_document()))
    assert parse_target(stored) == target
    assert parse_target(stored).to_document() == stored
    assert hash(parse_target(stored)) == hash(target)


@given(target_documents, st.data())
def test_no_field_of_a_document_is_ignored(document, data):
    """Leaving any field out changes the target, or is an error, or says what is the default anyway."""
    field = data.draw(st.sampled_from(sorted(document)))
    try:
        without = parse_target({name: value for name, value in document.items() if name != field})
    except InvalidSchedule as error:
        assert error.problems[0].field == f"target.{field}"  # noqa: PT017 - either way is fine, silence is not
    else:
        full = parse_target(document).to_document()
        assert (without.to_document() != full) or document[field] in _DEFAULTS.get(field, _EMPTY)


_EMPTY = ([], {}, None, 0)
_DEFAULTS = {"method": ("POST",), "fork_context": ({"type": "full_history"},)}


@pytest.mark.no_cover  # it takes long, and what it comes by is shown by tables
@pytest.mark.parametrize("name", FULL_TARGETS)
def test_hostile_values_anywhere_end_in_our_error_or_in_a_target(name):
    for path, kind in hostile_pairs(FULL_TARGETS[name]):
        try:
            try:
                parse_target(changed(FULL_TARGETS[name], path, HOSTILE[kind])).to_document()
            except InvalidSchedule as error:
                assert_fit_for_a_log(error)
        except Exception as error:
            error.add_note(f"{kind} at {path}")
            raise


@given(junk)
def test_junk_is_refused_and_nothing_else_happens(document):
    with pytest.raises(NoonmarkError) as caught:
        parse_target(document)
    assert_fit_for_a_log(caught.value)


@given(st.sampled_from(sorted(FULL_TARGETS)), st.data(), junk)
def test_junk_in_a_good_document_ends_in_our_error_or_in_a_target(name, data, value):
    path = data.draw(st.sampled_from(list(places(FULL_TARGETS[name]))))
    try:
        parse_target(changed(FULL_TARGETS[name], path, value)).to_document()
    except NoonmarkError as error:
        assert_fit_for_a_log(error)


@pytest.mark.no_cover  # slow when it is traced; tables show what it passes through
@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"target_kind": "task", "query": "q", "context": {"x": entangled()}}, "target.context"),
        ({"target_kind": "function", "function": "f", "args": entangled()}, "target.args"),
        (prompted(entangled()), "target.action.prompt"),
    ],
)
def test_lists_that_share_their_members_are_measured_as_they_would_be_written(document, field):
    assert problems_of(document) == [(field, "is larger than 256 KiB as JSON")]


def test_thousands_of_unknown_fields_are_counted():
    problems = problems_of({"target_kind": "task", "query": "q", **{f"k{index}": 1 for index in range(100_000)}})
    assert len(problems) == 21
    assert problems[-1] == ("target", "has 99,980 more unknown fields")


def test_the_digest_of_a_bundle_may_say_how_it_was_made():
    target = parse_target({"target_kind": "bundle", "digest": f"sha256:{'0f' * 32}"})
    assert target.to_document() == {"target_kind": "bundle", "digest": "0f" * 32}


def test_a_literal_request_has_braces_and_no_placeholders():
    fields = {"url": "https://a/{{x", "headers": {"X": "{{ who }}"}, "body": ["{{", "{{event}}"], "literal": True}
    target = parse_target(http(**fields))
    assert target.to_document().items() >= fields.items()
    assert list(target.unfillable(has_event=False)) == []
    assert len(parse_target(http(url="https://a/" + "x" * 16_374, literal=True)).url) == 16_384
