"""Uploads in a folder: `<folder>/<tenant>/<upload id>/<file name>`, each with its metadata.

Several servers may share the folder. How much a tenant may have is decided while its lock is held, by what is there.
An upload is as old as its folder: that has the time at which it was kept.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO

from noonmark.core.errors import QuotaExceeded, StoreUnavailable
from noonmark.core.fair_queue import Places
from noonmark.core.quotas import Quota, Resource, Scope
from noonmark.core.uploads import folder_name, read_upload
from noonmark.stores.files import folders
from noonmark.stores.files.incoming import ABOUT, GONE, INCOMING, LOCKED, PART, Incoming
from noonmark.stores.files.usage import COUNTED, Count, changing, count

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from noonmark.core.uploads import Upload
    from noonmark.ports.uploads import Place

MAX_UPLOADS = 10_000
"""The most files of a tenant: a page of a list reads the names of all of them."""
MAX_AT_ONCE = 64
"""The most files that are received at a time; one tenant may send half of them."""
MAX_ABOUT = 65_536


class UploadFolder:
    """The uploads of all tenants on this machine."""

    def __init__(self, place: Path, *, max_bytes: int, quota: int) -> None:
        """The folder is created with the first file."""
        self._place, self._max = place.absolute(), max_bytes
        self._files = Quota(Resource.UPLOADS, Scope.TENANT, MAX_UPLOADS)
        self._bytes = Quota(Resource.UPLOAD_BYTES, Scope.TENANT, quota)
        self._lock = Lock()
        self._used: dict[str, int] = {}
        self._coming: dict[str, int] = {}
        self._places = Places(MAX_AT_ONCE)

    @property
    def max_bytes(self) -> int:
        """The largest file that is accepted."""
        return self._max

    def receive(self, tenant: str, upload_id: str, *, expected: int = 0) -> Incoming:
        """Start to receive a file."""
        with folders.os_errors(), self._locked(tenant, makes=True) as (folder, coming):
            self.check_room(tenant, folder, coming, expected)
        with self._lock:
            if not self._places.may_have_one(tenant):
                raise QuotaExceeded("too many files are being received; try again later")
            self._places.take(tenant)
        try:
            return Incoming(self, tenant, upload_id)
        except BaseException:
            self.leave(tenant, 0, is_kept=False)
            raise

    def check_room(self, tenant: str, folder: int, coming: int, size: int) -> None:
        """QuotaExceeded if a file of that size does not fit with the stored ones. Called under the lock."""
        usage = count(folder, coming)
        with self._lock:
            self._used[tenant] = usage.size
        self._files.check(usage.files, field="file")
        self._bytes.check(usage.size, size, field="file")

    def reserve(self, tenant: str, size: int) -> None:
        """Reserve room for incoming bytes; QuotaExceeded if there is not enough."""
        with self._lock:
            coming = self._coming.get(tenant, 0)
            self._bytes.check(self._used.get(tenant, 0) + coming, size, field="file")
            self._coming[tenant] = coming + size

    def leave(self, tenant: str, size: int, *, is_kept: bool) -> None:
        """Release the room of a file that is complete or was dropped."""
        with self._lock:
            self._places.give_back(tenant)
            self._coming[tenant] = self._coming.get(tenant, 0) - size
            if is_kept:
                self._used[tenant] = self._used.get(tenant, 0) + size

    def usage(self, tenant: str) -> list[tuple[Quota, int]]:
        """The limits of a tenant's uploads, and how much of each is used."""
        usage = Count(0, 0)
        with folders.os_errors(), suppress(FileNotFoundError), self._locked(tenant) as (folder, coming):
            usage = count(folder, coming)
        return [(self._files, usage.files), (self._bytes, usage.size)]

    def page(self, tenant: str, limit: int, *, after: Place | None = None) -> tuple[list[Upload], Place | None]:
        """A page of a tenant's uploads, newest first, and its end if there are more."""
        uploads: list[Upload] = []
        end = after
        with folders.os_errors(), suppress(FileNotFoundError), self.of(tenant) as folder:
            for place in folders.newest_first(folder):
                if (after is not None and place >= after) or (read := self._read(place[1], folder)) is None:
                    continue
                if len(uploads) == limit:
                    return uploads, end
                uploads.append(read[1])
                end = place
        return uploads, None

    def find(self, tenant: str, upload_id: str) -> Upload | None:
        """Get an upload."""
        with folders.os_errors():
            try:
                with self.of(tenant) as folder:
                    upload = self._read(upload_id, folder)
            except FileNotFoundError:
                return None
        return None if upload is None else upload[1]

    def open(self, tenant: str, upload: Upload) -> BinaryIO:
        """The content of an upload."""
        with folders.os_errors(), self.of(tenant) as folder, folders.opened(upload.upload_id, folder) as upload_folder:
            file = os.fdopen(folders.open_regular(upload.filename, folders.READ, upload_folder), "rb", buffering=0)
        if (size := os.fstat(file.fileno()).st_size) != upload.size:
            file.close()
            raise StoreUnavailable(f"the file on disk has {size:,} bytes, and {upload.size:,} were uploaded")
        return file

    def stored_path(self, tenant: str, upload: Upload) -> str:
        """The path of an upload."""
        return str(self._place / folder_name(tenant) / upload.upload_id / upload.filename)

    def remove(self, tenant: str, upload_id: str) -> Upload | None:
        """Delete an upload: it disappears in one step, then its files are removed."""
        if self.find(tenant, upload_id) is None:
            return None
        gone = f"{upload_id}{GONE}"
        with folders.os_errors(), self._locked(tenant) as (folder, coming):
            if (upload := self._read(upload_id, folder)) is None:  # another process was faster
                return None
            folders.clear(gone, coming)
            with folders.opened(upload_id, folder) as upload_folder:
                size = folders.size_of(upload_folder)
            with changing(folder, coming, Count(-1, -size)):
                os.rename(upload_id, gone, src_dir_fd=folder, dst_dir_fd=coming)
            folders.forget(upload_id, coming)
            folders.clear(gone, coming)
        return upload[1]

    def announced(self, tenant: str, upload_id: str) -> None:
        """Record that its event was emitted."""
        with folders.os_errors(), self._coming_to(tenant) as (_, coming):
            folders.forget(upload_id, coming)

    def unannounced(self, tenant: str) -> list[Upload]:
        """Stored uploads whose event was not emitted, and that no process is about to emit."""
        with folders.os_errors(), suppress(FileNotFoundError), self._coming_to(tenant) as (folder, coming):
            return [upload for _, upload in self._untold(folder, coming)]
        return []

    def sweep(self) -> Iterator[tuple[str, Upload]]:
        """Remove leftovers; returns stored uploads whose event was not emitted."""
        with folders.os_errors(), ExitStack() as everything:
            try:
                base = everything.enter_context(self._base())
            except FileNotFoundError:
                return
            for name in folders.names(base):
                with ExitStack() as stack, suppress(FileNotFoundError, NotADirectoryError):
                    folder = stack.enter_context(folders.opened(name, base))
                    coming = stack.enter_context(folders.opened(INCOMING, folder))
                    with folders.locked(LOCKED, coming):
                        self._clear_away(folder, coming)
                    yield from self._untold(folder, coming)

    def _clear_away(self, folder: int, coming: int) -> None:
        """Remove leftovers of incomplete and deleted files; the usage is counted again next time."""
        folders.forget(COUNTED, coming)
        for name in folders.names(coming):
            if name.endswith(GONE) or (name.endswith(PART) and not folders.is_held(name, coming)):
                folders.clear(name, coming)
            elif not name.endswith(PART) and self._read(name, folder) is None:
                folders.forget(name, coming)

    def _untold(self, folder: int, coming: int) -> list[tuple[str, Upload]]:
        marked = [name for name in folders.names(coming) if not name.endswith((GONE, PART))]
        uploads = [self._read(name, folder) for name in marked if not folders.is_held(name, folder)]
        return [one for one in uploads if one is not None]

    @contextmanager
    def of(self, tenant: str, *, makes: bool = False) -> Iterator[int]:
        """The folder of a tenant."""
        if makes:
            self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._base() as base, folders.opened(folder_name(tenant), base, makes=makes) as folder:
            yield folder

    @contextmanager
    def _coming_to(self, tenant: str, *, makes: bool = False) -> Iterator[tuple[int, int]]:
        """The folder of a tenant, and the folder of its incoming files."""
        with self.of(tenant, makes=makes) as folder, folders.opened(INCOMING, folder, makes=True) as coming:
            yield folder, coming

    @contextmanager
    def _locked(self, tenant: str, *, makes: bool = False) -> Iterator[tuple[int, int]]:
        """The same two folders, locked."""
        with self._coming_to(tenant, makes=makes) as (folder, coming), folders.locked(LOCKED, coming):
            yield folder, coming

    @contextmanager
    def _base(self) -> Iterator[int]:
        base = os.open(self._place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield base
        finally:
            os.close(base)

    def _read(self, name: str, folder: int) -> tuple[str, Upload] | None:
        """The tenant and the upload of a folder; None if it has none, or cannot be read."""
        try:
            with folders.opened(name, folder) as upload_folder:
                about = folders.open_regular(ABOUT, folders.READ, upload_folder)
                try:
                    document = json.loads(os.read(about, MAX_ABOUT))
                finally:
                    os.close(about)
            return str(document["tenant"]), read_upload(document)
        except (OSError, KeyError, TypeError, ValueError):
            return None
