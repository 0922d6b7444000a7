"""Processes that Python itself makes: forked and spawned, with a scheduler that was started before or is after."""

import pytest

from tests.soak import SCALE

FIRES = 3 * SCALE
JOBS = """
    import os, multiprocessing, sys, threading
    from noonmark import CronTrigger, Scheduler
    from tests.processes import work

    scheduler = Scheduler(os.environ["SITE_STORE"], lease=600)
    every = {"misfire": {"type": "catch_up_all", "limit": 1_000}, "overlap": "queue"}

    @scheduler.every(0.5, **every)
    def tick(context):
        work.record(context=context)

    def beat(context):
        work.record(context=context)

    scheduler.schedule(beat, name="beat", trigger=CronTrigger("* * * * * *"), **every)
    gone = os.environ["SITE_STORE"].removeprefix("sqlite:///") + ".gone"

    def serve():
        "Run what is due until there is a sign to end."
        scheduler.start()
        work.note("ready")
        while not os.path.exists(gone):
            threading.Event().wait(0.02)
        scheduler.stop()
        work.note("stopped")
"""
TOGETHER = """
    if __name__ == "__main__":
        context = multiprocessing.get_context({method!r})
        {before}
        children = [context.Process(target=serve) for _ in range(2)]
        for child in children:
            child.start()
        {after}
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [0, 0]
"""


def serve(site, count, jobs=2, fires=FIRES):
    """Wait for so many processes to run a few fires of both jobs between them, and for their end."""
    programs = list(site.processes)
    site.until(lambda: any(one.poll() for one in programs) or len(site.journal.of("ready")) == count)
    ids = site.fires(fires, ":tick", "beat")
    site.path.with_name("schedules.db.gone").touch()
    for program in programs:
        site.end(program)
    assert len(site.journal.of("stopped")) == count
    assert len(site.scheduler.list_jobs()) == jobs, "all of them declared the same jobs"
    site.assert_each_fire_ran_once(*ids)
    site.assert_nothing_is_held()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing_share_the_jobs_of_their_program(site, method):
    site.script(JOBS + TOGETHER.format(method=method, before="", after="serve()"))
    serve(site, 3)


def test_a_program_that_was_started_before_it_forks_goes_on_and_so_do_its_children(site):
    site.script(JOBS + TOGETHER.format(method="fork", before="scheduler.start()", after="serve()"))
    serve(site, 3)


def test_programs_that_declare_and_start_the_same_jobs_run_each_fire_once(site):
    for _ in range(3):
        site.script(JOBS + "\n    serve()\n")
    serve(site, 3, fires=10 * SCALE)  # one of the jobs fires every second


def test_a_child_can_do_everything_while_its_parent_is_at_work(site):
    """Forked again and again, while threads of the parent are inside the store and a run is in flight."""
    site.script(
        JOBS
        + """
    def edit():
        while not stopping.is_set():
            scheduler.schedule(beat, name="busy", trigger=CronTrigger("0 0 1 1 *"))
            scheduler.list_jobs()

    scheduler.start()
    stopping = threading.Event()
    threads = [threading.Thread(target=edit) for _ in range(2)]
    for thread in threads:
        thread.start()
    for n in range(5):
        if not (child := os.fork()):
            job = scheduler.schedule(os.getpid, function_name="pid", name=f"child-{n}")
            assert scheduler.run_now(job) == os.getpid()
            assert scheduler.get_job(job).run_count >= 1
            assert len(scheduler.list_jobs()) >= 3
            scheduler.start()
            scheduler.stop()
            work.note("child", job=job)
            sys.exit(n)  # not os._exit: its interpreter ends as that of any program
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == n, (n, status)
    stopping.set()
    for thread in threads:
        thread.join()
    serve()
    """
    )
    serve(site, 1, jobs=8)
    assert len(site.journal.of("child")) == 5
    assert site.sql("PRAGMA integrity_check") == [("ok",)]


def test_a_forked_child_that_ends_without_stop_hands_back_what_it_holds(site):
    script = site.script("""
        import multiprocessing, os, threading
        from noonmark import Scheduler
        from tests.processes import work

        scheduler = Scheduler(os.environ["SITE_STORE"], lease=600)

        def child():
            job = scheduler.schedule(work.record, args=[60])
            scheduler.start()
            while not scheduler.runs(job):
                threading.Event().wait(0.01)

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()
    """)
    site.end(script)
    site.assert_nothing_is_held()
    [job] = site.scheduler.list_jobs()
    [left] = site.scheduler.occurrences(job.id)
    assert (str(left.phase), str(left.reason)) == ("pending", "lease_lost")
