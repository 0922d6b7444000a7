"""Output: the last of what a command wrote, however much that was."""

from __future__ import annotations

import json
from typing import Any

KEPT = 32_768
"""Bytes that are kept."""
MAX_TEXT = 49_152
"""Bytes of JSON that they may become: most fit, but a character that cannot be shown is longer in JSON."""
TOLD = 8_192
"""Bytes that are told of it while it grows: those are written again and again."""


class Tail:
    """Takes in everything, and keeps the end of it."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._kept = bytearray()
        self.total = 0
        """So many bytes were taken in."""

    def add(self, piece: bytes) -> None:
        """Take in some more."""
        self.total += len(piece)
        self._kept += piece
        if len(self._kept) > 2 * KEPT:  # not every time: that would move everything for each byte
            del self._kept[:-KEPT]

    def text(self, most: int = KEPT) -> str:
        """The end of it, as text that every store can hold."""
        kept = bytes(self._kept[-most:])
        if len(kept) < self.total:  # it may begin in the middle of a character
            kept = kept.lstrip(bytes(range(0x80, 0xC0)))
        text = kept.decode(errors="replace").replace("\0", "\ufffd")
        while len(json.dumps(text)) > MAX_TEXT:
            text = text[len(text) // 4 :]
        return text

    def to_document(self, most: int = KEPT) -> dict[str, Any]:
        """The end of it, and how many bytes came before that, if any did."""
        text = self.text(most)
        dropped = max(0, self.total - len(text.encode()))
        return {"output": text} | ({"output_dropped": dropped} if dropped else {})


def last_lines(text: str, count: int = 20) -> str:
    """The end of a text, for people."""
    return "\n".join(text.rstrip().splitlines()[-count:])
