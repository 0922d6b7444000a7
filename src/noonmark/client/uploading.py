"""Sending a file: read piece by piece, so that it may be larger than memory."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urlencode

from noonmark.client.asking import Http, Request
from noonmark.client.keys import fresh_key
from noonmark.client.values import Upload, read
from noonmark.core.errors import InvalidRequest, NotFound
from noonmark.core.instants import to_micros, to_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    File = str | os.PathLike[str] | BinaryIO

PIECE = 262_144


@contextmanager
def opened(file: File) -> Iterator[BinaryIO]:
    """A file by its name, open; one that is open already stays so."""
    if not isinstance(file, str | os.PathLike):
        yield file
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115 - it is closed below
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound("there is no such file", field=str(file)) from None
    except OSError as error:
        raise InvalidRequest(f"cannot be read: {error.strerror}", field=str(file)) from None
    with stream:
        yield stream


def describe(
    stream: BinaryIO, *, filename: str | None, path: str | None, content_type: str | None, key: str | None
) -> Request[Upload]:
    """The request that sends an open file; what it sends is not part of it."""
    named = getattr(stream, "name", None)
    name = filename or (Path(named).name if isinstance(named, str) else None)
    if name is None:
        raise InvalidRequest("is required: what the file is called", field="filename")
    said = {"filename": name} | ({} if path is None else {"path": path})
    headers = {
        "Content-Type": content_type or "application/octet-stream",
        "Idempotency-Key": key or fresh_key(),
    }
    if (size := _size(stream)) is not None:
        headers["Content-Length"] = str(size)
    return Request(
        http=Http("POST", f"/uploads?{urlencode(said)}", None, headers),
        read=lambda document: read(Upload, document),
        is_repeatable=False,
    )


def _size(stream: BinaryIO) -> int | None:
    """How much is left to be read; None of what cannot tell."""
    try:
        place = stream.tell()
        end = stream.seek(0, os.SEEK_END)
        stream.seek(place)
    except (AttributeError, OSError):
        return None
    return end - place


def document(upload: Upload) -> dict[str, object]:
    """An upload as the server told it."""
    told = {one.name: getattr(upload, one.name) for one in fields(upload)}
    return told | {"created_at_utc": to_text(to_micros(upload.created_at_utc))}


def pieces(stream: BinaryIO) -> Iterator[bytes]:
    """What is in an open file."""
    while data := stream.read(PIECE):
        yield data
