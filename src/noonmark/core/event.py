"""Events: facts that were emitted, and may set off the schedules whose event trigger they match."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import Reader, moment
from noonmark.core.errors import InvalidRequest, Problem, refusal
from noonmark.core.instants import Micros, from_micros, to_text
from noonmark.core.json_values import event_type, identifier, text_value

if TYPE_CHECKING:
    from datetime import datetime

    from noonmark.core.chain import Chain

NOONMARK = "noonmark"
"""The source of Noonmark's own events; callers may not use it."""
MAX_SOURCE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fact. An `event_id` given by the sender makes emitting it again harmless; None asks for a fresh one."""

    event_type: str
    """What kind of fact it is."""
    emitted: Micros
    event_id: str | None = None
    """Its own, or the one that it got when it was kept."""
    source: str = ""
    """Who emitted it."""
    payload: Any = field(default_factory=dict, hash=False, repr=False)
    """What there is to know of it, as JSON."""
    behind: Chain | None = None
    """The chain that led to it, itself included, if a running occurrence reported it over the network."""

    @property
    def emitted_at(self) -> datetime:
        """When it was emitted, in UTC."""
        return from_micros(self.emitted)

    def to_envelope(self) -> dict[str, Any]:
        """The whole event as JSON; of an occurrence that it sets off, this is the payload."""
        return {
            "event_id": self.event_id,
            "event_type": self.event_type,
            "source": self.source,
            "payload": self.payload,
            "emitted_at": to_text(self.emitted),
        }


def parse_event(document: object, *, now: datetime, path: str = "") -> Event:
    """Read an event emitted now, which stands at `path`; InvalidRequest lists everything wrong with it."""
    problems: list[Problem] = []
    reader = Reader(document, path=path, code=InvalidRequest.code, problems=problems)
    if problems:
        raise refusal(problems)
    payload = reader.json("payload")
    event = Event(
        event_type=reader.read("event_type", event_type),
        emitted=moment(now),
        event_id=reader.read("event_id", identifier, None),
        source=reader.read("source", _source, ""),
        payload={} if payload is None else payload,
    )
    reader.close()
    if problems:
        raise refusal(problems)
    return event


def _source(value: object) -> str:
    """The source: any text except Noonmark's own."""
    text = text_value(value, 0, MAX_SOURCE, multiline=False)
    if text == NOONMARK:
        raise ValueError(f'"{NOONMARK}" is the source of what Noonmark tells of itself; give any other')
    return text
