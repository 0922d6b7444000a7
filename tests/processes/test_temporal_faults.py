"""Temporal as an engine: server, workers and nodes are killed in turn under load. Nothing is lost or ends twice."""

import os
import signal
import sys
from collections import Counter

import pytest

from noonmark import Allow
from noonmark.core.engine import workflow_id
from noonmark.core.lifecycle import FINAL, Phase
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.workflows.run import StepPhase
from tests.processes.fleet import ROOT, Chance, every
from tests.processes.work import JOURNAL
from tests.servers import temporal
from tests.servers.forked import start_forked
from tests.soak import SCALE
from tests.workflow_store import put_workflow

FIRES = 24 * SCALE
STEPS = 6
ROUTES = "function:record,function:hold,workflow"
RECORD = {"target_kind": "function", "function": "record"}


@pytest.fixture(scope="session")
def server():
    with temporal.running() as server:
        yield server


def engine_url(server, fleet):
    """Each store has a task queue of its own."""
    return server.url(queue=f"queue-{abs(hash(fleet.url))}", heartbeat=2)


def functions():
    named = (f"{name}=tests.processes.work:{name}" for name in ("record", "hold"))
    return [text for one in named for text in ("--function", one)]


class Machines:
    """A node and a worker on one store, and the server of the engine."""

    def __init__(self, fleet, server):
        self.fleet, self.server = fleet, server
        self.starts = 0
        self.processes = {name: self.start(name) for name in ("worker", "node")}

    def start(self, name):
        """Start a process, and wait until it is ready."""
        self.starts += 1
        engine = engine_url(self.server, self.fleet)
        common = ("--engine", engine, "--store", self.fleet.url, *functions())
        arguments = {
            "worker": ("temporal-worker", "--routes", ROUTES, *common),
            "node": ("serve", "--engine-routes", ROUTES, "--port", "0", "--lease", "2", *common),
        }[name]
        path = self.fleet.folder / f"{name}-{self.starts}.log"
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)]),
            JOURNAL: str(self.fleet.journal.path),
        }
        with path.open("wb") as log:
            process = start_forked(
                "noonmark", *arguments, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        self.fleet.processes.append(process)
        self.fleet.until(lambda: process.poll() is not None or "Noonmark" in path.read_text())
        assert process.poll() is None, path.read_text()
        return process

    def kill(self, name):
        """Kill one of the three, and start it again."""
        if name == "server":
            self.server.kill()
            self.server.start()
            return
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()
        self.processes[name] = self.start(name)


def ends(fleet, occurrences):
    """How often each of the runs of these occurrences came to an end that counts."""
    store = fleet.scheduler._store
    runs = [run for one in occurrences for run in store.occurrence_runs(one.id)]
    return Counter(run.occurrence_id for run in runs if run.outcome is Outcome.COMPLETED)


def completed_steps(store, occurrence_id):
    _, records = store.workflow_run(occurrence_id) or (None, [])
    return {record.step_id for record in records if record.phase is StepPhase.COMPLETED}


def start_workflow(fleet):
    """A chain of steps; returns the id of its run."""
    names = [f"step-{number}" for number in range(STEPS)]
    steps = [
        {"id": name, "depends_on": names[:place][-1:], "target": {**RECORD, "args": [0.5, name]}}
        for place, name in enumerate(names)
    ]
    put_workflow(fleet.scheduler._store, {"workflow_id": "w", "steps": steps})
    job = fleet.scheduler.schedule({"target_kind": "workflow", "workflow_id": "w"}, "run")
    return fleet.scheduler.occurrences(job)[0].id


def test_nothing_is_lost_or_ends_twice_when_each_of_them_is_killed(sqlite_fleet, server, figure):
    fleet = sqlite_fleet
    fleet.may_complain = True  # that others do not answer
    machines, chance, store = Machines(fleet, server), Chance("temporal"), fleet.scheduler._store
    trigger = every(0.3, count=FIRES, after=1)
    job = fleet.scheduler.schedule({**RECORD, "args": [0.4]}, "load", trigger, overlap=Allow(), misfire="catch_up_all")
    run_id, finished = start_workflow(fleet), []
    for name in ("server", "worker", "node") * SCALE:
        begun = len(fleet.journal.of("begin"))
        fleet.until(lambda begun=begun: len(fleet.journal.of("begin")) > begun)
        chance.pause(0, 0.5)
        machines.kill(name)
        done = completed_steps(store, run_id)
        finished.append((len(fleet.journal.of("begin")), done))
    fleet.completed([job], seconds=120 * SCALE)
    fleet.until(lambda: store.occurrence(run_id).phase in FINAL)
    occurrences = fleet.scheduler.occurrences(job, limit=FIRES + 10)
    assert Counter(one.phase for one in occurrences) == {Phase.COMPLETED: FIRES}
    run = store.occurrence(run_id)
    assert ends(fleet, [*occurrences, run]) == {one.id: 1 for one in [*occurrences, run]}
    begins = fleet.journal.of("begin")
    assert {line["occurrence"] for line in begins if line["tag"] is None} == {one.id for one in occurrences}
    for count, done in finished:
        assert done.isdisjoint(line["tag"] for line in begins[count:]), "a finished step began again"
    assert len(completed_steps(store, run_id)) == STEPS
    again = len(begins) - FIRES - STEPS
    figure(f"Temporal: {FIRES} occurrences, {3 * SCALE} kills, {again} deliveries again, none lost or ended twice")


def test_the_node_is_killed_in_each_phase_of_a_start(sqlite_fleet, server):
    """Before the workflow is started; between that and the record in the ledger; and afterwards."""
    fleet = sqlite_fleet
    fleet.may_complain = True
    ids, store = [], fleet.scheduler._store
    for phase in ("before_start", "before_record", "after_record"):
        died = fleet.folder / phase
        settings = {"engine": engine_url(server, fleet), "dies": phase, "died": str(died), "lease": 2.0}
        job = fleet.scheduler.schedule({**RECORD, "args": [0]}, phase)
        ids.append(fleet.scheduler.occurrences(job)[0].id)
        fleet.start("engine_node", ready=None, **settings).wait()
        assert died.exists()
    machines = Machines(fleet, server)
    fleet.until(lambda: all(store.occurrence(one).phase in FINAL for one in ids))
    occurrences = [store.occurrence(one) for one in ids]
    assert [(one.phase, one.attempt) for one in occurrences] == [(Phase.COMPLETED, 1)] * 3
    assert ends(fleet, occurrences) == dict.fromkeys(ids, 1)
    assert sorted(line["occurrence"] for line in fleet.journal.of("begin")) == sorted(ids)
    fleet.until(lambda: [server.run(status(server, workflow_id(one, 1))) for one in ids] == ["COMPLETED"] * 3)
    # A delivery that may come once does not begin again when its worker is lost.
    once = fleet.scheduler.schedule({**RECORD, "args": [600]}, "at most once", delivery="at_most_once")
    [lost] = fleet.scheduler.occurrences(once)
    fleet.until(lambda: [line for line in fleet.journal.of("begin") if line["occurrence"] == lost.id])
    machines.kill("worker")
    fleet.until(lambda: store.occurrence(lost.id).phase in FINAL)
    ended = store.occurrence(lost.id)
    assert (ended.phase, ended.reason) == (Phase.DELIVERY_FAILED, Reason.OUTCOME_UNKNOWN)


def test_another_node_on_postgres_goes_on_when_the_leader_is_killed(postgres_fleet, server):
    fleet, fires = postgres_fleet, 12 * SCALE
    fleet.may_complain = True
    store, machines = fleet.scheduler._store, Machines(fleet, server)
    machines.start("node")
    trigger = every(0.2, count=fires, after=1)
    job = fleet.scheduler.schedule({**RECORD, "args": [0.2]}, "load", trigger, overlap=Allow(), misfire="catch_up_all")
    fleet.until(lambda: len(fleet.journal.of("begin")) >= fires // 4)
    leader = machines.processes["node"]
    leader.send_signal(signal.SIGKILL)
    leader.wait()
    fleet.completed([job])
    occurrences = fleet.scheduler.occurrences(job, limit=fires + 10)
    assert Counter(one.phase for one in occurrences) == {Phase.COMPLETED: fires}
    assert ends(fleet, occurrences) == {one.id: 1 for one in occurrences}
    # Its worker lives, so nothing began twice.
    assert Counter(line["occurrence"] for line in fleet.journal.of("begin")) == {one.id: 1 for one in occurrences}
    runs = [run for one in occurrences for run in store.occurrence_runs(one.id)]
    assert {run.node.partition(":")[0] for run in runs if run.outcome is Outcome.COMPLETED} == {"temporal"}


@pytest.mark.soak
def test_a_worker_that_stood_still_does_not_end_what_another_one_has(sqlite_fleet, server):
    fleet = sqlite_fleet
    fleet.may_complain = True
    machines, store = Machines(fleet, server), fleet.scheduler._store
    target = {"target_kind": "function", "function": "hold", "args": [str(fleet.folder)], "kwargs": {"obeys": True}}
    job = fleet.scheduler.schedule(target, "stalled")
    occurrence_id = fleet.scheduler.occurrences(job)[0].id
    fleet.until((fleet.folder / "first").exists)
    stalled = machines.processes["worker"]
    fleet.freeze_between_transactions(stalled)
    machines.start("worker")
    fleet.until(lambda: len(fleet.journal.of("begin")) == 2)
    fleet.thaw(stalled)
    # It may also have been sent what was begun again while it stood still.
    ended = fleet.until(lambda: fleet.journal.of("end"))
    assert {(line["pid"], line["stopped"]) for line in ended} == {(stalled.pid, True)}
    assert store.occurrence(occurrence_id).phase is Phase.AWAITING_COMPLETION
    (fleet.folder / "let-second-go").touch()
    fleet.until(lambda: store.occurrence(occurrence_id).phase in FINAL)
    [run] = store.occurrence_runs(occurrence_id)
    assert (run.outcome, run.result) == (Outcome.COMPLETED, "second")


async def status(server, name):
    client = await server.client()
    return (await client.get_workflow_handle(name).describe()).status.name
