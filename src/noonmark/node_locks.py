"""Node locks: the nodes of one machine see at once that the process of another has ended.

Each node locks a file (`flock`) before its first heartbeat. The kernel keeps the lock for as long as the process lives,
also while it is frozen, and frees it when the process has ended, however it ended. The heartbeat names the file by the
boot id of the machine, the device and the inode. A neighbour judges a node only where all three are those of the file
that it has opened itself, so a file of the same name on another machine, or in another container, says nothing.

Only local file systems of Linux are used: others may not tell all processes of a lock, or not at once. Elsewhere leases
alone decide.

Child processes that do the work of a node hold its lock too: nothing begins again before they have ended. Forks of the
program close their copies. A copy that leaks only delays: then the lease decides.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
import threading
import weakref
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if sys.platform == "linux":
    import fcntl
    import mmap

from noonmark.core.errors import NoonmarkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

logger = logging.getLogger("noonmark.driver")

LOCAL_FILE_SYSTEMS = frozenset(
    [
        "btrfs",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "jfs",
        "overlay",
        "ramfs",
        "reiserfs",
        "tmpfs",
        "xfs",
        "zfs",
    ]
)
"""File systems that only this machine mounts, and whose locks all of its processes see.

Not those whose snapshots show a file a second time, under the same device and inode: bcachefs and NILFS2.
"""
SUFFIX = ".lock"
DRAFT_SUFFIX = ".draft"
"""A file has another name until it is locked: what others see is locked, or its process is gone."""
DRAFT_AGE = 60
"""Seconds after which a draft is left over from a process that ended while it created it."""
CREATE_RETRIES = 2
"""How often a file is created again: another process may remove the empty folder meanwhile."""
PROC = Path("/proc")


class NodeLocks:
    """The lock files of the nodes of one store, in one folder. Thread-safe."""

    def __init__(self, find_folder: Callable[[], Path]) -> None:
        """`find_folder` is called once, when the folder is first needed; it may ask the store."""
        self._find_folder = find_folder
        self._folder: Path | None = None
        self._reset()
        _instances.add(self)

    def acquire(self, node: str) -> str:
        """Lock the file of a node for as long as this process lives; returns the lock, as heartbeats name it.

        Empty where that is not possible, and leases alone decide. May block. Raises the errors of the store, which may
        answer when it is asked again.
        """
        with self._guard:
            held = self._held.get(node)
            if held is None:
                try:
                    held = self._held[node] = self._create(node)
                except NoonmarkError:
                    raise
                except Exception as error:  # noqa: BLE001 - a node also works without
                    logger.info(
                        "node %s has no lock file, so other nodes learn of its end when its leases run out: %s",
                        node,
                        error,
                    )
                    return ""
            held.users += 1
            return held.identity

    def release(self, node: str) -> None:
        """Remove the file of a node that has left; it was acquired as often."""
        with self._guard:
            held = self._held[node]
            held.users -= 1
            if held.users:
                return
            del self._held[node]
            held.remove()
            held.close()
            if not self._held:
                self._close_others()
            with suppress(OSError):  # other nodes use it
                held.path.parent.rmdir()

    def freshen(self) -> None:
        """Set the times of the files of this process, so that what removes old temporary files leaves them alone."""
        with self._guard:
            for held in self._held.values():
                held.freshen()

    def find_gone(self) -> dict[str, str]:
        """The nodes on this machine whose process has ended without leaving, with their locks.

        A few system calls, none of which waits: cheap enough to ask often, on an event loop.
        """
        with self._guard:
            gone = {}
            for node, fd in self._open_others().items():
                if node in self._finished:
                    continue
                try:
                    # Shared, so that several neighbours find it free at once.
                    fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    continue
                gone[node] = _identity(fd)
            return gone

    def remove(self, node: str) -> None:
        """Remove the file of a node that was found to be gone, or forget it if only another user can remove it."""
        with self._guard:
            fd = self._others.get(node)
            if fd is None or self._folder is None:
                return
            if _unlink(self._folder / f"{node}{SUFFIX}", _device_and_inode(fd)):
                os.close(self._others.pop(node))
            else:
                self._finished.add(node)

    def after_fork(self) -> None:
        """Hold nothing in a forked process: the locks are those of its parent."""
        for held in self._held.values():
            held.close()
        self._close_others()
        self._reset()

    def descriptors(self) -> list[int]:
        """Copies of the file descriptors that hold the locks of this process; the caller closes them.

        Raises OSError if the program has closed one: a process that does not hold the lock must not do its node's work.
        """
        with self._guard:
            intact = {node: held.intact_descriptors() for node, held in self._held.items()}
            for node, descriptors in intact.items():
                if not descriptors:
                    raise OSError(f"this program has closed the lock file of its node {node}")
            return [os.dup(descriptors[0]) for descriptors in intact.values()]

    def _reset(self) -> None:
        self._guard = threading.Lock()
        self._held: dict[str, _HeldLock] = {}
        self._others: dict[str, int] = {}
        """The open files of other nodes."""
        self._finished: set[str] = set()
        """Nodes whose end is dealt with, though their files could not be removed."""

    def _close_others(self) -> None:
        for fd in self._others.values():
            os.close(fd)
        self._others.clear()
        self._finished.clear()

    def _open_others(self) -> dict[str, int]:
        """The open files of all nodes but those of this process. A file that cannot be judged is left out."""
        if self._folder is None:
            return {}
        try:
            names = {name.removesuffix(SUFFIX) for name in os.listdir(self._folder) if name.endswith(SUFFIX)}  # noqa: PTH208 - names
        except OSError:  # the folder is gone
            names = set()
        for node in self._others.keys() - names:
            os.close(self._others.pop(node))
            self._finished.discard(node)
        for node in names - self._others.keys() - self._held.keys():
            with suppress(OSError):
                self._others[node] = _open_local(self._folder / f"{node}{SUFFIX}", os.O_RDONLY)
        return self._others

    def _create(self, node: str) -> _HeldLock:
        """Create and lock the file of a node; raises an error that says why it is not possible."""
        if "/" in node:
            raise OSError(f"{node!r} cannot be the name of a file")
        if self._folder is None:
            folder = self._find_folder()
            _check_local(folder)
            self._folder = folder
        path = self._folder / f"{node}{SUFFIX}"
        for _ in range(CREATE_RETRIES):
            with suppress(FileNotFoundError):
                return _HeldLock(path)
        return _HeldLock(path)


class _HeldLock:
    """The locked file of one node of this process."""

    def __init__(self, path: Path) -> None:
        """Create and lock it, and its folder. Raises OSError."""
        self.path, self.users = path, 0
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}{DRAFT_SUFFIX}")
        fd = _open_local(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(fd, f"{os.getpid()}\n".encode())
            # A mapping keeps the lock as well: some programs close all file descriptors, whoever opened them.
            self._mapping = mmap.mmap(fd, 1, access=mmap.ACCESS_READ)
            self._file = _device_and_inode(fd)
            # Now, while nothing else in this process has opened the file by its final name.
            self._fd, self._others = fd, [other for other in _descriptors_of(self._file) if other != fd]
            self.identity = _identity(fd)
            draft.rename(path)
        except BaseException:
            os.close(fd)
            with suppress(OSError):
                draft.unlink()
            raise
        _remove_old_drafts(path.parent, os.fstat(fd).st_mtime)

    def intact_descriptors(self) -> list[int]:
        """Its descriptors that are still those of the file: the program may have closed one and opened another file."""
        return [fd for fd in (self._fd, *self._others) if self._is_intact(fd)]

    def freshen(self) -> None:
        """Set the times of the file to now."""
        for fd in self.intact_descriptors()[:1]:
            with suppress(OSError):
                os.utime(fd)

    def remove(self) -> None:
        """Remove the file, unless its name is that of another one by now."""
        _unlink(self.path, self._file)

    def close(self) -> None:
        """Close this process's copies; the lock is free when no process has any."""
        if self._is_intact(self._fd):
            os.close(self._fd)
        if all(map(self._is_intact, self._others)):
            self._mapping.close()
        else:  # the mapping has a descriptor as well, whose number may be that of another file by now
            _abandoned.append(self._mapping)

    def _is_intact(self, fd: int) -> bool:
        try:
            return _device_and_inode(fd) == self._file
        except OSError:
            return False


_instances: weakref.WeakSet[NodeLocks] = weakref.WeakSet()
_abandoned: list[object] = []
"""Mappings that must never be closed."""
_adopted: list[int] = []
"""Locks of the node that started this process."""


@contextmanager
def shared_descriptors() -> Iterator[list[int]]:
    """File descriptors that a child process inherits to hold all locks of this process, for as long as it lives."""
    descriptors: list[int] = []
    try:
        for locks in list(_instances):
            descriptors += locks.descriptors()
        yield descriptors
    finally:
        for fd in descriptors:
            os.close(fd)


def adopt(descriptors: Iterable[int]) -> None:
    """Hold inherited locks until this process ends. Its own children do not inherit them."""
    for fd in descriptors:
        os.set_inheritable(fd, False)  # noqa: FBT003 - as it is declared
        _adopted.append(fd)


def file_system(fd: int) -> str:
    """The type of the file system that an open file is on, such as ext4; empty if that is unknown."""
    try:
        details = (PROC / "self/fdinfo" / str(fd)).read_text("ascii", "replace")
        mounts = (PROC / "self/mountinfo").read_text("utf-8", "replace")
    except OSError:
        return ""
    return file_system_of_mount(details, mounts)


def file_system_of_mount(details: str, mounts: str) -> str:
    """The type of a file system, by what /proc says of an open file and of all mounts."""
    mount = next((line.split()[1] for line in details.splitlines() if line.startswith("mnt_id:")), None)
    for line in mounts.splitlines():
        place, _, source = line.partition(" - ")
        if source and place.split()[0] == mount:
            return source.split()[0]
    return ""


def _open_local(path: Path, flags: int) -> int:
    """Open a regular file on a local file system. Raises OSError."""
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    kind = file_system(fd)
    if kind in LOCAL_FILE_SYSTEMS and stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    if flags & os.O_CREAT:
        path.unlink()
    raise OSError(f"{path} is not a regular file on a local file system, but on one of type {kind or 'unknown'}")


def _check_local(folder: Path) -> None:
    """Create a folder, and refuse one that is not on a local file system: a look into it may block. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        kind = file_system(fd)
    finally:
        os.close(fd)
    if kind not in LOCAL_FILE_SYSTEMS:
        with suppress(OSError):  # other nodes may use it
            folder.rmdir()
        raise OSError(f"{folder} is on a file system of type {kind or 'unknown'}, not on a local one")


def _identity(fd: int) -> str:
    """The name of a lock that no other file has, on any machine."""
    boot_id = (PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
    device, inode = _device_and_inode(fd)
    return f"{boot_id} {device} {inode}"


def _device_and_inode(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _descriptors_of(file: tuple[int, int]) -> list[int]:
    """All descriptors of this process for a file."""
    found = []
    for name in os.listdir(PROC / "self/fd"):  # noqa: PTH208 - names
        with suppress(OSError):  # it is closed again
            if _device_and_inode(int(name)) == file:
                found.append(int(name))
    return found


def _unlink(path: Path, file: tuple[int, int]) -> bool:
    """Remove a file, unless its name is that of another file by now; returns whether the file is gone from there."""
    try:
        status = path.stat()
        if (status.st_dev, status.st_ino) == file:
            path.unlink()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _remove_old_drafts(folder: Path, now: float) -> None:
    with suppress(OSError):
        for draft in folder.glob(f".*{DRAFT_SUFFIX}"):
            if draft.stat().st_mtime < now - DRAFT_AGE:
                draft.unlink()


def _in_child() -> None:
    for locks in list(_instances):
        locks.after_fork()
    for fd in _adopted:
        with suppress(OSError):
            os.close(fd)
    _adopted.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
