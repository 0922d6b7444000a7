"""The ends of turns that a remote agent host has accepted, and reports by a callback."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.agents.messages import text_part
from noonmark.core.agents.session import Message, Role, SessionState
from noonmark.core.agents.turns import is_helper, reservation_id, spoken_session
from noonmark.core.run import Outcome
from noonmark.ports.budgets import Settled
from noonmark.ports.sessions import Turn

if TYPE_CHECKING:
    from noonmark.core.budgets.spend import Usage
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.core.settlement import Delivered
    from noonmark.ports.store import Store


def end_turn(
    store: Store, schedule: Schedule, occurrence: Occurrence, delivered: Delivered, usage: Usage | None
) -> Delivered:
    """Put the answer into the transcript, and settle what was reserved for the run; the end, as its run shows it.

    What is not reported counts in full. The whole of it may be repeated.
    """
    tenant, target = schedule.owner.tenant, schedule.declaration.target
    session_id = spoken_session(
        target, uid=occurrence.uid, schedule_id=occurrence.schedule_id, occurrence_id=occurrence.id
    )
    if session_id is None:
        return delivered
    settles = [] if usage is None else _settles(tenant, occurrence, usage)
    if delivered.outcome is Outcome.COMPLETED:
        turn = Turn(tenant=tenant, session_id=session_id, occurrence_id=occurrence.id, fence=occurrence.fence)
        answer = Message(role=Role.ASSISTANT, parts=(text_part(_text(delivered.result)),), usage=usage)
        if not _is_answered(store, turn):
            store.append_messages(turn, [answer], settles=settles)
        delivered = replace(delivered, result=_document(session_id, delivered.result))
    else:
        store.settle_calls(settles)
        store.set_session_state(tenant, session_id, SessionState.SUSPENDED)
    if is_helper(target):
        store.set_session_state(tenant, session_id, SessionState.ARCHIVED)
    return replace(delivered, usage=store.run_usage(occurrence.id))


def _settles(tenant: str, occurrence: Occurrence, usage: Usage) -> list[Settled]:
    """What settles the one reservation that is open; earlier attempts may have settled theirs, and later have none."""
    numbers = range(1, occurrence.attempt + 2)
    return [Settled(call_id=reservation_id(occurrence.id, one), tenant=tenant, usage=usage) for one in numbers]


def _is_answered(store: Store, turn: Turn) -> bool:
    """Whether an earlier callback put the answer on record, and could not end the run."""
    last = store.messages(turn.tenant, turn.session_id, 1, occurrence_id=turn.occurrence_id, newest_first=True)
    return bool(last) and last[0].role is Role.ASSISTANT


def _text(result: Any) -> str:
    if isinstance(result, dict) and isinstance(result.get("text"), str):
        return str(result["text"])
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, indent=2)


def _document(session_id: str, result: Any) -> dict[str, Any]:
    """The result of the run, as that of a turn which was answered at once."""
    if isinstance(result, dict) and result.keys() <= {"text", "output"}:
        return {"session_id": session_id, **result}
    return {"session_id": session_id, "text" if isinstance(result, str) else "output": result}
