"""Pages about classes, from their signatures and docstrings: the scheduler in Python, and the client."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import is_dataclass
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING

from docs.generating.words import NOTE, names
from noonmark import (
    Allow,
    Approval,
    AsyncClient,
    AsyncScheduler,
    Budget,
    CancelRunning,
    CatchUpAll,
    CatchUpOne,
    CatchUpWithin,
    Client,
    Concurrency,
    Delivery,
    Dependency,
    Event,
    EventMatch,
    EventMatches,
    Explanation,
    Halt,
    Job,
    JobPipeline,
    JobStatus,
    Message,
    Mob,
    NewHalt,
    NodeRecord,
    Occurrence,
    PipelineError,
    Progress,
    Queue,
    QueueOne,
    Retry,
    Run,
    RunProgress,
    Scheduler,
    Secret,
    Session,
    Skip,
    SkipMissed,
    Spread,
    StepRun,
    Terminate,
    UsageGroup,
    UsageSummary,
    Window,
    Workflow,
    WorkflowRun,
    WorkflowVersion,
    client,
    step,
    workflow,
)
from noonmark.client.requests import Expected, Fields, Filters, NewFields
from noonmark.embedded.declarations import Decorator
from noonmark.targets.function.context import Context
from noonmark.testing import FakeClock, ManualDriver

if TYPE_CHECKING:
    from collections.abc import Callable


MAX_LINE = 100
PARTS = ("micros", "monotonic", "has_begun")
"""Names through which the parts of the library reach each other; not for users."""
DECORATORS = ("cron", "every", "once", "daily", "on_event")
WORKFLOW = "workflow"
"""Declares a workflow, as a call or as a decorator; not awaited."""
POLICIES = {
    "Overlap policies": (Skip, Queue, QueueOne, Allow, CancelRunning, Terminate),
    "Misfire policies": (SkipMissed, CatchUpOne, CatchUpAll, CatchUpWithin, Spread),
    "Other policies": (Retry, Window, Concurrency, Dependency, Delivery),
}
VALUES = (
    *(Progress, PipelineError, Job, JobStatus, Occurrence, Run, RunProgress, Event, Explanation),
    *(EventMatches, EventMatch, WorkflowRun, StepRun, WorkflowVersion, Approval, NodeRecord, Secret, Context),
    *(Session, Message, Mob, Budget, UsageSummary, UsageGroup, Halt, NewHalt),
)


def embedded_page() -> str:
    """The scheduler in a Python program: every class with its methods, from their signatures and docstrings."""
    apart = (*DECORATORS, WORKFLOW)
    methods = [name for name in vars(Scheduler) if _is_method(Scheduler, name) and name not in apart]
    awaited = [name for name in methods if inspect.iscoroutinefunction(getattr(AsyncScheduler, name))]
    others = [name for name in methods if name not in awaited]
    parts = [
        _class(Scheduler, methods),
        f"## Decorators\n\n{inspect.getdoc(Decorator)}\n",
        *(_method(Scheduler, name) for name in DECORATORS),
        "## Workflows from functions\n",
        _method(Scheduler, WORKFLOW),
        *(_function(function) for function in (step, workflow)),
        _values(Workflow),
        *(_method(Workflow, name) for name in vars(Workflow) if _is_method(Workflow, name)),
        _class(AsyncScheduler, []),
        f"| awaited | not awaited |\n| --- | --- |\n| {names(awaited)} | {names((*apart, *others))} |\n",
        _class(JobPipeline, [name for name in vars(JobPipeline) if _is_method(JobPipeline, name)]),
        *(_policies(title, kinds) for title, kinds in POLICIES.items()),
        *(_values(kind) for kind in VALUES),
        "## Testing\n\nImported from `noonmark.testing`.\n",
        *(
            _class(kind, [name for name in vars(kind) if _is_method(kind, name)], "###")
            for kind in (FakeClock, ManualDriver)
        ),
    ]
    return (
        f"{NOTE}# The scheduler in Python\n\n"
        "Every public method and attribute of the embedded scheduler, for looking up. To learn it, begin with the\n"
        "[tutorial](../tutorial.md); triggers have a [page of their own](triggers.md).\n\n" + "\n".join(parts)
    )


def client_page() -> str:
    """The client: every method from its signature and words, every value with its attributes."""
    methods = [name for name in vars(Client) if _is_method(Client, name)]
    values = [kind for kind in vars(client).values() if is_dataclass(kind)]
    parts = [
        _class(Client, methods),
        _class(AsyncClient, []),
        "## Arguments\n\n`fields`, `changes`, `expected` and `filters` stand for these, by name.\n",
        *(_shape(kind) for kind in (Fields, NewFields, Expected, Filters)),
        "## Values\n\nA `Document` is JSON, as a dict.\n",
        *(_shape(kind) for kind in values),
    ]
    return (
        f"{NOTE}# The client in Python\n\n"
        "Every method of the clients in `noonmark.client`, and what they answer, for looking up. To learn it, begin\n"
        "with the [guide](../guides/client.md).\n\n" + "\n".join(parts)
    )


def _shape(kind: type) -> str:
    """A class that only holds something: what it is, and each attribute with its type."""
    [tree] = ast.parse(inspect.getsource(kind)).body
    fields = [one for one in tree.body if isinstance(one, ast.AnnAssign)]
    for one in fields:
        one.value = None if isinstance(one.value, ast.Call) else one.value
    lines = [ast.unparse(one).replace("'", '"') for one in fields]
    more = [f"# all of {base.id}" for base in tree.bases if getattr(base, "id", "") == Fields.__name__]
    return f"### {kind.__name__}\n\n{inspect.getdoc(kind)}\n\n```py\n" + "\n".join([*more, *lines]) + "\n```\n"


def _policies(title: str, kinds: tuple[type, ...]) -> str:
    """The typed values of an option: how each is made, and its settings."""
    return "\n".join([f"## {title}\n", *(_values(kind, "###") for kind in kinds)])


def _is_method(kind: type, name: str) -> bool:
    return not name.startswith("_") and name not in PARTS and inspect.isfunction(vars(kind)[name])


def _class(kind: type, methods: list[str], heading: str = "##") -> str:
    made = _signature(kind.__name__, kind.__init__)
    parts = [f"{heading} {kind.__name__}\n", f"{inspect.getdoc(kind)}\n", f"```py\n{made}\n```\n"]
    parts.append(f"{inspect.getdoc(kind.__init__)}\n")
    return "\n".join([*parts, *(_method(kind, name, heading + "#") for name in methods)])


def _method(kind: type, name: str, heading: str = "###") -> str:
    method = getattr(kind, name)
    call = "await " * inspect.iscoroutinefunction(method) + _signature(name, method)
    return f"{heading} {name}\n\n```py\n{call}\n```\n\n{inspect.getdoc(method)}\n"


def _function(function: Callable[..., object]) -> str:
    name = function.__name__
    return f"### noonmark.{name}\n\n```py\n{_signature(name, function)}\n```\n\n{inspect.getdoc(function)}\n"


def _signature(name: str, call: Callable[..., object]) -> str:
    """The call as one writes it: without self, an argument to a line where it is long."""
    signature = inspect.signature(call)
    given: list[str] = []
    for one in signature.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not any(before.startswith("*") for before in given):
            given.append("*")
        if one.name != "self":
            given.append(_argument(one))
    returns = "" if signature.return_annotation == "None" else f" -> {signature.return_annotation}"
    line = f"{name}({', '.join(given)}){returns}"
    if len(line) <= MAX_LINE:
        return line
    return f"{name}(\n" + "".join(f"    {one},\n" for one in given) + f"){returns}"


def _argument(one: inspect.Parameter) -> str:
    stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
    kind = "" if one.annotation.startswith("Unpack") else f": {one.annotation}"
    return f"{stars}{one.name}{kind}" + ("" if one.default is one.empty else f" = {one.default!r}")


def _values(kind: type, heading: str = "##") -> str:
    """A class that is read: its attributes, those that say what they are."""
    about, _, _ = (
        (inspect.getdoc(kind) or "").partition("\n\n") if is_dataclass(kind) else (inspect.getdoc(kind), "", "")
    )
    properties = {name: inspect.getdoc(value) for name, value in vars(kind).items() if isinstance(value, property)}
    told = {name: text for name, text in (_told(kind) | properties).items() if name not in PARTS}
    rows = [f"| `{name}` | {' '.join(text.split())} |" for name, text in told.items()]
    table = ["", f"| {'value' if issubclass(kind, Enum) else 'attribute'} | |", "| --- | --- |", *rows] if rows else []
    return "\n".join([f"{heading} {kind.__name__}", "", about or "", *table, ""])


def _told(kind: type) -> dict[str, str]:
    """The attributes of a class that have a line of their own below them."""
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    told = {}
    for field, text in pairwise(tree.body):
        if isinstance(field, ast.Assign | ast.AnnAssign) and isinstance(text, ast.Expr):
            [target] = field.targets if isinstance(field, ast.Assign) else [field.target]
            name = str(getattr(kind, target.id).value) if issubclass(kind, Enum) else target.id
            told[name] = inspect.cleandoc(text.value.value)
    return told
