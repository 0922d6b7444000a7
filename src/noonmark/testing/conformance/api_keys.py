"""API keys: a store has what they may do and a digest of each, and keeps revoked ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.api_key import DEFAULT_TENANT, EVERY_TENANT, ApiKey, Scope, digest_of
from noonmark.core.schedule import AuditEntry
from noonmark.testing.conformance.bench import case
from noonmark.testing.factories import NOW

if TYPE_CHECKING:
    from noonmark.testing.conformance.bench import Bench

MOST = 9
KEY = ApiKey(
    key_id="nm_live_ab12cd",
    digest=digest_of("nm_live_ab12cd_x"),
    tenant="acme",
    user="ada@example.com",
    scopes=frozenset({Scope.READ, Scope.RUN}),
    name="Ada's laptop",
    is_agent=True,
    created=NOW,
    expires=NOW + 9,
)
NOTE = AuditEntry(at=NOW, caller="ada", operation="key/create", key_id="nm_live_ab12cd")


def _other(number: int, **fields: object) -> ApiKey:
    return replace(KEY, key_id=f"nm_live_00000{number}", digest=digest_of(str(number)), **fields)  # type: ignore[arg-type]


def _ids(bench: Bench, tenant: str | None) -> list[str]:
    return [key.key_id for key in bench.store.api_keys(tenant, 99)]


@case
def an_api_key_is_found_as_it_was_stored(bench: Bench) -> None:
    plain = _other(1, name=None, is_agent=False, expires=None)
    assert bench.store.keep_api_key(KEY, most=MOST)
    assert bench.store.keep_api_key(plain, most=MOST)
    assert bench.store.find_api_key(KEY.key_id) == KEY
    assert bench.store.find_api_key(plain.key_id) == plain
    assert bench.store.find_api_key("nm_live_999999") is None


@case
def a_store_knows_whether_there_has_ever_been_an_api_key(bench: Bench) -> None:
    assert not bench.store.has_api_keys()
    bench.store.keep_api_key(KEY, most=MOST)
    assert bench.store.has_api_keys()
    bench.store.revoke_api_key(KEY.key_id, at=NOW)
    assert bench.store.has_api_keys()


@case
def an_id_of_an_api_key_is_taken_once_in_all_tenants(bench: Bench) -> None:
    assert bench.store.keep_api_key(KEY, most=MOST, note=NOTE)
    assert not bench.store.keep_api_key(replace(KEY, tenant="other", digest="x"), most=MOST, note=NOTE)
    assert bench.store.find_api_key(KEY.key_id) == KEY
    assert len(bench.store.audit_entries("acme", 9)) == 1
    assert bench.store.audit_entries("other", 9) == []


@case
def changes_of_an_api_key_of_all_tenants_are_audited_where_someone_can_read_them(bench: Bench) -> None:
    key = replace(KEY, tenant=EVERY_TENANT)
    assert bench.store.keep_api_key(key, most=MOST, note=NOTE)
    assert bench.store.revoke_api_key(key.key_id, at=NOW, note=replace(NOTE, operation="key/revoke"))
    operations = [note.operation for note in bench.store.audit_entries(DEFAULT_TENANT, 9)]
    assert operations == ["key/revoke", "key/create"]


@case
def a_tenant_has_no_more_api_keys_than_it_may(bench: Bench) -> None:
    assert all(bench.store.keep_api_key(_other(number), most=2) for number in (1, 2))
    assert not bench.store.keep_api_key(_other(3), most=2, note=NOTE)
    assert bench.store.keep_api_key(_other(3, tenant="other"), most=2)
    bench.store.revoke_api_key(_other(1).key_id, at=NOW)
    assert bench.store.keep_api_key(_other(4), most=2)
    assert bench.store.audit_entries("acme", 9) == []


@case
def api_keys_are_listed_by_creation_and_id(bench: Bench) -> None:
    for number, created in ((3, NOW), (2, NOW + 1), (1, NOW), (4, NOW + 2)):
        tenant = "*" if number == 4 else "acme"
        bench.store.keep_api_key(_other(number, created=created, tenant=tenant), most=MOST)
    assert [one[-1] for one in _ids(bench, "acme")] == ["1", "3", "2"]
    assert [one[-1] for one in _ids(bench, None)] == ["1", "3", "2", "4"]
    assert _ids(bench, "nobody") == []
    [first] = bench.store.api_keys("acme", 1)
    after = (first.created, first.key_id)
    assert [one.key_id[-1] for one in bench.store.api_keys("acme", 1, after=after)] == ["3"]
    assert [one.key_id[-1] for one in bench.store.api_keys(None, 9, after=after)] == ["3", "2", "4"]


@case
def a_revoked_api_key_stays_revoked_from_the_earliest_instant(bench: Bench) -> None:
    bench.store.keep_api_key(KEY, most=MOST)
    later = bench.store.revoke_api_key(KEY.key_id, at=NOW + 5, note=NOTE)
    assert later == replace(KEY, revoked=NOW + 5)
    assert bench.store.revoke_api_key(KEY.key_id, at=NOW + 7) == later
    assert bench.store.revoke_api_key(KEY.key_id, at=NOW + 2) == replace(KEY, revoked=NOW + 2)
    assert bench.store.find_api_key(KEY.key_id) == replace(KEY, revoked=NOW + 2)
    assert [note.operation for note in bench.store.audit_entries("acme", 9)] == ["key/create"]
    assert bench.store.revoke_api_key("nm_live_999999", at=NOW, note=NOTE) is None


@case
def an_api_key_is_replaced_once(bench: Bench) -> None:
    bench.store.keep_api_key(KEY, most=MOST)
    bench.store.keep_api_key(_other(1), most=MOST)
    assert bench.store.revoke_api_key(KEY.key_id, at=NOW, successor=_other(1), note=NOTE) is None
    assert bench.store.find_api_key(KEY.key_id) == KEY
    assert bench.store.revoke_api_key(KEY.key_id, at=NOW, successor=_other(2), note=NOTE) == KEY.revoke(NOW)
    assert bench.store.find_api_key(_other(2).key_id) == _other(2)
    assert bench.store.revoke_api_key(KEY.key_id, at=NOW, successor=_other(3), note=NOTE) is None
    assert bench.store.find_api_key(_other(3).key_id) is None
    assert len(bench.store.audit_entries("acme", 9)) == 1


@case
def the_last_use_of_an_api_key_only_moves_forward(bench: Bench) -> None:
    bench.store.keep_api_key(KEY, most=MOST)
    bench.store.keep_api_key(_other(1), most=MOST)
    bench.store.use_api_keys({KEY.key_id: NOW + 5, "nm_live_999999": NOW})
    bench.store.use_api_keys({KEY.key_id: NOW + 3, _other(1).key_id: NOW + 4})
    bench.store.use_api_keys({})
    assert bench.store.find_api_key(KEY.key_id) == replace(KEY, used=NOW + 5)
    assert bench.store.find_api_key(_other(1).key_id) == _other(1, used=NOW + 4)
