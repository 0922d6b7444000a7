"""Progress: the output so far of deliveries in progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.run import CUT_OFF
from noonmark.stores.sql.records import RUN_COLUMNS, run_values, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.settlement import Interim
    from noonmark.stores.sql.session import Session, Values

_GOING_ON = """
    SELECT id, key, schedule, fence FROM occurrences AS one
    WHERE id IN EACH(text) AND phase = 'dispatching' /* quick: one */
"""
_PUT_OUT = "runs WHERE occurrence IN EACH(bigint) AND ended IS NULL AND result IS NOT NULL"
_OUTCOME, _RESULT = RUN_COLUMNS.index("outcome"), RUN_COLUMNS.index("result")


def write(session: Session, interims: Sequence[Interim]) -> list[bool]:
    """Store the open runs of rows that are still delivered under the same fence."""
    ids = list({one.occurrence.id for one in interims})
    found = session.gather("id, key, schedule, fence", f"({_GOING_ON}) AS found", ids)
    rows = {(one, fence): (key, schedule) for one, key, schedule, fence in found}
    found_runs = [(rows.get((one.occurrence.id, one.occurrence.fence)), one.run) for one in interims]
    runs = {run.id: run_values(*row, run, to_json(run.result)) for row, run in found_runs if row is not None}
    if runs:
        session.put("runs", RUN_COLUMNS, list(runs.values()), key=2)
    return [row is not None for row, _ in found_runs]


def put_runs(session: Session, runs: Sequence[Values]) -> None:
    """Store runs, each in place of the same run while it was open; one that was cut off keeps the output so far."""
    mute = {run[:2] for run in runs if run[_RESULT] is None and run[_OUTCOME] in CUT_OFF}
    if mute:
        found = session.gather("occurrence, fence, result", _PUT_OUT, [key for key, _ in mute])
        output = {(key, fence): said for key, fence, said in found}
        runs = [_with_result(run, output.get(run[:2])) if run[:2] in mute else run for run in runs]
    session.put("runs", RUN_COLUMNS, runs, key=2)


def _with_result(run: Values, result: str | None) -> Values:
    return (*run[:_RESULT], result, *run[_RESULT + 1 :])
