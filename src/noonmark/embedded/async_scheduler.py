"""The scheduler for a program with an event loop: the same methods, awaited."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, overload

from noonmark.core.errors import Conflict
from noonmark.driver.store_executor import resolve_threadsafe
from noonmark.embedded.arguments import POLL_SECONDS, STOP_SIGNALS, exit_timeout
from noonmark.embedded.runners import LoopRunner
from noonmark.embedded.scheduler import Scheduler
from noonmark.embedded.workflow import Workflow
from noonmark.targets import MAX_THREADS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta
    from pathlib import PurePath
    from types import TracebackType
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
    from noonmark.core.triggers import EventTrigger, Trigger
    from noonmark.embedded.answers import EventMatches, Explanation, Redrive
    from noonmark.embedded.declarations import Decorator
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
    from noonmark.embedded.scheduler import (
        BudgetScopeName,
        OnFailureName,
        PeriodName,
        SessionStateName,
        UsageByName,
        WhenExhaustedName,
    )
    from noonmark.embedded.workflow_runs import WorkflowRun
    from noonmark.operations.models.answers import Budget, Halt, Message, Mob, NewHalt, Session, UsageSummary
    from noonmark.ports.clock import Clock
    from noonmark.ports.events import EventSink
    from noonmark.ports.records import NodeRecord
    from noonmark.ports.runtime import Runtime
    from noonmark.ports.workflows import Approval, WorkflowVersion
    from noonmark.targets.agent.settings import AgentSettings

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., Any]")


class AsyncScheduler:
    """What `Scheduler` does, without blocking the event loop; async functions run on that loop.

    The settings and methods are those of `Scheduler`, and are described there. Only the decorators are not awaited:
    they are used where functions are defined, before there is a loop.
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
        """Use a store, as `Scheduler` does and with its settings."""
        self._inner = _LoopScheduler(
            store,
            lease=lease,
            max_threads=max_threads,
            max_workers=max_workers,
            max_processes=max_processes,
            keep_days=keep_days,
            keep_occurrences=keep_occurrences,
            secret_key=secret_key,
            signing_key=signing_key,
            timezone=timezone,
            traces=traces,
            allow_bundles=allow_bundles,
            agents=agents,
            agent_model=agent_model,
            clock=clock,
            sink=sink,
        )

    async def schedule(  # noqa: PLR0913 - each is an option of its own
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
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - of a run, not of this call
        jitter: float | timedelta | None = None,
        labels: Mapping[str, str] | None = None,
        depends_on: Sequence[Upstream] | None = None,
        delivery: Delivery | DeliveryName | None = None,
        function_name: str | None = None,
        executor: ExecutorName | None = None,
        **further: Unpack[FurtherOptions],
    ) -> str:
        """Create a schedule of a function, or of a target document, and return its id."""
        return await in_thread(
            self._inner.schedule,
            func,
            name=name,
            trigger=trigger,
            args=args,
            kwargs=kwargs,
            max_runs=max_runs,
            payload=payload,
            overlap=overlap,
            misfire=misfire,
            retries=retries,
            timeout=timeout,
            jitter=jitter,
            labels=labels,
            depends_on=depends_on,
            delivery=delivery,
            function_name=function_name,
            executor=executor,
            **further,
        )

    async def schedule_with_deps(
        self,
        func: Callable[..., Any] | Mapping[str, Any],
        depends_on: Sequence[Upstream],
        **options: Unpack[FunctionOptions],
    ) -> str:
        """Create a schedule that depends on others."""
        return await in_thread(self._inner.schedule_with_deps, func, depends_on, **options)

    async def schedule_command(
        self,
        argv: Sequence[str | PurePath],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | PurePath | None = None,
        stdin: str | None = None,
        limits: Mapping[str, int] | None = None,
        **options: Unpack[TargetOptions],
    ) -> str:
        """Create a schedule that starts a program and return its id."""
        return await in_thread(
            self._inner.schedule_command, argv, env=env, cwd=cwd, stdin=stdin, limits=limits, **options
        )

    async def schedule_http(  # noqa: PLR0913 - each is a part of the request
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
        """Create a schedule that sends a request and return its id."""
        return await in_thread(
            self._inner.schedule_http,
            url,
            method=method,
            headers=headers,
            secret_headers=secret_headers,
            body=body,
            expected_statuses=expected_statuses,
            retry_statuses=retry_statuses,
            completion_timeout_seconds=completion_timeout_seconds,
            **options,
        )

    async def schedule_event(self, event_type: str, **options: Unpack[TargetOptions]) -> str:
        """Create a schedule that emits an event and return its id."""
        return await in_thread(self._inner.schedule_event, event_type, **options)

    async def create_many(self, declarations: Iterable[Mapping[str, Any]]) -> list[str]:
        """Create many schedules, a thousand to a transaction."""
        return await in_thread(self._inner.create_many, declarations)

    def cron(
        self,
        expressions: str | Iterable[str],
        timezone: str | ZoneInfo = "UTC",
        *,
        dst: Mapping[str, str] | None = None,
        **options: Unpack[Options],
    ) -> Decorator:
        """Fire by a cron expression, or by several."""
        return self._inner.cron(expressions, timezone, dst=dst, **options)

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
        return self._inner.every(interval, seconds=seconds, minutes=minutes, hours=hours, days=days, **options)

    def once(self, at: datetime, **options: Unpack[Options]) -> Decorator:
        """Fire once, at an instant."""
        return self._inner.once(at, **options)

    def daily(self, at: str, timezone: str | ZoneInfo = "UTC", **options: Unpack[Options]) -> Decorator:
        """Fire every day at a local time."""
        return self._inner.daily(at, timezone, **options)

    def on_event(
        self,
        event_type: str | Iterable[str],
        filters: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> Decorator:
        """Fire whenever an event of the type is emitted that passes the filters."""
        return self._inner.on_event(event_type, filters, **options)

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
    ) -> AsyncWorkflow: ...

    @overload
    def workflow(
        self,
        of: type,
        *,
        name: str | None = None,
        description: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        on_failure: OnFailureName | None = None,
    ) -> AsyncWorkflow: ...

    @overload
    def workflow(
        self,
        of: str | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        on_failure: OnFailureName | None = None,
    ) -> Callable[[type], AsyncWorkflow]: ...

    def workflow(
        self,
        of: str | type | None = None,
        *,
        steps: Iterable[Callable[..., Any] | Mapping[str, Any]] | None = None,
        name: str | None = None,
        description: str | None = None,
        inputs: Mapping[str, Any] | None = None,
        on_failure: OnFailureName | None = None,
    ) -> AsyncWorkflow | Callable[[type], AsyncWorkflow]:
        """Declare a workflow from functions: a class, by a call or as a decorator, or an id and a list of steps."""
        options = {"name": name, "description": description, "inputs": inputs, "on_failure": on_failure}
        declared: Any = self._inner.workflow(of, **options, **({} if steps is None else {"steps": steps}))  # type: ignore[call-overload]
        if isinstance(declared, Workflow):
            return AsyncWorkflow(self._inner, declared)
        return lambda kind: AsyncWorkflow(self._inner, declared(kind))

    async def create_workflow(self, definition: Mapping[str, Any]) -> int:
        """Store a definition of a workflow, and return its version."""
        return await in_thread(self._inner.create_workflow, definition)

    async def run_workflow(
        self,
        workflow_id: str,
        inputs: Mapping[str, Any] | None = None,
        wait: bool = True,  # noqa: FBT001, FBT002 - as in the field
        *,
        version: int | None = None,
        key: str | None = None,
    ) -> Any:
        """Run a workflow and return the result of each step by its id, or raise the error of the step that failed."""
        self._inner._use_current_loop()
        return await in_thread(self._inner.run_workflow, workflow_id, inputs, wait, version=version, key=key)

    async def workflow_run(self, run_id: str) -> WorkflowRun:
        """A run of a workflow with its steps."""
        return await in_thread(self._inner.workflow_run, run_id)

    async def workflow_runs(self, workflow_id: str | None = None, limit: int = 100) -> list[WorkflowRun]:
        """The latest runs of a workflow, or of all."""
        return await in_thread(self._inner.workflow_runs, workflow_id, limit)

    async def cancel_workflow_run(self, run_id: str) -> None:
        """Cancel a run of a workflow."""
        await in_thread(self._inner.cancel_workflow_run, run_id)

    async def workflows(self) -> list[WorkflowVersion]:
        """The newest version of each workflow, by id."""
        return await in_thread(self._inner.workflows)

    async def delete_workflow(self, workflow_id: str) -> None:
        """Delete a workflow with all its versions."""
        await in_thread(self._inner.delete_workflow, workflow_id)

    async def approvals(self, limit: int = 100) -> list[Approval]:
        """The approvals that steps of workflows wait for, latest first."""
        return await in_thread(self._inner.approvals, limit)

    async def approve(self, approval_id: str, comment: str | None = None, *, by: str = "local") -> None:
        """Approve: the step completes, and what depends on it starts."""
        await in_thread(self._inner.approve, approval_id, comment, by=by)

    async def deny(self, approval_id: str, comment: str | None = None, *, by: str = "local") -> None:
        """Deny: the step fails."""
        await in_thread(self._inner.deny, approval_id, comment, by=by)

    async def update(
        self, job_id: str | Job, func: Callable[..., Any] | None = None, **changes: Unpack[Options]
    ) -> Job:
        """Change some options of a schedule, and leave the others."""
        return await in_thread(self._inner.update, job_id, func, **changes)

    async def add_dependency(self, job_id: str | Job, depends_on: Sequence[Upstream]) -> None:
        """Add dependencies to a schedule."""
        await in_thread(self._inner.add_dependency, job_id, depends_on)

    async def pause(self, job_id: str | Job, *, reason: str | None = None, until: datetime | None = None) -> None:
        """Pause a schedule. At `until` it resumes automatically."""
        await in_thread(self._inner.pause, job_id, reason=reason, until=until)

    async def resume(self, job_id: str | Job) -> None:
        """Resume a schedule from now on."""
        await in_thread(self._inner.resume, job_id)

    async def cancel(self, job_id: str | Job) -> bool:
        """Delete a schedule and ask its runs to stop."""
        return await in_thread(self._inner.cancel, job_id)

    async def delete(self, job_id: str | Job, *, stop_running: bool = False) -> int:
        """Delete a schedule; its history is kept. Its runs go on, unless `stop_running` asks them to stop.

        Returns how many runs were asked to stop.
        """
        return await in_thread(self._inner.delete, job_id, stop_running=stop_running)

    async def register_function(self, name: str, func: Callable[..., Any]) -> None:
        """Offer a function under a name."""
        self._inner.register_function(name, func)

    @overload
    def agent_tool(self, func: F, /, *, name: str | None = None) -> F: ...

    @overload
    def agent_tool(self, func: None = None, /, *, name: str | None = None) -> Callable[[F], F]: ...

    def agent_tool(self, func: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Any:
        """Let the agents of this process call a function; a decorator, so it is not awaited."""
        return self._inner.agent_tool(name=name) if func is None else self._inner.agent_tool(func, name=name)

    async def start(self) -> None:
        """Run due occurrences: sync functions in threads, async ones on this event loop."""
        self._inner._use_current_loop()
        # Not here: another thread that starts it too would wait for this loop, and this loop for that thread.
        await in_thread(self._inner.start)

    async def stop(self, wait: bool = True, timeout: float | timedelta | None = None) -> None:  # noqa: FBT001, FBT002, ASYNC109 - as in the field
        """Start nothing more, and wait up to `timeout` seconds for runs; those that have not ended are handed back."""
        try:
            await in_thread(self._inner.stop, wait, timeout)
        except asyncio.CancelledError:  # the caller no longer waits, so what still runs is handed back
            self._inner._runners.hand_back()
            raise

    async def run(self) -> None:
        """Start, and wait until SIGINT (Ctrl-C) or SIGTERM arrives, or `stop` is called; then stop. For scripts."""
        event_loop, is_signalled = asyncio.get_running_loop(), asyncio.Event()

        def on_signal() -> None:
            if is_signalled.is_set():
                self._inner._runners.hand_back()
            is_signalled.set()

        try:
            for number in STOP_SIGNALS:
                event_loop.add_signal_handler(number, on_signal)
        except (NotImplementedError, RuntimeError, ValueError):
            raise Conflict("signals arrive in the main thread only: call run() there, or start()") from None
        try:
            await self.start()
            while self._inner._runners.running is not None and not is_signalled.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(is_signalled.wait(), POLL_SECONDS)
            if is_signalled.is_set():
                self._inner._runners.log_waiting()
            await self.stop()
        finally:
            for number in STOP_SIGNALS:
                event_loop.remove_signal_handler(number)

    async def close(self) -> None:
        """Stop, and close the store."""
        await in_thread(self._inner.close)

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and wait for the runs; when it was cancelled, only for a moment."""
        await self.stop(timeout=exit_timeout(kind))

    async def run_now(
        self,
        job_id: str | Job,
        payload: Any = None,
        wait: bool = True,  # noqa: FBT001, FBT002 - as in the field
        overlap: Overlap | OverlapName | OverlapDocument | None = None,
    ) -> Any:
        """Run a schedule once more, now, and return its result, or raise its error."""
        self._inner._use_current_loop()
        return await in_thread(self._inner.run_now, job_id, payload, wait, overlap)

    async def emit(
        self,
        event_type: str,
        payload: Any = None,
        source: str = "embedded",
        event_id: str | None = None,
    ) -> str:
        """Emit an event, which fires the schedules that wait for it, and return its id."""
        return await in_thread(self._inner.emit, event_type, payload, source, event_id)

    async def get_job(self, job_id: str | Job) -> Job | None:
        """A schedule with its status and its last result."""
        return await in_thread(self._inner.get_job, job_id)

    async def list_jobs(self, status: JobStatus | str | None = None) -> list[Job]:
        """All schedules, oldest first, or those with a status."""
        return await in_thread(self._inner.list_jobs, status)

    async def triggers(self, event_type: str | None = None) -> list[Job]:
        """The schedules with an event trigger, oldest first."""
        return await in_thread(self._inner.triggers, event_type)

    async def preview(self, job: str | Job | Trigger, count: int = 5, after: datetime | None = None) -> list[datetime]:
        """The next fires of a schedule or a trigger."""
        return await in_thread(self._inner.preview, job, count, after)

    async def explain(self, job_id: str | Job, at: datetime | str | None = None) -> Explanation:
        """What a schedule did, does or will do at an instant, and why; without one, how its last occurrence ended."""
        return await in_thread(self._inner.explain, job_id, at)

    async def events(self, event_type: str | None = None, limit: int = 100) -> list[Event]:
        """The newest events, newest first."""
        return await in_thread(self._inner.events, event_type, limit)

    async def match_events(self, wanted: str | Job | EventTrigger, limit: int = 100) -> EventMatches:
        """Which of the newest events of its types a schedule or a trigger matches, and why not the others."""
        return await in_thread(self._inner.match_events, wanted, limit)

    async def occurrences(self, job_id: str | Job, limit: int | None = None) -> list[Occurrence]:
        """The occurrences of a schedule, newest first."""
        return await in_thread(self._inner.occurrences, job_id, limit)

    async def runs(self, job_id: str | Job, limit: int | None = None) -> list[Run]:
        """The runs of a schedule, newest first."""
        return await in_thread(self._inner.runs, job_id, limit)

    async def failures(
        self,
        job_id: str | Job | None = None,
        *,
        since: datetime | timedelta | None = None,
        until: datetime | None = None,
        reason: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int = 100,
    ) -> list[Occurrence]:
        """What failed or was missed, of one schedule or of all, latest end first."""
        return await in_thread(
            self._inner.failures, job_id, since=since, until=until, reason=reason, labels=labels, limit=limit
        )

    async def redrive(  # noqa: PLR0913 - each is a filter of its own
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
        """Run an ended occurrence again, or all failures that match the filters; each runs again once."""
        return await in_thread(
            self._inner.redrive,
            occurrence,
            job_id=job_id,
            since=since,
            until=until,
            phase=phase,
            reason=reason,
            labels=labels,
            limit=limit,
            dry_run=dry_run,
        )

    async def nodes(self) -> list[NodeRecord]:
        """The nodes that share the store."""
        return await in_thread(self._inner.nodes)

    async def create_session(self, **fields: Unpack[SessionFields]) -> Session:
        """Create a session: a conversation with an agent that the store keeps."""
        return await in_thread(self._inner.create_session, **fields)

    async def session(self, session_id: str) -> Session:
        """A session: its state, what it was created with, and what it has used."""
        return await in_thread(self._inner.session, session_id)

    async def sessions(
        self,
        *,
        state: SessionStateName | None = None,
        labels: Mapping[str, str] | None = None,
        mob_id: str | None = None,
        limit: int | None = 100,
    ) -> list[Session]:
        """The sessions that match every filter, latest creation first."""
        return await in_thread(self._inner.sessions, state=state, labels=labels, mob_id=mob_id, limit=limit)

    async def session_messages(
        self,
        session_id: str,
        *,
        after: int | None = None,
        occurrence_id: str | None = None,
        newest_first: bool = False,
        limit: int | None = 100,
    ) -> list[Message]:
        """The messages of a session in their order, or newest first."""
        return await in_thread(
            self._inner.session_messages,
            session_id,
            after=after,
            occurrence_id=occurrence_id,
            newest_first=newest_first,
            limit=limit,
        )

    async def send_message(  # noqa: PLR0913 - what a caller may say about a turn
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
        """Send a message to a session and return the result of its turn, whose `text` is the answer."""
        self._inner._use_current_loop()
        return await in_thread(
            self._inner.send_message,
            session_id,
            prompt,
            wait,
            system_prompt=system_prompt,
            render_metadata=render_metadata,
            skill_refs=skill_refs,
            additional_instructions=additional_instructions,
            key=key,
        )

    async def archive_session(self, session_id: str, *, reason: str | None = None) -> Session:
        """Archive a session: its transcript is kept, and it takes no messages."""
        return await in_thread(self._inner.archive_session, session_id, reason=reason)

    async def delete_session(self, session_id: str, *, reason: str | None = None) -> Session:
        """Delete a session with its messages."""
        return await in_thread(self._inner.delete_session, session_id, reason=reason)

    async def create_mob(
        self, mob_id: str, members: Iterable[Mapping[str, Any]], *, flows: Mapping[str, Any] | None = None
    ) -> Mob:
        """Create a group of agents with a session for each member."""
        return await in_thread(self._inner.create_mob, mob_id, members, flows=flows)

    async def mobs(self) -> list[Mob]:
        """The groups of agents, by id."""
        return await in_thread(self._inner.mobs)

    async def delete_mob(self, mob_id: str, *, reason: str | None = None) -> Mob:
        """Delete a group of agents; the sessions of its members are archived."""
        return await in_thread(self._inner.delete_mob, mob_id, reason=reason)

    async def set_budget(  # noqa: PLR0913 - each is a part of the budget
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
        """Set what may be spent in a period: `max_cost_usd`, `max_tokens`, or both."""
        return await in_thread(
            self._inner.set_budget,
            scope,
            scope_id,
            period=period,
            max_cost_usd=max_cost_usd,
            max_tokens=max_tokens,
            hard=hard,
            warning_threshold=warning_threshold,
            require_approval=require_approval,
            when_exhausted=when_exhausted,
        )

    async def budgets(self, scope: BudgetScopeName | None = None, scope_id: str | Job | None = None) -> list[Budget]:
        """The budgets by scope, id and period, each with its spend."""
        return await in_thread(self._inner.budgets, scope, scope_id)

    async def delete_budget(
        self, scope: BudgetScopeName, scope_id: str | Job, *, period: PeriodName | None = None
    ) -> list[Budget]:
        """Delete the budget of a period, or of all periods, and return those deleted."""
        return await in_thread(self._inner.delete_budget, scope, scope_id, period=period)

    async def usage(
        self,
        by: UsageByName = "schedule",
        *,
        since: datetime | timedelta | None = None,
        until: datetime | None = None,
        job_id: str | Job | None = None,
        limit: int = 100,
    ) -> UsageSummary:
        """What models were used for, the most expensive first."""
        return await in_thread(self._inner.usage, by, since=since, until=until, job_id=job_id, limit=limit)

    async def halt(
        self, *, labels: Mapping[str, str] | None = None, lineage: str | None = None, reason: str | None = None
    ) -> NewHalt:
        """Halt: running occurrences are cancelled, and nothing starts, schedules created later included."""
        return await in_thread(self._inner.halt, labels=labels, lineage=lineage, reason=reason)

    async def unhalt(
        self,
        halt_id: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        lineage: str | None = None,
        reason: str | None = None,
    ) -> list[Halt]:
        """Lift a halt, or all with exactly these labels or this lineage, and return them."""
        return await in_thread(self._inner.unhalt, halt_id, labels=labels, lineage=lineage, reason=reason)

    async def halts(self) -> list[Halt]:
        """The halts, oldest first."""
        return await in_thread(self._inner.halts)

    async def set_secret(
        self, name: str, value: str, *, hosts: Iterable[str] = (), programs: Iterable[str] = ()
    ) -> Secret:
        """Store a secret that requests to these hosts, or these programs, may get."""
        return await in_thread(self._inner.set_secret, name, value, hosts=hosts, programs=programs)

    async def secrets(self) -> list[Secret]:
        """The secrets by name, each with its hosts."""
        return await in_thread(self._inner.secrets)

    async def delete_secret(self, name: str) -> Secret:
        """Delete a secret."""
        return await in_thread(self._inner.delete_secret, name)

    async def signing_key(self) -> str:
        """The key that requests are signed with, for receivers that check them."""
        return await in_thread(self._inner.signing_key)

    @property
    def blocking(self) -> Scheduler:
        """The scheduler whose methods need no event loop."""
        return self._inner


class AsyncWorkflow:
    """A workflow that a program has declared with `AsyncScheduler.workflow`: as `Workflow`, with awaited methods."""

    def __init__(self, scheduler: Scheduler, workflow: Workflow) -> None:
        self._scheduler, self._workflow = scheduler, workflow

    @property
    def workflow_id(self) -> str:
        """Its id."""
        return self._workflow.workflow_id

    @property
    def definition(self) -> dict[str, Any]:
        """Its definition, as a document."""
        return self._workflow.definition

    @property
    def version(self) -> int | None:
        """The version that it is stored as; None until the store is opened."""
        return self._workflow._declared.version

    async def run(self, /, **inputs: Any) -> dict[str, Any]:
        """Run it with these inputs, and return the result of each step by its id."""
        self._scheduler._use_current_loop()
        return await in_thread(self._workflow.run, **inputs)

    async def start(self, /, **inputs: Any) -> str:
        """Start a run with these inputs, and return its id at once."""
        return await in_thread(self._workflow.start, **inputs)

    async def schedule(self, *, inputs: Mapping[str, Any] | None = None, **options: Unpack[HttpOptions]) -> str:
        """Create a schedule that runs its newest version with these inputs, and return the id of the schedule."""
        return await in_thread(self._workflow.schedule, inputs=inputs, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_workflow" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._workflow, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.workflow_id!r})"


class _LoopScheduler(Scheduler):
    """A scheduler whose driver runs on the event loop of the program."""

    _event_loop: asyncio.AbstractEventLoop | None = None

    def _use_current_loop(self) -> None:
        self._event_loop = asyncio.get_running_loop()

    def _host(self, runtime: Runtime, *, claims: bool) -> Runner:
        if self._event_loop is None or not self._event_loop.is_running():
            raise Conflict("an AsyncScheduler runs on an event loop: await its methods there")
        if not claims and asyncio._get_running_loop() is self._event_loop:
            raise Conflict("the event loop that runs the functions cannot wait for them: await the same method")
        return LoopRunner(runtime, self._event_loop, claims=claims)

    def _after_fork(self) -> None:
        """The event loop of the parent seems to run, but does not run here."""
        self._event_loop = None
        super()._after_fork()


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Make a blocking call in a separate thread.

    Not in the default executor: it has few threads, and calls that wait for a run could take all of them while the run
    waits for another call. And a loop that ends waits for its executor, but not for this.
    """
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    context = contextvars.copy_context()
    thread = threading.Thread(
        target=context.run, args=(_call, answer, call, args, kwargs), name="noonmark-call", daemon=True
    )
    thread.start()
    return await answer


def _call(answer: asyncio.Future[Any], call: Callable[..., Any], args: Any, kwargs: Any) -> None:
    result: Any = None
    error: BaseException | None = None
    try:
        result = call(*args, **kwargs)
    except BaseException as raised:  # noqa: BLE001 - it is raised where the answer is awaited
        error = raised
    resolve_threadsafe(answer, result, error)
