"""A run suspends on one node while a step of it ends on another: no wake-up is lost."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from noonmark.core.ids import manual
from noonmark.core.lifecycle import Phase
from noonmark.core.occurrence import Overrides, Parent
from noonmark.core.policies import overlap
from noonmark.core.reasons import Reason
from noonmark.core.settlement import Suspended, settle
from noonmark.core.targets import WorkflowTarget
from noonmark.core.workflows.run import StepPhase, StepRecord, WorkflowRun
from noonmark.ports.workflows import StepWrites
from noonmark.stores.postgres import PostgresStore
from noonmark.stores.redis.store import RedisStore
from noonmark.testing import factories
from noonmark.testing.conformance import Bench, HandClock
from noonmark.testing.conformance.bench import start
from noonmark.testing.factories import NOW

ROUNDS = 30
RUNNING = StepRecord(step_id="load", phase=StepPhase.RUNNING, attempt=1, started=NOW, is_external=True)
OWN = StepRecord(step_id="own", phase=StepPhase.COMPLETED, attempt=1, started=NOW, ended=NOW)


@pytest.fixture(params=["postgres", "redis"])
def nodes(request):
    """Two stores on one database, as two nodes have them."""
    clock = HandClock()
    if request.param == "postgres":
        url, kind = request.getfixturevalue("database").url, PostgresStore
    else:
        url, kind = request.getfixturevalue("redis_url"), RedisStore
    stores = [kind(url, clock) for _ in range(2)]
    for store in stores:
        store.open()
    yield [Bench(store, clock) for store in stores]
    for store in stores:
        store.close()


def test_a_suspension_and_an_end_on_two_connections_race(nodes):
    one, other = nodes
    steps = one.create_quiet("steps", schedule_id="~steps:etl", overlap_policy=overlap.Allow())
    schedules = [
        one.create_quiet(f"uid-{number}", target=WorkflowTarget(workflow_id="etl")) for number in range(ROUNDS)
    ]
    for schedule in schedules:
        one.add(schedule, "a")
    parents = [one.start(claim) for claim in one.claim(routes=["workflow"])]
    owners = {schedule.uid: schedule for schedule in schedules}
    for parent in parents:
        overrides = Overrides(parent=Parent(occurrence_id=parent.id, step_id="load"))
        run = WorkflowRun(occurrence_id=parent.id, workflow_id="etl", version=1, inputs={}, started=NOW)
        child = factories.occurrence(steps, manual(parent.id), overrides=overrides)
        writes = StepWrites(occurrence_id=parent.id, fence=parent.fence, run=run, steps=[RUNNING], children=[child])
        assert one.store.commit_steps([writes]) == [True]
    started = [other.decide(replace(start(claim), takes_slot=False)) for claim in other.claim("node-b")]
    children = {child.overrides.parent.occurrence_id: child for child in started}
    together = Barrier(3)

    def suspend(parent):
        suspended = Suspended(
            started=NOW, ended=NOW, until=None, waiting_for=Reason.STEP_PENDING, open_steps=frozenset({("load", None)})
        )
        settlement = settle(parent, owners[parent.uid], suspended, node="node-a")
        together.wait()
        return one.store.settle([settlement]) == [True]

    def end(parent):
        settlement = other.settlement(children[parent.id])
        together.wait()
        return other.store.settle([settlement]) == [True]

    def commit(parent):
        writes = StepWrites(occurrence_id=parent.id, fence=parent.fence, steps=[OWN, RUNNING])
        together.wait()
        return other.store.commit_steps([writes]) in ([True], [False])

    with ThreadPoolExecutor(3) as threads:
        for parent in parents:
            racing = [threads.submit(work, parent) for work in (suspend, end, commit)]
            assert all(each.result() for each in racing)
    resumed = [one.start(claim) for claim in one.claim(routes=["workflow"])]
    assert {run.id for run in resumed} == {run.id for run in parents}
    for run in resumed:
        found = {step.step_id: step.phase for step in one.store.workflow_run(run.id)[1]}
        assert found["load"] is StepPhase.COMPLETED, "the node that wrote it as running did not undo its end"
    assert all(one.row(child).phase is Phase.COMPLETED for child in children.values())
