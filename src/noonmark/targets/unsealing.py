"""Unsealing: the secrets that a request carries, fetched and judged by the node that is about to send it.

The key of the store, from which those follow that requests are signed with, is fetched likewise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.errors import NoonmarkError
from noonmark.core.signatures import chain_key, chain_proof

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.secret import Secret
    from noonmark.core.urls import Url
    from noonmark.ports.seal import Seal
    from noonmark.ports.store import SecretStore


class Unsealer:
    """Reads secrets from the store, and opens them with the keys of this node."""

    def __init__(self, vault: SecretStore, seal: Seal | None) -> None:
        """Without a seal it can open none, and says so."""
        self._vault, self._seal = vault, seal
        self._own_key: bytes | None = None

    def own_key(self) -> bytes:
        """The key of the store itself. The store may block: not for the thread of an event loop."""
        if self._own_key is None:
            self._own_key = self._vault.own_key()
        return self._own_key

    def chain(self, tenant: str, occurrence_id: str) -> str | None:
        """What proves which occurrence a program is the work of; None where the store has no key to tell."""
        try:
            return chain_proof(chain_key(self.own_key(), tenant), occurrence_id=occurrence_id)
        except NoonmarkError:
            return None

    def headers(self, tenant: str, wanted: Mapping[str, str], url: Url) -> dict[str, str]:
        """The values of headers, each from the secret it names; a ValueError says why one cannot be sent there.

        The store may block: not for the thread of an event loop.
        """
        found = {secret.name: secret for secret in self._vault.find_secrets(tenant, set(wanted.values()))}
        return {header: self._value(tenant, header, name, found.get(name), url) for header, name in wanted.items()}

    def _value(self, tenant: str, header: str, name: str, secret: Secret | None, url: Url) -> str:
        needs = f"the header {header} needs it, so nothing was sent"
        if secret is None:
            raise ValueError(f"there is no secret {name} any more; {needs}")
        if not secret.is_bound_to(url):
            raise ValueError(f"the secret {name} {secret.misfit(url)}; {needs}")
        if self._seal is None:
            raise ValueError(f"this node has no secret_key to open the secret {name} with; {needs}")
        value = self._seal.open(tenant, name, secret.sealed)
        if value is None:
            raise ValueError(f"no key in the secret_key of this node opens the secret {name}; {needs}")
        return value
