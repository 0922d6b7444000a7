"""Declarations: calls in Python that create or change schedules in a store."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar, cast

from noonmark.core.errors import Conflict, InvalidSchedule, InvalidTrigger, NotFound, TriggerNeverFires
from noonmark.core.ids import job_id, new_uid
from noonmark.core.instants import from_micros
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.pipeline_ownership import pipeline_schedule_id
from noonmark.core.policies.window import last_window_warning
from noonmark.core.schedule import TRUSTED, Owner, declare_again, parse_schedule
from noonmark.core.signatures import MAIN_TENANT
from noonmark.core.targets import Executor, FunctionTarget
from noonmark.core.triggers import CronTrigger, IntervalTrigger, Trigger
from noonmark.core.triggers.interval import UNITS
from noonmark.embedded.documents import (
    Options,
    changed_document,
    check_options,
    copied_target,
    dependencies,
    function_target,
    naming_arguments,
    schedule_document,
    target_options,
    target_schedule,
)
from noonmark.embedded.jobs import Job
from noonmark.embedded.references import (
    check_arguments,
    check_callable,
    check_name,
    check_process,
    refer,
    same_name_elsewhere,
)
from noonmark.operations import schedule_edits
from noonmark.operations.target_policy import unknown_model, with_bundle_needs
from noonmark.wiring import fresh_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from zoneinfo import ZoneInfo

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Declaration, Schedule
    from noonmark.core.targets.session import Provider
    from noonmark.core.triggers.zones import Zone
    from noonmark.embedded.documents import Upstream
    from noonmark.ports.clock import Clock
    from noonmark.ports.records import StoredSchedule
    from noonmark.ports.store import Store
    from noonmark.targets.function.registry import FunctionRegistry


P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

_TIME = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?", re.ASCII)


class JobFunction(Protocol[P, R_co]):
    """A decorated function: it is called as before, and has the id of its schedule."""

    job_id: str
    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function."""


class Decorator(Protocol):
    """Declares the function below it, under the name of that function unless another is given.

    So a program that is started again finds its schedules again. A schedule whose decorator was removed, or whose
    function was renamed, stays in a durable store until it is cancelled. The other options are those of `schedule`. The
    function stays what it is, and has the id of its schedule as `job_id`. Several decorators on one function need
    different names, and `job_id` is that of the topmost.
    """

    def __call__(self, func: Callable[P, R_co], /) -> JobFunction[P, R_co]:
        """Declare it."""


def interval_of(interval: object, lengths: Mapping[str, object]) -> IntervalTrigger:
    """The trigger of `every`: an interval, or else the sum of lengths of time by their unit."""
    if interval is not None:
        if any(lengths.values()):
            raise InvalidTrigger(ONE_INTERVAL, field="interval")
        lengths = {"seconds": interval}
    total: float = 0
    for unit, given in lengths.items():
        length = given.total_seconds() if unit == "seconds" and isinstance(given, timedelta) else given
        if callable(length):
            raise InvalidTrigger(NO_INTERVAL, field="interval")
        if not isinstance(length, int | float) or isinstance(length, bool):
            field = unit if interval is None else "interval"
            raise InvalidTrigger(f"must be a number, not {type(length).__name__}", field=field)
        total += length * UNITS[unit]
    if total == 0:
        raise InvalidTrigger(NO_INTERVAL, field="interval")
    return IntervalTrigger(total)


def daily_at(at: str, timezone: str | ZoneInfo = "UTC") -> CronTrigger:
    """The trigger of `daily`: a time of day by the local clock."""
    match = _TIME.fullmatch(str(at))
    if match is None:
        raise InvalidTrigger(f"must be a time of day such as 09:00 or 09:00:30, not {at!r}", field="at")
    hour, minute, second = (int(part or 0) for part in match.groups())
    return CronTrigger(f"{minute} {hour} * * *" if second == 0 else f"{second} {minute} {hour} * * *", timezone)


logger = logging.getLogger("noonmark.jobs")
NO_INTERVAL = "give a length of time, as in @scheduler.every(minutes=5)"
ONE_INTERVAL = "give an interval in seconds, or seconds, minutes, hours and days, which are added up, but not both"
ARGUMENTS = Options.__optional_keys__ | {"func"}
BATCH = 1_000
OWNER = Owner(tenant=MAIN_TENANT, user="local")


class ExpectedId(str):
    """The id that a schedule gets when it is stored; before that, a decorated function has it.

    A renamed schedule may have the id that a name stands for. Then the new one gets another id, and this id stands for
    the name.
    """

    __slots__ = ("name",)

    def __new__(cls, schedule_id: str, name: str | None) -> Self:
        """The id that the schedule with a name gets, as far as that is known without the store."""
        expected = super().__new__(cls, schedule_id)
        expected.name = name
        return expected

    name: str | None


class Declarations:
    """Turns calls in Python into schedules of a store; the functions that they name can be run from then on."""

    def __init__(
        self,
        store: Store,
        functions: FunctionRegistry,
        clock: Clock,
        lookahead: Micros,
        zone: Zone | None = None,
        model_problem: Callable[[str, Provider | None], str | None] = lambda _model, _provider: None,
    ) -> None:
        """The store must be open when this is used. Naive datetimes of triggers are local times of the zone, if any.

        `model_problem` says what is wrong with the name of a model.
        """
        self._store, self._functions, self._clock, self._lookahead = store, functions, clock, lookahead
        self._zone, self._model_problem = zone, model_problem

    def find(self, job: str | Job, *, deleted: bool = False) -> StoredSchedule:
        """The schedule that a caller means, also a deleted one if that is asked for; NotFound when there is none."""
        stored = self.look_up(job)
        if stored is None:
            raise NotFound(f"unknown schedule {job!r}", field="job_id")
        if stored.schedule.phase is SchedulePhase.DELETED and not deleted:
            raise NotFound(f"the schedule {stored.schedule.schedule_id!r} was cancelled or deleted", field="job_id")
        return stored

    def look_up(self, job: str | Job) -> StoredSchedule | None:
        """The schedule with that id, or else the only one with that name, or else the one deleted last with that id."""
        reference = _reference_to(job)
        if isinstance(reference, ExpectedId) and reference.name is not None:
            named = self._store.find_named(OWNER.tenant, OWNER.user, reference.name)
            if named is not None:
                return named
        stored = self._store.find(OWNER.tenant, reference, deleted=True)
        if stored is not None and (isinstance(job, Job) or stored.schedule.phase is not SchedulePhase.DELETED):
            return stored
        return schedule_edits.find_by_name(self._store, OWNER.tenant, reference, field="job_id") or stored

    def upstreams(self, depends_on: object) -> list[Any] | None:
        """The schedules to wait for, as documents with their ids; an unknown one is left to the parser, as it is."""
        return dependencies(depends_on, self._id_of)

    def _id_of(self, job: str | Job) -> str:
        stored = self.look_up(job)
        return _reference_to(job) if stored is None else stored.schedule.schedule_id

    def expect(self, func: Callable[..., Any], options: Mapping[str, Any]) -> ExpectedId:
        """Judge a declaration that is to be stored later, as far as that needs no store; returns the id that it gets.

        Whether its times have passed is judged then: if it is stored already, they may have.
        """
        check_options(options)
        # Which schedules it depends on is looked up then; an id of the right form stands for each.
        upstreams = dependencies(options.get("depends_on"), lambda job: id_of_name(OWNER.user, _reference_to(job)))
        document = self._document(func, {**options, "depends_on": upstreams})
        with naming_arguments, suppress(TriggerNeverFires):
            parse_schedule(document, now=from_micros(self._clock.micros()))
        name = options.get("name")
        schedule_id = job_id(fresh_id(self._clock)) if name is None else id_of_name(OWNER.user, name)
        return ExpectedId(schedule_id, name)

    def declare(self, func: Callable[..., Any], options: Mapping[str, Any], expected: ExpectedId | None = None) -> str:
        """Create a schedule of a function, or change the one with that name; returns its id.

        One without a name gets the id that was expected, if any.
        """
        check_options(options)
        options = self._resolved(options)
        document = self._document(func, options)
        schedule_id = self._put(document, options.get("trigger"), expected)
        self._functions.register(document["target"]["function"], func)
        return schedule_id

    def declare_target(self, target: dict[str, Any], options: Mapping[str, Any]) -> str:
        """The same for a target document."""
        options = self._resolved(options)
        return self._put(target_schedule(target, options), options.get("trigger"))

    def new(self, func: Callable[..., Any], options: Mapping[str, Any], *, pipeline_of: str | None = None) -> Schedule:
        """A schedule of a function, not stored yet; perhaps one of a pipeline that a node runs."""
        document, expected = self._document(func, self._resolved(options)), None
        if pipeline_of is not None:
            expected = ExpectedId(pipeline_schedule_id(pipeline_of, fresh_id(self._clock)), None)
        schedule = self._new_schedule(document, expected)
        self._functions.register(document["target"]["function"], func)
        return schedule

    def create(self, new: Iterable[Schedule]) -> None:
        """Store new schedules, none of which has a name, in one transaction."""
        schedule_edits.create_many(self._store, list(new), lookahead=self._lookahead)

    def create_many(self, declarations: Iterable[Mapping[str, Any]]) -> Iterator[list[Schedule]]:
        """Create many schedules, a thousand to a transaction; yields each batch when it is stored."""
        numbered = enumerate(declarations)
        while batch := [self._new_of_many(number, arguments) for number, arguments in islice(numbered, BATCH)]:
            self.create(batch)
            yield batch

    def update(self, schedule_id: str | Job, func: Callable[..., Any] | None, changes: Mapping[str, Any]) -> None:
        """Change some options of a schedule, and leave the others."""
        check_options(changes)
        changes = self._resolved(changes)
        schedule, name = self.find(schedule_id).schedule, changes.get("function_name")
        if func is not None or any(option in changes for option in ("function_name", "args", "kwargs", "executor")):
            self._check_call(schedule, func, changes)
        if changes.get("name") is not None:
            self._check_name_is_free(schedule, changes["name"])
        function = name if func is None else self._reference(func, name)
        others = {option: value for option, value in changes.items() if option != "function_name"}
        source = None if func is None else TRUSTED
        self._edit(schedule_id, lambda declared: changed_document(declared, function, others), source)
        if func is not None and function is not None:
            self._functions.register(function, func)

    def add_dependencies(self, schedule_id: str | Job, depends_on: Iterable[Upstream]) -> None:
        """Add dependencies to a schedule; an existing one of the same schedule is replaced."""
        added = self.upstreams(depends_on) or []
        replaced = {one.get("schedule_id") for one in added if isinstance(one, Mapping)}

        def document(declared: Declaration) -> dict[str, Any]:
            others = [one.to_document() for one in declared.depends_on if one.schedule_id not in replaced]
            return changed_document(declared, None, {"depends_on": [*others, *added]})

        self._edit(schedule_id, document)

    def warn_of_same_name(self, func: Callable[..., Any], name: str) -> None:
        """Warn when a function of a script has two schedules, because the script was both run and imported."""
        other = same_name_elsewhere(func) if self._store.traits.is_durable else None
        if other is not None and self._store.find_named(OWNER.tenant, OWNER.user, other) is not None:
            logger.warning(
                "%s and %s are two schedules of one function, whose file was run as a script and also imported: both"
                " run. Give the function a name of its own with name=..., and cancel the other schedule",
                name,
                other,
            )

    def _put(self, document: dict[str, Any], trigger: Trigger | None, expected: ExpectedId | None = None) -> str:
        name = document.get("name")
        while True:
            stored = None if name is None else self._store.find_named(OWNER.tenant, OWNER.user, name)
            with naming_arguments:
                schedule = (
                    self._create(document, expected)
                    if stored is None
                    else self._declare_again(document, stored, trigger)
                )
            if schedule is not None:
                return schedule.schedule_id

    def _check_call(self, schedule: Schedule, func: Callable[..., Any] | None, changes: Mapping[str, Any]) -> None:
        """Refuse arguments that do not fit the function, where this process knows it."""
        target = schedule.declaration.target
        if not isinstance(target, FunctionTarget):
            return
        name = changes.get("function_name")
        if name is not None:
            check_name("function_name", name)
        function = self._functions.find(name or target.function)
        call = func if func is not None or function is None else function.call
        if call is not None:
            check_callable(call)
            args, kwargs = changes.get("args", target.args), changes.get("kwargs", target.kwargs)
            check_arguments(call, () if args is None else args, kwargs)
            if changes.get("executor", target.executor) == Executor.PROCESS:
                check_process(call, name)

    def _check_name_is_free(self, schedule: Schedule, name: object) -> None:
        """Refuse the name of another schedule: a declaration by that name would be ambiguous."""
        check_name("name", name)
        stored = self._store.find_named(OWNER.tenant, OWNER.user, str(name))
        if stored is not None and stored.schedule.uid != schedule.uid:
            raise Conflict(f"{name!r} is the name of another schedule, {stored.schedule.schedule_id}", field="name")

    def _edit(
        self, schedule_id: str | Job, write: Callable[[Declaration], dict[str, Any]], source: str | None = None
    ) -> None:
        """Replace the document of a schedule by one that is written from its current declaration."""

        def read(schedule: Schedule, now: Micros) -> Declaration:
            with naming_arguments:
                return declare_again(write(schedule.declaration), schedule, now=from_micros(now))

        uid = self.find(schedule_id).schedule.uid
        schedule_edits.declare(self._store, uid, read, lookahead=self._lookahead, source=source)

    def _resolved(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Options with the id of each schedule that they depend on, and with a trigger that has a zone."""
        if options.get("depends_on") is not None:
            options = {**options, "depends_on": self.upstreams(options["depends_on"])}
        trigger = options.get("trigger")
        if isinstance(trigger, Trigger) and (zoned := self.zoned(trigger)) is not trigger:
            options = {**options, "trigger": zoned}
        return options

    def zoned(self, trigger: Trigger) -> Trigger:
        """A trigger whose naive datetimes are local times of the zone; without one, they are refused."""
        return trigger.in_zone(self._zone)

    def _document(self, func: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """The document for a call of `schedule`."""
        options = dict(given)
        name, function_name = options.get("name"), options.pop("function_name", None)
        if name is not None:
            check_name("name", name)
        check_callable(func)
        check_arguments(func, options.get("args", ()), options.get("kwargs"))
        if options.get("executor") == Executor.PROCESS:
            check_process(func, function_name)
        of_target = {name: options.pop(name) for name in ("args", "kwargs", "payload", "executor") if name in options}
        return schedule_document(function_target(self._reference(func, function_name), **of_target), options)

    def _reference(self, func: Callable[..., Any], function_name: str | None) -> str:
        return refer(self._functions, func, function_name, is_durable=self._store.traits.is_durable)

    def _new_of_many(self, number: int, arguments: object) -> Schedule:
        """One of many; an error says which."""
        place = f"declarations[{number}]"
        if not isinstance(arguments, Mapping) or "func" not in arguments:
            raise InvalidSchedule("must be a mapping of the arguments of schedule(), with func", field=place)
        if unknown := [str(name) for name in arguments if name not in ARGUMENTS]:
            raise InvalidSchedule("unknown argument of schedule()", field=f"{place}.{unknown[0]}")
        if arguments.get("name") is not None:
            raise InvalidSchedule(
                "a schedule with a name is declared by itself, with schedule()", field=f"{place}.name"
            )
        func, options = arguments["func"], {name: value for name, value in arguments.items() if name != "func"}
        try:
            if isinstance(func, Mapping):
                return self._new_schedule(target_schedule(copied_target(func), target_options(self._resolved(options))))
            return self.new(func, options)
        except InvalidSchedule as error:
            raise type(error)(error.message, field=f"{place}.{error.field}", problems=error.problems) from None

    def _new_schedule(self, document: dict[str, Any], expected: ExpectedId | None = None) -> Schedule:
        """The new schedule that a document declares."""
        document = with_bundle_needs(self._store, OWNER.tenant, document)
        now, uid = self._store.clock(), new_uid(fresh_id(self._clock), is_timed=self._store.wants_timed_uids())
        schedule_id = self._id_for(document.get("name"), job_id(uid) if expected is None else str(expected))
        with naming_arguments:
            declaration = parse_schedule(document, now=from_micros(now), key=schedule_id)
        return schedule_edits.new_schedule(
            declaration, uid=uid, schedule_id=schedule_id, owner=OWNER, source=TRUSTED, now=now
        )

    def _create(self, document: dict[str, Any], expected: ExpectedId | None) -> Schedule | None:
        """Store a new schedule; None when another process has just declared the name."""
        schedule = self._new_schedule(document, expected)
        if schedule_edits.create(self._store, schedule, lookahead=self._lookahead) is None:
            return None
        declared = schedule.declaration
        window = last_window_warning(declared.window, declared.trigger, now=schedule.created - 1)
        for warning in (window, unknown_model(self._model_problem, declared.target)):
            if warning is not None:
                logger.warning("schedule %s: %s", declared.name or schedule.schedule_id, warning)
        return schedule

    def _id_for(self, name: object, otherwise: str) -> str:
        """A named schedule has the id of its name, unless a schedule that was renamed has that id."""
        if not isinstance(name, str):
            return otherwise
        schedule_id = id_of_name(OWNER.user, name)
        existing = self._store.find(OWNER.tenant, schedule_id)
        while existing is not None and existing.schedule.declaration.name != name:
            # Computed as well, so that two processes that declare the name at once agree on the id.
            schedule_id = id_of_name(OWNER.user, f"{name}\0{schedule_id}")
            existing = self._store.find(OWNER.tenant, schedule_id)
        return schedule_id

    def _declare_again(
        self, document: dict[str, Any], stored: StoredSchedule, trigger: Trigger | None
    ) -> Schedule | None:
        """Change a declared schedule; None when it has just been deleted."""
        document = with_bundle_needs(self._store, OWNER.tenant, document)

        def read(schedule: Schedule, now: Micros) -> Declaration:
            with naming_arguments:
                if trigger is None and schedule.phase is SchedulePhase.COMPLETED:
                    # Without a trigger it runs once, at once; declared again after it completed, it runs again.
                    return parse_schedule(document, now=from_micros(now), key=schedule.schedule_id)
                # Each process that starts declares "starting now" with a now of its own.
                keeps_start = isinstance(trigger, IntervalTrigger) and trigger.start is not None
                return declare_again(document, schedule, now=from_micros(now), keeps_past_start=keeps_start)

        try:
            # Another source may have created it first; what the program declares is its own from now on.
            return schedule_edits.declare(
                self._store, stored.schedule.uid, read, lookahead=self._lookahead, source=TRUSTED
            )
        except NotFound:
            return None


def _reference_to(job: object) -> str:
    """What a caller means a schedule by: its id or its name."""
    if isinstance(job, Job):
        return job.id
    if callable(job):
        message = (
            "must be a schedule, by its id, its name or as a Job, not a function; a decorated function has a job_id"
        )
        raise InvalidSchedule(message, field="job_id")
    check_name("job_id", job)
    return cast("str", job)


def id_of_name(user: str, name: str) -> str:
    """The id of the schedule with a name: the same in each process that declares it."""
    parts = f"{user}\0{name}".encode(errors="surrogatepass")
    return f"job_{blake2b(parts, digest_size=13, person=b'noonmark-name').hexdigest()}"
