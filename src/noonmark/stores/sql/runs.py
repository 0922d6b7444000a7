"""Runs in the tables: the open ones with their output so far, and the ended ones in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.run import CUT_OFF
from noonmark.stores.sql.records import RUN_COLUMNS, run_values, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.settlement import Interim
    from noonmark.stores.sql.session import Session, Values

_DISPATCHING = """
    SELECT id, key, schedule, fence FROM occurrences AS one
    WHERE id IN EACH(text) AND phase = 'dispatching' /* quick: one */
"""
_OPEN_RUNS = "runs WHERE occurrence IN EACH(bigint) AND ended IS NULL AND result IS NOT NULL"
_OUTCOME, _RESULT = RUN_COLUMNS.index("outcome"), RUN_COLUMNS.index("result")


def write_progress(session: Session, interims: Sequence[Interim]) -> list[bool]:
    """Store the open runs of rows that are still delivered under the same fence."""
    ids = list({one.occurrence.id for one in interims})
    dispatching = session.gather("id, key, schedule, fence", f"({_DISPATCHING}) AS found", ids)
    rows = {(one, fence): (key, schedule) for one, key, schedule, fence in dispatching}
    found_runs = [(rows.get((one.occurrence.id, one.occurrence.fence)), one.run) for one in interims]
    runs = {run.id: run_values(*row, run, to_json(run.result)) for row, run in found_runs if row is not None}
    if runs:
        session.put("runs", RUN_COLUMNS, list(runs.values()), key=2)
    return [row is not None for row, _ in found_runs]


def put_runs(session: Session, runs: Sequence[Values]) -> None:
    """Store runs, each in place of the same open run.

    An interrupted run without a result keeps its output so far.
    """
    silent = {run[:2] for run in runs if run[_RESULT] is None and run[_OUTCOME] in CUT_OFF}
    if silent:
        open_runs = session.gather("occurrence, fence, result", _OPEN_RUNS, [key for key, _ in silent])
        output = {(key, fence): result for key, fence, result in open_runs}
        runs = [_with_result(run, output.get(run[:2])) if run[:2] in silent else run for run in runs]
    session.put("runs", RUN_COLUMNS, runs, key=2)


def _with_result(run: Values, result: str | None) -> Values:
    return (*run[:_RESULT], result, *run[_RESULT + 1 :])
