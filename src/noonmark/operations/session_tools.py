"""The tools of sessions: what agents of this process schedule, on behalf of the owner of their session."""

from __future__ import annotations

import logging
from hashlib import blake2b
from typing import TYPE_CHECKING

from noonmark.core.agents.containment import SOURCE
from noonmark.core.api_key import session_scopes
from noonmark.core.errors import NoonmarkError
from noonmark.core.ids import is_hidden
from noonmark.core.schedule import Owner
from noonmark.core.signatures import chain_key, chain_proof
from noonmark.operations import tools
from noonmark.operations.service import Caller, CallingSession
from noonmark.operations.table import CALLS_TOOL, perform
from noonmark.ports.agent_host import ToolDescription, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.agents.session import Session
    from noonmark.operations.service import Service
    from noonmark.ports.agent_host import AgentTurn

logger = logging.getLogger("noonmark.agents")
KEYS = {
    "noonmark_schedule_create": "idempotency_key",
    "noonmark_schedule_propose": "idempotency_key",
    "noonmark_emit_event": "event_id",
}
"""The argument that makes a repeated call of a tool the same call."""


class SessionTools:
    """Performs the tools for sessions. Safe to use from any thread."""

    def __init__(self, service: Callable[[], Service] | None = None) -> None:
        """The service may be attached later: a server has its worker first."""
        self._service = service

    def attach(self, service: Service) -> None:
        """Use this service from now on."""
        self._service = lambda: service

    def descriptions(self, turn: AgentTurn, session: Session) -> list[ToolDescription]:
        """The description of the tools that a session may use, for its model."""
        if self._service is None:
            return []
        caller = _caller(self._service(), turn, session)
        shown = [tools.definition(tool.name) for tool in tools.offered_to(caller)]
        return [
            ToolDescription(name=one["name"], description=one["description"], parameters=one["input_schema"])
            for one in shown
        ]

    def call(self, turn: AgentTurn, session: Session, name: str, arguments: object, call_id: str) -> ToolOutput:
        """Call a tool. A call that is made again after a crash creates nothing twice."""
        assert self._service is not None  # noqa: S101 - otherwise nothing was offered
        service = self._service()
        given = dict(arguments) if isinstance(arguments, dict) else arguments
        try:
            if name in KEYS and isinstance(given, dict) and given.get(KEYS[name]) is None:
                given[KEYS[name]] = _key_of(turn, call_id)
            caller = _caller(service, turn, session, call_id)
            answer = perform(service, caller, CALLS_TOOL, {"name": name, "arguments": given})
        except NoonmarkError as error:
            return ToolOutput(tools.error_text(error), is_error=True)
        except Exception:
            logger.exception("%s of session %s failed", name, session.session_id)
            internal = NoonmarkError("internal error; the log has the cause")
            return ToolOutput(tools.error_text(internal), is_error=True)
        shown = given if isinstance(given, dict) else {}
        return ToolOutput(tools.answer_text(name, shown, answer, service.store.clock()))


def _key_of(turn: AgentTurn, call_id: str) -> str:
    """The same for every copy of a call; its id is what the provider of the model has chosen."""
    text = f"{turn.occurrence.id}:{call_id}".encode(errors="surrogatepass")
    return f"call_{blake2b(text, digest_size=16).hexdigest()}"


def _caller(service: Service, turn: AgentTurn, session: Session, call_id: str = "") -> Caller:
    """The owner of the session, marked as an agent: it sees what is its own, and rules nothing.

    It may do no more than those had who made the session, who made the schedule that has it talk, and who asked for
    the run.
    """
    tenant = turn.owner.tenant
    key = chain_key(service.store.own_key(), tenant)
    # A schedule that was deleted meanwhile still narrows what its last turn may do.
    stored = service.store.find(tenant, turn.schedule_id, deleted=True)
    schedule = None if stored is None else stored.schedule
    lineage = None if schedule is None else schedule.lineage
    overrides = turn.occurrence.overrides
    return Caller(
        owner=Owner(tenant=tenant, user=session.user),
        name=session.user,
        source=f"{SOURCE}{session.session_id}",
        request_id=f"{turn.occurrence.id}:{call_id}"[:128],
        scopes=session_scopes(
            session.scopes,
            None if lineage is None else lineage.granted,
            None if overrides is None else overrides.scopes,
        ),
        is_root=False,
        sees_own_only=True,
        is_agent=True,
        chain=chain_proof(key, occurrence_id=turn.occurrence.id),
        session=CallingSession(
            session_id=session.session_id,
            tool_access_policy=turn.tool_access_policy or session.tool_access_policy,
            schedule_id=turn.schedule_id,
            schedule_uid=None if schedule is None or is_hidden(schedule.schedule_id) else schedule.uid,
            tool_call_id=call_id,
            call_key=_key_of(turn, call_id),
        ),
    )
