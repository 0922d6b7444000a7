"""Retries: a duty that failed is done again after a while, and whoever watches the node can see which ones fail."""

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
"""A call to the store that failed is made again after a while, twice as long each time, up to this."""
LAST_RETRY: Micros = 5 * SECOND
"""When the pause would be so long, whoever stops gives up."""


class Retries:
    """The duties of a node that failed, and wait to be tried again."""

    def __init__(self, node: Node) -> None:
        """None has failed yet."""
        self._node = node
        self._waiting: set[Wakeup] = set()

    async def attempt(
        self,
        duty: Callable[[], Awaitable[T]],
        is_over: Callable[[Callable[[], Awaitable[object]], Micros], bool],
    ) -> T | None:
        """Do a duty, again and again until it succeeds; None when the time to try is over."""
        backoff, has_failed = FIRST_RETRY, False
        while True:
            pause = min(backoff, LONGEST_RETRY)
            try:
                answer = await duty()
            except NoonmarkError as error:
                logger.warning("%s failed, again in %s s: %s", duty.__name__, micros_to_seconds(pause), error)
                self._note(duty.__name__, str(error), pause)
            except Exception as error:
                logger.exception("%s failed, again in %s s", duty.__name__, micros_to_seconds(pause))
                self._note(duty.__name__, repr(error), pause)
            else:
                self._node.failures.pop(duty.__name__, None)
                if has_failed:  # the store is back, and the others need not wait to find that out
                    self.set()
                return answer
            if is_over(duty, backoff):
                return None
            has_failed = True
            # Whatever there is to do rings elsewhere meanwhile: a store that is down is not asked more often for that.
            retry = Wakeup()
            self._waiting.add(retry)
            await retry.wait(pause)
            self._waiting.discard(retry)
            backoff = min(2 * backoff, LAST_RETRY)

    def set(self) -> None:
        """Try all of them now: the store is back, or the end has come."""
        for one in list(self._waiting):
            one.set()

    def _note(self, duty: str, error: str, pause: Micros) -> None:
        self._node.note_failure(duty, error)
        self._node.tell([StoreFailed(duty, error, pause)])
