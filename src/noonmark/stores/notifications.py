"""Notifications: nodes learn that another one has written something, so that they need not poll often."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("noonmark.store")

FIRST_PAUSE = 0.1
LAST_PAUSE = 5.0
"""Seconds between two attempts to connect; the pause doubles each time."""


class NotificationListener:
    """Listens in a thread of its own while it has callbacks."""

    def __init__(self, make_thread: Callable[[Callable[[], None]], ListenerThread]) -> None:
        """`make_thread` takes the function that is to be called on each notification."""
        self._make_thread = make_thread
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._thread: ListenerThread | None = None

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back on each notification; returns a function that ends this."""
        with self._lock:
            self._callbacks = [*self._callbacks, callback]
            if self._thread is None:
                self._thread = self._make_thread(self._notify)
                self._thread.start()
        return lambda: self._keep(lambda each: each is not callback)

    def close(self) -> None:
        """Stop listening."""
        self._keep(lambda _: False)

    def _keep(self, is_kept: Callable[[Callable[[], None]], bool]) -> None:
        """Remove the other callbacks, and with the last one the thread."""
        thread = None
        with self._lock:
            self._callbacks = [callback for callback in self._callbacks if is_kept(callback)]
            if not self._callbacks:
                thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()

    def _notify(self) -> None:
        for callback in self._callbacks:
            callback()


class ListenerThread(threading.Thread, ABC):
    """Keeps a listening connection open, and reconnects, until it is stopped."""

    def __init__(self, command: str, notify: Callable[[], None]) -> None:
        """`command` is the one by which the connection listens."""
        super().__init__(name="noonmark-listener", daemon=True)
        self._command, self._notify = command, notify
        self._pause = FIRST_PAUSE
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End the thread, also while it waits."""
        self._stopped.set()
        self._interrupt()
        if threading.current_thread() is not self:
            self.join()

    def run(self) -> None:
        """Connect again after each failure, with pauses."""
        while not self._stopped.is_set():
            try:
                self._listen()
            except Exception as error:  # noqa: BLE001 - it retries after any failure
                if self._stopped.is_set():
                    return
                summary = str(error).partition("\n")[0] or type(error).__name__
                logger.warning("%s connection lost; retrying in %s s: %s", self._command, self._pause, summary)
            self._stopped.wait(self._pause)
            self._pause = min(2 * self._pause, LAST_PAUSE)

    def _connected(self) -> None:
        """The connection listens; anything may have happened before."""
        self._pause = FIRST_PAUSE
        self._notify()

    @abstractmethod
    def _listen(self) -> None:
        """Connect, call `_connected`, then `_notify` on each notification, until it is stopped or fails."""

    @abstractmethod
    def _interrupt(self) -> None:
        """Let `_listen` return soon: it was stopped."""
