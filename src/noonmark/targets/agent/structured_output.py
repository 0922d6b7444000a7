"""Structured output: an answer that matches the JSON schema of its session.

The model answers by calling a tool whose arguments are the output. What does not match is sent back with the problems,
as often as the session allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jsonschema_rs import ValidationError, validator_for
from pydantic_ai.tools import ToolDefinition

if TYPE_CHECKING:
    from collections.abc import Mapping

TOOL = "final_result"
WRAPPED = "response"
"""The argument with the output, where that is not an object."""
MAX_PROBLEMS = 5
ASK_AGAIN = f"Answer by calling the tool {TOOL}; plain text is not accepted."
ACCEPTED = "accepted"
NOT_RUN = "not run: the turn has ended with its result"


class OutputSchema:
    """The schema of an answer."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """ValueError if it is not a JSON schema."""
        self._schema = dict(schema)
        self._is_object = schema.get("type") == "object"
        try:
            self._validator = validator_for(self._schema, retriever=_refuse)
        except (ValidationError, ValueError) as error:
            raise ValueError(f"output_schema is not a JSON schema: {_message(error)}") from None

    @property
    def tool(self) -> ToolDefinition:
        """The tool by which a model answers."""
        whole = self._schema
        if not self._is_object:
            whole = {"type": "object", "properties": {WRAPPED: self._schema}, "required": [WRAPPED]}
            if "$defs" in self._schema:
                whole["$defs"] = self._schema["$defs"]
        return ToolDefinition(
            name=TOOL,
            description="The final answer, which ends the turn.",
            parameters_json_schema=whole,
            outer_typed_dict_key=None if self._is_object else WRAPPED,
            kind="output",
        )

    def output(self, arguments: object) -> Any:
        """The output in the arguments of a call of the tool."""
        if self._is_object:
            return arguments
        return arguments.get(WRAPPED) if isinstance(arguments, dict) else None

    def problem(self, output: object) -> str | None:
        """Why an output does not match, if it does not."""
        problems = []
        for error in self._validator.iter_errors(output):
            where = "/".join(str(part) for part in error.instance_path)
            problems.append(f"{where}: {_message(error)}" if where else _message(error))
            if len(problems) == MAX_PROBLEMS:
                break
        return "; ".join(problems) or None


def _message(error: Exception) -> str:
    return str(getattr(error, "message", error)).partition("\n")[0]


def _refuse(uri: str) -> Any:
    """A schema must not make this node fetch anything."""
    raise ValueError(f"a reference to another document ({uri[:200]}) is not followed")
