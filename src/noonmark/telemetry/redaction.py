"""Redaction of secrets in texts and by names."""

from __future__ import annotations

import re
from functools import lru_cache

MASK = "***"
_SECRET = r"(?:passw(?:or)?d|passphrase|secret|token|credential|authorization|cookie|api_?key|(?<![a-z])key)"  # noqa: S105 - their names
# Every repetition is bounded, so that matching takes linear time.
_NAME = re.compile(_SECRET, re.IGNORECASE)
_IN_URL = re.compile(r"(://[^\s/?#@:]{0,128}:)[^\s\"'<>]{0,256}@")
_OPTION = re.compile(rf"([?&\s;][\w.-]{{0,40}}{_SECRET}[\w.-]{{0,20}}=)[^&\s;\"']{{1,1000}}", re.IGNORECASE)
_SCHEME = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,4000}", re.IGNORECASE)


@lru_cache(maxsize=1_000)
def is_secret_name(name: str) -> bool:
    """Whether a value of this name is a secret."""
    return _NAME.search(name) is not None


def redact(text: str) -> str:
    """Mask passwords in URLs, options with secret names, and credentials."""
    if "://" in text:
        text = _IN_URL.sub(rf"\1{MASK}@", text)
    if "=" in text:
        text = _OPTION.sub(rf"\1{MASK}", text)
    return _SCHEME.sub(rf"\1 {MASK}", text) if " " in text else text
