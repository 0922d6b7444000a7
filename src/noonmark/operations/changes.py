"""Changes that operations make, by topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.ids import is_hidden
from noonmark.ports.changes import Change, Topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.operations.service import Caller

_WORK = frozenset({Topic.OCCURRENCES, Topic.RUNS})
_PLANS = frozenset({Topic.SCHEDULES, Topic.OCCURRENCES})
_APPROVALS = frozenset({Topic.APPROVALS})
_RESOURCES = {
    "schedule": _PLANS,
    "selection": _PLANS,
    "backfill": _PLANS,
    "ping": _PLANS | {Topic.RUNS},
    "halt": _PLANS | {Topic.RUNS},
    "bundle": _PLANS | {Topic.EVENTS},
    "upload": frozenset({Topic.EVENTS}),
    "event": frozenset({Topic.EVENTS}),
    "occurrence": _WORK,
    "workflow": _WORK,
    "workflow_run": _WORK,
    "approval": _WORK | _APPROVALS,
    "session": frozenset({Topic.SESSIONS}),
    "mob": frozenset({Topic.SESSIONS}),
    "budget": frozenset({Topic.USAGE}),
    "usage": frozenset({Topic.USAGE}),
    "key": frozenset({Topic.KEYS}),
    "worker": frozenset({Topic.NODES}),
}
_OPERATIONS = {
    "schedule/run": _WORK,
    "schedule/propose": _PLANS | _APPROVALS,
    "schedule/approve": _PLANS | _APPROVALS,
    "schedule/deny": _PLANS | _APPROVALS,
    "session/send": _WORK | {Topic.SESSIONS},
}
_FOR_ALL = ("selection", "halt", "event", "upload", "workflow", "budget")
"""Changes that may concern every user of the tenant, not only the one who makes them."""


def topics_of(operation: str) -> frozenset[Topic]:
    """What an operation changes; nothing, if it is not shown anywhere."""
    return _OPERATIONS.get(operation) or _RESOURCES.get(operation.partition("/")[0], frozenset())


def change_by(caller: Caller, operation: str, arguments: Mapping[str, Any], answer: Mapping[str, Any]) -> Change:
    """The change that an operation has made."""
    topics = topics_of(operation)
    if caller.may_only_propose and operation.startswith("schedule/"):
        topics |= _APPROVALS
    named = [answer.get("schedule_id") or arguments.get("schedule_id")]
    named += [one.get("schedule_id") for one in answer.get("schedules") or () if isinstance(one, dict)]
    schedule_ids = tuple(one for one in named if isinstance(one, str) and not is_hidden(one))
    is_for_all = operation.partition("/")[0] in _FOR_ALL
    return Change(
        topics=topics,
        tenant=None if topics == {Topic.NODES} else caller.owner.tenant,
        # The owner of a schedule is found by its id.
        user=None if is_for_all or schedule_ids else caller.owner.user,
        schedule_ids=schedule_ids,
    )
