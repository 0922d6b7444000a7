"""Programs with an event loop that ends before the scheduler does."""

import asyncio
import subprocess
import sys
import textwrap
import threading

import pytest

from noonmark import AsyncScheduler, Conflict, IntervalTrigger
from tests.embedded.waiting import NEVER, SOON, phases

pytestmark = pytest.mark.usefixtures("no_noise")


def script(tmp_path, text):
    """Run a program in the folder of the database, to its end."""
    (tmp_path / "program.py").write_text(textwrap.dedent(text), encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-W", "default", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=2 * SOON,
        check=False,
    )


FORGETFUL = """
    import asyncio, threading
    from noonmark import AsyncScheduler

    begun = threading.Event()

    {function}

    async def main():
        scheduler = AsyncScheduler("sqlite:///shared.db", lease=600)
        await scheduler.start()
        print(await scheduler.schedule(work), flush=True)
        {extra}
        while not begun.is_set():
            await asyncio.sleep(0.01)
        return scheduler

    scheduler = asyncio.run(main())
"""
ASYNC = """async def work():
        begun.set()
        await asyncio.Event().wait()"""
STUBBORN = """async def work():
        begun.set()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return"""
SYNC = """def work():
        begun.set()
        threading.Event().wait(60)"""


class TestForgettingToStop:
    @pytest.mark.parametrize("function", [ASYNC, STUBBORN, SYNC], ids=["async", "stubborn", "sync"])
    def test_the_program_ends_quietly_and_hands_back_what_it_held(self, tmp_path, open_on_file, function):
        done = script(tmp_path, FORGETFUL.format(function=function, extra=""))
        assert (done.returncode, done.stderr) == (0, "")
        assert phases(open_on_file(), done.stdout.strip()) == ["pending"]

    def test_a_caller_that_waits_for_a_run_is_released(self, tmp_path, open_on_file):
        waiting = """job = await scheduler.schedule(work, name="other")
        waiting = asyncio.ensure_future(scheduler.run_now(job, overlap="allow"))"""
        done = script(tmp_path, FORGETFUL.format(function=ASYNC, extra=waiting))
        assert (done.returncode, done.stderr) == (0, "")

    def test_an_error_in_the_program_is_the_one_that_is_shown(self, tmp_path):
        done = script(tmp_path, FORGETFUL.format(function=ASYNC, extra="raise SystemError('mine')"))
        assert done.returncode == 1
        assert done.stderr.rstrip().endswith("SystemError: mine")
        assert "destroyed" not in done.stderr

    def test_decorated_functions_of_a_program_run(self, tmp_path):
        done = script(
            tmp_path,
            """
            import asyncio
            from noonmark import AsyncScheduler

            scheduler = AsyncScheduler("sqlite:///shared.db")
            ran = asyncio.Event()

            @scheduler.every(0.05, misfire="catch_up_all", overlap="queue")  # a busy machine misses none
            async def beat():
                ran.set()

            async def main():
                async with scheduler:
                    await ran.wait()
                print((await scheduler.get_job(beat.job_id)).name)

            asyncio.run(main())
            """,
        )
        assert (done.stdout, done.stderr) == ("__main__:beat\n", "")


class TestTwoLoops:
    @pytest.mark.parametrize("stops", [True, False], ids=["stopped", "forgotten"])
    def test_one_after_another(self, url, stops):
        scheduler, loops = AsyncScheduler(url), []
        ran = threading.Semaphore(0)

        async def work():
            loops.append(asyncio.get_running_loop())
            ran.release()

        async def main(number):
            job_id = await scheduler.schedule(work, name=f"job {number}", function_name="work", trigger=NEVER)
            await scheduler.start()
            assert await asyncio.wait_for(scheduler.run_now(job_id), SOON) is None
            await scheduler.schedule(work, function_name="work")
            for _ in range(2):
                assert await asyncio.to_thread(ran.acquire, timeout=SOON)
            if stops:
                await scheduler.stop()
            assert set(loops[-2:]) == {asyncio.get_running_loop()}

        for number in range(3):
            asyncio.run(main(number))
        asyncio.run(scheduler.close())

    def test_without_start_each_call_runs_on_the_loop_that_makes_it(self, url):
        scheduler = AsyncScheduler(url)

        async def work():
            return id(asyncio.get_running_loop())

        async def main():
            job_id = await scheduler.schedule(work, function_name="work", trigger=NEVER)
            return await asyncio.wait_for(scheduler.run_now(job_id), SOON) == id(asyncio.get_running_loop())

        assert [asyncio.run(main()) for _ in range(3)] == [True] * 3
        asyncio.run(scheduler.close())

    def test_a_loop_that_is_closed_without_a_word_is_left_behind(self, url):
        scheduler, ran = AsyncScheduler(url), threading.Semaphore(0)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(scheduler.start())
        loop.run_until_complete(scheduler.schedule(ran.release, function_name="work", trigger=IntervalTrigger(0.05)))

        async def main():
            await scheduler.start()
            while not ran.acquire(blocking=False):
                await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(scheduler.list_jobs())), SOON)
            await scheduler.close()

        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True))
        loop.close()
        while ran.acquire(blocking=False):
            pass
        asyncio.run(asyncio.wait_for(main(), SOON))

    def test_without_a_loop_only_what_needs_none_works(self, url):
        scheduler = AsyncScheduler(url)
        job_id = scheduler.blocking.schedule(threading.Event().set, function_name="work", trigger=NEVER)
        for ask in (scheduler.blocking.start, lambda: scheduler.blocking.run_now(job_id)):
            with pytest.raises(Conflict, match="runs on an event loop"):
                ask()
        assert scheduler.blocking.get_job(job_id).run_count == 0
        scheduler.blocking.close()
