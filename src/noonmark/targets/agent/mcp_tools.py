"""Tools of MCP servers that the settings name.

Each turn opens the servers that it may use, and closes them when it ends: no connection outlives the turn, and a server
that was restarted is found again by the next one.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from noonmark.core.frozen import frozen
from noonmark.core.redaction import redact
from noonmark.core.targets.mob import ToolAccess
from noonmark.ports.agent_host import ToolDescription, ToolOutput
from noonmark.targets.log_filter import silence_libraries
from noonmark.targets.serialization import error_summary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from mcp.client.client import Client
    from mcp_types import CallToolResult

    from noonmark.core.targets.mob import ToolAccessPolicy

CONNECT_SECONDS = 30.0
"""How long a server has to start and to list its tools."""
CALL_SECONDS = 120.0
"""How long a tool may take; then the agent is told so."""
MAX_TOOL_NAME = 64
"""Providers refuse longer names."""
_SERVER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


class ServerAway(Exception):
    """A server that the turn needs did not start, or did not answer."""

    def __init__(self, name: str, why: str) -> None:
        self.own_words = f"the MCP server {name!r} of this node's agents is unavailable"
        super().__init__(f"{self.own_words}: {why}")


@frozen
class McpTool:
    """A tool of a server."""

    description: ToolDescription
    call: Callable[[object], Awaitable[ToolOutput]]


def check_mcp_server(name: str, address: str) -> None:
    """ValueError unless it is a name, and the URL of a server or the command that starts one."""
    if not _SERVER_NAME.fullmatch(name):
        raise ValueError(f"an MCP server is named by up to 32 letters, digits, - and _, not {name!r}")
    if not _is_url(address) and not shlex.split(address):
        raise ValueError(f"the MCP server {name!r} has neither a URL nor a command")


@asynccontextmanager
async def open_mcp_tools(
    addresses: Mapping[str, str], policy: ToolAccessPolicy | None, *, logs_content: bool
) -> AsyncIterator[dict[str, McpTool]]:
    """The tools of the servers that a policy lets an agent use, while the block lasts. ServerAway if one is away."""
    allowed = {name: address for name, address in addresses.items() if _may_have(name, policy)}
    if allowed:
        import mcp.client.client  # noqa: F401, PLC0415 - loaded with the first turn that needs it

        if not logs_content:
            silence_libraries("mcp")
    servers = [_Server(name, address) for name, address in allowed.items()]
    try:
        tools: dict[str, McpTool] = {}
        for server in servers:  # all of them are starting already
            for tool in await server.tools():
                tools.setdefault(tool.description.name, tool)
        yield tools
    finally:
        await asyncio.gather(*(server.close() for server in servers))


class _Server:
    """A connection in a task of its own: one that breaks must not cancel the turn."""

    def __init__(self, name: str, address: str) -> None:
        self._name = name
        self._is_over = asyncio.Event()
        self._listed: asyncio.Future[list[McpTool]] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._stay_open(address), name=f"noonmark-mcp-{name}")

    async def tools(self) -> list[McpTool]:
        """Its tools, once it has listed them."""
        either: set[asyncio.Future[Any]] = {self._task, self._listed}
        await asyncio.wait(either, timeout=CONNECT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if self._listed.done():
            return self._listed.result()
        if not self._task.done():
            raise ServerAway(self._name, f"it did not list its tools within {CONNECT_SECONDS:g} s")
        raise ServerAway(self._name, _cause(self._task))

    async def close(self) -> None:
        """End the connection, and a process that was started for it."""
        self._is_over.set()
        if not self._listed.done():
            self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.exception()  # what broke was told to the agent by the calls

    async def _stay_open(self, address: str) -> None:
        from mcp.client.client import Client  # noqa: PLC0415 - loaded with the first turn that needs it
        from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: PLC0415 - likewise

        if _is_url(address):
            async with Client(address) as client:
                await self._serve(client)
            return
        command, *arguments = shlex.split(address)
        # What a server writes to its standard error may repeat what the agent sent.
        with open(os.devnull, "w") as nowhere:  # noqa: ASYNC230, PTH123 - it does not block
            process = stdio_client(StdioServerParameters(command=command, args=arguments), errlog=nowhere)
            async with Client(process) as client:
                await self._serve(client)

    async def _serve(self, client: Client) -> None:
        tools: list[McpTool] = []
        cursor = None
        while True:
            page = await client.list_tools(cursor=cursor)
            tools += [
                McpTool(
                    ToolDescription(
                        name=_OTHER.sub("_", f"{self._name}_{tool.name}")[:MAX_TOOL_NAME],
                        description=tool.description or "",
                        parameters=dict(tool.input_schema),
                    ),
                    partial(self._call, client, tool.name),
                )
                for tool in page.tools
            ]
            cursor = page.next_cursor
            if cursor is None:
                break
        self._listed.set_result(tools)
        await self._is_over.wait()

    async def _call(self, client: Client, tool: str, arguments: object) -> ToolOutput:
        """Call a tool. What goes wrong is the answer."""
        given = {} if arguments is None else arguments
        if not isinstance(given, dict):
            return ToolOutput("invalid arguments: they must be an object", is_error=True)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                result = await client.call_tool(tool, given)
        except TimeoutError:
            return ToolOutput(f"the tool did not answer within {CALL_SECONDS:g} s", is_error=True)
        except Exception as error:  # noqa: BLE001 - a server may answer anything, or be gone
            why = redact(f"{type(error).__name__}: {error}")
            return ToolOutput(f"the MCP server {self._name!r} failed: {why}", is_error=True)
        return ToolOutput(_content(result), is_error=bool(result.is_error))


def _may_have(server: str, policy: ToolAccessPolicy | None) -> bool:
    """Whether a policy may allow a tool of a server: one that is not needed is not opened."""
    if policy is None or policy.type is not ToolAccess.ALLOW_LIST:
        return True
    return any(name.startswith(f"{server}_") for name in policy.tools)


def _is_url(address: str) -> bool:
    return address.startswith(("http://", "https://"))


def _content(result: CallToolResult) -> Any:
    """The text of a result; what is not text is only named."""
    parts = [part.text if part.type == "text" else f"[{part.type} left out]" for part in result.content]
    return "\n".join(parts) if parts else result.structured_content


def _cause(task: asyncio.Task[None]) -> str:
    """Why a connection ended. Task groups wrap the error."""
    error = None if task.cancelled() else task.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return "the connection was closed" if error is None else redact(error_summary(error))
