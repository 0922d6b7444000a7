"""What a transaction has to tell: facts, each with what it takes to make its event, should anybody listen."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from noonmark.core import system_events
from noonmark.core.causation import MAX_DEPTH, MAX_FACTS

if TYPE_CHECKING:
    from noonmark.core.audit import AuditEntry
    from noonmark.core.event import Event
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.reasons import Reason
    from noonmark.core.run import Run
    from noonmark.core.schedule import Schedule
    from noonmark.core.system_events import SystemEvent

logger = logging.getLogger("noonmark.store")


@dataclass(frozen=True, slots=True)
class More:
    """What the schedule and the occurrence do not say themselves."""

    run: Run | None = None
    """The run that has just ended."""
    waited_for: Reason | None = None
    """What an occurrence that starts late had waited for."""
    note: AuditEntry | None = None
    """Who asked for it."""
    failures: int = 0
    """After how many failures in a row a schedule was paused."""


NOTHING_MORE = More()


def to_event(fact: SystemEvent, schedule: Schedule, one: Occurrence | None, more: More) -> Event | None:
    """The event of a fact about a schedule, or about one of its occurrences; None where its chain has no room."""
    if one is None:
        return system_events.of_schedule(fact, schedule, note=more.note, failures=more.failures)
    event = system_events.of_occurrence(fact, schedule, one, run=more.run, waited_for=more.waited_for)
    if event is None:
        # No warning: with two listeners that take everything, it happens at the end of every job.
        logger.info(
            "%s of occurrence %s is not told: at most %d events may set each other off, and %d of them be facts",
            fact,
            one.id,
            MAX_DEPTH,
            MAX_FACTS,
        )
    return event
