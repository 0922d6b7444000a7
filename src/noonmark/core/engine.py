"""Engines: who carries out an occurrence that a node has handed over, and whether that is still wanted.

One workflow of the engine carries out one attempt of an occurrence. Its id has both, so that the engine rejects a
second one. What it may write is decided by the fence of the start that it belongs to.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from noonmark.core.lifecycle import FINAL, Phase

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence

TEMPORAL = "temporal"
_DELIVERING = frozenset({Phase.DISPATCHING, Phase.AWAITING_COMPLETION})


class Standing(StrEnum):
    """How an attempt of an occurrence stands, by its record."""

    HELD = "held"
    """It is being delivered with this fence: its end may be written."""
    TAKEN_OVER = "taken_over"
    """It was lost before the engine was known to have it. A node starts it again, and passes its new fence on."""
    OVER = "over"
    """It has ended, or another attempt has begun: nothing of it is wanted."""


def standing(occurrence: Occurrence | None, *, attempt: int, fence: int) -> Standing:
    """How an attempt that was started with this fence stands."""
    if occurrence is None or occurrence.phase in FINAL:
        return Standing.OVER
    if occurrence.phase in _DELIVERING:
        if occurrence.attempt != attempt:
            return Standing.OVER
        return Standing.HELD if occurrence.fence == fence else Standing.TAKEN_OVER
    # An attempt whose lease was lost is taken back.
    return Standing.TAKEN_OVER if occurrence.attempt == attempt - 1 else Standing.OVER


def workflow_id(occurrence_id: str, attempt: int) -> str:
    """The id of the workflow that carries out an attempt."""
    return f"{occurrence_id}/{attempt}"


def parse_workflow_id(text: str) -> tuple[str, int] | None:
    """The occurrence and the attempt of a workflow; None if the id has another form."""
    occurrence_id, _, attempt = text.rpartition("/")
    if not occurrence_id or not (attempt.isascii() and attempt.isdecimal()):
        return None
    return occurrence_id, int(attempt)


def workflow_of_run(occurrence_id: str, attempt: int, node: str) -> str | None:
    """The id of the workflow that has carried out a run; None if none has."""
    return workflow_id(occurrence_id, attempt) if node.startswith(f"{TEMPORAL}:") else None
