"""Deliveries of steps: what a step looks like to the target that does its work.

A step that this node delivers is an assignment of its own, with the owner and the trust of the definition. Any other
step is a child occurrence of a hidden schedule, which any node may deliver; its end is written to the step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from noonmark.core.agents.session import step_session
from noonmark.core.agents.turns import agent_target
from noonmark.core.frozen import evolve
from noonmark.core.ids import manual, occurrence_id, step_occurrence_id
from noonmark.core.instants import SECOND
from noonmark.core.interruption import interrupted_at
from noonmark.core.lifecycle import Phase
from noonmark.core.occurrence import Overrides, Parent
from noonmark.core.planner import first_plan
from noonmark.core.planner import occurrence as plan_occurrence
from noonmark.core.policies.overlap import Allow
from noonmark.core.policies.retry import RetryPolicy
from noonmark.core.targets.http import HttpTarget
from noonmark.core.workflows.hidden_schedules import hidden_schedule, steps_id
from noonmark.core.workflows.progress import compensation_policy
from noonmark.ports.target import Assignment
from noonmark.targets.usage import usage_reports

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.window import Window
    from noonmark.core.schedule import Schedule
    from noonmark.core.targets import Target
    from noonmark.core.targets.session import OnDemandSessionTarget
    from noonmark.core.workflows.run import StepRecord, WorkflowRun
    from noonmark.core.workflows.steps import Step
    from noonmark.ports.store import Store
    from noonmark.ports.target import Report
    from noonmark.ports.workflows import WorkflowVersion

MAX_DEPTH = 8
"""How deep workflows may start each other."""
MILLISECOND: Micros = SECOND // 1_000
ONCE, SIDE_BY_SIDE = RetryPolicy(), Allow()


def step_assignment(  # noqa: PLR0913 - each is a part of it
    parent: Assignment,
    source: str,
    step: Step,
    record: StepRecord,
    target: Target,
    report: Report,
    *,
    undoes: bool,
    now: Micros,
) -> Assignment:
    """The assignment of a step that this node delivers, at once; what undoes a step has no window."""
    declared = parent.schedule.declaration
    declaration = evolve(
        declared,
        target=target,
        timeout=step.timeout,
        window=None if undoes else declared.window,
        retry_policy=ONCE,
        overlap_policy=SIDE_BY_SIDE,
        expected=None,
        expected_rate=None,
        runaway=None,
        ping_urls=None,
    )
    occurrence = evolve(
        parent.occurrence,
        id=step_occurrence_id(parent.occurrence.id, step.id, record.index, undoes=undoes),
        route=target.route,
        attempt=max(1, record.attempt),
        due=now,
        started=now,
        stop=None,
        deadline=None,
        phase=Phase.DISPATCHING,
    )
    schedule = evolve(parent.schedule, declaration=declaration, source=source)
    return Assignment(occurrence, schedule, now, traces=parent.traces, report_to=report, usage=usage_reports(parent))


def child_occurrence(  # noqa: PLR0913 - likewise
    schedule: Schedule,
    parent: Assignment,
    run: WorkflowRun,
    step: Step,
    record: StepRecord,
    target: Target,
    *,
    undoes: bool,
    now: Micros,
) -> Occurrence:
    """The occurrence that does the work of a step elsewhere, with all attempts that the step has left.

    The same attempt of the run has the same id on every node.
    """
    run_occurrence, depth = parent.occurrence, 1
    if run_occurrence.overrides is not None and run_occurrence.overrides.parent is not None:
        depth = run_occurrence.overrides.parent.depth + 1
    if depth > MAX_DEPTH:
        raise ValueError(f"workflows start each other more than {MAX_DEPTH} levels deep")
    place = (
        f"{run_occurrence.id}/{run.attempt}/{step.id}/{'' if record.index is None else record.index}/{record.attempt}"
    )
    had = record.attempt - 1
    retry = compensation_policy(step) if undoes else step.retry
    if not undoes and had:
        retry = replace(retry, max_attempts=max(1, retry.max_attempts - had))
    if isinstance(target, HttpTarget) and step.timeout is not None and target.completion_timeout is None:
        # The receiver that accepts the work has no longer for it than one that answers.
        target = replace(target, completion_timeout=step.timeout)
    origin = manual(f"undo:{place}" if undoes else place)
    agent = agent_target(target)
    if agent is not None and agent.type == "materialize_on_demand_session":
        # All steps of a workflow share its hidden schedule, and a conversation is about one of them in one run.
        target = _with_session(cast("OnDemandSessionTarget", agent), occurrence_id(schedule.uid, origin, now))
    overrides = Overrides(
        overlap_policy=SIDE_BY_SIDE,
        target=target,
        timeout=step.timeout,
        retry_policy=retry,
        window=None if undoes else _rest_of_window(parent, now),
        parent=Parent(occurrence_id=run_occurrence.id, step_id=step.id, index=record.index, depth=depth),
        scopes=None if run_occurrence.overrides is None else run_occurrence.overrides.scopes,
    )
    child = plan_occurrence(schedule, now, now, origin=origin, overrides=overrides)
    return replace(child, route=target.route)


def _with_session(target: OnDemandSessionTarget, child_id: str) -> OnDemandSessionTarget:
    return target if target.bound_session_id is not None else replace(target, bound_session_id=step_session(child_id))


def _rest_of_window(parent: Assignment, now: Micros) -> Window | None:
    """A window that closes with that of the run, if that ends what has begun.

    One that suspends is not handed on: only the trigger of the run knows when it opens again. The step runs to its end,
    and the next one waits.
    """
    window, closes = parent.schedule.declaration.window, interrupted_at(parent.occurrence, parent.schedule.declaration)
    return None if window is None or closes is None else replace(window, duration=max(MILLISECOND, closes - now))


class HiddenSchedules:
    """Finds the hidden schedules that carry children, and creates those that are missing."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, str], Schedule] = {}

    def for_child(self, version: WorkflowVersion, owner_of: Schedule, *, now: Micros) -> Schedule:
        """The schedule that carries the children of a workflow."""
        tenant, schedule_id = version.tenant, steps_id(version.workflow_id, version.source)
        cached = self._known.get((tenant, schedule_id))
        if cached is None:
            stored = self._store.find(tenant, schedule_id)
            if stored is None:
                uid = f"{schedule_id}@{now:x}"
                owner, source = owner_of.owner, version.source
                schedule = hidden_schedule(schedule_id, uid=uid, owner=owner, source=source, now=now)
                self._store.create([first_plan(schedule, lookahead=0)])
                stored = self._store.find(tenant, schedule_id)
            if stored is None:
                raise LookupError(f"the schedule {schedule_id!r} that carries its steps could not be created")
            cached = self._known[tenant, schedule_id] = stored.schedule
        return cached
