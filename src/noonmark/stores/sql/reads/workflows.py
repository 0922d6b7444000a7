"""Workflows as callers read them: versions, runs with their steps, approvals. Damaged rows are left out of lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.errors import StoreUnavailable
from noonmark.stores.rules.records import Unreadable
from noonmark.stores.sql.reads.history import to_occurrences
from noonmark.stores.sql.workflows import (
    APPROVAL,
    RUN_COLUMNS,
    STEP_COLUMNS,
    VERSION,
    VERSION_COLUMNS,
    selected,
    to_approvals,
    to_run,
    to_step,
    to_versions,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from noonmark.core.lifecycle import Phase
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.workflows.run import StepRecord, WorkflowRun
    from noonmark.ports.records import PageKey
    from noonmark.ports.workflows import Approval, ApprovalState, WorkflowVersion
    from noonmark.stores.sql.unit_of_work import UnitOfWork

NEWEST = f"""
    SELECT {selected(VERSION_COLUMNS, "workflows")} FROM workflows
    WHERE tenant = ? AND workflow_id > ? AND deleted IS NULL AND version = (
        SELECT max(other.version) FROM workflows AS other
        WHERE other.tenant = workflows.tenant AND other.workflow_id = workflows.workflow_id AND other.deleted IS NULL
    ) ORDER BY workflow_id LIMIT ?
"""
RUN = f"""
    SELECT {selected(RUN_COLUMNS, "workflow_runs")} FROM occurrences CROSS JOIN workflow_runs
    ON workflow_runs.occurrence = occurrences.key WHERE occurrences.id = ?
"""
_OF_RUN = f"""
    SELECT {", ".join(STEP_COLUMNS)} FROM workflow_steps WHERE occurrence = ? ORDER BY step_id, element
"""
ENDED_ELSEWHERE = f"""
    SELECT id, {selected(STEP_COLUMNS, "workflow_steps")} FROM occurrences CROSS JOIN workflow_steps
    ON workflow_steps.occurrence = occurrences.key
    AND workflow_steps.is_external = 1 AND workflow_steps.ended IS NOT NULL
    WHERE id IN EACH(text) ORDER BY id, step_id, element
"""
PAGE = f"""
    SELECT {selected(RUN_COLUMNS, "workflow_runs")} FROM workflow_runs WHERE tenant = ? AND {{more}}
    ORDER BY started DESC, id DESC LIMIT ?
"""
# A value of each run, and not a join: a database could begin a join with all occurrences of these phases.
_IN_PHASE = "(SELECT phase FROM occurrences WHERE occurrences.key = occurrence) IN EACH(text)"


def newest(uow: UnitOfWork, tenant: str, limit: int, after: str | None) -> list[WorkflowVersion]:
    """The newest version of each workflow of a tenant, by id; damaged ones are left out."""
    return to_versions(uow.session.query(NEWEST, tenant, after or "", limit), uow.report)


def versions(uow: UnitOfWork, tenant: str, workflow_id: str, limit: int, before: int | None) -> list[WorkflowVersion]:
    """The versions of a workflow, newest first; damaged ones are left out."""
    more = "deleted IS NULL" if before is None else "deleted IS NULL AND version < ?"
    given = [] if before is None else [before]
    return to_versions(uow.session.query(VERSION.format(more=more), tenant, workflow_id, *given, limit), uow.report)


def run(uow: UnitOfWork, occurrence_id: str) -> tuple[WorkflowRun, list[StepRecord]] | None:
    """A run with its steps."""
    rows = uow.session.query(RUN, occurrence_id)
    if not rows:
        return None
    try:
        workflow_run = to_run(rows[0])
    except Unreadable as error:
        raise StoreUnavailable(
            f"the stored record of workflow run {occurrence_id} is damaged: {error}; noonmark doctor says more"
        ) from None
    return workflow_run, [to_step(columns, uow.report) for columns in uow.session.query(_OF_RUN, rows[0][0])]


def ended_elsewhere(uow: UnitOfWork, occurrence_ids: Collection[str]) -> dict[str, list[StepRecord]]:
    """The external steps of runs that have ended."""
    steps_by_run: dict[str, list[StepRecord]] = {}
    for occurrence_id, *columns in uow.session.query(ENDED_ELSEWHERE, list(occurrence_ids)):
        steps_by_run.setdefault(occurrence_id, []).append(to_step(tuple(columns), uow.report))
    return steps_by_run


def runs(
    uow: UnitOfWork,
    tenant: str,
    limit: int,
    *,
    workflow_id: str | None,
    phases: Collection[Phase],
    before: PageKey | None,
) -> list[tuple[WorkflowRun, Occurrence]]:
    """The runs of a tenant, latest start first; damaged ones are left out."""
    conditions: list[tuple[str, tuple[Any, ...]]] = [("1 = 1", ())]
    if workflow_id is not None:
        conditions.append(("workflow_id = ?", (workflow_id,)))
    if before is not None:
        conditions.append(("(started, id) < (?, ?)", before))
    if phases:
        conditions.append((_IN_PHASE, (sorted(phases),)))
    values = [value for _, given in conditions for value in given]
    query = PAGE.format(more=" AND ".join(condition for condition, _ in conditions))
    runs: list[WorkflowRun] = []
    for columns in uow.session.query(query, tenant, *values, limit):
        try:
            runs.append(to_run(columns))
        except Unreadable as error:
            uow.report("workflow_runs", columns[0], {"row": str(error)})
    uow.load_rows(one.occurrence_id for one in runs)
    rows = [row for one in runs if (row := uow.loaded_row(one.occurrence_id)) is not None]
    occurrences = {one.id: one for one in to_occurrences(uow, rows)}
    return [(one, occurrences[one.occurrence_id]) for one in runs if one.occurrence_id in occurrences]


def approvals(
    uow: UnitOfWork, tenant: str, limit: int, *, state: ApprovalState | None, before: PageKey | None
) -> list[Approval]:
    """The approvals of a tenant, latest request first; damaged ones are left out."""
    more = ["1 = 1"] if state is None else [f"state = '{state}'"]
    if before is not None:
        more.append("(requested, approval_id) < (?, ?)")
    query = f"{APPROVAL.format(more=' AND '.join(more))} ORDER BY requested DESC, approval_id DESC LIMIT ?"
    return to_approvals(uow.session.query(query, tenant, *(before or ()), limit), uow.report)
