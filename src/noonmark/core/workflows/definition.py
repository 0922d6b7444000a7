"""Definitions of workflows: what a caller declares, and what is stored as one version.

`parse_definition` reads the whole document before it complains, so that its error lists everything that is wrong. What
is too large is refused before anything else is looked at.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import Reader, named, present
from noonmark.core.errors import InvalidWorkflow, Problem, refusal
from noonmark.core.json_values import identifier, json_problem, key_path, shown, too_large
from noonmark.core.targets import parse_target
from noonmark.core.targets.placeholders import names_in
from noonmark.core.workflows.graph import Graph
from noonmark.core.workflows.inputs import Input, read_inputs, with_defaults
from noonmark.core.workflows.names import StepNames, placeholder_problems, target_problems, texts_in
from noonmark.core.workflows.steps import Approval, Step, Wait, read_step
from noonmark.core.workflows.substitution import fill_step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from noonmark.core.targets import Target

__all__ = [
    "Approval",
    "Definition",
    "Input",
    "OnFailure",
    "Step",
    "Wait",
    "check_inputs",
    "parse_definition",
    "restore_definition",
]

MAX_DOCUMENT = 1_048_576
"""Bytes of a definition as JSON."""
MAX_NAME = 200
MAX_DESCRIPTION = 10_000
MAX_STEPS = 1_000
MAX_RESULT = 65_536
"""Bytes of the result of a step as JSON."""
MAX_PROBLEMS = 1_000
"""No more placeholders are looked at when so many problems were found."""
_SHOWN = 10
"""Steps of a cycle that a message names."""


class OnFailure(StrEnum):
    """What follows the failure of a step: nothing more starts, or all that does not depend on it goes on."""

    STOP = "stop"
    CONTINUE = "continue"


_ON_FAILURE = named(OnFailure)


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A workflow: its steps and its inputs. It never changes; another one is another version."""

    workflow_id: str
    name: str | None = None
    description: str = ""
    inputs: Mapping[str, Input] | None = field(default=None, hash=False)
    """The inputs that a run may be given; None for any."""
    steps: tuple[Step, ...]
    on_failure: OnFailure = OnFailure.STOP

    def step(self, step_id: str) -> Step:
        """The step of an id; a KeyError if there is none."""
        return self._by_id[step_id]

    @cached_property
    def order(self) -> tuple[Step, ...]:
        """The steps, each after those that it depends on, and otherwise in the order of the document."""
        return tuple(step for layer in self.layers for step in layer)

    @cached_property
    def layers(self) -> tuple[tuple[Step, ...], ...]:
        """The steps that can start at once, then those that can start after them, and so on."""
        return tuple(tuple(self.step(step_id) for step_id in layer) for layer in self._graph.layers)

    def downstream(self, step_id: str) -> frozenset[str]:
        """The ids of all steps that depend on a step, directly or through others."""
        return self._graph.after(step_id)

    def place(self, step_id: str) -> int:
        """The place of a step in the order."""
        return self._places[step_id]

    def dependents(self, step_id: str) -> tuple[Step, ...]:
        """The steps that depend on a step directly."""
        return self._dependents.get(step_id, ())

    def __contains__(self, step_id: object) -> bool:
        """Whether there is a step of that id."""
        return step_id in self._by_id

    def fill_target(self, step: Step, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The target document of a step, with its input; the same one in all runs if nothing is filled in."""
        if step.id in self._filled:
            return fill_step(step, facts)
        if step.id not in self._documents:
            self._documents[step.id] = fill_step(step, facts)
        return self._documents[step.id]

    def parse_target(self, step_id: str, document: dict[str, Any]) -> Target:
        """Read a target document that was filled in; one that is the same in all runs is read once."""
        if self._documents.get(step_id) is not document:
            return parse_target(document)
        if step_id not in self._targets:
            self._targets[step_id] = parse_target(document)
        return self._targets[step_id]

    @cached_property
    def routes(self) -> frozenset[str]:
        """What nodes must serve to deliver its steps and what undoes them."""
        routes = {route for step in self.steps for route in (step.route, step.compensation_route)}
        return frozenset(route for route in routes if route is not None)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the document, in hexadecimal digits: two that say the same have the same."""
        canonical = json.dumps(self.to_document(), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return sha256(canonical.encode()).hexdigest()

    def to_document(self) -> dict[str, Any]:
        """The definition as JSON shows it, without a version."""
        inputs = self.inputs
        return present(
            workflow_id=self.workflow_id,
            name=self.name,
            description=self.description or None,
            inputs=None if inputs is None else {name: declared.to_document() for name, declared in inputs.items()},
            steps=[step.to_document() for step in self.steps],
            on_failure=str(self.on_failure),
        )

    @cached_property
    def _by_id(self) -> dict[str, Step]:
        return {step.id: step for step in self.steps}

    @cached_property
    def _places(self) -> dict[str, int]:
        return {step.id: place for place, step in enumerate(self.order)}

    @cached_property
    def _dependents(self) -> dict[str, tuple[Step, ...]]:
        dependents: dict[str, list[Step]] = {}
        for step in self.steps:
            for upstream in dict.fromkeys(step.depends_on):
                dependents.setdefault(upstream, []).append(step)
        return {step_id: tuple(steps) for step_id, steps in dependents.items()}

    @cached_property
    def _filled(self) -> frozenset[str]:
        """The steps with placeholders in their target or their input."""
        return frozenset(step.id for step in self.steps if any(texts_in([step.target, step.input], "")))

    @cached_property
    def _documents(self) -> dict[str, dict[str, Any]]:
        return {}

    @cached_property
    def _targets(self) -> dict[str, Target]:
        return {}

    @cached_property
    def _graph(self) -> Graph:
        return Graph({step.id: step.depends_on for step in self.steps})


def parse_definition(document: object) -> tuple[Definition, int | None]:
    """Read a definition and the version that it asks for; InvalidWorkflow lists everything wrong with it."""
    _check_size(document)
    return _read(document)


def restore_definition(document: object) -> Definition:
    """Read a document that `to_document` wrote. Its size does not matter: written out, it is longer than it was."""
    return _read(document)[0]


def check_inputs(definition: Definition, inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs of a run, with defaults; InvalidRequest lists what is unknown, missing or of another type."""
    return with_defaults(definition.inputs, inputs)


def _check_size(document: object) -> None:
    steps = document.get("steps") if isinstance(document, dict) else None
    if isinstance(steps, list | tuple) and len(steps) > MAX_STEPS:
        message = f"has {len(steps):,} entries; at most {MAX_STEPS:,} are allowed"
        raise InvalidWorkflow(message, field="steps")
    if (problem := json_problem(document, high=MAX_DOCUMENT)) is not None:
        raise InvalidWorkflow(problem, field="" if problem == too_large(MAX_DOCUMENT) else _place_of_problem(document))


def _place_of_problem(document: object) -> str:
    """Which field of a document is not JSON, or too deep."""
    return next((place for place, part in _parts(document) if json_problem(part, high=MAX_DOCUMENT) is not None), "")


def _parts(document: object) -> Iterator[tuple[str, object]]:
    """The fields and the steps of a document, each as deep as it is in the whole."""
    for name, value in document.items() if isinstance(document, dict) else ():
        if name == "steps" and isinstance(value, list | tuple):
            yield from ((f"steps[{index}]", [[step]]) for index, step in enumerate(value))
        else:
            yield key_path(name), {name: value}


def _read(document: object) -> tuple[Definition, int | None]:
    problems: list[Problem] = []
    reader = Reader(document, path="", code=InvalidWorkflow.code, problems=problems)
    if problems:
        raise refusal(problems)
    version = reader.integer("version", None, low=1)
    workflow_id = reader.read("workflow_id", identifier)
    name = reader.text("name", None, high=MAX_NAME)
    description = reader.text("description", "", low=0, high=MAX_DESCRIPTION, multiline=True)
    inputs = read_inputs(reader)
    on_failure = reader.choice("on_failure", _ON_FAILURE, OnFailure.STOP)
    steps = _read_steps(reader)
    reader.close()
    _check_steps(steps, inputs)
    if problems:
        raise refusal(problems)
    definition = Definition(
        workflow_id=workflow_id,
        name=name,
        description=description,
        inputs=inputs,
        steps=tuple(step for _, step in steps),
        on_failure=on_failure,
    )
    return definition, version


def _read_steps(reader: Reader) -> list[tuple[Reader, Step]]:
    """The steps, each with the reader of its object."""
    before = len(reader.problems)
    entries = reader.items("steps", high=MAX_STEPS)
    if not entries and len(reader.problems) == before:
        reader.problem("steps", "must be an array of at least one step")
    readers = [reader.entry(f"steps[{index}]", entry) for index, entry in enumerate(entries)]
    return [(fields, read_step(fields)) for fields in readers if fields is not None]


def _check_steps(found: Sequence[tuple[Reader, Step]], inputs: Mapping[str, Input] | None) -> None:
    """Note what is wrong between steps: ids, dependencies and names."""
    places: dict[str, Reader] = {}
    for fields, step in found:
        if step.id in places:
            fields.problem("id", f"is the id of {places[step.id].path} too")
        elif step.id:
            places[step.id] = fields
    needs = {}
    for fields, step in found:
        upstreams = _known_dependencies(fields, step, places)
        if places.get(step.id) is fields:
            needs[step.id] = upstreams
    graph = Graph(needs)
    _note_cycles(graph, places)
    blocked = set(graph.blocked)
    for fields, step in found:
        # Nothing is known of what comes before a step without an id of its own, or in a cycle.
        is_sorted = places.get(step.id) is fields and step.id not in blocked
        before = partial(graph.is_before, later=step.id) if is_sorted else _always
        names = StepNames(steps=places, has_ended=before, inputs=inputs, has_item=step.for_each is not None)
        for path, message in _name_problems(fields, step.id, names):
            if len(fields.problems) >= MAX_PROBLEMS:
                return
            fields.problem(path, message)


def _always(_: str) -> bool:
    return True


def _known_dependencies(fields: Reader, step: Step, places: Mapping[str, Reader]) -> list[str]:
    upstreams = [upstream for upstream in step.depends_on if upstream in places and upstream != step.id]
    for upstream in () if len(upstreams) == len(step.depends_on) else step.depends_on:
        where = f"depends_on[{fields.raw('depends_on').index(upstream)}]"
        if upstream == step.id:
            fields.problem(where, "names the step itself")
        elif upstream not in places:
            fields.problem(where, f"there is no step {shown(upstream)}")
    return upstreams


def _note_cycles(graph: Graph, places: Mapping[str, Reader]) -> None:
    in_cycles: set[str] = set()
    for cycle in graph.cycles():
        in_cycles.update(cycle)
        named_steps = " -> ".join([*cycle[:_SHOWN], cycle[0]] if len(cycle) <= _SHOWN else [*cycle[:_SHOWN], ".."])
        message = f"makes a cycle of {len(cycle):,} steps, each of which waits for the next: {named_steps}"
        places[cycle[0]].problem("depends_on", message)
    for step_id in graph.blocked:
        if step_id not in in_cycles:
            places[step_id].problem("depends_on", "leads to a cycle: the step can never start")


def _name_problems(fields: Reader, step_id: str, names: StepNames) -> Iterator[tuple[str, str]]:
    """What is wrong with the names that a step uses, whatever else is wrong with it."""
    if isinstance(target := fields.raw("target"), dict):
        yield from target_problems(target, "target", names)
    if isinstance(target := fields.raw("compensate"), dict):
        # What undoes a step knows its result.
        own = replace(names, has_ended=lambda other: other == step_id or names.has_ended(other))
        yield from target_problems(target, "compensate", own)
    yield from placeholder_problems(fields.raw("input"), "input", names)
    yield from placeholder_problems(fields.raw("for_each"), "for_each", replace(names, has_item=False))
    yield from placeholder_problems(fields.raw("wait"), "wait", names)
    yield from placeholder_problems(fields.raw("approval"), "approval", names)
    conditions = fields.raw("when")
    for name, condition in conditions.items() if isinstance(conditions, dict) else ():
        path = f"when.{key_path(name)}"
        if (problem := names.problem(name)) is not None:
            yield path, problem
        for where, text in texts_in(condition, path):
            if any(names_in(text)):
                yield where, "is compared as it is written: a condition has no placeholders"
