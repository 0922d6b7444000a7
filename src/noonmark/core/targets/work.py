"""Targets that name a piece of work and its input: function, workflow, bundle, event, task.

JSON inside a target is its own copy and never changes after the target was read.
"""

from __future__ import annotations

import re
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from noonmark.core.documents import named, present
from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND, micros_to_seconds
from noonmark.core.json_values import event_type, identifier, shown, text_of
from noonmark.core.targets.content import read_prompt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.documents import Reader
    from noonmark.core.instants import Micros

MAX_LABELS = 16
"""Of a node, or of those that a bundle asks for."""
MAX_SLOTS = 10_000
MAX_ROUTED_SLOTS = 32
"""A node serves one route for every number of slots up to this one. Who needs more may meet a node that has too few."""
MAX_WAIT_SECONDS = 31_622_400
"""A leap year."""
_DIGEST = re.compile(r"(?:sha256:)?([0-9A-Fa-f]{64})")


class Executor(StrEnum):
    """Where a node calls a function that is not async: in a thread, or in a worker process."""

    THREAD = "thread"
    PROCESS = "process"


_EXECUTORS = named(Executor)


@frozen(kw_only=True)
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


@frozen(kw_only=True)
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


@frozen(kw_only=True)
class ResourceWait:
    """How a run waits for a node that has what it needs."""

    retry: Micros = 30 * SECOND
    """How long a node that has too little free at present waits before it looks again."""
    max_wait: Micros | None = None
    """How long a run waits at the most; None for as long as it takes."""

    def to_document(self) -> dict[str, Any]:
        """Both in seconds."""
        longest = None if self.max_wait is None else micros_to_seconds(self.max_wait)
        return present(retry_seconds=micros_to_seconds(self.retry), max_wait_seconds=longest)


PATIENT = ResourceWait()


@frozen(kw_only=True)
class BundleTarget:
    """A run of a bundle: of the newest with an id, or of the one with a digest."""

    kind: ClassVar[str] = "bundle"

    bundle_id: str | None = None
    digest: str | None = None
    inputs: dict[str, Any] = field(default_factory=dict, hash=False, repr=False)
    labels: dict[str, str] = field(default_factory=dict, hash=False)
    """Those that a node must have to run it."""
    slots: int = 0
    """How many slots a node must have in all to run it."""
    resource_wait: ResourceWait = PATIENT

    @property
    def route(self) -> str:
        """One route for bundles that any node may run, and one for each set of labels and number of slots."""
        return bundle_route(self.labels, self.slots)

    def to_document(self) -> dict[str, Any]:
        """The target as JSON shows it."""
        return present(
            target_kind=self.kind,
            bundle_id=self.bundle_id,
            digest=self.digest,
            inputs=self.inputs or None,
            labels=self.labels or None,
            slots=self.slots or None,
            resource_wait=None if self.resource_wait == PATIENT else self.resource_wait.to_document(),
        )


def bundle_route(labels: Mapping[str, str], slots: int = 0) -> str:
    """The route of bundles that need a node with these labels and at least so many slots."""
    wanted = [f"{name}={value}" for name, value in sorted(labels.items())]
    if slots:
        wanted.append(f"slots:{min(slots, MAX_ROUTED_SLOTS)}")
    return f"{BundleTarget.kind}:{','.join(wanted)}" if wanted else BundleTarget.kind


_WITH_LABELS = f"{BundleTarget.kind}:"


def is_bundle_route(route: str) -> bool:
    """Whether occurrences of bundles have this route."""
    return route == BundleTarget.kind or route.startswith(_WITH_LABELS)


@frozen(kw_only=True)
class EventTarget:
    """An event to emit; it may trigger other schedules."""

    kind: ClassVar[str] = "event"
    route: ClassVar[str] = "event"

    event_type: str
    payload: Any = field(default_factory=dict, hash=False, repr=False)

    def to_document(self) -> dict[str, Any]:
        """The target as JSON shows it."""
        return {"target_kind": self.kind, "event_type": self.event_type, "payload": self.payload}


@frozen(kw_only=True)
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
    return WorkflowTarget(
        workflow_id=reader.read("workflow_id", identifier),
        version=reader.integer("version", None, low=1),
        inputs=reader.json_object("inputs"),
    )


def read_bundle(reader: Reader) -> BundleTarget:
    """Read the bundle, its input, and how it waits for resources."""
    bundle_id, digest = reader.text("bundle_id", None), reader.read("digest", bundle_digest, None)
    if (reader.raw("bundle_id") is None) == (reader.raw("digest") is None):
        reader.problem("bundle_id", "is required, unless digest names the bundle; give one of them")
    return BundleTarget(
        bundle_id=bundle_id,
        digest=digest,
        inputs=reader.json_object("inputs"),
        labels=reader.text_map("labels", key=node_label, value=node_label, high=MAX_LABELS),
        slots=reader.integer("slots", 0, low=0, high=MAX_SLOTS),
        resource_wait=_read_resource_wait(reader),
    )


def _read_resource_wait(reader: Reader) -> ResourceWait:
    if reader.raw("resource_wait") is None:
        return PATIENT
    fields = reader.child("resource_wait")
    waits = ResourceWait(
        retry=fields.seconds("retry_seconds", PATIENT.retry, low=0.1, high=86_400),
        max_wait=fields.seconds("max_wait_seconds", None, low=0.001, high=MAX_WAIT_SECONDS),
    )
    fields.close()
    return waits


def bundle_digest(value: object) -> str:
    """The SHA-256 of a bundle, in lower case; ValueError for anything else."""
    match = _DIGEST.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"must be a SHA-256 digest of 64 hexadecimal digits, not {shown(value)}")
    return match[1].lower()


def node_label(value: object) -> str:
    """The name or the value of a label of a node; ValueError for anything else."""
    text = text_of(1, 63)(value)
    if set(text) & set("=,:") or any(char.isspace() for char in text):
        raise ValueError(f"must not have a blank, a comma, a colon or = in it, as {shown(text)} has")
    return text


def read_event_target(reader: Reader) -> EventTarget:
    """Read the event to emit; no payload is an empty one."""
    payload = reader.json("payload")
    kind = reader.read("event_type", event_type)
    return EventTarget(event_type=kind, payload={} if payload is None else payload)


def read_task(reader: Reader) -> TaskTarget:
    """Read the query and its context."""
    return TaskTarget(query=read_prompt(reader, "query"), context=reader.json_object("context"))
