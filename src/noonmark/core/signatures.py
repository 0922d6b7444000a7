"""Signatures: they prove to a receiver that a request is ours, and to us that a callback belongs to it.

A request is signed over the time, the occurrence and the body, with a key that only the two sides have. A receiver of
asynchronous work gets a token that ends this one delivery and no other. It is computed, so it need not be stored.

All keys follow from one that a store has drawn for itself, which no receiver ever sees, and from settings, if there are
any: so a key that was handed out leads to no other one.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import field
from hashlib import shake_256
from typing import TYPE_CHECKING

from noonmark.core.errors import NotAllowed
from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros

MAX_AGE: Micros = 300 * SECOND
"""A signature is good for so long, and a clock may be so wrong."""
MIN_KEY, MAX_KEY = 16, 500
MAIN_TENANT = "default"
"""Whose key the setting is, word for word."""
PING_DIGITS = 40
"""Of a digest, in a token for pings: 160 bits."""
HIDING_TAG = 16
"""Bytes that prove that a hidden text is ours."""
_SIGNATURE = re.compile(r"t=([0-9]{1,15}),v1=([0-9a-f]{64})", re.ASCII)


def read_signing_key(value: object) -> str:
    """What requests are signed with; a ValueError says what is allowed, and does not repeat what was given."""
    if isinstance(value, str) and MIN_KEY <= len(value) <= MAX_KEY and value.isascii() and value.isprintable():
        return value
    raise ValueError(f"must be {MIN_KEY} to {MAX_KEY} printable ASCII characters")


def signature(key: str, *, at: Micros, occurrence_id: str, body: bytes) -> str:
    """Proof that a holder of the key sent this at that time."""
    seconds = at // SECOND
    return f"t={seconds},v1={_digest(key, f'{seconds}.{occurrence_id}.'.encode() + body)}"


def check_signature(text: str, key: str, *, occurrence_id: str, body: bytes, now: Micros) -> None:
    """NotAllowed unless it was signed with this key, of late."""
    match = _SIGNATURE.fullmatch(text)
    if match is None:
        raise NotAllowed("the signature is missing, or is not one of ours")
    seconds = int(match[1])
    expected = _digest(key, f"{seconds}.{occurrence_id}.".encode() + body)
    if not hmac.compare_digest(expected, match[2]):
        raise NotAllowed("the signature is wrong: another key, or the request was changed on its way")
    if abs(now - seconds * SECOND) > MAX_AGE:
        raise NotAllowed(f"the signature is more than {MAX_AGE // SECOND // 60} minutes old, or of the future")


@frozen(kw_only=True)
class KeySettings:
    """The key settings of a node, the same on every node; all are optional."""

    signing_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    """What secrets are sealed with: several, perhaps, with commas between them."""


def given_key(settings: KeySettings, tenant: str) -> str | None:
    """What the requests of a tenant are signed with, where the settings alone say it: the store need not be asked."""
    return settings.signing_key if tenant == MAIN_TENANT else None


def tenant_key(settings: KeySettings, own: bytes, tenant: str) -> str:
    """What the requests of a tenant are signed with; `own` is the key of the store.

    The setting is the key of the main tenant, whose receivers know it. It changes the keys of the others, but does not
    lead to them.
    """
    if (given := given_key(settings, tenant)) is not None:
        return given
    root = own if settings.signing_key is None else hmac.digest(own, settings.signing_key.encode(), "sha256")
    return hmac.new(root, f"noonmark/tenant/{tenant}".encode(), "sha256").hexdigest()


def token_keys(settings: KeySettings, own: bytes) -> tuple[str, ...]:
    """The keys of tokens: the first one makes them, each of them checks them. `own` is the key of the store.

    Receivers have a signing key, to check signatures, and must not be able to make tokens for work that is not theirs:
    so it is not part of them. The keys that secrets are sealed with are, so that a copy of the store alone makes none.
    """
    root = hmac.new(own, b"noonmark/tokens", "sha256").hexdigest()
    return (*_mixed(root, settings.secret_key), *_earlier_token_keys(settings))


def _earlier_token_keys(settings: KeySettings) -> tuple[str, ...]:
    """Those of tokens that were handed out before stores had a key: good where no receiver could have made them."""
    if settings.signing_key is None or settings.secret_key is None:
        return ()
    return _mixed(_digest(settings.signing_key, b"noonmark completion tokens"), settings.secret_key)


def _mixed(root: str, secret_key: str | None) -> tuple[str, ...]:
    return tuple(_digest(root, one.strip().encode()) for one in (secret_key or "").split(","))


def completion_token(key: str, *, occurrence_id: str, fence: int) -> str:
    """What ends this delivery; the next delivery of the same occurrence has another."""
    return _digest(key, f"completion:{occurrence_id}:{fence}".encode())


def check_token(token: str, keys: Sequence[str], *, occurrence_id: str, fence: int) -> None:
    """NotAllowed unless it was made for this delivery, with one of the keys."""
    expected = [completion_token(key, occurrence_id=occurrence_id, fence=fence) for key in keys]
    if not any(hmac.compare_digest(one.encode(), token.encode()) for one in expected):
        raise NotAllowed("it is not the token of this delivery", field="token")


def ping_token(key: str, *, uid: str, rotation: int) -> str:
    """The token in the ping URL of a schedule: it cannot be guessed, and it is not stored."""
    return f"{uid}-{_digest(key, f'ping:{uid}:{rotation}'.encode())[:PING_DIGITS]}"


def pinged_uid(token: str) -> str:
    """The schedule that a token names, right or wrong."""
    return token.rpartition("-")[0]


def is_ping_token(token: str, keys: Sequence[str], *, uid: str, rotation: int) -> bool:
    """Whether it was made for this schedule since its last rotation, with one of the keys."""
    expected = [ping_token(key, uid=uid, rotation=rotation) for key in keys]
    return any(hmac.compare_digest(one.encode(), token.encode()) for one in expected)


def chain_key(own: bytes, tenant: str) -> str:
    """What proves that a request comes from the work of an occurrence of a tenant; `own` is the key of the store.

    No receiver has it, so none can pretend to belong to the work of another.
    """
    return hmac.new(own, f"noonmark/chain/{tenant}".encode(), "sha256").hexdigest()


def chain_proof(key: str, *, occurrence_id: str) -> str:
    """What the work of an occurrence brings along wherever it goes: which one it is, and that this is true."""
    return f"{occurrence_id}.{_digest(key, f'chain:{occurrence_id}'.encode())}"


def proven_occurrence(text: str, key: str) -> str | None:
    """The id of the occurrence that a proof is for; None where it is none, or was made with another key."""
    one_id = text.rpartition(".")[0]
    is_true = text.isascii() and hmac.compare_digest(chain_proof(key, occurrence_id=one_id), text)
    return one_id if is_true else None


def hide_text(own: bytes, tenant: str, text: str) -> str:
    """Encrypt a text that a tenant gets and only this store reads again; `own` is the key of the store.

    What masks the text follows from the text itself, so no mask is used for two texts.
    """
    key, plain = _hiding_key(own, tenant), text.encode()
    tag = hmac.digest(key, plain, "sha256")[:HIDING_TAG]
    return (tag + _masked(key, tag, plain)).hex()


def reveal_text(own: bytes, tenant: str, hidden: str) -> str | None:
    """The text that was hidden for the tenant; None if this is not one."""
    try:
        data = bytes.fromhex(hidden)
    except ValueError:
        return None
    key, tag = _hiding_key(own, tenant), data[:HIDING_TAG]
    plain = _masked(key, tag, data[HIDING_TAG:])
    return plain.decode() if hmac.compare_digest(hmac.digest(key, plain, "sha256")[:HIDING_TAG], tag) else None


def _hiding_key(own: bytes, tenant: str) -> bytes:
    return hmac.digest(own, f"noonmark/hidden/{tenant}".encode(), "sha256")


def _masked(key: bytes, tag: bytes, data: bytes) -> bytes:
    """The data combined with a mask; a second time gives the data again."""
    return bytes(one ^ other for one, other in zip(data, shake_256(key + tag).digest(len(data)), strict=True))


def _digest(key: str, message: bytes) -> str:
    return hmac.digest(key.encode(), message, "sha256").hex()
