"""Secrets that a delivery needs, read from the store and decrypted by the node that sends them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.errors import NoonmarkError
from noonmark.core.signatures import chain_key, chain_proof

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noonmark.core.secret import Secret
    from noonmark.core.urls import Url
    from noonmark.ports.runtime import Seal
    from noonmark.ports.store import SecretStore


class SecretResolver:
    """Reads secrets from the store and decrypts them with this node's keys.

    All methods may block on the store: do not call them on an event loop. Without a seal, no secret can be decrypted.
    """

    def __init__(self, store: SecretStore, seal: Seal | None) -> None:
        self._store, self._seal = store, seal
        self._own_key: bytes | None = None

    def own_key(self) -> bytes:
        """Return the store's own key, from which signing keys are derived."""
        if self._own_key is None:
            self._own_key = self._store.own_key()
        return self._own_key

    def chain(self, tenant: str, occurrence_id: str) -> str | None:
        """Return the proof that a program runs on behalf of an occurrence; None if the store has no usable key."""
        try:
            return chain_proof(chain_key(self.own_key(), tenant), occurrence_id=occurrence_id)
        except NoonmarkError:
            return None

    def headers(self, tenant: str, secret_headers: Mapping[str, str], url: Url) -> dict[str, str]:
        """Return the values of headers, each from the secret that it names; ValueError if one cannot be sent there."""
        names = set(secret_headers.values())
        secrets = {secret.name: secret for secret in self._store.find_secrets(tenant, names)}
        return {
            header: self._value(tenant, header, name, secrets.get(name), url) for header, name in secret_headers.items()
        }

    def provider_key(self, tenant: str, name: str, url: Callable[[], Url]) -> str | None:
        """Return a tenant's own key of a provider of models; None without such a secret.

        ValueError if it is not bound to the address of the provider.
        """
        secret = next(iter(self._store.find_secrets(tenant, {name})), None)
        if secret is None:
            return None
        needed = "the model needs it, so it was not called"
        if not secret.is_bound_to(where := url()):
            raise ValueError(f"secret {name} {secret.misfit(where)}; {needed}")
        return self._open(tenant, name, secret, needed)

    def variables(self, tenant: str, secret_env: Mapping[str, str], program: str) -> dict[str, str]:
        """Return environment variables, each from the secret that it names; ValueError if one cannot be given."""
        secrets = {one.name: one for one in self._store.find_secrets(tenant, set(secret_env.values()))}
        values = {}
        for variable, name in secret_env.items():
            secret, needed = secrets.get(name), f"the variable {variable} needs it, so nothing was started"
            if secret is not None and (misfit := secret.program_misfit(program)) is not None:
                raise ValueError(f"secret {name} {misfit}; {needed}")
            values[variable] = self._open(tenant, name, secret, needed)
        return values

    def _value(self, tenant: str, header: str, name: str, secret: Secret | None, url: Url) -> str:
        needed = f"the header {header} needs it, so nothing was sent"
        if secret is not None and not secret.is_bound_to(url):
            raise ValueError(f"secret {name} {secret.misfit(url)}; {needed}")
        return self._open(tenant, name, secret, needed)

    def _open(self, tenant: str, name: str, secret: Secret | None, needed: str) -> str:
        if secret is None:
            raise ValueError(f"secret {name} does not exist any more; {needed}")
        if self._seal is None:
            raise ValueError(f"this node has no secret_key to decrypt secret {name} with; {needed}")
        value = self._seal.open(tenant, name, secret.sealed)
        if value is None:
            raise ValueError(f"no key in the secret_key of this node decrypts secret {name}; {needed}")
        return value
