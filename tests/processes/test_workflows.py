"""Workflows whose nodes are killed: no step that ended runs again, and none is lost."""

import pytest

from noonmark.core.lifecycle import FINAL, Phase
from noonmark.core.workflows.run import StepPhase
from tests.processes.fleet import STORES, Chance
from tests.soak import SCALE
from tests.workflow_store import put_workflow

STEPS, BRANCHES, RUNS = 20, 4, 3
on_each_store = pytest.mark.parametrize("fleet", STORES, indirect=True)


def step(step_id, *after, seconds=0.15, **fields):
    target = {"target_kind": "function", "function": "tests.processes.work:record", "args": [seconds, step_id]}
    return {"id": step_id, "depends_on": list(after), "target": target, **fields}


def branches():
    """A beginning, branches side by side, and an end that joins them: twenty steps."""
    length = (STEPS - 2) // BRANCHES
    middle = [
        step(f"b{branch}-{place}", f"b{branch}-{place - 1}" if place else "first")
        for branch in range(BRANCHES)
        for place in range(length)
    ]
    tails = [f"b{branch}-{length - 1}" for branch in range(BRANCHES)]
    spare = [step(f"spare-{n}", "first") for n in range(STEPS - 2 - len(middle))]
    return [step("first"), *middle, *spare, step("last", *tails, *(one["id"] for one in spare))]


def completed_steps(fleet, occurrences):
    """The steps that the store says are completed, by their run."""
    collected = {}
    for occurrence_id in occurrences:
        stored = fleet.scheduler._store.workflow_run(occurrence_id)
        for record in stored[1] if stored else ():
            if record.phase is StepPhase.COMPLETED:
                collected[f"{occurrence_id}/{record.step_id}"] = record
    return collected


@on_each_store
def test_no_finished_step_begins_again_when_nodes_are_killed(fleet, figure):
    definition = branches()
    assert len(definition) == STEPS
    put_workflow(fleet.scheduler._store, {"workflow_id": "w", "steps": definition})
    nodes = [fleet.node(), fleet.node()]
    target = {"target_kind": "workflow", "workflow_id": "w"}
    jobs = [fleet.scheduler.schedule(target, name=f"run {n}") for n in range(RUNS)]
    ids = [fleet.scheduler.occurrences(job)[0].id for job in jobs]
    chance, finished, again = Chance("workflows"), {}, []
    for _ in range(2 * SCALE):
        fleet.until(lambda: fleet.journal.busy_pids() & {one.pid for one in nodes})
        chance.pause(0.1, 0.5)
        busy = [one for one in nodes if one.pid in fleet.journal.busy_pids()]
        victim = chance.of(busy or nodes)
        at = fleet.kill(victim)
        finished[at] = completed_steps(fleet, ids)
        nodes[nodes.index(victim)] = fleet.node()
    store = fleet.scheduler._store
    fleet.until(lambda: all(store.occurrence(one).phase in FINAL for one in ids))
    assert [store.occurrence(one).phase for one in ids] == [Phase.COMPLETED] * RUNS
    assert len(completed_steps(fleet, ids)) == STEPS * RUNS
    begins = fleet.journal.of("begin")
    for at, steps in finished.items():
        # The store said so after the kill: a step that it has as completed had ended before that.
        again += [line for line in begins if line["occurrence"] in steps and line["at"] > at]
    repeated = len(begins) - STEPS * RUNS
    figure(
        f"killed workflows: {len(finished)} kills, {repeated} of {STEPS * RUNS} steps were under way and began again"
    )
    assert again == []
    assert {line["occurrence"] for line in fleet.journal.of("end")} == {
        f"{occurrence_id}/{one['id']}" for occurrence_id in ids for one in definition
    }


@on_each_store
def test_compensation_goes_on_after_its_node_is_killed(fleet):
    undo = {"target_kind": "function", "function": "tests.processes.work:record"}
    steps = [
        step("a", seconds=0, compensate={**undo, "args": [0, "undo a"]}),
        step("b", "a", seconds=0, compensate={**undo, "args": [3, "undo b"]}),
        {
            "id": "c",
            "depends_on": ["b"],
            "target": {"target_kind": "function", "function": "tests.processes.work:fail"},
        },
    ]
    put_workflow(fleet.scheduler._store, {"workflow_id": "w", "steps": steps})
    first = fleet.node()
    job = fleet.scheduler.schedule({"target_kind": "workflow", "workflow_id": "w"})
    [occurrence] = fleet.scheduler.occurrences(job)
    fleet.until(lambda: [line for line in fleet.journal.of("begin") if line["tag"] == "undo b"])
    fleet.kill(first)
    fleet.node()
    store = fleet.scheduler._store
    fleet.until(lambda: store.occurrence(occurrence.id).phase in FINAL)
    assert store.occurrence(occurrence.id).phase is Phase.FAILED
    assert {record.step_id: str(record.phase) for record in store.workflow_run(occurrence.id)[1]} == {
        "a": "compensated", "b": "compensated", "c": "failed",
    }  # fmt: skip
    tags = [line["tag"] for line in fleet.journal.of("begin")]
    assert tags == ["a", "b", "undo b", "undo b", "undo a"]
