"""The settings of agents on a node."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.budget import RunLimits
from noonmark.core.budgets.spend import to_nanos
from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND
from noonmark.core.rate_limit import RateLimit
from noonmark.targets.agent.task_instructions import InstructionFiles
from noonmark.targets.agent.tools import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from noonmark.core.agents.tasks import Instructions
    from noonmark.core.budgets.prices import Price
    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Declaration
    from noonmark.ports.agent_host import ScheduleTools

EMBEDDED, OFF = "embedded", "off"
MINUTE: Micros = 60 * SECOND
MAX_PER_MINUTE = 10**9


@frozen(kw_only=True)
class ProviderLimit:
    """How much the nodes together may ask of a provider in a minute; None is not limited."""

    requests: int | None = None
    tokens: int | None = None

    def buckets(self) -> list[tuple[str, RateLimit, bool]]:
        """What is counted, its limit, and whether a call takes its tokens rather than one."""
        limits = [("requests", self.requests, False), ("tokens", self.tokens, True)]
        return [(name, RateLimit(most, MINUTE, most), by_token) for name, most, by_token in limits if most is not None]


def parse_provider_limit(text: str) -> ProviderLimit:
    """Read REQUESTS or REQUESTS,TOKENS; ValueError for anything else."""
    counts = [int(part) for part in text.split(",")]
    if not 1 <= len(counts) <= 2 or not all(1 <= count <= MAX_PER_MINUTE for count in counts):
        raise ValueError("must be one or two integers")
    return ProviderLimit(requests=counts[0], tokens=counts[1] if counts[1:] else None)


@frozen(kw_only=True)
class AgentSettings:
    """What agents of this node use, and how far they may go."""

    host: str = EMBEDDED
    """This process, or the URL of another host."""
    remote: str | None = None
    """The URL of the host for tasks and helpers that ask for it, where all others run in this process."""
    instructions: Instructions = field(default_factory=InstructionFiles)
    """The instructions that the context of a task can name."""
    model: str | None = None
    """For sessions and tasks that name none."""
    models: Mapping[str, Any] = field(default_factory=dict)
    """Models that the program made itself, by name."""
    tools: ToolRegistry = field(default_factory=ToolRegistry)
    schedule_tools: ScheduleTools | None = field(default=None, repr=False)
    """What calls the tools for schedules; the process that delivers turns sets it."""
    mcp_servers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """MCP servers whose tools agents may call, by name: the URL of each, or the command that starts it."""
    skills: Path | None = None
    """A folder with one folder per skill."""
    prices: Mapping[str, Price] = field(default_factory=dict)
    """Prices of models, before those of genai-prices."""
    multipliers: Mapping[str, float] = field(default_factory=dict)
    """How many times the limits of the budgets of users count, by user: their priority tiers."""
    provider_limits: Mapping[str, ProviderLimit] = field(default_factory=dict)
    max_model_calls: int = 50
    max_tool_calls: int = 200
    max_tokens: int = 1_000_000
    """Of one run, where its schedule does not say."""
    max_output_tokens: int = 4_096
    """Of one answer, where the session does not say."""
    max_history_tokens: int = 100_000
    """How much of a session's earlier messages a call sends."""
    time_limit: Micros = 600 * SECOND
    """Of one attempt, where its schedule has no timeout."""
    logs_content: bool = False
    """Whether logs may show prompts and answers."""

    @property
    def remote_url(self) -> str | None:
        """The URL of the remote host, if there is one."""
        return self.remote if self.host == EMBEDDED else self.host

    def run_limits(self, declaration: Declaration, user: str) -> RunLimits:
        """What one occurrence of a user may spend: what its schedule declares, and otherwise these settings.

        A schedule that limits the cost alone is limited by the cost alone, so that a call of unknown price is refused.
        """
        declared = declared_limits(declaration)
        is_unlimited = declared.max_tokens is None and declared.max_cost is None
        return RunLimits(
            max_cost=declared.max_cost,
            max_tokens=self.max_tokens if is_unlimited else declared.max_tokens,
            max_model_calls=_either(declared.max_model_calls, self.max_model_calls),
            multiplier=self.multipliers.get(user, 1),
        )

    def tool_limit(self, declaration: Declaration) -> int:
        """How many tools one occurrence may call."""
        return _either(getattr(declaration.budget, "max_tool_calls", None), self.max_tool_calls)


def declared_limits(declaration: Declaration) -> RunLimits:
    """What a schedule lets each of its runs spend."""
    budget = declaration.budget
    if budget is None:
        return RunLimits()
    cost = None if budget.max_cost_usd is None else to_nanos(budget.max_cost_usd)
    return RunLimits(max_cost=cost, max_tokens=budget.max_tokens, max_model_calls=budget.max_model_calls)


def _either(declared: int | None, default: int) -> int:
    return default if declared is None else declared
