"""The engines of a scheduler: the one between start and stop, and those that were made for one call."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from noonmark.embedded import leaving

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from noonmark.core.instants import Micros
    from noonmark.embedded.engine import AnyEngine

LAST_WAIT = 5.0
"""Seconds for what runs to be handed back, when whoever stops it is interrupted."""


class Engines:
    """Starts and stops them, from any thread."""

    def __init__(self, host: Callable[[bool], AnyEngine]) -> None:
        """There is none yet. `host` lets one run somewhere; it is told whether that looks for work by itself."""
        self._host = host
        self.after_fork()

    def after_fork(self) -> None:
        """This process is new: threads did not come along, and locks that others held are held for good."""
        self.current: AnyEngine | None = None
        self._leaving: AnyEngine | None = None
        """The last one that was stopped; perhaps it has not ended yet."""
        self._all: weakref.WeakSet[AnyEngine] = weakref.WeakSet()
        """All that may still run something: also those that are stopping, or were made for one call."""
        self._lock = threading.RLock()

    @property
    def running(self) -> AnyEngine | None:
        """The engine between start and stop, unless its loop has ended around it."""
        engine = self.current
        return engine if engine is not None and engine.is_alive else None

    @property
    def alive(self) -> list[AnyEngine]:
        """Whatever may still run something."""
        with self._lock:
            return [engine for engine in self._all if engine.is_alive]

    def start(self) -> None:
        """Let one look for work, unless there is one. Whoever stops it meanwhile waits until it has begun."""
        with self._lock:
            if self.running is None:
                self.current = self.new(looks=True)
                leaving.register(self.current)

    def new(self, *, looks: bool = False) -> AnyEngine:
        """One more."""
        engine = self._host(looks)
        with self._lock:
            self._all.add(engine)
        return engine

    def stop(self, grace: Micros | None) -> None:
        """Stop the one that looks for work, and wait for its end, unless it is one of its own runs that asks."""
        with self._lock:
            engine = self.current or self._leaving
            self.current, self._leaving = None, engine
        if engine is None:
            return
        try:
            engine.stop(grace)
            if engine.is_caller:
                return
            engine.wait()
        except BaseException:  # Ctrl-C: whoever waited does so no longer, but what still runs is handed back
            engine.stop(0)
            engine.wait(LAST_WAIT)
            raise
        leaving.unregister(engine)

    def wind_up(self) -> AnyEngine | None:
        """Let the one that looks for work begin nothing more, and end when all that it runs has ended. Returns at once.

        It is told, if there was one: whoever asked has to see to its end.
        """
        with self._lock:
            engine, self.current = self.current, None
        if engine is not None:
            engine.stop(None)
        return engine

    def hand_back(self) -> None:
        """Let the one that is about to stop wait no longer for what runs. Returns at once."""
        engine = self._leaving
        if engine is not None:
            engine.stop(0)

    def wake(self) -> None:
        """There is something new to be done."""
        engine = self.current
        if engine is not None:
            engine.wake()

    def adopt(self, routes: Collection[str]) -> None:
        """There is work of these kinds now. The store tells it too, but only when it is next looked at."""
        engine = self.current
        if engine is not None:
            engine.loop.driver.node.runtime.target.adopt(routes)

    def attend(self) -> None:
        """Something that runs may have been asked to stop."""
        for engine in self.alive:
            engine.loop.attend()
