"""A node with an engine and a worker in this process, on one store and on a real Temporal server."""

import asyncio
import itertools
import threading
from contextlib import contextmanager

from noonmark import Scheduler
from noonmark.clocks import SystemClock
from noonmark.core.engine import workflow_id
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import FINAL
from noonmark.driver.store_clock import StoreClock
from noonmark.embedded.runners import ThreadRunner
from noonmark.ports.runtime import Runtime, Timing
from noonmark.targets.command.programs import ProgramPolicy
from noonmark.targets.function.registry import FunctionRegistry
from noonmark.targets.http.settings import HttpTargetSettings
from noonmark.targets.temporal.activities import Activities
from noonmark.targets.temporal.client import EngineClient
from noonmark.targets.temporal.reconciliation import Reconciler
from noonmark.targets.temporal.settings import EngineCounts, EngineSettings, parse_engine
from noonmark.targets.temporal.steps import StepRuns
from noonmark.targets.temporal.worker import WorkerSettings, run_worker
from noonmark.wiring import make_runner, make_store, make_target
from tests.targets.temporal import work

CLOCK = SystemClock()
SOON = 60.0
"""Seconds that anything may take on a busy machine."""
PAUSE = 0.05
FUNCTION = f"function:{work.NAME}"
numbers = itertools.count()


def function(name, *args, **kwargs):
    """The target that calls a function of this folder."""
    return {"target_kind": "function", "function": work.NAME, "args": [name, *args], "kwargs": kwargs}


def until(holds, seconds=SOON):
    """Wait until something holds, and return it."""
    ends = CLOCK.monotonic() + seconds * SECOND
    while not (answer := holds()):
        assert CLOCK.monotonic() < ends, f"still not after {seconds} s: {holds}"
        threading.Event().wait(PAUSE)
    return answer


class Rig:
    """One store; a node and workers on it can be started and stopped."""

    def __init__(
        self,
        server,
        folder,
        *,
        routes=(FUNCTION, "workflow"),
        address=None,
        public_url=None,
        agents=None,
        bundles=None,
        **engine,
    ):
        self.server, self.url = server, f"sqlite:///{folder}/ledger-{next(numbers)}.db"
        self.scheduler = Scheduler(self.url)
        self.store = self.scheduler._store
        address = address or parse_engine(server.url(queue=f"queue-{next(numbers)}", heartbeat=3))
        self.engine = EngineSettings(address=address, routes=tuple(routes), **engine)
        self.outbound = HttpTargetSettings(public_url=public_url)
        self.agents, self.bundles = agents, bundles

    @contextmanager
    def node(self, name="node", lease=5.0):
        """A node that hands its routes over to the engine."""
        store = make_store(self.url, CLOCK)
        store.open()
        target = make_target(
            store,
            make_runner(FunctionRegistry(), 8, None),
            ProgramPolicy(("*",)),
            self.outbound,
            engine=self.engine,
        )
        timing = Timing(lease=int(lease * SECOND))
        runner = ThreadRunner(Runtime(node=name, store=store, clock=CLOCK, target=target, timing=timing))
        try:
            yield runner
        finally:
            runner.stop(0)
            runner.wait()
            store.close()

    @contextmanager
    def worker(self, name="temporal:worker", routes=None):
        """A worker, in a thread."""
        thread = WorkerThread(self, name, self.engine.routes if routes is None else routes)
        thread.start()
        try:
            assert thread.is_ready.wait(SOON)
            yield thread
        finally:
            thread.stop()

    @contextmanager
    def running(self):
        """A node and a worker."""
        with self.worker() as worker, self.node():
            yield worker

    def run(self, target, **options):
        """Ask for a run; returns the id of its occurrence."""
        name = f"run {next(numbers)}"
        job = self.scheduler.schedule(target, name, **options)
        return self.scheduler.occurrences(job)[0].id

    def occurrence(self, occurrence_id):
        return self.store.occurrence(occurrence_id)

    def runs(self, occurrence_id):
        return self.store.occurrence_runs(occurrence_id)

    def ended(self, occurrence_id):
        """The occurrence, once it has ended."""
        until(lambda: self.occurrence(occurrence_id).phase in FINAL)
        return self.occurrence(occurrence_id)

    def in_phase(self, occurrence_id, phase):
        return until(lambda: (one := self.occurrence(occurrence_id)).phase is phase and one)

    def workflow(self, occurrence_id, attempt=1):
        """How Temporal describes the workflow of an attempt."""

        async def describe():
            client = await self.server.client()
            return await client.get_workflow_handle(workflow_id(occurrence_id, attempt)).describe()

        return self.server.run(describe())

    def status(self, occurrence_id, attempt=1):
        return self.workflow(occurrence_id, attempt).status.name

    def closed(self, occurrence_id, attempt=1):
        """The status of a workflow, once it is closed."""
        return until(lambda: (one := self.status(occurrence_id, attempt)) != "RUNNING" and one)

    def pending(self, occurrence_id, attempt=1):
        """The activities of a workflow that have not ended."""
        return self.workflow(occurrence_id, attempt).raw_description.pending_activities

    def activities(self, occurrence_id, attempt=1):
        """The names of the activities that a workflow has scheduled, with their task queues."""

        async def fetch():
            client = await self.server.client()
            history = await client.get_workflow_handle(workflow_id(occurrence_id, attempt)).fetch_history()
            events = [one.activity_task_scheduled_event_attributes for one in history.events]
            return [(one.activity_type.name, one.task_queue.name) for one in events if one.activity_type.name]

        return self.server.run(fetch())

    def end_workflow(self, occurrence_id, attempt=1, *, how="terminate"):
        """End a workflow behind the back of Noonmark."""

        async def end():
            client = await self.server.client()
            await getattr(client.get_workflow_handle(workflow_id(occurrence_id, attempt)), how)()

        self.server.run(end())

    def compare(self, act=None):
        """Compare the ledger with the engine, and perhaps act on that."""

        async def compare():
            reconciler = Reconciler(self.store, EngineClient(self.engine.address))
            comparison = await reconciler.compare()
            return comparison if act is None else await getattr(reconciler, act)(comparison)

        return self.server.run(compare())


class WorkerThread(threading.Thread):
    """A worker with an event loop of its own."""

    def __init__(self, rig, name, routes):
        super().__init__(name=name, daemon=True)
        self._rig, self._routes = rig, routes
        self.is_ready, self.settled, self.counts = threading.Event(), [], EngineCounts()
        self._loop = self._stopping = None

    def run(self):
        asyncio.run(self._serve())

    async def _serve(self):
        rig, registry = self._rig, FunctionRegistry()
        registry.register(work.NAME, work.call)
        store = make_store(rig.url, CLOCK)
        store.open()
        runner, programs = make_runner(registry, 8, None), ProgramPolicy(("*",))
        target = make_target(store, runner, programs, rig.outbound, bundles=rig.bundles, agents=rig.agents)
        clock = StoreClock(CLOCK)
        clock.note(store.clock())
        target.open(lambda *_: None, clock.now)
        self._loop, self._stopping, ready = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        steps = StepRuns(store, self._routes, clock.now, has_callbacks=rig.outbound.public_url is not None)
        settled = self.settled.append
        activities = Activities(store, target, steps, clock.now, name=self.name, settled=lambda *one: settled(one[1]))
        settings = WorkerSettings(
            address=rig.engine.address,
            routes=self._routes,
            name=self.name,
            grace=0,
            counts=self.counts,
            max_deliveries=20,
        )
        serving = asyncio.create_task(run_worker(settings, activities, self._stopping, ready))
        await ready.wait()
        self.is_ready.set()
        await serving
        target.close()
        store.close()

    def stop(self):
        if self.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self.join(SOON)
