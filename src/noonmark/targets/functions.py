"""Functions: the names under which a process offers its Python functions, and what these learn about their runs.

A child process loads this module, so it is kept light.
"""

from __future__ import annotations

import inspect
import logging
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module, invalidate_caches
from threading import Event, Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from noonmark.core.instants import from_micros

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

ROUTE = "function:"
MAIN = "__main__"
logger = logging.getLogger("noonmark.jobs")


class StopSignal(Event):
    """Set when a run should end early. It remembers whether the run looked at it after that."""

    def __init__(self) -> None:
        """Nobody asked yet."""
        super().__init__()
        self.was_seen = False

    def is_set(self) -> bool:
        """Whether the run should end."""
        self.was_seen = super().is_set()
        return self.was_seen

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it; True when the run should end."""
        self.was_seen = super().wait(timeout)
        return self.was_seen


@dataclass(frozen=True, slots=True)
class Context:
    """What a function learns about its run, when it has a parameter named `context`."""

    occurrence_id: str
    """The same in every attempt, so that it can serve as a key of what was done already."""
    schedule_id: str
    """The id of its job."""
    nominal_at: datetime
    """The time that the trigger named, in UTC."""
    due_at: datetime
    """That time with jitter, or the time of a retry."""
    attempt: int
    """1, and more after a failure."""
    payload: Any
    """What `run_now` or the event brought, else the payload of the job."""
    event: Any
    """The event that set it off, if one did."""
    cancelled: Event
    """Set when the run should end early: it timed out, was cancelled, or this node lost it."""
    logger: logging.LoggerAdapter[logging.Logger]
    """Adds the ids of the occurrence and of the job to each record."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function, and how it wants to be called."""

    call: Callable[..., Any]
    is_async: bool
    wants_context: bool


class Functions:
    """The functions that this process offers, by name. Another thread may add to them at any time."""

    def __init__(self) -> None:
        """None yet."""
        self._by_name: dict[str, Function] = {}
        self._names: dict[Callable[..., Any], str] = {}
        self._elsewhere: set[str] = set()
        """Named by module, but not to be imported here."""
        self._offered: set[str] = set()
        """Names that schedules may call which came over the network."""
        self._routes: tuple[str, ...] | None = ()
        self._lock = Lock()
        _alive.add(self)

    def register(self, name: str, call: Callable[..., Any]) -> None:
        """Offer a function under a name, in place of the one it stood for before."""
        known = self._by_name.get(name)
        if known is not None and known.call is call:
            return
        with self._lock:
            self._by_name[name] = _function(call)
            self._routes = None
            with suppress(TypeError):  # not every callable can be a key
                self._names.setdefault(call, name)
        if _is_place(call, name):
            for others in list(_alive):
                others.redefine(name, call)

    def offer(self, name: str) -> None:
        """Let schedules call it which came over the network, with any arguments."""
        self._offered.add(name)

    def is_offered(self, name: str) -> bool:
        """Whether such schedules may call it; what a program has only declared is for the schedules of programs."""
        return name in self._offered

    def redefine(self, name: str, call: Callable[..., Any]) -> None:
        """A function of a module was defined again, as a notebook does: nobody runs the old one any more."""
        with self._lock:
            known = self._by_name.get(name)
            if known is not None and known.call is not call and _is_place(known.call, name):
                self._by_name[name] = _function(call)

    def name_of(self, call: Callable[..., Any]) -> str | None:
        """The name under which a function was registered, if it is still that function's."""
        try:
            name = self._names.get(call)
        except TypeError:
            return None
        known = None if name is None else self._by_name.get(name)
        return name if known is not None and known.call == call else None

    def find(self, name: str) -> Function | None:
        """The function of that name."""
        return self._by_name.get(name)

    def after_fork(self) -> None:
        """This process is new: a lock that another thread held is held for good."""
        self._lock = Lock()

    def routes(self) -> tuple[str, ...]:
        """One for each name."""
        routes = self._routes
        if routes is None:
            with self._lock:
                routes = self._routes = tuple([ROUTE + name for name in self._by_name])
        return routes

    def adopt(self, route: str) -> bool:
        """Offer the function of a route that names a module, if it can be imported here."""
        name = route.removeprefix(ROUTE)
        if name in self._by_name or name in self._elsewhere or ":" not in name:
            return False
        try:
            call = import_function(name)
        except ModuleNotFoundError:  # it may be there the next time
            invalidate_caches()
            return False
        except (Exception, SystemExit):  # noqa: BLE001 - a module that cannot be loaded here may be well elsewhere
            self._elsewhere.add(name)
            return False
        self.register(name, call)
        return True


_alive: WeakSet[Functions] = WeakSet()


def _is_place(call: Callable[..., Any], name: str) -> bool:
    """Whether a name says where a function is defined."""
    module, _, qualname = name.partition(":")
    return (
        bool(qualname)
        and getattr(call, "__qualname__", None) == qualname
        and getattr(call, "__module__", None) == module
        and not hasattr(call, "__self__")
    )


def import_function(name: str) -> Callable[..., Any]:
    """The function that `module:qualname` names; any error of the import is raised."""
    module, _, qualname = name.partition(":")
    found: Any = import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{name} is not callable")
    return found  # type: ignore[no-any-return] # callable was just checked


def place_of(call: Callable[..., Any]) -> str | None:
    """`module:qualname`, where a function says that it is found; nowhere, if it was made inside another one.

    In a process that multiprocessing has spawned, the script of the program has another name, but is the same.
    """
    module, qualname = getattr(call, "__module__", None), getattr(call, "__qualname__", None)
    if not module or not qualname or "<" in qualname:
        return None
    return f"{MAIN if module == '__mp_main__' else module}:{qualname}"


def import_reference(call: Callable[..., Any]) -> str | None:
    """The same, if importing that gives this very function."""
    place = place_of(call)
    if place is None:
        return None
    try:
        # Looked up under its own name: while the script of a spawned process is loaded, it has no other.
        return place if import_function(f"{call.__module__}:{call.__qualname__}") == call else None
    except (ImportError, AttributeError, TypeError):
        return None


def main_origin() -> dict[str, str] | None:
    """Where the program that was started can be loaded from again, by another process: a module or a file."""
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None and name != MAIN:
        return {"module": name}
    path = getattr(main, "__file__", None)
    return None if path is None else {"path": path}


def process_problem(call: Callable[..., Any], *, is_being_defined: bool = False) -> str | None:
    """Why a function cannot be called in a process of its own, if it cannot.

    One that is being defined has no place in its module yet; whether it can be imported shows when it is called.
    """
    if getattr(sys, "frozen", False) or not sys.executable:
        return "a program that is not run by a Python interpreter of its own has none to start processes with"
    shown = getattr(call, "__qualname__", type(call).__qualname__)
    if _is_async(call):
        return f"{shown} is async, and runs on the loop of the scheduler: a process is for functions that are not"
    if is_being_defined:
        return None
    reference = import_reference(call)
    if reference is None:
        return f"{shown} cannot be imported by another process: it must be a function of a module"
    if getattr(call, "__module__", None) == MAIN and main_origin() is None:
        return f"{shown} was typed at a prompt, where no other process can import it from: put it into a module"
    return None


def make_context(fields: dict[str, Any], signal: StopSignal) -> Context:
    """The context of a run, from what is said about it as JSON."""
    ids = {"occurrence_id": fields["occurrence_id"], "schedule_id": fields["schedule_id"]}
    return Context(
        **ids,
        nominal_at=from_micros(fields["nominal"]),
        due_at=from_micros(fields["due"]),
        attempt=fields["attempt"],
        payload=fields["payload"],
        event=fields["event"],
        cancelled=signal,
        logger=logging.LoggerAdapter(logger, ids),
    )


def _function(call: Callable[..., Any]) -> Function:
    try:
        wants_context = "context" in inspect.signature(call).parameters
    except (TypeError, ValueError):  # some built-in functions do not tell
        wants_context = False
    return Function(call, is_async=_is_async(call), wants_context=wants_context)


def _is_async(call: Callable[..., Any]) -> bool:
    inner = call.func if isinstance(call, partial) else call
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004
