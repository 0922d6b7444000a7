"""Uploads over HTTP: files stream in and out in pieces and are never held in memory as a whole."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from anyio import CancelScope, CapacityLimiter, to_thread
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from noonmark.core.errors import InvalidRequest, NoonmarkError, PayloadTooLarge
from noonmark.core.jsonvalues import key_path
from noonmark.driver.drive import drive
from noonmark.operations import uploads
from noonmark.operations.uploads import names
from noonmark.server.problems import problem
from noonmark.server.requests import DRAIN_SECONDS, DRAINED, Kind, check_encoding, declared_length, late
from noonmark.server.strict_json import write_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import BinaryIO

    from starlette.requests import Request

    from noonmark.operations.uploads import Intake
    from noonmark.server.requests import ApiRequest, HttpSettings

FILE = "file"
FIELDS = ("path",)
MAX_HEADERS, MAX_HEADER, MAX_FIELD = 16, 4_096, 8_192
OVERHEAD = 65_536
"""So much a form may be longer than the file in it."""
KIND = b"multipart/form-data"


def boundary_of(content_type: str | None) -> bytes | None:
    """What parts a form by its Content-Type; None of a body that is no form."""
    kind, options = parse_options_header(content_type)
    if kind != KIND:
        return None
    if not (boundary := options.get(b"boundary")):
        raise InvalidRequest("the Content-Type of a form must name its boundary")
    return boundary


class Form:
    """A form as far as it has come: what was said beside the file, and the file itself, piece by piece."""

    def __init__(self, boundary: bytes) -> None:
        """Nothing has come yet."""
        self.said: dict[str, str] = {}
        self.content_type: str | None = None
        self._found: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}
        self._name, self._field, self._value = "", b"", b""
        self._has_ended = False
        calls: dict[str, Callable[..., Any]] = {
            "on_part_begin": self._begin,
            "on_header_begin": self._begin_header,
            "on_header_field": partial(self._take, "_field"),
            "on_header_value": partial(self._take, "_value"),
            "on_header_end": self._end_header,
            "on_headers_finished": self._look,
            "on_part_data": self._add,
            "on_part_end": self._end,
            "on_end": self._finish,
        }
        try:
            self._parser = MultipartParser(
                boundary,
                calls,  # type: ignore[arg-type]  # a dictionary of the same names
                max_header_count=MAX_HEADERS,
                max_header_size=MAX_HEADER,
            )
        except FormParserError as error:
            raise InvalidRequest(f"the form cannot be read: {error}") from None

    def feed(self, data: bytes) -> list[bytes]:
        """What of the file is in the next piece of the form."""
        self._found = []
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise InvalidRequest(f"the form cannot be read: {error}") from None
        return self._found

    def close(self) -> None:
        """See to it that all of it has come."""
        if not self._has_ended:
            raise InvalidRequest("the form ends before its last boundary")
        if "filename" not in self.said:
            raise InvalidRequest("is required: the file itself, with its name", field=FILE)

    def _begin(self) -> None:
        self._headers.clear()
        self._value = b""

    def _begin_header(self) -> None:
        self._field = self._value = b""

    def _take(self, where: str, data: bytes, start: int, end: int) -> None:
        setattr(self, where, getattr(self, where) + data[start:end])

    def _end_header(self) -> None:
        self._headers[self._field.lower()] = self._value

    def _look(self) -> None:
        """Which part this is."""
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        self._name, self._value = _text(options.get(b"name", b""), "name"), b""
        if self._name not in (FILE, *FIELDS):
            allowed = ", ".join((FILE, *FIELDS))
            raise InvalidRequest(f"unknown part of the form; allowed are {allowed}", field=key_path(self._name))
        if self._name == FILE:
            if "filename" in self.said:
                raise InvalidRequest("comes twice; send one file at a time", field=FILE)
            if b"filename" not in options:
                raise InvalidRequest("is required: send a file, as in curl -F file=@report.csv", field="filename")
            self.said["filename"] = _text(options[b"filename"], "filename")
            names(self.said)  # before the rest of it comes
            self.content_type = self._headers.get(b"content-type", b"").decode("latin-1")
        elif self._name in self.said:
            raise InvalidRequest("comes twice", field=self._name)

    def _add(self, data: bytes, start: int, end: int) -> None:
        if self._name == FILE:
            self._found.append(data[start:end])
            return
        self._value += data[start:end]
        if len(self._value) > MAX_FIELD:
            raise InvalidRequest(f"is longer than {MAX_FIELD:,} bytes", field=self._name)

    def _end(self) -> None:
        if self._name != FILE:
            self.said[self._name] = _text(self._value, self._name)

    def _finish(self) -> None:
        self._has_ended = True


def _text(value: bytes, field: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("is not UTF-8", field=field) from None


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

    answer: Callable[[Request, ApiRequest, HttpSettings], Awaitable[Response]]


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

    async def take(self, request: Request, api_request: ApiRequest, settings: HttpSettings) -> Response:
        """Keep the file that a request brings."""
        body = _Body(request, settings)
        try:
            document = await self._take(body, request, api_request)
        except NoonmarkError as error:
            await body.drain()
            refused = problem(error, request)
            refused.headers["Connection"] = "close"
            return refused
        headers = {"Cache-Control": "no-store", "Location": f"{ALL}/{document['upload_id']}"}
        return Response(write_json(document), 201, headers, media_type="application/json")

    async def _take(self, body: _Body, request: Request, api_request: ApiRequest) -> dict[str, Any]:
        check_encoding(request)
        largest = uploads.uploads_of(api_request.service).max_bytes
        kind = request.headers.get("content-type")
        boundary = boundary_of(kind)
        source: _Source = _Bare(api_request.query(PARAMETERS), kind) if boundary is None else Form(boundary)
        if boundary is not None:
            api_request.query({})
        declared = declared_length(request)
        if declared > largest + (0 if boundary is None else OVERHEAD):
            raise PayloadTooLarge(f"the file is larger than {largest:,} bytes", field=FILE)
        key, expected = request.headers.get("idempotency-key"), max(0, declared - OVERHEAD)
        intake = await self._run(
            partial(uploads.Intake, api_request.service, api_request.caller, key, expected=expected)
        )
        try:
            await self._pour(body, source, intake, largest)
            return await self._run(lambda: drive(intake.finish(source.said, source.content_type)))
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

    async def give(self, request: Request, api_request: ApiRequest, settings: HttpSettings) -> Response:  # noqa: ARG002 - as every one
        """Give a file back; no browser shows it as a page of this server."""
        api_request.query({})
        upload, file = await self._run(
            uploads.content, api_request.service, api_request.caller, api_request.path["upload_id"]
        )
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
        """Discard some of an unwanted body, so that the client can read the answer; not if it sent Expect."""
        if self._is_over or (not self.size and "expect" in self._request.headers):
            return
        thrown_away = 0
        with suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(min(self._settings.body_seconds, DRAIN_SECONDS)):
                async for data in self._stream:
                    thrown_away += len(data)
                    if thrown_away > DRAINED:
                        return
