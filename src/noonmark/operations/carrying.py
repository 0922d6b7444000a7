"""Carrying: whether the requests of a schedule may carry the secrets that their headers name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.errors import refusal
from noonmark.core.secret import header_problems
from noonmark.core.targets.http import HttpTarget

if TYPE_CHECKING:
    from noonmark.core.targets import Target
    from noonmark.ports.vault import Vault


async def check_secrets(vault: Vault, tenant: str, target: Target) -> None:
    """Refuse a target that names a secret which is not there, or not for its host; whoever sends it judges again."""
    if not isinstance(target, HttpTarget) or not target.secret_headers:
        return
    known = await vault.find_secrets(tenant, set(target.secret_headers.values()))
    problems = header_problems(target.secret_headers, target.url, {secret.name: secret for secret in known})
    if problems:
        raise refusal(problems)
