"""The scheduler for a Python program: durable schedules with one import and no server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from noonmark import __version__
from noonmark.clocks import SystemClock
from noonmark.core.documents import present
from noonmark.core.errors import Conflict
from noonmark.embedded import forking, looking
from noonmark.embedded.decorators import Decorators
from noonmark.embedded.desk import Desk
from noonmark.embedded.engines import Engines
from noonmark.embedded.other_work import OtherWork
from noonmark.embedded.reading import Reading
from noonmark.embedded.references import check_callable, check_name
from noonmark.embedded.running import an_engine
from noonmark.embedded.secrecy import Secrecy
from noonmark.embedded.settings import duration, key_argument, patience, whole_number
from noonmark.embedded.steering import Steering
from noonmark.embedded.written import options_of, route_of, target_of
from noonmark.ports.runtime import Runtime, Timing
from noonmark.targets.functions import Functions
from noonmark.targets.programs import Programs
from noonmark.targets.workers import MAX_THREADS
from noonmark.wiring import make_runner, make_seal, make_store, make_target, node_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from noonmark.core.triggers import Trigger
    from noonmark.embedded.declaring import Further, Options, Terms
    from noonmark.embedded.engine import AnyEngine
    from noonmark.embedded.jobs import Job
    from noonmark.ports.clock import Clock
    from noonmark.ports.events import EventSink
    from noonmark.ports.records import StoredSchedule
    from noonmark.ports.target import Target
    from noonmark.targets.outbound import Outbound

T = TypeVar("T")


class Scheduler(Decorators, OtherWork, Steering, Reading, Secrecy):
    """Keeps schedules in a store, and runs what is due between `start` and `stop`.

    Every method works before `start` and after `stop`, from any thread. Several schedulers, in one process or in many,
    may share a durable store: each occurrence is run by one of them. A process that is forked has it too, not started.
    """

    def __init__(  # noqa: PLR0913 - each is a setting of its own
        self,
        store: str = "memory://",
        *,
        lease: float = 15.0,
        max_threads: int = MAX_THREADS,
        max_processes: int | None = None,
        keep_days: float = 30,
        keep_occurrences: int = 10_000,
        secret_key: str | None = None,
        signing_key: str | None = None,
        clock: Clock | None = None,
        sink: EventSink | None = None,
    ) -> None:
        """Open a store: `memory://`, `sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://host/database`.

        A run whose process dies is taken over when its lease, in seconds, has run out. Functions run in at most so many
        threads, and those that ask for it in at most so many processes, one for each processor by default. Of each
        schedule, the newest `keep_occurrences` ended occurrences are kept, none of them longer than `keep_days`.
        Secrets are sealed with `secret_key`, a text as `noonmark secret key` prints it, and requests are signed with
        `signing_key`, or else with a key that the store has drawn, as those of a server are.
        """
        self._clock = clock or SystemClock()
        self._functions = Functions()
        timing = Timing(
            lease=duration("lease", lease),
            keep_for=duration("keep_days", keep_days, unit=86_400),
            keep_count=whole_number("keep_occurrences", keep_occurrences),
        )
        self._limits = (
            whole_number("max_threads", max_threads),
            None if max_processes is None else whole_number("max_processes", max_processes),
        )
        self._programs = Programs(is_offered=False)
        self._seal, self._keys = make_seal(secret_key), key_argument(signing_key)
        self._store = make_store(store, self._clock)
        self._runtime = Runtime(
            node=node_name(),
            store=self._store,
            clock=self._clock,
            target=self._new_target(),
            sink=sink,
            version=__version__,
            timing=timing,
        )
        self._desk = Desk(self._store, self._functions, self._clock, timing.lookahead)
        self._decorated: dict[str, Callable[..., Any]] = {}
        self._engines = Engines(self._new_engine)
        self._is_closed = False
        self._store.open()
        forking.watch(self)

    def schedule(  # noqa: PLR0913 - each is an option of its own
        self,
        func: Callable[..., Any] | Mapping[str, Any],
        *,
        name: str | None = None,
        trigger: Trigger | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        payload: Any = None,  # noqa: ANN401 - JSON
        max_runs: int | None = None,
        overlap: str | Mapping[str, Any] | None = None,
        misfire: str | Mapping[str, Any] | None = None,
        retries: int | Mapping[str, Any] = 0,
        timeout: float | None = None,
        jitter: float | None = None,
        labels: Mapping[str, str] | None = None,
        depends_on: Sequence[str | Mapping[str, Any]] | None = None,
        delivery: str | None = None,
        function_name: str | None = None,
        executor: str | None = None,
        **further: Unpack[Further],
    ) -> str:
        """Keep a schedule for a function and return its id, under which it survives the process.

        Without a trigger it runs once, at once. With a name it is declared: the same declaration again changes nothing,
        another one is a new revision. Without a name it is always new.

        `args`, `kwargs` and `payload` are JSON; the payload is what a `context` parameter carries. `depends_on` names
        the jobs that must have run before it, each by its id, or with its `require_success` as a mapping. Without a
        trigger, it then runs whenever all of them have. With `executor="process"` it runs in a process of its own.

        `overlap`, `misfire` and `retries` may be documents as well, `retries` with a backoff for instance. Further
        options are `description`, `pause_on_failure` (after so many failures in a row), `concurrency_key` and
        `concurrency_limit` (jobs with the same key run at most so many at a time), `window`, and `accepts_payload`
        (callers of a server on the same store may send a payload along when they ask for a run).

        In place of a function there may be a target document, such as `{"target_kind": "command", "argv": ["ls"]}`: a
        program, a request or an event, as `schedule_command`, `schedule_http` and `schedule_event` declare them.
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
        depends_on: Sequence[str | Mapping[str, Any]],
        **options: Unpack[Terms],
    ) -> str:
        """The same for a function that waits for other jobs, or, without a trigger, follows them."""
        return self._declare(func, {**options, "depends_on": depends_on})

    def create_many(self, declarations: Iterable[Mapping[str, Any]]) -> list[str]:
        """Keep many schedules, a thousand to a transaction, and return their ids in order.

        Each is a mapping of the arguments of `schedule`, `func` among them; all of them are new, so none has a name.
        The first that is refused ends it: the error is raised, and the whole thousands before it are kept.
        """
        self._check_open()
        made: list[str] = []
        for kept in self._desk.create_many(declarations):
            made += [one.schedule_id for one in kept]
            self._engines.adopt({one.declaration.target.route for one in kept})
            self._wake()
        return made

    def update(self, job_id: str, func: Callable[..., Any] | None = None, **changes: Unpack[Options]) -> Job:
        """Say some of the options anew, and leave the others; None takes one back. Gives the job as it is then.

        What is due from then on follows the new declaration; what runs already, or is about to within 20 ms, finishes
        as it began.
        """
        self._check_open()
        self._desk.update(job_id, func, dict(changes))
        self._wake()
        return looking.job(self._store, self._find(job_id))

    def add_dependency(self, job_id: str, depends_on: Sequence[str | Mapping[str, Any]]) -> None:
        """Let a job wait for others too, each named by its id, or with its `require_success` as a mapping."""
        self._check_open()
        self._desk.depend(job_id, depends_on)
        self._wake()

    def register_function(self, name: str, func: Callable[..., Any]) -> None:
        """Offer a function under a name: schedules that name it run here from now on.

        That includes schedules which others create through a server on the same store, with arguments of their choice.
        A function that is only named with `function_name=` is called by the schedules of programs alone.
        """
        check_callable(func)
        check_name("name", name)
        self._functions.register(name, func)
        self._functions.offer(name)
        self._wake()

    def start(self) -> None:
        """Begin to run what is due, in threads of this process. Returns at once; a second call does nothing."""
        self._check_open()
        if not isinstance(self._clock, SystemClock):
            raise Conflict("a scheduler with a clock of its own is driven by noonmark.testing.ManualDriver")
        self._engines.start()

    def stop(self, wait: bool = True, timeout: float | None = None) -> None:  # noqa: FBT001, FBT002 - as in the field
        """Begin nothing more, and wait for what runs, at most so many seconds; what has not ended is handed back.

        Without `wait`, it is handed back at once, and runs again elsewhere, or after the next start. A function that
        runs here may call it too; it is not waited for by itself.
        """
        self._engines.stop(0 if not wait else None if timeout is None else duration("timeout", timeout, low=0))

    def emit(
        self,
        event_type: str,
        payload: Any = None,  # noqa: ANN401 - JSON
        source: str = "embedded",
        event_id: str | None = None,
    ) -> str:
        """Keep an event, which sets off the jobs that wait for it, and return its id.

        It is on record when this returns, whatever becomes of those jobs. An id of your own makes it harmless to emit
        the same event again.
        """
        self._check_open()
        kept = self._desk.emit(present(event_type=event_type, payload=payload, source=source, event_id=event_id))
        self._wake()
        return kept

    def close(self) -> None:
        """Stop, and let go of the store; nothing works after that. A second call does nothing."""
        if any(engine.is_caller for engine in self._engines.alive):
            raise Conflict(
                "neither a job nor the loop that runs it can close the scheduler: use stop(), or await close()"
            )
        self.stop()
        self._is_closed = True
        self._store.close()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and wait for what runs; after Ctrl-C not for long."""
        self.stop(timeout=patience(kind))

    def with_engine(self, work: Callable[[AnyEngine], T]) -> T:
        """Do something with the engine that runs, or without one with an engine of its own."""
        self._check_open()
        with an_engine(self._engines.running, self._engines.new) as used:
            return work(used)

    def settle_here(self) -> None:
        """Let async functions run on the loop of the caller, where it runs on one; this one has a thread of its own."""

    @property
    def blocking(self) -> Scheduler:
        """The scheduler whose methods can be called without an event loop: this one."""
        return self

    @property
    def desk(self) -> Desk:
        """Where its schedules are declared."""
        return self._desk

    @property
    def runtime(self) -> Runtime:
        """What it is made of, for those who drive it by hand."""
        return self._runtime

    @property
    def functions(self) -> Functions:
        """What it can run."""
        return self._functions

    def _check_open(self) -> None:
        if self._is_closed:
            raise Conflict("the scheduler was closed")

    def _find(self, job_id: str, *, deleted: bool = False) -> StoredSchedule:
        self._check_open()
        return self._desk.find(job_id, deleted=deleted)

    def _wake(self) -> None:
        self._engines.wake()

    def _declare(self, func: Callable[..., Any] | Mapping[str, Any], options: Mapping[str, Any]) -> str:
        if isinstance(func, Mapping):
            return self._declare_work(target_of(func), options_of(options))
        self._check_open()
        job_id = self._desk.declare(func, options)
        self._wake()
        return job_id

    def _declare_work(self, target: dict[str, Any], options: Mapping[str, Any]) -> str:
        self._check_open()
        job_id = self._desk.declare_work(target, options)
        self._engines.adopt({route_of(target)})
        self._wake()
        return job_id

    def _new_engine(self, looks: bool) -> AnyEngine:  # noqa: FBT001 - the only thing to say
        """Each has a runner of its own: one that stops must not take the threads of another with it.

        One that looks for work is a node by itself, since it may lead, and another may be about to stop beside it.
        """
        node = node_name() if looks else self._runtime.node
        return self._host(replace(self._runtime, node=node, target=self._new_target()), looks=looks)

    def _new_target(self) -> Target:
        runner = make_runner(self._functions, *self._limits)
        return make_target(self._store, runner, self._programs, self._outbound(), self._seal)

    def _outbound(self) -> Outbound | None:
        """What requests are sent by; nothing is loaded for that where there is nothing to say."""
        if self._keys.signing_key is None:
            return None
        from noonmark.targets.outbound import Outbound

        return Outbound(is_offered=False, keys=self._keys)

    def _host(self, runtime: Runtime, *, looks: bool) -> AnyEngine:
        """Let a loop run somewhere."""
        from noonmark.embedded.engine import Engine

        return Engine(runtime, looks=looks)

    def after_fork(self) -> None:
        """This process is new: threads did not come along, and locks that others held are held for good."""
        self._engines.after_fork()
        self._functions.after_fork()
        self._runtime = replace(self._runtime, node=node_name())
