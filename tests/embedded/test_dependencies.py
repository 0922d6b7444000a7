"""Schedules that depend on others, from the declaration to the run, on every store."""

from datetime import UTC, datetime, timedelta

import pytest

from noonmark import CronTrigger, InvalidSchedule, Scheduler
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.operations import schedule_edits
from noonmark.testing import FakeClock, ManualDriver
from noonmark.testing.manual import run_inline

START = datetime(2030, 3, 17, 11, 59, 30, tzinfo=UTC)
NOON = START + timedelta(seconds=30)
EVERY_MINUTE = CronTrigger("* * * * *")
DAILY = CronTrigger("0 12 * * *")


class Rig:
    """A scheduler whose jobs write down that they ran, and fail when they are told to."""

    def __init__(self, url):
        self.url = url
        self.clock = FakeClock(START)
        self.ran = []
        self.failing = set()
        self.open()

    def open(self):
        self.scheduler = Scheduler(self.url, clock=self.clock)
        self.driver = ManualDriver(self.scheduler)

    def job(self, name, **options):
        def work():
            self.ran.append(name)
            if name in self.failing:
                raise ValueError(name)

        return self.scheduler.schedule(work, name=name, function_name=name, **options)

    def run_until(self, instant):
        before = len(self.ran)
        self.driver.run_until(instant)
        return self.ran[before:]

    def run_due(self):
        return self.run_until(self.clock.now())

    def told(self, job):
        """What became of its occurrences, oldest first."""
        rows = reversed(self.scheduler.occurrences(job))
        return [f"{one.phase}/{one.reason}" if one.reason else str(one.phase) for one in rows]

    def phase(self, job):
        return self.scheduler._find(job).schedule.phase


@pytest.fixture(params=["memory", "sqlite"])
def rig(request, tmp_path):
    return Rig("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/noonmark.db")


def chain(rig, **options):
    a = rig.job("a", **options)
    b = rig.job("b", depends_on=[a], **options)
    c = rig.job("c", depends_on=[b], **options)
    return a, b, c


def test_a_chain_by_cron_runs_in_order_at_every_fire(rig):
    # Declared in this order, c would run first.
    c, b, a = rig.job("c", trigger=EVERY_MINUTE), rig.job("b", trigger=EVERY_MINUTE), rig.job("a", trigger=EVERY_MINUTE)
    rig.job("c", trigger=EVERY_MINUTE, depends_on=[b])
    rig.job("b", trigger=EVERY_MINUTE, depends_on=[{"schedule_id": a, "require_success": True}])
    assert rig.run_until(NOON + timedelta(minutes=2)) == ["a", "b", "c"] * 3
    assert rig.told(c) == ["completed/succeeded"] * 3 + ["pending"]


def test_a_chain_without_triggers_follows_its_head(rig):
    a, b, c = rig.job("a", trigger=EVERY_MINUTE), None, None
    b = rig.job("b", depends_on=[a])
    c = rig.job("c", depends_on=[b])
    assert rig.run_due() == []
    assert rig.run_until(NOON + timedelta(minutes=1)) == ["a", "b", "c"] * 2
    assert rig.phase(c) is SchedulePhase.ACTIVE


def test_a_chain_of_what_runs_once_runs_once_and_is_completed(rig):
    jobs = chain(rig)
    assert rig.run_due() == ["a", "b", "c"]
    assert [rig.phase(job) for job in jobs] == [SchedulePhase.COMPLETED] * 3
    late = rig.job("d", depends_on=[jobs[2]])
    assert rig.run_due() == ["d"]
    assert rig.phase(late) is SchedulePhase.COMPLETED
    rig.scheduler.run_now(jobs[0], wait=False)
    assert rig.run_due() == ["a", "b", "c", "d"]
    assert rig.told(late) == ["completed/succeeded"] * 2


def test_a_program_that_declares_its_chain_again_runs_it_again(rig):
    chain(rig)
    assert rig.run_due() == ["a", "b", "c"]
    rig.clock.advance(60)
    chain(rig)
    assert rig.run_due() == ["a", "b", "c"]


@pytest.mark.parametrize("options", [{}, {"trigger": DAILY}], ids=["without triggers", "by cron"])
def test_a_failure_skips_everything_after_it(rig, options):
    a, b, c = chain(rig, **options)
    rig.failing = {"a"}
    assert rig.run_until(NOON) == ["a"]
    assert rig.told(a)[0] == "failed/failed"
    assert rig.told(b)[0] == rig.told(c)[0] == "skipped/dependency_failed"
    assert rig.scheduler.occurrences(b)[-1].detail == f'{{"phase": "failed", "upstream": "{a}"}}'


@pytest.mark.parametrize("options", [{}, {"trigger": DAILY}], ids=["without a trigger", "by cron"])
def test_a_failure_may_not_matter(rig, options):
    a = rig.job("a", **options)
    b = rig.job("b", depends_on=[{"schedule_id": a, "require_success": False}], **options)
    rig.failing = {"a"}
    assert rig.run_until(NOON) == ["a", "b"]
    assert rig.told(b)[0] == "completed/succeeded"


@pytest.mark.parametrize("options", [{}, {"trigger": DAILY}], ids=["without a trigger", "by cron"])
def test_who_depends_on_it_waits_for_its_retries(rig, options):
    a = rig.job("a", retries=2, **options)
    b = rig.job("b", depends_on=[a], **options)
    rig.failing = {"a"}
    assert rig.run_until(NOON if options else START) == ["a"]
    rig.failing = set()
    assert rig.run_until(NOON + timedelta(hours=1)) == ["a", "b"]
    assert (rig.told(a)[0], rig.told(b)[0]) == ("completed/succeeded", "completed/succeeded")


def test_no_one_waits_longer_than_a_day(rig):
    a = rig.job("a", trigger=CronTrigger("0 12 17 3 *"))
    rig.scheduler.pause(a)
    b = rig.job("b", trigger=EVERY_MINUTE, depends_on=[a], max_runs=1)
    # It has neither a time in question nor an outcome.
    assert rig.run_until(NOON - timedelta(seconds=1)) == []
    rig.scheduler.delete(b)
    up = rig.job("up", trigger=CronTrigger("0 0 1 1 *"))
    down = rig.job("down", trigger=DAILY, depends_on=[up])
    assert rig.run_until(NOON + timedelta(hours=23, minutes=59)) == []
    assert rig.scheduler.occurrences(down)[-1].waiting_for is Reason.DEPENDENCY_PENDING
    assert rig.run_until(NOON + timedelta(days=1)) == []
    assert rig.told(down)[0] == "skipped/dependency_timed_out"


def test_waiting_is_not_lateness(rig):
    up = rig.job("up", trigger=CronTrigger("0 0 1 1 *"))
    down = rig.job("down", trigger=DAILY, depends_on=[up])
    rig.run_until(NOON + timedelta(hours=5))
    rig.scheduler.run_now(up, wait=False)
    assert rig.run_due() == ["up", "down"]
    assert rig.told(down)[0] == "completed/succeeded"


def test_a_wait_survives_the_process(tmp_path):
    rig = Rig(f"sqlite:///{tmp_path}/noonmark.db")
    a = rig.job("a", trigger=DAILY, retries=1)
    b, c = rig.job("b", trigger=DAILY, depends_on=[a]), rig.job("c", depends_on=[a])
    rig.failing = {"a"}
    assert rig.run_until(NOON) == ["a"]
    rig.clock.advance(3600)
    rig.failing = set()
    rig.open()
    for name, options in (("a", {"retries": 1}), ("b", {"depends_on": [a]})):
        rig.job(name, trigger=DAILY, **options)
    rig.job("c", depends_on=[a])
    assert sorted(rig.run_due()) == ["a", "b", "c"]
    assert (rig.told(b)[0], rig.told(c)) == ("completed/succeeded", ["completed/succeeded"])


def test_a_stop_between_an_end_and_what_follows_loses_nothing(tmp_path):
    rig = Rig(f"sqlite:///{tmp_path}/noonmark.db")
    a = rig.job("a", trigger=DAILY)
    rig.job("b", depends_on=[a])
    rig.run_due()
    rig.clock.move_to(NOON)
    driver = rig.driver._driver
    for duty in (driver.plan_once, driver.claim_once, driver.admit_once, driver.settle_once):
        run_inline(duty())
    assert rig.ran == ["a"]
    rig.clock.advance(7200)
    rig.open()
    rig.job("a", trigger=DAILY)
    rig.job("b", depends_on=[a])
    assert rig.run_due() == ["b"]


def test_after_an_outage_the_last_missed_fire_runs_in_order(rig):
    a = rig.job("a", trigger=DAILY, misfire="catch_up_one")
    b = rig.job("b", trigger=DAILY, misfire="catch_up_one", depends_on=[a])
    rig.clock.advance(3 * 86_400)
    assert rig.run_due() == ["a", "b"]
    assert rig.told(b)[:2] == ["misfired/newer_fire", "completed/succeeded"]


def test_every_upstream_must_have_ended(rig):
    a, b = rig.job("a", trigger=DAILY), rig.job("b", trigger=CronTrigger("30 12 * * *"))
    both = rig.job("both", depends_on=[a, b])
    assert rig.run_until(NOON + timedelta(minutes=29)) == ["a"]
    assert rig.run_until(NOON + timedelta(days=1, minutes=29)) == ["b", "both", "a"]
    assert rig.run_until(NOON + timedelta(days=1, minutes=30)) == ["b", "both"]
    assert rig.told(both) == ["completed/succeeded"] * 2


def test_a_deleted_upstream_is_a_failure_until_there_is_one_of_its_name(rig):
    a = rig.job("a", trigger=EVERY_MINUTE)
    b = rig.job("b", trigger=EVERY_MINUTE, depends_on=[a])
    rig.scheduler.delete(a)
    assert rig.run_until(NOON) == []
    assert rig.told(b)[0] == "skipped/dependency_failed"
    rig.clock.advance(1)
    assert rig.job("a", trigger=EVERY_MINUTE) == a
    assert rig.run_until(NOON + timedelta(minutes=1)) == ["a", "b"]


def test_a_paused_upstream_skips_and_so_does_what_depends_on_it(rig):
    a = rig.job("a", trigger=EVERY_MINUTE)
    b = rig.job("b", trigger=EVERY_MINUTE, depends_on=[a])
    assert rig.run_until(NOON) == ["a", "b"]
    rig.scheduler.pause(a)
    assert rig.run_until(NOON + timedelta(minutes=1)) == []
    assert rig.told(b)[1] == "skipped/dependency_failed"
    rig.scheduler.resume(a)
    assert rig.run_until(NOON + timedelta(minutes=2)) == ["a", "b"]


def test_what_a_pause_of_the_follower_skipped_is_recorded(rig):
    a = rig.job("a", trigger=EVERY_MINUTE)
    b = rig.job("b", depends_on=[a])
    assert rig.run_until(NOON) == ["a", "b"]
    rig.scheduler.pause(b)
    assert rig.run_until(NOON + timedelta(minutes=2)) == ["a", "a"]
    rig.scheduler.resume(b)
    assert rig.run_until(NOON + timedelta(minutes=3)) == ["a", "b"]
    assert rig.told(b) == ["completed/succeeded", "skipped/paused", "completed/succeeded"]


def test_an_end_between_the_look_and_the_wait_is_not_lost(rig, monkeypatch):
    a = rig.job("a", trigger=DAILY)
    rig.job("b", trigger=DAILY, depends_on=[a])
    rig.clock.move_to(NOON)
    store, other = rig.scheduler._store, ManualDriver(rig.scheduler)._driver
    look = store.upstreams
    run_inline(other.plan_once())
    run_inline(other.claim_once())
    # One node holds a, another one b.
    [claim] = [one for one in other.node.held.values() if one.schedule.schedule_id != a]
    store.release([hold for hold in other.node.holds() if hold.occurrence_id == claim.occurrence.id])
    other.node.drop(claim)

    def meanwhile(claims):
        seen = look(claims)
        monkeypatch.setattr(store, "upstreams", look)
        run_inline(other.admit_once())
        run_inline(other.settle_once())
        return seen

    monkeypatch.setattr(store, "upstreams", meanwhile)
    assert rig.run_due() == ["a", "b"]


def test_what_was_asked_for_does_not_wait(rig):
    a = rig.job("a", trigger=DAILY)
    b = rig.job("b", trigger=DAILY, depends_on=[a])
    rig.scheduler.run_now(b, wait=False)
    assert rig.run_due() == ["b"]


def test_a_cycle_is_refused_on_edit_and_nothing_is_changed(rig):
    a, b, c = chain(rig, trigger=DAILY)
    with pytest.raises(InvalidSchedule, match="makes a cycle") as refused:
        rig.job("a", trigger=DAILY, depends_on=[c])
    assert refused.value.field == "depends_on"
    assert all(job in refused.value.message for job in (a, b, c))
    with pytest.raises(InvalidSchedule, match="names the schedule itself"):
        rig.job("a", trigger=DAILY, depends_on=[a])
    assert rig.scheduler._find(a).schedule.revision == 1


def test_of_two_edits_at_once_that_make_a_cycle_one_is_refused(rig, monkeypatch):
    a, b = rig.job("a", trigger=DAILY), rig.job("b", trigger=DAILY)
    store = rig.scheduler._store
    graph = store.graph

    def meanwhile(*asked):
        monkeypatch.setattr(store, "graph", graph)
        known = graph(*asked)
        rig.job("b", trigger=DAILY, depends_on=[a])
        return known

    monkeypatch.setattr(store, "graph", meanwhile)
    with pytest.raises(InvalidSchedule, match="makes a cycle"):
        rig.job("a", trigger=DAILY, depends_on=[b])


def test_a_new_schedule_is_created_although_others_were_changed_meanwhile(rig, monkeypatch):
    a = rig.job("a", trigger=DAILY)
    store = rig.scheduler._store
    create = store.create

    def meanwhile(plans):
        monkeypatch.setattr(store, "create", create)
        rig.job("b", trigger=DAILY, depends_on=[a])
        return create(plans)

    monkeypatch.setattr(store, "create", meanwhile)
    c = rig.job("c", trigger=DAILY, depends_on=[a])
    assert schedule_edits.find(store, "default", c).schedule.declaration.depends_on[0].schedule_id == a


@pytest.mark.parametrize(
    ("depends_on", "field", "message"),
    [
        (["nobody"], "depends_on[0].schedule_id", "there is no schedule 'nobody'"),
        ("nobody", "depends_on[0].schedule_id", "there is no schedule 'nobody'"),
        (7, "depends_on", "must be a list or a tuple, not int"),
        ([7], "depends_on[0]", None),
        ([{"schedule_id": "x", "why": 1}], "depends_on[0].why", None),
    ],
)
def test_upstreams_that_make_no_sense_are_refused(rig, depends_on, field, message):
    with pytest.raises(InvalidSchedule, match=message) as refused:
        rig.job("b", depends_on=depends_on)
    assert refused.value.field == field


def test_jitter_needs_a_trigger(rig):
    a = rig.job("a", trigger=DAILY)
    with pytest.raises(InvalidSchedule, match="needs a trigger"):
        rig.job("b", depends_on=[a], jitter=3)


def test_no_upstreams_are_none(rig):
    rig.job("a", depends_on=[])
    assert rig.run_due() == ["a"]


def test_phases_are_recorded_for_those_who_wait(rig):
    a, b, c = chain(rig, trigger=DAILY)
    rig.failing = {"b"}
    assert rig.run_until(NOON) == ["a", "b"]
    assert [rig.scheduler.occurrences(job)[-1].phase for job in (a, b, c)] == [
        Phase.COMPLETED,
        Phase.FAILED,
        Phase.SKIPPED,
    ]


def reader(rig, name="reader", failures=0, **options):
    """A job that returns the results of what it depends on, by name, and fails at first."""

    def read(context):
        if context.attempt <= failures:
            raise ValueError(name)
        return {upstream: context.upstream.get(upstream, "absent") for upstream in ("a", "b")}

    return rig.scheduler.schedule(read, name=name, function_name=name, **options)


def counter(rig, name, **options):
    """A job that returns how often it ran; it fails when it is told to."""
    runs = []

    def count():
        runs.append(name)
        if name in rig.failing:
            raise ValueError(name)
        return len(runs)

    return rig.scheduler.schedule(count, name=name, function_name=name, **options)


def last_result(rig, job):
    return rig.scheduler.get_job(job).last_result


def test_what_follows_others_has_their_results(rig):
    a, b = counter(rig, "a", trigger=EVERY_MINUTE), counter(rig, "b", trigger=EVERY_MINUTE)
    job = reader(rig, depends_on=[a, b])
    rig.run_until(NOON)
    assert last_result(rig, job) == {"a": 1, "b": 1}
    rig.run_until(NOON + timedelta(minutes=1))
    assert last_result(rig, job) == {"a": 2, "b": 2}


def test_what_waits_for_others_has_the_results_of_the_fires_that_count(rig):
    a, b = counter(rig, "a", trigger=EVERY_MINUTE), counter(rig, "b", trigger=CronTrigger("30 11 * * *"))
    job = reader(rig, trigger=DAILY, depends_on=[a, b])
    rig.scheduler.run_now(b)  # b fired before the times in question: its last run counts
    rig.scheduler.run_now(a)  # not a fire
    rig.run_until(NOON)
    assert last_result(rig, job) == {"a": 2, "b": 1}


def test_a_retry_has_the_results_of_the_first_attempt(rig):
    a = counter(rig, "a", trigger=EVERY_MINUTE)
    job = reader(rig, failures=1, depends_on=[a], overlap="queue", retries={"max_attempts": 2, "backoff_seconds": 90})
    rig.run_until(NOON + timedelta(seconds=110))
    completed = [run.result["a"] for run in rig.scheduler.runs(job) if run.result]
    assert completed == [1]


def test_a_failure_that_is_tolerated_has_no_result(rig):
    a, b = counter(rig, "a", trigger=DAILY), counter(rig, "b", trigger=DAILY)
    rig.failing = {"a"}
    relaxed = [{"schedule_id": one, "require_success": False} for one in (a, b)]
    jobs = reader(rig, "with", trigger=DAILY, depends_on=relaxed), reader(rig, "without", depends_on=relaxed)
    rig.run_until(NOON)
    assert [last_result(rig, job) for job in jobs] == [{"a": None, "b": 1}] * 2


def test_a_run_that_was_asked_for_has_the_last_results(rig):
    a, b = counter(rig, "a", trigger=DAILY), counter(rig, "b", trigger=DAILY)
    job = reader(rig, trigger=DAILY, depends_on=[a, b])
    rig.scheduler.run_now(a)
    assert rig.scheduler.run_now(job) == {"a": 1, "b": "absent"}


def test_results_are_found_by_id_too(rig):
    a = counter(rig, "a", trigger=DAILY)
    job = rig.scheduler.schedule(
        lambda context: [dict(context.upstream), len(context.upstream), repr(context.upstream)],
        function_name="c",
        depends_on=[a],
    )
    rig.run_until(NOON)
    assert last_result(rig, job) == [{a: 1}, 1, f"UpstreamResults({{{a!r}: 1}})"]
