"""The plain case of admissions and settlements, all of a call in a few statements.

A start is plain when it takes nothing but the slot, an end when nobody waits for what it gives back, and both when
nothing else in the call is about the same schedule. A plain one touches its own row and its own schedule, so it does
not matter that it is written before the others. Whatever a statement here leaves out, for whichever reason, is done
one by one afterwards, and told why.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from noonmark.core.admission import Start
from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase
from noonmark.core.settlement import ENDS
from noonmark.core.values import altered
from noonmark.stores.facts import to_detail
from noonmark.stores.sqlite import batches
from noonmark.stores.sqlite.endings import FAILURES
from noonmark.stores.sqlite.records import OWN, RUN_COLUMNS, run_values, to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noonmark.core.admission import Admission
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.settlement import Settlement
    from noonmark.stores.sqlite.driver import sqlite3

_ENDS = frozenset(phase for phase, _ in ENDS.values())
# What may be changed is found first, and then changed: nobody else writes in between.
STARTABLE = """
    SELECT one.id AS id, one.key AS key, one.schedule AS schedule FROM json_each(:ids) AS j
        CROSS JOIN occurrences AS one ON one.id = j.value CROSS JOIN schedule_states AS s USING (schedule)
    WHERE one.phase = 'claimed' AND fence = :fence AND place IS NULL AND s.revision = :revision
        AND (:takes_slot = 0 OR s.holder IS NULL OR s.holder = one.key)
"""
START = """
    UPDATE occurrences SET phase = 'dispatching', attempt = attempt + 1, revision = :revision, waiting_for = NULL,
        started = :now, lease_end = :lease_end, holds_slot = max(holds_slot, :takes_slot)
    WHERE key IN (SELECT value FROM json_each(:keys))
"""
COLUMNS = "id, key, schedule"
STARTED = """
    UPDATE schedule_states SET last_started = ?, admitted = admitted + (j.value ->> 1),
        newest = coalesce(max(newest, j.value ->> 2), newest, j.value ->> 2), holder = coalesce(j.value ->> 3, holder)
    FROM json_each(?) AS j WHERE schedule = j.value ->> 0
"""
ENDABLE = """
    SELECT one.id AS id, one.key AS key, one.schedule AS schedule,
        exhausted = 1 AND live = 1 AND s.phase = 'active' AS is_last FROM json_each(:ids) AS j
        CROSS JOIN occurrences AS one ON one.id = j.value CROSS JOIN schedule_states AS s USING (schedule)
    WHERE one.phase IN ('dispatching', 'awaiting_completion') AND fence = :fence AND place IS NULL
        AND holds_slot = :holds_slot AND s.queued = 0 AND s.followed = 0
"""
END = """
    UPDATE occurrences SET phase = :phase, reason = :reason, detail = :detail, attempt = :attempt, ended = :now,
        ready = NULL, lease_end = NULL, node = NULL, started = NULL, stop = NULL, deadline = NULL, waiting_for = NULL,
        holds_slot = 0, held = 0
    WHERE key IN (SELECT value FROM json_each(:keys))
"""
_ENDED = """
    UPDATE schedule_states SET {more} live = live - 1, history = history + 1, total = total + 1,
        successful = successful + :successful, failed = failed + :failed,
        failures_in_row = CASE WHEN :successful THEN 0 ELSE failures_in_row + :failed END, last_phase = :phase,
        holder = CASE WHEN :holds_slot THEN NULL ELSE holder END
    WHERE schedule IN (SELECT value FROM json_each(:schedules))
"""
# Of a schedule with nothing live and nothing to come, that is the end; of the others, the phase is not even written.
ENDED = (
    _ENDED.format(more=""),
    _ENDED.format(more="phase = 'completed', updated = :now, version = version + 1,"),
)


def start_all(
    connection: sqlite3.Connection, admissions: Sequence[Admission], *, now: Micros, lease: Micros
) -> dict[str, Occurrence]:
    """Carry out the plain starts; those that were, as they now stand."""
    alone = _alone(one.claim.occurrence.uid for one in admissions)
    groups: dict[tuple[int, int, int], dict[str, Start]] = {}
    for one in admissions:
        claimed = one.claim.occurrence
        if isinstance(one, Start) and one.concurrency is None and one.max_runs is None and claimed.uid in alone:
            group = (one.claim.schedule.revision, claimed.fence, int(one.takes_slot))
            groups.setdefault(group, {})[claimed.id] = one
    started: dict[str, Occurrence] = {}
    changes: list[tuple[Any, ...]] = []
    for (revision, fence, takes_slot), starts in groups.items():
        same = {"revision": revision, "fence": fence, "takes_slot": takes_slot, "now": now, "lease_end": now + lease}
        startable = batches.gather(connection, COLUMNS, f"({STARTABLE})", same | {"ids": json.dumps(list(starts))})
        connection.execute(START, same | {"keys": json.dumps([key for _, key, _ in startable])})
        for found, key, schedule in startable:
            start = starts[found]
            started[found] = _started(start, now)
            was = start.claim.occurrence
            is_first = not was.has_begun and was.origin.partition(":")[0] in OWN
            newest = was.nominal if was.origin == TRIGGER else None
            changes.append((schedule, int(is_first), newest, key if takes_slot else None))
    if changes:
        connection.execute(STARTED, (now, json.dumps(changes)))
    return started


def end_all(connection: sqlite3.Connection, settlements: Sequence[Settlement], *, now: Micros) -> set[str]:
    """Write the plain ends; the ids of those that were."""
    alone = _alone(one.occurrence.uid for one in settlements)
    groups: dict[tuple[Any, ...], dict[str, Settlement]] = {}
    for one in settlements:
        of = one.occurrence
        if one.phase in _ENDS and one.pause_after is None and not of.missed_count and of.uid in alone:
            group = (one.phase, one.reason, to_detail(one.facts), one.attempt, of.fence, int(of.holds_slot))
            groups.setdefault(group, {})[of.id] = one
    ended: set[str] = set()
    runs: list[tuple[Any, ...]] = []
    for (phase, reason, detail, attempt, fence, holds_slot), ends in groups.items():
        same = {"phase": phase, "holds_slot": holds_slot, "now": now}
        row = same | {"reason": reason, "detail": detail, "attempt": attempt, "fence": fence}
        found = batches.gather(connection, f"{COLUMNS}, is_last", f"({ENDABLE})", row | {"ids": json.dumps(list(ends))})
        connection.execute(END, row | {"keys": json.dumps([key for _, key, _, _ in found])})
        counts = {"successful": int(phase is Phase.COMPLETED), "failed": int(phase in FAILURES)}
        for is_last, statement in enumerate(ENDED):
            if schedules := [schedule for _, _, schedule, last in found if last == is_last]:
                connection.execute(statement, same | counts | {"schedules": json.dumps(schedules)})
        for one_id, key, _, _ in found:
            ended.add(one_id)
            run = ends[one_id].run
            runs.append(run_values(key, run, to_json(run.result)))
    if runs:
        batches.put(connection, "runs", RUN_COLUMNS, runs)
    return ended


def _alone(uids: Iterable[str]) -> set[str]:
    """Those that come once."""
    return {uid for uid, count in Counter(uids).items() if count == 1}


def _started(start: Start, now: Micros) -> Occurrence:
    """The occurrence that a claim was about, once it has started."""
    was = start.claim.occurrence
    return altered(
        was,
        revision=start.claim.schedule.revision,
        phase=Phase.DISPATCHING,
        attempt=was.attempt + 1,
        waiting_for=None,
        holds_slot=was.holds_slot or start.takes_slot,
        started=now,
    )
