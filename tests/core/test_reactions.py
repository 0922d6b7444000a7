"""Which schedules an event sets off, and what it makes of them."""

from dataclasses import replace

import pytest

from noonmark.core.causation import match, unreadable
from noonmark.core.clock_trust import LEAP
from noonmark.core.errors import InvalidSchedule
from noonmark.core.event import Event
from noonmark.core.ids import event as event_origin
from noonmark.core.ids import occurrence_id
from noonmark.core.instants import SECOND, from_micros, to_text
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.core.triggers import EventTrigger
from noonmark.testing import factories
from noonmark.testing.factories import MINUTE, NOW

LATER = NOW + MINUTE


def upload(**changes):
    event = Event(
        event_type="uploaded", emitted=NOW, event_id="up-1", source="api", payload={"path": "in/a.csv", "tags": ["x"]}
    )
    return replace(event, **changes)


def listener(*args, created=NOW, anchored=None, updated=NOW, phase=SchedulePhase.ACTIVE, **bounds):
    schedule = factories.schedule(created=created, phase=phase, trigger=EventTrigger(*(args or ["uploaded"]), **bounds))
    return replace(schedule, anchored=anchored, updated=updated)


def test_a_match_is_one_occurrence_that_is_due_at_once():
    made, event = listener(), upload()
    row = match(event, made, now=LATER)
    origin = event_origin("up-1")
    assert (row.id, row.origin) == (occurrence_id(made.uid, origin, 0), origin)
    assert (row.uid, row.schedule_id, row.revision) == (made.uid, made.schedule_id, made.revision)
    assert (row.phase, row.reason, row.route) == (Phase.PENDING, None, "function:work")
    assert (row.nominal, row.due, row.first_due) == (NOW, NOW, NOW)
    assert row.payload == {
        "event_id": "up-1",
        "event_type": "uploaded",
        "source": "api",
        "payload": {"path": "in/a.csv", "tags": ["x"]},
        "emitted_at": to_text(NOW),
    }


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (listener("deleted_file"), False),
        (listener(["created", "uploaded"]), True),
        (listener("uploaded", {"path": {"prefix": "in/"}}), True),
        (listener("uploaded", {"path": {"prefix": "out/"}}), False),
        (listener("uploaded", {"source": "api"}), True),
        (listener("uploaded", {"source": "cron"}), False),
        (listener(created=NOW + 1), False),
        (listener(created=NOW - 1), True),
        (listener(created=NOW - 5, anchored=NOW), True),
        (listener(created=NOW - 5, anchored=NOW + 1), False),
        (listener(start_at=from_micros(NOW)), True),
        (listener(start_at=from_micros(NOW + 1)), False),
        (listener(end_at=from_micros(NOW)), True),
        (listener(end_at=from_micros(NOW - 1)), False),
        (listener(phase=SchedulePhase.DELETED, updated=NOW + 5), False),
        (listener(phase=SchedulePhase.COMPLETED, updated=NOW - 1), False),
        (listener(phase=SchedulePhase.COMPLETED, updated=NOW), True),
        (factories.schedule(), False),
    ],
)
def test_an_event_matches_what_listened_when_it_was_emitted(made, wanted):
    assert (match(upload(), made, now=LATER) is not None) is wanted


def test_what_a_paused_schedule_would_have_run_is_skipped():
    row = match(upload(), listener(phase=SchedulePhase.PAUSED), now=LATER)
    assert (row.phase, row.reason) == (Phase.SKIPPED, Reason.PAUSED)
    assert match(upload(), listener("other", phase=SchedulePhase.PAUSED), now=LATER) is None


def test_jitter_delays_it_by_an_amount_that_never_changes():
    made = listener(jitter_seconds=30)
    row = match(upload(), made, now=LATER)
    assert NOW < row.due < NOW + 30 * SECOND
    assert row.nominal == NOW
    assert match(upload(), made, now=LATER + MINUTE) == row


def test_no_one_waits_for_a_moment_ahead_of_the_clock():
    first, second = [match(upload(emitted=LATER + n, event_id=f"up-{n}"), listener(), now=NOW) for n in (1, 2)]
    assert (first.due, second.due) == (NOW, NOW)
    assert first.nominal < second.nominal
    later = match(upload(emitted=LATER), listener(jitter_seconds=30), now=NOW)
    assert NOW < later.due < NOW + 30 * SECOND


def test_what_a_clock_ahead_has_declared_listens_by_the_right_time():
    assert match(upload(), listener(created=LATER + LEAP + 1), now=LATER) is not None
    assert match(upload(), listener(created=LATER + LEAP), now=LATER) is None


def test_an_event_without_an_id_triggers_nothing():
    with pytest.raises(InvalidSchedule):
        match(upload(event_id=None), listener(), now=NOW)


def test_what_cannot_be_decided_has_an_end_of_its_own():
    row = unreadable(upload(), listener(), "a filter that makes no sense")
    assert row.id == match(upload(), listener(), now=NOW).id
    assert (row.phase, row.reason) == (Phase.DELIVERY_FAILED, Reason.UNREADABLE)
    assert "a filter that makes no sense" in row.detail
