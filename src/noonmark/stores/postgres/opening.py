"""Making a database ready: a new one gets the schema, an older one is brought up to date, a newer one is refused.

Nodes that start together do this one after another, under a lock of the database.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from noonmark.core.errors import StoreUnavailable
from noonmark.stores.sql.version import VERSION

if TYPE_CHECKING:
    from noonmark.stores.postgres.address import Address
    from noonmark.stores.postgres.lines import Line

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_TABLES = "SELECT to_regclass($1 || '.alembic_version') IS NOT NULL"


def make_ready(line: Line, address: Address) -> None:
    """Create the schema, or check it."""
    version = _version(line, address)
    if version == VERSION:
        return
    line.execute("BEGIN")
    line.fetch(_LOCK, [f"noonmark schema {address.schema}"])
    version = _version(line, address)  # another node may have been faster
    if version is None:
        _create(line, address)
    elif version > VERSION:
        line.execute("ROLLBACK")
        raise StoreUnavailable(
            f"the schema {address.schema} of {address.shown} has version {version}, and this Noonmark knows versions up"
            f" to {VERSION}; upgrade Noonmark, or use another schema"
        )
    elif version < VERSION:
        _upgrade(line, address)
    line.execute("COMMIT")


def _version(line: Line, address: Address) -> str | None:
    """The version of the schema; None when there is none yet."""
    [(exists,)] = line.fetch(_TABLES, [address.schema])
    if not exists:
        return None
    [(version,)] = line.fetch(f"SELECT version_num FROM {address.schema}.alembic_version")  # noqa: S608 - checked when it was read
    return str(version)


def _create(line: Line, address: Address) -> None:
    line.execute(f"CREATE SCHEMA IF NOT EXISTS {address.schema}")
    line.execute(files("noonmark.stores.postgres").joinpath("schema.sql").read_text(encoding="utf-8"))
    line.fetch("INSERT INTO alembic_version (version_num) VALUES ($1)", [VERSION])


def _upgrade(line: Line, address: Address) -> None:
    raise NotImplementedError
