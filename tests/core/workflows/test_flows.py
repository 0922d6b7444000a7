"""Flows of mobs become workflows."""

import pytest

from noonmark.core.agents.session import Mob
from noonmark.core.workflows.definition import parse_definition
from noonmark.core.workflows.flows import flow_definition, flow_inputs, flow_of

FLOW = {
    "inputs": {"severity": {"type": "string"}},
    "steps": [
        {"id": "look", "member_id": "lead", "prompt": "A {{ inputs.severity }} incident.", "timeout_seconds": 60},
        {"id": "ask", "approval": {"message": "Go on?"}, "depends_on": ["look"]},
        {"id": "write", "member_id": "scribe", "prompt": "{{ steps.look.result.text }}", "depends_on": ["ask"]},
    ],
}


def test_a_flow_is_a_workflow_of_prompts_to_members():
    definition, _ = parse_definition(flow_definition("triage", "main", FLOW))
    assert definition.workflow_id == "mob:triage:main"
    look, ask, write = definition.steps
    assert look.target == {
        "target_kind": "mob",
        "type": "member",
        "mob_id": "triage",
        "member_id": "lead",
        "action": {"type": "send", "content": "A {{ inputs.severity }} incident."},
    }
    assert (look.kind, ask.kind, write.depends_on) == ("mob", "approval", ("ask",))
    assert definition.routes == {"mob"}


def test_a_flow_is_found_in_its_mob():
    mob = Mob(tenant="acme", mob_id="triage", user="ann", document={"members": [], "flows": {"main": FLOW}})
    assert flow_of(mob, "main") is FLOW
    assert flow_of(mob, "other") is None
    assert flow_of(Mob(tenant="acme", mob_id="triage", user="ann", document={"members": []}), "main") is None


@pytest.mark.parametrize(
    ("params", "inputs"), [(None, {}), ({"severity": "high"}, {"severity": "high"}), ([1], {"params": [1]})]
)
def test_parameters_are_inputs(params, inputs):
    assert flow_inputs(params) == inputs
