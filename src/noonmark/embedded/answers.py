"""Answers of a scheduler that have several parts: why something ran or did not, and which events match."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Self

from noonmark.core.explain.explanation import Rule, Step
from noonmark.core.frozen import frozen
from noonmark.core.instants import from_micros, parse_instant, to_micros, to_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from noonmark.core.occurrence import Occurrence

    Document = dict[str, Any]


@frozen(kw_only=True)
class Explanation:
    """Why something ran, runs, will run, or did not. `explanation["summary"]` reads it as its document does."""

    schedule_id: str
    at: datetime
    """The explained instant."""
    summary: str
    """One sentence in plain words."""
    steps: tuple[Step, ...]
    """Each rule with its `rule`, its `decision` and the `facts` behind it, whether or not it applies."""
    occurrence_id: str | None
    """The explained occurrence; None if there is no record of one."""
    phase: str | None
    """The phase of that occurrence."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """From the answer of the operation."""
        steps = (
            Step(rule=Rule(step["rule"]), decision=step["decision"], facts=step["facts"]) for step in document["steps"]
        )
        return cls(**{**document, "at": from_micros(parse_instant(document["at"])), "steps": tuple(steps)})

    def to_document(self) -> Document:
        """As JSON, as a server answers."""
        return {
            "schedule_id": self.schedule_id,
            "at": to_text(to_micros(self.at)),
            "phase": self.phase,
            "occurrence_id": self.occurrence_id,
            "summary": self.summary,
            "steps": [step.to_document() for step in self.steps],
        }

    def __getitem__(self, name: str) -> Any:
        return self.to_document()[name]


@frozen(kw_only=True)
class Redrive:
    """What runs again, and what does not."""

    occurrences: tuple[Occurrence, ...]
    """The new occurrences, in the order in which they run."""
    refused: Mapping[str, str]
    """Why others do not run again, by their ids."""


@frozen(kw_only=True)
class EventMatch:
    """An event, and whether it matches."""

    event_id: str
    event_type: str
    source: str
    payload: Any = field(hash=False)
    emitted_at: datetime
    matches: bool
    why: str | None
    """Why it does not match."""

    def to_document(self) -> Document:
        """As JSON, as a server answers."""
        return {
            "event_id": self.event_id,
            "event_type": self.event_type,
            "source": self.source,
            "payload": self.payload,
            "emitted_at": to_text(to_micros(self.emitted_at)),
            "matches": self.matches,
            "why": self.why,
        }


@frozen(kw_only=True)
class EventMatches:
    """The last events, and which of them match. `matches["matched"]` reads it as its document does."""

    checked: int
    """How many events there are."""
    matched: int
    """How many of them match."""
    events: tuple[EventMatch, ...]
    """Newest first."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """From the answer of the operation."""
        events = (
            EventMatch(**{**event, "emitted_at": from_micros(parse_instant(event["emitted_at"]))})
            for event in document["events"]
        )
        return cls(checked=document["checked"], matched=document["matched"], events=tuple(events))

    def to_document(self) -> Document:
        """As JSON, as a server answers."""
        return {
            "checked": self.checked,
            "matched": self.matched,
            "events": [event.to_document() for event in self.events],
        }

    def __getitem__(self, name: str) -> Any:
        return self.to_document()[name]
