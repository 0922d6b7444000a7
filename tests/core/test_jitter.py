"""Due times: deterministic, within the jitter, and in the order of the nominal times."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from noonmark.core.ids import fraction
from noonmark.core.instants import MAX_INSTANT, SECOND
from noonmark.core.policies.jitter import due_at, newest_due
from tests.core.fires import Every, Listed

UID = "sch_7Qp2"
TIMES = st.lists(st.integers(0, 200), unique=True, max_size=25).map(sorted)


def test_without_jitter_a_fire_is_due_at_its_nominal_time():
    trigger = Every(SECOND)
    assert due_at(trigger, UID, 5 * SECOND) == 5 * SECOND
    assert trigger.calls == {"next": 0, "previous": 0, "count": 0}


def test_a_due_time_is_pinned():
    # The fraction of (UID, NOON) is 0.6742061163665369.
    noon = 1_792_573_200_000_000
    assert due_at(Listed([noon], jitter=100 * SECOND), UID, noon) == noon + 67_420_611
    assert due_at(Listed([noon, noon + 3600 * SECOND], jitter=100 * SECOND), UID, noon) == noon + 67_420_611
    assert due_at(Listed([noon, noon + 11], jitter=100 * SECOND), UID, noon) == noon + 6


def test_two_schedules_are_due_at_different_times():
    trigger = Every(3600 * SECOND, jitter=600 * SECOND)
    assert due_at(trigger, "a", 0) != due_at(trigger, "b", 0)


def test_each_fire_of_one_schedule_is_moved_by_its_own_amount():
    trigger = Every(3600 * SECOND, jitter=600 * SECOND)
    moves = {due_at(trigger, UID, hour * trigger.step) - hour * trigger.step for hour in range(24)}
    assert len(moves) == 24
    assert min(moves) < 100 * SECOND
    assert max(moves) > 500 * SECOND


def test_the_last_instant_of_all_is_not_passed():
    latest = Listed([MAX_INSTANT - 1], jitter=SECOND)
    assert due_at(latest, UID, MAX_INSTANT - 1) in {MAX_INSTANT - 1, MAX_INSTANT}


def test_neighbours_one_microsecond_apart_are_not_moved():
    trigger = Listed([7, 8, 9], jitter=SECOND)
    assert [due_at(trigger, UID, nominal) for nominal in (7, 8)] == [7, 8]


@given(TIMES, st.integers(0, 60), st.text(max_size=3))
def test_due_times_keep_the_order_strictly(times, jitter, uid):
    trigger = Listed(times, jitter=jitter)
    dues = [due_at(trigger, uid, nominal) for nominal in times]
    for nominal, due in zip(times, dues, strict=True):
        assert nominal <= due <= nominal + jitter
    for due, following in itertools.pairwise(zip(dues, times, strict=True)):
        assert due[0] < following[1]


@given(TIMES, st.integers(0, 60), st.integers(-5, 210), st.integers(-5, 280))
def test_the_newest_due_fire_is_the_one_that_enumeration_finds(times, jitter, after, by):
    trigger = Listed(times, jitter=jitter)
    due = [nominal for nominal in times if nominal > after and due_at(trigger, UID, nominal) <= by]
    assert newest_due(trigger, UID, after=after, by=by) == max(due, default=after)


def test_a_fire_whose_jitter_is_not_over_yet_is_not_the_newest():
    step = 100 * SECOND
    trigger = Every(step, jitter=step)
    due = int(fraction(UID, step) * (step - 1)) + step
    assert newest_due(trigger, UID, after=-1, by=due) == step
    assert newest_due(trigger, UID, after=-1, by=due - 1) == 0
