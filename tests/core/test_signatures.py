"""Signatures of requests, and the tokens that end what was taken over."""

import pytest

from noonmark.core.errors import NotAllowed
from noonmark.core.instants import SECOND
from noonmark.core.signatures import (
    check_signature,
    check_token,
    completion_token,
    read_signing_key,
    signature,
    token_keys,
)

KEY, NOW = "0123456789abcdef", 1_900_000_000 * SECOND
MADE = signature(KEY, at=NOW + SECOND // 2, occurrence_id="occ_1", body=b"{}")


def check(text=MADE, key=KEY, *, occurrence_id="occ_1", body=b"{}", now=NOW):
    check_signature(text, key, occurrence_id=occurrence_id, body=body, now=now)


def test_a_signature_is_what_anybody_with_the_key_computes():
    # openssl dgst -sha256 -hmac 0123456789abcdef, over 1900000000.occ_1.{}
    assert MADE == "t=1900000000,v1=b12c32612e5ebd77c84ada19be0e181f76f185b469aabfacfc16f8d318bfd02a"
    check()


@pytest.mark.parametrize("seconds", [-300, 0, 300])
def test_it_is_good_for_five_minutes(seconds):
    check(now=NOW + seconds * SECOND)


@pytest.mark.parametrize("seconds", [-301, 301, 10**6])
def test_an_old_one_is_refused_and_one_of_the_future_too(seconds):
    with pytest.raises(NotAllowed, match="more than 5 minutes old"):
        check(now=NOW + seconds * SECOND)


@pytest.mark.parametrize(
    "changed",
    [
        {"key": "another key"},
        {"occurrence_id": "occ_2"},
        {"body": b"{ }"},
        {"text": MADE.replace("t=1900000000", "t=1900000001")},
        {"text": MADE[:-1] + ("0" if MADE[-1] != "0" else "1")},
    ],
)
def test_whatever_is_changed_breaks_it(changed):
    with pytest.raises(NotAllowed, match="the signature is wrong"):
        check(**changed)


@pytest.mark.parametrize(
    "text", ["", "t=1", "v1=00", f" {MADE}", f"{MADE}\n", f"{MADE},v1={'0' * 64}", "t=-1,v1=", "ü"]
)
def test_what_is_no_signature_is_refused(text):
    with pytest.raises(NotAllowed, match="missing, or is not one of ours"):
        check(text)


def test_a_token_ends_one_delivery_and_no_other():
    token = completion_token(KEY, occurrence_id="occ_1", fence=3)
    check_token(token, [KEY], occurrence_id="occ_1", fence=3)
    check_token(token, ["a newer key", KEY], occurrence_id="occ_1", fence=3)
    for wrong in (
        {"occurrence_id": "occ_2", "fence": 3},
        {"occurrence_id": "occ_1", "fence": 4},
    ):
        with pytest.raises(NotAllowed, match="not the token of this delivery"):
            check_token(token, [KEY], **wrong)
    for text in ("", "ü", token[:-1], completion_token("another", occurrence_id="occ_1", fence=3)):
        with pytest.raises(NotAllowed):
            check_token(text, [KEY], occurrence_id="occ_1", fence=3)
    with pytest.raises(NotAllowed):
        check_token(token, [], occurrence_id="occ_1", fence=3)


def test_whoever_can_check_signatures_cannot_make_tokens():
    """With a key that only nodes have, the signing key leads to none of the keys of tokens."""
    (alone,) = token_keys(KEY, None)
    newest, oldest = token_keys(KEY, "new, old")
    assert len({KEY, alone, newest, oldest}) == 4
    assert token_keys(KEY, "old") == (oldest,)
    assert token_keys("another key", "old") != (oldest,)
    assert token_keys(None, "old") == ()


@pytest.mark.parametrize("key", ["k" * 16, "k" * 500, "with spaces and signs: ~!"])
def test_a_key_is_printable_text(key):
    assert read_signing_key(key) == key


@pytest.mark.parametrize("key", ["k" * 15, "k" * 501, "k" * 15 + "\n", "k" * 15 + "é", b"k" * 16, 16, None])
def test_any_other_key_is_refused_and_not_repeated(key):
    with pytest.raises(ValueError, match=r"^must be 16 to 500 printable ASCII characters$"):
        read_signing_key(key)
