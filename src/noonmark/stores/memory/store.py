"""The memory store: each verb of the port, in one step."""

from __future__ import annotations

from dataclasses import replace
from heapq import nlargest, nsmallest
from typing import TYPE_CHECKING

from noonmark.core.admission import Claim
from noonmark.core.lifecycle import Phase
from noonmark.ports.store import Renewal, StoreTraits
from noonmark.stores.memory import admitting, agenda, planning
from noonmark.stores.memory.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from noonmark.core.admission import Admission, Busy
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.planner import Plan, Snapshot
    from noonmark.core.run import Run
    from noonmark.core.settlement import Settlement
    from noonmark.ports.store import Admitted, Hold, Kept, LeaseLost
    from noonmark.stores.memory.rows import Row

LEASED = frozenset({Phase.CLAIMED, Phase.DISPATCHING})


class MemoryStore:
    """Forgets everything when the process ends. For one event loop; no verb awaits anything, so each is atomic."""

    def __init__(self, clock: Callable[[], Micros]) -> None:
        """Leases are judged by this clock."""
        self._ledger = Ledger(clock)

    @property
    def traits(self) -> StoreTraits:
        """What this store can do."""
        return StoreTraits(is_durable=False, pushes_wakeups=False)

    async def open(self) -> None:
        """Nothing to make ready."""

    async def close(self) -> None:
        """Nothing to let go of."""

    async def clock(self) -> Micros:
        """The time of the clock it was given."""
        return self._ledger.now()

    async def create(self, plans: Sequence[Plan]) -> list[bool]:
        """Keep new schedules, each with its first plan."""
        return [planning.create(self._ledger, plan) for plan in plans]

    async def find(self, tenant: str, schedule_id: str) -> Kept | None:
        """The schedule of that id, unless it is deleted."""
        uid = self._ledger.ids.get((tenant, schedule_id))
        return None if uid is None else self._ledger.sheets[uid].kept()

    async def find_named(self, tenant: str, user: str, name: str) -> Kept | None:
        """The owner's oldest schedule of that name that is not deleted."""
        same_name = self._ledger.names.get((tenant, user, name))
        return self._ledger.sheets[same_name[0][1]].kept() if same_name else None

    async def snapshot(self, uid: str) -> Snapshot | None:
        """What an edit needs to know of a schedule."""
        sheet = self._ledger.sheets.get(uid)
        return None if sheet is None else sheet.snapshot()

    async def plannable(self, now: Micros, limit: int) -> list[Snapshot]:
        """Active schedules whose time to plan has come, earliest first."""
        ledger = self._ledger
        uids = list(agenda.take([(ledger.plans, now)], limit))
        for uid in uids:
            ledger.file_plan(ledger.sheets[uid])  # to take is to remove, and reading must change nothing
        return [ledger.sheets[uid].snapshot() for uid in uids]

    async def commit_plans(self, plans: Sequence[Plan]) -> list[bool]:
        """Write each plan whose snapshot still holds."""
        return [planning.commit(self._ledger, plan) for plan in plans]

    async def add(self, occurrences: Sequence[Occurrence]) -> list[bool]:
        """Keep occurrences that the trigger did not name."""
        return [planning.add(self._ledger, one) for one in occurrences]

    async def claim(
        self, node: str, routes: Collection[str], *, now: Micros, until: Micros, limit: int, lease: Micros
    ) -> list[Claim]:
        """Lease what is due, and what others let go."""
        ledger = self._ledger
        known = set(routes)
        waiting = [(ledger.ready[route], until) for route in known & ledger.ready.keys()]
        expired = [(ledger.leases[route], now) for route in known & ledger.leases.keys()]
        ids = agenda.take([*waiting, *expired], limit)
        # A list first: a claimed row is filed again, in one of these agendas.
        return [self._claim(ledger.rows[one], node, now=now, lease=lease) for one in list(ids)]

    async def admit(
        self, admissions: Sequence[Admission], *, now: Micros, lease: Micros
    ) -> list[Admitted | LeaseLost | Busy]:
        """Carry out admissions whose claim still holds."""
        return [admitting.admit(self._ledger, one, now=now, lease=lease) for one in admissions]

    async def renew(self, holds: Sequence[Hold], *, now: Micros, lease: Micros) -> Renewal:
        """Extend the leases that are still held."""
        held = {hold.occurrence_id: self._held(hold) for hold in holds}
        for row in held.values():
            if row is not None:
                row.lease_end = now + lease
                self._ledger.file(row)
        return Renewal(
            lost=frozenset(one for one, row in held.items() if row is None),
            stop=frozenset(one for one, row in held.items() if row is not None and row.stop),
        )

    async def release(self, holds: Sequence[Hold]) -> None:
        """Give claimed rows back untouched."""
        for hold in holds:
            row = self._held(hold)
            if row is not None and row.occurrence.phase is Phase.CLAIMED:
                row.occurrence = replace(row.occurrence, phase=Phase.PENDING)
                row.lease_end = row.node = None
                self._ledger.file(row)

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write the end of deliveries whose fence still holds."""
        return [admitting.settle(self._ledger, one) for one in settlements]

    async def request_stop(self, occurrence_id: str) -> bool:
        """Ask whoever delivers it to stop; False when nobody does."""
        row = self._ledger.rows.get(occurrence_id)
        if row is None or row.occurrence.phase not in admitting.DELIVERING:
            return False
        row.stop = True
        return True

    async def occurrence(self, occurrence_id: str) -> Occurrence | None:
        """One occurrence as it stands."""
        row = self._ledger.rows.get(occurrence_id)
        return None if row is None else row.occurrence

    async def occurrences(self, uid: str, limit: int | None = None) -> list[Occurrence]:
        """A schedule's occurrences, newest nominal time first."""
        found = [row.occurrence for row in self._rows(uid)]
        return nlargest(len(found) if limit is None else limit, found, key=lambda one: (one.nominal, one.id))

    async def runs(self, uid: str, limit: int | None = None) -> list[Run]:
        """A schedule's runs, newest start first."""
        found = [run for row in self._rows(uid) for run in row.runs]
        return nlargest(len(found) if limit is None else limit, found, key=lambda run: (run.started, run.id))

    async def next_time(self, routes: Collection[str]) -> Micros | None:
        """When anything can next be planned or claimed."""
        ledger = self._ledger
        known = set(routes)
        agendas = [ledger.plans]
        agendas += [ledger.ready[route] for route in known & ledger.ready.keys()]
        agendas += [ledger.leases[route] for route in known & ledger.leases.keys()]
        return min((first[0] for one in agendas if (first := one.first()) is not None), default=None)

    async def prune(self, *, before: Micros, keep: int, limit: int) -> int:
        """Forget what is old, and what is too much."""
        ledger = self._ledger
        forgotten = [ledger.rows[one] for one in agenda.take([(ledger.by_age, before - 1)], limit)]
        for row in forgotten:
            ledger.forget(row)
        count = len(forgotten)
        while count < limit and (fullest := ledger.by_count.first()) is not None and -fullest[0] > keep:
            ended = ledger.sheets[fullest[2]].ended.values()
            excess = min(len(ended) - keep, limit - count)
            oldest = nsmallest(excess, ended, key=lambda row: (row.occurrence.nominal, row.occurrence.id))
            for row in oldest:
                ledger.forget(row)
            count += len(oldest)
        return count

    def _rows(self, uid: str) -> Iterable[Row]:
        sheet = self._ledger.sheets.get(uid)
        return () if sheet is None else (*sheet.live.values(), *sheet.ended.values())

    def _held(self, hold: Hold) -> Row | None:
        row = self._ledger.rows.get(hold.occurrence_id)
        holds = row is not None and row.occurrence.fence == hold.fence and row.occurrence.phase in LEASED
        return row if holds else None

    def _claim(self, row: Row, node: str, *, now: Micros, lease: Micros) -> Claim:
        one = row.occurrence
        lost = one.phase is Phase.DISPATCHING
        row.occurrence = replace(
            one, phase=Phase.CLAIMED, fence=one.fence + 1, losses=one.losses + lost, attempt=one.attempt - lost
        )
        row.node, row.lease_end = node, now + lease
        self._ledger.file(row)
        schedule = self._ledger.sheet_of(row).schedule
        return Claim(occurrence=row.occurrence, schedule=schedule, claimed=now, found_in=one.phase)
