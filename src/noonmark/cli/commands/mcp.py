"""`noonmark mcp`: the tools of agents over stdin and stdout, and what to paste into clients. `noonmark skill`."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from noonmark.cli.options import Connection
from noonmark.cli.output import print_answer, print_json
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import DEFAULT_SERVER, SERVER_VARIABLE, connect
from noonmark.core.errors import Conflict, InvalidRequest
from noonmark.core.json_values import shown
from noonmark.extras import require
from noonmark.wiring import SQLITE, file_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.cli.remote import Remote

NAME = "noonmark"
THREADS = 4
SKILL = "schedule-workflow"


def serve(*, connection: Connection = Connection()) -> None:
    """Serve the tools of agents over stdin and stdout, for a client that starts this command.

    With a server, the tools follow the scopes of the key. With --store, the client may do everything with that store.
    """
    require("mcp", "noonmark mcp")
    with connect(connection, is_agent=True) as remote:
        _serve(remote)


def _serve(remote: Remote) -> None:
    import anyio
    from mcp.server.stdio import stdio_server
    from mcp.shared.message import SessionMessage

    from noonmark.clocks import SystemClock
    from noonmark.server.mcp.messages import answer_malformed
    from noonmark.server.mcp.protocol import ToolServer

    async def run() -> None:
        limiter = anyio.CapacityLimiter(THREADS)
        server = ToolServer(lambda _: remote.call, SystemClock().micros, limiter).make()
        async with stdio_server() as (read, write), anyio.create_task_group() as tasks:
            send, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            tasks.start_soon(answer_malformed, read, write, send)
            await server.run(messages, write, server.create_initialization_options())

    # A thread that reads stdin cannot be interrupted: Ctrl-C would take effect at the end of stdin only.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    anyio.run(run)


def config(
    *,
    client: Annotated[
        str | None,
        Parameter(show_default=False, help="claude-desktop, claude-code, cursor or vscode; default: all of them."),
    ] = None,
    connection: Connection = Connection(),
) -> None:
    """Print what to paste into clients of MCP, so that their agents can use the tools.

    The key is never printed: put it where the text says YOUR_KEY. A key with the scopes of the agent is best, created
    with `noonmark key create --agent`.
    """
    if client is not None and client not in CLIENTS:
        raise InvalidRequest(f"must be one of {', '.join(CLIENTS)}, not {shown(client)}", field="--client")
    if connection.store is not None and connection.server is not None:
        raise InvalidRequest("conflicts with --server: give one of them", field="--store")
    chosen = CLIENTS if client is None else {client: CLIENTS[client]}
    parts = {name: make(connection) for name, (_, make) in chosen.items()}
    if connection.as_json:
        print_json(parts)
        return
    for name, part in parts.items():
        text = part if isinstance(part, str) else json.dumps(part, indent=2)
        sys.stdout.write(text + "\n" if client else f"{CLIENTS[name][0]}:\n\n{text}\n\n")


def _address(connection: Connection) -> str | None:
    """The server that a client calls; None if it uses a store."""
    if connection.store is not None:
        return None
    return (connection.server or os.environ.get(SERVER_VARIABLE) or DEFAULT_SERVER).rstrip("/")


def _command(connection: Connection) -> list[str]:
    # A program that a desktop starts may not find it on the PATH.
    program, address = shutil.which(NAME) or NAME, _address(connection)
    place = ["--store", _store(str(connection.store))] if address is None else ["--server", address]
    return [program, "mcp", *place]


def _store(url: str) -> str:
    """The URL of a store for a program that starts in any folder."""
    path = file_of(url)
    return url if path is None else f"{SQLITE}{path}"


def _stdio(connection: Connection) -> dict[str, Any]:
    program, *arguments = _command(connection)
    key = {} if connection.store is not None else {"env": {"NOONMARK_KEY": "YOUR_KEY"}}
    return {"command": program, "args": arguments, **key}


def _claude_desktop(connection: Connection) -> dict[str, Any]:
    return {"mcpServers": {NAME: _stdio(connection)}}


def _claude_code(connection: Connection) -> str:
    address = _address(connection)
    if address is None:
        return f"claude mcp add {NAME} -- {shlex.join(_command(connection))}"
    url = shlex.quote(f"{address}/mcp")
    return f'claude mcp add --transport http {NAME} {url} --header "Authorization: Bearer YOUR_KEY"'


def _cursor(connection: Connection) -> dict[str, Any]:
    address = _address(connection)
    if address is None:
        return {"mcpServers": {NAME: _stdio(connection)}}
    return {"mcpServers": {NAME: {"url": f"{address}/mcp", "headers": {"Authorization": "Bearer YOUR_KEY"}}}}


def _vscode(connection: Connection) -> dict[str, Any]:
    address = _address(connection)
    if address is None:
        return {"servers": {NAME: {"type": "stdio", **_stdio(connection)}}}
    key = {"type": "promptString", "id": "noonmark-key", "description": "Key of Noonmark", "password": True}
    headers = {"Authorization": "Bearer ${input:noonmark-key}"}
    return {"inputs": [key], "servers": {NAME: {"type": "http", "url": f"{address}/mcp", "headers": headers}}}


CLIENTS: dict[str, tuple[str, Callable[[Connection], dict[str, Any] | str]]] = {
    "claude-desktop": ("Claude Desktop, in claude_desktop_config.json", _claude_desktop),
    "claude-code": ("Claude Code, in a terminal", _claude_code),
    "cursor": ("Cursor, in .cursor/mcp.json", _cursor),
    "vscode": ("VS Code, in .vscode/mcp.json", _vscode),
}
"""Where each client keeps its servers, and what it needs there."""


def install_skill(
    folder: Annotated[str, Parameter(help="The folder of skills, such as ~/.claude/skills.")],
    /,
    *,
    as_json: Annotated[bool, Parameter(name="--json", negative=(), show_default=False, help="Print JSON.")] = False,
) -> None:
    """Write the skill schedule-workflow into a folder of skills: how an agent schedules work with these tools."""
    from noonmark.targets.agent.skills import FILE, companion_skill

    text, file = companion_skill(SKILL), Path(folder).expanduser() / SKILL / FILE
    if file.exists() and file.read_text("utf-8") != text:
        raise Conflict(f"{file} exists and is different; remove it first")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    except OSError as error:
        raise InvalidRequest(f"cannot be written: {error.strerror}", field=folder) from None
    print_answer({"skill": SKILL, "file": str(file)}, f"Wrote {file}.", as_json=as_json)
