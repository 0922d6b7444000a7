"""Ctrl-C: the program ends promptly, says no more than that it was interrupted, and hands back what it held."""

import signal

import pytest

from tests.frameworks.site import LEASE

HEAD = f"""
    import asyncio, os, pathlib, threading, time
    from noonmark import AsyncScheduler, CronTrigger, Scheduler
    from tests.processes import work

    STORE = os.environ["SITE_STORE"]
    SETTINGS = {{"lease": {LEASE}}}
    NEXT = {{"trigger": CronTrigger("* * * * * *"), "misfire": "catch_up_all"}}  # nothing is said of what was missed

    def jobs(scheduler):
        "One that runs for longer than anybody waits, and one of which the next fires are claimed."
        scheduler.schedule(work.record, name="long", args=[600])
        scheduler.schedule(work.record, name="next", **NEXT)

    def has_begun(job_id):
        "Whether it runs; a start is committed a little before that, and would be taken back."
        journal = pathlib.Path(os.environ[work.JOURNAL])
        return journal.exists() and f'"schedule": "{{job_id}}"' in journal.read_text()

    def tell_when(holds):
        def watch():
            while not holds():
                time.sleep(0.005)
            work.note("there")
        threading.Thread(target=watch, daemon=True).start()
"""
PLAIN = {
    "asleep": """
        scheduler = Scheduler(STORE, **SETTINGS)
        jobs(scheduler)
        scheduler.start()
        work.note("there")
        time.sleep(600)
    """,
    "asleep in a with block": """
        with Scheduler(STORE, **SETTINGS) as scheduler:
            jobs(scheduler)
            work.note("there")
            time.sleep(600)
    """,
    "in a function that nobody else knows the scheduler of": """
        def main():
            scheduler = Scheduler(STORE, **SETTINGS)
            jobs(scheduler)
            scheduler.start()

        main()
        work.note("there")
        time.sleep(600)
    """,
    "in stop": """
        scheduler = Scheduler(STORE, **SETTINGS)
        jobs(scheduler)
        scheduler.start()
        while not any(has_begun(job.id) for job in scheduler.list_jobs() if job.name == "long"):
            time.sleep(0.01)
        tell_when(lambda: scheduler._runners._stopping and scheduler._runners._stopping.loop.is_stopping)
        scheduler.stop()
    """,
    "in run_now": """
        scheduler = Scheduler(STORE, **SETTINGS)
        job = scheduler.schedule(work.record, name="long", args=[600], trigger=CronTrigger("0 0 1 1 *"))
        scheduler.schedule(work.record, name="next", **NEXT)
        tell_when(lambda: scheduler.runs(job))
        scheduler.run_now(job)
    """,
    "in run_now after start": """
        scheduler = Scheduler(STORE, **SETTINGS)
        job = scheduler.schedule(work.record, name="long", args=[600], trigger=CronTrigger("0 0 1 1 *"))
        scheduler.schedule(work.record, name="next", **NEXT)
        scheduler.start()
        tell_when(lambda: scheduler.runs(job))
        scheduler.run_now(job)
    """,
}
ASYNC = {
    "in a block": """
        async def main():
            async with AsyncScheduler(STORE, **SETTINGS) as scheduler:
                jobs(scheduler.blocking)
                work.note("there")
                await asyncio.sleep(600)
    """,
    "without stop": """
        async def main():
            scheduler = AsyncScheduler(STORE, **SETTINGS)
            jobs(scheduler.blocking)
            await scheduler.start()
            work.note("there")
            await asyncio.sleep(600)
    """,
    "in stop": """
        async def main():
            scheduler = AsyncScheduler(STORE, **SETTINGS)
            jobs(scheduler.blocking)
            await scheduler.start()
            while not any(has_begun(job.id) for job in await scheduler.list_jobs() if job.name == "long"):
                await asyncio.sleep(0.01)
            runners = scheduler.blocking._runners
            tell_when(lambda: runners._stopping and runners._stopping.loop.is_stopping)
            await scheduler.stop()
    """,
    "in run_now": """
        async def main():
            scheduler = AsyncScheduler(STORE, **SETTINGS)
            job = await scheduler.schedule(work.record, name="long", args=[600], trigger=CronTrigger("0 0 1 1 *"))
            await scheduler.schedule(work.record, name="next", **NEXT)
            await scheduler.start()
            tell_when(lambda: scheduler.blocking.runs(job))
            await scheduler.run_now(job)
    """,
}
PROGRAMS = PLAIN | {f"async, {name}": text + "\n        asyncio.run(main())\n" for name, text in ASYNC.items()}


def script(text):
    """The head and a program, each indented as it is."""
    return (
        "\n".join(line.removeprefix("    ") for line in HEAD.splitlines())
        + "\n"
        + "\n".join(line.removeprefix("        ") for line in text.splitlines())
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_ctrl_c_ends_a_program_and_what_it_held_runs_elsewhere_at_once(site, name):
    program = site.script(script(PROGRAMS[name]))
    site.until(lambda: program.poll() is not None or site.journal.of("there"))
    long = site.job_named("long").id
    site.until(lambda: program.poll() is not None or site.journal.begins(long))
    # Python ends by the signal itself, as a shell expects, and long before what runs would have ended.
    site.end(program, signal.SIGINT, codes=(-signal.SIGINT,), seconds=30)
    shown = site.shown(program)
    assert shown.rstrip().endswith("KeyboardInterrupt"), shown
    assert "ignored" not in shown, shown
    assert "never" not in shown, shown
    site.may_complain = True  # there is a traceback, of the interrupt
    site.assert_nothing_is_held()
    [begun] = site.journal.begins(long)
    [left] = [one for one in site.scheduler.occurrences(long) if one.id == begun["occurrence"]]
    assert (str(left.phase), str(left.reason)) == ("pending", "lease_lost"), shown
    site.node(15.0)
    site.until(lambda: len(site.journal.begins(long)) == 2)
