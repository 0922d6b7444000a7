"""Secrets: set, list, delete. What is told of one is its name and its hosts, never its value."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from noonmark.core.errors import Conflict, NotFound, QuotaExceeded
from noonmark.core.secret import (
    MAX_HOSTS,
    MAX_SECRETS,
    Secret,
    bound_host,
    bound_hosts,
    secret_name,
    secret_value,
)
from noonmark.operations.arguments import Arguments
from noonmark.operations.documents import text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.audit import AuditEntry
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.seal import Seal
    from noonmark.ports.store import Store

logger = logging.getLogger("noonmark.secrets")
MOST_NAMED = 20
"""So many secrets that cannot be opened are told by name."""


class NewSecret(NamedTuple):
    """A secret that somebody gave, before it is sealed."""

    name: str
    value: str
    hosts: tuple[str, ...]

    def __repr__(self) -> str:
        """Without its value."""
        return f"NewSecret({self.name!r})"


def set_secret(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Keep a secret that requests to some hosts may carry; one of that name gets the new value, and the new hosts."""
    given, now = read_secret(arguments), service.store.clock()
    note = caller.signed(f"secret {given.name}")(None, None, now=now)
    return secret_document(keep(service.store, service.seal, caller.owner.tenant, given, note))


def read_secret(arguments: Mapping[str, Any]) -> NewSecret:
    """What is to be kept; an InvalidRequest says everything that is wrong with it, and nothing of its value."""
    asked = Arguments(arguments, repeats=False)
    name, value = asked.read("name", secret_name), asked.read("value", secret_value)
    hosts = _hosts(asked)
    asked.done()
    return NewSecret(name, value, hosts)


def keep(store: Store, seal: Seal | None, tenant: str, given: NewSecret, note: AuditEntry | None = None) -> Secret:
    """Seal a secret and keep it, with a note of who asked; a Conflict where there is nothing to seal it with."""
    if seal is None:
        raise Conflict(
            "there is no key to seal it with: put the output of `noonmark secret key` into the setting secret_key, the"
            " same on every node, best as the variable NOONMARK_SECRET_KEY, and start again"
        )
    now = store.clock()
    sealed = seal.close(tenant, given.name, given.value)
    secret = Secret(name=given.name, hosts=given.hosts, sealed=sealed, created=now, updated=now)
    kept = store.keep_secret(tenant, secret, most=MAX_SECRETS, note=note)
    if kept is None:
        raise QuotaExceeded(f"there are {MAX_SECRETS:,} secrets already; delete one", field="name")
    return kept


def warn_of_unreadable(service: Service, tenant: str) -> None:
    """Say in the log which secrets no key of this node opens: requests that need one are not sent from here."""
    kept, seal = service.store.secrets(tenant), service.seal
    shut = [one.name for one in kept if seal is None or seal.open(tenant, one.name, one.sealed) is None]
    if not shut:
        return
    more = f" and {len(shut) - MOST_NAMED:,} more" if len(shut) > MOST_NAMED else ""
    why = "there is no secret_key" if seal is None else "no key in secret_key opens them"
    names = ", ".join(shut[:MOST_NAMED]) + more
    logger.warning("requests that need these secrets are not sent from here, for %s: %s", why, names)


def _hosts(asked: Arguments) -> tuple[str, ...]:
    before = len(asked.problems)
    hosts = asked.each("hosts", bound_host, high=MAX_HOSTS)
    if len(asked.problems) > before:
        return ()
    try:
        return bound_hosts(hosts)
    except ValueError as error:
        asked.problem("hosts", str(error))
        return ()


def list_secrets(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The secrets by name, each with its hosts; no value is ever told."""
    Arguments(arguments).done()
    kept = service.store.secrets(caller.owner.tenant)
    return {"secrets": [secret_document(secret) for secret in kept]}


def delete_secret(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Forget a secret; requests that need it are not sent from then on, and say why."""
    name = read_name(arguments)
    note = caller.signed(f"secret {name}")(None, None, now=service.store.clock())
    return secret_document(forget(service.store, caller.owner.tenant, name, note))


def read_name(arguments: Mapping[str, Any]) -> str:
    """Which secret is meant."""
    asked = Arguments(arguments, repeats=False)
    name = asked.read("name", secret_name)
    asked.done()
    return name


def forget(store: Store, tenant: str, name: str, note: AuditEntry | None = None) -> Secret:
    """Remove a secret, with a note of who asked; what it was. NotFound when there is none of that name."""
    gone = store.forget_secret(tenant, name, note=note)
    if gone is None:
        raise NotFound("there is no secret of that name", field="name")
    return gone


def secret_document(secret: Secret) -> dict[str, Any]:
    """What is told of a secret."""
    return {
        "name": secret.name,
        "hosts": list(secret.hosts),
        "created_at_utc": text(secret.created),
        "updated_at_utc": text(secret.updated),
    }
