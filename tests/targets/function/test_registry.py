"""The names under which a process offers its functions, and what it takes over from others."""

import sys
import threading
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from noonmark.core.run import Outcome
from noonmark.core.targets import Executor
from noonmark.targets.function.registry import (
    FunctionRegistry,
    import_function,
    import_reference,
    main_origin,
    process_problem,
)
from noonmark.targets.function.runner import InlineRunner
from tests.targets.assignments import assigned, now


@pytest.fixture
def functions():
    return FunctionRegistry()


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module that can be imported until the end of the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    written = []

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        written.append(name)

    yield write
    for name in written:
        sys.modules.pop(name, None)


def one():
    return 1


def two():
    return 2


class TestNames:
    def test_each_name_is_a_route(self, functions):
        assert functions.routes() == ()
        functions.register("a", one)
        functions.register("b", two)
        assert functions.routes() == ("function:a", "function:b")
        assert functions.find("a").call is one
        assert functions.find("c") is None

    def test_a_name_can_stand_for_another_function(self, functions):
        functions.register("a", one)
        functions.register("a", two)
        assert functions.find("a").call is two
        assert functions.routes() == ("function:a",)

    def test_a_function_is_known_by_its_name(self, functions):
        functions.register("a", one)
        assert functions.name_of(one) == "a"
        assert functions.name_of(two) is None

    def test_a_method_is_known_again(self, functions):
        functions.register("append", [].append)
        held = []
        functions.register("mine", held.append)
        assert functions.name_of(held.append) == "mine"

    def test_threads_that_register_at_once_do_not_lose_each_others(self, functions):
        def register(number):
            for turn in range(20):
                functions.register(f"{number}.{turn}", one)

        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            threads = [threading.Thread(target=register, args=(number,)) for number in range(10)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(before)
        assert len(functions.routes()) == 200


class TestImporting:
    def test_a_function_is_found_by_module_and_name(self):
        assert import_function("posixpath:join") is __import__("posixpath").join
        assert import_function("pathlib:Path.cwd")() is not None

    @pytest.mark.parametrize("name", ["no_such_module:f", "json:no_such", "json:decoder.no", "math:pi"])
    def test_what_is_not_there_is_an_error(self, name):
        with pytest.raises((ImportError, AttributeError, TypeError)):
            import_function(name)

    def test_a_module_that_comes_later_is_found_then(self, functions, module):
        assert functions.adopt("function:comes_later:work") is False
        module("comes_later", "def work(): return 7")
        assert functions.adopt("function:comes_later:work") is True

    def test_what_others_named_is_adopted(self, functions, module):
        module("adoptable", "def work(): return 7")
        assert functions.adopt("function:adoptable:work") is True
        assert functions.find("adoptable:work").call() == 7
        assert functions.adopt("function:adoptable:work") is False

    @pytest.mark.parametrize("route", ["function:plain", "function:no_such_module:f", "function:math:pi"])
    def test_what_cannot_be_imported_is_left_alone(self, functions, route):
        assert functions.adopt(route) is False
        assert functions.routes() == ()

    @pytest.mark.parametrize("text", ["raise SystemExit(1)", "raise ValueError('broken')", "1 / 0", "def ("])
    def test_a_module_that_fails_stops_nothing(self, functions, module, text):
        module("breaks", text)
        assert functions.adopt("function:breaks:work") is False


class Named:
    @classmethod
    def of_the_class(cls):
        pass

    @staticmethod
    def of_nobody():
        pass

    def of_an_object(self):
        pass

    def __call__(self):
        pass


async def later():
    pass


class TestInProcesses:
    @pytest.mark.parametrize("function", [one, Named.of_the_class, Named.of_nobody, len, Named])
    def test_what_a_module_has_can_be_called_there(self, function):
        assert process_problem(function) is None
        assert import_function(import_reference(function)) == function

    @pytest.mark.parametrize(
        ("function", "why"),
        [
            (
                lambda: 1,
                "TestInProcesses.<lambda> cannot be imported by another process: it must be a function of a module",
            ),
            (Named().of_an_object, "Named.of_an_object cannot be imported"),
            (Named(), "Named cannot be imported"),
            (partial(one), "partial cannot be imported"),
            ([].append, "list.append cannot be imported"),
            (later, "later is async"),
            (partial(later), "partial is async"),
        ],
    )
    def test_nothing_else_can(self, function, why):
        assert process_problem(function).startswith(why)

    def test_a_function_inside_another_cannot(self):
        def inner():
            pass

        assert "cannot be imported" in process_problem(inner)

    def test_one_that_another_stands_for_by_now_cannot(self, module):
        module("shadowed", "def work(): pass\nold = work\ndef work(): pass")
        shadowed = import_function("shadowed:old")
        assert "work cannot be imported" in process_problem(shadowed)

    def test_the_program_itself_can_be_loaded_again_from_its_file_or_module(self, monkeypatch):
        main = ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", main)
        exec("def work(): pass", vars(main))  # noqa: S102 - as at a prompt
        assert main_origin() is None
        assert "typed at a prompt" in process_problem(main.work)
        main.__file__ = "/somewhere/program.py"
        assert main_origin() == {"path": "/somewhere/program.py"}
        assert process_problem(main.work) is None
        main.__spec__ = ModuleSpec("package.__main__", None)
        assert main_origin() == {"module": "package.__main__"}
        main.__spec__ = ModuleSpec("__main__", None)  # a folder, or an archive
        assert main_origin() == {"path": "/somewhere/program.py"}

    def test_a_frozen_program_has_no_interpreter_for_it(self, monkeypatch):
        monkeypatch.setattr(sys, "frozen", True, raising=False)
        assert "interpreter" in process_problem(one)


class TestInline:
    def deliver(self, functions, *assignments):
        reported = {}
        runner = InlineRunner(functions)
        runner.open(reported.__setitem__, now)
        runner.deliver(assignments)
        runner.close()
        assert all(one.is_closed for one in assignments)
        return [reported[one] for one in assignments]

    def test_functions_are_called_in_order_in_this_thread(self, functions):
        order = []
        functions.register("work", order.append)
        self.deliver(functions, *(assigned(n, args=(n,)) for n in range(3)))
        assert order == [0, 1, 2]

    def test_async_functions_and_those_in_disguise_are_awaited(self, functions):
        async def later():
            return 3

        functions.register("work", later)
        functions.register("disguised", lambda: later())  # noqa: PLW0108 - that is the disguise
        ends = self.deliver(functions, assigned("1"), assigned("2", function="disguised"))
        assert [end.result for end in ends] == [3, 3]

    @pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
    def test_whatever_is_raised_is_recorded(self, functions, kind):
        def fail():
            raise kind("on purpose")

        async def fail_later():
            raise kind("on purpose")

        functions.register("work", fail)
        functions.register("later", fail_later)
        first, second = assigned("1"), assigned("2", function="later")
        ends = self.deliver(functions, first, second)
        assert [end.outcome for end in ends] == [Outcome.FAILED, Outcome.FAILED]
        assert type(first.error) is type(second.error) is kind

    def test_one_that_asks_for_a_process_is_called_here_too(self, functions):
        called = []
        functions.register("work", lambda: called.append(True))
        self.deliver(functions, assigned(executor=Executor.PROCESS))
        assert called == [True]

    def test_a_function_that_is_gone_is_a_delivery_that_failed(self, functions):
        [end] = self.deliver(functions, assigned(function="nobody"))
        assert end.outcome is Outcome.DELIVERY_FAILED

    def test_it_offers_and_adopts_what_its_functions_do(self, functions, module):
        module("offered", "def work(): return 7")
        runner = InlineRunner(functions)
        assert runner.adopt(["function:offered:work", "function:plain"]) is True
        assert runner.routes() == ("function:offered:work",)


class Book:
    def turn(self):
        return "page"


class Unhashable:
    __hash__ = None

    def __call__(self):
        return "called"


def test_a_method_is_found_under_its_name_again():
    functions, book = FunctionRegistry(), Book()
    functions.register("turn", book.turn)
    assert functions.name_of(book.turn) == "turn"
    assert functions.name_of(Book().turn) is None


def test_a_name_that_went_to_another_function_is_not_the_first_ones():
    functions, first, second = FunctionRegistry(), Book().turn, Book().turn
    functions.register("turn", first)
    functions.register("turn", second)
    assert functions.name_of(first) is None
    assert functions.find("turn").call == second


def test_what_cannot_be_a_key_is_offered_all_the_same():
    functions, call = FunctionRegistry(), Unhashable()
    functions.register("odd", call)
    assert functions.name_of(call) is None
    assert functions.routes() == ("function:odd",)


def test_a_module_that_cannot_be_imported_is_tried_once(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "counting_imports.py").write_text(
        "import sys\nsys.tries = getattr(sys, 'tries', 0) + 1\nraise OSError\n"
    )
    monkeypatch.setattr(sys, "tries", 0, raising=False)
    functions = FunctionRegistry()
    assert not functions.adopt("function:counting_imports:work")
    assert not functions.adopt("function:counting_imports:work")
    assert sys.tries == 1
