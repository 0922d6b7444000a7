"""What a node does with claims that depend on others."""

import asyncio

import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.policies.dependencies import WAIT_LIMIT
from noonmark.core.policies.limits import Dependency
from noonmark.core.policies.window import Window
from noonmark.core.reasons import Reason
from noonmark.driver.steps.reports import AdmitReport
from noonmark.driver.wakeup import Wakeup
from noonmark.testing.factories import MINUTE
from tests.driver.rig import Rig

ON_UP = (Dependency(schedule_id="schedule-of-up"),)


def two(rig, **changes):
    """An upstream and what depends on it, both due and claimed."""
    up = rig.create("up")
    down = rig.create("down", depends_on=ON_UP, **changes)
    rig.advance(MINUTE)
    rig.plan_once()
    rig.claim_once()
    return up, down


def first(rig, of):
    return rig.rows(of)[-1]


def test_it_waits_starts_and_is_delivered():
    rig = Rig()
    up, down = two(rig)
    assert rig.admit_once() == AdmitReport(started=1, waiting=1)
    assert rig.store.calls["upstreams"] == 1
    [running] = rig.target.given
    assert (running.schedule.uid, first(rig, down).waiting_for) == (up.uid, Reason.DEPENDENCY_PENDING)
    rig.target.end(running)
    rig.settle_once()
    assert rig.claim_once().claimed == 1
    assert rig.admit_once() == AdmitReport(started=1)
    assert [one.schedule.uid for one in rig.target.given] == [up.uid, down.uid]


def test_nothing_is_asked_where_nothing_depends():
    rig = Rig()
    rig.create("up")
    rig.advance(MINUTE)
    rig.claim_once()
    rig.admit_once()
    assert rig.store.calls["upstreams"] == 0


def test_claims_are_kept_when_the_store_does_not_answer():
    rig = Rig()
    two(rig)
    rig.store.fail("upstreams")
    with pytest.raises(StoreUnavailable):
        rig.admit_once()
    assert rig.admit_once() == AdmitReport(started=1, waiting=1)


@pytest.mark.parametrize(
    ("changes", "limit", "reason"),
    [
        ({}, WAIT_LIMIT, Reason.DEPENDENCY_TIMED_OUT),
        ({"window": Window(duration=5 * MINUTE)}, 5 * MINUTE, Reason.WINDOW_CLOSED),
    ],
)
def test_what_is_claimed_shortly_before_its_limit_is_kept_until_then(changes, limit, reason):
    rig = Rig()
    _, down = two(rig, **changes)
    rig.admit_once()
    one = first(rig, down)
    rig.advance(limit - SECOND)
    rig.renew_once()
    rig.claim_once()
    report = rig.admit_once()
    assert report.postponed == 1
    assert rig.admit_once() == AdmitReport()
    rig.advance(SECOND)
    rig.renew_once()
    assert rig.admit_once().ended >= 1
    ended = rig.row(one)
    assert (ended.phase, ended.reason) == (Phase.SKIPPED, reason)


def test_an_alarm_rings_once_for_all_who_ask_within_a_while():
    async def rung():
        wakeup = Wakeup()
        for _ in range(3):
            wakeup.set_within(1_000)
        await wakeup.wait(60 * SECOND)
        wakeup.set_within(1_000)
        await wakeup.wait(60 * SECOND)

    asyncio.run(asyncio.wait_for(rung(), 30))
