"""Redaction: a text that holds a secret is not stored, however its receiver encoded it.

A text from outside is read in every way in which texts are embedded in others: percent-encoded, as HTML, with
backslashes as in JSON and in the `repr` of Python, and as any of these within another. Where one of the readings holds
a secret, nothing of that text is stored. So no list of forms can lack one, and no part of a secret is left after a cut.

A secret is found by its last characters. All of them are looked for at once, so that a text costs what it is long,
however many secrets there are.
"""

from __future__ import annotations

import re
from base64 import b64decode
from functools import lru_cache
from html import unescape
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MASK = "***"
PINGS = "/ping/"
"""The paths of pings begin like this, and their token follows."""
SHORTEST = 4
"""A shorter value cannot be told apart from other text."""
SCHEME = 8
"""If shorter, the first of several words of a value is not secret: `Bearer`, for instance."""
TAIL = 12
"""A secret is recognised by this many of its last characters; a shorter one by all of them."""
MAX_DECODED = 24
"""How many layers of encoding are unwrapped."""
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_SECRET = r"(?:passw(?:or)?d|passphrase|secret|token|credential|authorization|cookie|api_?key|(?<![a-z])key)"  # noqa: S105 - their names
# Every repetition is bounded, so that matching takes linear time.
_NAME = re.compile(_SECRET, re.IGNORECASE)
_COUNT = re.compile(r"(?:^|_)(?:max|input|output|total|history|read|write)_tokens$")
"""The end of a name that counts the tokens of a model, such as `max_tokens`."""
_IN_URL = re.compile(r"(://[^\s/?#@:]{0,128}:)[^\s\"'<>]{0,256}@")
_OPTION = re.compile(rf"([?&\s;][\w.-]{{0,40}}{_SECRET}[\w.-]{{0,20}}=)[^&\s;\"']{{1,1000}}", re.IGNORECASE)
_API_KEY = re.compile(r"(nm_live_[0-9a-z]{6}_)[0-9A-Za-z]{20,100}")
_SCHEME = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,4000}", re.IGNORECASE)


class Redactor:
    """Finds secret values, also where they were written in another way, and in parts: a token without its scheme."""

    def __init__(self, values: Iterable[str]) -> None:
        """Without values, nothing is redacted."""
        wholes = {one for value in values for one in (value, *_parts(value))}
        secret_texts = {reading.lower() for whole in wholes for reading in _ends(whole)}
        self._tails: dict[int, set[str]] = {}
        for text in secret_texts:
            if len(text) >= SHORTEST:
                tail = text[-TAIL:]
                self._tails.setdefault(len(tail), set()).add(tail)

    def holds(self, text: str) -> bool:
        """Whether a secret is in the text, in any encoding; True if it has too many encodings to check."""
        for number, reading in enumerate(_readings(text)):
            if number > MAX_DECODED or self._is_in(reading.lower()):
                return True
        return False

    def text(self, text: str) -> str:
        """The text, or a mask in place of all of it."""
        return MASK if self._tails and self.holds(text) else text

    def json(self, value: Any) -> Any:
        """The same for every text in a JSON value, the names in objects and the numbers too."""
        if not self._tails:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.json(one) for one in value]
        if isinstance(value, dict):
            return {self.text(name): self.json(one) for name, one in value.items()}
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return MASK if is_number and self.holds(str(value)) else value

    def _is_in(self, text: str) -> bool:
        return any(
            text[at : at + length] in tails
            for length, tails in self._tails.items()
            for at in range(len(text) - length + 1)
        )


def _parts(value: str) -> Iterator[str]:
    """The words of a value, and the password in a `Basic` credential."""
    first, *others = value.split() or [""]
    yield from [first, *others] if len(first) >= SCHEME else others
    if first.lower() == "basic" and len(others) == 1:
        try:
            pair = b64decode(others[0], validate=True).decode()
        except ValueError:
            return
        yield from (pair, pair.partition(":")[2])


def _readings(text: str) -> Iterator[str]:
    """The text as it is, and as what it stands for, as far as that goes; one more than may be, where it goes further.

    No reading is longer than the one before.
    """
    yield text
    left = MAX_DECODED
    while True:
        before = text
        for decode in (unquote, unescape, _without_backslashes):
            if (read := decode(text)) != text:
                text, left = read, left - 1
                yield text
                if left < 0:
                    return
        if text == before:
            return


def _ends(secret: str) -> tuple[str, str]:
    """A secret as it is, and decoded, as often as it looks encoded."""
    *_, last = _readings(secret)
    return secret, last


def _without_backslashes(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: found[3] or chr(int(found[1] or found[2], 16)), text)


@lru_cache(maxsize=1_000)
def is_secret_name(name: str) -> bool:
    """Whether a value of this name is a secret."""
    return _NAME.search(_COUNT.sub("", name)) is not None


def redact(text: str) -> str:
    """Mask passwords in URLs, options with secret names, API keys and other credentials."""
    if "://" in text:
        text = _IN_URL.sub(rf"\1{MASK}@", text)
    if "=" in text:
        text = _OPTION.sub(rf"\1{MASK}", text)
    text = redact_keys(text)
    return _SCHEME.sub(rf"\1 {MASK}", text) if " " in text else text


def redact_keys(text: str) -> str:
    """Mask API keys but for their ids, which are public."""
    return _API_KEY.sub(rf"\1{MASK}", text) if "nm_live_" in text else text


def redact_ping(path: str) -> str:
    """A path without the token of a ping, which is all that a caller needs; other paths are not changed."""
    if not path.startswith(PINGS):
        return path
    action = path.removeprefix(PINGS).partition("?")[0].partition("/")[2]
    return f"{PINGS}{MASK}" + (f"/{action}" if action in ("start", "fail") or action.isdigit() else "")
