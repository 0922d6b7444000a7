"""MCP with the official client, over HTTP and stdio: who is let in, what is offered, and what is refused."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from noonmark.operations.tools import TOOLS
from tests.cli.runner import call as command
from tests.embedded.waiting import SOON
from tests.server.live_server import GREET, NOON, bearer, new_key, serving
from tests.server.test_rate_limits import limits

TENANTS = {"acme": "read,write,run", "rival": "read,write,run"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def served():
    with serving(keyed=True, begins=True) as server:
        server.keys = {name: new_key(server.service, tenant=name, user="ada", scopes=TENANTS[name]) for name in TENANTS}
        server.reader = new_key(server.service, tenant="acme", user="eve", scopes="read")
        yield server


def talk(served, key, conversation, mode="auto"):
    """Hold a conversation as a client with a key."""

    async def run():
        async with (
            httpx2.AsyncClient(headers=bearer(key), timeout=SOON) as http,
            Client(streamable_http_client(f"{served.url}/mcp", http_client=http), mode=mode) as client,
        ):
            return await conversation(client)

    return asyncio.run(run())


def call(name, **arguments):
    """A call of one tool."""
    return lambda client: client.call_tool(f"noonmark_{name}", arguments)


def post(served, message, headers):
    """One message, without the official client."""
    with httpx2.Client(base_url=served.url, timeout=SOON) as http:
        return http.post("/mcp", json=message, headers={**ACCEPT, **headers})


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_agent_creates_inspects_edits_runs_and_deletes_a_schedule(served, mode):
    async def conversation(client):
        listed = await client.list_tools()
        assert {tool.name for tool in listed.tools} == set(TOOLS)
        answer = await client.call_tool(
            "noonmark_schedule_create", {"name": "noon", "trigger": NOON, "target": GREET, "labels": {"of": mode}}
        )
        one = {"schedule_id": answer.structured_content["schedule_id"]}
        assert f"Created {one['schedule_id']}: active, next fires " in answer.content[0].text
        assert "12:00 Europe/Stockholm (in " in answer.content[0].text
        changed = await client.call_tool("noonmark_schedule_update", {**one, "description": "changed"})
        assert changed.structured_content["description"] == "changed"
        run = await client.call_tool("noonmark_schedule_run_now", {**one, "payload": "you"})
        finished = {**one, "phase": "completed"}
        ended = []
        async with asyncio.timeout(SOON):
            while not ended:
                page = await client.call_tool("noonmark_schedule_occurrences", finished)
                ended = page.structured_content["occurrences"]
        assert [one["occurrence_id"] for one in ended] == [run.structured_content["occurrence_id"]]
        gone = await client.call_tool("noonmark_schedule_delete", one)
        assert gone.structured_content["phase"] == "deleted"
        left = await client.call_tool("noonmark_schedule_list", {"labels": {"of": mode}})
        assert left.structured_content["schedules"] == []
        prompts, resources = await client.list_prompts(), await client.list_resources()
        prompt = await client.get_prompt(prompts.prompts[0].name)
        resource = await client.read_resource(resources.resources[0].uri)
        assert prompt.messages[0].content.text == resource.contents[0].text
        assert "noonmark_schedule_preview" in resource.contents[0].text

    talk(served, served.keys["acme"], conversation, mode)
    entries = served.client.get("/audit", headers={"Noonmark-Tenant": "acme"}).json()["entries"]
    assert [one["operation"] for one in entries[:2]] == ["schedule/delete", "schedule/run"]


def test_errors_are_answers_that_a_model_can_read(served):
    wrong = {"type": "cron", "expression": "0 25 * * *"}
    found = talk(served, served.keys["acme"], call("schedule_create", trigger=wrong, target=GREET))
    assert found.is_error
    assert found.structured_content["error"]["code"] == "invalid_trigger"
    assert found.structured_content["error"]["tool_code"] == -32602
    assert found.content[0].text.startswith("Error invalid_trigger:\n- trigger.expression: ")

    async def unknown(client):
        with pytest.raises(MCPError, match="there is no tool"):
            await client.call_tool("noonmark_shell", {})

    talk(served, served.keys["acme"], unknown)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:8001"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_pages_of_other_sites_and_other_hosts_are_refused(served, headers):
    """M1: each is 403, with a good key."""
    answer = post(served, INITIALIZE, {**bearer(served.keys["acme"]), **headers})
    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")


def test_only_keys_of_this_server_are_good_and_the_tenant_is_theirs(served):
    """M2: tokens of another audience are refused; no argument, header or metadata leads to another tenant."""
    token = "eyJhbGciOiJub25lIn0.eyJhdWQiOiJvdGhlciJ9."  # noqa: S105 - signed by nobody
    guesses = [{}, bearer(token), bearer("nm_live_000000_" + "0" * 43), {"Authorization": "Basic YTpi"}]
    assert [post(served, INITIALIZE, one).status_code for one in guesses] == [401] * len(guesses)
    mine = talk(served, served.keys["rival"], call("schedule_create", schedule_id="mine", trigger=NOON, target=GREET))
    assert mine.structured_content["owner"]["tenant"] == "rival"
    for arguments in ({"tenant": "rival"}, {"owner": {"tenant": "rival"}}, {"as_tenant": "rival"}):
        found = talk(served, served.keys["acme"], call("schedule_get", schedule_id="mine", **arguments))
        assert found.structured_content["error"]["code"] == "invalid_request"
    found = talk(served, served.keys["acme"], call("schedule_get", schedule_id="mine"))
    assert found.structured_content["error"]["tool_code"] == -32004
    listing = talk(served, served.keys["acme"], call("schedule_list", include_deleted=True, limit=100))
    assert "rival" not in json.dumps(listing.structured_content)
    header = {**bearer(served.keys["acme"]), "Noonmark-Tenant": "rival"}
    assert post(served, INITIALIZE, header).status_code == 403


def test_a_session_id_is_nothing(served):
    """M3: there are no sessions; an id, guessed or not, neither lets anybody in nor changes who is asking."""
    good = bearer(served.keys["acme"])
    answer = post(served, INITIALIZE, good)
    assert answer.status_code == 200
    assert "mcp-session-id" not in answer.headers
    forged = {"Mcp-Session-Id": "0" * 32}
    assert post(served, INITIALIZE, forged).status_code == 401
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    offered = [post(served, listing, {**bearer(key), **forged}) for key in (served.keys["acme"], served.reader)]
    assert [len(one.json()["result"]["tools"]) for one in offered] == [14, 6]
    with httpx2.Client(base_url=served.url, timeout=SOON) as http:
        assert [http.get("/mcp", headers=good).status_code, http.delete("/mcp", headers=good).status_code] == [405] * 2


def test_large_and_malformed_messages_are_refused(served):
    """M4: 10 MB of arguments, arguments without a schema, and what is no call at all."""
    good = bearer(served.keys["acme"])
    huge = {"name": "noonmark_emit_event", "arguments": {"event_type": "e", "payload": "x" * 10_000_000}}
    message = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": huge}
    assert post(served, message, good).status_code == 413
    for body in ([INITIALIZE], {"jsonrpc": "2.0"}, "text", 5, None):
        assert 400 <= post(served, body, good).status_code < 500
    assert served.client.post("/mcp", headers=good).json()["detail"] == "there is no message; send one in JSON-RPC 2.0"
    extra = talk(served, served.keys["acme"], call("schedule_list", surprise=1))
    assert extra.structured_content["error"]["field"] == "surprise"
    assert served.client.get("/health").status_code == 200


MALFORMED = {
    b"{nonsense": (None, -32700, "Parse error: key must be a string at line 1 column 2"),
    b"[" * 5_000: (None, -32700, "Parse error: recursion limit exceeded at line 1 column 202"),
    b"\xff": (None, -32700, "Parse error: expected value at line 1 column 1"),
    b"5": (None, -32600, "Invalid Request: the message must be an object"),
    b'"input"': (None, -32600, "Invalid Request: the message must be an object"),
    b"[]": (None, -32600, "Invalid Request: the message must be an object"),
    b"{}": (None, -32600, "Invalid Request: jsonrpc is required"),
    b'{"id": 2, "method": "ping"}': (2, -32600, "Invalid Request: jsonrpc is required"),
    b'{"id": "a", "jsonrpc": "1.0", "method": "ping"}': ("a", -32600, "Invalid Request: jsonrpc must be '2.0'"),
    b'{"id": true, "jsonrpc": "2.0"}': (None, -32600, "Invalid Request: id must be text or an integer"),
    b'{"id": 3, "jsonrpc": "2.0", "method": 5}': (3, -32600, "Invalid Request: method must be text"),
    b'{"id": 4, "jsonrpc": "2.0", "method": "ping", "params": []}': (
        4,
        -32600,
        "Invalid Request: params must be an object",
    ),
    b'{"id": 5, "jsonrpc": "2.0", "result": 5}': (5, -32600, "Invalid Request: result must be an object"),
    b'{"id": 6, "jsonrpc": "2.0", "result": 5, "error": 6}': (
        6,
        -32600,
        "Invalid Request: result must be an object",
    ),
}
"""Messages that no server can carry out, and their errors."""
INVALID_PARAMS = {
    "tools/call": (
        (None, "params is required"),
        ({"name": 5}, "params.name must be text"),
        ({"name": "noonmark_usage", "arguments": "all"}, "params.arguments must be an object"),
    ),
    "prompts/get": (({}, "params.name is required"),),
}


def requests_with_invalid_params():
    """Requests, and the messages of their errors."""
    for method, rows in INVALID_PARAMS.items():
        for params, problem in rows:
            request = {"jsonrpc": "2.0", "id": 9, "method": method} | ({} if params is None else {"params": params})
            yield request, f"Invalid params: {problem}"


def test_a_malformed_message_gets_a_short_error_over_http(served):
    headers = {**ACCEPT, **bearer(served.keys["acme"]), "Content-Type": "application/json"}
    for body, (call_id, code, message) in MALFORMED.items():
        answer = served.client.post("/mcp", content=body, headers=headers)
        assert (answer.status_code, answer.headers["Cache-Control"]) == (400, "no-store")
        assert answer.json() == {"jsonrpc": "2.0", "id": call_id, "error": {"code": code, "message": message}}
    for request, message in requests_with_invalid_params():
        answer = post(served, request, bearer(served.keys["acme"])).json()
        assert answer["error"] | {"data": None} == {"code": -32602, "message": message, "data": None}


def test_a_malformed_message_gets_a_short_error_over_stdio(tmp_path):
    command_line = [sys.executable, "-m", "noonmark", "mcp", "--store", f"sqlite:///{tmp_path / 'agent.db'}"]
    with subprocess.Popen(command_line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:

        def answer_to(line):
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        early = answer_to(b'{"jsonrpc": "2.0", "id": 0, "method": "tools/list"}')["error"]
        assert (early["code"], early["message"]) == (-32600, "Invalid Request: the first request must be initialize")
        assert answer_to(json.dumps(INITIALIZE).encode())["result"]["serverInfo"]["name"] == "noonmark"
        for body, (call_id, code, message) in MALFORMED.items():
            expected = {"jsonrpc": "2.0", "id": call_id, "error": {"code": code, "message": message}}
            assert answer_to(b"\n" + body) == expected  # a blank line is no message, and gets no answer
        for request, message in requests_with_invalid_params():
            assert answer_to(json.dumps(request).encode())["error"]["message"] == message
        assert answer_to(b'{"jsonrpc": "2.0", "id": 10, "method": "ping"}')["result"] == {}
        process.stdin.close()
        assert process.wait(SOON) == 0


def test_an_interrupt_ends_the_server_on_stdio(tmp_path):
    command_line = [sys.executable, "-m", "noonmark", "mcp", "--store", f"sqlite:///{tmp_path / 'agent.db'}"]
    with subprocess.Popen(command_line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(SOON) == -signal.SIGINT


def test_requests_count_against_the_rate_limit_of_the_key():
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    with serving(keyed=True, rates=limits) as server:
        answers = [post(server, listing, bearer(server.key)) for _ in range(3)]
    assert [one.status_code for one in answers] == [200, 200, 429]
    assert "retry-after" in answers[-1].headers


def test_a_key_that_only_reads_is_offered_nothing_that_writes(served):
    """M5: no writing tool is listed, destructive ones are annotated, no command target is offered or accepted."""

    async def conversation(client):
        return await client.list_tools(), await client.call_tool("noonmark_schedule_delete", {"schedule_id": "mine"})

    listed, refused = talk(served, served.reader, conversation)
    assert len(listed.tools) == 6
    assert all(tool.annotations.read_only_hint for tool in listed.tools)
    assert refused.structured_content["error"]["code"] == "missing_scope"
    everything = talk(served, served.keys["acme"], lambda client: client.list_tools())
    destructive = {tool.name for tool in everything.tools if tool.annotations.destructive_hint}
    assert destructive == {"noonmark_schedule_delete", "noonmark_schedule_update"}
    assert "command" not in json.dumps([tool.input_schema for tool in everything.tools])
    command = {"target_kind": "command", "argv": ["true"]}
    for key in (served.keys["acme"], served.key):
        found = talk(served, key, call("schedule_create", trigger=NOON, target=command))
        assert found.structured_content["error"]["code"] == "not_allowed"


def in_process(conversation, *place, **environment):
    """Hold a conversation with `noonmark mcp`, as a client starts it."""
    started = StdioServerParameters(
        command=sys.executable, args=["-m", "noonmark", "mcp", *place], env={**os.environ, **environment}
    )

    async def run():
        async with Client(stdio_client(started, errlog=sys.__stderr__)) as client:
            return await conversation(client)

    return asyncio.run(run())


def test_stdio_on_a_server_has_the_tools_of_the_key(served):
    async def conversation(client):
        listed = await client.list_tools()
        refused = await client.call_tool("noonmark_schedule_delete", {"schedule_id": "mine"})
        missing = await client.call_tool("noonmark_schedule_get", {"schedule_id": "gone"})
        return len(listed.tools), refused, missing

    tools, refused, missing = in_process(conversation, "--server", served.url, NOONMARK_KEY=served.reader)
    assert tools == 6
    assert refused.structured_content["error"]["tool_code"] == -32001
    assert missing.structured_content["error"]["tool_code"] == -32004


def test_stdio_on_a_store_does_everything_and_refuses_large_arguments(tmp_path):
    async def conversation(client):
        made = await client.call_tool("noonmark_schedule_create", {"trigger": NOON, "target": GREET, "name": "here"})
        huge = await client.call_tool("noonmark_emit_event", {"event_type": "e", "payload": "x" * 2_000_000})
        return made.structured_content, huge.structured_content["error"]["code"]

    store = f"sqlite:///{tmp_path / 'agent.db'}"
    made, huge = in_process(conversation, "--store", store)
    assert (made["source"], huge) == ("mcp", "payload_too_large")
    found = command("schedule", "status", "here", "--store", store, "--json")
    assert json.loads(found.out)["schedule_id"] == made["schedule_id"]


def test_the_library_is_loaded_with_the_first_request_only():
    code = (
        "import sys, noonmark, noonmark.cli.app, noonmark.server.app, noonmark.cli.commands.mcp;"
        "print([one for one in sys.modules if one in ('mcp', 'mcp_types', 'pydantic_ai')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
