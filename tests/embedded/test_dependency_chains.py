"""Chains of dependencies, declared before and after start, on one store and with two schedulers."""

import threading
from itertools import pairwise

import pytest

from noonmark import CronTrigger, InvalidSchedule, NotFound
from tests.embedded.conftest import START, ByHand
from tests.embedded.waiting import NEVER, SOON, Gate, ended, eventually, keep, phases

EVERY_MINUTE = CronTrigger("* * * * *")


def nothing():
    pass


def upstreams(scheduler, job_id):
    return {one.schedule_id: one.require_success for one in scheduler._find(job_id).schedule.declaration.depends_on}


class Log:
    """Functions that write down that they ran, and fail when they are told to."""

    def __init__(self):
        self.ran, self.failing = [], set()

    def __call__(self, name):
        def work():
            self.ran.append(name)
            if name in self.failing:
                raise ValueError(name)

        return work


@pytest.fixture
def log():
    return Log()


class TestOrder:
    def test_it_is_held_whichever_was_declared_first(self, by_hand, log):
        scheduler = by_hand.scheduler
        b = keep(scheduler, log("b"), trigger=EVERY_MINUTE)
        a = keep(scheduler, log("a"), trigger=EVERY_MINUTE)
        scheduler.add_dependency(b, [a])
        by_hand.pass_time(60)
        by_hand.pass_time(60)
        assert log.ran == ["a", "b", "a", "b"]

    def test_what_has_no_trigger_follows_whenever_all_have_run(self, by_hand, log):
        scheduler = by_hand.scheduler
        a, b = keep(scheduler, log("a"), trigger=EVERY_MINUTE), keep(scheduler, log("b"), trigger=EVERY_MINUTE)
        scheduler.schedule_with_deps(log("c"), [a, b], function_name="c")
        by_hand.pass_time(60)
        by_hand.pass_time(60)
        assert [sorted(log.ran[:2]), log.ran[2], log.ran[5]] == [["a", "b"], "c", "c"]

    def test_it_is_held_in_real_threads(self, keeper):
        gate, ran = Gate(), threading.Event()
        first = keep(keeper, gate)
        second = keeper.schedule_with_deps(ran.set, depends_on=[first], function_name="second")
        with keeper:
            gate.wait()
            assert not ran.is_set()
            gate.opened.set()
            assert ran.wait(SOON)
            ended(keeper, second)
        [run] = keeper.runs(first)
        [other] = keeper.runs(second)
        assert run.ended <= other.started

    def test_one_that_is_added_while_it_runs_holds_from_then_on(self, keeper, log):
        gate = Gate()
        first = keep(keeper, gate, trigger=NEVER)
        with keeper:
            keeper.run_now(first, wait=False)
            gate.wait()
            second = keep(keeper, nothing, trigger=NEVER)
            keeper.add_dependency(second, [first])
            assert upstreams(keeper, second) == {first: True}
            gate.opened.set()

    def test_who_follows_takes_the_options_of_schedule(self, by_hand, log):
        a = keep(by_hand.scheduler, log("a"))
        b = by_hand.scheduler.schedule_with_deps(
            log.ran.append, [a], name="after", args=["b"], labels={"team": "a"}, function_name="b"
        )
        by_hand.driver.run_due()
        assert (log.ran, by_hand.job(b).name, by_hand.job(b).labels) == (["a", "b"], "after", {"team": "a"})

    def test_without_upstreams_to_wait_for_it_runs_at_once(self, by_hand, log):
        by_hand.scheduler.schedule_with_deps(log("alone"), [], function_name="alone")
        by_hand.driver.run_due()
        assert log.ran == ["alone"]


class TestSuccess:
    def test_a_failure_skips_what_needs_success_and_not_the_others(self, by_hand, log):
        log.failing = {"a"}
        a = keep(by_hand.scheduler, log("a"))
        needs = by_hand.scheduler.schedule_with_deps(log("needs"), [a], function_name="needs")
        minds_not = by_hand.scheduler.schedule_with_deps(
            log("minds not"), [{"schedule_id": a, "require_success": False}], function_name="minds not"
        )
        by_hand.driver.run_due()
        assert log.ran == ["a", "minds not"]
        assert (phases(by_hand.scheduler, needs), phases(by_hand.scheduler, minds_not)) == (["skipped"], ["completed"])

    def test_what_is_said_again_takes_the_place_of_what_was_said(self, by_hand):
        a, b, c = (keep(by_hand.scheduler, nothing, trigger=EVERY_MINUTE) for _ in range(3))
        by_hand.scheduler.add_dependency(c, [a])
        by_hand.scheduler.add_dependency(c, [b, {"schedule_id": a, "require_success": False}])
        assert upstreams(by_hand.scheduler, c) == {b: True, a: False}
        by_hand.scheduler.add_dependency(c, [])
        assert upstreams(by_hand.scheduler, c) == {b: True, a: False}


class TestRefusals:
    @pytest.mark.parametrize("names", [("a", "b"), (None, None), ("a", None)])
    def test_a_cycle_is_refused_and_says_who_depends_on_whom(self, by_hand, names):
        scheduler = by_hand.scheduler
        a, b = (keep(scheduler, nothing, name=name, trigger=EVERY_MINUTE) for name in names)
        scheduler.add_dependency(b, [a])
        with pytest.raises(InvalidSchedule, match="makes a cycle") as refused:
            scheduler.add_dependency(a, [b])
        shown = [job if name is None else f"{name!r} ({job})" for name, job in zip(names, (a, b), strict=True)]
        assert refused.value.field == "depends_on"
        assert refused.value.message in {
            f"makes a cycle: {shown[0]} depends on {shown[1]} depends on {shown[0]}",
            f"makes a cycle: {shown[1]} depends on {shown[0]} depends on {shown[1]}",
        }
        assert upstreams(scheduler, a) == {}

    def test_a_long_cycle_is_refused_however_it_is_made(self, by_hand):
        scheduler = by_hand.scheduler
        jobs = [keep(scheduler, nothing, name=f"job {n}", trigger=EVERY_MINUTE) for n in range(5)]
        for upstream, job in pairwise(jobs):
            scheduler.add_dependency(job, [upstream])
        for make in (
            lambda: scheduler.add_dependency(jobs[0], [jobs[4]]),
            lambda: scheduler.update(jobs[0], depends_on=[jobs[4]]),
            lambda: keep(scheduler, nothing, name="job 0", trigger=EVERY_MINUTE, depends_on=[jobs[4]]),
        ):
            with pytest.raises(InvalidSchedule, match=r"makes a cycle: .*'job 4'") as refused:
                make()
            assert refused.value.message.count("depends on") == 5

    def test_no_one_waits_for_itself(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, name="me", trigger=EVERY_MINUTE)
        with pytest.raises(InvalidSchedule, match="names the schedule itself"):
            by_hand.scheduler.add_dependency(job_id, [job_id])

    @pytest.mark.parametrize("bad", [["job_unknown"], [{"schedule_id": "job_unknown"}]])
    def test_an_unknown_upstream_is_refused(self, by_hand, bad):
        job_id = keep(by_hand.scheduler, nothing, trigger=EVERY_MINUTE)
        for ask in (
            lambda: by_hand.scheduler.add_dependency(job_id, bad),
            lambda: by_hand.scheduler.schedule_with_deps(print, bad),
        ):
            with pytest.raises(InvalidSchedule, match="there is no schedule 'job_unknown'") as refused:
                ask()
            assert refused.value.field.startswith("depends_on[0]")
        assert len(by_hand.scheduler.list_jobs()) == 1

    @pytest.mark.parametrize("bad", ["job", 5, [5], [None], [{"id": "x"}], [{"schedule_id": "x", "must": True}]])
    def test_what_names_nobody_is_refused(self, by_hand, bad):
        job_id = keep(by_hand.scheduler, nothing, trigger=EVERY_MINUTE)
        with pytest.raises(InvalidSchedule) as refused:
            by_hand.scheduler.add_dependency(job_id, bad)
        assert refused.value.field.startswith("depends_on")

    def test_an_unknown_job_is_not_found(self, by_hand):
        with pytest.raises(NotFound):
            by_hand.scheduler.add_dependency("job_unknown", [])


class TestFiles:
    def test_a_chain_outlives_the_program(self, tmp_path, log):
        by_hand = ByHand(f"sqlite:///{tmp_path / 'chain.db'}")
        a = keep(by_hand.scheduler, log("a"), trigger=EVERY_MINUTE, function_name="a")
        b = keep(by_hand.scheduler, log("b"), trigger=EVERY_MINUTE, function_name="b")
        by_hand.scheduler.add_dependency(b, [a])
        by_hand.scheduler.close()
        by_hand.open()
        for name in "ab":
            by_hand.scheduler.register_function(name, log(name))
        assert upstreams(by_hand.scheduler, b) == {a: True}
        by_hand.pass_time(60)
        assert log.ran == ["a", "b"]
        assert by_hand.clock.now() > START

    def test_two_schedulers_share_the_work_and_the_order(self, open_on_file):
        one, other = open_on_file(), open_on_file()
        gate, done = Gate(), threading.Event()
        one.register_function("first", gate)
        other.register_function("second", done.set)
        with one, other:
            first = one.schedule(gate, trigger=NEVER, function_name="first")
            second = other.schedule_with_deps(done.set, [first], function_name="second")
            one.run_now(first, wait=False)
            gate.wait()
            assert phases(one, second) == []
            gate.opened.set()
            assert done.wait(SOON)
            assert ended(one, second) == ["completed"]
            eventually(lambda: one.get_job(second).run_count == 1)
