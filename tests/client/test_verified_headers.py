"""Signatures are checked with the headers of whatever framework has received the request."""

from datetime import UTC, datetime
from email.message import Message

import pytest
from django.http.request import HttpHeaders
from starlette.datastructures import Headers as StarletteHeaders
from werkzeug.datastructures import EnvironHeaders

from noonmark import NotAllowed
from noonmark.client import verify
from noonmark.core.instants import to_micros
from noonmark.core.signatures import signature

NOW = datetime(2027, 1, 1, tzinfo=UTC)
BODY = "päyload".encode()
SIGNED = {
    "Idempotency-Key": "occ-1",
    "Noonmark-Signature": signature("the old key", at=to_micros(NOW), occurrence_id="occ-1", body=BODY),
}


def message():
    made = Message()
    for name, value in SIGNED.items():
        made[name] = value
    return made


ENVIRON = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in SIGNED.items()}
HEADERS = {
    "a dictionary": SIGNED,
    "Flask": EnvironHeaders(ENVIRON),
    "FastAPI": StarletteHeaders(SIGNED),
    "Django": HttpHeaders(ENVIRON),
    "http.server": message(),
}


@pytest.mark.parametrize("headers", HEADERS.values(), ids=list(HEADERS))
def test_headers_of_every_framework_will_do(headers):
    assert verify(headers, BODY, "the old key", now=NOW) == "occ-1"
    assert verify(headers, BODY, ["the new key", "the old key"], now=NOW) == "occ-1"
    with pytest.raises(NotAllowed, match="wrong"):
        verify(headers, BODY + b"!", ["the new key", "the old key"], now=NOW)


@pytest.mark.parametrize("keys", ["", [], [""]])
def test_without_a_key_nothing_is_taken_for_signed(keys):
    with pytest.raises(NotAllowed, match="no key"):
        verify(SIGNED, BODY, keys, now=NOW)
