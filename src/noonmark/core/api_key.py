"""API keys: for whom a call is made, and what it may do.

A key is `nm_live_ab12cd_` and 43 characters that hold 256 random bits. Its beginning is public and is its id. A store
has the SHA-256 digest of the whole key, never the key: with so many random bits, a slow hash would add nothing.

The tenant `*` stands for all of them. Its keys also rule what belongs to no tenant: nodes and workers.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import field, replace
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING

from noonmark.core.frozen import frozen
from noonmark.core.json_values import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noonmark.core.instants import Micros

EVERY_TENANT = "*"
DEFAULT_TENANT, DEFAULT_USER = "default", "local"
"""To whom everything belongs that was made without a key."""
MAX_KEYS = 1_000
"""Keys of one tenant that are not revoked."""
MAX_NAME = 200
ID_BYTES, SECRET_BYTES = 8, 32
DRAWN_BYTES = ID_BYTES + SECRET_BYTES
"""Random bytes that a new key is made of."""

_PREFIX, _ID_LENGTH, _SECRET_LENGTH = "nm_live_", 6, 43
_ID_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_LETTERS = _ID_LETTERS + _ID_LETTERS[10:].upper()
_KEY = re.compile(rf"({_PREFIX}[0-9a-z]{{{_ID_LENGTH}}})_[0-9A-Za-z]{{{_SECRET_LENGTH}}}", re.ASCII)
_TENANT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}", re.ASCII)
_NO_DIGEST = "0" * 64


class Scope(StrEnum):
    """A permission. `admin` includes the others."""

    READ = "read"
    WRITE = "write"
    RUN = "run"
    PROPOSE = "propose"
    """Propose schedules and changes of them, which somebody with `write` approves; and pause schedules."""
    ADMIN = "admin"


ALL_SCOPES = frozenset(Scope)
SESSION_SCOPES = frozenset({Scope.READ, Scope.WRITE, Scope.RUN})
"""What the tools of a session may do that nobody has narrowed."""


class KeyStatus(StrEnum):
    """Whether a key is good."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


@frozen(kw_only=True)
class ApiKey:
    """A stored key: everything about it but the key itself."""

    key_id: str
    """The public beginning of the key."""
    digest: str = field(repr=False)
    tenant: str
    user: str
    scopes: frozenset[Scope]
    name: str | None = None
    is_agent: bool = False
    """Whether a program that decides by itself uses it, such as an AI agent."""
    created: Micros
    expires: Micros | None = None
    revoked: Micros | None = None
    """From when on it is refused; ahead of now if another key takes its place meanwhile."""
    used: Micros | None = None
    """When it was last used, to the minute."""

    @property
    def acts_for(self) -> str:
        """The tenant that it acts for if the request names none; changes of the key are in the audit log of that."""
        return DEFAULT_TENANT if self.tenant == EVERY_TENANT else self.tenant

    def status(self, now: Micros) -> KeyStatus:
        """Whether it is good at an instant."""
        if self.revoked is not None and now >= self.revoked:
            return KeyStatus.REVOKED
        if self.expires is not None and now >= self.expires:
            return KeyStatus.EXPIRED
        return KeyStatus.ACTIVE

    def revoke(self, at: Micros) -> ApiKey:
        """The key as it is refused from an instant on; an earlier one stays."""
        return replace(self, revoked=at if self.revoked is None else min(at, self.revoked))


def write_key(drawn: bytes) -> tuple[str, str]:
    """The id of a new key and the key itself, from random bytes."""
    key_id = _PREFIX + _digits(drawn[:ID_BYTES], _ID_LETTERS, _ID_LENGTH)
    return key_id, f"{key_id}_{_digits(drawn[ID_BYTES:], _LETTERS, _SECRET_LENGTH)}"


def _digits(drawn: bytes, letters: str, length: int) -> str:
    number, digits = int.from_bytes(drawn), ""
    for _ in range(length):
        number, place = divmod(number, len(letters))
        digits += letters[place]
    return digits


def key_id_of(key: str) -> str | None:
    """The id of a key; None if it is not written like one."""
    match = _KEY.fullmatch(key)
    return None if match is None else match[1]


def digest_of(key: str) -> str:
    """What a store has of a key."""
    return sha256(key.encode(errors="surrogatepass")).hexdigest()


def verify_key(key: str, stored: ApiKey | None) -> bool:
    """Whether a key is the stored one. An unknown key takes the same time."""
    return hmac.compare_digest(digest_of(key), _NO_DIGEST if stored is None else stored.digest)


def expand_scopes(scopes: Iterable[Scope]) -> frozenset[Scope]:
    """The scopes with those that they include."""
    scopes_given = frozenset(scopes)
    return ALL_SCOPES if Scope.ADMIN in scopes_given else scopes_given


def session_scopes(*makers: frozenset[Scope] | None) -> frozenset[Scope]:
    """What a session may do: no more than any of those had who made it, or who have it talk. None had everything.

    With `write` one may propose too, so a proposer among others leaves `propose`.
    """
    scopes = SESSION_SCOPES | {Scope.PROPOSE}
    for one in makers:
        if one is not None:
            scopes &= one | {Scope.PROPOSE} if Scope.WRITE in one else one
    return scopes - {Scope.PROPOSE} if Scope.WRITE in scopes else scopes


def tenant_name(value: object) -> str:
    """The name of a tenant; a ValueError says what is allowed."""
    if isinstance(value, str) and _TENANT.fullmatch(value):
        return value
    raise ValueError("must be the name of a tenant: 1 to 63 letters, digits, -, _ or ., and no dot at the beginning")


def tenant_or_all(value: object) -> str:
    """The name of a tenant, or a star for all of them."""
    return EVERY_TENANT if value == EVERY_TENANT else tenant_name(value)


def scopes_of(value: object) -> frozenset[Scope]:
    """Scopes from a list, or from text with commas or blanks between; a ValueError says what is allowed."""
    given = value.replace(",", " ").split() if isinstance(value, str) else value
    if isinstance(given, list | tuple) and 0 < len(given) <= 2 * len(Scope) and all(map(_is_scope, given)):
        return frozenset(Scope(one) for one in given)
    raise ValueError(f"must be one or several of {', '.join(Scope)}, not {shown(value)}")


def _is_scope(value: object) -> bool:
    return isinstance(value, str) and value in ALL_SCOPES


def first_key_problem(tenant: str, scopes: Iterable[Scope]) -> str | None:
    """What is wrong with the first key of a store: without one that rules everything, nobody could make the others."""
    if tenant == EVERY_TENANT and Scope.ADMIN in frozenset(scopes):
        return None
    return (
        "the first key of a store must be able to make the others: create it with --tenant '*' and --scopes admin; from"
        " then on every call needs a key"
    )
