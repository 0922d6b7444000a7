"""An event loop that ends around a scheduler: nothing that it holds, or is being given, stays held."""

import asyncio
import threading

import pytest

from noonmark import AsyncScheduler
from noonmark.stores.sqlite import SqliteStore
from tests.frameworks.site import LEASE
from tests.processes.fleet import PATIENCE


@pytest.mark.parametrize("verb", ["claim", "admit", "settle"])
def test_what_the_store_is_about_to_give_is_handed_back_too(site, monkeypatch, verb):
    """The loop is cancelled while the answer of the store is on its way."""
    asked, answer = threading.Event(), threading.Event()
    began = threading.Semaphore(0)
    real = getattr(SqliteStore, verb)

    def slow(self, *args, **kwargs):
        answered = real(self, *args, **kwargs)
        if answered and not asked.is_set():
            asked.set()
            answer.wait(PATIENCE)
        return answered

    monkeypatch.setattr(SqliteStore, verb, slow)

    async def main():
        scheduler = AsyncScheduler(site.url, lease=LEASE)
        await scheduler.schedule(began.release, function_name="begin", name="begin")
        await scheduler.start()
        await asyncio.to_thread(asked.wait, PATIENCE)
        # The answer comes only after everything on this loop was cancelled.
        threading.Timer(0.2, answer.set).start()  # noqa: TID251 - the loop is not there to wait on

    asyncio.run(main())
    assert answer.is_set()
    site.assert_nothing_is_held()
    [left] = site.scheduler.occurrences(site.job_named("begin").id)
    assert str(left.phase) in ({"completed"} if verb == "settle" else {"pending", "completed"})
    assert left.attempt <= 1


def test_a_cancelled_block_does_not_wait_for_what_runs(site):
    begun, leave = threading.Event(), threading.Event()

    def work():
        begun.set()
        leave.wait(PATIENCE)

    async def serve():
        async with AsyncScheduler(site.url, lease=LEASE) as scheduler:
            await scheduler.schedule(work, function_name="work", name="work")
            await asyncio.Event().wait()

    async def main():
        task = asyncio.create_task(serve())
        await asyncio.to_thread(begun.wait, PATIENCE)
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE)
        return task.cancelled()

    assert asyncio.run(main())
    assert not leave.is_set()
    site.assert_nothing_is_held()
    leave.set()


def test_a_scheduler_serves_one_event_loop_after_another(site):
    ran = []
    scheduler = AsyncScheduler(site.url)

    async def work():
        ran.append(asyncio.get_running_loop())

    async def main():
        job = await scheduler.schedule(work, function_name="work", name="work", overlap="allow")
        async with scheduler:
            await scheduler.run_now(job)
        return asyncio.get_running_loop()

    loops = [asyncio.run(main()) for _ in range(3)]
    assert [loop for loop in loops if loop not in ran] == []
