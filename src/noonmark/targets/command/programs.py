"""Programs: which ones a node starts, for which schedules, in which directory and with which environment."""

from __future__ import annotations

import os
from enum import StrEnum
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING

from noonmark.core.frozen import frozen
from noonmark.core.schedule import TRUSTED
from noonmark.core.targets.command import ANY, CommandRules, is_below

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.schedule import Schedule
    from noonmark.core.targets import CommandTarget

    FileIdentity = tuple[int, int, int, int]
    """Device, inode, size and modification time of a file."""
    DirectoryIdentity = tuple[int, int]
    """Device and inode of a directory."""

INHERITED_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
"""What a command inherits of its node's environment; nothing else, which may be secret."""


class Pin(StrEnum):
    """How an allowed program is recognised, so that another file in its place is not started."""

    INODE = "inode"
    """By device, inode, size and modification time."""
    DIGEST = "digest"
    """By the SHA-256 of its content: reinstalling the same program changes nothing."""


@frozen
class Program:
    """The file of a program; one with an identity is started only if the file still has it."""

    path: str
    identity: FileIdentity | None = None


@frozen
class _PinnedProgram:
    path: str
    fingerprint: FileIdentity | bytes


class ProgramPolicy:
    """Which programs may be started on this node. A name is looked up once, and means the same file from then on."""

    def __init__(
        self,
        allowed: Sequence[str] = (),
        *,
        rules: CommandRules | None = None,
        uploads: Path | None = None,
        pin: Pin = Pin.INODE,
        is_offered: bool = True,
    ) -> None:
        """Schedules from the network may start only `allowed` programs, `*` means any, and none below `uploads`."""
        self.is_offered = is_offered
        """Whether this node serves commands at all."""
        self.is_open = bool(allowed)
        """Whether it starts any command from the network."""
        self._is_any = ANY in allowed
        self._rules, self._uploads, self._pin = rules or CommandRules(), uploads, pin
        self._found: dict[str, str] = {}
        paths = {name: path for name in allowed if (path := find_program(name)) is not None}
        pinned = {name: _pin_program(path, pin) for name, path in paths.items()}
        self._pinned = {name: program for name, program in pinned.items() if program is not None}
        self._allowed = frozenset(allowed)
        self.not_found = () if self._is_any else tuple(name for name in allowed if name not in self._pinned)
        """Allowed programs that were not found, or that this node can neither read nor run."""

    def find(self, schedule: Schedule, target: CommandTarget) -> Program:
        """Return the program that a schedule names; LookupError says why it is not started here."""
        name = target.argv[0]
        if os.sep in name and not name.startswith(os.sep):
            raise LookupError(f"{name!r} is a relative path: use the name of a program, or an absolute path")
        if schedule.source == TRUSTED:
            return self._find_any(name)
        if not self._is_any and name not in self._allowed:
            raise LookupError(f"{name!r} may not be started on this node: --allow-commands does not name it")
        for variable in (*target.env, *target.secret_env):
            if (problem := self._rules.env_problem(variable)) is not None:
                raise LookupError(f"env.{variable}: {problem}")
        return self._find_any(name) if self._is_any and name not in self._pinned else self._find_pinned(name)

    def directory(self, cwd: str) -> tuple[str, DirectoryIdentity]:
        """Resolve the directory that a caller names for a program; LookupError says why it is not allowed."""
        if (problem := self._rules.cwd_problem(cwd)) is not None:
            raise LookupError(problem)
        path = os.path.realpath(cwd)
        if not any(is_below(path, os.path.realpath(folder)) for folder in self._rules.folders):
            raise LookupError(f"{cwd!r} leads to {path!r}, which is not below a folder that --allow-cwd names")
        try:
            if self._is_upload(path):
                raise LookupError(f"{cwd!r} is a folder of uploaded files, and programs of callers may not start there")
            status = os.stat(path)  # noqa: PTH116 - a text all along
        except OSError as error:
            raise LookupError(f"a program could not be started in {cwd!r}: {error.strerror}") from None
        return path, (status.st_dev, status.st_ino)

    def _find_any(self, name: str) -> Program:
        """Look a name up, allowed or not."""
        path = self._found.get(name) or find_program(name)
        if path is None:
            raise LookupError(f"{name!r} was not found on this node, or is not a program")
        if os.sep not in name:
            self._found[name] = path
        return Program(path)

    def _find_pinned(self, name: str) -> Program:
        """Return an allowed program if its file has not changed since the node started."""
        pinned = self._pinned.get(name)
        if pinned is None:
            raise LookupError(
                f"{name!r} was not found when this node started, or could not be read or run; restart the node once it"
                " can be"
            )
        try:
            # Before its content is read: if the file is replaced meanwhile, the start fails.
            identity = _identity(pinned.path)
            is_same = _fingerprint(pinned.path, self._pin) == pinned.fingerprint
        except OSError as error:
            raise LookupError(f"{name!r} cannot be read any more: {pinned.path}: {error.strerror}") from None
        if not is_same:
            raise LookupError(
                f"{name!r} was replaced on disk since this node started: {pinned.path} is another file now, and was not"
                " started. Restart the server to allow the new one"
            )
        return Program(pinned.path, identity)

    def _is_upload(self, path: str) -> bool:
        """Whether a directory is that of the uploads or below it, also through another mount."""
        if self._uploads is None or not self._uploads.is_dir():
            return False
        return any(parent.samefile(self._uploads) for parent in (Path(path), *Path(path).parents))


def environment(target: CommandTarget, run_variables: Mapping[str, str], home: str | None = None) -> dict[str, str]:
    """Return the environment of a command: some of the node's variables, the schedule's, and those of the run.

    With a `home`, for a command from the network, PATH has no relative directories.
    """
    inherited = {name: value for name in INHERITED_VARIABLES if (value := os.environ.get(name)) is not None}
    if home is not None:
        folders = inherited.get("PATH", os.defpath).split(os.pathsep)
        path = os.pathsep.join(folder for folder in folders if folder.startswith(os.sep))
        inherited |= {"HOME": home, "PATH": path}
    return {**inherited, **target.env, **run_variables}


def _pin_program(path: str, pin: Pin) -> _PinnedProgram | None:
    """Pin a program as it is now; None if its file cannot be read."""
    try:
        return _PinnedProgram(path, _fingerprint(path, pin))
    except OSError:
        return None


def _fingerprint(path: str, pin: Pin) -> FileIdentity | bytes:
    if pin is Pin.INODE:
        return _identity(path)
    with open(path, "rb") as stream:  # noqa: PTH123 - a text all along
        return file_digest(stream, "sha256").digest()


def _identity(path: str) -> FileIdentity:
    status = os.stat(path)  # noqa: PTH116 - a text all along
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def find_program(name: str) -> str | None:
    """Return the file of a program, by its absolute path or from PATH, with links resolved."""
    folders = [Path(folder) for folder in os.environ.get("PATH", os.defpath).split(os.pathsep)]
    # A relative directory would depend on where the node is started.
    paths = [Path(name)] if name.startswith(os.sep) else [folder / name for folder in folders if folder.is_absolute()]
    program = next((path for path in paths if path.is_file() and os.access(path, os.X_OK)), None)
    return None if program is None else os.path.realpath(program)
