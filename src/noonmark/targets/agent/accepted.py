"""Turns that a host has accepted: those that are cancelled or time out meanwhile are stopped there.

Anyone may end such an occurrence: a caller of any process on the store, or the node that sees its deadline pass. The
node that delivered the turn notices it in the store, and tells the host. After a restart it no longer knows the turn.
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
    from noonmark.core.occurrence import Occurrence
    from noonmark.ports.agent_host import AgentHost, AgentTurn
    from noonmark.ports.store import Store

_IN_FLIGHT = frozenset({Phase.DISPATCHING, Phase.AWAITING_COMPLETION})
_STOPPED = frozenset({Outcome.CANCELLED, Outcome.TIMED_OUT})
"""How a run ends that its host has not reported."""
_PAUSE = SECOND // 2
"""Between two looks into the store, however much is written."""


class AcceptedTurns:
    """Watches turns from their acceptance to their end. All of it runs on the loop of the runner, but for `wake`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turns: dict[str, tuple[AgentHost, AgentTurn]] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, host: AgentHost, turn: AgentTurn) -> None:
        """Watch a turn that its host has accepted."""
        self._turns[turn.occurrence.id] = host, turn
        self._loop = asyncio.get_running_loop()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())

    def wake(self) -> None:
        """Look into the store, soon. From any thread."""
        if self._turns and self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._news.set)

    async def stop_earlier(self, occurrence_id: str) -> None:
        """Stop what an earlier delivery of an occurrence has begun, before it is delivered again."""
        host, turn = self._turns.pop(occurrence_id, (None, None))
        if host is not None and turn is not None and await asyncio.to_thread(self._was_stopped, turn):
            await host.cancel(turn)

    async def close(self) -> None:
        """Watch nothing any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _watch(self) -> None:
        while self._turns:
            await self._news.wait()
            self._news.clear()
            for occurrence_id in list(self._turns):
                with suppress(NoonmarkError):  # the store is away; the next look follows
                    await self._look(occurrence_id)
            await pause(_PAUSE)

    async def _look(self, occurrence_id: str) -> None:
        stored = await asyncio.to_thread(self._store.occurrence, occurrence_id)
        if occurrence_id not in self._turns:  # it is delivered again
            return
        host, turn = self._turns[occurrence_id]
        if stored is not None and not _is_over(stored, turn):
            return
        is_stopped = stored is not None and stored.phase in FINAL and await asyncio.to_thread(self._was_stopped, turn)
        if self._turns.get(occurrence_id) == (host, turn):
            del self._turns[occurrence_id]
            if is_stopped:
                await host.cancel(turn)

    def _was_stopped(self, turn: AgentTurn) -> bool:
        found = self._store.run(run_id(turn.occurrence))
        return found is not None and found[1].outcome in _STOPPED


def _is_over(stored: Occurrence, turn: AgentTurn) -> bool:
    """Whether a turn is no longer awaited. While it waits for another attempt, that may still come to this node."""
    if stored.phase in _IN_FLIGHT:
        return stored.fence != turn.occurrence.fence
    return stored.phase in FINAL
