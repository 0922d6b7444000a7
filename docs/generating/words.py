"""Words that several pages use."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

NOTE = "<!-- Written by docs/generate.py; change the code and run `make docs`. -->\n\n"


def names(names: Iterable[str]) -> str:
    """Names as a list of code."""
    return ", ".join(f"`{name}`" for name in names)
