"""Concealing: secret values are taken out of what others said, before any of it is kept."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable

MASK = "***"
SHORTEST = 4
"""What is shorter cannot be told from other text."""
SCHEME = 8
"""The first of several words of a value, if it is shorter, is no secret by itself: `Bearer`, for instance."""
BEGINNING = 4
"""So many characters at the end of a text that was cut may be those of a secret; of a short one, half of it."""


class Concealment:
    """Finds secret values, also where they were written in another way, and in parts: a token without its scheme."""

    def __init__(self, values: Iterable[str]) -> None:
        """Without values, everything is left as it is."""
        wholes = {one for value in values for one in (value, *_parts(value)) if len(one) >= SHORTEST}
        written = {way(one) for one in wholes for way in WAYS}
        # The longest first: a value goes before its parts.
        self._forms = sorted(written, key=lambda form: (-len(form), form))

    def text(self, text: str, *, is_cut: bool = False) -> str:
        """The text with a mask in place of each secret; of one that was cut, also of the beginning of one."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        if is_cut:
            for form in self._forms:
                for length in range(len(form) - 1, min(BEGINNING, len(form) // 2) - 1, -1):
                    if text.endswith(form[:length]):
                        return text[:-length] + MASK
        return text

    def json(self, value: Any, *, is_cut: bool = False) -> Any:  # noqa: ANN401 - JSON
        """The same for every text in a JSON value, the names in objects too."""
        if not self._forms:
            return value
        if isinstance(value, str):
            return self.text(value, is_cut=is_cut)
        if isinstance(value, list):
            return [self.json(one, is_cut=is_cut) for one in value]
        if isinstance(value, dict):
            return {self.text(name): self.json(one, is_cut=is_cut) for name, one in value.items()}
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return MASK if is_number and str(value) in self._forms else value


def _parts(value: str) -> list[str]:
    first, *others = value.split() or [""]
    return [first, *others] if len(first) >= SCHEME else others


def _in_json(value: str) -> str:
    return json.dumps(value)[1:-1]


def _in_other_json(value: str) -> str:
    return _in_json(value).replace("/", r"\/")


def _fully_quoted(value: str) -> str:
    return quote(value, safe="")


WAYS = (str, _in_json, _in_other_json, quote, _fully_quoted, escape)
"""How a value may be written by whoever repeats it."""
