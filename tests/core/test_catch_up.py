"""Which fires of a gap run: tables per policy, a naive model, and gaps too long to enumerate."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonmark.core.ids import fraction
from noonmark.core.instants import SECOND, to_micros
from noonmark.core.policies import catch_up
from noonmark.core.policies.catch_up import CatchUp, Missed, Start, decide
from noonmark.core.policies.misfire import CatchUpAll, CatchUpOne, CatchUpWithin, Skip, Spread
from noonmark.core.reasons import Reason
from noonmark.core.triggers import CronTrigger, IntervalTrigger
from tests.core.fires import Every, Listed

UID = "sch_7Qp2"
YEAR = 31_536_000 * SECOND
GRACE = 60 * SECOND


def seconds(policy, times, *, now, after=-1):
    """Decide over times given in seconds; answer in seconds too: ([(nominal, due)], (count, first, last))."""
    trigger = Listed([time * SECOND for time in times])
    decided = decide(policy, trigger, uid=UID, after=after * SECOND, now=now * SECOND)
    missed = decided.missed
    return (
        [(start.nominal // SECOND, start.due / SECOND) for start in decided.starts],
        None if missed is None else (missed.count, missed.first // SECOND, missed.last // SECOND),
        str(decided.reason),
    )


def on_due(*times):
    return [(time, time) for time in times]


# Late by 1000, 700, 400, 61 | 60, 30, 0 seconds: the bar marks the grace. At 1001 comes one that is not due yet.
MANY = [0, 300, 600, 939, 940, 970, 1000, 1001]
# Late by 1000, 700, 400, 61: nothing is in grace.
OLD = [0, 300, 600, 939, 1001]
# Late by 60, 30, 0.
FRESH = [940, 970, 1000, 1001]


@pytest.mark.parametrize(
    ("policy", "times", "starts", "missed", "reason"),
    [
        (Skip(), [1001], [], None, "not_due"),
        (Skip(), [1000, 1001], on_due(1000), None, "on_time"),
        (Skip(), [970], on_due(970), None, "within_grace"),
        (Skip(), [940], on_due(940), None, "within_grace"),
        (Skip(), [939], [], (1, 939, 939), "late"),
        (Skip(), FRESH, on_due(1000), (2, 940, 970), "newer_fire"),
        (Skip(), OLD, [], (4, 0, 939), "late"),
        (Skip(), MANY, on_due(1000), (6, 0, 970), "late"),
        (Skip(grace=61 * SECOND), OLD, on_due(939), (3, 0, 600), "late"),
        (CatchUpOne(), [1001], [], None, "not_due"),
        (CatchUpOne(), [970], on_due(970), None, "within_grace"),
        (CatchUpOne(), [0], on_due(0), None, "caught_up"),
        (CatchUpOne(), FRESH, on_due(1000), (2, 940, 970), "newer_fire"),
        (CatchUpOne(), OLD, on_due(939), (3, 0, 600), "newer_fire"),
        (CatchUpOne(), MANY, on_due(1000), (6, 0, 970), "newer_fire"),
        (CatchUpAll(), [1001], [], None, "not_due"),
        (CatchUpAll(), FRESH, on_due(940, 970, 1000), None, "within_grace"),
        (CatchUpAll(), OLD, on_due(0, 300, 600, 939), None, "caught_up"),
        (CatchUpAll(limit=4), MANY, on_due(0, 300, 600, 939, 940, 970, 1000), None, "caught_up"),
        (CatchUpAll(limit=3), MANY, on_due(300, 600, 939, 940, 970, 1000), (1, 0, 0), "catch_up_limit"),
        (CatchUpAll(limit=1), OLD, on_due(939), (3, 0, 600), "catch_up_limit"),
        (CatchUpWithin(window=400 * SECOND), MANY, on_due(600, 939, 940, 970, 1000), (2, 0, 300), "late"),
        (CatchUpWithin(window=399 * SECOND), OLD, on_due(939), (3, 0, 600), "late"),
        (CatchUpWithin(window=1000 * SECOND), OLD, on_due(0, 300, 600, 939), None, "caught_up"),
        (CatchUpWithin(window=1000 * SECOND, limit=2), OLD, on_due(600, 939), (2, 0, 300), "catch_up_limit"),
        (CatchUpWithin(window=700 * SECOND, limit=2), OLD, on_due(600, 939), (2, 0, 300), "late"),
        # A window shorter than the grace takes nothing away from the grace.
        (CatchUpWithin(window=SECOND), MANY, on_due(940, 970, 1000), (4, 0, 939), "late"),
        (Spread(), OLD, [(0, 1000), (300, 1015), (600, 1030), (939, 1045)], None, "caught_up"),
        (Spread(limit=3), OLD, [(300, 1000), (600, 1020), (939, 1040)], (1, 0, 0), "catch_up_limit"),
        (Spread(window=7 * SECOND, limit=2), OLD, [(600, 1000), (939, 1003.5)], (2, 0, 300), "catch_up_limit"),
        # What is in grace comes after the older ones.
        (
            Spread(limit=2),
            MANY,
            [(600, 1000), (939, 1012), (940, 1024), (970, 1036), (1000, 1048)],
            (2, 0, 300),
            "catch_up_limit",
        ),
        (Spread(), FRESH, on_due(940, 970, 1000), None, "within_grace"),
    ],
)
def test_each_policy(policy, times, starts, missed, reason):
    assert seconds(policy, times, now=1000) == (starts, missed, reason)


@pytest.mark.parametrize("policy", [Skip(), CatchUpOne(), CatchUpAll(), CatchUpWithin(window=GRACE), Spread()])
def test_only_fires_after_the_watermark_count(policy):
    assert seconds(policy, [960, 980, 1000], now=1000, after=980) == (on_due(1000), None, "on_time")
    assert seconds(policy, [960, 980, 1000], now=1000, after=1000) == ([], None, "not_due")
    assert seconds(policy, [], now=1000) == ([], None, "not_due")


def test_the_watermark_bounds_what_is_caught_up_and_what_is_missed():
    assert seconds(CatchUpAll(limit=2), OLD, now=1000, after=300) == (on_due(600, 939), None, "caught_up")
    assert seconds(CatchUpWithin(window=900 * SECOND), OLD, now=1000, after=300) == (
        on_due(600, 939),
        None,
        "caught_up",
    )
    assert seconds(Skip(), OLD, now=1000, after=300) == ([], (2, 600, 939), "late")


def test_each_start_says_why_it_runs():
    trigger = Listed([0, 939 * SECOND, 940 * SECOND, 999 * SECOND, 1000 * SECOND - 500_000, 1000 * SECOND])
    decided = decide(CatchUpAll(limit=1), trigger, uid=UID, after=-1, now=1000 * SECOND)
    assert [str(start.reason) for start in decided.starts] == [
        "caught_up",
        "within_grace",
        "within_grace",
        "on_time",
        "on_time",
    ]


def test_a_decision_is_a_value_with_its_numbers():
    trigger = Listed([time * SECOND for time in MANY])
    decided = decide(CatchUpAll(limit=1), trigger, uid=UID, after=-1, now=1000 * SECOND)
    assert decided == CatchUp(
        policy=CatchUpAll(limit=1),
        now=1000 * SECOND,
        starts=(
            Start(nominal=939 * SECOND, due=939 * SECOND, reason=Reason.CAUGHT_UP),
            Start(nominal=940 * SECOND, due=940 * SECOND, reason=Reason.WITHIN_GRACE),
            Start(nominal=970 * SECOND, due=970 * SECOND, reason=Reason.WITHIN_GRACE),
            Start(nominal=1000 * SECOND, due=1000 * SECOND, reason=Reason.ON_TIME),
        ),
        missed=Missed(count=3, first=0, last=600 * SECOND, reason=Reason.CATCH_UP_LIMIT),
        in_grace=3,
        late_by=1000 * SECOND,
    )
    assert decided.facts() == {
        "policy": "catch_up_all",
        "grace_seconds": 60,
        "limit": 1,
        "now": "1970-01-01T00:16:40Z",
        "due": 7,
        "in_grace": 3,
        "in_grace_limit": 1000,
        "runs": 4,
        "missed": 3,
        "late_by_seconds": 1000,
    }


def test_a_decision_about_nothing_has_numbers_too():
    decided = decide(Spread(), Listed([]), uid=UID, after=0, now=1000 * SECOND)
    assert decided.facts() == {
        "policy": "spread",
        "grace_seconds": 60,
        "limit": 100,
        "window_seconds": 60,
        "now": "1970-01-01T00:16:40Z",
        "due": 0,
        "in_grace": 0,
        "in_grace_limit": 1000,
        "runs": 0,
        "missed": 0,
        "late_by_seconds": 0,
    }


def test_lateness_counts_from_the_due_time():
    # The fraction of (UID, 0) moves this fire well into its hour.
    trigger = Every(3600 * SECOND, jitter=3600 * SECOND)
    due = int(fraction(UID, 0) * (3600 * SECOND - 1))
    assert due > GRACE
    early = decide(Skip(), trigger, uid=UID, after=-1, now=due - 1)
    assert (early.starts, early.missed) == ((), None)
    last = decide(Skip(), trigger, uid=UID, after=-1, now=due + GRACE)
    assert last.starts == (Start(nominal=0, due=due, reason=Reason.WITHIN_GRACE),)
    late = decide(Skip(), trigger, uid=UID, after=-1, now=due + GRACE + 1)
    assert late.missed == Missed(count=1, first=0, last=0, reason=Reason.LATE)
    assert late.late_by == GRACE + 1


# A naive model: enumerate everything that is due, then apply the rule as it is told.


def due_fires(times, jitter, after, now):
    dues = []
    for index, nominal in enumerate(times):
        room = times[index + 1] - nominal - 1 if index + 1 < len(times) else jitter
        dues.append((nominal, nominal + int(fraction(UID, nominal) * min(jitter, room))))
    return [(nominal, due) for nominal, due in dues if nominal > after and due <= now]


def chosen(policy, old, fresh, now, bound):
    if isinstance(policy, Skip):
        return fresh[-1:]
    if isinstance(policy, CatchUpOne):
        return fresh[-1:] or old[-1:]
    if len(fresh) > bound:
        return fresh[-bound:]
    if isinstance(policy, CatchUpWithin):
        old = [fire for fire in old if now - fire[1] <= policy.window]
    return old[-policy.limit :] + fresh


def why_missed(policy, fire, old, now):
    if isinstance(policy, CatchUpOne) or (isinstance(policy, Skip) and fire not in old):
        return "newer_fire"
    if isinstance(policy, Skip):
        return "late"
    too_old = isinstance(policy, CatchUpWithin) and fire in old and now - fire[1] > policy.window
    return "late" if too_old else "catch_up_limit"


def tell(policy, times, jitter, after, now, bound):
    """The starts as (nominal, due, reason), and the missed as (count, first, last, reason)."""
    fires = due_fires(times, jitter, after, now)
    fresh = [fire for fire in fires if now - fire[1] <= policy.grace]
    old = [fire for fire in fires if fire not in fresh]
    running = chosen(policy, old, fresh, now, bound)
    missed = [fire for fire in fires if fire not in running]
    is_spread = isinstance(policy, Spread) and any(fire in old for fire in running)
    starts = []
    for fire in running:
        nominal, due = fire
        moved = now + running.index(fire) * policy.window // len(running) if is_spread else due
        in_grace = "within_grace" if now - due >= SECOND else "on_time"
        starts.append((nominal, moved, in_grace if fire in fresh else "caught_up"))
    if not missed:
        return starts, None
    return starts, (len(missed), missed[0][0], missed[-1][0], why_missed(policy, missed[0], old, now))


def told(decided):
    missed = decided.missed
    return (
        [(start.nominal, start.due, str(start.reason)) for start in decided.starts],
        None if missed is None else (missed.count, missed.first, missed.last, str(missed.reason)),
    )


# Quarters of a second, few of them: so the edges of grace and window are hit exactly, and often.
QUARTER = SECOND // 4
LENGTHS = st.integers(1, 60).map(lambda count: count * QUARTER)
LIMITS = st.integers(1, 6)
POLICIES = (
    st.builds(Skip, grace=LENGTHS)
    | st.builds(CatchUpOne, grace=LENGTHS)
    | st.builds(CatchUpAll, grace=LENGTHS, limit=LIMITS)
    | st.builds(CatchUpWithin, grace=LENGTHS, limit=LIMITS, window=LENGTHS)
    | st.builds(Spread, grace=LENGTHS, limit=LIMITS, window=LENGTHS)
)
INSTANTS = st.integers(0, 100).map(lambda count: count * QUARTER)
TIMES = st.lists(INSTANTS, unique=True, max_size=40).map(sorted)
JITTERS = st.just(0) | st.integers(0, 20 * QUARTER)


@given(POLICIES, TIMES, JITTERS, INSTANTS.map(lambda instant: instant - QUARTER), INSTANTS, st.integers(1, 12))
def test_the_decision_is_what_the_naive_model_tells(policy, times, jitter, after, now, bound):
    with pytest.MonkeyPatch.context() as context:
        context.setattr(catch_up, "MAX_IN_GRACE", bound)
        decided = decide(policy, Listed(times, jitter=jitter), uid=UID, after=after, now=now)
    assert told(decided) == tell(policy, times, jitter, after, now, bound)


@given(POLICIES, TIMES, JITTERS, st.lists(INSTANTS, min_size=1, max_size=6).map(sorted))
def test_over_many_decisions_every_fire_is_told_exactly_once(policy, times, jitter, moments):
    trigger = Listed(times, jitter=jitter)
    after, named = -1, []
    for now in moments:
        decided = decide(policy, trigger, uid=UID, after=after, now=now)
        if decided.missed is not None:
            swallowed = [time for time in times if decided.missed.first <= time <= decided.missed.last]
            assert decided.missed.count == len(swallowed)
            named += swallowed
        named += [start.nominal for start in decided.starts]
        after = named[-1] if named else after
    assert named == [nominal for nominal, _ in due_fires(times, jitter, -1, moments[-1])]


@pytest.mark.parametrize("jitter", [0, SECOND // 2])
@pytest.mark.parametrize(
    ("policy", "runs"),
    [
        (Skip(), 1),
        (CatchUpOne(), 1),
        (CatchUpAll(limit=1_000), 1_060),
        (CatchUpWithin(window=YEAR), 160),
        (Spread(), 160),
    ],
)
def test_a_year_of_every_second_is_counted_not_enumerated(policy, runs, jitter):
    trigger = Every(SECOND, jitter=jitter)
    # Half a second past the newest fire: jitter can neither move it beyond now, nor an older one into the grace.
    decided = decide(policy, trigger, uid=UID, after=-1, now=YEAR + SECOND // 2)
    assert len(decided.starts) == runs
    assert len(decided.starts) + decided.missed.count == 31_536_001
    assert decided.missed.first == 0
    assert decided.missed.last == decided.starts[0].nominal - SECOND
    assert sum(trigger.calls.values()) <= 20 + 2 * len(decided.starts)


def test_a_year_nobody_runs_costs_a_handful_of_questions():
    trigger = Every(SECOND)
    decided = decide(Skip(), trigger, uid=UID, after=-1, now=YEAR)
    assert decided.missed.count == 31_536_000
    assert sum(trigger.calls.values()) < 10


@pytest.mark.parametrize("policy", [CatchUpAll(grace=3600 * SECOND), Spread(grace=3600 * SECOND)])
def test_the_fires_in_grace_are_bounded_too(policy):
    trigger = Every(1_000)
    now = 7200 * SECOND
    decided = decide(policy, trigger, uid=UID, after=3600 * SECOND, now=now)
    assert [start.nominal for start in decided.starts] == list(range(now - 999_000, now + 1, 1_000))
    assert decided.missed == Missed(
        count=3_599_000, first=3600 * SECOND + 1_000, last=now - 1_000_000, reason=Reason.CATCH_UP_LIMIT
    )
    assert trigger.calls["previous"] <= 1_010


def test_as_many_fires_in_grace_as_the_bound_still_leave_room_for_older_ones():
    trigger = Every(SECOND)
    decided = decide(CatchUpAll(grace=999 * SECOND, limit=5), trigger, uid=UID, after=-1, now=5_000 * SECOND)
    assert decided.in_grace == 1_000
    assert len(decided.starts) == 1_005


# Two hours around the end of summer time in New York, when an hour comes twice.
FALL_BACK = to_micros(datetime(2026, 11, 1, 6, tzinfo=UTC))
REAL = [
    CronTrigger("*/10 * * * * *", timezone="America/New_York", jitter_seconds=7),
    CronTrigger("30 */5 1 * * *", timezone="America/New_York", jitter_seconds=200),
    CronTrigger(["*/7 * * * *", "0 * * * *"], timezone="Europe/Stockholm"),
    IntervalTrigger(every_seconds=11.5, start_at=datetime(2026, 1, 1, tzinfo=UTC), jitter_seconds=30),
]


def fires_of(trigger):
    times = [FALL_BACK - 3600 * SECOND]
    while times[-1] < FALL_BACK + 7200 * SECOND:
        times.append(trigger.next_micros(times[-1]))
    return Listed(times[1:], jitter=trigger.jitter)


@pytest.mark.parametrize(("real", "listed"), [(trigger, fires_of(trigger)) for trigger in REAL])
@given(
    policy=POLICIES,
    after=st.integers(FALL_BACK - 3600 * SECOND, FALL_BACK + 3600 * SECOND),
    now=st.integers(FALL_BACK - 3600 * SECOND, FALL_BACK + 3600 * SECOND),
)
def test_real_triggers_are_decided_like_the_list_of_their_fires(real, listed, policy, after, now):
    decided = decide(policy, real, uid=UID, after=after, now=now)
    assert decided == decide(policy, listed, uid=UID, after=after, now=now)


def test_what_the_bound_of_fires_in_grace_cuts_off_is_not_called_late():
    now = to_micros(datetime(2027, 1, 1, 0, 30, tzinfo=UTC))
    every_second = IntervalTrigger(1, datetime(2027, 1, 1, tzinfo=UTC))
    policy = CatchUpWithin(grace=3_600 * SECOND, window=60 * SECOND)
    decision = decide(policy, every_second, uid="u", after=now - 1_800 * SECOND, now=now)
    assert len(decision.starts) == catch_up.MAX_IN_GRACE
    assert (decision.missed.count, decision.missed.reason) == (1_800 - catch_up.MAX_IN_GRACE, Reason.CATCH_UP_LIMIT)
