"""What becomes of fires when the times of a schedule change."""

from noonmark.core.fire_changes import KNOWN, FireChange, compare_fires

HOUR, DAY = 60, 1440


def daily(hour, *, first=0, count=20):
    return [(first + day) * DAY + hour * HOUR for day in range(count)]


def test_the_same_times_are_kept_up_to_the_twelfth():
    compared = compare_fires(daily(9), daily(9), now=0)
    assert (compared.until, compared.kept, compared.changes) == (11 * DAY + 9 * HOUR, 12, ())


def test_an_hour_later_moves_each_fire_also_the_last_one():
    compared = compare_fires(daily(12), daily(13), now=0)
    assert (compared.kept, compared.moved, compared.added, compared.removed) == (0, 12, 0, 0)
    assert compared.changes[0] == FireChange(12 * HOUR, 13 * HOUR)


def test_a_fire_still_to_come_today_is_new():
    # Today's was at 12:00, and it is 12:30.
    compared = compare_fires(daily(12, first=1), daily(13), now=12 * HOUR + 30)
    assert (compared.moved, compared.added, compared.removed) == (12, 1, 0)
    assert compared.changes[0] == FireChange(None, 13 * HOUR)
    assert compared.changes[1] == FireChange(DAY + 12 * HOUR, DAY + 13 * HOUR)


def test_rarer_and_more_frequent_times():
    hourly = [at * HOUR for at in range(1, 500)]
    rarer = compare_fires(hourly, daily(9), now=0)
    assert (rarer.kept, rarer.removed, rarer.added, rarer.moved) == (12, 11 * 24 + 9 - 12, 0, 0)
    denser = compare_fires(daily(9), hourly, now=0)
    assert (denser.kept, denser.added) == (12, rarer.removed)


def test_times_are_compared_as_far_as_both_are_known():
    every_minute = list(range(1, KNOWN + 1))
    compared = compare_fires(every_minute, daily(9), now=0)
    assert (compared.until, compared.kept, compared.removed) == (KNOWN - 1, 1, KNOWN - 2)


def test_no_times_before_or_after():
    assert compare_fires([], [], now=7).until == 7
    assert compare_fires(daily(9), [], now=0).removed == 12
    assert compare_fires([], daily(9, count=2), now=0).changes == (
        FireChange(None, 9 * HOUR),
        FireChange(None, DAY + 9 * HOUR),
    )
