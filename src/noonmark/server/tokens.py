"""Signed tokens (JWT) of another issuer, instead of API keys.

Each key has one algorithm, which the settings or the file of keys name; what the token says of its algorithm only has
to agree. A token needs an audience and an expiry, and names a tenant, a user and scopes in claims that settings choose.
It never names the tenant `*`: only an API key rules all tenants.
"""

from __future__ import annotations

import json
import logging
from dataclasses import field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import jwt

from noonmark.core.api_key import MAX_NAME, Scope, expand_scopes, tenant_name
from noonmark.core.errors import Unauthenticated
from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND
from noonmark.core.schedule import Owner
from noonmark.operations.service import Caller
from noonmark.server.authentication import SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noonmark.core.instants import Micros

logger = logging.getLogger("noonmark.serve")
SECRET_PREFIX = "HS256:"  # noqa: S105 - it is followed by the secret
MIN_SECRET = 32
"""Bytes of a shared secret."""
MAX_FILE = 1_048_576
ALGORITHMS = frozenset(
    {
        "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "HS256", "HS384",
        "HS512",
    }
)  # fmt: skip
_KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP", "HS": "oct"}
NOT_BEFORE_LEEWAY: Micros = 30 * SECOND
"""How far the clock of the issuer may be ahead."""
SCOPE_PREFIX = "noonmark:"
"""A scope may have it, so that it is not mistaken for one of another service."""
_INVALID = "the token is invalid"


@frozen
class VerificationKey:
    """A key that verifies tokens, and its only algorithm."""

    kid: str | None
    algorithm: str
    key: Any = field(repr=False)


@frozen(kw_only=True)
class TokenSettings:
    """Which tokens are accepted, and which of their claims count."""

    keys: str = field(repr=False)
    """The file of keys, or `HS256:` and a secret."""
    audience: str = "noonmark"
    issuer: str | None = None
    tenant_claim: str = "tenant"
    user_claim: str = "sub"
    scope_claim: str = "scope"


def read_keys(text: str) -> tuple[VerificationKey, ...]:
    """The keys of a setting; a ValueError says what is wrong, and repeats nothing of a secret."""
    if text.startswith(SECRET_PREFIX):
        secret = text.removeprefix(SECRET_PREFIX).encode()
        if len(secret) < MIN_SECRET:
            raise ValueError(f"the secret after {SECRET_PREFIX} must have at least {MIN_SECRET} bytes")
        return (VerificationKey(None, "HS256", secret),)
    try:
        with Path(text).open("rb") as stream:
            document = json.loads(stream.read(MAX_FILE))
    except (OSError, ValueError):
        raise ValueError(f"must be a file with a JSON Web Key Set, or {SECRET_PREFIX} and a secret") from None
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ValueError('the file of keys must have a list of them, as {"keys": [..]}')
    keys = tuple(_key(number, entry) for number, entry in enumerate(entries))
    kids = [key.kid for key in keys]
    if len(keys) > 1 and (None in kids or len(set(kids)) < len(kids)):
        raise ValueError("each of several keys needs a kid of its own")
    return keys


def _key(number: int, entry: Any) -> VerificationKey:
    """One key of the file; its algorithm must be named and fit its kind."""
    where = f"key {number + 1} of the file"
    algorithm = entry.get("alg") if isinstance(entry, dict) else None
    if algorithm not in ALGORITHMS:
        raise ValueError(f"{where} must name its algorithm in alg: one of {', '.join(sorted(ALGORITHMS))}")
    kid = entry.get("kid")
    if entry.get("kty") != _KINDS[algorithm[:2]] or not (kid is None or isinstance(kid, str)):
        raise ValueError(f"{where} is not of the kind that {algorithm} needs")
    if entry.get("use", "sig") != "sig":
        raise ValueError(f"{where} is not for signatures")
    try:
        key = jwt.PyJWK(entry, algorithm=algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise ValueError(f"{where} cannot be read") from None
    if isinstance(key, bytes) and len(key) < MIN_SECRET:
        raise ValueError(f"{where} must have at least {MIN_SECRET} bytes")
    return VerificationKey(kid, algorithm, key)


class TokenVerifier:
    """Verifies tokens. The file of keys is read again when it changes."""

    def __init__(self, settings: TokenSettings, monotonic: Callable[[], Micros]) -> None:
        """A ValueError says what is wrong with the keys."""
        self._settings, self._monotonic = settings, monotonic
        self._keys = read_keys(settings.keys)
        self._stamp, self._check_at, self._lock = self._file_stamp(), monotonic() + SECOND, Lock()

    def caller(self, token: str, *, now: Micros) -> Caller:
        """The caller that a token names; Unauthenticated if it is invalid. Errors repeat nothing of it."""
        claims = self._claims(token)
        expires, starts = _seconds(claims.get("exp")), _seconds(claims.get("nbf", 0))
        if expires is None or starts is None:
            raise Unauthenticated(_INVALID)
        if now >= expires * SECOND:
            raise Unauthenticated("the token has expired")
        if now + NOT_BEFORE_LEEWAY < starts * SECOND:
            raise Unauthenticated("the token is not valid yet")
        settings = self._settings
        user = _claim(claims, settings.user_claim)
        try:
            tenant = tenant_name(_claim(claims, settings.tenant_claim))
        except ValueError:
            raise Unauthenticated(
                f"the claim {settings.tenant_claim} of the token is not the name of a tenant"
            ) from None
        if not isinstance(user, str) or not 0 < len(user) <= MAX_NAME or not user.isprintable():
            raise Unauthenticated(f"the claim {settings.user_claim} of the token is not the name of a user")
        return Caller(
            owner=Owner(tenant=tenant, user=user),
            name=user,
            source=SOURCE,
            scopes=expand_scopes(_scopes(_claim(claims, settings.scope_claim))),
            is_root=False,
            expires=int(expires * SECOND),
        )

    def _claims(self, token: str) -> Mapping[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
            key = self._key(header.get("kid"))
            # The key decides which algorithm is good; the token must not choose another one.
            if key is None or header.get("alg") != key.algorithm or "crit" in header:
                raise Unauthenticated(_INVALID)
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                # Times are compared with the store's clock, not with this machine's.
                options={
                    "require": ["exp", "aud"], "verify_exp": False, "verify_nbf": False, "verify_iat": False,
                },
            )  # fmt: skip
        except (jwt.InvalidAudienceError, jwt.InvalidIssuerError):
            raise Unauthenticated("the token is for another service, or from another issuer") from None
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise Unauthenticated(_INVALID) from None
        return claims

    def _key(self, kid: object) -> VerificationKey | None:
        self._reload()
        if kid is None:
            return self._keys[0] if len(self._keys) == 1 else None
        named = [key for key in self._keys if key.kid == kid]
        return named[0] if named else None

    def _reload(self) -> None:
        """Read the file of keys again if it has changed; an invalid one is reported, and the old keys stay."""
        if self._monotonic() < self._check_at:
            return
        with self._lock:
            self._check_at = self._monotonic() + SECOND
            if (stamp := self._file_stamp()) == self._stamp:
                return
            self._stamp = stamp
            try:
                self._keys = read_keys(self._settings.keys)
            except ValueError as error:
                logger.warning("the keys for tokens were not read again, the old ones stay: %s", error)

    def _file_stamp(self) -> tuple[int, int] | None:
        """When the file was last changed; None for a secret, or while there is no file."""
        if self._settings.keys.startswith(SECRET_PREFIX):
            return None
        try:
            status = Path(self._settings.keys).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """A claim by its name, or by a path with dots into objects."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _scopes(value: object) -> list[Scope]:
    """The scopes among those of a token; it may have others, for other services."""
    words = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
    names = [one.removeprefix(SCOPE_PREFIX) for one in words if isinstance(one, str)]
    return [Scope(name) for name in names if name in frozenset(Scope)]


def _seconds(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if abs(value) < 1e12 else None
