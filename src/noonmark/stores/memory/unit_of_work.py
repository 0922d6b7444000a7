"""The unit of work of the memory store: dictionaries, and the indexes that find what is due among them.

A changed row is put into its indexes when a finder or the end of a verb needs them. A live row is in one due index at
most: that of the pending rows of its route and owner, by the time it is ready, or that of the leased rows of its route,
by the end of the lease. A row that waits in line for a slot or a concurrency key is in the index of that line. So the
cost of a claim depends on what is due, not on what is stored.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from noonmark.core.ids import TRIGGER, is_hidden
from noonmark.core.lifecycle import FAILURES, Phase, SchedulePhase
from noonmark.core.run import in_place_of
from noonmark.core.targets.work import is_bundle_route
from noonmark.stores import own_key
from noonmark.stores.memory.api_keys import ApiKeys
from noonmark.stores.memory.audit_log import AuditLog
from noonmark.stores.memory.budgets import BudgetRecords
from noonmark.stores.memory.bundles import Bundles
from noonmark.stores.memory.due_index import DueIndex, WaitQueues
from noonmark.stores.memory.events import EventLog
from noonmark.stores.memory.nodes import NodeRegister
from noonmark.stores.memory.page_sessions import PageSessions
from noonmark.stores.memory.proposals import ProposalRecords
from noonmark.stores.memory.records import ScheduleEntry, listed_at
from noonmark.stores.memory.sessions import SessionRecords
from noonmark.stores.memory.workflows import WorkflowRecords
from noonmark.stores.rules import unit_of_work as rules
from noonmark.stores.rules.bundles import users as bundle_users
from noonmark.stores.rules.records import DELIVERING, LEASED, PHASES, ConcurrencyKey

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from noonmark.core.event import Event
    from noonmark.core.halt import Halt
    from noonmark.core.instants import Micros
    from noonmark.core.lineage import Lineage
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.rate_limit import RateLimit, Taken
    from noonmark.core.run import Run
    from noonmark.core.schedule import AuditEntry, Schedule
    from noonmark.core.secret import Secret
    from noonmark.core.system_events import SystemEvent
    from noonmark.ports.bundles import Bundle
    from noonmark.stores.memory.records import Listed
    from noonmark.stores.rules.records import EventStream, Row, ScheduleState, Unreadable
    from noonmark.stores.rules.unit_of_work import (
        FireQuestion,
        Identity,
        ListenerQuestion,
        NodeProcess,
        ReadEvent,
        Subscription,
        Topic,
    )

MAX_BUCKETS = 100_000
"""Buckets of tokens beyond this are forgotten, those that were quiet longest first."""


class SecretStore:
    """The secrets of all tenants."""

    def __init__(self) -> None:
        """There are none yet."""
        self._secrets: defaultdict[str, dict[str, Secret]] = defaultdict(dict)

    @cached_property
    def own_key(self) -> bytes:
        """The key of the store itself."""
        return own_key.draw()

    def put(self, tenant: str, secret: Secret, most: int) -> Secret | None:
        """Store a secret, in place of one of the same name; None if it is new and there are too many."""
        stored = self._secrets[tenant]
        if secret.name not in stored and len(stored) >= most:
            return None
        stored_secret = stored.get(secret.name, secret)
        stored[secret.name] = replace(secret, created=stored_secret.created)
        return stored[secret.name]

    def every(self, tenant: str) -> list[Secret]:
        """The secrets of a tenant, by name."""
        return [secret for _, secret in sorted(self._secrets.get(tenant, {}).items())]

    def delete(self, tenant: str, name: str) -> Secret | None:
        """Delete a secret and return it."""
        return self._secrets.get(tenant, {}).pop(name, None)


_PENDING = Phase.PENDING
PLANNED = frozenset({SchedulePhase.ACTIVE, SchedulePhase.PAUSED})
"""Phases in which planning looks at a schedule; a paused one may resume by itself."""


class UnitOfWork(rules.UnitOfWork):
    """Everything that is stored; one transaction follows another, under the lock of the store."""

    workflows: WorkflowRecords
    sessions: SessionRecords
    budgets: BudgetRecords
    proposals: ProposalRecords

    def __init__(self, now: Callable[[], Micros]) -> None:  # noqa: PLR0915 - one line per index
        super().__init__(now)
        self.rows: dict[str, Row] = {}
        self.runs: dict[int, tuple[Run, ...]] = {}
        """The runs of rows, by key."""
        self.entries: dict[str, ScheduleEntry] = {}
        """The schedules, by uid."""
        self.ids: dict[Identity, str] = {}
        """The uids of schedules that are not deleted."""
        self.last_deleted: dict[Identity, str] = {}
        """The uid of the schedule of an id that was deleted last."""
        self.names: defaultdict[tuple[str, str, str | None], list[tuple[Micros, str]]] = defaultdict(list)
        self.listed: defaultdict[str, list[Listed]] = defaultdict(list)
        """The schedules of a tenant that are not deleted, oldest first."""
        self.deleted: defaultdict[str, list[Listed]] = defaultdict(list)
        self.ready: defaultdict[str, WaitQueues] = defaultdict(WaitQueues)
        """Pending rows by route and owner."""
        self.leases: defaultdict[str, DueIndex[str]] = defaultdict(DueIndex)
        """Leased rows by route."""
        self.deadlines: DueIndex[str] = DueIndex()
        self.plans: DueIndex[str] = DueIndex()
        """Schedules by the time to plan them."""
        self.by_age: DueIndex[str] = DueIndex()
        """Ended rows by their end."""
        self.buckets: dict[str, Micros] = {}
        """When each bucket of tokens is full again, those used last at the end."""
        self.failures: dict[str, Row] = {}
        """Rows that ended in a failure."""
        self.by_count: DueIndex[str] = DueIndex()
        """Schedules by how many of their rows have ended, most first."""
        self.waiting: dict[str, None] = {}
        """Pending rows that have begun to wait for something; some have their turn by now."""
        self.slot_lines: defaultdict[int, DueIndex[str]] = defaultdict(DueIndex)
        """The rows in line for the slot of a schedule that no pause holds."""
        self.key_lines: defaultdict[int, DueIndex[str]] = defaultdict(DueIndex)
        """The rows in line for a concurrency key that no pause holds."""
        self.keys: dict[tuple[str, str], ConcurrencyKey] = {}
        self.events = EventLog(now)
        self.nodes = NodeRegister()
        self.audit_log = AuditLog()
        self.secrets = SecretStore()
        self.all_halts: list[Halt] = []
        """Those of all tenants, oldest first."""
        self.api_keys = ApiKeys()
        self.page_sessions = PageSessions()
        self.bundles = Bundles(partial(bundle_users, self))
        self._followers: defaultdict[Identity, set[int]] = defaultdict(set)
        """The schedules that depend on a schedule."""
        self._graph_versions: defaultdict[str, int] = defaultdict(int)
        self._listeners: defaultdict[Topic, dict[str, dict[str, list[int]]]] = defaultdict(dict)
        """The schedules that subscribe to a topic, by discriminator, in order."""
        self._by_key: dict[int, ScheduleEntry] = {}
        self._rows_by_key: dict[int, Row] = {}
        self.workflows = WorkflowRecords(
            now, self._rows_by_key, lambda schedule: self._by_key[schedule].schedule.schedule_id
        )
        self.sessions = SessionRecords(self.rows)
        self.budgets = BudgetRecords(now, self.rows)
        self.proposals = ProposalRecords()
        self._keys_by_number: dict[int, ConcurrencyKey] = {}
        self._due: dict[int, DueIndex[str]] = {}
        """The due index that a row is in."""
        self._line: dict[int, DueIndex[str]] = {}
        """The line that a row is in."""
        self._occurrences: dict[int, Occurrence] = {}
        """Rows as occurrences, until they change."""
        self._changed_rows: dict[int, Row] = {}
        self._changed_entries: dict[int, ScheduleEntry] = {}
        self._last_row = 0
        self._may_subscribe = True

    def pack(self, value: object) -> Any:
        return value

    def unpack(self, stored: Any, column: str) -> object:  # noqa: ARG002 - likewise
        return stored

    # Rows

    def load_rows(self, ids: Iterable[str]) -> None:
        """All of them are loaded."""

    def row(self, occurrence_id: str) -> Row | None:
        return self.rows.get(occurrence_id)

    def loaded_row(self, occurrence_id: str) -> Row | None:
        return self.rows.get(occurrence_id)

    def row_of_key(self, key: int) -> Row | None:
        return self._rows_by_key.get(key)

    def occurrence_of(self, row: Row) -> Occurrence:
        """The occurrence of a row."""
        if row.key in self._changed_rows:
            return self.occurrence(row, self._by_key[row.schedule].schedule)
        occurrence = self._occurrences.get(row.key)
        if occurrence is None:
            occurrence = self._occurrences[row.key] = self.occurrence(row, self._by_key[row.schedule].schedule)
        return occurrence

    def schedule_of_row(self, row: Row) -> Schedule:
        """The schedule of a row."""
        return self._by_key[row.schedule].schedule

    def live_rows(self, state: ScheduleState) -> list[Row]:
        self.write()
        return list(self._by_key[state.schedule].live.values())

    def halts(self, tenant: str) -> list[Halt]:
        return [halt for halt in self.all_halts if halt.tenant == tenant]

    def add_halt(self, halt: Halt) -> None:
        self.all_halts.append(halt)

    def delete_halt(self, tenant: str, halt_id: str) -> Halt | None:
        deleted = next((halt for halt in self.halts(tenant) if halt.halt_id == halt_id), None)
        if deleted is not None:
            self.all_halts.remove(deleted)
        return deleted

    def begun_rows(self, tenant: str) -> list[Row]:
        self.write()
        live = (
            row
            for entry in self.entries.values()
            if entry.schedule.owner.tenant == tenant
            for row in entry.live.values()
        )
        return [row for row in live if row.phase in DELIVERING or row.is_suspended]

    def slot_queue(self, state: ScheduleState) -> list[Row]:
        self.write()
        rows = self._by_key[state.schedule].live.values()
        return sorted((row for row in rows if row.is_queued), key=lambda row: row.turn)

    def first_for_slot(self, state: ScheduleState) -> Row | None:
        self.write()
        return self._first(self.slot_lines, state.schedule)

    def late_fire_before(self, row: Row) -> Row | None:
        self.write()
        since, now = row.gap_since, self.now()
        before = (
            fire
            for fire in self._by_key[row.schedule].live.values()
            if fire.nominal < row.nominal and fire.origin == TRIGGER and fire.is_in_gap(since, now)
        )
        return min(before, key=lambda one: one.nominal, default=None)

    def first_for_key(self, key: ConcurrencyKey) -> Row | None:
        self.write()
        return self._first(self.key_lines, key.key)

    def rows_awaiting_upstreams(self, state: ScheduleState, ended: Row | None = None) -> list[Row]:
        self.write()
        now = self.now()
        rows = [
            row
            for row in self._by_key[state.schedule].live.values()
            if row.awaits_upstreams(now) and (ended is None or _may_end_wait(ended, row))
        ]
        return sorted(rows, key=lambda row: (row.nominal, row.id))

    def projections(self, states: Sequence[ScheduleState]) -> list[Row]:
        self.write()
        rows = (row for state in states for row in self._by_key[state.schedule].live.values())
        return sorted((row for row in rows if row.origin == TRIGGER), key=lambda row: row.nominal)

    def rows_beyond(self, state: ScheduleState, after: Micros) -> list[Row]:
        return [row for row in self._fires(state.schedule) if row.last_nominal > after]

    def newest_fires(self, questions: Sequence[FireQuestion]) -> dict[int, tuple[Micros, Phase]]:
        newest: dict[int, tuple[Micros, Phase]] = {}
        for number, schedule, after, until in questions:
            fires = [
                (min(row.last_nominal, until), row.nominal, row.phase)
                for row in self._fires(schedule)
                if row.nominal <= until and row.last_nominal > after
            ]
            if fires:
                last, _, phase = max(fires)
                newest[number] = (last, PHASES[phase])
        return newest

    def reserve(self, ids: Collection[str]) -> None:
        """Rows are numbered as they are added."""

    def key_for(self, occurrence_id: str) -> int:  # noqa: ARG002 - any number will do
        self._last_row += 1
        return self._last_row

    def add_row(self, row: Row) -> None:
        self.rows[row.id] = self._rows_by_key[row.key] = self._changed_rows[row.key] = row

    def changed(self, row: Row) -> None:
        if row.key in self._rows_by_key:
            self._changed_rows[row.key] = row

    def remove_row(self, row: Row) -> None:
        self.write()
        entry = self._by_key[row.schedule]
        del self.rows[row.id], self._rows_by_key[row.key]
        self.runs.pop(row.key, None)
        self.workflows.forget(row)
        self._occurrences.pop(row.key, None)
        if row.ended is None:
            del entry.live[row.id]
            self._discard(row)
            return
        del entry.ended[row.id]
        self.failures.pop(row.id, None)
        self.by_age.discard(row.id)
        self._file_count(entry)

    def add_run(self, row: Row, run: Run) -> None:
        runs = self.runs.get(row.key)
        if runs is None:
            self.runs[row.key] = (run,)
            return
        before = next((one for one in runs if one.id == run.id), None)
        self.runs[row.key] = (*[one for one in runs if one is not before], in_place_of(before, run))

    # Schedules

    def load_states(self, uids: Iterable[str]) -> dict[str, ScheduleState]:
        return {uid: self.entries[uid].state for uid in uids if uid in self.entries}

    def states_of(self, keys: Iterable[int]) -> list[ScheduleState]:
        return [self._by_key[key].state for key in keys]

    def state_of(self, row: Row) -> ScheduleState:
        return self._by_key[row.schedule].state

    def changed_state(self, state: ScheduleState) -> None:
        self._changed_entries[state.schedule] = self._by_key[state.schedule]

    def schedule_of(self, state: ScheduleState) -> Schedule:
        return self._by_key[state.schedule].current_schedule()

    def schedules_of(self, states: Iterable[ScheduleState]) -> dict[int, Schedule | Unreadable]:
        return {state.schedule: self.schedule_of(state) for state in states}

    def states_named(self, identities: Collection[Identity]) -> dict[Identity, ScheduleState]:
        return {one: self.entries[self.ids[one]].state for one in identities if one in self.ids}

    def known_ids(self, identities: Collection[Identity]) -> tuple[set[Identity], set[Identity]]:
        return {one for one in identities if one in self.ids}, {one for one in identities if self._followers.get(one)}

    def count_schedules(self, tenant: str, user: str | None, route: str | None) -> int:
        entries = [self.entries[uid] for _, _, uid in self.listed.get(tenant, [])]
        return sum(
            entry.state.phase in (SchedulePhase.ACTIVE, SchedulePhase.PAUSED)
            and user in (None, entry.schedule.owner.user)
            and route in (None, entry.schedule.declaration.target.route)
            for entry in entries
        )

    def count_children(self, tenant: str, uid: str) -> int:
        return sum(one.parent == uid for one in self._lineages(tenant))

    def find_clone(self, tenant: str, user: str, fingerprint: str, *, besides: str) -> str | None:
        for _, _, uid in self.listed.get(tenant, []):
            entry = self.entries[uid]
            lineage = entry.schedule.lineage
            is_same = lineage is not None and lineage.fingerprint == fingerprint
            is_other = entry.schedule.schedule_id != besides
            if is_same and is_other and entry.schedule.owner.user == user and entry.state.phase in PLANNED:
                return entry.schedule.schedule_id
        return None

    def _lineages(self, tenant: str) -> list[Lineage]:
        """The lineages of a tenant's schedules that are active or paused."""
        entries = [self.entries[uid] for _, _, uid in self.listed.get(tenant, [])]
        return [
            entry.schedule.lineage
            for entry in entries
            if entry.schedule.lineage is not None and entry.state.phase in PLANNED
        ]

    def find_bundle(self, tenant: str, bundle_id: str | None, digest: str | None) -> Bundle | None:
        return self.bundles.find(tenant, bundle_id, digest)

    def overrides_of_bundles(self, tenant: str) -> list[tuple[str, Any]]:
        self.write()
        entries = [one for one in self.entries.values() if one.schedule.owner.tenant == tenant]
        rows = [row for entry in entries for row in entry.live.values()]
        return [(row.id, row.own) for row in rows if is_bundle_route(row.route) and row.own is not None]

    def count_waiting(self, tenant: str, user: str | None) -> int:
        self.write()
        now, entries = self.now(), [self.entries[uid] for _, _, uid in self.listed.get(tenant, [])]
        owned = (entry for entry in entries if user in (None, entry.schedule.owner.user))
        return sum(row.waits(now) for entry in owned for row in entry.live.values())

    def take_tokens(self, name: str, limit: RateLimit, wanted: int) -> Taken:
        taken = limit.take(self.buckets.pop(name, None), wanted, now=self.now())
        self.buckets[name] = taken.full_at
        if len(self.buckets) > MAX_BUCKETS:
            del self.buckets[next(iter(self.buckets))]
        return taken

    def next_schedule_key(self, count: int) -> int:  # noqa: ARG002 - numbers cost nothing
        return len(self.entries) + 1

    def add_schedule(self, state: ScheduleState, schedule: Schedule) -> None:
        if schedule.phase is SchedulePhase.DELETED:
            self.last_deleted[_identity(schedule)] = schedule.uid
        entry = ScheduleEntry(state, schedule)
        self.entries[schedule.uid] = self._by_key[state.schedule] = self._changed_entries[state.schedule] = entry
        is_deleted = schedule.phase is SchedulePhase.DELETED
        if not is_hidden(schedule.schedule_id):
            insort((self.deleted if is_deleted else self.listed)[schedule.owner.tenant], listed_at(schedule))
        self._list(schedule)

    def replace_schedule(self, state: ScheduleState, schedule: Schedule) -> None:
        entry = self._by_key[state.schedule]
        self._unlist(entry.schedule)
        if schedule.phase is SchedulePhase.DELETED and entry.schedule.phase is not SchedulePhase.DELETED:
            if not is_hidden(schedule.schedule_id):
                listed, place = self.listed[schedule.owner.tenant], listed_at(schedule)
                del listed[bisect_left(listed, place)]
                insort(self.deleted[schedule.owner.tenant], place)
            self.last_deleted[_identity(schedule)] = schedule.uid
        entry.schedule = schedule
        self._list(schedule)
        self.changed_state(state)

    def tenants_of(self, keys: Iterable[int]) -> Mapping[int, str]:
        return {key: self._by_key[key].schedule.owner.tenant for key in keys}

    def last_heartbeats(self, routes: Collection[str]) -> tuple[Micros | None, Mapping[str, Micros]]:  # noqa: ARG002 - all are at hand
        return max((one.seen for one in self.nodes.nodes.values()), default=None), self.nodes.served

    def add_audit_entry(self, tenant: str, entry: AuditEntry) -> None:
        self.audit_log.add(tenant, entry)

    # Concurrency keys

    def concurrency_key(self, tenant: str, name: str) -> ConcurrencyKey:
        key = self.keys.get((tenant, name))
        if key is None:
            number = len(self.keys) + 1
            key = self.keys[tenant, name] = self._keys_by_number[number] = ConcurrencyKey(number, tenant, name, 0, 0)
        return key

    def concurrency_key_of(self, key: int) -> ConcurrencyKey | None:
        return self._keys_by_number.get(key)

    def changed_key(self, key: ConcurrencyKey) -> None:
        """It has no index."""

    # Dependencies

    def downstream(self, state: ScheduleState) -> list[tuple[ScheduleState, bool]]:
        identity = _identity(self._by_key[state.schedule].schedule)
        if self.ids.get(identity, state.uid) != state.uid or identity not in self._followers:
            return []
        entries = [self._by_key[key] for key in sorted(self._followers[identity])]
        return [(entry.state, entry.schedule.declaration.trigger is None) for entry in entries]

    def set_upstreams(self, state: ScheduleState, tenant: str, upstreams: Sequence[str]) -> None:
        entry = self._by_key[state.schedule]
        for upstream in entry.upstreams:
            self._followers[tenant, upstream].discard(state.schedule)
        for upstream in upstreams:
            self._followers[tenant, upstream].add(state.schedule)
        entry.upstreams = tuple(upstreams)

    def graph_version(self, tenant: str) -> int:
        return self._graph_versions[tenant]

    def raise_graph_version(self, tenant: str) -> None:
        self._graph_versions[tenant] += 1

    # Events

    @contextmanager
    def fixed_subscriptions(self) -> Iterator[None]:
        """A transaction that does not change who subscribes to what."""
        self._may_subscribe = False
        try:
            yield
        finally:
            self._may_subscribe = True

    def may_have_subscribers(self, state: ScheduleState, event: SystemEvent) -> bool:
        topic = (self._by_key[state.schedule].schedule.owner.tenant, event)
        return self._may_subscribe or topic in self._listeners or self.workflows.has_waits(topic)

    def subscribed(self, topics: Collection[Topic]) -> set[Topic]:
        return {topic for topic in topics if self._listeners.get(topic) or self.workflows.has_waits(topic)}

    def subscribed_tenants(self, event_type: str) -> list[str]:
        listening = {tenant for (tenant, one), found in self._listeners.items() if found and one == event_type}
        return sorted(listening | self.workflows.waiting_tenants(event_type))

    def add_subscriptions(self, added: Sequence[tuple[ScheduleState, str, Subscription]]) -> None:
        for state, tenant, subscription in added:
            event_type, (fields, values) = subscription
            self._by_key[state.schedule].subscriptions.append(subscription)
            insort(self._listeners[tenant, event_type].setdefault(fields, {}).setdefault(values, []), state.schedule)

    def replace_subscriptions(self, state: ScheduleState, tenant: str, subscriptions: Sequence[Subscription]) -> None:
        entry = self._by_key[state.schedule]
        for event_type, (fields, values) in entry.subscriptions:
            of_type = self._listeners[tenant, event_type]
            keys = of_type[fields][values]
            del keys[bisect_left(keys, state.schedule)]
            if not keys:
                del of_type[fields][values]
            if not of_type[fields]:
                del of_type[fields]
        entry.subscriptions.clear()
        self.add_subscriptions([(state, tenant, one) for one in subscriptions])

    def listener_fields(self, tenant: str, types: Collection[str]) -> dict[str, list[str]]:
        return {one: [fields for fields in self._listeners.get((tenant, one), {}) if fields] for one in types}

    def listeners(self, tenant: str, questions: Sequence[ListenerQuestion], limit: int) -> list[list[int]]:
        listeners = []
        for event_type, (fields, values), after in questions:
            keys = self._listeners.get((tenant, event_type), {}).get(fields, {}).get(values, [])
            begin = bisect_right(keys, after)
            listeners.append(keys[begin : begin + limit])
        return listeners

    def known_event_ids(self, tenant: str, event_ids: Collection[str | None]) -> set[str | None]:
        return self.events.known_ids(tenant, event_ids)

    def newest_moment(self, tenant: str) -> Micros:
        return self.events.newest_moment(tenant)

    def events_after(self, tenant: str, after: Micros) -> list[Micros]:
        return [moment for moment in self.events.moments(tenant) if moment > after]

    def last_event_until(self, tenant: str, until: Micros) -> Micros | None:
        return max((moment for moment in self.events.moments(tenant) if moment <= until), default=None)

    def move_events(self, tenant: str, moments: Mapping[Micros, Micros], newest: Micros, matched_until: Micros) -> None:
        self.events.move(tenant, moments, newest, matched_until)

    def add_events(self, tenant: str, added: Sequence[Event]) -> None:
        self.events.add(tenant, added)

    def pending_streams(self, limit: int) -> list[EventStream]:
        return self.events.pending_streams(limit)

    def unmatched_events(self, stream: EventStream, limit: int) -> list[ReadEvent]:
        return self.events.unmatched(stream.tenant, limit)

    def load_streams(self, tenants: Sequence[str]) -> dict[str, EventStream]:
        return self.events.load(tenants)

    def changed_streams(self, streams: Iterable[EventStream]) -> None:
        for stream in streams:
            self.events.match(stream)

    def process_of(self, node: str | None) -> NodeProcess:
        return self.nodes.process_of(node)

    def mark_process_gone(self, node: str) -> None:
        self.nodes.mark_gone(node, now=self.now())

    def rows_leased_by(self, node: str) -> list[Row]:
        self.write()
        live = (row for entry in self.entries.values() for row in entry.live.values())
        return [row for row in live if row.lease_end is not None and row.node == node]

    def mark_node_lost(self, node: str, seen: Micros) -> bool:
        return self.nodes.miss(node, seen)

    # Indexes

    def write(self) -> None:
        """Put everything that was changed into its indexes."""
        if self._changed_rows:
            rows, self._changed_rows = self._changed_rows, {}
            for key, row in rows.items():
                self._occurrences.pop(key, None)
                if key in self._rows_by_key:
                    self._file(row)
        if self._changed_entries:
            entries, self._changed_entries = self._changed_entries, {}
            for entry in entries.values():
                entry.schedule = entry.current_schedule()
                self.file_plan(entry)

    def file_plan(self, entry: ScheduleEntry) -> None:
        """Put a schedule where planning looks, or take it away from there."""
        state = entry.state
        if state.plan_at is None or state.fault is not None or state.phase not in PLANNED:
            self.plans.discard(state.uid)
        else:
            self.plans.put(state.uid, state.plan_at)

    def file(self, row: Row) -> None:
        """Put a live row where claims look."""
        due_index = line = None
        if is_pending := row.phase == _PENDING:
            if not row.held:
                due_index, line = self._file_pending(row)
        elif row.lease_end is not None and row.phase in LEASED:
            due_index = self.leases[row.route]
            due_index.put(row.id, row.lease_end, row.nominal)
        if self._due.get(row.key) is not due_index:
            _move(self._due, row, due_index)
        if self._line.get(row.key) is not line:
            _move(self._line, row, line)
        if is_pending and row.waiting_for is not None:
            self.waiting[row.id] = None
        else:
            self.waiting.pop(row.id, None)
        if row.deadline is not None and row.phase in DELIVERING:
            self.deadlines.put(row.id, row.deadline)
        else:
            self.deadlines.discard(row.id)

    def _file_pending(self, row: Row) -> tuple[DueIndex[str] | None, DueIndex[str] | None]:
        """Put a pending row where claims look, or in line; returns both indexes."""
        due_index = line = None
        if row.ready is not None:
            due_index = self.ready[row.route].put(row.owner, row.id, row.ready, row.nominal)
        elif row.is_queued:
            line = self.slot_lines[row.schedule]
        if row.wanted is not None:
            line = self.key_lines[row.wanted]
        if line is not None:
            line.put(row.id, row.due, row.nominal)
        return due_index, line

    def _file(self, row: Row) -> None:
        entry = self._by_key[row.schedule]
        if row.ended is None:
            entry.live[row.id] = row
            self.file(row)
            return
        if row.id not in entry.ended:
            entry.live.pop(row.id, None)
            entry.ended[row.id] = row
            self._discard(row)
            self._file_count(entry)
        if row.phase in FAILURES:
            self.failures[row.id] = row
        self.by_age.put(row.id, row.ended)

    def _file_count(self, entry: ScheduleEntry) -> None:
        if entry.ended:
            self.by_count.put(entry.state.uid, -len(entry.ended))
        else:
            self.by_count.discard(entry.state.uid)

    def _discard(self, row: Row) -> None:
        if row.key in self._due:
            _move(self._due, row, None)
        if row.key in self._line:
            _move(self._line, row, None)
        self.waiting.pop(row.id, None)
        self.deadlines.discard(row.id)

    def _first(self, lines: Mapping[int, DueIndex[str]], key: int) -> Row | None:
        first = lines[key].first() if key in lines else None
        return None if first is None else self.rows[first[2]]

    def _fires(self, key: int) -> list[Row]:
        """The rows of the trigger of a schedule that are not superseded."""
        self.write()
        entry = self._by_key[key]
        rows = (*entry.live.values(), *entry.ended.values())
        return [row for row in rows if row.origin == TRIGGER and row.phase != Phase.SUPERSEDED]

    def _list(self, schedule: Schedule) -> None:
        if schedule.phase is not SchedulePhase.DELETED:
            self.ids[_identity(schedule)] = schedule.uid
            if schedule.declaration.name is not None:
                insort(self.names[_name(schedule)], (schedule.created, schedule.uid))

    def _unlist(self, schedule: Schedule) -> None:
        if self.ids.get(_identity(schedule)) == schedule.uid:
            del self.ids[_identity(schedule)]
            if schedule.declaration.name is None:
                return
            same_name = self.names[_name(schedule)]
            del same_name[bisect_left(same_name, (schedule.created, schedule.uid))]
            if not same_name:
                del self.names[_name(schedule)]


def _move(indexes: dict[int, DueIndex[str]], row: Row, index: DueIndex[str] | None) -> None:
    """Take a row out of the index that it was in, which is another one now."""
    before = indexes.get(row.key)
    if before is not None:
        before.discard(row.id)
    if index is None:
        del indexes[row.key]
    else:
        indexes[row.key] = index


def _may_end_wait(ended: Row, row: Row) -> bool:
    """Whether a row that waits for an upstream may wait for this row of it."""
    if row.awaits_after is None:
        return True
    return ended.origin == TRIGGER and ended.nominal <= row.nominal and ended.last_nominal > row.awaits_after


def _identity(schedule: Schedule) -> Identity:
    return (schedule.owner.tenant, schedule.schedule_id)


def _name(schedule: Schedule) -> tuple[str, str, str | None]:
    return (schedule.owner.tenant, schedule.owner.user, schedule.declaration.name)
