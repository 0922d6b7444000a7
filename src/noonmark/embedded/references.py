"""References: the names by which schedules refer to Python functions, so that another process finds them again."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from noonmark.core.errors import InvalidSchedule
from noonmark.core.json_values import text_value
from noonmark.targets.function.registry import declared_reference, import_reference, process_problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from functools import _lru_cache_wrapper

    from noonmark.targets.function.registry import FunctionRegistry

T = TypeVar("T")
MAX_FUNCTION = 500


def refer(functions: FunctionRegistry, func: Callable[..., Any], name: str | None, *, is_durable: bool) -> str:
    """The name of a function, to register it once its declaration is valid."""
    check_callable(func)
    if name is not None:
        check_name("function_name", name)
    reference = name or functions.name_of(func) or import_reference(func)
    if reference is None and is_durable:
        shown = getattr(func, "__qualname__", repr(func))
        message = (
            f"{shown} cannot be found again by another process: pass a function of a module, or give it a name with "
            "function_name=... or register_function(name, func)"
        )
        raise InvalidSchedule(message, field="func")
    return reference or f"{getattr(func, '__qualname__', type(func).__qualname__)}#{id(func):x}"


def check_callable(func: object) -> None:
    """Refuse what cannot be called as a function."""
    if not callable(func):
        raise InvalidSchedule(f"must be callable, not {type(func).__name__}", field="func")
    if _look_up(_is_generator, func):
        shown = getattr(func, "__qualname__", repr(func))
        raise InvalidSchedule(f"{shown} is a generator: a call of it would run nothing; return a value", field="func")


def check_arguments(func: Callable[..., Any], args: object, kwargs: object) -> None:
    """Refuse arguments that do not fit the function; whether they are a list and a mapping is checked elsewhere."""
    if not isinstance(args, Sequence) or not isinstance(kwargs, Mapping | None):
        return
    names = tuple([name for name in kwargs if isinstance(name, str)]) if kwargs else ()
    problem = _look_up(_misfit, func, len(args), names)
    if problem is not None:
        called = getattr(func, "__qualname__", "the function")
        raise InvalidSchedule(f"do not fit {called}: {problem}", field="args")


def _look_up(look: _lru_cache_wrapper[T], func: Callable[..., Any], *more: object) -> T:
    """What is cached about a function with this code, because many schedules often share one.

    A notebook that reloads a module gives the functions that it has other code.
    """
    code = getattr(func, "__code__", None)
    try:
        return look(func, code, *more)
    except TypeError:  # it has no hash, so it cannot be cached
        return look.__wrapped__(func, code, *more)


@lru_cache(maxsize=64)
def _is_generator(func: Callable[..., Any], _code: object) -> bool:
    return inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func)


@lru_cache(maxsize=64)
def _misfit(func: Callable[..., Any], _code: object, count: int, names: tuple[str, ...]) -> str | None:
    """Why a call with so many arguments by position and these by name does not fit; None if it does."""
    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):  # some built-in functions have none
        return None
    given = dict.fromkeys(names)
    if "context" in signature.parameters:
        given.setdefault("context", None)
    try:
        signature.bind(*[None] * count, **given)
    except TypeError as error:
        return str(error)
    return None


def check_name(field: str, name: object) -> None:
    """Refuse an invalid name or id."""
    try:
        text_value(name, 1, MAX_FUNCTION, multiline=False)
    except ValueError as error:
        raise InvalidSchedule(str(error), field=field) from None


def check_process(func: Callable[..., Any], function_name: str | None) -> None:
    """Refuse a function that no other process could call, as far as that is known while it is being decorated."""
    problem = process_problem(
        func, is_being_defined=function_name is not None and function_name == declared_reference(func)
    )
    if problem is not None:
        raise InvalidSchedule(problem, field="executor")


def same_name_elsewhere(func: Callable[..., Any]) -> str | None:
    """The other name of a function: of a script when its file is imported, or of a module when its file is run."""
    module, qualname = getattr(func, "__module__", ""), getattr(func, "__qualname__", "")
    main = sys.modules["__main__"]
    if module == "__main__" and getattr(main, "__spec__", None) is None and hasattr(main, "__file__"):
        file = str(main.__file__).replace("\\", "/").rpartition("/")[2]
        return f"{file.partition('.')[0]}:{qualname}"
    is_importable = module and "." not in module and module not in ("__main__", "__mp_main__")
    return f"__main__:{qualname}" if is_importable else None


def future_reference(functions: FunctionRegistry, func: Callable[..., Any]) -> str | None:
    """The reference that a function will have when its decorator has returned; None if its module will not have it."""
    check_callable(func)
    registered = functions.name_of(func)
    # A method of an object is in no module; one of a class is there already.
    return registered or (import_reference(func) if inspect.ismethod(func) else declared_reference(func))
