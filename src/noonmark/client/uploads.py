"""Uploads and downloads: files are transferred piece by piece, so they may be larger than memory."""

from __future__ import annotations

import io
import os
import re
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlencode

from noonmark.client.transport import Http, Request, fresh_key, key_header, segment
from noonmark.core.errors import InvalidRequest, NoonmarkError, NotFound
from noonmark.core.instants import to_micros, to_text
from noonmark.core.json_values import shown
from noonmark.operations.models.answers import Upload, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    File = str | os.PathLike[str] | BinaryIO
    Sink = File

CHUNK = 262_144
_HEADER = re.compile(r"[!-~][ -~]{0,999}")


@contextmanager
def open_source(file: File) -> Iterator[BinaryIO]:
    """Open a file by its name; a file that is open already is used as it is."""
    if not isinstance(file, str | os.PathLike):
        yield _open_for_bytes(file, "file", "read")
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115 - it is closed below
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound("no such file", field=str(file)) from None
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"cannot be read: {_reason(error)}", field=str(file)) from None
    with stream:
        yield stream


@contextmanager
def open_sink(to: Sink) -> Iterator[BinaryIO]:
    """Open a file for writing; one given by its name is replaced when it is complete."""
    if not isinstance(to, str | os.PathLike):
        yield _open_for_bytes(to, "to", "write")
        return
    try:
        place = Path(to).resolve()
        # A device or a pipe is written to directly.
        if place.exists() and not place.is_file():
            with place.open("wb") as stream:
                yield stream
            return
        partial = place.with_name(f".{place.name}.{fresh_key()}")
        try:
            with partial.open("xb") as stream:
                yield stream
            partial.replace(place)
        finally:
            partial.unlink(missing_ok=True)
    except NoonmarkError:  # some of them are ValueErrors too
        raise
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"cannot be written: {_reason(error)}", field=str(to)) from None


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def _open_for_bytes(file: Any, field: str, does: str) -> BinaryIO:
    """Check that a file is open for bytes."""
    if isinstance(file, io.TextIOBase):
        mode = "rb" if does == "read" else "wb"
        raise InvalidRequest(f"is open for text; a file has bytes: open it with {mode!r}", field=field)
    if not callable(getattr(file, does, None)):
        hint = "; io.BytesIO makes one of bytes" if isinstance(file, bytes | bytearray) else ""
        given = f"{type(file).__name__}" if hint else shown(file)
        raise InvalidRequest(
            f"must be the name of a file, or a file open to {does} bytes, not {given}{hint}", field=field
        )
    stream: BinaryIO = file
    return stream


def upload_request(
    stream: BinaryIO, *, filename: str | None, path: str | None, content_type: str | None, key: str | None
) -> Request[Upload]:
    """The request that sends an open file, without its content."""
    named = getattr(stream, "name", None)
    name = filename or (Path(named).name if isinstance(named, str) else None)
    if name is None:
        raise InvalidRequest("is required: the name of the file", field="filename")
    query = {"filename": name} | ({} if path is None else {"path": path})
    headers = {
        "Content-Type": _media_type(content_type),
        **key_header("idempotency_key", fresh_key() if key is None else key),
    }
    if (size := _size(stream)) is not None:
        headers["Content-Length"] = str(size)
    return Request(
        http=Http("POST", f"/uploads?{urlencode(query)}", None, headers),
        read=lambda document: read(Upload, document),
        is_repeatable=False,
    )


def _media_type(value: object) -> str:
    """The value of the Content-Type header."""
    if value is None or value == "":
        return "application/octet-stream"
    if isinstance(value, str) and _HEADER.fullmatch(value):
        return value
    raise InvalidRequest(f"must be a type such as text/csv, not {shown(value)}", field="content_type")


def download_request(upload_id: str) -> Request[int]:
    """The request for the content of an upload."""
    return Request(http=Http("GET", f"/uploads/{segment('upload_id', upload_id)}"), read=int, is_repeatable=False)


def _size(stream: BinaryIO) -> int | None:
    """The bytes left to read; None if the file cannot tell."""
    try:
        place = stream.tell()
        end = stream.seek(0, os.SEEK_END)
        stream.seek(place)
    except (AttributeError, OSError):
        return None
    return end - place


def document(upload: Upload) -> dict[str, object]:
    """The document of an upload."""
    values = {one.name: getattr(upload, one.name) for one in fields(upload)}
    return values | {"created_at_utc": to_text(to_micros(upload.created_at_utc))}


def read_chunks(stream: BinaryIO) -> Iterator[bytes]:
    """The content of an open file."""
    while data := stream.read(CHUNK):
        yield check_bytes(data)


def check_bytes(data: object) -> bytes:
    """Check that a file gives bytes."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidRequest(f"must give bytes, not {type(data).__name__}", field="file")
    return bytes(data)
