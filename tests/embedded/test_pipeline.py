"""Pipelines: stages one after another, functions of a stage side by side, and failures."""

import asyncio
import logging
import subprocess
import sys
import textwrap
import threading
from contextlib import suppress

import pytest

from noonmark import (
    AsyncScheduler,
    Conflict,
    InvalidSchedule,
    JobPipeline,
    NoonmarkError,
    PipelineError,
    Progress,
    Scheduler,
)
from tests.embedded.waiting import NEVER, SOON, Gate, eventually, phases


def one():
    return 1


def two():
    return 2


async def three():
    await asyncio.wait_for(asyncio.to_thread(one), SOON)
    return 3


def fail():
    raise KeyError("missing")


async def fail_later():
    raise ValueError("later")


@pytest.fixture(params=["not started", "started"])
def either(request, keeper):
    """A scheduler on each kind of store, started or not."""
    if request.param == "started":
        keeper.start()
    return keeper


@pytest.fixture
def memory():
    scheduler = Scheduler()
    yield scheduler
    scheduler.stop(wait=False)


class TestResults:
    def test_they_are_given_by_stage_in_the_order_of_the_functions(self, either):
        pipeline = JobPipeline(either).add_stage(one, three, two).add_stage(three).add_stage(two, two)
        assert pipeline.run_sync() == [[1, 3, 2], [3], [2, 2]]

    def test_it_can_be_awaited_too(self, either):
        assert asyncio.run(JobPipeline(either).add_stage(one, three).add_stage(two).run()) == [[1, 3], [2]]

    def test_it_can_be_run_again_and_extended(self, either):
        pipeline = JobPipeline(either).add_stage(one)
        assert [pipeline.run_sync(), pipeline.run_sync()] == [[[1]], [[1]]]
        assert pipeline.add_stage(two).run_sync() == [[1], [2]]

    def test_an_empty_one_has_no_results(self, either):
        assert JobPipeline(either).run_sync() == []
        assert asyncio.run(JobPipeline(either).run()) == []

    def test_in_memory_they_are_the_very_things_that_were_returned(self, memory):
        thing = object()
        assert JobPipeline(memory).add_stage(lambda: thing).run_sync() == [[thing]]

    def test_what_ran_is_in_the_ledger(self, either):
        JobPipeline(either).add_stage(one, two, name="first").add_stage(one).run_sync()
        jobs = either.list_jobs("cancelled")
        assert [job.labels["stage"] for job in jobs] == ["first", "first", "1"]
        assert [phases(either, job) for job in jobs] == [["completed"]] * 3
        assert len({job.labels["pipeline"] for job in jobs}) == 1
        assert [job.last_result for job in jobs] == [1, 2, 1]

    def test_no_jobs_are_left(self, either):
        schedule = either.schedule(one, name="mine", trigger=NEVER)
        JobPipeline(either).add_stage(one, two).add_stage(one).run_sync()
        with pytest.raises(PipelineError):
            JobPipeline(either).add_stage(fail, one).run_sync()
        assert [job.id for job in either.list_jobs()] == [schedule]

    def test_a_function_learns_about_its_run(self, memory):
        [[seen]] = JobPipeline(memory).add_stage(lambda context: context.occurrence_id).run_sync()
        assert seen.startswith("occ_")


class TestOrder:
    @pytest.mark.parametrize("count", [2, 40])
    def test_the_functions_of_a_stage_run_side_by_side(self, memory, count):
        barrier = threading.Barrier(count)
        results = JobPipeline(memory).add_stage(*[lambda: barrier.wait(SOON)] * count).run_sync()
        assert sorted(results[0]) == list(range(count))

    def test_a_stage_begins_when_the_one_before_has_ended(self, memory):
        ended, gate = [], threading.Event()

        def slow():
            gate.wait(SOON)
            ended.append("slow")

        def quick():
            ended.append("quick")
            gate.set()

        results = JobPipeline(memory).add_stage(slow, quick).add_stage(lambda: list(ended)).run_sync()
        assert results[1] == [["quick", "slow"]]

    def test_hundreds_in_a_stage(self, keeper):
        [results] = JobPipeline(keeper).add_stage(*[one] * 300).run_sync()
        assert results == [1] * 300


class TestFailures:
    @pytest.mark.parametrize("named", [True, False])
    def test_no_later_stage_begins_and_the_stage_is_reported(self, either, named):
        ran = []
        either.register_function("never", lambda: ran.append(1))
        never = either._functions.find("never").call
        name = "second" if named else None
        pipeline = JobPipeline(either).add_stage(one).add_stage(two, fail, name=name).add_stage(never)
        with pytest.raises(PipelineError) as raised:
            pipeline.run_sync()
        assert raised.value.stage == ("second" if named else 1)
        [error] = raised.value.errors
        assert isinstance(error, KeyError)
        assert isinstance(raised.value, NoonmarkError)
        assert raised.value.code == "pipeline_failed"
        assert raised.value.message == f"stage {raised.value.stage!r} failed (KeyError: 'missing')"
        assert ran == []

    def test_all_errors_of_a_stage_are_reported_in_order(self, memory):
        with pytest.raises(PipelineError, match=r"KeyError: 'missing', and 1 more") as raised:
            asyncio.run(JobPipeline(memory).add_stage(fail, one, fail_later).run())
        assert [type(error) for error in raised.value.errors] == [KeyError, ValueError]
        assert raised.value.__cause__ is raised.value.errors[0]

    def test_the_others_of_the_stage_finish(self, memory):
        finished, failed = threading.Event(), threading.Event()

        def fail_first():
            failed.set()
            raise ValueError

        def slow():
            failed.wait(SOON)
            threading.Event().wait(0.1)
            finished.set()

        with pytest.raises(PipelineError):
            JobPipeline(memory).add_stage(fail_first, slow).run_sync()
        assert finished.is_set()

    @pytest.mark.parametrize("error", [SystemExit(3), StopIteration(1), KeyboardInterrupt(), asyncio.CancelledError()])
    def test_nothing_that_is_raised_ends_the_program(self, memory, error):
        def leave():
            raise error

        with pytest.raises(PipelineError) as raised:
            JobPipeline(memory).add_stage(leave).run_sync()
        assert raised.value.errors == [error]

    def test_it_can_be_run_again_after_a_failure(self, memory):
        answers = [ValueError("once"), 7]

        def work():
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        pipeline = JobPipeline(memory).add_stage(work)
        with pytest.raises(PipelineError):
            pipeline.run_sync()
        assert pipeline.run_sync() == [[7]]


class TestProgress:
    def test_every_function_that_ends_is_reported(self, either):
        seen = []
        pipeline = JobPipeline(either, on_progress=seen.append).add_stage(one, two, name="first").add_stage(three)
        pipeline.run_sync()
        assert seen == [Progress("first", 1, 2), Progress("first", 2, 2), Progress(1, 1, 1)]

    def test_failures_are_progress_too(self, memory):
        seen = []
        with pytest.raises(PipelineError):
            JobPipeline(memory, seen.append).add_stage(one, fail).add_stage(two).run_sync()
        assert seen == [Progress(0, 1, 2), Progress(0, 2, 2)]

    def test_a_callback_that_raises_breaks_nothing(self, either, caplog):
        def complain(progress):
            raise RuntimeError("mine")

        with caplog.at_level(logging.ERROR):
            assert JobPipeline(either, complain).add_stage(one, two).add_stage(three).run_sync() == [[1, 2], [3]]
        assert "on_progress failed" in caplog.text


class TestRefusals:
    def test_a_stage_without_functions(self, memory):
        with pytest.raises(InvalidSchedule, match="at least one function"):
            JobPipeline(memory).add_stage()

    @pytest.mark.parametrize("bad", [5, "one", None, [one]])
    def test_an_invalid_function(self, memory, bad):
        with pytest.raises(InvalidSchedule, match="must be callable"):
            JobPipeline(memory).add_stage(one, bad)

    @pytest.mark.parametrize("name", ["", 5, "a\nb", "x" * 501])
    def test_a_name_that_is_none(self, memory, name):
        with pytest.raises(InvalidSchedule) as refused:
            JobPipeline(memory).add_stage(one, name=name)
        assert refused.value.field == "name"

    def test_a_function_that_needs_arguments_is_refused_before_anything_runs(self, memory):
        ran = []
        pipeline = JobPipeline(memory).add_stage(lambda: ran.append(1)).add_stage(lambda rows: rows)
        with pytest.raises(InvalidSchedule, match="missing a required argument: 'rows'"):
            pipeline.run_sync()
        assert ran == []

    def test_on_a_file_what_cannot_be_found_again_is_refused_before_anything_runs(self, open_on_file):
        scheduler = open_on_file()
        pipeline = JobPipeline(scheduler).add_stage(one).add_stage(lambda: 2)
        with pytest.raises(InvalidSchedule, match=r"function_name=\.\.\. or register_function"):
            pipeline.run_sync()
        assert scheduler.list_jobs() == []

    def test_a_closed_scheduler(self, memory):
        pipeline = JobPipeline(memory).add_stage(one)
        memory.close()
        with pytest.raises(Conflict, match="closed"):
            pipeline.run_sync()


class TestStopping:
    def test_a_waiting_caller_gets_an_error_and_no_later_stage_begins(self, keeper):
        gate, ran, collected = Gate(), threading.Event(), []
        keeper.register_function("gate", gate)
        keeper.register_function("ran", ran.set)
        pipeline = JobPipeline(keeper).add_stage(gate, one).add_stage(keeper._functions.find("ran").call)

        def wait():
            try:
                collected.append(pipeline.run_sync())
            except Conflict as error:
                collected.append(error.message)

        keeper.start()
        waiting = threading.Thread(target=wait)
        waiting.start()
        gate.wait()
        keeper.stop(wait=False)
        waiting.join(SOON)
        [message] = collected
        assert message.startswith("the scheduler was stopped")
        gate.opened.set()
        keeper.start()
        eventually(lambda: not keeper.list_jobs("running"))
        assert (ran.is_set(), gate.runs, keeper.list_jobs("pending")) == (False, 1, [])

    def test_a_stop_that_waits_lets_the_stage_end(self, memory):
        gate, collected = Gate(), []

        def wait():
            try:
                collected.append(JobPipeline(memory).add_stage(gate).add_stage(one).run_sync())
            except Conflict as error:
                collected.append(type(error))

        memory.start()
        waiting = threading.Thread(target=wait)
        waiting.start()
        gate.wait()
        stopping = threading.Thread(target=memory.stop)
        stopping.start()
        gate.opened.set()
        stopping.join(SOON)
        waiting.join(SOON)
        assert collected == [Conflict]
        ended_job, *_ = memory.list_jobs("cancelled")
        assert phases(memory, ended_job) == ["completed"]

    def test_one_that_is_given_up_begins_no_later_stage(self, memory):
        gate, ran = Gate(), threading.Event()
        others = set(threading.enumerate())  # of other tests in this process

        async def main():
            running = asyncio.ensure_future(JobPipeline(memory).add_stage(gate).add_stage(ran.set).run())
            await asyncio.to_thread(gate.wait)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            gate.opened.set()

        asyncio.run(main())
        gate.wait_for_end()
        eventually(lambda: not any(one.name == "noonmark-call" for one in {*threading.enumerate()} - others))
        assert not ran.is_set()


class TestOnALoop:
    @pytest.mark.parametrize("is_started", [False, True], ids=["not started", "started"])
    def test_async_functions_run_on_the_loop_of_the_program(self, url, is_started):
        async def main():
            scheduler = AsyncScheduler(url)
            if is_started:
                await scheduler.start()
            here = id(asyncio.get_running_loop())

            async def where():
                return id(asyncio.get_running_loop()) == here

            await scheduler.register_function("where", where)
            answers = await asyncio.wait_for(JobPipeline(scheduler).add_stage(where, one).add_stage(where).run(), SOON)
            await scheduler.close()
            return answers

        assert asyncio.run(main()) == [[True, 1], [True]]

    def test_run_sync_refuses_to_block_the_loop(self):
        async def main():
            scheduler = AsyncScheduler()
            pipeline = JobPipeline(scheduler).add_stage(one)
            for is_started in (False, True):
                if is_started:
                    await scheduler.start()
                await pipeline.run()
                with pytest.raises(Conflict, match="cannot wait"):
                    pipeline.run_sync()
            await scheduler.close()

        asyncio.run(asyncio.wait_for(main(), SOON))

    def test_many_at_once_and_inside_each_other(self):
        async def main():
            scheduler = AsyncScheduler()
            await scheduler.start()

            async def nested():
                return await JobPipeline(scheduler).add_stage(three).run()

            pipelines = [JobPipeline(scheduler).add_stage(nested, one) for _ in range(20)]
            answers = await asyncio.wait_for(asyncio.gather(*(one.run() for one in pipelines)), SOON)
            await scheduler.close()
            return answers

        assert asyncio.run(main()) == [[[[[3]], 1]]] * 20


class TestTwoProcesses:
    def test_another_one_on_the_file_may_do_some_of_the_work(self, tmp_path):
        """The results are the same, whoever ran what; a failure elsewhere says what was raised there."""
        (tmp_path / "stages.py").write_text(
            "import os\n\ndef work():\n    return 'done'\n\ndef fail():\n    raise ValueError('mine')\n",
            encoding="utf-8",
        )
        program = """
            import sys, threading
            import stages
            from noonmark import JobPipeline, PipelineError, Scheduler

            scheduler = Scheduler("sqlite:///shared.db")
            scheduler.start()
            print("ready", flush=True)
            sys.stdin.readline()
            for _ in range(3):
                results = JobPipeline(scheduler).add_stage(*[stages.work] * 20).add_stage(stages.work).run_sync()
                assert results == [["done"] * 20, ["done"]], results
            try:
                JobPipeline(scheduler).add_stage(*[stages.fail] * 10).run_sync()
            except PipelineError as error:
                assert len(error.errors) == 10
                for one in error.errors:
                    assert "ValueError: mine" in str(one) or str(one) == "mine", one
            sys.stdin.readline()
            scheduler.stop()
            """
        (tmp_path / "program.py").write_text(textwrap.dedent(program), encoding="utf-8")
        command = [sys.executable, "program.py"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        programs = [subprocess.Popen(command, cwd=tmp_path, text=True, **pipes) for _ in range(2)]
        assert [program.stdout.readline() for program in programs] == ["ready\n"] * 2
        for program in programs:
            program.stdin.write("go\n\n")
            program.stdin.flush()
        for program in programs:
            _, errors = program.communicate(timeout=2 * SOON)
            assert (program.returncode, "Traceback" in errors.replace("ValueError: mine", "")) in {
                (0, False),
                (0, True),
            }
        reader = Scheduler(f"sqlite:///{tmp_path / 'shared.db'}")
        jobs = reader.list_jobs("cancelled")
        assert len(jobs) == 2 * (3 * 21 + 10)
        assert len({run.node for job in jobs for run in reader.runs(job.id)}) == 2
        reader.close()


def suppressed(call, *words):
    """Call something whose failure is not the matter."""
    with suppress(NoonmarkError):
        call(*words)


class TestNamed:
    """A pipeline with a name is a workflow."""

    def test_it_gives_the_same_and_tells_the_same(self, either):
        seen = []
        pipeline = JobPipeline(either, seen.append, name="etl").add_stage(one, three, one, name="first").add_stage(two)
        assert pipeline.run_sync() == [[1, 3, 1], [2]]
        assert asyncio.run(pipeline.run()) == [[1, 3, 1], [2]]
        assert seen[-4:] == [*(Progress("first", number, 3) for number in (1, 2, 3)), Progress(1, 1, 1)]
        assert (either.list_jobs(), [job.version for job in either.workflows()]) == ([], [1])
        run, _ = either.workflow_runs("etl")
        assert [step.step_id for step in either.workflow_run(run.id).steps] == [
            *("first-one", "first-three", "first-one--2", "1-two")
        ]
        assert JobPipeline(either, name="empty").run_sync() == []

    def test_a_failure_is_told_in_the_same_way(self, either):
        pipeline = JobPipeline(either, name="etl").add_stage(one).add_stage(two, fail, fail_later).add_stage(three)
        with pytest.raises(PipelineError, match=r"KeyError: 'missing', and 1 more") as raised:
            pipeline.run_sync()
        assert (raised.value.stage, [type(error) for error in raised.value.errors]) == (1, [KeyError, ValueError])
        [run] = either.workflow_runs("etl")
        phases = {step.step_id: str(step.phase) for step in either.workflow_run(run.id).steps}
        assert phases == {
            "0-one": "completed",
            "1-two": "completed",
            "1-fail": "failed",
            "1-fail_later": "failed",
            "2-three": "skipped",
        }

    def test_one_that_is_given_up_is_cancelled(self, memory):
        gate, ran = Gate(), threading.Event()
        pipeline = JobPipeline(memory, name="etl").add_stage(gate).add_stage(ran.set)

        async def main():
            running = asyncio.ensure_future(pipeline.run())
            await asyncio.to_thread(gate.wait)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

        asyncio.run(main())
        gate.wait_for_end()
        [run] = eventually(lambda: [run for run in memory.workflow_runs("etl") if run.ended])
        assert (str(run.phase), gate.stops, ran.is_set()) == ("cancelled", 1, False)

    def test_one_that_is_given_up_before_it_is_looked_at_is_cancelled(self, memory):
        gate, given_up = Gate(), threading.Event()
        given_up.set()
        pipeline = JobPipeline(memory, name="etl").add_stage(gate)
        waiting = threading.Thread(target=suppressed, args=(pipeline._run, given_up), daemon=True)
        waiting.start()
        [run] = eventually(lambda: [run for run in memory.workflow_runs("etl") if run.ended])
        waiting.join(SOON)
        assert (str(run.phase), gate.stops) == ("cancelled", gate.runs)

    def test_it_is_scheduled(self, keeper):
        pipeline = JobPipeline(keeper, name="etl").add_stage(one, two).add_stage(three)
        job = pipeline.daily("09:00", "Europe/Stockholm", labels={"team": "data"})
        assert pipeline.schedule(NEVER, labels={"team": "data"}) == job
        assert (keeper.get_job(job).name, keeper.get_job(job).labels) == ("etl", {"team": "data"})
        assert keeper.run_now(job) == {"0-one": 1, "0-two": 2, "1-three": 3}
        with pytest.raises(InvalidSchedule, match="only a pipeline with a name"):
            JobPipeline(keeper).add_stage(one).daily("09:00")

    @pytest.mark.parametrize("name", ["", "a b", 5])
    def test_a_name_that_is_no_id(self, memory, name):
        with pytest.raises(InvalidSchedule) as refused:
            JobPipeline(memory, name=name)
        assert refused.value.field == "name"

    def test_a_function_that_needs_arguments_is_refused(self, memory):
        with pytest.raises(InvalidSchedule, match="missing a required argument: 'rows'"):
            JobPipeline(memory, name="etl").add_stage(lambda rows: rows).run_sync()

    def test_another_process_goes_on_after_it_was_killed(self, tmp_path, monkeypatch):
        """What had ended is not repeated, and the stages that had not begun follow."""
        (tmp_path / "durable_stages.py").write_text(
            textwrap.dedent(
                """
                import os, signal
                from pathlib import Path

                HERE = Path(__file__).parent

                def note(name):
                    with (HERE / "ran").open("a") as file:
                        file.write(name + "\\n")
                    return name

                def first():
                    return note("first")

                def second():
                    if not (HERE / "killed").exists():
                        (HERE / "killed").touch()
                        os.kill(os.getpid(), signal.SIGKILL)
                    return note("second")

                def third():
                    return note("third")

                if __name__ == "__main__":
                    import durable_stages as stages
                    from noonmark import JobPipeline, Scheduler

                    scheduler = Scheduler("sqlite:///shared.db", lease=1)
                    JobPipeline(scheduler, name="etl").add_stage(stages.first).add_stage(stages.second).add_stage(
                        stages.third
                    ).run_sync()
                """
            ),
            encoding="utf-8",
        )
        program = subprocess.run([sys.executable, "durable_stages.py"], cwd=tmp_path, check=False, timeout=2 * SOON)
        assert program.returncode == -9
        monkeypatch.syspath_prepend(tmp_path)
        with Scheduler(f"sqlite:///{tmp_path / 'shared.db'}", lease=1) as other:
            [run] = eventually(lambda: [run for run in other.workflow_runs("etl") if run.ended])
            assert other.workflow_run(run.id).result == {"0-first": "first", "1-second": "second", "2-third": "third"}
        other.close()
        assert (tmp_path / "ran").read_text(encoding="utf-8").split() == ["first", "second", "third"]


def test_a_stage_is_no_schedule_that_comes_again(memory):
    JobPipeline(memory).add_stage(one).run_sync()
    [job] = memory.list_jobs("cancelled")
    assert (memory.list_jobs(), job.next_run, phases(memory, job.id)) == ([], None, ["completed"])
    assert memory.preview(NEVER, 1) != []


KILLED = """
    import os, signal, sys
    from noonmark import JobPipeline, Scheduler

    def quick():
        pass

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def never():
        print("later stage")

    scheduler = Scheduler(sys.argv[1], lease=0.2)
    for function in (quick, die, never):
        scheduler.register_function(function.__name__, function)
    scheduler.schedule(quick, name="mine", trigger=None)
    JobPipeline(scheduler).add_stage(quick, die).add_stage(never).run_sync()
"""


def test_what_a_killed_process_leaves_is_deleted_by_the_next_one(tmp_path):
    store = f"sqlite:///{tmp_path / 'jobs.db'}"
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), store], capture_output=True, check=False)
    assert (killed.returncode, killed.stdout) == (-9, b"")
    scheduler = Scheduler(store, lease=0.2)
    left = {job.name for job in scheduler.list_jobs()}
    assert (left, len(scheduler.list_jobs())) == ({None, "mine"}, 3)
    scheduler.start()
    eventually(lambda: [job.name for job in scheduler.list_jobs()] == ["mine"])
    scheduler.close()
