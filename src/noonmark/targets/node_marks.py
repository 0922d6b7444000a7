"""Node marks: the variable by which a process tells which node started it, and whether that node is gone.

A mark names the process of the node by its number and the time it began, as the system counts it, within one namespace
of processes. So nobody who came to the same number later is taken for it; and of a node in another container, of which
nothing can be seen from here, nobody says that it is gone.
"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import count
from pathlib import Path

from noonmark.targets.keeper import PROCESSES

NODE_MARK = "NOONMARK_NODE"
"""The variable by which a program tells which node has started it."""
DEAD = ("Z", "X")

_numbers = count()
_open: set[str] = set()
"""The marks of this process whose holders have not ended yet."""


def make_mark() -> str:
    """A new mark, which stands for its holder until that one ends, or this process does."""
    mark = f"{_namespace()}-{os.getpid()}-{_began(os.getpid())}-{next(_numbers)}"
    _open.add(mark)
    return mark


def drop_mark(mark: str) -> None:
    """Its holder has ended, though this process may go on."""
    _open.discard(mark)


def is_gone(mark: str) -> bool:
    """Whether the holder of a mark has surely ended."""
    namespace, _, rest = mark.partition("-")
    number, _, rest = rest.partition("-")
    began = rest.partition("-")[0]
    if not began or not number.isdigit() or namespace != _namespace():
        return False
    if int(number) == os.getpid() and began == _began(os.getpid()):
        return mark not in _open
    return began != _began(int(number))


def _namespace() -> str:
    """Which processes can be seen; nothing, where that cannot be told."""
    with suppress(OSError):
        return str(Path(PROCESSES, "self", "ns", "pid").stat().st_ino)
    return ""


def _began(pid: int) -> str:
    """When a process began; nothing when it has ended, or nobody can tell."""
    try:
        state, *fields = Path(PROCESSES, str(pid), "stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in DEAD else fields[18]
