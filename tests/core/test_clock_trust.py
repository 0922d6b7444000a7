"""Whether a time that the store tells can be true: tables of readings."""

import pytest

from noonmark.core.clock_trust import LEAP, LONG_SILENCE, PROOF, Doubt, Reading, Trust, confirm, discrepancy, judge
from noonmark.core.instants import DAY_SECONDS, SECOND

LEASE = 15 * SECOND
YEARS = 10 * 365 * DAY_SECONDS * SECOND
TRUE = 1_800_000_000 * SECOND


def reading(passed, wrong=0, *, took=0):
    """Asked so many seconds after the boot, with a store whose time is wrong by so much."""
    asked = passed * SECOND
    return Reading(asked, TRUE + asked + wrong, asked + took)


def judged(*readings, trust=None):
    trust = Trust() if trust is None else trust
    for one in readings:
        trust = judge(trust, one, lease=LEASE)
    return trust


def test_the_first_time_of_a_store_that_remembers_nothing_is_believed():
    first = reading(0, YEARS)
    assert judged(first) == Trust(last=first)
    assert judged(first).may_forget


@pytest.mark.parametrize(("wrong", "is_doubted"), [(LEAP, False), (LEAP + 1, True), (YEARS, True), (-LEAP, False)])
def test_a_time_that_runs_ahead_of_the_boot_clock_by_more_than_an_hour_is_in_doubt(wrong, is_doubted):
    after = judged(reading(0), reading(100, wrong))
    assert (after.doubt is not None) == is_doubted
    assert after.may_forget != is_doubted
    assert after.last == (reading(0) if is_doubted else reading(100, wrong))


def test_what_the_way_of_an_answer_takes_is_no_leap():
    assert judged(reading(0, took=30 * SECOND), reading(100, LEAP + 5 * SECOND, took=5 * SECOND)).doubt is None


def test_a_machine_that_wakes_from_days_of_sleep_is_not_held_up():
    """The boot clock went on, and so did the store's."""
    assert judged(reading(0), reading(9 * DAY_SECONDS)).may_forget


def test_a_false_time_of_8_seconds_is_never_believed():
    during = judged(reading(0), *(reading(n, YEARS) for n in range(1, 10)))
    assert during.doubt == Doubt(since=reading(1, YEARS), ahead=YEARS)
    after = judged(reading(10), trust=during)
    assert after == Trust(last=reading(10))
    assert after.may_forget


@pytest.mark.parametrize(("second", "is_believed"), [(15, False), (16, True)])
def test_a_time_is_believed_when_it_has_gone_on_for_a_lease(second, is_believed):
    """Nothing is forgotten by it for an hour more."""
    after = judged(reading(0), reading(1, YEARS), reading(second, YEARS))
    assert (after.doubt is None) == is_believed
    assert not after.may_forget
    if is_believed:
        assert (after.last, after.unproven, after.leapt) == (reading(16, YEARS), reading(1, YEARS), reading(1, YEARS))
        hour = PROOF // SECOND
        assert not judged(reading(hour, YEARS), trust=after).may_forget
        assert judged(reading(hour + 1, YEARS), trust=after).may_forget


def test_two_readings_that_disagree_confirm_nothing():
    wild = [reading(n, n * YEARS) for n in range(1, 60)]
    assert judged(reading(0), *wild).doubt == Doubt(since=wild[-1], ahead=59 * YEARS)
    frozen = [Reading(n * SECOND, TRUE + YEARS, n * SECOND) for n in (1, 90)]
    assert judged(reading(0), *frozen).doubt.since == frozen[-1]


def test_an_operator_confirms_at_once_and_for_everything():
    doubted = judged(reading(0), reading(1, YEARS))
    assert confirm(doubted, reading(2, YEARS)) == Trust(last=reading(2, YEARS), leapt=reading(2, YEARS))


def test_where_nothing_is_in_doubt_an_operator_confirms_no_leap():
    assert confirm(Trust(), reading(0)) == Trust(last=reading(0))


@pytest.mark.parametrize(("wrong", "fell"), [(-LEAP, False), (-LEAP - 1, True)])
def test_a_time_that_falls_back_is_believed_and_what_was_planned_ahead_is_looked_at(wrong, fell):
    after = judged(reading(0), reading(100, wrong))
    assert (after.doubt, after.has_fallen_back, after.may_forget) == (None, fell, not fell)
    assert not judged(reading(101, wrong), trust=after).has_fallen_back
    assert judged(reading(100 + 3_600, wrong), trust=after).may_forget


@pytest.mark.parametrize("now", [0, YEARS // 2])
def test_what_a_false_time_would_have_proved_is_void_when_it_is_over(now):
    """What follows may be false as well, and has to prove itself."""
    believed = judged(reading(0), reading(1, YEARS), reading(16, YEARS))
    after = judged(reading(20, now), trust=believed)
    assert (after.unproven, after.has_fallen_back, after.may_forget) == (reading(20, now), True, False)
    assert not judged(reading(3_601, now), trust=after).may_forget
    assert judged(reading(3_620, now), trust=after).may_forget


class TestStarting:
    """A node has no earlier reading then: it compares the time with the newest that the store remembers."""

    def started(self, silence, *more):
        return judged(reading(0), *more, trust=Trust(remembered=TRUE - silence))

    @pytest.mark.parametrize("silence", [0, LEAP])
    def test_after_a_short_silence_everything_goes_on(self, silence):
        assert self.started(silence) == Trust(last=reading(0), remembered=TRUE - silence)

    @pytest.mark.parametrize("silence", [LEAP + 1, LONG_SILENCE])
    def test_after_a_longer_one_nothing_is_forgotten_for_an_hour(self, silence):
        after = self.started(silence)
        assert (after.doubt, after.unproven) == (None, reading(0))
        assert not self.started(silence, reading(3_599)).may_forget
        assert self.started(silence, reading(3_600)).may_forget

    @pytest.mark.parametrize(("older", "may_forget"), [(None, True), (LONG_SILENCE, True), (LONG_SILENCE + 1, False)])
    def test_what_was_written_in_the_last_hour_alone_bears_no_time_out(self, older, may_forget):
        start = Trust(remembered=TRUE, older=None if older is None else TRUE - older)
        assert judged(reading(0), trust=start).may_forget is may_forget
        assert judged(reading(0), reading(3_600), trust=start).may_forget

    def test_after_a_very_long_one_the_time_itself_is_in_doubt(self):
        silence = LONG_SILENCE + 1
        after = self.started(silence)
        assert after.doubt == Doubt(since=reading(0), ahead=silence)
        assert after.last is None
        assert not after.may_forget
        year = self.started(silence, reading(15))
        assert (year.doubt, year.last, year.unproven, year.leapt) == (None, reading(15), reading(0), None)
        assert self.started(silence, reading(15), reading(3_600)).may_forget

    def test_a_wrong_clock_that_is_set_right_meanwhile_is_forgiven(self):
        start = Trust(remembered=TRUE)
        after = judged(reading(0, YEARS), reading(5), trust=start)
        assert after == Trust(last=reading(5), remembered=TRUE)

    def test_a_store_that_remembers_what_is_to_come_was_led_by_a_clock_ahead(self):
        assert self.started(-LEAP - 1).has_fallen_back
        assert not self.started(-LEAP - 1).may_forget, "one that remembers too much bears no time out"
        assert not self.started(-LEAP).has_fallen_back


@pytest.mark.parametrize(
    ("remembered", "apart"),
    [(None, 0), (TRUE - LEAP, 0), (TRUE + LEAP, 0), (TRUE - YEARS, YEARS), (TRUE + YEARS, -YEARS)],
)
def test_how_far_a_time_is_from_what_is_remembered(remembered, apart):
    assert discrepancy(TRUE, remembered) == apart
