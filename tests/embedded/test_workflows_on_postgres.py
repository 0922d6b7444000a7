"""Workflows of programs that share a PostgreSQL database: one goes on where another stops, and none of them polls."""

import threading

import pytest

from noonmark import JobPipeline, Scheduler, step, workflow
from noonmark.core.instants import SECOND
from tests.embedded.waiting import SOON, Gate, eventually

UNDONE = []


def undo(extract):
    UNDONE.append(extract)


def one():
    return 1


def two():
    return 2


@workflow("etl")
class Etl:
    """The functions of a class, found again by its name."""

    @step(compensate=undo)
    def extract(day: str):  # noqa: N805 - a step has no object
        return [f"{day}{number}" for number in range(3)]

    @step(for_each=extract, concurrency=2)
    def load(item):  # noqa: N805
        if item == "bad1":
            raise OSError("disk full")
        return item.upper()


@pytest.fixture
def opened(database):
    """Open schedulers on one database; all of them are closed in the end."""
    collected = []

    def open_one():
        collected.append(Scheduler(database.url))
        return collected[-1]

    yield open_one
    for scheduler in collected:
        scheduler.stop(wait=False)
        scheduler.close()


def test_classes_functions_and_pipelines_are_workflows(opened):
    first, second = opened(), opened()
    etl = first.workflow(Etl)
    assert etl.run(day="a") == {"extract": ["a0", "a1", "a2"], "load": ["A0", "A1", "A2"]}
    second.start()
    again = second.workflow(Etl)
    assert again.run(day="b")["load"] == ["B0", "B1", "B2"]
    assert (etl.version, again.version, len(first.workflow_runs("etl"))) == (1, 1, 2)
    with pytest.raises(Exception, match=r"step 'load', element 1, failed: OSError: disk full"):
        again.run(day="bad")
    assert UNDONE == [["bad0", "bad1", "bad2"]]
    assert JobPipeline(first, name="stages").add_stage(one, two).add_stage(one).run_sync() == [[1, 2], [1]]
    assert JobPipeline(second, name="stages").add_stage(one, two).add_stage(one).run_sync() == [[1, 2], [1]]
    assert {run.version for run in first.workflow_runs("stages")} == {1}


def target(name):
    return {"target_kind": "function", "function": name}


def test_a_program_goes_on_where_another_stopped(opened):
    gate, calls = Gate(), []
    first, second = opened(), opened()
    for scheduler, function in ((first, gate), (second, lambda: "second")):
        scheduler.register_function("note", lambda: calls.append("note"))
        scheduler.register_function("gate", function)
    first.create_workflow(
        {
            "workflow_id": "gated",
            "steps": [{"id": "note", "target": target("note")}, {"id": "gate", "target": target("gate")}],
        }
    )
    first.start()
    run_id = first.run_workflow("gated", wait=False)
    gate.wait()
    eventually(lambda: str(first.workflow_run(run_id).step("note").phase) == "completed")
    first.stop(wait=False)
    gate.opened.set()
    second.start()
    run = eventually(lambda: (read := second.workflow_run(run_id)).ended and read)
    assert (run.result["gate"], calls) == ("second", ["note"])


def test_an_end_elsewhere_is_noticed_while_another_step_is_at_work(opened):
    """A program that notices it only when it looks by itself has a timer for that, and looks again and again."""
    gate, followed = Gate(), threading.Semaphore(0)
    holding, other = opened(), opened()
    holding.register_function("gate", gate)
    holding.register_function("follow", followed.release)
    other.register_function("elsewhere", one)
    holding.create_workflow(
        {
            "workflow_id": "split",
            "steps": [
                {"id": "gate", "target": target("gate")},
                {"id": "ask", "approval": {}},
                {"id": "after-ask", "depends_on": ["ask"], "target": target("follow")},
                {"id": "event", "depends_on": ["after-ask"], "wait": {"event_type": "paid"}},
                {"id": "after-event", "depends_on": ["event"], "target": target("follow")},
                {"id": "elsewhere", "depends_on": ["after-event"], "target": target("elsewhere")},
                {"id": "after-elsewhere", "depends_on": ["elsewhere"], "target": target("follow")},
            ],
        }
    )
    holding.start()
    run_id = holding.run_workflow("split", wait=False)
    gate.wait()
    workflows = holding._runtime.target._by_kind["workflow"]
    [asked] = eventually(other.approvals)
    other.approve(asked.approval_id)
    assert followed.acquire(timeout=SOON)
    eventually(lambda: str(holding.workflow_run(run_id).step("event").phase) == "running")
    asked_for = []
    open_steps = holding._store.open_steps
    holding._store.open_steps = lambda ids: asked_for.append(ids) or open_steps(ids)
    other.emit("paid")
    assert followed.acquire(timeout=SOON)
    other.start()
    assert followed.acquire(timeout=SOON)
    assert asked_for, "its store was asked because something had been written"
    expiries = [when for when, *_ in workflows._timers]
    assert all(when > holding._store.clock() + 3_600 * SECOND for when in expiries), "it looks again when one expires"
    gate.opened.set()
    assert eventually(lambda: (read := holding.workflow_run(run_id)).ended and read).result["elsewhere"] == 1
