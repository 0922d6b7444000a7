"""Whom a command asks: a server over HTTP, or, if a store is named, the operations themselves in this process.

Never one where the other was meant: without a server there is an error, not a store of this machine.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from noonmark.core.errors import Conflict, InvalidRequest, NotFound, Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from noonmark.cli.options import Place
    from noonmark.client import Client
    from noonmark.client.uploads import Sink
    from noonmark.operations.service import Service

SERVER = "http://127.0.0.1:8001"
CHAIN = "NOONMARK_CHAIN"
"""Where a program that a node has started finds which run it is the work of."""
VARIABLE = "NOONMARK_SERVER"
MAKERS = frozenset({"schedule/create", "schedule/upsert", "event/emit", "secret/set"})
"""Whoever asks for one of these may begin with a new file; all else is about what is in it already."""
LOOKERS = frozenset({"doctor"})
"""Those that take a store as it is, and do not bring it up to date."""
KEYED = frozenset({"secret/set", "signing/key", "occurrence/complete", "occurrence/fail"})
"""Those that need the keys of the settings; no other asks for settings at all."""

NO_FILES = "files are kept by servers, not in a store; name one with --server"


class Remote(Protocol):
    """Whoever carries out operations, by their names."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Do it and give the answer; raises the error of whoever did it."""

    def upload(self, file: str, *, key: str | None, **said: str | None) -> dict[str, Any]:
        """Send a file, and give what is told of it."""

    def download(self, upload_id: str, to: Sink) -> int:
        """Write what is in an upload, and give the number of bytes."""

    def close(self) -> None:
        """Let go of it."""


@contextmanager
def connected(place: Place) -> Iterator[Remote]:
    """Whom the options name."""
    if place.store is not None and place.server is not None:
        raise InvalidRequest("cannot stand beside --server: name one of them", field="--store")
    remote = _to_server(place.server) if place.store is None else OnStore(place.store)
    try:
        yield remote
    finally:
        remote.close()


def _to_server(url: str | None) -> Remote:
    from noonmark.client import Client  # noqa: PLC0415 - the operations on a store need no HTTP

    address = url or os.environ.get(VARIABLE) or SERVER
    try:
        return OnServer(Client(address))
    except InvalidRequest as error:
        raise InvalidRequest(error.message, field=VARIABLE if url is None else "--server") from None


class OnServer:
    """A server; where none answers, the error says what can be done about it."""

    def __init__(self, client: Client) -> None:
        """Nothing is sent yet."""
        self._client = client

    def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the server."""
        with self._helping():
            return self._client.call(name, arguments)

    def upload(self, file: str, *, key: str | None, **said: str | None) -> dict[str, Any]:
        """Send it to the server."""
        from noonmark.client import uploads  # noqa: PLC0415 - as the client itself

        with self._helping():
            kept = self._client.upload(file, idempotency_key=key, **said)
        return uploads.document(kept)

    def download(self, upload_id: str, to: Sink) -> int:
        """Get it from the server."""
        with self._helping():
            return self._client.download(upload_id, to)

    @contextmanager
    def _helping(self) -> Iterator[None]:
        try:
            yield
        except Unreachable as error:
            told = error.message if error.message.endswith("?") else f"{error.message}."
            raise Unreachable(
                f"{told} Start a server with `noonmark serve`, name another one with --server or {VARIABLE}, or work on"
                " a store itself with --store sqlite:///noonmark.db"
            ) from None

    def close(self) -> None:
        """Hang up."""
        self._client.close()


class OnStore:
    """The operations on a store, in this process; a driver elsewhere sees what they change by itself."""

    def __init__(self, url: str) -> None:
        """Nothing is opened yet. A file that is not there may be made, a database on a server is taken as it is."""
        from noonmark.clocks import SystemClock  # noqa: PLC0415 - whoever asks a server needs none of these
        from noonmark.operations.service import LOCAL, Service  # noqa: PLC0415 - likewise
        from noonmark.operations.table import perform  # noqa: PLC0415 - likewise
        from noonmark.ports.runtime import Timing  # noqa: PLC0415 - likewise
        from noonmark.wiring import MEMORY, file_of, fresh_id, make_store  # noqa: PLC0415 - likewise

        if url == MEMORY:
            raise InvalidRequest("would be gone when this command ends; name a store that lasts", field="--store")
        clock = SystemClock()
        self._store = make_store(url, clock, migrates=False)
        service = Service(
            store=self._store,
            lookahead=Timing().lookahead,
            fresh_id=partial(fresh_id, clock),
            machine=clock.micros,
        )
        self._service, self._perform = (
            service,
            partial(perform, caller=replace(LOCAL, source="cli", chain=os.environ.get(CHAIN, ""))),
        )
        self._file = file_of(url)
        self._is_open = False

    def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Carry it out here."""
        if not self._is_open:
            if self._file is not None and name not in MAKERS and not self._file.exists():
                raise NotFound(f"there is no file {self._file}", field="--store")
            if name not in LOOKERS:
                self._store.open()
                self._is_open = True
        service = _with_keys(self._service) if name in KEYED else self._service
        return self._perform(service, name=name, arguments=arguments)

    def upload(self, file: str, *, key: str | None, **said: str | None) -> dict[str, Any]:  # noqa: ARG002 - as the other
        """A store keeps no files."""
        raise Conflict(NO_FILES)

    def download(self, upload_id: str, to: Sink) -> int:  # noqa: ARG002 - as the other
        """Nor does it give any back."""
        raise Conflict(NO_FILES)

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()


def _with_keys(service: Service) -> Service:
    """With the keys that a server in this place would go by."""
    from noonmark.core.signatures import KeySettings  # noqa: PLC0415 - likewise
    from noonmark.server.config import load  # noqa: PLC0415 - no other operation needs a setting
    from noonmark.wiring import make_seal  # noqa: PLC0415 - likewise

    found = load({}, os.environ).settings
    keys = KeySettings(signing_key=found.signing_key, secret_key=found.secret_key)
    return replace(service, seal=make_seal(found.secret_key), keys=keys)
