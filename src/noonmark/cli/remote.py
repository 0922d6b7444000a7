"""Where commands are carried out: a server over HTTP, or a store in this process.

There is no fallback from one to the other: without a server a command fails, and never uses a local store.
"""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from noonmark.cli.credentials import KEY_VARIABLE, find_key
from noonmark.cli.output import progress_bar
from noonmark.core.documents import present
from noonmark.core.errors import (
    Conflict,
    InvalidRequest,
    InvalidSchedule,
    NotAllowed,
    NotFound,
    Unauthenticated,
    Unreachable,
)
from noonmark.core.json_values import IDENTIFIER, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from noonmark.cli.options import Connection
    from noonmark.client import Client
    from noonmark.client.uploads import Sink
    from noonmark.operations.service import Service

DEFAULT_SERVER = "http://127.0.0.1:8001"
SERVER_VARIABLE = "NOONMARK_SERVER"
CA_VARIABLE = "NOONMARK_CA_FILE"
CHAIN_VARIABLE = "NOONMARK_CHAIN"
"""Tells a program that a node started which run it belongs to."""
PUSH = "bundle/push"
CREATING = frozenset(
    {
        "schedule/create",
        "schedule/upsert",
        "workflow/create",
        "session/create",
        "mob/create",
        "schedule/tools",
        "schedule/call",
        "event/emit",
        "secret/set",
        "key/create",
        PUSH,
    }
)
"""Operations that may create the SQLite file; the others need an existing one."""
UNCHECKED = frozenset({"doctor"})
"""Operations that use a store as it is, whatever the version of its schema."""
KEYED = frozenset({"secret/set", "signing/key", "occurrence/complete", "occurrence/fail"})
"""Operations that need the keys of the settings."""
MAX_SAME_NAME = 10
"""How many ids an error names when several schedules have the same name."""
MAX_PAGE = 1_000
"""The largest page of a list."""
NO_UPLOADS = "a store has no uploads; name a server with --server"


class Remote(Protocol):
    """Carries out operations by name."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out an operation and return its answer; raises its error."""

    def upload(self, file: str, *, key: str | None, **metadata: str | None) -> dict[str, Any]:
        """Send a file and return its upload document."""

    def download(self, upload_id: str, to: Sink) -> int:
        """Write the content of an upload and return the number of bytes."""

    def push(self, path: str, *, bundle_id: str | None = None, declare: bool = True) -> dict[str, Any]:
        """Push a bundle, a folder or a zip file, and return what was done."""

    def node(self, occurrence_id: str) -> AbstractContextManager[None]:
        """Make sure that a node runs an occurrence: a server has one, and for a store one is started here."""

    def close(self) -> None:
        """Release the connection or the store."""


@contextmanager
def connect(connection: Connection, *, timeout: float | None = None, is_agent: bool = False) -> Iterator[Remote]:
    """Use the server or store that the options name; a timeout, in seconds, is for a server.

    What an agent does in a store is recorded as such; at a server its key says so.
    """
    if connection.store is not None and connection.server is not None:
        raise InvalidRequest("conflicts with --server: give one of them", field="--store")
    if connection.store is not None and (connection.key is not None or connection.key_file is not None):
        raise InvalidRequest("needs no key: anyone who can open a store may do everything", field="--store")
    if connection.store is not None and connection.ca_file is not None:
        raise InvalidRequest("calls no server, so there is no certificate to check", field="--store")
    remote = (
        _server(connection, timeout)
        if connection.store is None
        else StoreRemote(connection.store, connection.as_tenant, is_agent=is_agent)
    )
    try:
        yield ByName(remote)
    finally:
        remote.close()


def _server(connection: Connection, timeout: float | None) -> Remote:
    from noonmark.client import Client

    address = connection.server or os.environ.get(SERVER_VARIABLE) or DEFAULT_SERVER
    key = find_key(connection, address)
    try:
        limit = {} if timeout is None else {"timeout": timeout}
        ca_file = connection.ca_file or os.environ.get(CA_VARIABLE) or None
        return ServerRemote(Client(address, key=key, tenant=connection.as_tenant, ca_file=ca_file, **limit))
    except InvalidRequest as error:
        source = SERVER_VARIABLE if connection.server is None else "--server"
        authorities = CA_VARIABLE if connection.ca_file is None else "--ca-file"
        fields = {"base_url": source, "tenant": "--as-tenant", "ca_file": authorities}
        field = fields.get(error.field, error.field)
        raise InvalidRequest(error.message, field=field) from None


def read_pages(remote: Remote, name: str, arguments: Mapping[str, Any], *, entries: str, limit: int) -> dict[str, Any]:
    """Read up to `limit` entries of a list, page by page; the cursor of the answer continues after them."""
    if limit < 1:
        raise InvalidRequest(f"must be at least 1, not {shown(limit)}", field="--limit")
    rows: list[Any] = []
    cursor: str | None = None
    warnings: list[str] = []
    with progress_bar("Reading", limit if limit > MAX_PAGE else None) as advance:
        while True:
            page = {**arguments, "limit": min(limit - len(rows), MAX_PAGE)}
            answer = remote.call(name, page if cursor is None else {**page, "cursor": cursor})
            rows += answer[entries]
            warnings += answer.get("warnings", [])
            advance(len(answer[entries]))
            cursor = answer["next_cursor"]
            if cursor is None or len(rows) >= limit:
                return {entries: rows, "next_cursor": cursor} | present(warnings=warnings or None)


def list_nodes(remote: Remote) -> list[dict[str, Any]] | None:
    """The nodes; None where the caller may not see them."""
    try:
        nodes: list[dict[str, Any]] = remote.call("node/list", {})["nodes"]
    except NotAllowed:
        return None
    return nodes


def nodes_of_open(remote: Remote, runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The nodes, as far as they are known, if one of the runs has not ended."""
    return list_nodes(remote) or [] if any(run["outcome"] is None for run in runs) else []


def push_or_find(remote: Remote, bundle: str) -> dict[str, Any]:
    """The bundle that a command names: a path is pushed, without its schedules; anything else is an id."""
    if Path(bundle).exists():
        return remote.push(bundle, declare=False)
    try:
        return remote.call("bundle/get", {"bundle_id": bundle})
    except (NotFound, InvalidRequest):
        raise NotFound("no such file or folder, and no bundle with that id", field=bundle) from None


class ByName:
    """Takes the name of a schedule where an operation takes its id, if one schedule alone has that name."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self.upload, self.download, self.close = remote.upload, remote.download, remote.close
        self.push, self.node = remote.push, remote.node

    def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out the operation; if there is no schedule with that id, on the one with that name."""
        try:
            return self._remote.call(name, arguments)
        except (NotFound, InvalidRequest) as error:
            given = arguments.get("schedule_id")
            if error.field != "schedule_id" or not isinstance(given, str) or name in CREATING:
                raise
            schedule_id = self._find(given)
            if schedule_id is None:
                if IDENTIFIER.fullmatch(given):
                    raise
                raise InvalidRequest(f"no schedule has the id or name {given!r}", field="schedule_id") from None
        return self._remote.call(name, {**arguments, "schedule_id": schedule_id})

    def _find(self, name: str) -> str | None:
        """The id of the only schedule with that name; None if there is none."""
        try:
            page = self._remote.call("schedule/list", {"name": name, "limit": MAX_SAME_NAME + 1})["schedules"]
        except (InvalidRequest, InvalidSchedule):  # no schedule can have such a name
            return None
        ids = [schedule["schedule_id"] for schedule in page]
        if len(ids) > 1:
            listed = ", ".join(ids[:MAX_SAME_NAME]) + (" and others" if len(ids) > MAX_SAME_NAME else "")
            raise Conflict(
                f"several schedules have the name {name!r}: give the id, one of {listed}", field="schedule_id"
            )
        return ids[0] if ids else None


class ServerRemote:
    """A server. If it cannot be reached, the error says what to do."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call the server."""
        with self._advice():
            return self._client.call(name, arguments)

    def upload(self, file: str, *, key: str | None, **metadata: str | None) -> dict[str, Any]:
        """Send a file to the server."""
        from noonmark.client import uploads

        with self._advice():
            upload = self._client.upload(file, idempotency_key=key, **metadata)
        return uploads.document(upload)

    def download(self, upload_id: str, to: Sink) -> int:
        """Get a file from the server."""
        with self._advice():
            return self._client.download(upload_id, to)

    def push(self, path: str, *, bundle_id: str | None = None, declare: bool = True) -> dict[str, Any]:
        """Push a bundle to the server."""
        from noonmark.client import bundles

        with self._advice():
            return bundles.document(self._client.push_bundle(path, bundle_id=bundle_id, declare=declare))

    def node(self, occurrence_id: str) -> AbstractContextManager[None]:  # noqa: ARG002 - protocol
        """The server has one."""
        return nullcontext()

    @contextmanager
    def _advice(self) -> Iterator[None]:
        try:
            yield
        except Unauthenticated as error:
            raise Unauthenticated(
                f"{error.message}. Give a key with `noonmark login`, --key-file or {KEY_VARIABLE}"
            ) from None
        except Unreachable as error:
            from noonmark.client.transport import NOT_SENT, is_untrusted, lacks_tls

            if is_untrusted(error):
                raise Unreachable(
                    f"{error.message}. If a private authority has signed it, name that with --ca-file or {CA_VARIABLE}"
                ) from None
            if lacks_tls(error):
                raise
            # The message of such an error already names the command that starts one.
            end = " Name" if isinstance(error.__cause__, NOT_SENT) else ". Start a server with `noonmark serve`, name"
            raise Unreachable(
                f"{error.message}{end} another one with --server or {SERVER_VARIABLE},"
                " or use a store directly with --store sqlite:///noonmark.db"
            ) from None

    def close(self) -> None:
        """Close the client."""
        self._client.close()


class StoreRemote:
    """The operations on a store, in this process. Nodes that use the same store see the changes."""

    def __init__(self, url: str, tenant: str | None = None, *, is_agent: bool = False) -> None:
        """Prepare the store; the first call opens it. Its schema is never upgraded here."""
        from noonmark.clocks import SystemClock
        from noonmark.operations.service import LOCAL
        from noonmark.operations.table import perform
        from noonmark.wiring import MEMORY, file_of

        if url == MEMORY:
            raise InvalidRequest("is lost when this command ends; name a durable store", field="--store")
        self._url, self._file = url, file_of(url)
        self._clock = SystemClock()
        self._service = self._make_service(creates_file=False)
        source, chain = "mcp" if is_agent else "cli", os.environ.get(CHAIN_VARIABLE, "")
        caller = replace(LOCAL, source=source, opens_store=True, is_agent=is_agent, chain=chain)
        if tenant is not None:
            caller = replace(caller, owner=replace(caller.owner, tenant=_tenant(tenant)))
        self._caller, self._perform = caller, partial(perform, caller=caller)
        self._is_open = False

    def _make_service(self, *, creates_file: bool) -> Service:
        """The service over a store that is not open yet."""
        from noonmark.operations.service import BundleLimits, Service
        from noonmark.ports.runtime import Timing
        from noonmark.wiring import disk_space, fresh_id, make_store, store_option, zone_data_version

        return Service(
            store=make_store(self._url, self._clock, migrates=False, creates_file=creates_file),
            lookahead=Timing().lookahead,
            fresh_id=partial(fresh_id, self._clock),
            machine_clock=self._clock.micros,
            zone_data=zone_data_version(),
            disks=partial(disk_space, self._url, None),
            reach=store_option(self._url),
            # Who can write the file can do more than a bundle can; a server shares its database with others.
            bundle_limits=None if self._file is None else BundleLimits(),
        )

    def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out the operation on the store."""
        self._open(name)
        service = _with_keys(self._service) if name in KEYED else self._service
        return self._perform(service, name=name, arguments=arguments)

    def _open(self, name: str) -> None:
        if not self._is_open:
            if self._file is not None and name not in CREATING and not self._file.exists():
                message = f"there is no file {self._file}; `noonmark migrate --store {self._url}` creates it"
                raise NotFound(message, field="--store")
            if name in CREATING:
                self._service = self._make_service(creates_file=True)
            if name not in UNCHECKED:
                self._service.store.open()
                self._is_open = True

    def upload(self, file: str, *, key: str | None, **metadata: str | None) -> dict[str, Any]:  # noqa: ARG002 - protocol
        """Refuse: only servers have uploads."""
        raise Conflict(NO_UPLOADS)

    def download(self, upload_id: str, to: Sink) -> int:  # noqa: ARG002 - protocol
        """Refuse: only servers have uploads."""
        raise Conflict(NO_UPLOADS)

    def push(self, path: str, *, bundle_id: str | None = None, declare: bool = True) -> dict[str, Any]:
        """Push a bundle into the store."""
        from noonmark.client import bundles, uploads
        from noonmark.operations.bundles import Intake

        with bundles.open_bundle(path) as stream:
            self._open(PUSH)
            intake = Intake(self._service, self._caller, bundle_id)
            try:
                for data in uploads.read_chunks(stream):
                    intake.write(data)
                return intake.finish(bundles.archive_name(path), declares=declare)
            finally:
                intake.drop()

    @contextmanager
    def node(self, occurrence_id: str) -> Iterator[None]:
        """Run the occurrence in this process."""
        from noonmark.embedded.scheduler import Scheduler
        from noonmark.server.config import load

        logging.getLogger("noonmark").addHandler(logging.NullHandler())  # the command says itself what happened
        keys = load({}, os.environ).settings
        scheduler = Scheduler(self._url, allow_bundles=True, secret_key=keys.secret_key, signing_key=keys.signing_key)
        try:
            with scheduler._running(occurrence_id):  # noqa: SLF001 - there is no public way to run a single one
                yield
        finally:
            scheduler.close()

    def close(self) -> None:
        """Close the store."""
        self._service.store.close()


def _tenant(name: str) -> str:
    from noonmark.core.api_key import tenant_name

    try:
        return tenant_name(name)
    except ValueError as error:
        raise InvalidRequest(str(error), field="--as-tenant") from None


def _with_keys(service: Service) -> Service:
    """The service with the keys that a server started here would use."""
    from noonmark.core.signatures import KeySettings
    from noonmark.server.config import load
    from noonmark.wiring import make_seal

    settings = load({}, os.environ).settings
    keys = KeySettings(signing_key=settings.signing_key, secret_key=settings.secret_key)
    return replace(service, seal=make_seal(settings.secret_key), keys=keys)
