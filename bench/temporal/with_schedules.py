"""Temporal Schedules: one schedule that starts many workflows at once, each with an activity that does nothing."""

from __future__ import annotations

import asyncio
import gc
import time
from datetime import UTC, datetime, timedelta

from temporalio import activity, workflow
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleBackfill,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    ScheduleSpec,
    ScheduleState,
)
from temporalio.worker import Worker

LEFT: list[int] = [0]
"""How many activities have not run yet."""
DONE = asyncio.Event()


@activity.defn
async def nothing() -> int:
    """As little as one can do and still be counted."""
    LEFT[0] -= 1
    if LEFT[0] == 0:
        DONE.set()
    return 3


@workflow.defn
class OneActivity:
    """A workflow with one activity."""

    @workflow.run
    async def run(self) -> int:
        """Run it."""
        return int(await workflow.execute_activity(nothing, start_to_close_timeout=timedelta(seconds=60)))


def temporal_schedules(address: str, count: int) -> dict[str, float]:
    """From the request for past fires, all at once, until the last workflow has run its activity."""
    run = asyncio.run(_measure(address, count))
    gc.collect()  # the library must not release what it holds while the process ends
    return run


async def _measure(address: str, count: int) -> dict[str, float]:
    client, queue = await Client.connect(address), f"schedules-{time.monotonic_ns()}"
    async with Worker(client, task_queue=queue, workflows=[OneActivity], activities=[nothing]):
        await client.execute_workflow(OneActivity.run, id=f"{queue}-first", task_queue=queue)
        LEFT[0] = count
        action = ScheduleActionStartWorkflow(OneActivity.run, id=queue, task_queue=queue)
        every = ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(minutes=1))])
        schedule = Schedule(action=action, spec=every, state=ScheduleState(paused=True))
        handle = await client.create_schedule(queue, schedule)
        until = datetime.now(UTC).replace(second=30, microsecond=0) - timedelta(hours=1)
        past = ScheduleBackfill(
            start_at=until - timedelta(minutes=count), end_at=until, overlap=ScheduleOverlapPolicy.ALLOW_ALL
        )
        begun = time.perf_counter()
        await handle.backfill(past)
        await DONE.wait()
        seconds = time.perf_counter() - begun
        await handle.delete()
    return {"rate": count / seconds}
