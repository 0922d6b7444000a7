"""Which session a delivery talks to, what it says there, and how far it may go."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from noonmark.core.agents.session import Session, schedule_session
from noonmark.core.facts import occurrence_facts
from noonmark.core.targets.content import TextBlock
from noonmark.core.targets.placeholders import Filling
from noonmark.core.targets.session import OnDemandSessionTarget, PromptAction, SessionTarget, SessionType
from noonmark.ports.agent_host import AgentTurn, TurnLimits

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.core.targets.content import Block, Content
    from noonmark.core.targets.session import SessionAction
    from noonmark.ports.store import Store
    from noonmark.ports.target import Assignment
    from noonmark.targets.agent.settings import AgentSettings


@dataclass(frozen=True, slots=True)
class Missing:
    """There is nothing to talk to."""

    why: str


def resolve(assignment: Assignment, store: Store, settings: AgentSettings) -> AgentTurn | Missing:  # noqa: ARG001 - mobs are looked up in it
    """The turn of a delivery; ValueError if it asks for what its occurrence does not have. Blocks on the store."""
    schedule, occurrence = assignment.schedule, assignment.occurrence
    target, filling = schedule.declaration.target, Filling(occurrence_facts(schedule, occurrence))
    match target:
        case SessionTarget():
            turn = _turn(assignment, settings, target.session_id, target.action, filling)
            return replace(turn, revives=target.type is SessionType.RESUMABLE)
        case OnDemandSessionTarget():
            session_id = target.bound_session_id or schedule_session(schedule.uid)
            turn = _turn(assignment, settings, session_id, target.action, filling)
            return replace(turn, create=_new_session(schedule, session_id, target), revives=True)
        case _:
            return Missing(f"this node cannot deliver to a {target.kind} target of this type")


def _turn(
    assignment: Assignment, settings: AgentSettings, session_id: str, action: SessionAction, filling: Filling
) -> AgentTurn:
    schedule, declaration = assignment.schedule, assignment.schedule.declaration
    limits = TurnLimits(
        run=settings.run_limits(declaration),
        max_tool_calls=settings.tool_limit(declaration),
        deadline=deadline(assignment, settings),
    )
    return AgentTurn(
        owner=schedule.owner,
        schedule_id=schedule.schedule_id,
        occurrence=assignment.occurrence,
        target=declaration.target,
        session_id=session_id,
        action=fill_action(action, filling),
        limits=limits,
        traceparent=assignment.traceparent,
    )


def _new_session(schedule: Schedule, session_id: str, target: OnDemandSessionTarget) -> Session:
    return Session(
        tenant=schedule.owner.tenant,
        session_id=session_id,
        user=schedule.owner.user,
        spec=target.create,
        schedule_id=schedule.schedule_id,
    )


def deadline(assignment: Assignment, settings: AgentSettings) -> Micros | None:
    """When a delivery has to end: at its timeout, when its window closes, or after the time limit of agents."""
    if assignment.started is None:
        return None
    ends = assignment.ends_by(assignment.started)
    if assignment.schedule.declaration.timeout is not None:
        return ends
    own = assignment.started + settings.time_limit
    return own if ends is None else min(own, ends)


def fill_action(action: SessionAction, filling: Filling) -> SessionAction:
    """The action with the facts of its occurrence in it."""
    if not isinstance(action, PromptAction):
        return replace(action, payload=filling.json(action.payload))
    return replace(
        action,
        prompt=fill_content(action.prompt, filling),
        system_prompt=None if action.system_prompt is None else filling.prose(action.system_prompt),
        additional_instructions=tuple(filling.prose(text) for text in action.additional_instructions),
    )


def fill_content(content: Content, filling: Filling) -> Content:
    """The content with the facts of its occurrence in its texts."""
    if isinstance(content, str):
        return filling.prose(content)
    return tuple(_filled(block, filling) for block in content)


def _filled(block: Block, filling: Filling) -> Block:
    return replace(block, text=filling.prose(block.text)) if isinstance(block, TextBlock) else block
