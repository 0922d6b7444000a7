"""The file in which a command says what it has used."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

from noonmark.core.budgets.reported import read_reports

if TYPE_CHECKING:
    from noonmark.core.budgets.spend import Usage

USAGE_VARIABLE = "NOONMARK_USAGE_FILE"
"""The environment variable that names it. The command creates it, if it has something to say."""
MAX_BYTES = 65_536


def read_usage_file(path: str) -> list[Usage]:
    """Read a JSON object, or an array of such objects, one for each model.

    FileNotFoundError if the command wrote none; OSError or ValueError if it cannot be read. What the program has put
    in its place, such as a link or a pipe, is not followed and not waited for.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:  # noqa: PTH123 - it is open
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("it is not a file")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    return read_reports(document)
