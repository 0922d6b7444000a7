"""Workflows: versions, runs with all steps, what these wait for, and approvals."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import StoreUnavailable
from noonmark.core.filters.index import NONE, Discriminator, is_fields
from noonmark.core.json_values import storable
from noonmark.core.reasons import Reason
from noonmark.core.workflows.run import StepPhase
from noonmark.ports.workflows import ApprovalState
from noonmark.stores.redis.schema.schedules import SCHEDULES
from noonmark.stores.redis.schema.workflows import (
    APPROVALS,
    STEP_WAITS,
    TARGET_USES,
    WORKFLOW_RUNS,
    WORKFLOW_STEPS,
    WORKFLOWS,
)
from noonmark.stores.rules import workflow_records as rules
from noonmark.stores.rules.records import Unreadable
from noonmark.stores.rules.workflow_records import StepWait, is_expired
from noonmark.stores.sql.records import to_json
from noonmark.stores.sql.workflows import (
    WHOLE,
    approval_values,
    run_values,
    step_values,
    to_approvals,
    to_filters,
    to_run,
    to_step,
    to_version,
    to_versions,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.lifecycle import Phase
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.workflows.run import StepRecord, WorkflowRun
    from noonmark.ports.records import PageKey
    from noonmark.ports.workflows import Approval, UsedKind, WorkflowVersion
    from noonmark.stores.redis.schedule_records import ScheduleRecords
    from noonmark.stores.redis.transactions.client import Question
    from noonmark.stores.redis.transactions.table import Values
    from noonmark.stores.redis.transactions.transaction import Records
    from noonmark.stores.rules.records import Row
    from noonmark.stores.rules.workflow_records import StepPlace, TargetUse, Topic, WaitQuestion

AT_ONCE = 500
"""How many entries or runs are read at a time, where not every one is wanted."""
_SCHEDULE_ID = SCHEDULES.columns.index("schedule_id")
_DELETED = WORKFLOWS.columns.index("deleted")
_OCCURRENCE = APPROVALS.columns.index("occurrence")


class WorkflowRecords(rules.WorkflowRecords):
    """What a transaction has read and put.

    Runs, steps and waits, and the ends of both, are collected: records that they replace are read in bulk.
    """

    def __init__(self, uow: ScheduleRecords) -> None:
        self._uow, records = uow, uow.transaction.records
        self._versions, self._runs, self._steps = records(WORKFLOWS), records(WORKFLOW_RUNS), records(WORKFLOW_STEPS)
        self._waits, self._approvals, self._uses = records(STEP_WAITS), records(APPROVALS), records(TARGET_USES)
        self._new_runs: dict[Values, Values] = {}
        self._new_steps: dict[Values, Values] = {}
        self._new_waits: dict[Values, Values] = {}
        self._dropped: dict[int, set[str] | None] = {}
        """The steps of rows that wait for nothing any more; None for all of a row."""
        self._closed: dict[int, None] = {}

    # Runs and steps

    def put_run(self, row: Row, tenant: str, run: WorkflowRun) -> None:
        self._new_runs[row.key,] = run_values(row.key, row.id, tenant, run)

    def load_steps(self, places: Collection[StepPlace]) -> None:
        self._steps.read(_step_key(place) for place in places)

    def step(self, place: StepPlace) -> StepRecord | None:
        key = _step_key(place)
        values = self._new_steps.get(key) or self._steps.get(*key)
        return None if values is None else to_step(values, self._uow.report)

    def put_steps(self, row: Row, steps: Sequence[StepRecord]) -> None:
        for step in steps:
            values = step_values(row.key, step)
            self._new_steps[values[:3]] = values

    def clear(self, row: Row) -> None:
        self.write()
        for values in self._steps.find("of_run", [row.key]):
            self._steps.delete(*values[:3])
        self._dropped[row.key] = None

    def close(self, row: Row) -> None:
        self._closed[row.key] = None

    def forget(self, *rows: Row) -> None:
        """Delete what is stored about rows."""
        self.write()
        # A row that has not begun has no workflow run, and an approval only while it waits for it.
        keys = [
            (row.key,) for row in rows if row.ended is not None or row.has_begun or row.waiting_for == Reason.APPROVAL
        ]
        if not keys:
            return
        parts: list[tuple[Records, str | None, list[Values]]] = [(self._approvals, "of_occurrence", keys)]
        if runs := list(self._runs.get_many(keys)):
            parts += [(self._steps, "of_run", runs), (self._waits, "of_run", runs), (self._runs, None, runs)]
        for records, index, owners in parts:
            record_keys = (
                owners if index is None else [key for of_row in records.find_each(index, owners) for key in of_row]
            )
            records.read(record_keys)
            for key in record_keys:
                records.delete(*key)

    def write(self) -> None:
        """Put everything into the transaction; what is dropped first, since it may be put again, and ends last."""
        if self._dropped:
            dropped, self._dropped = self._dropped, {}
            self._drop(dropped)
        new = ((self._runs, self._new_runs), (self._steps, self._new_steps), (self._waits, self._new_waits))
        self._uow.transaction.read_all([(records, list(values)) for records, values in new], [])
        for records, values in new:
            if values:
                records.put_many(list(values.values()))
                values.clear()
        if self._closed:
            closed, self._closed = list(self._closed), {}
            self._close(closed)

    def _close(self, keys: Sequence[int]) -> None:
        """Runs have ended: what is pending or running is cancelled, and nothing waits any more."""
        now, ended = self._uow.now(), [(key,) for key in keys]
        self._preload(((self._steps, "open"), *self._awaited), ended)
        keys_by_run = self._steps.find_each("open", ended)
        for values in self._steps.get_many(key for of_run in keys_by_run for key in of_run).values():
            step = to_step(values, self._uow.report)
            self._steps.put(step_values(values[0], replace(step, phase=StepPhase.CANCELLED, ended=now)))
        self._drop(dict.fromkeys(keys))

    def _drop(self, dropped: Mapping[int, Collection[str] | None]) -> None:
        """Steps wait for nothing any more: all of a row, or some."""
        keys, now = [(key,) for key in dropped], self._uow.now()
        self._preload(self._awaited, keys)
        of_runs = self._waits.find_each("of_run", keys)
        waits = [
            wait for of_run in of_runs for wait in of_run if (steps := dropped[wait[0]]) is None or wait[1] in steps
        ]
        self._waits.read(waits)
        for wait in waits:
            self._waits.delete(*wait)
        pending = [one for found in self._approvals.find_each("pending_of_occurrence", keys) for one in found]
        for values in self._approvals.get_many(pending).values():
            for approval in to_approvals([values[1:]], self._uow.report):
                if (steps := dropped.get(values[_OCCURRENCE], ())) is None or approval.step_id in steps:
                    state = ApprovalState.EXPIRED if is_expired(approval, now) else ApprovalState.CANCELLED
                    decided = replace(approval, state=state, decided=now)
                    self._approvals.put((values[0], *approval_values(values[_OCCURRENCE], decided)))

    @property
    def _awaited(self) -> tuple[tuple[Records, str], ...]:
        """Where it is found what runs wait for."""
        return ((self._waits, "of_run"), (self._approvals, "pending_of_occurrence"))

    def _preload(self, indexes: Sequence[tuple[Records, str]], keys: Sequence[Values]) -> None:
        """Read everything that indexes have of rows, in one round trip."""
        self._uow.transaction.preload(records.question(index, key) for records, index in indexes for key in keys)

    # Waits and approvals

    def waited_topics(self, topics: Collection[Topic]) -> set[Topic]:
        """Those topics that a step waits for."""
        self.write()
        topic_list = list(topics)
        entries = self._waits.find_each("by_discriminator", topic_list, limit=1)
        return {topic for topic, keys in zip(topic_list, entries, strict=True) if keys}

    def questions(self, topics: Collection[Topic]) -> list[Question]:
        """What `waited_topics` asks."""
        return [self._waits.question("by_discriminator", topic, limit=1) for topic in topics]

    def waiting_tenants(self, event_type: str) -> set[str]:
        """The tenants in which a step waits for events of a type."""
        self.write()
        tenants: set[str] = set()
        begin: Values | None = None
        while entries := self._waits.entries("by_type", prefix=[event_type], after=begin, limit=1):
            tenants.add(entries[0][1])
            begin = entries[0][1:2]
        return tenants

    def wait_fields(self, topics: Collection[Topic]) -> dict[Topic, list[str]]:
        # From each field to the next of a type: they are few, and there may be many waits.
        by_topic: dict[Topic, list[str]] = {}
        for topic in self.waited_topics(topics):
            begin: Values | None = None
            while entries := self._waits.entries("by_discriminator", topic, after=begin, limit=1):
                fields, begin = entries[0][0], entries[0][:1]
                if fields == NONE.fields or is_fields(fields):  # else it is damaged, and no event has such fields
                    by_topic.setdefault(topic, []).append(fields)
        return by_topic

    def waits(self, questions: Collection[WaitQuestion]) -> list[StepWait]:
        self.write()
        keys = [
            key
            for topic, own in questions
            for key in self._waits.find_keys("by_discriminator", topic, prefix=[own.fields, own.wanted])
        ]
        waits = []
        for values in self._waits.get_many(sorted(keys)).values():
            key, step_id, event_type, occurrence_id, tenant, _, after, fields, wanted = values
            try:
                filters = to_filters(values)
            except Unreadable as error:
                self._uow.report("step_waits", f"{key}, {step_id}", {"row": str(error)})
            else:
                own = Discriminator(fields, wanted)
                waits.append(StepWait(key, occurrence_id, step_id, tenant, event_type, filters, after, own))
        return waits

    def add_waits(self, waits: Sequence[StepWait]) -> None:
        for wait in waits:
            filters = to_json(dict(wait.filters))
            self._new_waits[wait.key, wait.step_id, wait.event_type] = (
                wait.key, wait.step_id, wait.event_type, wait.occurrence_id, wait.tenant, filters, wait.after,
                *wait.own,
            )  # fmt: skip

    def add_approvals(self, row: Row, approvals: Sequence[Approval]) -> None:
        self.write()
        stored = self._approvals.look_up_many("by_id", [(one.tenant, one.approval_id) for one in approvals])
        new = {(one.tenant, one.approval_id): one for one in approvals if (one.tenant, one.approval_id) not in stored}
        if new:
            numbers = self._uow.transaction.numbers("approvals", len(new))
            for number, approval in zip(numbers, new.values(), strict=True):
                self._approvals.add((number, *approval_values(row.key, approval)))

    def drop(self, row: Row, step_ids: Sequence[str]) -> None:
        if self._new_waits:
            self.write()  # they are written after what is dropped
        dropped_keys = self._dropped.setdefault(row.key, set())
        if dropped_keys is not None:
            dropped_keys.update(step_ids)

    def approval(self, tenant: str, approval_id: str) -> Approval | None:
        if self._dropped or self._closed:
            self.write()
        values = self._approvals.look_up("by_id", tenant, approval_id)
        approvals = [] if values is None else to_approvals([values[1:]], self._uow.report)
        return approvals[0] if approvals else None

    def put_approval(self, approval: Approval) -> None:
        values = self._approvals.look_up("by_id", approval.tenant, approval.approval_id)
        if values is not None:
            by = None if approval.by is None else storable(approval.by)
            comment = None if approval.comment is None else storable(approval.comment)
            decided = replace(approval, by=by, comment=comment)
            self._approvals.put((values[0], *approval_values(values[_OCCURRENCE], decided)))

    def approvals(self, tenant: str, limit: int, state: ApprovalState | None, before: PageKey | None) -> list[Approval]:
        """The approvals of a tenant, latest request first; damaged ones are left out."""
        index, partition = ("of_tenant", [tenant]) if state is None else ("of_state", [tenant, str(state)])
        rows = self._approvals.find(index, partition, before=before, limit=limit, newest_first=True)
        return to_approvals([values[1:] for values in rows], self._uow.report)

    # Versions, and who uses them

    def version(
        self, tenant: str, workflow_id: str, number: int | None = None, *, deleted: bool = False
    ) -> WorkflowVersion | None:
        if number is None:
            index = "in_order" if deleted else "listed"
            rows = self._versions.find(index, [tenant], prefix=[workflow_id], limit=1, newest_first=True)
        else:
            one = self._versions.look_up("by_version", tenant, workflow_id, number)
            rows = [] if one is None or (one[_DELETED] is not None and not deleted) else [one]
        try:
            return to_version(rows[0][1:]) if rows else None
        except Unreadable as error:
            raise StoreUnavailable(
                f"the stored record of workflow {workflow_id} is damaged: {error}; noonmark doctor says more"
            ) from None

    def count(self, tenant: str) -> int:
        return len(self._newest_keys(tenant, None, None))

    def put_version(self, version: WorkflowVersion) -> None:
        stored = self._versions.look_up("by_version", version.tenant, version.workflow_id, version.version)
        if stored is not None:
            self._versions.put((*stored[:_DELETED], None))
            return
        [key] = self._uow.transaction.numbers("workflows", 1)
        self._versions.add((
            key, version.tenant, version.workflow_id, version.version, to_json(dict(version.document)), version.digest,
            version.source, version.user, version.created, version.deleted,
        ))  # fmt: skip

    def delete_versions(self, tenant: str, workflow_id: str) -> None:
        now = self._uow.now()
        for values in self._versions.find("listed", [tenant], prefix=[workflow_id]):
            self._versions.put((*values[:_DELETED], now))

    def newest(self, tenant: str, limit: int, after: str | None) -> list[WorkflowVersion]:
        """The newest version of each workflow of a tenant, by id; damaged ones are left out."""
        keys = list(self._newest_keys(tenant, limit, after).values())[:limit]
        rows = self._versions.get_many((key,) for key in keys)
        return to_versions([values[1:] for values in rows.values()], self._uow.report)

    def versions(self, tenant: str, workflow_id: str, limit: int, before: int | None) -> list[WorkflowVersion]:
        """The versions of a workflow, newest first; damaged ones are left out."""
        end = None if before is None else (before,)
        rows = self._versions.find("listed", [tenant], prefix=[workflow_id], before=end, limit=limit, newest_first=True)
        return to_versions([values[1:] for values in rows], self._uow.report)

    def prune(self, before: Micros, limit: int) -> None:
        """Delete deleted versions that no run began with, but not the highest of a workflow."""
        for values in self._versions.find("deleted", before=(before,), limit=limit, hint=True):
            key, tenant, workflow_id, number = values[:4]
            highest = self._versions.find_keys("in_order", [tenant], prefix=[workflow_id], limit=1, newest_first=True)
            runs = self._runs.find_keys("of_version", [tenant, workflow_id], prefix=[number], limit=1)
            if highest != [(key,)] and not runs:
                self._versions.delete(key)

    def put_uses(self, schedule: int, tenant: str, uses: Sequence[TargetUse], *, is_new: bool) -> None:
        if not is_new:
            for values in self._uses.find("of_schedule", [schedule]):
                self._uses.delete(*values[:3])
        for kind, name in uses:
            values = (schedule, str(kind), name, tenant)
            self._uses.add(values) if is_new else self._uses.put(values)

    def schedules_using(self, tenant: str, kind: UsedKind, name: str, limit: int) -> list[str]:
        keys = self._uses.find_keys("by_name", [tenant, str(kind)], prefix=[name])
        schedules = self._uow.schedules.get_many((key,) for key, *_ in keys)
        return sorted(values[_SCHEDULE_ID] for values in schedules.values())[:limit]

    def _newest_keys(self, tenant: str, limit: int | None, after: str | None) -> dict[str, int]:
        """The key of the newest version of each workflow, by id: at least `limit` of them, if there are so many."""
        newest: dict[str, int] = {}
        begin: Values | None = None if after is None else (after,)
        while True:
            entries = self._versions.entries("listed", [tenant], after=begin, limit=AT_ONCE)
            newest.update((workflow_id, key) for workflow_id, _, key in entries)
            if len(entries) < AT_ONCE or (limit is not None and len(newest) > limit):
                return newest
            begin = entries[-1]

    # Runs, as callers read them

    def run(self, occurrence_id: str) -> tuple[WorkflowRun, list[StepRecord]] | None:
        """A run with its steps."""
        row = self._uow.row(occurrence_id)
        values = None if row is None else self._runs.get(row.key)
        if row is None or values is None:
            return None
        try:
            workflow_run = to_run(values)
        except Unreadable as error:
            raise StoreUnavailable(
                f"the stored record of workflow run {occurrence_id} is damaged: {error}; noonmark doctor says more"
            ) from None
        return workflow_run, self._to_steps(self._steps.find("of_run", [row.key]))

    def ended_elsewhere(self, occurrence_ids: Collection[str]) -> dict[str, list[StepRecord]]:
        """The external steps of runs that have ended."""
        self._uow.load_rows(occurrence_ids)
        rows = [row for one in sorted(occurrence_ids) if (row := self._uow.loaded_row(one)) is not None]
        keys = self._steps.find_each("ended_elsewhere", [(row.key,) for row in rows])
        self._steps.read(key for of_run in keys for key in of_run)
        return {
            row.id: self._to_steps(self._steps.get_many(of_run).values())
            for row, of_run in zip(rows, keys, strict=True)
            if of_run
        }

    def runs(
        self, tenant: str, limit: int, workflow_id: str | None, phases: Collection[Phase], before: PageKey | None
    ) -> list[tuple[WorkflowRun, Occurrence]]:
        """The runs of a tenant, latest start first; damaged ones are left out."""
        index, partition = ("of_tenant", [tenant]) if workflow_id is None else ("of_workflow", [tenant, workflow_id])
        size = max(limit, AT_ONCE) if phases else limit
        runs: list[tuple[WorkflowRun, Occurrence]] = []
        place: Any = before
        while len(runs) < limit:
            rows = self._runs.find(index, partition, before=place, limit=size, newest_first=True)
            runs += self._with_occurrences(rows, phases)
            if len(rows) < size:
                break
            place = (rows[-1][6], rows[-1][1])
        return runs[:limit]

    def _with_occurrences(
        self, run_rows: Sequence[Values], phases: Collection[Phase]
    ) -> Iterable[tuple[WorkflowRun, Occurrence]]:
        rows = {row.key: row for row in self._uow.rows_of([values[0] for values in run_rows])}
        wanted = [row for row in rows.values() if not phases or row.phase in phases]
        occurrences = {one.id: one for one in self._uow.occurrences_of(wanted)}
        for values in run_rows:
            try:
                run = to_run(values)
            except Unreadable as error:
                self._uow.report("workflow_runs", values[0], {"row": str(error)})
            else:
                if run.occurrence_id in occurrences:
                    yield run, occurrences[run.occurrence_id]

    def _to_steps(self, rows: Iterable[Values]) -> list[StepRecord]:
        return [to_step(values, self._uow.report) for values in rows]


def _step_key(place: StepPlace) -> Values:
    key, step_id, index = place
    return (key, step_id, WHOLE if index is None else index)
