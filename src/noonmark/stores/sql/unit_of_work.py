"""The unit of work of the SQL stores: records are read in bulk, changed in Python, and written in bulk.

A finder writes what was changed before, so that its query sees it. The usual case needs no finder: counters say that no
row waits.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from noonmark.core.ids import TRIGGER
from noonmark.core.instants import HOUR
from noonmark.core.policies.misfire import PUNCTUAL
from noonmark.core.reasons import Reason
from noonmark.ports.records import NODE_LISTED
from noonmark.stores.rules import unit_of_work as rules
from noonmark.stores.rules.records import ConcurrencyKey, Row, ScheduleState
from noonmark.stores.sql import (
    budgets,
    bundles,
    dependencies,
    events,
    halts,
    nodes,
    proposals,
    row_checks,
    schedule_documents,
    sessions,
    subscriptions,
    workflows,
)
from noonmark.stores.sql.audit_log import NOTE_COLUMNS, note_values
from noonmark.stores.sql.records import (
    KEY_COLUMNS,
    ROW_COLUMNS,
    STATE_COLUMNS,
    from_json,
    key_values,
    row_values,
    run_values,
    state_values,
    to_json,
)
from noonmark.stores.sql.row_checks import KEYS, ROWS, STATES
from noonmark.stores.sql.runs import put_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from noonmark.core.event import Event
    from noonmark.core.halt import Halt
    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase
    from noonmark.core.rate_limit import RateLimit, Taken
    from noonmark.core.run import Run
    from noonmark.core.schedule import AuditEntry, Schedule
    from noonmark.ports.bundles import Bundle
    from noonmark.stores.rules.records import EventStream, Unreadable
    from noonmark.stores.rules.unit_of_work import (
        FireQuestion,
        Identity,
        ListenerQuestion,
        NodeProcess,
        ReadEvent,
        Subscription,
        Topic,
    )
    from noonmark.stores.sql.schedule_documents import ScheduleCache
    from noonmark.stores.sql.session import Session

R = TypeVar("R", Row, ScheduleState, ConcurrencyKey)

_KEY_OF_NAME = "SELECT * FROM concurrency_keys WHERE tenant = ? AND name = ?"
_IN_SLOT_LINE = "phase = 'pending' AND waiting_for = 'queued' AND ready IS NULL AND schedule = ?"
_FIRST = "AND held = 0 ORDER BY due, nominal, id LIMIT 1"
LATE_FIRE_BEFORE = """
    schedule = ? AND ended IS NULL AND origin = 'trigger' AND nominal + 0 < ?
    AND (
        caught_up >= ? OR (caught_up IS NULL AND (attempt > 0 OR losses > 0) AND started >= ?)
        OR (caught_up IS NULL AND attempt = 0 AND losses = 0 AND waiting_for IS NULL AND due <= ?)
    )
    ORDER BY nominal + 0 LIMIT 1
"""
"""The sums keep the query on the index of live rows, away from that of all rows of a schedule."""
_WAITING = """
    phase = 'pending' AND waiting_for = 'dependency_pending' AND schedule = ? AND (ready IS NULL OR ready > ?)
"""
AWAITING = f"""{_WAITING} AND (awaits_after IS NULL OR (
    CAST(? AS integer) = 1 AND nominal >= ? AND awaits_after < ?
)) ORDER BY nominal, id"""
PROJECTIONS = """
    SELECT occurrences.* FROM occurrences
    WHERE schedule IN EACH(bigint) AND ended IS NULL AND origin = 'trigger' ORDER BY nominal, occurrences.key
"""
_BEYOND = "schedule = ? AND origin = 'trigger' AND phase <> 'superseded' AND coalesce(missed_last, nominal) > ?"
_NAMED = """
    SELECT tenant, schedule_id, schedules.key FROM ROWS(text, text) AS j CROSS JOIN schedules
    ON tenant = j.c0 AND schedule_id = j.c1 AND is_listed = 1
"""
_FULL_AT = "SELECT full_at FROM rate_buckets WHERE name = ?"
"""A bucket that is full is like one that is not stored."""
_FORGET_BUCKETS = "DELETE FROM rate_buckets WHERE full_at < ?"
_BUCKETS_STORED_FOR: Micros = HOUR
_TENANTS = "SELECT key, tenant FROM schedules WHERE key IN EACH(bigint)"
COUNT_OF_OWNER = """
    SELECT count(*) FROM schedules CROSS JOIN schedule_states ON schedule = schedules.key
    WHERE tenant = ? AND is_listed = 1 AND schedule_id < '~' AND phase IN ('active', 'paused') AND {more}
"""
COUNT_CHILDREN = """
    SELECT count(*) FROM schedules CROSS JOIN schedule_states ON schedule = schedules.key
    WHERE tenant = ? AND is_listed = 1 AND parent = ? AND phase IN ('active', 'paused')
"""
CLONE = """
    SELECT schedule_id FROM schedules CROSS JOIN schedule_states ON schedule = schedules.key
    WHERE tenant = ? AND username = ? AND is_listed = 1 AND fingerprint = ? AND schedule_id <> ?
        AND phase IN ('active', 'paused')
    ORDER BY created, schedule_id LIMIT 1
"""
COUNT_WAITING = """
    SELECT count(*) FROM schedules CROSS JOIN schedule_states AS s ON s.schedule = schedules.key
        CROSS JOIN occurrences AS one ON one.schedule = schedules.key
    WHERE tenant = ? AND is_listed = 1 AND schedule_id < '~' AND {more} AND s.live > 0 AND one.ended IS NULL
        AND one.phase IN ('pending', 'claimed') AND (one.due <= ? OR (one.origin <> 'trigger' AND one.attempt = 0))
        AND coalesce(one.reason, '') <> 'suspended'
"""
"""As `Row.waits` has it."""
_OF_BUNDLES = """
    SELECT id, own FROM occurrences CROSS JOIN schedules ON schedules.key = schedule
    WHERE ended IS NULL AND own IS NOT NULL AND tenant = ?
    AND (occurrences.route = 'bundle' OR occurrences.route >= 'bundle:' AND occurrences.route < 'bundle;')
"""
# Without an order: SQLite reads the index of leased rows then, and not the whole table.
LEASED_BY = "SELECT key FROM occurrences WHERE lease_end IS NOT NULL AND node = ? /* quick: occurrences */"
BEGUN = """
    SELECT occurrences.* FROM schedules CROSS JOIN occurrences ON occurrences.schedule = schedules.key
    WHERE tenant = ? AND ended IS NULL
    AND (phase IN ('dispatching', 'awaiting_completion') OR (phase IN ('pending', 'claimed') AND reason = 'suspended'))
    ORDER BY occurrences.key
"""
_HOLDS_SLOT = ROW_COLUMNS.index("holds_slot")


class UnitOfWork(rules.UnitOfWork):
    """What a transaction has read and changed; `now` is the store's clock."""

    def __init__(self, session: Session, schedule_cache: ScheduleCache) -> None:
        super().__init__(session.now)
        self.session = session
        self.schedule_cache = schedule_cache
        # Not a method: with one that refers to itself, every transaction would be left to the garbage collector.
        self.report = schedule_cache.damage.report
        """Notes a damaged row."""
        self.damaged_streams: list[object] = []
        """The tenants of event streams that are damaged."""
        self._halts: dict[str, list[Halt]] = {}
        self._processes: dict[str | None, NodeProcess] = {}
        self._rows: dict[int, Row] = {}
        self._by_id: dict[str, Row] = {}
        self._states: dict[int, ScheduleState] = {}
        self._keys: dict[int, ConcurrencyKey] = {}
        self._changed_rows: dict[int, Row] = {}
        self._changed_states: dict[int, ScheduleState] = {}
        self._changed_keys: dict[int, ConcurrencyKey] = {}
        self._removed: list[int] = []
        self._runs: list[tuple[Any, ...]] = []
        self._schedules: list[tuple[Any, ...]] = []
        self._new_schedules: list[tuple[Any, ...]] = []
        self._notes: list[tuple[str, AuditEntry]] = []
        self._numbers: dict[str, deque[int]] = {}
        self._reserved: dict[str, int] = {}

    # Few transactions need these.

    @cached_property
    def workflows(self) -> workflows.WorkflowRecords:
        return workflows.WorkflowRecords(self.session, self.report)

    @cached_property
    def sessions(self) -> sessions.SessionRecords:
        return sessions.SessionRecords(self.session)

    @cached_property
    def budgets(self) -> budgets.BudgetRecords:
        return budgets.BudgetRecords(self.session, self.report)

    @cached_property
    def proposals(self) -> proposals.ProposalRecords:
        return proposals.ProposalRecords(self.session)

    def pack(self, value: object) -> str | None:
        return to_json(value)

    def unpack(self, stored: Any, column: str) -> object:
        return from_json(stored, column)

    # Rows

    def load_rows(self, ids: Iterable[str]) -> None:
        unknown = [one for one in dict.fromkeys(ids) if one not in self._by_id]
        if unknown:
            self._take_rows(self.session.records("occurrences", ROW_COLUMNS, "id", unknown))

    def rows_of(self, keys: Sequence[int]) -> list[Row]:
        """The rows of keys, in their order; missing ones are left out."""
        unknown = [key for key in keys if key not in self._rows]
        if unknown:
            self._take_rows(self.session.records("occurrences", ROW_COLUMNS, "key", unknown))
        return [self._rows[key] for key in keys if key in self._rows]

    def row_of_key(self, key: int) -> Row | None:
        return next(iter(self.rows_of([key])), None)

    def row(self, occurrence_id: str) -> Row | None:
        if occurrence_id not in self._by_id:
            self.load_rows([occurrence_id])
        return self._by_id.get(occurrence_id)

    def loaded_row(self, occurrence_id: str) -> Row | None:
        return self._by_id.get(occurrence_id)

    def find(self, condition: str, *parameters: object) -> list[Row]:
        """The rows that a condition and an order pick, after everything was written."""
        return self.rows_in(f"SELECT * FROM occurrences WHERE {condition}", *parameters)

    def rows_in(self, query: str, *parameters: object) -> list[Row]:
        """The rows that a query of whole rows picks, in its order, after everything was written."""
        self.write()
        rows = self.session.records_in("occurrences", ROW_COLUMNS, query, *parameters)
        self._take_rows([columns for columns in rows if columns[0] not in self._rows])
        return [self._rows[columns[0]] for columns in rows if columns[0] in self._rows]

    def live_rows(self, state: ScheduleState) -> list[Row]:
        return self.find("schedule = ? AND ended IS NULL ORDER BY key", state.schedule)

    def halts(self, tenant: str) -> list[Halt]:
        if tenant not in self._halts:
            self._halts[tenant] = halts.read(self.session, self.report, tenant)
        return self._halts[tenant]

    def add_halt(self, halt: Halt) -> None:
        self._halts.pop(halt.tenant, None)
        halts.add(self.session, halt)

    def delete_halt(self, tenant: str, halt_id: str) -> Halt | None:
        deleted = next((halt for halt in self.halts(tenant) if halt.halt_id == halt_id), None)
        if deleted is not None:
            self._halts.pop(tenant)
            halts.delete(self.session, deleted)
        return deleted

    def begun_rows(self, tenant: str) -> list[Row]:
        return self.rows_in(BEGUN, tenant)

    def slot_queue(self, state: ScheduleState) -> list[Row]:
        return self.find(f"{_IN_SLOT_LINE} ORDER BY due, nominal, id", state.schedule)

    def first_for_slot(self, state: ScheduleState) -> Row | None:
        return next(iter(self.find(f"{_IN_SLOT_LINE} {_FIRST}", state.schedule)), None)

    def late_fire_before(self, row: Row) -> Row | None:
        since, late = row.gap_since, self.now() - PUNCTUAL
        return next(iter(self.find(LATE_FIRE_BEFORE, row.schedule, row.nominal, since, since, late)), None)

    def first_for_key(self, key: ConcurrencyKey) -> Row | None:
        return next(iter(self.find(f"wanted = ? {_FIRST}", key.key)), None)

    def rows_awaiting_upstreams(self, state: ScheduleState, ended: Row | None = None) -> list[Row]:
        if ended is None:
            return self.find(f"{_WAITING} ORDER BY nominal, id", state.schedule, self.now())
        is_fire = int(ended.origin == TRIGGER)
        return self.find(AWAITING, state.schedule, self.now(), is_fire, ended.nominal, ended.last_nominal)

    def projections(self, states: Sequence[ScheduleState]) -> list[Row]:
        return self.rows_in(PROJECTIONS, [state.schedule for state in states])

    def rows_beyond(self, state: ScheduleState, after: Micros) -> list[Row]:
        return self.find(_BEYOND, state.schedule, after)

    def newest_fires(self, questions: Sequence[FireQuestion]) -> dict[int, tuple[Micros, Phase]]:
        return dependencies.newest_fires(self.session, questions)

    def reserve(self, ids: Collection[str]) -> None:
        """Number rows that are to be added in the order of their ids.

        Rows that are due together are claimed in that order, so those of one batch are stored side by side, and writing
        them touches a tenth of the pages.
        """
        ordered = sorted(ids)
        if ordered:
            self._reserved.update(zip(ordered, self.session.numbers("occurrences", len(ordered)), strict=True))

    def key_for(self, occurrence_id: str) -> int:
        key = self._reserved.pop(occurrence_id, None)
        return self._next_key("occurrences") if key is None else key

    def add_row(self, row: Row) -> None:
        self._rows[row.key] = self._by_id[row.id] = self._changed_rows[row.key] = row

    def changed(self, row: Row) -> None:
        if row.key in self._rows:
            self._changed_rows[row.key] = row

    def remove_row(self, row: Row) -> None:
        del self._rows[row.key], self._by_id[row.id]
        self._changed_rows.pop(row.key, None)
        if row.stored is not None:
            self._removed.append(row.key)
        if row.waiting_for == Reason.APPROVAL:
            self.workflows.withdraw(row)

    def add_run(self, row: Row, run: Run) -> None:
        self._runs.append(run_values(row.key, row.schedule, run, to_json(run.result)))

    # Schedules

    def load_states(self, uids: Iterable[str]) -> dict[str, ScheduleState]:
        self._take_states(self.session.records("schedule_states", STATE_COLUMNS, "uid", list(uids)))
        return {state.uid: state for state in self._states.values()}

    def states_in(self, query: str, *parameters: object) -> list[ScheduleState]:
        """The states that a query of whole rows picks, in its order."""
        states = self.session.records_in("schedule_states", STATE_COLUMNS, query, *parameters)
        self._take_states(states)
        return [self._states[columns[0]] for columns in states]

    def states_of(self, keys: Iterable[int]) -> list[ScheduleState]:
        numbers = list(keys)
        unknown = [key for key in dict.fromkeys(numbers) if key not in self._states]
        if unknown:
            self._take_states(self.session.records("schedule_states", STATE_COLUMNS, "schedule", unknown))
        return [self._states[key] for key in numbers if key in self._states]

    def state_of(self, row: Row) -> ScheduleState:
        return self._states[row.schedule]

    def changed_state(self, state: ScheduleState) -> None:
        self._changed_states[state.schedule] = state

    def schedules_of(self, states: Iterable[ScheduleState]) -> dict[int, Schedule | Unreadable]:
        return self.schedule_cache.read(self.session, {state.schedule: state.version for state in states})

    def states_named(self, identities: Collection[Identity]) -> dict[Identity, ScheduleState]:
        if not identities:
            return {}
        rows = self.session.query(_NAMED, list(identities))
        states = {state.schedule: state for state in self.states_of([key for _, _, key in rows])}
        return {(tenant, schedule_id): states[key] for tenant, schedule_id, key in rows if key in states}

    def known_ids(self, identities: Collection[Identity]) -> tuple[set[Identity], set[Identity]]:
        return dependencies.known_ids(self.session, identities)

    def count_schedules(self, tenant: str, user: str | None, route: str | None) -> int:
        self.write()
        conditions = {"username = ?": user, "schedules.route = ?": route}
        given = {condition: value for condition, value in conditions.items() if value is not None}
        query = COUNT_OF_OWNER.format(more=" AND ".join(given) or "1 = 1")
        return int(self.session.query(query, tenant, *given.values())[0][0])

    def count_children(self, tenant: str, uid: str) -> int:
        self.write()
        return int(self.session.query(COUNT_CHILDREN, tenant, uid)[0][0])

    def find_clone(self, tenant: str, user: str, fingerprint: str, *, besides: str) -> str | None:
        self.write()
        rows = self.session.query(CLONE, tenant, user, fingerprint, besides)
        return str(rows[0][0]) if rows else None

    def find_bundle(self, tenant: str, bundle_id: str | None, digest: str | None) -> Bundle | None:
        return bundles.find(self.session, tenant, bundle_id, digest)

    def overrides_of_bundles(self, tenant: str) -> list[tuple[str, Any]]:
        return [(one, own) for one, own in self.session.query(_OF_BUNDLES, tenant)]

    def count_waiting(self, tenant: str, user: str | None) -> int:
        self.write()
        query = COUNT_WAITING.format(more="1 = 1" if user is None else "username = ?")
        values = [tenant] if user is None else [tenant, user]
        return int(self.session.query(query, *values, self.now())[0][0])

    def take_tokens(self, name: str, limit: RateLimit, wanted: int) -> Taken:
        rows, now = self.session.query(_FULL_AT, name), self.session.now()
        full_at = rows[0][0] if rows and isinstance(rows[0][0], int) else None  # a damaged bucket counts as full
        taken = limit.take(full_at, wanted, now=now)
        if taken.granted:
            self.session.put("rate_buckets", ("name", "full_at"), [(name, taken.full_at)])
            self.session.execute(_FORGET_BUCKETS, now - _BUCKETS_STORED_FOR)
        return taken

    def next_schedule_key(self, count: int) -> int:
        return self._next_key("schedules", count)

    def add_schedule(self, state: ScheduleState, schedule: Schedule) -> None:
        self._states[state.schedule] = self._changed_states[state.schedule] = state
        self.add_document(state, schedule)

    def add_document(self, state: ScheduleState, schedule: Schedule) -> None:
        """Store a new schedule whose state is written by the caller."""
        self._new_schedules.append(schedule_documents.to_columns(state.schedule, schedule))
        self.schedule_cache.keep({state.schedule: (state.version, schedule)})

    def replace_schedule(self, state: ScheduleState, schedule: Schedule) -> None:
        self._schedules.append(schedule_documents.to_columns(state.schedule, schedule))
        self.schedule_cache.keep({state.schedule: (state.version, schedule)})

    def tenants_of(self, keys: Iterable[int]) -> Mapping[int, str]:
        unknown = [key for key in keys if key not in self.tenants]
        if unknown:
            rows = self.session.query(_TENANTS, unknown)
            self.tenants.update((key, tenant) for key, tenant in rows if isinstance(tenant, str))
        return self.tenants

    def last_heartbeats(self, routes: Collection[str]) -> tuple[Micros | None, Mapping[str, Micros]]:
        # A heartbeat from the future is damaged, or of a clock that was wrong: it says nothing about now.
        return nodes.last_heartbeats(self.session, routes, self.now() + NODE_LISTED)

    def add_audit_entry(self, tenant: str, entry: AuditEntry) -> None:
        self._notes.append((tenant, entry))

    # Concurrency keys

    def concurrency_key(self, tenant: str, name: str) -> ConcurrencyKey:
        for loaded in self._keys.values():
            if (loaded.tenant, loaded.name) == (tenant, name):
                return loaded
        rows = self.session.records_in("concurrency_keys", KEY_COLUMNS, _KEY_OF_NAME, tenant, name)
        if rows:
            return self._take_key(rows[0])
        number = self._next_key("concurrency_keys")
        key = self._keys[number] = ConcurrencyKey(number, tenant, name, 0, 0)
        self.changed_key(key)
        return key

    def concurrency_key_of(self, key: int) -> ConcurrencyKey | None:
        if key not in self._keys:
            rows = self.session.records("concurrency_keys", KEY_COLUMNS, "key", [key])
            return self._take_key(rows[0]) if rows else None
        return self._keys[key]

    def changed_key(self, key: ConcurrencyKey) -> None:
        self._changed_keys[key.key] = key

    # Dependencies

    def downstream(self, state: ScheduleState) -> list[tuple[ScheduleState, bool]]:
        self.write()
        follows = dependencies.downstream(self.session, state.schedule)
        return [(other, follows[other.schedule]) for other in self.states_of(follows)]

    def set_upstreams(self, state: ScheduleState, tenant: str, upstreams: Sequence[str]) -> None:
        self.write()
        dependencies.replace(self.session, state.schedule, tenant, upstreams)

    def graph_version(self, tenant: str) -> int:
        return dependencies.version(self.session, tenant)

    def raise_graph_version(self, tenant: str) -> None:
        dependencies.raise_version(self.session, tenant)

    # Events

    def subscribed(self, topics: Collection[Topic]) -> set[Topic]:
        return subscriptions.subscribed(self.session, topics)

    def subscribed_tenants(self, event_type: str) -> list[str]:
        return subscriptions.tenants(self.session, event_type)

    def add_subscriptions(self, added: Sequence[tuple[ScheduleState, str, Subscription]]) -> None:
        subscriptions.add(self.session, [(state.schedule, tenant, one) for state, tenant, one in added])

    def replace_subscriptions(self, state: ScheduleState, tenant: str, subscribed: Sequence[Subscription]) -> None:
        self.write()  # now: a trigger of the database deletes discriminators when the schedule is written
        self.session.delete("event_listeners", "schedule", [state.schedule])
        subscriptions.add(self.session, [(state.schedule, tenant, one) for one in subscribed])

    def listener_fields(self, tenant: str, types: Collection[str]) -> dict[str, list[str]]:
        return subscriptions.fields_of(self.session, tenant, types)

    def listeners(self, tenant: str, questions: Sequence[ListenerQuestion], limit: int) -> list[list[int]]:
        return subscriptions.listeners(self.session, tenant, questions, limit)

    def known_event_ids(self, tenant: str, event_ids: Collection[str | None]) -> set[str | None]:
        return events.known_ids(self.session, tenant, event_ids)

    def newest_moment(self, tenant: str) -> Micros:
        return events.newest_moment(self.session, tenant)

    def events_after(self, tenant: str, after: Micros) -> list[Micros]:
        return events.moments_after(self.session, tenant, after)

    def last_event_until(self, tenant: str, until: Micros) -> Micros | None:
        return events.last_until(self.session, tenant, until)

    def move_events(self, tenant: str, moments: Mapping[Micros, Micros], newest: Micros, matched_until: Micros) -> None:
        events.move(self.session, tenant, moments, newest, matched_until)

    def add_events(self, tenant: str, added: Sequence[Event]) -> None:
        events.add(self.session, tenant, added)

    def pending_streams(self, limit: int) -> list[EventStream]:
        streams, self.damaged_streams = events.pending_streams(self.session, limit)
        return streams

    def unmatched_events(self, stream: EventStream, limit: int) -> list[ReadEvent]:
        unmatched = events.waiting(self.session, stream, limit)
        if not unmatched:
            self.damaged_streams.append(stream.tenant)
        return unmatched

    def load_streams(self, tenants: Sequence[str]) -> dict[str, EventStream]:
        return events.load_streams(self.session, tenants)

    def changed_streams(self, streams: Iterable[EventStream]) -> None:
        events.write_streams(self.session, streams)

    def process_of(self, node: str | None) -> NodeProcess:
        if node not in self._processes:
            self._processes[node] = nodes.process_of(self.session, node)
        return self._processes[node]

    def mark_process_gone(self, node: str) -> None:
        self._processes.pop(node, None)
        nodes.mark_gone(self.session, node, now=self.now())

    def rows_leased_by(self, node: str) -> list[Row]:
        self.write()
        return self.rows_of([key for (key,) in self.session.query(LEASED_BY, node)])

    def mark_node_lost(self, node: str, seen: Micros) -> bool:
        return nodes.miss(self.session, node, seen)

    # Writing

    def _next_key(self, table: str, of: int = 1) -> int:
        """A number that no row of a table has, the first of so many that will be asked for."""
        numbers = self._numbers.setdefault(table, deque())
        if not numbers:
            numbers.extend(self.session.numbers(table, of))
        return numbers.popleft()

    def write(self) -> None:
        """Write everything that has changed; removals first, since an added row may have the same id."""
        if self._removed:
            self.session.delete("runs", "occurrence", self._removed)
            self.session.delete("occurrences", "key", self._removed)
            self._removed.clear()
        if self._new_schedules:
            self.session.insert("schedules", schedule_documents.COLUMNS, self._new_schedules)
            self._new_schedules.clear()
        for columns in self._schedules:
            self.session.update("schedules", schedule_documents.COLUMNS, [columns])
        self._schedules.clear()
        self._write(self._changed_keys, "concurrency_keys", KEY_COLUMNS, key_values)
        self._write(self._changed_states, "schedule_states", STATE_COLUMNS, state_values)
        self._write(self._changed_rows, "occurrences", ROW_COLUMNS, row_values)
        if self._runs:
            put_runs(self.session, self._runs)
            self._runs.clear()
        if self._notes:
            numbers = self.session.numbers("notes", len(self._notes))
            noted = [note_values(number, *one) for number, one in zip(numbers, self._notes, strict=True)]
            self.session.insert("notes", NOTE_COLUMNS, noted)
            self._notes.clear()
        for records in ("workflows", "budgets"):
            if records in self.__dict__:
                getattr(self, records).write()

    def _write(
        self,
        changed: dict[int, R],
        table: str,
        names: tuple[str, ...],
        values_of: Callable[[R], tuple[Any, ...]],
    ) -> None:
        """Write records: of those the database has, only the columns that differ, all alike ones in one statement."""
        if not changed:
            return
        added: list[tuple[Any, ...]] = []
        updated: dict[tuple[int, ...], list[tuple[Any, ...]]] = {}
        for record in changed.values():
            values, stored = values_of(record), record.stored
            record.stored = values
            if stored is None:
                added.append(values)
            elif values != stored:
                updated.setdefault(_differing(stored, values), []).append(values)
        changed.clear()
        for places, rows in sorted(updated.items(), key=lambda group: _takes_slot(table, *group)):
            picked = [tuple([values[place] for place in places]) for values in rows]
            self.session.update(table, tuple([names[place] for place in places]), picked)
        if added:
            self.session.insert(table, names, added)

    def _take_rows(self, records: list[tuple[Any, ...]]) -> None:
        """Take rows that were read; a damaged one is mended as far as needed, one without a schedule is left out."""
        self.states_of([columns[2] for columns in records])
        for columns in records:
            if columns[2] not in self._states:
                self.report("occurrences", columns[0], {"schedule": "is that of no schedule"})
                continue
            row = Row(*columns)
            row.stored = columns
            if problems := ROWS.problems(columns, narrow=self.session.is_narrow):
                row_checks.repair_row(row, problems, self.now())
                self.report("occurrences", row.key, problems)
            self._rows[row.key] = self._by_id[row.id] = row

    def _take_key(self, columns: tuple[Any, ...]) -> ConcurrencyKey:
        self._keys[columns[0]] = key = ConcurrencyKey(*columns)
        key.stored = columns
        if problems := KEYS.problems(columns, narrow=self.session.is_narrow):
            row_checks.repair_key(self.session, key)
            self.report("concurrency_keys", key.key, problems)
        return key

    def _take_states(self, records: list[tuple[Any, ...]]) -> None:
        for columns in records:
            if columns[0] not in self._states:
                self._states[columns[0]] = state = ScheduleState(*columns)
                state.stored = columns
                if problems := STATES.problems(columns, narrow=self.session.is_narrow):
                    count = partial(row_checks.count_rows, self.session)
                    row_checks.repair_state(state, problems, now=self.now(), count=count)
                    self.report("schedule_states", state.schedule, problems)


def _differing(stored: tuple[Any, ...], values: tuple[Any, ...]) -> tuple[int, ...]:
    """Which columns to write: the key, and those that are different."""
    return (0, *[place for place, was in enumerate(stored) if was != values[place]])


def _takes_slot(table: str, places: tuple[int, ...], rows: list[tuple[Any, ...]]) -> bool:
    """A slot has one holder at any time, so the row that gives it up is written before the one that takes it."""
    return table == "occurrences" and _HOLDS_SLOT in places and any(values[_HOLDS_SLOT] for values in rows)
