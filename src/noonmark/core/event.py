"""Events: facts that were emitted and may trigger schedules, and the chain that led to an event or an occurrence."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import Reader, moment
from noonmark.core.errors import InvalidRequest, Problem, refusal
from noonmark.core.frozen import frozen
from noonmark.core.instants import Micros, from_micros, to_text
from noonmark.core.json_values import event_type, identifier, text_value

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

MAX_STEPS = 9
"""How many steps are stored, the newest ones, so that an id stays as short as one of a caller. The number of events is
counted apart."""
_OF_SCHEDULE, _OF_TYPE = 6, 3
"""Characters of a mark for each of the two, 6 bits each."""
_MARKS = r"(?:[0-9A-Za-z.:]{9})*"
# The marks stand behind what ids had from the first: nodes of an older version read depth and facts there.
_ID = re.compile(rf"evt(\d{{1,4}})(?:\.(\d{{1,4}}))?_(?:({_MARKS})-)?.+")


@frozen
class Chain:
    """What led to something; nothing has, where it begins."""

    depth: int = 0
    """The number of events."""
    facts: int = 0
    """How many of them are system events."""
    marks: tuple[str, ...] = ()
    """A mark for each step, oldest first: an event that came from outside or from a schedule, or a dependency."""
    schedules: tuple[str, ...] = ()
    """The ids of the schedules it came through, where known: the id of an event has only marks."""

    def event_id(self, key: str) -> str:
        """The id of an event of our own with this chain, itself counted."""
        facts = f".{self.facts}" if self.facts else ""
        marks = f"{''.join(self.marks)}-" if self.marks else ""
        return f"evt{self.depth}{facts}_{marks}{key}"

    def then(self, schedule_id: str, event_type: str = "") -> Chain:
        """The chain of what a schedule has led to, by an event of that type or as an upstream."""
        return self.marked(mark(schedule_id, event_type)).through(schedule_id)

    def marked(self, new_mark: str) -> Chain:
        """The same with a mark more."""
        return Chain(self.depth, self.facts, (*self.marks, new_mark)[-MAX_STEPS:], self.schedules)

    def through(self, schedule_id: str) -> Chain:
        """The same with the id of a schedule more."""
        return Chain(self.depth, self.facts, self.marks, (*self.schedules, schedule_id)[-MAX_STEPS:])

    def leads_through(self, schedule_id: str) -> bool:
        """Whether a schedule is among its steps."""
        if not self.marks:
            return schedule_id in self.schedules
        expected = mark(schedule_id)[:_OF_SCHEDULE]
        return schedule_id in self.schedules or any(one.startswith(expected) for one in self.marks)

    def count(self, event_type: str) -> int:
        """How many of its events are of a type."""
        expected = mark(event_type=event_type)[_OF_SCHEDULE:]
        return sum(one.endswith(expected) for one in self.marks)

    def to_document(self) -> dict[str, Any]:
        """The document that `read_chain` reads back."""
        return {
            "depth": self.depth,
            "facts": self.facts,
            "marks": "".join(self.marks),
            "schedules": list(self.schedules),
        }


def mark(schedule_id: str = "", event_type: str = "") -> str:
    """A step in short: whose it is, if a schedule's, and the type of its event, if it is one."""
    return _short(schedule_id, _OF_SCHEDULE) + _short(event_type, _OF_TYPE)


def chain_in(event_id: str) -> Chain | None:
    """The chain in the id of a system event; None for other ids."""
    match = _ID.fullmatch(event_id)
    return None if match is None else Chain(int(match[1]), int(match[2] or 0), _split(match[3] or ""))


def read_chain(document: object) -> Chain:
    """Read what `to_document` wrote; ValueError when it did not."""
    match document:
        case {"depth": int(depth), "facts": int(facts), "marks": str(marks), "schedules": list(schedules)} if (
            re.fullmatch(_MARKS, marks) and all(isinstance(one, str) for one in schedules)
        ):
            return Chain(depth, facts, _split(marks), tuple(schedules))
    raise ValueError("this is not a chain")


def joined(chains: Iterable[Chain]) -> Chain:
    """The chain of what several have led to together: it is where the deepest one is, and has come through all.

    Only the events of the deepest are its own: those of the others were beside them, and not before.
    """
    first, *others = sorted(chains, key=lambda one: (one.depth, one.facts), reverse=True)
    beside = [one[:_OF_SCHEDULE] + _short("", _OF_TYPE) for other in others for one in other.marks]
    new = [one for one in dict.fromkeys(beside) if one not in first.marks]
    ids = dict.fromkeys([*(one for other in others for one in other.schedules), *first.schedules])
    return Chain(first.depth, first.facts, (*new, *first.marks)[-MAX_STEPS:], tuple(ids)[-MAX_STEPS:])


def _short(text: str, length: int) -> str:
    digest = blake2b(text.encode(), digest_size=6, person=b"noonmark-mark").digest()
    return b64encode(digest, altchars=b".:").decode()[:length]


def _split(marks: str) -> tuple[str, ...]:
    size = _OF_SCHEDULE + _OF_TYPE
    return tuple(marks[at : at + size] for at in range(0, len(marks), size))


NOONMARK = "noonmark"
"""The source of Noonmark's own events; callers may not use it."""
MAX_SOURCE = 200


@frozen(kw_only=True)
class Event:
    """One fact. An `event_id` given by the sender makes emitting it again harmless; None asks for a fresh one."""

    event_type: str
    """What kind of fact it is."""
    emitted: Micros
    event_id: str | None = None
    """Its own, or the one that it got when it was kept."""
    source: str = ""
    """The emitter."""
    payload: Any = field(default_factory=dict, hash=False, repr=False)
    """What there is to know of it, as JSON."""
    behind: Chain | None = None
    """The chain that led to it, itself included, if a running occurrence reported it over the network."""

    @property
    def emitted_at(self) -> datetime:
        """When it was emitted, in UTC."""
        return from_micros(self.emitted)

    def to_envelope(self) -> dict[str, Any]:
        """The whole event as JSON; the payload of an occurrence that it triggers."""
        return {
            "event_id": self.event_id,
            "event_type": self.event_type,
            "source": self.source,
            "payload": self.payload,
            "emitted_at": to_text(self.emitted),
        }


def parse_event(document: object, *, now: datetime, path: str = "") -> Event:
    """Read an event emitted now, found at `path`; InvalidRequest lists everything wrong with it."""
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
        raise ValueError(f'"{NOONMARK}" is the source of system events; use another one')
    return text
