"""Signatures of requests, with a key derived per tenant from the store's key."""

import pytest

from noonmark.client import verify
from noonmark.clocks import SystemClock
from noonmark.core.run import Outcome
from noonmark.core.schedule import Owner
from noonmark.core.signatures import KeySettings, check_token, tenant_key, token_keys
from noonmark.stores.sqlite import SqliteStore
from noonmark.targets.secrets import SecretResolver
from tests.targets.http.receiver import http_receiver, http_sender

TENANT, PUBLIC = "acme", "http://schedules.example.com"
CHOSEN = "a key that was chosen"


@pytest.fixture
def store(tmp_path):
    store = SqliteStore(tmp_path / "noonmark.db", SystemClock().micros)
    store.open()
    yield store
    store.close()


@pytest.mark.parametrize("keys", [KeySettings(), KeySettings(signing_key=CHOSEN, secret_key="a,b")])  # noqa: S106 - of a test
def test_request_is_signed_with_the_tenants_key_and_has_its_own_token(store, keys):
    own = store.own_key()
    key = tenant_key(keys, own, TENANT)
    with (
        http_receiver() as receiver,
        http_sender(secrets=SecretResolver(store, None), keys=keys, public_url=PUBLIC) as caller,
    ):
        caller.call(f"{receiver.url}/ok", body="pay", key="one")
        with store._connections.writing() as connection:
            connection.execute("DELETE FROM secrets")
        caller.call(f"{receiver.url}/ok", key="two")
        assert store.own_key() != own  # but this node had no need to ask again
        for _, _, headers, body in receiver.requests:
            one = verify(headers, body, key)
            assert headers["Noonmark-Callback"] == f"{PUBLIC}/occurrences/{one}"
            check_token(headers["Noonmark-Callback-Token"], token_keys(keys, own)[:1], occurrence_id=one, fence=0)
        assert len({headers["Noonmark-Callback-Token"] for _, _, headers, _ in receiver.requests}) == 2


def test_request_is_signed_without_a_public_url(store):
    with http_receiver() as receiver, http_sender(secrets=SecretResolver(store, None)) as caller:
        caller.call(f"{receiver.url}/ok")
        ((_, _, headers, body),) = receiver.requests
    assert verify(headers, body, tenant_key(KeySettings(), store.own_key(), TENANT)) == headers["Idempotency-Key"]
    assert not [name for name in headers if name.startswith("Noonmark-Callback")]


def test_nothing_is_sent_unsigned_while_the_key_is_unreadable(store):
    store.own_key()
    with store._connections.writing() as connection:
        connection.execute("UPDATE secrets SET sealed = 'damaged'")
    with http_receiver() as receiver, http_sender(secrets=SecretResolver(store, None)) as caller:
        delivered = caller.call(f"{receiver.url}/ok")
        assert receiver.requests == []
    assert (delivered.outcome, delivered.is_final) == (Outcome.DELIVERY_FAILED, False)
    assert delivered.error.endswith("could not be read: the stored record of the store's own key is damaged")


def test_damaged_store_key_does_not_stop_requests_with_configured_keys(store):
    keys, of_default = KeySettings(signing_key=CHOSEN), {"owner": Owner(tenant="default", user="ada")}
    store.own_key()
    with store._connections.writing() as connection:
        connection.execute("UPDATE secrets SET sealed = 'damaged'")
    with http_receiver() as receiver:
        with http_sender(secrets=SecretResolver(store, None), keys=keys) as caller:
            delivered = caller.call(f"{receiver.url}/ok", declared=of_default)
            of_another = caller.call(f"{receiver.url}/ok")
        with http_sender(secrets=SecretResolver(store, None), keys=keys, public_url=PUBLIC) as caller:
            with_callback = caller.call(f"{receiver.url}/ok", declared=of_default)
        ((_, _, headers, body),) = receiver.requests
    assert verify(headers, body, CHOSEN) == headers["Idempotency-Key"]
    outcomes = [one.outcome for one in (delivered, of_another, with_callback)]
    assert outcomes == [Outcome.COMPLETED, Outcome.DELIVERY_FAILED, Outcome.DELIVERY_FAILED]
