"""Places: the slot of a schedule, the places under a concurrency key, the runs that `max_runs` allows.

Whoever waits stands in a line, and a place that becomes free is handed to the first in the line at once. So a place
is never free while somebody who may run waits for it, nobody overtakes the line, and no wake-up is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core import admission
from noonmark.core.admission import Busy
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason

if TYPE_CHECKING:
    from noonmark.core.admission import Start, Wait
    from noonmark.stores.sql.ledger import Ledger
    from noonmark.stores.sql.records import Place, Row, Sheet

_IN_SLOT_LINE = "phase = 'pending' AND waiting_for = 'queued' AND ready IS NULL AND schedule = ?"
_FIRST = "AND held = 0 ORDER BY due, nominal, id LIMIT 1"


def take(ledger: Ledger, row: Row, start: Start) -> Busy | None:
    """Take every place that a start needs, or none of them and say which is taken."""
    sheet = ledger.sheet_of(row)
    if start.max_runs is not None and sheet.admitted >= start.max_runs:
        return Busy(place=admission.Place.MAX_RUNS)
    if start.takes_slot and (holder := holder_of(ledger, sheet)) is not None and holder is not row:
        return Busy(place=admission.Place.SLOT, waiting=sheet.queued, holder_caught_up=holder.caught_up)
    place = None
    if start.concurrency is not None:
        place = ledger.place(start.claim.schedule.owner.tenant, start.concurrency.key)
        if place.key != row.place and _is_full(ledger, place, start.concurrency.limit):
            return Busy(place=admission.Place.CONCURRENCY)
    if row.place is not None and (place is None or place.key != row.place):
        free_key(ledger, row)
    if place is not None and row.place is None:
        _give_key(ledger, row, place)
    if start.takes_slot:
        _give_slot(ledger, sheet, row)
    if row.is_own and not row.has_begun:
        sheet.admitted += 1
    return None


def holder_of(ledger: Ledger, sheet: Sheet) -> Row | None:
    """The row that holds the slot; a number that is that of no row of the schedule is damaged, and nobody's."""
    rows = [] if sheet.holder is None else ledger.rows_of([sheet.holder])
    if not rows or rows[0].schedule != sheet.schedule:
        sheet.holder = None
        return None
    return rows[0]


def wait(ledger: Ledger, row: Row, decided: Wait) -> None:
    """Put a row in line. If what it waits for is free by now and nobody stands before it, it has its turn at once."""
    sheet, schedule = ledger.sheet_of(row), decided.claim.schedule
    row.lease_end = row.node = row.started = None
    row.ready, row.awaits_after = decided.until, decided.after
    if decided.seen is not None and decided.seen != sheet.news:
        row.ready = ledger.now()
    row.phase, row.waiting_for = Phase.PENDING, decided.waiting_for
    ledger.changed(row)
    # It must not keep the others from what it cannot use itself.
    free_key(ledger, row)
    concurrency = schedule.declaration.concurrency
    if decided.waiting_for is Reason.QUEUED:
        sheet.queued += 1
        ledger.changed_sheet(sheet)
        wake_for_slot(ledger, sheet)
    elif decided.waiting_for is Reason.CONCURRENCY_LIMIT and concurrency is not None:
        place = ledger.place(schedule.owner.tenant, concurrency.key)
        row.wanted, row.wanted_limit = place.key, concurrency.limit
        place.waiting += 1
        ledger.changed(row)
        ledger.changed_place(place)
        wake_for_key(ledger, place)


def leave(ledger: Ledger, row: Row) -> None:
    """Take a row out of whatever line it stands in; whoever calls this gives it a time, or an end."""
    if row.wanted is not None:
        place = ledger.place_of(row.wanted)
        row.wanted = row.wanted_limit = None
        if place is not None:
            place.waiting = max(0, place.waiting - 1)
            ledger.changed_place(place)
    elif row.is_queued:
        sheet = ledger.sheet_of(row)
        sheet.queued = max(0, sheet.queued - 1)
        ledger.changed_sheet(sheet)


def give_up(ledger: Ledger, row: Row) -> None:
    """Give back every place of a row that is in no line any more."""
    free_slot(ledger, row)
    free_key(ledger, row)


def free_slot(ledger: Ledger, row: Row) -> None:
    """Give the slot back, if this row holds it."""
    sheet = ledger.sheet_of(row)
    if sheet.holder == row.key:
        sheet.holder = None
        row.holds_slot = 0
        ledger.changed_sheet(sheet)
        wake_for_slot(ledger, sheet)


def free_key(ledger: Ledger, row: Row) -> None:
    """Give the place under a concurrency key back, if this row holds one."""
    if row.place is not None:
        place = ledger.place_of(row.place)
        row.place = None
        ledger.changed(row)
        if place is not None:
            place.taken = max(0, place.taken - 1)
            ledger.changed_place(place)
            wake_for_key(ledger, place)


def free_key_if_held(ledger: Ledger, row: Row) -> None:
    """What a pause holds keeps no place from others: theirs may be another schedule, which nobody has paused."""
    if row.phase == Phase.PENDING and row.held:
        free_key(ledger, row)


def wake_for_slot(ledger: Ledger, sheet: Sheet) -> None:
    """Hand a free slot to the first in line."""
    if sheet.holder is None and sheet.queued:
        for row in ledger.find(f"{_IN_SLOT_LINE} {_FIRST}", sheet.schedule):
            wake(ledger, row)
            _give_slot(ledger, sheet, row)


def wake_for_key(ledger: Ledger, place: Place) -> None:
    """Hand free places to the first in line, as far as its limit allows, then to the next."""
    while (row := _first_wanting(ledger, place)) is not None:
        if row.wanted_limit is None or place.taken >= row.wanted_limit:
            break
        wake(ledger, row)
        _give_key(ledger, row, place)


def wake(ledger: Ledger, row: Row) -> None:
    """Give a waiting row a time, now. What it waited for stays written on it until it starts: it cannot misfire."""
    leave(ledger, row)
    row.ready = ledger.now()
    ledger.woke = True
    ledger.changed(row)


def in_slot_line(ledger: Ledger, sheet: Sheet) -> list[Row]:
    """Everybody who waits for the slot, first in line first."""
    return ledger.find(f"{_IN_SLOT_LINE} ORDER BY due, nominal, id", sheet.schedule) if sheet.queued else []


def _first_wanting(ledger: Ledger, place: Place) -> Row | None:
    if not place.waiting:
        return None
    return next(iter(ledger.find(f"wanted = ? {_FIRST}", place.key)), None)


def _is_full(ledger: Ledger, place: Place, limit: int) -> bool:
    """Whether one more has to wait; with different limits under one key, somebody may wait beside free places."""
    return place.taken >= limit or _first_wanting(ledger, place) is not None


def _give_slot(ledger: Ledger, sheet: Sheet, row: Row) -> None:
    sheet.holder = row.key
    row.holds_slot = 1
    ledger.changed(row)
    ledger.changed_sheet(sheet)


def _give_key(ledger: Ledger, row: Row, place: Place) -> None:
    row.place = place.key
    place.taken += 1
    ledger.changed(row)
    ledger.changed_place(place)
