"""The agent host: what carries out the turns of agents, in this process or at another service."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from noonmark.core.budgets.budget import RunLimits
from noonmark.core.frozen import frozen
from noonmark.ports.sessions import Turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.agents.session import Message, Session
    from noonmark.core.budgets.budget import WholeRun
    from noonmark.core.budgets.spend import Usage
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.reasons import Reason
    from noonmark.core.run import Outcome
    from noonmark.core.schedule import Owner
    from noonmark.core.settlement import Accepted
    from noonmark.core.targets import Target
    from noonmark.core.targets.mob import ToolAccessPolicy
    from noonmark.core.targets.session import SessionAction


@frozen(kw_only=True)
class TurnLimits:
    """What one occurrence may do, all attempts together; None is not limited."""

    run: RunLimits = field(default_factory=RunLimits)
    whole: WholeRun | None = None
    """What the workflow run may spend that it is a step of."""
    max_tool_calls: int | None = None
    deadline: Micros | None = None
    """When this delivery has to end, by the node's clock."""


@frozen(kw_only=True)
class AgentTurn:
    """One delivery to an agent: which session, what it is sent, and how far it may go. Placeholders are filled in."""

    owner: Owner
    schedule_id: str
    occurrence: Occurrence
    target: Target
    """What the schedule declares, for a host that resolves it by itself."""
    session_id: str
    action: SessionAction
    create: Session | None = None
    """The session to create if there is none with that id; without it, a missing session is an error."""
    revives: bool = False
    """An archived session is made idle again."""
    history: tuple[Message, ...] = field(default=(), hash=False)
    """The messages that a session begins with which this turn creates."""
    instructions: tuple[str, ...] = ()
    """Further instructions for this turn alone, besides those of the session and of the action."""
    tool_access_policy: ToolAccessPolicy | None = None
    """Replaces the policy of the session for this turn."""
    limits: TurnLimits = field(default_factory=TurnLimits)
    is_approved: bool = False
    """Somebody has approved that it goes beyond soft limits."""
    traceparent: str | None = None
    progress: Callable[[str], None] | None = field(default=None, compare=False, repr=False)
    """Takes what the turn waits for, and an empty text when it goes on."""

    @property
    def turn(self) -> Turn:
        """The delivery under whose fence messages are stored."""
        return Turn(
            tenant=self.owner.tenant,
            session_id=self.session_id,
            occurrence_id=self.occurrence.id,
            fence=self.occurrence.fence,
        )

    @property
    def idempotency_key(self) -> str:
        """The same for every delivery of the occurrence."""
        return f"schedule:{self.schedule_id}:occurrence:{self.occurrence.id}"


@frozen(kw_only=True)
class TurnResult:
    """How a turn ended."""

    outcome: Outcome
    text: str | None = None
    """The answer of the agent."""
    output: Any = field(default=None, hash=False)
    """The structured answer, where the session has an output schema."""
    usage: Usage | None = None
    """Of all deliveries of the occurrence together."""
    reason: Reason | None = None
    """Why it ended so, if the outcome does not say: `budget_exceeded` or `tool_loop`."""
    error: str | None = None
    own_words: str | None = None
    """What a log may say of the error: nothing in it has passed through the model."""
    is_final: bool = False
    """Another attempt would not mend it, or must not follow."""
    is_unknown: bool = False
    """Contact was lost after the work may have begun."""
    retry_after: Micros = 0


@frozen
class ToolOutput:
    """What a tool returned, or why it failed."""

    content: Any
    is_error: bool = False


@frozen(kw_only=True)
class ToolDescription:
    """The description of a tool, for a model."""

    name: str
    description: str
    parameters: dict[str, Any] = field(hash=False)


class ScheduleTools(Protocol):
    """The tools with which an agent makes schedules of its own."""

    def descriptions(self, turn: AgentTurn, session: Session) -> list[ToolDescription]:
        """What a model is told of those that the session may use. It may block on the store."""

    def call(self, turn: AgentTurn, session: Session, name: str, arguments: object, call_id: str) -> ToolOutput:
        """Call a tool on behalf of a session. It may block on the store, and raises nothing that the agent causes."""


class Readiness(StrEnum):
    """Whether a target can take a turn."""

    READY = "ready"
    BUSY = "busy"
    MISSING = "missing"
    UNKNOWN = "unknown"
    """The host cannot be reached, or cannot tell."""


@frozen(kw_only=True)
class Probe:
    """What a host says of a target."""

    readiness: Readiness
    detail: str = ""


class AgentHost(Protocol):
    """Carries out turns. The coroutines run on the loop of the agent runner; `probe` may block."""

    async def deliver(self, turn: AgentTurn) -> TurnResult | Accepted:
        """Carry out a turn, or accept it and report its end later by a callback.

        If the task is cancelled, it makes no further call of a model or a tool, and leaves the session as it is stored.
        """

    def probe(self, tenant: str, target: Target) -> Probe:
        """Whether a target could take a turn now."""

    async def cancel(self, turn: AgentTurn) -> None:
        """Stop a turn that was delivered, wherever it runs; one that has ended or is unknown is ignored."""

    async def close(self) -> None:
        """Release connections. Nothing is delivered afterwards."""
