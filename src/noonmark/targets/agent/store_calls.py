"""Calls of the store by agents: in threads, and again when the store is back."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from noonmark.core.errors import NoonmarkError
from noonmark.core.instants import SECOND
from noonmark.targets.loop_runner import pause

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 8
PAUSE = SECOND // 2
UNAVAILABLE = "store_unavailable"


class StoreCalls:
    """Calls the store without blocking the loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "noonmark-agent-store")

    def close(self) -> None:
        """Begin nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def once(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a verb of the store."""
        call = partial(verb, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def run(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a verb that may be repeated, until the store answers."""
        while True:
            try:
                return await self.once(verb, *args, **kwargs)
            except NoonmarkError as error:
                if error.code != UNAVAILABLE:
                    raise
            await pause(PAUSE)
