"""Workflows that a test stores by itself, without an operation."""

from noonmark.core.schedule import TRUSTED
from noonmark.core.workflows.definition import parse_definition
from noonmark.embedded.declarations import OWNER
from noonmark.ports.workflows import WorkflowVersion


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
