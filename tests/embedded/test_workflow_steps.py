"""Workflow runs in real threads: programs, requests, lists, stops and a store that goes away."""

import json
import os
import threading

import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.core.workflows.run import StepPhase
from noonmark.targets.workflow import active_run
from tests.embedded.waiting import Gate, ended, eventually
from tests.targets.http.receiver import http_receiver
from tests.workflow_store import put_workflow


def call(keeper, function_name, function, **kwargs):
    keeper.register_function(function_name, function)
    return {"target_kind": "function", "function": function_name, "kwargs": kwargs}


def start(keeper, *steps, name="w", **options):
    """Store a workflow and schedule it, at once."""
    definition = {key: options.pop(key) for key in ("on_failure",) if key in options}
    put_workflow(keeper._store, {"workflow_id": name, "steps": list(steps), **definition})
    return keeper.schedule({"target_kind": "workflow", "workflow_id": name}, name=name, **options)


def records(keeper, job):
    """The steps of its run, by id and index."""
    stored = keeper._store.workflow_run(keeper.occurrences(job)[-1].id)
    return {record.key: record for record in stored[1]} if stored else {}


@pytest.fixture
def opened(keeper):
    keeper._open()
    return keeper


def test_a_program_gets_its_input_and_its_output_goes_on(opened):
    argv = ["sh", "-c", 'cat; echo " $1"', "sh", "{{ steps.a.result.name }}"]
    echo = {"target_kind": "command", "argv": argv}
    job = start(
        opened,
        {"id": "a", "target": call(opened, "a", lambda: {"name": "; rm -rf $HOME"})},
        {"id": "b", "target": echo, "depends_on": ["a"], "input": {"n": 1}},
        {"id": "c", "target": {"target_kind": "command", "argv": ["false"]}, "depends_on": ["b"]},
    )
    with opened:
        assert ended(opened, job) == ["failed"]
    steps = records(opened, job)
    assert steps["b", None].result["output"] == '{"n": 1} ; rm -rf $HOME\n'
    assert (steps["c", None].phase, "exit" in steps["c", None].error) == (StepPhase.FAILED, True)


def test_a_request_gets_its_input_as_its_body_and_data_cannot_change_the_address(opened):
    with http_receiver() as receiver:
        target = {"target_kind": "http", "url": f"{receiver.url}/items/{{{{ steps.a.result }}}}"}
        job = start(
            opened,
            {"id": "a", "target": call(opened, "a", lambda: "../../x?y={{ schedule_id }}")},
            {"id": "b", "target": target, "depends_on": ["a"], "input": {"sum": 7, "text": "{{ steps.a.result }}"}},
        )
        with opened:
            assert ended(opened, job) == ["completed"]
        [(_, path, _, body)] = receiver.requests
    assert path == "/items/..%2F..%2Fx%3Fy%3D%7B%7B%20schedule_id%20%7D%7D"
    assert json.loads(body) == {"sum": 7, "text": "../../x?y={{ schedule_id }}"}
    assert records(opened, job)["b", None].result["status"] == 200


def test_a_list_of_a_thousand_elements(opened):
    most, running, lock = 0, 0, threading.Lock()

    def square(n):
        nonlocal most, running
        with lock:
            running += 1
            most = max(most, running)
        try:
            return n * n
        finally:
            with lock:
                running -= 1

    job = start(
        opened,
        {"id": "a", "target": call(opened, "numbers", lambda: list(range(1_000)))},
        {
            "id": "b", "target": call(opened, "square", square), "depends_on": ["a"],
            "for_each": "{{ steps.a.result }}", "concurrency": 7, "input": {"n": "{{ item }}"},
        },
        {
            "id": "c", "target": call(opened, "total", sum_of), "depends_on": ["b"],
            "input": {"all": "{{ steps.b.result }}"},
        },
    )  # fmt: skip
    with opened:
        assert ended(opened, job) == ["completed"]
    steps = records(opened, job)
    assert steps["c", None].result == sum(n * n for n in range(1_000))
    assert [steps["b", n].result for n in range(1_000)] == [n * n for n in range(1_000)]
    assert most <= 7


def sum_of(all):  # noqa: A002 - the name of an input
    return sum(all)


def test_a_failure_stops_its_siblings(opened):
    began, stopped = threading.Event(), threading.Event()

    def sibling(*, context):
        began.set()
        stopped_in_time = context.cancelled.wait(60)
        stopped.set()
        return stopped_in_time

    def fail():
        began.wait(60)
        raise ValueError("boom")

    job = start(
        opened,
        {"id": "a", "target": call(opened, "sibling", sibling)},
        {"id": "b", "target": call(opened, "fail", fail)},
        {"id": "c", "target": call(opened, "never", lambda: None), "depends_on": ["a"]},
    )
    with opened:
        assert ended(opened, job) == ["failed"]
    assert stopped.is_set()
    assert {key[0]: str(record.phase) for key, record in records(opened, job).items()} == {
        "a": "cancelled", "b": "failed", "c": "cancelled",
    }  # fmt: skip


def test_a_step_that_does_not_stop_is_given_up(opened, monkeypatch):
    monkeypatch.setattr(active_run, "STOP_GRACE", 200_000)
    began, release = threading.Event(), threading.Event()

    def deaf():
        began.set()
        release.wait(60)

    def fail():
        began.wait(60)
        raise ValueError("boom")

    job = start(
        opened, {"id": "a", "target": call(opened, "deaf", deaf)}, {"id": "b", "target": call(opened, "fail", fail)}
    )
    with opened:
        assert ended(opened, job) == ["failed"]
        release.set()
    record = records(opened, job)["a", None]
    assert (record.phase, record.error) == (StepPhase.CANCELLED, "it did not stop in time")


def test_cancelling_a_run_tells_its_steps(opened):
    began = threading.Event()

    def patient(*, context):
        began.set()
        return context.cancelled.wait(60)

    job = start(
        opened,
        {"id": "a", "target": call(opened, "patient", patient)},
        {"id": "b", "target": {"target_kind": "command", "argv": ["sleep", "60"]}},
        {"id": "c", "target": call(opened, "never", lambda: None), "depends_on": ["a", "b"]},
    )
    with opened:
        assert began.wait(60)
        eventually(lambda: len(records(opened, job)) == 2)
        assert opened.cancel(job)
        assert ended(opened, job) == ["cancelled"]
    assert {str(record.phase) for record in records(opened, job).values()} == {"cancelled"}


def test_a_step_that_takes_too_long_times_out_and_is_tried_again(opened):
    calls = []

    def slow(*, context):
        calls.append(context.attempt)
        if context.attempt == 1:
            context.cancelled.wait(60)
        return context.attempt

    step = {"id": "a", "target": call(opened, "slow", slow), "timeout_seconds": 0.2}
    job = start(opened, {**step, "retry": {"max_attempts": 2, "backoff_seconds": 0.01}})
    with opened:
        assert ended(opened, job) == ["completed"]
    assert calls == [1, 2]


def test_steps_run_in_processes_and_on_the_loop_too(opened):
    async def later(n):
        return n + 1

    target = {"target_kind": "function", "function": "os:getpid", "executor": "process"}
    job = start(
        opened,
        {"id": "a", "target": call(opened, "later", later, n=1)},
        {"id": "b", "target": target, "depends_on": ["a"]},
    )
    with opened:
        assert ended(opened, job) == ["completed"]
    steps = records(opened, job)
    assert steps["a", None].result == 2
    assert steps["b", None].result not in (None, os.getpid())


def test_a_run_goes_on_when_the_store_was_away(opened):
    """What has ended is written when the store is back, and nothing begins before that."""
    store, calls, failures = opened._store, [], iter([StoreUnavailable("away")] * 3)
    commit = store.commit_steps

    def refuse_three_times(writes):
        if (error := next(failures, None)) is not None and calls:
            raise error
        return commit(writes)

    store.commit_steps = refuse_three_times

    def note(name):
        calls.append(name)
        return name

    steps = [
        {"id": name, "target": call(opened, f"note {name}", note, name=name), "depends_on": [before] if before else []}
        for before, name in [(None, "a"), ("a", "b"), ("b", "c")]
    ]
    job = start(opened, *steps)
    with opened:
        assert ended(opened, job) == ["completed"]
    assert calls == ["a", "b", "c"]


def test_an_inner_workflow_begins_and_is_stopped_while_other_steps_are_at_work(opened):
    gate, inner_gate = Gate(), Gate()
    inner = {"id": "inner", "target": call(opened, "inner", inner_gate)}
    put_workflow(opened._store, {"workflow_id": "sub", "steps": [inner]})
    steps = [
        {"id": "gate", "target": call(opened, "gate", gate)},
        {"id": "sub", "target": {"target_kind": "workflow", "workflow_id": "sub"}},
    ]
    job = start(opened, *steps)
    with opened:
        gate.wait()
        inner_gate.wait()
        opened._store.request_stop(opened.occurrences(job)[-1].id)
        opened._runners.check_stop_requests()
        assert ended(opened, job) == ["cancelled"]
    assert (gate.stops, inner_gate.stops) == (1, 1)


def test_a_node_that_stops_hands_its_runs_back_and_keeps_what_has_ended(tmp_path, open_on_file):
    first, second = open_on_file(), open_on_file()
    calls = tmp_path / "calls"
    calls.mkdir()
    script = f"test -e {calls}/go || sleep 60; touch {calls}/b"
    steps = [
        {"id": "a", "target": {"target_kind": "command", "argv": ["touch", str(calls / "a")]}},
        {
            "id": "b", "depends_on": ["a"],
            "target": {"target_kind": "command", "argv": ["sh", "-c", script]},
        },
    ]  # fmt: skip
    first._open()
    job = start(first, *steps)
    first.start()
    eventually(lambda: ("b", None) in records(first, job))
    first.stop(wait=False)
    (calls / "go").touch()
    (calls / "a").unlink()
    with second:
        assert ended(second, job) == ["completed"]
    assert sorted(path.name for path in calls.iterdir()) == ["b", "go"]


def test_a_node_that_has_lost_a_run_starts_nothing_more_of_it(opened):
    """What it could not write did not happen: whoever has the run begins that step again."""
    store, calls = opened._store, []
    commit, answers = store.commit_steps, iter([None, False])

    def lose_the_second(writes):
        return [False] * len(writes) if next(answers, None) is False else commit(writes)

    store.commit_steps = lose_the_second
    steps = [
        {"id": "a", "target": call(opened, "note a", lambda: calls.append("a"))},
        {"id": "b", "target": call(opened, "note b", lambda: calls.append("b")), "depends_on": ["a"]},
    ]
    job = start(opened, *steps)
    with opened:
        assert ended(opened, job) == ["completed"]
    assert calls == ["a", "a", "b"]
