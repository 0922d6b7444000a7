"""A wait on the event loop that ends after a time, or when any thread sets it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from noonmark.core.instants import SECOND

if TYPE_CHECKING:
    from noonmark.core.instants import Micros


class Wakeup:
    """Like `asyncio.Event`, but with a timeout, settable from any thread, and cleared by each wait."""

    def __init__(self) -> None:
        """Create it on the loop that waits."""
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._is_set = False
        self._timer: asyncio.TimerHandle | None = None

    def set_within(self, pause: Micros) -> None:
        """Set it after a pause, once for all calls until then. On the loop that waits."""
        if self._timer is None:
            self._timer = self._loop.call_later(pause / SECOND, self._timer_fired)

    def set_within_threadsafe(self, pause: Micros) -> None:
        """The same, from any thread."""
        if self._timer is not None:
            return  # it fires after this call, and so does what is asked for
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.set_within, pause)

    def set(self) -> None:
        """End the current wait, or the next one. From any thread; does nothing once the loop has ended."""
        if self._is_set:
            return
        try:
            self._is_set = True
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:  # the loop has ended
            pass
        except BaseException:  # Ctrl-C: the wait may not have ended, so the next call must try again
            self._is_set = False
            raise

    def _timer_fired(self) -> None:
        self._timer = None
        self.set()

    async def wait(self, pause: Micros | None) -> None:
        """Wait for the pause, or until it is set; None waits until it is set."""
        if pause is not None and pause <= 0:
            self._is_set = False
            self._event.clear()
            await asyncio.sleep(0)  # noqa: TID251 - only yields: a store that never suspends must not starve other tasks
            return
        timer = None if pause is None else self._loop.call_later(pause / SECOND, self._event.set)
        await self._event.wait()
        if timer is not None:
            timer.cancel()
        self._is_set = False
        self._event.clear()
