"""The worker: polls the task queues of its routes, and runs workflows and activities until it is stopped."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio.service import RPCError
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from noonmark.core.instants import SECOND
from noonmark.core.targets import WorkflowTarget
from noonmark.targets.loop_runner import pause
from noonmark.targets.temporal.client import EngineUnavailable, connect_worker
from noonmark.targets.temporal.workflow import OccurrenceWorkflow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from temporalio.client import Client

    from noonmark.core.instants import Micros
    from noonmark.targets.temporal.activities import Activities
    from noonmark.targets.temporal.settings import EngineAddress

logger = logging.getLogger("noonmark.temporal")

RECONNECT: Micros = SECOND
THROTTLE = timedelta(seconds=1)
"""Heartbeats are sent at least this often: a request to cancel comes with the answer."""
STICKY = timedelta(seconds=5)
"""How long a workflow waits for the worker that has it in memory."""
MAX_STORE_ACTIVITIES = 1_000
"""How many activities that only use the store run at once; most of them wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How a worker polls."""

    address: EngineAddress
    routes: Sequence[str]
    name: str
    grace: Micros
    """How long deliveries have to end when it stops."""
    max_deliveries: int = 100
    """Of one route."""


async def run_worker(
    settings: WorkerSettings, activities: Activities, stop: asyncio.Event, ready: asyncio.Event
) -> None:
    """Serve until `stop` is set. A server that does not answer is tried again."""
    last_problem = ""
    while not stop.is_set():
        try:
            client = await connect_worker(settings.address, identity=settings.name)
            last_problem = ""
            await _serve(settings, client, activities, stop, ready)
        except (EngineUnavailable, RPCError, RuntimeError) as error:
            problem = str(error)
            if problem != last_problem:
                logger.warning("%s; trying again", problem)
            last_problem = problem
            await pause(RECONNECT)


async def _serve(
    settings: WorkerSettings, client: Client, activities: Activities, stop: asyncio.Event, ready: asyncio.Event
) -> None:
    failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def fail(error: BaseException) -> None:
        if not failed.done():
            failed.set_result(error)

    async with AsyncExitStack() as stack:
        for worker in _workers(settings, client, activities, fail):
            await stack.enter_async_context(worker)
        ready.set()
        stopping = asyncio.create_task(stop.wait())
        waiting: set[asyncio.Future[Any]] = {stopping, failed}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
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
