"""API keys: create, list, revoke and rotate; and what the caller's own key allows.

Answers contain a key once: when it is created. The store has its digest.
"""

from __future__ import annotations

from dataclasses import replace
from secrets import token_bytes  # noqa: TID251 - a key must not be computable
from typing import TYPE_CHECKING, Any

from noonmark.core.api_key import (
    DEFAULT_USER,
    DRAWN_BYTES,
    EVERY_TENANT,
    MAX_KEYS,
    ApiKey,
    digest_of,
    expand_scopes,
    first_key_problem,
    write_key,
)
from noonmark.core.errors import Conflict, InvalidRequest, NotAllowed, NotFound, QuotaExceeded
from noonmark.core.instants import SECOND, to_text
from noonmark.operations.models.fields import write_cursor
from noonmark.operations.serializers import key_document, text

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.operations.models.arguments import KeyQuery, KeyRevocation, KeyRotation, NewKey, NoArguments
    from noonmark.operations.service import Caller, Service

MAX_TRIES = 5
"""How often another id is drawn because a key has it."""


def create_key(service: Service, caller: Caller, arguments: NewKey) -> dict[str, Any]:
    """Create an API key. The answer contains the key; it is not shown again.

    The first key is created on the store itself, for the tenant `*` and with the scope admin; from then on every call
    needs a key.
    """
    tenant, user = arguments.tenant or caller.owner.tenant, arguments.user or DEFAULT_USER
    if not service.store.has_api_keys():
        _check_first(caller, arguments, tenant)
    elif tenant != caller.owner.tenant and not caller.is_root:
        raise NotAllowed(
            "must be the tenant of your key; only a key of tenant * creates keys for others", field="tenant"
        )
    now = service.store.clock()
    terms = ApiKey(
        key_id="",
        digest="",
        tenant=tenant,
        user=user,
        scopes=frozenset(arguments.scopes),
        name=arguments.name,
        is_agent=arguments.agent,
        created=now,
        expires=_expiry(arguments.expires_at_utc, arguments.expires_in_seconds, now),
    )
    for _ in range(MAX_TRIES):
        key, secret = _draw_secret(terms)
        note = caller.audit(f"key {key.key_id}")(None, None, now=now)
        if service.store.keep_api_key(key, most=MAX_KEYS, note=note):
            return {"key": secret, **key_document(key, now=now)}
        if service.store.find_api_key(key.key_id) is None:
            raise QuotaExceeded(f"the tenant has {MAX_KEYS:,} keys; revoke one that is no longer used")
    raise Conflict("no free id was found for the key; try again")


def _check_first(caller: Caller, arguments: NewKey, tenant: str) -> None:
    if not caller.opens_store:
        raise NotAllowed(
            "the first key is created on the store itself, by anyone who can open it: noonmark key create --store URL"
            " --tenant '*' --scopes admin"
        )
    if (problem := first_key_problem(tenant, arguments.scopes)) is not None:
        raise InvalidRequest(problem, field="tenant" if tenant != EVERY_TENANT else "scopes")


def _expiry(at: Micros | None, seconds: float | None, now: Micros) -> Micros | None:
    if at is not None and seconds is not None:
        raise InvalidRequest("cannot be combined with expires_at_utc", field="expires_in_seconds")
    if at is not None and at <= now:
        raise InvalidRequest(f"must be later than now, {to_text(now)}", field="expires_at_utc")
    return at if seconds is None else now + int(seconds * SECOND)


def _draw_secret(terms: ApiKey) -> tuple[ApiKey, str]:
    """A new key on the same terms, and the key itself."""
    key_id, secret = write_key(token_bytes(DRAWN_BYTES))
    return replace(terms, key_id=key_id, digest=digest_of(secret)), secret


def list_keys(service: Service, caller: Caller, arguments: KeyQuery) -> dict[str, Any]:
    """List API keys, oldest first, without the keys themselves. A key of tenant `*` lists those of all tenants."""
    tenant = arguments.tenant
    if not caller.is_root:
        if tenant not in (None, caller.owner.tenant):
            return {"keys": [], "next_cursor": None}
        tenant = caller.owner.tenant
    now = service.store.clock()
    keys = service.store.api_keys(tenant, arguments.limit + 1, after=arguments.cursor)
    page = keys[: arguments.limit]
    following = write_cursor(page[-1].created, page[-1].key_id) if len(keys) > arguments.limit else None
    return {"keys": [key_document(key, now=now) for key in page], "next_cursor": following}


def revoke_key(service: Service, caller: Caller, arguments: KeyRevocation) -> dict[str, Any]:
    """Revoke an API key. Every node refuses it within seconds; revoking it again changes nothing."""
    key, now = _find(service, caller, arguments.key_id), service.store.clock()
    if key.revoked is None or key.revoked > now:
        note = caller.audit(_reason(key, arguments.reason))(None, None, now=now)
        key = service.store.revoke_api_key(key.key_id, at=now, note=note) or key
    _forget(service, key)
    return key_document(key, now=now)


def rotate_key(service: Service, caller: Caller, arguments: KeyRotation) -> dict[str, Any]:
    """Replace an API key by a new one on the same terms. The answer contains the new key; it is not shown again.

    The old key is refused at once, or after `grace_seconds`.
    """
    key, now = _find(service, caller, arguments.key_id), service.store.clock()
    if arguments.expires_at_utc is None and arguments.expires_in_seconds is None:
        expires = None if key.expires is None else now + (key.expires - key.created)
    else:
        expires = _expiry(arguments.expires_at_utc, arguments.expires_in_seconds, now)
    terms = replace(key, created=now, expires=expires, revoked=None, used=None)
    ends = now + int(arguments.grace_seconds * SECOND)
    for _ in range(MAX_TRIES):
        if key.revoked is not None:
            raise Conflict(f"the key is revoked since {to_text(key.revoked)}; create another one", field="key_id")
        successor, secret = _draw_secret(terms)
        note = caller.audit(f"{_reason(key, arguments.reason)}, replaced by {successor.key_id}")(None, None, now=now)
        if service.store.revoke_api_key(key.key_id, at=ends, successor=successor, note=note) is not None:
            _forget(service, key)
            return {"key": secret, **key_document(successor, now=now)}
        key = _find(service, caller, arguments.key_id)
    raise Conflict("no free id was found for the key; try again")


def who_am_i(service: Service, caller: Caller, arguments: NoArguments) -> dict[str, Any]:  # noqa: ARG001 - a handler
    """Get who the caller is: the tenant and the user that it acts for, and the scopes of its key."""
    return {
        "tenant": caller.owner.tenant,
        "user": caller.owner.user,
        "scopes": sorted(expand_scopes(caller.scopes)),
        "all_tenants": caller.is_root,
        "key_id": caller.key_id,
        "agent": caller.is_agent,
        "expires_at_utc": text(caller.expires),
    }


def _find(service: Service, caller: Caller, key_id: str) -> ApiKey:
    """A key that the caller rules; another tenant's is as unknown as one that does not exist."""
    key = service.store.find_api_key(key_id)
    if key is None or (key.tenant != caller.owner.tenant and not caller.is_root):
        raise NotFound(f"there is no key {key_id!r}", field="key_id")
    return key


def _forget(service: Service, key: ApiKey) -> None:
    if service.key_cache is not None:
        service.key_cache.forget(key.key_id)


def _reason(key: ApiKey, reason: str | None) -> str:
    return f"key {key.key_id}" if reason is None else f"key {key.key_id}: {reason}"
