"""Which session a delivery talks to, what it says there, and how far it may go."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.agents.containment import SOURCE, containment_problem
from noonmark.core.agents.helpers import forked, new_helper, pattern_of
from noonmark.core.agents.session import Session, member_session, schedule_session, task_session
from noonmark.core.agents.tasks import task_prompt
from noonmark.core.agents.turns import asks_for_remote
from noonmark.core.budgets.budget import WholeRun
from noonmark.core.frozen import frozen
from noonmark.core.ids import HIDDEN
from noonmark.core.occurrence_facts import occurrence_facts
from noonmark.core.targets import TaskTarget
from noonmark.core.targets.content import TextBlock
from noonmark.core.targets.mob import MobForkTarget, MobMemberTarget, MobSpawnTarget
from noonmark.core.targets.placeholders import Filling
from noonmark.core.targets.session import OnDemandSessionTarget, PromptAction, SessionSpec, SessionTarget, SessionType
from noonmark.core.workflows.hidden_schedules import TURNS
from noonmark.ports.agent_host import AgentTurn, TurnLimits
from noonmark.targets.agent.settings import EMBEDDED, declared_limits

if TYPE_CHECKING:
    from noonmark.core.agents.session import Message
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.core.targets import Target
    from noonmark.core.targets.content import Block, Content
    from noonmark.core.targets.session import SessionAction
    from noonmark.ports.store import Store
    from noonmark.ports.target import Assignment
    from noonmark.targets.agent.settings import AgentSettings


MAX_DEPTH = 16
"""How many workflows may be above a step; there are fewer."""
PAGE = 1_000
MAX_FORKED = 10_000
"""The most messages that a fork copies."""
REMOTE_MODEL = "remote"
"""The model of a session that the remote host chooses one for."""


@frozen
class Missing:
    """There is nothing to talk to."""

    why: str


def goes_to_remote(target: Target, settings: AgentSettings) -> bool:
    """Whether the remote host carries out the turns of a target."""
    return settings.host != EMBEDDED or asks_for_remote(target)


def resolve(assignment: Assignment, store: Store, settings: AgentSettings) -> AgentTurn | Missing:
    """The turn of a delivery; ValueError if it asks for what its occurrence does not have. Blocks on the store."""
    _check_containment(assignment.schedule, store)
    turn = _resolve(assignment, store, settings)
    root = None if isinstance(turn, Missing) else _root(assignment.occurrence, store)
    if isinstance(turn, Missing) or root is None:
        return turn
    # The steps of a workflow run together spend what its schedule declares; the settings limit each of them.
    schedule, occurrence_id = root
    declaration = schedule.declaration
    whole = WholeRun(occurrence_id=occurrence_id, limits=declared_limits(declaration))
    limits = replace(turn.limits, whole=whole, max_tool_calls=settings.tool_limit(declaration))
    return replace(turn, schedule_id=schedule.schedule_id, limits=limits)


def _check_containment(schedule: Schedule, store: Store) -> None:
    """ValueError for a schedule whose agent may use more than the session that made it."""
    if not schedule.source.startswith(SOURCE):
        return
    session_id = schedule.source.removeprefix(SOURCE)
    session = store.session(schedule.owner.tenant, session_id)
    policy = None if session is None else session.tool_access_policy
    problem = containment_problem(session_id, policy, schedule.declaration.target)
    if problem is not None:
        raise ValueError(problem)


def _root(occurrence: Occurrence, store: Store) -> tuple[Schedule, str] | None:
    """The schedule and the id of the workflow run that an occurrence is a step of; None if it is not a step."""
    uid = None
    for _ in range(MAX_DEPTH):
        parent = None if occurrence.overrides is None else occurrence.overrides.parent
        above = None if parent is None else store.occurrence(parent.occurrence_id)
        if above is None:
            break
        occurrence, uid = above, above.uid
    stored = None if uid is None else store.find_uid(uid)
    return None if stored is None else (stored.schedule, occurrence.id)


def _resolve(assignment: Assignment, store: Store, settings: AgentSettings) -> AgentTurn | Missing:
    schedule, occurrence = assignment.schedule, assignment.occurrence
    target, filling = schedule.declaration.target, Filling(occurrence_facts(schedule, occurrence))
    if asks_for_remote(target) and settings.remote_url is None:
        return Missing("it asks for the remote agent host, and this node has none (see --agents)")
    match target:
        case SessionTarget():
            turn = _turn(assignment, settings, target.session_id, target.action, filling)
            return replace(turn, revives=target.type is SessionType.RESUMABLE)
        case OnDemandSessionTarget():
            session_id = target.bound_session_id or schedule_session(schedule.uid)
            turn = _turn(assignment, settings, session_id, target.action, filling)
            return replace(turn, create=_new_session(schedule, session_id, target), revives=True)
        case MobMemberTarget():
            action = PromptAction(prompt=target.content, render_metadata=target.render_metadata)
            return _turn(assignment, settings, member_session(target.mob_id, target.member_id), action, filling)
        case MobSpawnTarget() | MobForkTarget():
            return _helper_turn(assignment, store, settings, target, filling)
        case TaskTarget():
            return _task_turn(assignment, settings, target, filling)
        case _:
            return Missing(f"this node cannot deliver to a {target.kind} target of this type")


def _turn(
    assignment: Assignment, settings: AgentSettings, session_id: str, action: SessionAction, filling: Filling
) -> AgentTurn:
    schedule, declaration = assignment.schedule, assignment.schedule.declaration
    limits = TurnLimits(
        run=settings.run_limits(declaration, schedule.owner.user),
        max_tool_calls=settings.tool_limit(declaration),
        deadline=deadline(assignment, settings),
    )
    return AgentTurn(
        owner=schedule.owner,
        schedule_id=schedule.schedule_id,
        occurrence=assignment.occurrence,
        target=declaration.target,
        session_id=session_id,
        # What somebody has typed is told as it is.
        action=action if schedule.schedule_id.startswith(TURNS) else fill_action(action, filling),
        limits=limits,
        traceparent=assignment.traceparent,
    )


def _helper_turn(
    assignment: Assignment,
    store: Store,
    settings: AgentSettings,
    target: MobSpawnTarget | MobForkTarget,
    filling: Filling,
) -> AgentTurn | Missing:
    owner, occurrence_id = assignment.schedule.owner, assignment.occurrence.id
    mob = store.mob(owner.tenant, target.mob_id)
    if mob is None:
        return Missing(f"there is no mob {target.mob_id!r}")
    pattern = pattern_of(mob, target)
    like = store.session(owner.tenant, member_session(target.mob_id, pattern.member_id))
    if like is None:
        return Missing(f"the mob {target.mob_id!r} has no member {pattern.member_id!r}")
    helper = new_helper(target, pattern, like, user=owner.user, occurrence_id=occurrence_id)
    turn = _turn(assignment, settings, helper.session_id, PromptAction(prompt=target.prompt), filling)
    history = _history(store, owner.tenant, target) if isinstance(target, MobForkTarget) else ()
    return replace(turn, create=helper, revives=True, history=history)


def _history(store: Store, tenant: str, target: MobForkTarget) -> tuple[Message, ...]:
    """The messages of the member that a helper is forked from, or the last ones and a few more."""
    session_id = member_session(target.mob_id, target.source_member_id)
    messages: list[Message] = []
    most = MAX_FORKED if target.last_messages is None else min(MAX_FORKED, target.last_messages + PAGE)
    before = None
    while len(messages) < most:
        page = store.messages(tenant, session_id, PAGE, before=before, newest_first=True)
        messages += page
        if len(page) < PAGE:
            break
        before = page[-1].number
    return forked(messages[::-1], target.last_messages)


def _task_turn(assignment: Assignment, settings: AgentSettings, target: TaskTarget, filling: Filling) -> AgentTurn:
    schedule = assignment.schedule
    prompt = task_prompt(filling.prose(target.query), target.context, settings.instructions)
    model = prompt.model or settings.model
    if model is None and goes_to_remote(target, settings):
        model = REMOTE_MODEL
    if model is None:
        raise ValueError("no model is named: set `model` in its context, or --agent-model")
    schedule_id = schedule.schedule_id.removeprefix(HIDDEN)
    session_id = task_session(schedule_id, assignment.occurrence.id)
    session = Session(
        tenant=schedule.owner.tenant,
        session_id=session_id,
        user=schedule.owner.user,
        spec=SessionSpec(model=model, system_prompt=prompt.system_prompt),
        schedule_id=schedule_id,
    )
    # The query is filled in already; what a template or the context says is not.
    turn = _turn(assignment, settings, session_id, PromptAction(prompt=""), filling)
    return replace(turn, action=PromptAction(prompt=prompt.prompt), create=session, revives=True)


def _new_session(schedule: Schedule, session_id: str, target: OnDemandSessionTarget) -> Session:
    return Session(
        tenant=schedule.owner.tenant,
        session_id=session_id,
        user=schedule.owner.user,
        spec=target.create,
        scopes=None if schedule.lineage is None else schedule.lineage.granted,
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
