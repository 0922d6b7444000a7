"""Update: some options of a schedule change, and the others stay."""

from datetime import timedelta

import pytest

from noonmark import (
    Conflict,
    CronTrigger,
    EventTrigger,
    IntervalTrigger,
    InvalidSchedule,
    InvalidTrigger,
    JobStatus,
    NotFound,
    OnceTrigger,
    Scheduler,
)
from noonmark.core.policies import misfire, overlap
from noonmark.core.policies.delivery import Delivery
from tests.embedded.conftest import START
from tests.embedded.waiting import NEVER, Gate, eventually, keep, phases, status, together

HOUR = timedelta(hours=1)


def nothing():
    pass


def add(first, second=0):
    return first + second


def stored(scheduler, job_id):
    return scheduler._find(job_id).schedule


def declared(scheduler, job_id):
    return stored(scheduler, job_id).declaration


ALL = {
    "args": [1],
    "kwargs": {"second": 2},
    "payload": {"who": "ada"},
    "max_runs": 3,
    "overlap": {"type": "queue", "queue_limit": 7},
    "misfire": {"type": "catch_up_all", "limit": 4, "grace_seconds": 5},
    "retries": 3,
    "timeout": 1.5,
    "jitter": 2,
    "labels": {"team": "a"},
    "delivery": "at_most_once",
    "name": "all",
}
READ = {
    "args": lambda one: one.target.args,
    "kwargs": lambda one: one.target.kwargs,
    "payload": lambda one: one.target.payload,
    "max_runs": lambda one: one.max_runs,
    "overlap": lambda one: one.overlap_policy,
    "misfire": lambda one: one.misfire_policy,
    "retries": lambda one: one.retry_policy.max_attempts - 1,
    "timeout": lambda one: one.timeout,
    "jitter": lambda one: one.trigger.jitter_seconds,
    "labels": lambda one: one.labels,
    "delivery": lambda one: one.delivery,
    "name": lambda one: one.name,
}
"""How to read each option in what is kept."""
CHANGES = [
    ("args", [5], (5,), ()),
    ("kwargs", {"second": 9}, {"second": 9}, {}),
    ("payload", [1, 2], [1, 2], None),
    ("max_runs", 8, 8, None),
    ("overlap", "allow", overlap.Allow(), overlap.Skip()),
    ("misfire", "catch_up_one", misfire.CatchUpOne(), misfire.Skip()),
    ("retries", 1, 1, 0),
    ("timeout", 2.5, 2_500_000, None),
    ("jitter", 4, 4, 0),
    ("labels", {"room": "b"}, {"room": "b"}, {}),
    ("delivery", "at_least_once", Delivery.AT_LEAST_ONCE, Delivery.AT_LEAST_ONCE),
    ("name", "other", "other", None),
]
"""An option, what is said, what is kept then, and what is kept when it is taken back."""


class TestOneOption:
    @pytest.mark.parametrize(("option", "value", "kept", "default"), CHANGES, ids=[one[0] for one in CHANGES])
    def test_it_is_said_anew_and_taken_back_and_the_others_stay(self, by_hand, option, value, kept, default):
        scheduler = by_hand.scheduler
        scheduler.register_function("add", lambda first=0, second=0: first + second)
        function = scheduler._functions.find("add").call
        job_id = scheduler.schedule(function, trigger=NEVER, **ALL)
        before = {name: read(declared(scheduler, job_id)) for name, read in READ.items()}
        for said, expected in ((value, kept), (None, default)):
            job = scheduler.update(job_id, **{option: said})
            after = {name: read(declared(scheduler, job_id)) for name, read in READ.items()}
            assert after == before | {option: expected}
            assert job == scheduler.get_job(job_id)

    @pytest.mark.parametrize("option", ["labels", "name"])
    def test_what_people_read_keeps_the_revision_and_the_plan(self, by_hand, option):
        job_id = keep(by_hand.scheduler, nothing, trigger=NEVER)
        planned = by_hand.scheduler.occurrences(job_id)
        by_hand.scheduler.update(job_id, **{option: ALL[option]})
        assert stored(by_hand.scheduler, job_id).revision == 1
        assert by_hand.scheduler.occurrences(job_id) == planned

    def test_what_changes_nothing_changes_nothing(self, by_hand):
        job_id = keep(by_hand.scheduler, add, trigger=IntervalTrigger(60), **ALL)
        before = stored(by_hand.scheduler, job_id)
        by_hand.clock.advance(10)
        by_hand.scheduler.update(job_id)
        by_hand.scheduler.update(job_id, **ALL)
        by_hand.scheduler.update(
            job_id, add, trigger=IntervalTrigger(60), function_name=before.declaration.target.function
        )
        assert stored(by_hand.scheduler, job_id) == before

    def test_several_at_once_are_one_revision(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=NEVER)
        job = by_hand.scheduler.update(job_id, retries=2, timeout=9, labels={"team": "b"}, max_runs=4)
        assert (stored(by_hand.scheduler, job_id).revision, job.labels) == (2, {"team": "b"})
        found = declared(by_hand.scheduler, job_id)
        assert (found.retry_policy.max_attempts, found.timeout, found.max_runs) == (3, 9_000_000, 4)


class TestTriggers:
    def test_another_one_is_a_new_revision_and_what_was_planned_is_superseded(self, by_hand):
        ran = []
        job_id = keep(by_hand.scheduler, lambda: ran.append(1), trigger=CronTrigger("30 * * * *"))
        job = by_hand.scheduler.update(job_id, trigger=CronTrigger("45 * * * *"))
        assert (stored(by_hand.scheduler, job_id).revision, job.next_run) == (2, START + 0.75 * HOUR)
        assert sorted(phases(by_hand.scheduler, job_id)) == ["pending", "superseded"]
        by_hand.driver.run_until(START + 0.5 * HOUR)
        assert ran == []
        by_hand.driver.run_until(START + 0.75 * HOUR)
        assert ran == [1]

    def test_jitter_alone_keeps_the_beat(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, name="beat", trigger=IntervalTrigger(60))
        by_hand.clock.advance(20)
        by_hand.scheduler.update(job_id, jitter=5)
        trigger = declared(by_hand.scheduler, job_id).trigger
        assert (trigger.start_at, trigger.jitter_seconds) == (START + timedelta(seconds=60), 5)
        assert START + timedelta(seconds=60) <= by_hand.job(job_id).next_run < START + timedelta(seconds=65)

    def test_a_program_that_then_declares_it_so_changes_nothing(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, name="beat", trigger=IntervalTrigger(60))
        by_hand.clock.advance(20)
        by_hand.scheduler.update(job_id, jitter=5)
        updated = stored(by_hand.scheduler, job_id)
        by_hand.clock.advance(20)
        keep(by_hand.scheduler, nothing, name="beat", trigger=IntervalTrigger(60), jitter=5)
        assert stored(by_hand.scheduler, job_id) == updated

    def test_another_trigger_keeps_the_jitter_unless_it_has_its_own(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=IntervalTrigger(60), jitter=5)
        by_hand.scheduler.update(job_id, trigger=IntervalTrigger(120))
        assert declared(by_hand.scheduler, job_id).trigger.jitter_seconds == 5
        by_hand.scheduler.update(job_id, trigger=IntervalTrigger(120, jitter_seconds=7))
        assert declared(by_hand.scheduler, job_id).trigger.jitter_seconds == 7
        by_hand.scheduler.update(job_id, trigger=IntervalTrigger(240), jitter=None)
        assert declared(by_hand.scheduler, job_id).trigger.jitter_seconds == 0

    def test_jitter_needs_a_trigger(self, by_hand):
        head = keep(by_hand.scheduler, nothing, trigger=NEVER)
        job_id = keep(by_hand.scheduler, nothing, depends_on=[head])
        with pytest.raises(InvalidSchedule, match="needs a trigger") as refused:
            by_hand.scheduler.update(job_id, jitter=5)
        assert refused.value.field == "jitter"
        by_hand.scheduler.update(job_id, jitter=None)

    def test_defaults_move_with_the_kind_of_trigger_but_not_what_was_said(self, by_hand):
        scheduler = by_hand.scheduler
        job_id = keep(scheduler, nothing, trigger=NEVER)
        assert declared(scheduler, job_id).misfire_policy == misfire.Skip()
        scheduler.update(job_id, trigger=OnceTrigger(START + HOUR))
        assert declared(scheduler, job_id).misfire_policy == misfire.CatchUpOne()
        scheduler.update(job_id, trigger=EventTrigger("uploaded"))
        assert declared(scheduler, job_id).overlap_policy == overlap.Queue(queue_limit=10_000)
        scheduler.update(job_id, trigger=None, depends_on=[keep(scheduler, nothing, trigger=NEVER)])
        assert declared(scheduler, job_id).overlap_policy == overlap.Skip()
        scheduler.update(job_id, trigger=EventTrigger("uploaded"))
        assert declared(scheduler, job_id).overlap_policy == overlap.Queue(queue_limit=10_000)
        schedule = keep(scheduler, nothing, trigger=NEVER, misfire="catch_up_all", overlap="allow")
        scheduler.update(schedule, trigger=EventTrigger("uploaded"))
        assert declared(scheduler, schedule).overlap_policy == overlap.Allow()
        assert declared(scheduler, schedule).misfire_policy == misfire.CatchUpAll()

    def test_without_a_trigger_it_must_have_an_upstream(self, by_hand):
        head = keep(by_hand.scheduler, nothing, trigger=NEVER)
        job_id = keep(by_hand.scheduler, nothing, trigger=NEVER)
        with pytest.raises(InvalidTrigger, match="is required, unless depends_on") as refused:
            by_hand.scheduler.update(job_id, trigger=None)
        assert refused.value.field == "trigger"
        assert by_hand.scheduler.update(job_id, trigger=None, depends_on=[head]).trigger is None
        with pytest.raises(InvalidTrigger, match="is required, unless depends_on"):
            by_hand.scheduler.update(job_id, depends_on=None)


class TestFunctions:
    def test_another_one_takes_its_place(self, keeper):
        job_id = keep(keeper, lambda: "old", trigger=NEVER, function_name="old")
        keeper.update(job_id, lambda: "new", function_name="new")
        assert keeper.run_now(job_id) == "new"

    def test_a_name_alone_means_what_is_registered_under_it(self, keeper):
        job_id = keep(keeper, lambda: "old", trigger=NEVER, function_name="old")
        keeper.register_function("new", lambda: "new")
        keeper.update(job_id, function_name="new")
        assert keeper.run_now(job_id) == "new"

    @pytest.mark.parametrize(
        ("func", "changes"),
        [
            (None, {"args": []}),
            (None, {"args": None, "kwargs": None}),
            (None, {"args": [1, 2, 3]}),
            (None, {"kwargs": {"third": 3}}),
            (lambda: 1, {}),
            (None, {"function_name": "two"}),
        ],
    )
    def test_arguments_that_do_not_fit_are_refused_and_nothing_is_changed(self, keeper, func, changes):
        keeper.register_function("two", lambda first, second: None)
        job_id = keep(keeper, add, trigger=NEVER, args=[1])
        before = stored(keeper, job_id)
        with pytest.raises(InvalidSchedule, match="do not fit") as refused:
            keeper.update(job_id, func, **changes)
        assert refused.value.field == "args"
        assert stored(keeper, job_id) == before

    def test_what_another_process_could_not_find_is_refused(self, open_on_file):
        scheduler = open_on_file()
        job_id = scheduler.schedule(nothing, trigger=NEVER)
        with pytest.raises(InvalidSchedule, match=r"function_name=\.\.\. or register_function"):
            scheduler.update(job_id, lambda: 1)

    @pytest.mark.parametrize("func", [5, "builtins:print"])
    def test_an_invalid_function_is_refused(self, keeper, func):
        job_id = keep(keeper, nothing, trigger=NEVER)
        with pytest.raises(InvalidSchedule, match="must be callable"):
            keeper.update(job_id, func)


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "kind", "field"),
        [
            ({"args": 5}, InvalidSchedule, "args"),
            ({"args": [object()]}, InvalidSchedule, "args"),
            ({"kwargs": 5}, InvalidSchedule, "kwargs"),
            ({"kwargs": {1: 2}}, InvalidSchedule, "kwargs"),
            ({"payload": object()}, InvalidSchedule, "payload"),
            ({"name": ""}, InvalidSchedule, "name"),
            ({"name": "x" * 201}, InvalidSchedule, "name"),
            ({"name": 5}, InvalidSchedule, "name"),
            ({"labels": 5}, InvalidSchedule, "labels"),
            ({"jitter": -1}, InvalidTrigger, "jitter"),
            ({"retries": -1}, InvalidSchedule, "retries"),
            ({"retries": True}, InvalidSchedule, "retries"),
            ({"timeout": 0}, InvalidSchedule, "timeout"),
            ({"overlap": "sometimes"}, InvalidSchedule, "overlap"),
            ({"overlap": {"type": "queue", "queue_limit": 0}}, InvalidSchedule, "overlap.queue_limit"),
            ({"misfire": {"type": "skip", "limit": 3}}, InvalidSchedule, "misfire.limit"),
            ({"trigger": "0 9 * * *"}, InvalidTrigger, "trigger"),
            ({"delivery": "twice"}, InvalidSchedule, "delivery"),
            ({"max_runs": 0}, InvalidSchedule, "max_runs"),
            ({"function_name": 5}, InvalidSchedule, "function_name"),
            ({"executor": "fiber"}, InvalidSchedule, "executor"),
            ({"depends_on": 7}, InvalidSchedule, "depends_on"),
            ({"depends_on": [5]}, InvalidSchedule, "depends_on[0]"),
        ],
    )
    def test_a_wrong_value_is_refused_under_the_name_the_caller_wrote(self, by_hand, changes, kind, field):
        job_id = keep(by_hand.scheduler, add, trigger=NEVER, args=[1])
        before = stored(by_hand.scheduler, job_id)
        with pytest.raises(kind) as refused:
            by_hand.scheduler.update(job_id, **changes)
        assert refused.value.field == field
        assert stored(by_hand.scheduler, job_id) == before

    def test_an_unknown_option_is_a_type_error_that_names_it(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=NEVER)
        with pytest.raises(TypeError, match="'retry'"):
            by_hand.scheduler.update(job_id, retry=3)
        with pytest.raises(TypeError, match="'retry'"):
            by_hand.scheduler.every(5, retry=3)(nothing)

    def test_a_name_that_another_job_has_is_refused(self, by_hand):
        taken = keep(by_hand.scheduler, nothing, name="report", trigger=NEVER)
        job_id = keep(by_hand.scheduler, nothing, name="other", trigger=NEVER)
        with pytest.raises(Conflict, match=f"'report' is the name of another schedule, {taken}"):
            by_hand.scheduler.update(job_id, name="report")
        assert by_hand.scheduler.update(taken, name="report").name == "report"

    def test_a_name_that_was_given_up_can_be_declared_again(self, by_hand):
        first = keep(by_hand.scheduler, nothing, name="report", trigger=NEVER)
        by_hand.scheduler.update(first, name="renamed")
        second = keep(by_hand.scheduler, nothing, name="report", trigger=NEVER)
        assert second != first
        assert keep(by_hand.scheduler, nothing, name="report", trigger=NEVER) == second
        assert keep(by_hand.scheduler, nothing, name="renamed", trigger=NEVER) == first

    def test_a_job_that_is_not_there_is_not_found(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=NEVER)
        by_hand.scheduler.delete(job_id)
        for unknown in (job_id, "job_unknown"):
            with pytest.raises(NotFound):
                by_hand.scheduler.update(unknown, retries=1)


class TestLifeCycles:
    def test_a_paused_one_stays_paused(self, by_hand):
        job_id = keep(by_hand.scheduler, nothing, trigger=CronTrigger("30 * * * *"))
        by_hand.scheduler.pause(job_id)
        job = by_hand.scheduler.update(job_id, trigger=CronTrigger("45 * * * *"), retries=2)
        assert (job.status, job.next_run, job.trigger) == (JobStatus.PAUSED, None, CronTrigger("45 * * * *"))
        by_hand.scheduler.resume(job_id)
        assert by_hand.job(job_id).next_run == START + 0.75 * HOUR

    def test_a_completed_one_runs_again_with_a_new_trigger_but_not_with_new_labels(self, by_hand):
        ran = []
        job_id = keep(by_hand.scheduler, lambda: ran.append(1))
        by_hand.driver.run_due()
        for changes in ({"labels": {"team": "a"}}, {"retries": 4}):
            assert by_hand.scheduler.update(job_id, **changes).status is JobStatus.COMPLETED
        by_hand.pass_time(60)
        assert ran == [1]
        again = by_hand.clock.now() + HOUR
        job = by_hand.scheduler.update(job_id, trigger=OnceTrigger(again))
        assert (job.status, job.next_run) == (JobStatus.PENDING, again)
        by_hand.driver.run_until(again)
        assert ran == [1, 1]

    def test_more_runs_reopen_one_that_had_used_them_up(self, by_hand):
        ran = []
        job_id = keep(by_hand.scheduler, lambda: ran.append(1), trigger=IntervalTrigger(60), max_runs=1)
        by_hand.driver.run_until(START + HOUR)
        assert (ran, by_hand.job(job_id).status) == ([1], JobStatus.COMPLETED)
        assert by_hand.scheduler.update(job_id, max_runs=3).status is JobStatus.PENDING
        by_hand.driver.run_until(START + 2 * HOUR)
        assert (ran, by_hand.job(job_id).status) == ([1, 1, 1], JobStatus.COMPLETED)

    def test_what_runs_already_finishes_as_it_began(self, keeper):
        gate = Gate()
        job_id = keep(keeper, gate, trigger=NEVER)
        with keeper:
            keeper.run_now(job_id, wait=False)
            gate.wait()
            keeper.update(job_id, lambda: "new", trigger=CronTrigger("0 0 2 1 *"), function_name="new", timeout=0.01)
            assert status(keeper, job_id) == "running"
            gate.opened.set()
            eventually(lambda: "completed" in phases(keeper, job_id))
        assert (gate.stops, keeper.get_job(job_id).last_result) == (0, "done")


class TestTogether:
    def test_updates_from_many_threads_lose_nothing(self, keeper):
        job_id = keep(keeper, add, trigger=NEVER, args=[1], labels={"n": "0"})
        options = [{"labels": {"n": "1"}}, {"name": "renamed"}, {"retries": 4}, {"timeout": 7}, {"jitter": 3}]
        options += [{"payload": "p"}, {"max_runs": 6}, {"args": [2]}]
        together(len(options), lambda number: keeper.update(job_id, **options[number]))
        found = declared(keeper, job_id)
        assert (found.labels, found.name, found.retry_policy.max_attempts) == ({"n": "1"}, "renamed", 5)
        assert (found.timeout, found.trigger.jitter_seconds, found.target.payload) == (7_000_000, 3, "p")
        assert (found.max_runs, found.target.args) == (6, (2,))

    def test_what_others_said_in_between_is_not_lost(self, keeper, monkeypatch):
        job_id = keep(keeper, nothing, trigger=NEVER)
        store, change = keeper._store, keeper._store.change
        meanwhile = [{"name": "renamed"}, {"labels": {"team": "a"}}]

        def slow_change(*asked):
            if meanwhile:
                keeper.update(job_id, **meanwhile.pop())
            return change(*asked)

        monkeypatch.setattr(store, "change", slow_change, raising=False)
        keeper.update(job_id, retries=3)
        found = declared(keeper, job_id)
        assert (found.name, found.labels, found.retry_policy.max_attempts) == ("renamed", {"team": "a"}, 4)

    def test_two_schedulers_on_one_file_see_each_others_updates(self, open_on_file):
        one, other = open_on_file(), open_on_file()
        job_id = keep(one, lambda: "old", trigger=NEVER, function_name="work")
        other.register_function("new", lambda: "new")
        with other:
            one.update(job_id, function_name="new", labels={"team": "a"})
            other.update(job_id, trigger=IntervalTrigger(0.05))
            eventually(lambda: "completed" in phases(one, job_id))
        assert one.get_job(job_id).last_result == "new"
        assert one.get_job(job_id).labels == {"team": "a"}


def test_a_name_that_was_given_up_is_one_job_for_all_who_declare_it_again(tmp_path):
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    schedulers = [Scheduler(url) for _ in range(4)]
    first = schedulers[0].schedule(nothing, name="report", trigger=NEVER)
    schedulers[0].update(first, name="old report")
    ids = together(4, lambda number: schedulers[number].schedule(nothing, name="report", trigger=NEVER))
    assert len(set(ids)) == 1
    assert ids[0] != first
    assert sorted(job.name for job in schedulers[0].list_jobs()) == ["old report", "report"]


def test_what_cannot_run_in_a_process_is_not_sent_there_later_either():
    async def work():
        pass

    scheduler = Scheduler()
    job_id = scheduler.schedule(work, trigger=NEVER)
    with pytest.raises(InvalidSchedule, match="is async") as refused:
        scheduler.update(job_id, executor="process")
    assert refused.value.field == "executor"
    in_process = scheduler.schedule(nothing, trigger=NEVER, executor="process")
    with pytest.raises(InvalidSchedule, match="cannot be imported by another process"):
        scheduler.update(in_process, lambda: 1)
