"""The clients: synchronous and asynchronous, with the same methods."""

from __future__ import annotations

import math
import os
import re
import ssl
import time
from functools import update_wrapper
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import httpx2

from noonmark.client import bundles, requests, uploads
from noonmark.client.transport import read_answer, retry_delay
from noonmark.core.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from os import PathLike
    from typing import BinaryIO

    from noonmark.client.transport import Listing, Outcome, Request
    from noonmark.client.uploads import File, Sink
    from noonmark.operations.models.answers import PushedBundle, Upload

P = ParamSpec("P")
T = TypeVar("T")

BASE_URL = "http://127.0.0.1:8001"
TIMEOUT = 30.0
"""How many seconds to wait for an answer."""
CHAIN = "NOONMARK_CHAIN"
_CREDENTIAL = re.compile(r"[!-~]{1,16384}")
_PROOF = re.compile(r"[A-Za-z0-9._:-]{1,500}")


def _settings(
    base_url: str, timeout: object, key: object, tenant: object, ca_file: str | PathLike[str] | None
) -> dict[str, Any]:
    """The settings of the HTTP client."""
    if key is not None and not (isinstance(key, str) and _CREDENTIAL.fullmatch(key)):
        raise InvalidRequest("must be a key: one word of printable ASCII characters", field="key")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise InvalidRequest(f"must be a number of seconds above 0, not {timeout!r}", field="timeout")
    if tenant is not None and not (isinstance(tenant, str) and _CREDENTIAL.fullmatch(tenant)):
        raise InvalidRequest("must be the name of a tenant", field="tenant")
    credentials = {} if key is None else {"Authorization": f"Bearer {key}"}
    credentials |= {} if tenant is None else {"Noonmark-Tenant": tenant}
    try:
        url = httpx2.URL(base_url)
    except (httpx2.InvalidURL, TypeError):
        url = httpx2.URL()
    if url.scheme not in ("http", "https") or not url.host:
        # Not repeated: it may contain a password.
        raise InvalidRequest(f"must be an address such as {BASE_URL}", field="base_url")
    return {
        "base_url": url,
        "timeout": timeout,
        # Proxies and credentials of the environment are not meant for this.
        "trust_env": False,
        # Loading certificates takes a while, and only https needs them.
        "verify": _authorities(ca_file) if url.scheme == "https" else False,
        "headers": {"User-Agent": "noonmark-client"} | _chain() | credentials,
    }


def _authorities(ca_file: str | PathLike[str] | None) -> ssl.SSLContext | bool:
    """Whom to trust: the usual certificate authorities, or only those of a file."""
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError:
        raise InvalidRequest("must be a file with certificates in PEM format", field="ca_file") from None
    except OSError as error:
        raise InvalidRequest(f"cannot be read: {error.strerror}", field="ca_file") from None


def _chain() -> dict[str, str]:
    """The run that started this program, if a node did: its requests continue the same chain."""
    chain = os.environ.get(CHAIN, "")
    return {"Noonmark-Chain": chain} if _PROOF.fullmatch(chain) else {}


def _add_signature(method: Callable[..., Any], describe: Callable[..., Any], answers: str) -> None:
    """Give a method the name, the docstring and the signature of the function that describes its request."""
    update_wrapper(method, describe)
    del method.__wrapped__  # type: ignore[attr-defined]
    described = signature(describe)
    inner = str(described.return_annotation).partition("[")[2][:-1]
    arguments = [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *described.parameters.values()]
    method.__signature__ = described.replace(  # type: ignore[attr-defined]
        parameters=arguments, return_annotation=answers.format(inner)
    )


def _method(describe: Callable[P, Request[T]]) -> Callable[Concatenate[Client, P], T]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._send(describe(*args, **kwargs))

    _add_signature(method, describe, "{}")
    return method


def _paged_method(describe: Callable[P, Listing[T]]) -> Callable[Concatenate[Client, P], Iterator[T]]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._iterate(describe(*args, **kwargs))

    _add_signature(method, describe, "Iterator[{}]")
    return method


class Client:
    """A client of a Noonmark server. Several threads can share it."""

    def __init__(
        self,
        base_url: str = BASE_URL,
        *,
        key: str | None = None,
        tenant: str | None = None,
        timeout: float = TIMEOUT,
        ca_file: str | PathLike[str] | None = None,
    ) -> None:
        """`key` is an API key or a signed token. `timeout` is in seconds, for each try.

        `tenant` is the one to act for, with a key of tenant `*`. `ca_file` has the certificates, in PEM format, that a
        server with a certificate of a private authority is checked against. Nothing is sent before the first request.
        """
        self._http = httpx2.Client(**_settings(base_url, timeout, key, tenant, ca_file))

    create = _method(requests.create)
    propose = _method(requests.propose)
    upsert = _method(requests.upsert)
    get = _method(requests.get)
    list = _paged_method(requests.list_schedules)
    count = _method(requests.count)
    update = _method(requests.update)
    pause = _method(requests.pause)
    resume = _method(requests.resume)
    delete = _method(requests.delete)
    run_now = _method(requests.run_now)
    pause_many = _method(requests.pause_many)
    resume_many = _method(requests.resume_many)
    delete_many = _method(requests.delete_many)
    label_many = _method(requests.label_many)
    run_many = _method(requests.run_many)
    backfill = _method(requests.backfill)
    backfills = _method(requests.backfills)
    get_backfill = _method(requests.get_backfill)
    pause_backfill = _method(requests.pause_backfill)
    resume_backfill = _method(requests.resume_backfill)
    cancel_backfill = _method(requests.cancel_backfill)
    preview = _method(requests.preview)
    read_crontab = _method(requests.read_crontab)
    check = _method(requests.check)
    occurrences = _paged_method(requests.occurrences)
    search_occurrences = _paged_method(requests.search_occurrences)
    redrive = _method(requests.redrive)
    occurrence = _method(requests.occurrence)
    occurrence_runs = _method(requests.occurrence_runs)
    explain = _method(requests.explain)
    explain_at = _method(requests.explain_at)
    runs = _paged_method(requests.runs)
    run = _method(requests.run)
    complete = _method(requests.complete)
    fail = _method(requests.fail)
    cancel = _method(requests.cancel)
    emit = _method(requests.emit)
    events = _paged_method(requests.events)
    set_secret = _method(requests.set_secret)
    secrets = _method(requests.secrets)
    delete_secret = _method(requests.delete_secret)
    signing_key = _method(requests.signing_key)
    ping_url = _method(requests.ping_url)
    rotate_ping_url = _method(requests.rotate_ping_url)
    match_events = _method(requests.match_events)
    triggers = _paged_method(requests.triggers)
    create_workflow = _method(requests.create_workflow)
    get_workflow = _method(requests.get_workflow)
    workflows = _paged_method(requests.workflows)
    workflow_versions = _paged_method(requests.workflow_versions)
    delete_workflow = _method(requests.delete_workflow)
    run_workflow = _method(requests.run_workflow)
    workflow_run = _method(requests.workflow_run)
    workflow_runs = _paged_method(requests.workflow_runs)
    cancel_workflow_run = _method(requests.cancel_workflow_run)
    create_session = _method(requests.create_session)
    get_session = _method(requests.get_session)
    list_sessions = _paged_method(requests.list_sessions)
    session_messages = _paged_method(requests.session_messages)
    send_message = _method(requests.send_message)
    archive_session = _method(requests.archive_session)
    delete_session = _method(requests.delete_session)
    create_mob = _method(requests.create_mob)
    get_mob = _method(requests.get_mob)
    list_mobs = _paged_method(requests.list_mobs)
    delete_mob = _method(requests.delete_mob)
    approvals = _paged_method(requests.approvals)
    approve = _method(requests.approve)
    deny = _method(requests.deny)
    halt = _method(requests.halt)
    unhalt = _method(requests.unhalt)
    halts = _method(requests.halts)
    proposals = _paged_method(requests.proposals)
    proposal = _method(requests.proposal)
    approve_schedule = _method(requests.approve_schedule)
    deny_schedule = _method(requests.deny_schedule)
    set_budget = _method(requests.set_budget)
    budgets = _paged_method(requests.budgets)
    delete_budget = _method(requests.delete_budget)
    usage = _method(requests.usage)
    record_usage = _method(requests.record_usage)
    forecast_usage = _method(requests.forecast_usage)
    uploads = _paged_method(requests.uploads)
    delete_upload = _method(requests.delete_upload)
    bundles = _paged_method(requests.bundles)
    bundle = _method(requests.bundle)
    run_bundle = _method(requests.run_bundle)
    delete_bundle = _method(requests.delete_bundle)
    create_key = _method(requests.create_key)
    keys = _paged_method(requests.keys)
    revoke_key = _method(requests.revoke_key)
    rotate_key = _method(requests.rotate_key)
    whoami = _method(requests.whoami)
    limits = _method(requests.limits)
    schedule_tools = _method(requests.schedule_tools)
    call_schedule_tool = _method(requests.call_schedule_tool)
    nodes = _method(requests.nodes)
    timeline = _method(requests.timeline)
    revisions = _paged_method(requests.revisions)
    trends = _method(requests.trends)
    overview = _method(requests.overview)
    workload = _method(requests.workload)
    doctor = _method(requests.doctor)
    audit = _paged_method(requests.audit)
    worker_start = _method(requests.worker_start)
    worker_stop = _method(requests.worker_stop)
    worker_confirm_time = _method(requests.worker_confirm_time)
    worker_status = _method(requests.worker_status)
    health = _method(requests.health)
    call = _method(requests.call)

    def upload(
        self,
        file: File,
        *,
        path: str | None = None,
        filename: str | None = None,
        content_type: str | None = None,
        idempotency_key: str | None = None,
    ) -> Upload:
        """Upload a file, and announce it by an event; the same file with the same key again is the same upload.

        The file is given by its name or open for reading, and may have any size. Filters of triggers see its `path`.
        It is sent once: if no answer arrives, send it again with the same key.
        """
        with uploads.open_source(file) as stream:
            request = uploads.upload_request(
                stream, path=path, filename=filename, content_type=content_type, key=idempotency_key
            )
            return read_answer(request, self._try_once(request, uploads.read_chunks(stream)))

    def push_bundle(
        self, path: str | os.PathLike[str], *, bundle_id: str | None = None, declare: bool = True
    ) -> PushedBundle:
        """Push a bundle: a folder with a `manifest.json`, or a zip file of one.

        It is the newest of its id from then on, by default the name in its manifest. The schedules of the manifest are
        declared, unless `declare` is off.
        """
        with bundles.open_bundle(path) as stream:
            request = bundles.push_request(
                stream, bundle_id=bundle_id, declare=declare, filename=bundles.archive_name(path)
            )
            return read_answer(request, self._try_once(request, uploads.read_chunks(stream)))

    def download(self, upload_id: str, to: Sink) -> int:
        """Download an uploaded file to another file, given by its name or open for writing; returns its size.

        A file given by its name is replaced when the download is complete, or not at all.
        """
        request, size = uploads.download_request(upload_id), 0
        with uploads.open_sink(to) as file:
            try:
                with self._http.stream(request.http.method, request.http.path) as answer:
                    if not answer.is_success:
                        answer.read()
                        return read_answer(request, answer)
                    for data in answer.iter_bytes(uploads.CHUNK):
                        file.write(data)
                        size += len(data)
            except httpx2.TransportError as error:
                return read_answer(request, error)
        return size

    def _send(self, request: Request[T]) -> T:
        tries = 0
        while True:
            outcome, tries = self._try_once(request), tries + 1
            if (wait := retry_delay(request, outcome, tries)) is None:
                return read_answer(request, outcome)
            time.sleep(wait)

    def _try_once(self, request: Request[Any], content: Iterator[bytes] | None = None) -> Outcome:
        http = request.http
        body = http.content if content is None else content
        try:
            return self._http.request(http.method, http.path, content=body, headers=http.headers)
        except httpx2.TransportError as error:
            return error

    def _iterate(self, listing: Listing[T]) -> Iterator[T]:
        cursor: str | None = None
        while True:
            page = self._send(listing.page(cursor))
            yield from page.entries
            if (cursor := page.next_cursor) is None:
                return

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _async_method(describe: Callable[P, Request[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._send(describe(*args, **kwargs))

    _add_signature(method, describe, "{}")
    return method


def _async_paged_method(describe: Callable[P, Listing[T]]) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[T]]:
    def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self._iterate(describe(*args, **kwargs))

    _add_signature(method, describe, "AsyncIterator[{}]")
    return method


async def _read_chunks(stream: BinaryIO) -> AsyncIterator[bytes]:
    """The content of an open file, read in a thread."""
    import asyncio  # noqa: PLC0415 - as below

    while data := await asyncio.to_thread(stream.read, uploads.CHUNK):
        yield uploads.check_bytes(data)


class AsyncClient:
    """An asynchronous client: the methods of `Client`, awaited; lists are for `async for`."""

    def __init__(
        self,
        base_url: str = BASE_URL,
        *,
        key: str | None = None,
        tenant: str | None = None,
        timeout: float = TIMEOUT,
        ca_file: str | PathLike[str] | None = None,
    ) -> None:
        """`key` is an API key or a signed token. `timeout` is in seconds, for each try.

        `tenant` is the one to act for, with a key of tenant `*`. `ca_file` has the certificates, in PEM format, that a
        server with a certificate of a private authority is checked against. Nothing is sent before the first request.
        """
        self._http = httpx2.AsyncClient(**_settings(base_url, timeout, key, tenant, ca_file))

    create = _async_method(requests.create)
    propose = _async_method(requests.propose)
    upsert = _async_method(requests.upsert)
    get = _async_method(requests.get)
    list = _async_paged_method(requests.list_schedules)
    count = _async_method(requests.count)
    update = _async_method(requests.update)
    pause = _async_method(requests.pause)
    resume = _async_method(requests.resume)
    delete = _async_method(requests.delete)
    run_now = _async_method(requests.run_now)
    pause_many = _async_method(requests.pause_many)
    resume_many = _async_method(requests.resume_many)
    delete_many = _async_method(requests.delete_many)
    label_many = _async_method(requests.label_many)
    run_many = _async_method(requests.run_many)
    backfill = _async_method(requests.backfill)
    backfills = _async_method(requests.backfills)
    get_backfill = _async_method(requests.get_backfill)
    pause_backfill = _async_method(requests.pause_backfill)
    resume_backfill = _async_method(requests.resume_backfill)
    cancel_backfill = _async_method(requests.cancel_backfill)
    preview = _async_method(requests.preview)
    read_crontab = _async_method(requests.read_crontab)
    check = _async_method(requests.check)
    occurrences = _async_paged_method(requests.occurrences)
    search_occurrences = _async_paged_method(requests.search_occurrences)
    redrive = _async_method(requests.redrive)
    occurrence = _async_method(requests.occurrence)
    occurrence_runs = _async_method(requests.occurrence_runs)
    explain = _async_method(requests.explain)
    explain_at = _async_method(requests.explain_at)
    runs = _async_paged_method(requests.runs)
    run = _async_method(requests.run)
    complete = _async_method(requests.complete)
    fail = _async_method(requests.fail)
    cancel = _async_method(requests.cancel)
    emit = _async_method(requests.emit)
    events = _async_paged_method(requests.events)
    set_secret = _async_method(requests.set_secret)
    secrets = _async_method(requests.secrets)
    delete_secret = _async_method(requests.delete_secret)
    signing_key = _async_method(requests.signing_key)
    ping_url = _async_method(requests.ping_url)
    rotate_ping_url = _async_method(requests.rotate_ping_url)
    match_events = _async_method(requests.match_events)
    triggers = _async_paged_method(requests.triggers)
    create_workflow = _async_method(requests.create_workflow)
    get_workflow = _async_method(requests.get_workflow)
    workflows = _async_paged_method(requests.workflows)
    workflow_versions = _async_paged_method(requests.workflow_versions)
    delete_workflow = _async_method(requests.delete_workflow)
    run_workflow = _async_method(requests.run_workflow)
    workflow_run = _async_method(requests.workflow_run)
    workflow_runs = _async_paged_method(requests.workflow_runs)
    cancel_workflow_run = _async_method(requests.cancel_workflow_run)
    create_session = _async_method(requests.create_session)
    get_session = _async_method(requests.get_session)
    list_sessions = _async_paged_method(requests.list_sessions)
    session_messages = _async_paged_method(requests.session_messages)
    send_message = _async_method(requests.send_message)
    archive_session = _async_method(requests.archive_session)
    delete_session = _async_method(requests.delete_session)
    create_mob = _async_method(requests.create_mob)
    get_mob = _async_method(requests.get_mob)
    list_mobs = _async_paged_method(requests.list_mobs)
    delete_mob = _async_method(requests.delete_mob)
    approvals = _async_paged_method(requests.approvals)
    approve = _async_method(requests.approve)
    deny = _async_method(requests.deny)
    halt = _async_method(requests.halt)
    unhalt = _async_method(requests.unhalt)
    halts = _async_method(requests.halts)
    proposals = _async_paged_method(requests.proposals)
    proposal = _async_method(requests.proposal)
    approve_schedule = _async_method(requests.approve_schedule)
    deny_schedule = _async_method(requests.deny_schedule)
    set_budget = _async_method(requests.set_budget)
    budgets = _async_paged_method(requests.budgets)
    delete_budget = _async_method(requests.delete_budget)
    usage = _async_method(requests.usage)
    record_usage = _async_method(requests.record_usage)
    forecast_usage = _async_method(requests.forecast_usage)
    uploads = _async_paged_method(requests.uploads)
    delete_upload = _async_method(requests.delete_upload)
    bundles = _async_paged_method(requests.bundles)
    bundle = _async_method(requests.bundle)
    run_bundle = _async_method(requests.run_bundle)
    delete_bundle = _async_method(requests.delete_bundle)
    create_key = _async_method(requests.create_key)
    keys = _async_paged_method(requests.keys)
    revoke_key = _async_method(requests.revoke_key)
    rotate_key = _async_method(requests.rotate_key)
    whoami = _async_method(requests.whoami)
    limits = _async_method(requests.limits)
    schedule_tools = _async_method(requests.schedule_tools)
    call_schedule_tool = _async_method(requests.call_schedule_tool)
    nodes = _async_method(requests.nodes)
    timeline = _async_method(requests.timeline)
    revisions = _async_paged_method(requests.revisions)
    trends = _async_method(requests.trends)
    overview = _async_method(requests.overview)
    workload = _async_method(requests.workload)
    doctor = _async_method(requests.doctor)
    audit = _async_paged_method(requests.audit)
    worker_start = _async_method(requests.worker_start)
    worker_stop = _async_method(requests.worker_stop)
    worker_confirm_time = _async_method(requests.worker_confirm_time)
    worker_status = _async_method(requests.worker_status)
    health = _async_method(requests.health)
    call = _async_method(requests.call)

    async def upload(
        self,
        file: File,
        *,
        path: str | None = None,
        filename: str | None = None,
        content_type: str | None = None,
        idempotency_key: str | None = None,
    ) -> Upload:
        """Upload a file, and announce it by an event; the same file with the same key again is the same upload.

        The file is given by its name or open for reading, and may have any size. Filters of triggers see its `path`.
        It is sent once: if no answer arrives, send it again with the same key.
        """
        with uploads.open_source(file) as stream:
            request = uploads.upload_request(
                stream, path=path, filename=filename, content_type=content_type, key=idempotency_key
            )
            return read_answer(request, await self._try_once(request, _read_chunks(stream)))

    async def push_bundle(
        self, path: str | os.PathLike[str], *, bundle_id: str | None = None, declare: bool = True
    ) -> PushedBundle:
        """Push a bundle: a folder with a `manifest.json`, or a zip file of one.

        It is the newest of its id from then on, by default the name in its manifest. The schedules of the manifest are
        declared, unless `declare` is off.
        """
        with bundles.open_bundle(path) as stream:
            request = bundles.push_request(
                stream, bundle_id=bundle_id, declare=declare, filename=bundles.archive_name(path)
            )
            return read_answer(request, await self._try_once(request, _read_chunks(stream)))

    async def download(self, upload_id: str, to: Sink) -> int:
        """Download an uploaded file to another file, given by its name or open for writing; returns its size.

        A file given by its name is replaced when the download is complete, or not at all.
        """
        import asyncio  # noqa: PLC0415 - as below

        request, size = uploads.download_request(upload_id), 0
        with uploads.open_sink(to) as file:
            try:
                async with self._http.stream(request.http.method, request.http.path) as answer:
                    if not answer.is_success:
                        await answer.aread()
                        return read_answer(request, answer)
                    async for data in answer.aiter_bytes(uploads.CHUNK):
                        await asyncio.to_thread(file.write, data)
                        size += len(data)
            except httpx2.TransportError as error:
                return read_answer(request, error)
        return size

    async def _send(self, request: Request[T]) -> T:
        tries = 0
        while True:
            outcome, tries = await self._try_once(request), tries + 1
            if (wait := retry_delay(request, outcome, tries)) is None:
                return read_answer(request, outcome)
            import asyncio  # noqa: PLC0415 - a command starts sooner without it

            await asyncio.sleep(wait)

    async def _try_once(self, request: Request[Any], content: AsyncIterator[bytes] | None = None) -> Outcome:
        http = request.http
        body = http.content if content is None else content
        try:
            return await self._http.request(http.method, http.path, content=body, headers=http.headers)
        except httpx2.TransportError as error:
            return error

    async def _iterate(self, listing: Listing[T]) -> AsyncIterator[T]:
        cursor: str | None = None
        while True:
            page = await self._send(listing.page(cursor))
            for entry in page.entries:
                yield entry
            if (cursor := page.next_cursor) is None:
                return

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
