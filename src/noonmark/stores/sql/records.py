"""The rows of the tables as mutable records, column by column, as a transaction works on them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from noonmark.core.chain import read_chain
from noonmark.core.ids import TRIGGER, Origin, OriginKind
from noonmark.core.json_values import storable
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.occurrence import Occurrence
from noonmark.core.plans import Projection
from noonmark.core.policies.overrides import Overrides, read_overrides
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.chain import Chain
    from noonmark.core.instants import Micros
    from noonmark.core.run import Run

PHASES = {str(phase): phase for phase in Phase}
REASONS: dict[str | None, Reason | None] = {None: None} | {str(reason): reason for reason in Reason}
OWN = (OriginKind.TRIGGER, OriginKind.EVENT)
"""What a schedule does by itself; `max_runs` counts it and a pause holds it."""


class Unreadable(Exception):
    """A stored record that cannot be understood; the sentence says what is wrong with it."""


@dataclass(slots=True, eq=False)
class Row:
    """An occurrence; the fields are the columns, in their order."""

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
    payload: str | None
    own: str | None
    """The terms that whoever asked for it has set, in JSON."""
    ready: Micros | None
    held: int
    node: str | None
    lease_end: Micros | None
    started: Micros | None
    stop: str | None
    deadline: Micros | None
    place: int | None
    wanted: int | None
    wanted_limit: int | None
    awaits_after: Micros | None
    """While it waits for its upstreams: their times after this one may be what it waits for; None is for any."""
    ended: Micros | None
    owner: int
    """The number of whoever owns its schedule."""
    behind: str | None
    """The trail that led to it through its upstreams, in JSON. Apart from its terms: older nodes read those."""
    stored: tuple[Any, ...] | None = field(default=None, init=False)
    """The columns as the database has them; None when it has no such row."""
    damage: str | None = field(default=None, init=False)
    """What is wrong with those, if they are damaged: then some of these fields are not what is stored."""

    @property
    def has_begun(self) -> bool:
        """Whether it was ever started."""
        return self.attempt > 0 or self.losses > 0 or self.reason == Reason.LEASE_LOST

    @property
    def is_own(self) -> bool:
        """Whether the schedule asked for it by itself."""
        return self.origin.partition(":")[0] in OWN

    @property
    def is_projection(self) -> bool:
        """Whether a plan may still move or remove it."""
        return self.origin == TRIGGER and self.phase in (Phase.PENDING, Phase.CLAIMED) and not self.has_begun

    @property
    def is_queued(self) -> bool:
        """Whether it stands in line for the slot."""
        return self.phase == Phase.PENDING and self.ready is None and self.waiting_for == Reason.QUEUED

    @property
    def turn(self) -> tuple[Micros, Micros, str]:
        """Its place in a line."""
        return (self.due, self.nominal, self.id)


@dataclass(slots=True, eq=False)
class ScheduleState:
    """What changes of a schedule while it runs; the fields are the columns, in their order."""

    schedule: int
    uid: str
    phase: str
    revision: int
    version: int
    """Rises with every change of the schedule itself, so that a copy can be told from a stale one."""
    updated: Micros
    watermark: Micros
    plan_at: Micros | None
    exhausted: int
    sent_back: int
    """Some of its projections have no time until it has been planned."""
    fault: str | None
    """Why it is not planned any more, when its record cannot be read."""
    patience: Micros
    newest: Micros | None
    """The newest nominal time of the trigger that was admitted, or has ended."""
    fences: int
    """The fence of a new row: higher than that of any row that was removed, since it may be the same one again."""
    holder: int | None
    """Which row holds the slot."""
    live: int
    history: int
    """How many of its rows have ended."""
    queued: int
    total: int
    successful: int
    failed: int
    missed: int
    skipped: int
    admitted: int
    failures_in_row: int
    last_started: Micros | None
    last_phase: str | None
    news: int
    """How often anything about the schedules it depends on has changed."""
    followed: int
    """Others depend on it, or did so once."""
    ended_at: Micros | None
    """When an occurrence of it last ended, for those who depend on it."""
    completed_at: Micros | None
    owner: int
    leads: str | None
    """The trail of what its last end sets off, in JSON, where anything follows it."""
    stored: tuple[Any, ...] | None = field(default=None, init=False)

    def holds_back(self, row: Row) -> bool:
        """Whether a pause keeps a row from being claimed."""
        return self.phase == SchedulePhase.PAUSED and row.is_own


@dataclass(slots=True, eq=False)
class ConcurrencySlot:
    """A concurrency key: how many hold a place under it, and how many wait for one."""

    key: int
    tenant: str
    name: str
    taken: int
    waiting: int
    stored: tuple[Any, ...] | None = field(default=None, init=False)


Record = Row | ScheduleState | ConcurrencySlot


def _columns(record: type[Record]) -> tuple[str, ...]:
    return tuple(one.name for one in fields(record) if one.init)


ROW_COLUMNS, STATE_COLUMNS, SLOT_COLUMNS = _columns(Row), _columns(ScheduleState), _columns(ConcurrencySlot)
RUN_COLUMNS = (
    "occurrence", "fence", "schedule", "attempt", "node", "started", "ended", "outcome", "result", "error", "tokens",
    "cost_usd",
)  # fmt: skip
row_values: Callable[[Row], tuple[Any, ...]] = attrgetter(*ROW_COLUMNS)
state_values: Callable[[ScheduleState], tuple[Any, ...]] = attrgetter(*STATE_COLUMNS)
slot_values: Callable[[ConcurrencySlot], tuple[Any, ...]] = attrgetter(*SLOT_COLUMNS)


def run_values(key: int, schedule: int, run: Run, result: str | None) -> tuple[Any, ...]:
    """The columns of a run of the row with that key, of that schedule; its id ends in the fence."""
    tokens, cost = (None, None) if run.usage is None else (run.usage.tokens, run.usage.cost_usd)
    fence = int(run.id.rpartition("-")[2])
    error = None if run.error is None else storable(run.error)
    return (
        key, fence, schedule, run.attempt, run.node, run.started, run.ended, run.outcome, result, error, tokens, cost,
    )  # fmt: skip


def to_row(one: Occurrence, *, key: int, state: ScheduleState) -> Row:
    """The record of a new occurrence, which can be claimed from its due time."""
    own, behind = _own_columns(one.overrides)
    return Row(
        key, one.id, state.schedule, one.revision, one.origin, one.phase, one.route, one.nominal, one.due,
        one.first_due, one.attempt, one.fence, one.reason, one.detail, one.missed_count, one.missed_first,
        one.missed_last, one.caught_up, one.losses, one.waiting_for, int(one.holds_slot), to_json(one.payload),
        own, one.due, 0, one.node, None, one.started, one.stop, one.deadline, None, None, None, None, None, state.owner,
        behind,
    )  # fmt: skip


def occurrence(row: Row, uid: str, schedule_id: str, payload: object) -> Occurrence:
    """The occurrence that a record tells of."""
    try:
        return Occurrence(
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
            overrides=own_terms(row.own, row.behind),
            ended=row.ended,
        )
    except KeyError as error:
        raise Unreadable(f"{error} is no phase or reason") from None


def _own_columns(own: Overrides | None) -> tuple[str | None, str | None]:
    if own is None:
        return None, None
    if own.behind is None:
        return to_json(own.to_document()), None
    return to_json(own.to_document() or None), to_json(own.behind.to_document())


def own_terms(text: str | None, behind: str | None) -> Overrides | None:
    """What is true of one occurrence, and not of its schedule; of a damaged trail it is as if it began there."""
    if text is None and behind is None:
        return None
    try:
        said = Overrides() if text is None else read_overrides(from_json(text, "own"))
    except ValueError as error:
        raise Unreadable(f"its own terms cannot be read ({error})") from None
    return replace(said, behind=trail(behind, "behind"))


def trail(text: str | None, what: str) -> Chain | None:
    """What led to something, if that can be read."""
    try:
        return None if text is None else read_chain(from_json(text, what))
    except (Unreadable, ValueError):
        return None


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


def to_json(value: object) -> str | None:
    """A JSON value as text; nothing for None."""
    return None if value is None else json.dumps(value, sort_keys=False, separators=(",", ":"))


def from_json(text: str | None, column: str) -> object:
    """The value of a text in a column."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (TypeError, ValueError) as error:
        raise Unreadable(f"its {column} is not JSON ({error})") from None
