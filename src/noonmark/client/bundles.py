"""Bundles to push: a zip file as it is, or a folder that is packed first. The same files make the same archive."""

from __future__ import annotations

import os
import stat
import tempfile
import zipfile
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlencode

from noonmark.client.transport import Http, Request
from noonmark.core.bundles.archive import MANIFEST
from noonmark.core.errors import InvalidBundle, InvalidRequest, NotFound
from noonmark.core.instants import to_micros, to_text
from noonmark.operations.models.answers import PushedBundle, read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LEFT_OUT = frozenset({"__pycache__", ".git", ".hg", ".svn", ".venv", "node_modules", ".DS_Store"})
"""Names of files and folders that are not packed."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can hold; the real ones would change the archive."""


@contextmanager
def open_bundle(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open the archive of a bundle: a zip file, or one that is packed from a folder."""
    place = Path(path)
    if place.is_dir():
        if not (place / MANIFEST).is_file():
            raise InvalidBundle(f"the folder has no {MANIFEST}", field=str(path))
        with tempfile.TemporaryFile() as archive:
            _pack(place, archive)
            archive.seek(0)
            yield archive
        return
    try:
        stream = place.open("rb")
    except FileNotFoundError:
        raise NotFound("no such file or folder", field=str(path)) from None
    except OSError as error:
        raise InvalidRequest(f"cannot be read: {error.strerror}", field=str(path)) from None
    with stream:
        yield stream


def _pack(folder: Path, archive: BinaryIO) -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in _files(folder):
            status, name = path.lstat(), path.relative_to(folder).as_posix()
            if not stat.S_ISREG(status.st_mode):
                raise InvalidBundle("is a link, or no file: a bundle has files only", field=name)
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | (0o755 if status.st_mode & stat.S_IXUSR else 0o644)) << 16
            with path.open("rb") as source, packed.open(info, "w") as to:
                while data := source.read(1_048_576):
                    to.write(data)


def _files(folder: Path) -> Iterator[Path]:
    """All files of a folder, in the order of their names; links to folders too, which are refused."""
    for path in sorted(folder.iterdir()):
        if path.name in LEFT_OUT:
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        else:
            yield path


def push_request(stream: BinaryIO, *, bundle_id: str | None, declare: bool, filename: str) -> Request[PushedBundle]:
    """The request that pushes an open archive, without its content."""
    query: Mapping[str, str] = {
        **({} if bundle_id is None else {"bundle_id": bundle_id}),
        **({} if declare else {"declare": "false"}),
        "filename": filename,
    }
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    headers = {"Content-Type": "application/zip", "Content-Length": str(size)}
    return Request(
        http=Http("POST", f"/bundles?{urlencode(query)}", None, headers),
        read=lambda document: read(PushedBundle, document),
        is_repeatable=False,
    )


def archive_name(path: str | os.PathLike[str]) -> str:
    """What a bundle is called where it came from."""
    return Path(path).resolve().name


def document(pushed: PushedBundle) -> dict[str, Any]:
    """The document of a pushed bundle."""
    values = asdict(pushed)
    return {name: to_text(to_micros(value)) if isinstance(value, datetime) else value for name, value in values.items()}
