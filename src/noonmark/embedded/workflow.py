"""Workflows of a Python program: declared from functions or a class, then run or scheduled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from noonmark.core.errors import InvalidWorkflow
from noonmark.core.workflows.definition import check_inputs, parse_definition
from noonmark.embedded.step_functions import DefinitionBuilder, options_of, steps_of_class, steps_of_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from noonmark.embedded.documents import HttpOptions
    from noonmark.embedded.step_functions import WorkflowOptions


class Declared:
    """A definition that was built from functions, and the version that it is stored as."""

    version: int | None = None
    """None until it is stored."""

    def __init__(self, document: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]) -> None:
        self.definition = parse_definition(dict(document))[0]
        self.functions = functions


class Workflow:
    """A workflow that a program has declared with `Scheduler.workflow`.

    It is stored when the store is opened: as the version that it is already, or else as the next one. The functions of
    its class are its attributes.
    """

    def __init__(
        self,
        declared: Declared,
        kind: type | None,
        *,
        version_of: Callable[[Declared], int],
        run: Callable[..., Any],
        schedule: Callable[[dict[str, Any], Mapping[str, Any]], str],
    ) -> None:
        self._declared, self._kind = declared, kind
        self._version_of, self._run, self._schedule = version_of, run, schedule

    @property
    def workflow_id(self) -> str:
        """Its id."""
        return self._declared.definition.workflow_id

    @property
    def definition(self) -> dict[str, Any]:
        """Its definition, as a document."""
        return self._declared.definition.to_document()

    @property
    def version(self) -> int:
        """The version that it is stored as."""
        return self._version_of(self._declared)

    def run(self, /, **inputs: Any) -> dict[str, Any]:
        """Run it with these inputs, and return the result of each step by its id, as `Scheduler.run_workflow` does."""
        results: dict[str, Any] = self._run(self.workflow_id, inputs, version=self.version)
        return results

    def start(self, /, **inputs: Any) -> str:
        """Start a run with these inputs, and return its id at once."""
        run_id: str = self._run(self.workflow_id, inputs, wait=False, version=self.version)
        return run_id

    def schedule(self, *, inputs: Mapping[str, Any] | None = None, **options: Unpack[HttpOptions]) -> str:
        """Create a schedule that runs its newest version with these inputs, and return the id of the schedule.

        The options are those of `Scheduler.schedule`. The schedule has the name of the workflow, unless another is
        given. Inputs that do not fit are refused, as in `run`.
        """
        given = dict(inputs or {})
        check_inputs(self._declared.definition, given)
        self._version_of(self._declared)
        target = {"target_kind": "workflow", "workflow_id": self.workflow_id, "inputs": given}
        return self._schedule(target, {"name": self.workflow_id, **options})

    def __getattr__(self, name: str) -> Any:
        # The class is known by its name in its module, where this object is now: nodes find its functions here.
        kind = self.__dict__.get("_kind")
        if kind is None or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(kind, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.workflow_id!r})"


def declare(
    of: str | type | None,
    steps: Iterable[Callable[..., Any] | Mapping[str, Any]] | None,
    options: WorkflowOptions,
    refer: Callable[[Callable[..., Any]], str],
) -> Declared:
    """Build the definition of a class, or of a list of steps, and judge it."""
    if isinstance(of, type):
        if steps is not None:
            raise InvalidWorkflow("a class has its own steps; give a workflow id instead", field="steps")
        options, members = options.over(options_of(of)), steps_of_class(of)
        for name in members.keys() & vars(Workflow).keys():
            raise InvalidWorkflow("every workflow has an attribute of this name; give the step another", field=name)
        workflow_id = options.workflow_id or of.__name__
    else:
        if not isinstance(of, str):
            raise InvalidWorkflow(f"must be an id or a class, not {type(of).__name__}", field="workflow_id")
        workflow_id, members = of, steps_of_list(steps)
    builder = DefinitionBuilder(refer)
    return Declared(builder.definition(workflow_id, members, options), builder.functions)
