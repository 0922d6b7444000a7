"""The state of an occurrence in one word, its lateness, and the fires to come."""

from dataclasses import replace

import pytest

from noonmark.core.ids import manual
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import MarkState, Phase, SchedulePhase
from noonmark.core.outcomes import Horizon, Mark, counted_as, future_counts, future_marks, late_by, mark_state
from noonmark.core.reasons import Reason
from noonmark.core.schedule import Pause
from noonmark.core.triggers import EventTrigger, IntervalTrigger
from noonmark.testing import factories
from noonmark.testing.factories import MINUTE, NOW

ROW = factories.occurrence(factories.schedule(), manual("k"), nominal=NOW)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"due": NOW + 1}, "planned"),
        ({"due": NOW + 1, "phase": Phase.CLAIMED}, "planned"),
        ({"due": NOW}, "queued"),
        ({"due": NOW, "phase": Phase.CLAIMED}, "queued"),
        ({"due": NOW + 1, "waiting_for": Reason.QUEUED}, "queued"),
        ({"due": NOW + 1, "attempt": 1, "reason": Reason.RETRY_SCHEDULED}, "queued"),
        ({"due": NOW + 1, "reason": Reason.SUSPENDED}, "running"),
        ({"phase": Phase.DISPATCHING}, "running"),
        ({"phase": Phase.AWAITING_COMPLETION}, "running"),
        ({"phase": Phase.COMPLETED}, "completed"),
        ({"phase": Phase.FAILED}, "failed"),
        ({"phase": Phase.TIMED_OUT}, "failed"),
        ({"phase": Phase.DELIVERY_FAILED}, "failed"),
        ({"phase": Phase.MISFIRED}, "failed"),
        ({"phase": Phase.SKIPPED}, "skipped"),
        ({"phase": Phase.CANCELLED}, "skipped"),
        ({"phase": Phase.SUPERSEDED}, None),
    ],
)
def test_state(changes, state):
    assert mark_state(replace(ROW, **changes), NOW) == state


def test_a_start_within_a_second_is_on_time():
    assert late_by(NOW, None) is None
    assert late_by(NOW, NOW + SECOND) is None
    assert late_by(NOW, NOW + SECOND + 1) == SECOND + 1
    mark = Mark(
        uid="u",
        occurrence_id="occ",
        origin=ROW.origin,
        phase=Phase.COMPLETED,
        state=MarkState.COMPLETED,
        at=NOW,
        due=NOW + MINUTE,
        first_due=NOW + SECOND,
        lag=5 * SECOND,
    )
    assert (mark.began, mark.late) == (NOW + 6 * SECOND, 5 * SECOND)
    assert replace(mark, lag=None).began is None


@pytest.mark.parametrize(
    ("state", "is_late", "counted"),
    [
        (MarkState.COMPLETED, True, "late"),
        (MarkState.COMPLETED, False, "completed"),
        (MarkState.COMPLETED, None, "completed"),
        (MarkState.FAILED, True, "failed"),
    ],
)
def test_what_completed_late_is_counted_apart(state, is_late, counted):
    assert counted_as(state, is_late=is_late) == counted


def horizon(*, watermark=NOW, runs_left=None, trigger=None, **changes):
    trigger = trigger or IntervalTrigger(60, start_at=from_micros(NOW))
    schedule = factories.schedule(trigger=trigger)
    return Horizon(schedule=replace(schedule, **changes), watermark=watermark, runs_left=runs_left)


def times(one, *, since=NOW, until=NOW + 5 * MINUTE, limit=10):
    """The fires to come in minutes from now, and the counts in buckets of two minutes; both must agree."""
    marks = future_marks(one, since=since, until=until, now=NOW, limit=limit)
    assert all(mark.occurrence_id is None for mark in marks)
    edges = [*range(since, until, 2 * MINUTE), until]
    counts = future_counts(one, edges, now=NOW)
    if len(marks) < limit:
        expected = {}
        for mark in marks:
            bucket = (mark.at - since) // (2 * MINUTE), mark.state
            expected[bucket] = expected.get(bucket, 0) + 1
        assert counts == expected
    return [((mark.at - NOW) // MINUTE, str(mark.state)) for mark in marks]


def minutes(*numbers):
    return [(number, "planned" if number > 0 else "queued") for number in numbers]


def test_fires_after_what_is_stored():
    assert times(horizon()) == minutes(1, 2, 3, 4)
    assert times(horizon(watermark=NOW + 2 * MINUTE)) == minutes(3, 4)
    assert times(horizon(), limit=2) == minutes(1, 2)
    assert times(horizon(), since=NOW + 3 * MINUTE) == minutes(3, 4)
    assert times(horizon(), until=NOW + MINUTE) == []


def test_fires_that_nobody_has_planned_are_queued():
    trigger = IntervalTrigger(60, start_at=from_micros(NOW - 60 * MINUTE))
    late = horizon(watermark=NOW - 3 * MINUTE, trigger=trigger)
    assert times(late, since=NOW - 10 * MINUTE, until=NOW + 3 * MINUTE) == minutes(-2, -1, 0, 1, 2)
    assert times(late, since=NOW - MINUTE, until=NOW + 2 * MINUTE) == minutes(-1, 0, 1)


def test_the_runs_that_are_left_limit_them():
    assert times(horizon(runs_left=2)) == minutes(1, 2)
    assert times(horizon(runs_left=3), since=NOW + 2 * MINUTE) == minutes(2, 3)
    assert times(horizon(runs_left=0)) == []


def test_the_last_fire_ends_them():
    assert times(horizon(trigger=IntervalTrigger(60, start_at=from_micros(NOW), end_at=from_micros(NOW + MINUTE)))) == (
        minutes(1)
    )


def test_a_paused_schedule_fires_once_its_pause_ends():
    pause = Pause(reason=None, by="ada", at=NOW, until=NOW + 2 * MINUTE)
    assert times(horizon(phase=SchedulePhase.PAUSED, pause=pause)) == minutes(3, 4)
    assert times(horizon(phase=SchedulePhase.PAUSED, pause=replace(pause, until=None))) == []
    assert times(horizon(phase=SchedulePhase.PAUSED)) == []
    assert times(horizon(phase=SchedulePhase.COMPLETED)) == []


def test_events_name_no_times():
    assert times(horizon(trigger=EventTrigger("seen"))) == []


def test_jitter_moves_due_times():
    trigger = IntervalTrigger(60, start_at=from_micros(NOW), jitter_seconds=50)
    every = future_marks(horizon(trigger=trigger), since=NOW, until=NOW + 10 * MINUTE, now=NOW, limit=10)
    assert [mark.at for mark in every] == [NOW + n * MINUTE for n in range(1, 10)]
    assert len({mark.due % MINUTE for mark in every}) > 5
    assert all(mark.at <= mark.due < mark.at + MINUTE for mark in every)
