"""One step: a verb that nobody sees half done, also among threads."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from threading import RLock


class Locked(Protocol):
    """Whatever has a lock."""

    _lock: RLock


L = TypeVar("L", bound=Locked)
P = ParamSpec("P")
T = TypeVar("T")


def atomic(
    verb: Callable[Concatenate[L, P], Awaitable[T]],
) -> Callable[Concatenate[L, P], Coroutine[Any, Any, T]]:
    """Make one step of a verb; it must not suspend while it holds the lock, and none does."""

    @wraps(verb)
    async def locked(self: L, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            return await verb(self, *args, **kwargs)

    return locked
