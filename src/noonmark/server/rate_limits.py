"""Rate limits of requests, per key and per address. The nodes of a store share each bucket.

A node takes tokens from the store in portions and spends them without the store, so a request seldom waits for it.
While a bucket is empty, its requests are refused without the store too.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from anyio import CapacityLimiter, to_thread

from noonmark.core.errors import QuotaExceeded
from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND
from noonmark.operations.service import has_key_rate
from noonmark.server.problems import HttpError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from noonmark.core.instants import Micros
    from noonmark.core.rate_limit import RateLimit
    from noonmark.operations.service import Caller
    from noonmark.ports.store import Store

MAX_BUCKETS = 10_000
"""Buckets that a node remembers; beyond that, those that were quiet longest are forgotten."""
HEADERS = "rate_limit_headers"
"""Where the headers of the answer are, in the state of a request."""
_UNLIMITED = CapacityLimiter(math.inf)


class Verdict(NamedTuple):
    """Whether a request may go on, how many more may, and how long to wait if not."""

    is_allowed: bool
    left: int
    wait: Micros


@dataclass(slots=True)
class _LocalBucket:
    """What a node knows of a bucket."""

    tokens: int = 0
    left: int = 0
    """Tokens that were left in the store."""
    empty_until: Micros = 0


class RateLimiter:
    """Takes tokens of buckets. Safe to use from any thread."""

    def __init__(self, store: Store, monotonic: Callable[[], Micros]) -> None:
        """`monotonic` is in microseconds."""
        self._store, self._monotonic, self._lock = store, monotonic, Lock()
        self._buckets: OrderedDict[str, _LocalBucket] = OrderedDict()

    def take_cached(self, name: str) -> Verdict | None:
        """Take a token that this node has, or refuse; None if the store must be asked."""
        with self._lock:
            local, now = self._bucket(name), self._monotonic()
            if local.tokens:
                local.tokens -= 1
                return Verdict(is_allowed=True, left=local.tokens + local.left, wait=0)
            wait = local.empty_until - now
            return Verdict(is_allowed=False, left=0, wait=wait) if wait > 0 else None

    def take(self, name: str, limit: RateLimit) -> Verdict:
        """Take a token, with a portion from the store if this node has none."""
        verdict = self.take_cached(name)
        if verdict is not None:
            return verdict
        taken = self._store.take_tokens(name, limit, limit.portion)
        with self._lock:
            local = self._bucket(name)
            local.left = taken.left
            if not taken.granted:
                local.empty_until = self._monotonic() + taken.wait
                return Verdict(is_allowed=False, left=0, wait=taken.wait)
            local.tokens += taken.granted - 1
            return Verdict(is_allowed=True, left=local.tokens + taken.left, wait=0)

    def wait_of(self, name: str) -> Micros:
        """How long a bucket is known to be empty; 0 if it is not."""
        with self._lock:
            local = self._buckets.get(name)
            return 0 if local is None else max(0, local.empty_until - self._monotonic())

    def _bucket(self, name: str) -> _LocalBucket:
        local = self._buckets.setdefault(name, _LocalBucket())
        self._buckets.move_to_end(name)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return local


@frozen(kw_only=True)
class RateLimits:
    """The rate limits of a server; None is unlimited."""

    limiter: RateLimiter
    per_key: RateLimit | None = None
    per_address: RateLimit | None = None
    failures: RateLimit | None = None
    """Of requests with an invalid key or token, per address."""

    async def check_address(self, request: Request) -> None:
        """Count a request of an address; 429 if there were too many."""
        if self.per_address is not None:
            await self._count(request, "address", address_of(request), self.per_address)

    async def check_key(self, request: Request, caller: Caller) -> None:
        """Count a request of a key, or of the user of a token; 429 if there were too many."""
        if self.per_key is not None and (name := _name_of(caller)) is not None:
            await self._count(request, "key", name, self.per_key)

    def exceeded(self, request: Request, caller: Caller) -> str | None:
        """Count another call of a request that has several; says which limit refuses it, or None."""
        counted = (("address", address_of(request), self.per_address), ("key", _name_of(caller), self.per_key))
        for kind, name, limit in counted:
            if limit is not None and name is not None:
                verdict = self.limiter.take(f"{kind} {name}", limit)
                if not verdict.is_allowed:
                    return _message(f"requests of this {kind}", limit, verdict.wait)
        return None

    def check_failures(self, request: Request) -> None:
        """429 for an address that has sent too many invalid keys."""
        if self.failures is not None and (wait := self.limiter.wait_of(f"failures {address_of(request)}")):
            raise _too_many("requests with a bad key", self.failures, wait)

    async def count_failure(self, request: Request) -> None:
        """Count an invalid key of an address; 429 if there were too many."""
        if self.failures is not None:
            verdict = await self._take(f"failures {address_of(request)}", self.failures)
            if not verdict.is_allowed:
                raise _too_many("requests with a bad key", self.failures, verdict.wait)

    async def _count(self, request: Request, kind: str, name: str, limit: RateLimit) -> None:
        verdict = await self._take(f"{kind} {name}", limit)
        wait = _seconds(verdict.wait or limit.cost)
        request.scope.setdefault("state", {})[HEADERS] = {
            "RateLimit-Policy": f'"{kind}";q={limit.quantity};w={limit.per // SECOND}',
            "RateLimit": f'"{kind}";r={verdict.left};t={wait}',
        }
        if not verdict.is_allowed:
            raise _too_many(f"requests of this {kind}", limit, verdict.wait)

    async def _take(self, name: str, limit: RateLimit) -> Verdict:
        verdict = self.limiter.take_cached(name)
        if verdict is None:
            verdict = await to_thread.run_sync(self.limiter.take, name, limit, limiter=_UNLIMITED)
        return verdict


def address_of(request: Request) -> str:
    """The address of a client; of IPv6 the network, since a client has all addresses of it."""
    host = request.client.host if request.client is not None else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else host


def _name_of(caller: Caller) -> str | None:
    """The name of the key, or of the user of a token; None for a caller whose rate is not limited."""
    return (caller.key_id or f"{caller.owner.tenant}/{caller.owner.user}") if has_key_rate(caller) else None


def _too_many(what: str, limit: RateLimit, wait: Micros) -> HttpError:
    retry = {"Retry-After": str(_seconds(wait))}
    return HttpError(429, QuotaExceeded.code, _message(what, limit, wait), headers=retry)


def _message(what: str, limit: RateLimit, wait: Micros) -> str:
    allowed = f"{limit.quantity:,} per {limit.per // SECOND:,} s are allowed"
    return f"too many {what}: {allowed}; try again in {_seconds(wait)} s"


def _seconds(wait: Micros) -> int:
    """Whole seconds, rounded up, as the headers have them."""
    return max(1, -(-wait // SECOND))
