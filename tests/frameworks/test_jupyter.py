"""A notebook: a real kernel, in which cells are run, changed, run again and interrupted."""

import json
import os
import sys
import textwrap
from contextlib import contextmanager

import pytest

from tests.frameworks.site import ROOT
from tests.processes.fleet import PATIENCE

pytest.importorskip("ipykernel")
manager = pytest.importorskip("jupyter_client.manager")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


class Notebook:
    """Cells, run one after another in a kernel."""

    def __init__(self, kernel, client):
        self._kernel, self._client = kernel, client

    def run(self, text, *, interrupt_at=None):
        """Run a cell; what it printed. With `interrupt_at`, press the stop button when it has printed that."""
        request = self._client.execute(textwrap.dedent(text), store_history=True)
        printed, error = "", None
        while True:
            message = self._client.get_iopub_msg(timeout=PATIENCE)
            if message["parent_header"].get("msg_id") != request:
                continue
            content = message["content"]
            if message["msg_type"] == "stream":
                printed += content["text"]
                if interrupt_at is not None and interrupt_at in printed:
                    interrupt_at = None
                    self._kernel.interrupt_kernel()
            elif message["msg_type"] == "error":
                error = content["ename"]
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                return printed, error

    def value(self, expression):
        """A JSON value of the kernel."""
        printed, error = self.run(f"import json; print(json.dumps({expression}))")
        assert error is None, printed
        return json.loads(printed)


@contextmanager
def started(folder):
    kernel, client = manager.start_new_kernel(
        startup_timeout=PATIENCE,
        cwd=str(folder),
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "IPYTHONDIR": str(folder)},
    )
    try:
        yield Notebook(kernel, client)
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)


@pytest.fixture
def notebook(tmp_path):
    with started(tmp_path) as notebook:
        yield notebook


SETUP = """
    import threading
    from noonmark import AsyncScheduler, CronTrigger, Scheduler

    # Fires of a machine that was busy are not missed, as that would be said in the cell.
    every = {"misfire": "catch_up_all", "overlap": "queue"}

    def until(holds):
        while not holds():
            threading.Event().wait(0.01)
"""
FIRST = """
    scheduler = Scheduler({store!r})

    @scheduler.every(0.1, **every)
    def tick():
        return "first"

    scheduler.start()
    until(lambda: scheduler.get_job(tick.job_id).last_result == "first")
    print(tick.job_id)
"""
CHANGED = """
    @scheduler.cron("* * * * * *", **every)
    def tick():
        return "second"

    until(lambda: scheduler.get_job(tick.job_id).last_result == "second")
    print(tick.job_id)
"""


@pytest.mark.parametrize("store", ["memory://", "sqlite:///notebook.db"])
def test_a_cell_that_is_run_again_changes_the_job(notebook, store):
    notebook.run(SETUP)
    first = notebook.run(FIRST.format(store=store))
    assert first[1] is None, first
    assert notebook.run(CHANGED) == first, "it is the same job"
    assert notebook.value("[job.trigger.to_document()['type'] for job in scheduler.list_jobs()]") == ["cron"]
    assert notebook.value("scheduler._find(tick.job_id).schedule.revision") == 2
    assert notebook.run(CHANGED) == first
    assert notebook.value("scheduler._find(tick.job_id).schedule.revision") == 2, "the same again changes nothing"
    stopped = notebook.run("scheduler.stop(); scheduler.start(); scheduler.close()")
    assert stopped == ("", None)


def test_a_cell_that_makes_the_scheduler_again_runs_the_new_function_only(notebook):
    cell = """
        scheduler = Scheduler("sqlite:///notebook.db")

        @scheduler.every(0.05, **every)
        def tick():
            ran.append("{body}")

        scheduler.start()
        until(lambda: ran.count("{body}") >= 3)
    """
    notebook.run(SETUP + "\n    ran = []")
    for body in ("first", "second", "third"):
        assert notebook.run(cell.format(body=body)) == ("", None)
    notebook.run("begin = len(ran)")
    notebook.run("until(lambda: len(ran) > begin + 20)")
    assert set(notebook.value("ran[begin:]")) == {"third"}
    assert notebook.value("len(scheduler.list_jobs())") == 1
    ran = notebook.value("[run.occurrence_id for run in scheduler.runs(tick.job_id)]")
    assert len(ran) == len(set(ran)), "however many schedulers there are, each fire runs once"


def test_an_async_scheduler_uses_the_loop_of_the_kernel(notebook):
    notebook.run(SETUP)
    printed = notebook.run("""
        import asyncio

        loops = []
        scheduler = AsyncScheduler("sqlite:///notebook.db")

        async def work(context):
            loops.append(asyncio.get_running_loop())
            return context.payload

        await scheduler.start()
        every_second = CronTrigger("* * * * * *")
        job = await scheduler.schedule(
            work, name="work", trigger=every_second, misfire="catch_up_all", overlap="allow"
        )
        print(await scheduler.run_now(job, payload=7))
        print(loops[0] is asyncio.get_running_loop())
    """)
    assert printed == ("7\nTrue\n", None)
    # Between two cells, the loop goes on.
    waited = notebook.run("""
        import asyncio

        while len(loops) < 3:
            await asyncio.sleep(0.01)
        await scheduler.stop()
        print([job.status.value for job in await scheduler.list_jobs()])
    """)
    assert waited == ("['pending']\n", None)


def test_a_cell_that_is_interrupted_hands_back_what_runs(notebook):
    notebook.run(SETUP)
    notebook.run("""
        scheduler = Scheduler("sqlite:///notebook.db", lease=600)
        begun, leave = threading.Semaphore(0), threading.Event()

        def work():
            begun.release()
            leave.wait()
            return "done"

        job = scheduler.schedule(work, name="work")
        scheduler.start()
        begun.acquire()
    """)
    # The output of a thread belongs to the cell that started it.
    stopped = notebook.run(
        """
        def tell():
            until(lambda: scheduler._runners._stopping and scheduler._runners._stopping.loop.is_stopping)
            print("stopping", flush=True)

        threading.Thread(target=tell).start()
        scheduler.stop()
        """,
        interrupt_at="stopping",
    )
    assert stopped[1] == "KeyboardInterrupt"
    [left] = notebook.value("[[one.phase, one.reason] for one in scheduler.occurrences(job)]")
    assert left == ["pending", "lease_lost"]
    again = notebook.run("scheduler.start(); leave.set(); begun.acquire(); scheduler.stop()")
    assert again == ("", None)
    assert notebook.value("scheduler.get_job(job).last_result") == "done"
    waiting = notebook.run(
        """
        def tell():
            begun.acquire()
            print("running", flush=True)

        leave.clear()
        threading.Thread(target=tell).start()
        scheduler.run_now(job)
        """,
        interrupt_at="running",
    )
    assert waiting[1] == "KeyboardInterrupt"
    newest, _ = notebook.value("[[one.phase, one.reason] for one in scheduler.occurrences(job)]")
    assert newest == ["pending", "lease_lost"], "nobody runs it any more"
    notebook.run("leave.set()")
