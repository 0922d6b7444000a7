"""One step: a verb that nobody sees half done, also among threads."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from noonmark.stores.memory.system_events import tell

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import RLock

    from noonmark.stores.memory.unit_of_work import UnitOfWork


class Locked(Protocol):
    """Whatever has a ledger and a lock."""

    _lock: RLock
    _uow: UnitOfWork


L = TypeVar("L", bound=Locked)
P = ParamSpec("P")
T = TypeVar("T")


def atomic(verb: Callable[Concatenate[L, P], T]) -> Callable[Concatenate[L, P], T]:
    """Hold the lock during a verb, and emit the events that it brings about."""

    @wraps(verb)
    def locked(self: L, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            answer = verb(self, *args, **kwargs)
            if self._uow.facts:
                tell(self._uow)
            return answer

    return locked
