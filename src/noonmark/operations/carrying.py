"""Carrying: whether requests may carry the secrets that their headers name, and what their receivers tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.errors import refusal
from noonmark.core.redaction import Redactor
from noonmark.core.secret import header_problems
from noonmark.core.targets.http import HttpTarget

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.core.targets import Target
    from noonmark.ports.seal import Seal
    from noonmark.ports.store import SecretStore

NOT_KEPT = "not kept: a secret of this request has changed since it was sent"


def check_secrets(vault: SecretStore, tenant: str, target: Target) -> None:
    """Refuse a target that names a secret which is not there, or not for its host; whoever sends it judges again."""
    if not isinstance(target, HttpTarget) or not target.secret_headers:
        return
    known = vault.find_secrets(tenant, set(target.secret_headers.values()))
    problems = header_problems(target.secret_headers, target.address, {secret.name: secret for secret in known})
    if problems:
        raise refusal(problems)


def conceal(vault: SecretStore, seal: Seal | None, schedule: Schedule, occurrence: Occurrence) -> Redactor | None:
    """What takes the secrets of a request out of what its receiver tells later.

    None where one of them is not known any more, since it was changed or deleted, or cannot be opened here: then
    nothing of what is told can be kept.
    """
    tenant, started = schedule.owner.tenant, occurrence.started or 0
    if occurrence.revision == schedule.revision:
        names = secret_names(schedule.declaration.target)
        known = vault.find_secrets(tenant, names) if names else []
    else:  # the target may be another by now, so it may have been any of them
        names, known = set(), vault.secrets(tenant)
    values = [
        seal.open(tenant, secret.name, secret.sealed) if seal is not None and secret.updated < started else None
        for secret in known
    ]
    opened = [value for value in values if value is not None]
    is_known = len(opened) == len(values) and names <= {secret.name for secret in known}
    return Redactor(opened) if is_known else None


def without_secrets(told: Any, hidden: Redactor | None) -> Any:  # noqa: ANN401 - JSON
    """What is kept of a text, or other JSON, that a receiver told."""
    if told is None:
        return None
    return NOT_KEPT if hidden is None else hidden.json(told)


def secret_names(target: Target) -> set[str]:
    """The secrets that a target names."""
    return set(target.secret_headers.values()) if isinstance(target, HttpTarget) else set()
