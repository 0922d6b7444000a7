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
    from collections.abc import Sequence

    from noonmark.core.admission import Admission
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.settlement import Settlement
    from noonmark.stores.sqlite.driver import sqlite3

_ENDS = frozenset(phase for phase, _ in ENDS.values())
# What may be changed is found first, and then changed: nobody else writes in between.
STARTABLE = """
    SELECT json_group_array(j.key), json_group_array(one.key) FROM json_each(:ids) AS j
        CROSS JOIN occurrences AS one ON one.id = j.value CROSS JOIN schedule_states AS s USING (schedule)
    WHERE one.phase = 'claimed' AND fence = :fence AND place IS NULL AND s.revision = :revision
        AND (:takes_slot = 0 OR s.holder IS NULL OR s.holder = one.key)
"""
START = """
    UPDATE occurrences SET phase = 'dispatching', attempt = attempt + 1, revision = :revision, waiting_for = NULL,
        started = :now, lease_end = :lease_end, holds_slot = max(holds_slot, :takes_slot)
    WHERE key IN (SELECT value FROM json_each(:keys))
"""
STARTED = """
    WITH one AS MATERIALIZED (
        SELECT occurrences.key AS key, schedule, nominal FROM json_each(:keys) AS j CROSS JOIN occurrences
        ON occurrences.key = j.value
    )
    UPDATE schedule_states SET last_started = :now, admitted = admitted + :is_first,
        newest = CASE WHEN :is_triggered THEN max(nominal, coalesce(newest, nominal)) ELSE newest END,
        holder = CASE WHEN :takes_slot THEN one.key ELSE holder END
    FROM one WHERE schedule_states.schedule = one.schedule
"""
ENDABLE = """
    SELECT json_group_array(j.key), json_group_array(one.key),
        json_group_array(one.schedule) FILTER (WHERE NOT (exhausted = 1 AND live = 1 AND s.phase = 'active')),
        json_group_array(one.schedule) FILTER (WHERE exhausted = 1 AND live = 1 AND s.phase = 'active')
    FROM json_each(:ids) AS j
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
ENDED = _ENDED.format(more="")
LAST_ENDED = _ENDED.format(more="phase = 'completed', updated = :now, version = version + 1,")
"""That was the end of a schedule with nothing to come. Of the others, the phase is not even written."""
NONE = "[]"


def start_all(
    connection: sqlite3.Connection, admissions: Sequence[Admission], *, now: Micros, lease: Micros
) -> dict[str, Occurrence]:
    """Carry out the plain starts; those that were, as they now stand."""
    repeated = _repeated([one.claim.occurrence.uid for one in admissions])
    groups: dict[tuple[int, int, bool, bool, bool], list[Start]] = {}
    for one in admissions:
        if isinstance(one, Start) and one.concurrency is None and one.max_runs is None:
            claimed = one.claim.occurrence
            if claimed.uid not in repeated:
                is_triggered = claimed.origin == TRIGGER
                is_first = not claimed.has_begun and (is_triggered or claimed.origin.partition(":")[0] in OWN)
                group = (one.claim.schedule.revision, claimed.fence, one.takes_slot, is_first, is_triggered)
                groups.setdefault(group, []).append(one)
    started: dict[str, Occurrence] = {}
    for (revision, fence, takes_slot, is_first, is_triggered), starts in groups.items():
        same = {"revision": revision, "fence": fence, "takes_slot": takes_slot, "now": now, "lease_end": now + lease}
        ids = json.dumps([one.claim.occurrence.id for one in starts])
        found, keys = batches.lists(connection, STARTABLE, same | {"ids": ids})
        connection.execute(START, same | {"keys": keys})
        connection.execute(STARTED, same | {"keys": keys, "is_first": is_first, "is_triggered": is_triggered})
        for place in json.loads(found):
            start = starts[place]
            started[start.claim.occurrence.id] = _started(start, now)
    return started


def end_all(connection: sqlite3.Connection, settlements: Sequence[Settlement], *, now: Micros) -> set[str]:
    """Write the plain ends; the ids of those that were."""
    repeated = _repeated([one.occurrence.uid for one in settlements])
    groups: dict[tuple[Any, ...], list[Settlement]] = {}
    for one in settlements:
        of = one.occurrence
        if one.phase in _ENDS and one.pause_after is None and not of.missed_count and of.uid not in repeated:
            group = (one.phase, one.reason, to_detail(one.facts), one.attempt, of.fence, of.holds_slot)
            groups.setdefault(group, []).append(one)
    ended: set[str] = set()
    runs: list[tuple[Any, ...]] = []
    for (phase, reason, detail, attempt, fence, holds_slot), ends in groups.items():
        same = {"phase": phase, "holds_slot": holds_slot, "now": now}
        row = same | {"reason": reason, "detail": detail, "attempt": attempt, "fence": fence}
        ids = json.dumps([one.occurrence.id for one in ends])
        found, keys, ongoing, over = batches.lists(connection, ENDABLE, row | {"ids": ids})
        connection.execute(END, row | {"keys": keys})
        counts = {"successful": phase is Phase.COMPLETED, "failed": phase in FAILURES}
        for statement, schedules in ((ENDED, ongoing), (LAST_ENDED, over)):
            if schedules != NONE:
                connection.execute(statement, same | counts | {"schedules": schedules})
        for place, key in zip(json.loads(found), json.loads(keys), strict=True):
            run = ends[place].run
            ended.add(run.occurrence_id)
            runs.append(run_values(key, run, to_json(run.result)))
    if runs:
        batches.put(connection, "runs", RUN_COLUMNS, runs)
    return ended


def _repeated(uids: list[str]) -> frozenset[str]:
    """Those that come more than once."""
    if len(set(uids)) == len(uids):
        return frozenset()
    return frozenset(uid for uid, count in Counter(uids).items() if count > 1)


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
