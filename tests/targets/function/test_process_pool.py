"""Functions in worker processes: every outcome, and no process that is left behind."""

import asyncio
import functools
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
from itertools import pairwise
from multiprocessing.spawn import get_executable
from pathlib import Path
from types import ModuleType

import pytest

from noonmark.core.ids import event
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.policies.delivery import Delivery
from noonmark.core.policies.overlap import CancelRunning, Terminate
from noonmark.core.policies.window import Window
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.targets import Executor
from noonmark.targets import process_control, worker_pool
from noonmark.targets.function import process_pool, process_worker
from noonmark.targets.function.process_pool import WorkerProcess
from tests.targets.assignments import SOON, function_assignment
from tests.targets.function import worker_functions
from tests.targets.function.harness import run_scenario

LOOK_EVERY = 0.005


def is_running(pid):
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def eventually(is_so):
    """Poll for a condition in other processes."""
    async with asyncio.timeout(SOON):
        while not (found := is_so()):
            await asyncio.to_thread(threading.Event().wait, LOOK_EVERY)
        return found


async def begun(folder):
    """Wait until the function has started; return the pid of its process."""
    path = folder / "begun"
    await eventually(path.exists)
    text = path.read_text("utf-8")
    path.unlink()
    return int(text) if text else None


def in_process(function, /, *args, **options):
    """Call a function in a process; return the outcome."""

    async def scenario(harness):
        return await harness.call(function, args=args, executor=Executor.PROCESS, **options)

    return run_scenario(scenario)


async def still_works(harness):
    """Make another call; return the pid of its process."""
    delivered = await harness.call(worker_functions.whoami, executor=Executor.PROCESS, key="next")
    assert delivered.outcome is Outcome.COMPLETED
    return delivered.result


def loaded_elsewhere(monkeypatch, folder, text):
    """A function of a module that does something when a worker process imports it, and is already imported here."""
    (folder / "elsewhere.py").write_text(f"{text}\ndef work(): pass\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    here = ModuleType("elsewhere")
    monkeypatch.setitem(sys.modules, "elsewhere", here)
    exec("def work(): pass", vars(here))  # noqa: S102 - the same as in the file
    return here.work


class TestCalls:
    @pytest.mark.parametrize(
        ("function", "args", "kwargs"),
        [
            (worker_functions.add, (1,), {"two": 1}),
            (worker_functions.Adder.make, (1,), {}),
            (worker_functions.Adder.plain, (1,), {}),
            (worker_functions.wrapped, (1,), {}),
            (worker_functions.disguised, (1, 1), {}),
            (max, (1, 2), {}),
            (os.path.getsize, (), {"filename": "two"}),
        ],
    )
    def test_importable_callables_are_called(self, function, args, kwargs, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Path("two").write_text("22", encoding="utf-8")
        delivered = in_process(function, *args, kwargs=kwargs)
        assert (delivered.outcome, delivered.result, delivered.error) == (Outcome.COMPLETED, 2, None)

    def test_process_is_reused(self):
        async def scenario(harness):
            return [await still_works(harness) for _ in range(3)]

        first, *others = run_scenario(scenario)
        assert first != os.getpid()
        assert others == [first, first]

    def test_nothing_starts_early(self):
        async def scenario(harness):
            assignment = await harness.deliver(worker_functions.stamp, after=30_000, executor=Executor.PROCESS)
            return assignment, await harness.end_of(assignment)

        assignment, delivered = run_scenario(scenario)
        assert assignment.begins <= delivered.started <= delivered.ended
        assert delivered.result >= assignment.begins

    def test_wrong_arguments_are_a_failure(self):
        delivered = in_process(worker_functions.add, kwargs={"three": 3})
        assert delivered.outcome is Outcome.FAILED
        assert "TypeError" in delivered.error

    @pytest.mark.parametrize(
        ("origin", "brought", "payload", "event"),
        [
            (None, None, {"of": "the schedule"}, None),
            (None, {"of": "the call"}, {"of": "the call"}, None),
            (event("e1"), {"event_type": "a", "payload": [1]}, [1], {"event_type": "a", "payload": [1]}),
        ],
        ids=["of the schedule", "of the call", "of the event"],
    )
    def test_context_is_complete(self, origin, brought, payload, event):
        async def scenario(harness):
            options = {"origin": origin, "payload": brought, "given": {"of": "the schedule"}}
            assignment = await harness.deliver(worker_functions.told, executor=Executor.PROCESS, **options)
            return assignment.occurrence, await harness.end_of(assignment)

        one, delivered = run_scenario(scenario)
        assert delivered.result == {
            "occurrence_id": one.id,
            "schedule_id": one.schedule_id,
            "times": [from_micros(one.nominal).isoformat(), from_micros(one.due).isoformat()],
            "attempt": 1,
            "payload": payload,
            "event": event,
            "cancelled": [True, False],
            "logger": True,
        }

    def test_declared_context_argument_wins(self):
        assert in_process(worker_functions.mine, kwargs={"context": 7}).result == 7

    def test_process_inherits_directory_path_and_environment(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("NOONMARK_ERRAND", "set")
        monkeypatch.syspath_prepend("/nowhere/at/all")
        found = in_process(worker_functions.surroundings).result
        assert found == {"cwd": str(tmp_path), "variable": "set", "path": sys.path, "argv": sys.argv}

    def test_process_writes_to_the_parents_streams(self, capfd):
        in_process(worker_functions.speaks)
        assert capfd.readouterr() == ("from a child\n", "and its errors\n")

    def test_log_records_are_forwarded(self, caplog, capfd):
        async def scenario(harness):
            with caplog.at_level(logging.INFO):
                assignment = await harness.deliver(worker_functions.logs, executor=Executor.PROCESS)
                await harness.end_of(assignment)
            return assignment.occurrence

        result = run_scenario(scenario)
        first, second, third = [record for record in caplog.records if record.name in ("noonmark.jobs", "errands")]
        assert (first.levelname, first.getMessage(), first.name) == ("INFO", "in a child", "noonmark.jobs")
        assert (first.occurrence_id, first.schedule_id) == (result.id, result.schedule_id)
        assert first.process != os.getpid()
        assert (second.levelname, second.getMessage(), second.number) == ("WARNING", "to the root", 7)
        assert third.getMessage() == "it failed"
        assert "ValueError: invalid literal" in third.exc_text
        assert capfd.readouterr().err == ""

    def test_log_levels_are_those_of_the_parent(self, caplog):
        with caplog.at_level(logging.ERROR):
            in_process(worker_functions.logs)
        assert [record.getMessage() for record in caplog.records if record.name == "errands"] == ["it failed"]


class TestUndeliverable:
    @pytest.mark.parametrize(
        ("function", "why"),
        [
            (lambda: 1, "must be a function of a module"),
            (functools.partial(worker_functions.add, 1), "must be a function of a module"),
            (worker_functions.Adder().method, "must be a function of a module"),
            (worker_functions.add_later, "is async"),
        ],
    )
    def test_unsuitable_function_is_undeliverable(self, function, why):
        delivered = in_process(function)
        assert delivered.outcome is Outcome.DELIVERY_FAILED
        assert delivered.error.startswith("'work' cannot be called in a worker process: ")
        assert why in delivered.error

    def test_missing_function_is_undeliverable(self):
        delivered = in_process(worker_functions.add, function="nobody")
        assert delivered.outcome is Outcome.DELIVERY_FAILED
        assert delivered.error == "no function is registered as 'nobody' in this process"

    def test_unimportable_function_is_undeliverable(self, monkeypatch):
        module = ModuleType("only_in_the_parent")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec("def work(): pass", vars(module))  # noqa: S102 - that is where it is from

        async def scenario(harness):
            delivered = await harness.call(module.work, executor=Executor.PROCESS)
            await still_works(harness)
            return delivered

        delivered = run_scenario(scenario)
        assert delivered.outcome is Outcome.DELIVERY_FAILED
        assert "the function could not be loaded in a worker process" in delivered.error
        assert "No module named 'only_in_the_parent'" in delivered.error

    def test_failed_process_start_is_undeliverable(self):
        interpreter = get_executable()
        multiprocessing.set_executable("/no/such/python")
        try:
            delivered = in_process(worker_functions.add, 1)
        finally:
            multiprocessing.set_executable(interpreter)
        assert delivered.outcome is Outcome.DELIVERY_FAILED
        assert "no process could be started" in delivered.error

    def test_endless_import_is_undeliverable(self, monkeypatch, tmp_path):
        monkeypatch.setattr(process_pool, "LOAD_LIMIT", SECOND // 2)
        delivered = in_process(loaded_elsewhere(monkeypatch, tmp_path, "import threading; threading.Event().wait(60)"))
        assert delivered.outcome is Outcome.DELIVERY_FAILED
        assert delivered.error == "a worker process did not load the function within 0.5 s"

    def test_timeout_does_not_include_the_import(self, monkeypatch, tmp_path):
        files = [str(tmp_path / name) for name in ("begun", "go on")]
        slow = f"from tests.targets.function import worker_functions; worker_functions.meets(*{files!r})"
        function = loaded_elsewhere(monkeypatch, tmp_path, slow)

        async def scenario(harness):
            assignment = await harness.deliver(function, executor=Executor.PROCESS, timeout=20 * SECOND)
            await begun(tmp_path)
            harness.clock.advance(60 * SECOND)
            worker_functions.touch(tmp_path / "go on")
            return await harness.end_of(assignment)

        delivered = run_scenario(scenario)
        assert delivered.outcome is Outcome.COMPLETED
        assert delivered.ended - delivered.started < 20 * SECOND

    def test_stop_during_the_import_is_a_cancellation(self, monkeypatch, tmp_path):
        text = f"import pathlib; pathlib.Path({str(tmp_path / 'begun')!r}).touch(); import threading"
        function = loaded_elsewhere(monkeypatch, tmp_path, f"{text}; threading.Event().wait(60)")
        monkeypatch.setattr(process_control, "STOP_GRACE", SECOND // 10)

        async def scenario(harness):
            assignment = await harness.deliver(function, executor=Executor.PROCESS)
            await begun(tmp_path)
            assignment.stop(Reason.CANCELLED)
            return await harness.end_of(assignment)

        assert run_scenario(scenario).outcome is Outcome.CANCELLED

    def test_current_directory_shadows_no_module(self, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "json.py").write_text("raise SystemExit('the wrong one')", encoding="utf-8")
        assert in_process(worker_functions.add, 1).result == 1

    def test_window_may_close_during_the_import(self, monkeypatch, tmp_path):
        function = loaded_elsewhere(monkeypatch, tmp_path, "import threading; threading.Event().wait(60)")
        delivered = in_process(function, window=Window(duration=SECOND // 2), timeout=SECOND // 4)
        assert (delivered.outcome, delivered.reason) == (Outcome.CANCELLED, Reason.WINDOW_CLOSED)


class TestErrors:
    @pytest.mark.parametrize(
        ("how", "error"),
        [
            ("value", ValueError("on purpose", 7)),
            ("key", KeyError("a")),
            ("file", FileNotFoundError(2, "No such file", "the name")),
            ("exit", SystemExit(3)),
            ("interrupt", KeyboardInterrupt()),
        ],
    )
    def test_builtin_errors_are_recreated(self, how, error):
        assignment, delivered = self.failed(how)
        assert delivered.outcome is Outcome.FAILED
        assert delivered.error.startswith("Traceback (most recent call last)")
        assert f"{type(error).__name__}" in delivered.error
        assert (type(assignment.error), str(assignment.error)) == (type(error), str(error))
        assert "worker_functions.py" in assignment.error.__notes__[0]

    @pytest.mark.parametrize(
        ("how", "shown"),
        [
            ("own", "OwnError: on purpose"),
            ("unshown", "UnshownError: "),
            ("bytes", "UnicodeDecodeError: 'utf-8' codec can't decode"),
            ("group", "ExceptionGroup: both (1 sub-exception)"),
            ("tuple", "KeyError: (1, 2)"),
        ],
    )
    def test_other_errors_become_runtime_errors(self, how, shown):
        assignment, delivered = self.failed(how)
        assert delivered.outcome is Outcome.FAILED
        assert type(assignment.error) is RuntimeError
        assert str(assignment.error).startswith(shown)
        assert "worker_functions.py" in str(assignment.error)

    def failed(self, how):
        async def scenario(harness):
            first = await still_works(harness)
            assignment = await harness.deliver(worker_functions.fails, args=(how,), executor=Executor.PROCESS)
            delivered = await harness.end_of(assignment)
            assert await still_works(harness) == first  # an error is no reason to start afresh
            return assignment, delivered

        return run_scenario(scenario)

    @pytest.mark.parametrize(
        ("how", "ended"),
        [
            ("exit", "ended with exit code 3"),
            ("segfault", "was killed by SIGSEGV"),
            ("killed", "was killed by SIGKILL"),
        ],
    )
    def test_dying_process_fails_only_its_run(self, how, ended):
        async def scenario(harness):
            first = await still_works(harness)
            assignment = await harness.deliver(worker_functions.crashes, args=(how,), executor=Executor.PROCESS)
            delivered = await harness.end_of(assignment)
            assert (delivered.outcome, delivered.is_unknown) == (Outcome.FAILED, True)
            assert delivered.error == f"the process {ended} before it answered"
            assert type(assignment.error) is RuntimeError
            assert await still_works(harness) != first

        run_scenario(scenario)

    def test_process_that_dies_while_idle_fails_no_run(self):
        async def scenario(harness):
            first = await still_works(harness)
            os.kill(first, signal.SIGKILL)
            await eventually(lambda: not is_running(first))
            assert await still_works(harness) != first

        run_scenario(scenario)

    def test_process_that_dies_before_the_call_is_replaced(self, monkeypatch):
        async def scenario(harness):
            first = await still_works(harness)
            # As if its exit had not been noticed yet.
            monkeypatch.setattr(WorkerProcess, "is_ready", True)
            os.kill(first, signal.SIGKILL)
            assert await still_works(harness) != first

        run_scenario(scenario)

    @pytest.mark.parametrize("is_new", [False, True])
    def test_crash_during_the_import_fails_the_run(self, monkeypatch, tmp_path, is_new):
        function = loaded_elsewhere(monkeypatch, tmp_path, "import os; os._exit(4)")

        async def scenario(harness):
            if not is_new:
                await still_works(harness)
            return await harness.call(function, executor=Executor.PROCESS)

        delivered = run_scenario(scenario)
        assert (delivered.outcome, delivered.is_unknown) == (Outcome.FAILED, False)
        assert delivered.error == "the process ended with exit code 4 before it answered"

    def test_writes_into_the_pipe_fail_the_run(self):
        async def scenario(harness):
            delivered = await harness.call(worker_functions.scribbles, executor=Executor.PROCESS)
            assert delivered.outcome is Outcome.FAILED
            assert "before it answered" in delivered.error
            await still_works(harness)

        run_scenario(scenario)

    def test_death_is_noticed_while_a_child_holds_the_pipe(self, tmp_path):
        async def scenario(harness):
            delivered = await harness.call(worker_functions.forks, args=(str(tmp_path),), executor=Executor.PROCESS)
            assert is_running(int((tmp_path / "left").read_text("utf-8")))
            worker_functions.touch(tmp_path / "go on")
            assert delivered.error == "the process ended with exit code 5 before it answered"

        run_scenario(scenario)


class TestResults:
    @pytest.mark.parametrize(("what", "why"), [("object", "not JSON"), ("nan", "not JSON")])
    def test_non_json_result_is_not_stored(self, what, why):
        delivered = in_process(worker_functions.returns, what)
        assert (delivered.outcome, delivered.result) == (Outcome.COMPLETED, None)
        assert delivered.error.startswith("the result was not stored: it is not JSON (")

    def test_result_passes_through_json(self):
        assert in_process(worker_functions.returns, "tuple").result == [1, {"2": 3}]

    def test_large_result_is_returned_but_not_stored(self):
        async def scenario(harness):
            assignment = await harness.deliver(worker_functions.returns, args=("big",), executor=Executor.PROCESS)
            delivered = await harness.end_of(assignment)
            assert assignment.result == "x" * 1_000_000
            assert (delivered.outcome, delivered.result) == (Outcome.COMPLETED, None)
            assert "1,000,002 bytes" in delivered.error

        run_scenario(scenario)

    def test_too_large_result_is_not_returned(self, monkeypatch):
        monkeypatch.setattr(process_worker, "MAX_ANSWER", 1_000)
        call = {"args": ["big"], "kwargs": {}, "context": None}
        answer = process_worker._call(worker_functions.returns, call, None, print, print)
        assert answer == {"result": "null", "note": "the result was not stored: its JSON has 1,000,002 bytes"}

    def test_large_arguments_arrive(self):
        texts = ["x" * 50_000] * 5
        assert in_process(worker_functions.add, [texts], [1]).error.endswith("bytes; the limit is 65,536")


class TestDeadlines:
    @pytest.mark.parametrize("errand", [worker_functions.hangs, worker_functions.clings])
    def test_timeout_is_reported_when_the_process_is_gone(self, errand, tmp_path):
        async def scenario(harness):
            first = await still_works(harness)
            harness.clock.halt()
            assignment = await harness.deliver(
                errand, args=(str(tmp_path),), executor=Executor.PROCESS, after=-SECOND * 60, timeout=SECOND // 2
            )
            assert await begun(tmp_path) == first
            harness.clock.go_on()
            delivered = await harness.end_of(assignment)
            assert not is_running(first)
            assert delivered.outcome is Outcome.TIMED_OUT
            assert delivered.ended - delivered.started >= SECOND // 2
            assert (harness.runner.abandoned, assignment.abandoned) == (0, 0)
            assert await still_works(harness) != first

        run_scenario(scenario)
        assert (tmp_path / ("tidied" if errand is worker_functions.hangs else "clung")).exists()

    def test_closing_window_cuts_off_the_run(self, tmp_path):
        async def scenario(harness):
            await still_works(harness)
            options = {"window": Window(duration=SECOND // 2), "timeout": 3_600 * SECOND}
            return await harness.call(
                worker_functions.hangs, args=(str(tmp_path),), executor=Executor.PROCESS, **options
            )

        delivered = run_scenario(scenario)
        assert (delivered.outcome, delivered.reason) == (Outcome.CANCELLED, Reason.WINDOW_CLOSED)

    def test_number_of_processes_is_limited_after_timeouts(self, tmp_path):
        async def scenario(harness):
            harness.functions.register("next", worker_functions.stamp)
            first = await harness.deliver(
                worker_functions.clings, args=(str(tmp_path),), executor=Executor.PROCESS, timeout=SECOND // 10
            )
            second = function_assignment("second", function="next", executor=Executor.PROCESS)
            harness.runner.deliver([second])
            ends = [await harness.end_of(one) for one in (first, second)]
            assert ends[0].ended <= ends[1].result

        run_scenario(scenario, max_processes=1)


class TestStopping:
    def scenario(self, errand, *args, folder, reason=Reason.CANCELLED, **options):
        """Deliver, request a stop after the start, and return the outcome."""

        async def told(harness):
            assignment = await harness.deliver(errand, args=(str(folder), *args), executor=Executor.PROCESS, **options)
            pid = await begun(folder)
            assignment.stop(reason)
            worker_functions.touch(folder / "go on")
            delivered = await harness.end_of(assignment)
            self.is_kept = pid is not None and is_running(pid) and await still_works(harness) == pid
            return delivered

        return run_scenario(told)

    def test_function_that_saw_the_signal_is_cancelled(self, tmp_path):
        delivered = self.scenario(worker_functions.heeds, "returns", folder=tmp_path)
        assert (delivered.outcome, delivered.reason, delivered.result) == (Outcome.CANCELLED, Reason.CANCELLED, None)
        assert self.is_kept

    def test_raising_after_a_stop_request_is_a_cancellation(self, tmp_path):
        delivered = self.scenario(worker_functions.heeds, "raises", folder=tmp_path, reason=Reason.REPLACED)
        assert (delivered.outcome, delivered.reason) == (Outcome.CANCELLED, Reason.REPLACED)
        assert "as you wish" in delivered.error
        assert self.is_kept

    def test_lost_lease_is_recorded(self, tmp_path):
        delivered = self.scenario(worker_functions.heeds, "returns", folder=tmp_path, reason=Reason.LEASE_LOST)
        assert delivered.outcome is Outcome.LEASE_LOST

    def test_function_that_ignored_the_signal_completes(self, tmp_path):
        delivered = self.scenario(worker_functions.heedless, folder=tmp_path)
        assert (delivered.outcome, delivered.result) == (Outcome.COMPLETED, "all")

    @pytest.mark.parametrize(
        ("reason", "outcome"), [(Reason.CANCELLED, Outcome.CANCELLED), (Reason.LEASE_LOST, Outcome.LEASE_LOST)]
    )
    def test_function_that_does_not_stop_is_killed(self, reason, outcome, tmp_path, monkeypatch):
        monkeypatch.setattr(process_control, "STOP_GRACE", SECOND // 10)
        delivered = self.scenario(worker_functions.hangs, folder=tmp_path, reason=reason)
        assert delivered.outcome is outcome
        assert delivered.error == "its process was killed: it did not end within 0.1 s of being asked to"
        assert (tmp_path / "tidied").exists()
        assert not self.is_kept

    def test_replaced_function_has_the_grace_period_of_its_policy(self, tmp_path):
        policy = CancelRunning(cancel_grace=SECOND // 10)
        delivered = self.scenario(
            worker_functions.hangs, folder=tmp_path, reason=Reason.REPLACED, overlap_policy=policy
        )
        assert (delivered.outcome, delivered.reason) == (Outcome.CANCELLED, Reason.REPLACED)
        assert "within 0.1 s" in delivered.error

    @pytest.mark.parametrize("errand", [worker_functions.hangs, worker_functions.clings])
    def test_replaced_function_is_killed_and_not_asked_under_terminate(self, errand, tmp_path):
        delivered = self.scenario(errand, folder=tmp_path, reason=Reason.REPLACED, overlap_policy=Terminate())
        assert (delivered.outcome, delivered.reason) == (Outcome.CANCELLED, Reason.REPLACED)
        assert delivered.error == "its process was killed"
        assert not self.is_kept
        assert {path.name for path in tmp_path.iterdir()} == {"go on"}  # no clean-up by a signal

    def test_stopped_before_its_start_never_starts(self, tmp_path):
        async def scenario(harness):
            harness.clock.halt()
            assignment = await harness.deliver(
                worker_functions.hangs, args=(str(tmp_path),), after=30_000, executor=Executor.PROCESS
            )
            assignment.stop(Reason.REPLACED)
            harness.clock.go_on()
            return await harness.end_of(assignment)

        delivered = run_scenario(scenario)
        assert (delivered.outcome, delivered.reason) == (Outcome.CANCELLED, Reason.REPLACED)
        assert list(tmp_path.iterdir()) == []

    def test_process_ignores_signals_for_the_parent(self):
        assert in_process(worker_functions.signalled).result == "still here"

    def test_signal_handlers_are_reset_between_calls(self):
        async def scenario(harness):
            calls = [(key, getattr(worker_functions, key)) for key in ("resigns", "signalled", "whoami")]
            return [(await harness.call(call, executor=Executor.PROCESS, key=key)).result for key, call in calls]

        before, answer, after = run_scenario(scenario, max_processes=1)
        assert (before, answer) == (after, "still here")

    def test_log_level_set_by_a_function_is_kept(self):
        async def scenario(harness):
            for key, args in (("sets", (logging.CRITICAL,)), ("tells", ())):
                answer = await harness.call(worker_functions.quiets, args=args, executor=Executor.PROCESS, key=key)
            return answer.result

        assert run_scenario(scenario, max_processes=1) == logging.CRITICAL

    def test_function_may_start_a_scheduler(self):
        assert in_process(worker_functions.may_schedule).result is True

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_function_may_start_processes(self, method, capfd):
        assert in_process(worker_functions.pools, method).result == [2, 4, 6]
        assert "in a pool" in capfd.readouterr().err


class TestConcurrency:
    def test_two_functions_run_at_the_same_time(self, tmp_path):
        async def scenario(harness):
            harness.functions.register("work", worker_functions.meets)
            one, two = str(tmp_path / "one"), str(tmp_path / "two")
            pair = [
                function_assignment(names[0], args=names, executor=Executor.PROCESS)
                for names in ((one, two), (two, one))
            ]
            harness.runner.deliver(pair)
            return [await harness.end_of(assignment) for assignment in pair]

        assert [end.result for end in run_scenario(scenario)] == [True, True]

    def test_number_of_processes_is_limited(self):
        async def scenario(harness):
            harness.functions.register("work", worker_functions.alone)
            several = [function_assignment(number, executor=Executor.PROCESS) for number in range(6)]
            harness.runner.deliver(several)
            return [(await harness.end_of(one)).result for one in several]

        times = sorted(run_scenario(scenario, max_processes=1))
        assert all(ended <= began for (_, ended, _), (began, _, _) in pairwise(times))
        assert len({pid for _, _, pid in times}) == 1

    def test_threads_and_processes_do_not_wait_for_each_other(self, tmp_path):
        async def scenario(harness):
            gate = tmp_path / "gate"
            harness.functions.register("waits", worker_functions.wait_for)
            harness.functions.register("adds", worker_functions.add)
            busy = [
                function_assignment(number, function="waits", args=(str(gate),), executor=executor)
                for number, executor in enumerate([Executor.PROCESS] * 3 + [Executor.THREAD] * 2)
            ]
            harness.runner.deliver(busy[:3])
            in_thread = function_assignment("quick", function="adds", args=(1,))
            harness.runner.deliver([in_thread])
            assert (await harness.end_of(in_thread)).result == 1
            assert not any(one in harness.reported for one in busy)
            worker_functions.touch(gate)
            for assignment in busy[:3]:
                assert (await harness.end_of(assignment)).result is True
            gate.unlink()
            harness.runner.deliver(busy[3:])
            elsewhere = function_assignment("elsewhere", function="adds", args=(1,), executor=Executor.PROCESS)
            harness.runner.deliver([elsewhere])
            assert (await harness.end_of(elsewhere)).result == 1
            assert not any(one in harness.reported for one in busy[3:])
            worker_functions.touch(gate)

        run_scenario(scenario, max_threads=2, max_processes=2)

    def test_queued_calls_can_be_withdrawn_under_at_least_once(self, tmp_path):
        async def scenario(harness):
            harness.functions.register("work", worker_functions.hangs)
            first, *others = [
                function_assignment(number, args=(str(tmp_path),), executor=Executor.PROCESS, delivery=delivery)
                for number, delivery in enumerate(
                    [Delivery.AT_LEAST_ONCE, Delivery.AT_LEAST_ONCE, Delivery.AT_MOST_ONCE]
                )
            ]
            harness.runner.deliver([first])
            await begun(tmp_path)
            harness.runner.deliver(others)
            assert harness.runner.withdraw() == others[:1]

        run_scenario(scenario, max_processes=1)


class TestClosing:
    @pytest.mark.parametrize("errand", [worker_functions.hangs, worker_functions.clings])
    def test_close_ends_running_processes(self, errand, tmp_path):
        async def scenario(harness):
            assignment = await harness.deliver(errand, args=(str(tmp_path),), executor=Executor.PROCESS)
            pid = await begun(tmp_path)
            harness.runner.close()
            await eventually(lambda: not is_running(pid))
            assert (await harness.end_of(assignment)).outcome is Outcome.LEASE_LOST

        run_scenario(scenario)

    @pytest.mark.parametrize("errand", ["hangs", "hogs"])
    def test_worker_process_dies_with_its_node(self, errand, tmp_path):
        script = textwrap.dedent(f"""
            import asyncio
            from noonmark.core.targets import Executor
            from tests.targets.function import worker_functions
            from tests.targets.function.harness import run_scenario

            async def scenario(harness):
                await harness.call(worker_functions.{errand}, args=({str(tmp_path)!r},), executor=Executor.PROCESS)

            run_scenario(scenario)
        """)
        node = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[3])
        pid = asyncio.run(begun(tmp_path))
        node.kill()
        node.wait()
        asyncio.run(eventually(lambda: not is_running(pid)))

    def test_process_outlives_the_thread_that_first_used_it(self, monkeypatch, tmp_path):
        """PDEATHSIG kills a process with the thread that started it."""
        monkeypatch.setattr(worker_pool, "IDLE_SECONDS", 0.05)

        async def scenario(harness):
            harness.functions.register("work", worker_functions.meets)
            harness.functions.register("waits", worker_functions.wait_for)
            one, two = str(tmp_path / "one"), str(tmp_path / "two")
            pair = [
                function_assignment(names[0], args=names, executor=Executor.PROCESS)
                for names in ((one, two), (two, one))
            ]
            harness.runner.deliver(pair)
            for assignment in pair:
                await harness.end_of(assignment)
            last = function_assignment(
                "last", function="waits", args=(str(tmp_path / "go on"),), executor=Executor.PROCESS
            )
            harness.runner.deliver([last])
            # Of two threads, each with a process, one is idle and ends.
            await eventually(lambda: harness.runner._process_waiters._threads == 1)
            worker_functions.touch(tmp_path / "go on")
            return await harness.end_of(last)

        assert run_scenario(scenario).outcome is Outcome.COMPLETED

    def test_close_ends_idle_processes(self):
        async def scenario(harness):
            pid = await still_works(harness)
            harness.runner.close()
            await eventually(lambda: not is_running(pid))

        run_scenario(scenario)

    def test_idle_process_ends_after_a_while(self, monkeypatch):
        monkeypatch.setattr(worker_pool, "IDLE_SECONDS", 0.05)

        async def scenario(harness):
            pid = await still_works(harness)
            await eventually(lambda: not is_running(pid))
            assert await still_works(harness) != pid

        run_scenario(scenario)
