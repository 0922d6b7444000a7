"""The output of a command: its last bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.core.json_values import number_value, storable
from noonmark.core.run import MAX_MESSAGE

if TYPE_CHECKING:
    from noonmark.core.redaction import Redactor

MAX_OUTPUT = 32_768
"""Bytes that are stored."""
MAX_JSON = 49_152
"""Bytes of JSON that they may become: unprintable characters are longer in JSON."""
MAX_PROGRESS_LINE = 1_000
"""Bytes of a line about progress."""
MAX_LIVE_OUTPUT = 8_192
"""Bytes that are reported while the command runs: those are written again and again."""


class OutputTail:
    """Collects output, and keeps the end of it."""

    def __init__(self) -> None:
        self._tail = bytearray()
        self.total = 0
        """Bytes written so far."""

    def add(self, chunk: bytes) -> None:
        """Append a chunk."""
        self.total += len(chunk)
        self._tail += chunk
        if len(self._tail) > 2 * MAX_OUTPUT:  # not every time: that would move everything for each byte
            del self._tail[:-MAX_OUTPUT]

    def text(self, limit: int = MAX_OUTPUT) -> str:
        """Return the end of the output, as text that every store accepts."""
        tail = bytes(self._tail[-limit:])
        if len(tail) < self.total:  # it may start in the middle of a character
            tail = tail.lstrip(bytes(range(0x80, 0xC0)))
        text = tail.decode(errors="replace").replace("\0", "\ufffd")
        while len(json.dumps(text)) > MAX_JSON:
            text = text[len(text) // 4 :]
        return text

    def to_document(self, limit: int = MAX_OUTPUT) -> dict[str, Any]:
        """Return the end of the output, and how many bytes before it were dropped, if any."""
        text = self.text(limit)
        dropped = max(0, self.total - len(text.encode()))
        return {"output": text} | ({"output_dropped": dropped} if dropped else {})


class ProgressLines:
    """Collects lines such as `0.4 rows`, and keeps the newest: how far a command has come, and a text."""

    def __init__(self) -> None:
        self._rest = b""
        self.latest: dict[str, Any] | None = None
        self.count = 0
        """Lines understood so far."""
        self.rejected = 0
        """Lines that were not."""

    def add(self, chunk: bytes) -> None:
        """Append a chunk. A line that is too long is cut."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[:MAX_PROGRESS_LINE]
        for line in lines:
            self._read(storable(line[:MAX_PROGRESS_LINE].decode(errors="replace")).strip())

    def _read(self, line: str) -> None:
        if not line:
            return
        fraction, _, message = line.partition(" ")
        try:
            done = number_value(float(fraction), 0, 1)
        except ValueError:
            self.rejected += 1
        else:
            self.latest = {"fraction": done, "message": message.strip()[:MAX_MESSAGE]}
            self.count += 1


def mask_lines(document: dict[str, Any], redactor: Redactor | None) -> dict[str, Any]:
    """Return a document of output, and of progress, in which lines with secrets are masked."""
    if redactor is None:
        return document
    masked = {name: redactor.json(value) for name, value in document.items() if name != "output"}
    if "output" in document:
        lines = document["output"].split("\n")
        masked["output"] = "\n".join(redactor.text(line) for line in lines)
    return masked


def last_lines(text: str) -> str:
    """Return the last 20 lines of a text."""
    return "\n".join(text.rstrip().splitlines()[-20:])
