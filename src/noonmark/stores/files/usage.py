"""The usage of a tenant, recorded so that a new file does not require a scan of all files.

`.incoming/.count` is read and written while the lock of the tenant is held. It is trusted as long as nothing else has
put anything into the folder of the tenant, or taken something out; if not, or if it cannot be read, all is counted.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from noonmark.stores.files import folders

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNTED = ".count"
_LONGEST = 100
_RECORD = re.compile(rb"(\d+) (\d+) (\d+)\n")
"""Files, bytes, and the modification time of the tenant's folder."""


class Count(NamedTuple):
    """The number of uploads, and their bytes."""

    files: int
    size: int


def count(folder: int, coming: int) -> Count:
    """The usage of a tenant's folder."""
    usage = _read(folder, coming)
    if usage is None:
        usage = _count_files(folder)
        _write(usage, folder, coming)
    return usage


@contextmanager
def changing(folder: int, coming: int, by: Count) -> Iterator[None]:
    """Record a change of the usage that happens inside this context."""
    before = count(folder, coming)
    # A process that is killed before it records the change leaves no wrong record.
    folders.forget(COUNTED, coming)
    yield
    _write(Count(before.files + by.files, before.size + by.size), folder, coming)


def _count_files(folder: int) -> Count:
    sizes = []
    for name in folders.names(folder):
        with suppress(FileNotFoundError, NotADirectoryError), folders.opened(name, folder) as upload_folder:
            sizes.append(folders.size_of(upload_folder))
    return Count(len(sizes), sum(sizes))


def _read(folder: int, coming: int) -> Count | None:
    try:
        file = folders.open_regular(COUNTED, folders.READ, coming)
        try:
            record = _RECORD.fullmatch(os.read(file, _LONGEST))
        finally:
            os.close(file)
    except OSError:
        return None
    if record is None or int(record[3]) != os.stat(folder).st_mtime_ns:
        return None
    return Count(int(record[1]), int(record[2]))


def _write(usage: Count, folder: int, coming: int) -> None:
    record = f"{usage.files} {usage.size} {os.stat(folder).st_mtime_ns}\n".encode()
    with suppress(OSError):  # it is counted again next time
        folders.forget(COUNTED, coming)
        file = os.open(COUNTED, folders.NEW, 0o600, dir_fd=coming)
        try:
            os.write(file, record)
        finally:
            os.close(file)
