"""Secrets: values that requests carry in a header, or programs in their environment, known by their names.

Each is bound to the hosts and to the programs that may see it.

Messages never repeat what was given as a name or a value: it may be the secret itself.
"""

from __future__ import annotations

import re
from dataclasses import field
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING

from noonmark.core.errors import Problem
from noonmark.core.frozen import frozen
from noonmark.core.instants import from_micros
from noonmark.core.urls import MAX_PORT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from noonmark.core.instants import Micros
    from noonmark.core.urls import Url

MAX_SECRETS = 1_000
"""The limit per tenant."""
MAX_HOSTS, MAX_HOST = 20, 270
MAX_PROGRAMS, MAX_PROGRAM = 20, 255
MIN_VALUE, MAX_VALUE = 4, 8_192
"""A shorter value could not be told apart from other text when it is masked."""

# One or two dots would lead elsewhere in the path of a request.
_NAME = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,63}")
_VALUE = re.compile(rf"(?! )[\x20-\x7e]{{{MIN_VALUE},{MAX_VALUE}}}(?<! )")
_PROGRAM = re.compile(r"/[^\x00-\x1f\x7f]+|(?:bundle:)?[A-Za-z0-9._+:-]+")
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
# A dot at the end means the same host.
_HOST = re.compile(
    rf"(?:(?P<scheme>https?)://)?(?P<any>\*\.)?(?P<host>{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]+\])\.?(?::(?P<port>[0-9]{{1,5}}))?"
)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_REFUSAL = (
    "must be a host such as api.example.com, api.example.com:8443 or *.example.com; http://api.example.com lets it go"
    " there in plain text"
)
_IN_PLAIN_TEXT = "http://"
# What stands in place of a header's name may be a token; those that are words are not.
_WORDS = re.compile(r"[A-Za-z]{1,20}(?:-[A-Za-z]{1,20}){0,4}")


@frozen(kw_only=True)
class Secret:
    """A stored secret. Its value is sealed and never shown."""

    name: str
    """What the headers of requests call it."""
    hosts: tuple[str, ...]
    """Where requests may take it: `example.com`, `example.com:8443`, or `*.example.com` for all below that one.

    They take it there by https alone; by plain http alone, where `http://` stands before the host."""
    sealed: str = field(repr=False)
    created: Micros
    updated: Micros
    programs: tuple[str, ...] = ()
    """Which programs may get it: the name or the path that a command starts with, or `bundle:` and the id of one."""

    @property
    def created_at(self) -> datetime:
        """When it was first set, in UTC."""
        return from_micros(self.created)

    @property
    def updated_at(self) -> datetime:
        """When it was last set, in UTC."""
        return from_micros(self.updated)

    def is_bound_to(self, url: Url) -> bool:
        """Whether a request to this URL may carry it."""
        return self._covers(url, is_plain=url.scheme == "http")

    def misfit(self, url: Url) -> str:
        """Why a request to this URL may not carry it, in the words that follow its name."""
        hosts = ", ".join(self.hosts)
        if url.scheme == "http" and self._covers(url, is_plain=False):
            return f"is bound to {hosts} over https only; for plain http, set it again with the host {url.origin}"
        return f"is bound to {hosts}, not to this host"

    def program_misfit(self, program: str) -> str | None:
        """Why a program may not get it, in the words that follow its name; None if it may."""
        if program in self.programs:
            return None
        bound = ", ".join([*self.hosts, *self.programs])
        return f"is bound to {bound}; to give it to this program, set it again with --program {program}"

    def _covers(self, url: Url, *, is_plain: bool) -> bool:
        host = _plain(url.host)
        return any(
            _covers(bound.removeprefix(_IN_PLAIN_TEXT), host, url.port)
            for bound in self.hosts
            if bound.startswith(_IN_PLAIN_TEXT) is is_plain
        )


def _covers(bound: str, host: str, port: int) -> bool:
    name, is_named, digits = bound.rpartition(":")
    if not is_named or "]" in digits:
        name, digits = bound, ""
    if digits and int(digits) != port:
        return False
    return host.endswith(name[1:]) if name.startswith("*.") else host == name


def _plain(host: str) -> str:
    """A host in the one form in which hosts are compared. Names beyond ASCII have none: they equal nothing."""
    return f"[{host}]" if ":" in host else host.removesuffix(".")


def secret_name(value: object) -> str:
    """The name of a secret."""
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise ValueError("must be the name of a secret: 1 to 63 letters, digits, -, _ or .; never its value")


def secret_value(value: object) -> str:
    """The secret value: that of a whole header."""
    if isinstance(value, str) and _VALUE.fullmatch(value):
        return value
    raise ValueError(
        f"must be {MIN_VALUE} to {MAX_VALUE:,} printable ASCII characters, without a blank at either end; what was"
        " given is not repeated here"
    )


def bound_host(value: object) -> str:
    """A host that a secret is bound to, in the form in which it is compared."""
    if isinstance(value, str) and not value.isascii():
        raise ValueError("must be written in ASCII, with xn-- where a name has other letters")
    match = _HOST.fullmatch(value.lower()) if isinstance(value, str) and len(value) <= MAX_HOST else None
    if match is None or not 0 < int(match["port"] or 1) <= MAX_PORT:
        raise ValueError(_REFUSAL)
    port = "" if match["port"] is None else f":{int(match['port'])}"
    # A bare host and one with https:// mean the same, so they are stored in the same form.
    scheme = _IN_PLAIN_TEXT if match["scheme"] == "http" else ""
    return scheme + (match["any"] or "") + _address_or_name(match["host"], is_any=match["any"] is not None) + port


def _address_or_name(host: str, *, is_any: bool) -> str:
    if not host.startswith("[") and not _NUMBER.fullmatch(host.rpartition(".")[2]):
        return host
    try:
        address = IPv6Address(host[1:-1]) if host.startswith("[") else IPv4Address(host)
    except ValueError:
        raise ValueError("is an address in an unusual form; write it as 192.0.2.1 or [2001:db8::1]") from None
    if is_any:
        raise ValueError("is an address, and nothing lies below one: leave the star out")
    return f"[{address}]" if isinstance(address, IPv6Address) else str(address)


def bound_program(value: object) -> str:
    """A program that a secret is bound to."""
    if isinstance(value, str) and len(value) <= MAX_PROGRAM and _PROGRAM.fullmatch(value):
        return value
    raise ValueError(
        "must be the name of a program, its absolute path, or bundle: and the id of a bundle; never the secret itself"
    )


def bound_hosts(hosts: Iterable[str], programs: Collection[str] = ()) -> tuple[str, ...]:
    """Each host once, in order; a ValueError when there is none, and no program either."""
    distinct = tuple(dict.fromkeys(hosts))
    if not distinct and not programs:
        raise ValueError("must name at least one host that may see the secret, unless programs names one that may")
    return distinct


def header_place(header: object, headers: Iterable[object]) -> str:
    """The path of a header in the document; a header whose name may be invalid is shown by its number."""
    if isinstance(header, str) and _WORDS.fullmatch(header):
        return f".{header}"
    return f"[{list(headers).index(header)}]"


def header_problems(headers: Mapping[str, str], url: Url, known: Mapping[str, Secret]) -> list[Problem]:
    """Why a request to a URL cannot carry the secrets that its headers name, if it cannot."""
    problems = []
    for header, name in headers.items():
        secret, field_name = known.get(name), f"target.secret_headers{header_place(header, headers)}"
        if secret is None:
            problems.append(Problem(field_name, "there is no secret of that name"))
        elif not secret.is_bound_to(url):
            problems.append(Problem(field_name, f"{name} {secret.misfit(url)}"))
    return problems


def variable_problems(wanted: Mapping[str, str], program: str, known: Mapping[str, Secret]) -> list[Problem]:
    """Why a program cannot get the secrets that the variables of its environment name, if it cannot."""
    problems = []
    for variable, name in wanted.items():
        secret, field_name = known.get(name), f"target.secret_env.{variable}"
        if secret is None:
            problems.append(Problem(field_name, "there is no secret of that name"))
        elif (misfit := secret.program_misfit(program)) is not None:
            problems.append(Problem(field_name, f"{name} {misfit}"))
    return problems
