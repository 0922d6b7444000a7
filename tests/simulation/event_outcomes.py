"""Event outcomes: every event, and every schedule that waited for it, comes to exactly one outcome."""

from itertools import takewhile

from noonmark.core.ids import event as event_origin
from noonmark.core.ids import occurrence_id
from noonmark.core.lifecycle import FINAL, SchedulePhase
from noonmark.core.triggers import EventTrigger
from tests.simulation.trace import Violation

LISTENING = (SchedulePhase.ACTIVE, SchedulePhase.PAUSED)


class EventOutcomes:
    """Who waited for each event when it was emitted, and what came of it."""

    def __init__(self, uow, known):
        self._uow, self._known = uow, known
        self._owed = {}
        """By event id: the uids of those who waited for it, each with the moment its trigger was declared."""
        self._emitted = set()
        self._rows = set()

    def look(self):
        """See what was emitted, and what was matched, since the last look."""
        for stream in self._uow.events.streams.values():
            # By their ids: their moments are set back after the clock was ahead.
            fresh = takewhile(lambda one: one.event_id not in self._emitted, reversed(stream.waiting))
            for event in reversed(list(fresh)):
                self._emitted.add(event.event_id)
                self._owed[event.event_id] = dict(self._listeners(event))
            done = takewhile(lambda one: one.event_id in self._owed, reversed(stream.matched))
            for event in reversed(list(done)):
                self._check(event)
            moments = [one.emitted for one in (*stream.matched, *stream.waiting)]
            if moments != sorted(set(moments)):
                raise Violation("events", f"their moments do not rise: {moments}")

    def check_ends(self):
        """Whatever an event has set off has come to an end."""
        if self._uow.events.behind.first() is not None:
            raise Violation("events", "some are not matched")
        for uid, row in sorted(self._rows):
            if self._known[uid][row].phase not in FINAL:
                raise Violation("events", f"{self._known[uid][row]} has no outcome")

    def _listeners(self, event):
        for uid, entry in self._uow.entries.items():
            made = entry.schedule
            trigger, declared = made.declaration.trigger, _declared(made)
            if made.phase not in LISTENING or not isinstance(trigger, EventTrigger) or declared > event.emitted:
                continue
            if trigger.matches(event.event_type, event.payload, source=event.source, at=event.emitted_at):
                yield uid, declared

    def _check(self, event):
        """It has a row wherever it was waited for, unless whoever waited does so no longer."""
        for uid, declared in self._owed.pop(event.event_id).items():
            row, made = occurrence_id(uid, event_origin(event.event_id), 0), self._uow.entries[uid].schedule
            gave_up = made.phase is SchedulePhase.DELETED or _declared(made) != declared
            # By the clock, it was emitted after the end: that stood still meanwhile, or went back.
            is_over = made.phase is SchedulePhase.COMPLETED and event.emitted > made.updated
            if row in self._known[uid]:
                self._rows.add((uid, row))
            elif not gave_up and not is_over:
                raise Violation("events", f"{event.event_id} has set off nothing in {uid}, which waited for it")


def _declared(schedule):
    return schedule.created if schedule.anchored is None else schedule.anchored
