"""Short ways to write definitions, and to read what is wrong with them."""

import pytest

from noonmark.core.errors import InvalidWorkflow
from noonmark.core.workflows.definition import parse_definition

CALL = {"target_kind": "function", "function": "f"}


def step(name, *depends_on, **fields):
    """A step that calls a function, unless it says what else it is."""
    if not fields.keys() & {"target", "wait", "approval"}:
        fields["target"] = CALL
    return {"id": name, "depends_on": list(depends_on), **fields}


def workflow(*steps, **fields):
    """The document of a workflow."""
    return {"workflow_id": "etl", "steps": list(steps), **fields}


def defined(*steps, **fields):
    """The definition."""
    return parse_definition(workflow(*steps, **fields))[0]


def problems_of(document):
    """Everything that is wrong with a document, by its place."""
    with pytest.raises(InvalidWorkflow) as caught:
        parse_definition(document)
    return [(problem.field, problem.message) for problem in caught.value.problems]
