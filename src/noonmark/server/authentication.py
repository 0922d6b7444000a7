"""Authentication: who makes a request, by the key or the token in its Authorization header, or by a cookie of the page.

Without any key in the store, and without keys for tokens, every caller is the local administrator: then the server
listens on loopback only. From the first key on, every call needs one; health checks and pings do not, and a receiver
ends the work that it has accepted with the token of that delivery.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

from anyio import CapacityLimiter, to_thread

from noonmark.core.api_key import (
    EVERY_TENANT,
    ApiKey,
    KeyStatus,
    Scope,
    digest_of,
    expand_scopes,
    key_id_of,
    tenant_name,
    verify_key,
)
from noonmark.core.errors import InvalidRequest, NotAllowed, StoreUnavailable, Unauthenticated
from noonmark.core.page_session import LONGEST, is_token
from noonmark.core.schedule import Owner
from noonmark.core.signatures import check_token, token_keys
from noonmark.operations.service import LOCAL, Caller
from noonmark.server.problems import HttpError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from noonmark.core.instants import Micros
    from noonmark.operations.key_cache import KeyCache
    from noonmark.operations.service import Service
    from noonmark.server.rate_limits import RateLimits

    LookUpKey = tuple[asyncio.AbstractEventLoop, "str | PageToken | None", int]

SOURCE = "rest"
COOKIE = "noonmark_session"
PAGE_HEADER = "noonmark-page"
"""The page sends it with every change. A page of another site cannot, without a preflight that is refused."""
SAFE_METHODS = frozenset({"GET", "HEAD"})
TENANT_HEADER = "noonmark-tenant"
"""Names the tenant that a key of tenant `*` acts for."""
MAX_CREDENTIAL = 16_384
_BEARER = re.compile(r"bearer +([!-~]+) *", re.IGNORECASE | re.ASCII)
_CALLBACK = re.compile(r"/occurrences/([A-Za-z0-9._:-]{1,128})/(?:complete|fail)", re.ASCII)
_UNLIMITED = CapacityLimiter(math.inf)
UNAUTHORIZED = 401
_REALM = 'Bearer realm="noonmark"'


class Tokens(Protocol):
    """Verifies signed tokens of another issuer."""

    def caller(self, token: str, *, now: Micros) -> Caller:
        """The caller that a token names; Unauthenticated if it is invalid."""


class Authenticator:
    """Finds the caller of each request."""

    def __init__(
        self,
        service: Service,
        keys: KeyCache,
        *,
        sees_own_only: bool = False,
        tokens: Tokens | None = None,
        rates: RateLimits | None = None,
        has_page: bool = True,
    ) -> None:
        """With `sees_own_only`, a user who is not an administrator sees the own schedules, not all of the tenant.

        Without a page, no cookie counts.
        """
        self._service, self._keys, self._tokens = service, keys, tokens
        self._sees_own_only, self._rates, self._has_page = sees_own_only, rates, has_page
        self._look_ups: dict[LookUpKey, asyncio.Future[Caller]] = {}
        """Those in progress."""

    async def authenticate(self, request: Request) -> Caller:
        """The caller of a request; 401 if the request has no valid key."""
        rates = self._rates
        if rates is not None:
            await rates.check_address(request)
        caller = await self._find_caller(request, self._credential(request))
        if rates is not None:
            await rates.check_key(request, caller)
        if self._keys.is_write_due:
            await to_thread.run_sync(self._keys.write, limiter=_UNLIMITED)
        return self._for_tenant(caller, request.headers.getlist(TENANT_HEADER))

    async def sign_in(self, request: Request, key: str) -> Caller:
        """The caller that a key stands for, which somebody has typed; 401 if it is not valid."""
        if self._rates is not None:
            await self._rates.check_address(request)
        self._keys.ask_again()  # who types a key may have made the first one a moment ago
        # A token would outlive what its issuer says; and what is no key must not be tried as one.
        return await self._find_caller(request, key if key_id_of(key) is not None else "")

    def _credential(self, request: Request) -> str | PageToken | None:
        """What the request shows: its Authorization header, or else the cookie of the page."""
        given = _credential(request)
        if given is None and self._has_page and (token := page_token(request)) is not None:
            check_page(request)
            return token
        return given

    async def _find_caller(self, request: Request, credential: str | PageToken | None) -> Caller:
        """Find the caller; an address that sends many invalid keys is slowed down, but not its valid keys.

        A cookie that has ended is no attempt to guess one.
        """
        rates = None if isinstance(credential, PageToken) else self._rates
        try:
            caller = self._find_cached(credential)
            if caller is None:
                if rates is not None and credential is not None:
                    rates.check_failures(request)
                caller = await self._look_up(credential)
        except HttpError as error:
            if rates is not None and credential is not None and error.status == UNAUTHORIZED:
                await rates.count_failure(request)
            raise
        return caller

    async def _look_up(self, credential: str | PageToken | None) -> Caller:
        """Find the caller in a thread. Requests with the same credential that come meanwhile share the look-up.

        Otherwise all requests in progress would need a thread each at the moment at which an answer is too old.
        """
        key = (asyncio.get_running_loop(), credential, self._keys.changes)
        look_up = self._look_ups.get(key)
        if look_up is None:
            find = to_thread.run_sync(self._find, credential, limiter=_UNLIMITED)
            look_up = self._look_ups[key] = asyncio.ensure_future(find)
            look_up.add_done_callback(lambda _: self._look_ups.pop(key))
        return await asyncio.shield(look_up)  # the others wait for it too

    def revalidator(self, request: Request) -> Callable[[], bool]:
        """What says whether the key of a request is still good. While the store does not answer, it is."""
        credential = self._credential(request)

        def is_allowed() -> bool:
            try:
                self._find(credential)
            except HttpError:
                return False
            except StoreUnavailable:
                return True
            return True

        return is_allowed

    def exceeded(self, request: Request, caller: Caller) -> str | None:
        """Count another call of a request; which rate limit refuses it, or None. It may wait for the store."""
        return None if self._rates is None else self._rates.exceeded(request, caller)

    async def is_callback(self, request: Request) -> bool:
        """Whether a request without a key may be the report of a receiver; its address is then checked."""
        if (
            request.method != "POST"
            or "authorization" in request.headers
            or (self._has_page and page_token(request) is not None)
            or _CALLBACK.fullmatch(request.scope["path"]) is None
        ):
            return False
        if self._rates is not None:
            await self._rates.check_address(request)
        return True

    async def authenticate_receiver(self, request: Request, body: bytes) -> Caller:
        """The receiver that reports the end of its work; 401 unless it has the token of the delivery."""
        return await to_thread.run_sync(self._find_receiver, request.scope["path"], body, limiter=_UNLIMITED)

    def _find_cached(self, credential: str | PageToken | None) -> Caller | None:
        """The caller, if that needs no store."""
        if not self._keys.is_known():
            return None
        if self._is_open():
            return LOCAL
        if not isinstance(credential, str):
            return None
        key_id = key_id_of(credential)
        key = None if key_id is None else self._keys.cached(key_id)
        return None if key is None else self._check_key(credential, key)

    def _find(self, credential: str | PageToken | None) -> Caller:
        if self._is_open():
            return LOCAL
        if isinstance(credential, PageToken):
            return self._find_signed_in(credential)
        if credential is None:
            raise unauthenticated("this server needs a key: send it as `Authorization: Bearer KEY`")
        key_id = key_id_of(credential)
        if key_id is not None:
            return self._check_key(credential, self._keys.find(key_id))
        if self._tokens is None or credential.count(".") != 2:
            _refuse()
        try:
            return self._limit_visibility(self._tokens.caller(credential, now=self._keys.now()))
        except Unauthenticated as error:
            raise unauthenticated(error.message, is_given=True) from None

    def _find_signed_in(self, token: PageToken) -> Caller:
        store, now = self._service.store, self._keys.now()
        session = store.find_page_session(token.digest)
        if session is None or now >= session.expires:
            raise unauthenticated("you are no longer signed in")
        caller = self._caller_of(self._keys.find(session.key_id))
        if session.is_use_due(now):
            store.use_page_session(session.digest, now)
        return replace(caller, expires=_earlier(caller.expires, session.created + LONGEST))

    def _is_open(self) -> bool:
        return self._tokens is None and not self._keys.has_keys()

    def _check_key(self, credential: str, key: ApiKey | None) -> Caller:
        if not verify_key(credential, key):
            _refuse()
        return self._caller_of(key)

    def _caller_of(self, key: ApiKey | None) -> Caller:
        """The caller of a key, if the key is good."""
        if key is None:
            _refuse()
        now = self._keys.now()
        if (status := key.status(now)) is not KeyStatus.ACTIVE:
            raise unauthenticated(f"the key is {status}", is_given=True)
        self._keys.use(key.key_id, now)
        return self._limit_visibility(caller_of(key))

    def _limit_visibility(self, caller: Caller) -> Caller:
        """The caller as far as the setting for visibility lets it see."""
        if self._sees_own_only and not caller.is_admin and not caller.is_root:
            return replace(caller, sees_own_only=True)
        return caller

    def _for_tenant(self, caller: Caller, named: list[str]) -> Caller:
        """The caller on behalf of the tenant that the request names, if it may act for that."""
        if not named:
            return caller
        try:
            tenant = tenant_name(named[0] if len(named) == 1 else None)
        except ValueError as error:
            raise InvalidRequest(str(error), field="Noonmark-Tenant") from None
        if tenant != caller.owner.tenant and not caller.is_root:
            raise NotAllowed(
                "must be the tenant of your key; only one of tenant * acts for others", field="Noonmark-Tenant"
            )
        return replace(caller, owner=replace(caller.owner, tenant=tenant))

    def _find_receiver(self, path: str, body: bytes) -> Caller:
        if self._is_open():
            return LOCAL
        token, match = _token_in(body), _CALLBACK.fullmatch(path)
        store = self._service.store
        occurrence = None if match is None or token is None else store.occurrence(match[1])
        snapshot = None if occurrence is None else store.snapshot(occurrence.uid)
        if token is not None and occurrence is not None and snapshot is not None:
            keys = token_keys(self._service.keys, store.own_key())
            try:
                check_token(token, keys, occurrence_id=occurrence.id, fence=occurrence.fence)
            except NotAllowed:
                pass
            else:
                owner = snapshot.schedule.owner
                return Caller(owner=owner, name="receiver", source=SOURCE, scopes=frozenset({Scope.RUN}), is_root=False)
        raise unauthenticated("this server needs a key, or the token of the delivery")


def caller_of(key: ApiKey) -> Caller:
    """The caller that a key stands for."""
    return Caller(
        owner=Owner(tenant=key.acts_for, user=key.user),
        name=key.user,
        source=SOURCE,
        scopes=expand_scopes(key.scopes),
        is_root=key.tenant == EVERY_TENANT,
        key_id=key.key_id,
        expires=key.expires,
        is_agent=key.is_agent,
    )


def unauthenticated(message: str, *, is_given: bool = False) -> HttpError:
    """The answer to a request without a valid key; it repeats nothing of the request."""
    challenge = f'{_REALM}, error="invalid_token"' if is_given else _REALM
    return HttpError(401, Unauthenticated.code, message, headers={"WWW-Authenticate": challenge})


def _refuse() -> NoReturn:
    raise unauthenticated("the key is not known to this server", is_given=True)


class PageToken(NamedTuple):
    """The cookie of somebody who has signed in to the page."""

    digest: str


def page_token(request: Request) -> PageToken | None:
    """The cookie of the page in a request; None if there is none that could be one."""
    token = request.cookies.get(COOKIE, "")
    return PageToken(digest_of(token)) if is_token(token) else None


def check_page(request: Request) -> None:
    """Refuse a change that the page did not ask for: other sites can make a browser send a cookie, but not this.

    The guard has checked that the origin, if there is one, is this server.
    """
    if request.method in SAFE_METHODS:
        return
    if request.headers.getlist(PAGE_HEADER) != ["1"]:
        raise NotAllowed("a change with the cookie of the page needs the header `Noonmark-Page: 1`")
    if not request.headers.getlist("origin"):
        raise NotAllowed("a change with the cookie of the page needs an Origin header, as browsers send it")


def _earlier(one: Micros | None, other: Micros) -> Micros:
    return other if one is None else min(one, other)


def _credential(request: Request) -> str | None:
    """What the Authorization header gives; None if there is none."""
    given = request.headers.getlist("authorization")
    if not given:
        return None
    match = _BEARER.fullmatch(given[0]) if len(given) == 1 and len(given[0]) <= MAX_CREDENTIAL else None
    return "" if match is None else match[1]


def _token_in(body: bytes) -> str | None:
    """The token in the body of a report; whatever else is wrong with the body is found later."""
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    token = document.get("token") if isinstance(document, dict) else None
    return token if isinstance(token, str) else None
