"""The bundles of a node: each is unpacked once, read-only, into a folder named by its digest.

Several processes may share the folder. An unpacked bundle appears as a whole, by a rename. Locks keep it while it is
copied, and the bundles that were not used for longest are removed when all of them together are too large.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from noonmark.core.bundles.zip_file import BundleZip
from noonmark.core.errors import InvalidBundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from noonmark.ports.bundles import Bundle

logger = logging.getLogger("noonmark.targets")
UNPACKING = "unpacking-"
STALE_SECONDS = 3_600
"""What a process that was killed has left half unpacked is removed when it is this old."""


class BundleCache:
    """Unpacked bundles in a folder of this user."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """The folder is made with the first bundle."""
        self._folder, self._max_bytes = folder, max_bytes

    def copy(self, bundle: Bundle, read: Callable[[int], bytes | None], to: Path) -> None:
        """Copy the files of a bundle into a new folder. `read` gives a chunk of its archive by its number.

        InvalidBundle if the archive is damaged; OSError if the disk fails.
        """
        self._prepare_folder()
        unpacked = self._folder / bundle.digest
        while True:
            with self._locked(bundle.digest, fcntl.LOCK_SH):
                if unpacked.is_dir():
                    os.utime(unpacked)
                    shutil.copytree(unpacked, to, copy_function=_copy_file)
                    _make_writable(to)
                    return
            with self._locked(bundle.digest, fcntl.LOCK_EX):
                if not unpacked.is_dir():
                    self._unpack(bundle, read, unpacked)
            self._evict(keep=bundle.digest)

    def _prepare_folder(self) -> None:
        """Create the folder; OSError if it belongs to somebody else, who could put other files into it."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = self._folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise OSError(f"the folder of unpacked bundles, {self._folder}, does not belong to this user")

    @contextmanager
    def _locked(self, digest: str, kind: int) -> Iterator[None]:
        fd = os.open(self._folder / f"{digest}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, kind)
            yield
        finally:
            os.close(fd)

    def _unpack(self, bundle: Bundle, read: Callable[[int], bytes | None], to: Path) -> None:
        """Unpack an archive beside its place, and move it there as a whole."""
        partial = Path(tempfile.mkdtemp(prefix=UNPACKING, dir=self._folder))
        try:
            archive = partial / "archive.zip"
            _download(bundle, read, archive)
            files = partial / "files"
            files.mkdir()
            with archive.open("rb") as stream:
                _extract(BundleZip(stream, bundle.size), files)
            _make_read_only(files)
            files.rename(to)
        finally:
            _remove(partial)

    def _evict(self, *, keep: str) -> None:
        """Remove the bundles that were not used for longest, until the others fit."""
        entries = []
        now = self._folder.stat().st_mtime  # a bundle was just unpacked into it
        for path in self._folder.iterdir():
            with suppress(OSError):
                used = path.stat().st_mtime
                if path.name.startswith(UNPACKING) and used < now - STALE_SECONDS:
                    _remove(path)
                elif path.is_dir() and not path.name.startswith(UNPACKING):
                    entries.append((used, path, _size(path)))
        total = sum(size for _, _, size in entries)
        for _, path, size in sorted(entries):
            if total <= self._max_bytes:
                return
            if path.name != keep and self._remove_unused(path):
                total -= size

    def _remove_unused(self, path: Path) -> bool:
        """Remove an unpacked bundle, unless it is just being copied."""
        try:
            with self._locked(path.name, fcntl.LOCK_EX | fcntl.LOCK_NB):
                _remove(path)  # not its lock: another process may wait for that
        except BlockingIOError:
            return False
        return True


def _download(bundle: Bundle, read: Callable[[int], bytes | None], to: Path) -> None:
    """Write an archive to a file, chunk by chunk, and compare its digest."""
    digest = hashlib.sha256()
    with to.open("wb") as stream:
        for number in range(bundle.chunks):
            if (chunk := read(number)) is None:
                raise InvalidBundle("a part of it is gone: it was deleted meanwhile")
            digest.update(chunk)
            stream.write(chunk)
    if digest.hexdigest() != bundle.digest:
        raise InvalidBundle("what is stored does not have its digest: it was damaged")


def _extract(archive: BundleZip, to: Path) -> None:
    for name, is_program, content in archive.contents():
        path = to / name
        if content is None:
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags, 0o700 if is_program else 0o600), "wb") as stream:
            for data in content:
                stream.write(data)


def _make_read_only(folder: Path) -> None:
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(parent, name)
            path.chmod(0o500 if path.stat().st_mode & stat.S_IXUSR else 0o400)
        if parent != str(folder):  # a folder that cannot be written cannot be renamed
            Path(parent).chmod(0o500)


def _copy_file(source: str, to: str) -> None:
    shutil.copyfile(source, to)
    os.chmod(to, 0o700 if os.stat(source).st_mode & stat.S_IXUSR else 0o600)  # noqa: PTH101, PTH116 - texts


def _make_writable(folder: Path) -> None:
    """A copied folder is read-only, as its original is."""
    for parent, _, _ in os.walk(folder):
        Path(parent).chmod(0o700)


def _size(folder: Path) -> int:
    return sum(Path(parent, name).stat().st_size for parent, _, names in os.walk(folder) for name in names)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        _make_writable(folder)
    shutil.rmtree(folder, ignore_errors=True)
