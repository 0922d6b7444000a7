"""Signatures of requests, and the tokens that end what was taken over."""

import pytest

from noonmark.core.errors import NotAllowed
from noonmark.core.instants import SECOND
from noonmark.core.signatures import (
    KeySettings,
    chain_key,
    chain_proof,
    check_signature,
    check_token,
    completion_token,
    hide_text,
    proven_occurrence,
    read_signing_key,
    reveal_text,
    signature,
    tenant_key,
    token_keys,
)

KEY, NOW = "0123456789abcdef", 1_900_000_000 * SECOND
OWN, OTHER, OLD = b"O" * 32, b"o" * 32, "old"
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
def test_any_change_breaks_it(changed):
    with pytest.raises(NotAllowed, match="the signature is wrong"):
        check(**changed)


@pytest.mark.parametrize(
    "text", ["", "t=1", "v1=00", f" {MADE}", f"{MADE}\n", f"{MADE},v1={'0' * 64}", "t=-1,v1=", "ü"]
)
def test_an_invalid_signature_is_refused(text):
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


SETTINGS = {
    "nothing": KeySettings(),
    "a signing key": KeySettings(signing_key=KEY),
    "a key for secrets": KeySettings(secret_key=OLD),
    "both": KeySettings(signing_key=KEY, secret_key=OLD),
}


@pytest.mark.parametrize(
    ("settings", "tenant", "key"),
    [
        # openssl dgst -sha256 -mac HMAC -macopt hexkey:4f4f..4f, over noonmark/tenant/default
        (SETTINGS["nothing"], "default", "e5bebfb7f465fd0e56a11f5febc2c207915a3179330f5518b63d5f7615ff7d43"),
        (SETTINGS["nothing"], "acme", "72ab25736f68a5ebd9eba131c81c19ae06cb5ed283c212e66c6efa9dcd2ed375"),
        (SETTINGS["a key for secrets"], "acme", "72ab25736f68a5ebd9eba131c81c19ae06cb5ed283c212e66c6efa9dcd2ed375"),
        (SETTINGS["a signing key"], "default", KEY),
        (SETTINGS["both"], "default", KEY),
        (SETTINGS["a signing key"], "acme", "b69922bd80408ebd951cd86c49d313665c21081e433bf5b5d17d55970da93d7b"),
        (SETTINGS["both"], "acme", "b69922bd80408ebd951cd86c49d313665c21081e433bf5b5d17d55970da93d7b"),
    ],
)
def test_every_tenant_has_a_key_of_its_own(settings, tenant, key):
    assert tenant_key(settings, OWN, tenant) == key
    assert read_signing_key(key) == key


def test_no_key_that_is_handed_out_leads_to_another():
    """What can be computed from the setting alone, as its receivers could, is no key of anybody else."""
    settings = SETTINGS["a signing key"]
    theirs = {tenant_key(settings, own, tenant) for own in (OWN, OTHER) for tenant in ("acme", "other")}
    assert len(theirs) == 4
    assert theirs.isdisjoint({tenant_key(KeySettings(), KEY.encode(), "acme"), KEY})


def test_tokens_follow_from_the_key_of_the_store():
    """Whoever can check signatures cannot make tokens: no signing key leads to a key of tokens."""
    (alone,) = token_keys(SETTINGS["nothing"], OWN)
    assert token_keys(SETTINGS["a signing key"], OWN) == (alone,)
    assert token_keys(SETTINGS["nothing"], OTHER) != (alone,)
    (sealed,) = token_keys(SETTINGS["a key for secrets"], OWN)
    newest, oldest = token_keys(KeySettings(secret_key=f"new, {OLD}"), OWN)
    assert oldest == sealed
    assert len({alone, newest, oldest, tenant_key(SETTINGS["nothing"], OWN, "default")}) == 4


def test_tokens_of_before_the_store_had_a_key_are_good_where_only_nodes_could_make_them():
    # HMAC over "old", with HMAC-SHA-256 over "noonmark completion tokens" with the signing key, in hex.
    made, earlier = token_keys(SETTINGS["both"], OWN)
    assert (made,) == token_keys(SETTINGS["a key for secrets"], OWN)
    assert token_keys(SETTINGS["both"], OTHER)[1:] == (earlier,)
    assert earlier == "67329ceffe02ab7fbbff0fa7b72ee213b4fa2ff8e153d9f55fa7e71205be1561"


def test_a_proof_is_for_one_occurrence_of_one_tenant_of_one_store():
    key = chain_key(OWN, "acme")
    proof = chain_proof(key, occurrence_id="occ_1.2")
    assert proven_occurrence(proof, key) == "occ_1.2"
    for other in (chain_key(OWN, "other"), chain_key(bytes(32), "acme"), tenant_key(KeySettings(), OWN, "acme")):
        assert other != key
        assert proven_occurrence(proof, other) is None
    digest = proof.rpartition(".")[2]
    for wrong in (
        "",
        ".",
        "occ_1.2",
        digest,
        f".{digest}",
        f"occ_2.{digest}",
        f"{proof} ",
        proof.upper(),
        "\udcff\xe9.",
    ):
        assert proven_occurrence(wrong, key) is None


@pytest.mark.parametrize("text", ["", "é", "[1,2]" * 100])
def test_a_hidden_text_is_read_by_its_store_for_its_tenant_only(text):
    hidden = hide_text(OWN, "acme", text)
    assert reveal_text(OWN, "acme", hidden) == text
    assert not text or text.encode().hex() not in hidden
    assert hidden != hide_text(OTHER, "acme", text) != hide_text(OTHER, "rival", text)
    changed = hidden[:-1] + ("0" if hidden[-1] != "0" else "1")
    for own, tenant, given in ((OTHER, "acme", hidden), (OWN, "rival", hidden), (OWN, "acme", changed)):
        assert reveal_text(own, tenant, given) is None
    for wrong in ("", "0", "xyz", hidden[2:], f"{hidden}00"):
        assert reveal_text(OWN, "acme", wrong) is None


def test_keys_are_not_shown():
    assert KEY not in repr(SETTINGS["both"])
    assert OLD not in repr(SETTINGS["both"])


@pytest.mark.parametrize("key", ["k" * 16, "k" * 500, "with spaces and signs: ~!"])
def test_a_key_is_printable_text(key):
    assert read_signing_key(key) == key


@pytest.mark.parametrize("key", ["k" * 15, "k" * 501, "k" * 15 + "\n", "k" * 15 + "é", b"k" * 16, 16, None])
def test_any_other_key_is_refused_and_not_repeated(key):
    with pytest.raises(ValueError, match=r"^must be 16 to 500 printable ASCII characters$"):
        read_signing_key(key)
