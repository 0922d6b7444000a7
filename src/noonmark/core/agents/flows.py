"""Flows of mobs: workflows whose steps are prompts to members.

A step of a flow has a `member_id` and a `prompt`, and otherwise what any step has: `depends_on`, `when`,
`for_each`, `retry`, `timeout_seconds`. A step without a member waits or asks for approval, as in any workflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.agents.session import Mob

PARAMS = "params"
"""The input with the parameters of a run, if they are not an object."""


def flow_workflow(mob_id: str, flow_id: str) -> str:
    """The id of the workflow that a flow is run as."""
    return f"mob:{mob_id}:{flow_id}"


def flow_key(mob_id: str, flow_id: str) -> str:
    """What names a flow among the sessions that can be busy."""
    return f"flow:{mob_id}:{flow_id}"


def flow_of(mob: Mob, flow_id: str) -> Mapping[str, Any] | None:
    """The flow of that id; None if the mob has none."""
    flow: Mapping[str, Any] | None = (mob.document.get("flows") or {}).get(flow_id)
    return flow


def flow_definition(mob_id: str, flow_id: str, flow: Mapping[str, Any]) -> dict[str, Any]:
    """The document of the workflow that a flow is run as."""
    return {
        **flow,
        "workflow_id": flow_workflow(mob_id, flow_id),
        "steps": [_step(mob_id, one) for one in flow["steps"]],
    }


def flow_inputs(params: Any) -> dict[str, Any]:
    """The inputs of a run with these parameters."""
    if isinstance(params, dict):
        return params
    return {} if params is None else {PARAMS: params}


def _step(mob_id: str, step: Mapping[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in step.items() if name not in ("member_id", "prompt")}
    if "member_id" not in step:
        return rest
    action = {"type": "send", "content": step.get("prompt")}
    target = {
        "target_kind": "mob",
        "type": "member",
        "mob_id": mob_id,
        "member_id": step["member_id"],
        "action": action,
    }
    return rest | {"target": target}
