"""Chains: events that Noonmark emits by itself, one because of another, and where that ends.

An occurrence whose work is to emit has an event for its end, and what happens to any occurrence may be told as one.
When such an event sets off another occurrence, the next event is one deeper. How deep it is stands in its id, so that
it is known wherever the event is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from noonmark.core.events import NOONMARK
from noonmark.core.ids import OriginKind, kind_of

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence

MAX_DEPTH = 16
"""So many events may set each other off, one after another."""
EMITTER = "schedule:"
"""The source of an event that a schedule emits begins like this."""
_ID = re.compile(r"evt(\d{1,4})_.+")


def next_depth(occurrence: Occurrence) -> int:
    """How deep an event is that this occurrence brings about: 1, unless one of our own events has set it off."""
    return 1 + _depth(occurrence)


def event_id(depth: int, key: str) -> str:
    """The id of an event so deep in its chain."""
    return f"evt{depth}_{key}"


def chain_of(source: object, payload: object) -> list[str]:
    """The schedules that led to an event, each by a fact about it, oldest first; none, where it is no fact of ours."""
    chain = payload.get("chain") if source == NOONMARK and isinstance(payload, dict) else None
    return chain if isinstance(chain, list) else []


def chain_behind(occurrence: Occurrence) -> list[str]:
    """The same of an occurrence that an event has set off."""
    event = _cause(occurrence)
    return chain_of(event.get("source"), event.get("payload"))


def _depth(occurrence: Occurrence) -> int:
    """How many events, each of them emitted by Noonmark, led to this occurrence."""
    event = _cause(occurrence)
    source = str(event.get("source"))
    found = _ID.fullmatch(str(event.get("event_id")))
    return int(found[1]) if found and (source == NOONMARK or source.startswith(EMITTER)) else 0


def _cause(occurrence: Occurrence) -> dict[str, Any]:
    """The event that set an occurrence off, if one did and its record can be read."""
    is_set_off = kind_of(occurrence.origin) is OriginKind.EVENT and isinstance(occurrence.payload, dict)
    return occurrence.payload if is_set_off else {}
