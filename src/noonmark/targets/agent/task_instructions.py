"""The instructions of tasks: small text files, which a team can replace and add to.

A folder of the same layout comes before the files of the package: `task.md`, `force_research.md`, `role/NAME.md`,
`template/NAME.md`, `cognitive_strategy/NAME.md` and `research_strategy/NAME.md`. A file is read when a task needs it,
so a change counts from the next run on.
"""

from __future__ import annotations

import re
from pathlib import Path

SUFFIX = ".md"
MAX_BYTES = 65_536
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
PACKAGE = Path(__file__).with_name("instructions")


class InstructionFiles:
    """The instructions in a folder, and those of the package that it does not replace."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folders = (PACKAGE,) if folder is None else (folder, PACKAGE)

    def names(self, part: str) -> list[str]:
        """The names of the instructions for a part of a context."""
        files = (file for folder in self._folders for file in (folder / part).glob(f"*{SUFFIX}"))
        return sorted({file.stem for file in files if _NAME.fullmatch(file.stem)})

    def text(self, part: str, name: str = "") -> str | None:
        """The text of a file; None if there is none. An empty file switches instructions of the package off."""
        if name and _NAME.fullmatch(name) is None:
            return None
        for folder in self._folders:
            file = folder / part / f"{name}{SUFFIX}" if name else folder / f"{part}{SUFFIX}"
            try:
                with file.open("rb") as stream:
                    return stream.read(MAX_BYTES).decode("utf-8", "replace").strip()
            except FileNotFoundError:
                continue
        return None
