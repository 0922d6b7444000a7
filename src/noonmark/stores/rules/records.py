"""Occurrences, schedule states and concurrency keys as mutable records: what the rules read and change.

Values that may be large (payloads, overrides, causation chains) are in the form in which the store holds them:
`UnitOfWork.pack` and `UnitOfWork.unpack` convert them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from noonmark.core.event import read_chain
from noonmark.core.frozen import maker
from noonmark.core.halt import FACTS as HALT_FACTS
from noonmark.core.ids import TRIGGER, Origin, OriginKind
from noonmark.core.instants import MIN_INSTANT
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.occurrence import CONTINUED, Occurrence, Overrides, read_overrides
from noonmark.core.planner import Projection
from noonmark.core.policies.misfire import PUNCTUAL
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.event import Chain
    from noonmark.core.instants import Micros

    Pack = Callable[[object], Any]
    Unpack = Callable[[Any, str], object]

make_occurrence = maker(Occurrence)
PHASES = {str(phase): phase for phase in Phase}
SCHEDULE_PHASES = {str(phase): phase for phase in SchedulePhase}
REASONS: dict[str | None, Reason | None] = {None: None} | {str(reason): reason for reason in Reason}
OWN = (OriginKind.TRIGGER, OriginKind.EVENT)
"""Origins of the schedule's own trigger; `max_runs` counts them and a pause holds them."""
DELIVERING = (Phase.DISPATCHING, Phase.AWAITING_COMPLETION)
LEASED = (Phase.CLAIMED, Phase.DISPATCHING)
UNSTARTED = (Phase.PENDING, Phase.CLAIMED)
AWAITED_BY_RUNS = (Reason.STEP_PENDING, Reason.APPROVAL)
"""What a suspended workflow run waits for."""


class Unreadable(Exception):
    """A stored record is damaged; the message says what is wrong with it."""


@dataclass(slots=True, eq=False)
class Row:
    """An occurrence. In SQL, the fields are the columns, in their order."""

    key: int
    id: str
    schedule: int
    revision: int
    origin: str
    phase: str
    route: str
    nominal: Micros
    due: Micros
    first_due: Micros
    attempt: int
    fence: int
    reason: str | None
    detail: str
    missed_count: int
    missed_first: Micros | None
    missed_last: Micros | None
    caught_up: Micros | None
    losses: int
    waiting_for: str | None
    holds_slot: int
    payload: Any
    own: Any
    """The overrides of this occurrence, packed."""
    ready: Micros | None
    """When a pending row can be claimed; None while it waits for something or for the planner."""
    held: int
    """A pause keeps it from being claimed."""
    node: str | None
    lease_end: Micros | None
    started: Micros | None
    stop: str | None
    deadline: Micros | None
    place: int | None
    """The concurrency key under which it holds a place; the first of them, if it holds several."""
    wanted: int | None
    """The concurrency key it waits for."""
    wanted_limit: int | None
    awaits_after: Micros | None
    """While it waits for its upstreams: fires of theirs after this time may end the wait; None means any fire."""
    ended: Micros | None
    owner: int
    """The number of the owner of its schedule."""
    behind: Any
    """The causation chain that led to it through its upstreams, packed. Not in `own`: older nodes read that."""
    other_keys: Any
    """The further keys that it holds beside `place`, or needs beside `wanted`: a packed list of `OtherKey`."""
    late: Micros | None = None
    """How long after its first due time it first started; less than 0 where a start was committed ahead."""
    stored: tuple[Any, ...] | None = field(default=None, init=False)
    """The columns as the database has them; None for a row that is not written yet."""
    damage: str | None = field(default=None, init=False)
    """What is wrong with a damaged record; some fields are then substitutes."""

    @property
    def has_begun(self) -> bool:
        """Whether it was ever started."""
        return self.attempt > 0 or self.losses > 0 or self.reason in CONTINUED

    def waits(self, now: Micros) -> bool:
        """Whether it has not started though it is due, or though somebody asked for it."""
        is_wanted = self.due <= now or (self.origin != TRIGGER and not self.attempt)
        return self.phase in UNSTARTED and is_wanted and self.reason != Reason.SUSPENDED

    @property
    def is_suspended(self) -> bool:
        """Whether it is a workflow run that has begun, and that no node delivers at present. It counts as in flight."""
        return self.phase in UNSTARTED and self.reason == Reason.SUSPENDED

    @property
    def is_own(self) -> bool:
        """Whether the schedule's own trigger planned it."""
        return self.origin.partition(":")[0] in OWN

    @property
    def is_projection(self) -> bool:
        """Whether a plan may still move or remove it."""
        return self.origin == TRIGGER and self.phase in UNSTARTED and not self.has_begun

    @property
    def is_caught_up(self) -> bool:
        """Whether it is a missed fire that is still to run."""
        return self.caught_up is not None and self.is_projection

    @property
    def gap_since(self) -> Micros:
        """Fires before it that were taken up since then are of the same gap; for one in a line, all are."""
        return self.due if self.caught_up is None else MIN_INSTANT

    def is_in_gap(self, since: Micros, now: Micros) -> bool:
        """Whether it is late and nobody has taken it up yet, or it was caught up or started since then."""
        if self.caught_up is not None:
            return self.caught_up >= since
        if self.attempt or self.losses:
            return self.started is not None and self.started >= since
        return self.waiting_for is None and self.due <= now - PUNCTUAL

    @property
    def is_queued(self) -> bool:
        """Whether it waits in line for the slot."""
        return self.phase == Phase.PENDING and self.ready is None and self.waiting_for == Reason.QUEUED

    @property
    def turn(self) -> tuple[Micros, Micros, str]:
        """Its position in a line."""
        return (self.due, self.nominal, self.id)

    @property
    def last_nominal(self) -> Micros:
        """The last nominal time it stands for."""
        return self.nominal if self.missed_last is None else self.missed_last

    def awaits_upstreams(self, now: Micros) -> bool:
        """Whether it waits for its upstreams and has not got its turn."""
        is_waiting = self.phase == Phase.PENDING and self.waiting_for == Reason.DEPENDENCY_PENDING
        return is_waiting and (self.ready is None or self.ready > now)

    def with_halt(self, detail: str) -> str:
        """A new detail of a row that a halt asks to stop, with who did it: `Halt.facts` are in the present one."""
        if self.stop != Reason.HALTED:
            return detail
        try:
            document = json.loads(self.detail or "{}")
        except ValueError:  # damaged
            return detail
        halt_facts = (
            {name: document[name] for name in HALT_FACTS if name in document} if isinstance(document, dict) else {}
        )
        return json.dumps(json.loads(detail or "{}") | halt_facts, sort_keys=True) if halt_facts else detail

    def give_back(self) -> None:
        """End the lease, and any request to stop."""
        self.lease_end = self.node = self.started = self.stop = self.deadline = None


class OtherKey(NamedTuple):
    """A concurrency key that a row holds or needs beside its first one."""

    key: int
    limit: int
    reason: str
    """What the row waits for while this key has no free place."""


@dataclass(slots=True, eq=False)
class ScheduleState:
    """What changes of a schedule while it runs. In SQL, the fields are the columns, in their order."""

    schedule: int
    uid: str
    phase: str
    revision: int
    version: int
    """Rises with every change of the schedule itself, so that a cached copy is known to be stale."""
    updated: Micros
    watermark: Micros
    plan_at: Micros | None = None
    exhausted: int = 0
    sent_back: int = 0
    """Some of its projections have no time until it is planned."""
    fault: str | None = None
    """Why it is not planned any more."""
    patience: Micros = 0
    newest: Micros | None = None
    """The newest nominal time of the trigger that was admitted or has ended."""
    fences: int = 0
    """The fence of a new row: higher than that of any removed row, since a new row may have the same id."""
    holder: int | None = None
    """The row that holds the slot."""
    live: int = 0
    history: int = 0
    """How many of its rows have ended."""
    queued: int = 0
    total: int = 0
    successful: int = 0
    failed: int = 0
    missed: int = 0
    skipped: int = 0
    admitted: int = 0
    failures_in_row: int = 0
    last_started: Micros | None = None
    last_phase: str | None = None
    news: int = 0
    """How often anything about its upstreams has changed."""
    followed: int = 0
    """Other schedules depend on it, or once did."""
    ended_at: Micros | None = None
    """When an occurrence of it last ended, for its downstream schedules."""
    completed_at: Micros | None = None
    owner: int = 0
    leads: Any = None
    """The packed causation chain of what its last end triggers, if a schedule depends on it."""
    rate_window: Any = None
    """What was counted for its expected rate, packed."""
    runaway: Any = None
    """What the runaway guard has counted, packed."""
    stored: tuple[Any, ...] | None = field(default=None, init=False)

    def holds_back(self, row: Row) -> bool:
        """Whether a pause keeps a row from being claimed."""
        return self.phase == SchedulePhase.PAUSED and row.is_own


@dataclass(slots=True, eq=False)
class ConcurrencyKey:
    """A concurrency key: how many rows hold a place under it, and how many wait for one."""

    key: int
    tenant: str
    name: str
    taken: int
    waiting: int
    stored: tuple[Any, ...] | None = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class EventStream:
    """How far the events of a tenant are matched."""

    tenant: str
    matched_until: Micros
    cursor: int
    """The subscribers of the first unmatched event are matched up to this schedule."""
    matched: int
    """How many events are matched."""
    waiting: list[Micros]
    """The moments of the first unmatched events, the last one first."""


def new_row(occurrence: Occurrence, *, key: int, state: ScheduleState, pack: Pack) -> Row:
    """The record of a new occurrence, which can be claimed from its due time."""
    return Row(*new_values(occurrence, key, state, pack))


def new_values(occurrence: Occurrence, key: int, state: ScheduleState, pack: Pack) -> tuple[Any, ...]:
    """The columns of that record."""
    own, behind = _pack_overrides(occurrence.overrides, pack)
    return (
        key, occurrence.id, state.schedule, occurrence.revision, occurrence.origin, occurrence.phase,
        occurrence.route, occurrence.nominal, occurrence.due, occurrence.first_due, occurrence.attempt,
        occurrence.fence, occurrence.reason, occurrence.detail, occurrence.missed_count, occurrence.missed_first,
        occurrence.missed_last, occurrence.caught_up, occurrence.losses, occurrence.waiting_for,
        int(occurrence.holds_slot), pack(occurrence.payload), own, occurrence.due, 0, occurrence.node, None,
        occurrence.started, occurrence.stop, occurrence.deadline, None, None, None, None, None, state.owner, behind,
        None, None,
    )  # fmt: skip


def to_occurrence(row: Row, uid: str, schedule_id: str, payload: object, unpack: Unpack) -> Occurrence:
    """The occurrence of a record."""
    try:
        return make_occurrence(
            id=row.id,
            uid=uid,
            schedule_id=schedule_id,
            revision=row.revision,
            origin=Origin(row.origin),
            phase=PHASES[row.phase],
            route=row.route,
            nominal=row.nominal,
            due=row.due,
            first_due=row.first_due,
            attempt=row.attempt,
            fence=row.fence,
            reason=REASONS[row.reason],
            detail=row.detail,
            missed_count=row.missed_count,
            missed_first=row.missed_first,
            missed_last=row.missed_last,
            caught_up=row.caught_up,
            losses=row.losses,
            waiting_for=REASONS[row.waiting_for],
            holds_slot=row.holds_slot == 1,
            node=row.node,
            started=row.started,
            stop=REASONS[row.stop],
            deadline=row.deadline,
            payload=payload,
            overrides=unpack_overrides(row.own, row.behind, unpack),
            ended=row.ended,
            wanted_limit=row.wanted_limit,
        )
    except KeyError as error:
        raise Unreadable(f"{error} is not a phase or reason") from None


def read_other_keys(row: Row, unpack: Unpack) -> list[OtherKey]:
    """The further concurrency keys of a row; damaged ones are dropped."""
    if row.other_keys is None:
        return []
    try:
        stored = unpack(row.other_keys, "other_keys")
    except Unreadable:
        return []
    entries = stored if isinstance(stored, list) else []
    return [OtherKey(*one) for one in entries if _is_other_key(one)]


def _is_other_key(entry: object) -> bool:
    match entry:
        case [int(), int(), str(reason)]:
            return reason in REASONS
        case _:
            return False


def to_projection(row: Row) -> Projection:
    """What a plan needs to know of a projection."""
    return Projection(
        id=row.id,
        nominal=row.nominal,
        due=row.due,
        first_due=row.first_due,
        is_claimed=row.phase == Phase.CLAIMED,
        caught_up=row.caught_up,
        waiting_for=REASONS.get(row.waiting_for),
    )


def _pack_overrides(own: Overrides | None, pack: Pack) -> tuple[Any, Any]:
    if own is None:
        return None, None
    if own.behind is None:
        return pack(own.to_document()), None
    return pack(own.to_document() or None), pack(own.behind.to_document())


def unpack_overrides(own: object, behind: object, unpack: Unpack) -> Overrides | None:
    """What applies to one occurrence and not to its schedule; a damaged causation chain is dropped."""
    if own is None and behind is None:
        return None
    try:
        overrides = Overrides() if own is None else read_overrides(unpack(own, "own"))
    except ValueError as error:
        raise Unreadable(f"its own terms cannot be read ({error})") from None
    return replace(overrides, behind=unpack_chain(behind, "behind", unpack))


def unpack_chain(stored: object, column: str, unpack: Unpack) -> Chain | None:
    """A causation chain, if it can be read."""
    try:
        return None if stored is None else read_chain(unpack(stored, column))
    except (Unreadable, ValueError):
        return None
