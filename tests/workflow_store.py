"""Workflows that a test stores by itself, without an operation."""

from dataclasses import replace

from noonmark.core.ids import manual
from noonmark.core.policies import overlap
from noonmark.core.schedule import TRUSTED
from noonmark.core.targets import WorkflowTarget
from noonmark.core.workflows.definition import parse_definition
from noonmark.core.workflows.run import StepPhase, StepRecord, WorkflowRun
from noonmark.embedded.declarations import OWNER
from noonmark.ports.workflows import EventWait, StepWrites, WorkflowVersion
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LEASE, start
from noonmark.testing.factories import NOW


def put_workflow(store, document, source=TRUSTED):
    """Store a definition as a program would; returns the version."""
    definition, version = parse_definition(document)
    stored = store.put_workflow(
        WorkflowVersion(
            tenant=OWNER.tenant,
            workflow_id=definition.workflow_id,
            document=definition.to_document(),
            digest=definition.digest,
            source=source,
            created=store.clock(),
            user=OWNER.user,
        ),
        version_number=version,
    )
    return stored.version


def waiting_runs(bench, many):
    """Runs of which each waits for another order to be paid; returns their ids."""
    schedule = bench.create_quiet("uid-1", target=WorkflowTarget(workflow_id="w"), overlap_policy=overlap.Allow())
    rows = [factories.occurrence(schedule, manual(str(number)), nominal=NOW) for number in range(many)]
    assert all(bench.store.add(rows))
    claims = bench.claim(routes=["workflow"], limit=many)
    starts = [replace(start(claim), takes_slot=False) for claim in claims]
    started = [answer.occurrence for answer in bench.store.admit(starts, now=bench.now, lease=LEASE)]
    step = StepRecord(step_id="paid", phase=StepPhase.RUNNING, attempt=1, started=NOW, is_external=True)
    writes = [
        StepWrites(
            occurrence_id=one.id,
            fence=one.fence,
            run=WorkflowRun(occurrence_id=one.id, workflow_id="w", version=1, inputs={}, started=NOW),
            steps=[step],
            waits=[EventWait(step_id="paid", event_types=("paid",), filters={"order": number})],
        )
        for number, one in enumerate(started)
    ]
    assert bench.store.commit_steps(writes) == [True] * many
    return [one.id for one in started]
