"""The first call of a turn, as admission reserves it: what the turn needs at least to begin.

It does not load the libraries of agents. The host reserves the same call again, with its exact bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.agents.bounds import BYTES_PER_TOKEN, message_tokens, text_tokens
from noonmark.core.agents.messages import action_message
from noonmark.core.agents.session import member_session, schedule_session, task_session
from noonmark.core.agents.turns import spoken_session
from noonmark.core.budgets.budget import Reservation
from noonmark.core.budgets.spend import Amount
from noonmark.core.ids import HIDDEN
from noonmark.core.targets import TaskTarget
from noonmark.core.targets.mob import MobForkTarget, MobMemberTarget, MobSpawnTarget
from noonmark.core.targets.session import (
    OnDemandSessionTarget,
    PromptAction,
    SessionSpec,
    SessionTarget,
)
from noonmark.targets.agent.model_names import session_model
from noonmark.targets.agent.prices import PriceList
from noonmark.targets.agent.resolve import REMOTE_MODEL, goes_to_remote

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.core.targets import Target
    from noonmark.core.targets.session import SessionAction
    from noonmark.ports.store import Store
    from noonmark.targets.agent.settings import AgentSettings


def first_call_id(occurrence_id: str) -> str:
    """The id of the call that admission reserves."""
    return f"{occurrence_id}/first"


class FirstCalls:
    """Says what the first call of an occurrence may use. It may block on the store."""

    def __init__(self, store: Store, settings: AgentSettings) -> None:
        self._store, self._settings = store, settings
        self._prices = PriceList(settings.prices)

    def __call__(self, schedule: Schedule, occurrence: Occurrence) -> Reservation | None:
        """The reservation; None for a target that calls no model here, or whose model is unknown."""
        settings, declaration = self._settings, schedule.declaration
        if goes_to_remote(declaration.target, settings):
            return self._remote_run(schedule, occurrence)
        instructions = self._found(schedule, occurrence, declaration.target)
        if instructions is None:
            return None
        session_id, spec, action, earlier = instructions
        try:
            name = session_model(spec, settings.model)
        except ValueError:
            return None  # the delivery will say it
        if name.full in settings.models:
            return None  # its price is known once it is loaded
        instruction_tokens = message_tokens(action_message(action)) + text_tokens(spec.system_prompt or "")
        tokens, most = (
            instruction_tokens + min(earlier, settings.max_history_tokens),
            spec.max_tokens or settings.max_output_tokens,
        )
        return Reservation(
            call_id=first_call_id(occurrence.id),
            tenant=schedule.owner.tenant,
            user=schedule.owner.user,
            schedule_id=schedule.schedule_id,
            session_id=session_id,
            occurrence_id=occurrence.id,
            fence=None,
            model=name.full,
            provider=name.provider,
            most=Amount(tokens=tokens + most, cost=self._prices.most(name, tokens, most)),
            limits=settings.run_limits(declaration, schedule.owner.user),
        )

    def _remote_run(self, schedule: Schedule, occurrence: Occurrence) -> Reservation:
        """A remote host spends by itself, so all that the run may use is reserved."""
        limits, target = (
            self._settings.run_limits(schedule.declaration, schedule.owner.user),
            schedule.declaration.target,
        )
        return Reservation(
            call_id=first_call_id(occurrence.id),
            tenant=schedule.owner.tenant,
            user=schedule.owner.user,
            schedule_id=schedule.schedule_id,
            session_id=spoken_session(
                target, uid=schedule.uid, schedule_id=schedule.schedule_id, occurrence_id=occurrence.id
            ),
            occurrence_id=occurrence.id,
            fence=None,
            model=REMOTE_MODEL,
            provider=None,
            most=Amount(tokens=limits.max_tokens or 0, cost=limits.max_cost),
            limits=limits,
        )

    def _found(
        self, schedule: Schedule, occurrence: Occurrence, target: Target
    ) -> tuple[str, SessionSpec, SessionAction, int] | None:
        """The session that a target talks to, as far as it is known, what it is told, and the tokens before that."""
        spec: SessionSpec | None = None
        action: SessionAction
        match target:
            case OnDemandSessionTarget():
                session_id = target.bound_session_id or schedule_session(schedule.uid)
                spec, action = target.create, target.action
            case SessionTarget():
                session_id, action = target.session_id, target.action
            case MobMemberTarget():
                session_id = member_session(target.mob_id, target.member_id)
                action = PromptAction(prompt=target.content)
            case MobSpawnTarget() | MobForkTarget():
                session_id, spec = member_session(target.mob_id, target.member_id), SessionSpec(model="")
                action = PromptAction(prompt=target.prompt)
            case TaskTarget():
                session_id = task_session(schedule.schedule_id.removeprefix(HIDDEN), occurrence.id)
                spec = SessionSpec(model=str(target.context.get("model") or ""))
                return session_id, spec, PromptAction(prompt=target.query), 0
            case _:
                return None
        session = self._store.session(schedule.owner.tenant, session_id)
        if session is None:
            return None if spec is None else (session_id, spec, action, 0)
        return session_id, session.spec, action, session.bytes // BYTES_PER_TOKEN
