"""A schedule that a clock ran ahead of is planned anew, and every fire has one outcome: tables with every time."""

from dataclasses import replace

import pytest

from noonmark.core.clock_rewind import rewind
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.planner import Gap, Rewound, plan, projection
from noonmark.core.policies import misfire
from noonmark.core.policies.limits import Horizon
from noonmark.core.triggers import CronTrigger, EventTrigger, OnceTrigger
from tests.core.scheduled import (
    LOOKAHEAD,
    after_noon,
    at,
    every,
    ids,
    moment,
    nominals,
    one_id,
    projected,
    read,
    scheduled,
)

DAY = 86_400
YEARS = 10 * 365 * DAY
LEAP_DAY = 471 * DAY - DAY // 2
NOW = 250


def gap(first, last, count):
    return Gap(id=one_id(first), first=at(first), last=at(last), count=count)


def ahead(schedule, watermark, *projections, gaps=(), outcomes=(), admitted=None):
    """A snapshot as it is read to rewind: with every outcome after now."""
    stretches = [(one.first, one.last) for one in gaps] + [(at(one), at(one)) for one in outcomes]
    newest = max([last for _, last in stretches], default=None)
    snapshot = read(schedule, watermark, *projections)
    return replace(
        snapshot,
        beyond=tuple(sorted(stretches)),
        gaps=tuple(gaps),
        admitted=newest if admitted is None else at(admitted),
    )


def rewound(snapshot, now=NOW):
    return rewind(snapshot, now=at(now), lookahead=LOOKAHEAD)


def test_the_watermark_falls_back_to_now_and_the_gap_with_it():
    rewind = rewound(ahead(scheduled(every(100)), YEARS, YEARS, gaps=[gap(100, YEARS - 100, YEARS // 100 - 1)]))
    assert rewind.rewound == Rewound(newest=at(200), shortened=(gap(100, 200, 2),))
    assert (nominals(rewind), after_noon(rewind.watermark), rewind.removed) == ([300], 300, ids(YEARS))
    assert (after_noon(rewind.plan_at), rewind.exhausted, rewind.closed) == (298, False, ())
    assert rewind.snapshot.watermark == at(YEARS), "it is written only where that is still stored"


def test_a_gap_of_which_nothing_has_come_is_undone():
    rewind = rewound(ahead(scheduled(every(100)), YEARS, YEARS, gaps=[gap(300, YEARS - 100, YEARS // 100 - 3)]))
    assert rewind.rewound == Rewound(newest=at(200), undone=ids(300))
    assert nominals(rewind) == [300]


def test_what_ran_ahead_of_its_time_keeps_its_outcome_and_is_not_named_again():
    found = ahead(scheduled(every(100)), YEARS, gaps=[gap(100, YEARS - 200, YEARS // 100 - 3)], outcomes=[300, YEARS])
    rewind = rewound(found)
    [shortened] = rewind.rewound.shortened
    # Of the fires after 250, one had run before: it was never counted in the gap.
    assert shortened == gap(100, 200, YEARS // 100 - 3 - (YEARS // 100 - 2 - 3))
    assert rewind.rewound.newest == at(YEARS)
    assert nominals(rewind) == [400]


def test_projections_that_a_plan_made_now_would_have_stay():
    found = ahead(scheduled(every(5_000), horizon=Horizon(occurrences=2)), YEARS, 5_000, 10_000, 15_000, YEARS)
    rewind = rewound(found)
    assert (rewind.planned, rewind.removed, after_noon(rewind.watermark)) == ((), ids(15_000, YEARS), 10_000)
    assert rewind.rewound == Rewound(newest=None)


def test_what_was_to_be_caught_up_then_is_caught_up_now():
    late = [
        projected(100, YEARS, caught_up=YEARS, first_due=100),
        projected(200, 200, caught_up=200, first_due=200),
        projected(300, YEARS, caught_up=YEARS, first_due=300),
    ]
    rewind = rewound(ahead(scheduled(every(100)), YEARS, *late))
    planned = [(after_noon(row.nominal), after_noon(row.due), after_noon(row.caught_up)) for row in rewind.planned]
    assert planned == [(100, NOW, NOW), (300, 300, None)]


def test_a_paused_schedule_is_only_set_back():
    swallowed = gap(100, YEARS, YEARS // 100)
    rewind = rewound(ahead(scheduled(every(100), phase=SchedulePhase.PAUSED), YEARS, gaps=[swallowed]))
    assert (rewind.planned, after_noon(rewind.watermark), rewind.plan_at, rewind.schedule) == ((), NOW, None, None)
    assert rewind.rewound.shortened == (gap(100, 200, 2),)


def test_a_schedule_that_was_completed_before_its_time_is_active_again():
    once = scheduled(OnceTrigger(moment(DAY)), phase=SchedulePhase.COMPLETED)
    rewind = rewound(ahead(once, DAY, gaps=[gap(DAY, DAY, 1)]))
    assert rewind.rewound == Rewound(newest=None, undone=ids(DAY))
    assert (rewind.schedule.phase, rewind.schedule.revision, rewind.schedule.updated) == (
        SchedulePhase.ACTIVE,
        1,
        at(NOW),
    )
    assert (nominals(rewind), rewind.exhausted) == ([DAY], True)


@pytest.mark.parametrize(
    "snapshot",
    [
        read(scheduled(every(100)), 300, 300),
        # A daily one whose next fire is far away, and one that comes every four years.
        read(scheduled(CronTrigger("0 3 * * *")), 15 * 3_600, 15 * 3_600),
        read(scheduled(CronTrigger("0 0 29 2 *")), LEAP_DAY, LEAP_DAY),
        read(scheduled(OnceTrigger(moment(YEARS))), YEARS, YEARS),
        # A clock that is ahead by no more than an hour is not worth it.
        read(scheduled(every(100)), 3_900, 3_900),
        # Somebody cancelled the next ones ahead of their time.
        ahead(scheduled(every(5_000)), 15_000, 15_000, outcomes=[5_000, 10_000]),
        ahead(scheduled(every(100), phase=SchedulePhase.COMPLETED), YEARS, outcomes=[YEARS]),
        # What ended is not told to have been ahead of what it named.
        ahead(scheduled(OnceTrigger(moment(DAY)), phase=SchedulePhase.COMPLETED), DAY, outcomes=[DAY]),
        ahead(scheduled(every(100, end=200), phase=SchedulePhase.COMPLETED), YEARS, gaps=[gap(100, 2 * DAY, 2)]),
        ahead(scheduled(every(100), phase=SchedulePhase.DELETED), YEARS, gaps=[gap(100, YEARS, 9)]),
        replace(ahead(scheduled(every(100), max_runs=3), YEARS, gaps=[gap(100, YEARS, 9)]), runs=3),
        ahead(scheduled(EventTrigger("paid")), YEARS),
    ],
)
def test_what_a_plan_made_now_could_be_like_is_left_alone(snapshot):
    assert rewound(snapshot) is None


def test_a_gap_of_an_earlier_rule_keeps_its_first_fire():
    """The rule in force names nothing before now; then nobody knows what else the gap has counted."""
    rewind = rewound(ahead(scheduled(every(100, start=400)), YEARS, gaps=[gap(130, YEARS, 3)]))
    assert rewind.rewound.shortened == (gap(130, 130, 1),)


@pytest.mark.parametrize("policy", [misfire.Skip(), misfire.CatchUpOne(), misfire.CatchUpAll(limit=5)])
@pytest.mark.parametrize("jump", [2 * DAY, 400 * DAY, YEARS])
def test_ahead_and_back_every_fire_has_one_outcome(policy, jump):
    """Planned by a clock that is ahead, rewound, and planned on: what has a row or is counted is what was named."""
    schedule = scheduled(every(3_600), misfire_policy=policy)
    by_false = plan(read(schedule, 0), now=at(jump + 50), lookahead=LOOKAHEAD)
    gaps = [Gap(id=row.id, first=row.nominal, last=row.missed_last, count=row.missed_count) for row in by_false.closed]
    snapshot = replace(
        read(schedule, 0),
        watermark=by_false.watermark,
        projections=tuple(sorted(map(projection, by_false.planned), key=lambda one: one.nominal)),
        gaps=tuple(gaps),
        beyond=tuple((one.first, one.last) for one in gaps),
        admitted=max((one.last for one in gaps), default=None),
    )
    now = 3 * 3_600 + 1_800
    rewind = rewound(snapshot, now)
    left = {one.id: one.nominal for one in snapshot.projections if one.id not in rewind.removed}
    left |= {row.id: row.nominal for row in rewind.planned}
    counted = sum(one.count for one in rewind.rewound.shortened)
    named = schedule.declaration.trigger.count_micros(at(0), rewind.watermark)
    assert counted + sum(at(0) < nominal <= rewind.watermark for nominal in left.values()) == named
    assert after_noon(rewind.watermark) == 4 * 3_600
