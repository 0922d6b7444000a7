"""Occurrences: one planned delivery of a schedule each."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import Reader, present
from noonmark.core.frozen import brief, fast_evolve
from noonmark.core.instants import Micros, from_micros, to_text
from noonmark.core.lifecycle import Phase
from noonmark.core.policies.limits import Concurrency, read_concurrency
from noonmark.core.policies.overlap import read_overlap
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from datetime import datetime

    from noonmark.core.event import Chain
    from noonmark.core.ids import Origin
    from noonmark.core.policies.overlap import OverlapPolicy

CONTINUED = frozenset({Reason.LEASE_LOST, Reason.SUSPENDED})
"""The reasons of pending occurrences whose attempt goes on later."""
BACKFILL_PAUSED = "backfill_paused"
"""The part of its detail that says why its backfill is paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """None leaves what the schedule says."""

    overlap_policy: OverlapPolicy | None = None
    concurrency: Concurrency | None = None
    behind: Chain | None = None
    """What led to it, where its upstreams have set it off."""

    @property
    def declared_fields(self) -> dict[str, Any]:
        """The fields of the declaration that it replaces, with its values."""
        return present(overlap_policy=self.overlap_policy, concurrency=self.concurrency)

    def to_document(self) -> dict[str, Any]:
        """The overrides as the document that `read_overrides` reads; the chain is stored separately."""
        overlap = None if self.overlap_policy is None else self.overlap_policy.to_document()
        return present(overlap_policy=overlap) | ({} if self.concurrency is None else self.concurrency.to_document())


def read_overrides(document: object) -> Overrides:
    """Read the document that `to_document` writes; ValueError if it is invalid."""
    reader = Reader(document, path="", code="", problems=[])
    has_policy = reader.raw("overlap_policy") is not None
    overlap = read_overlap(reader, "overlap_policy", trigger_type="") if has_policy else None
    own = Overrides(overlap_policy=overlap, concurrency=read_concurrency(reader))
    reader.close()
    if reader.problems:
        raise ValueError(str(reader.problems[0]))
    return own


@fast_evolve
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Occurrence:
    """The unit that is claimed, explained and counted.

    `nominal` is the time the trigger named, `due` that time with jitter or the time of a retry, `first_due` the due
    time before any retry. One row may stand for a gap of many missed fires: then it says how many, from when to when.
    `fence` rises with every claim, so that a node that lost its lease cannot settle it.

    `caught_up` is the moment at which the misfire policy took it up after all, alone or in a line with others of the
    same moment; overlap policies do not turn it away. `losses` counts the leases that ran out
    while it was being delivered. `waiting_for` is set from the moment it first had to wait until it starts, so that the
    wait is never taken for lateness. `holds_slot` is set from its start to its end, retries included, unless its
    schedule lets occurrences overlap.

    `node` is the node that claimed it, and `started` the start of this delivery; both until it is released or has
    ended. `stop` is the reason of a stop request. `deadline` is when its delivery has to end: set once the target
    accepted the work, or once it was asked to give up the slot. Both survive a lost lease, but not a retry.

    `payload` comes from the caller of a manual run; for an occurrence of an event, it is that event. `overrides` are
    the caller's overlap policy and limits, instead of the schedule's. `ended` is when it got its final phase, by the
    store's clock.
    """

    id: str
    """Computed from the schedule, the origin and the nominal time; the same in every attempt."""
    uid: str
    schedule_id: str
    """The id of its job."""
    revision: int
    """The revision of the declaration that is in force for it."""
    origin: Origin
    """What asked for it: `trigger`, or `manual:`, `event:` and `backfill:` with a key."""
    phase: Phase
    """Its phase; final phases do not change."""
    route: str
    nominal: Micros
    due: Micros
    first_due: Micros
    attempt: int = 0
    """How many attempts it has had; a run that was handed back is none."""
    fence: int = 0
    reason: Reason | None = None
    """Why it is in this phase."""
    detail: str = ""
    """The numbers behind the reason, as JSON, or nothing."""
    missed_count: int = 0
    """How many fires it counts, if it records missed ones."""
    missed_first: Micros | None = None
    missed_last: Micros | None = None
    caught_up: Micros | None = None
    losses: int = 0
    waiting_for: Reason | None = None
    holds_slot: bool = False
    node: str | None = None
    started: Micros | None = None
    stop: Reason | None = None
    deadline: Micros | None = None
    payload: Any = field(default=None, hash=False)
    overrides: Overrides | None = None
    ended: Micros | None = None
    wanted_limit: int | None = None
    """The limit of the concurrency key that it waits for, while it waits for a place under one."""

    def __repr__(self) -> str:
        return brief(
            self,
            phase=self.phase,
            nominal_at=to_text(self.nominal),
            attempt=self.attempt,
            reason=self.reason,
            waiting_for=self.waiting_for,
            missed_count=self.missed_count or None,
            id=self.id,
        )

    @property
    def has_begun(self) -> bool:
        """Whether it was ever started; what was handed back, lost or suspended has no attempt to show for it."""
        return self.attempt > 0 or self.losses > 0 or self.reason in CONTINUED

    @property
    def is_suspended(self) -> bool:
        """Whether its workflow has begun and waits: it is in flight, though no node holds it."""
        return self.phase is Phase.PENDING and self.reason is Reason.SUSPENDED

    @property
    def nominal_at(self) -> datetime:
        """The time the trigger named, in UTC."""
        return from_micros(self.nominal)

    @property
    def due_at(self) -> datetime:
        """When it is to start, in UTC."""
        return from_micros(self.due)

    @property
    def ended_at(self) -> datetime | None:
        """When it ended, in UTC; None while something is still to come."""
        return None if self.ended is None else from_micros(self.ended)

    @property
    def missed_from(self) -> datetime | None:
        """The first missed nominal time of a gap, in UTC."""
        return None if self.missed_first is None else from_micros(self.missed_first)

    @property
    def missed_to(self) -> datetime | None:
        """The last missed nominal time of a gap, in UTC."""
        return None if self.missed_last is None else from_micros(self.missed_last)


def backfill_pause(occurrence: Occurrence) -> dict[str, Any] | None:
    """The pause of its backfill that holds an occurrence, as a document, as far as it is known."""
    if BACKFILL_PAUSED not in occurrence.detail or occurrence.phase is not Phase.PENDING:
        return None
    pause = (kept_facts(occurrence) or {}).get(BACKFILL_PAUSED)
    return pause if isinstance(pause, dict) else None


def kept_facts(occurrence: Occurrence) -> dict[str, Any] | None:
    """The numbers that were stored with its reason; None if they cannot be read."""
    try:
        facts = json.loads(occurrence.detail or "{}")
    except ValueError:
        return None
    return facts if isinstance(facts, dict) else None
