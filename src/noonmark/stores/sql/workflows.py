"""Workflows in the tables: versions, runs with all steps, what these wait for, and approvals.

Steps and runs are collected, and written in bulk. The usual write of a node, which only says how steps are, needs no
lock but that of its row: see `write_plain`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import StoreUnavailable
from noonmark.core.filters.index import NONE, Discriminator, is_fields
from noonmark.core.json_values import storable
from noonmark.core.workflows.run import Compensation, StepPhase, StepRecord, WorkflowRun
from noonmark.ports.workflows import Approval, ApprovalState, WorkflowVersion
from noonmark.stores.rules import workflow_records as rules
from noonmark.stores.rules.records import Unreadable
from noonmark.stores.rules.workflow_records import StepWait
from noonmark.stores.rules.workflows import is_stale, may_be_stale
from noonmark.stores.sql.records import from_json, to_json
from noonmark.stores.sql.row_checks import RowCheck, describe_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.ports.workflows import StepWrites, UsedKind
    from noonmark.stores.rules.records import Row
    from noonmark.stores.rules.workflow_records import StepPlace, TargetUse, Topic, WaitQuestion
    from noonmark.stores.sql.session import Session, Values

    Report = Callable[[str, object, Mapping[str, str]], None]

VERSION_COLUMNS = (
    "tenant", "workflow_id", "version", "document", "digest", "source", "username", "created", "deleted",
)  # fmt: skip
RUN_COLUMNS = (
    "occurrence", "id", "tenant", "workflow_id", "version", "inputs", "started", "attempt", "closing",
)  # fmt: skip
STEP_COLUMNS = (
    "occurrence", "step_id", "element", "phase", "attempt", "started", "ended", "result", "error", "is_external",
    "ready", "sequence", "elements", "child", "compensation",
)  # fmt: skip
WAIT_COLUMNS = (
    "occurrence",
    "step_id",
    "event_type",
    "occurrence_id",
    "tenant",
    "filters",
    "since",
    "fields",
    "wanted",
)
APPROVAL_COLUMNS = (
    "approval_id", "tenant", "occurrence", "occurrence_id", "step_id", "message", "requested", "expires", "state",
    "decider", "comment", "decided",
)  # fmt: skip
USE_COLUMNS = ("schedule", "kind", "name", "tenant")
WHOLE = -1
"""The element of a step itself."""
_VERSIONS, _RUNS = RowCheck("workflows", VERSION_COLUMNS), RowCheck("workflow_runs", RUN_COLUMNS)
_STEPS, _WAITS = RowCheck("workflow_steps", STEP_COLUMNS), RowCheck("step_waits", WAIT_COLUMNS)
_APPROVALS = RowCheck("approvals", APPROVAL_COLUMNS)


def selected(columns: Sequence[str], table: str) -> str:
    """Columns of a table, as a query names them."""
    return ", ".join(f"{table}.{one}" for one in columns)


VERSION = f"""
    SELECT {selected(VERSION_COLUMNS, "workflows")} FROM workflows WHERE tenant = ? AND workflow_id = ? AND {{more}}
    ORDER BY version DESC LIMIT ?
"""
_COUNT = "SELECT count(DISTINCT workflow_id) FROM workflows WHERE tenant = ? AND deleted IS NULL"
_REVIVE = "UPDATE workflows SET deleted = NULL WHERE tenant = ? AND workflow_id = ? AND version = ?"
_DELETE = "UPDATE workflows SET deleted = ? WHERE tenant = ? AND workflow_id = ? AND deleted IS NULL"
UNUSED = """
    SELECT key FROM workflows WHERE deleted IS NOT NULL AND deleted < ?
    AND version < (
        SELECT max(other.version) FROM workflows AS other
        WHERE other.tenant = workflows.tenant AND other.workflow_id = workflows.workflow_id
    ) AND (
        SELECT 1 FROM workflow_runs AS run
        WHERE run.tenant = workflows.tenant AND run.workflow_id = workflows.workflow_id
        AND run.version = workflows.version LIMIT 1
    ) IS NULL ORDER BY deleted LIMIT ? /* quick: workflows */
"""
_USERS = """
    SELECT schedule_id FROM target_uses CROSS JOIN schedules ON schedules.key = schedule
    WHERE target_uses.tenant = ? AND kind = ? AND target_uses.name = ? ORDER BY schedule_id LIMIT ?
"""
STEPS = f"""
    SELECT {selected(STEP_COLUMNS, "workflow_steps")} FROM ROWS(bigint, text, bigint) AS j
    CROSS JOIN workflow_steps ON occurrence = j.c0 AND step_id = j.c1 AND element = j.c2
"""
# From each field to the next of a type: they are few, and there may be many waits.
WAIT_FIELDS = """
    WITH RECURSIVE one(tenant, event_type, fields) AS (
        SELECT c0, c1, (
            SELECT fields FROM step_waits WHERE step_waits.event_type = c1 AND step_waits.tenant = c0
            ORDER BY fields LIMIT 1
        ) FROM ROWS(text, text) AS j
        UNION ALL
        SELECT tenant, event_type, (
            SELECT step_waits.fields FROM step_waits
            WHERE step_waits.event_type = one.event_type AND step_waits.tenant = one.tenant
            AND step_waits.fields > one.fields ORDER BY step_waits.fields LIMIT 1
        ) FROM one WHERE fields IS NOT NULL
    )
    SELECT tenant, event_type, fields FROM one WHERE fields IS NOT NULL
"""
WAITS = f"""
    SELECT {selected(WAIT_COLUMNS, "step_waits")} FROM ROWS(text, text, text, text) AS j
    CROSS JOIN step_waits ON step_waits.event_type = j.c1 AND step_waits.tenant = j.c0
    AND step_waits.fields = j.c2 AND step_waits.wanted = j.c3 ORDER BY occurrence, step_id
"""
APPROVAL = f"SELECT {', '.join(APPROVAL_COLUMNS)} FROM approvals WHERE tenant = ? AND {{more}}"
_KNOWN_APPROVALS = "SELECT tenant, approval_id FROM approvals WHERE approval_id IN EACH(text)"
_DECIDE = """
    UPDATE approvals SET state = ?, decider = ?, comment = ?, decided = ? WHERE tenant = ? AND approval_id = ?
"""
_LAPSE = """
    UPDATE approvals SET state = CASE WHEN expires <= ? THEN 'expired' ELSE 'cancelled' END, decided = ?
    {source} WHERE {condition} AND state = 'pending'
"""
LAPSE_OF_RUNS = _LAPSE.format(source="", condition="occurrence IN EACH(bigint)")
LAPSE_OF_STEPS = _LAPSE.format(
    source="FROM ROWS(bigint, text) AS j", condition="approvals.occurrence = j.c0 AND approvals.step_id = j.c1"
)
# A row value is looked up as a key of its own: a step id alone is that of many runs.
DROP_WAITS = "DELETE FROM step_waits WHERE (occurrence, step_id) IN (SELECT c0, c1 FROM ROWS(bigint, text) AS j)"
CLOSE_STEPS = """
    UPDATE workflow_steps SET phase = 'cancelled', ended = ?
    WHERE occurrence IN EACH(bigint) AND phase IN ('pending', 'running')
"""
DELIVERED = """
    SELECT id, one.key, fence, losses, tenant FROM occurrences AS one CROSS JOIN schedules ON schedules.key = schedule
    WHERE id IN EACH(text) AND phase IN ('dispatching', 'awaiting_completion') /* quick: one */
"""
_FORGET_LOSSES = "UPDATE occurrences SET losses = 0 WHERE key IN EACH(bigint)"


class WorkflowRecords(rules.WorkflowRecords):
    """What a transaction has read and put; `write` writes it."""

    def __init__(self, session: Session, report: Report) -> None:
        self._session, self._report = session, report
        self._known: dict[StepPlace, StepRecord | None] = {}
        self._cleared: set[int] = set()
        self._to_clear: list[int] = []
        self._closed: list[int] = []
        self._dropped: list[tuple[int, str]] = []
        self._runs: dict[int, Values] = {}
        self._steps: dict[StepPlace, Values] = {}
        self._waits: dict[tuple[int, str, str], Values] = {}
        self._approvals: dict[tuple[str, str], Values] = {}
        self._used: list[int] = []
        """Schedules whose targets may name something else now."""
        self._uses: dict[int, list[Values]] = {}

    # Runs and steps

    def put_run(self, row: Row, tenant: str, run: WorkflowRun) -> None:
        self._runs[row.key] = run_values(row.key, row.id, tenant, run)

    def load_steps(self, places: Collection[StepPlace]) -> None:
        unknown = [one for one in dict.fromkeys(places) if one not in self._known and one[0] not in self._cleared]
        if unknown:
            self._known.update(dict.fromkeys(unknown))
            step_keys = [(key, step_id, WHOLE if index is None else index) for key, step_id, index in unknown]
            for columns in self._session.query(STEPS, step_keys):
                step = to_step(columns, self._report)
                self._known[columns[0], step.step_id, step.index] = step

    def step(self, place: StepPlace) -> StepRecord | None:
        self.load_steps([place])
        return self._known.get(place)

    def put_steps(self, row: Row, steps: Sequence[StepRecord]) -> None:
        for step in steps:
            place = (row.key, step.step_id, step.index)
            self._known[place], self._steps[place] = step, step_values(row.key, step)

    def clear(self, row: Row) -> None:
        self._cleared.add(row.key)
        self._to_clear.append(row.key)
        for places in (self._steps, self._known):
            for place in [one for one in places if one[0] == row.key]:
                del places[place]

    def close(self, row: Row) -> None:
        self._closed.append(row.key)

    # Waits and approvals

    def wait_fields(self, topics: Collection[Topic]) -> dict[Topic, list[str]]:
        by_topic: dict[Topic, list[str]] = {}
        for tenant, event_type, fields in self._session.query(WAIT_FIELDS, list(topics)):
            if fields == NONE.fields or is_fields(fields):  # else it is damaged, and no event has such fields
                by_topic.setdefault((tenant, event_type), []).append(fields)
        return by_topic

    def waits(self, questions: Collection[WaitQuestion]) -> list[StepWait]:
        waits = []
        for columns in self._session.query(WAITS, [(*topic, *own) for topic, own in questions]):
            key, step_id, event_type, occurrence_id, tenant, _, after, fields, wanted = columns
            try:
                read = to_filters(columns)
            except Unreadable as error:
                self._report("step_waits", f"{key}, {step_id}", {"row": str(error)})
            else:
                own = Discriminator(fields, wanted)
                waits.append(StepWait(key, occurrence_id, step_id, tenant, event_type, read, after, own))
        return waits

    def add_waits(self, waits: Sequence[StepWait]) -> None:
        for wait in waits:
            filters = to_json(dict(wait.filters))
            self._waits[wait.key, wait.step_id, wait.event_type] = (
                wait.key, wait.step_id, wait.event_type, wait.occurrence_id, wait.tenant, filters, wait.after,
                *wait.own,
            )  # fmt: skip

    def add_approvals(self, row: Row, approvals: Sequence[Approval]) -> None:
        for one in approvals:
            self._approvals.setdefault((one.tenant, one.approval_id), approval_values(row.key, one))

    def drop(self, row: Row, step_ids: Sequence[str]) -> None:
        if self._waits or self._approvals:
            self.write()  # they are written after what is dropped
        self._dropped += [(row.key, one) for one in step_ids]

    def withdraw(self, row: Row) -> None:
        """Delete the approvals of a row that is removed."""
        self._session.delete("approvals", "occurrence", [row.key])

    def approval(self, tenant: str, approval_id: str) -> Approval | None:
        query = APPROVAL.format(more="approval_id = ?")
        return next(iter(to_approvals(self._session.query(query, tenant, approval_id), self._report)), None)

    def put_approval(self, approval: Approval) -> None:
        self._session.execute(
            _DECIDE,
            str(approval.state),
            None if approval.by is None else storable(approval.by),
            None if approval.comment is None else storable(approval.comment),
            approval.decided,
            approval.tenant,
            approval.approval_id,
        )

    # Versions, and who uses them

    def version(
        self, tenant: str, workflow_id: str, number: int | None = None, *, deleted: bool = False
    ) -> WorkflowVersion | None:
        return version(self._session, tenant, workflow_id, number, deleted=deleted)

    def count(self, tenant: str) -> int:
        return int(self._session.query(_COUNT, tenant)[0][0])

    def put_version(self, version: WorkflowVersion) -> None:
        stored = self.version(version.tenant, version.workflow_id, version.version, deleted=True)
        if stored is not None:
            self._session.execute(_REVIVE, version.tenant, version.workflow_id, version.version)
            return
        [key] = self._session.numbers("workflows", 1)
        values = (
            key, version.tenant, version.workflow_id, version.version, to_json(dict(version.document)), version.digest,
            version.source, version.user, version.created, version.deleted,
        )  # fmt: skip
        self._session.insert("workflows", ("key", *VERSION_COLUMNS), [values])

    def delete_versions(self, tenant: str, workflow_id: str) -> None:
        self._session.execute(_DELETE, self._session.now(), tenant, workflow_id)

    def put_uses(self, schedule: int, tenant: str, uses: Sequence[TargetUse], *, is_new: bool) -> None:
        if not is_new:
            self._used.append(schedule)
        self._uses[schedule] = [(schedule, str(kind), name, tenant) for kind, name in uses]

    def schedules_using(self, tenant: str, kind: UsedKind, name: str, limit: int) -> list[str]:
        return users(self._session, tenant, kind, name, limit)

    def write(self) -> None:
        """Write everything that was put; what is dropped first, since it may be put again, and ends last."""
        session, now = self._session, self._session.now
        if self._to_clear:
            session.delete("workflow_steps", "occurrence", self._to_clear)
            lapse(session, self._to_clear, now())
            self._to_clear.clear()
        if self._dropped:
            session.execute(DROP_WAITS, self._dropped)
            session.execute(LAPSE_OF_STEPS, now(), now(), self._dropped)
            self._dropped.clear()
        self._put("workflow_runs", RUN_COLUMNS, self._runs, key=1)
        self._put("workflow_steps", STEP_COLUMNS, self._steps, key=3)
        self._put("step_waits", WAIT_COLUMNS, self._waits, key=3)
        if self._approvals:
            stored_approvals = {*session.query(_KNOWN_APPROVALS, [one for _, one in self._approvals])}
            new = [values for name, values in self._approvals.items() if name not in stored_approvals]
            self._approvals.clear()
            if new:
                numbers = session.numbers("approvals", len(new))
                rows = [(number, *values) for number, values in zip(numbers, new, strict=True)]
                session.insert("approvals", ("key", *APPROVAL_COLUMNS), rows)
        if self._used:
            session.delete("target_uses", "schedule", self._used)
            self._used.clear()
        if uses := [one for each in self._uses.values() for one in each]:
            session.insert("target_uses", USE_COLUMNS, uses)
        self._uses.clear()
        if self._closed:
            close_runs(session, self._closed, now())
            self._closed.clear()

    def _put(self, table: str, columns: tuple[str, ...], rows: dict[Any, Values], *, key: int) -> None:
        if rows:
            self._session.put(table, columns, list(rows.values()), key=key)
            rows.clear()


def write_plain(session: Session, writes: Sequence[StepWrites], report: Report) -> set[int]:
    """Carry out the writes that only say how a run and its steps are; returns the places of those that are done.

    A run that another transaction is changing, and one that several writes are about, is left to the rules.
    """
    times = Counter(one.occurrence_id for one in writes)
    plain = {place: one for place, one in enumerate(writes) if times[one.occurrence_id] == 1 and _is_plain(one)}
    if not plain:
        return set()
    ids = [one.occurrence_id for one in plain.values()]
    found = session.gather("id, key, fence, losses, tenant", f"({DELIVERED}) AS found", ids)
    rows = {(occurrence_id, fence): (key, losses, tenant) for occurrence_id, key, fence, losses, tenant in found}
    held = {
        place: (one, *row)
        for place, one in plain.items()
        if (row := rows.get((one.occurrence_id, one.fence))) is not None
    }
    stale = _stale(session, report, [(one, key) for one, key, _, _ in held.values()])
    runs: list[Values] = []
    steps: dict[Values, Values] = {}
    recovered: list[int] = []
    for one, key, losses, tenant in held.values():
        if one.run is not None:
            runs.append(run_values(key, one.occurrence_id, tenant, one.run))
        for step in one.steps:
            values = step_values(key, step)
            if values[:3] not in stale:
                steps[values[:3]] = values
        if losses and any(step.ended is not None for step in one.steps):
            recovered.append(key)
    if runs:
        session.put("workflow_runs", RUN_COLUMNS, runs, key=1)
    if steps:
        session.put("workflow_steps", STEP_COLUMNS, list(steps.values()), key=3)
    if recovered:
        session.execute(_FORGET_LOSSES, recovered)
    return set(held)


def _is_plain(writes: StepWrites) -> bool:
    return not (writes.waits or writes.approvals or writes.children or writes.cancelled or writes.clears)


def _stale(session: Session, report: Report, writes: Sequence[tuple[StepWrites, int]]) -> set[Values]:
    """The primary keys of external steps that somebody has ended, and that their nodes still take for open."""
    steps_by_key = {step_values(key, step)[:3]: step for one, key in writes for step in one.steps if may_be_stale(step)}
    rows = session.query(STEPS, list(steps_by_key)) if steps_by_key else []
    return {one[:3] for one in rows if is_stale(steps_by_key[one[:3]], to_step(one, report))}


def close_runs(session: Session, keys: Sequence[int], now: Micros) -> None:
    """Runs have ended: what is pending or running is cancelled, and nothing waits any more."""
    session.execute(CLOSE_STEPS, now, list(keys))
    lapse(session, keys, now)


def lapse(session: Session, keys: Sequence[int], now: Micros) -> None:
    """Runs wait for nothing any more."""
    session.delete("step_waits", "occurrence", list(keys))
    session.execute(LAPSE_OF_RUNS, now, now, list(keys))


def forget(session: Session, keys: Sequence[int]) -> None:
    """Delete what is stored about runs."""
    for table in ("workflow_steps", "step_waits", "approvals", "workflow_runs"):
        session.delete(table, "occurrence", list(keys))


def prune(session: Session, *, before: Micros, limit: int) -> None:
    """Delete deleted versions that no run began with, but not the highest of a workflow."""
    rows = session.query(UNUSED, before, limit)
    if rows:
        session.delete("workflows", "key", [key for (key,) in rows])


def users(session: Session, tenant: str, kind: UsedKind, name: str, limit: int) -> list[str]:
    """The ids of the schedules that name a workflow or a bundle, in order."""
    return [schedule_id for (schedule_id,) in session.query(_USERS, tenant, str(kind), name, limit)]


def version(
    session: Session, tenant: str, workflow_id: str, number: int | None, *, deleted: bool
) -> WorkflowVersion | None:
    """A version, or the newest."""
    more = " AND ".join(
        [*(["deleted IS NULL"] if not deleted else []), *(["version = ?"] if number is not None else [])] or ["1 = 1"]
    )
    given = [] if number is None else [number]
    rows = session.query(VERSION.format(more=more), tenant, workflow_id, *given, 1)
    if not rows:
        return None
    try:
        return to_version(rows[0])
    except Unreadable as error:
        raise StoreUnavailable(
            f"the stored record of workflow {workflow_id} is damaged: {error}; noonmark doctor says more"
        ) from None


def run_values(key: int, occurrence_id: str, tenant: str, run: WorkflowRun) -> Values:
    """The columns of a run."""
    return (
        key, occurrence_id, tenant, run.workflow_id, run.version, to_json(run.inputs), run.started, run.attempt,
        to_json(run.closing),
    )  # fmt: skip


def step_values(key: int, step: StepRecord) -> Values:
    """The columns of a step of the run with that key."""
    return (
        key, step.step_id, WHOLE if step.index is None else step.index, str(step.phase), step.attempt, step.started,
        step.ended, to_json(step.result), None if step.error is None else storable(step.error), int(step.is_external),
        step.ready, step.sequence, step.count, step.child, step.compensation,
    )  # fmt: skip


def approval_values(key: int, approval: Approval) -> Values:
    """The columns of an approval of the run with that key."""
    return (
        approval.approval_id, approval.tenant, key, approval.occurrence_id, approval.step_id,
        storable(approval.message), approval.requested, approval.expires, str(approval.state), approval.by,
        approval.comment, approval.decided,
    )  # fmt: skip


def to_step(columns: Values, report: Report) -> StepRecord:
    """A step; one whose record is damaged has failed."""
    (key, step_id, element, phase, attempt, started, ended, result, error, is_external, ready) = columns[:11]
    sequence, elements, child, compensation = columns[11:]
    index = None if element == WHOLE else element
    try:
        value = _checked(_STEPS, columns, result=result)["result"]
    except Unreadable as problem:
        report("workflow_steps", f"{key}, {step_id}, {element}", {"row": str(problem)})
        index = index if isinstance(index, int) else None
        error = f"the stored record of this step is damaged: {problem}"
        return StepRecord(step_id=str(step_id), index=index, phase=StepPhase.FAILED, ended=0, error=error)
    return StepRecord(
        step_id=step_id,
        index=index,
        phase=StepPhase(phase),
        attempt=attempt,
        started=started,
        ended=ended,
        result=value,
        error=error,
        is_external=is_external == 1,
        ready=ready,
        sequence=sequence,
        count=elements,
        child=child,
        compensation=None if compensation is None else Compensation(compensation),
    )


def to_filters(columns: Values) -> Mapping[str, Any]:
    """The filters of a wait; raises `Unreadable`."""
    filters: Mapping[str, Any] = _checked(_WAITS, columns, filters=columns[5])["filters"]
    return filters


def _checked(check: RowCheck, columns: Values, **texts: str | None) -> dict[str, Any]:
    """The values of JSON columns of a row that is sound."""
    if problems := check.problems(columns):
        raise Unreadable(describe_problems(problems))
    try:
        return {name: from_json(text, name) for name, text in texts.items()}
    except RecursionError:
        raise Unreadable("its JSON is too deep") from None


def to_version(columns: Values) -> WorkflowVersion:
    """A version; raises `Unreadable`."""
    tenant, workflow_id, number, document, digest, source, user, created, deleted = columns
    version_document = _checked(_VERSIONS, columns, document=document)["document"]
    if not isinstance(version_document, dict):
        raise Unreadable("its document is not an object")
    return WorkflowVersion(
        tenant=tenant,
        workflow_id=workflow_id,
        version=number,
        document=version_document,
        digest=digest,
        source=source,
        created=created,
        user=user,
        deleted=deleted,
    )


def to_versions(rows: Iterable[Values], report: Report) -> list[WorkflowVersion]:
    """Versions; damaged ones are left out."""
    versions = []
    for columns in rows:
        try:
            versions.append(to_version(columns))
        except Unreadable as error:
            report("workflows", f"{columns[0]}, {columns[1]}, {columns[2]}", {"row": str(error)})
    return versions


def to_run(columns: Values) -> WorkflowRun:
    """A run; raises `Unreadable`."""
    _, occurrence_id, _, workflow_id, number, inputs, started, attempt, closing = columns
    values = _checked(_RUNS, columns, inputs=inputs, closing=closing)
    if not isinstance(values["inputs"], dict) or not isinstance(values["closing"], dict | None):
        raise Unreadable("its inputs or its closing are not objects")
    return WorkflowRun(
        occurrence_id=occurrence_id,
        workflow_id=workflow_id,
        version=number,
        inputs=values["inputs"],
        started=started,
        attempt=attempt,
        closing=values["closing"],
    )


def to_approvals(rows: Iterable[Values], report: Report) -> list[Approval]:
    """Approvals; damaged ones are left out."""
    approvals = []
    for columns in rows:
        if problems := _APPROVALS.problems(columns):
            report("approvals", columns[0], problems)
            continue
        approval_id, tenant, _, occurrence_id, step_id, message, requested, expires, state, by, comment, at = columns
        approvals.append(
            Approval(
                approval_id=approval_id,
                tenant=tenant,
                occurrence_id=occurrence_id,
                step_id=step_id,
                message=message,
                requested=requested,
                expires=expires,
                state=ApprovalState(state),
                by=by,
                comment=comment,
                decided=at,
            )
        )
    return approvals
