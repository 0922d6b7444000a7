"""Exchanges: a request and its answer, and what they mean for the occurrence."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httpcore2

from noonmark.core.errors import NoonmarkError
from noonmark.core.instants import SECOND, micros_to_seconds, to_micros
from noonmark.core.json_values import shown
from noonmark.core.policies.delivery import Delivery
from noonmark.core.redaction import Redactor
from noonmark.core.run import Outcome
from noonmark.core.schedule import TRUSTED
from noonmark.core.settlement import Accepted, Delivered
from noonmark.core.signatures import given_key
from noonmark.core.targets.http import TIMEOUT, HttpTarget
from noonmark.targets.calling import Pool
from noonmark.targets.connection_errors import describe_error
from noonmark.targets.endings import cut_off, undeliverable
from noonmark.targets.guard import Refused
from noonmark.targets.hushing import hush
from noonmark.targets.requests import Signing, carrying, make_request, signing_of
from noonmark.targets.resolving import Resolver, asked_by, look_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.core.urls import Url
    from noonmark.ports.target import Assignment
    from noonmark.targets.calling import Answer
    from noonmark.targets.outbound import Outbound
    from noonmark.targets.requests import Request
    from noonmark.targets.unsealing import Unsealer

MAX_DIGITS = 9
TAKEN_OVER = ("accepted", "true", "1", "yes")
"""What the callback header of an answer says when the receiver takes the work over; or it repeats the address."""
UNSEALERS = 4
"""Threads that ask the store for secrets, and once for its key."""
MASKERS = 2
"""Threads that look for secrets in answers."""
AT_ONCE = 4_096
"""Bytes of an answer to a request without secrets in which a token is looked for at once."""
BROKEN = (httpcore2.NetworkError, httpcore2.ProtocolError)
OF_GATEWAYS = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT})
"""What a proxy answers when it has passed a request on, and lost contact: the work may have been done behind it."""


class Exchanges:
    """Sends requests on behalf of one node."""

    def __init__(self, outbound: Outbound, unsealer: Unsealer | None, now: Callable[[], Micros]) -> None:
        """Made in the thread that sends them.

        Connections that may go anywhere are kept apart, so that nobody else's request comes to use one.
        """
        hush()
        self._outbound, self._unsealer, self._now = outbound, unsealer, now
        tls, resolver = httpcore2.default_ssl_context(), Resolver(outbound.resolve or look_up)
        self._guarded, self._free = Pool(outbound.reach, tls, resolver), Pool(None, tls, resolver)
        self._unsealing = ThreadPoolExecutor(UNSEALERS, "noonmark-secrets")
        self._masking = ThreadPoolExecutor(MASKERS, "noonmark-masking")
        self._own_key: bytes | None = None

    async def carry_out(self, assignment: Assignment) -> Delivered | Accepted:
        """Send what an occurrence asks for, and tell what came of it; whatever is secret in that is masked."""
        target, schedule = assignment.schedule.declaration.target, assignment.schedule
        if not isinstance(target, HttpTarget):
            return undeliverable(f"a {target.kind} target is no request", now=self._now())
        try:
            signing = await self._signing(schedule.owner.tenant)
            request = make_request(target, schedule, assignment.occurrence, self._outbound, signing, now=self._now())
            secrets = await self._unsealed(target, schedule.owner.tenant, request.url)
        except ValueError as error:
            return replace(undeliverable(str(error), now=self._now()), is_final=True)
        except NoonmarkError as error:
            return undeliverable(f"its keys and secrets could not be read: {error}", now=self._now())
        return await self._send(target, assignment, carrying(request, secrets), tuple(secrets.values()))

    async def _signing(self, tenant: str) -> Signing | None:
        """What the requests of a tenant are signed with; the store is asked for its key with the first that needs it.

        One that the settings alone are enough for is sent also where that key is damaged.
        """
        if self._unsealer is None:
            return None
        if self._own_key is None:
            asked = self._unsealer.own_key
            try:
                self._own_key = await asyncio.get_running_loop().run_in_executor(self._unsealing, asked)
            except NoonmarkError:
                given = given_key(self._outbound.keys, tenant)
                if given is None or self._outbound.public_url is not None:
                    raise
                return Signing(given, None, None)
        return signing_of(self._outbound.keys, self._own_key, tenant)

    async def _unsealed(self, target: HttpTarget, tenant: str, url: Url) -> dict[str, str]:
        """The headers that are secret; the store is asked in threads for that alone, where it may block."""
        if not target.secret_headers:
            return {}
        if self._unsealer is None:
            raise ValueError("nothing was sent: this node has no store to read its secrets from")
        asked = partial(self._unsealer.headers, tenant, target.secret_headers, url)
        return await asyncio.get_running_loop().run_in_executor(self._unsealing, asked)

    async def _send(
        self, target: HttpTarget, assignment: Assignment, request: Request, secrets: tuple[str, ...]
    ) -> Delivered | Accepted:
        asked_by.set(assignment.schedule.owner)
        started = self._now() if assignment.started is None else assignment.started
        ends, is_own = _ends_by(target, assignment, started)
        seconds = max(0, ends - self._now()) / SECOND
        may_repeat = assignment.schedule.declaration.delivery is Delivery.AT_LEAST_ONCE
        try:
            async with asyncio.timeout(seconds):
                answer = await self._pool(assignment.schedule).call(request, may_repeat=may_repeat)
                is_taken = _takes_over(request, answer)
                kept = {} if is_taken else await self._kept(answer, secrets, request.told_in_confidence)
        except (TimeoutError, httpcore2.TimeoutException):
            if not is_own:
                return cut_off(assignment, now=max(ends, self._now()))
            why = f"{request.url.origin} had not answered in full after {micros_to_seconds(ends - started):g} s"
            return Delivered(outcome=Outcome.TIMED_OUT, started=started, ended=self._now(), error=why)
        except Refused as error:
            return replace(undeliverable(str(error), now=self._now()), is_final=True)
        except BROKEN as error:
            return self._broken(assignment, request, error)
        if is_taken:
            accepted, limit = self._now(), target.completion_timeout
            return Accepted(started=started, accepted=accepted, deadline=None if limit is None else accepted + limit)
        return self._answered(target, assignment, answer, kept)

    async def _kept(self, answer: Answer, secrets: tuple[str, ...], told: list[str]) -> dict[str, Any]:
        """What is kept of an answer. To look for secrets takes its time, and others are waiting on this loop."""
        if not secrets and (not told or len(answer.body) <= AT_ONCE):
            return _document(answer, secrets, told)
        return await asyncio.get_running_loop().run_in_executor(self._masking, _document, answer, secrets, told)

    async def close(self) -> None:
        """Hang up."""
        self._unsealing.shutdown(wait=False, cancel_futures=True)
        self._masking.shutdown(wait=False, cancel_futures=True)
        await self._guarded.close()
        await self._free.close()

    def _pool(self, schedule: Schedule) -> Pool:
        return self._free if schedule.source == TRUSTED else self._guarded

    def _broken(self, assignment: Assignment, request: Request, error: Exception) -> Delivered:
        """The connection failed: before it stood nothing was sent, afterwards nobody knows what was done."""
        is_known = isinstance(error, httpcore2.ConnectError)
        what = "no connection to" if is_known else "the connection broke to"
        failed = self._failed(assignment, f"{what} {request.url.origin}: {describe_error(error)}")
        return replace(failed, is_unknown=not is_known)

    def _answered(self, target: HttpTarget, assignment: Assignment, answer: Answer, kept: dict[str, Any]) -> Delivered:
        now = self._now()
        started = now if assignment.started is None else assignment.started
        if target.expects(answer.status):
            assignment.result = kept
            return Delivered(outcome=Outcome.COMPLETED, started=started, ended=now, result=kept)
        why = f"the server answered {_status(answer.status)}"
        if location := kept.get("headers", {}).get("location"):
            why += f", which leads to {shown(location)}; redirects are not followed"
        return replace(
            self._failed(assignment, why),
            result=kept,
            is_final=not target.retries(answer.status),
            is_unknown=answer.status in OF_GATEWAYS,
            retry_after=_retry_after(answer.headers.get("retry-after", ""), now=now),
        )

    def _failed(self, assignment: Assignment, why: str) -> Delivered:
        now = self._now()
        started = now if assignment.started is None else assignment.started
        return Delivered(outcome=Outcome.FAILED, started=started, ended=now, error=why)


def _document(answer: Answer, secrets: tuple[str, ...], told: list[str]) -> dict[str, Any]:
    """What is kept of an answer: without secrets of the request, and without the token that it told its receiver."""
    return answer.to_document(Redactor([*secrets, *told]), only_json=bool(secrets))


def _ends_by(target: HttpTarget, assignment: Assignment, started: Micros) -> tuple[Micros, bool]:
    """When the whole exchange must be over, and whether it is the target that says so, not the schedule."""
    ends, declared = assignment.ends_by(started), assignment.schedule.declaration.timeout
    own = TIMEOUT if target.timeout is None and declared is None else target.timeout
    limits = [] if ends is None else [(ends, False)]
    return min(limits if own is None else [*limits, (started + own, True)])


def _takes_over(request: Request, answer: Answer) -> bool:
    """Whether the receiver will tell later how the work has ended."""
    if request.callback is None or answer.status != HTTPStatus.ACCEPTED:
        return False
    said = answer.headers.get("noonmark-callback", "").strip().lower()
    return said in (*TAKEN_OVER, request.callback.lower())


def _retry_after(text: str, *, now: Micros) -> Micros:
    """How long the server asked to be left alone: seconds, or until a date."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return int(text[:MAX_DIGITS]) * SECOND
    try:
        when = parsedate_to_datetime(text)
        return max(0, to_micros(when.replace(tzinfo=when.tzinfo or UTC)) - now)
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0


def _status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
