"""Rows, schedules and concurrency keys in a transaction: read in bulk, changed in Python, and written by one commit.

A finder puts what was changed before into the transaction, which shows it where its indexes would have it. Nothing is
sent until the transaction is committed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from noonmark.core.ids import TRIGGER, owner_number
from noonmark.core.run import CUT_OFF
from noonmark.stores.redis.schema.schedules import (
    CONCURRENCY_KEYS,
    OCCURRENCES,
    PLANNED,
    RUNS,
    SCHEDULES,
    STATES,
    hidden_as,
)
from noonmark.stores.rules import unit_of_work as rules
from noonmark.stores.rules.records import ConcurrencyKey, Row, ScheduleState, Unreadable, to_occurrence
from noonmark.stores.sql import row_checks, schedule_documents
from noonmark.stores.sql.records import (
    ROW_COLUMNS,
    RUN_COLUMNS,
    STATE_COLUMNS,
    from_json,
    key_values,
    row_values,
    run_values,
    state_values,
    to_json,
)
from noonmark.stores.sql.row_checks import KEYS, ROWS, RowCounts, describe_problems
from noonmark.stores.sql.row_checks import STATES as STATE_CHECK

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Run
    from noonmark.core.schedule import Schedule
    from noonmark.stores.redis.transactions.client import Question
    from noonmark.stores.redis.transactions.table import Values
    from noonmark.stores.redis.transactions.transaction import Records, Transaction
    from noonmark.stores.rules.unit_of_work import (
        Identity,
    )
    from noonmark.stores.sql.schedule_documents import ScheduleCache

_OUTCOME, _RESULT, _ENDED = (RUN_COLUMNS.index(name) for name in ("outcome", "result", "ended"))
_CREATED, _SCHEDULE_ID = (schedule_documents.COLUMNS.index(name) for name in ("created", "schedule_id"))
_KNOWN_ROWS = 10_000
_STATE_SIZE, _ROW_SIZE = len(STATE_COLUMNS), len(ROW_COLUMNS)
_NODE = ROW_COLUMNS.index("node")


class RowKeys:
    """Where rows that this process has seen lately are: their keys, and those of their schedules.

    A row that is read by such a key is known by its id; if that is another one, or there is none, it is looked up.
    """

    def __init__(self) -> None:
        """None was seen yet."""
        self._known: dict[str, tuple[int, int]] = {}

    def keep(self, rows: Iterable[Row]) -> None:
        """Remember rows, and forget the oldest if there are many. Another thread may do the same."""
        self._known.update((row.id, (row.key, row.schedule)) for row in rows)
        if len(self._known) > 2 * _KNOWN_ROWS:
            self._known = dict(list(self._known.items())[_KNOWN_ROWS:])

    def find(self, ids: Iterable[str]) -> dict[str, tuple[int, int]]:
        """The cached schedules of these ids."""
        known = self._known
        return {one: known[one] for one in ids if one in known}


class ScheduleRecords(rules.UnitOfWork):
    """What a transaction has read and changed; `now` is the store's clock."""

    def __init__(self, transaction: Transaction, schedule_cache: ScheduleCache, row_keys: RowKeys) -> None:
        super().__init__(transaction.now)
        self.transaction = transaction
        self.schedule_cache, self.row_keys = schedule_cache, row_keys
        self.trusts_states = False
        """States of schedules are hints: what is written does not depend on them."""
        self.rows = transaction.records(OCCURRENCES)
        self.states = transaction.records(STATES)
        self.keys = transaction.records(CONCURRENCY_KEYS)
        self.schedules = transaction.records(SCHEDULES)
        self.runs = transaction.records(RUNS)
        self._rows: dict[int, Row] = {}
        self._by_id: dict[str, Row] = {}
        self._states: dict[int, ScheduleState] = {}
        self._owners: dict[int, tuple[str, str, str, int]] = {}
        """The further columns of the state of a schedule: tenant, user, route, and whether it is hidden."""
        self._keys: dict[int, ConcurrencyKey] = {}
        self._changed_rows: dict[int, Row] = {}
        self._changed_states: dict[int, ScheduleState] = {}
        self._changed_keys: dict[int, ConcurrencyKey] = {}
        self._fresh: dict[int, tuple[int, Schedule]] = {}
        """Schedules that were read or changed, with their versions; cached once the transaction is committed."""
        self._runs: dict[Values, Values] = {}
        self._missing: set[str] = set()
        """The ids that no row has."""
        self._numbers: dict[str, deque[int]] = {}
        self._reserved: dict[str, int] = {}

    def pack(self, value: object) -> str | None:
        return to_json(value)

    def unpack(self, stored: Any, column: str) -> object:
        return from_json(stored, column)

    # Rows

    def load_rows(self, ids: Iterable[str]) -> None:
        self.stage()
        unknown = [one for one in dict.fromkeys(ids) if one not in self._by_id and one not in self._missing]
        if unknown:
            places = self.row_keys.find(unknown)
            self.read_places(places)
            rows = self.rows.get_many((key,) for key, _ in places.values())
            self._take_rows([values for values in rows.values() if values[0] == places.get(values[1], (0,))[0]])
            unknown = [one for one in unknown if one not in self._by_id]
        if unknown:
            looked_up = self.rows.look_up_many("by_id", [(one,) for one in unknown])
            self._take_rows(list(looked_up.values()))
            self._missing.update(one for one in unknown if one not in self._by_id)

    def read_places(
        self,
        places: Mapping[str, tuple[int, int]],
        more: Sequence[tuple[Records, Iterable[Values]]] = (),
        questions: Iterable[Question] = (),
    ) -> None:
        """Read rows and the states of their schedules, and whatever else is needed, in one round trip."""
        states = self.states.unread((schedule,) for _, schedule in places.values())
        rows = [(key,) for key, _ in places.values()]
        self.transaction.read_all([(self.rows, rows), (self.states, states), *more], questions)
        if self.trusts_states:
            self.states.unchecked.update(states)

    def rows_of(self, keys: Iterable[int]) -> list[Row]:
        """The rows of keys, in their order; missing ones are left out."""
        wanted = list(keys)
        unknown = [key for key in wanted if key not in self._rows]
        if unknown:
            self._take_rows(list(self.rows.get_many((key,) for key in unknown).values()))
        return [self._rows[key] for key in wanted if key in self._rows]

    def row_of_key(self, key: int) -> Row | None:
        return next(iter(self.rows_of([key])), None)

    def row(self, occurrence_id: str) -> Row | None:
        if occurrence_id not in self._by_id:
            self.load_rows([occurrence_id])
        return self._by_id.get(occurrence_id)

    def loaded_row(self, occurrence_id: str) -> Row | None:
        return self._by_id.get(occurrence_id)

    def find_rows(self, index: str, *partition: str | int, **which: Any) -> list[Row]:
        """The rows of a range of an index, in its order."""
        self.stage()
        return self.rows_of(key for (key,) in self.rows.find_keys(index, partition, **which))

    def live_rows(self, state: ScheduleState) -> list[Row]:
        return self.find_rows("live", state.schedule)

    def slot_queue(self, state: ScheduleState) -> list[Row]:
        return sorted(self.find_rows("queued", state.schedule), key=lambda row: row.turn)

    def first_for_slot(self, state: ScheduleState) -> Row | None:
        return next(iter(self.find_rows("queued", state.schedule, prefix=(0,), limit=1)), None)

    def late_fire_before(self, row: Row) -> Row | None:
        since, now = row.gap_since, self.now()
        before = (
            fire
            for fire in self.find_rows("live", row.schedule)
            if fire.nominal < row.nominal and fire.origin == TRIGGER and fire.is_in_gap(since, now)
        )
        return min(before, key=lambda fire: fire.nominal, default=None)

    def first_for_key(self, key: ConcurrencyKey) -> Row | None:
        return next(iter(self.find_rows("wanting", key.key, prefix=(0,), limit=1)), None)

    def projections(self, states: Sequence[ScheduleState]) -> list[Row]:
        self.stage()
        keys_by_state = self.rows.find_each("live", [(state.schedule,) for state in states])
        rows = self.rows_of(key for keys in keys_by_state for (key,) in keys)
        return sorted((row for row in rows if row.origin == TRIGGER), key=lambda row: (row.nominal, row.key))

    def begun_rows(self, tenant: str) -> list[Row]:
        return self.find_rows("begun", tenant)

    def live_routes(self) -> list[str]:
        """The routes that have anything that has not ended."""
        [found] = self.rows.distinct("routes", [()], 1)
        return [str(entry[0]) for entry in found]

    def rows_leased_by(self, node: str) -> list[Row]:
        self.stage()
        # A look at all that is leased; only the rows of the node are read for good.
        keys_by_route = self.rows.find_each("leased", [(route,) for route in self.live_routes()], hint=True)
        keys = [key for of_route in keys_by_route for key in of_route]
        self.rows.read(keys, hint=True)
        leased = self.rows.get_many(keys).values()
        return self.rows_of([values[0] for values in leased if values[_NODE] == node])

    def reserve(self, ids: Collection[str]) -> None:
        ordered = sorted(ids)
        if ordered:
            self._reserved.update(zip(ordered, self.transaction.numbers("occurrences", len(ordered)), strict=True))

    def key_for(self, occurrence_id: str) -> int:
        key = self._reserved.pop(occurrence_id, None)
        return self._next_number("occurrences") if key is None else key

    def add_row(self, row: Row) -> None:
        self._rows[row.key] = self._by_id[row.id] = self._changed_rows[row.key] = row

    def changed(self, row: Row) -> None:
        if row.key in self._rows:
            self._changed_rows[row.key] = row

    def add_run(self, row: Row, run: Run) -> None:
        values = (*run_values(row.key, row.schedule, run, to_json(run.result)), row.id, None)
        self._runs[values[:2]] = values

    def occurrences_of(self, rows: Sequence[Row]) -> list[Occurrence]:
        """Rows as callers read them; a damaged payload is left out."""
        ids = self.schedule_ids({row.schedule for row in rows})
        occurrences = []
        for row in rows:
            try:
                payload = shown(row.payload)
                occurrence = to_occurrence(row, self.state_of(row).uid, ids.get(row.schedule, ""), payload, from_json)
            except Unreadable as error:
                self.report("occurrences", row.key, {"its record": str(error)})
            else:
                occurrences.append(occurrence)
        return occurrences

    def schedule_ids(self, keys: Iterable[int]) -> dict[int, str]:
        """The ids of schedules, by key."""
        wanted = [(key,) for key in keys]
        self.schedules.read(wanted, hint=True)  # an id never changes
        return {key: str(values[_SCHEDULE_ID]) for (key,), values in self.schedules.get_many(wanted).items()}

    # Schedules

    def load_states(self, uids: Iterable[str]) -> dict[str, ScheduleState]:
        self.stage()
        loaded = {state.uid for state in self._states.values()}
        unknown = [(uid,) for uid in dict.fromkeys(uids) if uid not in loaded]
        if unknown:
            self._take_states(list(self.states.look_up_many("by_uid", unknown).values()))
        return {state.uid: state for state in self._states.values()}

    def states_of(self, keys: Iterable[int]) -> list[ScheduleState]:
        numbers = list(keys)
        unknown = [(key,) for key in dict.fromkeys(numbers) if key not in self._states]
        if unknown:
            self.states.read(unknown, hint=self.trusts_states)
            self._take_states(list(self.states.get_many(unknown).values()))
        return [self._states[key] for key in numbers if key in self._states]

    def state_of(self, row: Row) -> ScheduleState:
        return self._states[row.schedule]

    def changed_state(self, state: ScheduleState) -> None:
        self._changed_states[state.schedule] = state

    def schedules_of(self, states: Iterable[ScheduleState]) -> dict[int, Schedule | Unreadable]:
        schedules: dict[int, Schedule | Unreadable] = {}
        missing: list[ScheduleState] = []
        for state in states:
            fresh = self._fresh.get(state.schedule)
            schedule = fresh[1] if fresh is not None and fresh[0] == state.version else None
            schedule = schedule or self.schedule_cache.find(state.schedule, state.version)
            # A server that has lost writes uses numbers and versions again.
            if schedule is None or (schedule.uid, schedule.updated) != (state.uid, state.updated):
                missing.append(state)
            else:
                schedules[state.schedule] = schedule
        records = self.schedules.get_many((state.schedule,) for state in missing) if missing else {}
        for state in missing:
            restored = self._restored(state, records.get((state.schedule,)))
            schedules[state.schedule] = restored
            if isinstance(restored, Unreadable):
                self.schedule_cache.damage.note("schedules", state.schedule, str(restored))
            else:
                self._fresh[state.schedule] = (state.version, restored)
        return schedules

    def _restored(self, state: ScheduleState, values: Values | None) -> Schedule | Unreadable:
        if values is None:
            return Unreadable("its record is missing")
        try:
            return schedule_documents.restored(
                (*values, state.uid, str(state.phase), state.revision, state.version, state.updated)
            )
        except Unreadable as error:
            return error

    def cache_schedules(self) -> None:
        """Remember the schedules that were read or changed: everything was consistent, and is committed."""
        if self._fresh:
            self.schedule_cache.keep(self._fresh)

    def states_named(self, identities: Collection[Identity]) -> dict[Identity, ScheduleState]:
        schedules = self.schedules.look_up_many("by_id", identities) if identities else {}
        states = {state.schedule: state for state in self.states_of(values[0] for values in schedules.values())}
        return {one: states[values[0]] for one, values in schedules.items() if values[0] in states}

    def count_schedules(self, tenant: str, user: str | None, route: str | None) -> int:
        self.stage()
        index = "by_route" if user is None else "by_phase"
        given = tuple(one for one in (user, route) if one is not None)
        return sum(self.states.count(index, (tenant,), prefix=(str(phase), *given)) for phase in PLANNED)

    def count_children(self, tenant: str, uid: str) -> int:
        keys = self.schedules.find_keys("by_parent", (tenant,), prefix=(uid,))
        return sum(state.phase in PLANNED for state in self.states_of(key for (key,) in keys))

    def find_clone(self, tenant: str, user: str, fingerprint: str, *, besides: str) -> str | None:
        clones = self.schedules.find("by_fingerprint", (tenant, user), prefix=(fingerprint,))
        clones = sorted(clones, key=lambda values: (values[_CREATED], values[_SCHEDULE_ID]))
        states = {state.schedule: state for state in self.states_of(values[0] for values in clones)}
        for values in clones:
            state = states.get(values[0])
            if values[_SCHEDULE_ID] != besides and state is not None and state.phase in PLANNED:
                return str(values[_SCHEDULE_ID])
        return None

    def next_schedule_key(self, count: int) -> int:
        return self._next_number("schedules", count)

    def add_schedule(self, state: ScheduleState, schedule: Schedule) -> None:
        self._states[state.schedule] = self._changed_states[state.schedule] = state
        self._owners[state.schedule] = _owner_columns(schedule)
        self.schedules.add(schedule_documents.to_columns(state.schedule, schedule))
        self._fresh[state.schedule] = (state.version, schedule)

    def replace_schedule(self, state: ScheduleState, schedule: Schedule) -> None:
        self._owners[state.schedule] = _owner_columns(schedule)
        self._changed_states[state.schedule] = state
        self.schedules.put(schedule_documents.to_columns(state.schedule, schedule))
        self._fresh[state.schedule] = (state.version, schedule)

    def tenants_of(self, keys: Iterable[int]) -> Mapping[int, str]:
        unknown = [key for key in keys if key not in self.tenants]
        if unknown:
            self.states_of(unknown)
            self.tenants.update((key, self._owners[key][0]) for key in unknown if key in self._owners)
        return self.tenants

    def overrides_of_bundles(self, tenant: str) -> list[tuple[str, Any]]:
        return [(row.id, row.own) for row in self.find_rows("bundles", tenant)]

    def count_waiting(self, tenant: str, user: str | None) -> int:
        self.stage()
        index, partition = ("unstarted", tenant) if user is None else ("unstarted_of_owner", owner_number(tenant, user))
        return self.rows.count(index, (partition,), until=(self.now(),))

    # Concurrency keys

    def concurrency_key(self, tenant: str, name: str) -> ConcurrencyKey:
        for loaded in self._keys.values():
            if (loaded.tenant, loaded.name) == (tenant, name):
                return loaded
        values = self.keys.look_up("by_name", tenant, name)
        if values is not None:
            return self._take_key(values)
        number = self._next_number("concurrency_keys")
        key = self._keys[number] = ConcurrencyKey(number, tenant, name, 0, 0)
        self.changed_key(key)
        return key

    def concurrency_key_of(self, key: int) -> ConcurrencyKey | None:
        if key not in self._keys:
            values = self.keys.get(key)
            return None if values is None else self._take_key(values)
        return self._keys[key]

    def places_taken(self, tenant: str, name: str) -> int:
        """How many rows hold a place under a concurrency key."""
        values = self.keys.look_up("by_name", tenant, name)
        return 0 if values is None else self._take_key(values).taken

    def changed_key(self, key: ConcurrencyKey) -> None:
        self._changed_keys[key.key] = key

    # Writing

    def _next_number(self, table: str, of: int = 1) -> int:
        """A number that no record of a table has, the first of so many that will be asked for."""
        numbers = self._numbers.setdefault(table, deque())
        if not numbers:
            numbers.extend(self.transaction.numbers(table, of))
        return numbers.popleft()

    def stage(self) -> None:
        """Put what has changed where finders see it. Reads and sends nothing."""
        if self._changed_keys:
            for key in self._changed_keys.values():
                _stage(self.keys, key, key_values(key))
            self._changed_keys.clear()
        if self._changed_states:
            for state in self._changed_states.values():
                _stage(self.states, state, (*state_values(state), *self._owners[state.schedule]))
            self._changed_states.clear()
        if self._changed_rows:
            for row in self._changed_rows.values():
                tenant, _, _, hidden = self._owners[row.schedule]
                _stage(self.rows, row, (*row_values(row), tenant, hidden))
            self._changed_rows.clear()

    def _write_runs(self) -> None:
        """Store runs, each in place of the same open run; an interrupted one without a result keeps its output."""
        stored_runs = self.runs.get_many(self._runs)
        for key, values in self._runs.items():
            before = stored_runs.get(key)
            is_silent = values[_RESULT] is None and values[_OUTCOME] in CUT_OFF
            keeps_output = before is not None and is_silent and before[_ENDED] is None
            result = before[_RESULT] if before is not None and keeps_output else values[_RESULT]
            self.runs.put((*values[:_RESULT], result, *values[_RESULT + 1 :]))
        self._runs.clear()

    def _take_rows(self, records: list[Values]) -> None:
        """Take rows that were read; a damaged one is mended as far as needed, one without a schedule is left out."""
        self.states_of([values[2] for values in records])
        for values in records:
            if values[2] not in self._states:
                self.report("occurrences", values[0], {"schedule": "is that of no schedule"})
                continue
            row = Row(*values[:_ROW_SIZE])
            row.stored = values
            if problems := ROWS.problems(values[:_ROW_SIZE]):
                row_checks.repair_row(row, problems, self.now())
                self.report("occurrences", row.key, problems)
            self._rows[row.key] = self._by_id[row.id] = row
        self.row_keys.keep(self._rows[values[0]] for values in records if values[0] in self._rows)

    def _take_key(self, values: Values) -> ConcurrencyKey:
        self._keys[values[0]] = key = ConcurrencyKey(*values)
        key.stored = values
        if problems := KEYS.problems(values):
            key.taken, key.waiting = self._count_places(key)
            self.report("concurrency_keys", key.key, problems)
        return key

    def _take_states(self, records: list[Values]) -> None:
        for values in records:
            if values[0] not in self._states:
                self._states[values[0]] = state = ScheduleState(*values[:_STATE_SIZE])
                state.stored = values
                tenant, user, route, hidden = values[_STATE_SIZE:]
                self._owners[values[0]] = (str(tenant), str(user), str(route), hidden)
                if problems := STATE_CHECK.problems(values[:_STATE_SIZE]):
                    row_checks.repair_state(state, problems, now=self.now(), count=self._count_rows)
                    self.report("schedule_states", state.schedule, problems)

    def _count_rows(self, schedule: int) -> RowCounts:
        """What the rows of a schedule say of its state."""
        rows = [OCCURRENCES.named(values) for values in self.rows.find("history", (schedule,))]
        live = sum(row["ended"] is None for row in rows)
        holders = [row["key"] for row in rows if row["holds_slot"] == 1]
        fences = [row["fence"] for row in rows if type(row["fence"]) is int]
        queued = self.rows.count("queued", (schedule,))
        return RowCounts(live, len(rows) - live, queued, max(holders, default=None), max(fences, default=None))

    def _count_places(self, key: ConcurrencyKey) -> tuple[int, int]:
        """How many rows hold a place under a concurrency key, and how many want one."""
        begun = (OCCURRENCES.named(values) for values in self.rows.find("begun", (key.tenant,)))
        held = (one for one in begun if one["place"] is not None)
        mark = f"[{key.key},"
        taken = sum(one["place"] == key.key or mark in str(one["other_keys"]) for one in held)
        return taken, self.rows.count("wanting", (key.key,))

    def report(self, table: str, key: object, problems: Mapping[str, str]) -> None:
        """Note a damaged record."""
        self.schedule_cache.damage.note(table, key, describe_problems(problems))


def shown(text: str | None) -> object:
    """The value of JSON text; None if it is damaged."""
    try:
        return from_json(text, "value")
    except Unreadable:
        return None


def _stage(records: Records, record: Row | ScheduleState | ConcurrencyKey, values: Values) -> None:
    """Put a record into the transaction, if it has changed."""
    if record.stored is None:
        records.add(values)
    elif values != record.stored:
        records.put(values)
    record.stored = values


def _owner_columns(schedule: Schedule) -> tuple[str, str, str, int]:
    owner = schedule.owner
    return (owner.tenant, owner.user, schedule.declaration.target.route, hidden_as(schedule.schedule_id))
