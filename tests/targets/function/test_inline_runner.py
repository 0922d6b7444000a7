"""The inline runner."""

import pytest

from noonmark.core.run import Outcome
from noonmark.core.targets import Executor
from noonmark.targets.function.registry import FunctionRegistry
from noonmark.targets.function.runner import InlineRunner
from tests.targets.assignments import function_assignment, now


@pytest.fixture
def functions():
    return FunctionRegistry()


def deliver(functions, *assignments):
    reported = {}
    runner = InlineRunner(functions)
    runner.open(reported.__setitem__, now)
    runner.deliver(assignments)
    runner.close()
    assert all(one.is_closed for one in assignments)
    return [reported[one] for one in assignments]


def test_functions_are_called_in_order_in_this_thread(functions):
    order = []
    functions.register("work", order.append)
    deliver(functions, *(function_assignment(n, args=(n,)) for n in range(3)))
    assert order == [0, 1, 2]


def test_async_functions_are_awaited(functions):
    async def later():
        return 3

    functions.register("work", later)
    functions.register("disguised", lambda: later())  # noqa: PLW0108 - that is the disguise
    ends = deliver(functions, function_assignment("1"), function_assignment("2", function="disguised"))
    assert [end.result for end in ends] == [3, 3]


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_errors_are_recorded(functions, kind):
    def fail():
        raise kind("on purpose")

    async def fail_later():
        raise kind("on purpose")

    functions.register("work", fail)
    functions.register("later", fail_later)
    first, second = function_assignment("1"), function_assignment("2", function="later")
    ends = deliver(functions, first, second)
    assert [end.outcome for end in ends] == [Outcome.FAILED, Outcome.FAILED]
    assert type(first.error) is type(second.error) is kind


def test_process_executor_is_ignored(functions):
    called = []
    functions.register("work", lambda: called.append(True))
    deliver(functions, function_assignment(executor=Executor.PROCESS))
    assert called == [True]


def test_missing_function_is_undeliverable(functions):
    [end] = deliver(functions, function_assignment(function="nobody"))
    assert end.outcome is Outcome.DELIVERY_FAILED


def test_routes_are_those_of_the_registry(functions):
    runner = InlineRunner(functions)
    assert runner.adopt(["function:json:dumps", "function:plain"]) is True
    assert runner.routes() == ("function:json:dumps",)
