"""The life cycles of occurrences and schedules, one table each.

The tables say which phase may follow which. Diagrams, database checks and the driver are tested against them, and
`step` is the only way to move.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from noonmark.core.errors import Conflict
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

P = TypeVar("P", bound=StrEnum)


class Phase(StrEnum):
    """The phase of an occurrence."""

    __hash__ = str.__hash__  # that of an enumeration is written in Python, and asked for at every look into a table

    PENDING = "pending"
    """Planned, waiting for a retry or for its turn."""
    CLAIMED = "claimed"
    """Leased by one node, surely not delivered yet."""
    DISPATCHING = "dispatching"
    """Delivery may have begun."""
    AWAITING_COMPLETION = "awaiting_completion"
    """The target accepted; its outcome comes by callback."""
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    MISFIRED = "misfired"
    DELIVERY_FAILED = "delivery_failed"
    SUPERSEDED = "superseded"
    """An edit moved it; the only final phase that planning may reopen."""


class MarkState(StrEnum):
    """What became of an occurrence, or will become of it."""

    __hash__ = str.__hash__

    PLANNED = "planned"
    """It is due later."""
    QUEUED = "queued"
    """It is due, and has not started, or waits for its turn or for another attempt."""
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    """It failed, timed out, could not be delivered, or was missed."""
    SKIPPED = "skipped"
    """A policy or somebody decided that it does not run, or not to its end."""


class SchedulePhase(StrEnum):
    """The phase of a schedule."""

    __hash__ = str.__hash__

    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"
    """No further fire and nothing live; an edit of the trigger, or more `max_runs`, reopens it."""
    DELETED = "deleted"
    """Kept with its history, hidden unless asked for."""
    PROPOSED = "proposed"
    """Waits for somebody's approval; nothing of it is planned, and lists leave it out unless asked for."""


_NEVER_STARTED = frozenset(
    {Phase.SKIPPED, Phase.MISFIRED, Phase.SUPERSEDED, Phase.CANCELLED, Phase.DELIVERY_FAILED},
)
_DELIVERED = frozenset({Phase.COMPLETED, Phase.FAILED, Phase.TIMED_OUT, Phase.CANCELLED, Phase.DELIVERY_FAILED})
_NOTHING: frozenset[Phase] = frozenset()

TRANSITIONS: Mapping[Phase, frozenset[Phase]] = MappingProxyType(
    {
        Phase.PENDING: _NEVER_STARTED | {Phase.CLAIMED},
        Phase.CLAIMED: _NEVER_STARTED | {Phase.DISPATCHING, Phase.PENDING},
        # Back to pending: a retry, or a lease that was lost.
        Phase.DISPATCHING: _DELIVERED | {Phase.AWAITING_COMPLETION, Phase.PENDING},
        Phase.AWAITING_COMPLETION: _DELIVERED | {Phase.PENDING},
        Phase.COMPLETED: _NOTHING,
        Phase.FAILED: _NOTHING,
        Phase.TIMED_OUT: _NOTHING,
        Phase.CANCELLED: _NOTHING,
        Phase.SKIPPED: _NOTHING,
        Phase.MISFIRED: _NOTHING,
        Phase.DELIVERY_FAILED: _NOTHING,
        Phase.SUPERSEDED: frozenset({Phase.PENDING}),
    }
)

SCHEDULE_TRANSITIONS: Mapping[SchedulePhase, frozenset[SchedulePhase]] = MappingProxyType(
    {
        SchedulePhase.ACTIVE: frozenset({SchedulePhase.PAUSED, SchedulePhase.COMPLETED, SchedulePhase.DELETED}),
        SchedulePhase.PAUSED: frozenset({SchedulePhase.ACTIVE, SchedulePhase.DELETED}),
        SchedulePhase.COMPLETED: frozenset({SchedulePhase.ACTIVE, SchedulePhase.DELETED}),
        SchedulePhase.DELETED: frozenset(),
        SchedulePhase.PROPOSED: frozenset({SchedulePhase.ACTIVE, SchedulePhase.DELETED}),
    }
)
STORED_PHASES = tuple(phase for phase in SchedulePhase if phase is not SchedulePhase.PROPOSED)
"""The phases of schedules in the tables of a store; a proposed one is a record of its own until it is decided."""

LIVE = frozenset({Phase.PENDING, Phase.CLAIMED, Phase.DISPATCHING, Phase.AWAITING_COMPLETION})
"""Something is still to come."""

FINAL = frozenset(Phase) - LIVE
"""Ended, with a reason."""

FAILURES = frozenset({Phase.FAILED, Phase.TIMED_OUT, Phase.DELIVERY_FAILED, Phase.MISFIRED})
"""What went wrong: work that failed, and fires that should have run and did not."""

ENDINGS: Mapping[Phase, frozenset[Reason]] = MappingProxyType(
    {
        Phase.COMPLETED: frozenset({Reason.SUCCEEDED}),
        Phase.FAILED: frozenset(
            {
                Reason.FAILED,
                Reason.ATTEMPTS_EXHAUSTED,
                Reason.NOT_RETRIED,
                Reason.BUDGET_EXCEEDED,
                Reason.TOOL_LOOP,
            }
        ),
        Phase.TIMED_OUT: frozenset(
            {Reason.TIMED_OUT, Reason.COMPLETION_TIMED_OUT, Reason.ATTEMPTS_EXHAUSTED, Reason.NOT_RETRIED}
        ),
        Phase.CANCELLED: frozenset(
            {Reason.CANCELLED, Reason.REPLACED, Reason.WINDOW_CLOSED, Reason.DELETED, Reason.PAUSED, Reason.HALTED}
        ),
        Phase.SKIPPED: frozenset(
            {
                Reason.OVERLAP,
                Reason.QUEUE_FULL,
                Reason.REPLACED,
                Reason.WINDOW_CLOSED,
                Reason.DEPENDENCY_FAILED,
                Reason.DEPENDENCY_TIMED_OUT,
                Reason.PAUSED,
                Reason.HALTED,
                Reason.TARGET_MISSING,
                Reason.TARGET_BUSY,
                Reason.MAX_RUNS_REACHED,
                Reason.BUDGET_EXCEEDED,
                Reason.APPROVAL_DENIED,
                Reason.APPROVAL_EXPIRED,
            }
        ),
        Phase.MISFIRED: frozenset({Reason.LATE, Reason.NEWER_FIRE, Reason.CATCH_UP_LIMIT, Reason.TARGET_MISSING}),
        Phase.DELIVERY_FAILED: frozenset(
            {
                Reason.UNDELIVERABLE,
                Reason.ATTEMPTS_EXHAUSTED,
                Reason.POISON,
                Reason.OUTCOME_UNKNOWN,
                Reason.TARGET_MISSING,
                Reason.UNREADABLE,
            }
        ),
        Phase.SUPERSEDED: frozenset({Reason.EDITED}),
    }
)
"""The reasons each final phase may carry."""


def step(phase: Phase, to: Phase) -> Phase:
    """The new phase of an occurrence; a `Conflict` when the table has no such way."""
    return _step("an occurrence", TRANSITIONS, phase, to)


def step_schedule(phase: SchedulePhase, to: SchedulePhase) -> SchedulePhase:
    """The new phase of a schedule; a `Conflict` when the table has no such way."""
    return _step("a schedule", SCHEDULE_TRANSITIONS, phase, to)


def _step(what: str, table: Mapping[P, frozenset[P]], phase: P, to: P) -> P:
    if to in table[phase]:
        return to
    allowed = ", ".join(sorted(table[phase])) or "nothing"
    msg = f"{what} cannot go from {phase} to {to}; {phase} leaves to {allowed}"
    raise Conflict(msg, field="phase")


def diagram(table: Mapping[P, frozenset[P]]) -> str:
    """A Mermaid state diagram of one of the tables.

    It starts in the first phase, and in those to which no way leads; it ends where no way leads on.
    """
    order, reached = list(table), frozenset[P]().union(*table.values())
    lines = ["stateDiagram-v2", *(f"    [*] --> {one}" for one in order if one == order[0] or one not in reached)]
    for phase, leaves_to in table.items():
        lines += [f"    {phase} --> {to}" for to in sorted(leaves_to, key=order.index)]
        lines += [] if leaves_to else [f"    {phase} --> [*]"]
    return "\n".join(lines) + "\n"
