"""The dictionaries of the memory store, and the agendas that find what is due among them.

A live row is filed in one agenda at most: of the pending rows of its route and owner by the time it is ready, or of its
route's leased rows by the end of the lease. A row that nobody can claim now or later, as it waits or is held, is in
none. So the cost of a claim follows what is due, whatever is stored.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from typing import TYPE_CHECKING

from noonmark.core.frozen import evolve
from noonmark.core.lifecycle import FINAL, Phase, SchedulePhase
from noonmark.core.policies.delivery import MIN_PATIENCE, patience
from noonmark.stores.memory.audit_log import AuditLog
from noonmark.stores.memory.due_index import DueIndex, WaitLines
from noonmark.stores.memory.nodes import Register
from noonmark.stores.memory.secret_store import SecretStore
from noonmark.stores.system_events import NOTHING_MORE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.plans import Snapshot
    from noonmark.core.policies.dependencies import Standings
    from noonmark.core.schedule import Schedule
    from noonmark.core.system_events import SystemEvent
    from noonmark.stores.memory.records import EventStream, Key, Row, ScheduleState, Turn
    from noonmark.stores.system_events import More


Listed = tuple[int, str, str]
"""Where a schedule stands in the list of its tenant: creation, id, uid."""
Noted = tuple["SystemEvent", "Schedule", "Occurrence | None", "More"]
"""Something that has happened to a schedule, or to one of its occurrences."""
DELIVERING = frozenset({Phase.DISPATCHING, Phase.AWAITING_COMPLETION})


class UnitOfWork:
    """Everything that is stored; `now` is the store's clock."""

    def __init__(self, now: Callable[[], Micros]) -> None:
        """Nothing is stored yet."""
        self.now = now
        self.rows: dict[str, Row] = {}
        self.states: dict[str, ScheduleState] = {}
        self.ids: dict[tuple[str, str], str] = {}
        self.names: defaultdict[tuple[str, str, str | None], list[tuple[Micros, str]]] = defaultdict(list)
        self.listed: defaultdict[str, list[Listed]] = defaultdict(list)
        """The schedules of a tenant that are not deleted, oldest first."""
        self.deleted: defaultdict[str, list[Listed]] = defaultdict(list)
        """Those that are."""
        self.last_deleted: dict[tuple[str, str], str] = {}
        """The uid of the schedule of an id that was deleted last."""
        self.ready: defaultdict[str, WaitLines] = defaultdict(WaitLines)
        self.leases: defaultdict[str, DueIndex[str]] = defaultdict(DueIndex)
        self.plans: DueIndex[str] = DueIndex()
        self.deadlines: DueIndex[str] = DueIndex()
        self.nodes = Register()
        self.journal = AuditLog()
        self.vault = SecretStore()
        self.by_age: DueIndex[str] = DueIndex()
        self.by_count: DueIndex[str] = DueIndex()
        self.newest_end: Micros | None = None
        """The latest end of the occurrences that have ended."""
        self.holders: defaultdict[Key, set[str]] = defaultdict(set)
        self.in_line: dict[str, None] = {}
        """What is pending and has begun to wait for something; perhaps it has its turn by now."""
        self.waiting: defaultdict[Key, list[Turn]] = defaultdict(list)
        self.followers: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        """Who depends on the schedule of a tenant and an id."""
        self.listeners: defaultdict[tuple[str, str], dict[str, dict[str, list[str]]]] = defaultdict(dict)
        """The schedules of a tenant whose trigger names an event type, by discriminator, their uids in order."""
        self.streams: dict[str, EventStream] = {}
        """The events of each tenant."""
        self.behind: DueIndex[str] = DueIndex()
        """The streams that have events to match, by the moment they are matched up to."""
        self.events_by_age: DueIndex[str] = DueIndex()
        self.events_by_count: DueIndex[str] = DueIndex()
        self.facts: list[Noted] = []
        """What has happened in this step, and is told at its end."""
        self.graphs: defaultdict[str, int] = defaultdict(int)
        """How often what depends on what has changed in a tenant."""

    def note(
        self, fact: SystemEvent, schedule: Schedule, one: Occurrence | None = None, more: More = NOTHING_MORE
    ) -> None:
        """Something has happened that somebody may want to hear."""
        self.facts.append((fact, schedule, one, more))

    def state_of(self, row: Row) -> ScheduleState:
        """The schedule of a row."""
        return row.state

    def keep_schedule(self, state: ScheduleState, schedule: Schedule) -> None:
        """Store a schedule as it is from now on; one that is deleted can be found by its uid alone."""
        self._unlist(state.schedule)
        listed, place = self.listed[schedule.owner.tenant], listed_at(schedule)
        # Only what comes and goes: to move about in a long list is not cheap.
        if schedule.uid not in self.states:
            insort(listed, place)
        if schedule.phase is SchedulePhase.DELETED and (index := bisect_left(listed, place)) < len(listed):
            del listed[index : index + (listed[index] == place)]
        if schedule.phase is SchedulePhase.DELETED and state.schedule.phase is not SchedulePhase.DELETED:
            insort(self.deleted[schedule.owner.tenant], place)
            self.last_deleted[_id(schedule)] = schedule.uid
        state.schedule = schedule
        self.states[schedule.uid] = state
        if schedule.phase is not SchedulePhase.DELETED:
            self.ids[_id(schedule)] = schedule.uid
            if schedule.declaration.name is not None:
                insort(self.names[_name(schedule)], (schedule.created, schedule.uid))
        self.file_plan(state)

    def file_plan(self, state: ScheduleState) -> None:
        """Put the schedule where planning looks, or take it away from there."""
        if state.plan_at is None or state.fault is not None or state.schedule.phase is not SchedulePhase.ACTIVE:
            self.plans.discard(state.schedule.uid)
        else:
            self.plans.put(state.schedule.uid, state.plan_at)

    def snapshot(self, state: ScheduleState, upstreams: Standings | None, *, since: Micros | None = None) -> Snapshot:
        """The schedule as planning reads it, or as rewinding to a time does."""
        route, served_since = state.schedule.declaration.target.route, self.now() - _patience(state.schedule)
        nodes_live = self.nodes.is_any_alive(served_since)
        unserved = nodes_live and not self.is_served(route, served_since)
        return state.snapshot(unserved=unserved, upstreams=upstreams, since=since)

    def is_served(self, route: str, since: Micros) -> bool:
        """Whether a node has said after an instant that it serves a route."""
        beat = self.nodes.served.get(route)
        return beat is not None and beat > since

    def unserved(
        self, agendas: Mapping[str, DueIndex[str] | WaitLines], now: Micros
    ) -> list[DueIndex[str] | WaitLines]:
        """The agendas of routes that nobody serves; only those are worth a look for what lacks its target."""
        return [one for route, one in agendas.items() if not self.is_served(route, now - MIN_PATIENCE)]

    def is_due(self, row: Row, *, now: Micros, until: Micros) -> bool:
        """Whether a claim may take a row: a pending one whose time comes by `until`, a leased one free by `now`."""
        if row.occurrence.phase is not Phase.PENDING:
            return row.lease_end is not None and row.lease_end <= now
        return row.ready is not None and row.ready <= until and not self.state_of(row).holds_back(row)

    def lacks_target(self, row: Row, now: Micros) -> bool:
        """Whether a row could have been claimed for longer than its schedule has patience, but by nobody."""
        since = now - _patience(self.state_of(row).schedule)
        time = row.ready if row.occurrence.phase is Phase.PENDING else row.lease_end
        return time is not None and time < since and not self.is_served(row.occurrence.route, since)

    def add(self, row: Row) -> None:
        """Store a row that is live."""
        self.rows[row.occurrence.id] = row
        self.state_of(row).live[row.occurrence.id] = row
        self.file(row)

    def file(self, row: Row) -> None:
        """Put a row where claims look, after anything about it has changed."""
        one = row.occurrence
        phase = one.phase
        due_index: DueIndex[str] | None = None
        if row.lease_end is not None and (phase is Phase.CLAIMED or phase is Phase.DISPATCHING):
            due_index = self.leases[one.route]
            due_index.put(one.id, row.lease_end, one.nominal)
        elif row.ready is not None and phase is Phase.PENDING and not row.state.holds_back(row):
            due_index = self.ready[one.route].put(row.state.owner, one.id, row.ready, one.nominal)
        if row.filed is not None and row.filed is not due_index:
            row.filed.discard(one.id)
        row.filed = due_index
        if one.waiting_for is not None and phase is Phase.PENDING:
            self.in_line[one.id] = None
        else:
            self.in_line.pop(one.id, None)
        if one.deadline is not None and phase in DELIVERING:
            self.deadlines.put(one.id, one.deadline)
        else:
            self.deadlines.discard(one.id)

    def archive(self, row: Row, ended: Micros) -> None:
        """Move a row that has ended from the live ones to the others."""
        one, state = row.occurrence, self.state_of(row)
        row.ready = row.lease_end = None
        del state.live[one.id]
        state.ended[one.id] = row
        self.file(row)
        self.by_age.put(one.id, ended)
        self.newest_end = ended if self.newest_end is None else max(self.newest_end, ended)
        self.by_count.put(one.uid, -len(state.ended))

    def forget(self, row: Row) -> None:
        """Remove a row, live or ended."""
        one, state = row.occurrence, self.state_of(row)
        del self.rows[one.id]
        if one.phase not in FINAL:
            del state.live[one.id]
            self.in_line.pop(one.id, None)
            if row.filed is not None:
                row.filed.discard(one.id)
            return
        del state.ended[one.id]
        self.by_age.discard(one.id)
        if one.ended == self.newest_end:
            self.newest_end = self.by_age.last()
        if state.ended:
            self.by_count.put(one.uid, -len(state.ended))
        else:
            self.by_count.discard(one.uid)

    def _unlist(self, schedule: Schedule) -> None:
        if self.ids.get(_id(schedule)) == schedule.uid:
            del self.ids[_id(schedule)]
            if schedule.declaration.name is None:
                return
            same_name = self.names[_name(schedule)]
            del same_name[bisect_left(same_name, (schedule.created, schedule.uid))]
            if not same_name:
                del self.names[_name(schedule)]


def give_back(row: Row) -> None:
    """Nobody holds a row any more, or is asked to stop it."""
    row.occurrence = evolve(row.occurrence, node=None, started=None, stop=None, deadline=None)
    row.lease_end = None


def listed_at(schedule: Schedule) -> Listed:
    """Where a schedule stands in the list of its tenant."""
    return (schedule.created, schedule.schedule_id, schedule.uid)


def _patience(schedule: Schedule) -> Micros:
    return patience(schedule.declaration.misfire_policy.grace)


def _id(schedule: Schedule) -> tuple[str, str]:
    return (schedule.owner.tenant, schedule.schedule_id)


def _name(schedule: Schedule) -> tuple[str, str, str | None]:
    return (schedule.owner.tenant, schedule.owner.user, schedule.declaration.name)
