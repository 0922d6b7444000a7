"""Probing: asking a store that may be away, on behalf of those who watch."""

from __future__ import annotations

import logging
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.instants import Micros

PATIENCE = 2.0
"""Seconds that the store has to answer; longer, and it counts as down."""
MOST_QUESTIONS = 4
logger = logging.getLogger("noonmark.health")
T = TypeVar("T")


class Probe(Generic[T]):
    """Asks the store on behalf of everybody who waits: one that hangs must not hang them all, nor be asked for ever."""

    def __init__(self, ask: Callable[[], T]) -> None:
        """`ask` asks the store and waits for the answer; it raises when there is none."""
        self._question = ask
        self._lock = Lock()
        self.problem = ""
        """What went wrong when it was last asked."""
        self._pending: list[_Answer[T]] = []

    def look(self) -> T | None:
        """What the store said; None when it did not answer in time."""
        with self._lock:
            self._pending = [one for one in self._pending if not one.has_come.is_set()]
            # One that is late may have been lost with its connection, and the store be back.
            if not self._pending or (self._pending[-1].is_late and len(self._pending) < MOST_QUESTIONS):
                self._pending.append(_Answer())
                Thread(target=self._ask, args=self._pending[-1:], name="noonmark-health", daemon=True).start()
            answer = self._pending[-1]
        if not answer.has_come.wait(PATIENCE):
            answer.is_late = True
            self.problem = f"it has not answered for {PATIENCE:g} s"
        return answer.told

    def _ask(self, answer: _Answer[T]) -> None:
        try:
            answer.told = self._question()
        except Exception as error:  # noqa: BLE001 - whatever it is, the store did not answer
            self.problem = str(error)
            logger.warning("the store does not answer: %s", error)
        finally:
            answer.has_come.set()


class Recent(Generic[T]):
    """What a probe found, asked for again only when it is too old: however many watch, the store is asked once."""

    def __init__(self, ask: Callable[[], T], *, monotonic: Callable[[], Micros], lifetime: Micros) -> None:
        """Nothing is known yet."""
        self._probe = Probe(ask)
        self._monotonic, self._lifetime = monotonic, lifetime
        self._last: tuple[Micros, T | None] | None = None

    def look(self) -> T | None:
        """What the store said not long ago; None when it does not answer."""
        last, now = self._last, self._monotonic()
        if last is not None and now - last[0] < self._lifetime:
            return last[1]
        found = self._probe.look()
        self._last = (self._monotonic(), found)
        return found


class _Answer(Generic[T]):
    def __init__(self) -> None:
        self.has_come = Event()
        self.is_late = False
        self.told: T | None = None
