"""Documents: what nodes, workflows and activities tell each other, as JSON in the history of a workflow."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.spend import Usage
from noonmark.core.frozen import frozen
from noonmark.core.policies.delivery import Delivery
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Delivered
from noonmark.core.targets import WorkflowTarget

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from noonmark.core.instants import Micros
    from noonmark.ports.target import Assignment
    from noonmark.targets.temporal.settings import EngineAddress

WORKFLOW = "noonmark"
"""The type of all workflows."""
ATTACH = "attach"
"""The signal that passes the fence of a later start on."""
DELIVER, STEP, ADVANCE, WATCH, SETTLE = "deliver", "step", "advance", "watch", "settle"
"""The activities."""
MAX_LOSSES = 5
"""How often a worker may be lost during one delivery before that is given up."""
_REASONS = {str(reason): reason for reason in Reason}


@frozen
class Order:
    """What a workflow is started with."""

    occurrence_id: str
    attempt: int
    fence: int
    route: str
    queue: str
    """The task queue of all workers; that of a route has its name behind it."""
    heartbeat: int
    is_workflow: bool = False
    """Its steps are activities of their own."""
    at_most_once: bool = False
    upstream: dict[str, Any] | None = None
    """The names and results of the schedules that a function depends on."""
    memory: dict[str, Any] | None = None
    """What an earlier part of a long workflow has left."""


def make_order(assignment: Assignment, address: EngineAddress) -> Order:
    """The order for an assignment."""
    occurrence, declared = assignment.occurrence, assignment.schedule.declaration
    return Order(
        occurrence_id=occurrence.id,
        attempt=occurrence.attempt,
        fence=occurrence.fence,
        route=occurrence.route,
        queue=address.task_queue,
        heartbeat=address.heartbeat,
        is_workflow=occurrence.route == WorkflowTarget.route,
        at_most_once=declared.delivery is Delivery.AT_MOST_ONCE,
    )


def to_document(delivered: Delivered, usage: Iterable[Usage] = ()) -> dict[str, Any]:
    """The end of a delivery; `usage` is what the run itself has reported."""
    return {
        "report": "delivered",
        "outcome": str(delivered.outcome),
        "started": delivered.started,
        "ended": delivered.ended,
        "result": delivered.result,
        "error": delivered.error,
        "own_words": delivered.own_words,
        "raised": list(delivered.raised),
        "usage": None if delivered.usage is None else asdict(delivered.usage),
        "reason": None if delivered.reason is None else str(delivered.reason),
        "is_final": delivered.is_final,
        "is_unknown": delivered.is_unknown,
        "retry_after": delivered.retry_after,
        "reported": [asdict(one) for one in usage],
    }


def read_delivered(document: Mapping[str, Any], *, now: Micros) -> Delivered:
    """Read what `to_document` writes, or what a workflow says of a worker that was lost: that has no times."""
    usage = document.get("usage")
    return Delivered(
        outcome=Outcome(document["outcome"]),
        started=document.get("started") or now,
        ended=document.get("ended") or now,
        result=document.get("result"),
        error=document.get("error"),
        own_words=document.get("own_words"),
        raised=tuple(document.get("raised", ())),
        usage=None if usage is None else Usage(**usage),
        reason=_REASONS.get(document.get("reason") or ""),
        is_final=document.get("is_final", False),
        is_unknown=document.get("is_unknown", False),
        retry_after=document.get("retry_after", 0),
    )


def read_usage(documents: Iterable[Mapping[str, Any]]) -> list[Usage]:
    """What runs have reported to have used."""
    return [Usage(**one) for one in documents]
