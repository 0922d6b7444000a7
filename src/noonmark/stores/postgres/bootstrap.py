"""Prepare the schema of a database: create a new one, upgrade an older one, refuse a newer one.

Nodes that start together do this one after another, under a lock of the database. An existing empty schema is used; one
with tables of another program is refused.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from noonmark.core.errors import StoreUnavailable
from noonmark.stores.sql.schema.version import TABLE, VERSION, stored_version

if TYPE_CHECKING:
    from noonmark.stores.postgres.address import Address
    from noonmark.stores.postgres.connections import Connection

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('noonmark schema {}', 0))"
_SCHEMA = "SELECT to_regnamespace($1) IS NOT NULL"
_TABLES = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace($1) AND relkind IN ('r', 'p')"
_VERSIONS = f"""SELECT to_jsonb(one) ->> 'version_num' FROM "{{}}".{TABLE} AS one LIMIT 2"""
"""Works for any type of the column; NULL where there is no such column."""


def make_ready(connection: Connection, address: Address, *, migrates: bool = True) -> None:
    """Create or upgrade the schema, or only check it."""
    version = _version(connection, address)
    if not migrates and (version is None or version < VERSION):
        state = f"has version {version}" if version else "does not exist yet"
        raise StoreUnavailable(
            f"the schema {address.schema} of {address.shown} {state}, and this Noonmark needs version {VERSION}; run"
            " `noonmark migrate` with this store once, or start the server with --migrate"
        )
    if version is None:
        version = _create_once(connection, address)
    if version < VERSION:
        from noonmark.stores.postgres.upgrade import upgrade  # noqa: PLC0415 - only for an upgrade

        upgrade(address, VERSION, lock=_LOCK.format(address.schema))
        version = _version(connection, address) or VERSION
    if version > VERSION:
        raise StoreUnavailable(
            f"the schema {address.schema} of {address.shown} has version {version}, and this Noonmark knows versions up"
            f" to {VERSION}; upgrade Noonmark, or use another schema"
        )


def _version(connection: Connection, address: Address) -> str | None:
    """The version of the schema; None when there is none yet."""
    tables = {name for (name,) in connection.fetch(_TABLES, [address.schema])}
    versions = [told for (told,) in connection.fetch(_VERSIONS.format(address.schema))] if TABLE in tables else []
    return stored_version(
        tables,
        versions,
        what=f"the schema {address.schema} of {address.shown}",
        instead="use another one, by ?schema= in the URL",
    )


def _create_once(connection: Connection, address: Address) -> str:
    """Create the tables unless another node was faster; returns the version."""
    connection.run("BEGIN")
    connection.fetch(_LOCK.format(address.schema))
    version = _version(connection, address)
    if version is None:
        # A role that was given a schema may lack the right to create one.
        if not connection.fetch(_SCHEMA, [address.schema])[0][0]:
            connection.run(f'CREATE SCHEMA "{address.schema}"')
        connection.run(files("noonmark.stores.postgres").joinpath("schema.sql").read_text(encoding="utf-8"))
        connection.fetch("INSERT INTO alembic_version (version_num) VALUES ($1)", [VERSION])
        version = VERSION
    connection.commit()
    return version
