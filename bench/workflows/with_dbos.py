"""DBOS: workflows that call steps which do nothing, in one process, with its default settings.

Chains run in threads, as many as there are chains. Steps that run side by side are coroutines of one run: a child
workflow for each is several times as slow.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

from dbos import DBOS

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "bench"
RAN: list[None] = []
MAY_BEGIN = threading.Event()


def dbos_chains(url: str, chains: int, steps: int) -> dict[str, float]:
    """Runs of `steps` steps that begin at one instant, started beforehand: from then until the last result."""

    def prepare() -> Callable[[], None]:
        MAY_BEGIN.clear()
        runs = [DBOS.start_workflow(chain, steps) for _ in range(chains)]

        def work() -> None:
            MAY_BEGIN.set()
            for run in runs:
                run.get_result()

        return work

    return _measure(url, prepare, chains * steps)


def dbos_called(url: str, chains: int, steps: int) -> dict[str, float]:
    """The same runs, started by one call after another: from the first call until the last result."""

    def work() -> None:
        for run in [DBOS.start_workflow(chain, steps) for _ in range(chains)]:
            run.get_result()

    return _measure(url, lambda: work, chains * steps)


def dbos_fan_out(url: str, count: int) -> dict[str, float]:
    """One run whose steps run side by side: from its start until its result."""
    return _measure(url, lambda: lambda: asyncio.run(fan_out(count)), count)


def _measure(url: str, prepare: Callable[[], Callable[[], None]], count: int) -> dict[str, float]:
    address = url.replace("postgresql://", "postgresql+psycopg://")
    DBOS(config={"name": NAME, "system_database_url": address, "log_level": "ERROR"})
    DBOS.launch()
    MAY_BEGIN.set()
    chain(3)  # connections are open then, and code is loaded
    RAN.clear()
    work = prepare()
    begun = time.perf_counter()
    work()
    seconds = time.perf_counter() - begun
    assert len(RAN) == count, f"{len(RAN):,} of {count:,} steps have run"
    DBOS.destroy(destroy_registry=True)
    return {"rate": count / seconds}


@DBOS.step()
def nothing() -> None:
    """As little as one can do and still be counted."""
    RAN.append(None)


@DBOS.step()
async def nothing_async() -> None:
    """The same, as a coroutine."""
    RAN.append(None)


@DBOS.workflow()
def chain(steps: int) -> None:
    """Steps one after another."""
    MAY_BEGIN.wait()
    for _ in range(steps):
        nothing()


@DBOS.workflow()
async def fan_out(count: int) -> None:
    """Steps side by side."""
    await asyncio.gather(*(nothing_async() for _ in range(count)))
