"""A PostgreSQL server that is down, restarts, or refuses logins: which errors callers get."""

import socket
import threading
from contextlib import closing
from urllib.parse import quote, urlencode

import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.stores.postgres import PostgresStore
from noonmark.testing.conformance import HandClock
from tests.embedded.waiting import SOON
from tests.servers.postgres import QUICK, running
from tests.stores.connected import ask, occupy
from tests.stores.test_sqlite_file import plans

SECRET = "s3cret"  # noqa: S105 - that is what it is


@pytest.fixture(scope="module")
def server():
    """One that asks `ada` for her password, and may be stopped."""
    with running(**QUICK) as server:
        rules = server._data / "pg_hba.conf"
        rules.write_text(f"host all ada 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        server.sql(f"CREATE ROLE ada LOGIN PASSWORD '{SECRET}'; GRANT CREATE ON DATABASE postgres TO ada")
        server.sql("SELECT pg_reload_conf()")
        yield server


def url(server, user="ada", password=SECRET, *, place=None, database="postgres", options="timeout=1"):
    return f"postgresql://{user}:{password}@{place or f'127.0.0.1:{server.port}'}/{database}?{options}"


def refusal(address):
    """What a caller is told who cannot open a store."""
    with pytest.raises(StoreUnavailable) as refused:
        PostgresStore(address, HandClock()).open()
    message = str(refused.value)
    assert message.startswith("cannot connect to the database postgresql://")
    assert "\n" not in message
    assert SECRET not in message
    return message


def test_a_caller_with_the_password_is_admitted(server):
    store = PostgresStore(url(server), HandClock())
    store.open()
    assert store.create(plans(1)) == [True]
    store.close()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"password": f"not-{SECRET}"}, 'password authentication failed for user "ada"'),
        ({"database": "nowhere"}, 'database "nowhere" does not exist'),
        ({"options": "timeout=1&no_such_setting=1"}, 'unrecognized configuration parameter "no_such_setting"'),
        ({"options": "timeout=1&sslmode=sometimes"}, "sslmode"),
        ({"options": "timeout=1&sslmode=require"}, "SSL"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_refusal_has_its_reason(server, wrong, told):
    assert told in refusal(url(server, **wrong))


def test_an_unknown_host_is_named(server):
    assert "postgresql://nowhere.invalid:5432/postgres" in refusal(url(server, place="nowhere.invalid:5432"))


def test_a_name_that_is_never_resolved_is_given_up(server, monkeypatch):
    released = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: released.wait(SOON))
    error = refusal(url(server, place="slow.invalid:5432", options="timeout=0.5"))
    released.set()
    assert error.endswith(": the host name was not resolved within 0.25 s")


@pytest.mark.parametrize("way", ["environment", "PGPASSFILE", "passfile"])
def test_a_password_need_not_be_in_the_address(server, tmp_path, monkeypatch, way):
    passfile = tmp_path / "pgpass"
    passfile.write_text(f"127.0.0.1:{server.port}:postgres:ada:{SECRET}\n")
    passfile.chmod(0o600)
    options = "schema=passwords"
    if way == "environment":
        monkeypatch.setenv("PGPASSWORD", SECRET)
    elif way == "PGPASSFILE":
        monkeypatch.setenv("PGPASSFILE", str(passfile))
    else:
        options += f"&passfile={passfile}"
    store = PostgresStore(f"postgresql://ada@127.0.0.1:{server.port}/postgres?{options}", HandClock())
    store.open()
    store.close()


@pytest.mark.parametrize("place", ["?host={folder}&port={port}", "{quoted}:{port}?connect_timeout=5"])
def test_a_unix_socket_is_an_address_too(server, place):
    folder = str(server._folder)
    place = place.format(folder=folder, port=server.port, quoted=quote(folder, safe=""))
    store = PostgresStore(f"postgresql://{server.user}@{place}&dbname=postgres&schema=unix_socket", HandClock())
    store.open()
    store.close()


def test_of_several_hosts_the_first_that_answers_is_used(server):
    places = f"127.0.0.1:1,127.0.0.1:{server.port}"
    store = PostgresStore(
        f"postgresql://{server.user}@{places}/postgres?schema=hosts&target_session_attrs=read-write", HandClock()
    )
    store.open()
    store.close()


def test_other_options_are_settings_of_the_session(server):
    settings = {"work_mem": "5MB", "application_name": "a b\\c", "datestyle": "SQL, DMY"}
    store = PostgresStore(f"{server.url()}?schema=settings&{urlencode(settings)}", HandClock())
    store.open()
    assert [ask(store, f"SHOW {name}") for name in settings] == [[(value,)] for value in settings.values()]
    store.close()


def test_a_port_without_a_listener_is_named(server):
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        assert f"postgresql://127.0.0.1:{port}/postgres" in refusal(url(server, place=f"127.0.0.1:{port}"))


def test_a_machine_that_never_answers_is_given_up(server):
    with closing(socket.socket()) as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()  # and takes none
        port = deaf.getsockname()[1]
        assert refusal(url(server, place=f"127.0.0.1:{port}", options="timeout=0.5")).endswith(
            ": no answer within 0.25 s"
        )


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_server_that_comes_back_is_used_again(server, mode):
    """With more connections that broke than a verb is tried again."""
    store = PostgresStore(f"{server.url()}?pool=6&schema=away_{mode}", HandClock())
    store.open()
    occupy(store, 6)
    server.stop(mode)
    for uid in ("first", "second"):
        with pytest.raises(StoreUnavailable, match=r"postgresql://127.0.0.1:\d+/postgres"):
            store.create(plans(1, uid))
        with pytest.raises(StoreUnavailable):
            store.find("acme", "schedule-of-first-0")
    server.start()
    assert store.create(plans(1, "first")) == [True]
    assert store.find("acme", "schedule-of-first-0") is not None
    store.close()
