"""An alarm: a wait on the loop that ends at a time, or when somebody rings, from whichever thread."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from noonmark.core.instants import SECOND

if TYPE_CHECKING:
    from noonmark.core.instants import Micros


class Alarm:
    """Rings are not counted: one is as good as many."""

    def __init__(self) -> None:
        """Made on the loop that waits."""
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._is_rung = False
        self._timer: asyncio.TimerHandle | None = None

    def ring_within(self, pause: Micros) -> None:
        """Ring in a while, once for all who ask until then. On the loop that waits."""
        if self._timer is None:
            self._timer = self._loop.call_later(pause / SECOND, self._ring_at_last)

    def remind(self, pause: Micros) -> None:
        """The same, from any thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.ring_within, pause)

    def ring(self) -> None:
        """End the wait that is on, or the next one. From any thread; when the loop has ended, nobody waits."""
        if self._is_rung:
            return
        try:
            self._is_rung = True
            self._loop.call_soon_threadsafe(self._rung.set)
        except RuntimeError:  # the loop has ended
            pass
        except BaseException:  # Ctrl-C: perhaps nobody was woken, so the next ring must not rely on this one
            self._is_rung = False
            raise

    def _ring_at_last(self) -> None:
        self._timer = None
        self.ring()

    async def wait(self, pause: Micros | None) -> None:
        """Wait so long, or until it rings; None waits for a ring."""
        if pause is not None and pause <= 0:
            self._is_rung = False
            self._rung.clear()
            await asyncio.sleep(0)  # noqa: TID251 - no waiting: a store that never suspends must not keep others out
            return
        timer = None if pause is None else self._loop.call_later(pause / SECOND, self._rung.set)
        await self._rung.wait()
        if timer is not None:
            timer.cancel()
        self._is_rung = False
        self._rung.clear()
