"""Tools: functions of the program that agents may call.

The registry is light, so that a program can register tools without loading the libraries of agents.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import re
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from noonmark.core.targets.mob import ToolAccess
from noonmark.ports.agent_host import ToolOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pydantic_ai.tools import Tool, ToolDefinition

    from noonmark.core.targets.mob import ToolAccessPolicy
    from noonmark.ports.agent_host import ToolDescription
    from noonmark.targets.agent.mcp_tools import McpTool

MAX_RESULT = 65_536
"""Characters of a result that an agent is shown."""
MAX_ERROR = 2_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


class ToolRegistry:
    """The functions that agents may call, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Callable[..., Any]] = {}

    def register(self, function: Callable[..., Any], name: str | None = None) -> str:
        """Let agents call a function; it may be async. ValueError if it cannot have that name."""
        given = name or str(getattr(function, "__name__", ""))
        if not _NAME.fullmatch(given):
            raise ValueError(f"a tool is named by up to 64 letters, digits, - and _, not {given!r}")
        if self._by_name.get(given, function) is not function:
            raise ValueError(f"there is another tool with the name {given!r}")
        self._by_name[given] = function
        return given

    def __len__(self) -> int:
        return len(self._by_name)

    def items(self) -> Iterable[tuple[str, Callable[..., Any]]]:
        """The names and functions so far."""
        return list(self._by_name.items())


class Toolbox:
    """The tools of one turn."""

    def __init__(
        self,
        tools: Mapping[str, Tool[None]],
        policy: ToolAccessPolicy | None,
        own: Iterable[ToolDescription] = (),
        call_own: Callable[[str, object, str], ToolOutput] | None = None,
        mcp: Mapping[str, McpTool] | None = None,
    ) -> None:
        """`call_own` calls one of the `own` tools, by its name, with arguments and the id of the call; it may block.

        Where names are the same, the function of the program comes first, then the `own` tool, then the one of `mcp`.
        """
        self._tools = {name: tool for name, tool in tools.items() if _may_use(name, policy)}
        described = {one.name: one for one in own if _may_use(one.name, policy)}
        self._own = {name: one for name, one in described.items() if name not in self._tools}
        self._call_own = call_own
        taken = {*self._tools, *self._own}
        self._mcp = {name: tool for name, tool in (mcp or {}).items() if _may_use(name, policy) and name not in taken}

    @property
    def definitions(self) -> list[ToolDefinition]:
        """The description of the tools, for a model."""
        from pydantic_ai.tools import ToolDefinition  # noqa: PLC0415 - loaded with the libraries of agents

        described = [
            ToolDefinition(name=one.name, description=one.description, parameters_json_schema=one.parameters)
            for one in (*self._own.values(), *(tool.description for tool in self._mcp.values()))
        ]
        return [*(tool.tool_def for tool in self._tools.values()), *described]

    async def call(self, name: str, arguments: object, call_id: str = "") -> ToolOutput:
        """Call a tool. What goes wrong is the answer, so that the agent can do better."""
        if name in self._own and self._call_own is not None:
            output: ToolOutput = await _in_thread(partial(self._call_own, name, arguments or {}, call_id))
            return output
        if name in self._mcp:
            output = await self._mcp[name].call(arguments)
            if output.is_error:
                return ToolOutput(str(output.content)[:MAX_ERROR], is_error=True)
            return ToolOutput(_storable(output.content))
        return await self._call_registered(name, arguments)

    async def _call_registered(self, name: str, arguments: object) -> ToolOutput:
        from pydantic import ValidationError  # noqa: PLC0415 - loaded with the libraries of agents
        from pydantic_ai.exceptions import ModelRetry  # noqa: PLC0415 - likewise

        tool = self._tools.get(name)
        if tool is None:
            tool_names = ", ".join((*self._tools, *self._own, *self._mcp)) or "none"
            return ToolOutput(f"there is no tool {name!r}; available: {tool_names}", is_error=True)
        schema = tool.function_schema
        try:
            given = schema.validator.validate_python({} if arguments is None else arguments)
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False)]
            return ToolOutput("invalid arguments: " + "; ".join(problems)[:MAX_ERROR], is_error=True)
        positional = [given.pop(name) for name in schema.positional_fields]
        if schema.var_positional_field:
            positional.extend(given.pop(schema.var_positional_field))
        call = partial(schema.function, *positional, **given)
        try:
            result = await (call() if schema.is_async else _in_thread(call))
            if inspect.isawaitable(result):
                result = await result
        except ModelRetry as error:
            return ToolOutput(error.message[:MAX_ERROR], is_error=True)
        except Exception as error:  # noqa: BLE001 - a tool may raise anything
            return ToolOutput(f"{type(error).__name__}: {error}"[:MAX_ERROR], is_error=True)
        return ToolOutput(_storable(result))


def make_tools(registry: ToolRegistry) -> dict[str, Tool[None]]:
    """The tools with the schemas of their arguments."""
    from pydantic_ai.tools import Tool  # noqa: PLC0415 - loads the libraries of agents

    return {name: Tool(function, takes_ctx=False, name=name) for name, function in registry.items()}


def _may_use(name: str, policy: ToolAccessPolicy | None) -> bool:
    if policy is None or policy.type is ToolAccess.INHERIT:
        return True
    return (name in policy.tools) is (policy.type is ToolAccess.ALLOW_LIST)


def _storable(result: object) -> Any:
    """The result as JSON; of a long text its beginning."""
    from pydantic_core import to_json, to_jsonable_python  # noqa: PLC0415 - loaded with the libraries of agents

    value = to_jsonable_python(result, serialize_unknown=True, inf_nan_mode="strings")
    text = value if isinstance(value, str) else to_json(value).decode()
    if len(text) <= MAX_RESULT:
        return value
    return f"{text[:MAX_RESULT]}\n[cut off: {len(text):,} characters]"


async def _in_thread(call: Callable[[], Any]) -> Any:
    """Call a function in a thread of its own, which does not keep the process alive."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            result = context.run(call)
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
            report(ended.set_exception, error if isinstance(error, Exception) else RuntimeError(repr(error)))
        else:
            report(ended.set_result, result)

    def report(set_end: Callable[[Any], None], end: object) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(lambda: None if ended.done() else set_end(end))

    threading.Thread(target=run, name="noonmark-agent-tool", daemon=True).start()
    return await ended
