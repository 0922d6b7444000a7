"""What is logged for those who do not look into the store."""

import logging
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from noonmark import IntervalTrigger, Scheduler
from noonmark.core.ids import event
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.policies import misfire
from noonmark.core.policies.delivery import Delivery
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Accepted
from noonmark.core.targets.http import HttpTarget
from noonmark.core.triggers import EventTrigger
from noonmark.driver import logs
from noonmark.testing import FakeClock, ManualDriver, factories
from noonmark.testing.factories import NOW
from tests.driver.rig import Rig

START = datetime(2030, 5, 1, tzinfo=UTC)


class Kit:
    def __init__(self):
        self.clock = FakeClock(START)
        self.scheduler = Scheduler(clock=self.clock)
        self.driver = ManualDriver(self.scheduler)


@pytest.fixture
def kit():
    return Kit()


def said(caplog, level):
    return [one.getMessage() for one in caplog.records if one.levelno == level and one.name.startswith("noonmark")]


def fail():
    raise ValueError("on purpose")


def test_every_missed_fire_is_reported(kit, caplog):
    kit.scheduler.schedule(print, name="tick", trigger=IntervalTrigger(60))
    kit.clock.advance(3_600)
    kit.driver.run_due()
    [line] = said(caplog, logging.WARNING)
    assert line.startswith("tick: 59 fires, 2030-05-01T00:01:00Z to 2030-05-01T00:59:00Z, ended as misfired. ")


def test_one_missed_fire_is_shown_with_one_time(kit, caplog):
    kit.scheduler.schedule(print, name="tick", trigger=IntervalTrigger(60))
    kit.clock.advance(175)
    kit.driver.run_due()
    [line] = said(caplog, logging.WARNING)
    assert line.startswith("tick: the fire of 2030-05-01T00:01:00Z ended as misfired. ")


def test_skips_behind_a_run_that_hangs_are_a_warning_per_hour(caplog):
    caplog.set_level(logging.INFO, "noonmark")
    rig = Rig(lease=86_400 * SECOND)
    schedule = rig.create(schedule_id="slow", trigger=EventTrigger("seen"))
    hung = rig.started(schedule).occurrence
    for number in range(4):
        later = factories.occurrence(schedule, event(f"e-{number}"), nominal=rig.world.now)
        assert rig.store.store.add([later]) == [True]
        rig.claim_once()
        rig.admit_once()
        rig.advance((60 if number < 2 else 3_600) * SECOND)
    first, second = said(caplog, logging.WARNING)
    assert f"was skipped, because an earlier one ({hung.id}) has not ended. `noonmark schedule explain " in first
    assert "further skips are logged at level info for an hour" in second
    assert len([line for line in said(caplog, logging.INFO) if "ended as skipped" in line]) == 2


def test_a_run_now_that_is_refused_is_not_a_warning(caplog):
    caplog.set_level(logging.INFO, "noonmark")
    rig = Rig()
    schedule = rig.create(schedule_id="slow", trigger=EventTrigger("seen"))
    rig.started(schedule)
    rig.add(schedule, "by-hand")
    rig.claim_once()
    rig.admit_once()
    assert said(caplog, logging.WARNING) == []
    assert "ended as skipped. An earlier occurrence was still in flight" in said(caplog, logging.INFO)[-1]


def test_warnings_are_remembered_for_a_bounded_number_of_schedules(monkeypatch, caplog):
    monkeypatch.setattr(logs, "MAX_WARNED", 2)
    warned = {}
    for number in (0, 1, 2, 2, 1, 0):
        schedule = factories.schedule(f"uid-{number}")
        row = factories.occurrence(schedule, event("e"), nominal=NOW, phase=Phase.SKIPPED)
        logs.skipped(warned, schedule, row, now=NOW)
    assert list(warned) == ["uid-2", "uid-0"]
    assert len(said(caplog, logging.WARNING)) == 4


def test_a_run_that_completed_is_shown_with_its_time(kit, caplog):
    caplog.set_level(logging.INFO, "noonmark")
    job = kit.scheduler.schedule(str, name="tick", trigger=IntervalTrigger(60))
    kit.driver.run_until(START + timedelta(seconds=61))
    [record] = [one for one in caplog.records if one.name == "noonmark.jobs"]
    assert record.getMessage().startswith("tick: the run of 2030-05-01T00:01:00Z completed in 0.")
    [run] = kit.scheduler.runs(job)
    assert (record.levelno, record.schedule_id, record.run_id) == (logging.INFO, job, run.id)


def test_many_completions_share_a_line(kit, caplog):
    caplog.set_level(logging.INFO, "noonmark.jobs")
    kit.scheduler.create_many([{"func": str}] * (logs.MAX_COMPLETED_LINES + 1))
    kit.driver.run_due()
    assert said(caplog, logging.INFO) == [f"{logs.MAX_COMPLETED_LINES + 1} runs completed"]


def test_a_run_whose_node_was_killed_is_told_when_it_begins_again(caplog):
    caplog.set_level(logging.INFO, "noonmark.jobs")
    rig = Rig()
    rig.started(rig.create(schedule_id="long", trigger=EventTrigger("seen")))
    other = Rig(rig, node="node-b")
    rig.advance(60 * SECOND)
    other.claim_once()
    other.admit_once()
    [line] = said(caplog, logging.INFO)
    assert "begins again, because the node that ran it was killed, stopped or lost" in line


def test_a_failed_run_is_shown_with_its_attempt_and_what_follows(kit, caplog):
    job = kit.scheduler.schedule(fail, name="fragile", retries=1)
    kit.driver.run_until(START + timedelta(seconds=10))
    [first], [second] = said(caplog, logging.WARNING), said(caplog, logging.ERROR)
    [occurrence] = kit.scheduler.occurrences(job)
    assert first.startswith(
        "fragile: the run of 2030-05-01T00:00:00Z failed, attempt 1 of 2, retry at 2030-05-01T00:00:01"
    )
    assert first.endswith("ValueError: on purpose")
    assert second.startswith(
        "fragile: the run of 2030-05-01T00:00:00Z failed, attempt 2 of 2;"
        f' `scheduler.explain("{occurrence.id}")` says more\nTraceback'
    )


def test_a_failure_of_a_program_names_the_command_that_finds_its_store(caplog, tmp_path):
    with closing(Scheduler(f"sqlite:///{tmp_path}/my jobs.db")) as scheduler:
        job = scheduler.schedule(fail, name="fragile", trigger=IntervalTrigger(3_600), pause_on_failure=1)
        with pytest.raises(ValueError, match="on purpose"):
            scheduler.run_now(job)
        [failure], [pause] = said(caplog, logging.ERROR), said(caplog, logging.WARNING)
        [occurrence] = scheduler.occurrences(job)
    store = f"--store 'sqlite:///{tmp_path}/my jobs.db'"
    assert f"; `noonmark schedule explain {occurrence.id} {store}` says more\n" in failure
    assert pause.endswith(f"; `noonmark schedule resume {job} {store}` resumes it")


def test_a_failure_that_noonmark_decided_on_says_why_and_repeats_nothing_else(caplog):
    rig = Rig(routes=("http",))
    schedule = rig.create(trigger=EventTrigger("seen"), target=HttpTarget(url="https://a.example/"))
    refused = rig.started(schedule)
    rig.target.end(refused, Outcome.DELIVERY_FAILED, error="MARK", own_words="it is far away")
    rig.settle_once()
    [line] = said(caplog, logging.ERROR)
    assert f": it is far away (undeliverable); `noonmark schedule explain {refused.occurrence.id}` says more" in line
    assert "MARK" not in line


def test_a_target_that_no_node_serves_is_shown_once_per_schedule_and_hour(caplog):
    rig = Rig(routes=["function:other"])
    schedule = rig.create(schedule_id="typo", misfire_policy=misfire.CatchUpAll())
    rig.reap_once()
    for number in range(3):
        rig.add(schedule, f"run-{number}")
        rig.advance((61 if number < 2 else 3_600) * SECOND)
        rig.reap_once()
    first, second = said(caplog, logging.WARNING)
    assert "no live node serves its target, function:work: the fire of 2030-" in first
    assert "`noonmark schedule explain typo` says more" in second


def test_a_gap_that_no_node_could_serve_is_shown_as_such(caplog):
    rig = Rig(routes=["function:other"])
    rig.create(schedule_id="typo")
    for _ in range(3):
        rig.advance(60 * SECOND)
        rig.reap_once()
        rig.plan_once()
    [line] = said(caplog, logging.WARNING)
    assert "no live node serves its target, function:work" in line


def test_a_run_that_must_not_be_repeated_after_its_node_was_lost_is_an_error(caplog):
    rig = Rig()
    schedule = rig.create(schedule_id="once", trigger=EventTrigger("seen"), delivery=Delivery.AT_MOST_ONCE)
    lost = rig.started(schedule).occurrence
    other = Rig(rig, node="node-b")
    other.advance(60 * SECOND)
    other.claim_once()
    other.admit_once()
    [line] = said(caplog, logging.ERROR)
    assert f"ended as delivery_failed. {Reason.OUTCOME_UNKNOWN.sentence} `noonmark schedule explain {lost.id}`" in line


def test_work_that_was_accepted_and_never_ended_is_an_error(caplog):
    rig = Rig()
    schedule = rig.create(schedule_id="away", trigger=EventTrigger("seen"))
    begun = rig.started(schedule)
    begun.is_closed = True
    rig.driver.report(begun, Accepted(started=NOW, accepted=NOW, deadline=NOW + 60 * SECOND))
    rig.settle_once()
    rig.advance(61 * SECOND)
    rig.reap_once()
    [line] = said(caplog, logging.ERROR)
    assert f"timed_out, attempt 1 of 1; `noonmark schedule explain {begun.occurrence.id}` says more" in line
