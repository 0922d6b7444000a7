"""Secrets are stored encrypted, by tenant and name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.schedule import AuditEntry
from noonmark.core.secret import Secret
from noonmark.testing.conformance.bench import case
from noonmark.testing.factories import NOW

if TYPE_CHECKING:
    from noonmark.testing.conformance.bench import Bench

MOST = 9
OWN_KEY = 32
"""Bytes."""
TOKEN = Secret(
    name="token",
    hosts=("api.example.com", "*.example.org:8443"),
    sealed="v1:\u00e9+/=",
    created=NOW,
    updated=NOW,
    programs=("curl", "bundle:eval"),
)


def _names(bench: Bench, tenant: str = "acme") -> list[str]:
    return [secret.name for secret in bench.store.secrets(tenant)]


def _noted(bench: Bench) -> list[str]:
    return [note.operation for note in bench.store.audit_entries("acme", 99)]


@case
def a_secret_is_read_as_it_was_sealed(bench: Bench) -> None:
    assert bench.store.put_secret("acme", TOKEN, most=MOST) == TOKEN
    assert bench.store.secrets("acme") == [TOKEN]
    assert bench.store.find_secrets("acme", ["token", "other"]) == [TOKEN]


@case
def secrets_are_listed_by_name_and_tenant(bench: Bench) -> None:
    for name in ("b", "C", "a.1", "a-1"):
        bench.store.put_secret("acme", replace(TOKEN, name=name), most=MOST)
    bench.store.put_secret("other", replace(TOKEN, name="a-1", sealed="theirs"), most=MOST)
    assert _names(bench) == ["C", "a-1", "a.1", "b"]
    assert [one.sealed for one in bench.store.find_secrets("acme", ("a-1", "b"))] == [TOKEN.sealed] * 2
    assert [one.sealed for one in bench.store.find_secrets("other", ["a-1", "b"])] == ["theirs"]
    assert bench.store.find_secrets("acme", []) == []
    assert bench.store.secrets("nobody") == []


@case
def a_secret_of_the_same_name_replaces_the_other(bench: Bench) -> None:
    bench.store.put_secret("acme", TOKEN, most=MOST)
    newer = replace(TOKEN, hosts=("b.example.com",), sealed="v1:newer", created=NOW + 5, updated=NOW + 5)
    stored = bench.store.put_secret("acme", newer, most=MOST)
    assert stored == replace(newer, created=NOW)
    assert bench.store.secrets("acme") == [stored]


@case
def there_are_no_more_secrets_than_a_tenant_may_have(bench: Bench) -> None:
    note = AuditEntry(at=NOW, caller="ada", operation="secret/set")
    for name in ("a", "b"):
        assert bench.store.put_secret("acme", replace(TOKEN, name=name), most=2, note=note) is not None
    assert bench.store.put_secret("acme", replace(TOKEN, name="c"), most=2, note=note) is None
    assert bench.store.put_secret("other", replace(TOKEN, name="c"), most=2) is not None
    assert bench.store.put_secret("acme", replace(TOKEN, name="b", sealed="new"), most=2, note=note) is not None
    assert _names(bench) == ["a", "b"]
    assert _noted(bench) == ["secret/set"] * 3


@case
def a_deleted_secret_is_gone(bench: Bench) -> None:
    note = AuditEntry(at=NOW, caller="ada", operation="secret/delete")
    for tenant in ("acme", "other"):
        bench.store.put_secret(tenant, TOKEN, most=MOST)
    assert bench.store.forget_secret("acme", "token", note=note) == TOKEN
    assert bench.store.forget_secret("acme", "token", note=note) is None
    assert bench.store.forget_secret("nobody", "token") is None
    assert _names(bench) == []
    assert _names(bench, "other") == ["token"]
    assert _noted(bench) == ["secret/delete"]


@case
def a_store_has_one_key_of_its_own(bench: Bench) -> None:
    key = bench.store.own_key()
    assert len(key) == OWN_KEY
    assert len(set(key)) > 1
    assert bench.store.own_key() == key


@case
def the_key_of_the_store_is_not_a_secret_of_a_tenant(bench: Bench) -> None:
    key = bench.store.own_key()
    assert _names(bench) == []
    assert bench.store.forget_secret("acme", "own") is None
    assert bench.store.put_secret("acme", replace(TOKEN, name="own"), most=1) is not None
    assert bench.store.own_key() == key
    assert _names(bench) == ["own"]
