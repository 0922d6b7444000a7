"""Times as people type them: instants, and lengths such as `30m`, `1.5h`, `250ms` or bare seconds."""

from __future__ import annotations

import re
from decimal import Decimal

from noonmark.core.errors import InvalidRequest
from noonmark.core.instants import parse_instant, to_text
from noonmark.core.json_values import shown

SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3_600), "d": Decimal(86_400)}
"""What each suffix stands for."""
_LENGTH = re.compile(r"(\d{1,12}(?:\.\d{1,9})?|\.\d{1,9})\s?(ms|s|m|h|d)?", re.ASCII)


def parse_duration(text: str, *, field: str) -> int | float:
    """The length in seconds; a bare number is seconds already. Whole seconds are an integer."""
    match = _LENGTH.fullmatch(text.strip())
    if match is None:
        allowed = ", ".join(SECONDS)
        raise InvalidRequest(
            f"must be a length of time such as 30m, 1.5h or 250ms (a number, then one of {allowed}; seconds without"
            f" any), not {shown(text)}",
            field=field,
        )
    seconds = Decimal(match[1]) * SECONDS[match[2] or "s"]
    return int(seconds) if seconds == seconds.to_integral_value() else float(seconds)


def read_duration(text: str | None, field: str) -> int | float | None:
    """The length that an option gives, in seconds; None if it gives none."""
    return None if text is None else parse_duration(text, field=field)


def read_instant(text: str | None, field: str) -> str | None:
    """The instant that an option gives, in UTC; None if it gives none."""
    if text is None:
        return None
    try:
        return to_text(parse_instant(text))
    except ValueError as error:
        raise InvalidRequest(str(error), field=field) from None
