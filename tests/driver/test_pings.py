"""Pings by schedules: when a run starts, and how an occurrence ended after its last attempt."""

from dataclasses import replace

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.run import Outcome
from noonmark.core.settlement import Accepted
from noonmark.core.targets.ping import PingTarget, PingUrls
from noonmark.testing.factories import MINUTE
from tests.driver.rig import Rig

URLS = PingUrls(start="https://a.example", success="https://b.example", failure="https://c.example")


class Pings:
    """What would be called."""

    def __init__(self):
        self.moments = []

    def ping(self, schedule, occurrence, moment):
        assert schedule.declaration.ping_urls.url_for(moment) is not None
        self.moments.append(f"{moment} {occurrence.attempt}")

    pending = 0


@pytest.fixture
def rig():
    made = Rig()
    made.node.runtime = replace(made.node.runtime, pinger=Pings())
    return made


def end(rig, assignment, outcome=Outcome.COMPLETED, **changes):
    rig.target.end(assignment, outcome, **changes)
    rig.settle_once()


@pytest.mark.parametrize(
    ("outcome", "moments"),
    [
        (Outcome.COMPLETED, ["start 1", "success 1"]),
        (Outcome.FAILED, ["start 1", "failure 1"]),
        (Outcome.TIMED_OUT, ["start 1", "failure 1"]),
        (Outcome.DELIVERY_FAILED, ["start 1", "failure 1"]),
        (Outcome.CANCELLED, ["start 1"]),
    ],
)
def test_a_start_and_an_end_are_pinged(rig, outcome, moments):
    end(rig, rig.started(rig.create(ping_urls=URLS)), outcome)
    assert rig.node.runtime.pinger.moments == moments


def test_only_the_first_start_and_the_last_end_count(rig):
    schedule = rig.create(ping_urls=URLS, retry_policy=RetryPolicy(max_attempts=2, backoff=SECOND))
    end(rig, rig.started(schedule), Outcome.FAILED)
    rig.advance(2 * SECOND)
    rig.claim_once()
    rig.admit_once()
    end(rig, rig.target.given[-1])
    assert rig.node.runtime.pinger.moments == ["start 1", "success 2"]


def test_a_schedule_without_urls_pings_nothing(rig):
    end(rig, rig.started(rig.create()))
    assert rig.node.runtime.pinger.moments == []


def test_a_deadline_that_passed_is_a_failure(rig):
    assignment = rig.started(rig.create(ping_urls=URLS))
    assignment.is_closed = True
    now = rig.world.now
    rig.driver.report(assignment, Accepted(started=now, accepted=now, deadline=now + SECOND))
    rig.settle_once()
    rig.advance(MINUTE)
    assert rig.reap_once().overdue == 1
    assert rig.node.runtime.pinger.moments == ["start 1", "failure 1"]


def test_what_expects_pings_itself_has_not_started_when_it_is_due():
    rig = Rig(routes=("ping",))
    rig.node.runtime = replace(rig.node.runtime, pinger=Pings())
    end(rig, rig.started(rig.create(ping_urls=URLS, target=PingTarget())))
    assert rig.node.runtime.pinger.moments == ["success 1"]
