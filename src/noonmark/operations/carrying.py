"""Carrying: whether requests may carry the secrets that their headers name, and what their receivers tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.concealing import Concealment
from noonmark.core.errors import refusal
from noonmark.core.secret import header_problems
from noonmark.core.targets.http import HttpTarget

if TYPE_CHECKING:
    from noonmark.core.targets import Target
    from noonmark.ports.seal import Seal
    from noonmark.ports.vault import Vault


async def check_secrets(vault: Vault, tenant: str, target: Target) -> None:
    """Refuse a target that names a secret which is not there, or not for its host; whoever sends it judges again."""
    if not isinstance(target, HttpTarget) or not target.secret_headers:
        return
    known = await vault.find_secrets(tenant, set(target.secret_headers.values()))
    problems = header_problems(target.secret_headers, target.url, {secret.name: secret for secret in known})
    if problems:
        raise refusal(problems)


async def conceal(vault: Vault, seal: Seal | None, tenant: str, target: Target) -> Concealment:
    """What takes the secrets of a target out of what its receiver tells later, as far as they can be opened here."""
    if seal is None or not isinstance(target, HttpTarget) or not target.secret_headers:
        return Concealment(())
    known = await vault.find_secrets(tenant, set(target.secret_headers.values()))
    values = [seal.open(tenant, secret.name, secret.sealed) for secret in known]
    return Concealment(value for value in values if value is not None)
