"""Functions in processes: every way to end, and no process that outlives what it was made for."""

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
from noonmark.core.policies.overlap import CancelRunning
from noonmark.core.policies.window import Window
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.targets import Executor
from noonmark.targets import stop, worker_pool
from noonmark.targets.function import process_pool, process_worker
from noonmark.targets.function.process_pool import WorkerProcess
from tests.targets.assignments import SOON, assigned
from tests.targets.function import worker_functions
from tests.targets.function.harness import play

LOOK_EVERY = 0.005


def is_running(pid):
    """Whether a process is there, and more than its last trace."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def eventually(is_so):
    """For what happens in other processes, which do not tell: look again and again."""
    async with asyncio.timeout(SOON):
        while not (found := is_so()):
            await asyncio.to_thread(threading.Event().wait, LOOK_EVERY)
        return found


async def begun(folder):
    """Wait until the function has begun; gives the process that it runs in."""
    path = folder / "begun"
    await eventually(path.exists)
    text = path.read_text("utf-8")
    path.unlink()
    return int(text) if text else None


def in_process(function, /, *args, **options):
    """Call a function in a process; gives how it ended."""

    async def story(stage):
        return await stage.call(function, args=args, executor=Executor.PROCESS, **options)

    return play(story)


async def still_works(stage):
    """Whether there is a process for the next call; gives which."""
    delivered = await stage.call(worker_functions.whoami, executor=Executor.PROCESS, key="next")
    assert delivered.outcome is Outcome.COMPLETED
    return delivered.result


def loaded_elsewhere(monkeypatch, folder, text):
    """A function of a module that does something when a child imports it, but has long been imported here."""
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
    def test_what_can_be_imported_is_called(self, function, args, kwargs, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Path("two").write_text("22", encoding="utf-8")
        delivered = in_process(function, *args, kwargs=kwargs)
        assert (delivered.outcome, delivered.result, delivered.error) == (Outcome.COMPLETED, 2, None)

    def test_another_process_is_made_once_and_kept(self):
        async def story(stage):
            return [await still_works(stage) for _ in range(3)]

        first, *others = play(story)
        assert first != os.getpid()
        assert others == [first, first]

    def test_nothing_begins_before_its_time(self):
        async def story(stage):
            assignment = await stage.deliver(worker_functions.stamp, after=30_000, executor=Executor.PROCESS)
            return assignment, await stage.end_of(assignment)

        assignment, delivered = play(story)
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
    def test_the_context_has_everything_that_is_promised(self, origin, brought, payload, event):
        async def story(stage):
            options = {"origin": origin, "payload": brought, "given": {"of": "the schedule"}}
            assignment = await stage.deliver(worker_functions.told, executor=Executor.PROCESS, **options)
            return assignment.occurrence, await stage.end_of(assignment)

        one, delivered = play(story)
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

    def test_an_argument_named_context_is_the_callers(self):
        assert in_process(worker_functions.mine, kwargs={"context": 7}).result == 7

    def test_it_has_the_folder_the_path_and_the_variables_of_its_parent(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("NOONMARK_ERRAND", "set")
        monkeypatch.syspath_prepend("/nowhere/at/all")
        found = in_process(worker_functions.surroundings).result
        assert found == {"cwd": str(tmp_path), "variable": "set", "path": sys.path, "argv": sys.argv}

    def test_it_writes_where_its_parent_does(self, capfd):
        in_process(worker_functions.speaks)
        assert capfd.readouterr() == ("from a child\n", "and its errors\n")

    def test_what_it_logs_is_logged_by_its_parent(self, caplog, capfd):
        async def story(stage):
            with caplog.at_level(logging.INFO):
                assignment = await stage.deliver(worker_functions.logs, executor=Executor.PROCESS)
                await stage.end_of(assignment)
            return assignment.occurrence

        one = play(story)
        first, second, third = [record for record in caplog.records if record.name in ("noonmark.jobs", "errands")]
        assert (first.levelname, first.getMessage(), first.name) == ("INFO", "in a child", "noonmark.jobs")
        assert (first.occurrence_id, first.schedule_id) == (one.id, one.schedule_id)
        assert first.process != os.getpid()
        assert (second.levelname, second.getMessage(), second.number) == ("WARNING", "to the root", 7)
        assert third.getMessage() == "it failed"
        assert "ValueError: invalid literal" in third.exc_text
        assert capfd.readouterr().err == ""

    def test_it_logs_no_more_than_its_parent(self, caplog):
        with caplog.at_level(logging.ERROR):
            in_process(worker_functions.logs)
        assert [record.getMessage() for record in caplog.records if record.name == "errands"] == ["it failed"]


class TestWhatCannotBe:
    @pytest.mark.parametrize(
        ("function", "why"),
        [
            (lambda: 1, "must be a function of a module"),
            (functools.partial(worker_functions.add, 1), "must be a function of a module"),
            (worker_functions.Adder().method, "must be a function of a module"),
            (worker_functions.add_later, "is async"),
        ],
    )
    def test_it_is_a_delivery_that_failed(self, function, why):
        delivered = in_process(function)
        assert delivered.outcome is Outcome.DELIVERY_FAILED
        assert delivered.error.startswith("'work' cannot be called in a worker process: ")
        assert why in delivered.error

    def test_so_is_a_function_that_is_gone(self):
        delivered = in_process(worker_functions.add, function="nobody")
        assert delivered.outcome is Outcome.DELIVERY_FAILED
        assert delivered.error == "no function is registered as 'nobody' in this process"

    def test_so_is_one_that_a_child_cannot_import(self, monkeypatch):
        module = ModuleType("only_in_the_parent")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec("def work(): pass", vars(module))  # noqa: S102 - that is where it is from

        async def story(stage):
            delivered = await stage.call(module.work, executor=Executor.PROCESS)
            await still_works(stage)
            return delivered

        delivered = play(story)
        assert delivered.outcome is Outcome.DELIVERY_FAILED
        assert "the function could not be loaded in a worker process" in delivered.error
        assert "No module named 'only_in_the_parent'" in delivered.error

    def test_so_is_one_for_which_no_process_can_be_started(self):
        interpreter = get_executable()
        multiprocessing.set_executable("/no/such/python")
        try:
            delivered = in_process(worker_functions.add, 1)
        finally:
            multiprocessing.set_executable(interpreter)
        assert delivered.outcome is Outcome.DELIVERY_FAILED
        assert "no process could be started" in delivered.error

    def test_so_is_one_whose_module_never_comes_to_an_end(self, monkeypatch, tmp_path):
        monkeypatch.setattr(process_pool, "LOAD_LIMIT", SECOND // 2)
        delivered = in_process(loaded_elsewhere(monkeypatch, tmp_path, "import threading; threading.Event().wait(60)"))
        assert delivered.outcome is Outcome.DELIVERY_FAILED
        assert delivered.error == "a worker process did not load the function within 0.5 s"

    def test_the_time_to_load_it_does_not_count_for_its_timeout(self, monkeypatch, tmp_path):
        files = [str(tmp_path / name) for name in ("begun", "go on")]
        slow = f"from tests.targets.function import worker_functions; worker_functions.meets(*{files!r})"
        function = loaded_elsewhere(monkeypatch, tmp_path, slow)

        async def story(stage):
            assignment = await stage.deliver(function, executor=Executor.PROCESS, timeout=20 * SECOND)
            await begun(tmp_path)
            stage.clock.advance(60 * SECOND)
            worker_functions.touch(tmp_path / "go on")
            return await stage.end_of(assignment)

        delivered = play(story)
        assert delivered.outcome is Outcome.COMPLETED
        assert delivered.ended - delivered.started < 20 * SECOND

    def test_what_is_stopped_while_it_is_loaded_was_cancelled(self, monkeypatch, tmp_path):
        text = f"import pathlib; pathlib.Path({str(tmp_path / 'begun')!r}).touch(); import threading"
        function = loaded_elsewhere(monkeypatch, tmp_path, f"{text}; threading.Event().wait(60)")
        monkeypatch.setattr(stop, "STOP_GRACE", SECOND // 10)

        async def story(stage):
            assignment = await stage.deliver(function, executor=Executor.PROCESS)
            await begun(tmp_path)
            assignment.stop(Reason.CANCELLED)
            return await stage.end_of(assignment)

        assert play(story).outcome is Outcome.CANCELLED

    def test_nothing_in_the_current_folder_can_stand_in_its_way(self, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "json.py").write_text("raise SystemExit('the wrong one')", encoding="utf-8")
        assert in_process(worker_functions.add, 1).result == 1

    def test_a_window_may_close_before_it_is_loaded(self, monkeypatch, tmp_path):
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
    def test_what_is_built_in_is_raised_again(self, how, error):
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
    def test_of_others_everything_is_told(self, how, shown):
        assignment, delivered = self.failed(how)
        assert delivered.outcome is Outcome.FAILED
        assert type(assignment.error) is RuntimeError
        assert str(assignment.error).startswith(shown)
        assert "worker_functions.py" in str(assignment.error)

    def failed(self, how):
        async def story(stage):
            first = await still_works(stage)
            assignment = await stage.deliver(worker_functions.fails, args=(how,), executor=Executor.PROCESS)
            delivered = await stage.end_of(assignment)
            assert await still_works(stage) == first  # an error is no reason to start afresh
            return assignment, delivered

        return play(story)

    @pytest.mark.parametrize(("how", "code"), [("exit", 3), ("segfault", -11), ("killed", -9)])
    def test_a_process_that_dies_fails_its_run_and_no_other(self, how, code):
        async def story(stage):
            first = await still_works(stage)
            assignment = await stage.deliver(worker_functions.crashes, args=(how,), executor=Executor.PROCESS)
            delivered = await stage.end_of(assignment)
            assert (delivered.outcome, delivered.is_unknown) == (Outcome.FAILED, True)
            assert delivered.error == f"the process ended with exit code {code} before it answered"
            assert type(assignment.error) is RuntimeError
            assert await still_works(stage) != first

        play(story)

    def test_a_process_that_dies_between_two_calls_fails_none(self):
        async def story(stage):
            first = await still_works(stage)
            os.kill(first, signal.SIGKILL)
            await eventually(lambda: not is_running(first))
            assert await still_works(stage) != first

        play(story)

    def test_a_process_that_dies_as_it_is_called_has_not_begun(self, monkeypatch):
        async def story(stage):
            first = await still_works(stage)
            # As if the kernel had not told of its end yet.
            monkeypatch.setattr(WorkerProcess, "is_ready", True)
            os.kill(first, signal.SIGKILL)
            assert await still_works(stage) != first

        play(story)

    @pytest.mark.parametrize("is_new", [False, True])
    def test_a_module_that_crashes_a_process_fails_the_run(self, monkeypatch, tmp_path, is_new):
        function = loaded_elsewhere(monkeypatch, tmp_path, "import os; os._exit(4)")

        async def story(stage):
            if not is_new:
                await still_works(stage)
            return await stage.call(function, executor=Executor.PROCESS)

        delivered = play(story)
        assert (delivered.outcome, delivered.is_unknown) == (Outcome.FAILED, False)
        assert delivered.error == "the process ended with exit code 4 before it answered"

    def test_what_speaks_for_the_process_is_not_believed(self):
        async def story(stage):
            delivered = await stage.call(worker_functions.scribbles, executor=Executor.PROCESS)
            assert delivered.outcome is Outcome.FAILED
            assert "before it answered" in delivered.error
            await still_works(stage)

        play(story)

    def test_a_process_that_leaves_another_behind_is_seen_to_die(self, tmp_path):
        async def story(stage):
            delivered = await stage.call(worker_functions.forks, args=(str(tmp_path),), executor=Executor.PROCESS)
            assert is_running(int((tmp_path / "left").read_text("utf-8")))
            worker_functions.touch(tmp_path / "go on")
            assert delivered.error == "the process ended with exit code 5 before it answered"

        play(story)


class TestResults:
    @pytest.mark.parametrize(("what", "why"), [("object", "not JSON"), ("nan", "not JSON")])
    def test_what_is_not_json_is_no_failure_but_not_kept(self, what, why):
        delivered = in_process(worker_functions.returns, what)
        assert (delivered.outcome, delivered.result) == (Outcome.COMPLETED, None)
        assert delivered.error.startswith("the result was not stored: it is not JSON (")

    def test_it_comes_back_as_json_has_it(self):
        assert in_process(worker_functions.returns, "tuple").result == [1, {"2": 3}]

    def test_a_large_one_comes_back_but_is_not_kept(self):
        async def story(stage):
            assignment = await stage.deliver(worker_functions.returns, args=("big",), executor=Executor.PROCESS)
            delivered = await stage.end_of(assignment)
            assert assignment.result == "x" * 1_000_000
            assert (delivered.outcome, delivered.result) == (Outcome.COMPLETED, None)
            assert "1,000,002 bytes" in delivered.error

        play(story)

    def test_one_that_is_too_large_does_not_even_come_back(self, monkeypatch):
        monkeypatch.setattr(process_worker, "MAX_ANSWER", 1_000)
        call = {"args": ["big"], "kwargs": {}, "context": None}
        answer = process_worker._call(worker_functions.returns, call, None)
        assert answer == {"result": "null", "note": "the result was not stored: its JSON has 1,000,002 bytes"}

    def test_large_arguments_arrive(self):
        texts = ["x" * 50_000] * 5
        assert in_process(worker_functions.add, [texts], [1]).error.endswith("bytes; the limit is 65,536")


class TestDeadlines:
    @pytest.mark.parametrize("errand", [worker_functions.hangs, worker_functions.clings])
    def test_a_process_whose_time_is_up_is_gone_when_that_is_told(self, errand, tmp_path):
        async def story(stage):
            first = await still_works(stage)
            stage.clock.halt()
            assignment = await stage.deliver(
                errand, args=(str(tmp_path),), executor=Executor.PROCESS, after=-SECOND * 60, timeout=SECOND // 2
            )
            assert await begun(tmp_path) == first
            stage.clock.go_on()
            delivered = await stage.end_of(assignment)
            assert not is_running(first)
            assert delivered.outcome is Outcome.TIMED_OUT
            assert delivered.ended - delivered.started >= SECOND // 2
            assert (stage.runner.abandoned, assignment.abandoned) == (0, 0)
            assert await still_works(stage) != first

        play(story)
        assert (tmp_path / ("tidied" if errand is worker_functions.hangs else "clung")).exists()

    def test_a_window_that_closes_cuts_it_off(self, tmp_path):
        async def story(stage):
            await still_works(stage)
            options = {"window": Window(duration=SECOND // 2), "timeout": 3_600 * SECOND}
            return await stage.call(worker_functions.hangs, args=(str(tmp_path),), executor=Executor.PROCESS, **options)

        delivered = play(story)
        assert (delivered.outcome, delivered.reason) == (Outcome.CANCELLED, Reason.WINDOW_CLOSED)

    def test_there_are_never_more_processes_than_allowed_even_then(self, tmp_path):
        async def story(stage):
            stage.functions.register("next", worker_functions.stamp)
            first = await stage.deliver(
                worker_functions.clings, args=(str(tmp_path),), executor=Executor.PROCESS, timeout=SECOND // 10
            )
            second = assigned("second", function="next", executor=Executor.PROCESS)
            stage.runner.deliver([second])
            ends = [await stage.end_of(one) for one in (first, second)]
            assert ends[0].ended <= ends[1].result

        play(story, max_processes=1)


class TestStopping:
    def story(self, errand, *args, folder, reason=Reason.CANCELLED, **options):
        """Deliver, ask it to stop when it has begun, and give how it ended, and the process where."""

        async def told(stage):
            assignment = await stage.deliver(errand, args=(str(folder), *args), executor=Executor.PROCESS, **options)
            pid = await begun(folder)
            assignment.stop(reason)
            worker_functions.touch(folder / "go on")
            delivered = await stage.end_of(assignment)
            self.is_kept = pid is not None and is_running(pid) and await still_works(stage) == pid
            return delivered

        return play(told)

    def test_a_function_that_saw_the_signal_was_cancelled(self, tmp_path):
        delivered = self.story(worker_functions.heeds, "returns", folder=tmp_path)
        assert (delivered.outcome, delivered.reason, delivered.result) == (Outcome.CANCELLED, Reason.CANCELLED, None)
        assert self.is_kept

    def test_raising_is_an_answer_too(self, tmp_path):
        delivered = self.story(worker_functions.heeds, "raises", folder=tmp_path, reason=Reason.REPLACED)
        assert (delivered.outcome, delivered.reason) == (Outcome.CANCELLED, Reason.REPLACED)
        assert "as you wish" in delivered.error
        assert self.is_kept

    def test_what_was_lost_is_no_attempt(self, tmp_path):
        delivered = self.story(worker_functions.heeds, "returns", folder=tmp_path, reason=Reason.LEASE_LOST)
        assert delivered.outcome is Outcome.LEASE_LOST

    def test_a_function_that_did_not_look_has_completed(self, tmp_path):
        delivered = self.story(worker_functions.heedless, folder=tmp_path)
        assert (delivered.outcome, delivered.result) == (Outcome.COMPLETED, "all")

    @pytest.mark.parametrize(
        ("reason", "outcome"), [(Reason.CANCELLED, Outcome.CANCELLED), (Reason.LEASE_LOST, Outcome.LEASE_LOST)]
    )
    def test_one_that_does_not_end_is_made_to(self, reason, outcome, tmp_path, monkeypatch):
        monkeypatch.setattr(stop, "STOP_GRACE", SECOND // 10)
        delivered = self.story(worker_functions.hangs, folder=tmp_path, reason=reason)
        assert delivered.outcome is outcome
        assert delivered.error == "its process was killed: it did not end within 0.1 s of being asked to"
        assert (tmp_path / "tidied").exists()
        assert not self.is_kept

    def test_one_that_makes_room_has_as_long_as_the_next_one_waits(self, tmp_path):
        policy = CancelRunning(cancel_grace=SECOND // 10)
        delivered = self.story(worker_functions.hangs, folder=tmp_path, reason=Reason.REPLACED, overlap_policy=policy)
        assert (delivered.outcome, delivered.reason) == (Outcome.CANCELLED, Reason.REPLACED)
        assert "within 0.1 s" in delivered.error

    def test_what_is_stopped_before_its_time_never_begins(self, tmp_path):
        async def story(stage):
            stage.clock.halt()
            assignment = await stage.deliver(
                worker_functions.hangs, args=(str(tmp_path),), after=30_000, executor=Executor.PROCESS
            )
            assignment.stop(Reason.REPLACED)
            stage.clock.go_on()
            return await stage.end_of(assignment)

        delivered = play(story)
        assert (delivered.outcome, delivered.reason) == (Outcome.CANCELLED, Reason.REPLACED)
        assert list(tmp_path.iterdir()) == []

    def test_only_its_parent_decides_when_a_process_ends(self):
        assert in_process(worker_functions.signalled).result == "still here"

    def test_nor_does_what_the_function_before_has_made_of_its_signals(self):
        async def story(stage):
            calls = [(key, getattr(worker_functions, key)) for key in ("resigns", "signalled", "whoami")]
            return [(await stage.call(call, executor=Executor.PROCESS, key=key)).result for key, call in calls]

        before, answer, after = play(story, max_processes=1)
        assert (before, answer) == (after, "still here")

    def test_a_function_may_set_a_level_for_those_that_come_after_it(self):
        async def story(stage):
            for key, args in (("sets", (logging.CRITICAL,)), ("tells", ())):
                told = await stage.call(worker_functions.quiets, args=args, executor=Executor.PROCESS, key=key)
            return told.result

        assert play(story, max_processes=1) == logging.CRITICAL

    def test_a_function_may_start_a_scheduler(self):
        assert in_process(worker_functions.may_schedule).result is True

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_a_function_may_have_processes_of_its_own(self, method, capfd):
        assert in_process(worker_functions.pools, method).result == [2, 4, 6]
        assert "in a pool" in capfd.readouterr().err


class TestTogether:
    def test_two_run_at_the_same_time(self, tmp_path):
        async def story(stage):
            stage.functions.register("work", worker_functions.meets)
            one, two = str(tmp_path / "one"), str(tmp_path / "two")
            pair = [assigned(names[0], args=names, executor=Executor.PROCESS) for names in ((one, two), (two, one))]
            stage.runner.deliver(pair)
            return [await stage.end_of(assignment) for assignment in pair]

        assert [end.result for end in play(story)] == [True, True]

    def test_no_more_than_are_allowed_do(self):
        async def story(stage):
            stage.functions.register("work", worker_functions.alone)
            several = [assigned(number, executor=Executor.PROCESS) for number in range(6)]
            stage.runner.deliver(several)
            return [(await stage.end_of(one)).result for one in several]

        times = sorted(play(story, max_processes=1))
        assert all(ended <= began for (_, ended, _), (began, _, _) in pairwise(times))
        assert len({pid for _, _, pid in times}) == 1

    def test_neither_threads_nor_processes_wait_for_the_other(self, tmp_path):
        async def story(stage):
            gate = tmp_path / "gate"
            stage.functions.register("waits", worker_functions.wait_for)
            stage.functions.register("adds", worker_functions.add)
            busy = [
                assigned(number, function="waits", args=(str(gate),), executor=executor)
                for number, executor in enumerate([Executor.PROCESS] * 3 + [Executor.THREAD] * 2)
            ]
            stage.runner.deliver(busy[:3])
            in_thread = assigned("quick", function="adds", args=(1,))
            stage.runner.deliver([in_thread])
            assert (await stage.end_of(in_thread)).result == 1
            assert not any(one in stage.reported for one in busy)
            worker_functions.touch(gate)
            for one in busy[:3]:
                assert (await stage.end_of(one)).result is True
            gate.unlink()
            stage.runner.deliver(busy[3:])
            elsewhere = assigned("elsewhere", function="adds", args=(1,), executor=Executor.PROCESS)
            stage.runner.deliver([elsewhere])
            assert (await stage.end_of(elsewhere)).result == 1
            assert not any(one in stage.reported for one in busy[3:])
            worker_functions.touch(gate)

        play(story, max_threads=2, max_processes=2)

    def test_what_waits_for_a_process_can_be_taken_back_unless_it_must_not_begin_twice(self, tmp_path):
        async def story(stage):
            stage.functions.register("work", worker_functions.hangs)
            first, *others = [
                assigned(number, args=(str(tmp_path),), executor=Executor.PROCESS, delivery=delivery)
                for number, delivery in enumerate(
                    [Delivery.AT_LEAST_ONCE, Delivery.AT_LEAST_ONCE, Delivery.AT_MOST_ONCE]
                )
            ]
            stage.runner.deliver([first])
            await begun(tmp_path)
            stage.runner.deliver(others)
            assert stage.runner.withdraw() == others[:1]

        play(story, max_processes=1)


class TestClosing:
    @pytest.mark.parametrize("errand", [worker_functions.hangs, worker_functions.clings])
    def test_what_runs_is_made_to_end(self, errand, tmp_path):
        async def story(stage):
            assignment = await stage.deliver(errand, args=(str(tmp_path),), executor=Executor.PROCESS)
            pid = await begun(tmp_path)
            stage.runner.close()
            await eventually(lambda: not is_running(pid))
            assert (await stage.end_of(assignment)).outcome is Outcome.LEASE_LOST

        play(story)

    @pytest.mark.parametrize("errand", ["hangs", "hogs"])
    def test_when_the_node_is_killed_so_is_what_it_calls(self, errand, tmp_path):
        script = textwrap.dedent(f"""
            import asyncio
            from noonmark.core.targets import Executor
            from tests.targets.function import worker_functions
            from tests.targets.function.harness import play

            async def story(stage):
                await stage.call(worker_functions.{errand}, args=({str(tmp_path)!r},), executor=Executor.PROCESS)

            play(story)
        """)
        node = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[3])
        pid = asyncio.run(begun(tmp_path))
        node.kill()
        node.wait()
        asyncio.run(eventually(lambda: not is_running(pid)))

    def test_what_another_thread_has_started_goes_on_when_that_one_has_gone(self, monkeypatch, tmp_path):
        """The kernel ends a process with the thread that started it, if it was asked to."""
        monkeypatch.setattr(worker_pool, "IDLE_SECONDS", 0.05)

        async def story(stage):
            stage.functions.register("work", worker_functions.meets)
            stage.functions.register("waits", worker_functions.wait_for)
            one, two = str(tmp_path / "one"), str(tmp_path / "two")
            pair = [assigned(names[0], args=names, executor=Executor.PROCESS) for names in ((one, two), (two, one))]
            stage.runner.deliver(pair)
            for assignment in pair:
                await stage.end_of(assignment)
            last = assigned("last", function="waits", args=(str(tmp_path / "go on"),), executor=Executor.PROCESS)
            stage.runner.deliver([last])
            # Of two threads, each of which has started a process, one is idle and goes.
            await eventually(lambda: stage.runner._process_waiters._threads == 1)
            worker_functions.touch(tmp_path / "go on")
            return await stage.end_of(last)

        assert play(story).outcome is Outcome.COMPLETED

    def test_what_is_idle_ends(self):
        async def story(stage):
            pid = await still_works(stage)
            stage.runner.close()
            await eventually(lambda: not is_running(pid))

        play(story)

    def test_what_is_idle_for_a_while_ends(self, monkeypatch):
        monkeypatch.setattr(worker_pool, "IDLE_SECONDS", 0.05)

        async def story(stage):
            pid = await still_works(stage)
            await eventually(lambda: not is_running(pid))
            assert await still_works(stage) != pid

        play(story)
