"""The connections of a server: how many there may be, how long each may keep it waiting, and who gives way.

A connection waits for its peer when the head of a request has not come, when a body does not go on, or when an answer
is not read. One that waits too long is closed. When there are too many, the one that has waited longest gives way;
when none waits, one more is taken into a small reserve, in which only questions about health are answered.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

ENOUGH = 1_000
SHARE = 2
"""Unless it is said, one address may have one half of all connections."""
RESERVE = 16
RESERVE_SECONDS = 5.0
"""So long a connection in the reserve has to say what it wants."""
FRESH_SECONDS = 0.1
"""So long it keeps its place there, however many want to come in: its request may be on the way."""
STUCK_SECONDS = 1.0
"""A body or an answer that has not moved for so long gives way when there are too many."""
LOOK_SECONDS = 1.0
GIVE_BACK_BYTES = 33_554_432
"""After answers of so many bytes, the memory that they took is given back to the system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What the connections of a server may take."""

    most: int = ENOUGH
    per_address: int = ENOUGH
    reserve: int = RESERVE
    head_seconds: float = 20.0
    """For the whole head of a request, from the connection, or from the end of the last answer."""
    send_seconds: float = 20.0
    """An answer of which nothing has been read for so long is given up."""
    slowest: int = 4_096
    """Bytes a second, beyond these seconds: an answer that is read more slowly is given up, too."""
    unsent_bytes: int = 67_108_864
    """Of all answers that wait to be read, together; when there are more, whoever has not read longest gives way."""


class Peer(Protocol):
    """One connection, as the pool sees it."""

    address: str
    is_reserved: bool

    @property
    def unsent(self) -> int:
        """Bytes that wait to be read."""

    @property
    def is_expecting(self) -> bool:
        """Whether the rest of a body is waited for."""

    @property
    def heard(self) -> float:
        """When something last came."""

    @property
    def produced(self) -> int:
        """Bytes of answers so far."""

    def drop(self) -> None:
        """End it now, whatever waits to be sent."""


@dataclass(slots=True)
class _Sending:
    """How an answer gets on."""

    begun: float
    before: int
    sent: int
    moved: float


@dataclass(slots=True)
class _Group:
    """The connections of one address, or all of them."""

    members: set[Peer] = field(default_factory=set)
    idle: dict[Peer, float] = field(default_factory=dict)
    """Those that owe the head of a request, with the time since when; the longest first."""


class ConnectionPool:
    """All connections of one server. Everything here happens on its loop."""

    def __init__(self, limits: ConnectionLimits, fresh_id: Callable[[], str]) -> None:
        """There are none yet. `fresh_id` names the requests that are refused before anybody has read them."""
        self.limits, self.fresh_id = limits, fresh_id
        self.dropped = 0
        """Connections that were closed by these rules."""
        self.refused = 0
        """Requests that were answered with 503."""
        self._all, self._reserve = _Group(), _Group()
        self._by_address: dict[str, _Group] = {}
        self._sending: dict[Peer, _Sending] = {}
        self._is_looking = False
        self._produced = 0
        """Bytes of answers since memory was last given back."""

    @property
    def open(self) -> int:
        """How many there are, those in the reserve included."""
        return len(self._all.members) + len(self._reserve.members)

    @property
    def unsent(self) -> int:
        """Bytes of answers that wait to be read."""
        return sum(one.unsent for one in tuple(self._sending))

    def add(self, peer: Peer, loop: AbstractEventLoop) -> None:
        """One more. Somebody gives way for it, or it gets a place in the reserve, or it is closed again."""
        now = loop.time()
        if not self._is_looking:
            self._is_looking = True
            loop.call_later(self._interval, self._watch, loop)
        mine = self._by_address.setdefault(peer.address, _Group())
        limits = self.limits
        bounds = ((mine, limits.per_address), (self._all, limits.most))
        full = next((group for group, most in bounds if len(group.members) >= most), None)
        peer.is_reserved = full is not None and not self._make_room(full, now)
        if not peer.is_reserved:
            self._all.members.add(peer)
            self._by_address.setdefault(peer.address, mine).members.add(peer)
            self.expect_head(peer, now)
        elif len(self._reserve.members) < limits.reserve or self._make_room(self._reserve, now - FRESH_SECONDS):
            self._reserve.members.add(peer)
            self.expect_head(peer, now)
        else:
            self._drop(peer)

    def remove(self, peer: Peer) -> None:
        """It has ended."""
        if any(peer in group.members for group in self._groups(peer)):
            self._produced += peer.produced
        self.expect_nothing(peer)
        self._sending.pop(peer, None)
        for group in self._groups(peer):
            group.members.discard(peer)
        if peer.address in self._by_address and not self._by_address[peer.address].members:
            del self._by_address[peer.address]

    def expect_head(self, peer: Peer, now: float) -> None:
        """The next thing to come is the head of a request; it counts from the first time that this is said."""
        for group in self._groups(peer):
            if peer in group.members:
                group.idle.setdefault(peer, now)

    def expect_nothing(self, peer: Peer) -> None:
        """The head of a request has come."""
        for group in self._groups(peer):
            group.idle.pop(peer, None)

    def sends(self, peer: Peer, now: float) -> None:
        """An answer is on its way, and not all of it has been taken at once."""
        if peer not in self._sending:
            sent = peer.produced - peer.unsent
            self._sending[peer] = _Sending(now, sent, sent, now)
        if self.unsent > self.limits.unsent_bytes:
            self._measure(now)
            # Whoever reads has just been seen to do so; and who has only begun has had no time to.
            others = [one for one in self._sending if one is not peer]
            for one in sorted(others, key=lambda one: self._sending[one].moved):
                if self.unsent <= self.limits.unsent_bytes:
                    break
                self._drop(one)

    @property
    def _interval(self) -> float:
        return min(LOOK_SECONDS, self.limits.head_seconds / 4, self.limits.send_seconds / 4)

    def _groups(self, peer: Peer) -> tuple[_Group, ...]:
        if peer.is_reserved:
            return (self._reserve,)
        mine = self._by_address.get(peer.address)
        return (self._all,) if mine is None else (self._all, mine)

    def _make_room(self, group: _Group, now: float) -> bool:
        """Close the one of a group that has waited longest; False when none waits."""
        # Who owes a request and still reads the last answer is judged by that.
        idle = (one for one, since in group.idle.items() if since <= now and not one.unsent)
        victim = next(idle, None) or next(iter(self._stuck(group, now)), None)
        if victim is not None:
            self._drop(victim)
        return victim is not None

    def _stuck(self, group: _Group, now: float) -> list[Peer]:
        """Those whose body or answer has not moved for a while, the longest first."""
        self._measure(now)
        moved = {one: self._sending[one].moved for one in self._sending if one in group.members}
        moved |= {one: one.heard for one in group.members if one.is_expecting and one not in moved}
        return sorted((one for one in moved if now - moved[one] >= STUCK_SECONDS), key=lambda one: moved[one])

    def _measure(self, now: float) -> None:
        """See how the answers got on."""
        for one, state in tuple(self._sending.items()):
            unsent = one.unsent
            sent = one.produced - unsent
            if sent > state.sent:
                state.sent, state.moved = sent, now
                for group in self._groups(one):  # a head is owed from when the last answer has been taken
                    if one in group.idle:
                        group.idle[one] = now
            if not unsent:
                del self._sending[one]

    def _watch(self, loop: AbstractEventLoop) -> None:
        """Close whatever has waited too long."""
        now, limits = loop.time(), self.limits
        self._measure(now)
        late: list[Peer] = []
        patience = min(limits.head_seconds, RESERVE_SECONDS)
        for group, seconds in ((self._all, limits.head_seconds), (self._reserve, patience)):
            late += [one for one, since in group.idle.items() if now - since >= seconds and not one.unsent]
        for one, state in self._sending.items():
            allowed = limits.send_seconds + (state.sent - state.before) / limits.slowest
            if now - state.moved >= limits.send_seconds or now - state.begun >= allowed:
                late.append(one)
        for one in late:
            self._drop(one)
        if self._produced >= GIVE_BACK_BYTES:
            self._produced = 0
            loop.run_in_executor(None, give_back)
        self._is_looking = self.open > 0
        if self._is_looking:
            loop.call_later(self._interval, self._watch, loop)

    def _drop(self, peer: Peer) -> None:
        self.dropped += 1
        self.remove(peer)
        peer.drop()


def give_back() -> None:
    """Let the system have the memory that nothing uses; the allocator of some systems keeps it for good."""
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def address_of(client: tuple[str, int] | None) -> str:
    """What counts as one address: a machine has all of loopback, and a network of IPv6 as many as it likes."""
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


def most_connections(wanted: int = ENOUGH) -> int:
    """So many, unless half of the file descriptors are fewer: the others are left for everything else."""
    try:
        import resource  # noqa: PLC0415 - only Unix has it
    except ImportError:
        return wanted
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if allowed == resource.RLIM_INFINITY else max(1, min(wanted, allowed // 2))
