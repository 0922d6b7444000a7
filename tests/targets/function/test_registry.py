"""The function registry."""

import sys
import threading
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from noonmark.targets.function.registry import (
    FunctionRegistry,
    import_function,
    import_reference,
    main_origin,
    process_problem,
)


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

    def test_name_can_be_registered_again(self, functions):
        functions.register("a", one)
        functions.register("a", two)
        assert functions.find("a").call is two
        assert functions.routes() == ("function:a",)

    def test_registered_name_of_a_function_is_found(self, functions):
        functions.register("a", one)
        assert functions.name_of(one) == "a"
        assert functions.name_of(two) is None

    def test_registered_name_of_a_method_is_found(self, functions):
        functions.register("append", [].append)
        held = []
        functions.register("mine", held.append)
        assert functions.name_of(held.append) == "mine"

    def test_registration_is_thread_safe(self, functions):
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
    def test_function_is_imported_by_module_and_name(self):
        assert import_function("posixpath:join") is __import__("posixpath").join
        assert import_function("pathlib:Path.cwd")() is not None

    @pytest.mark.parametrize("name", ["no_such_module:f", "json:no_such", "json:decoder.no", "math:pi"])
    def test_missing_function_is_an_error(self, name):
        with pytest.raises((ImportError, AttributeError, TypeError)):
            import_function(name)

    def test_module_installed_later_is_found(self, functions, module):
        assert functions.adopt("function:comes_later:work") is False
        module("comes_later", "def work(): return 7")
        assert functions.adopt("function:comes_later:work") is True

    def test_routes_of_other_processes_are_adopted(self, functions, module):
        module("adoptable", "def work(): return 7")
        assert functions.adopt("function:adoptable:work") is True
        assert functions.find("adoptable:work").call() == 7
        assert functions.adopt("function:adoptable:work") is False

    @pytest.mark.parametrize("route", ["function:plain", "function:no_such_module:f", "function:math:pi"])
    def test_unimportable_routes_are_not_adopted(self, functions, route):
        assert functions.adopt(route) is False
        assert functions.routes() == ()

    @pytest.mark.parametrize("text", ["raise SystemExit(1)", "raise ValueError('broken')", "1 / 0", "def ("])
    def test_failing_module_is_not_adopted(self, functions, module, text):
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
    def test_module_functions_can_run_in_processes(self, function):
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
    def test_other_callables_cannot_run_in_processes(self, function, why):
        assert process_problem(function).startswith(why)

    def test_nested_function_cannot_run_in_processes(self):
        def inner():
            pass

        assert "cannot be imported" in process_problem(inner)

    def test_redefined_function_cannot_run_in_processes(self, module):
        module("shadowed", "def work(): pass\nold = work\ndef work(): pass")
        shadowed = import_function("shadowed:old")
        assert "work cannot be imported" in process_problem(shadowed)

    def test_main_program_is_loaded_from_its_file_or_module(self, monkeypatch):
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

    def test_frozen_program_cannot_start_processes(self, monkeypatch):
        monkeypatch.setattr(sys, "frozen", True, raising=False)
        assert "interpreter" in process_problem(one)


class Book:
    def turn(self):
        return "page"


class Unhashable:
    __hash__ = None

    def __call__(self):
        return "called"


def test_bound_method_is_found_by_its_instance():
    functions, book = FunctionRegistry(), Book()
    functions.register("turn", book.turn)
    assert functions.name_of(book.turn) == "turn"
    assert functions.name_of(Book().turn) is None


def test_replaced_function_has_no_name():
    functions, first, second = FunctionRegistry(), Book().turn, Book().turn
    functions.register("turn", first)
    functions.register("turn", second)
    assert functions.name_of(first) is None
    assert functions.find("turn").call == second


def test_unhashable_callable_is_registered():
    functions, call = FunctionRegistry(), Unhashable()
    functions.register("odd", call)
    assert functions.name_of(call) is None
    assert functions.routes() == ("function:odd",)


def test_failing_module_is_imported_once(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "counting_imports.py").write_text(
        "import sys\nsys.tries = getattr(sys, 'tries', 0) + 1\nraise OSError\n"
    )
    monkeypatch.setattr(sys, "tries", 0, raising=False)
    functions = FunctionRegistry()
    assert not functions.adopt("function:counting_imports:work")
    assert not functions.adopt("function:counting_imports:work")
    assert sys.tries == 1
