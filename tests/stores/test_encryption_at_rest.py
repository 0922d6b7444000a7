"""Secrets in a database are useless without the key, and in any other row."""

# ruff: noqa: S608 - the statements are the test's own

from noonmark.operations.secrets import NewSecret, store_secret
from noonmark.secret_cipher import fresh_key
from noonmark.stores.postgres import PostgresStore
from noonmark.wiring import make_seal

MARK = "s3cr3t-mark-0123456789"


def test_a_row_in_postgresql_tells_nothing_and_opens_in_its_place_alone(postgres):
    schema, seal = "sealed_at_rest", make_seal(fresh_key())
    store = PostgresStore(f"{postgres.url()}?schema={schema}")
    store.open()
    given = NewSecret("token", f"Bearer {MARK}", ("api.example.com",))
    for tenant in ("acme", "other"):
        store_secret(store, seal, tenant, given)
    dump = postgres.sql(f"SELECT row_to_json(one) FROM {schema}.secrets AS one")
    assert dump.count("api.example.com") == 2
    assert MARK not in dump

    def opened(tenant, name):
        [one] = store.find_secrets(tenant, [name])
        return seal.open(tenant, name, one.sealed)

    assert opened("acme", "token") == f"Bearer {MARK}"
    postgres.sql(f"UPDATE {schema}.secrets SET name = 'mine' WHERE tenant = 'acme'")
    assert opened("acme", "mine") is None
    postgres.sql(f"DELETE FROM {schema}.secrets WHERE tenant = 'acme'")
    postgres.sql(f"UPDATE {schema}.secrets SET tenant = 'acme'")
    assert opened("acme", "token") is None
    store.close()
