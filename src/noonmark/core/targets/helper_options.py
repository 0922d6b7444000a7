"""What the helper of a mob target is: its role, how it runs, where it lives, and which tools it may use."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import named, present
from noonmark.core.jsonvalues import text_of

if TYPE_CHECKING:
    from noonmark.core.documents import Reader

MAX_TOOLS = 1_000

_tool = text_of(1, 200)


class RuntimeMode(StrEnum):
    """Whether a helper runs on its own or one turn at a time."""

    AUTONOMOUS_HOST = "autonomous_host"
    TURN_DRIVEN = "turn_driven"


class HelperBackend(StrEnum):
    """Where a helper lives."""

    SESSION = "session"
    EXTERNAL = "external"


class ToolAccess(StrEnum):
    """Which tools a helper may use: its parent's, only those named, or all but those named."""

    INHERIT = "inherit"
    ALLOW_LIST = "allow_list"
    DENY_LIST = "deny_list"


_MODES = named(RuntimeMode)
_BACKENDS = named(HelperBackend)
_ACCESS = named(ToolAccess)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAccessPolicy:
    """A kind of access and, unless it is inherited, the tools it speaks of."""

    type: ToolAccess
    tools: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        """The policy as JSON shows it."""
        inherits = self.type is ToolAccess.INHERIT
        return present(type=str(self.type), value=None if inherits else list(self.tools))


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperOptions:
    """What a helper is; whatever is left out is for the mob to choose."""

    role_name: str | None = None
    runtime_mode: RuntimeMode | None = None
    backend: HelperBackend | None = None
    tool_access_policy: ToolAccessPolicy | None = None

    def to_document(self) -> dict[str, Any]:
        """The options as JSON shows them."""
        access = self.tool_access_policy
        return present(
            role_name=self.role_name,
            runtime_mode=None if self.runtime_mode is None else str(self.runtime_mode),
            backend=None if self.backend is None else str(self.backend),
            tool_access_policy=None if access is None else access.to_document(),
        )


def read_helper_options(reader: Reader) -> HelperOptions:
    """Read the options; none at all is fine."""
    fields = None if reader.raw("options") is None else reader.part("options")
    if fields is None:
        return HelperOptions()
    options = HelperOptions(
        role_name=fields.text("role_name", None),
        runtime_mode=fields.choice("runtime_mode", _MODES, None),
        backend=fields.choice("backend", _BACKENDS, None),
        tool_access_policy=_read_tool_access(fields),
    )
    fields.close()
    return options


def _read_tool_access(reader: Reader) -> ToolAccessPolicy | None:
    fields = None if reader.raw("tool_access_policy") is None else reader.part("tool_access_policy")
    if fields is None or (kind := fields.variant("type", _ACCESS)) is None:
        return None
    tools = () if kind is ToolAccess.INHERIT else fields.each("value", _tool, high=MAX_TOOLS)
    fields.close()
    return ToolAccessPolicy(type=kind, tools=tools)
