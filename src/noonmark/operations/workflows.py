"""Workflows: create, get, list, delete and run them; and their runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from noonmark.core.documents import Reader, present
from noonmark.core.errors import (
    Conflict,
    InvalidSchedule,
    InvalidWorkflow,
    KeyReused,
    NotAllowed,
    NotFound,
    Problem,
    QuotaExceeded,
    refusal,
)
from noonmark.core.explain import what_steps_wait_for
from noonmark.core.ids import visible_id
from noonmark.core.lifecycle import FINAL, LIVE, Phase
from noonmark.core.occurrence import Overrides, in_force
from noonmark.core.quotas import Resource
from noonmark.core.schedule import TRUSTED, Owner
from noonmark.core.targets import WorkflowTarget, read_target
from noonmark.core.workflows.definition import check_inputs, parse_definition, restore_definition
from noonmark.core.workflows.flows import flow_inputs, flow_workflow
from noonmark.core.workflows.hidden_schedules import hidden_schedule, runs_id
from noonmark.core.workflows.progress import results
from noonmark.core.workflows.run import StepPhase, StepRecord, WaitingFor, approval_id, waits_for
from noonmark.operations import occurrences, schedule_edits
from noonmark.operations.explain import open_children
from noonmark.operations.history import ScheduleReader
from noonmark.operations.models.arguments import Cancellation
from noonmark.operations.models.fields import write_cursor
from noonmark.operations.secrets import check_secrets
from noonmark.operations.serializers import (
    MAX_BYTES,
    lost_nodes,
    occurrence_document,
    read_page,
    size_of,
    text,
    visible,
)
from noonmark.operations.service import cause_of_run, quotas_of, record_audit_entry
from noonmark.operations.target_policy import check_agent, check_target, target_warnings, unserved_by
from noonmark.ports.workflows import WorkflowVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.core.targets import Target
    from noonmark.core.targets.mob import MobFlowTarget
    from noonmark.core.workflows.definition import Definition, Step
    from noonmark.core.workflows.run import StepKey, WorkflowRun
    from noonmark.operations.models.arguments import (
        OneWorkflowRun,
        WorkflowDeletion,
        WorkflowLookup,
        WorkflowQuery,
        WorkflowRunCancellation,
        WorkflowRunQuery,
        WorkflowRunRequest,
        WorkflowVersionQuery,
    )
    from noonmark.operations.service import Caller, Service

    Listed = tuple[WorkflowRun, Occurrence]

MAX_WORKFLOWS = 10_000
"""How many workflows a tenant may have."""
MAX_NAMED = 20
"""How many schedules the refusal to delete a workflow names."""


def create_workflow(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Create a version of a workflow; the definition of the newest version again is that version."""
    definition, number = parse_definition(dict(arguments))
    tenant, workflow_id = caller.owner.tenant, definition.workflow_id
    newest = service.store.workflow(tenant, workflow_id)
    if newest is not None:
        _check_owner(caller, newest)
    _check_targets(service, caller, definition)
    now = service.store.clock()
    version = service.store.put_workflow(
        WorkflowVersion(
            tenant=tenant,
            workflow_id=workflow_id,
            document=definition.to_document(),
            digest=definition.digest,
            source=caller.source,
            created=now,
            user=caller.owner.user,
        ),
        version_number=number,
        most=None if caller.is_root else MAX_WORKFLOWS,
        note=caller.audit(f"workflow {workflow_id}")(None, None, now=now),
    )
    if version is None:
        raise QuotaExceeded(f"the tenant has {MAX_WORKFLOWS:,} workflows, the most that it may have")
    return {
        "workflow_id": workflow_id,
        "version": version.version,
        "warnings": definition_warnings(service, version, definition),
    }


def _check_owner(caller: Caller, version: WorkflowVersion) -> None:
    """Refuse a new version of a workflow of somebody else."""
    if not _sees(caller, version):
        raise Conflict(f"{version.workflow_id!r} belongs to another owner", field="workflow_id")
    if version.source == TRUSTED and caller.source != TRUSTED:
        raise NotAllowed(
            "a program declared this workflow, and only a program can change what it does", field="workflow_id"
        )


def _check_targets(service: Service, caller: Caller, definition: Definition) -> None:
    """Refuse targets as those of schedules are refused; the error lists all problems. A program may do anything."""
    problems: list[Problem] = []
    tenant = caller.owner.tenant
    for path, target in _targets(definition):
        try:
            if caller.source != TRUSTED:
                check_target(service, tenant, target, field=path)
                check_agent(service, caller, target, field=path)
            check_secrets(service.store, tenant, target, field=path)
        except InvalidSchedule as error:
            problems += [Problem(problem.field, problem.message, InvalidWorkflow.code) for problem in error.problems]
    if problems:
        raise refusal(problems)


def _targets(definition: Definition) -> Iterator[tuple[str, Target]]:
    """The targets of the steps, and what undoes them, with their places in the document."""
    for index, step in enumerate(definition.steps):
        for name, document in (("target", step.target), ("compensate", step.compensate)):
            if document is not None:
                reader = Reader({name: document}, path="", code="", problems=[])
                target = read_target(reader, name, is_known=lambda _: True)
                assert target is not None  # noqa: S101 - the definition was read before
                yield f"steps[{index}].{name}", target


def definition_warnings(service: Service, version: WorkflowVersion, definition: Definition) -> list[str]:
    """What may surprise about a definition: targets that no live node serves, and workflows that do not exist."""
    warnings: dict[str, str] = {}
    for path, target in _targets(definition):
        for warning in target_warnings(service, version.tenant, target, version.source):
            warnings.setdefault(warning, path)
    return [f"{path}: {warning}" for warning, path in warnings.items()]


def get_workflow(service: Service, caller: Caller, arguments: WorkflowLookup) -> dict[str, Any]:
    """Get a version of a workflow; by default the newest."""
    version = find_version(service, caller, arguments.workflow_id, arguments.version)
    document = version.document
    return {
        "workflow_id": version.workflow_id,
        "version": version.version,
        "name": document.get("name"),
        "description": document.get("description", ""),
        "inputs": document.get("inputs"),
        "steps": document["steps"],
        "on_failure": document.get("on_failure", "stop"),
        "source": version.source,
        "created_by": version.user,
        "created_at_utc": text(version.created),
        "warnings": definition_warnings(service, version, restore_definition(document)),
    }


def list_workflows(service: Service, caller: Caller, arguments: WorkflowQuery) -> dict[str, Any]:
    """List the workflows by id, each with its newest version."""
    start = None if arguments.cursor is None else arguments.cursor[0]

    def read(count: int, place: str | None) -> Sequence[WorkflowVersion]:
        return service.store.workflows(caller.owner.tenant, count, after=place)

    fetch = visible(read, lambda version: version.workflow_id, lambda version: _sees(caller, version), start)
    entries, end = read_page(arguments.limit, fetch, lambda page: [_version_document(one) for one in page])
    return {"workflows": entries, "next_cursor": None if end is None else write_cursor(end.workflow_id)}


def list_versions(service: Service, caller: Caller, arguments: WorkflowVersionQuery) -> dict[str, Any]:
    """List the versions of a workflow, newest first."""
    workflow_id = find_version(service, caller, arguments.workflow_id).workflow_id
    start = None if arguments.cursor is None else arguments.cursor[0]

    def fetch(count: int, last: WorkflowVersion | None) -> list[WorkflowVersion]:
        before = start if last is None else last.version
        return service.store.workflow_versions(caller.owner.tenant, workflow_id, count, before=before)

    entries, end = read_page(arguments.limit, fetch, lambda page: [_version_document(one) for one in page])
    return {"versions": entries, "next_cursor": None if end is None else write_cursor(end.version)}


def _version_document(version: WorkflowVersion) -> dict[str, Any]:
    """A version without its definition."""
    return {
        "workflow_id": version.workflow_id,
        "version": version.version,
        "name": version.document.get("name"),
        "description": version.document.get("description", ""),
        "step_count": len(version.document["steps"]),
        "source": version.source,
        "created_by": version.user,
        "created_at_utc": text(version.created),
    }


def delete_workflow(service: Service, caller: Caller, arguments: WorkflowDeletion) -> dict[str, Any]:
    """Delete a workflow with all its versions, unless schedules name it; runs that have begun go on."""
    version = find_version(service, caller, arguments.workflow_id)
    about = _with_reason(f"workflow {version.workflow_id}", arguments.reason)
    note = caller.audit(about)(None, None, now=service.store.clock())
    naming = service.store.delete_workflow(caller.owner.tenant, version.workflow_id, note=note)
    if naming is None:  # deleted a moment ago
        raise _unknown(version.workflow_id)
    if naming:
        more = f" and {len(naming) - MAX_NAMED:,} more" if len(naming) > MAX_NAMED else ""
        raise Conflict(
            f"schedules name this workflow: {', '.join(naming[:MAX_NAMED])}{more}; delete or change them first",
            field="workflow_id",
        )
    return {"workflow_id": version.workflow_id, "version": version.version}


def find_version(service: Service, caller: Caller, workflow_id: str, number: int | None = None) -> WorkflowVersion:
    """Find a version of a workflow that the caller sees, by default the newest; NotFound if there is none."""
    newest = service.store.workflow(caller.owner.tenant, workflow_id)
    if newest is None or not _sees(caller, newest):
        raise _unknown(workflow_id)
    if number is None or number == newest.version:
        return newest
    version = service.store.workflow(caller.owner.tenant, workflow_id, number)
    if version is None:
        raise NotFound(
            f"the workflow {workflow_id!r} has no version {number}; the newest is {newest.version}", field="version"
        )
    return version


def _sees(caller: Caller, version: WorkflowVersion) -> bool:
    return not caller.sees_own_only or version.user == caller.owner.user


def _unknown(workflow_id: str) -> NotFound:
    return NotFound(f"there is no workflow {workflow_id!r}", field="workflow_id")


def _with_reason(what: str, reason: str | None) -> str:
    return what if reason is None else f"{what}: {reason}"


def run_workflow(service: Service, caller: Caller, arguments: WorkflowRunRequest) -> dict[str, Any]:
    """Run a workflow now. The same key again returns the same run."""
    return start_run(
        service,
        caller,
        find_version(service, caller, arguments.workflow_id, arguments.version),
        inputs=arguments.inputs or {},
        payload=arguments.payload,
        key=arguments.key,
        is_pinned=arguments.version is not None,
        reason=arguments.reason,
    )


def arguments_of_launch(
    service: Service, caller: Caller, workflow_id: str, number: int | None, meta: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of a run that gets `meta` as its payload, and what it declares of that as its inputs."""
    version = find_version(service, caller, workflow_id, number)
    declared = restore_definition(version.document).inputs
    is_trusted = version.source == TRUSTED
    inputs = {} if declared is None and is_trusted else meta
    if declared is not None:
        inputs = {name: value for name, value in meta.items() if name in declared}
    payload = None if is_trusted else meta
    return present(workflow_id=workflow_id, version=number, inputs=inputs, payload=payload)


def start_run(  # noqa: PLR0913 - what a caller may say about a run
    service: Service,
    caller: Caller,
    version: WorkflowVersion,
    *,
    inputs: dict[str, Any],
    payload: Any = None,
    key: str | None = None,
    is_pinned: bool = False,
    reason: str | None = None,
    expect: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Start a run of a version, as an occurrence of the hidden schedule of its workflow.

    `expect` is called with the id of the run before that is stored.
    """
    definition = restore_definition(version.document)
    if version.source == TRUSTED and caller.source != TRUSTED:
        _check_accepted(definition, inputs, payload)
    check_inputs(definition, inputs)
    schedule = _run_schedule(service, version)
    behind, key = cause_of_run(service, caller, schedule.schedule_id, key)
    target = WorkflowTarget(workflow_id=version.workflow_id, version=version.version, inputs=inputs)
    requested = schedule_edits.run_now(
        schedule,
        key=key or service.fresh_id(),
        payload=payload,
        now=service.store.clock(),
        overrides=Overrides(target=target, behind=behind, scopes=caller.granted),
    )
    if expect is not None:
        expect(requested.id)
    if (occurrence := service.store.occurrence(requested.id)) is None:
        service.store.add([requested], limits=quotas_of(service, caller, Resource.QUEUED))
        service.wake(None)
        about = f"workflow {version.workflow_id} version {version.version}, run {requested.id}"
        record_audit_entry(service, caller, _with_reason(about, reason))
        occurrence = service.store.occurrence(requested.id) or requested
    elif not _is_same(occurrence, requested, is_pinned=is_pinned):
        raise KeyReused("this key came with other inputs, another payload or another version before", field="key")
    return run_document(service, occurrence, schedule)


def _check_accepted(definition: Definition, inputs: dict[str, Any], payload: object) -> None:
    """Refuse what a caller would pass to the functions of a program that did not ask for it."""
    if inputs and definition.inputs is None:
        raise NotAllowed(
            "a program declared this workflow without `inputs`, so it takes none from callers", field="inputs"
        )
    if payload is not None:
        raise NotAllowed("a program declared this workflow, and it takes no payloads from callers", field="payload")


def _is_same(stored: Occurrence, requested: Occurrence, *, is_pinned: bool) -> bool:
    """Whether a run is the one that is requested again; the newest version may be another one by now."""
    before, after = (one.overrides.target if one.overrides is not None else None for one in (stored, requested))
    if not isinstance(before, WorkflowTarget) or not isinstance(after, WorkflowTarget):
        return False
    same_version = not is_pinned or before.version == after.version
    return same_version and (stored.payload, before.inputs) == (requested.payload, after.inputs)


def _run_schedule(service: Service, version: WorkflowVersion) -> Schedule:
    """The hidden schedule of the runs of a workflow that callers ask for; it is created with the first one."""
    schedule_id, owner = runs_id(version.workflow_id), Owner(tenant=version.tenant, user=version.user)
    while (stored := service.store.find(version.tenant, schedule_id)) is None:
        schedule = hidden_schedule(
            schedule_id, uid=service.fresh_id(), owner=owner, source=version.source, now=service.store.clock()
        )
        schedule_edits.create(service.store, schedule, lookahead=service.lookahead)
    return stored.schedule


def get_workflow_run(service: Service, caller: Caller, arguments: OneWorkflowRun) -> dict[str, Any]:
    """Get a run of a workflow, with its steps."""
    occurrence, schedule = find_run(service, caller, arguments.workflow_run_id)
    return run_document(service, occurrence, schedule)


def find_run(service: Service, caller: Caller, workflow_run_id: str) -> tuple[Occurrence, Schedule]:
    """Find a run of a workflow that the caller sees, with its schedule; NotFound if there is none."""
    unknown = NotFound(f"there is no workflow run {workflow_run_id!r}", field="workflow_run_id")
    try:
        occurrence, schedule = occurrences.find_occurrence(service, caller, workflow_run_id)
    except NotFound:
        raise unknown from None
    is_run = occurrence.route == WorkflowTarget.route or service.store.workflow_run(occurrence.id) is not None
    if not is_run:  # that of a bundle is one once it has begun
        raise unknown
    return occurrence, schedule


def cancel_workflow_run(service: Service, caller: Caller, arguments: WorkflowRunCancellation) -> dict[str, Any]:
    """Cancel a run of a workflow; its running steps are asked to stop, and completed ones are compensated."""
    run_id = arguments.workflow_run_id
    find_run(service, caller, run_id)
    about = _with_reason(f"run {run_id}", arguments.reason)
    occurrences.cancel(service, caller, Cancellation(occurrence_id=run_id, reason=about))
    occurrence, schedule = find_run(service, caller, run_id)
    return run_document(service, occurrence, schedule)


def list_workflow_runs(service: Service, caller: Caller, arguments: WorkflowRunQuery) -> dict[str, Any]:
    """List the runs of workflows, latest first."""
    schedules = ScheduleReader(service)
    phases = frozenset(arguments.phase or ())

    def read(count: int, place: tuple[int, str] | None) -> Sequence[Listed]:
        return service.store.workflow_runs(
            caller.owner.tenant, count, workflow_id=arguments.workflow_id, phases=phases, before=place
        )

    def is_seen(row: Listed) -> bool:
        return _is_seen(caller, schedules.of(row[1]))

    def serialize(page: Sequence[Listed]) -> list[dict[str, Any]]:
        ended = [row.id for _, row in page if row.phase in FINAL and row.has_begun]
        last = service.store.last_runs(ended) if ended else {}
        entries = [_summary(service, run, occurrence, schedules.of(occurrence)) for run, occurrence in page]
        return [
            entry | {"error": last[row.id].error} if row.id in last else entry
            for entry, (_, row) in zip(entries, page, strict=True)
        ]

    entries, end = read_page(arguments.limit, visible(read, _place, is_seen, arguments.cursor), serialize)
    return {"workflow_runs": entries, "next_cursor": None if end is None else write_cursor(*_place(end))}


def _is_seen(caller: Caller, schedule: Schedule | None) -> bool:
    return schedule is not None and caller.sees(schedule)


def _place(row: Listed) -> tuple[Micros, str]:
    run, occurrence = row
    return run.started, occurrence.id


def run_document(service: Service, occurrence: Occurrence, schedule: Schedule) -> dict[str, Any]:
    """A run of a workflow with its steps."""
    run, records = service.store.workflow_run(occurrence.id) or (None, [])
    document = _summary(service, run, occurrence, schedule)
    if (definition := _definition(service, schedule, document)) is not None:
        by_key = {record.key: record for record in records}
        document["steps"] = _steps(occurrence, run, definition, by_key)
        if occurrence.phase is Phase.COMPLETED:
            document["result"] = results(definition, by_key)
        elif occurrence.phase not in FINAL:
            children = open_children(service.store, records, service.permissions)
            document["why"] = what_steps_wait_for(definition, records, children) or document["why"]
    else:
        document["steps"] = []
    if occurrence.phase in FINAL and occurrence.has_begun:
        runs = service.store.occurrence_runs(occurrence.id)
        document["error"] = runs[0].error if runs else None
    return _fitting(document)


def _summary(
    service: Service, run: WorkflowRun | None, occurrence: Occurrence, schedule: Schedule | None
) -> dict[str, Any]:
    """A run of a workflow without its steps."""
    assert schedule is not None  # noqa: S101 - the caller has found it
    nodes = service.store.nodes() if occurrence.phase in LIVE else []
    missing = unserved_by(nodes, schedule, service.permissions)
    lost = lost_nodes(nodes, [occurrence], now=service.store.clock())
    about = occurrence_document(occurrence, schedule, unserved=missing, lost=lost)
    if run is None:
        target = in_force(schedule, occurrence).declaration.target
        if not isinstance(target, WorkflowTarget):  # by its route, it is a flow of a mob
            flow = cast("MobFlowTarget", target)
            workflow_id, inputs = flow_workflow(flow.mob_id, flow.flow_id), flow_inputs(flow.params)
            target = WorkflowTarget(workflow_id=workflow_id, inputs=inputs)
        workflow_id, number, inputs = target.workflow_id, target.version, target.inputs
        if number is None:
            newest = service.store.workflow(schedule.owner.tenant, workflow_id)
            number = None if newest is None else newest.version
    else:
        workflow_id, number, inputs = run.workflow_id, run.version, run.inputs
    return {
        "workflow_run_id": occurrence.id,
        "workflow_id": workflow_id,
        "version": number,
        "phase": about["phase"],
        "reason": about["reason"],
        "why": about["why"],
        "waiting_for": about["waiting_for"],
        "schedule_id": visible_id(schedule.schedule_id),
        "inputs": inputs,
        "attempt": about["attempt"],
        "due_at_utc": about["due_at_utc"],
        "started_at_utc": None if run is None or not run.has_begun else text(run.started),
        "ended_at_utc": text(occurrence.ended),
        "steps": None,
        "result": None,
        "error": None,
    }


def _definition(service: Service, schedule: Schedule, document: Mapping[str, Any]) -> Definition | None:
    """The definition of a run, even if it was deleted since; None if there is none."""
    if document["version"] is None:
        return None
    version = service.store.workflow(schedule.owner.tenant, document["workflow_id"], document["version"], deleted=True)
    return None if version is None else restore_definition(version.document)


def _steps(
    occurrence: Occurrence,
    run: WorkflowRun | None,
    definition: Definition,
    records: Mapping[StepKey, StepRecord],
) -> list[dict[str, Any]]:
    """The steps in the order of the definition, each followed by its elements; the result of a list is theirs."""
    # Steps without a record were never reached.
    phase = StepPhase.CANCELLED if occurrence.phase in FINAL else StepPhase.PENDING
    documents: list[dict[str, Any]] = []
    for step in definition.steps:
        own = records.get((step.id, None)) or StepRecord(step_id=step.id, phase=phase)
        elements = [records[step.id, index] for index in range(own.count or 0) if (step.id, index) in records]
        document = _step_document(step, own, run)
        if own.count is not None and own.phase is StepPhase.COMPLETED:
            document |= {"result": [record.result for record in elements], "has_result": True}
        documents += [document, *(_step_document(step, record, run) for record in elements)]
    return documents


def _step_document(step: Step, record: StepRecord, run: WorkflowRun | None) -> dict[str, Any]:
    waiting_for, approval = waits_for(step, record), None
    if run is not None and waiting_for is WaitingFor.APPROVAL:
        approval = approval_id(run.occurrence_id, step.id, run.attempt)
    return {
        "step_id": record.step_id,
        "index": record.index,
        "phase": str(record.phase),
        "attempt": record.attempt,
        "started_at_utc": text(record.started),
        "ended_at_utc": text(record.ended),
        "result": record.result,
        "has_result": record.result is not None,
        "error": record.error,
        "waiting_for": None if waiting_for is None else str(waiting_for),
        "ready_at_utc": text(record.ready) if not record.has_ended else None,
        "approval_id": approval,
        "occurrence_id": record.child,
        "count": record.count,
        "compensation": None if record.compensation is None else str(record.compensation),
    }


def _fitting(document: dict[str, Any]) -> dict[str, Any]:
    """A document that is not too large: without its result, which the steps have, and without their largest ones.

    `has_result` says of a step that it had one.
    """
    if size_of(document) > MAX_BYTES:
        document["result"] = None
    excess = size_of(document) - MAX_BYTES
    for step in sorted(document["steps"], key=lambda step: -size_of(step["result"])):
        if excess <= 0:
            break
        excess -= size_of(step["result"])
        step["result"] = None
    return document
