"""The inputs of a workflow: what a definition declares, and what a run is given."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import Reader, named, present
from noonmark.core.errors import InvalidRequest, Problem, refusal
from noonmark.core.frozen import frozen
from noonmark.core.json_values import json_copy, json_problem, key_path, shown
from noonmark.core.workflows.names import word

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_INPUTS = 100
MAX_DESCRIPTION = 1_000
_SETTINGS = frozenset({"type", "default", "required", "description"})


class InputType(StrEnum):
    """The JSON types."""

    STRING = "string"
    NUMBER = "number"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    OBJECT = "object"
    ARRAY = "array"


_TYPES = named(InputType)
_PYTHON: dict[InputType, tuple[type, ...]] = {
    InputType.STRING: (str,),
    InputType.NUMBER: (int, float),
    InputType.INTEGER: (int,),
    InputType.BOOLEAN: (bool,),
    InputType.OBJECT: (dict,),
    InputType.ARRAY: (list,),
}


@frozen(kw_only=True)
class Input:
    """One input: its type, if it has to be of one, and what it is where a run is not given it."""

    type: InputType | None = None
    default: Any = field(default=None, hash=False)
    is_required: bool = False
    description: str = ""

    def problem(self, value: Any) -> str | None:
        """Why it cannot have this value; None if it can."""
        if self.type is None or (value is None and self.default is None and not self.is_required):
            return None
        # Python counts true as 1.
        if isinstance(value, bool) is (self.type is InputType.BOOLEAN) and isinstance(value, _PYTHON[self.type]):
            return None
        return f"must be of type {self.type}, not {shown(value)}"

    def to_document(self) -> dict[str, Any]:
        """The input as JSON shows it."""
        document = present(type=self.type and str(self.type), description=self.description or None)
        return document if self.is_required else document | {"default": json_copy(self.default)}


def read_inputs(reader: Reader) -> dict[str, Input] | None:
    """Read the declared inputs; None where a definition declares none, and takes any."""
    value = reader.raw("inputs")
    if value is None:
        return None
    if not isinstance(value, dict):
        reader.problem("inputs", f"must be an object, not {shown(value)}")
        return None
    if len(value) > MAX_INPUTS:
        reader.problem("inputs", f"has {len(value):,} entries; at most {MAX_INPUTS} are allowed")
        return None
    inputs = {}
    for name, declared in value.items():
        where = f"inputs.{key_path(name)}"
        try:
            word(name)
        except ValueError as error:
            reader.problem(where, f"the name {error}")
        inputs[name] = _read_input(reader, where, declared)
    return inputs


def _read_input(reader: Reader, where: str, declared: Any) -> Input:
    if not isinstance(declared, dict) or not declared.keys() <= _SETTINGS:
        return Input(default=json_copy(declared))
    reader = Reader(declared, path=reader.at(where), code=reader.code, problems=reader.problems)
    has_default = "default" in declared
    is_required = reader.boolean("required", default=not has_default)
    if is_required and has_default:
        reader.problem("required", "must not be true where there is a default")
    declared_input = Input(
        type=reader.choice("type", _TYPES, None),
        default=reader.json("default"),
        is_required=is_required,
        description=reader.text("description", "", low=0, high=MAX_DESCRIPTION, multiline=True),
    )
    if has_default and (problem := declared_input.problem(declared_input.default)) is not None:
        reader.problem("default", problem)
    return declared_input


def with_defaults(declared: Mapping[str, Input] | None, given: object) -> dict[str, Any]:
    """The inputs of a run; InvalidRequest lists what is unknown, missing or of another type."""
    if not isinstance(given, dict):
        raise InvalidRequest(f"must be an object, not {shown(given)}", field="inputs")
    if (problem := json_problem(given)) is not None:
        raise InvalidRequest(problem, field="inputs")
    if declared is None:
        return dict(json_copy(given))
    problems = []
    for name, value in given.items():
        declaration = declared.get(name)
        wrong = _unknown(declared) if declaration is None else declaration.problem(value)
        if wrong is not None:
            problems.append(Problem(f"inputs.{key_path(name)}", wrong, InvalidRequest.code))
    for name, declaration in declared.items():
        if declaration.is_required and name not in given:
            problems.append(Problem(f"inputs.{name}", "is required", InvalidRequest.code))
    if problems:
        raise refusal(problems)
    return {name: json_copy(given.get(name, declaration.default)) for name, declaration in declared.items()}


def _unknown(declared: Mapping[str, Input]) -> str:
    return f"there is no such input; there are {', '.join(declared)}" if declared else "the workflow takes no inputs"
