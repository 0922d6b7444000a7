"""Egress policy: the hosts that requests of network callers may go to.

A name says little about where a request ends: what counts is the address that is dialled. So a host is judged twice,
when it is declared, by its spelling, and again by each address that its name resolves to when a connection is made.
"""

from __future__ import annotations

import re
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING
from unicodedata import normalize

from noonmark.core.frozen import frozen
from noonmark.core.json_values import shown
from noonmark.core.urls import MAX_PORT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from ipaddress import IPv4Network

    from noonmark.core.urls import Url

    Address = IPv4Address | IPv6Address
    Network = IPv4Network | IPv6Network


class Guard(StrEnum):
    """How much of the network is open."""

    STRICT = "strict"
    """Public addresses only."""
    LOCAL = "local"
    """Those, and the addresses of this machine and of private networks."""
    OFF = "off"
    """Everything."""


_KINDS: dict[str, tuple[str, ...]] = {
    # Some of them lie in networks that are private or even public.
    "a metadata address": (
        "169.254.169.254/32",
        "100.100.100.200/32",
        "168.63.129.16/32",
        "192.0.0.192/32",
        "fd00:ec2::/32",
        "fd20:ce::254/128",
    ),
    "a link-local address": ("169.254.0.0/16", "fe80::/10"),
    "a loopback address": ("127.0.0.0/8", "::1/128"),
    "a private address": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"),
    "a multicast address": ("224.0.0.0/4", "ff00::/8"),
    "a reserved address": (
        "0.0.0.0/8",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "240.0.0.0/4",
        # Documentation, and tunnels whose other end is written into the address.
        "2001::/23",
        "2001:db8::/32",
        "2002::/16",
        "3fff::/20",
    ),
}
"""What is not public; the first that fits counts."""
_OF_THE_NEIGHBOURHOOD = ("a loopback address", "a private address")
_NEVER_BELOW = ("a metadata address", "a link-local address", "a multicast address")
"""What `*.` does not open: a host name below it could lead to the credentials of a cloud."""
_NETWORKS = [(ip_network(one), kind) for kind, networks in _KINDS.items() for one in networks]
_PUBLIC_6 = IPv6Network("2000::/3")
_TRANSLATED = IPv6Network("64:ff9b::/96")
_METADATA_NAMES = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}
)
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")
# An address with colons has a port only behind brackets, and a network has none.
_PLACE = re.compile(
    r"(?:\[(?P<address>[0-9a-fA-F:.]+)\]|(?P<host>(?:\*\.(?=\w))?[\w.-]{1,255}))(?::(?P<port>[0-9]{1,5}))?"
)


@frozen(kw_only=True)
class EgressPolicy:
    """The rules of one node."""

    guard: Guard = Guard.STRICT
    names: frozenset[tuple[str, int | None]] = frozenset()
    """Hosts that are open, wherever they are, each at one port, or with None at every one.

    `*.` means all below it, but no metadata servers, link-local or multicast addresses."""
    networks: tuple[tuple[Network, int | None], ...] = ()
    """Allowed addresses."""

    def url_problem(self, url: Url) -> str | None:
        """Why a request to this URL is refused, judged by the text alone."""
        return self.host_problem(url.host, url.port)

    def host_problem(self, host: str, port: int | None = None) -> str | None:
        """Why a request to this host is refused, judged by the text alone."""
        name = _name(host)
        if self._is_open(name, port):
            return None
        if any(not one.isascii() and (one.isnumeric() or normalize("NFKC", one) != one) for one in host):
            return f"the host {shown(host)} has characters that can be taken for others"
        if ":" in host or _NUMBER.fullmatch(name.rpartition(".")[2]):
            return self._spelling_problem(host, port)
        if name in _METADATA_NAMES:
            return _refusal(host, "a metadata address")
        if (name == "localhost" or name.endswith(".localhost")) and not self._is_below(name, port):
            if host.endswith("."):
                return f"the host {shown(host)} is a name in an unusual form; write it without the dot at its end"
            return self._problem(host, IPv4Address("127.0.0.1"), port)
        return None

    def address_problem(self, host: str, address: str, port: int | None = None) -> str | None:
        """Why a connection to this address of the host is refused."""
        if self._is_open(_name(host), port):
            return None
        return self._problem(host, ip_address(address.partition("%")[0]), port)

    def _spelling_problem(self, host: str, port: int | None) -> str | None:
        """Why an address is refused; one of IPv4 that is written as one of IPv6 has an unusual form, as others have."""
        try:
            address = ip_address(host)
        except ValueError:
            return _unusual(host, "192.0.2.1 or [2001:db8::1]")
        inner = _inner(address) if isinstance(address, IPv6Address) else None
        if inner is not None and not self._is_listed(address, port):
            return _unusual(host, str(inner))
        return self._problem(host, address, port)

    def _is_listed(self, address: Address, port: int | None) -> bool:
        return any(address in network and only in {None, port} for network, only in self.networks)

    def _is_open(self, name: str, port: int | None) -> bool:
        if self.guard is Guard.OFF:
            return True
        return any((name, only) in self.names for only in (None, port))

    def _is_below(self, name: str, port: int | None) -> bool:
        above = [f"*{name[at:]}" for at, one in enumerate(name) if one == "."]
        return any((one, only) in self.names for one in above for only in (None, port))

    def _problem(self, host: str, address: Address, port: int | None) -> str | None:
        if self._is_listed(address, port):
            return None
        if isinstance(address, IPv6Address) and (inner := _inner(address)) is not None:
            return self._problem(host, inner, port)
        kind = _kind(address)
        if kind is None or (self.guard is Guard.LOCAL and kind in _OF_THE_NEIGHBOURHOOD):
            return None
        if kind not in _NEVER_BELOW and self._is_below(_name(host), port):
            return None
        return _refusal(host if host == str(address) else f"{host} ({address})", kind)


def egress_policy(guard: Guard, allow_hosts: Iterable[str]) -> EgressPolicy:
    """The rules with what is open besides: hosts and addresses, perhaps with a port, and networks."""
    names, networks = set(), []
    for allowed in allow_hosts:
        place, port = open_place(allowed)
        if isinstance(place, str):
            names.add((place, port))
        else:
            networks.append((place, port))
    return EgressPolicy(guard=guard, names=frozenset(names), networks=tuple(networks))


def open_place(written: str) -> tuple[str | Network, int | None]:
    """A host, all below one, an address or a network that is open, and its port if one is named; else a ValueError."""
    match = _PLACE.fullmatch(written)
    if match is None:
        return ip_network(written, strict=False), None
    place, port = match["address"] or match["host"], None if match["port"] is None else int(match["port"])
    if port is not None and not 0 < port <= MAX_PORT:
        raise ValueError(f"{port} is not a port")
    if match["address"] is not None or _NUMBER.fullmatch(place.rpartition(".")[2]):
        return ip_network(place), port
    return _name(place), port


def _name(host: str) -> str:
    return host.lower().removesuffix(".")


def _unusual(host: str, usual: str) -> str:
    return f"the host {shown(host)} is an address in an unusual form; write it as {usual}"


def _inner(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that a packet to this one ends at."""
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped


def _kind(address: Address) -> str | None:
    """The kind of an address that is not public."""
    for network, kind in _NETWORKS:
        if address in network:
            return kind
    is_public = isinstance(address, IPv4Address) or address in _PUBLIC_6
    return None if is_public else "a reserved address"


def _refusal(where: str, kind: str) -> str:
    return f"{where} is {kind}, and this node sends no requests there; to allow it, name it in the setting allow_hosts"
