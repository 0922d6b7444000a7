"""Schedules as the methods of a scheduler take them: by id, as a job, or by a name that only one has."""

from dataclasses import replace

import pytest

from noonmark import Conflict, Dependency, EventTrigger, InvalidSchedule, NotFound
from noonmark.core.planner import first_plan
from tests.embedded.waiting import NEVER, keep


def work():
    return "done"


METHODS = {
    "update": lambda scheduler, job: scheduler.update(job, labels={"team": "a"}),
    "add_dependency": lambda scheduler, job: scheduler.add_dependency(job, ["upstream"]),
    "pause": lambda scheduler, job: scheduler.pause(job),
    "resume": lambda scheduler, job: scheduler.resume(job),
    "cancel": lambda scheduler, job: scheduler.cancel(job),
    "delete": lambda scheduler, job: scheduler.delete(job),
    "run_now": lambda scheduler, job: scheduler.run_now(job),
    "get_job": lambda scheduler, job: scheduler.get_job(job),
    "preview": lambda scheduler, job: scheduler.preview(job),
    "explain": lambda scheduler, job: scheduler.explain(job),
    "occurrences": lambda scheduler, job: scheduler.occurrences(job),
    "runs": lambda scheduler, job: scheduler.runs(job),
}


@pytest.fixture
def scheduler(by_hand):
    keep(by_hand.scheduler, work, name="upstream", trigger=NEVER)
    return by_hand.scheduler


def namesakes(scheduler, name):
    """Two schedules with one name, as callers of a server can create them."""
    first = keep(scheduler, work, name=name, trigger=NEVER)
    schedule = scheduler._find(first).schedule
    other = replace(schedule, uid="other", schedule_id="other")
    scheduler._store.create([first_plan(other, lookahead=0)])
    return first


@pytest.mark.parametrize("call", METHODS.values(), ids=METHODS)
def test_every_method_takes_an_id_a_job_or_a_name(scheduler, call):
    answers = []
    for number, means in enumerate(("id", "job", "name")):
        job_id = keep(scheduler, work, name=f"my job {number}", trigger=NEVER)
        job = scheduler.get_job(job_id)
        call(scheduler, {"id": job_id, "job": job, "name": job.name}[means])
        after = scheduler.get_job(job_id)
        answers.append((after.status, after.labels, after.run_count))
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("call", METHODS.values(), ids=METHODS)
def test_a_name_that_several_have_is_refused_with_their_ids(scheduler, call):
    first = namesakes(scheduler, "poll")
    with pytest.raises(Conflict, match=f"several schedules have the name 'poll'; give the id of one: {first}, other"):
        call(scheduler, "poll")
    assert scheduler.get_job(first).name == "poll"


def test_an_id_comes_before_a_name(scheduler):
    first = keep(scheduler, work, name="first", trigger=NEVER)
    second = keep(scheduler, work, name=first, trigger=NEVER)
    assert scheduler.get_job(first).name == "first"
    scheduler.delete(first)
    assert scheduler.get_job(first).id == second


def test_the_name_of_a_deleted_schedule_is_free(scheduler):
    job_id = keep(scheduler, work, name="poll", trigger=NEVER)
    job = scheduler.get_job("poll")
    scheduler.delete("poll")
    assert scheduler.get_job("poll") is None
    assert not scheduler.cancel("poll")
    with pytest.raises(NotFound, match="unknown schedule 'poll'"):
        scheduler.pause("poll")
    assert scheduler.get_job(job).id == job_id
    assert len(scheduler.occurrences(job)) == 1


def test_upstreams_are_given_the_same_way(scheduler):
    upstream = scheduler.get_job("upstream")
    for depends_on in ("upstream", [upstream], [Dependency("upstream")], [{"schedule_id": "upstream"}]):
        job_id = keep(scheduler, work, depends_on=depends_on)
        [dependency] = scheduler._find(job_id).schedule.declaration.depends_on
        assert dependency == Dependency(upstream.id)


def test_a_decorator_may_name_what_is_declared_before_it(tmp_path, open_on_file):
    scheduler = open_on_file()
    scheduler.every(60, name="read the rows", function_name="read")(lambda: None)
    after = scheduler.every(60, function_name="sum", depends_on=["read the rows"])(lambda: None)
    [dependency] = scheduler._find(after.job_id).schedule.declaration.depends_on
    assert dependency.schedule_id == scheduler.get_job("read the rows").id


def test_events_are_matched_for_a_name_too(scheduler):
    keep(scheduler, work, name="on upload", trigger=EventTrigger("uploaded"))
    scheduler.emit("uploaded")
    assert scheduler.match_events("on upload").matched == scheduler.match_events(scheduler.get_job("on upload")).matched


@pytest.mark.parametrize("wrong", [work, None, 3, ""])
def test_anything_else_is_refused(scheduler, wrong):
    with pytest.raises(InvalidSchedule) as refused:
        scheduler.pause(wrong)
    assert refused.value.field == "job_id"
