"""Threads for calls that block, made by a program with an event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from noonmark.driver.store_executor import resolve_threadsafe

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Make a call that blocks, in a thread of its own.

    Not in one of the executor: those are few, and calls that wait for a run could hold all of them while the run waits
    for another call. And a loop that ends waits for its executor, but not for this.
    """
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    context = contextvars.copy_context()
    thread = threading.Thread(
        target=context.run, args=(_answer, answer, call, args, kwargs), name="noonmark-call", daemon=True
    )
    thread.start()
    return await answer


def _answer(answer: asyncio.Future[Any], call: Callable[..., Any], args: Any, kwargs: Any) -> None:  # noqa: ANN401
    result: Any = None
    error: BaseException | None = None
    try:
        result = call(*args, **kwargs)
    except BaseException as raised:  # noqa: BLE001 - it is raised where the answer is awaited
        error = raised
    resolve_threadsafe(answer, result, error)
