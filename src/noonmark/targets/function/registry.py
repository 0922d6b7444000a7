"""The function registry: the names under which a process serves its Python functions.

A worker process loads this module, so its imports stay light.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import suppress
from functools import partial
from importlib import import_module, invalidate_caches
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from noonmark.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

ROUTE = "function:"
MAIN = "__main__"


@frozen
class Function:
    """A function, and how to call it."""

    call: Callable[..., Any]
    is_async: bool
    wants_context: bool


class FunctionRegistry:
    """The functions that this process serves, by name. Any thread may add to it at any time."""

    def __init__(self) -> None:
        self._by_name: dict[str, Function] = {}
        self._names: dict[Callable[..., Any], str] = {}
        self._unimportable: set[str] = set()
        """References that cannot be imported in this process."""
        self._offered: set[str] = set()
        """Names that schedules from the network may call."""
        self._routes: tuple[str, ...] | None = ()
        self._lock = Lock()
        _registries.add(self)

    def register(self, name: str, call: Callable[..., Any]) -> None:
        """Register a function under a name, replacing any earlier one."""
        registered = self._by_name.get(name)
        if registered is not None and registered.call is call:
            return
        with self._lock:
            self._by_name[name] = _inspect(call)
            self._routes = None
            with suppress(TypeError):  # not every callable is hashable
                self._names.setdefault(call, name)
        if _is_own_reference(call, name):
            for registry in list(_registries):
                registry.redefine(name, call)

    def offer(self, name: str) -> None:
        """Allow schedules from the network to call it, with any arguments."""
        self._offered.add(name)

    def is_offered(self, name: str) -> bool:
        """Whether schedules from the network may call it. By default only a program's own schedules may."""
        return name in self._offered

    def redefine(self, name: str, call: Callable[..., Any]) -> None:
        """Replace a module function that was defined again, as in a notebook."""
        with self._lock:
            registered = self._by_name.get(name)
            if registered is not None and registered.call is not call and _is_own_reference(registered.call, name):
                self._by_name[name] = _inspect(call)

    def name_of(self, call: Callable[..., Any]) -> str | None:
        """Return the name under which a function is registered, unless the name now belongs to another."""
        try:
            name = self._names.get(call)
        except TypeError:
            return None
        registered = None if name is None else self._by_name.get(name)
        return name if registered is not None and registered.call == call else None

    def find(self, name: str) -> Function | None:
        """Return the function of that name."""
        return self._by_name.get(name)

    def after_fork(self) -> None:
        """Reset the lock in a forked process, where no thread would release it."""
        self._lock = Lock()

    def routes(self) -> tuple[str, ...]:
        """Return one route per name."""
        routes = self._routes
        if routes is None:
            with self._lock:
                routes = self._routes = tuple([ROUTE + name for name in self._by_name])
        return routes

    def adopt(self, route: str) -> bool:
        """Register the function of a route that names a module, if it can be imported here."""
        name = route.removeprefix(ROUTE)
        if name in self._by_name or name in self._unimportable or ":" not in name:
            return False
        try:
            call = import_function(name)
        except ModuleNotFoundError:  # it may be installed later
            invalidate_caches()
            return False
        except (Exception, SystemExit):  # noqa: BLE001 - a module that fails to load here may load on another node
            self._unimportable.add(name)
            return False
        self.register(name, call)
        return True


_registries: WeakSet[FunctionRegistry] = WeakSet()


def _is_own_reference(call: Callable[..., Any], name: str) -> bool:
    """Whether a name says where the function is defined."""
    module, _, qualname = name.partition(":")
    return (
        bool(qualname)
        and getattr(call, "__qualname__", None) == qualname
        and getattr(call, "__module__", None) == module
        and not hasattr(call, "__self__")
    )


def import_function(name: str) -> Callable[..., Any]:
    """Import the function that `module:qualname` names; raises whatever the import raises."""
    module, _, qualname = name.partition(":")
    function: Any = import_module(module)
    for part in qualname.split("."):
        function = getattr(function, part)
    if not callable(function):
        raise TypeError(f"{name} is not callable")
    return function  # type: ignore[no-any-return] # callable was just checked


def declared_reference(call: Callable[..., Any]) -> str | None:
    """Return `module:qualname` as the function states it; None for a function defined inside another one.

    In a process spawned by multiprocessing the main script has another module name, which is translated back.
    """
    module, qualname = getattr(call, "__module__", None), getattr(call, "__qualname__", None)
    if not module or not qualname or "<" in qualname:
        return None
    return f"{MAIN if module == '__mp_main__' else module}:{qualname}"


def import_reference(call: Callable[..., Any]) -> str | None:
    """Return the declared reference if importing it gives this same function."""
    reference = declared_reference(call)
    if reference is None:
        return None
    try:
        # Looked up under its actual name: while a spawned process loads its script, the script has no other.
        return reference if import_function(f"{call.__module__}:{call.__qualname__}") == call else None
    except (ImportError, AttributeError, TypeError):
        return None


def main_origin() -> dict[str, str] | None:
    """Return the module or the file from which another process can load the main program again."""
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None and name != MAIN:
        return {"module": name}
    path = getattr(main, "__file__", None)
    return None if path is None else {"path": path}


def process_problem(call: Callable[..., Any], *, is_being_defined: bool = False) -> str | None:
    """Why a function cannot be called in another process, if it cannot.

    A function that is being defined cannot be imported yet; whether it can be is checked when it is called.
    """
    if getattr(sys, "frozen", False) or not sys.executable:
        return "this program is not run by a Python interpreter, so it cannot start worker processes"
    shown = getattr(call, "__qualname__", type(call).__qualname__)
    if _is_async(call):
        return f"{shown} is async and runs on the event loop of the scheduler; only other functions run in processes"
    if is_being_defined:
        return None
    reference = import_reference(call)
    if reference is None:
        return f"{shown} cannot be imported by another process: it must be a function of a module"
    if getattr(call, "__module__", None) == MAIN and main_origin() is None:
        return f"{shown} was typed at a prompt, where no other process can import it from: put it into a module"
    return None


def _inspect(call: Callable[..., Any]) -> Function:
    try:
        wants_context = "context" in inspect.signature(call).parameters
    except (TypeError, ValueError):  # some built-in functions have no signature
        wants_context = False
    return Function(call, is_async=_is_async(call), wants_context=wants_context)


def _is_async(call: Callable[..., Any]) -> bool:
    inner = call.func if isinstance(call, partial) else call
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004
