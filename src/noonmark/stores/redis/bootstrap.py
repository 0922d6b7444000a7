"""Check a server before a store is used: what kind it is, what it promises, and which format its data have.

Noonmark keeps what it acknowledges only as well as the server does. So a server that evicts keys or writes nothing to a
disk is refused, unless the URL accepts that, and the promise of any other one is logged.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from redis.exceptions import ResponseError

from noonmark.core.errors import StoreUnavailable
from noonmark.core.frozen import frozen
from noonmark.ports.records import Condition
from noonmark.stores.redis.transactions.client import FORMAT_KEY
from noonmark.stores.sql.schema.version import COPY_MARK

if TYPE_CHECKING:
    from noonmark.stores.redis.address import Address
    from noonmark.stores.redis.transactions.client import Client

logger = logging.getLogger("noonmark.store")

FORMAT = "0001"
"""The version of keys and values, in which a Noonmark of any version looks for its own."""
OLDEST_SERVER = (6, 2)
_VERSION = re.compile(r"(\d+)\.(\d+)")
_TABLES = ("schedules", "occurrences", "commits")
"""Keys of any store that was used."""
_SETTINGS = ("appendfsync", "no-appendfsync-on-rewrite", "save")
_CLUSTER, _SENTINEL = "cluster", "sentinel"
_REPLICA = "slave"
_KEEPS_ALL = "noeviction"


@frozen(kw_only=True)
class ServerFacts:
    """What a server says about itself."""

    version: str
    mode: str = "standalone"
    role: str = "master"
    replicas: int = 0
    """How many replicas follow it."""
    eviction: str = _KEEPS_ALL
    has_log: bool = False
    """Whether it appends each write to a file."""
    fsync: str | None = None
    """When it waits until that file is on the disk; None if it does not say."""
    is_rewrite_exempt: bool = False
    """Whether it does not wait while it writes that file anew."""
    snapshots: str | None = None
    """When it writes all data to a file; empty for never, None if it does not say."""
    failures: tuple[str, ...] = ()
    """What it could not write to a disk."""


def make_ready(client: Client, address: Address, *, migrates: bool = True) -> ServerFacts:
    """Check the server, and write the version of the format if there is no store yet."""
    facts = check_server(client, address, is_volatile=address.is_volatile)
    _check_format(client, address, migrates=migrates)
    return facts


def check_server(client: Client, address: Address, *, is_volatile: bool) -> ServerFacts:
    """Refuse a server that cannot hold a store."""
    facts = look(client)
    if (reason := refusal(facts, is_volatile=is_volatile)) is not None:
        raise StoreUnavailable(f"Redis at {address.shown} cannot be used: {reason}")
    return facts


def log_promise(facts: ServerFacts, address: Address) -> None:
    """Say what is kept, before anything is acknowledged."""
    level = logging.WARNING if is_lossy(facts) else logging.INFO
    logger.log(level, "Redis at %s: %s", address.shown, promise(facts))


def look(client: Client) -> ServerFacts:
    """Ask a server about itself. Some providers forbid to ask for settings."""
    info: dict[str, Any] = {}
    for section in ("server", "replication", "memory", "persistence"):
        info |= client.run("INFO", section)
    settings = {name: _setting(client, name) for name in _SETTINGS}
    writes = {
        "aof_last_write_status": "its last write to the append-only file",
        "aof_last_bgrewrite_status": "its last rewrite of the append-only file",
        "rdb_last_bgsave_status": "its last snapshot",
    }
    return ServerFacts(
        version=str(info["redis_version"]),
        mode=str(info.get("redis_mode", "standalone")),
        role=str(info.get("role", "master")),
        replicas=int(info.get("connected_slaves", 0)),
        eviction=str(info.get("maxmemory_policy", _KEEPS_ALL)),
        has_log=bool(info.get("aof_enabled")),
        fsync=settings["appendfsync"],
        is_rewrite_exempt=settings["no-appendfsync-on-rewrite"] == "yes",
        snapshots=settings["save"],
        failures=tuple(f"{what} failed" for name, what in writes.items() if info.get(name, "ok") != "ok"),
    )


def refusal(facts: ServerFacts, *, is_volatile: bool) -> str | None:
    """Why a server cannot be used; None if it can."""
    version = _VERSION.match(facts.version)
    if version is None or tuple(map(int, version.groups())) < OLDEST_SERVER:
        return f"it has version {facts.version}, and Noonmark needs {'.'.join(map(str, OLDEST_SERVER))} or newer"
    if facts.mode == _CLUSTER:
        return (
            "it is a node of a Redis Cluster, in which one transaction cannot read and write all keys of a store; use a"
            " single server, with replicas if it should fail over"
        )
    if facts.mode == _SENTINEL:
        return "it is a Sentinel, which has no data; name the primary server"
    if facts.role == _REPLICA:
        return "it is a replica, which is read-only; name the primary server"
    if is_volatile:
        return None
    if facts.eviction != _KEEPS_ALL:
        return (
            f"its maxmemory-policy is {facts.eviction}, so it may delete any part of a store; set it to {_KEEPS_ALL},"
            " or accept losses with ?volatile=1 in the URL"
        )
    if not facts.has_log and not facts.snapshots:
        state = (
            "it writes nothing to a disk" if facts.snapshots is not None else "it does not say if it has save points"
        )
        return (
            f"{state}; set appendonly to yes, or accept that a restart may lose everything with ?volatile=1 in the URL"
        )
    return None


def is_lossy(facts: ServerFacts) -> bool:
    """Whether a crash of the server may lose more than about a second."""
    return facts.eviction != _KEEPS_ALL or not facts.has_log or facts.fsync == "no"


def promise(facts: ServerFacts) -> str:
    """What a server with these settings keeps, in a sentence."""
    sentence = _kept(facts)
    if facts.eviction != _KEEPS_ALL:
        sentence = (
            f"any part of the store may be deleted when memory is short (maxmemory-policy {facts.eviction}); {sentence}"
        )
    if facts.replicas:
        noun = "replica follows" if facts.replicas == 1 else "replicas follow"
        sentence += (
            f"; {facts.replicas} {noun} asynchronously, so a fail-over loses acknowledged writes that no replica has"
            " received yet"
        )
    return sentence


def _kept(facts: ServerFacts) -> str:
    if not facts.has_log:
        if facts.snapshots:
            return f"a crash of the server loses all writes since its last snapshot (save {facts.snapshots})"
        return "a restart of the server loses everything"
    if facts.fsync is None:
        return "a crash of the server may lose acknowledged writes: it does not show its appendfsync"
    if facts.fsync == "everysec":
        return "a crash of the server loses acknowledged writes of about the last second (appendfsync everysec)"
    if facts.fsync == "no":
        return "a crash of the server's machine loses what the system has not written yet (appendfsync no)"
    sentence = "every acknowledged write survives a crash of the server (appendfsync always)"
    if facts.is_rewrite_exempt:
        sentence += ", except during a rewrite of its append-only file (no-appendfsync-on-rewrite yes)"
    return sentence


def condition(client: Client, address: Address) -> Condition:
    """Versions of the server and the format, what it could not write, and what it promises, however little."""
    facts = check_server(client, address, is_volatile=True)
    stored_format = client.read(FORMAT_KEY)
    return Condition(
        kind="redis",
        version=facts.version,
        schema="" if stored_format is None else stored_format.decode(errors="replace"),
        expected_schema=FORMAT,
        problems=facts.failures,
        promise=promise(facts),
        is_lossy=is_lossy(facts),
    )


def _check_format(client: Client, address: Address, *, migrates: bool) -> None:
    """Refuse the data of a newer Noonmark, and half a copy; write the version where there are no data yet."""
    stored_format = client.read(FORMAT_KEY)
    if stored_format is None:
        if client.has_any(_TABLES):
            raise StoreUnavailable(
                f"the store in {address.shown} is damaged: it has no key {address.prefix}:{FORMAT_KEY}, so the version"
                f" of its format is not known; if it is {FORMAT}, set the key to that"
            )
        if not migrates:
            raise StoreUnavailable(
                f"there is no store in {address.shown} with the prefix {address.prefix} yet; run `noonmark migrate`"
                " with this store once, or start a server on it"
            )
        stored_format = client.write_once(FORMAT_KEY, FORMAT)
    version = stored_format.decode(errors="replace")
    if COPY_MARK.fullmatch(version):
        raise StoreUnavailable(
            f"the store in {address.shown} holds an unfinished copy of another store; run the same `noonmark store"
            " copy` again to finish it"
        )
    if version != FORMAT:
        raise StoreUnavailable(
            f"the store in {address.shown} has format {version[:40]!a}, and this Noonmark knows {FORMAT}; upgrade"
            " Noonmark, or use another prefix, by ?prefix= in the URL"
        )


def _setting(client: Client, name: str) -> str | None:
    try:
        answer = client.run("CONFIG", "GET", name)
    except StoreUnavailable as error:
        if isinstance(error.__cause__, ResponseError):
            return None
        raise
    return answer[1].decode(errors="replace") if answer else None
