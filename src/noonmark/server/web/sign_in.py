"""Sign in to the page with a key, and out again.

The browser gets a cookie with a random token that no script can read. The store has its digest, so that every server of
the store knows it, and one that is restarted still does. The key itself is stored nowhere.
"""

from __future__ import annotations

import math
from dataclasses import replace
from secrets import token_bytes  # noqa: TID251 - a session must not be computable
from typing import TYPE_CHECKING

from anyio import CapacityLimiter, to_thread
from starlette.responses import Response

from noonmark.core.api_key import digest_of
from noonmark.core.errors import InvalidRequest
from noonmark.core.instants import SECOND
from noonmark.core.page_session import IDLE, LONGEST, MAX_PER_KEY, TOKEN_BYTES, PageSession, write_token
from noonmark.operations.errors import hidden_cause
from noonmark.operations.table import perform
from noonmark.ports.changes import Change, Topic
from noonmark.server.authentication import COOKIE, check_page, page_token
from noonmark.server.problems import request_id_of
from noonmark.server.requests import ParameterType, read_body
from noonmark.server.strict_json import write_json
from noonmark.server.uploads import StreamHandler

if TYPE_CHECKING:
    from starlette.requests import Request

    from noonmark.operations.service import Caller, Service
    from noonmark.server.authentication import Authenticator
    from noonmark.server.requests import ApiRequest, HttpSettings

PATH = "/ui/session"
PARAMETERS = {"everywhere": ParameterType.BOOLEAN}
MAX_KEY = 200
_UNLIMITED = CapacityLimiter(math.inf)
_SIGNED_OUT = Change(topics=frozenset({Topic.KEYS}), tenant=None)
"""Streams of those who have signed out end at once."""
_NO_STORE = {"Cache-Control": "no-store"}


class SignIn:
    """Serves the session of a browser."""

    def __init__(self, authenticator: Authenticator) -> None:
        """The authenticator checks keys, and slows down those who guess them."""
        self._authenticator = authenticator

    def handlers(self) -> dict[tuple[str, str], StreamHandler]:
        """The routes. They check the key or the cookie themselves."""
        return {
            ("POST", PATH): StreamHandler(self._sign_in, "page/sign_in", None),
            ("DELETE", PATH): StreamHandler(self._sign_out, "page/sign_out", None),
        }

    async def _sign_in(self, request: Request, api_request: ApiRequest, settings: HttpSettings) -> Response:
        api_request.query({})
        given = replace(api_request, body=await read_body(request, settings))
        key = _key_in(given)
        with hidden_cause(request_id_of(request)):
            caller = await self._authenticator.sign_in(request, key)
            if caller.key_id is None:
                raise InvalidRequest("this server has no keys, so that nobody needs to sign in", field="key")
            caller = replace(caller, request_id=request_id_of(request))
            token = write_token(token_bytes(TOKEN_BYTES))
            former = page_token(request)
            document = await to_thread.run_sync(
                _begin,
                api_request.service,
                caller,
                token,
                None if former is None else former.digest,
                limiter=_UNLIMITED,
            )
        response = Response(write_json(document), 200, _NO_STORE, media_type="application/json")
        _set_cookie(response, request, settings, token)
        return response

    async def _sign_out(self, request: Request, api_request: ApiRequest, settings: HttpSettings) -> Response:
        everywhere = api_request.query(PARAMETERS).get("everywhere", False)
        service, token, key_id = api_request.service, page_token(request), None
        with hidden_cause(request_id_of(request)):
            if "authorization" in request.headers:
                token, key_id = None, (await self._authenticator.authenticate(request)).key_id
            elif token is not None:
                check_page(request)
            await to_thread.run_sync(
                _end, service, None if token is None else token.digest, key_id, everywhere, limiter=_UNLIMITED
            )
        response = Response(status_code=204, headers=_NO_STORE)
        _set_cookie(response, request, settings, None)
        return response


def _key_in(api_request: ApiRequest) -> str:
    """The key in the body; errors quote nothing of it."""
    document = api_request.document(repeats=False)
    key = document.get("key")
    if set(document) != {"key"} or not isinstance(key, str) or not 0 < len(key) <= MAX_KEY:
        raise InvalidRequest("the body must be an object with a key alone", field="key")
    return key.strip()


def _begin(service: Service, caller: Caller, token: str, former: str | None) -> dict[str, object]:
    """Store a new session, in place of a former one; returns who has signed in."""
    store, now = service.store, service.store.clock()
    assert caller.key_id is not None  # noqa: S101 - the caller of this has checked it
    session = PageSession(digest=digest_of(token), key_id=caller.key_id, created=now, used=now)
    store.add_page_session(session, most=MAX_PER_KEY, used_since=now - IDLE, created_since=now - LONGEST)
    if former is not None:
        store.delete_page_session(former)
    noted = replace(caller, operation="page/sign_in").audit()(None, None, now=now)
    store.add_audit_entries(caller.owner.tenant, [noted])
    return perform(service, caller, "whoami", {})


def _end(service: Service, digest: str | None, key_id: str | None, everywhere: bool) -> None:  # noqa: FBT001 - by anyio
    """Delete a session, or all sessions of its key."""
    store = service.store
    session = None if digest is None else store.find_page_session(digest)
    if session is not None:
        store.delete_page_session(session.digest)
        key_id = session.key_id
    if everywhere and key_id is not None:
        store.delete_page_sessions(key_id)
    service.changed(_SIGNED_OUT)


def _set_cookie(response: Response, request: Request, settings: HttpSettings, token: str | None) -> None:
    """Give a browser its session, or take it away."""
    is_https = request.scope["scheme"] == "https" or (settings.public_url or "").startswith("https:")
    response.set_cookie(
        COOKIE,
        token or "",
        max_age=0 if token is None else LONGEST // SECOND,
        path="/",
        secure=is_https,
        httponly=True,
        samesite="strict",
    )
