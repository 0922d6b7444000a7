"""Functions: the names under which a process offers its Python functions, and one call of one of them."""

from __future__ import annotations

import inspect
import json
import logging
import traceback
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from threading import Event, Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from noonmark.core.ids import OriginKind, kind_of
from noonmark.core.instants import from_micros
from noonmark.core.jsonvalues import json_copy, json_problem, printable
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Delivered
from noonmark.core.targets import FunctionTarget

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.ports.target import Assignment

ROUTE = "function:"
MAX_RESULT = 65_536
"""Bytes of JSON that are kept of a result, and characters of a traceback."""

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
    schedule_id: str
    nominal_at: datetime
    due_at: datetime
    attempt: int
    payload: Any
    event: Any
    cancelled: Event
    """Set when the run should end early: it timed out, was cancelled, or this node lost it."""
    logger: logging.LoggerAdapter[logging.Logger]


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


def prepare(functions: Functions, assignment: Assignment) -> tuple[Function, tuple[Any, ...], dict[str, Any]]:
    """The function of an assignment with its arguments; raises LookupError when this process has no such function."""
    target = assignment.schedule.declaration.target
    if not isinstance(target, FunctionTarget):
        raise LookupError(f"a {target.kind} target is not a function")
    function = functions.find(target.function)
    if function is None:
        raise LookupError(f"no function is registered as {target.function!r} in this process")
    # Copies: what a function does to its arguments must not reach the next run.
    args = tuple(json_copy(target.args)) if target.args else ()
    kwargs = json_copy(target.kwargs) if target.kwargs else {}
    if not function.wants_context or "context" in kwargs:
        return function, args, kwargs
    signal = StopSignal()
    assignment.signal = signal
    if assignment.stop_reason is not None:  # it was asked before there was a signal
        signal.set()
    return function, args, {**kwargs, "context": _context(assignment.occurrence, target, signal)}


def succeeded(assignment: Assignment, result: object, *, now: Micros) -> Delivered:
    """The function returned. If it had noticed that it should stop, it did not finish its work."""
    assignment.result = result
    if assignment.stop_reason is not None and getattr(assignment.signal, "was_seen", False):
        return _stopped(assignment, assignment.stop_reason, None, now=now)
    started = now if assignment.started is None else assignment.started
    if result is None:
        return Delivered(outcome=Outcome.COMPLETED, started=started, ended=now)
    kept, note = _kept(result)
    return Delivered(outcome=Outcome.COMPLETED, started=started, ended=now, result=kept, error=note)


def raised(assignment: Assignment, error: BaseException, *, now: Micros) -> Delivered:
    """The function raised; when it had been asked to stop, that was its answer."""
    text = _shown(error)
    if assignment.stop_reason is not None:
        return _stopped(assignment, assignment.stop_reason, text, now=now)
    started = now if assignment.started is None else assignment.started
    return Delivered(outcome=Outcome.FAILED, started=started, ended=now, error=text)


def cut_off(assignment: Assignment, *, now: Micros) -> Delivered:
    """Its time was up: its timeout, or the end of its window."""
    started = now if assignment.started is None else assignment.started
    if assignment.is_timeout(now):
        return Delivered(outcome=Outcome.TIMED_OUT, started=started, ended=now)
    return Delivered(outcome=Outcome.CANCELLED, started=started, ended=now, reason=Reason.WINDOW_CLOSED)


def undeliverable(error: LookupError, *, now: Micros) -> Delivered:
    """This process has no such function any more."""
    return Delivered(outcome=Outcome.DELIVERY_FAILED, started=now, ended=now, error=str(error.args[0]))


def not_begun(assignment: Assignment, reason: Reason, *, now: Micros) -> Delivered:
    """It was asked to stop while it waited for its time, or for a thread."""
    return _stopped(assignment, reason, None, now=now)


def _stopped(assignment: Assignment, reason: Reason, text: str | None, *, now: Micros) -> Delivered:
    started = now if assignment.started is None else assignment.started
    if reason is Reason.LEASE_LOST:
        return Delivered(outcome=Outcome.LEASE_LOST, started=started, ended=now, error=text)
    return Delivered(outcome=Outcome.CANCELLED, started=started, ended=now, error=text, reason=reason)


def _function(call: Callable[..., Any]) -> Function:
    try:
        wants_context = "context" in inspect.signature(call).parameters
    except (TypeError, ValueError):  # some built-in functions do not tell
        wants_context = False
    inner = call.func if isinstance(call, partial) else call
    is_async = inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004
    return Function(call, is_async=is_async, wants_context=wants_context)


def _context(occurrence: Occurrence, target: FunctionTarget, signal: StopSignal) -> Context:
    """An event brings its payload, a call that asked for the run may; otherwise it is the one of the schedule."""
    brought = json_copy(occurrence.payload)
    event = brought if kind_of(occurrence.origin) is OriginKind.EVENT else None
    payload = brought if event is None else event["payload"]
    ids = {"occurrence_id": occurrence.id, "schedule_id": occurrence.schedule_id}
    return Context(
        occurrence_id=occurrence.id,
        schedule_id=occurrence.schedule_id,
        nominal_at=from_micros(occurrence.nominal),
        due_at=from_micros(occurrence.due),
        attempt=occurrence.attempt,
        payload=json_copy(target.payload) if payload is None else payload,
        event=event,
        cancelled=signal,
        logger=logging.LoggerAdapter(logger, ids),
    )


def _shown(error: BaseException) -> str:
    """The end of a traceback, as text that every store can hold."""
    try:
        text = "".join(traceback.format_exception(error))[-MAX_RESULT:]
    except Exception:  # noqa: BLE001 - an error that cannot even be shown is still an error
        text = f"{type(error).__name__}, which cannot be shown"
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def _kept(result: object) -> tuple[Any, str | None]:
    """What is kept of a result: JSON, and not too much of it. The work is done, so anything else is no failure."""
    try:
        text = json.dumps(result, allow_nan=False)
    except Exception as error:  # noqa: BLE001 - it may be made of anything
        return None, f"the result was not kept: it is not JSON ({printable(str(error))})"
    if len(text) > MAX_RESULT:
        return None, f"the result was not kept: it has {len(text):,} bytes of JSON, and at most {MAX_RESULT:,} are kept"
    kept = json.loads(text)
    problem = json_problem(kept)
    return (kept, None) if problem is None else (None, f"the result was not kept: it {problem}")
