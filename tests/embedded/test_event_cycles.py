"""Cycles of schedules that fire each other, by system events, dependencies and events of their own: each ends.

Each test asserts the rule that ends it; without that rule it would go on forever.
"""

import pytest

from noonmark import EventTrigger
from tests.embedded.test_system_events import GO, is_quiet, places, told
from tests.embedded.waiting import eventually, keep, phases


def nothing():
    pass


def follow(scheduler, *upstreams, name):
    return scheduler.schedule_with_deps(nothing, list(upstreams), name=name, function_name=name)


def runs(scheduler, *jobs):
    return [len(scheduler.occurrences(job)) for job in jobs]


def test_a_listener_for_every_end_is_not_triggered_by_those_who_follow_it(keeper):
    job = keep(keeper, nothing, trigger=GO, name="job")
    listener = keep(keeper, nothing, trigger=EventTrigger("occurrence.completed"), name="listener")
    first = follow(keeper, listener, name="first")
    second = follow(keeper, first, name="second")
    with keeper:
        keeper.run_now(job, wait=False)
        eventually(lambda: runs(keeper, second) == [1] and is_quiet(keeper))
        assert runs(keeper, job, listener, first, second) == [1, 1, 1, 1]
        chains = [one.payload["chain"] for one in told(keeper)]
        assert chains == [[job], [job, listener], [job, listener, first], [job, listener, first, second]]
        assert places(keeper) == ["evt1.1", "evt2.2", "evt2.2", "evt2.2"]
        # Run by hand, no event is behind it: the end of each who follows begins a chain, and is heard of once.
        keeper.run_now(listener, wait=False)
        eventually(lambda: len(told(keeper)) > 6 and is_quiet(keeper))
    assert 3 <= runs(keeper, listener)[0] <= 4
    assert set(places(keeper)) == {"evt1.1", "evt2.2"}


def test_two_listeners_and_what_follows_both_come_to_an_end(keeper):
    job = keep(keeper, nothing, trigger=GO, name="job")
    pair = [keep(keeper, nothing, trigger=EventTrigger("occurrence.completed"), name=name) for name in ("one", "two")]
    both = follow(keeper, *pair, name="both")
    with keeper:
        keeper.run_now(job, wait=False)
        eventually(lambda: runs(keeper, *pair) == [2, 2] and is_quiet(keeper))
    assert set(places(keeper)) == {"evt1.1", "evt2.2"}
    assert 1 <= runs(keeper, both)[0] <= 2


def test_an_emitter_that_follows_a_listener_closes_no_circle(keeper):
    listener = keep(keeper, nothing, trigger=EventTrigger("turned"), name="listener")
    emitter = keeper.schedule_event("turned", name="emitter", depends_on=[listener])
    with keeper:
        keeper.emit("turned", {})
        eventually(lambda: runs(keeper, emitter) == [1] and is_quiet(keeper))
    assert runs(keeper, listener, emitter) == [1, 1]
    assert [one.source for one in told(keeper)] == ["embedded", f"schedule:{emitter}"]


@pytest.mark.parametrize("count", [3, 6])
def test_those_who_answer_an_event_with_one_of_its_type_hear_of_it_and_of_each_other_once(keeper, count):
    hearing = EventTrigger("turned")
    jobs = [keeper.schedule_event("turned", trigger=hearing, name=f"job {number}") for number in range(count)]
    with keeper:
        keeper.emit("turned", {})
        eventually(lambda: len(told(keeper)) == 1 + count and is_quiet(keeper))
    assert runs(keeper, *jobs) == [count] * count
    for job in jobs:
        assert sorted(phases(keeper, job)) == ["completed"] + ["delivery_failed"] * (count - 1)
    assert "are of type 'turned' themselves" in keeper.get_job(jobs[0]).last_error


def test_stages_of_one_type_are_a_way_and_no_circle(keeper):
    jobs = [
        keeper.schedule_event(
            "item", payload={"stage": stage + 1}, trigger=EventTrigger("item", {"stage": stage}), name=f"stage {stage}"
        )
        for stage in range(1, 5)
    ]
    with keeper:
        keeper.emit("item", {"stage": 1})
        eventually(lambda: runs(keeper, jobs[-1]) == [1] and is_quiet(keeper))
    assert [phases(keeper, job) for job in jobs] == [["completed"]] * 4
    assert [one.payload["stage"] for one in told(keeper)] == [1, 2, 3, 4, 5]


def test_who_takes_turns_by_several_types_runs_once(keeper):
    ring = [
        keeper.schedule_event(f"step.{n + 1}", trigger=EventTrigger(f"step.{n}"), name=f"job {n}") for n in range(3)
    ]
    back = keeper.schedule_event("step.0", trigger=EventTrigger("step.3"), name="back")
    with keeper:
        keeper.emit("step.0", {})
        eventually(lambda: runs(keeper, back) == [1] and is_quiet(keeper))
    assert runs(keeper, *ring, back) == [1] * 4
    assert [one.event_type for one in told(keeper)] == ["step.0", "step.1", "step.2", "step.3", "step.0"]
