"""Functions in processes, as a program sees them: results, errors, scripts, and clean-up."""

import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from noonmark import InvalidSchedule, Retry, Scheduler
from noonmark.embedded.declarations import id_of_name
from tests.embedded.waiting import NEVER, SOON, ended, eventually
from tests.targets.function import worker_functions

GUARD = 'if __name__ == "__main__":'


@pytest.fixture
def scheduler(tmp_path):
    made = Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}", max_processes=2)
    yield made
    made.stop(wait=False)


def is_running(pid):
    """Whether a process is there, and more than its last trace."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def begun(folder):
    """Wait until the function has begun; gives the process that it runs in."""
    path = folder / "begun"
    eventually(path.exists)
    pid = int(path.read_text("utf-8"))
    path.unlink()
    return pid


def write(folder, text, name="program.py"):
    (folder / name).write_text(textwrap.dedent(text), encoding="utf-8")
    return [sys.executable, name]


def script(folder, text, name="program.py"):
    """Run a program to its end; gives what it printed."""
    command = write(folder, text, name)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=2 * SOON, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class TestRuns:
    def test_it_runs_in_another_process_when_it_is_due(self, scheduler):
        job = scheduler.schedule(worker_functions.whoami, executor="process")
        with scheduler:
            assert ended(scheduler, job) == ["completed"]
        [run] = scheduler.runs(job)
        assert run.result not in (None, os.getpid())

    def test_run_now_gives_its_result(self, scheduler):
        job = scheduler.schedule(math.factorial, args=[20], executor="process", trigger=NEVER)
        assert scheduler.run_now(job) == math.factorial(20)
        with scheduler:
            assert scheduler.run_now(job) == math.factorial(20)

    def test_run_now_gives_what_is_too_large_to_be_kept(self, scheduler):
        job = scheduler.schedule(worker_functions.returns, args=["big"], executor="process", trigger=NEVER)
        assert scheduler.run_now(job) == "x" * 1_000_000
        assert "1,000,002 bytes" in scheduler.runs(job)[0].error

    def test_run_now_gives_none_for_what_is_not_json(self, scheduler):
        job = scheduler.schedule(worker_functions.returns, args=["object"], executor="process", trigger=NEVER)
        assert scheduler.run_now(job) is None
        assert "not JSON" in scheduler.runs(job)[0].error

    @pytest.mark.parametrize(("how", "error"), [("value", ValueError), ("own", RuntimeError), ("exit", SystemExit)])
    def test_run_now_raises_what_it_raised(self, scheduler, how, error):
        never = Retry(1, not_on=BaseException)
        job = scheduler.schedule(worker_functions.fails, args=[how], executor="process", trigger=NEVER, retries=never)
        with pytest.raises(error) as caught:
            scheduler.run_now(job)
        assert type(caught.value) is error
        assert str(scheduler.runs(job)[0].outcome) == "failed"
        assert str(scheduler.occurrences(job)[-1].reason) == "not_retried"

    def test_a_crash_is_a_failure_that_is_tried_again(self, scheduler):
        job = scheduler.schedule(worker_functions.crashes, args=["segfault"], executor="process", retries=1)
        with scheduler:
            assert ended(scheduler, job) == ["failed"]
        assert [run.error for run in scheduler.runs(job)] == [
            "the process was killed by SIGSEGV before it answered"
        ] * 2

    def test_the_payload_reaches_it(self, scheduler):
        job = scheduler.schedule(worker_functions.told, executor="process", trigger=NEVER)
        assert scheduler.run_now(job, payload={"a": 1})["payload"] == {"a": 1}

    def test_a_registered_name_will_do(self, scheduler):
        scheduler.register_function("adding", worker_functions.add)
        job = scheduler.schedule(worker_functions.add, args=[1], executor="process", trigger=NEVER)
        named = scheduler.schedule(
            worker_functions.add, args=[2], function_name="two", executor="process", trigger=NEVER
        )
        assert [scheduler.run_now(one) for one in (job, named)] == [1, 2]

    @pytest.mark.parametrize("executor", ["process", "thread"])
    def test_declared_again_it_is_the_same(self, scheduler, executor):
        schedule = scheduler.schedule(worker_functions.add, args=[1], name="add", executor=executor, trigger=NEVER)
        assert (
            scheduler.schedule(worker_functions.add, args=[1], name="add", executor=executor, trigger=NEVER) == schedule
        )

    def test_timing_out_kills_it(self, scheduler, tmp_path):
        job = scheduler.schedule(
            worker_functions.hangs, args=[str(tmp_path)], executor="process", timeout=3, trigger=NEVER
        )
        with pytest.raises(TimeoutError):
            scheduler.run_now(job)
        assert not is_running(begun(tmp_path))

    def test_at_most_once_is_kept_when_it_is_handed_back(self, scheduler, tmp_path):
        job = scheduler.schedule(
            worker_functions.hangs, args=[str(tmp_path)], executor="process", delivery="at_most_once"
        )
        scheduler.start()
        pid = begun(tmp_path)
        scheduler.stop(wait=False)
        assert ended(scheduler, job) == ["delivery_failed"]
        eventually(lambda: not is_running(pid))

    def test_at_most_once_is_kept_when_it_is_killed(self, scheduler, tmp_path):
        job = scheduler.schedule(
            worker_functions.hangs, args=[str(tmp_path)], executor="process", delivery="at_most_once"
        )
        with scheduler:
            os.kill(begun(tmp_path), signal.SIGKILL)
            assert ended(scheduler, job) == ["delivery_failed"]
        assert len(scheduler.runs(job)) == 1


class TestRefusals:
    @pytest.mark.parametrize(
        ("function", "why"),
        [
            (lambda one: one, "cannot be imported"),
            (worker_functions.Adder().method, "cannot be imported"),
            (worker_functions.add_later, "async"),
        ],
    )
    def test_what_cannot_be_called_there_is_refused_at_once(self, scheduler, function, why):
        with pytest.raises(InvalidSchedule, match=why) as caught:
            scheduler.schedule(function, args=[1], function_name="f", executor="process")
        assert caught.value.field == "executor"

    def test_there_are_two_places_only(self, scheduler):
        with pytest.raises(InvalidSchedule) as caught:
            scheduler.schedule(worker_functions.whoami, executor="fibre")
        assert caught.value.field == "executor"


class TestStopping:
    def test_stop_waits_for_it(self, scheduler, tmp_path):
        job = scheduler.schedule(
            worker_functions.meets, args=[str(tmp_path / "begun"), str(tmp_path / "go")], executor="process"
        )
        scheduler.start()
        pid = begun(tmp_path)
        stopping = threading.Thread(target=scheduler.stop)
        stopping.start()
        eventually(lambda: scheduler._runners.current is None)
        worker_functions.touch(tmp_path / "go")
        stopping.join(SOON)
        assert not stopping.is_alive()
        assert ended(scheduler, job) == ["completed"]
        eventually(lambda: not is_running(pid))

    def test_without_waiting_it_is_killed_and_handed_back(self, scheduler, tmp_path):
        job = scheduler.schedule(worker_functions.hangs, args=[str(tmp_path)], executor="process")
        scheduler.start()
        first = begun(tmp_path)
        scheduler.stop(wait=False)
        eventually(lambda: not is_running(first))
        assert [str(one.phase) for one in scheduler.occurrences(job)] == ["pending"]
        scheduler.start()
        second = begun(tmp_path)
        assert second != first
        scheduler.stop(timeout=0.01)
        eventually(lambda: not is_running(second))

    def test_closing_leaves_no_process(self, scheduler):
        job = scheduler.schedule(worker_functions.whoami, executor="process")
        scheduler.start()
        ended(scheduler, job)
        pid = scheduler.runs(job)[0].result
        scheduler.close()
        eventually(lambda: not is_running(pid))


PROGRAM = """
import threading
from noonmark import IntervalTrigger, Scheduler

def double(number):
    return 2 * number

"""


class TestScripts:
    def test_a_function_of_the_program_itself_is_found(self, tmp_path):
        text = f"""{PROGRAM}
{GUARD}
    scheduler = Scheduler("sqlite:///jobs.db")
    print(scheduler.run_now(scheduler.schedule(double, args=[21], name="double", executor="process")))
"""
        assert script(tmp_path, text) == "42\n"

    def test_so_is_one_of_a_package_that_is_run(self, tmp_path):
        package = tmp_path / "package"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "sums.py").write_text("def twice(number): return 2 * number\n", encoding="utf-8")
        text = f"""
from noonmark import Scheduler
from package.sums import twice

def double(number):
    return twice(number)

{GUARD}
    scheduler = Scheduler()
    print(scheduler.run_now(scheduler.schedule(double, args=[21], executor="process")))
"""
        (package / "__main__.py").write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "package"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=2 * SOON, check=False)
        assert (done.stdout, done.returncode) == ("42\n", 0), done.stderr

    @pytest.mark.parametrize("how", ["started", "run now"])
    def test_a_program_without_a_guard_is_reported(self, tmp_path, how):
        starts = "scheduler.start()" if how == "started" else "scheduler.run_now(job)"
        text = f"""{PROGRAM}
print("loaded as", __name__)
scheduler = Scheduler("sqlite:///jobs.db")
job = scheduler.schedule(double, args=[21], name="double", executor="process")
{starts}
while not any(run.ended for run in scheduler.runs(job)):
    threading.Event().wait(0.01)
scheduler.stop()
"""
        command = write(tmp_path, text)
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=2 * SOON, check=False)
        assert done.stdout == "loaded as __main__\nloaded as __mp_main__\n"
        [run] = Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}").runs(id_of_name("local", "double"))
        assert str(run.outcome) == "delivery_failed"
        assert 'put what does so under `if __name__ == "__main__":`' in run.error

    def test_what_the_program_is_started_with_need_not_be_guarded_if_its_functions_are_elsewhere(self, tmp_path):
        (tmp_path / "jobs.py").write_text("def double(number): return 2 * number\n", encoding="utf-8")
        text = """
        import jobs
        from noonmark import Scheduler

        scheduler = Scheduler()
        print(scheduler.run_now(scheduler.schedule(jobs.double, args=[21], executor="process")))
        """
        assert script(tmp_path, text) == "42\n"

    @pytest.mark.parametrize("errand", ["hangs", "clings"])
    @pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
    def test_a_program_that_is_killed_leaves_no_process_behind(self, tmp_path, errand, how):
        root = Path(__file__).parents[2]
        text = f"""
        import sys, threading
        sys.path.insert(0, {str(root)!r})
        from noonmark import Scheduler
        from tests.targets.function import worker_functions

        scheduler = Scheduler()
        scheduler.schedule(worker_functions.{errand}, args=["."], executor="process")
        scheduler.start()
        threading.Event().wait()
        """
        program = subprocess.Popen(write(tmp_path, text), cwd=tmp_path)
        try:
            pid = begun(tmp_path)
            program.send_signal(how)
            assert program.wait(SOON) == -how
        finally:
            program.kill()
            program.wait()
        eventually(lambda: not is_running(pid))

    def test_ctrl_c_is_for_the_program_alone(self, tmp_path):
        root = Path(__file__).parents[2]
        text = f"""
        import sys, threading
        sys.path.insert(0, {str(root)!r})
        from noonmark import Scheduler
        from tests.targets.function import worker_functions

        scheduler = Scheduler()
        job = scheduler.schedule(worker_functions.meets, args=["begun", "go on"], executor="process")
        scheduler.start()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            worker_functions.touch("interrupted")
            scheduler.stop()
        print(scheduler.runs(job)[0].outcome)
        """
        program = subprocess.Popen(
            write(tmp_path, text), cwd=tmp_path, start_new_session=True, stdout=subprocess.PIPE, text=True
        )
        try:
            begun(tmp_path)
            os.killpg(program.pid, signal.SIGINT)  # as a terminal does
            eventually((tmp_path / "interrupted").exists)
            worker_functions.touch(tmp_path / "go on")
            assert program.communicate(timeout=SOON)[0] == "completed\n"
        finally:
            program.kill()
            program.wait()
