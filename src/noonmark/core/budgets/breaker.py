"""The circuit breaker of a user: after failures of a provider in a row, its calls are refused for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND

if TYPE_CHECKING:
    from noonmark.core.instants import Micros

MAX_FAILURES = 5
"""The number of failures in a row that opens it."""
OPEN_FOR: Micros = 60 * SECOND


@frozen(kw_only=True)
class Breaker:
    """Failures since the last success, and the last failure or trial. A breaker without failures is not stored."""

    failures: int = 0
    since: Micros = 0

    def opens_at(self, now: Micros) -> Micros | None:
        """When a call may be tried again, if it may not be now."""
        if self.failures < MAX_FAILURES or now >= self.since + OPEN_FOR:
            return None
        return self.since + OPEN_FOR

    def tried(self, now: Micros) -> Breaker:
        """A call is made. Half-open, it is the only one until it has ended, or for as long as the breaker is open."""
        return self if self.failures < MAX_FAILURES else Breaker(failures=self.failures, since=now)

    def failed(self, now: Micros) -> Breaker:
        """A call failed."""
        return Breaker(failures=min(self.failures + 1, MAX_FAILURES), since=now)
