"""A FastAPI program: the scheduler lives as long as the program, on its own event loop."""

import asyncio
import os
import threading
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException

from noonmark import AsyncScheduler, CronTrigger, IntervalTrigger
from tests.frameworks.site import STORE
from tests.processes import work

scheduler = AsyncScheduler(os.environ[STORE], lease=600)
seen = {}


@asynccontextmanager
async def lifespan(app):
    seen["server"] = id(asyncio.get_running_loop())
    await scheduler.start()
    yield
    await scheduler.stop(timeout=0.5)


app = FastAPI(lifespan=lifespan)


@scheduler.every(0.2)
async def poll(context):
    seen["job"] = id(asyncio.get_running_loop())
    seen["thread"] = threading.current_thread() is threading.main_thread()
    await asyncio.sleep(0)  # noqa: TID251 - the others take a turn
    work.note("begin", occurrence=context.occurrence_id, schedule=context.schedule_id)


async def double(context):
    return 2 * context.payload


@app.post("/jobs")
async def create(body: dict):
    return await scheduler.schedule(double, name=body["name"], trigger=IntervalTrigger(3_600))


@app.post("/jobs/{job_id}/run")
async def run(job_id: str, body: dict):
    return await scheduler.run_now(job_id, payload=body["payload"])


@app.get("/jobs")
async def jobs():
    return {job.id: {"name": job.name, "status": job.status, "result": job.last_result} for job in await listed()}


async def listed():
    return await scheduler.list_jobs()


@app.delete("/jobs/{job_id}")
async def cancel(job_id: str):
    if not await scheduler.cancel(job_id):
        raise HTTPException(404)
    return "cancelled"


@app.get("/seen")
async def what_was_seen():
    return seen


@app.post("/hold")
async def hold():
    """Two runs that will not have ended when the server does, and one job that is claimed for later."""
    thread = await scheduler.schedule(work.record, name="thread", args=[120])
    task = await scheduler.schedule(sleep, name="task")
    claimed = await scheduler.schedule(work.record, name="claimed", trigger=CronTrigger("* * * * * *"), jitter=0.9)
    return [thread, task, claimed]


async def sleep(context):
    work.begin(context, None)
    await asyncio.Event().wait()
