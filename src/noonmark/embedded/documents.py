"""Documents of schedules and targets, built from the arguments of a call. The core's parser checks them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypedDict

from noonmark.core.documents import present
from noonmark.core.errors import InvalidSchedule, InvalidTrigger, Problem
from noonmark.core.json_values import in_python, shown
from noonmark.core.policies.limits import Concurrency, Dependency
from noonmark.core.policies.options import RETRY_RULE, Policy, Retry, as_document, seconds_of
from noonmark.core.targets import TargetKind
from noonmark.core.triggers import Trigger
from noonmark.core.triggers.interval import UNITS
from noonmark.embedded.jobs import Job
from noonmark.embedded.references import check_name
from noonmark.operations.schedules import at_default
from noonmark.targets.function.registry import ROUTE

if TYPE_CHECKING:
    from datetime import timedelta

    from noonmark.core.policies.delivery import Delivery
    from noonmark.core.policies.options import (
        BudgetDocument,
        DeliveryName,
        ExecutorName,
        ExpectedRateDocument,
        Misfire,
        MisfireDocument,
        MisfireName,
        Overlap,
        OverlapDocument,
        OverlapName,
        PingUrlsDocument,
        RetryDocument,
        RunawayDocument,
        Window,
        WindowDocument,
    )
    from noonmark.core.schedule import Declaration

    Upstream = str | Job | Dependency | Mapping[str, Any]
    """A schedule that must have run first: its id, its name, a `Job`, a `Dependency`, or a mapping."""

ARGUMENTS = {
    "timeout_seconds": "timeout",
    "overlap_policy": "overlap",
    "misfire_policy": "misfire",
    "retry_policy": "retries",
    "target.args": "args",
    "target.kwargs": "kwargs",
    "target.function": "function_name",
    "target.payload": "payload",
    "target.executor": "executor",
    "target.argv": "argv",
    "target.env": "env",
    "target.cwd": "cwd",
    "target.stdin": "stdin",
    "target.limits": "limits",
    "target.url": "url",
    "target.method": "method",
    "target.headers": "headers",
    "target.secret_headers": "secret_headers",
    "target.body": "body",
    "target.expected_statuses": "expected_statuses",
    "target.retry_statuses": "retry_statuses",
    "target.completion_timeout_seconds": "completion_timeout_seconds",
    "trigger.jitter_seconds": "jitter",
    "trigger.due_at_utc": "trigger.at",
    "trigger.start_at_utc": "trigger.start_at",
    "trigger.end_at_utc": "trigger.end_at",
}
"""The arguments whose fields in a document have another name."""
FUNCTION_OPTIONS = ("args", "kwargs", "function_name", "executor")
"""Options of `schedule` that only a function has; a target document has its own fields."""
_CONCURRENCY = ("concurrency_key", "concurrency_limit")
_RETRIES_RULE = f"{RETRY_RULE}, a Retry or a mapping"


class FurtherOptions(TypedDict, total=False):
    """The further options of `schedule`; each has the name of its field in a document."""

    description: str | None
    pause_on_failure: int | None
    """Pause the schedule after this many failures in a row."""
    runaway: RunawayDocument | None
    """Pause the schedule when it starts too often, spends too much, or repeats itself."""
    window: Window | WindowDocument | None
    """How long after its due time an occurrence may begin and run."""
    concurrency: Concurrency | None
    """Schedules with the same key run at most `limit` at a time."""
    concurrency_key: str | None
    """The same as two options."""
    concurrency_limit: int | None
    expected_seconds: float | timedelta | None
    """How long a run usually takes; one that takes longer is reported, and goes on."""
    expected_rate: ExpectedRateDocument | None
    """How often it usually starts and succeeds; what deviates is reported."""
    ping_urls: PingUrlsDocument | None
    """URLs to call when an occurrence starts, succeeds and fails."""
    budget: BudgetDocument | None
    """What one run of an agent may use."""
    accepts_payload: bool | None
    """Whether callers of a server may send a payload when they ask for a run."""


class ScheduleOptions(FurtherOptions, total=False):
    """The options of any schedule, without its name, trigger, target and dependencies; `schedule` describes them."""

    max_runs: int | None
    overlap: Overlap | OverlapName | OverlapDocument | None
    misfire: Misfire | MisfireName | MisfireDocument | None
    retries: int | Retry | RetryDocument
    timeout: float | timedelta | None
    jitter: float | timedelta | None
    labels: Mapping[str, str] | None
    delivery: Delivery | DeliveryName | None


class CommonOptions(ScheduleOptions, total=False):
    """The options of any schedule, without its target and its dependencies."""

    name: str | None
    trigger: Trigger | None


class HttpOptions(CommonOptions, total=False):
    """The options of a schedule that sends a request."""

    depends_on: Sequence[Upstream] | None


class TargetOptions(HttpOptions, total=False):
    """The options of a schedule with a target document."""

    payload: Any


class FunctionOptions(CommonOptions, total=False):
    """The options of a schedule of a function, without its dependencies."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any] | None
    payload: Any
    function_name: str | None
    executor: ExecutorName | None


class Options(FunctionOptions, total=False):
    """The options of a schedule of a function."""

    depends_on: Sequence[Upstream] | None


OF_TRIGGERS = {
    **{unit: f"IntervalTrigger({unit}=..)" for unit in UNITS},
    **dict.fromkeys(("second", "minute", "hour", "day", "day_of_week", "month"), 'CronTrigger("0 9 * * *")'),
    **dict.fromkeys(("timezone", "dst"), 'CronTrigger("0 9 * * *", timezone="Europe/Stockholm")'),
    **dict.fromkeys(("start_at", "end_at"), "IntervalTrigger(300, start_at=.., end_at=..)"),
    **dict.fromkeys(("at", "run_at", "run_date"), "OnceTrigger(at)"),
}
"""What takes these instead of `schedule`, and those of other schedulers."""


def check_options(
    options: Mapping[str, Any], similar: Iterable[str] = (), known: frozenset[str] = Options.__optional_keys__
) -> None:
    """Refuse an unknown option as a call with a wrong keyword would; `similar` are more names for the hint."""
    unknown = [option for option in options if option not in known]
    if unknown and not similar and unknown[0] in OF_TRIGGERS:
        hint = f"it belongs to a trigger: trigger={OF_TRIGGERS[unknown[0]]}"
        raise TypeError(f"unknown option {unknown[0]!r} of a schedule; {hint}")
    if unknown:
        from difflib import get_close_matches  # noqa: PLC0415 - only for the hint

        names = sorted({*known, *similar})
        close = get_close_matches(unknown[0], names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"the options are {', '.join(names)}"
        raise TypeError(f"unknown option {unknown[0]!r} of a schedule; {hint}")


class _NamingArguments:
    def __enter__(self) -> None:
        """Nothing has failed yet."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Raise the error in other words."""
        if not isinstance(error, InvalidSchedule):
            return
        problems = [Problem(_argument(one.field), _message(one.field, one.message), one.code) for one in error.problems]
        message = _message(error.field, error.message)
        raise type(error)(message, field=_argument(error.field), problems=problems) from None


naming_arguments = _NamingArguments()
"""Within it, errors of the parser name the arguments of the call instead of the fields of the document."""


def _message(field: str, message: str) -> str:
    """The message of the parser in words of Python; `retries` may be more than the object of a document."""
    if field == "retry_policy":
        message = message.replace("must be an object", _RETRIES_RULE)
    return in_python(message)


def _argument(field: str) -> str:
    for name, argument in ARGUMENTS.items():
        if field.startswith(name):
            return argument + field.removeprefix(name)
    return field


def function_target(
    function: str, *, args: object = (), kwargs: object = None, payload: object = None, executor: object = None
) -> dict[str, Any]:
    """The target of a function and its arguments."""
    target = {"target_kind": "function", "function": function, "args": _args(args), "kwargs": _kwargs(kwargs)}
    return target | present(payload=payload, executor=executor)


def command_target(argv: object, env: object, cwd: object, *, stdin: object, limits: object) -> dict[str, Any]:
    """The target of a program and its arguments."""
    if not isinstance(argv, Sequence) or isinstance(argv, str | bytes):
        message = f"must be a list of a program and its arguments, not {type(argv).__name__}; no shell splits it"
        raise InvalidSchedule(message, field="argv")
    return present(
        target_kind="command",
        argv=[_as_json(argument) for argument in argv],
        env=_as_json(env),
        cwd=_as_json(cwd),
        stdin=stdin,
        limits=_as_json(limits),
    )


def http_target(url: object, **parts: object) -> dict[str, Any]:
    """The target of a request."""
    return present(target_kind="http", url=url, **{name: seconds_of(_as_json(part)) for name, part in parts.items()})


def copied_target(document: Mapping[str, Any]) -> dict[str, Any]:
    """A target document of the caller; the parser judges it."""
    return {name: _as_json(value) for name, value in document.items()}


def target_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options beside a target document; those that only a function has are refused."""
    for option in FUNCTION_OPTIONS:
        if options.get(option):
            raise InvalidSchedule("is for functions; a target document has fields of its own", field=option)
    return {
        option: value
        for option, value in options.items()
        if option not in FUNCTION_OPTIONS and not (option == "payload" and value is None)
    }


def target_schedule(target: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The schedule document for a target document."""
    kind = HttpOptions if target.get("target_kind") == TargetKind.HTTP else TargetOptions
    check_options(options, known=kind.__optional_keys__)
    if options.get("name") is not None:
        check_name("name", options["name"])
    others = {option: value for option, value in options.items() if option != "payload"}
    return schedule_document(target | present(payload=options.get("payload")), others)


def target_route(target: Mapping[str, Any]) -> str:
    """The route that a node must serve to deliver a valid target."""
    kind = str(target["target_kind"])
    return f"{ROUTE}{target['function']}" if kind == TargetKind.FUNCTION else kind


def _as_json(value: object) -> object:
    """A path, a mapping or a tuple as JSON has it."""
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def schedule_document(target: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The document for the arguments of `schedule`."""
    return _schedule_document(target, **_untyped(options))


_POLICIES = frozenset({"overlap", "misfire", "retries", "window", "expected_rate"})
"""Options whose documents may have lengths of time."""


def _untyped(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with each typed value as its document, and each length of time in seconds."""
    window = options.get("window")
    if window is not None and not isinstance(window, Policy | Mapping | type):
        raise InvalidSchedule(f"must be a Window, such as Window(60), or a mapping, not {window!r}", field="window")
    untyped = dict(options)
    for option, value in options.items():
        if value is None:
            continue
        document = untyped[option] = seconds_of(as_document(value, option=option))
        if option in _POLICIES and isinstance(document, Mapping):
            untyped[option] = {name: seconds_of(one) for name, one in document.items()}
    if "concurrency" not in options:
        return untyped
    concurrency = options["concurrency"]
    if not isinstance(concurrency, Concurrency | None):
        raise InvalidSchedule(f"must be a Concurrency, not {type(concurrency).__name__}", field="concurrency")
    if any(options.get(option) is not None for option in _CONCURRENCY):
        raise InvalidSchedule(f"give it, or {' and '.join(_CONCURRENCY)}, not both", field="concurrency")
    del untyped["concurrency"]
    return untyped | (dict.fromkeys(_CONCURRENCY) if concurrency is None else concurrency.to_document())


def _schedule_document(  # noqa: PLR0913 - each is an option of its own
    target: dict[str, Any],
    *,
    name: str | None = None,
    trigger: Trigger | None = None,
    max_runs: object = None,
    overlap: object = None,
    misfire: object = None,
    retries: object = 0,
    timeout: object = None,
    jitter: float | None = None,
    labels: object = None,
    depends_on: object = None,
    delivery: object = None,
    **others: object,
) -> dict[str, Any]:
    """The others have the same name in the document."""
    follows = trigger is None and bool(depends_on)
    if follows:
        _check_no_jitter(jitter)
    return present(
        target=target,
        trigger=None if follows else _trigger(trigger, jitter),
        depends_on=dependencies(depends_on),
        retry_policy=_retry_or_unjudged(retries),
        name=name,
        max_runs=max_runs,
        overlap_policy=overlap,
        misfire_policy=misfire,
        timeout_seconds=timeout,
        labels=labels,
        delivery=delivery,
        **others,
    )


def changed_document(declared: Declaration, function: str | None, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a schedule with some arguments of `schedule` changed; None restores the default.

    A policy that has the default of its kind of trigger gets the default of the new kind when the kind changes.
    """
    document, changes = declared.to_document(), _untyped(changes)
    trigger = _changed_trigger(document.get("trigger"), changes)
    if _kind(trigger) != _kind(document.get("trigger")):
        for field in at_default(declared):
            del document[field]
    target = document["target"] | present(function=function)
    target |= {option: read(changes[option]) for option, read in _TARGET_FIELDS.items() if option in changes}
    if "retries" in changes:
        # A number leaves the backoff as it is; a document replaces everything.
        before = {} if isinstance(changes["retries"], Mapping) else document["retry_policy"]
        document["retry_policy"] = before | retry_document(changes["retries"] or 0)
    if "depends_on" in changes:
        document["depends_on"] = dependencies(changes["depends_on"])
    document |= {field: changes[option] for option, field in _FIELDS.items() if option in changes}
    return present(**{**document, "trigger": trigger, "target": present(**target)})


def _changed_trigger(trigger: dict[str, Any] | None, changes: Mapping[str, Any]) -> dict[str, Any] | None:
    """The document of the trigger. Jitter is an option of its own: a new trigger keeps it or sets its own."""
    if "trigger" in changes:
        jitter = present(jitter_seconds=None if trigger is None else trigger.get("jitter_seconds"))
        trigger = None if changes["trigger"] is None else jitter | _trigger_document(changes["trigger"], None)
    if "jitter" not in changes:
        return trigger
    if trigger is None:
        _check_no_jitter(changes["jitter"])
        return None
    return present(**{**trigger, "jitter_seconds": changes["jitter"]})


def _check_no_jitter(jitter: object) -> None:
    if jitter is not None:
        raise InvalidSchedule("needs a trigger; what follows others begins when they have ended", field="jitter")


def _kind(trigger: Mapping[str, Any] | None) -> str:
    return "" if trigger is None else str(trigger["type"])


def _args(args: object) -> list[Any]:
    if not isinstance(args, Sequence) or isinstance(args, str | bytes):
        raise InvalidSchedule(f"must be a list or a tuple, not {type(args).__name__}", field="args")
    return list(args)


def _kwargs(kwargs: object) -> dict[Any, Any]:
    if not isinstance(kwargs, Mapping | None):
        raise InvalidSchedule(f"must be a mapping of names to values, not {type(kwargs).__name__}", field="kwargs")
    return dict(kwargs or {})


def retry_document(retries: object) -> dict[str, Any]:
    """The retry policy for a number of retries, or for a document."""
    if isinstance(retries, Mapping):
        return dict(retries)
    if type(retries) is int and retries == 0:
        return {"max_attempts": 1}  # as most schedules have it
    try:
        return Retry(retries).to_document()  # type: ignore[arg-type] # it judges what it is given
    except InvalidSchedule:
        raise InvalidSchedule(in_python(f"{_RETRIES_RULE}, not {shown(retries)}"), field="retries") from None


def _retry_or_unjudged(retries: object) -> object:
    """The policy; an invalid one as it is, so that the parser reports it with everything else that is wrong."""
    if type(retries) is int and retries == 0:
        return None  # the default of the parser too
    try:
        return retry_document(retries)
    except InvalidSchedule:
        if retries is None:  # which the parser would read as absent
            raise
        return retries


_TARGET_FIELDS: dict[str, Callable[[Any], Any]] = {
    "args": lambda args: [] if args is None else _args(args),
    "kwargs": _kwargs,
    "payload": lambda payload: payload,
    "executor": lambda executor: executor,
}
_FIELDS = {
    "name": "name",
    "labels": "labels",
    "max_runs": "max_runs",
    "delivery": "delivery",
    "overlap": "overlap_policy",
    "misfire": "misfire_policy",
    "timeout": "timeout_seconds",
    **{option: option for option in FurtherOptions.__optional_keys__},
}


def dependencies(depends_on: object, id_of: Callable[[str | Job], str] | None = None) -> list[Any] | None:
    """The schedules to wait for, as documents; `id_of` finds the ids of those that are given by their names."""
    if depends_on is None:
        return None
    if isinstance(depends_on, str | Job | Dependency | Mapping):
        depends_on = [depends_on]
    if not isinstance(depends_on, Sequence) or isinstance(depends_on, bytes):
        raise InvalidSchedule(f"must be a list or a tuple, not {type(depends_on).__name__}", field="depends_on")
    return [_dependency(one, id_of) for one in depends_on]


def _dependency(upstream: object, id_of: Callable[[str | Job], str] | None) -> Any:
    document = (
        {"schedule_id": upstream} if isinstance(upstream, str | Job) else as_document(upstream, option="depends_on")
    )
    if not isinstance(document, Mapping) or not isinstance(document.get("schedule_id"), str | Job):
        return document
    job: str | Job = document["schedule_id"]
    schedule_id = id_of(job) if id_of is not None else job.id if isinstance(job, Job) else job
    return {**document, "schedule_id": schedule_id}


def _trigger(trigger: object, jitter: float | None) -> Trigger | dict[str, Any]:
    """A trigger as the parser reads it: without more to say, as it is."""
    return trigger if jitter is None and isinstance(trigger, Trigger) else _trigger_document(trigger, jitter)


def _trigger_document(trigger: object, jitter: float | None) -> dict[str, Any]:
    if trigger is None:
        return present(type="once", delay_seconds=0, jitter_seconds=jitter)
    if not isinstance(trigger, Trigger):
        given = type(trigger).__name__
        if isinstance(trigger, str):
            given = f"text; write CronTrigger({trigger!r})"
        elif isinstance(trigger, type):
            given = f"the class {trigger.__name__}; call it: {trigger.__name__}(..)"
        elif isinstance(trigger, int | float):  # a timedelta has become its seconds
            given = f"a length of time; write IntervalTrigger({trigger!r})"
        elif isinstance(trigger, datetime):
            given = "an instant; write OnceTrigger(..)"
        message = f"must be a trigger such as CronTrigger or IntervalTrigger, not {given}"
        raise InvalidTrigger(message, field="trigger")
    return trigger.to_document() | present(jitter_seconds=jitter)
