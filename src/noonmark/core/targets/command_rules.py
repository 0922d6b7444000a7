"""Command rules: what callers may say of a program besides its arguments.

A program that is allowed runs what its variables and its working folder make it run: `MAKEFILES`, `TAR_OPTIONS`, a
`Makefile` in the folder where an allowed script calls `make`. No list of such names is complete. So nothing is taken
from callers but what the operator names.
"""

from __future__ import annotations

from dataclasses import dataclass
from posixpath import normpath

from noonmark.core.jsonvalues import shown

ANY = "*"
OWN_PREFIX = "NOONMARK_"
TOLD = frozenset(
    {
        "NOONMARK_OCCURRENCE_ID",
        "NOONMARK_SCHEDULE_ID",
        "NOONMARK_NOMINAL_TIME",
        "NOONMARK_ATTEMPT",
        "NOONMARK_EVENT_ID",
        "NOONMARK_EVENT_TYPE",
        "NOONMARK_RUN_ID",
        "NOONMARK_NODE",
        "NOONMARK_CHAIN",
    }
)
"""What a program is told about its run; nobody else can say that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRules:
    """The rules of one node for commands of callers."""

    env: frozenset[str] = frozenset()
    """Variables that they may set; a star means any."""
    folders: tuple[str, ...] = ()
    """Folders in and below which their programs may start."""
    reserved: frozenset[str] = frozenset()
    """Variables that Noonmark itself reads, such as those of its settings: an allowed script may call `noonmark`."""

    def env_problem(self, name: str) -> str | None:
        """Why callers may not set this variable; None if they may."""
        if name in TOLD:
            return "is set by Noonmark for every run"
        is_own = name.startswith(OWN_PREFIX) and name not in self.reserved
        if is_own or name in self.env or ANY in self.env:
            return None
        return f"callers may not set {shown(name)}; to allow it, start the server with --allow-env {name}"

    def cwd_problem(self, cwd: str) -> str | None:
        """Why callers may not start a program in this folder, as far as its name tells; links are for the node."""
        if not cwd.startswith("/"):
            return f"must be an absolute path, not {shown(cwd)}"
        if any(is_below(normpath(cwd), normpath(folder)) for folder in self.folders):
            return None
        return f"callers may not start programs in {shown(cwd)}: it is not below a folder that --allow-cwd names"


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies below it; both are absolute, without dots and links."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
