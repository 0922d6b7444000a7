"""One file that is coming in, in a folder of its own until it is complete.

What comes is written to `.incoming/<id>.part/content`, which is locked until whoever writes it is done with it, or
dies. When all of it has come and is on disk, the folder moves to where uploads are kept, in one step. `.incoming/<id>`
is there from before that until an event has told of it; if the file is locked no longer, nobody is about to tell.
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


class Home(Protocol):
    """Where files go when all of them has come."""

    @property
    def max_bytes(self) -> int:
        """The largest file that is taken."""

    def of(self, tenant: str, *, makes: bool = False) -> AbstractContextManager[int]:
        """The folder of a tenant, open."""

    def find(self, tenant: str, upload_id: str) -> Upload | None:
        """One that is kept."""

    def reserve(self, tenant: str, size: int) -> None:
        """Count what is coming in; QuotaExceeded if there is no room for it."""

    def leave(self, tenant: str, size: int, *, is_kept: bool) -> None:
        """Count no longer as coming what has come, or will not."""

    def check_room(self, tenant: str, folder: int, coming: int, size: int) -> None:
        """QuotaExceeded if there is no room for a file of that size beside those that are kept; under the lock."""


class Incoming:
    """A file on its way to be kept."""

    def __init__(self, home: Home, tenant: str, upload_id: str) -> None:
        """Begin with an empty one; Conflict while another comes in under the same id."""
        self._home, self._tenant, self._id = home, tenant, upload_id
        self._size, self._hash, self._is_kept = 0, sha256(), False
        self._part = f"{upload_id}{PART}"
        with (
            folders.os_errors(),
            home.of(tenant, makes=True) as folder,
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
        """Add to it, unless that is too much."""
        if self._size + len(data) > self._home.max_bytes:
            raise PayloadTooLarge(f"the file is larger than {self._home.max_bytes:,} bytes", field="file")
        self._home.reserve(self._tenant, len(data))
        self._size += len(data)
        self._hash.update(data)
        left = memoryview(data)
        with folders.os_errors():
            while left:
                left = left[os.write(self._open_file(), left) :]

    def keep(self, *, filename: str, path: str, content_type: str, now: Micros) -> Upload:
        """Put it where uploads are kept."""
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
            folder = stack.enter_context(self._home.of(self._tenant))
            coming = stack.enter_context(folders.opened(INCOMING, folder))
            self._complete(upload, coming)
            stack.enter_context(folders.locked(LOCKED, coming))
            if (before := self._home.find(self._tenant, self._id)) is not None:
                if not before.is_same(upload):
                    raise KeyReused("was used for another file", field="idempotency_key")
                return before
            self._home.check_room(self._tenant, folder, coming, upload.size)
            os.close(folders.open_regular(self._id, folders.LOCK, coming))
            with changing(folder, coming, Count(1, upload.size)):
                os.rename(self._part, self._id, src_dir_fd=coming, dst_dir_fd=folder)
            os.fsync(coming)
            os.fsync(folder)
        self._is_kept = True
        self._home.leave(self._tenant, self._size, is_kept=True)
        return upload

    def _complete(self, upload: Upload, coming: int) -> None:
        """Write down what it is, give it its name, and see to it that all of that is on disk."""
        told = json.dumps({"tenant": self._tenant, **upload.to_document()}).encode()
        os.fsync(self._open_file())
        with folders.opened(self._part, coming) as part:
            about = os.open(ABOUT, folders.NEW, 0o600, dir_fd=part)
            try:
                os.write(about, told)
                os.fsync(about)
            finally:
                os.close(about)
            os.rename(CONTENT, upload.filename, src_dir_fd=part, dst_dir_fd=part)
            # Lists have the newest first, and then need not open every one of them.
            os.utime(part, ns=(upload.created * 1_000, upload.created * 1_000))
            os.fsync(part)

    def drop(self) -> None:
        """Be done with it: unless it is kept, nothing of it is left behind."""
        if self._file is None:
            return
        if not self._is_kept:
            with suppress(OSError), self._home.of(self._tenant) as folder, folders.opened(INCOMING, folder) as coming:
                folders.clear(self._part, coming)
            self._home.leave(self._tenant, self._size, is_kept=False)
        os.close(self._file)
        self._file = None

    def _open_file(self) -> int:
        if self._file is None or self._is_kept:
            raise ValueError("it is kept or dropped already")
        return self._file
