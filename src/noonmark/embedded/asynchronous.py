"""The scheduler for a program with an event loop: the same, awaited."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self, Unpack

from noonmark.core.errors import Conflict
from noonmark.embedded.decorators import Decorators
from noonmark.embedded.engine import Guest
from noonmark.embedded.scheduler import Scheduler
from noonmark.embedded.settings import patience
from noonmark.embedded.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import PurePath
    from types import TracebackType

    from noonmark.core.event import Event
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Run
    from noonmark.core.secret import Secret
    from noonmark.core.triggers import EventTrigger, Trigger
    from noonmark.embedded.declaring import Options, Terms, WorkOptions
    from noonmark.embedded.desk import Desk
    from noonmark.embedded.engine import AnyEngine
    from noonmark.embedded.jobs import Job, JobStatus
    from noonmark.ports.records import NodeRecord
    from noonmark.ports.runtime import Runtime
    from noonmark.targets.functions import Functions


class AsyncScheduler(Decorators):
    """What `Scheduler` does, without ever keeping the event loop waiting; async functions run on that loop.

    The settings and methods are those of `Scheduler`, and are described there. Only the decorators are not awaited:
    they are used where functions are defined, before there is a loop, and they write to the store at once.
    """

    def __init__(self, store: str = "memory://", **settings: Any) -> None:  # noqa: ANN401 - those of Scheduler
        """Open a store: `memory://`, `sqlite:///relative.db` or `sqlite:////absolute.db`."""
        self._inner = _Hosted(store, **settings)

    async def schedule(self, func: Callable[..., Any] | Mapping[str, Any], **options: Unpack[Options]) -> str:
        """Keep a schedule for a function, or a target document, and return its id."""
        return await in_thread(self._inner.schedule, func, **options)

    async def schedule_command(self, argv: Sequence[str | PurePath], **options: Any) -> str:  # noqa: ANN401 - those of Scheduler
        """Keep a schedule that starts a program and return its id."""
        return await in_thread(self._inner.schedule_command, argv, **options)

    async def schedule_http(self, url: str, **options: Any) -> str:  # noqa: ANN401 - those of Scheduler
        """Keep a schedule that sends a request and return its id."""
        return await in_thread(self._inner.schedule_http, url, **options)

    async def schedule_event(self, event_type: str, **options: Unpack[WorkOptions]) -> str:
        """Keep a schedule that emits an event and return its id."""
        return await in_thread(self._inner.schedule_event, event_type, **options)

    async def schedule_with_deps(
        self,
        func: Callable[..., Any] | Mapping[str, Any],
        depends_on: Sequence[str | Mapping[str, Any]],
        **options: Unpack[Terms],
    ) -> str:
        """The same for a function that waits for other jobs, or follows them."""
        return await in_thread(self._inner.schedule_with_deps, func, depends_on, **options)

    async def create_many(self, declarations: Iterable[Mapping[str, Any]]) -> list[str]:
        """Keep many schedules, a thousand to a transaction."""
        return await in_thread(self._inner.create_many, declarations)

    async def update(self, job_id: str, func: Callable[..., Any] | None = None, **changes: Unpack[Options]) -> Job:
        """Say some of the options anew, and leave the others."""
        return await in_thread(self._inner.update, job_id, func, **changes)

    async def add_dependency(self, job_id: str, depends_on: Sequence[str | Mapping[str, Any]]) -> None:
        """Let a job wait for others too."""
        await in_thread(self._inner.add_dependency, job_id, depends_on)

    async def register_function(self, name: str, func: Callable[..., Any]) -> None:
        """Offer a function under a name."""
        self._inner.register_function(name, func)

    async def start(self) -> None:
        """Begin to run what is due: sync functions in threads, async ones on this event loop."""
        self._inner.settle_here()
        # Not here: another thread that starts it too would wait for this loop, and this loop for that thread.
        await in_thread(self._inner.start)

    async def stop(self, wait: bool = True, timeout: float | None = None) -> None:  # noqa: FBT001, FBT002, ASYNC109 - as in the field
        """Begin nothing more, and wait for what runs, at most so many seconds; what has not ended is handed back."""
        try:
            await in_thread(self._inner.stop, wait, timeout)
        except asyncio.CancelledError:  # whoever waited does so no longer, but what still runs is handed back
            self._inner.hand_back()
            raise

    async def cancel(self, job_id: str) -> bool:
        """Start nothing of it any more, and ask what runs to stop."""
        return await in_thread(self._inner.cancel, job_id)

    async def pause(self, job_id: str) -> None:
        """Start nothing of it until it is resumed."""
        await in_thread(self._inner.pause, job_id)

    async def resume(self, job_id: str) -> None:
        """Go on from now."""
        await in_thread(self._inner.resume, job_id)

    async def delete(self, job_id: str) -> None:
        """Start nothing of it any more; the history stays in the store."""
        await in_thread(self._inner.delete, job_id)

    async def run_now(
        self,
        job_id: str,
        payload: Any = None,  # noqa: ANN401 - JSON
        wait: bool = True,  # noqa: FBT001, FBT002 - as in the field
        overlap: str | Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the function returns
        """Run it once more, now, and return its result, or raise what it raised."""
        self._inner.settle_here()
        return await in_thread(self._inner.run_now, job_id, payload, wait, overlap)

    async def emit(
        self,
        event_type: str,
        payload: Any = None,  # noqa: ANN401 - JSON
        source: str = "embedded",
        event_id: str | None = None,
    ) -> str:
        """Keep an event, which sets off the jobs that wait for it, and return its id."""
        return await in_thread(self._inner.emit, event_type, payload, source, event_id)

    async def get_job(self, job_id: str) -> Job | None:
        """A job with its status and its last result."""
        return await in_thread(self._inner.get_job, job_id)

    async def list_jobs(self, status: JobStatus | str | None = None) -> list[Job]:
        """All jobs, oldest first, or those with a status."""
        return await in_thread(self._inner.list_jobs, status)

    async def preview(self, job: str | Trigger, count: int = 5, after: datetime | None = None) -> list[datetime]:
        """The next times that a job or a trigger names."""
        return await in_thread(self._inner.preview, job, count, after)

    async def explain(self, job_id: str, at: datetime | str | None = None) -> dict[str, Any]:
        """What a job did, does or will do at an instant, and why; without one, how its last occurrence fared."""
        return await in_thread(self._inner.explain, job_id, at)

    async def match_events(self, wanted: str | EventTrigger, limit: int = 100) -> dict[str, Any]:
        """Which of the last events of its types would set a job off, or match a trigger, and why not the others."""
        return await in_thread(self._inner.match_events, wanted, limit)

    async def events(self, event_type: str | None = None, limit: int = 100) -> list[Event]:
        """The events that were emitted and are kept, newest first."""
        return await in_thread(self._inner.events, event_type, limit)

    async def triggers(self, event_type: str | None = None) -> list[Job]:
        """The jobs that events set off, oldest first."""
        return await in_thread(self._inner.triggers, event_type)

    async def occurrences(self, job_id: str, limit: int | None = None) -> list[Occurrence]:
        """Its occurrences, newest first."""
        return await in_thread(self._inner.occurrences, job_id, limit)

    async def runs(self, job_id: str, limit: int | None = None) -> list[Run]:
        """Its runs, newest first."""
        return await in_thread(self._inner.runs, job_id, limit)

    async def set_secret(self, name: str, value: str, *, hosts: Iterable[str]) -> Secret:
        """Keep a secret that requests to these hosts may carry."""
        return await in_thread(self._inner.set_secret, name, value, hosts=hosts)

    async def secrets(self) -> list[Secret]:
        """The secrets by name, each with its hosts."""
        return await in_thread(self._inner.secrets)

    async def delete_secret(self, name: str) -> Secret:
        """Forget a secret."""
        return await in_thread(self._inner.delete_secret, name)

    async def signing_key(self) -> str:
        """The key that requests are signed with, for the receivers that check them."""
        return await in_thread(self._inner.signing_key)

    async def nodes(self) -> list[NodeRecord]:
        """The nodes that share its store."""
        return await in_thread(self._inner.nodes)

    async def close(self) -> None:
        """Stop, and let go of the store."""
        await in_thread(self._inner.close)

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and wait for what runs; when it was cancelled, not for long."""
        await self.stop(timeout=patience(kind))

    @property
    def blocking(self) -> Scheduler:
        """The scheduler whose methods can be called without an event loop."""
        return self._inner

    @property
    def desk(self) -> Desk:
        """Where its schedules are declared."""
        return self._inner.desk

    @property
    def functions(self) -> Functions:
        """What it can run."""
        return self._inner.functions

    @property
    def _decorated(self) -> dict[str, Callable[..., Any]]:
        return self._inner._decorated  # noqa: SLF001 - the same scheduler

    def _declare(self, func: Callable[..., Any], options: Mapping[str, Any]) -> str:
        return self._inner._declare(func, options)  # noqa: SLF001 - likewise


class _Hosted(Scheduler):
    """A scheduler whose loop runs on the event loop of the program."""

    _events: asyncio.AbstractEventLoop | None = None

    def settle_here(self) -> None:
        """What is run from now on runs on the loop of the caller."""
        self._events = asyncio.get_running_loop()

    def _host(self, runtime: Runtime, *, looks: bool) -> AnyEngine:
        if self._events is None or not self._events.is_running():
            raise Conflict("an AsyncScheduler runs on an event loop: await its methods there")
        if not looks and asyncio._get_running_loop() is self._events:  # noqa: SLF001 - get_running_loop may raise
            raise Conflict("the event loop that runs the functions cannot wait for them: await the same method")
        return Guest(runtime, self._events, looks=looks)

    def hand_back(self) -> None:
        """Let what is about to stop wait no longer for what runs. Returns at once."""
        self._engines.hand_back()

    def after_fork(self) -> None:
        """The event loop of the parent seems to run, but nobody runs it here."""
        self._events = None
        super().after_fork()
