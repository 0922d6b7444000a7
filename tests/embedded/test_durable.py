"""Schedules in a file outlive the object, the process, and a process that is killed."""

import subprocess
import sys
import textwrap
import threading

import pytest

from noonmark import Conflict, InvalidSchedule, Scheduler
from tests.embedded.waiting import NEVER, SOON, ended, eventually, phases


@pytest.fixture
def open_scheduler(tmp_path):
    """Open schedulers on one file; all of them are stopped in the end."""
    collected = []

    def make(**settings):
        collected.append(Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}", **settings))
        return collected[-1]

    yield make
    for scheduler in collected:
        scheduler.stop(wait=False)


def script(tmp_path, text, name="program.py"):
    """Run a program in the folder of the database, to its end."""
    (tmp_path / name).write_text(textwrap.dedent(text), encoding="utf-8")
    return subprocess.run(
        [sys.executable, name], cwd=tmp_path, capture_output=True, text=True, timeout=2 * SOON, check=False
    )


def nothing():
    pass


def answer():
    return 42


class TestReferences:
    @pytest.mark.parametrize("what", ["lambda", "inner function", "method", "callable object"])
    def test_what_another_process_cannot_find_is_refused_with_advice(self, open_scheduler, what):
        def inner():
            pass

        class Callable:
            def __call__(self):
                pass

            def method(self):
                pass

        function = {
            "lambda": lambda: None,
            "inner function": inner,
            "method": Callable().method,
            "callable object": Callable(),
        }[what]
        with pytest.raises(InvalidSchedule, match=r"function_name=\.\.\. or register_function") as refused:
            open_scheduler().schedule(function, trigger=NEVER)
        assert refused.value.field == "func"

    def test_with_a_name_anything_will_do(self, open_scheduler):
        scheduler = open_scheduler()
        job = scheduler.schedule(lambda: 7, trigger=NEVER, function_name="seven")
        assert scheduler.run_now(job) == 7

    def test_a_registered_function_is_found_when_it_is_passed(self, open_scheduler):
        scheduler, seven = open_scheduler(), lambda: 7
        scheduler.register_function("seven", seven)
        assert scheduler.run_now(scheduler.schedule(seven, trigger=NEVER)) == 7


class TestRestarts:
    def test_a_schedule_outlives_the_one_that_made_it(self, open_scheduler):
        job = open_scheduler().schedule(nothing, name="report", trigger=NEVER)
        again = open_scheduler()
        assert phases(again, job) == ["pending"]
        assert again.schedule(nothing, name="report", trigger=NEVER) == job
        assert again._find(job).schedule.revision == 1

    def test_what_was_left_over_runs_after_the_restart(self, open_scheduler):
        ran = threading.Event()
        job = open_scheduler().schedule(ran.set, function_name="work")
        again = open_scheduler()
        with again:
            again.register_function("work", ran.set)
            assert ran.wait(SOON)
            assert ended(again, job) == ["completed"]

    def test_a_function_that_is_not_offered_is_left_to_others(self, open_scheduler):
        job = open_scheduler().schedule(lambda: 7, function_name="elsewhere")
        here = open_scheduler()
        with here:
            other = here.schedule(nothing)
            ended(here, other)
            assert phases(here, job) == ["pending"]

    def test_running_by_hand_what_nobody_here_can_run_is_refused_at_once(self, open_scheduler):
        job = open_scheduler().schedule(nothing, trigger=NEVER, function_name="only there")
        with pytest.raises(Conflict, match="function:only there cannot be run here"):
            open_scheduler().run_now(job)

    def test_results_are_kept(self, open_scheduler):
        first = open_scheduler()
        job = first.schedule(lambda: {"rows": 3}, trigger=NEVER, function_name="count")
        first.run_now(job)
        assert [run.result for run in open_scheduler().runs(job)] == [{"rows": 3}]

    def test_an_error_that_cannot_be_encoded_is_kept_anyway(self, open_scheduler):
        def fail():
            raise ValueError("a file named \udcff")

        scheduler = open_scheduler()
        job = scheduler.schedule(fail, trigger=NEVER, function_name="fail")
        with pytest.raises(ValueError, match="a file named"):
            scheduler.run_now(job)
        assert "\\udcff" in scheduler.runs(job)[0].error


class TestSeveral:
    def test_each_occurrence_is_run_by_one_of_them(self, open_scheduler):
        ran, lock = [], threading.Lock()

        def work(number):
            with lock:
                ran.append(number)

        schedulers = [open_scheduler() for _ in range(3)]
        for scheduler in schedulers:
            scheduler.register_function("work", work)
            scheduler.start()
        jobs = [schedulers[n % 3].schedule(work, args=[n]) for n in range(30)]
        for job in jobs:
            assert ended(schedulers[0], job) == ["completed"]
        assert sorted(ran) == list(range(30))

    def test_what_one_declares_another_runs(self, open_scheduler):
        ran = threading.Event()
        runner = open_scheduler()
        runner.register_function("work", ran.set)
        with runner:
            open_scheduler().schedule(lambda: None, function_name="work")
            assert ran.wait(SOON)


class TestPrograms:
    def test_a_program_that_leaves_without_stopping_hands_back_what_it_holds(self, tmp_path, open_scheduler):
        done = script(
            tmp_path,
            """
            import threading
            from noonmark import Scheduler

            entered = threading.Event()

            def work():
                entered.set()
                threading.Event().wait()

            scheduler = Scheduler("sqlite:///jobs.db")
            job = scheduler.schedule(work)
            scheduler.start()
            entered.wait()
            print(job)
            """,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert phases(open_scheduler(), done.stdout.strip()) == ["pending"]

    def test_an_interrupted_stop_hands_back_what_still_runs(self, tmp_path, open_scheduler):
        done = script(
            tmp_path,
            """
            import os, signal, threading
            from noonmark import Scheduler

            begun = threading.Event()

            def hang():
                begun.set()
                threading.Event().wait(60)

            scheduler = Scheduler("sqlite:///jobs.db", lease=600)
            print(scheduler.schedule(hang, function_name="hang"), flush=True)
            scheduler.start()
            begun.wait(30)
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            scheduler.stop()
            """,
        )
        assert "KeyboardInterrupt" in done.stderr
        [left] = open_scheduler().occurrences(done.stdout.strip())
        assert (str(left.phase), str(left.reason), left.attempt) == ("pending", "lease_lost", 0)

    def test_a_function_of_a_module_runs_in_another_process(self, tmp_path, open_scheduler):
        (tmp_path / "jobs.py").write_text("def work():\n    return 'from a module'\n", encoding="utf-8")
        declared = script(
            tmp_path,
            """
            import jobs
            from noonmark import Scheduler

            print(Scheduler("sqlite:///jobs.db").schedule(jobs.work))
            """,
        )
        job = declared.stdout.strip()
        assert (declared.returncode, declared.stderr) == (0, "")
        ran = script(
            tmp_path,
            f"""
            import threading
            from noonmark import Scheduler

            scheduler = Scheduler("sqlite:///jobs.db")
            with scheduler:
                while not scheduler.get_job("{job}").run_count:
                    threading.Event().wait(0.01)
            print(scheduler.runs("{job}")[0].result)
            """,
        )
        assert (ran.stdout, ran.stderr) == ("from a module\n", "")

    def test_a_program_that_was_killed_is_taken_over(self, tmp_path, open_scheduler):
        text = """
            import os, threading
            from noonmark import Scheduler

            def work():
                os._exit(9)

            scheduler = Scheduler("sqlite:///jobs.db", lease=2)
            print(scheduler.schedule(work, function_name="work"), flush=True)
            scheduler.start()
            threading.Event().wait()
            """
        killed = script(tmp_path, text)
        assert killed.returncode == 9
        job = killed.stdout.strip()
        scheduler = open_scheduler()
        scheduler.register_function("work", answer)
        with scheduler:
            assert ended(scheduler, job) == ["completed"]
        outcomes = eventually(lambda: [str(run.outcome) for run in scheduler.runs(job)])
        assert outcomes == ["completed", "lease_lost"]


def test_importing_the_scheduler_loads_nothing_heavy():
    text = "import sys; from noonmark import Scheduler; Scheduler(); print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.split()
    assert "noonmark.embedded" in loaded
    for heavy in ("pydantic", "sqlalchemy", "sqlite3", "click", "httpx2", "yaml", "cron_descriptor"):
        assert heavy not in loaded
