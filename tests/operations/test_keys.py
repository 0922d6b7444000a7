"""API keys: who may create, list, revoke and rotate them, and the cache of a process."""

import json
from dataclasses import replace

import pytest

from noonmark.core.api_key import MAX_KEYS, Scope, digest_of, expand_scopes
from noonmark.core.errors import Conflict, InvalidRequest, NotAllowed, NotFound, QuotaExceeded, StoreUnavailable
from noonmark.core.instants import SECOND
from noonmark.core.schedule import Owner
from noonmark.operations import keys
from noonmark.operations.key_cache import FIRST_KEY_LIFETIME, LIFETIME, WRITE_INTERVAL, KeyCache
from noonmark.operations.service import Caller
from tests.operations.harness import LOCAL, Harness

OPERATOR = replace(LOCAL, opens_store=True)
FIRST = {"tenant": "*", "scopes": "admin"}


def admin_of(tenant):
    scopes = expand_scopes([Scope.ADMIN])
    return Caller(owner=Owner(tenant=tenant, user="boss"), name="boss", source="rest", scopes=scopes, is_root=False)


@pytest.fixture
def harness():
    harness = Harness()
    harness.first = harness("key/create", OPERATOR, **FIRST)
    return harness


def test_the_first_key_is_made_by_anyone_who_can_open_the_store():
    harness = Harness()
    with pytest.raises(NotAllowed, match="noonmark key create --store"):
        harness("key/create", **FIRST)
    for wrong, field in (({"scopes": "admin"}, "tenant"), ({"tenant": "*", "scopes": "read"}, "scopes")):
        with pytest.raises(InvalidRequest, match="the first key") as refused:
            harness("key/create", OPERATOR, **wrong)
        assert refused.value.field == field
    answer = harness("key/create", OPERATOR, **FIRST)
    assert (answer["tenant"], answer["user"], answer["scopes"], answer["status"]) == ("*", "local", ["admin"], "active")
    assert harness("key/create", scopes="read")["tenant"] == "default"


def test_a_key_is_shown_once_and_stored_as_a_digest(harness):
    answer = harness("key/create", scopes=["run", "read"], tenant="acme", user="ada", name="ci", agent=True)
    assert answer["key"].startswith(f"{answer['key_id']}_")
    stored = harness.service.store.find_api_key(answer["key_id"])
    assert stored.digest == digest_of(answer["key"])
    listed = {one["key_id"]: one for one in harness("key/list")["keys"]}
    assert listed.keys() == {harness.first["key_id"], answer["key_id"]}
    assert listed[answer["key_id"]] == {name: one for name, one in answer.items() if name != "key"}
    told = json.dumps([listed, harness("audit/list", replace(LOCAL, owner=Owner(tenant="acme", user="x")))])
    assert answer["key"] not in told
    assert answer["key_id"] in told


def test_a_key_expires_when_it_is_told_to(harness):
    by_length = harness("key/create", scopes="read", expires_in_seconds=90)
    assert by_length["expires_at_utc"] == "2026-03-01T12:01:30Z"
    harness.clock.advance(90)
    standing = {one["key_id"]: one["status"] for one in harness("key/list")["keys"]}
    assert standing == {harness.first["key_id"]: "active", by_length["key_id"]: "expired"}
    with pytest.raises(InvalidRequest, match="later than now"):
        harness("key/create", scopes="read", expires_at_utc="2026-03-01T12:00:00Z")
    with pytest.raises(InvalidRequest, match="cannot be combined"):
        harness("key/create", scopes="read", expires_at_utc="2027-03-01T12:00:00Z", expires_in_seconds=5)


def test_an_administrator_rules_the_keys_of_the_own_tenant(harness):
    boss = admin_of("acme")
    answer = harness("key/create", boss, scopes="read", user="ada")
    assert answer["tenant"] == "acme"
    assert [one["key_id"] for one in harness("key/list", boss)["keys"]] == [answer["key_id"]]
    assert harness("key/list", boss, tenant="other")["keys"] == []
    assert len(harness("key/list", tenant="acme")["keys"]) == 1
    for operation in ("key/revoke", "key/rotate"):
        for other in (admin_of("other"),):
            with pytest.raises(NotFound):
                harness(operation, other, key_id=answer["key_id"])
        with pytest.raises(NotFound):
            harness(operation, boss, key_id=harness.first["key_id"])
    assert harness("key/revoke", boss, key_id=answer["key_id"])["status"] == "revoked"


def test_revoking_again_changes_nothing(harness):
    answer = harness("key/create", scopes="read")
    first = harness("key/revoke", key_id=answer["key_id"], reason="lost")
    harness.clock.advance(5)
    assert harness("key/revoke", key_id=answer["key_id"]) == first
    entries = harness("audit/list")["entries"]
    assert [one["operation"] for one in entries] == ["key/revoke", "key/create", "key/create"]
    assert entries[2]["reason"] == f"key {harness.first['key_id']}", "a key of all tenants"
    assert entries[0]["reason"] == f"key {answer['key_id']}: lost"


def test_a_key_is_replaced_on_the_same_terms(harness):
    answer = harness("key/create", scopes="read", tenant="acme", user="ada", name="ci", expires_in_seconds=100)
    harness.clock.advance(40)
    new = harness("key/rotate", key_id=answer["key_id"], grace_seconds=10)
    same = ("tenant", "user", "scopes", "name", "agent")
    assert [new[name] for name in same] == [answer[name] for name in same]
    assert new["key"] != answer["key"]
    assert new["expires_at_utc"] == "2026-03-01T12:02:20Z"
    old = harness.service.store.find_api_key(answer["key_id"])
    assert (old.revoked - harness.service.store.clock()) == 10 * SECOND
    with pytest.raises(Conflict, match="is revoked"):
        harness("key/rotate", key_id=answer["key_id"])
    assert harness("key/revoke", key_id=answer["key_id"])["status"] == "revoked"
    assert harness("key/rotate", key_id=new["key_id"], expires_in_seconds=5)["expires_at_utc"].endswith("12:00:45Z")


def test_a_tenant_has_a_limit_of_keys(harness, monkeypatch):
    monkeypatch.setattr(keys, "MAX_KEYS", 2)
    for _ in range(2):
        harness("key/create", scopes="read")
    with pytest.raises(QuotaExceeded, match="2 keys"):
        harness("key/create", scopes="read")
    assert MAX_KEYS == 1_000


def test_another_id_is_drawn_if_one_is_taken(harness, monkeypatch):
    drawn = [bytes(40), bytes(40), bytes([1] * 40)]
    monkeypatch.setattr(keys, "token_bytes", lambda _: drawn.pop(0))
    assert harness("key/create", scopes="read")["key_id"] == "nm_live_000000"
    answer = harness("key/create", scopes="read")
    assert answer["key_id"] != "nm_live_000000"
    assert drawn == []


def test_who_am_i(harness):
    assert harness("whoami")["all_tenants"]
    answer = harness("whoami", replace(admin_of("acme"), key_id="nm_live_1"))
    assert (answer["tenant"], answer["user"], answer["key_id"]) == ("acme", "boss", "nm_live_1")
    assert harness("whoami", replace(LOCAL, scopes=frozenset()))["scopes"] == []


def test_a_user_must_not_name_another_owner(harness):
    with pytest.raises(NotAllowed) as refused:
        harness("schedule/create", admin_of("acme"), trigger={"type": "interval", "every_seconds": 60},
                target={"target_kind": "function", "function": "f"}, user_id="eve")  # fmt: skip
    assert refused.value.field == "user_id"


class Store:
    """The store of a harness, with a switch, and a count of what it is asked."""

    def __init__(self, store):
        self.store, self.is_down, self.asked = store, False, []

    def __getattr__(self, name):
        def ask(*args, **kwargs):
            self.asked.append(name)
            if self.is_down:
                raise StoreUnavailable("down")
            return getattr(self.store, name)(*args, **kwargs)

        return ask


@pytest.fixture
def cache(harness):
    harness.time = 0
    harness.spy = Store(harness.service.store)
    return KeyCache(harness.spy, lambda: harness.time)


def test_a_key_is_read_once_a_second(harness, cache):
    key_id = harness.first["key_id"]
    assert cache.find(key_id) == cache.find(key_id) == cache.cached(key_id)
    harness("key/revoke", key_id=key_id)
    harness.time = LIFETIME - 1
    assert cache.find(key_id).revoked is None
    harness.time = LIFETIME
    assert cache.cached(key_id) is None
    assert cache.find(key_id).revoked is not None
    cache.forget(key_id)
    assert cache.cached(key_id) is None
    assert cache.find("nm_live_999999") is None
    assert harness.spy.asked == ["find_api_key"] * 3


def test_a_key_that_is_revoked_while_it_is_read_is_not_reused(harness, cache):
    key_id = harness.first["key_id"]

    class Slow:
        def find_api_key(self, key_id):
            api_key = harness.service.store.find_api_key(key_id)
            harness("key/revoke", key_id=key_id)
            cache.forget(key_id)
            return api_key

    harness.spy.store = Slow()
    cache.find(key_id)
    harness.spy.store = harness.service.store
    assert cache.cached(key_id) is None
    assert cache.find(key_id).revoked is not None


def test_the_cache_is_bounded(harness, cache, monkeypatch):
    monkeypatch.setattr("noonmark.operations.key_cache.MAX_CACHED", 1)
    other = harness("key/create", scopes="read")["key_id"]
    cache.find(other)
    cache.find(harness.first["key_id"])
    assert cache.cached(other) is None


def test_uses_are_written_together_once_a_minute(harness, cache):
    key_id = harness.first["key_id"]
    assert not cache.is_write_due
    cache.write()
    harness.time = WRITE_INTERVAL - 1
    cache.use(key_id, 5)
    assert not cache.is_write_due
    harness.time = WRITE_INTERVAL
    cache.use(key_id, 7)
    assert cache.is_write_due
    harness.spy.is_down = True
    cache.write()
    harness.spy.is_down = False
    harness.time = 2 * WRITE_INTERVAL
    assert cache.is_write_due
    cache.write()
    assert harness.service.store.find_api_key(key_id).used == 7
    assert harness.spy.asked.count("use_api_keys") == 2


def test_whether_there_is_a_key_is_asked_until_there_is_one():
    harness = Harness()
    harness.time = 0
    spy = Store(harness.service.store)
    cache = KeyCache(spy, lambda: harness.time)
    spy.is_down = True
    with pytest.raises(StoreUnavailable):
        cache.has_keys()
    spy.is_down = False
    assert not cache.is_known()
    assert not cache.has_keys()
    assert cache.is_known()
    harness("key/create", OPERATOR, **FIRST)
    assert not cache.has_keys()
    harness.time = FIRST_KEY_LIFETIME
    spy.is_down = True
    assert not cache.has_keys(), "while the store is down, nobody has made a key"
    spy.is_down = False
    harness.time = 2 * FIRST_KEY_LIFETIME
    assert cache.has_keys()
    spy.is_down = True
    harness.time = 10**12
    assert cache.has_keys()


def test_keys_expire_by_the_time_of_the_store(harness, cache):
    now = harness.service.store.clock()
    assert cache.now() == now
    harness.time = 5 * SECOND
    assert cache.now() == now + 5 * SECOND
    harness.clock.advance(60)
    harness.time = 10 * SECOND
    assert cache.now() == now + 60 * SECOND
