"""The scheduler for a Python program: durable schedules with one import and no server."""

from __future__ import annotations

import atexit
import inspect
import threading
import weakref
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from noonmark.clocks import SystemClock
from noonmark.core.errors import Conflict, InvalidSchedule, NotFound
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.schedule import Owner, parse_schedule
from noonmark.driver.access import drive
from noonmark.embedded.declaring import document_of, id_of_name, in_python, redeclared
from noonmark.embedded.engine import Engine
from noonmark.embedded.references import check_arguments, check_callable, check_name, refer
from noonmark.embedded.running import read_request, run_now
from noonmark.operations import schedules
from noonmark.ports.runtime import Runtime, Timing
from noonmark.targets.functions import Functions
from noonmark.targets.runner import FunctionRunner
from noonmark.targets.workers import MAX_THREADS
from noonmark.wiring import fresh_id, make_store, node_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Run
    from noonmark.core.schedule import Declaration, Schedule
    from noonmark.core.triggers import Trigger
    from noonmark.ports.clock import Clock
    from noonmark.ports.sink import Sink
    from noonmark.ports.store import Kept

SOURCE = "embedded"
OPTIONS = frozenset(inspect.signature(document_of).parameters) - {"function"} | {"func", "function_name"}
CHUNK = 1_000
MAX_SECONDS = 1e10
LAST_WAIT = 5.0
"""Seconds for what runs to be handed back, when whoever stops it is interrupted."""
OWNER = Owner(tenant="default", user="local")


class Scheduler:
    """Keeps schedules in a store, and runs what is due between `start` and `stop`.

    Every method works before `start` and after `stop`, from any thread. Several schedulers, in one process or in many,
    may share a durable store: each occurrence is run by one of them.
    """

    def __init__(  # noqa: PLR0913 - each is a setting of its own
        self,
        store: str = "memory://",
        *,
        lease: float = 15.0,
        max_threads: int = MAX_THREADS,
        keep_days: float = 30,
        keep_occurrences: int = 10_000,
        clock: Clock | None = None,
        sink: Sink | None = None,
    ) -> None:
        """Open a store: `memory://`, `sqlite:///relative.db` or `sqlite:////absolute.db`.

        A run whose process dies is taken over when its lease, in seconds, has run out. Of each schedule, the newest
        `keep_occurrences` ended occurrences are kept, none of them longer than `keep_days`.
        """
        self._clock = clock or SystemClock()
        self._functions = Functions()
        timing = Timing(
            lease=_positive("lease", lease),
            keep_for=_positive("keep_days", keep_days, unit=86_400),
            keep_count=_at_least_one("keep_occurrences", keep_occurrences),
        )
        self._max_threads = _at_least_one("max_threads", max_threads)
        self._runtime = Runtime(
            node=node_name(),
            store=make_store(store, self._clock),
            clock=self._clock,
            target=FunctionRunner(self._functions, max_threads),
            sink=sink,
            timing=timing,
        )
        self._store = self._runtime.store
        self._engine: Engine | None = None
        self._leaving: Engine | None = None
        """The last one that was stopped; perhaps it has not ended yet."""
        self._at_exit = partial(_stop_at_exit, weakref.ref(self))
        self._is_closed = False
        self._lock = threading.RLock()
        drive(self._store.open())

    def schedule(  # noqa: PLR0913 - each is an option of its own
        self,
        func: Callable[..., Any],
        *,
        name: str | None = None,
        trigger: Trigger | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        max_runs: int | None = None,
        overlap: str | Mapping[str, Any] | None = None,
        misfire: str | Mapping[str, Any] | None = None,
        retries: int = 0,
        timeout: float | None = None,
        jitter: float | None = None,
        labels: Mapping[str, str] | None = None,
        depends_on: Sequence[str | Mapping[str, Any]] | None = None,
        delivery: str | None = None,
        function_name: str | None = None,
    ) -> str:
        """Keep a schedule for a function and return its id, under which it survives the process.

        Without a trigger it runs once, at once. With a name it is declared: the same declaration again changes nothing,
        another one is a new revision. Without a name it is always new.

        `depends_on` names the jobs that must have run before it, each by its id, or with its `require_success` as a
        mapping. Without a trigger, it then runs whenever all of them have.
        """
        self._check_open()
        document = self._document(
            func,
            name=name,
            trigger=trigger,
            args=args,
            kwargs=kwargs,
            max_runs=max_runs,
            overlap=overlap,
            misfire=misfire,
            retries=retries,
            timeout=timeout,
            jitter=jitter,
            labels=labels,
            depends_on=depends_on,
            delivery=delivery,
            function_name=function_name,
        )
        while True:
            stored = None if name is None else drive(self._store.find_named(OWNER.tenant, OWNER.user, name))
            schedule = self._create(document) if stored is None else self._declare(document, stored, trigger)
            if schedule is not None:
                self._wake()
                return schedule.schedule_id

    def create_many(self, declarations: Iterable[Mapping[str, Any]]) -> list[str]:
        """Keep many schedules, a thousand to a transaction, and return their ids in order.

        Each is a mapping of the arguments of `schedule`, `func` among them; all of them are new, so none has a name.
        The first that is refused ends it: the error is raised, and the whole thousands before it are kept.
        """
        self._check_open()
        made: list[str] = []
        declared = enumerate(declarations)
        while chunk := [self._new(number, one) for number, one in islice(declared, CHUNK)]:
            drive(schedules.create_many(self._store, chunk, lookahead=self._runtime.timing.lookahead))
            made += [schedule.schedule_id for schedule in chunk]
            self._wake()
        return made

    def register_function(self, name: str, func: Callable[..., Any]) -> None:
        """Offer a function under a name; schedules that name it run here from now on."""
        check_callable(func)
        check_name("name", name)
        self._functions.register(name, func)
        self._wake()

    def start(self) -> None:
        """Begin to run what is due, in threads of this process. Returns at once; a second call does nothing."""
        self._check_open()
        with self._lock:
            if self._engine is None:
                if not isinstance(self._clock, SystemClock):
                    raise Conflict("a scheduler with a clock of its own is driven by noonmark.testing.ManualDriver")
                self._engine = self._new_engine(looks=True)
                atexit.register(self._at_exit)

    def stop(self, wait: bool = True, timeout: float | None = None) -> None:  # noqa: FBT001, FBT002 - as in the field
        """Begin nothing more, and wait for what runs, at most so many seconds; what has not ended is handed back.

        Without `wait`, it is handed back at once, and runs again elsewhere, or after the next start. A function that
        runs here may call it too; it is not waited for by itself.
        """
        grace = 0 if not wait else None if timeout is None else _positive("timeout", timeout, low=0)
        with self._lock:
            engine = self._engine or self._leaving
            self._engine, self._leaving = None, engine
        if engine is None:
            return
        engine.stop(grace)
        if engine.is_caller:
            return
        try:
            engine.wait()
        except BaseException:  # Ctrl-C: whoever waited does so no longer, but what still runs is handed back
            engine.stop(0)
            engine.wait(LAST_WAIT)
            raise
        atexit.unregister(self._at_exit)

    def pause(self, job_id: str) -> None:
        """Start nothing of it until it is resumed; what that swallows is recorded."""
        drive(schedules.pause(self._store, self._find(job_id).schedule.uid))
        self._wake()  # others may have waited for it

    def resume(self, job_id: str) -> None:
        """Go on from now."""
        drive(schedules.resume(self._store, self._find(job_id).schedule.uid, lookahead=self._runtime.timing.lookahead))
        self._wake()

    def delete(self, job_id: str) -> None:
        """Start nothing of it any more; the history stays in the store."""
        drive(schedules.delete(self._store, self._find(job_id).schedule.uid))
        self._wake()

    def run_now(
        self,
        job_id: str,
        payload: Any = None,  # noqa: ANN401 - JSON
        wait: bool = True,  # noqa: FBT001, FBT002 - as in the field
        overlap: str | Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the function returns
        """Run it once more, now, and return its result, or raise what it raised; its next fire stays where it is.

        With `wait=False`, return the id of the occurrence at once. It obeys the overlap policy, unless the call sets
        another one; when that forbids it, OverlapConflict is raised. Works without `start`.
        """
        kept = self._find(job_id)
        with self._lock:
            engine = self._engine
        asked = read_request(kept.schedule, payload, overlap)
        return run_now(self._runtime, engine, lambda: self._new_engine(looks=False), asked, wait=wait)

    def occurrences(self, job_id: str, limit: int | None = None) -> list[Occurrence]:
        """Its occurrences, past and planned, newest first; all of them, unless there is a limit."""
        return drive(self._store.occurrences(self._find(job_id).schedule.uid, _limit(limit)))

    def runs(self, job_id: str, limit: int | None = None) -> list[Run]:
        """Its runs, newest first; all of them, unless there is a limit."""
        return drive(self._store.runs(self._find(job_id).schedule.uid, _limit(limit)))

    def close(self) -> None:
        """Stop, and let go of the store; nothing works after that. A second call does nothing."""
        self.stop()
        self._is_closed = True
        drive(self._store.close())

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and wait for what runs."""
        self.stop()

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

    def _find(self, job_id: str) -> Kept:
        self._check_open()
        check_name("job_id", job_id)
        return drive(schedules.find(self._store, OWNER.tenant, job_id))

    def _wake(self) -> None:
        engine = self._engine
        if engine is not None:
            engine.wake()

    def _document(self, func: Callable[..., Any], **options: Any) -> dict[str, Any]:  # noqa: ANN401 - judged by the parser
        """The document that a call of `schedule` stands for; the function is offered from now on."""
        name, function_name = options.get("name"), options.pop("function_name", None)
        if name is not None:
            check_name("name", name)
        check_callable(func)
        check_arguments(func, options.get("args", ()), options.get("kwargs"))
        reference = refer(self._functions, func, function_name, is_durable=self._store.traits.is_durable)
        return document_of(reference, **options)

    def _new(self, number: int, declared: object) -> Schedule:
        """One of many; an error says which."""
        where = f"declarations[{number}]"
        if not isinstance(declared, Mapping) or "func" not in declared:
            raise InvalidSchedule("must be a mapping of the arguments of schedule(), func among them", field=where)
        if unknown := [str(one) for one in declared if one not in OPTIONS]:
            raise InvalidSchedule("is no argument of schedule()", field=f"{where}.{unknown[0]}")
        if declared.get("name") is not None:
            raise InvalidSchedule("what has a name is declared by itself, with schedule()", field=f"{where}.name")
        try:
            return self._read(self._document(**declared))
        except InvalidSchedule as error:
            raise type(error)(error.message, field=f"{where}.{error.field}", problems=error.problems) from None

    def _read(self, document: dict[str, Any]) -> Schedule:
        """The new schedule that a document declares."""
        now, uid = drive(self._store.clock()), fresh_id(self._clock)
        schedule_id = self._id_for(document.get("name"), uid)
        with in_python():
            declaration = parse_schedule(document, now=from_micros(now), key=schedule_id)
        return schedules.new_schedule(
            declaration, uid=uid, schedule_id=schedule_id, owner=OWNER, source=SOURCE, now=now
        )

    def _create(self, document: dict[str, Any]) -> Schedule | None:
        """Keep a new schedule; None when another process declared the name a moment before."""
        schedule = self._read(document)
        return schedule if drive(self._keep(schedule)) else None

    def _id_for(self, name: object, uid: str) -> str:
        """A named schedule has the id of its name, unless that went to one that an edit has given another name."""
        if not isinstance(name, str):
            return f"job_{uid}"
        schedule_id = id_of_name(OWNER.user, name)
        taken = drive(self._store.find(OWNER.tenant, schedule_id))
        return schedule_id if taken is None or taken.schedule.declaration.name == name else f"job_{uid}"

    async def _keep(self, schedule: Schedule) -> bool:
        return await schedules.create(self._store, schedule, lookahead=self._runtime.timing.lookahead)

    def _declare(self, document: dict[str, Any], stored: Kept, trigger: Trigger | None) -> Schedule | None:
        """Put a declaration in force; None when the schedule was deleted a moment before."""
        uid, lookahead = stored.schedule.uid, self._runtime.timing.lookahead

        def read(schedule: Schedule, now: Micros) -> Declaration:
            with in_python():
                return redeclared(document, schedule, trigger, now=now)

        try:
            return drive(schedules.declare(self._store, uid, read, lookahead=lookahead))
        except NotFound:
            return None

    def _new_engine(self, *, looks: bool) -> Engine:
        """Each has a runner of its own: one that stops must not take the threads of another with it."""
        runner = FunctionRunner(self._functions, self._max_threads)
        return Engine(replace(self._runtime, target=runner), looks=looks)


def _limit(limit: object) -> int | None:
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise InvalidSchedule(f"must be a whole number from 0 on, or None for all, not {limit!r}", field="limit")
    return limit


def _at_least_one(field: str, number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise InvalidSchedule(f"must be a whole number from 1 on, not {number!r}", field=field)
    return number


def _positive(field: str, number: object, *, unit: int = 1, low: float = 0.001) -> Micros:
    if not isinstance(number, int | float) or isinstance(number, bool) or not low <= number * unit <= MAX_SECONDS:
        raise InvalidSchedule(f"must be a number from {low:g} to {MAX_SECONDS / unit:g}, not {number!r}", field=field)
    return int(number * unit * SECOND)


def _stop_at_exit(scheduler: weakref.ref[Scheduler]) -> None:
    """A program that ends without `stop` hands back what it holds, so that nobody has to wait for its leases."""
    alive = scheduler()
    if alive is not None:
        alive.stop(wait=False)
