"""Uploads over HTTP: files are streamed in and out in chunks and never held in memory as a whole.

A client sends a file as the body itself, or in a form as `curl -F file=@name` and browsers do.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from anyio import CancelScope, CapacityLimiter, to_thread
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from noonmark.core.api_key import Scope
from noonmark.core.errors import InvalidRequest, NoonmarkError, PayloadTooLarge
from noonmark.core.frozen import frozen
from noonmark.core.json_values import key_path
from noonmark.operations import uploads
from noonmark.operations.changes import change_by
from noonmark.operations.errors import hidden_cause_from
from noonmark.server.problems import problem_response
from noonmark.server.requests import (
    DRAIN_SECONDS,
    MAX_DRAINED,
    ParameterType,
    body_timeout,
    check_encoding,
    declared_length,
)
from noonmark.server.strict_json import write_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import BinaryIO

    from starlette.requests import Request

    from noonmark.operations.uploads import Intake
    from noonmark.server.requests import ApiRequest, HttpSettings

ALL, ONE = "/uploads", "/uploads/{upload_id}"
PARAMETERS = {"filename": ParameterType.TEXT, "path": ParameterType.TEXT}
CHUNK = 262_144
MIN_BYTES_PER_SECOND = 32_768
"""A body that arrives more slowly than this, beyond the time limit of any body, is aborted."""
DISK_THREADS = 8
"""Threads that wait for the disk, beside those that wait for the store."""
FORM_TYPE = b"multipart/form-data"
FORM_OVERHEAD = 65_536
"""Bytes that a form may be longer than the file in it."""
FILE = "file"
FIELDS = ("path",)
MAX_HEADERS, MAX_HEADER, MAX_FIELD = 16, 4_096, 8_192


@frozen
class StreamHandler:
    """The handler of a request whose body or answer is too large to hold in memory."""

    respond: Callable[[Request, ApiRequest, HttpSettings], Awaitable[Response]]
    name: str
    """What it does, as operations are named."""
    scope: Scope | None
    """The permission that it needs; None if any key will do."""


def handlers() -> dict[tuple[str, str], StreamHandler]:
    """The routes that upload and download a file."""
    transfers = _Transfers(CapacityLimiter(DISK_THREADS))
    return {
        ("POST", ALL): StreamHandler(transfers.upload, "upload/create", Scope.WRITE),
        ("GET", ONE): StreamHandler(transfers.download, "upload/download", Scope.READ),
    }


class _Transfers:
    def __init__(self, limiter: CapacityLimiter) -> None:
        self._run = partial(to_thread.run_sync, limiter=limiter)

    async def upload(self, request: Request, api_request: ApiRequest, settings: HttpSettings) -> Response:
        """Store the file in the body of a request."""
        body = StreamedBody(request, settings)
        try:
            with hidden_cause_from(api_request.caller):
                document = await self._store(body, request, api_request)
            api_request.service.changed(change_by(api_request.caller, "upload/create", {}, document))
        except NoonmarkError as error:
            await body.drain()
            response = problem_response(error, request)
            response.headers["Connection"] = "close"
            return response
        headers = {"Cache-Control": "no-store", "Location": f"{ALL}/{document['upload_id']}"}
        return Response(write_json(document), 201, headers, media_type="application/json")

    async def _store(self, body: StreamedBody, request: Request, api_request: ApiRequest) -> dict[str, Any]:
        check_encoding(request)
        max_bytes = uploads.uploads_of(api_request.service).max_bytes
        content_type = request.headers.get("content-type")
        boundary = form_boundary(content_type)
        source: Source
        if boundary is None:
            source = PlainBody(api_request.query(PARAMETERS), content_type)
        else:
            source = Form(boundary)
            api_request.query({})
        declared = declared_length(request)
        if declared > max_bytes + (0 if boundary is None else FORM_OVERHEAD):
            raise _too_large(max_bytes)
        key, expected = request.headers.get("idempotency-key"), max(0, declared - FORM_OVERHEAD)
        intake = await self._run(
            partial(uploads.Intake, api_request.service, api_request.caller, key, expected=expected)
        )
        try:
            await self._write(body, source, intake, max_bytes)
            return await self._run(intake.finish, source.fields, source.content_type)
        finally:
            with CancelScope(shield=True):
                await self._run(intake.drop)

    async def _write(self, body: StreamedBody, source: Source, intake: Intake, max_bytes: int) -> None:
        """Write a body to disk as it arrives."""
        buffer: list[bytes] = []
        size = buffered = 0
        async for data in body:
            pieces = source.feed(data)
            added = sum(map(len, pieces))
            size, buffered, buffer = size + added, buffered + added, [*buffer, *pieces]
            if size > max_bytes or body.size > max_bytes + FORM_OVERHEAD:
                raise _too_large(max_bytes)
            if buffered >= CHUNK:
                await self._run(intake.write, b"".join(buffer))
                buffer, buffered = [], 0
        source.close()
        await self._run(intake.write, b"".join(buffer))

    async def download(self, request: Request, api_request: ApiRequest, settings: HttpSettings) -> Response:  # noqa: ARG002 - the signature of every stream handler
        """Send a file back, with headers that keep a browser from showing it as a page of this server."""
        api_request.query({})
        with hidden_cause_from(api_request.caller):
            upload, file = await self._run(
                uploads.open_content, api_request.service, api_request.caller, api_request.path["upload_id"]
            )
        ascii_name = upload.filename.encode("ascii", "replace").decode().replace("?", "_")
        names = f"filename=\"{ascii_name}\"; filename*=UTF-8''{quote(upload.filename, safe='')}"
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
        return StreamingResponse(self._chunks(file, upload.size), 200, headers, media_type="application/octet-stream")

    async def _chunks(self, file: BinaryIO, remaining: int) -> AsyncIterator[bytes]:
        with file:
            # Not beyond Content-Length, even if the file grows meanwhile.
            while remaining and (data := await self._run(file.read, min(CHUNK, remaining))):
                remaining -= len(data)
                yield data


def _too_large(max_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the file is larger than {max_bytes:,} bytes", field=FILE)


class StreamedBody:
    """A body as it arrives; one that arrives too slowly is aborted."""

    def __init__(self, request: Request, settings: HttpSettings) -> None:
        self._request, self._settings = request, settings
        self._stream = request.stream()
        self._is_complete = False
        self.size = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        clock, time_limit = asyncio.get_running_loop().time, self._settings.body_seconds
        waited = 0.0  # for the client only: time spent on the disk does not count against it
        while True:
            started = clock()
            try:
                async with asyncio.timeout(min(time_limit, time_limit + self.size / MIN_BYTES_PER_SECOND - waited)):
                    data = await anext(self._stream, None)
            except TimeoutError:
                raise body_timeout(time_limit) from None
            waited += clock() - started
            if data is None:
                self._is_complete = True
                return
            self.size += len(data)
            yield data

    async def drain(self) -> None:
        """Discard some of an unwanted body, so that the client gets to read the answer; not if it sent Expect."""
        if self._is_complete or (not self.size and "expect" in self._request.headers):
            return
        drained = 0
        with suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(min(self._settings.body_seconds, DRAIN_SECONDS)):
                async for data in self._stream:
                    drained += len(data)
                    if drained > MAX_DRAINED:
                        return


class Source(Protocol):
    """Where the file is in a body: in a form, or the body itself."""

    fields: dict[str, Any]
    content_type: str | None

    def feed(self, data: bytes) -> list[bytes]:
        """The pieces of the file in the next chunk of the body."""

    def close(self) -> None:
        """Check that the file is complete."""


class PlainBody:
    """A body that is the file itself; the parameters name it."""

    def __init__(self, fields: dict[str, Any], content_type: str | None) -> None:
        uploads.read_names(fields)
        self.fields, self.content_type = fields, content_type

    def feed(self, data: bytes) -> list[bytes]:
        """All of it."""
        return [data]

    def close(self) -> None:
        """It may end anywhere."""


def form_boundary(content_type: str | None) -> bytes | None:
    """The boundary in the Content-Type of a form; None if the body is not a form."""
    kind, options = parse_options_header(content_type)
    if kind != FORM_TYPE:
        return None
    if not (boundary := options.get(b"boundary")):
        raise InvalidRequest("the Content-Type of a form must name its boundary")
    return boundary


class Form:
    """A form with one file, parsed as it arrives."""

    def __init__(self, boundary: bytes) -> None:
        self.fields: dict[str, str] = {}
        self.content_type: str | None = None
        self._pieces: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}
        self._name, self._field, self._value = "", b"", b""
        self._is_complete = False
        callbacks: dict[str, Callable[..., Any]] = {
            "on_part_begin": self._clear_headers,
            "on_header_begin": self._start_header,
            "on_header_field": partial(self._append, "_field"),
            "on_header_value": partial(self._append, "_value"),
            "on_header_end": self._finish_header,
            "on_headers_finished": self._start_part,
            "on_part_data": self._part_data,
            "on_part_end": self._finish_part,
            "on_end": self._finish,
        }
        try:
            self._parser = MultipartParser(
                boundary,
                callbacks,  # type: ignore[arg-type]  # a dictionary of the same names
                max_header_count=MAX_HEADERS,
                max_header_size=MAX_HEADER,
            )
        except FormParserError as error:
            raise InvalidRequest(f"the form cannot be read: {error}") from None

    def feed(self, data: bytes) -> list[bytes]:
        """The pieces of the file in the next chunk of the form."""
        self._pieces = []
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise InvalidRequest(f"the form cannot be read: {error}") from None
        return self._pieces

    def close(self) -> None:
        """Check that the form is complete and had a file."""
        if not self._is_complete:
            raise InvalidRequest("the form ends before its last boundary")
        if "filename" not in self.fields:
            raise InvalidRequest("is required: the file itself, with its name", field=FILE)

    def _clear_headers(self) -> None:
        self._headers.clear()
        self._value = b""

    def _start_header(self) -> None:
        self._field = self._value = b""

    def _append(self, attribute: str, data: bytes, start: int, end: int) -> None:
        setattr(self, attribute, getattr(self, attribute) + data[start:end])

    def _finish_header(self) -> None:
        self._headers[self._field.lower()] = self._value

    def _start_part(self) -> None:
        """Read the headers of a part: which part it is, and the name of the file."""
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        self._name, self._value = _text(options.get(b"name", b""), "name"), b""
        if self._name not in (FILE, *FIELDS):
            allowed = ", ".join((FILE, *FIELDS))
            raise InvalidRequest(f"unknown part of the form; allowed are {allowed}", field=key_path(self._name))
        if self._name == FILE:
            if "filename" in self.fields:
                raise InvalidRequest("is given twice; send one file at a time", field=FILE)
            if b"filename" not in options:
                raise InvalidRequest("is required: send a file, as in curl -F file=@report.csv", field="filename")
            self.fields["filename"] = _text(options[b"filename"], "filename")
            uploads.read_names(self.fields)  # reject a bad name before the content arrives
            self.content_type = self._headers.get(b"content-type", b"").decode("latin-1")
        elif self._name in self.fields:
            raise InvalidRequest("is given twice", field=self._name)

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._name == FILE:
            self._pieces.append(data[start:end])
            return
        self._value += data[start:end]
        if len(self._value) > MAX_FIELD:
            raise InvalidRequest(f"is longer than {MAX_FIELD:,} bytes", field=self._name)

    def _finish_part(self) -> None:
        if self._name != FILE:
            self.fields[self._name] = _text(self._value, self._name)

    def _finish(self) -> None:
        self._is_complete = True


def _text(value: bytes, field: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("is not UTF-8", field=field) from None
