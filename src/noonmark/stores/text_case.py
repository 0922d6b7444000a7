"""Text without regard to case, as every store has it: of letters, those of ASCII."""

from __future__ import annotations

import string

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def lowered(text: str) -> str:
    """The text with small letters; databases know no others than these."""
    return text.translate(_LOWER)
