"""Accepted work: what an agent host or an engine has accepted is stopped there when it is cancelled or times out.

Anyone may end such an occurrence: a caller of any process on the store, or the node that sees its deadline pass. The
node that delivered it notices that in the store, and stops the work. After a restart it no longer knows of it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from noonmark.core.errors import NoonmarkError
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import FINAL, Phase
from noonmark.core.run import Outcome
from noonmark.core.settlement import run_id
from noonmark.targets.loop_runner import pause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.ports.store import Store

    Cancel = Callable[[], Awaitable[None]]

_IN_FLIGHT = frozenset({Phase.DISPATCHING, Phase.AWAITING_COMPLETION})
_STOPPED = frozenset({Outcome.CANCELLED, Outcome.TIMED_OUT})
"""How a run ends that the other side has not reported."""
PAUSE = SECOND // 2


class AcceptedWork:
    """Watches work from its acceptance to its end. All of it runs on the loop of the runner, but for `wake`."""

    def __init__(self, store: Store, *, pause: Micros = PAUSE, passes_stops: bool = False) -> None:
        """Read the store at most once in every `pause`, however much is written.

        With `passes_stops`, a request to stop an occurrence cancels the work, which then reports its end.
        """
        self._store, self._pause, self._passes_stops = store, pause, passes_stops
        self._work: dict[str, tuple[Occurrence, Cancel]] = {}
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, occurrence: Occurrence, cancel: Cancel) -> None:
        """Watch an occurrence that was accepted; `cancel` stops the work, and does not raise."""
        self._work[occurrence.id] = occurrence, cancel
        self._loop = asyncio.get_running_loop()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())

    def wake(self) -> None:
        """Read the store soon. From any thread."""
        if self._work and self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._woken.set)

    async def stop_earlier(self, occurrence_id: str) -> None:
        """Stop what an earlier delivery of an occurrence has begun, before it is delivered again."""
        occurrence, cancel = self._work.pop(occurrence_id, (None, None))
        if occurrence is not None and cancel is not None and await asyncio.to_thread(self._was_stopped, occurrence):
            await cancel()

    async def close(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _watch(self) -> None:
        while self._work:
            await self._woken.wait()
            self._woken.clear()
            for occurrence_id in list(self._work):
                with suppress(NoonmarkError):  # the store is away; it is read again later
                    await self._check(occurrence_id)
            await pause(self._pause)

    async def _check(self, occurrence_id: str) -> None:
        stored = await asyncio.to_thread(self._store.occurrence, occurrence_id)
        if occurrence_id not in self._work:  # it is delivered again
            return
        occurrence, cancel = self._work[occurrence_id]
        is_asked = self._passes_stops and stored is not None and stored.stop is not None
        if stored is not None and not is_asked and not _is_over(stored, occurrence):
            return
        is_ended = stored is not None and stored.phase in FINAL
        is_stopped = is_asked or (is_ended and await asyncio.to_thread(self._was_stopped, occurrence))
        if self._work.get(occurrence_id) == (occurrence, cancel):
            del self._work[occurrence_id]
            if is_stopped:
                await cancel()

    def _was_stopped(self, occurrence: Occurrence) -> bool:
        stored_run = self._store.run(run_id(occurrence))
        return stored_run is not None and stored_run[1].outcome in _STOPPED


def _is_over(stored: Occurrence, occurrence: Occurrence) -> bool:
    """Whether work is no longer awaited. While it waits for another attempt, that may still come to this node."""
    if stored.phase in _IN_FLIGHT:
        return stored.fence != occurrence.fence
    return stored.phase in FINAL
