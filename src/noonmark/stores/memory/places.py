"""Places: the slot of a schedule, the places under a concurrency key, the runs that `max_runs` allows.

Whoever waits stands in a line, and a place that becomes free is handed to the first in the line at once. So a place
is never free while somebody who may run waits for it, nobody overtakes the line, and no wake-up is lost.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from noonmark.core.admission import Busy, Place
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.core.values import altered

if TYPE_CHECKING:
    from noonmark.core.admission import Start, Wait
    from noonmark.stores.memory.ledger import Ledger
    from noonmark.stores.memory.rows import Key, Row, Sheet, Turn


def take(ledger: Ledger, row: Row, start: Start) -> Busy | None:
    """Take every place that a start needs, or none of them and say which is taken."""
    sheet = ledger.sheet_of(row)
    if start.max_runs is not None and sheet.admitted >= start.max_runs:
        return Busy(place=Place.MAX_RUNS)
    if start.takes_slot and sheet.holder is not None and sheet.holder is not row:
        return Busy(place=Place.SLOT, waiting=len(sheet.queue), holder_caught_up=sheet.holder.occurrence.caught_up)
    key = None
    if start.concurrency is not None:
        key = (sheet.schedule.owner.tenant, start.concurrency.key)
        if key != row.key and _is_full(ledger, key, start.concurrency.limit):
            return Busy(place=Place.CONCURRENCY)
    if key != row.key:
        free_key(ledger, row)
        if key is not None:
            _give_key(ledger, row, key)
    if start.takes_slot:
        sheet.holder = row  # the start itself writes it on the row
    if row.is_own and not row.occurrence.has_begun:
        sheet.admitted += 1
    return None


def wait(ledger: Ledger, row: Row, decided: Wait) -> None:
    """Put a row in line. If what it waits for is free by now and nobody stands before it, it has its turn at once."""
    sheet, reason = ledger.sheet_of(row), decided.waiting_for
    concurrency = decided.claim.schedule.declaration.concurrency
    row.ready, row.lease_end, row.awaits_after = decided.until, None, decided.after
    if decided.seen is not None and decided.seen != sheet.news:
        row.ready = ledger.now()
    row.occurrence = altered(row.occurrence, phase=Phase.PENDING, waiting_for=reason, node=None, started=None)
    ledger.file(row)
    # It must not keep the others from what it cannot use itself.
    free_key(ledger, row)
    if reason is Reason.QUEUED:
        insort(sheet.queue, row.turn)
        wake_for_slot(ledger, sheet)
    elif reason is Reason.CONCURRENCY_LIMIT and concurrency is not None:
        key = (sheet.schedule.owner.tenant, concurrency.key)
        row.wants = (key, concurrency.limit)
        insort(ledger.waiting[key], row.turn)
        wake_for_key(ledger, key)


def leave(ledger: Ledger, row: Row) -> None:
    """Take a row out of whatever line it stands in."""
    if row.wants is not None:
        line = ledger.waiting[row.wants[0]]
        del line[bisect_left(line, row.turn)]
        row.wants = None
    elif row.ready is None and row.occurrence.waiting_for is Reason.QUEUED:
        queue = ledger.sheet_of(row).queue
        del queue[bisect_left(queue, row.turn)]


def give_up(ledger: Ledger, row: Row) -> None:
    """Leave every line, and give back every place."""
    leave(ledger, row)
    free_slot(ledger, row)
    free_key(ledger, row)


def free_slot(ledger: Ledger, row: Row) -> None:
    """Give the slot back, if this row holds it."""
    sheet = ledger.sheet_of(row)
    if sheet.holder is row:
        sheet.holder = None
        if row.occurrence.holds_slot:
            row.occurrence = altered(row.occurrence, holds_slot=False)
        wake_for_slot(ledger, sheet)


def free_key(ledger: Ledger, row: Row) -> None:
    """Give the place under a concurrency key back, if this row holds one."""
    key = row.key
    if key is not None:
        row.key = None
        ledger.holders[key].discard(row.occurrence.id)
        wake_for_key(ledger, key)


def free_key_if_held(ledger: Ledger, row: Row) -> None:
    """What a pause holds keeps no place from others: theirs may be another schedule, which nobody has paused."""
    if row.occurrence.phase is Phase.PENDING and ledger.sheet_of(row).holds_back(row):
        free_key(ledger, row)


def wake_for_slot(ledger: Ledger, sheet: Sheet) -> None:
    """Hand a free slot to the first in line."""
    row = _first(ledger, sheet.queue) if sheet.queue else None
    if sheet.holder is None and row is not None:
        wake(ledger, row)
        _give_slot(sheet, row)


def wake_for_key(ledger: Ledger, key: Key) -> None:
    """Hand free places to the first in line, as far as its limit allows, then to the next."""
    while (row := _first(ledger, ledger.waiting[key])) is not None and row.wants is not None:
        if len(ledger.holders[key]) >= row.wants[1]:
            break
        wake(ledger, row)
        _give_key(ledger, row, key)


def wake(ledger: Ledger, row: Row) -> None:
    """Give a waiting row a time, now. What it waited for stays written on it until it starts: it cannot misfire."""
    leave(ledger, row)
    row.ready = ledger.now()
    ledger.file(row)


def _first(ledger: Ledger, line: list[Turn]) -> Row | None:
    """The first in a line that no pause holds back."""
    rows = (ledger.rows[waiting] for _, _, waiting in line)
    return next((row for row in rows if not ledger.sheet_of(row).holds_back(row)), None)


def _is_full(ledger: Ledger, key: Key, limit: int) -> bool:
    """Whether one more has to wait; with different limits under one key, somebody may wait beside free places."""
    return len(ledger.holders[key]) >= limit or _first(ledger, ledger.waiting[key]) is not None


def _give_slot(sheet: Sheet, row: Row) -> None:
    sheet.holder = row
    row.occurrence = altered(row.occurrence, holds_slot=True)


def _give_key(ledger: Ledger, row: Row, key: Key) -> None:
    row.key = key
    ledger.holders[key].add(row.occurrence.id)
