"""Secrets: set, list, delete; the check of targets that name them, and their redaction from what receivers report.

Answers contain the name and the hosts of a secret, never its value.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from noonmark.core.errors import Conflict, NotFound, QuotaExceeded, refusal
from noonmark.core.redaction import Redactor
from noonmark.core.secret import (
    MAX_HOSTS,
    MAX_PROGRAMS,
    MAX_SECRETS,
    Secret,
    bound_host,
    bound_hosts,
    bound_program,
    header_problems,
    secret_name,
    secret_value,
    variable_problems,
)
from noonmark.core.signatures import given_key, tenant_key
from noonmark.core.targets import CommandTarget
from noonmark.core.targets.http import HttpTarget
from noonmark.operations.models.fields import ArgumentReader
from noonmark.operations.serializers import secret_document
from noonmark.operations.service import record_audit_entry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import AuditEntry, Schedule
    from noonmark.core.targets import Target
    from noonmark.operations.models.arguments import NoArguments
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.runtime import Seal
    from noonmark.ports.store import SecretStore, Store

logger = logging.getLogger("noonmark.secrets")
MAX_NAMED = 20
"""How many unreadable secrets a warning names."""
NOT_KEPT = "not kept: a secret of this request has changed since it was sent"


class NewSecret(NamedTuple):
    """A secret before it is sealed."""

    name: str
    value: str
    hosts: tuple[str, ...]
    programs: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Without its value."""
        return f"NewSecret({self.name!r})"


def set_secret(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Set a secret for requests to some hosts, or for some programs; an existing one gets the new value, and these."""
    given, now = read_secret(arguments), service.store.clock()
    entry = caller.audit(f"secret {given.name}")(None, None, now=now)
    return secret_document(store_secret(service.store, service.seal, caller.owner.tenant, given, entry))


def list_secrets(service: Service, caller: Caller, arguments: NoArguments) -> dict[str, Any]:  # noqa: ARG001 - a handler
    """List the secrets by name, each with its hosts and programs and without its value."""
    stored = service.store.secrets(caller.owner.tenant)
    return {"secrets": [secret_document(secret) for secret in stored]}


def delete_secret(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Delete a secret; requests that need it are no longer sent, and say why."""
    name = read_name(arguments)
    entry = caller.audit(f"secret {name}")(None, None, now=service.store.clock())
    return secret_document(remove_secret(service.store, caller.owner.tenant, name, entry))


def get_signing_key(service: Service, caller: Caller, arguments: NoArguments) -> dict[str, Any]:  # noqa: ARG001 - a handler
    """Get the key that requests are signed with, for receivers that verify them; the access is recorded."""
    tenant = caller.owner.tenant
    key = given_key(service.keys, tenant) or tenant_key(service.keys, service.store.own_key(), tenant)
    record_audit_entry(service, caller)
    return {"signing_key": key}


def read_secret(arguments: Mapping[str, Any]) -> NewSecret:
    """Read a new secret; InvalidRequest lists all problems, and repeats nothing of the value."""
    reader = ArgumentReader(arguments, repeats=False)
    name, value = reader.read("name", secret_name), reader.read("value", secret_value)
    programs = reader.each("programs", bound_program, high=MAX_PROGRAMS)
    hosts = _hosts(reader, programs)
    reader.done()
    return NewSecret(name, value, hosts, tuple(dict.fromkeys(programs)))


def read_name(arguments: Mapping[str, Any]) -> str:
    """Read the name of a secret."""
    reader = ArgumentReader(arguments, repeats=False)
    name = reader.read("name", secret_name)
    reader.done()
    return name


def _hosts(reader: ArgumentReader, programs: tuple[str, ...]) -> tuple[str, ...]:
    before = len(reader.problems)
    hosts = reader.each("hosts", bound_host, high=MAX_HOSTS)
    if len(reader.problems) > before:
        return ()
    try:
        return bound_hosts(hosts, programs)
    except ValueError as error:
        reader.problem("hosts", str(error))
        return ()


def store_secret(
    store: Store, seal: Seal | None, tenant: str, given: NewSecret, entry: AuditEntry | None = None
) -> Secret:
    """Seal a secret and store it with its audit entry; Conflict if there is no key to seal it with."""
    if seal is None:
        raise Conflict(
            "there is no key to seal it with: put the output of `noonmark secret key` into the setting secret_key, the"
            " same on every node, best as the variable NOONMARK_SECRET_KEY, and start again"
        )
    now = store.clock()
    sealed = seal.close(tenant, given.name, given.value)
    secret = Secret(
        name=given.name, hosts=given.hosts, sealed=sealed, created=now, updated=now, programs=given.programs
    )
    stored = store.put_secret(tenant, secret, most=MAX_SECRETS, note=entry)
    if stored is None:
        raise QuotaExceeded(f"there are {MAX_SECRETS:,} secrets already; delete one", field="name")
    return stored


def remove_secret(store: Store, tenant: str, name: str, entry: AuditEntry | None = None) -> Secret:
    """Delete a secret with its audit entry, and return it; NotFound if there is none of that name."""
    removed = store.forget_secret(tenant, name, note=entry)
    if removed is None:
        raise NotFound("there is no secret of that name", field="name")
    return removed


def warn_of_unreadable(service: Service, tenant: str) -> None:
    """Log the secrets that this node cannot open: it does not send requests that need them."""
    stored, seal = service.store.secrets(tenant), service.seal
    unreadable = [one.name for one in stored if seal is None or seal.open(tenant, one.name, one.sealed) is None]
    if not unreadable:
        return
    more = f" and {len(unreadable) - MAX_NAMED:,} more" if len(unreadable) > MAX_NAMED else ""
    why = "there is no secret_key" if seal is None else "no key in secret_key opens them"
    names = ", ".join(unreadable[:MAX_NAMED]) + more
    logger.warning("this node does not send requests that need these secrets, because %s: %s", why, names)


def check_secrets(vault: SecretStore, tenant: str, target: Target, *, field: str = "target") -> None:
    """Refuse a target that names an unknown secret, or one not bound to its host or its program.

    This is checked again when it is delivered.
    """
    names = secret_names(target)
    if not names:
        return
    stored = {secret.name: secret for secret in vault.find_secrets(tenant, names)}
    if isinstance(target, CommandTarget):
        problems = variable_problems(target.secret_env, target.argv[0], stored)
    else:
        assert isinstance(target, HttpTarget)  # noqa: S101 - no other target names secrets
        problems = header_problems(target.secret_headers, target.address, stored)
    if problems:
        raise refusal([replace(problem, field=field + problem.field.removeprefix("target")) for problem in problems])


def redactor_for(vault: SecretStore, seal: Seal | None, schedule: Schedule, occurrence: Occurrence) -> Redactor | None:
    """What removes the secrets of a request from what its receiver reports later.

    None if one of them is no longer known, because it was changed or deleted, or cannot be opened here: then nothing
    that the receiver reports can be kept.
    """
    tenant, started = schedule.owner.tenant, occurrence.started or 0
    if occurrence.revision == schedule.revision:
        names = secret_names(schedule.declaration.target)
        stored = vault.find_secrets(tenant, names) if names else []
    else:  # the target may have been edited, so it may have been any of them
        names, stored = set(), vault.secrets(tenant)
    values = [
        seal.open(tenant, secret.name, secret.sealed) if seal is not None and secret.updated < started else None
        for secret in stored
    ]
    opened = [value for value in values if value is not None]
    is_known = len(opened) == len(values) and names <= {secret.name for secret in stored}
    return Redactor(opened) if is_known else None


def redact(reported: Any, redactor: Redactor | None) -> Any:
    """Reported JSON without the values of secrets; a placeholder for all of it if the secrets are unknown."""
    if reported is None:
        return None
    return NOT_KEPT if redactor is None else redactor.json(reported)


def secret_names(target: Target) -> set[str]:
    """The secrets that a target names."""
    if isinstance(target, CommandTarget):
        return set(target.secret_env.values())
    return set(target.secret_headers.values()) if isinstance(target, HttpTarget) else set()
