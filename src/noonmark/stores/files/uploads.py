"""Uploads in a folder: `<folder>/<tenant>/<upload id>/<file name>`, each with a note of what it is.

Several servers may share the folder. How much a tenant may have is decided while its lock is held, by what is there.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO

from noonmark.core.errors import QuotaExceeded
from noonmark.core.uploads import folder_name, read_upload
from noonmark.stores.files import folders
from noonmark.stores.files.receiving import ABOUT, GONE, INCOMING, PART, Incoming

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from noonmark.core.uploads import Upload

MAX_UPLOADS = 10_000
"""So many files a tenant may have: each of them is looked at whenever one is added."""
MAX_AT_ONCE = 64
"""So many files may be coming in at a time."""
MAX_ABOUT = 65_536


class UploadFolder:
    """The uploads of all tenants on this machine."""

    def __init__(self, place: Path, *, max_bytes: int, quota: int) -> None:
        """Nothing is made before the first file comes."""
        self._place, self._max, self._quota = place.absolute(), max_bytes, quota
        self._lock = Lock()
        self._used: dict[str, int] = {}
        self._coming: dict[str, int] = {}
        self._at_once = 0

    @property
    def max_bytes(self) -> int:
        """The largest file that is taken."""
        return self._max

    def receive(self, tenant: str, upload_id: str, *, expected: int = 0) -> Incoming:
        """Begin to take a file."""
        with folders.told(), self.of(tenant, makes=True) as folder:
            self.check_room(tenant, folder, expected)
        with self._lock:
            if self._at_once >= MAX_AT_ONCE:
                raise QuotaExceeded(f"{MAX_AT_ONCE} files are coming in already; try again when some have come")
            self._at_once += 1
        try:
            return Incoming(self, tenant, upload_id)
        except BaseException:
            self.leave(tenant, 0, is_kept=False)
            raise

    def check_room(self, tenant: str, folder: int, size: int) -> None:
        """Refuse a file of that size if there is no room for it beside those that are kept."""
        sizes = []
        for name in folders.names(folder):
            with suppress(FileNotFoundError, NotADirectoryError), folders.opened(name, folder) as one:
                sizes.append(folders.size_of(one))
        with self._lock:
            self._used[tenant] = sum(sizes)
        if len(sizes) >= MAX_UPLOADS:
            raise QuotaExceeded(f"there are {len(sizes):,} uploads, and no more are kept: delete some", field="file")
        if sum(sizes) + size > self._quota:
            raise self._over()

    def reserve(self, tenant: str, size: int) -> None:
        """Count what is coming in; QuotaExceeded if there is no room for it."""
        with self._lock:
            coming = self._coming.get(tenant, 0) + size
            if self._used.get(tenant, 0) + coming > self._quota:
                raise self._over()
            self._coming[tenant] = coming

    def leave(self, tenant: str, size: int, *, is_kept: bool) -> None:
        """Count no longer as coming what has come, or will not."""
        with self._lock:
            self._at_once -= 1
            self._coming[tenant] = self._coming.get(tenant, 0) - size
            if is_kept:
                self._used[tenant] = self._used.get(tenant, 0) + size

    def _over(self) -> QuotaExceeded:
        return QuotaExceeded(f"all uploads together may have {self._quota:,} bytes: delete some", field="file")

    def all(self, tenant: str) -> list[Upload]:
        """Those of a tenant, the newest first."""
        with folders.told():
            try:
                with self.of(tenant) as folder:
                    found = [self._read(name, folder) for name in folders.names(folder)]
            except FileNotFoundError:
                return []
        known = [one[1] for one in found if one is not None]
        return sorted(known, key=lambda one: (one.created, one.upload_id), reverse=True)

    def find(self, tenant: str, upload_id: str) -> Upload | None:
        """One of them."""
        with folders.told():
            try:
                with self.of(tenant) as folder:
                    found = self._read(upload_id, folder)
            except FileNotFoundError:
                return None
        return None if found is None else found[1]

    def open(self, tenant: str, upload: Upload) -> BinaryIO:
        """What is in it."""
        with folders.told(), self.of(tenant) as folder, folders.opened(upload.upload_id, folder) as one:
            return os.fdopen(os.open(upload.filename, folders.READ, dir_fd=one), "rb", buffering=0)

    def stored_path(self, tenant: str, upload: Upload) -> str:
        """Where it is."""
        return str(self._place / folder_name(tenant) / upload.upload_id / upload.filename)

    def remove(self, tenant: str, upload_id: str) -> Upload | None:
        """Forget one: it is gone in one step, and then its files are removed."""
        found = self.find(tenant, upload_id)
        if found is None:
            return None
        with folders.told(), self.of(tenant) as folder, folders.opened(INCOMING, folder, makes=True) as coming:
            gone = f"{upload_id}{GONE}"
            try:
                os.rename(upload_id, gone, src_dir_fd=folder, dst_dir_fd=coming)
            except FileNotFoundError:  # somebody else was first
                return None
            folders.clear(gone, coming)
        return found

    def announced(self, tenant: str, upload_id: str) -> None:
        """Remember that an event has told of it."""
        with folders.told(), self.of(tenant) as folder, folders.opened(INCOMING, folder) as coming:
            folders.forget(upload_id, coming)

    def sweep(self) -> Iterator[tuple[str, Upload]]:
        """Clear away what was left behind; gives what was kept and not told of."""
        with folders.told(), ExitStack() as everything:
            try:
                base = everything.enter_context(self._base())
            except FileNotFoundError:
                return
            for name in folders.names(base):
                with ExitStack() as stack, suppress(FileNotFoundError, NotADirectoryError):
                    folder = stack.enter_context(folders.opened(name, base))
                    yield from self._left(folder, stack.enter_context(folders.opened(INCOMING, folder)))

    def _left(self, folder: int, coming: int) -> Iterator[tuple[str, Upload]]:
        for name in folders.names(coming):
            if name.endswith(GONE) or (name.endswith(PART) and not folders.is_held(name, coming)):
                folders.clear(name, coming)
        for name in folders.names(coming):
            if name.endswith(PART):
                continue
            found = self._read(name, folder)
            if found is not None:
                yield found
            elif not folders.is_held(f"{name}{PART}", coming):
                folders.forget(name, coming)

    @contextmanager
    def of(self, tenant: str, *, makes: bool = False) -> Iterator[int]:
        """The folder of a tenant."""
        if makes:
            self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._base() as base, folders.opened(folder_name(tenant), base, makes=makes) as folder:
            yield folder

    @contextmanager
    def _base(self) -> Iterator[int]:
        base = os.open(self._place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield base
        finally:
            os.close(base)

    def _read(self, name: str, folder: int) -> tuple[str, Upload] | None:
        """The tenant and the upload that a folder is of; None when it is none, or cannot be read."""
        try:
            with folders.opened(name, folder) as one:
                about = os.open(ABOUT, folders.READ, dir_fd=one)
                try:
                    document = json.loads(os.read(about, MAX_ABOUT))
                finally:
                    os.close(about)
            return str(document["tenant"]), read_upload(document)
        except (OSError, KeyError, TypeError, ValueError):
            return None
