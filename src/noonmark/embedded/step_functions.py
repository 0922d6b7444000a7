"""Workflows from Python functions: what `@step` and `@workflow` note, and the definitions that follow from it.

A parameter of a step that is the id of another step gets the result of that step, which therefore runs before. Every
other parameter is an input of the workflow.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from noonmark.core.documents import present
from noonmark.core.errors import InvalidWorkflow
from noonmark.core.frozen import frozen
from noonmark.core.json_values import json_problem
from noonmark.core.policies.options import as_document, seconds_of
from noonmark.core.targets.placeholders import names_in, path_of
from noonmark.core.workflows.names import texts_in
from noonmark.embedded.documents import function_target, retry_document
from noonmark.embedded.references import check_arguments, check_callable, check_process

if TYPE_CHECKING:
    from datetime import timedelta

    from noonmark.core.policies.options import ExecutorName, Retry, RetryDocument

    StepReference = str | Callable[..., Any]
    """Another step: its id or its function."""

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

STEP = "__noonmark_step__"
WORKFLOW = "__noonmark_workflow__"
_KINDS = ("target", "wait", "approval")
_PYTHON = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", list: "array"}
_TYPES = {key: name for python, name in _PYTHON.items() for key in (python, python.__name__)}
"""JSON types by annotations, which are texts in a module with `from __future__ import annotations`."""


@frozen(kw_only=True)
class StepOptions:
    """What `@step` says about a function."""

    after: StepReference | Iterable[StepReference] = ()
    retries: int | Retry | RetryDocument = 0
    timeout: float | timedelta | None = None
    for_each: StepReference | Iterable[Any] | None = None
    concurrency: int | None = None
    when: Mapping[str, Any] | None = None
    compensate: Callable[..., Any] | Mapping[str, Any] | None = None
    executor: ExecutorName | None = None


@frozen(kw_only=True)
class WorkflowOptions:
    """What `@workflow` says about a class."""

    workflow_id: str | None = None
    name: str | None = None
    description: str | None = None
    inputs: Mapping[str, Any] | None = None
    on_failure: str | None = None

    def over(self, others: WorkflowOptions) -> WorkflowOptions:
        """These, and those of others where nothing is said here."""
        names = WorkflowOptions.__dataclass_fields__
        own = {name: getattr(self, name) for name in names}
        return WorkflowOptions(**{n: getattr(others, n) if value is None else value for n, value in own.items()})


@overload
def step(func: F, /) -> F: ...


@overload
def step(
    *,
    after: StepReference | Iterable[StepReference] = (),
    retries: int | Retry | RetryDocument = 0,
    timeout: float | timedelta | None = None,
    for_each: StepReference | Iterable[Any] | None = None,
    concurrency: int | None = None,
    when: Mapping[str, Any] | None = None,
    compensate: Callable[..., Any] | Mapping[str, Any] | None = None,
    executor: ExecutorName | None = None,
) -> Callable[[F], F]: ...


def step(  # noqa: PLR0913 - each is an option of its own
    func: F | None = None,
    /,
    *,
    after: StepReference | Iterable[StepReference] = (),
    retries: int | Retry | RetryDocument = 0,
    timeout: float | timedelta | None = None,
    for_each: StepReference | Iterable[Any] | None = None,
    concurrency: int | None = None,
    when: Mapping[str, Any] | None = None,
    compensate: Callable[..., Any] | Mapping[str, Any] | None = None,
    executor: ExecutorName | None = None,
) -> F | Callable[[F], F]:
    """Make a function a step of a workflow. It stays what it is, and its name is the id of the step.

    A parameter with the id of another step gets the result of that step. Other parameters are inputs of the workflow,
    with their defaults; a `context` parameter gets the context of the run.

    `after` has steps that must complete first, by id or function, where no parameter names them. With `for_each`, the
    step runs once for each element of a list, at most `concurrency` at a time: the list itself, or the step or the
    input that has it. A parameter `item` gets the element, and `index` its place. `when` has conditions such as
    `{"steps.check.result": True}`, else the step is skipped. `compensate` undoes the step when the run fails: a
    function with parameters of the same kind, where the id of the step itself stands for its result, or a target
    document. `retries`, `timeout` and `executor` are those of `schedule`, for the step alone.
    """
    options = StepOptions(
        after=after,
        retries=retries,
        timeout=timeout,
        for_each=for_each,
        concurrency=concurrency,
        when=when,
        compensate=compensate,
        executor=executor,
    )

    def decorate(decorated: F) -> F:
        check_callable(decorated)
        setattr(decorated, STEP, options)
        return decorated

    return decorate if func is None else decorate(func)


@overload
def workflow(of: C, /) -> C: ...


@overload
def workflow(
    of: str | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    inputs: Mapping[str, Any] | None = None,
    on_failure: str | None = None,
) -> Callable[[C], C]: ...


def workflow(
    of: C | str | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    inputs: Mapping[str, Any] | None = None,
    on_failure: str | None = None,
) -> C | Callable[[C], C]:
    """Make a class a workflow, to be stored by `scheduler.workflow(..)`. Its functions are the steps.

    The id of the workflow is the name of the class, unless another is given. The class has no instances: its functions
    have no `self`. Those whose names begin with `_` are steps only with `@step`. An attribute that is a step document,
    such as `{"wait": {"seconds": 60}, "depends_on": ["send"]}`, is a step too.
    """

    def decorate(decorated: C) -> C:
        options = WorkflowOptions(
            workflow_id=of if isinstance(of, str) else None,
            name=name,
            description=description,
            inputs=inputs,
            on_failure=on_failure,
        )
        if not isinstance(decorated, type):
            raise InvalidWorkflow(f"must be a class, not {type(decorated).__name__}", field="workflow")
        setattr(decorated, WORKFLOW, options)
        return decorated

    return decorate(of) if isinstance(of, type) else decorate


def steps_of_class(kind: type) -> dict[str, Callable[..., Any] | Mapping[str, Any]]:
    """The steps of a class in the order of their definition, those of its bases first."""
    attributes = {name: value for base in reversed(kind.__mro__[:-1]) for name, value in vars(base).items()}
    steps: dict[str, Callable[..., Any] | Mapping[str, Any]] = {}
    for name, attribute in attributes.items():
        value = attribute.__func__ if isinstance(attribute, staticmethod) else attribute
        is_function = isinstance(value, FunctionType) and not name.startswith("_")
        is_document = isinstance(value, Mapping) and any(part in value for part in _KINDS)
        if is_function or is_document or hasattr(value, STEP):
            steps[name] = value
    return steps


def steps_of_list(steps: object) -> dict[str, Callable[..., Any] | Mapping[str, Any]]:
    """The steps of a list of functions and step documents, by their ids."""
    if not isinstance(steps, Iterable) or isinstance(steps, str | Mapping):
        raise InvalidWorkflow("must be a list of functions and step documents", field="steps")
    functions_by_id: dict[str, Callable[..., Any] | Mapping[str, Any]] = {}
    for index, member in enumerate(steps):
        place = f"steps[{index}]"
        if isinstance(member, Mapping):
            step_id = member.get("id")
        elif callable(member):
            step_id = getattr(member, "__name__", None)
        else:
            raise InvalidWorkflow(f"must be a function or a step document, not {type(member).__name__}", field=place)
        if not isinstance(step_id, str):
            raise InvalidWorkflow("has no name: give it as a step document with an id and a target", field=place)
        if step_id in functions_by_id:
            raise InvalidWorkflow(f"there is another step {step_id!r}", field=place)
        functions_by_id[step_id] = member
    return functions_by_id


class DefinitionBuilder:
    """Turns functions into the steps of a definition. `functions` are those that it names, by their references."""

    def __init__(self, refer: Callable[[Callable[..., Any]], str]) -> None:
        """`refer` gives the reference of a function, by which a node finds it."""
        self._refer = refer
        self.functions: dict[str, Callable[..., Any]] = {}
        self._ids: Mapping[str, object] = {}
        self._inputs: dict[str, Any] = {}
        self._given: Mapping[str, Any] = {}

    def definition(
        self, workflow_id: str, steps: Mapping[str, Callable[..., Any] | Mapping[str, Any]], options: WorkflowOptions
    ) -> dict[str, Any]:
        """The definition of a workflow with these steps, as a document."""
        self._ids, self._inputs, self._given = steps, {}, options.inputs or {}
        documents = [
            self._document_step(step_id, member)
            if isinstance(member, Mapping)
            else self._function_step(step_id, member)
            for step_id, member in steps.items()
        ]
        return present(
            workflow_id=workflow_id,
            name=options.name,
            description=options.description,
            inputs={**self._inputs, **self._given},
            steps=documents,
            on_failure=options.on_failure,
        )

    def with_references(self, definition: Mapping[str, Any]) -> dict[str, Any]:
        """A definition of the caller, in which targets may be functions."""
        document = dict(definition)
        if isinstance(steps := document.get("steps"), list | tuple):
            document["steps"] = [self.step_document(one) if isinstance(one, Mapping) else one for one in steps]
        return document

    def step_document(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """A step document, in which targets may be functions."""
        replaced = {name: self._target(document[name]) for name in ("target", "compensate") if name in document}
        if callable(func := _function_of(document.get("target"))):
            target, given = replaced["target"], document.get("input")
            check_arguments(func, target["args"], target["kwargs"] | (given if isinstance(given, Mapping) else {}))
        return dict(document) | replaced

    def _document_step(self, step_id: str, member: Mapping[str, Any]) -> dict[str, Any]:
        document = self.step_document({"id": step_id, **member})
        self._add_inputs_in(step_id, [name for _, text in texts_in(document, "") for name in names_in(text)])
        return document

    def _target(self, target: Any) -> Any:
        """A target document; a function is its reference there."""
        if not callable(func := _function_of(target)):
            return target
        document = target if isinstance(target, Mapping) else {}
        return dict(document) | function_target(
            self._reference(func), args=document.get("args", ()), kwargs=document.get("kwargs")
        )

    def _reference(self, func: Callable[..., Any]) -> str:
        reference = self._refer(func)
        self.functions[reference] = func
        return reference

    def _function_step(self, step_id: str, func: Callable[..., Any]) -> dict[str, Any]:
        options: StepOptions = getattr(func, STEP, StepOptions())
        upstreams = dict.fromkeys(self._id_of(one, step_id) for one in _listed(options.after))
        for_each = self._elements(step_id, options.for_each, upstreams)
        upstreams |= dict.fromkeys(_second_parts("steps", options.when or ()))
        self._add_inputs_in(step_id, options.when or ())
        arguments = self._arguments(step_id, func, has_item=for_each is not None)
        upstreams |= dict.fromkeys(argument.step for argument in arguments if argument.step is not None)
        reference = self._reference(func)
        if options.executor == "process":
            check_process(func, reference)
        return present(
            id=step_id,
            target=function_target(reference, executor=options.executor),
            depends_on=list(upstreams) or None,
            input={argument.name: argument.placeholder for argument in arguments} or None,
            when=None if options.when is None else dict(options.when),
            for_each=for_each,
            concurrency=options.concurrency,
            retry=_retry(options.retries),
            timeout_seconds=seconds_of(options.timeout),
            compensate=self._compensation(step_id, options.compensate),
        )

    def _compensation(self, step_id: str, compensate: object) -> object:
        if compensate is None or isinstance(compensate, Mapping):
            return self._target(compensate)
        if not callable(compensate):
            raise InvalidWorkflow("must be a function or a target document", field=f"{step_id}.compensate")
        arguments = self._arguments(f"{step_id}.compensate", compensate, has_item=False, own=step_id)
        kwargs = {argument.name: argument.placeholder for argument in arguments}
        return function_target(self._reference(compensate), kwargs=kwargs)

    def _elements(self, step_id: str, for_each: object, upstreams: dict[str, None]) -> object:
        """The list that a step runs over: itself, or the placeholder that stands for it."""
        if for_each is None:
            return None
        if isinstance(for_each, str) and "{{" in for_each:
            upstreams |= dict.fromkeys(_second_parts("steps", names_in(for_each)))
            self._add_inputs_in(step_id, names_in(for_each))
            return for_each
        if callable(for_each) or (isinstance(for_each, str) and for_each in self._ids):
            upstream = self._id_of(for_each, step_id)
            upstreams[upstream] = None
            return _result_of(upstream)
        if isinstance(for_each, str):
            self._add_input(step_id, for_each, {"type": "array"})
            return f"{{{{ inputs.{for_each} }}}}"
        if isinstance(for_each, Iterable) and not isinstance(for_each, Mapping):
            return list(for_each)
        raise InvalidWorkflow("must be a list, or a step or an input that has one", field=f"{step_id}.for_each")

    def _id_of(self, reference: object, step_id: str) -> str:
        """The id of another step."""
        if isinstance(reference, str):
            return reference
        own_id = next((one for one, member in self._ids.items() if member is reference), None)
        if own_id is None:
            shown = getattr(reference, "__qualname__", repr(reference))
            raise InvalidWorkflow(f"{shown} is not a step of this workflow", field=step_id)
        return own_id

    def _arguments(
        self, place: str, func: Callable[..., Any], *, has_item: bool, own: str | None = None
    ) -> list[_Argument]:
        """What a function is called with; `own` is the step that it undoes."""
        check_callable(func)
        try:
            parameters = inspect.signature(func).parameters.values()
        except (TypeError, ValueError):  # some built-in functions have none
            return []
        return [
            argument
            for parameter in parameters
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) and parameter.name != "context"
            if (argument := self._argument(place, parameter, has_item=has_item, own=own)) is not None
        ]

    def _argument(
        self, place: str, parameter: inspect.Parameter, *, has_item: bool, own: str | None
    ) -> _Argument | None:
        name, where = parameter.name, f"{place}.{parameter.name}"
        if name == "self":
            raise InvalidWorkflow("a step has no object to be called on: leave self out", field=where)
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise InvalidWorkflow(
                "a step is called with keyword arguments: it must not be positional-only", field=where
            )
        if has_item and name in ("item", "index"):
            return _Argument(name, f"{{{{ {name} }}}}")
        if name in self._ids and name != place:
            return _Argument(name, _result_of(name), step=None if name == own else name)
        if name == place:
            raise InvalidWorkflow("a step cannot take its own result", field=where)
        declared = _input_of(parameter)
        if declared is None and name not in self._given:
            return None
        self._add_input(place, name, declared or {})
        return _Argument(name, f"{{{{ inputs.{name} }}}}")

    def _add_inputs_in(self, place: str, names: Iterable[str]) -> None:
        for name in _second_parts("inputs", names):
            self._add_input(place, name, {})

    def _add_input(self, place: str, name: str, declared: dict[str, Any]) -> None:
        """Declare an input; steps that share one have to agree on it."""
        input_document = self._inputs.setdefault(name, {})
        for part, value in declared.items():
            if name not in self._given and part in input_document and input_document[part] != value:
                raise InvalidWorkflow(
                    f"has the {part} {value!r}, and another step has {input_document[part]!r}: an input is the same for"
                    " all",
                    field=f"{place}.{name}",
                )
            input_document[part] = value


@frozen
class _Argument:
    name: str
    placeholder: str
    step: str | None = field(default=None, kw_only=True)
    """The step whose result it is."""


def options_of(kind: type) -> WorkflowOptions:
    """What `@workflow` said about a class."""
    options: WorkflowOptions = getattr(kind, WORKFLOW, WorkflowOptions())
    return options


def _retry(retries: object) -> dict[str, Any] | None:
    document = retry_document(as_document(retries, option="retries"))
    return {name: seconds_of(value) for name, value in document.items()} if retries != 0 else None


def _function_of(target: object) -> object:
    """The function of a target, or its name in a target document."""
    return target.get("function") if isinstance(target, Mapping) else target


def _result_of(step_id: str) -> str:
    return f"{{{{ steps.{step_id}.result }}}}"


def _listed(after: object) -> Iterable[object]:
    return after if isinstance(after, Iterable) and not isinstance(after, str) else [after]


def _second_parts(first: str, names: Iterable[str]) -> list[str]:
    """The steps, or the inputs, that placeholders or conditions ask about."""
    paths = [path_of(str(name)) for name in names]
    return [path[1] for path in paths if len(path) > 1 and path[0] == first]


def _input_of(parameter: inspect.Parameter) -> dict[str, Any] | None:
    """The input of a parameter; None if its default is not JSON, so that only Python can give it."""
    annotation = parameter.annotation
    declared = present(type=_TYPES.get(annotation) if isinstance(annotation, str | type) else None)
    if parameter.default is parameter.empty:
        return declared
    if json_problem(parameter.default) is not None:
        return None
    return declared | {"default": parameter.default}
