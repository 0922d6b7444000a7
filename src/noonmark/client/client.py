"""The clients: synchronous and asynchronous, with the same methods."""

from __future__ import annotations

import os
import re
import time
from functools import update_wrapper
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import httpx2

from noonmark.client import requests, uploads
from noonmark.client.transport import conclude, retry_delay
from noonmark.core.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from typing import BinaryIO

    from noonmark.client.transport import Listing, Outcome, Request
    from noonmark.client.uploads import File, Sink
    from noonmark.operations.models.answers import Upload

P = ParamSpec("P")
T = TypeVar("T")

BASE_URL = "http://127.0.0.1:8001"
TIMEOUT = 30.0
"""How many seconds to wait for an answer."""
CHAIN = "NOONMARK_CHAIN"
_CREDENTIAL = re.compile(r"[!-~]{1,16384}")
_PROOF = re.compile(r"[A-Za-z0-9._:-]{1,500}")


def _settings(base_url: str, timeout: float, key: str | None, tenant: str | None) -> dict[str, Any]:
    """The settings of the HTTP client."""
    if key is not None and not _CREDENTIAL.fullmatch(key):
        raise InvalidRequest("must be a key: one word of printable ASCII characters", field="key")
    if tenant is not None and not _CREDENTIAL.fullmatch(tenant):
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
        "verify": url.scheme == "https",
        "headers": {"User-Agent": "noonmark-client"} | _chain() | credentials,
    }


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


def _asks(describe: Callable[P, Request[T]]) -> Callable[Concatenate[Client, P], T]:
    def ask(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._send(describe(*args, **kwargs))

    _add_signature(ask, describe, "{}")
    return ask


def _pages(describe: Callable[P, Listing[T]]) -> Callable[Concatenate[Client, P], Iterator[T]]:
    def walk(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._walk(describe(*args, **kwargs))

    _add_signature(walk, describe, "Iterator[{}]")
    return walk


class Client:
    """A client of a Noonmark server. Several threads can share it."""

    def __init__(
        self,
        base_url: str = BASE_URL,
        *,
        key: str | None = None,
        tenant: str | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        """`key` is an API key or a signed token. `timeout` is in seconds, for each try.

        `tenant` is the one to act for, with a key of tenant `*`. Nothing is sent before the first request.
        """
        self._http = httpx2.Client(**_settings(base_url, timeout, key, tenant))

    create = _asks(requests.create)
    upsert = _asks(requests.upsert)
    get = _asks(requests.get)
    list = _pages(requests.list_schedules)
    count = _asks(requests.count)
    update = _asks(requests.update)
    pause = _asks(requests.pause)
    resume = _asks(requests.resume)
    delete = _asks(requests.delete)
    run_now = _asks(requests.run_now)
    pause_many = _asks(requests.pause_many)
    resume_many = _asks(requests.resume_many)
    delete_many = _asks(requests.delete_many)
    label_many = _asks(requests.label_many)
    run_many = _asks(requests.run_many)
    backfill = _asks(requests.backfill)
    backfills = _asks(requests.backfills)
    get_backfill = _asks(requests.get_backfill)
    pause_backfill = _asks(requests.pause_backfill)
    resume_backfill = _asks(requests.resume_backfill)
    cancel_backfill = _asks(requests.cancel_backfill)
    preview = _asks(requests.preview)
    check = _asks(requests.check)
    occurrences = _pages(requests.occurrences)
    search_occurrences = _pages(requests.search_occurrences)
    redrive = _asks(requests.redrive)
    occurrence = _asks(requests.occurrence)
    occurrence_runs = _asks(requests.occurrence_runs)
    explain = _asks(requests.explain)
    explain_at = _asks(requests.explain_at)
    runs = _pages(requests.runs)
    run = _asks(requests.run)
    complete = _asks(requests.complete)
    fail = _asks(requests.fail)
    cancel = _asks(requests.cancel)
    emit = _asks(requests.emit)
    events = _pages(requests.events)
    set_secret = _asks(requests.set_secret)
    secrets = _asks(requests.secrets)
    delete_secret = _asks(requests.delete_secret)
    signing_key = _asks(requests.signing_key)
    ping_url = _asks(requests.ping_url)
    rotate_ping_url = _asks(requests.rotate_ping_url)
    match_events = _asks(requests.match_events)
    triggers = _pages(requests.triggers)
    uploads = _pages(requests.uploads)
    delete_upload = _asks(requests.delete_upload)
    create_key = _asks(requests.create_key)
    keys = _pages(requests.keys)
    revoke_key = _asks(requests.revoke_key)
    rotate_key = _asks(requests.rotate_key)
    whoami = _asks(requests.whoami)
    limits = _asks(requests.limits)
    nodes = _asks(requests.nodes)
    workload = _asks(requests.workload)
    doctor = _asks(requests.doctor)
    audit = _pages(requests.audit)
    worker_start = _asks(requests.worker_start)
    worker_stop = _asks(requests.worker_stop)
    worker_confirm_time = _asks(requests.worker_confirm_time)
    worker_status = _asks(requests.worker_status)
    health = _asks(requests.health)
    call = _asks(requests.call)

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
        with uploads.opened(file) as stream:
            request = uploads.upload_request(
                stream, path=path, filename=filename, content_type=content_type, key=idempotency_key
            )
            return conclude(request, self._once(request, uploads.pieces(stream)))

    def download(self, upload_id: str, to: Sink) -> int:
        """Download an uploaded file to another file, given by its name or open for writing; returns its size.

        A file given by its name is replaced when the download is complete, or not at all.
        """
        request, size = uploads.download_request(upload_id), 0
        with uploads.written(to) as file:
            try:
                with self._http.stream(request.http.method, request.http.path) as answer:
                    if not answer.is_success:
                        answer.read()
                        return conclude(request, answer)
                    for data in answer.iter_bytes(uploads.PIECE):
                        file.write(data)
                        size += len(data)
            except httpx2.TransportError as error:
                return conclude(request, error)
        return size

    def _send(self, request: Request[T]) -> T:
        tries = 0
        while True:
            outcome, tries = self._once(request), tries + 1
            if (wait := retry_delay(request, outcome, tries)) is None:
                return conclude(request, outcome)
            time.sleep(wait)

    def _once(self, request: Request[Any], content: Iterator[bytes] | None = None) -> Outcome:
        http = request.http
        body = http.content if content is None else content
        try:
            return self._http.request(http.method, http.path, content=body, headers=http.headers)
        except httpx2.TransportError as error:
            return error

    def _walk(self, listing: Listing[T]) -> Iterator[T]:
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


def _awaits(describe: Callable[P, Request[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    async def ask(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._send(describe(*args, **kwargs))

    _add_signature(ask, describe, "{}")
    return ask


def _awaits_pages(describe: Callable[P, Listing[T]]) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[T]]:
    def walk(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self._walk(describe(*args, **kwargs))

    _add_signature(walk, describe, "AsyncIterator[{}]")
    return walk


async def _pieces(stream: BinaryIO) -> AsyncIterator[bytes]:
    """The content of an open file, read in a thread."""
    import asyncio  # noqa: PLC0415 - as below

    while data := await asyncio.to_thread(stream.read, uploads.PIECE):
        yield uploads.only_bytes(data)


class AsyncClient:
    """An asynchronous client: the methods of `Client`, awaited; lists are for `async for`."""

    def __init__(
        self,
        base_url: str = BASE_URL,
        *,
        key: str | None = None,
        tenant: str | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        """`key` is an API key or a signed token. `timeout` is in seconds, for each try.

        `tenant` is the one to act for, with a key of tenant `*`. Nothing is sent before the first request.
        """
        self._http = httpx2.AsyncClient(**_settings(base_url, timeout, key, tenant))

    create = _awaits(requests.create)
    upsert = _awaits(requests.upsert)
    get = _awaits(requests.get)
    list = _awaits_pages(requests.list_schedules)
    count = _awaits(requests.count)
    update = _awaits(requests.update)
    pause = _awaits(requests.pause)
    resume = _awaits(requests.resume)
    delete = _awaits(requests.delete)
    run_now = _awaits(requests.run_now)
    pause_many = _awaits(requests.pause_many)
    resume_many = _awaits(requests.resume_many)
    delete_many = _awaits(requests.delete_many)
    label_many = _awaits(requests.label_many)
    run_many = _awaits(requests.run_many)
    backfill = _awaits(requests.backfill)
    backfills = _awaits(requests.backfills)
    get_backfill = _awaits(requests.get_backfill)
    pause_backfill = _awaits(requests.pause_backfill)
    resume_backfill = _awaits(requests.resume_backfill)
    cancel_backfill = _awaits(requests.cancel_backfill)
    preview = _awaits(requests.preview)
    check = _awaits(requests.check)
    occurrences = _awaits_pages(requests.occurrences)
    search_occurrences = _awaits_pages(requests.search_occurrences)
    redrive = _awaits(requests.redrive)
    occurrence = _awaits(requests.occurrence)
    occurrence_runs = _awaits(requests.occurrence_runs)
    explain = _awaits(requests.explain)
    explain_at = _awaits(requests.explain_at)
    runs = _awaits_pages(requests.runs)
    run = _awaits(requests.run)
    complete = _awaits(requests.complete)
    fail = _awaits(requests.fail)
    cancel = _awaits(requests.cancel)
    emit = _awaits(requests.emit)
    events = _awaits_pages(requests.events)
    set_secret = _awaits(requests.set_secret)
    secrets = _awaits(requests.secrets)
    delete_secret = _awaits(requests.delete_secret)
    signing_key = _awaits(requests.signing_key)
    ping_url = _awaits(requests.ping_url)
    rotate_ping_url = _awaits(requests.rotate_ping_url)
    match_events = _awaits(requests.match_events)
    triggers = _awaits_pages(requests.triggers)
    uploads = _awaits_pages(requests.uploads)
    delete_upload = _awaits(requests.delete_upload)
    create_key = _awaits(requests.create_key)
    keys = _awaits_pages(requests.keys)
    revoke_key = _awaits(requests.revoke_key)
    rotate_key = _awaits(requests.rotate_key)
    whoami = _awaits(requests.whoami)
    limits = _awaits(requests.limits)
    nodes = _awaits(requests.nodes)
    workload = _awaits(requests.workload)
    doctor = _awaits(requests.doctor)
    audit = _awaits_pages(requests.audit)
    worker_start = _awaits(requests.worker_start)
    worker_stop = _awaits(requests.worker_stop)
    worker_confirm_time = _awaits(requests.worker_confirm_time)
    worker_status = _awaits(requests.worker_status)
    health = _awaits(requests.health)
    call = _awaits(requests.call)

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
        with uploads.opened(file) as stream:
            request = uploads.upload_request(
                stream, path=path, filename=filename, content_type=content_type, key=idempotency_key
            )
            return conclude(request, await self._once(request, _pieces(stream)))

    async def download(self, upload_id: str, to: Sink) -> int:
        """Download an uploaded file to another file, given by its name or open for writing; returns its size.

        A file given by its name is replaced when the download is complete, or not at all.
        """
        import asyncio  # noqa: PLC0415 - as below

        request, size = uploads.download_request(upload_id), 0
        with uploads.written(to) as file:
            try:
                async with self._http.stream(request.http.method, request.http.path) as answer:
                    if not answer.is_success:
                        await answer.aread()
                        return conclude(request, answer)
                    async for data in answer.aiter_bytes(uploads.PIECE):
                        await asyncio.to_thread(file.write, data)
                        size += len(data)
            except httpx2.TransportError as error:
                return conclude(request, error)
        return size

    async def _send(self, request: Request[T]) -> T:
        tries = 0
        while True:
            outcome, tries = await self._once(request), tries + 1
            if (wait := retry_delay(request, outcome, tries)) is None:
                return conclude(request, outcome)
            import asyncio  # noqa: PLC0415 - a command starts sooner without it

            await asyncio.sleep(wait)

    async def _once(self, request: Request[Any], content: AsyncIterator[bytes] | None = None) -> Outcome:
        http = request.http
        body = http.content if content is None else content
        try:
            return await self._http.request(http.method, http.path, content=body, headers=http.headers)
        except httpx2.TransportError as error:
            return error

    async def _walk(self, listing: Listing[T]) -> AsyncIterator[T]:
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
