"""A receiver checks what it was sent: by its key, its body and its age, in both directions."""

from datetime import timedelta

import pytest

from noonmark.client import verify
from noonmark.clocks import SystemClock
from noonmark.core.errors import InvalidRequest, NotAllowed
from noonmark.core.instants import SECOND, from_micros, to_micros
from noonmark.core.signatures import signature

KEY, BODY, ONE = "correct horse battery staple", b'{"a": 1}', "occ_1"
SIGNED = from_micros(1_900_000_000 * SECOND)


def headers(at=SIGNED):
    made = signature(KEY, at=to_micros(at), occurrence_id=ONE, body=BODY)
    return {"Idempotency-Key": ONE, "Noonmark-Signature": made}


@pytest.mark.parametrize("seconds", [-300, -1, 0, 1, 300])
def test_within_five_minutes_of_its_time_it_is_good(seconds):
    assert verify(headers(), BODY, KEY, now=SIGNED + timedelta(seconds=seconds)) == ONE


@pytest.mark.parametrize("seconds", [-86_400, -301, 301, 86_400])
def test_older_than_that_or_of_the_future_it_is_refused(seconds):
    with pytest.raises(NotAllowed, match="more than 5 minutes old, or of the future"):
        verify(headers(), BODY, KEY, now=SIGNED + timedelta(seconds=seconds))


def test_without_a_time_it_is_judged_by_the_clock():
    now = SystemClock().now()
    assert verify(headers(now), BODY, KEY) == ONE
    for minutes in (-6, 6):
        with pytest.raises(NotAllowed, match="more than 5 minutes old"):
            verify(headers(now + timedelta(minutes=minutes)), BODY, KEY)


def test_age_is_no_excuse_for_a_wrong_key_or_body():
    for body, key in ((BODY + b" ", KEY), (BODY, KEY + "r")):
        with pytest.raises(NotAllowed, match="the signature is wrong"):
            verify(headers(), body, key, now=SIGNED)
    with pytest.raises(NotAllowed, match="there is no key"):
        verify(headers(), BODY, "", now=SIGNED)


def test_bodies_and_keys_may_be_any_bytes():
    for body in (BODY, bytearray(BODY), memoryview(BODY)):
        for key in (KEY, KEY.encode(), ["another", KEY.encode()], (KEY,)):
            assert verify(headers(), body, key, now=SIGNED) == ONE


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ((headers(), BODY.decode(), KEY), "body"),
        ((headers(), None, KEY), "body"),
        ((headers(), {"a": 1}, KEY), "body"),
        ((headers(), BODY, None), "key"),
        ((headers(), BODY, 5), "key"),
        ((headers(), BODY, [KEY, None]), "key"),
        ((headers(), BODY, b"\xff"), "key"),
        ((None, BODY, KEY), "headers"),
        (("Noonmark-Signature: t=1", BODY, KEY), "headers"),
        (({1: 2}, BODY, KEY), "headers"),
        (({"Noonmark-Signature": ["t=1"]}, BODY, KEY), "headers"),
    ],
)
def test_an_invalid_request_or_key_is_shown_by_its_name(given, field):
    with pytest.raises(InvalidRequest) as refused:
        verify(*given, now=SIGNED)
    assert refused.value.field == field
    assert KEY not in str(refused.value)


def test_an_id_that_no_text_can_carry_is_refused():
    with pytest.raises(NotAllowed, match="is invalid"):
        verify(headers() | {"Idempotency-Key": "\udcff"}, BODY, KEY, now=SIGNED)
