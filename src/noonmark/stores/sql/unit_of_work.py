"""One transaction's view of the tables: records are read in bulk, changed in Python, and written back in bulk.

Whatever looks along a line (the next for a slot, the live rows of a schedule) first writes what has been changed so
far, so that it sees it. The plain case looks along no line: it is told by counters that nobody waits.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from noonmark.stores.sql import salvage, schedule_documents
from noonmark.stores.sql.audit_log import NOTE_COLUMNS, note_values
from noonmark.stores.sql.progress import put_runs
from noonmark.stores.sql.records import (
    ROW_COLUMNS,
    SLOT_COLUMNS,
    STATE_COLUMNS,
    ConcurrencySlot,
    Row,
    ScheduleState,
    row_values,
    run_values,
    slot_values,
    state_values,
)
from noonmark.stores.sql.row_checks import told
from noonmark.stores.sql.salvage import ROWS, SLOTS, STATES
from noonmark.stores.system_events import NOTHING_MORE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from noonmark.core.audit import AuditEntry
    from noonmark.core.run import Run
    from noonmark.core.schedule import Schedule
    from noonmark.core.system_events import SystemEvent
    from noonmark.stores.sql.schedule_documents import ScheduleCache
    from noonmark.stores.sql.session import Session
    from noonmark.stores.system_events import More

R = TypeVar("R", Row, ScheduleState, ConcurrencySlot)
Noted = tuple["SystemEvent", ScheduleState, Row | None, "More", "Schedule | None"]
"""Something that has happened to a schedule, or to one of its rows."""

_PLACE_OF = "SELECT * FROM concurrency_keys WHERE tenant = ? AND name = ?"
_HOLDS_SLOT = ROW_COLUMNS.index("holds_slot")


class UnitOfWork:
    """What a transaction has read and changed; `now` is the store's clock."""

    def __init__(self, session: Session, schedule_cache: ScheduleCache) -> None:
        """Nothing was read yet."""
        self.session = session
        self.schedule_cache = schedule_cache
        self.now = session.now
        self._rows: dict[int, Row] = {}
        self._by_id: dict[str, Row] = {}
        self._states: dict[int, ScheduleState] = {}
        self._places: dict[int, ConcurrencySlot] = {}
        self._changed_rows: dict[int, Row] = {}
        self._changed_states: dict[int, ScheduleState] = {}
        self._changed_places: dict[int, ConcurrencySlot] = {}
        self._removed: list[int] = []
        self._runs: list[tuple[Any, ...]] = []
        self._schedules: list[tuple[Any, ...]] = []
        self._new_schedules: list[tuple[Any, ...]] = []
        self._notes: list[tuple[str, AuditEntry]] = []
        self._numbers: dict[str, deque[int]] = {}
        self._reserved: dict[str, int] = {}
        self.facts: list[Noted] = []
        """What has happened in this transaction, and is told at its end."""
        self.tenants: dict[int, str] = {}
        """Whose some of the schedules are, as far as whoever asks has said so."""
        self.woke = False
        """Whether a row that waited was given a time, or a schedule that follows others is to be planned."""

    # Rows

    def read_rows(self, ids: Iterable[str]) -> None:
        """Read the rows of some ids, and their sheets, at once."""
        unknown = [one for one in dict.fromkeys(ids) if one not in self._by_id]
        if unknown:
            self._take_rows(self.session.records("occurrences", ROW_COLUMNS, "id", unknown))

    def rows_of(self, keys: Sequence[int]) -> list[Row]:
        """The rows of some keys, in their order; one that is not there is left out."""
        unknown = [key for key in keys if key not in self._rows]
        if unknown:
            self._take_rows(self.session.records("occurrences", ROW_COLUMNS, "key", unknown))
        return [self._rows[key] for key in keys if key in self._rows]

    def row(self, occurrence_id: str) -> Row | None:
        """The row of an id."""
        if occurrence_id not in self._by_id:
            self.read_rows([occurrence_id])
        return self._by_id.get(occurrence_id)

    def known(self, occurrence_id: str) -> Row | None:
        """The row of an id, when all that there are have been read."""
        return self._by_id.get(occurrence_id)

    def find(self, condition: str, *parameters: object) -> list[Row]:
        """The rows that a condition and an order pick, after everything was written."""
        return self.rows_in(f"SELECT * FROM occurrences WHERE {condition}", *parameters)  # noqa: S608 - our own text

    def rows_in(self, query: str, *parameters: object) -> list[Row]:
        """The rows that a query of whole rows picks, in its order, after everything was written."""
        self.write()
        found = self.session.records_in("occurrences", ROW_COLUMNS, query, *parameters)
        self._take_rows([columns for columns in found if columns[0] not in self._rows])
        return [self._rows[columns[0]] for columns in found if columns[0] in self._rows]

    def live(self, state: ScheduleState) -> list[Row]:
        """The rows of a schedule that have not ended, oldest first."""
        return self.find("schedule = ? AND ended IS NULL ORDER BY key", state.schedule)

    def add(self, row: Row) -> None:
        """A new row."""
        self._rows[row.key] = self._by_id[row.id] = self._changed_rows[row.key] = row

    def remove(self, row: Row) -> None:
        """Forget a row."""
        del self._rows[row.key], self._by_id[row.id]
        self._changed_rows.pop(row.key, None)
        if row.stored is not None:
            self._removed.append(row.key)

    def changed(self, row: Row) -> None:
        """Something about a row is different now; one that was removed stays so."""
        if row.key in self._rows:
            self._changed_rows[row.key] = row

    # Schedules

    def read_states(self, uids: Iterable[str]) -> dict[str, ScheduleState]:
        """The sheets of some schedules, by uid."""
        self._take_states(self.session.records("schedule_states", STATE_COLUMNS, "uid", list(uids)))
        return {state.uid: state for state in self._states.values()}

    def states_in(self, query: str, *parameters: object) -> list[ScheduleState]:
        """The sheets that a query of whole rows picks, in its order."""
        found = self.session.records_in("schedule_states", STATE_COLUMNS, query, *parameters)
        self._take_states(found)
        return [self._states[columns[0]] for columns in found]

    def states_of(self, keys: Iterable[int]) -> list[ScheduleState]:
        """The sheets of some schedules, in their order; one that is not there is left out."""
        wanted = list(keys)
        unknown = [key for key in dict.fromkeys(wanted) if key not in self._states]
        if unknown:
            self._take_states(self.session.records("schedule_states", STATE_COLUMNS, "schedule", unknown))
        return [self._states[key] for key in wanted if key in self._states]

    def state_of(self, row: Row) -> ScheduleState:
        """The schedule of a row."""
        return self._states[row.schedule]

    def changed_state(self, state: ScheduleState) -> None:
        """Something about a schedule's state is different now."""
        self._changed_states[state.schedule] = state

    def schedule_of(self, state: ScheduleState) -> Schedule:
        """The schedule of a sheet, as it is stored."""
        found = self.schedule_cache.read(self.session, {state.schedule: state.version})[state.schedule]
        if isinstance(found, Exception):
            raise found
        return found

    def add_schedule(self, state: ScheduleState, schedule: Schedule) -> None:
        """A new schedule."""
        self._states[state.schedule] = self._changed_states[state.schedule] = state
        self._new_schedules.append(schedule_documents.to_columns(state.schedule, schedule))

    def keep_schedule(self, state: ScheduleState, schedule: Schedule) -> None:
        """A schedule is different from now on."""
        self._schedules.append(schedule_documents.to_columns(state.schedule, schedule))
        self.schedule_cache.keep({state.schedule: (state.version, schedule)})

    # Concurrency keys

    def place(self, tenant: str, name: str) -> ConcurrencySlot:
        """The concurrency key of a tenant."""
        for place in self._places.values():
            if (place.tenant, place.name) == (tenant, name):
                return place
        found = self.session.records_in("concurrency_keys", SLOT_COLUMNS, _PLACE_OF, tenant, name)
        if found:
            return self._take_place(found[0])
        key = self.next_key("concurrency_keys")
        place = self._places[key] = ConcurrencySlot(key, tenant, name, 0, 0)
        self.changed_place(place)
        return place

    def place_of(self, key: int) -> ConcurrencySlot | None:
        """The concurrency key of that number; None where there is none, though a row says so."""
        if key not in self._places:
            found = self.session.records("concurrency_keys", SLOT_COLUMNS, "key", [key])
            return self._take_place(found[0]) if found else None
        return self._places[key]

    def changed_place(self, place: ConcurrencySlot) -> None:
        """The numbers of a concurrency key are different now."""
        self._changed_places[place.key] = place

    # Facts

    def note(
        self,
        fact: SystemEvent,
        state: ScheduleState,
        row: Row | None = None,
        more: More = NOTHING_MORE,
        *,
        schedule: Schedule | None = None,
    ) -> None:
        """Something has happened that somebody may want to hear; to the schedule as it is stored then, if not told."""
        self.facts.append((fact, state, row, more, schedule))

    # Writing

    def add_run(self, row: Row, run: Run, result: str | None) -> None:
        """Keep a run of a row."""
        self._runs.append(run_values(row.key, row.schedule, run, result))

    def add_note(self, tenant: str, note: AuditEntry) -> None:
        """Keep a note of what a caller did."""
        self._notes.append((tenant, note))

    def reserve(self, ids: Iterable[str]) -> None:
        """Number rows that are to be added in the order of their ids.

        Rows that are due together are claimed in that order, so those of one batch then lie side by side, and writing
        them touches a tenth of the pages.
        """
        ordered = sorted(ids)
        if ordered:
            self._reserved.update(zip(ordered, self.session.numbers("occurrences", len(ordered)), strict=True))

    def key_for(self, occurrence_id: str) -> int:
        """The number of a row that is to be added."""
        key = self._reserved.pop(occurrence_id, None)
        return self.next_key("occurrences") if key is None else key

    def next_key(self, table: str, of: int = 1) -> int:
        """A number that no row of a table has, the first `of` so many that will be asked for."""
        numbers = self._numbers.setdefault(table, deque())
        if not numbers:
            numbers.extend(self.session.numbers(table, of))
        return numbers.popleft()

    def write(self) -> None:
        """Write everything that has changed; what is removed first, since what is added may be the same again."""
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
        self._write(self._changed_places, "concurrency_keys", SLOT_COLUMNS, slot_values)
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

    def _take_rows(self, found: list[tuple[Any, ...]]) -> None:
        """Each by itself: one that is damaged is mended as far as it has to be, one without a schedule is nobody's."""
        self.states_of([columns[2] for columns in found])
        for columns in found:
            if columns[2] not in self._states:
                self._say("occurrences", columns[0], {"schedule": "is that of no schedule"})
                continue
            row = Row(*columns)
            row.stored = columns
            if problems := ROWS.problems(columns, narrow=self.session.is_narrow):
                salvage.mend_row(row, problems, self.now())
                self._say("occurrences", row.key, problems)
            self._rows[row.key] = self._by_id[row.id] = row

    def _take_place(self, columns: tuple[Any, ...]) -> ConcurrencySlot:
        self._places[columns[0]] = place = ConcurrencySlot(*columns)
        place.stored = columns
        if problems := SLOTS.problems(columns, narrow=self.session.is_narrow):
            salvage.mend_place(self.session, place)
            self._say("concurrency_keys", place.key, problems)
        return place

    def _take_states(self, found: list[tuple[Any, ...]]) -> None:
        for columns in found:
            if columns[0] not in self._states:
                self._states[columns[0]] = state = ScheduleState(*columns)
                state.stored = columns
                if problems := STATES.problems(columns, narrow=self.session.is_narrow):
                    salvage.mend_state(self.session, state, problems)
                    self._say("schedule_states", state.schedule, problems)

    def _say(self, table: str, key: int, problems: Mapping[str, str]) -> None:
        self.schedule_cache.damage.note(table, key, told(problems))


def _differing(stored: tuple[Any, ...], values: tuple[Any, ...]) -> tuple[int, ...]:
    """Which columns to write: the key, and those that are different."""
    return (0, *[place for place, was in enumerate(stored) if was != values[place]])


def _takes_slot(table: str, places: tuple[int, ...], rows: list[tuple[Any, ...]]) -> bool:
    """A slot has one holder at every moment, so whoever gives it up is written before whoever takes it."""
    return table == "occurrences" and _HOLDS_SLOT in places and any(values[_HOLDS_SLOT] for values in rows)
