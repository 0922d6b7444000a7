"""Uploads: files that come in and go out piece by piece, and are never held as a whole."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from anyio import CancelScope, CapacityLimiter, to_thread
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from noonmark.core.errors import NoonmarkError, PayloadTooLarge
from noonmark.operations import uploads
from noonmark.surfaces.rest.forms import FILE, OVERHEAD, Form, boundary_of
from noonmark.surfaces.rest.problems import problem
from noonmark.surfaces.rest.reading import DRAIN_SECONDS, DRAINED, Kind, check_encoding, declared_length, late
from noonmark.surfaces.rest.writing import write_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import BinaryIO

    from starlette.requests import Request

    from noonmark.operations.uploads import Intake
    from noonmark.surfaces.rest.asked import Asked
    from noonmark.surfaces.rest.settings import HttpSettings

ALL, ONE = "/uploads", "/uploads/{upload_id}"
PARAMETERS = {"filename": Kind.TEXT, "path": Kind.TEXT}
PIECE = 262_144
SLOWEST = 32_768
"""Bytes a second: whoever sends fewer, beyond the time that any body has, is given up, and his place is free."""
AT_ONCE = 8
"""So many threads wait for the disk, beside those that wait for the store."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """What answers a request whose body, or whose answer, is too large to be held."""

    answer: Callable[[Request, Asked, HttpSettings], Awaitable[Response]]


class _Source(Protocol):
    """What a body is taken as: a form with a file in it, or the file."""

    said: dict[str, Any]
    content_type: str | None

    def feed(self, data: bytes) -> list[bytes]:
        """What of the file is in the next piece."""

    def close(self) -> None:
        """See to it that all of it has come."""


class _Bare:
    """A body that is the file itself; what it is called stands in the parameters."""

    def __init__(self, said: dict[str, Any], content_type: str | None) -> None:
        uploads.names(said)
        self.said, self.content_type = said, content_type

    def feed(self, data: bytes) -> list[bytes]:
        return [data]

    def close(self) -> None:
        pass


def handlers() -> dict[tuple[str, str], Streamed]:
    """What takes a file, and what gives one back."""
    desk = _Desk(CapacityLimiter(AT_ONCE))
    return {("POST", ALL): Streamed(desk.take), ("GET", ONE): Streamed(desk.give)}


class _Desk:
    def __init__(self, limiter: CapacityLimiter) -> None:
        self._run = partial(to_thread.run_sync, limiter=limiter)

    async def take(self, request: Request, asked: Asked, settings: HttpSettings) -> Response:
        """Keep the file that a request brings."""
        body = _Body(request, settings)
        try:
            document = await self._take(body, request, asked)
        except NoonmarkError as error:
            await body.drain()
            refused = problem(error, request)
            refused.headers["Connection"] = "close"
            return refused
        headers = {"Cache-Control": "no-store", "Location": f"{ALL}/{document['upload_id']}"}
        return Response(write_json(document), 201, headers, media_type="application/json")

    async def _take(self, body: _Body, request: Request, asked: Asked) -> dict[str, Any]:
        check_encoding(request)
        largest = uploads.kept_by(asked.service).max_bytes
        kind = request.headers.get("content-type")
        boundary = boundary_of(kind)
        source: _Source = _Bare(asked.query(PARAMETERS), kind) if boundary is None else Form(boundary)
        if boundary is not None:
            asked.query({})
        declared = declared_length(request)
        if declared > largest + (0 if boundary is None else OVERHEAD):
            raise PayloadTooLarge(f"the file is larger than {largest:,} bytes", field=FILE)
        key, expected = request.headers.get("idempotency-key"), max(0, declared - OVERHEAD)
        intake = await self._run(partial(uploads.Intake, asked.service, asked.caller, key, expected=expected))
        try:
            await self._pour(body, source, intake, largest)
            return await self._run(intake.finish, source.said, source.content_type)
        finally:
            with CancelScope(shield=True):
                await self._run(intake.drop)

    async def _pour(self, body: _Body, source: _Source, intake: Intake, largest: int) -> None:
        """Write a body to disk as it comes."""
        waiting: list[bytes] = []
        size = unwritten = 0
        async for data in body:
            found = source.feed(data)
            more = sum(map(len, found))
            size, unwritten, waiting = size + more, unwritten + more, [*waiting, *found]
            if size > largest or body.size > largest + OVERHEAD:
                raise PayloadTooLarge(f"the file is larger than {largest:,} bytes", field=FILE)
            if unwritten >= PIECE:
                await self._run(intake.write, b"".join(waiting))
                waiting, unwritten = [], 0
        source.close()
        await self._run(intake.write, b"".join(waiting))

    async def give(self, request: Request, asked: Asked, settings: HttpSettings) -> Response:  # noqa: ARG002 - as every one
        """Give a file back; no browser shows it as a page of this server."""
        asked.query({})
        upload, file = await self._run(uploads.content, asked.service, asked.caller, asked.path["upload_id"])
        plain = upload.filename.encode("ascii", "replace").decode().replace("?", "_")
        names = f"filename=\"{plain}\"; filename*=UTF-8''{quote(upload.filename, safe='')}"
        headers = {
            "Content-Length": str(upload.size),
            "Content-Disposition": f"attachment; {names}",
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        if request.method == "HEAD":
            file.close()
            return Response(b"", 200, headers, media_type="application/octet-stream")
        return StreamingResponse(self._pieces(file, upload.size), 200, headers, media_type="application/octet-stream")

    async def _pieces(self, file: BinaryIO, left: int) -> AsyncIterator[bytes]:
        with file:
            # No more than was promised, should somebody write to it meanwhile.
            while left and (data := await self._run(file.read, min(PIECE, left))):
                left -= len(data)
                yield data


class _Body:
    """A body as it comes; one that comes too slowly is given up."""

    def __init__(self, request: Request, settings: HttpSettings) -> None:
        self._request, self._settings = request, settings
        self._stream = request.stream()
        self._is_over = False
        self.size = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        clock, patience = asyncio.get_running_loop().time, self._settings.body_seconds
        waited = 0.0  # for the sender; it is not his fault if the disk is slow
        while True:
            begun = clock()
            try:
                async with asyncio.timeout(min(patience, patience + self.size / SLOWEST - waited)):
                    data = await anext(self._stream, None)
            except TimeoutError:
                raise late(patience) from None
            waited += clock() - begun
            if data is None:
                self._is_over = True
                return
            self.size += len(data)
            yield data

    async def drain(self) -> None:
        """Take a little of what is not wanted, so that its sender gets to read why; never if it waits to be asked."""
        if self._is_over or (not self.size and "expect" in self._request.headers):
            return
        thrown_away = 0
        with suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(min(self._settings.body_seconds, DRAIN_SECONDS)):
                async for data in self._stream:
                    thrown_away += len(data)
                    if thrown_away > DRAINED:
                        return
