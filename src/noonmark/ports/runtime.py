"""The runtime: everything a driver is given, in one value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from noonmark.core.instants import DAY_SECONDS, SECOND

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.ports.clock import Clock
    from noonmark.ports.events import EventSink
    from noonmark.ports.store import Store
    from noonmark.ports.target import Target

MILLISECOND: Micros = SECOND // 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How a node keeps time, and how much it does at once."""

    lease: Micros = 15 * SECOND
    """How long a claim, and the lead, hold without being renewed; they are renewed three times as often."""
    lookahead: Micros = 2 * SECOND
    """How far ahead of its due time an occurrence is claimed."""
    early: Micros = 20 * MILLISECOND
    """How far ahead of its due time a start is committed; it begins at its due time, never before."""
    batch: int = 1_000
    """So many occurrences go into one transaction."""
    capacity: int = 25_000
    """So many occurrences a node holds at once; the last tenth is for owners who hold next to nothing there."""
    keep_for: Micros = 30 * DAY_SECONDS * SECOND
    """Occurrences that ended longer ago are forgotten, and so are events."""
    keep_count: int = 10_000
    """Of each schedule, so many ended occurrences are kept."""
    keep_events: int = 100_000
    """Of each tenant, so many matched events are kept."""
    prune_every: Micros = 60 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What wiring picked for one node."""

    node: str
    store: Store
    clock: Clock
    target: Target
    sink: EventSink | None = None
    version: str = ""
    """That of Noonmark, as other nodes are told it."""
    timing: Timing = field(default_factory=Timing)
