"""A small FastAPI app with a scheduler: reminders are created, listed, run and cancelled over HTTP.

Serve it with `uvicorn fastapi_app:app`, with as many `--workers` as you like. As a script, it serves itself for a
moment and shows what it answers. It needs `pip install fastapi uvicorn`.
"""

import json
import os
import tempfile
import threading
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

from noonmark import AsyncScheduler, OnceTrigger

if __name__ == "__main__":
    os.chdir(tempfile.mkdtemp())  # what the trial writes is not kept
scheduler = AsyncScheduler("sqlite:///reminders.db")
sent = threading.Semaphore(0)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Run what is due as long as the server runs; what has not ended after 5 seconds is handed back."""
    await scheduler.start()
    yield
    await scheduler.stop(timeout=5)


app = FastAPI(lifespan=lifespan)


class Reminder(BaseModel):
    """What to say, and after how long."""

    text: str
    seconds: float = Field(gt=0)


async def set_within_threadsafe(context: Any) -> str:
    """Runs on the event loop of the server, so it must not block."""
    sent.release()
    return f"remember: {context.payload}"


@app.post("/reminders")
async def create(reminder: Reminder) -> dict[str, str]:
    """Keep a reminder; from now on it survives the server."""
    once = OnceTrigger(delay_seconds=reminder.seconds)
    return {"id": await scheduler.schedule(set_within_threadsafe, trigger=once, payload=reminder.text)}


@app.get("/reminders")
async def reminders() -> list[dict[str, Any]]:
    """All of them, oldest first."""
    return [{"status": job.status, "result": job.last_result} for job in await scheduler.list_jobs()]


@app.post("/reminders/{job_id}/run")
async def run(job_id: str) -> str:
    """Say it now, and once more at its time."""
    return str(await scheduler.run_now(job_id))


@app.delete("/reminders/{job_id}")
async def cancel(job_id: str) -> None:
    """Forget it."""
    if not await scheduler.cancel(job_id):
        raise HTTPException(404)


def main() -> None:
    """Serve the app on a free port, and ask it a few things."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        threading.Event().wait(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]

    def ask(method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers, method=method)
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - our own server
            return json.load(answer)

    tea = ask("POST", "/reminders", {"text": "tea", "seconds": 3_600})["id"]
    print("now:", ask("POST", f"/reminders/{tea}/run"))
    ask("DELETE", f"/reminders/{tea}")
    ask("POST", "/reminders", {"text": "the bread", "seconds": 0.2})
    sent.acquire()  # tea, when it was run by hand
    sent.acquire()
    while (listed := ask("GET", "/reminders"))[0]["status"] != "completed":
        threading.Event().wait(0.01)
    for one in listed:
        print(f"{one['status']}: {one['result']}")
    server.should_exit = True
    thread.join()
    print("the server has stopped, and the scheduler with it")


if __name__ == "__main__":
    main()

# Output:
# now: remember: tea
# completed: remember: the bread
# the server has stopped, and the scheduler with it
