"""Programs: which of them a node starts, for whom, where, and with what environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING

from noonmark.core.schedule import TRUSTED
from noonmark.core.targets.command import ANY, CommandRules, is_below

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.schedule import Schedule
    from noonmark.core.targets import CommandTarget

    Identity = tuple[int, int, int, int]
    """Device, inode, size and time of the last change of a file."""
    Place = tuple[int, int]
    """Device and inode of a folder."""

PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
"""What a command has of the environment of its node; nothing else, for there may be secrets in it."""


class Pin(StrEnum):
    """By what an allowed program is known again, so that another file in its place is not started."""

    INODE = "inode"
    """Device, inode, size and time of the last change."""
    DIGEST = "digest"
    """SHA-256 of its content: the same program installed again is the same."""


@dataclass(frozen=True, slots=True)
class Program:
    """The file of a program; with its identity, it is started only if it still is that file when it is."""

    path: str
    identity: Identity | None = None


@dataclass(frozen=True, slots=True)
class _Pinned:
    path: str
    mark: Identity | bytes


class Programs:
    """Which programs may be started here. Names are looked up once: they mean the same as long as the node lives."""

    def __init__(
        self,
        allowed: Sequence[str] = (),
        *,
        rules: CommandRules | None = None,
        uploads: Path | None = None,
        pin: Pin = Pin.INODE,
        is_offered: bool = True,
    ) -> None:
        """Of schedules that came over the network, only those; a star means any. None starts below the uploads."""
        self.is_offered = is_offered
        """Whether this node serves commands at all. A program that has none leaves them to others."""
        self.is_open = bool(allowed)
        """Whether it starts anything that came over the network."""
        self._is_any = ANY in allowed
        self._rules, self._uploads, self._pin = rules or CommandRules(), uploads, pin
        self._found: dict[str, str] = {}
        places = {name: path for name in allowed if (path := _lookup(name)) is not None}
        found = {name: _pinned(path, pin) for name, path in places.items()}
        self._pinned = {name: one for name, one in found.items() if one is not None}
        self._allowed = frozenset(allowed)

    def find(self, schedule: Schedule, target: CommandTarget) -> Program:
        """The program that a schedule names; LookupError says why it is not started here."""
        name = target.argv[0]
        if os.sep in name and not name.startswith(os.sep):
            raise LookupError(f"{name!r} is a relative path: write the name of a program, or an absolute path")
        if schedule.source == TRUSTED:
            return self._any(name)
        if not self._is_any and name not in self._allowed:
            raise LookupError(f"{name!r} may not be started on this node: --allow-commands does not name it")
        for variable in target.env:
            if (problem := self._rules.env_problem(variable)) is not None:
                raise LookupError(f"env.{variable}: {problem}")
        return self._any(name) if self._is_any and name not in self._pinned else self._checked(name)

    def folder(self, cwd: str) -> tuple[str, Place]:
        """The folder that a caller names for a program, without links; LookupError says why none starts there."""
        if (problem := self._rules.cwd_problem(cwd)) is not None:
            raise LookupError(problem)
        path = os.path.realpath(cwd)
        if not any(is_below(path, os.path.realpath(one)) for one in self._rules.folders):
            raise LookupError(f"{cwd!r} leads to {path!r}, which is not below a folder that --allow-cwd names")
        try:
            if self._is_upload(path):
                raise LookupError(f"{cwd!r} is where uploaded files are kept, and no program of a caller starts there")
            found = os.stat(path)  # noqa: PTH116 - a text all along
        except OSError as error:
            raise LookupError(f"a program could not be started in {cwd!r}: {error.strerror}") from None
        return path, (found.st_dev, found.st_ino)

    def _any(self, name: str) -> Program:
        """What a name stands for, whether it is allowed or not."""
        path = self._found.get(name) or _lookup(name)
        if path is None:
            raise LookupError(f"{name!r} was not found on this node, or is no program")
        if os.sep not in name:
            self._found[name] = path
        return Program(path)

    def _checked(self, name: str) -> Program:
        """An allowed program, if it still is the file that it was when the node started."""
        pinned = self._pinned.get(name)
        if pinned is None:
            raise LookupError(
                f"{name!r} was not found on this node when it started, or could not be read or run; restart it once it"
                " can be"
            )
        try:
            # Before its content is read: if it is replaced meanwhile, it is not the one that is started.
            identity = _identity(pinned.path)
            is_same = _mark(pinned.path, self._pin) == pinned.mark
        except OSError as error:
            raise LookupError(f"{name!r} cannot be read any more: {pinned.path}: {error.strerror}") from None
        if not is_same:
            raise LookupError(
                f"{name!r} was replaced on disk since this node started: {pinned.path} is another file now, and was not"
                " started. Restart the server to allow the new one"
            )
        return Program(pinned.path, identity)

    def _is_upload(self, path: str) -> bool:
        """Whether a folder is that of the uploads or lies below it, also by another mount of the same folder."""
        if self._uploads is None or not self._uploads.is_dir():
            return False
        return any(one.samefile(self._uploads) for one in (Path(path), *Path(path).parents))


def environment(target: CommandTarget, told: Mapping[str, str], home: str | None = None) -> dict[str, str]:
    """The environment of a command: little of the node's, what its schedule says, and what it is told of its run.

    One of a caller has a home of its own, and no folder in its PATH that depends on where it starts.
    """
    kept = {name: value for name in PASSED_ON if (value := os.environ.get(name)) is not None}
    if home is not None:
        folders = kept.get("PATH", os.defpath).split(os.pathsep)
        kept |= {"HOME": home, "PATH": os.pathsep.join(one for one in folders if one.startswith(os.sep))}
    return {**kept, **target.env, **told}


def _pinned(path: str, pin: Pin) -> _Pinned | None:
    """A program as it is now; None if it cannot be read, as one that may only be run."""
    try:
        return _Pinned(path, _mark(path, pin))
    except OSError:
        return None


def _mark(path: str, pin: Pin) -> Identity | bytes:
    """What a file is known by."""
    if pin is Pin.INODE:
        return _identity(path)
    with open(path, "rb") as stream:  # noqa: PTH123 - a text all along
        return file_digest(stream, "sha256").digest()


def _identity(path: str) -> Identity:
    found = os.stat(path)  # noqa: PTH116 - a text all along
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _lookup(name: str) -> str | None:
    """The file of a program, by its absolute path or in the folders of PATH; what links to it may change later."""
    folders = [Path(one) for one in os.environ.get("PATH", os.defpath).split(os.pathsep)]
    # A folder that is not absolute would be another one wherever the node is started.
    places = [Path(name)] if name.startswith(os.sep) else [one / name for one in folders if one.is_absolute()]
    found = next((one for one in places if one.is_file() and os.access(one, os.X_OK)), None)
    return None if found is None else os.path.realpath(found)
