"""The connection pool of a server: limits on their number, timeouts, and eviction.

A connection waits for its client when the head of a request has not arrived, when a body stalls, or when an answer is
not read. One that waits too long is closed. At the limit, the connection that has waited longest is evicted; if none
waits, the new one joins a small reserve, in which only health routes are answered.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Protocol

from noonmark.core.frozen import frozen

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

DEFAULT_MAX = 1_000
ADDRESS_SHARE = 2
"""By default, one address may have one half of all connections."""
RESERVE = 16
RESERVE_SECONDS = 5.0
"""Time for a reserved connection to send its request."""
MIN_RESERVE_SECONDS = 0.1
"""A reserved connection is not evicted before this age: its request may be on the way."""
STALLED_SECONDS = 1.0
"""At the limit, a connection whose body or answer has made no progress for this long may be evicted."""
CHECK_SECONDS = 1.0
TRIM_BYTES = 33_554_432
"""After this many bytes of answers, unused memory is returned to the system."""


@frozen(kw_only=True)
class ConnectionLimits:
    """Limits on the connections of a server."""

    max_connections: int = DEFAULT_MAX
    per_address: int = DEFAULT_MAX
    reserve: int = RESERVE
    head_seconds: float = 20.0
    """For the whole head of a request, from the start of the connection or the end of the last answer."""
    send_seconds: float = 20.0
    """An answer is aborted when the client reads nothing of it for this long."""
    min_bytes_per_second: int = 4_096
    """Beyond that time, an answer that is read more slowly than this is aborted, too."""
    unsent_bytes: int = 67_108_864
    """Unread bytes of all answers together; beyond that, the client that has read nothing for longest is dropped."""


class Peer(Protocol):
    """A connection as the pool sees it."""

    address: str
    is_reserved: bool

    @property
    def unsent(self) -> int:
        """Bytes that the client has not read yet."""

    @property
    def is_receiving(self) -> bool:
        """Whether the rest of a body is expected."""

    @property
    def last_received(self) -> float:
        """When data last arrived."""

    @property
    def produced(self) -> int:
        """Bytes of answers so far."""

    def drop(self) -> None:
        """Close it now; unsent data is lost."""


@dataclass(slots=True)
class _Sending:
    """The progress of an answer."""

    started: float
    sent_before: int
    sent: int
    progressed: float


@dataclass(slots=True)
class _Group:
    """The connections of one address, or all of them."""

    members: set[Peer] = field(default_factory=set)
    idle: dict[Peer, float] = field(default_factory=dict)
    """Those that wait for the head of a request, and since when; the longest first."""


class ConnectionPool:
    """All connections of one server. Every method runs on its event loop."""

    def __init__(self, limits: ConnectionLimits, fresh_id: Callable[[], str]) -> None:
        """`fresh_id` names requests that are rejected before they reach the application."""
        self.limits, self.fresh_id = limits, fresh_id
        self.dropped = 0
        """Connections that the pool has closed."""
        self.refused = 0
        """Requests that were answered with 503."""
        self._all, self._reserve = _Group(), _Group()
        self._by_address: dict[str, _Group] = {}
        self._sending: dict[Peer, _Sending] = {}
        self._is_checking = False
        self._produced = 0
        """Bytes of answers since memory was last trimmed."""

    @property
    def open(self) -> int:
        """The number of connections, including the reserve."""
        return len(self._all.members) + len(self._reserve.members)

    @property
    def unsent(self) -> int:
        """Bytes of answers that clients have not read yet."""
        return sum(one.unsent for one in tuple(self._sending))

    def add(self, peer: Peer, loop: AbstractEventLoop) -> None:
        """Add a connection. At the limit another one is evicted, or it joins the reserve, or it is closed."""
        now = loop.time()
        if not self._is_checking:
            self._is_checking = True
            loop.call_later(self._interval, self._check, loop)
        same_address = self._by_address.setdefault(peer.address, _Group())
        limits = self.limits
        bounds = ((same_address, limits.per_address), (self._all, limits.max_connections))
        full = next((group for group, maximum in bounds if len(group.members) >= maximum), None)
        peer.is_reserved = full is not None and not self._evict(full, now)
        if not peer.is_reserved:
            self._all.members.add(peer)
            self._by_address.setdefault(peer.address, same_address).members.add(peer)
            self.expect_head(peer, now)
        elif len(self._reserve.members) < limits.reserve or self._evict(self._reserve, now - MIN_RESERVE_SECONDS):
            self._reserve.members.add(peer)
            self.expect_head(peer, now)
        else:
            self._drop(peer)

    def remove(self, peer: Peer) -> None:
        """Remove a closed connection."""
        if any(peer in group.members for group in self._groups(peer)):
            self._produced += peer.produced
        self.expect_nothing(peer)
        self._sending.pop(peer, None)
        for group in self._groups(peer):
            group.members.discard(peer)
        if peer.address in self._by_address and not self._by_address[peer.address].members:
            del self._by_address[peer.address]

    def expect_head(self, peer: Peer, now: float) -> None:
        """The connection waits for the head of a request; the time counts from the first call."""
        for group in self._groups(peer):
            if peer in group.members:
                group.idle.setdefault(peer, now)

    def expect_nothing(self, peer: Peer) -> None:
        """The head of a request has arrived."""
        for group in self._groups(peer):
            group.idle.pop(peer, None)

    def track_send(self, peer: Peer, now: float) -> None:
        """An answer is being sent, and the client has not read all of it."""
        if peer not in self._sending:
            sent = peer.produced - peer.unsent
            self._sending[peer] = _Sending(now, sent, sent, now)
        if self.unsent > self.limits.unsent_bytes:
            self._measure(now)
            # The newest one has had no time to read.
            others = [other for other in self._sending if other is not peer]
            for other in sorted(others, key=lambda one: self._sending[one].progressed):
                if self.unsent <= self.limits.unsent_bytes:
                    break
                self._drop(other)

    @property
    def _interval(self) -> float:
        return min(CHECK_SECONDS, self.limits.head_seconds / 4, self.limits.send_seconds / 4)

    def _groups(self, peer: Peer) -> tuple[_Group, ...]:
        if peer.is_reserved:
            return (self._reserve,)
        same_address = self._by_address.get(peer.address)
        return (self._all,) if same_address is None else (self._all, same_address)

    def _evict(self, group: _Group, now: float) -> bool:
        """Close the connection of a group that has waited longest; False if none waits."""
        # A connection that still reads its last answer is judged by that.
        idle = (one for one, since in group.idle.items() if since <= now and not one.unsent)
        victim = next(idle, None) or next(iter(self._stalled(group, now)), None)
        if victim is not None:
            self._drop(victim)
        return victim is not None

    def _stalled(self, group: _Group, now: float) -> list[Peer]:
        """Connections whose body or answer makes no progress, the longest first."""
        self._measure(now)
        progressed = {peer: self._sending[peer].progressed for peer in self._sending if peer in group.members}
        progressed |= {
            peer: peer.last_received for peer in group.members if peer.is_receiving and peer not in progressed
        }
        stalled = [peer for peer in progressed if now - progressed[peer] >= STALLED_SECONDS]
        return sorted(stalled, key=progressed.__getitem__)

    def _measure(self, now: float) -> None:
        """Update the progress of every answer."""
        for peer, state in tuple(self._sending.items()):
            unsent = peer.unsent
            sent = peer.produced - unsent
            if sent > state.sent:
                state.sent, state.progressed = sent, now
                for group in self._groups(peer):  # the next head is due from when the last answer was read
                    if peer in group.idle:
                        group.idle[peer] = now
            if not unsent:
                del self._sending[peer]

    def _check(self, loop: AbstractEventLoop) -> None:
        """Close the connections that have waited too long."""
        now, limits = loop.time(), self.limits
        self._measure(now)
        late: list[Peer] = []
        reserve_seconds = min(limits.head_seconds, RESERVE_SECONDS)
        for group, seconds in ((self._all, limits.head_seconds), (self._reserve, reserve_seconds)):
            late += [one for one, since in group.idle.items() if now - since >= seconds and not one.unsent]
        for peer, state in self._sending.items():
            allowed = limits.send_seconds + (state.sent - state.sent_before) / limits.min_bytes_per_second
            if now - state.progressed >= limits.send_seconds or now - state.started >= allowed:
                late.append(peer)
        for peer in late:
            self._drop(peer)
        if self._produced >= TRIM_BYTES:
            self._produced = 0
            loop.run_in_executor(None, trim_memory)
        self._is_checking = self.open > 0
        if self._is_checking:
            loop.call_later(self._interval, self._check, loop)

    def _drop(self, peer: Peer) -> None:
        self.dropped += 1
        self.remove(peer)
        peer.drop()


def trim_memory() -> None:
    """Return unused memory to the system; glibc keeps it otherwise."""
    with suppress(OSError, AttributeError):  # other libraries have no malloc_trim
        ctypes.CDLL(None).malloc_trim(0)


def address_of(client: tuple[str, int] | None) -> str:
    """The key under which clients count as one address: all of loopback is one, and so is an IPv6 /64 network."""
    if client is None:
        return ""
    try:
        address = ip_address(client[0].partition("%")[0])
    except ValueError:
        return client[0]
    if address.version == 6 and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback:
        return "loopback"
    return str(address) if address.version == 4 else str(ip_network(f"{address}/64", strict=False))


def max_connections(maximum: int = DEFAULT_MAX) -> int:
    """The limit, at most half of the file descriptors that the process may have; the rest is for everything else."""
    try:
        import resource  # noqa: PLC0415 - only Unix has it
    except ImportError:
        return maximum
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return maximum if allowed == resource.RLIM_INFINITY else max(1, min(maximum, allowed // 2))
