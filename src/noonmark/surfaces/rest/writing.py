"""Writing JSON: whatever a run has left behind can be written."""

from __future__ import annotations

import json


def write_json(value: object) -> bytes:
    """The value as UTF-8; text that is not Unicode is escaped."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
