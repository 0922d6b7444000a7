"""The delivery of a request: send it, and derive the outcome of the occurrence from the response."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httpcore2

from noonmark.core.budgets.reported import masked, read_reports
from noonmark.core.errors import NoonmarkError
from noonmark.core.instants import SECOND, micros_to_seconds
from noonmark.core.json_values import shown
from noonmark.core.policies.delivery import Delivery
from noonmark.core.redaction import Redactor
from noonmark.core.run import Outcome
from noonmark.core.schedule import TRUSTED
from noonmark.core.settlement import Accepted, Delivered
from noonmark.core.signatures import given_key
from noonmark.core.targets.http import TIMEOUT, HttpTarget
from noonmark.targets.http.errors import EgressDenied, describe_error
from noonmark.targets.http.network import Resolver, request_owner, system_lookup
from noonmark.targets.http.pool import ConnectionPool
from noonmark.targets.http.request import SigningKeys, make_request, signing_keys, with_headers
from noonmark.targets.http.response import retry_after, status_text
from noonmark.targets.log_filter import silence_this_thread
from noonmark.targets.outcomes import cut_off, undeliverable
from noonmark.targets.usage import usage_reports

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.core.urls import Url
    from noonmark.ports.target import Assignment
    from noonmark.targets.http.request import Request
    from noonmark.targets.http.response import Response
    from noonmark.targets.http.settings import HttpTargetSettings
    from noonmark.targets.secrets import SecretResolver

ACCEPTED_VALUES = ("accepted", "true", "1", "yes")
"""Values of the callback header by which a receiver accepts the work; it may also repeat the callback URL."""
USAGE_HEADER = "noonmark-usage"
"""The header of a response that says what the work has used: a JSON object, or an array of them."""
SECRET_THREADS = 4
"""Threads that read secrets and keys from the store."""
MAX_KEYS = 1_000
"""Tenants whose keys are remembered: deriving them takes as long as signing a request."""
REDACTION_THREADS = 2
"""Threads that search responses for secrets."""
MAX_INLINE_REDACTION = 4_096
"""Bytes of a response, to a request without secrets, that are searched for a token on the loop itself."""
BROKEN_CONNECTION = (httpcore2.NetworkError, httpcore2.ProtocolError)
GATEWAY_STATUSES = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT})
"""What a proxy answers when it lost contact after it passed a request on: the work may have been done behind it."""


class HttpDelivery:
    """Sends requests on behalf of one node. Create it in the thread that sends them.

    Requests of trusted schedules use a separate pool, so that no other request can reuse their connections.
    """

    def __init__(self, settings: HttpTargetSettings, secrets: SecretResolver | None, now: Callable[[], Micros]) -> None:
        silence_this_thread()
        self._settings, self._secrets, self._now = settings, secrets, now
        tls, resolver = httpcore2.default_ssl_context(), Resolver(settings.resolve or system_lookup)
        self._guarded_pool = ConnectionPool(settings.egress, tls, resolver)
        self._trusted_pool = ConnectionPool(None, tls, resolver)
        self._secret_threads = ThreadPoolExecutor(SECRET_THREADS, "noonmark-secrets")
        self._redaction_threads = ThreadPoolExecutor(REDACTION_THREADS, "noonmark-redaction")
        self._own_key: bytes | None = None
        self._keys: dict[str, SigningKeys] = {}

    async def deliver(self, assignment: Assignment) -> Delivered | Accepted:
        """Send the request of an occurrence, and return the outcome, with all secrets masked."""
        target, schedule = assignment.schedule.declaration.target, assignment.schedule
        if not isinstance(target, HttpTarget):
            return undeliverable(f"a {target.kind} target is not a request", now=self._now())
        try:
            keys = await self._signing_keys(schedule.owner.tenant)
            request = make_request(target, schedule, assignment.occurrence, self._settings, keys, now=self._now())
            secrets = await self._secret_headers(target, schedule.owner.tenant, request.url)
        except ValueError as error:
            return replace(undeliverable(str(error), now=self._now()), is_final=True)
        except NoonmarkError as error:
            return undeliverable(f"its keys and secrets could not be read: {error}", now=self._now())
        headers = {**secrets, "traceparent": assignment.traceparent}
        return await self._send(target, assignment, with_headers(request, headers), tuple(secrets.values()))

    async def close(self) -> None:
        """Close all connections."""
        self._secret_threads.shutdown(wait=False, cancel_futures=True)
        self._redaction_threads.shutdown(wait=False, cancel_futures=True)
        await self._guarded_pool.close()
        await self._trusted_pool.close()

    async def _signing_keys(self, tenant: str) -> SigningKeys | None:
        """Return the keys of a tenant's requests. The store's key is read with the first request that needs it.

        A request that needs only configured keys is sent even if the store's key is damaged.
        """
        if self._secrets is None:
            return None
        if (cached := self._keys.get(tenant)) is not None:
            return cached
        if self._own_key is None:
            read_key = self._secrets.own_key
            try:
                self._own_key = await asyncio.get_running_loop().run_in_executor(self._secret_threads, read_key)
            except NoonmarkError:
                given = given_key(self._settings.keys, tenant)
                if given is None or self._settings.public_url is not None:
                    raise
                return SigningKeys(given, None, None)
        if len(self._keys) >= MAX_KEYS:
            self._keys.clear()
        keys = self._keys[tenant] = signing_keys(self._settings.keys, self._own_key, tenant)
        return keys

    async def _secret_headers(self, target: HttpTarget, tenant: str, url: Url) -> dict[str, str]:
        """Return the secret headers, read from the store in a thread."""
        if not target.secret_headers:
            return {}
        if self._secrets is None:
            raise ValueError("nothing was sent: this node has no store to read its secrets from")
        read = partial(self._secrets.headers, tenant, target.secret_headers, url)
        return await asyncio.get_running_loop().run_in_executor(self._secret_threads, read)

    async def _send(
        self, target: HttpTarget, assignment: Assignment, request: Request, secrets: tuple[str, ...]
    ) -> Delivered | Accepted:
        request_owner.set(assignment.schedule.owner)
        started = self._now() if assignment.started is None else assignment.started
        ends, is_own = _deadline(target, assignment, started)
        seconds = max(0, ends - self._now()) / SECOND
        may_repeat = assignment.schedule.declaration.delivery is Delivery.AT_LEAST_ONCE
        try:
            async with asyncio.timeout(seconds):
                response = await self._pool(assignment.schedule).send(request, may_repeat=may_repeat)
                is_accepted = _is_accepted(request, response)
                document = {} if is_accepted else await self._redact(response, secrets, request.confidential)
        except (TimeoutError, httpcore2.TimeoutException):
            if not is_own:
                return cut_off(assignment, now=max(ends, self._now()))
            why = f"no complete response from {request.url.origin} within {micros_to_seconds(ends - started):g} s"
            return Delivered(outcome=Outcome.TIMED_OUT, started=started, ended=self._now(), error=why)
        except EgressDenied as error:
            return replace(undeliverable(str(error), now=self._now()), is_final=True)
        except BROKEN_CONNECTION as error:
            return self._connection_failed(assignment, request, error)
        if is_accepted:
            accepted, limit = self._now(), target.completion_timeout
            return Accepted(started=started, accepted=accepted, deadline=None if limit is None else accepted + limit)
        if (text := response.headers.get(USAGE_HEADER)) is not None:
            document |= _note_usage(assignment, text, Redactor([*secrets, *request.confidential]))
        return self._completed(target, assignment, response, document)

    async def _redact(self, response: Response, secrets: tuple[str, ...], confidential: list[str]) -> dict[str, Any]:
        """Return the stored form of a response. The search for secrets is slow, so it mostly runs in a thread."""
        if not secrets and (not confidential or len(response.body) <= MAX_INLINE_REDACTION):
            return _document(response, secrets, confidential)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._redaction_threads, _document, response, secrets, confidential)

    def _pool(self, schedule: Schedule) -> ConnectionPool:
        return self._trusted_pool if schedule.source == TRUSTED else self._guarded_pool

    def _connection_failed(self, assignment: Assignment, request: Request, error: Exception) -> Delivered:
        """Before the connection was open nothing was sent; afterwards it is unknown what the receiver did."""
        was_not_sent = isinstance(error, httpcore2.ConnectError)
        what = "no connection to" if was_not_sent else "connection lost to"
        delivered = self._failed(assignment, f"{what} {request.url.origin}: {describe_error(error)}")
        return replace(delivered, is_unknown=not was_not_sent)

    def _completed(
        self, target: HttpTarget, assignment: Assignment, response: Response, document: dict[str, Any]
    ) -> Delivered:
        now = self._now()
        started = now if assignment.started is None else assignment.started
        if target.expects(response.status):
            assignment.result = document
            return Delivered(outcome=Outcome.COMPLETED, started=started, ended=now, result=document)
        why = f"the server answered {status_text(response.status)}"
        if location := document.get("headers", {}).get("location"):
            why += f", which leads to {shown(location)}; redirects are not followed"
        return replace(
            self._failed(assignment, why),
            result=document,
            is_final=not target.retries(response.status),
            is_unknown=response.status in GATEWAY_STATUSES,
            retry_after=retry_after(response.headers.get("retry-after", ""), now=now),
        )

    def _failed(self, assignment: Assignment, why: str) -> Delivered:
        now = self._now()
        started = now if assignment.started is None else assignment.started
        return Delivered(outcome=Outcome.FAILED, started=started, ended=now, error=why)


def _note_usage(assignment: Assignment, text: str, redactor: Redactor) -> dict[str, str]:
    """Take what the receiver says it has used; or say in the result why that was not possible."""
    try:
        reports = read_reports(json.loads(text))
    except (ValueError, RecursionError) as error:
        is_json = not isinstance(error, json.JSONDecodeError | RecursionError)
        why = redactor.text(str(error)) if is_json else "it is not JSON"
        return {"usage_note": f"its usage was not recorded: {why}"}
    usage_reports(assignment).add(*(masked(usage, redactor.text) for usage in reports))
    return {}


def _document(response: Response, secrets: tuple[str, ...], confidential: list[str]) -> dict[str, Any]:
    """Return the stored form of a response: without secrets of the request, and without its callback token."""
    return response.to_document(Redactor([*secrets, *confidential]), only_json=bool(secrets))


def _deadline(target: HttpTarget, assignment: Assignment, started: Micros) -> tuple[Micros, bool]:
    """Return when the delivery must be over, and whether the target sets that limit, not the schedule."""
    ends, declared = assignment.ends_by(started), assignment.schedule.declaration.timeout
    own = TIMEOUT if target.timeout is None and declared is None else target.timeout
    limits = [] if ends is None else [(ends, False)]
    return min(limits if own is None else [*limits, (started + own, True)])


def _is_accepted(request: Request, response: Response) -> bool:
    """Whether the receiver will report the end of the work later."""
    if request.callback is None or response.status != HTTPStatus.ACCEPTED:
        return False
    value = response.headers.get("noonmark-callback", "").strip().lower()
    return value in (*ACCEPTED_VALUES, request.callback.lower())
