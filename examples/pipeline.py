"""Functions in stages: those of a stage run side by side, and a failure ends it."""

import asyncio
import logging
from threading import Barrier

from noonmark import JobPipeline, PipelineError, Scheduler

logging.getLogger("noonmark").setLevel(logging.ERROR)  # a run that fails is a warning; here one fails on purpose
scheduler = Scheduler()
together = Barrier(2, timeout=30)


def download_prices() -> str:
    """Waits for the other one: they do run at the same time."""
    together.wait()
    return "prices"


async def download_stock() -> str:
    """An async function is welcome too."""
    await asyncio.to_thread(together.wait)
    return "stock"


def merge() -> int:
    """Begins when both are there."""
    return 42


def break_down() -> None:
    """Fails."""
    raise ConnectionError("the line is dead")


with scheduler:
    pipeline = JobPipeline(scheduler, on_progress=lambda one: print(f"{one.stage}: {one.finished} of {one.of}"))
    pipeline.add_stage(download_prices, download_stock, name="download").add_stage(merge, name="merge")
    print("the stages gave", pipeline.run_sync())

    try:
        JobPipeline(scheduler).add_stage(break_down, merge, name="fragile").add_stage(merge).run_sync()
    except PipelineError as error:
        print("failed in", error.stage, "with", error.errors)

# Output:
# download: 1 of 2
# download: 2 of 2
# merge: 1 of 1
# the stages gave [['prices', 'stock'], [42]]
# failed in fragile with [ConnectionError('the line is dead')]
