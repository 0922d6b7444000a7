"""Explanations: the state of an occurrence, and what a schedule did at an instant."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core import explain
from noonmark.core.ids import is_hidden, visible_id
from noonmark.core.lifecycle import LIVE
from noonmark.core.occurrence import in_force, kept_facts
from noonmark.core.planner import timed_trigger
from noonmark.core.policies.expected_rate import close
from noonmark.core.reasons import Reason
from noonmark.core.workflows.definition import restore_definition
from noonmark.operations import schedule_edits
from noonmark.operations.occurrences import find_occurrence
from noonmark.operations.serializers import lost_nodes, next_run, occurrence_document, text
from noonmark.operations.target_policy import engine_wait, unserved_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.expected_rate import RateWindow
    from noonmark.core.schedule import Schedule
    from noonmark.core.targets.permissions import TargetPermissions
    from noonmark.core.workflows.run import StepRecord
    from noonmark.operations.models.arguments import ExplainRequest, OneOccurrence
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.records import StoredSchedule
    from noonmark.ports.store import Store

NEIGHBOURS = 50
"""How many rows are read before the instant, at it, and among the gaps that span it."""
NEWEST = 5
"""How many of the newest rows are read, which show how far times are accounted for; and of the runs before the instant,
one of which may still have been running."""
MAX_CHILDREN = 3
"""Of how many occurrences that steps wait for it is said why they have not ended."""
LAST_ID = "~"
"""Sorts after the id of every occurrence."""


def explain_occurrence(service: Service, caller: Caller, arguments: OneOccurrence) -> dict[str, Any]:
    """Explain the state of an occurrence: each rule with its decision, and one sentence."""
    occurrence, schedule = find_occurrence(service, caller, arguments.occurrence_id)
    runs, nodes, now = service.store.occurrence_runs(occurrence.id), service.store.nodes(), service.store.clock()
    explanation = explain.explain_occurrence(
        _without_hidden_trigger(schedule),
        occurrence,
        runs,
        now=now,
        unserved=unserved_by(nodes, in_force(schedule, occurrence), service.permissions),
        rate_window=_rate_window(service.store, schedule),
        lost_node=lost_nodes(nodes, [occurrence], now=now).get(occurrence.node or ""),
    )
    explanation = _with_steps(service.store, schedule, occurrence, explanation, service.permissions)
    explanation = _with_holder(service.store, occurrence, explanation)
    if (words := engine_wait(service, occurrence)) is not None:
        explanation = replace(explanation, summary=f"{explanation.summary} {words}")
    about = {
        "occurrence_id": occurrence.id,
        "schedule_id": visible_id(schedule.schedule_id),
        "phase": str(occurrence.phase),
    }
    return about | explanation.to_document()


def _without_hidden_trigger(schedule: Schedule) -> Schedule:
    """A hidden schedule without its trigger, which never fires and means nothing to anyone."""
    if not is_hidden(schedule.schedule_id):
        return schedule
    return replace(schedule, declaration=replace(schedule.declaration, trigger=None))


def _with_steps(
    store: Store,
    schedule: Schedule,
    occurrence: Occurrence,
    explanation: explain.Explanation,
    permissions: TargetPermissions | None,
) -> explain.Explanation:
    """The explanation with the steps of the workflow that the occurrence runs, if it has begun one."""
    workflow_run = store.workflow_run(occurrence.id) if occurrence.is_workflow_run else None
    if workflow_run is None or not workflow_run[0].has_begun:
        return explanation
    run, records = workflow_run
    version = store.workflow(schedule.owner.tenant, run.workflow_id, run.version, deleted=True)
    if version is None:
        return explanation
    children = open_children(store, records, permissions)
    return explain.explain_steps(explanation, restore_definition(version.document), records, children)


def open_children(store: Store, records: Sequence[StepRecord], permissions: TargetPermissions | None) -> dict[str, str]:
    """Why the first of the occurrences that steps wait for have not ended, in words, by their ids."""
    waiting = [record for record in records if record.index is None and record.child and record.awaits_others]
    words, nodes = {}, store.nodes() if waiting else []
    for record in waiting[:MAX_CHILDREN]:
        child = store.occurrence(record.child or "")
        stored = None if child is None else store.find_uid(child.uid)
        if child is None or stored is None:
            continue
        missing = unserved_by(nodes, in_force(stored.schedule, child), permissions)
        lost = lost_nodes(nodes, [child], now=store.clock())
        why = occurrence_document(child, stored.schedule, unserved=missing, lost=lost)["why"]
        if why:
            words[child.id] = f"{why[0].lower()}{why[1:]}".removesuffix(".")
    return words


def explain_schedule(service: Service, caller: Caller, arguments: ExplainRequest) -> dict[str, Any]:
    """Explain what a schedule did, does or will do at an instant; without one, its last occurrence."""
    stored = schedule_edits.find_for(caller, service.store, arguments.schedule_id, deleted=True)
    return explain_instant(service.store, stored, arguments.at, service.permissions)


def explain_instant(
    store: Store, stored: StoredSchedule, at: Micros | None, permissions: TargetPermissions | None = None
) -> dict[str, Any]:
    """Explain a schedule that was found."""
    now, schedule = store.clock(), stored.schedule
    explanation, time = (_latest(store, stored, permissions, now=now), now) if at is None else (None, at)
    if explanation is None:
        # A schedule that was never due is explained by its first fire.
        time = _first_fire(stored, now=now) if at is None else at
        explanation = _instant(store, stored, time, permissions, now=now)
    about = {"schedule_id": schedule.schedule_id, "at": text(time), "phase": str(schedule.phase)}
    return about | _with_halt(store, schedule, explanation).to_document()


def _with_halt(store: Store, schedule: Schedule, explanation: explain.Explanation) -> explain.Explanation:
    """The explanation of a schedule that is halted now always says so."""
    halt = next((one for one in store.halts(schedule.owner.tenant) if one.covers(schedule)), None)
    if halt is None:
        return explanation
    why = "" if halt.reason is None else f" ({halt.reason})"
    sentence = f"It is halted by `{halt.by}` since {text(halt.at)}{why}: nothing of it starts until that is lifted."
    return replace(explanation, summary=f"{explanation.summary} {sentence}")


def _instant(
    store: Store, stored: StoredSchedule, time: Micros, permissions: TargetPermissions | None, *, now: Micros
) -> explain.Explanation:
    uid, place = stored.schedule.uid, (time, LAST_ID)
    newest = store.occurrences(uid, NEWEST)
    near = [
        *(row for row in newest if row.nominal > time),
        *store.occurrences_at(uid, time, NEIGHBOURS),
        *store.occurrences(uid, NEIGHBOURS, before=place),
    ]
    rows = {row.id: row for row in near}.values()
    exact = [run for row in rows if row.nominal == time for run in store.occurrence_runs(row.id)]
    runs = {run.id: run for run in [*exact, *store.runs(uid, NEWEST, before=place)]}.values()
    nodes = store.nodes()
    return explain.explain_instant(
        stored.schedule,
        time,
        now=now,
        rows=tuple(rows),
        runs=tuple(runs),
        admitted=stored.counters.admitted,
        unserved=unserved_by(nodes, stored.schedule, permissions),
        rate_window=_rate_window(store, stored.schedule),
        lost_nodes=lost_nodes(nodes, rows, now=now),
    )


def _latest(
    store: Store, stored: StoredSchedule, permissions: TargetPermissions | None, *, now: Micros
) -> explain.Explanation | None:
    """Explain the last occurrence of a schedule; None if it has had none."""
    uid = stored.schedule.uid
    rows = {row.id: row for row in store.occurrences(uid, NEIGHBOURS, before=(now, LAST_ID))}
    for run in store.runs(uid, 1):  # perhaps of a backfill, whose nominal time is long past
        row = store.occurrence(run.occurrence_id)
        rows |= {} if row is None else {row.id: row}
    last = explain.latest(list(rows.values()), now=now)
    if last is None:
        return None
    runs, nodes = store.occurrence_runs(last.id), store.nodes()
    explanation = explain.explain_latest(
        stored.schedule,
        last,
        runs,
        now=now,
        next_run=next_run(stored, now=now),
        unserved=unserved_by(nodes, stored.schedule, permissions),
        rate_window=_rate_window(store, stored.schedule),
        lost_node=lost_nodes(nodes, [last], now=now).get(last.node or ""),
    )
    explanation = _with_steps(store, stored.schedule, last, explanation, permissions)
    return _with_holder(store, last, explanation)


def _with_holder(store: Store, occurrence: Occurrence, explanation: explain.Explanation) -> explain.Explanation:
    """The explanation of a fire that was skipped for another says what has become of that one, if it has not ended."""
    facts = (kept_facts(occurrence) or {}) if occurrence.reason is Reason.OVERLAP else {}
    holder = store.occurrence(str(facts.get("in_flight", "")))
    stored = None if holder is None else store.find_uid(holder.uid)
    if holder is None or stored is None or holder.phase not in LIVE:
        return explanation
    runs, now = store.occurrence_runs(holder.id), store.clock()
    lost = lost_nodes(store.nodes(), [holder], now=now).get(holder.node or "")
    summary = explain.explain_occurrence(stored.schedule, holder, runs, now=now, lost_node=lost).summary
    still = f"`{holder.id}` has still not ended: {summary[0].lower()}{summary[1:].removesuffix('.')}"
    advice = f"`noonmark run cancel {holder.id}` asks it to stop"
    if holder.stop is not None:
        advice = "if it ignores that, restart its node"
    return replace(explanation, summary=f"{explanation.summary} {still}; {advice}.")


def _rate_window(store: Store, schedule: Schedule) -> RateWindow | None:
    """What is counted for the expected rate of a schedule, if it has one.

    A window that has ended is judged here if no node has done so.
    """
    rate, now = schedule.declaration.expected_rate, store.clock()
    snapshot = None if rate is None else store.snapshot(schedule.uid)
    window = None if snapshot is None else snapshot.rate_window
    if rate is None or window is None or now < window.ends:
        return window
    return close(rate, window, now=now).window


def _first_fire(stored: StoredSchedule, *, now: Micros) -> Micros:
    trigger = timed_trigger(stored.schedule)
    following = None if trigger is None else trigger.next_micros(now)
    return now if following is None else following
