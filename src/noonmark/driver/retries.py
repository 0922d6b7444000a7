"""Retries of failed steps, with backoff. The node lists the steps that are failing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from noonmark.core.errors import NoonmarkError
from noonmark.core.instants import SECOND, micros_to_seconds
from noonmark.driver.wakeup import Wakeup
from noonmark.ports.events import StoreFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noonmark.core.instants import Micros
    from noonmark.driver.node import Node

    T = TypeVar("T")

logger = logging.getLogger("noonmark.driver")

FIRST_RETRY: Micros = SECOND // 10
LONGEST_RETRY: Micros = 2 * SECOND
"""The pause doubles with each failure, up to this."""
LAST_RETRY: Micros = 5 * SECOND
"""During shutdown, a step is given up once its backoff has grown to this."""


class Retries:
    """The failed steps of a node that wait for their next attempt."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: set[Wakeup] = set()

    async def attempt(
        self,
        step: Callable[[], Awaitable[T]],
        is_over: Callable[[Callable[[], Awaitable[object]], Micros], bool],
    ) -> T | None:
        """Run a step until it succeeds; None if `is_over` gives it up."""
        backoff, has_failed = FIRST_RETRY, False
        while True:
            pause = min(backoff, LONGEST_RETRY)
            try:
                answer = await step()
            except NoonmarkError as error:
                logger.warning("%s failed; retrying in %s s: %s", step.__name__, micros_to_seconds(pause), error)
                self._note(step.__name__, str(error), pause)
            except Exception as error:
                logger.exception("%s failed; retrying in %s s", step.__name__, micros_to_seconds(pause))
                self._note(step.__name__, repr(error), pause)
            else:
                self._node.failures.pop(step.__name__, None)
                if has_failed:  # the store is back, so the other steps need not wait
                    self.set()
                return answer
            if is_over(step, backoff):
                return None
            has_failed = True
            # An own wake-up: new work must not make a store that is down be called more often.
            retry = Wakeup()
            self._waiting.add(retry)
            await retry.wait(pause)
            self._waiting.discard(retry)
            backoff = min(2 * backoff, LAST_RETRY)

    def set(self) -> None:
        """Retry all of them now: the store is back, or the loop stops."""
        for one in list(self._waiting):
            one.set()

    def _note(self, step: str, error: str, pause: Micros) -> None:
        self._node.note_failure(step, error)
        self._node.tell([StoreFailed(step, error, pause)])
