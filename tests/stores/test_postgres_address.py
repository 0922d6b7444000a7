"""The URL of a PostgreSQL database: our options, those of PostgreSQL, and no passwords in messages."""

import pytest
from psycopg.conninfo import conninfo_to_dict

from noonmark.core.errors import InvalidSchedule
from noonmark.stores.postgres import PostgresStore
from noonmark.stores.postgres.address import Address, parse_address

SECRET = "s3cret"  # noqa: S105 - that is what it is


def at(place, *options, **ours):
    return Address(dsn="&".join([f"postgresql://{place}?application_name=noonmark", *options]), **ours)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://host/db", at("host/db")),
        ("postgres://host/db", at("host/db")),
        ("postgresql+asyncpg://host/db", at("host/db")),
        ("postgresql:///db?host=/run/postgresql", at("/db", "host=%2Frun%2Fpostgresql")),
        ("postgresql://host/db?schema=jobs", at("host/db", schema="jobs")),
        ("postgresql://host/db?schema=_9", at("host/db", schema="_9")),
        ("postgresql://host/db?pool=2", at("host/db", pool=2)),
        ("postgresql://host/db?pool=100&timeout=0.5", at("host/db", pool=100, timeout=0.5)),
        ("postgresql://host/db?timeout=600", at("host/db", timeout=600.0)),
        (
            "postgresql://u:p%40ss@[::1]:5433/db?sslmode=require&pool=3",
            at("u:p%40ss@[::1]:5433/db", "sslmode=require", pool=3),
        ),
        ("postgresql://one:1,two:2/db", at("one:1,two:2/db")),
    ],
)
def test_our_options_are_taken_and_the_others_passed_on(url, expected):
    assert parse_address(url) == expected


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("schema=", "schema '' must be"),
        ("schema=Jobs", "schema 'Jobs' must be up to 48 lower-case letters, digits and underscores"),
        ("schema=9jobs", "schema '9jobs' must be"),
        ("schema=a-b", "schema 'a-b' must be"),
        ("schema=a%22%3B--", "must be up to 48"),
        ("schema=j%C3%B6bs", "must be up to 48"),
        ("schema=" + 49 * "a", "must be up to 48"),
        ("schema=pg_jobs", "schema 'pg_jobs' must be .* not begin with a digit or pg_"),
        ("pool=1", "pool '1' must be a number from 2 to 100"),
        ("pool=101", "pool '101' must be a number from 2 to 100"),
        ("pool=2.5", "pool '2.5' must be"),
        ("pool=many", "pool 'many' must be"),
        ("pool=nan", "pool 'nan' must be"),
        ("pool=", "pool '' must be"),
        ("timeout=0.4", "timeout '0.4' must be a number from 0.5 to 600"),
        ("timeout=601", "timeout '601' must be"),
        ("timeout=inf", "timeout 'inf' must be"),
    ],
)
def test_a_wrong_option_is_named_with_what_it_may_be(option, problem):
    with pytest.raises(InvalidSchedule, match=problem) as refused:
        PostgresStore(f"postgresql://ada:{SECRET}@host/db?{option}&password={SECRET}")
    assert refused.value.field == "store"
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ada:{SECRET}%zz@host/db",
        f"postgresql://ada:{SECRET}%00@host/db",
        f"postgresql://ada:{SECRET}/x@host/db",
        "postgresql://ada:12345/x@host/db",
        f"postgresql://ada:{SECRET}?x@host/db",
        f"postgresql://ada:{SECRET}#x@host/db",
        f"postgresql://ada:{SECRET}[@host/db",
        f"postgresql://ada:x@{SECRET}@host:{SECRET}/db",
        "postgresql://host:port/db",
        "postgresql://host:123456/db",
        "postgresql://one,two,/db",
        "postgresql://host/db?schema",
        "postgresql://host/db#fragment",
        "postgresql://[::1/db",
    ],
)
def test_what_cannot_be_read_is_refused_and_not_repeated(url):
    with pytest.raises(InvalidSchedule, match="this PostgreSQL URL cannot be read; it must be") as refused:
        parse_address(url)
    assert refused.value.field == "store"
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ada:{SECRET}@host:5432/db?sslmode=require",
        f"postgresql://host:5432/db?user=ada&password={SECRET}",
        f"postgresql://ada:x%40{SECRET}@host:5432/db",
    ],
)
def test_what_is_shown_has_no_secrets(url):
    address = parse_address(url)
    assert address.shown == "postgresql://host:5432/db"
    assert SECRET not in repr(address)


def test_what_is_passed_on_is_what_was_meant():
    """Blanks, signs and letters of any language, as libpq reads them."""
    address = parse_address("postgresql://a%20d%C3%A4:p%2F%3F%23%40%3A%25@host/my%20db?application_name=a+b%26c&pool=3")
    assert conninfo_to_dict(address.dsn) == {
        "host": "host",
        "user": "a dä",
        "password": "p/?#@:%",
        "dbname": "my db",
        "application_name": "a b&c",
    }


def test_options_that_libpq_does_not_know_are_settings_of_the_session():
    address = parse_address("postgresql://host/db?work_mem=1+MB&sslmode=require&options=-c+jit%3Don&a=%5C")
    options = conninfo_to_dict(address.dsn)
    assert options["options"] == r"-c jit=on -c work_mem=1\ MB -c a=\\"
    assert options["sslmode"] == "require"


def test_stores_of_one_database_have_a_channel_for_each_schema():
    channels = {parse_address(f"postgresql://host/db?schema={name}").channel for name in ("one", "two")}
    assert channels == {"noonmark_one", "noonmark_two"}
