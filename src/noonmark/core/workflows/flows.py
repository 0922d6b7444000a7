"""Flows of mobs: workflows whose steps are prompts to members.

A step of a flow has a `member_id` and a `prompt`, and otherwise what any step has: `depends_on`, `when`,
`for_each`, `retry`, `timeout_seconds`. A step without a member waits or asks for approval, as in any workflow.
A flow is checked and run as that workflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.errors import InvalidRequest, InvalidSchedule, Problem
from noonmark.core.json_values import shown
from noonmark.core.workflows.definition import parse_definition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from noonmark.core.agents.session import Mob

PARAMS = "params"
"""The input with the parameters of a run, if they are not an object."""
_OWN = ("target", "compensate")
"""What a step of a workflow has, and one of a flow has not."""
_MOVED = {".target.member_id": ".member_id", ".target.action.content": ".prompt"}
"""Where a part of the target of a step stands in a flow."""


def flow_workflow(mob_id: str, flow_id: str) -> str:
    """The id of the workflow that a flow is run as."""
    return f"mob:{mob_id}:{flow_id}"


def flow_of(mob: Mob, flow_id: str) -> Mapping[str, Any] | None:
    """The flow of that id; None if the mob has none."""
    flow: Mapping[str, Any] | None = (mob.document.get("flows") or {}).get(flow_id)
    return flow


def flow_definition(mob_id: str, flow_id: str, flow: Mapping[str, Any]) -> dict[str, Any]:
    """The document of the workflow that a flow is run as."""
    return {
        **flow,
        "workflow_id": flow_workflow(mob_id, flow_id),
        "steps": [_workflow_step(mob_id, one) for one in flow["steps"]],
    }


def flow_inputs(params: Any) -> dict[str, Any]:
    """The inputs of a run with these parameters."""
    if isinstance(params, dict):
        return params
    return {} if params is None else {PARAMS: params}


def flow_problems(mob_id: str, flows: Mapping[str, dict[str, Any]], members: Collection[str]) -> list[Problem]:
    """Everything wrong with the flows of a mob, each with its place in the document of the mob."""
    return [
        Problem(f"flows.{flow_id}.{field}", message, InvalidRequest.code)
        for flow_id, flow in flows.items()
        for field, message in _problems(mob_id, flow_id, flow, members)
    ]


def _problems(mob_id: str, flow_id: str, flow: dict[str, Any], members: Collection[str]) -> Iterator[tuple[str, str]]:
    steps = flow.get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        yield "steps", "must be an array of objects"
        return
    for index, step in enumerate(steps):
        for name in _OWN:
            if name in step:
                yield (
                    f"steps[{index}].{name}",
                    "does not belong to a step of a flow: that has a member_id and a prompt",
                )
        member_id = step.get("member_id")
        if member_id is not None and not (isinstance(member_id, str) and member_id in members):
            yield (
                f"steps[{index}].member_id",
                f"must be a member of the mob, one of {', '.join(members)}, not {shown(member_id)}",
            )
    own = [{name: value for name, value in step.items() if name not in _OWN} for step in steps]
    try:
        parse_definition(flow_definition(mob_id, flow_id, {**flow, "steps": own}))
    except InvalidSchedule as error:
        for problem in error.problems:
            field = problem.field
            for place, moved in _MOVED.items():
                field = field.replace(place, moved)
            yield field, problem.message


def _workflow_step(mob_id: str, step: Mapping[str, Any]) -> dict[str, Any]:
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
