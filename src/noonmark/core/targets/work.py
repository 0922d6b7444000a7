"""Targets that name a piece of work and its input: function, workflow, bundle, event, task.

JSON inside a target is its own copy and never changes after the target was read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from noonmark.core.documents import named, present
from noonmark.core.json_values import event_type, shown
from noonmark.core.targets.content import read_prompt

if TYPE_CHECKING:
    from noonmark.core.documents import Reader


class Executor(StrEnum):
    """Where a node calls a function that is not async: in a thread, or in a worker process."""

    THREAD = "thread"
    PROCESS = "process"


_EXECUTORS = named(Executor)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTarget:
    """A Python function: a name registered on the executing node, or `module:qualname`."""

    kind: ClassVar[str] = "function"

    function: str
    args: tuple[Any, ...] = field(default=(), hash=False, repr=False)
    kwargs: dict[str, Any] = field(default_factory=dict, hash=False, repr=False)
    payload: Any = field(default=None, hash=False, repr=False)
    """What the context of every run carries, unless an event or the call that asked for the run brings its own."""
    executor: Executor = Executor.THREAD

    @property
    def route(self) -> str:
        """One route per function, so that only nodes that have it take its work."""
        return f"{self.kind}:{self.function}"

    def to_document(self) -> dict[str, Any]:
        """The target as JSON shows it."""
        return {
            "target_kind": self.kind,
            "function": self.function,
            "args": list(self.args),
            "kwargs": self.kwargs,
        } | present(payload=self.payload, executor=None if self.executor is Executor.THREAD else str(self.executor))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowTarget:
    """A run of a workflow that the executing node can look up; no version means the newest."""

    kind: ClassVar[str] = "workflow"
    route: ClassVar[str] = "workflow"

    workflow_id: str
    version: int | None = None
    inputs: dict[str, Any] = field(default_factory=dict, hash=False, repr=False)

    def to_document(self) -> dict[str, Any]:
        """The target as JSON shows it."""
        return present(
            target_kind=self.kind, workflow_id=self.workflow_id, version=self.version, inputs=self.inputs or None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleTarget:
    """A run of an uploaded bundle."""

    kind: ClassVar[str] = "bundle"
    route: ClassVar[str] = "bundle"

    bundle_id: str
    inputs: dict[str, Any] = field(default_factory=dict, hash=False, repr=False)

    def to_document(self) -> dict[str, Any]:
        """The target as JSON shows it."""
        return present(target_kind=self.kind, bundle_id=self.bundle_id, inputs=self.inputs or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTarget:
    """An event to emit; it may trigger other schedules."""

    kind: ClassVar[str] = "event"
    route: ClassVar[str] = "event"

    event_type: str
    payload: Any = field(default_factory=dict, hash=False, repr=False)

    def to_document(self) -> dict[str, Any]:
        """The target as JSON shows it."""
        return {"target_kind": self.kind, "event_type": self.event_type, "payload": self.payload}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTarget:
    """A question or job in plain words for an agent, with the context that steers it."""

    kind: ClassVar[str] = "task"
    route: ClassVar[str] = "task"

    query: str
    context: dict[str, Any] = field(default_factory=dict, hash=False, repr=False)

    def to_document(self) -> dict[str, Any]:
        """The target as JSON shows it."""
        return present(target_kind=self.kind, query=self.query, context=self.context or None)


def read_function(reader: Reader) -> FunctionTarget:
    """Read the function's name, its arguments and its executor."""
    args = reader.json("args")
    if args is not None and not isinstance(args, list):
        reader.problem("args", f"must be an array, not {shown(args)}")
        args = None
    function = reader.text("function", high=500)
    return FunctionTarget(
        function=function,
        args=tuple(args or ()),
        kwargs=reader.json_object("kwargs"),
        payload=reader.json("payload"),
        executor=reader.choice("executor", _EXECUTORS, Executor.THREAD),
    )


def read_workflow(reader: Reader) -> WorkflowTarget:
    """Read the workflow, its version and its input."""
    version = reader.integer("version", None)
    return WorkflowTarget(workflow_id=reader.text("workflow_id"), version=version, inputs=reader.json_object("inputs"))


def read_bundle(reader: Reader) -> BundleTarget:
    """Read the bundle and its input."""
    return BundleTarget(bundle_id=reader.text("bundle_id"), inputs=reader.json_object("inputs"))


def read_event_target(reader: Reader) -> EventTarget:
    """Read the event to emit; no payload is an empty one."""
    payload = reader.json("payload")
    kind = reader.read("event_type", event_type)
    return EventTarget(event_type=kind, payload={} if payload is None else payload)


def read_task(reader: Reader) -> TaskTarget:
    """Read the query and its context."""
    return TaskTarget(query=read_prompt(reader, "query"), context=reader.json_object("context"))
