"""An incoming file, in a separate folder until it is complete.

Content is written to `.incoming/<id>.part/content`, which is locked until its writer is done with it, or
dies. When it is complete and on disk, the folder moves to the uploads in one step. `.incoming/<id>`
exists from before the move until the event is emitted; if it is not locked, no process is about to emit it.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import ExitStack, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol

from noonmark.core.errors import Conflict, KeyReused, PayloadTooLarge
from noonmark.core.uploads import Upload
from noonmark.stores.files import folders
from noonmark.stores.files.usage import Count, changing

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from noonmark.core.instants import Micros

INCOMING, LOCKED, ABOUT = ".incoming", ".lock", ".upload.json"
CONTENT, PART, GONE = "content", ".part", ".gone"


class CompleteFiles(Protocol):
    """The folder of complete files."""

    @property
    def max_bytes(self) -> int:
        """The largest file that is accepted."""

    def of(self, tenant: str, *, makes: bool = False) -> AbstractContextManager[int]:
        """Open the folder of a tenant."""

    def find(self, tenant: str, upload_id: str) -> Upload | None:
        """A stored upload."""

    def reserve(self, tenant: str, size: int) -> None:
        """Reserve room for incoming bytes; QuotaExceeded if there is not enough."""

    def leave(self, tenant: str, size: int, *, is_kept: bool) -> None:
        """Release the room of a file that is complete or was dropped."""

    def check_room(self, tenant: str, folder: int, coming: int, size: int) -> None:
        """QuotaExceeded if a file of that size does not fit with the stored ones. Called under the lock."""


class Incoming:
    """A file that is being received."""

    def __init__(self, complete_files: CompleteFiles, tenant: str, upload_id: str) -> None:
        """Start with an empty file; Conflict while another one is received under the same id."""
        self._complete_files, self._tenant, self._id = complete_files, tenant, upload_id
        self._size, self._hash, self._is_kept = 0, sha256(), False
        self._part = f"{upload_id}{PART}"
        with (
            folders.os_errors(),
            complete_files.of(tenant, makes=True) as folder,
            folders.opened(INCOMING, folder, makes=True) as to,
        ):
            try:
                os.mkdir(self._part, 0o700, dir_fd=to)
            except FileExistsError:
                raise Conflict("an upload under this key is still coming in") from None
            with folders.opened(self._part, to) as part:
                self._file: int | None = os.open(CONTENT, folders.NEW, 0o600, dir_fd=part)
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, data: bytes) -> None:
        """Append, up to the limits."""
        if self._size + len(data) > self._complete_files.max_bytes:
            raise PayloadTooLarge(f"the file is larger than {self._complete_files.max_bytes:,} bytes", field="file")
        self._complete_files.reserve(self._tenant, len(data))
        self._size += len(data)
        self._hash.update(data)
        remaining = memoryview(data)
        with folders.os_errors():
            while remaining:
                remaining = remaining[os.write(self._open_file(), remaining) :]

    def keep(self, *, filename: str, path: str, content_type: str, now: Micros) -> Upload:
        """Move it to the stored uploads."""
        upload = Upload(
            upload_id=self._id,
            filename=filename,
            path=path,
            content_type=content_type,
            size=self._size,
            sha256=self._hash.hexdigest(),
            created=now,
        )
        with folders.os_errors(), ExitStack() as stack:
            folder = stack.enter_context(self._complete_files.of(self._tenant))
            coming = stack.enter_context(folders.opened(INCOMING, folder))
            self._complete(upload, coming)
            stack.enter_context(folders.locked(LOCKED, coming))
            if (before := self._complete_files.find(self._tenant, self._id)) is not None:
                if not before.is_same(upload):
                    raise KeyReused("was used for another file", field="idempotency_key")
                return before
            self._complete_files.check_room(self._tenant, folder, coming, upload.size)
            os.close(folders.open_regular(self._id, folders.LOCK, coming))
            with changing(folder, coming, Count(1, upload.size)):
                os.rename(self._part, self._id, src_dir_fd=coming, dst_dir_fd=folder)
            os.fsync(coming)
            os.fsync(folder)
        self._is_kept = True
        self._complete_files.leave(self._tenant, self._size, is_kept=True)
        return upload

    def _complete(self, upload: Upload, coming: int) -> None:
        """Write its metadata, give it its name, and flush everything to disk."""
        metadata = json.dumps({"tenant": self._tenant, **upload.to_document()}).encode()
        os.fsync(self._open_file())
        with folders.opened(self._part, coming) as part:
            about = os.open(ABOUT, folders.NEW, 0o600, dir_fd=part)
            try:
                os.write(about, metadata)
                os.fsync(about)
            finally:
                os.close(about)
            os.rename(CONTENT, upload.filename, src_dir_fd=part, dst_dir_fd=part)
            # Lists show the newest first; with this they need not open each file.
            os.utime(part, ns=(upload.created * 1_000, upload.created * 1_000))
            os.fsync(part)

    def drop(self) -> None:
        """Close it, and remove it unless it was stored."""
        if self._file is None:
            return
        if not self._is_kept:
            with (
                suppress(OSError),
                self._complete_files.of(self._tenant) as folder,
                folders.opened(INCOMING, folder) as coming,
            ):
                folders.clear(self._part, coming)
            self._complete_files.leave(self._tenant, self._size, is_kept=False)
        os.close(self._file)
        self._file = None

    def _open_file(self) -> int:
        if self._file is None or self._is_kept:
            raise ValueError("the file is already stored or dropped")
        return self._file
