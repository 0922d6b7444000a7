"""API keys: how they are written, compared and judged."""

import re
from dataclasses import replace

import pytest

from noonmark.core.api_key import (
    ALL_SCOPES,
    DRAWN_BYTES,
    ApiKey,
    KeyStatus,
    Scope,
    digest_of,
    expand_scopes,
    first_key_problem,
    key_id_of,
    scopes_of,
    session_scopes,
    tenant_name,
    tenant_or_all,
    verify_key,
    write_key,
)

DRAWN = bytes(range(DRAWN_BYTES))
KEY_ID, KEY = write_key(DRAWN)
STORED = ApiKey(
    key_id=KEY_ID, digest=digest_of(KEY), tenant="acme", user="ada", scopes=frozenset({Scope.READ}), created=5
)


def test_a_key_has_a_public_beginning_and_256_bits():
    assert re.fullmatch(r"nm_live_[0-9a-z]{6}_[0-9A-Za-z]{43}", KEY)
    assert KEY.startswith(f"{KEY_ID}_")
    assert 62**43 > 2**256


@pytest.mark.parametrize("bit", [0, 7, 100, 255])
def test_every_random_bit_of_a_key_counts(bit):
    changed = bytearray(DRAWN)
    changed[8 + bit // 8] ^= 1 << (bit % 8)
    key_id, key = write_key(bytes(changed))
    assert key_id == KEY_ID
    assert key != KEY


@pytest.mark.parametrize(
    "text",
    [
        "",
        KEY[:-1],
        f"{KEY}0",
        KEY.upper(),
        KEY.replace("live", "test"),
        f" {KEY}",
        f"{KEY}\n",
        KEY.replace("_", "-"),
        "é",
    ],
)
def test_what_is_not_written_like_a_key_has_no_id(text):
    assert key_id_of(text) is None


def test_a_key_is_compared_by_its_digest():
    assert key_id_of(KEY) == KEY_ID
    assert verify_key(KEY, STORED)
    assert not verify_key(KEY[:-1] + ("0" if KEY[-1] != "0" else "1"), STORED)
    assert not verify_key(KEY, None)
    assert not verify_key("\ud800", STORED)
    assert STORED.digest not in repr(STORED)


@pytest.mark.parametrize(
    ("expires", "revoked", "now", "standing"),
    [
        (None, None, 10, KeyStatus.ACTIVE),
        (10, None, 9, KeyStatus.ACTIVE),
        (10, None, 10, KeyStatus.EXPIRED),
        (None, 10, 9, KeyStatus.ACTIVE),
        (None, 10, 10, KeyStatus.REVOKED),
        (10, 10, 10, KeyStatus.REVOKED),
    ],
)
def test_a_key_is_good_until_it_expires_or_is_revoked(expires, revoked, now, standing):
    assert replace(STORED, expires=expires, revoked=revoked).status(now) is standing


@pytest.mark.parametrize(("before", "at", "after"), [(None, 7, 7), (5, 7, 5), (7, 5, 5)])
def test_a_revocation_is_never_put_off(before, at, after):
    assert replace(STORED, revoked=before).revoke(at).revoked == after


def test_admin_includes_the_other_scopes():
    assert expand_scopes([Scope.ADMIN]) == ALL_SCOPES
    assert expand_scopes([Scope.READ, Scope.RUN]) == {Scope.READ, Scope.RUN}


@pytest.mark.parametrize("given", ["read,run", "run read", ["read", "run"], ("run", "read"), "read, run"])
def test_scopes_are_a_list_or_text(given):
    assert scopes_of(given) == {Scope.READ, Scope.RUN}


@pytest.mark.parametrize("given", ["", [], "root", ["read", 1], None, {"read": 1}, 7, ["read"] * 11])
def test_other_scopes_are_refused(given):
    with pytest.raises(ValueError, match="must be one or several of read, write, run, propose, admin"):
        scopes_of(given)


@pytest.mark.parametrize("name", ["acme", "a", "A-1_b.c", "0" * 63])
def test_a_tenant_has_a_plain_name(name):
    assert tenant_name(name) == tenant_or_all(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "0" * 64, "é", "a/b", None, 3, "a\n"])
def test_other_names_of_tenants_are_refused(name):
    with pytest.raises(ValueError, match="must be the name of a tenant"):
        tenant_or_all(name)


def test_a_star_is_every_tenant():
    assert tenant_or_all("*") == "*"
    with pytest.raises(ValueError, match="must be the name of a tenant"):
        tenant_name("*")


@pytest.mark.parametrize(
    ("tenant", "scopes", "is_fine"),
    [("*", [Scope.ADMIN], True), ("*", [Scope.READ], False), ("acme", [Scope.ADMIN], False)],
)
def test_the_first_key_rules_everything(tenant, scopes, is_fine):
    assert (first_key_problem(tenant, scopes) is None) is is_fine


def test_a_key_of_all_tenants_acts_for_the_default_one():
    assert STORED.acts_for == STORED.tenant
    assert replace(STORED, tenant="*").acts_for == "default"


@pytest.mark.parametrize(
    ("makers", "scopes"),
    [
        ((), "read write run"),
        ((None, None), "read write run"),
        (("read write run propose admin",), "read write run"),
        (("read propose",), "read propose"),
        (("read propose run", None), "read propose run"),
        (("read write", "read propose run"), "read propose"),
        (("read write", "run"), ""),
    ],
)
def test_a_session_may_do_no_more_than_any_of_its_makers(makers, scopes):
    held = [None if one is None else scopes_of(one) for one in makers]
    assert session_scopes(*held) == {Scope(one) for one in scopes.split()}
