"""Calls to the store from a thread without a loop.

A store that blocks does its work in the thread that awaits a verb, and never suspends. So a thread without a loop can
drive a verb to its end by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def drive(call: Coroutine[Any, Any, T]) -> T:
    """Run a call that never suspends to its end, in this thread."""
    try:
        call.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    call.close()
    raise RuntimeError("the store suspended in a call that has no event loop")
