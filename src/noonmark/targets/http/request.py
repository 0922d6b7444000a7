"""The request of one delivery, with its placeholders filled in and checked again."""

from __future__ import annotations

import json
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from noonmark.core.frozen import frozen
from noonmark.core.instants import to_text
from noonmark.core.occurrence_facts import occurrence_facts
from noonmark.core.settlement import run_key
from noonmark.core.signatures import chain_key, chain_proof, completion_token, signature, tenant_key, token_keys
from noonmark.core.targets.http import MAX_FILLED_URL, check_header, quote_for_url
from noonmark.core.targets.placeholders import Filling, has_placeholder
from noonmark.core.trace_context import traceparent
from noonmark.core.urls import parse_url

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.core.signatures import KeySettings
    from noonmark.core.targets.http import HttpTarget
    from noonmark.core.urls import Url
    from noonmark.targets.http.settings import HttpTargetSettings

USER_AGENT = "Noonmark"
TOKEN = "Noonmark-Callback-Token"  # noqa: S105 - the name of a header


@frozen(kw_only=True)
class Request:
    """One request, ready to send."""

    method: str
    url: Url
    """Parsed once: the rules check it, secrets are bound to it, and the connection goes to it."""
    headers: dict[str, str] = field(repr=False)
    body: bytes | None = field(repr=False)
    callback: str | None = None
    """Where the receiver may report the end of the work, if it accepts the work."""

    @property
    def confidential(self) -> list[str]:
        """Values for the receiver alone that are not secrets of the tenant: the token lets its holder end the work."""
        return [self.headers[TOKEN]] if TOKEN in self.headers else []


@frozen
class SigningKeys:
    """The keys of one request."""

    key: str = field(repr=False)
    """Signs the request."""
    token_key: str | None = field(repr=False)
    """Makes the callback token; None where no callback is offered."""
    chain_key: str | None = field(repr=False)
    """Makes the proof of the occurrence that the request comes from; None where the store's key is not available."""


def signing_keys(settings: KeySettings, own: bytes, tenant: str) -> SigningKeys:
    """Return the keys of a tenant's requests; `own` is the store's own key."""
    return SigningKeys(tenant_key(settings, own, tenant), token_keys(settings, own)[0], chain_key(own, tenant))


def make_request(
    target: HttpTarget,
    schedule: Schedule,
    occurrence: Occurrence,
    settings: HttpTargetSettings,
    keys: SigningKeys | None,
    *,
    now: Micros,
) -> Request:
    """Return the request of an occurrence; ValueError says what in it is invalid. Without keys it is not signed."""
    is_filled = target.literal or not has_placeholder([target.url, target.headers, target.body])
    filled = target if is_filled else _fill(target, Filling(occurrence_facts(schedule, occurrence)))
    url = _parse(filled.url)
    declared = {name: check_header(value).strip(" \t") for name, value in filled.headers.items()}
    body, content_type = _encode_body(filled.body)
    headers = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity"} | content_type
    own, callback = _occurrence_headers(occurrence), {}
    if keys is not None:
        own["Noonmark-Signature"] = signature(keys.key, at=now, occurrence_id=occurrence.id, body=body or b"")
        if keys.chain_key is not None:
            own["Noonmark-Chain"] = chain_proof(keys.chain_key, occurrence_id=occurrence.id)
        callback = callback_headers(settings.public_url, keys.token_key, occurrence)
    headers = _merge(headers, declared | own | callback)
    callback_url = callback.get("Noonmark-Callback")
    return Request(method=str(target.method), url=url, headers=headers, body=body, callback=callback_url)


def _fill(target: HttpTarget, filling: Filling) -> HttpTarget:
    url = filling.text(target.url, quote_for_url)
    if len(url) > MAX_FILLED_URL:
        raise ValueError(f"the filled-in URL has more than {MAX_FILLED_URL:,} characters")
    headers = {name: filling.text(value) for name, value in target.headers.items()}
    return replace(target, url=url, headers=headers, body=filling.json(target.body))


def _parse(filled: str) -> Url:
    try:
        return parse_url(filled)
    except ValueError as error:
        raise ValueError(f"the filled-in URL {error}") from None


def with_headers(request: Request, headers: dict[str, str]) -> Request:
    """Return the request with further headers, such as secret ones."""
    return replace(request, headers=_merge(request.headers, headers))


def _merge(headers: dict[str, str], others: dict[str, str]) -> dict[str, str]:
    """Merge headers; `others` replace those of the same name, whatever the case."""
    names = {name.lower() for name in others}
    return {name: value for name, value in headers.items() if name.lower() not in names} | others


def _occurrence_headers(occurrence: Occurrence) -> dict[str, str]:
    """Return the headers by which a receiver recognises a redelivery."""
    return {
        "Idempotency-Key": occurrence.id,
        "Noonmark-Nominal-Time": to_text(occurrence.nominal),
        "Noonmark-Attempt": str(occurrence.attempt),
        "traceparent": traceparent(occurrence.id, run_key(occurrence)),
    }


def callback_headers(public_url: str | None, token_key: str | None, occurrence: Occurrence) -> dict[str, str]:
    """Return the callback URL and its token; none where the service has no public URL or no key."""
    if public_url is None or token_key is None:
        return {}
    return {
        "Noonmark-Callback": f"{public_url}/occurrences/{occurrence.id}",
        TOKEN: completion_token(token_key, occurrence_id=occurrence.id, fence=occurrence.fence),
    }


def _encode_body(body: Any) -> tuple[bytes | None, dict[str, str]]:
    if body is None:
        return None, {}
    if isinstance(body, str):
        return body.encode(), {"Content-Type": "text/plain; charset=utf-8"}
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return text.encode(), {"Content-Type": "application/json"}
