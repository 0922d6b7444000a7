"""Requests: what is sent for one delivery, with everything filled in and judged again."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from noonmark.core.ids import OriginKind, kind_of
from noonmark.core.instants import to_text
from noonmark.core.settlement import run_id
from noonmark.core.signatures import chain_key, chain_proof, completion_token, signature, tenant_key, token_keys
from noonmark.core.targets.http import check_header
from noonmark.core.targets.placeholders import Filling
from noonmark.core.urls import parse_url

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.core.signatures import KeySettings
    from noonmark.core.targets.http import HttpTarget
    from noonmark.core.urls import Url
    from noonmark.targets.outbound import Outbound

USER_AGENT = "Noonmark"
TOKEN = "Noonmark-Callback-Token"  # noqa: S105 - the name of a header
MAX_FILLED_URL = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, ready to be sent."""

    method: str
    url: Url
    """Read once: this is what is judged, what secrets are bound to, and what is dialled."""
    headers: dict[str, str] = field(repr=False)
    body: bytes | None = field(repr=False)
    callback: str | None = None
    """Whoever receives it may take the work over, and tell here how it ended."""

    @property
    def told_in_confidence(self) -> list[str]:
        """What is for its receiver alone, although no secret of the tenant: whoever has the token can end the work."""
        return [self.headers[TOKEN]] if TOKEN in self.headers else []


@dataclass(frozen=True, slots=True)
class Signing:
    """The keys of one request."""

    key: str = field(repr=False)
    """What it is signed with."""
    token_key: str | None = field(repr=False)
    """What the token is made with by which its receiver ends what he takes over; None where no callback is offered."""
    chain_key: str | None = field(repr=False)
    """What proves which occurrence it comes from, wherever it leads; None where the store has no key to tell."""


def signing_of(settings: KeySettings, own: bytes, tenant: str) -> Signing:
    """What the requests of a tenant are signed with; `own` is the key of the store."""
    return Signing(tenant_key(settings, own, tenant), token_keys(settings, own)[0], chain_key(own, tenant))


def make_request(
    target: HttpTarget,
    schedule: Schedule,
    occurrence: Occurrence,
    outbound: Outbound,
    signing: Signing | None,
    *,
    now: Micros,
) -> Request:
    """What is sent for an occurrence; a ValueError says what in it cannot be. Without keys, nothing proves it ours."""
    filling = Filling(_facts(schedule, occurrence))
    filled = filling.text(target.url, _in_url)
    if len(filled) > MAX_FILLED_URL:
        raise ValueError(f"the URL has more than {MAX_FILLED_URL:,} characters when it is filled in")
    url = _address(filled)
    written = {name: check_header(filling.text(value)).strip(" \t") for name, value in target.headers.items()}
    body, kind = _body(filling.json(target.body))
    headers = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity"} | kind
    told, callback = _told(occurrence), {}
    if signing is not None:
        told["Noonmark-Signature"] = signature(signing.key, at=now, occurrence_id=occurrence.id, body=body or b"")
        if signing.chain_key is not None:
            told["Noonmark-Chain"] = chain_proof(signing.chain_key, occurrence_id=occurrence.id)
        callback = _callback(outbound.public_url, signing.token_key, occurrence)
    headers = _merged(headers, written | told | callback)
    where = callback.get("Noonmark-Callback")
    return Request(method=str(target.method), url=url, headers=headers, body=body, callback=where)


def _address(filled: str) -> Url:
    try:
        return parse_url(filled)
    except ValueError as error:
        raise ValueError(f"its URL, when it is filled in, {error}") from None


def carrying(request: Request, secrets: dict[str, str]) -> Request:
    """The request with headers that are secret."""
    return replace(request, headers=_merged(request.headers, secrets))


def _merged(headers: dict[str, str], others: dict[str, str]) -> dict[str, str]:
    """All headers; the others take the place of those of the same name."""
    named = {name.lower() for name in others}
    return {name: value for name, value in headers.items() if name.lower() not in named} | others


def _facts(schedule: Schedule, occurrence: Occurrence) -> dict[str, Any]:
    brought = occurrence.payload
    event = brought if kind_of(occurrence.origin) is OriginKind.EVENT else None
    return {
        "schedule_id": occurrence.schedule_id,
        "schedule_name": schedule.declaration.name or "",
        "occurrence_id": occurrence.id,
        "nominal_at": to_text(occurrence.nominal),
        "due_at": to_text(occurrence.due),
        "attempt": occurrence.attempt,
        "payload": brought if event is None else event["payload"],
        "event": event,
    }


def _told(occurrence: Occurrence) -> dict[str, str]:
    """What every request tells of its occurrence: so a receiver knows a second delivery of the same one."""
    return {
        "Idempotency-Key": occurrence.id,
        "Noonmark-Nominal-Time": to_text(occurrence.nominal),
        "Noonmark-Attempt": str(occurrence.attempt),
        # All deliveries of one occurrence are one trace. Nobody has asked for it to be recorded.
        "traceparent": f"00-{_digest(occurrence.id, 16)}-{_digest(run_id(occurrence), 8)}-00",
    }


def _callback(public_url: str | None, token_key: str | None, occurrence: Occurrence) -> dict[str, str]:
    """Where to tell how the work has ended, and the token for that; nothing where nobody can be told."""
    if public_url is None or token_key is None:
        return {}
    return {
        "Noonmark-Callback": f"{public_url}/occurrences/{occurrence.id}",
        TOKEN: completion_token(token_key, occurrence_id=occurrence.id, fence=occurrence.fence),
    }


def _digest(text: str, size: int) -> str:
    return blake2b(text.encode(), digest_size=size, person=b"noonmark-trace").hexdigest()


def _body(body: Any) -> tuple[bytes | None, dict[str, str]]:  # noqa: ANN401 - JSON
    if body is None:
        return None, {}
    if isinstance(body, str):
        return body.encode(), {"Content-Type": "text/plain; charset=utf-8"}
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return text.encode(), {"Content-Type": "application/json"}


def _in_url(value: str) -> str:
    """A value as one piece of a path or a query; it can leave its place neither by a slash nor by dots."""
    if value in (".", ".."):
        raise ValueError(f"{value!r} cannot be filled into a URL: it would lead to another place")
    return quote(value, safe="")
