"""The desk: where a program declares its schedules, and changes them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import Conflict, InvalidSchedule, NotFound
from noonmark.core.event import parse_event
from noonmark.core.instants import from_micros
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.schedule import TRUSTED, Owner, declare_again, parse_schedule
from noonmark.core.signatures import MAIN_TENANT
from noonmark.core.targets import Executor, FunctionTarget
from noonmark.embedded.declaring import (
    Options,
    changed,
    check_options,
    document_of,
    function_target,
    id_of_name,
    in_python,
    redeclared,
    upstreams,
)
from noonmark.embedded.references import check_arguments, check_callable, check_name, check_process, refer, twin_of
from noonmark.embedded.written import document_of_work, options_of, target_of
from noonmark.operations import events, schedule_edits
from noonmark.wiring import fresh_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Declaration, Schedule
    from noonmark.core.triggers import Trigger
    from noonmark.ports.clock import Clock
    from noonmark.ports.records import StoredSchedule
    from noonmark.ports.store import Store
    from noonmark.targets.functions import Functions

logger = logging.getLogger("noonmark.jobs")
OPTIONS = Options.__optional_keys__ | {"func"}
CHUNK = 1_000
OWNER = Owner(tenant=MAIN_TENANT, user="local")


class Desk:
    """Turns calls in Python into schedules of a store; the functions they name are offered from then on."""

    def __init__(self, store: Store, functions: Functions, clock: Clock, lookahead: Micros) -> None:
        """The store must be open when the desk is used."""
        self._store, self._functions, self._clock, self._lookahead = store, functions, clock, lookahead

    def find(self, job_id: str, *, deleted: bool = False) -> StoredSchedule:
        """The schedule of that id, perhaps a deleted one; NotFound when there is none."""
        if callable(job_id):
            raise InvalidSchedule("must be the id of a job, not a function; a decorated one has job_id", field="job_id")
        check_name("job_id", job_id)
        kept = self._store.find(OWNER.tenant, job_id, deleted=True)
        if kept is None:
            raise NotFound(f"there is no job {job_id!r}", field="job_id")
        if kept.schedule.phase is SchedulePhase.DELETED and not deleted:
            raise NotFound(f"the job {job_id!r} was cancelled or deleted", field="job_id")
        return kept

    def declare(self, func: Callable[..., Any], options: Mapping[str, Any]) -> str:
        """Keep a schedule, or with a name that is known put another declaration in force; its id."""
        check_options(options)
        document = self._document(func, **options)
        job_id = self._put(document, options.get("trigger"))
        self._functions.register(document["target"]["function"], func)
        return job_id

    def declare_work(self, target: dict[str, Any], options: Mapping[str, Any]) -> str:
        """The same for work that is no function."""
        return self._put(document_of_work(target, options), options.get("trigger"))

    def _put(self, document: dict[str, Any], trigger: Trigger | None) -> str:
        name = document.get("name")
        while True:
            stored = None if name is None else self._store.find_named(OWNER.tenant, OWNER.user, name)
            with in_python():
                schedule = self._create(document) if stored is None else self._declare(document, stored, trigger)
            if schedule is not None:
                return schedule.schedule_id

    def new(self, func: Callable[..., Any], **options: Any) -> Schedule:  # noqa: ANN401 - judged by the parser
        """A schedule that is not kept yet."""
        document = self._document(func, **options)
        schedule = self._read(document)
        self._functions.register(document["target"]["function"], func)
        return schedule

    def keep(self, made: Iterable[Schedule]) -> None:
        """Keep new schedules, none of which has a name, in one transaction."""
        schedule_edits.create_many(self._store, list(made), lookahead=self._lookahead)

    def create_many(self, declarations: Iterable[Mapping[str, Any]]) -> Iterator[list[Schedule]]:
        """Keep many schedules, a thousand to a transaction; gives each thousand when it is kept."""
        declared = enumerate(declarations)
        while chunk := [self._new(number, one) for number, one in islice(declared, CHUNK)]:
            self.keep(chunk)
            yield chunk

    def update(self, job_id: str, func: Callable[..., Any] | None, changes: Mapping[str, Any]) -> None:
        """Put in force what is left of a declaration after some of it was said anew."""
        check_options(changes)
        schedule, name = self.find(job_id).schedule, changes.get("function_name")
        if func is not None or any(one in changes for one in ("function_name", "args", "kwargs", "executor")):
            self._check_call(schedule, func, changes)
        if changes.get("name") is not None:
            self._check_free(schedule, changes["name"])
        function = name if func is None else self._function(func, name)
        said = {option: value for option, value in changes.items() if option != "function_name"}
        source = None if func is None else TRUSTED
        self._edit(job_id, lambda declared: changed(declared, function, said), source)
        if func is not None and function is not None:
            self._functions.register(function, func)

    def depend(self, job_id: str, depends_on: Iterable[str | Mapping[str, Any]]) -> None:
        """Let a schedule wait for others too; what is said of one again takes the place of what was said before."""
        more = upstreams(depends_on) or []
        again = {one.get("schedule_id") for one in more if isinstance(one, Mapping)}

        def document(declared: Declaration) -> dict[str, Any]:
            known = [one.to_document() for one in declared.depends_on if one.schedule_id not in again]
            return changed(declared, None, {"depends_on": [*known, *more]})

        self._edit(job_id, document)

    def emit(self, document: dict[str, Any]) -> str:
        """Keep an event; its id."""
        event = parse_event(document, now=from_micros(self._store.clock()))
        return events.emit(self._store, OWNER.tenant, event, fresh_id=fresh_id(self._clock))

    def warn_of_twin(self, func: Callable[..., Any], name: str) -> None:
        """Say that a function of a script has two jobs: the script was run, and it was imported."""
        other = twin_of(func) if self._store.traits.is_durable else None
        if other is not None and self._store.find_named(OWNER.tenant, OWNER.user, other) is not None:
            logger.warning(
                "%s and %s are two jobs of one function, in a file that was run as a script and also imported: both"
                " run. Give the function a name of its own with name=..., and cancel the other job",
                name,
                other,
            )

    def _check_call(self, schedule: Schedule, func: Callable[..., Any] | None, changes: Mapping[str, Any]) -> None:
        """Refuse arguments that do not fit, where the function is known here."""
        target = schedule.declaration.target
        if not isinstance(target, FunctionTarget):
            return
        name = changes.get("function_name")
        if name is not None:
            check_name("function_name", name)
        known = self._functions.find(name or target.function)
        call = func if func is not None or known is None else known.call
        if call is not None:
            check_callable(call)
            args, kwargs = changes.get("args", target.args), changes.get("kwargs", target.kwargs)
            check_arguments(call, () if args is None else args, kwargs)
            if changes.get("executor", target.executor) == Executor.PROCESS:
                check_process(call, name)

    def _check_free(self, schedule: Schedule, name: object) -> None:
        """Refuse a name that another job has: whoever declares it next would mean one of them only."""
        check_name("name", name)
        stored = self._store.find_named(OWNER.tenant, OWNER.user, str(name))
        if stored is not None and stored.schedule.uid != schedule.uid:
            raise Conflict(f"{name!r} is the name of another job, {stored.schedule.schedule_id}", field="name")

    def _edit(self, job_id: str, write: Callable[[Declaration], dict[str, Any]], source: str | None = None) -> None:
        """Put another document in force, written from the declaration as it then stands."""

        def read(schedule: Schedule, now: Micros) -> Declaration:
            with in_python():
                return declare_again(write(schedule.declaration), schedule, now=from_micros(now))

        uid = self.find(job_id).schedule.uid
        schedule_edits.declare(self._store, uid, read, lookahead=self._lookahead, source=source)

    def _document(self, func: Callable[..., Any], **options: Any) -> dict[str, Any]:  # noqa: ANN401 - judged by the parser
        """The document that a call of `schedule` stands for."""
        name, function_name = options.get("name"), options.pop("function_name", None)
        if name is not None:
            check_name("name", name)
        check_callable(func)
        check_arguments(func, options.get("args", ()), options.get("kwargs"))
        if options.get("executor") == Executor.PROCESS:
            check_process(func, function_name)
        of_target = {one: options.pop(one) for one in ("args", "kwargs", "payload", "executor") if one in options}
        return document_of(function_target(self._function(func, function_name), **of_target), **options)

    def _function(self, func: Callable[..., Any], function_name: str | None) -> str:
        return refer(self._functions, func, function_name, is_durable=self._store.traits.is_durable)

    def _new(self, number: int, declared: object) -> Schedule:
        """One of many; an error says which."""
        where = f"declarations[{number}]"
        if not isinstance(declared, Mapping) or "func" not in declared:
            raise InvalidSchedule("must be a mapping of the arguments of schedule(), func among them", field=where)
        if unknown := [str(one) for one in declared if one not in OPTIONS]:
            raise InvalidSchedule("is no argument of schedule()", field=f"{where}.{unknown[0]}")
        if declared.get("name") is not None:
            raise InvalidSchedule("what has a name is declared by itself, with schedule()", field=f"{where}.name")
        func, options = declared["func"], {option: value for option, value in declared.items() if option != "func"}
        try:
            if isinstance(func, Mapping):
                return self._read(document_of_work(target_of(func), options_of(options)))
            return self.new(func, **options)
        except InvalidSchedule as error:
            raise type(error)(error.message, field=f"{where}.{error.field}", problems=error.problems) from None

    def _read(self, document: dict[str, Any]) -> Schedule:
        """The new schedule that a document declares."""
        now, uid = self._store.clock(), fresh_id(self._clock)
        schedule_id = self._id_for(document.get("name"), uid)
        with in_python():
            declaration = parse_schedule(document, now=from_micros(now), key=schedule_id)
        return schedule_edits.new_schedule(
            declaration, uid=uid, schedule_id=schedule_id, owner=OWNER, source=TRUSTED, now=now
        )

    def _create(self, document: dict[str, Any]) -> Schedule | None:
        """Keep a new schedule; None when another process declared the name a moment before."""
        schedule = self._read(document)
        return schedule if schedule_edits.create(self._store, schedule, lookahead=self._lookahead) else None

    def _id_for(self, name: object, uid: str) -> str:
        """A named schedule has the id of its name, unless that went to one that an edit has given another name."""
        if not isinstance(name, str):
            return f"job_{uid}"
        schedule_id = id_of_name(OWNER.user, name)
        taken = self._store.find(OWNER.tenant, schedule_id)
        while taken is not None and taken.schedule.declaration.name != name:
            # Computed all the same, so that two who declare the name at once still mean one job.
            schedule_id = id_of_name(OWNER.user, f"{name}\0{schedule_id}")
            taken = self._store.find(OWNER.tenant, schedule_id)
        return schedule_id

    def _declare(self, document: dict[str, Any], stored: StoredSchedule, trigger: Trigger | None) -> Schedule | None:
        """Put a declaration in force; None when the schedule was deleted a moment before."""

        def read(schedule: Schedule, now: Micros) -> Declaration:
            with in_python():
                return redeclared(document, schedule, trigger, now=now)

        try:
            # Somebody else may have taken the name first; what the program declares is its own all the same.
            return schedule_edits.declare(
                self._store, stored.schedule.uid, read, lookahead=self._lookahead, source=TRUSTED
            )
        except NotFound:
            return None
