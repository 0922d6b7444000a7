"""Masking: what is secret in a text, or by its name, is never shown."""

from __future__ import annotations

import re
from functools import lru_cache

MASK = "***"
_SECRET = r"(?:passw(?:or)?d|passphrase|secret|token|credential|authorization|cookie|api_?key|(?<![a-z])key)"  # noqa: S105 - how they are called
# Every repetition is bounded, so that no text takes longer than its length.
_NAME = re.compile(_SECRET, re.IGNORECASE)
_IN_URL = re.compile(r"(://[^\s/?#@:]{0,128}:)[^\s\"'<>]{0,256}@")
_OPTION = re.compile(rf"([?&\s;][\w.-]{{0,40}}{_SECRET}[\w.-]{{0,20}}=)[^&\s;\"']{{1,1000}}", re.IGNORECASE)
_SCHEME = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,4000}", re.IGNORECASE)


@lru_cache(maxsize=1_000)
def is_secret(name: str) -> bool:
    """Whether what has such a name is kept to ourselves."""
    return _NAME.search(name) is not None


def masked(text: str) -> str:
    """The text without passwords in URLs, without options that are named like secrets, and without credentials."""
    if "://" in text:
        text = _IN_URL.sub(rf"\1{MASK}@", text)
    if "=" in text:
        text = _OPTION.sub(rf"\1{MASK}", text)
    return _SCHEME.sub(rf"\1 {MASK}", text) if " " in text else text
