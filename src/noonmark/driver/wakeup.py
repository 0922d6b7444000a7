"""An alarm: a wait on the loop that ends at a time, or when somebody rings, from whichever thread."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from noonmark.core.instants import SECOND

if TYPE_CHECKING:
    from noonmark.core.instants import Micros


class Wakeup:
    """Rings are not counted: one is as good as many."""

    def __init__(self) -> None:
        """Made on the loop that waits."""
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._is_set = False
        self._timer: asyncio.TimerHandle | None = None

    def set_within(self, pause: Micros) -> None:
        """Ring in a while, once for all who ask until then. On the loop that waits."""
        if self._timer is None:
            self._timer = self._loop.call_later(pause / SECOND, self._set_at_last)

    def remind(self, pause: Micros) -> None:
        """The same, from any thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.set_within, pause)

    def set(self) -> None:
        """End the wait that is on, or the next one. From any thread; when the loop has ended, nobody waits."""
        if self._is_set:
            return
        try:
            self._is_set = True
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:  # the loop has ended
            pass
        except BaseException:  # Ctrl-C: perhaps nobody was woken, so the next ring must not rely on this one
            self._is_set = False
            raise

    def _set_at_last(self) -> None:
        self._timer = None
        self.set()

    async def wait(self, pause: Micros | None) -> None:
        """Wait so long, or until it rings; None waits for a ring."""
        if pause is not None and pause <= 0:
            self._is_set = False
            self._event.clear()
            await asyncio.sleep(0)  # noqa: TID251 - no waiting: a store that never suspends must not keep others out
            return
        timer = None if pause is None else self._loop.call_later(pause / SECOND, self._event.set)
        await self._event.wait()
        if timer is not None:
            timer.cancel()
        self._is_set = False
        self._event.clear()
