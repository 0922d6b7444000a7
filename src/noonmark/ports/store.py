"""The store: where schedules, occurrences and runs live.

A store keeps what it is given and decides nothing. Every write is conditional, one transaction per call, and tells for
each row whether it took effect; a lost race is an ordinary answer, never an exception. Batches are the rule: a call may
carry thousands of rows, each independent of the others.

A *projection* is an occurrence of the trigger that was never admitted. A row can be *claimed* from its time on: a pending
one from its due time (never while it waits for something), a leased one from the end of its lease. The *slot* of a
schedule is held by at most one of its occurrences: from its start to its end, retries included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from noonmark.core.admission import Busy

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from noonmark.core.admission import Admission, Claim
    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.planner import Plan, Snapshot
    from noonmark.core.run import Run
    from noonmark.core.schedule import Schedule
    from noonmark.core.settlement import Settlement


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTraits:
    """What a store can do, as data; nobody asks for its type."""

    is_durable: bool
    pushes_wakeups: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What became of a schedule's occurrences; a row that stands for many fires counts for all of them."""

    total: int = 0
    successful: int = 0
    failed: int = 0
    missed: int = 0
    skipped: int = 0
    admitted: int = 0
    """Occurrences of trigger and events that were started, for `max_runs`."""
    failures_in_row: int = 0
    last_started: Micros | None = None
    last_phase: Phase | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A schedule as the store has it, with what is read of it but not declared."""

    schedule: Schedule
    tally: Tally
    next_due: Micros | None
    """The due time of its earliest pending occurrence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A lease, as its holder knows it."""

    occurrence_id: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """What a node learns when it renews its leases: which it has lost, and which runs it is asked to stop."""

    lost: frozenset[str]
    stop: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The admission took effect; the occurrence is as it now stands."""

    occurrence: Occurrence


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost:
    """The fence, the revision or the phase was no longer the claim's; nothing was written."""

    occurrence_id: str


class Store(Protocol):
    """Every `now` is the store's own time, as `clock` tells it."""

    @property
    def traits(self) -> StoreTraits:
        """What this store can do."""

    async def open(self) -> None:
        """Make ready; creates or checks the schema. A schema newer than the code is refused."""

    async def close(self) -> None:
        """Let go of everything; a second call does nothing."""

    async def clock(self) -> Micros:
        """The store's time, by which leases are judged."""

    async def create(self, plans: Sequence[Plan]) -> list[bool]:
        """Keep new schedules, each with its first plan, or not at all.

        False where the tenant has a schedule of that id that is not deleted.
        """

    async def find(self, tenant: str, schedule_id: str) -> Kept | None:
        """The schedule of that id, unless it is deleted."""

    async def find_named(self, tenant: str, user: str, name: str) -> Kept | None:
        """The owner's oldest schedule of that name that is not deleted."""

    async def snapshot(self, uid: str) -> Snapshot | None:
        """What an edit needs to know of a schedule, in one consistent read."""

    async def plannable(self, now: Micros, limit: int) -> list[Snapshot]:
        """Active schedules whose time to plan has come, earliest first."""

    async def commit_plans(self, plans: Sequence[Plan]) -> list[bool]:
        """Write each plan whose snapshot still has the stored revision, watermark and phase; False for the others.

        Planned rows are inserted; of a known id, they replace a projection or reopen a superseded row, and leave any other
        as it is. Closed rows are inserted or replace a projection. Removed projections vanish; superseded and cancelled
        ones end so. Every row touched has its fence raised. Tallies count what ended. A schedule that becomes
        active or paused has its held retries freed or held.
        """

    async def add(self, occurrences: Sequence[Occurrence]) -> list[bool]:
        """Keep occurrences that the trigger did not name; False where the id is known."""

    async def claim(
        self, node: str, routes: Collection[str], *, now: Micros, until: Micros, limit: int, lease: Micros
    ) -> list[Claim]:
        """Lease rows with one of the routes: pending ones due by `until`, and those whose lease ended by `now`.

        Earliest first. Phase becomes claimed, the fence rises by one, the lease ends at now + lease. A row found in
        dispatching has lost one more lease.
        """

    async def admit(
        self, admissions: Sequence[Admission], *, now: Micros, lease: Micros
    ) -> list[Admitted | LeaseLost | Busy]:
        """Carry out admissions whose claim still holds: same fence, same revision, phase claimed.

        Start: the places it needs are taken (Busy names the first that is not free, and nothing is written), the attempt
        is counted, phase dispatching. End: final, with its reason. Wait: pending without a time; with `replaces`, what
        waited before it ends as skipped/replaced; with `cancels`, the slot's holder is asked to stop. Replan: pending again,
        and its schedule is plannable at once.
        """

    async def renew(self, holds: Sequence[Hold], *, now: Micros, lease: Micros) -> Renewal:
        """Extend the leases that are still held with this fence, even when they have run out unnoticed."""

    async def release(self, holds: Sequence[Hold]) -> None:
        """Give claimed rows back untouched; what is no longer held is left alone."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write the end of deliveries whose fence still holds, with their runs; False for the others.

        A retry is pending at its time and keeps its slot. An end frees the slot and the place under the concurrency key,
        and the first that waits for either gets a time, now. Tallies count; `pause_after` failures in a row pause the
        schedule. A schedule with nothing live and nothing to come is completed.
        """

    async def request_stop(self, occurrence_id: str) -> bool:
        """Ask whoever delivers it to stop; False when nobody does."""

    async def occurrence(self, occurrence_id: str) -> Occurrence | None:
        """One occurrence as it stands."""

    async def occurrences(self, uid: str, limit: int | None = None) -> list[Occurrence]:
        """A schedule's occurrences, newest nominal time first."""

    async def runs(self, uid: str, limit: int | None = None) -> list[Run]:
        """A schedule's runs, newest start first."""

    async def next_time(self, routes: Collection[str]) -> Micros | None:
        """When anything can next be planned or claimed."""

    async def prune(self, *, before: Micros, keep: int, limit: int) -> int:
        """Forget ended occurrences older than `before`, and of each schedule all but the newest `keep`; how many."""
