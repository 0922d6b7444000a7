"""The worker: polls the task queues of its routes, and runs workflows and activities until it is stopped."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio.service import RPCError
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND
from noonmark.core.targets import WorkflowTarget
from noonmark.targets.loop_runner import pause
from noonmark.targets.temporal.client import EngineClient, EngineUnavailable
from noonmark.targets.temporal.workflow import OccurrenceWorkflow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from temporalio.client import Client

    from noonmark.core.instants import Micros
    from noonmark.targets.temporal.activities import Activities
    from noonmark.targets.temporal.settings import EngineAddress, EngineCounts

RECONNECT: Micros = SECOND
CHECK_PAUSE: Micros = 10 * SECOND
"""Between two calls that only see whether the server answers: the library says nothing of its polls that fail."""
THROTTLE = timedelta(seconds=1)
"""Heartbeats are sent at least this often: a request to cancel comes with the answer."""
STICKY = timedelta(seconds=5)
"""How long a workflow waits for the worker that has it in memory."""
LINGER: Micros = SECOND // 2
"""How long workflows go on here after the last delivery: Temporal takes 10 s to see that a worker took one along."""
MAX_STORE_ACTIVITIES = 1_000
"""How many activities that only use the store run at once; most of them wait."""


@frozen(kw_only=True)
class WorkerSettings:
    """How a worker polls."""

    address: EngineAddress
    routes: Sequence[str]
    name: str
    grace: Micros
    """How long deliveries have to end when it stops."""
    counts: EngineCounts
    max_deliveries: int = 100
    """Of one route."""


async def run_worker(
    settings: WorkerSettings, activities: Activities, stop: asyncio.Event, ready: asyncio.Event
) -> None:
    """Serve until `stop` is set. A server that does not answer is tried again."""
    while not stop.is_set():
        engine = EngineClient(settings.address, settings.name)
        checks = None
        try:
            client = await engine.check()
            settings.counts.note_problem(None)
            checks = asyncio.create_task(_check(engine, settings.counts))
            await _serve(settings, client, activities, stop, ready)
        except EngineUnavailable as error:
            settings.counts.note_problem(str(error), error.details)
        except (RPCError, RuntimeError) as error:
            settings.counts.note_problem(f"the engine at {settings.address.server} ends the worker: {error}")
        finally:
            if checks is not None:
                checks.cancel()
        await _stopped_within(stop, RECONNECT)


async def _stopped_within(stop: asyncio.Event, time: Micros) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), time / SECOND)


async def _check(engine: EngineClient, counts: EngineCounts) -> None:
    """Note whether the server answers, every now and then."""
    while True:
        await pause(CHECK_PAUSE)
        try:
            await engine.check()
        except EngineUnavailable as error:
            counts.note_problem(str(error), error.details)
        else:
            counts.note_problem(None)


async def _serve(
    settings: WorkerSettings, client: Client, activities: Activities, stop: asyncio.Event, ready: asyncio.Event
) -> None:
    failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def fail(error: BaseException) -> None:
        if not failed.done():
            failed.set_result(error)

    async with AsyncExitStack() as stack:
        _, *of_routes = [
            await stack.enter_async_context(worker) for worker in _workers(settings, client, activities, fail)
        ]
        ready.set()
        stopping = asyncio.create_task(stop.wait())
        waiting: set[asyncio.Future[Any]] = {stopping, failed}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        is_busy = activities.deliveries > 0
        await asyncio.gather(*(worker.shutdown() for worker in of_routes))
        if is_busy:
            await pause(LINGER)
    if failed.done():
        raise failed.result()


def sandbox() -> SandboxedWorkflowRunner:
    """What runs workflows. What they import of Noonmark is pure, and need not be loaded again for each of them."""
    return SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules("noonmark"))


def _workers(
    settings: WorkerSettings,
    client: Client,
    activities: Activities,
    fail: Callable[[BaseException], Awaitable[None]],
) -> list[Worker]:
    """One for workflows and for what only needs the store, and one for each route."""
    address = settings.address
    common: dict[str, Any] = {
        "identity": settings.name,
        "max_heartbeat_throttle_interval": THROTTLE,
        "default_heartbeat_throttle_interval": THROTTLE,
        "graceful_shutdown_timeout": timedelta(seconds=settings.grace / SECOND),
        "on_fatal_error": fail,
    }
    workers = [
        Worker(
            client,
            task_queue=address.task_queue,
            workflows=[OccurrenceWorkflow],
            workflow_runner=sandbox(),
            sticky_queue_schedule_to_start_timeout=STICKY,
            activities=[activities.settle, activities.watch],
            max_concurrent_activities=MAX_STORE_ACTIVITIES,
            **common,
        )
    ]
    for route in settings.routes:
        is_workflow = route == WorkflowTarget.route
        workers.append(
            Worker(
                client,
                task_queue=address.queue(route),
                activities=[activities.advance] if is_workflow else [activities.deliver, activities.step],
                max_concurrent_activities=settings.max_deliveries,
                max_concurrent_activity_task_polls=2,
                **common,
            )
        )
    return workers
