"""Tools of MCP servers: real servers over HTTP and stdio, and agents that call their tools."""

import shlex
import subprocess
import sys
from importlib.util import find_spec

import pytest

from noonmark import AgentSettings, Scheduler, extras
from noonmark.core.agents.session import Session
from noonmark.core.errors import InvalidSchedule, MissingExtra
from noonmark.core.targets.mob import ToolAccess, ToolAccessPolicy
from noonmark.core.targets.session import SessionSpec
from noonmark.embedded.declarations import OWNER
from noonmark.server.config import load
from noonmark.targets.agent import mcp_tools
from noonmark.targets.agent.tools import MAX_RESULT
from tests.embedded.waiting import eventually
from tests.server.live_server import serving
from tests.servers.openai_server import OpenAIServer, Reply
from tests.targets.agent.agent_rig import MODEL, AgentRig

GADGETS = """
import os, pathlib, sys
import anyio
from mcp.server.mcpserver import MCPServer

server = MCPServer("gadgets")

@server.tool()
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

@server.tool()
def broken() -> str:
    raise OSError("no disk")

@server.tool(name="long.text")
def long_text() -> str:
    return "x" * 100_000

@server.tool()
def die() -> str:
    os._exit(1)

@server.tool()
async def wait() -> str:
    pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
    await anyio.sleep_forever()

server.run("stdio")
"""


def asking(*calls):
    return Reply(tool_calls=[(name, arguments) for name, arguments in calls])


@pytest.fixture
def gadgets(tmp_path):
    """The command of a server, and the file to which a call of `wait` writes its process id."""
    script = tmp_path / "gadgets.py"
    script.write_text(GADGETS)
    pid = tmp_path / "pid"
    return shlex.join([sys.executable, str(script), str(pid)]), pid


@pytest.fixture
def make_rig(monkeypatch):
    collected = []

    def make(*script, **settings):
        collected.append(OpenAIServer(*script).__enter__())
        collected.append(AgentRig(collected[-1], monkeypatch, **settings).__enter__())
        return collected[-1]

    yield make
    for one in reversed(collected):
        one.__exit__(None, None, None)


def scheduled(one, access, *tools):
    """A schedule whose session has a policy."""
    job = one.schedule()
    policy = ToolAccessPolicy(type=access, tools=tools)
    spec = SessionSpec(model=MODEL)
    session_id = one.session_id(job)
    one.store.put_session(
        Session(tenant=OWNER.tenant, session_id=session_id, user=OWNER.user, spec=spec, tool_access_policy=policy)
    )
    return job


def results(one, job):
    """What the tools have answered, in order."""
    return [text for who, texts in one.said(job) if who == "tool" for text in texts]


def offered(request):
    return {tool["function"]["name"]: tool["function"] for tool in request["tools"]}


def is_alive(pid):
    """Whether a process runs; one that has ended and is not waited for does not."""
    process = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(process.stdout.strip()) and not process.stdout.startswith("Z")


def test_tools_over_http_are_offered_by_the_policy_and_called(make_rig):
    with serving() as server:
        script = (asking(("noon_noonmark_schedule_list", {})), Reply("none"))
        agent = make_rig(*script, mcp_servers={"noon": f"{server.url}/mcp"})
        job = scheduled(agent, ToolAccess.ALLOW_LIST, "noon_noonmark_schedule_list")
        assert agent.run(job)[0] == "completed"
    [first, _] = agent.server.requests
    assert list(offered(first)) == ["noon_noonmark_schedule_list"]
    assert "label" in str(offered(first)["noon_noonmark_schedule_list"]["parameters"])
    assert "0 schedules" in results(agent, job)[0]


def test_tools_over_stdio_answer_fail_and_are_cut_off(make_rig, gadgets):
    command, _ = gadgets
    calls = [("g_add", {"a": 1, "b": 2}), ("g_add", {"a": "x"}), ("g_broken", {}), ("g_long_text", {}), ("g_gone", {})]
    agent = make_rig(
        asking(*calls), asking(("g_die", {})), asking(("g_add", {"a": 2, "b": 2})), mcp_servers={"g": command}
    )
    job = scheduled(agent, ToolAccess.DENY_LIST, "g_wait")
    assert agent.run(job)[0] == "completed"
    assert set(offered(agent.server.requests[0])) == {"g_add", "g_broken", "g_long_text", "g_die"}
    assert set(offered(agent.server.requests[0])["g_add"]["parameters"]["required"]) == {"a", "b"}
    added, invalid, broken, long, gone, died, after = results(agent, job)
    assert added == "3"
    assert invalid.startswith("!")
    assert broken == "!Error executing tool broken"
    assert long == "x" * MAX_RESULT + "\n[cut off: 100,000 characters]"
    assert gone.startswith("!there is no tool 'g_gone'; available: g_add")
    assert died.startswith("!the MCP server 'g' failed: ")
    assert after.startswith("!the MCP server 'g' failed: ")


def test_a_tool_that_takes_too_long_is_an_error_of_the_tool(make_rig, gadgets, monkeypatch):
    monkeypatch.setattr(mcp_tools, "CALL_SECONDS", 0.1)
    agent = make_rig(asking(("g_wait", {})), Reply("too bad"), mcp_servers={"g": gadgets[0]})
    job = agent.schedule()
    assert agent.run(job)[0] == "completed"
    assert results(agent, job) == ["!the tool did not answer within 0.1 s"]


def test_a_run_that_is_stopped_ends_the_process_of_its_server(make_rig, gadgets):
    command, pid = gadgets
    agent = make_rig(asking(("g_wait", {})), mcp_servers={"g": command})
    occurrence = agent.begin(agent.schedule())
    eventually(lambda: pid.exists() and pid.read_text())
    assert is_alive(int(pid.read_text()))
    assert agent.stop(occurrence) == "cancelled"
    assert not is_alive(int(pid.read_text()))


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:1/mcp", "/nowhere/to/be/found", f"{sys.executable} -c pass"],
    ids=["no port", "no command", "ends at once"],
)
def test_a_turn_does_not_begin_while_a_server_that_it_may_use_is_away(make_rig, address):
    agent = make_rig(Reply("without it"), mcp_servers={"lost": address})
    phase, _, run = agent.run(agent.schedule())
    assert (phase, agent.server.requests) == ("delivery_failed", [])
    assert run.error.startswith("the MCP server 'lost' of this node's agents is unavailable: ")
    unneeded = scheduled(agent, ToolAccess.ALLOW_LIST, "other")
    assert agent.run(unneeded)[0] == "completed"


def test_a_server_that_does_not_answer_is_away(make_rig, monkeypatch):
    monkeypatch.setattr(mcp_tools, "CONNECT_SECONDS", 0.1)
    silent = f"{sys.executable} -c 'import sys; sys.stdin.read()'"
    agent = make_rig(mcp_servers={"silent": silent})
    phase, _, run = agent.run(agent.schedule())
    assert (phase, "did not list its tools within 0.1 s" in run.error) == ("delivery_failed", True)


def test_servers_need_the_extra(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "mcp" else find_spec(name))
    with pytest.raises(MissingExtra, match=r"calling tools of MCP servers .* pip install 'noonmark\[mcp\]'"):
        Scheduler(agents=AgentSettings(mcp_servers={"g": "gadgets"}))


def test_settings_name_servers():
    flags = {"agent_mcp": "files=uvx mcp-server-files --root '/a b';web=https://example.com/mcp"}
    servers = {"files": "uvx mcp-server-files --root '/a b'", "web": "https://example.com/mcp"}
    loaded = load(flags, {})
    assert loaded.settings.agent_mcp == servers
    assert "example.com" not in repr(loaded.settings)
    hidden = load({"agent_mcp": "web=https://ada:opensesame@example.com/mcp"}, {}).to_document()["agent_mcp"]["value"]
    assert "opensesame" not in hidden["web"]
    for wrong in ("files", "a b=cmd", "1=cmd", "x='"):
        with pytest.raises(InvalidSchedule, match="MCP servers, as NAME=URL"):
            load({"agent_mcp": wrong}, {})
    for name, address, why in (("a b", "cmd", "is named by"), ("a", " ", "neither a URL"), ("a", "'", "quot")):
        with pytest.raises(InvalidSchedule, match=why):
            Scheduler(agents=AgentSettings(mcp_servers={name: address}))
