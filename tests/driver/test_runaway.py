"""The leader pauses what spends far more than it used to, and a node reports what it has stopped."""

import logging

from noonmark.core.budgets.spend import NANOS, Usage
from noonmark.core.edits import resume
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.policies.runaway import HOUR, RunawayPolicy
from noonmark.core.targets import TaskTarget
from noonmark.core.triggers import EventTrigger
from noonmark.ports.budgets import UsageRecord
from noonmark.ports.events import RanAway
from tests.driver.rig import Rig

TASK = {"target": TaskTarget(query="look"), "trigger": EventTrigger("none")}


def spend(rig, of, dollars, times=1):
    for number in range(times):
        used = Usage(cost=int(dollars * NANOS))
        record = UsageRecord(
            call_id=f"{of.uid}-{rig.world.now}-{number}", tenant="acme", user="ada", usage=used,
            schedule_id=of.schedule_id,
        )  # fmt: skip
        assert rig.store.record_usage([record]) == [True]


def phase(rig, of):
    return rig.store.find_uid(of.uid).schedule.phase


def test_an_hour_that_costs_far_more_than_the_past_ones_pauses_its_schedule(caplog):
    rig = Rig()
    assert rig.lead_once().leads
    agent = rig.create("agent", schedule_id="agent", **TASK)
    others = [
        rig.create("plain", schedule_id="plain", trigger=EventTrigger("none")),
        rig.create("free", schedule_id="free", runaway=RunawayPolicy(max_spend_factor=0), **TASK),
        rig.create("late", schedule_id="late", runaway=RunawayPolicy(max_spend_factor=20), **TASK),
    ]
    for _ in range(5):
        rig.advance(HOUR)
        rig.lead_once()
        for one in (agent, *others):
            spend(rig, one, 1)
        assert rig.guard_once() == 0  # a dollar an hour is usual
    new = rig.create("new", schedule_id="new", **TASK)  # without a past
    rig.advance(HOUR)
    rig.lead_once()
    for one in (agent, *others, new):
        spend(rig, one, 1.1, times=5)
    with caplog.at_level(logging.WARNING, "noonmark.driver"):
        assert rig.guard_once() == 1
    assert phase(rig, agent) is SchedulePhase.PAUSED
    assert [one for one in rig.sink.told if isinstance(one, RanAway)] == [RanAway("agent", "spend_per_hour")]
    assert {phase(rig, one) for one in (*others, new)} == {SchedulePhase.ACTIVE}
    assert (
        "agent (task) is paused: it spent $5.50 within an hour; at most $5.00 are allowed, since nine of ten of its"
        " past hours cost up to $1.00; `noonmark schedule resume agent` resumes it"
    ) in caplog.text
    assert rig.guard_once() == 0
    rig.advance(1)
    assert rig.store.change(agent.uid, lambda of, now: resume(of, now=now, lookahead=0))
    assert rig.guard_once() == 0  # what it spent before it was resumed does not count
    rig.advance(1)
    spend(rig, agent, 30)
    assert rig.guard_once() == 1


def test_only_the_leader_looks():
    rig = Rig()
    assert rig.guard_once() == 0
    assert rig.store.calls["spenders"] == 0


def test_what_a_node_has_stopped_is_a_warning(caplog):
    rig = Rig()
    schedule = rig.create(trigger=EventTrigger("none"), schedule_id="s", runaway=RunawayPolicy(max_fires_per_hour=1))
    rig.target.end(rig.started(schedule, "a"))
    rig.settle_once()
    rig.add(schedule, "b")
    rig.claim_once()
    with caplog.at_level(logging.WARNING, "noonmark.driver"):
        report = rig.admit_once()
    assert (report.started, report.ended) == (0, 1)
    assert [str(one.phase) for one in rig.rows(schedule)].count(Phase.SKIPPED) == 1
    assert "is paused: 2 starts in the hour from" in caplog.text
