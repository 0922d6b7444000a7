"""The output of a command: its last bytes."""

from __future__ import annotations

import json
from typing import Any

MAX_OUTPUT = 32_768
"""Bytes that are stored."""
MAX_JSON = 49_152
"""Bytes of JSON that they may become: unprintable characters are longer in JSON."""
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


def last_lines(text: str, count: int = 20) -> str:
    """Return the last lines of a text."""
    return "\n".join(text.rstrip().splitlines()[-count:])
