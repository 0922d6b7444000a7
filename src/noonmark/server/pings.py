"""Pings over HTTP: any client that has the URL of a schedule may call it, with any method that clients send.

The body is text, not JSON: it is what the job has printed.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

from noonmark.clocks import SystemClock
from noonmark.core.errors import QuotaExceeded
from noonmark.core.instants import SECOND
from noonmark.core.pings import parse_ping
from noonmark.core.rate_limit import RateLimit
from noonmark.operations import pings
from noonmark.operations.errors import hidden_cause
from noonmark.operations.table import check_clock
from noonmark.server.problems import HttpError
from noonmark.server.requests import ApiResponse, TextHandler

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.instants import Micros
    from noonmark.server.requests import ApiRequest

END, ACTION = "/ping/{token}", "/ping/{token}/{action}"
METHODS = ("GET", "POST")


BURST = 60
"""Pings of one URL that are taken at once."""
REFILL: Micros = SECOND
"""After them, one is taken in this time."""
LIMIT = RateLimit(1, REFILL, BURST)
MAX_URLS = 10_000
"""URLs whose pings are counted; beyond that, those that were quiet longest are forgotten."""


class PingLimiter:
    """Limits the pings of each URL on this node, in memory: a job in a loop must not keep the store busy."""

    def __init__(self, monotonic: Callable[[], Micros]) -> None:
        self._monotonic, self._lock = monotonic, Lock()
        self._full_at: OrderedDict[str, Micros] = OrderedDict()
        """When each URL may ping `BURST` times again, those used last at the end."""

    def take(self, token: str) -> None:
        """Count a ping; raises an error with status 429 if there were too many."""
        with self._lock:
            tokens = LIMIT.take(self._full_at.pop(token, None), 1, now=self._monotonic())
            self._full_at[token] = tokens.full_at
            if len(self._full_at) > MAX_URLS:
                self._full_at.popitem(last=False)
        if not tokens.granted:
            wait = -(-tokens.wait // SECOND)
            message = f"too many pings of this URL: at most {BURST} at once, and one in {REFILL // SECOND} s after that"
            raise HttpError(429, QuotaExceeded.code, message, headers={"Retry-After": str(wait)})


def handlers() -> dict[tuple[str, str], TextHandler]:
    """The routes of pings."""
    limiter = PingLimiter(SystemClock().monotonic)

    def receive(request: ApiRequest) -> ApiResponse:
        """Count a ping for the occurrence that expects it. Parameters are ignored: some clients add their own."""
        limiter.take(request.path["token"])
        ping = parse_ping(request.path.get("action", ""), request.body)
        check_clock(request.service)
        with hidden_cause(request.caller.request_id):
            return ApiResponse(document=pings.receive(request.service, request.path["token"], ping))

    handler = TextHandler(receive)
    return {(method, path): handler for method in METHODS for path in (END, ACTION)}
