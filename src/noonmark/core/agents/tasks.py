"""Tasks: a query in plain words, and the context for the agent that answers it.

The context may have anything. Some of its parts are known: they name instructions that a team can edit, the model, or
the agent of another service. The rest is shown to the agent as it is.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Protocol

from noonmark.core.frozen import frozen
from noonmark.core.json_values import boolean_value, shown, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BASE = "task"
"""The instructions of every task."""
RESEARCH = "force_research"
"""The instructions of tasks that must be researched, and the part of the context that asks for them."""
CHOICES = ("role", "cognitive_strategy", "research_strategy", "template")
"""The parts of a context whose values name instructions."""
EXECUTION_TARGETS = ("daemon", "remote")
"""Where a task may be sent instead of the node's own agents: both are the remote host."""
_KNOWN = frozenset({*CHOICES, RESEARCH, "model", "execution_target", "agent_name"})
_QUERY = re.compile(r"\{\{\s*query\s*\}\}")
_name = text_of(1, 200)


class Instructions(Protocol):
    """The instructions that a context can name."""

    def names(self, part: str) -> Sequence[str]:
        """The values that a part of a context may have."""

    def text(self, part: str, name: str = "") -> str | None:
        """The instructions of a value, or of a part without values; None if there are none."""


@frozen
class TaskPrompt:
    """The prompts of an agent."""

    system_prompt: str
    prompt: str
    model: str | None
    """None leaves the choice to the host."""


def context_problem(context: Mapping[str, Any], instructions: Instructions) -> tuple[str, str] | None:
    """The part of a context with an invalid value, and the allowed ones; None if the context is valid."""
    for part in CHOICES:
        value = context.get(part)
        if value is None:
            continue
        names = instructions.names(part)
        if not isinstance(value, str) or value not in names:
            return part, f"must be one of {', '.join(names)}, not {shown(value)}"
    try:
        if context.get(part := RESEARCH) is not None:
            boolean_value(context[part])
        for part in ("model", "agent_name"):
            if context.get(part) is not None:
                _name(context[part])
    except ValueError as error:
        return part, str(error)
    return _remote_problem(context)


def _remote_problem(context: Mapping[str, Any]) -> tuple[str, str] | None:
    target, agent = context.get("execution_target"), context.get("agent_name")
    if target is not None and target not in EXECUTION_TARGETS:
        return "execution_target", f"must be one of {', '.join(EXECUTION_TARGETS)}, not {shown(target)}"
    if target is not None and agent is None:
        return "agent_name", "is required with execution_target: the agent that the remote host runs it with"
    if target is None and agent is not None:
        return "agent_name", f"is for tasks with an execution_target: {' or '.join(EXECUTION_TARGETS)}"
    return None


def remote_agent(context: Mapping[str, Any]) -> str | None:
    """The agent of the remote host that a task asks for, if it does."""
    return None if context.get("execution_target") is None else str(context.get("agent_name") or "")


def task_prompt(query: str, context: Mapping[str, Any], instructions: Instructions) -> TaskPrompt:
    """The prompts for the agent of a task. ValueError if the context names unknown instructions."""
    if (problem := context_problem(context, instructions)) is not None:
        raise ValueError(f"context.{problem[0]} {problem[1]}")
    parts = [instructions.text(BASE), *(_chosen(context, part, instructions) for part in CHOICES[:2])]
    if context.get(RESEARCH):
        parts.append(instructions.text(RESEARCH))
    parts.append(_chosen(context, CHOICES[2], instructions))
    template = _chosen(context, CHOICES[3], instructions)
    prompt = _with_query(template, query) if template else query
    if rest := {name: value for name, value in context.items() if name not in _KNOWN}:
        prompt += f"\n\nContext:\n{json.dumps(rest, ensure_ascii=False, indent=2)}"
    return TaskPrompt("\n\n".join(part for part in parts if part), prompt, context.get("model"))


def _chosen(context: Mapping[str, Any], part: str, instructions: Instructions) -> str | None:
    value = context.get(part)
    return None if value is None else instructions.text(part, value)


def _with_query(template: str, query: str) -> str:
    """The template with the query in its place; at its end if it has none."""
    filled, count = _QUERY.subn(lambda _: query, template)
    return filled if count else f"{template}\n\n{query}"
