"""Secrets of a program: what the requests that it schedules carry, and nobody can read in its store; and their key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from noonmark.core.signatures import tenant_key
from noonmark.embedded.desk import OWNER

if TYPE_CHECKING:
    from noonmark.core.secret import Secret
    from noonmark.core.signatures import KeySettings
    from noonmark.ports.seal import Seal
    from noonmark.ports.store import Store


class _Seals(Protocol):
    """What it needs of a scheduler."""

    _store: Store
    _seal: Seal | None
    _keys: KeySettings

    def _check_open(self) -> None: ...


class Secrecy:
    """Secrets by name. They are sealed with the `secret_key` of the scheduler, and no value is ever told again."""

    def set_secret(self: _Seals, name: str, value: str, *, hosts: Iterable[str]) -> Secret:
        """Keep a secret that requests to these hosts may carry; one of that name gets the new value and hosts.

        A host is `api.example.com`, `api.example.com:8443`, or `*.example.com` for all below that one. The value is the
        whole of a header: `Bearer` and a token, for instance.
        """
        from noonmark.operations import secrets  # noqa: PLC0415 - a program without secrets does not need it

        self._check_open()
        given = secrets.read_secret({"name": name, "value": value, "hosts": _several(hosts)})
        return secrets.store_secret(self._store, self._seal, OWNER.tenant, given)

    def secrets(self: _Seals) -> list[Secret]:
        """The secrets by name, each with its hosts."""
        self._check_open()
        return self._store.secrets(OWNER.tenant)

    def delete_secret(self: _Seals, name: str) -> Secret:
        """Forget a secret; requests that need it are not sent from then on, and say why."""
        from noonmark.operations import secrets  # noqa: PLC0415 - as above

        self._check_open()
        return secrets.remove_secret(self._store, OWNER.tenant, secrets.read_name({"name": name}))

    def signing_key(self: _Seals) -> str:
        """The key that requests are signed with, for the receivers that check them with `noonmark.client.verify`.

        It is the `signing_key` that the scheduler was given, or one that follows from a key which the store has drawn
        for itself, and is the same for all who use that store.
        """
        self._check_open()
        return tenant_key(self._keys, self._store.own_key(), OWNER.tenant)


def _several(hosts: object) -> object:
    """A list, unless it is one text, or nothing to go through: that is refused by whoever reads it."""
    return hosts if isinstance(hosts, str) or not isinstance(hosts, Iterable) else list(hosts)
