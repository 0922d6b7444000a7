"""Programs: which of them a node starts, for whom, and with what environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from noonmark.core.schedule import TRUSTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noonmark.core.schedule import Schedule
    from noonmark.core.targets import CommandTarget

ANY = "*"
PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
"""What a command has of the environment of its node; nothing else, for there may be secrets in it."""
PERILOUS = (
    *("LD_", "DYLD_", "GCONV_PATH", "PATH", "IFS", "ENV", "BASH_", "SHELLOPTS", "PS4", "ZDOTDIR"),
    *("PYTHON", "PERL", "RUBY", "NODE_", "JAVA_", "JDK_", "_JAVA", "GIT_", "EDITOR", "PAGER", "VISUAL", "LESSOPEN"),
)
"""What names of variables begin with that let a program load or start other code than its own."""


class Programs:
    """Which programs may be started here. Names are looked up once: they mean the same as long as the node lives."""

    def __init__(self, allowed: Sequence[str] = (), *, is_offered: bool = True) -> None:
        """Of schedules that came over the network, only those; a star means any."""
        self.is_offered = is_offered
        """Whether this node serves commands at all. A program that has none leaves them to others."""
        self._is_any = ANY in allowed
        self._found = {name: path for name in allowed if (path := _lookup(name)) is not None}
        self._allowed = frozenset(allowed)

    def find(self, schedule: Schedule, target: CommandTarget) -> str:
        """The file of the program that a schedule names; LookupError says why it is not started here."""
        name = target.argv[0]
        is_trusted = schedule.source == TRUSTED
        if os.sep in name and not name.startswith(os.sep):
            raise LookupError(f"{name!r} is a relative path: write the name of a program, or an absolute path")
        if not is_trusted and not self._is_any:
            self._check(name, target.env)
        path = self._found.get(name)
        if path is None and (is_trusted or self._is_any):
            path = _lookup(name)
            if path is not None and os.sep not in name:
                self._found[name] = path
        if path is None:
            raise LookupError(f"{name!r} was not found on this node, or is no program")
        return path

    def _check(self, name: str, env: Mapping[str, str]) -> None:
        """Refuse what came over the network and was not allowed, or would make another program of it."""
        if name not in self._allowed:
            raise LookupError(f"{name!r} may not be started on this node: --allow-commands does not name it")
        perilous = sorted(one for one in env if one.upper().startswith(PERILOUS))
        if perilous:
            raise LookupError(f"{perilous[0]!r} may not be set: with it, {name!r} could run other programs")


def environment(target: CommandTarget, told: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command: little of the node's, what its schedule says, and what it is told of its run."""
    kept = {name: value for name in PASSED_ON if (value := os.environ.get(name)) is not None}
    return {**kept, **target.env, **told}


def _lookup(name: str) -> str | None:
    """The file of a program, by its absolute path or in the folders of PATH; what links to it may change later."""
    folders = [Path(one) for one in os.environ.get("PATH", os.defpath).split(os.pathsep)]
    # A folder that is not absolute would be another one wherever the node is started.
    places = [Path(name)] if name.startswith(os.sep) else [one / name for one in folders if one.is_absolute()]
    found = next((one for one in places if one.is_file() and os.access(one, os.X_OK)), None)
    return None if found is None else os.path.realpath(found)
