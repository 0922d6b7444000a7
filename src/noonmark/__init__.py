"""Noonmark keeps time for software: durable schedules that start work at the right moment and can say why.

Everything public is importable from here. Nothing is loaded until it is asked for, so that importing one name
costs what that name needs and no more.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noonmark.client import AsyncClient, Client
    from noonmark.core.describe import Description, describe
    from noonmark.core.errors import (
        AnswerTooLarge,
        Conflict,
        InvalidRequest,
        InvalidSchedule,
        InvalidTrigger,
        InvalidWorkflow,
        KeyReused,
        MethodNotFound,
        MissingExtra,
        MissingScope,
        NoonmarkError,
        NotAllowed,
        NotFound,
        OverlapConflict,
        PayloadTooLarge,
        PipelineError,
        QuotaExceeded,
        RevisionConflict,
        RunFailed,
        StoreUnavailable,
        TriggerNeverFires,
        Unauthenticated,
        Unreachable,
    )
    from noonmark.core.event import Event
    from noonmark.core.filters.match import matches
    from noonmark.core.lifecycle import Phase
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.delivery import Delivery
    from noonmark.core.policies.limits import Concurrency, Dependency
    from noonmark.core.policies.options import (
        Allow,
        CancelRunning,
        CatchUpAll,
        CatchUpOne,
        CatchUpWithin,
        Misfire,
        Overlap,
        Queue,
        QueueOne,
        Retry,
        Skip,
        SkipMissed,
        Spread,
        Terminate,
        Window,
    )
    from noonmark.core.run import Run, RunProgress
    from noonmark.core.schedule import parse_schedule
    from noonmark.core.secret import Secret
    from noonmark.core.triggers import (
        CalendarTrigger,
        CronTrigger,
        EventTrigger,
        IntervalTrigger,
        OnceTrigger,
        Trigger,
        fires,
        parse_trigger,
    )
    from noonmark.embedded.answers import EventMatch, EventMatches, Explanation, Redrive
    from noonmark.embedded.async_scheduler import AsyncScheduler, AsyncWorkflow
    from noonmark.embedded.jobs import Job, JobStatus
    from noonmark.embedded.pipeline import JobPipeline, Progress
    from noonmark.embedded.scheduler import Scheduler
    from noonmark.embedded.step_functions import step, workflow
    from noonmark.embedded.workflow import Workflow
    from noonmark.embedded.workflow_runs import StepRun, WorkflowRun
    from noonmark.operations.models.answers import (
        Budget,
        Halt,
        Message,
        Mob,
        NewHalt,
        Session,
        UsageGroup,
        UsageSummary,
    )
    from noonmark.ports.records import NodeRecord
    from noonmark.ports.workflows import Approval, WorkflowVersion
    from noonmark.targets.agent.settings import AgentSettings
    from noonmark.targets.function.context import Context

__version__ = "0.1.0"
"""Here as well as in the package's metadata, which takes as long to read as a node takes to start."""

_HOMES = {
    "noonmark.client": ("AsyncClient", "Client"),
    "noonmark.core.describe": ("Description", "describe"),
    "noonmark.core.errors": (
        "AnswerTooLarge",
        "Conflict",
        "InvalidRequest",
        "InvalidSchedule",
        "InvalidTrigger",
        "InvalidWorkflow",
        "KeyReused",
        "MethodNotFound",
        "MissingExtra",
        "MissingScope",
        "NoonmarkError",
        "NotAllowed",
        "NotFound",
        "OverlapConflict",
        "PayloadTooLarge",
        "PipelineError",
        "QuotaExceeded",
        "RevisionConflict",
        "RunFailed",
        "StoreUnavailable",
        "TriggerNeverFires",
        "Unauthenticated",
        "Unreachable",
    ),
    "noonmark.core.event": ("Event",),
    "noonmark.core.lifecycle": ("Phase",),
    "noonmark.core.filters.match": ("matches",),
    "noonmark.core.occurrence": ("Occurrence",),
    "noonmark.core.policies.delivery": ("Delivery",),
    "noonmark.core.policies.limits": ("Concurrency", "Dependency"),
    "noonmark.core.policies.options": (
        "Allow",
        "CancelRunning",
        "CatchUpAll",
        "CatchUpOne",
        "CatchUpWithin",
        "Misfire",
        "Overlap",
        "Queue",
        "QueueOne",
        "Retry",
        "Skip",
        "SkipMissed",
        "Spread",
        "Terminate",
        "Window",
    ),
    "noonmark.core.run": ("Run", "RunProgress"),
    "noonmark.core.schedule": ("parse_schedule",),
    "noonmark.core.secret": ("Secret",),
    "noonmark.core.triggers": (
        "CalendarTrigger",
        "CronTrigger",
        "EventTrigger",
        "IntervalTrigger",
        "OnceTrigger",
        "Trigger",
        "fires",
        "parse_trigger",
    ),
    "noonmark.embedded.answers": ("EventMatch", "EventMatches", "Explanation", "Redrive"),
    "noonmark.embedded.async_scheduler": ("AsyncScheduler", "AsyncWorkflow"),
    "noonmark.embedded.jobs": ("Job", "JobStatus"),
    "noonmark.embedded.pipeline": ("JobPipeline", "Progress"),
    "noonmark.embedded.scheduler": ("Scheduler",),
    "noonmark.embedded.step_functions": ("step", "workflow"),
    "noonmark.embedded.workflow": ("Workflow",),
    "noonmark.embedded.workflow_runs": ("StepRun", "WorkflowRun"),
    "noonmark.operations.models.answers": (
        "Budget",
        "Halt",
        "Message",
        "Mob",
        "NewHalt",
        "Session",
        "UsageGroup",
        "UsageSummary",
    ),
    "noonmark.ports.records": ("NodeRecord",),
    "noonmark.ports.workflows": ("Approval", "WorkflowVersion"),
    "noonmark.targets.agent.settings": ("AgentSettings",),
    "noonmark.targets.function.context": ("Context",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AgentSettings",
    "Allow",
    "AnswerTooLarge",
    "Approval",
    "AsyncClient",
    "AsyncScheduler",
    "AsyncWorkflow",
    "Budget",
    "CalendarTrigger",
    "CancelRunning",
    "CatchUpAll",
    "CatchUpOne",
    "CatchUpWithin",
    "Client",
    "Concurrency",
    "Conflict",
    "Context",
    "CronTrigger",
    "Delivery",
    "Dependency",
    "Description",
    "Event",
    "EventMatch",
    "EventMatches",
    "EventTrigger",
    "Explanation",
    "Halt",
    "IntervalTrigger",
    "InvalidRequest",
    "InvalidSchedule",
    "InvalidTrigger",
    "InvalidWorkflow",
    "Job",
    "JobPipeline",
    "JobStatus",
    "KeyReused",
    "Message",
    "MethodNotFound",
    "Misfire",
    "MissingExtra",
    "MissingScope",
    "Mob",
    "NewHalt",
    "NodeRecord",
    "NoonmarkError",
    "NotAllowed",
    "NotFound",
    "Occurrence",
    "OnceTrigger",
    "Overlap",
    "OverlapConflict",
    "PayloadTooLarge",
    "Phase",
    "PipelineError",
    "Progress",
    "Queue",
    "QueueOne",
    "QuotaExceeded",
    "Redrive",
    "Retry",
    "RevisionConflict",
    "Run",
    "RunFailed",
    "RunProgress",
    "Scheduler",
    "Secret",
    "Session",
    "Skip",
    "SkipMissed",
    "Spread",
    "StepRun",
    "StoreUnavailable",
    "Terminate",
    "Trigger",
    "TriggerNeverFires",
    "Unauthenticated",
    "Unreachable",
    "UsageGroup",
    "UsageSummary",
    "Window",
    "Workflow",
    "WorkflowRun",
    "WorkflowVersion",
    "describe",
    "fires",
    "matches",
    "parse_schedule",
    "parse_trigger",
    "step",
    "workflow",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for (PEP 562)."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'noonmark' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted([*globals(), *__all__])
