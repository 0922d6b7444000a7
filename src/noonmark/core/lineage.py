"""Lineage: the chain of sessions and schedules that made a schedule, and the limits of what agents make.

A session of an agent may create a schedule, whose runs are sessions that may create schedules in turn. Each schedule
knows that chain. It comes from the surface that the caller uses, never from the document of the schedule.
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import asdict, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from noonmark.core.api_key import Scope, session_scopes
from noonmark.core.errors import Conflict, InvalidTrigger, QuotaExceeded
from noonmark.core.frozen import frozen
from noonmark.core.instants import DAY, HOUR, from_micros, to_text
from noonmark.core.rate_limit import RateLimit
from noonmark.core.triggers import EventTrigger, parse_trigger
from noonmark.core.triggers.recurrence import WallTrigger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.instants import Micros

_BOUNDED = frozenset({"interval", "cron", "calendar", "event"})
"""The types of triggers that go on until an end."""
_NOT_COMPARED = frozenset({"start_at_utc", "end_at_utc", "jitter_seconds"})
"""What two triggers may differ in and still be the same: when they begin and end, and their jitter."""
_ENDS = frozenset({"end_at_utc", "end_at"})
_INVISIBLE = "Cf"
"""The category of invisible characters, such as a zero-width space."""


@frozen(kw_only=True)
class Lineage:
    """What made a schedule."""

    depth: int
    """How many schedules made each other up to this one, itself included; 1 without a parent, 0 if a person made it."""
    session_id: str | None = None
    """The session whose agent made it."""
    schedule_id: str | None = None
    """The schedule whose run made it."""
    tool_call_id: str | None = None
    parent: str | None = None
    """The uid of that schedule."""
    chain: tuple[str, ...] = ()
    """Every session and schedule before it, such as `session:ID`, outermost first."""
    fingerprint: str | None = None
    """What it does and when, as a digest; None unless an agent made it."""
    agent: str | None = None
    """The agent at the beginning, whose hourly limit counts for all its descendants."""
    scopes: tuple[Scope, ...] | None = None
    """What its sessions may do at most, since those who made it could not do more; None if that is not narrowed."""

    @property
    def granted(self) -> frozenset[Scope] | None:
        """The same as a set."""
        return None if self.scopes is None else frozenset(self.scopes)

    def includes(self, ancestor: str) -> bool:
        """Whether a session or a schedule with this id is in the chain."""
        return f"session:{ancestor}" in self.chain or f"schedule:{ancestor}" in self.chain

    def to_document(self) -> dict[str, Any]:
        """The lineage in the document of its schedule."""
        return {
            "session_id": self.session_id,
            "schedule_id": self.schedule_id,
            "tool_call_id": self.tool_call_id,
            "depth": self.depth,
            "chain": list(self.chain),
            "scopes": None if self.scopes is None else [str(one) for one in self.scopes],
        }

    def to_record(self) -> dict[str, Any]:
        """What a store has of it."""
        return asdict(self)


def read_lineage(record: Mapping[str, Any]) -> Lineage:
    """A lineage from its record; a TypeError or a ValueError if that is damaged."""
    scopes = record.get("scopes")
    lists = {
        "chain": tuple(record.get("chain") or ()),
        "scopes": None if scopes is None else tuple(Scope(one) for one in scopes),
    }
    lineage = Lineage(**{**record, **lists})
    texts = (lineage.session_id, lineage.schedule_id, lineage.tool_call_id, lineage.parent, lineage.fingerprint,
             lineage.agent)  # fmt: skip
    are_texts = all(one is None or isinstance(one, str) for one in texts)
    if not are_texts or type(lineage.depth) is not int or not all(isinstance(one, str) for one in lineage.chain):
        raise ValueError("its lineage is invalid")
    return lineage


@frozen(kw_only=True)
class AgentLimits:
    """What agents may create, and how long it lasts."""

    max_depth: int = 3
    max_children: int = 20
    """Schedules that are active or paused and that runs of one schedule made."""
    per_hour: int = 30
    """New schedules of one agent."""
    lifetime: Micros | None = 30 * DAY
    """When a schedule ends that names no end; None: never."""
    proposal_lifetime: Micros = 7 * DAY
    """When a proposal expires that nobody decided."""
    max_proposals: int = 100
    """Pending proposals of one user."""

    @property
    def rate(self) -> RateLimit:
        """How many new schedules an agent may create, as a bucket of tokens."""
        return RateLimit(max(1, self.per_hour), HOUR, self.per_hour)


@frozen(kw_only=True)
class Parent:
    """The schedule whose run makes another one."""

    uid: str
    schedule_id: str
    lineage: Lineage | None


def descend(parent: Parent | None, *, session_id: str | None = None, tool_call_id: str | None = None) -> Lineage:
    """The lineage of a schedule that a session makes, or a run of a parent."""
    before = None if parent is None else parent.lineage
    chain, agent = ((), None) if before is None else (before.chain, before.agent)
    if parent is not None:
        chain = (*chain, f"schedule:{parent.schedule_id}")
    if session_id is not None:
        chain = (*chain, f"session:{session_id}")
    return Lineage(
        depth=(0 if before is None else before.depth) + 1,
        session_id=session_id,
        schedule_id=None if parent is None else parent.schedule_id,
        tool_call_id=tool_call_id,
        parent=None if parent is None else parent.uid,
        chain=chain,
        agent=agent,
    )


def narrowed(lineage: Lineage | None, scopes: frozenset[Scope]) -> Lineage:
    """The lineage of a schedule whose target was changed by a caller with these scopes."""
    before = Lineage(depth=0) if lineage is None else lineage
    return replace(before, scopes=tuple(sorted(session_scopes(before.granted, scopes))))


def check_depth(lineage: Lineage, limits: AgentLimits) -> None:
    """Refuse a schedule at the end of too long a chain."""
    if lineage.depth > limits.max_depth:
        chain = " -> ".join(lineage.chain)
        raise Conflict(f"such chains may be {limits.max_depth} deep, and this one would be {lineage.depth}: {chain}")


def check_children(lineage: Lineage, most: int, count: int) -> None:
    """Refuse one more schedule of a parent that has made too many."""
    if count >= most:
        raise QuotaExceeded(
            f"runs of {lineage.schedule_id} have made {count:,} schedules that are not completed, and the limit is"
            f" {most:,}; delete one that is no longer needed",
            limit={"name": "children", "scope": "schedule", "value": most, "used": count},
        )


def refuse_clone(first: str) -> Conflict:
    """The error of a schedule that does what another one of its owner does already."""
    return Conflict(
        f"the schedule {first!r} has the same target and trigger already; update that one", field="schedule_id"
    )


def with_end(trigger: object, limits: AgentLimits, *, now: Micros) -> Any:
    """The document of a trigger that an agent declares, with the default end if it names none.

    The end is so long after now; after its first fire, if that is later still.
    """
    if limits.lifetime is None or not isinstance(trigger, dict) or trigger.get("type") not in _BOUNDED:
        return trigger
    if any(trigger.get(name) is not None for name in _ENDS):
        return trigger
    try:
        parsed = parse_trigger(trigger, now=from_micros(now))
    except InvalidTrigger:
        return trigger  # as it is, so that the error is about what the caller wrote
    first = parsed.start if isinstance(parsed, EventTrigger) else parsed.next_micros(now)
    end = now + limits.lifetime
    return trigger | {"end_at_utc": to_text(end if first is None or first <= end else first + limits.lifetime)}


def stamp(lineage: Lineage, document: Mapping[str, Any]) -> Lineage:
    """The lineage with the fingerprint of what it made."""
    return replace(lineage, fingerprint=fingerprint(document))


def fingerprint(document: Mapping[str, Any]) -> str:
    """A digest of what a schedule does and when, however that is written.

    Two are equal that differ in case, blanks, invisible characters, the order of entries, the spelling of a cron
    expression or a zone, bounds or names. The document is that of a declaration.
    """
    trigger = document.get("trigger") or {}
    compared = {
        "target": _normal(document["target"]),
        "trigger": _meaning({name: value for name, value in trigger.items() if name not in _NOT_COMPARED}),
        "depends_on": document.get("depends_on"),
    }
    text = json.dumps(compared, sort_keys=True)
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16, person=b"noonmark-clone").hexdigest()


def _meaning(trigger: dict[str, Any]) -> Any:
    try:
        parsed = parse_trigger(trigger, now=from_micros(0))
    except InvalidTrigger:  # none, or one that other bounds or zones have made
        return _normal(trigger)
    if isinstance(parsed, WallTrigger):
        return parsed.meaning()
    return _unordered(_normal(trigger))


def _unordered(value: Any) -> Any:
    """The same with lists in an order of their own: that of event types and of the values of a filter says nothing."""
    if isinstance(value, dict):
        return {name: _unordered(one) for name, one in value.items()}
    return sorted((_unordered(one) for one in value), key=repr) if isinstance(value, list) else value


def _normal(value: Any) -> Any:
    if isinstance(value, str):
        visible = (one for one in unicodedata.normalize("NFKC", value) if unicodedata.category(one) != _INVISIBLE)
        return " ".join("".join(visible).split()).casefold()
    if isinstance(value, dict):
        return {name: _normal(one) for name, one in value.items()}
    return [_normal(one) for one in value] if isinstance(value, list | tuple) else value
