"""The detail of an occurrence: the numbers behind a decision, as text that a program can read back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def to_detail(facts: Mapping[str, int | float | str]) -> str:
    """One JSON object with sorted keys; nothing when there are no facts."""
    return json.dumps(dict(facts), sort_keys=True) if facts else ""
