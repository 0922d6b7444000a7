"""Sinks: several in the place of one, and one that writes to the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from noonmark.core.instants import micros_to_seconds
from noonmark.core.lifecycle import Phase
from noonmark.ports.events import (
    Abandoned,
    Claimed,
    LeaseLost,
    Matched,
    NodeStarted,
    NodeStopped,
    Settled,
    Started,
    Waiting,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.occurrence import Occurrence
    from noonmark.ports.events import DriverEvent, EventSink

logger = logging.getLogger("noonmark.work")
MANY = 50
"""So many that are settled together, at most, have a line each."""


class Sinks:
    """Tells each of several, also when one of them fails."""

    def __init__(self, *sinks: EventSink) -> None:
        """In this order."""
        self._sinks = sinks

    def tell(self, happenings: Sequence[DriverEvent]) -> None:
        """Pass it on."""
        for sink in self._sinks:
            try:
                sink.tell(happenings)
            except Exception:
                logger.exception("%s failed", type(sink).__name__)


class LogSink:
    """Writes what a node does with its occurrences.

    The driver logs by itself what went wrong, what ended undelivered, and who leads; this is the rest.
    """

    def tell(self, happenings: Sequence[DriverEvent]) -> None:
        """A line for each, as far as anybody reads its level; but many that went well at once share one."""
        if not logger.isEnabledFor(logging.INFO):
            happenings = [one for one in happenings if isinstance(one, Abandoned)]
        elif not logger.isEnabledFor(logging.DEBUG):
            happenings = self._summed_up(happenings)
        for one in happenings:
            self._tell(one)

    def _summed_up(self, happenings: Sequence[DriverEvent]) -> Sequence[DriverEvent]:
        """What is left to be told. A line takes longer than a run: written one by one, they would hold up the rest."""
        others = [one for one in happenings if not (isinstance(one, Settled) and one.phase is Phase.COMPLETED)]
        completed = len(happenings) - len(others)
        if completed <= MANY:
            return happenings
        logger.info("%d completed", completed)
        return others

    def _tell(self, one: DriverEvent) -> None:
        match one:
            case Settled(occurrence, Phase.COMPLETED, _, run, _):
                took = 0 if run.ended is None else micros_to_seconds(run.ended - run.started)
                logger.info("completed in %.6f s", took, extra=ids(occurrence) | {"run_id": run.id})
            case NodeStarted(node):
                logger.info("the worker has started", extra={"node": node})
            case NodeStopped(node, handed_back):
                logger.info("the worker has stopped, %d handed back", handed_back, extra={"node": node})
            case LeaseLost(occurrence_id, _):
                logger.info("another node, an edit, or a callback took it away", extra={"occurrence_id": occurrence_id})
            case Abandoned(occurrence, threads):
                logger.warning("its thread outlived its timeout; there are %d such", threads, extra=ids(occurrence))
            case Claimed(occurrence, found_in):
                logger.debug("claimed, it was %s", found_in, extra=ids(occurrence))
            case Started(occurrence):
                logger.debug("started", extra=ids(occurrence))
            case Waiting(occurrence):
                logger.debug("waits: %s", occurrence.waiting_for, extra=ids(occurrence))
            case Matched(_, event, occurrences):
                logger.debug("an event of type %s set off %d", event.event_type, len(occurrences))


def ids(occurrence: Occurrence) -> dict[str, str]:
    """Which one a line is about."""
    return {"occurrence_id": occurrence.id, "schedule_id": occurrence.schedule_id}
