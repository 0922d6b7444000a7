"""Folders by descriptor: names are resolved in an open folder, never through a symbolic link."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from errno import EDQUOT, EINVAL, ELOOP, ENOSPC, ENOTDIR
from stat import S_ISREG
from typing import TYPE_CHECKING

from noonmark.core.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
FULL = frozenset({ENOSPC, EDQUOT})
NO_FOLDER = frozenset({ENOTDIR, ELOOP})
"""Errors for a link, or anything else that is not a folder."""


@contextmanager
def os_errors() -> Iterator[None]:
    """Translate errors of the disk to `StoreUnavailable`, without the path."""
    try:
        yield
    except OSError as error:
        why = "the disk is full" if error.errno in FULL else error.strerror or "the disk failed"
        raise StoreUnavailable(f"the folder of the uploads cannot be used: {why}") from error


def open_regular(name: str, flags: int, within: int) -> int:
    """A file in a folder; OSError for anything else in its place.

    Opening a pipe would block until another process writes to it, and a device may do anything.
    """
    file = os.open(name, flags | os.O_NONBLOCK, 0o600, dir_fd=within)
    if not S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(EINVAL, "not a regular file")
    return file


@contextmanager
def opened(name: str, within: int, *, makes: bool = False) -> Iterator[int]:
    """Open a folder in a folder; create it if it does not exist."""
    if makes:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=within)
    folder = os.open(name, FOLDER, dir_fd=within)
    try:
        yield folder
    finally:
        os.close(folder)


@contextmanager
def locked(name: str, within: int) -> Iterator[None]:
    """Hold an exclusive lock, across threads and processes."""
    lock = open_regular(name, LOCK, within)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def everything(folder: int) -> list[str]:
    """The names in a folder."""
    with os.scandir(folder) as entries:
        return [one.name for one in entries]


def names(folder: int) -> list[str]:
    """The names in a folder, without hidden ones."""
    return sorted(one for one in everything(folder) if not one.startswith("."))


def newest_first(folder: int) -> list[tuple[int, str]]:
    """Modification times in microseconds and names of the entries of a folder, without hidden ones."""
    dated = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                with suppress(FileNotFoundError):
                    dated.append((entry.stat(follow_symlinks=False).st_mtime_ns // 1_000, entry.name))
    return sorted(dated, reverse=True)


def size_of(folder: int) -> int:
    """The bytes of the files in a folder, without hidden ones."""
    files = (os.stat(one, dir_fd=folder, follow_symlinks=False) for one in names(folder))
    return sum(one.st_size for one in files if S_ISREG(one.st_mode))


def forget(name: str, within: int) -> None:
    """Remove a file, if it exists."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=within)


def clear(name: str, within: int) -> None:
    """Remove a folder and its content, if it exists. A link is removed, not followed."""
    try:
        with opened(name, within) as folder:
            for entry in everything(folder):
                try:
                    os.unlink(entry, dir_fd=folder)
                except (IsADirectoryError, PermissionError):  # which one depends on the system
                    clear(entry, folder)
        os.rmdir(name, dir_fd=within)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in NO_FOLDER:
            raise
        os.unlink(name, dir_fd=within)


def is_held(name: str, within: int) -> bool:
    """Whether a live process holds a lock on a file of a folder."""
    try:
        with opened(name, within) as folder:
            return any(_is_locked(one, folder) for one in everything(folder))
    except OSError:
        return False


def _is_locked(name: str, within: int) -> bool:
    try:
        file = open_regular(name, READ, within)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(file)
