"""The scheduler for a Python program: durable schedules with one import and no server."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, Unpack, cast, overload

from noonmark import __version__
from noonmark.clocks import SystemClock
from noonmark.core.errors import Conflict, InvalidSchedule, NotFound
from noonmark.extras import require
from noonmark.targets import MAX_THREADS
from noonmark.wiring import (
    fresh_id,
    make_first_call,
    make_model_check,
    make_node_locks,
    make_pinger,
    make_program_traces,
    make_runner,
    make_seal,
    make_store,
    make_target,
    node_name,
    store_option,
    store_url,
    zone_data_version,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import PurePath
    from types import FrameType, TracebackType
    from zoneinfo import ZoneInfo

    from noonmark.client.requests import SessionFields
    from noonmark.core.event import Event
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.delivery import Delivery
    from noonmark.core.policies.options import (
        DeliveryName,
        ExecutorName,
        Misfire,
        MisfireDocument,
        MisfireName,
        Overlap,
        OverlapDocument,
        OverlapName,
        Retry,
        RetryDocument,
    )
    from noonmark.core.run import Run
    from noonmark.core.secret import Secret
    from noonmark.core.targets.session import Provider
    from noonmark.core.triggers import EventTrigger, Trigger
    from noonmark.embedded.answers import EventMatches, Explanation, Redrive
    from noonmark.embedded.declarations import Decorator, ExpectedId, JobFunction
    from noonmark.embedded.documents import (
        FunctionOptions,
        FurtherOptions,
        HttpOptions,
        Options,
        TargetOptions,
        Upstream,
    )
    from noonmark.embedded.jobs import Job, JobStatus
    from noonmark.embedded.runners import Runner
    from noonmark.embedded.workflow import Declared, Workflow
    from noonmark.embedded.workflow_runs import EndedRun, Records, WorkflowRun
    from noonmark.operations.models.answers import Budget, Halt, Message, Mob, NewHalt, Session, UsageSummary
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.clock import Clock
    from noonmark.ports.events import EventSink
    from noonmark.ports.records import NodeRecord, StoredSchedule
    from noonmark.ports.runtime import Runtime
    from noonmark.ports.store import Store
    from noonmark.ports.target import Target
    from noonmark.ports.workflows import Approval, WorkflowVersion
    from noonmark.targets.agent.settings import AgentSettings
    from noonmark.targets.bundle.settings import BundleSettings
    from noonmark.targets.http.settings import HttpTargetSettings
    from noonmark.telemetry.traces import TraceRecorder

    OnFailureName = Literal["stop", "continue"]
    SessionStateName = Literal["idle", "active", "suspended", "archived"]
    BudgetScopeName = Literal["schedule", "session", "user", "tenant"]
    PeriodName = Literal["day", "month", "total"]
    WhenExhaustedName = Literal["skip", "pause", "pause_until_next_period"]
    UsageByName = Literal["user", "schedule", "session", "model", "day"]

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., Any]")

_PAGE = 1_000


class Scheduler:
    """Stores schedules, and runs them between `start` and `stop`.

    Every method works before `start` and after `stop`, from any thread. Several schedulers, in one process or in many,
    may share a durable store: each occurrence is run by one of them. A forked process has the scheduler too, not
    started. A schedule is given by its id, as a `Job`, or by its name if no other has that. The store is opened by
    `start`, or by the first method that needs it.
    """

    def __init__(  # noqa: PLR0913 - each is a setting of its own
        self,
        store: str | PurePath = "memory://",
        *,
        lease: float | timedelta = 15.0,
        max_threads: int = MAX_THREADS,
        max_workers: int | None = None,
        max_processes: int | None = None,
        keep_days: float | timedelta = 30,
        keep_occurrences: int = 10_000,
        secret_key: str | None = None,
        signing_key: str | None = None,
        timezone: str | ZoneInfo | None = None,
        traces: bool = False,
        allow_bundles: bool = False,
        agents: str | AgentSettings | None = None,
        agent_model: str | None = None,
        clock: Clock | None = None,
        sink: EventSink | None = None,
    ) -> None:
        """Use a store: `memory://`, `sqlite:///jobs.db`, `postgresql://host/database` or `redis://host/number`.

        A `Path`, and text that ends in .db, .sqlite or .sqlite3, is the path of a SQLite file.

        A run whose process dies is taken over when its lease, in seconds, has expired. At most `max_threads` functions
        run in threads (`max_workers` is another name for it), and at most `max_processes` in processes, by default one
        per processor. The newest `keep_occurrences` ended occurrences of each schedule are kept, for `keep_days` at
        most. Secrets are encrypted with `secret_key`, as printed by `noonmark secret key`. Requests are signed with
        `signing_key`, or else with a key that the store has generated. With `traces`, what happens to occurrences is
        recorded with the tracer provider that the program has set for OpenTelemetry. With `allow_bundles`, this process
        runs the bundles that were pushed to the store, also those that came over the network: a bundle is code.

        With `agents="embedded"`, this process delivers to sessions, mobs and tasks, with the models that pydantic-ai
        names; with a URL, the host there does. `AgentSettings` sets more than that. `agent_model` is the model of those
        that name none; `test` answers without a key.

        Instants are aware datetimes. With a `timezone`, every method and the triggers given to it also take naive
        ones, which are local times there: one that the clock skips is the first instant after the gap, one that it
        shows twice is the first of the two. Cron expressions and `daily` have the time zone that they name, by default
        Always UTC, also with another `timezone` of the scheduler.
        """
        from noonmark.core.triggers.recurrence import zone_argument
        from noonmark.embedded.arguments import count_argument, duration_argument, signing_key_argument
        from noonmark.embedded.declarations import Declarations
        from noonmark.embedded.runners import RunnerPool, register_fork
        from noonmark.ports.runtime import Runtime, Timing
        from noonmark.targets.command.programs import ProgramPolicy
        from noonmark.targets.function.registry import FunctionRegistry

        self._clock = clock or SystemClock()
        self._functions = FunctionRegistry()
        timing = Timing(
            lease=duration_argument("lease", lease),
            keep_for=duration_argument("keep_days", keep_days, unit=86_400),
            keep_count=count_argument("keep_occurrences", keep_occurrences),
        )
        self._limits = (
            _thread_limit(max_threads, max_workers),
            None if max_processes is None else count_argument("max_processes", max_processes),
        )
        self._zone = None if timezone is None else zone_argument(timezone)
        self._programs = ProgramPolicy(is_offered=False)
        self._bundles = _bundle_settings(is_allowed=allow_bundles)
        self._agents = self._with_schedule_tools(_agent_settings(agents, agent_model))
        self._seal, self._keys = make_seal(secret_key), signing_key_argument(signing_key)
        url = store_url(store)
        unopened = make_store(url, self._clock)
        recorder = make_program_traces(self._clock, version=__version__, node=node_name()) if traces else None
        self._runtime = Runtime(
            node=node_name() if recorder is None else recorder.node,
            store=unopened,
            clock=self._clock,
            target=self._new_target(unopened),
            sink=_all_sinks(sink, recorder),
            traces=recorder,
            pinger=make_pinger(),
            version=__version__,
            zone_data=zone_data_version(),
            timing=timing,
            locks=make_node_locks(url, unopened),
            first_call=make_first_call(unopened, self._agents),
            has_remote_host=self._agents is None or self._agents.remote_url is not None,
            reach=store_option(url),
        )
        self._declarations = Declarations(
            unopened, self._functions, self._clock, timing.lookahead, self._zone, _model_check(self._agents)
        )
        self._decorated: dict[str, Callable[..., Any]] = {}
        self._undeclared: deque[tuple[Callable[..., Any], dict[str, Any], ExpectedId]] = deque()
        """Decorated functions that are declared when the store is opened, with their options and expected ids."""
        self._undeclared_workflows: deque[Declared] = deque()
        self._runners = RunnerPool(self._new_runner)
        self._open_lock = threading.RLock()
        self._is_open = self._is_closed = False
        register_fork(self)

    # Create schedules.

    def schedule(  # noqa: PLR0913 - each is an option of its own
        self,
        func: Callable[..., Any] | Mapping[str, Any],
        name: str | None = None,
        trigger: Trigger | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        max_runs: int | None = None,
        *,
        payload: Any = None,
        overlap: Overlap | OverlapName | OverlapDocument | None = None,
        misfire: Misfire | MisfireName | MisfireDocument | None = None,
        retries: int | Retry | RetryDocument = 0,
        timeout: float | timedelta | None = None,
        jitter: float | timedelta | None = None,
        labels: Mapping[str, str] | None = None,
        depends_on: Sequence[Upstream] | None = None,
        delivery: Delivery | DeliveryName | None = None,
        function_name: str | None = None,
        executor: ExecutorName | None = None,
        **further: Unpack[FurtherOptions],
    ) -> str:
        """Create a schedule of a function and return its id, which stays the same across restarts.

        Without a trigger it runs once, at once. With a name it is declared: the same declaration again changes nothing,
        another one is a new revision. Without a name it is always new.

        `args`, `kwargs` and `payload` are JSON; a `context` parameter of the function has the payload. `depends_on`
        has the schedules that must run before it, by id or name, as `Job`, `Dependency` or mappings. Without a trigger,
        it runs whenever all of them have run. With `executor="process"` it runs in a process of its own.

        `overlap` is `Skip`, `Queue`, `QueueOne`, `Allow`, `CancelRunning` or `Terminate`, `misfire` is `SkipMissed`,
        `CatchUpOne`, `CatchUpAll`, `CatchUpWithin` or `Spread`, and `retries` is a number or `Retry`; each may
        also be a name or a document. `timeout` and `jitter` are seconds or a `timedelta`.

        Further options are `description`, `pause_on_failure` (after that many failures in a row), `runaway` (pause it
        when it breaks a rule: `max_fires_per_hour`, `max_spend_factor`, `max_identical_results`), `concurrency` (a
        `Concurrency`: schedules with the same key run at most so many at a time; also as `concurrency_key` and
        `concurrency_limit`), `window` (a `Window`), `expected_seconds` (a run that takes longer is reported, and goes
        on), `expected_rate` (`at_least` successes and `at_most` starts in `per_seconds`, or it is reported),
        `ping_urls` (URLs to call on `start`, `success` and `failure`), `budget` (what one run of an agent may use, as
        `{"max_cost_usd": 0.5, "max_tokens": 20_000}`), and `accepts_payload` (callers of a server on
        the same store may send a payload when they ask for a run).

        Instead of a function, give a target document such as `{"target_kind": "command", "argv": ["ls"]}`: a program, a
        request or an event, as `schedule_command`, `schedule_http` and `schedule_event` declare them.
        """
        options: Options = {
            "name": name,
            "trigger": trigger,
            "args": args,
            "kwargs": kwargs,
            "payload": payload,
            "max_runs": max_runs,
            "overlap": overlap,
            "misfire": misfire,
            "retries": retries,
            "timeout": timeout,
            "jitter": jitter,
            "labels": labels,
            "depends_on": depends_on,
            "delivery": delivery,
            "function_name": function_name,
            "executor": executor,
            **further,
        }
        return self._declare(func, options)

    def schedule_with_deps(
        self,
        func: Callable[..., Any] | Mapping[str, Any],
        depends_on: Sequence[Upstream],
        **options: Unpack[FunctionOptions],
    ) -> str:
        """Create a schedule that depends on others; without a trigger, it runs whenever all of them have run."""
        return self._declare(func, {**options, "depends_on": depends_on})

    def schedule_command(
        self,
        argv: Sequence[str | PurePath],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | PurePath | None = None,
        stdin: str | None = None,
        limits: Mapping[str, int] | None = None,
        **options: Unpack[TargetOptions],
    ) -> str:
        """Create a schedule that starts a program and return its id.

        `argv` is the name or the absolute path of the program, and its arguments; no shell splits it. The program has
        a clean environment with the variables of `env`, starts in the folder `cwd`, and reads the payload of its run
        as JSON, or else `stdin`. `limits` are `memory_mb`, `cpu_seconds` and `nice`. Exit code 0 is success. At its
        timeout, or when it is cancelled, it ends together with everything it has started. The other options are those
        of `schedule`.
        """
        from noonmark.embedded.documents import command_target

        return self._declare_target(command_target(argv, env, cwd, stdin=stdin, limits=limits), options)

    def schedule_http(  # noqa: PLR0913 - each is a part of the request
        self,
        url: str,
        *,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
        secret_headers: Mapping[str, str] | None = None,
        body: Any = None,
        expected_statuses: Sequence[int | str] | None = None,
        retry_statuses: Sequence[int | str] | None = None,
        completion_timeout_seconds: float | timedelta | None = None,
        **options: Unpack[HttpOptions],
    ) -> str:
        """Create a schedule that sends a request and return its id.

        `method` is POST by default. `body` is text, or anything else as JSON. In the body, the values of the `headers`,
        and the path and query of the URL, placeholders such as `{{occurrence_id}}` are filled in. The values of
        `secret_headers` are names of secrets, which `set_secret` has stored for the host of the URL.

        Answers with `expected_statuses` are successes, those with `retry_statuses` may be retried: numbers, or classes
        such as `"5xx"`. The request may go wherever this process can reach. `timeout` is for the whole request, 30
        seconds by default. A receiver that takes the work over, where a server with a `public_url` sends the request,
        has `completion_timeout_seconds` to report its end, a day by default. The other options are those of `schedule`.
        """
        from noonmark.embedded.documents import http_target

        request = http_target(
            url,
            method=method,
            headers=headers,
            secret_headers=secret_headers,
            body=body,
            expected_statuses=expected_statuses,
            retry_statuses=retry_statuses,
            completion_timeout_seconds=completion_timeout_seconds,
        )
        return self._declare_target(request, options)

    def schedule_event(self, event_type: str, **options: Unpack[TargetOptions]) -> str:
        """Create a schedule that emits an event with the payload, and return its id."""
        return self._declare_target({"target_kind": "event", "event_type": event_type}, options)

    def create_many(self, declarations: Iterable[Mapping[str, Any]]) -> list[str]:
        """Create many schedules, a thousand to a transaction, and return their ids in order.

        Each is a mapping of the arguments of `schedule`, with `func`; all of them are new, so none has a name. The
        first invalid one raises an error; the complete batches of a thousand before it are stored.
        """
        self._open()
        created: list[str] = []
        for batch in self._declarations.create_many(declarations):
            created += [schedule.schedule_id for schedule in batch]
            self._runners.adopt({schedule.declaration.target.route for schedule in batch})
            self._runners.wake()
        return created

    # Declare functions by decorators. A module that has them can be imported without a store: what they declare is
    # stored when the store is opened.

    def cron(
        self,
        expressions: str | Iterable[str],
        timezone: str | ZoneInfo = "UTC",
        *,
        dst: Mapping[str, str] | None = None,
        **options: Unpack[Options],
    ) -> Decorator:
        """Fire by a cron expression, or by several."""
        from noonmark.core.triggers import CronTrigger

        return self._decorator(lambda: CronTrigger(expressions, timezone, dst), options)

    def every(
        self,
        interval: float | timedelta | None = None,
        *,
        seconds: float | timedelta = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
        **options: Unpack[Options],
    ) -> Decorator:
        """Fire at an interval, counted from the moment of the first declaration.

        It is `interval`, in seconds, or else the sum of `seconds`, `minutes`, `hours` and `days`.
        """
        from noonmark.embedded.declarations import interval_of

        lengths = {"seconds": seconds, "minutes": minutes, "hours": hours, "days": days}
        return self._decorator(lambda: interval_of(interval, lengths), options)

    def once(self, at: datetime, **options: Unpack[Options]) -> Decorator:
        """Fire once, at an instant."""
        from noonmark.core.triggers import OnceTrigger

        return self._decorator(lambda: OnceTrigger(at), options)

    def daily(self, at: str, timezone: str | ZoneInfo = "UTC", **options: Unpack[Options]) -> Decorator:
        """Fire every day at a local time such as 09:00 or 09:00:30."""
        from noonmark.embedded.declarations import daily_at

        return self._decorator(lambda: daily_at(at, timezone), options)

    def on_event(
        self,
        event_type: str | Iterable[str],
        filters: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> Decorator:
        """Fire whenever an event of the type is emitted that passes the filters."""
        from noonmark.core.triggers import EventTrigger

        return self._decorator(lambda: EventTrigger(event_type, filters), options)

    # Workflows.

    @overload
    def workflow(
        self,
        of: str,
        *,
        steps: Iterable[Callable[..., Any] | Mapping[str, Any]],
        name: str | None = None,
        description: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        on_failure: OnFailureName | None = None,
    ) -> Workflow: ...

    @overload
    def workflow(
        self,
        of: type,
        *,
        name: str | None = None,
        description: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        on_failure: OnFailureName | None = None,
    ) -> Workflow: ...

    @overload
    def workflow(
        self,
        of: str | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        on_failure: OnFailureName | None = None,
    ) -> Callable[[type], Workflow]: ...

    def workflow(
        self,
        of: str | type | None = None,
        *,
        steps: Iterable[Callable[..., Any] | Mapping[str, Any]] | None = None,
        name: str | None = None,
        description: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        on_failure: OnFailureName | None = None,
    ) -> Workflow | Callable[[type], Workflow]:
        """Declare a workflow from functions: a class, by a call or as a decorator, or an id and a list of steps.

        `noonmark.step` says how functions become steps, and `noonmark.workflow` how classes become workflows. A list
        may have step documents beside functions. Parameters that are not steps are the inputs, with their defaults and
        types; `inputs` declares more of them, or says more about them. After a failed step nothing more starts; with
        `on_failure="continue"`, everything goes on that does not depend on it.

        The definition is stored when the store is opened, as the next version if it differs from the newest one.
        """
        from noonmark.embedded.references import future_reference, refer
        from noonmark.embedded.step_functions import WorkflowOptions
        from noonmark.embedded.workflow import Workflow, declare

        options = WorkflowOptions(
            workflow_id=of if isinstance(of, str) else None,
            name=name,
            description=description,
            inputs=inputs,
            on_failure=on_failure,
        )
        is_durable = self._runtime.store.traits.is_durable

        def reference(func: Callable[..., Any], *, is_being_defined: bool) -> str:
            # A class gets its name in its module only when the decorator has returned.
            future = future_reference(self._functions, func) if is_being_defined else None
            return refer(self._functions, func, future, is_durable=is_durable)

        def declare_now(source: str | type | None, *, is_being_defined: bool) -> Workflow:
            declared = declare(source, steps, options, partial(reference, is_being_defined=is_being_defined))
            with self._open_lock:
                self._undeclared_workflows.append(declared)
                if self._is_open:
                    self._open()
            return Workflow(
                declared,
                source if isinstance(source, type) else None,
                version_of=self._version_of,
                run=self.run_workflow,
                schedule=self._declare_target,
            )

        if isinstance(of, type):
            return declare_now(of, is_being_defined=True)
        if steps is None:
            return partial(declare_now, is_being_defined=True)
        return declare_now(of, is_being_defined=False)

    def create_workflow(self, definition: Mapping[str, Any]) -> int:
        """Store a definition of a workflow, and return its version; the newest definition again is that version.

        It is a document as `POST /workflows` takes it, in which a `target` or `compensate` may also be a function. Its
        steps have the rights of this program.
        """
        from noonmark.embedded.references import refer
        from noonmark.embedded.step_functions import DefinitionBuilder

        self._open()
        is_durable = self._store.traits.is_durable
        builder = DefinitionBuilder(lambda func: refer(self._functions, func, None, is_durable=is_durable))
        return self._store_workflow(builder.with_references(definition), builder.functions)

    def run_workflow(
        self,
        workflow_id: str,
        inputs: Mapping[str, Any] | None = None,
        wait: bool = True,  # noqa: FBT001, FBT002 - as in the field
        *,
        version: int | None = None,
        key: str | None = None,
    ) -> Any:
        """Run the newest version of a workflow, or another one, and return the result of each step by its id.

        If a step fails, `RunFailed` is raised: its message and its `step_id` say which, and its cause is the exception
        if the step ran in this process. With `wait=False`, return the id of the run at once. The same `key` again is
        the same run. If this process dies, another one on the store goes on with it. Works without `start`.
        """
        from noonmark.embedded.workflow_runs import raise_unless_completed

        if not wait:
            return self._start_workflow(workflow_id, inputs, version, key)
        run = self._run_workflow(workflow_id, inputs, version, key)
        raise_unless_completed(run)
        return run.results()

    def workflow_run(self, run_id: str) -> WorkflowRun:
        """A run of a workflow with its steps."""
        from noonmark.embedded.workflow_runs import WorkflowRun
        from noonmark.operations import workflows
        from noonmark.operations.models.arguments import OneWorkflowRun

        request = OneWorkflowRun.read({"workflow_run_id": run_id})
        return WorkflowRun.from_document(
            workflows.get_workflow_run(self._service(), _caller("workflow_run/get"), request)
        )

    def workflow_runs(self, workflow_id: str | None = None, limit: int = 100) -> list[WorkflowRun]:
        """The latest runs of a workflow, or of all, latest first, without their steps."""
        from noonmark.core.documents import present
        from noonmark.embedded.workflow_runs import WorkflowRun
        from noonmark.operations import workflows
        from noonmark.operations.models.arguments import WorkflowRunQuery

        request = WorkflowRunQuery.read(present(workflow_id=workflow_id, limit=limit))
        answer = workflows.list_workflow_runs(self._service(), _caller("workflow_run/list"), request)
        return [WorkflowRun.from_document(document) for document in answer["workflow_runs"]]

    def cancel_workflow_run(self, run_id: str) -> None:
        """Cancel a run: its running steps are asked to stop, and completed ones are compensated."""
        from noonmark.operations import workflows
        from noonmark.operations.models.arguments import WorkflowRunCancellation

        request = WorkflowRunCancellation.read({"workflow_run_id": run_id})
        workflows.cancel_workflow_run(self._service(), _caller("workflow_run/cancel"), request)

    def workflows(self) -> list[WorkflowVersion]:
        """The newest version of each workflow, by id."""
        from noonmark.embedded.declarations import OWNER

        versions: list[WorkflowVersion] = []
        while page := self._store.workflows(OWNER.tenant, _PAGE, after=versions[-1].workflow_id if versions else None):
            versions += page
        return versions

    def delete_workflow(self, workflow_id: str) -> None:
        """Delete a workflow with all its versions; runs that have begun go on. Conflict if a schedule names it."""
        from noonmark.operations import workflows
        from noonmark.operations.models.arguments import WorkflowDeletion

        request = WorkflowDeletion.read({"workflow_id": workflow_id})
        workflows.delete_workflow(self._service(), _caller("workflow/delete"), request)

    def approvals(self, limit: int = 100) -> list[Approval]:
        """The approvals that steps of workflows wait for, latest first."""
        from noonmark.embedded.arguments import count_argument
        from noonmark.embedded.declarations import OWNER
        from noonmark.ports.workflows import ApprovalState

        return self._store.approvals(OWNER.tenant, count_argument("limit", limit), state=ApprovalState.PENDING)

    def approve(self, approval_id: str, comment: str | None = None, *, by: str = "local") -> None:
        """Approve: the step completes, and what depends on it starts. Conflict if somebody has decided otherwise."""
        self._decide(approval_id, comment, by=by, approves=True)

    def deny(self, approval_id: str, comment: str | None = None, *, by: str = "local") -> None:
        """Deny: the step fails."""
        self._decide(approval_id, comment, by=by, approves=False)

    # Change schedules.

    def update(self, job_id: str | Job, func: Callable[..., Any] | None = None, **changes: Unpack[Options]) -> Job:
        """Change some options of a schedule, and leave the others; None restores the default. Returns the new state.

        Occurrences due from now on follow the new declaration. One that runs already, or is due within 20 ms, finishes
        under the old one.
        """
        from noonmark.embedded.jobs import read_job

        self._open()
        self._declarations.update(job_id, func, dict(changes))
        self._runners.wake()
        return read_job(self._store, self._find(job_id))

    def add_dependency(self, job_id: str | Job, depends_on: Sequence[Upstream]) -> None:
        """Add dependencies to a schedule, each given by its id or name, as `Job`, `Dependency` or a mapping."""
        self._open()
        self._declarations.add_dependencies(job_id, depends_on)
        self._runners.wake()

    def pause(self, job_id: str | Job, *, reason: str | None = None, until: datetime | None = None) -> None:
        """Pause a schedule; fires missed meanwhile are recorded as skipped. At `until` it resumes automatically."""
        from noonmark.embedded.arguments import instant_argument
        from noonmark.operations import schedule_edits

        schedule = self._find(job_id).schedule
        ends = None if until is None else instant_argument("until", self._aware(until))
        schedule_edits.pause(self._store, schedule.uid, by=schedule.owner.user, reason=reason, until=ends)
        self._runners.wake()  # others may have waited for it

    def resume(self, job_id: str | Job) -> None:
        """Resume a schedule from now on."""
        from noonmark.operations import schedule_edits

        schedule_edits.resume(self._store, self._find(job_id).schedule.uid, lookahead=self._runtime.timing.lookahead)
        self._runners.wake()

    def cancel(self, job_id: str | Job) -> bool:
        """Delete a schedule and ask its runs to stop; False when it is unknown, deleted or completed."""
        from noonmark.operations import schedule_edits

        try:
            cancellation = schedule_edits.cancel(self._store, self._find(job_id))
        except NotFound:
            return False
        self._runners.wake()
        if cancellation:
            self._runners.check_stop_requests()
        return True

    def delete(self, job_id: str | Job, *, stop_running: bool = False) -> int:
        """Delete a schedule; its history is kept. Its runs go on, unless `stop_running` asks them to stop.

        Returns how many runs were asked to stop.
        """
        from noonmark.operations import schedule_edits

        uid = self._find(job_id).schedule.uid
        schedule_edits.delete(self._store, uid)
        stopped = schedule_edits.stop_runs(self._store, uid) if stop_running else 0
        self._runners.wake()
        if stopped:
            self._runners.check_stop_requests()
        return stopped

    # Run.

    def register_function(self, name: str, func: Callable[..., Any]) -> None:
        """Offer a function under a name: schedules with that name run here from now on.

        That includes schedules which others create through a server on the same store, with arguments of their choice.
        A function that only has a `function_name=` is called for schedules of Python programs alone.
        """
        from noonmark.embedded.references import check_callable, check_name

        check_callable(func)
        check_name("name", name)
        self._functions.register(name, func)
        self._functions.offer(name)
        self._runners.wake()

    @overload
    def agent_tool(self, func: F, /, *, name: str | None = None) -> F: ...

    @overload
    def agent_tool(self, func: None = None, /, *, name: str | None = None) -> Callable[[F], F]: ...

    def agent_tool(self, func: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Any:
        """Let the agents of this process call a function, as a decorator with or without arguments, or as a call.

        Its signature and its docstring tell the agent how; it may be async. A tool access policy of a session limits
        which tools it has.
        """
        if self._agents is None:
            raise InvalidSchedule('needs a scheduler with agents="embedded"', field="agents")
        if func is None:
            return partial(self.agent_tool, name=name)
        if not callable(func):
            raise InvalidSchedule(f"must be callable, not {type(func).__name__}", field="func")
        try:
            self._agents.tools.register(func, name)
        except ValueError as error:
            raise InvalidSchedule(str(error), field="name") from None
        return func

    def start(self) -> None:
        """Run due occurrences, in threads of this process. Returns at once; a second call does nothing."""
        self._open()
        if not isinstance(self._clock, SystemClock):
            raise Conflict("a scheduler with a clock of its own is driven by noonmark.testing.ManualDriver")
        self._runners.start()

    def stop(self, wait: bool = True, timeout: float | timedelta | None = None) -> None:  # noqa: FBT001, FBT002 - as in the field
        """Start nothing more, and wait up to `timeout` seconds for the runs; those that have not ended are handed back.

        Without `wait`, runs are handed back at once, and run again elsewhere, or after the next start. A function that
        runs here may call it too; it does not wait for itself.
        """
        from noonmark.embedded.arguments import duration_argument

        if not wait:
            self._runners.stop(0)
        else:
            self._runners.stop(None if timeout is None else duration_argument("timeout", timeout, low=0))

    def run(self) -> None:
        """Start, and wait until SIGINT (Ctrl-C) or SIGTERM arrives, or `stop` is called; then stop. For scripts.

        It waits for the runs. After a second signal, those that have not ended are handed back. Call it in the main
        thread, where signals arrive.
        """
        from noonmark.embedded.arguments import POLL_SECONDS, STOP_SIGNALS

        if threading.current_thread() is not threading.main_thread():
            raise Conflict("signals arrive in the main thread only: call run() there, or start()")
        signals: SimpleQueue[int] = SimpleQueue()  # its put may interrupt its get, which no lock allows

        received: list[int] = []

        def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as Python calls it
            if received:
                raise KeyboardInterrupt
            received.append(number)
            signals.put(number)

        before = {number: signal.signal(number, on_signal) for number in STOP_SIGNALS}
        try:
            self.start()
            while self._runners.running is not None and not received:
                with suppress(Empty):
                    signals.get(timeout=POLL_SECONDS)
            if received:
                self._runners.log_waiting()
            self.stop()
        except KeyboardInterrupt:
            self.stop(wait=False)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def close(self) -> None:
        """Stop, and close the store; no method works after that. A second call does nothing."""
        if any(runner.is_caller for runner in self._runners.alive):
            raise Conflict(
                "neither a run nor the loop that runs it can close the scheduler: use stop(), or await close()"
            )
        self.stop()
        self._is_closed = True
        self._runtime.store.close()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and wait for the runs; after Ctrl-C only for a moment."""
        from noonmark.embedded.arguments import exit_timeout

        self.stop(timeout=exit_timeout(kind))

    def run_now(
        self,
        job_id: str | Job,
        payload: Any = None,
        wait: bool = True,  # noqa: FBT001, FBT002 - as in the field
        overlap: Overlap | OverlapName | OverlapDocument | None = None,
    ) -> Any:
        """Run a schedule once more, now, and return its result, or raise its error; its next fire does not change.

        A program that fails raises `subprocess.CalledProcessError`, a timeout `TimeoutError`, and everything else that
        does not complete `RunFailed`: its message has the answer to a request, and its `result` all that was recorded.
        With `wait=False`, return the id of the occurrence at once. It obeys the overlap policy, unless the call sets
        another one; when that forbids it, OverlapConflict is raised. Works without `start`.
        """
        from noonmark.embedded.run_now import read_request, run_now

        request = read_request(self._find(job_id).schedule, payload, overlap)
        return run_now(self._runtime, self._runners.running, self._runners.new, request, wait=wait)

    def emit(
        self,
        event_type: str,
        payload: Any = None,
        source: str = "embedded",
        event_id: str | None = None,
    ) -> str:
        """Emit an event, which fires the schedules that wait for it, and return its id.

        It is stored when this returns, even if those schedules fail. With an id of your own, the same event
        emitted again does nothing.
        """
        from noonmark.core.documents import present
        from noonmark.core.event import parse_event
        from noonmark.core.instants import from_micros
        from noonmark.embedded.declarations import OWNER
        from noonmark.operations import events

        self._open()
        document = present(event_type=event_type, payload=payload, source=source, event_id=event_id)
        event = parse_event(document, now=from_micros(self._store.clock()))
        stored_id = events.emit(self._store, OWNER.tenant, event, fresh_id=fresh_id(self._clock))
        self._runners.wake()
        return stored_id

    # Read. Nothing here plans or changes anything.

    def get_job(self, job_id: str | Job) -> Job | None:
        """A schedule with its status and its last result; None when it is unknown."""
        from noonmark.embedded.jobs import read_job

        self._open()
        stored = self._declarations.look_up(job_id)
        return None if stored is None else read_job(self._store, stored)

    def list_jobs(self, status: JobStatus | str | None = None) -> list[Job]:
        """All schedules, oldest first, or those with a status; cancelled and deleted ones only with that status."""
        from noonmark.embedded.declarations import OWNER
        from noonmark.embedded.jobs import read_jobs, status_argument

        self._open()
        return read_jobs(self._store, OWNER.tenant, status=status_argument(status))

    def triggers(self, event_type: str | None = None) -> list[Job]:
        """The schedules with an event trigger, oldest first, or those for one type of event."""
        from noonmark.embedded.arguments import event_type_argument
        from noonmark.embedded.declarations import OWNER
        from noonmark.embedded.jobs import read_jobs
        from noonmark.ports.records import ScheduleFilter

        self._open()
        selection = ScheduleFilter(kinds=frozenset({"event"}), event_type=event_type_argument(event_type))
        return read_jobs(self._store, OWNER.tenant, wanted=selection)

    def preview(self, job: str | Job | Trigger, count: int = 5, after: datetime | None = None) -> list[datetime]:
        """The next fires of a schedule or a trigger, after an instant or from now on, what is due included."""
        from noonmark.core.instants import from_micros
        from noonmark.core.triggers import Trigger, parse_trigger
        from noonmark.embedded.arguments import count_argument, instant_argument
        from noonmark.embedded.jobs import Job
        from noonmark.operations.models.arguments import MAX_PREVIEW
        from noonmark.operations.preview import fires_of, fires_of_schedule

        self._open()
        stored = self._find(job) if isinstance(job, str | Job) else None
        checked_count = count_argument("count", count, high=MAX_PREVIEW)
        now, since = self._store.clock(), None if after is None else instant_argument("after", self._aware(after))
        if stored is not None:
            return fires_of_schedule(self._store, stored, checked_count, after=since, now=now)
        if not isinstance(job, Trigger):
            message = f"must be a schedule or a trigger, not {type(job).__name__}"
            raise InvalidSchedule(message, field="job")
        # What it leaves relative counts from now.
        job = self._declarations.zoned(job)
        return fires_of(parse_trigger(job.to_document(), now=from_micros(now)), checked_count, after=since, now=now)

    def explain(self, job_id: str | Job, at: datetime | str | None = None) -> Explanation:
        """What a schedule did, does or will do at an instant, and why; without one, how its last occurrence ended."""
        from noonmark.embedded.answers import Explanation
        from noonmark.embedded.arguments import instant_or_text_argument
        from noonmark.operations.explain import explain_instant

        stored = self._find(job_id, deleted=True)
        instant = None if at is None else instant_or_text_argument("at", self._aware(at))
        return Explanation.from_document(explain_instant(self._store, stored, instant))

    def events(self, event_type: str | None = None, limit: int = 100) -> list[Event]:
        """The newest events, newest first, whether or not they fired anything; of all types, or of one."""
        from noonmark.core.json_values import json_copy
        from noonmark.embedded.arguments import count_argument, event_type_argument
        from noonmark.embedded.declarations import OWNER

        self._open()
        checked_limit = count_argument("limit", limit)
        events = self._store.events(OWNER.tenant, checked_limit, event_type=event_type_argument(event_type))
        # A change of a payload by the caller must not reach the store.
        return [replace(event, payload=json_copy(event.payload)) for event in events]

    def match_events(self, wanted: str | Job | EventTrigger, limit: int = 100) -> EventMatches:
        """Which of the newest events of its types a schedule or a trigger matches, and why not the others."""
        from noonmark.core.triggers.trigger import trigger_argument
        from noonmark.embedded.answers import EventMatches
        from noonmark.embedded.declarations import OWNER
        from noonmark.embedded.jobs import Job
        from noonmark.operations.events import find_matches
        from noonmark.operations.models.arguments import MatchRequest

        self._open()
        if isinstance(wanted, str | Job):
            arguments: dict[str, Any] = {"schedule_id": self._find(wanted).schedule.schedule_id}
        else:
            arguments = {"trigger": self._declarations.zoned(trigger_argument(wanted)).to_document()}
        request = MatchRequest.read({**arguments, "limit": limit})
        return EventMatches.from_document(find_matches(self._store, OWNER.tenant, request))

    def occurrences(self, job_id: str | Job, limit: int | None = None) -> list[Occurrence]:
        """The occurrences of a schedule, past and planned, newest first; all of them, unless there is a limit."""
        from noonmark.embedded.arguments import limit_argument

        return self._store.occurrences(self._find(job_id, deleted=True).schedule.uid, limit_argument(limit))

    def runs(self, job_id: str | Job, limit: int | None = None) -> list[Run]:
        """The runs of a schedule, also those in progress, newest first; all of them, unless there is a limit."""
        from noonmark.embedded.arguments import limit_argument

        return self._store.runs(self._find(job_id, deleted=True).schedule.uid, limit_argument(limit))

    def failures(
        self,
        job_id: str | Job | None = None,
        *,
        since: datetime | timedelta | None = None,
        until: datetime | None = None,
        reason: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int = 100,
    ) -> list[Occurrence]:
        """What failed or was missed, of one schedule or of all, latest end first.

        `since` is an instant, or how long ago: `timedelta(days=1)`. `labels` are those of the schedules.
        """
        from noonmark.operations import history
        from noonmark.operations.models.arguments import OccurrenceSearch

        filters = self._occurrence_filters(job_id, since, until, reason=reason, labels=labels)
        request = OccurrenceSearch.read({**filters, "limit": limit})
        return history.list_failures(self._service(), _caller("occurrence/failures"), request)

    def redrive(  # noqa: PLR0913 - each is a filter of its own
        self,
        occurrence: str | Occurrence | None = None,
        *,
        job_id: str | Job | None = None,
        since: datetime | timedelta | None = None,
        until: datetime | None = None,
        phase: str | None = None,
        reason: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int = 1_000,
        dry_run: bool = False,
    ) -> Redrive:
        """Run an ended occurrence again, or all failures that match the filters; each runs again once.

        The new occurrence has the nominal time and the payload of the old one, which keeps its record. The new ones of
        a schedule run one after another, unless its overlap policy is allow. `phase` selects other ends than failures,
        such as `"skipped"`. A selection of more than `limit` is refused. With `dry_run`, nothing runs.
        """
        from noonmark.core.documents import present
        from noonmark.embedded.answers import Redrive
        from noonmark.operations import history
        from noonmark.operations.models.arguments import RedriveRequest

        filters = self._occurrence_filters(job_id, since, until, reason=reason, labels=labels)
        occurrence_id = occurrence if occurrence is None or isinstance(occurrence, str) else occurrence.id
        arguments = present(occurrence_id=occurrence_id, phase=phase, limit=limit, dry_run=dry_run)
        rows, refused = history.run_again(
            self._service(), _caller("occurrence/redrive"), RedriveRequest.read({**filters, **arguments})
        )
        return Redrive(occurrences=tuple(rows), refused=refused)

    def nodes(self) -> list[NodeRecord]:
        """The nodes that share the store and were seen within the last day, also stopped ones, by name."""
        self._open()
        return self._store.nodes()

    # Agents: sessions, mobs, budgets and usage.

    def create_session(self, **fields: Unpack[SessionFields]) -> Session:
        """Create a session: a conversation with an agent that the store keeps. Conflict if its id is taken.

        It has a `model`, by default the `agent_model` of the scheduler, and a `session_id`, by default a new one.
        Further fields are `system_prompt`, `labels`, `max_tokens` (of one answer), `provider`, `output_schema`,
        `structured_output_retries`, `provider_params`, `preload_skills`, `additional_instructions`,
        `tool_access_policy`, `comms_name`, `peer_meta`, `realm_id`, `instance_id`, `backend`, `config_generation`,
        `keep_alive`, `enable_schedule` and `app_context`.
        """
        from noonmark.operations.models.answers import Session

        return self._perform("session/create", Session, **fields)

    def session(self, session_id: str) -> Session:
        """A session: its state, what it was created with, and what it has used."""
        from noonmark.operations.models.answers import Session

        return self._perform("session/get", Session, session_id=session_id)

    def sessions(
        self,
        *,
        state: SessionStateName | None = None,
        labels: Mapping[str, str] | None = None,
        mob_id: str | None = None,
        limit: int | None = 100,
    ) -> list[Session]:
        """The sessions that match every filter, latest creation first; all of them with `limit=None`."""
        from noonmark.operations.models.answers import Session

        chosen = None if labels is None else dict(labels)
        return self._list("session/list", "sessions", Session, limit, state=state, labels=chosen, mob_id=mob_id)

    def session_messages(
        self,
        session_id: str,
        *,
        after: int | None = None,
        occurrence_id: str | None = None,
        newest_first: bool = False,
        limit: int | None = 100,
    ) -> list[Message]:
        """The messages of a session in their order, or newest first; all of them with `limit=None`.

        With `after`, only those with a higher number. With `occurrence_id`, those of one turn.
        """
        from noonmark.operations.models.answers import Message

        return self._list(
            "session/messages",
            "messages",
            Message,
            limit,
            session_id=session_id,
            after=after,
            occurrence_id=occurrence_id,
            newest_first=newest_first,
        )

    def send_message(  # noqa: PLR0913 - what a caller may say about a turn
        self,
        session_id: str,
        prompt: str | list[dict[str, Any]],
        wait: bool = True,  # noqa: FBT001, FBT002 - as in the field
        *,
        system_prompt: str | None = None,
        render_metadata: dict[str, Any] | None = None,
        skill_refs: list[Any] | None = None,
        additional_instructions: list[str] | None = None,
        key: str | None = None,
    ) -> Any:
        """Send a message to a session and return the result of its turn, whose `text` is the answer.

        Of a session with an `output_schema`, the answer is its `output`. The turn begins when the one before has ended.
        One that does not complete raises `RunFailed`, which says why; one without an answer in time, `TimeoutError`.
        With `wait=False`, return the id of the occurrence that is the turn at once. The same `key` again is the same
        turn. Works without `start`.
        """
        from noonmark.core.documents import present
        from noonmark.embedded.run_now import add_and_wait, check_sessions_served
        from noonmark.operations import sessions

        arguments = present(
            session_id=session_id,
            prompt=prompt,
            system_prompt=system_prompt,
            render_metadata=render_metadata,
            skill_refs=skill_refs,
            additional_instructions=additional_instructions,
            key=key,
        )
        service, caller = self._service(), _caller("session/send")

        def add(expect: Callable[[str], None] | None) -> Occurrence:
            return sessions.add_turn(service, caller, arguments, expect=expect)[0]

        if not wait:
            return add(None).id
        check_sessions_served(self._runtime)
        return add_and_wait(self._runtime, self._runners.running, self._runners.new, add)

    def archive_session(self, session_id: str, *, reason: str | None = None) -> Session:
        """Archive a session: its transcript is kept, and it takes no messages."""
        from noonmark.operations.models.answers import Session

        return self._perform("session/archive", Session, session_id=session_id, reason=reason)

    def delete_session(self, session_id: str, *, reason: str | None = None) -> Session:
        """Delete a session with its messages. Conflict while a turn is in flight, or a schedule or a mob names it."""
        from noonmark.operations.models.answers import Session

        return self._perform("session/delete", Session, session_id=session_id, reason=reason)

    def create_mob(
        self, mob_id: str, members: Iterable[Mapping[str, Any]], *, flows: Mapping[str, Any] | None = None
    ) -> Mob:
        """Create a group of agents with a session for each member; Conflict if its id is taken.

        A member is `{"member_id": "lead", "model": "openai:gpt-5.2", "role": "lead"}`, with whatever else a session is
        created with. Flows are workflows whose steps are prompts to members, by id.
        """
        from noonmark.operations.models.answers import Mob

        given = _listed(members)
        if isinstance(given, list):
            given = [dict(member) if isinstance(member, Mapping) else member for member in given]
        chosen = dict(flows) if isinstance(flows, Mapping) else flows
        return self._perform("mob/create", Mob, mob_id=mob_id, members=given, flows=chosen)

    def mobs(self) -> list[Mob]:
        """The groups of agents, by id."""
        from noonmark.operations.models.answers import Mob

        return self._list("mob/list", "mobs", Mob, None)

    def delete_mob(self, mob_id: str, *, reason: str | None = None) -> Mob:
        """Delete a group of agents; the sessions of its members are archived. Conflict if a schedule names it."""
        from noonmark.operations.models.answers import Mob

        return self._perform("mob/delete", Mob, mob_id=mob_id, reason=reason)

    def set_budget(  # noqa: PLR0913 - each is a part of the budget
        self,
        scope: BudgetScopeName,
        scope_id: str | Job,
        *,
        period: PeriodName,
        max_cost_usd: float | None = None,
        max_tokens: int | None = None,
        hard: bool | None = None,
        warning_threshold: float | None = None,
        require_approval: bool | None = None,
        when_exhausted: WhenExhaustedName | None = None,
    ) -> Budget:
        """Set what may be spent in a period: `max_cost_usd`, `max_tokens`, or both.

        `scope` is `schedule`, `session`, `user` or `tenant`, and `scope_id` says which; what a program creates is of
        the user `local` and the tenant `default`. `period` is a `day` or a `month` of UTC, or `total`. A budget of the
        same period is replaced, and what is spent stays spent: so it is topped up.

        Nothing goes beyond a `hard` limit, which is the default; with `hard=False` there are only warnings, and with
        `require_approval` a run that would go beyond it waits until somebody approves. A schedule that finds a hard
        budget used up skips its occurrence, unless `when_exhausted` is `pause` or `pause_until_next_period`.
        """
        from noonmark.operations.models.answers import Budget

        with _budget_names():
            return self._perform(
                "budget/set",
                Budget,
                scope=scope,
                id=self._budgeted(scope, scope_id),
                period=period,
                max_cost_usd=max_cost_usd,
                max_tokens=max_tokens,
                hard=hard,
                warning_threshold=warning_threshold,
                require_approval=require_approval,
                when_exhausted=when_exhausted,
            )

    def budgets(self, scope: BudgetScopeName | None = None, scope_id: str | Job | None = None) -> list[Budget]:
        """The budgets by scope, id and period, each with its spend."""
        from noonmark.operations.models.answers import Budget

        with _budget_names():
            which = None if scope_id is None else self._budgeted(scope, scope_id, deleted=True)
            return self._list("budget/list", "budgets", Budget, None, scope=scope, id=which)

    def delete_budget(
        self, scope: BudgetScopeName, scope_id: str | Job, *, period: PeriodName | None = None
    ) -> list[Budget]:
        """Delete the budget of a period, or of all periods, and return those deleted. Past spend is kept."""
        from noonmark.operations.models.answers import DeletedBudgets

        with _budget_names():
            which = self._budgeted(scope, scope_id, deleted=True)
            answer = self._perform("budget/delete", DeletedBudgets, scope=scope, id=which, period=period)
        deleted: list[Budget] = answer.deleted
        return deleted

    def usage(
        self,
        by: UsageByName = "schedule",
        *,
        since: datetime | timedelta | None = None,
        until: datetime | None = None,
        job_id: str | Job | None = None,
        limit: int = 100,
    ) -> UsageSummary:
        """What models were used for, by `schedule`, `session`, `user`, `model` or `day`, the most expensive first.

        `since` is an instant, or how long ago: `timedelta(days=7)`; by default the report is of this UTC month. At most
        `limit` groups are listed; the `total` is of all. A cost is None while no price is known.
        """
        from noonmark.embedded.arguments import renamed_fields
        from noonmark.operations.models.answers import UsageSummary

        filters = self._occurrence_filters(job_id, since, until)
        times = {"from": filters.pop("since", None), "to": filters.pop("until", None)}
        with renamed_fields(**{"from": "since", "to": "until"}):
            return self._perform("usage/report", UsageSummary, by=by, limit=limit, **times, **filters)

    # Halts.

    def halt(
        self, *, labels: Mapping[str, str] | None = None, lineage: str | None = None, reason: str | None = None
    ) -> NewHalt:
        """Halt: running occurrences are cancelled, and nothing starts, schedules created later included.

        With labels, only schedules that have all of them; with the id of a session or a schedule as `lineage`, only
        that one and every schedule and session that it made, directly or not; otherwise everything. It holds in every
        process of the store, until `unhalt`.
        """
        from noonmark.operations.models.answers import NewHalt

        return self._perform("halt/set", NewHalt, labels=labels, lineage=lineage, reason=reason)

    def unhalt(
        self,
        halt_id: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        lineage: str | None = None,
        reason: str | None = None,
    ) -> list[Halt]:
        """Lift a halt, or all with exactly these labels or this lineage, and return them.

        Skipped fires stay skipped.
        """
        from noonmark.operations.models.answers import LiftedHalts

        named = {"halt_id": halt_id, "labels": labels, "lineage": lineage}
        lifted: list[Halt] = self._perform("halt/lift", LiftedHalts, **named, reason=reason).lifted
        return lifted

    def halts(self) -> list[Halt]:
        """The halts, oldest first."""
        from noonmark.operations.models.answers import HaltList

        halts: list[Halt] = self._perform("halt/list", HaltList).halts
        return halts

    # Secrets.

    def set_secret(self, name: str, value: str, *, hosts: Iterable[str] = (), programs: Iterable[str] = ()) -> Secret:
        """Store a secret that requests to these hosts, or these programs, may get; it replaces one of that name.

        It is encrypted with the `secret_key` of the scheduler, and its value cannot be read back. A host is
        `api.example.com`, `api.example.com:8443`, or `*.example.com` for all below that one. The value is that of a
        whole header: `Bearer` and a token, for instance. A program is what a command starts with, or `bundle:` and the
        id of a bundle.
        """
        from noonmark.embedded.declarations import OWNER
        from noonmark.operations import secrets

        self._open()
        given = secrets.read_secret(
            {"name": name, "value": value, "hosts": _listed(hosts), "programs": _listed(programs)}
        )
        return secrets.store_secret(self._store, self._seal, OWNER.tenant, given)

    def secrets(self) -> list[Secret]:
        """The secrets by name, each with its hosts."""
        from noonmark.embedded.declarations import OWNER

        self._open()
        return self._store.secrets(OWNER.tenant)

    def delete_secret(self, name: str) -> Secret:
        """Delete a secret; requests that need it are not sent from then on, and say why."""
        from noonmark.embedded.declarations import OWNER
        from noonmark.operations import secrets

        self._open()
        return secrets.remove_secret(self._store, OWNER.tenant, secrets.read_name({"name": name}))

    def signing_key(self) -> str:
        """The key that requests are signed with, for receivers that check them with `noonmark.client.verify`.

        It is the `signing_key` of the scheduler, or else derived from a key that the store has generated, and the same
        for all who use that store.
        """
        from noonmark.core.signatures import tenant_key
        from noonmark.embedded.declarations import OWNER

        self._open()
        return tenant_key(self._keys, self._store.own_key(), OWNER.tenant)

    @property
    def blocking(self) -> Scheduler:
        """The scheduler whose methods need no event loop: this one."""
        return self

    # Internals, also for the pipeline, the decorators and the manual driver.

    @property
    def _store(self) -> Store:
        """The store, open."""
        self._open()
        return self._runtime.store

    def _open(self) -> None:
        """Open the store with its first use, and declare what was decorated before; what fails is tried again."""
        if self._is_closed:
            raise Conflict("the scheduler was closed")
        if self._is_open and not self._undeclared and not self._undeclared_workflows:
            return
        with self._open_lock:
            if not self._is_open:
                self._runtime.store.open()
                self._is_open = True
            while self._undeclared:
                self._declare_decorated(*self._undeclared[0])
                self._undeclared.popleft()
            while self._undeclared_workflows:
                declared = self._undeclared_workflows[0]
                declared.version = self._store_workflow(declared.definition.to_document(), declared.functions)
                self._undeclared_workflows.popleft()

    def _version_of(self, declared: Declared) -> int:
        """The version that a workflow of this program is stored as."""
        self._open()
        assert declared.version is not None  # noqa: S101 - it is stored when the store is opened
        return declared.version

    def _store_workflow(self, document: dict[str, Any], functions: Mapping[str, Callable[..., Any]]) -> int:
        """Store a definition, whose functions can be run from then on."""
        from noonmark.operations import workflows

        created = workflows.create_workflow(self._opened_service(), _caller("workflow/create"), document)
        for reference, func in functions.items():
            self._functions.register(reference, func)
        self._runners.wake()
        return int(created["version"])

    def _start_workflow(
        self,
        workflow_id: str,
        inputs: Mapping[str, Any] | None,
        version: int | None,
        key: str | None,
        expect: Callable[[str], None] | None = None,
    ) -> str:
        from noonmark.core.documents import present
        from noonmark.operations import workflows
        from noonmark.operations.models.arguments import WorkflowRunRequest

        given = None if inputs is None else dict(inputs)
        request = WorkflowRunRequest.read(present(workflow_id=workflow_id, inputs=given, version=version, key=key))
        service, caller = self._service(), _caller("workflow/run")
        run = workflows.start_run(
            service,
            caller,
            workflows.find_version(service, caller, request.workflow_id, request.version),
            inputs=request.inputs or {},
            key=request.key,
            is_pinned=request.version is not None,
            expect=expect,
        )
        return str(run["workflow_run_id"])

    def _run_workflow(
        self,
        workflow_id: str,
        inputs: Mapping[str, Any] | None,
        version: int | None,
        key: str | None,
        look: Callable[[str, Records], None] | None = None,
    ) -> EndedRun:
        """Run a workflow and wait for its end; `look` sees its steps from time to time."""
        from noonmark.embedded.workflow_runs import start_and_wait
        from noonmark.operations import workflows

        return start_and_wait(
            self._runtime,
            self._runners.running,
            self._runners.new,
            workflows.find_version(self._service(), _caller("workflow/get"), workflow_id, version),
            lambda expect: self._start_workflow(workflow_id, inputs, version, key, expect),
            look,
        )

    def _decide(self, approval_id: str, comment: str | None, *, by: str, approves: bool) -> None:
        from noonmark.core.documents import present
        from noonmark.operations import approvals
        from noonmark.operations.models.arguments import Decision

        decide = approvals.approve if approves else approvals.deny
        caller = replace(_caller("approval/approve" if approves else "approval/deny"), name=by)
        decide(self._service(), caller, Decision.read(present(approval_id=approval_id, comment=comment)))

    def _perform(self, operation: str, answer: Callable[..., T], **arguments: Any) -> T:
        """Perform an operation as this program; None stands for what is not said."""
        from noonmark.core.documents import present
        from noonmark.operations.models.answers import read
        from noonmark.operations.table import perform

        return read(answer, perform(self._service(), _caller(operation), operation, present(**arguments)))

    def _list(
        self,
        operation: str,
        name: str,
        kind: Callable[..., T],
        limit: int | None,
        **arguments: Any,
    ) -> list[T]:
        """What an operation lists, page by page."""
        from noonmark.core.documents import present
        from noonmark.embedded.arguments import count_argument
        from noonmark.operations.models.answers import read
        from noonmark.operations.table import perform

        left = None if limit is None else count_argument("limit", limit)
        service, caller, items, cursor = self._service(), _caller(operation), list[T](), None
        while left is None or len(items) < left:
            size = _PAGE if left is None else min(_PAGE, left - len(items))
            page = perform(service, caller, operation, present(**arguments, limit=size, cursor=cursor))
            items += (read(kind, document) for document in page[name])
            cursor = page["next_cursor"]
            if cursor is None:
                break
        return items

    def _budgeted(self, scope: str | None, scope_id: str | Job, *, deleted: bool = False) -> str | Job:
        """The id that a budget has; that of a schedule may be given as everywhere."""
        return self._find(scope_id, deleted=deleted).schedule.schedule_id if scope == "schedule" else scope_id

    def _service(self) -> Service:
        """What operations need of this process."""
        self._open()
        return self._opened_service()

    def _opened_service(self) -> Service:
        from noonmark.operations.service import Service

        agents = self._agents
        return Service(
            store=self._runtime.store,
            lookahead=self._runtime.timing.lookahead,
            fresh_id=partial(fresh_id, self._clock),
            node=self._runtime.node,
            wake=lambda _: self._runners.wake(),
            agent_model=None if agents is None else agents.model,
            model_problem=_model_check(agents),
            check_stop_requests=self._runners.check_stop_requests,
            reach=self._runtime.reach,
        )

    def _occurrence_filters(
        self,
        job_id: str | Job | None,
        since: datetime | timedelta | None,
        until: datetime | None,
        **others: Any,
    ) -> dict[str, Any]:
        from noonmark.core.documents import present
        from noonmark.core.instants import from_micros, to_text
        from noonmark.embedded.arguments import instant_argument

        now = from_micros(self._store.clock())
        starts = None if since is None else self._aware(now - since if isinstance(since, timedelta) else since)
        return present(
            schedule_id=None if job_id is None else self._find(job_id, deleted=True).schedule.schedule_id,
            since=None if starts is None else to_text(instant_argument("since", starts)),
            until=None if until is None else to_text(instant_argument("until", self._aware(until))),
            **others,
        )

    def _find(self, job_id: str | Job, *, deleted: bool = False) -> StoredSchedule:
        self._open()
        return self._declarations.find(job_id, deleted=deleted)

    def _declare(self, func: Callable[..., Any] | Mapping[str, Any], options: Mapping[str, Any]) -> str:
        if isinstance(func, Mapping):
            from noonmark.embedded.documents import copied_target, target_options

            return self._declare_target(copied_target(func), target_options(options))
        self._open()
        schedule_id = self._declarations.declare(func, options)
        self._runners.wake()
        return schedule_id

    def _declare_target(self, target: dict[str, Any], options: Mapping[str, Any]) -> str:
        from noonmark.embedded.documents import target_route

        self._open()
        schedule_id = self._declarations.declare_target(target, options)
        self._runners.adopt({target_route(target)})
        self._runners.wake()
        return schedule_id

    def _decorator(self, make: Callable[[], Trigger], options: Options) -> Decorator:
        from noonmark.core.triggers.interval import UNITS
        from noonmark.embedded.documents import check_options
        from noonmark.embedded.references import future_reference

        check_options(options, ("timezone", "dst", *UNITS))  # first: a misspelt one may be missing in the trigger
        trigger = self._declarations.zoned(make())
        if options.get("trigger") is not None:
            raise InvalidSchedule("the decorator has a trigger already", field="trigger")

        def decorate(func: Callable[P, T], /) -> JobFunction[P, T]:
            # The function gets its name in its module only when the decorator has returned.
            reference = options.get("function_name") or future_reference(self._functions, func)
            name = options.get("name") or reference
            if name is not None and self._decorated.get(name) is func:
                message = f"{name} is declared twice; give each of its schedules a name of its own with name=..."
                raise InvalidSchedule(message, field="name")
            declared = {**options, "trigger": trigger, "name": name, "function_name": reference}
            expected = self._declarations.expect(func, declared)
            with self._open_lock:
                if self._is_open:
                    self._open()
                    self._declare_decorated(func, declared, expected)
                else:
                    self._undeclared.append((func, declared, expected))
                    _set_job_id(func, expected)
            if name is not None:
                self._decorated[name] = func
            return cast("JobFunction[P, T]", func)

        return decorate

    def _declare_decorated(self, func: Callable[..., Any], options: dict[str, Any], expected: ExpectedId) -> None:
        _set_job_id(func, self._declarations.declare(func, options, expected))
        self._runners.wake()
        if options["name"] is not None and options["name"] == options["function_name"]:
            self._declarations.warn_of_same_name(func, options["name"])

    def _aware(self, instant: T) -> T | datetime:
        """A naive datetime in the zone of the scheduler, if it has one; anything else as it is."""
        from noonmark.core.instants import from_micros

        if not isinstance(instant, datetime) or instant.tzinfo is not None or self._zone is None:
            return instant
        try:
            return from_micros(self._zone.instant(instant))
        except ValueError as error:
            raise InvalidSchedule(str(error)) from None

    def _with_runner(self, work: Callable[[Runner], T]) -> T:
        """Do something with the runner that is started, or else with a new one."""
        from noonmark.embedded.run_now import any_runner

        self._open()
        with any_runner(self._runners.running, self._runners.new) as used:
            return work(used)

    def _use_current_loop(self) -> None:
        """Run async functions on the event loop of the caller; here they have a loop of their own."""

    def _running(self, occurrence_id: str) -> AbstractContextManager[None]:
        """Run one occurrence in the background, and nothing else."""
        from noonmark.embedded.run_now import run_in_background

        self._open()
        return run_in_background(self._runtime, lambda: self._new_runner(claims=False), occurrence_id)

    def _new_runner(self, claims: bool) -> Runner:  # noqa: FBT001 - the only argument
        """Each has a target of its own: one that stops must not take the threads of another with it.

        One that looks for work is a node by itself, since it may lead, and another may be stopping beside it.
        """
        node = node_name() if claims else self._runtime.node
        return self._host(
            replace(self._runtime, node=node, target=self._new_target(self._runtime.store)), claims=claims
        )

    def _host(self, runtime: Runtime, *, claims: bool) -> Runner:
        from noonmark.embedded.runners import ThreadRunner

        return ThreadRunner(runtime, claims=claims)

    def _with_schedule_tools(self, agents: AgentSettings | None) -> AgentSettings | None:
        if agents is None:
            return None
        from noonmark.operations.session_tools import SessionTools

        return replace(agents, schedule_tools=SessionTools(self._opened_service))

    def _new_target(self, store: Store) -> Target:
        function_runner = make_runner(self._functions, *self._limits)
        return make_target(
            store,
            function_runner,
            self._programs,
            self._outbound(),
            self._seal,
            bundles=self._bundles,
            agents=self._agents,
        )

    def _outbound(self) -> HttpTargetSettings | None:
        """How requests are sent; None, and nothing is loaded, when there is nothing to configure."""
        if self._keys.signing_key is None:
            return None
        from noonmark.targets.http.settings import HttpTargetSettings

        return HttpTargetSettings(is_offered=False, keys=self._keys)

    def _after_fork(self) -> None:
        """Reset in a forked process, which has no threads and may have locks that are never released."""
        self._open_lock = threading.RLock()
        self._runners.after_fork()
        self._functions.after_fork()
        self._runtime = replace(self._runtime, node=node_name(), pinger=make_pinger())


def _all_sinks(sink: EventSink | None, recorder: TraceRecorder | None) -> EventSink | None:
    """What takes the events of the driver."""
    if sink is None or recorder is None:
        return sink or recorder
    from noonmark.telemetry.logs import CompositeSink

    return CompositeSink(sink, recorder)


def _budget_names() -> AbstractContextManager[None]:
    """Errors about a budget name the arguments of the methods here."""
    from noonmark.embedded.arguments import renamed_fields

    return renamed_fields(id="scope_id", job_id="scope_id")


def _listed(values: Any) -> Any:
    """The value as a list, if it can be one; the reader refuses anything else."""
    return values if isinstance(values, str) or not hasattr(values, "__iter__") else list(values)


def _bundle_settings(*, is_allowed: bool) -> BundleSettings | None:
    if not is_allowed:
        return None
    from noonmark.targets.bundle.settings import BundleSettings

    return BundleSettings()


def _agent_settings(agents: str | AgentSettings | None, model: str | None) -> AgentSettings | None:
    if agents is None:
        if model is not None:
            raise InvalidSchedule('has no effect without agents="embedded"', field="agent_model")
        return None
    from noonmark.targets.agent.settings import EMBEDDED, AgentSettings

    settings = agents if isinstance(agents, AgentSettings) else AgentSettings(host=agents)
    if settings.host == EMBEDDED:
        require("agents", "running agents in this process")
        if settings.mcp_servers:
            require("mcp", "calling tools of MCP servers (mcp_servers)")
        _check_mcp_servers(settings)
    elif not settings.host.startswith(("http://", "https://")):
        message = f"must be embedded, the URL of an agent host, or AgentSettings, not {settings.host!r}"
        raise InvalidSchedule(message, field="agents")
    settings = settings if model is None else replace(settings, model=model)
    if settings.model is not None and (problem := _model_check(settings)(settings.model, None)) is not None:
        raise InvalidSchedule(problem, field="agent_model")
    return settings


def _model_check(agents: AgentSettings | None) -> Callable[[str, Provider | None], str | None]:
    host, remote, own = (None, None, ()) if agents is None else (agents.host, agents.remote, agents.models)
    return make_model_check(host, remote, own)


def _check_mcp_servers(settings: AgentSettings) -> None:
    from noonmark.targets.agent.mcp_tools import check_mcp_server

    for name, address in settings.mcp_servers.items():
        try:
            check_mcp_server(name, address)
        except ValueError as error:
            raise InvalidSchedule(str(error), field="mcp_servers") from None


def _thread_limit(max_threads: object, max_workers: object) -> int:
    from noonmark.embedded.arguments import count_argument

    if max_workers is None:
        return count_argument("max_threads", max_threads)
    if max_threads != MAX_THREADS:
        raise InvalidSchedule("is another name for max_threads; give one of the two", field="max_workers")
    return count_argument("max_workers", max_workers)


def _caller(operation: str) -> Caller:
    """The program itself, as the caller of an operation."""
    from noonmark.core.schedule import TRUSTED
    from noonmark.embedded.declarations import OWNER
    from noonmark.operations.service import Caller

    return Caller(owner=OWNER, name="embedded", source=TRUSTED, operation=operation)


def _set_job_id(func: Callable[..., Any], job_id: str | Job) -> None:
    with suppress(AttributeError, TypeError):  # some callables take no attributes
        func.job_id = job_id  # type: ignore[attr-defined] # an attribute of the function
