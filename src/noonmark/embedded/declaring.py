"""Declaring: the schedule document that a call in Python stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypedDict

from noonmark.core.documents import present
from noonmark.core.errors import InvalidSchedule, InvalidTrigger, Problem
from noonmark.core.instants import from_micros
from noonmark.core.json_values import shown
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.schedule import declare_again, parse_schedule
from noonmark.core.triggers import Trigger
from noonmark.operations.schedules import at_default

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Declaration, Schedule


SPOKEN = {
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
}
"""The fields of a document that a caller in Python knows by another name."""
MAX_RETRIES = 99
_A_RETRY = f"must be a whole number from 0 to {MAX_RETRIES}, or a mapping"


class Further(TypedDict, total=False):
    """What is seldom said about a job, and is called as in a document."""

    description: str | None
    pause_on_failure: int | None
    """Pause it after so many failures in a row."""
    window: Mapping[str, Any] | None
    """How long after its due time it may begin and run."""
    concurrency_key: str | None
    """Jobs with the same one run at most `concurrency_limit` at a time."""
    concurrency_limit: int | None
    accepts_payload: bool | None
    """Whether callers of a server may send a payload along when they ask for a run."""


class Common(Further, total=False):
    """What may be said about any job beside its work and what it depends on; `schedule` says what each is."""

    name: str | None
    trigger: Trigger | None
    max_runs: int | None
    overlap: str | Mapping[str, Any] | None
    misfire: str | Mapping[str, Any] | None
    retries: int | Mapping[str, Any]
    timeout: float | None
    jitter: float | None
    labels: Mapping[str, str] | None
    delivery: str | None


class HttpOptions(Common, total=False):
    """What may be said about a job that sends a request, beside the request."""

    depends_on: Sequence[str | Mapping[str, Any]] | None


class WorkOptions(HttpOptions, total=False):
    """What may be said about a job that calls no function, beside its work."""

    payload: Any


class Terms(Common, total=False):
    """What may be said about a job beside its function and what it depends on."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any] | None
    payload: Any
    function_name: str | None
    executor: str | None


class Options(Terms, total=False):
    """What may be said about a job beside its function."""

    depends_on: Sequence[str | Mapping[str, Any]] | None


def check_options(
    options: Mapping[str, Any], alike: Iterable[str] = (), known: frozenset[str] = Options.__optional_keys__
) -> None:
    """Refuse what is no option, as a call of `schedule` would; it may be meant for one of those, or of some others."""
    unknown = [option for option in options if option not in known]
    if unknown:
        from difflib import get_close_matches  # noqa: PLC0415 - only for those who need the hint

        names = sorted({*known, *alike})
        meant = get_close_matches(unknown[0], names, n=1)
        hint = f"did you mean {meant[0]!r}?" if meant else f"there are {', '.join(names)}"
        raise TypeError(f"{unknown[0]!r} is no option of a job; {hint}")


@contextmanager
def in_python() -> Iterator[None]:
    """Let an error of the parser speak of the arguments that the caller wrote."""
    try:
        yield
    except InvalidSchedule as error:
        problems = [Problem(_spoken(one.field), _meant(one.field, one.message), one.code) for one in error.problems]
        message = _meant(error.field, error.message)
        raise type(error)(message, field=_spoken(error.field), problems=problems) from None


def _meant(field: str, message: str) -> str:
    """What is wrong, for whoever may also write a number where a document has an object."""
    return message.replace("must be an object", _A_RETRY) if field == "retry_policy" else message


def _spoken(field: str) -> str:
    for written, spoken in SPOKEN.items():
        if field.startswith(written):
            return spoken + field.removeprefix(written)
    return field


def function_target(
    function: str, *, args: object = (), kwargs: object = None, payload: object = None, executor: object = None
) -> dict[str, Any]:
    """The target that a function and what it is given stand for."""
    target = {"target_kind": "function", "function": function, "args": _args(args), "kwargs": _kwargs(kwargs)}
    return target | present(payload=payload, executor=executor)


def command_target(argv: object, env: object, cwd: object, *, stdin: object, limits: object) -> dict[str, Any]:
    """The target that a program and what it is given stand for."""
    if not isinstance(argv, Sequence) or isinstance(argv, str | bytes):
        message = f"must be a list of a program and its arguments, not {type(argv).__name__}; no shell takes it apart"
        raise InvalidSchedule(message, field="argv")
    return present(
        target_kind="command",
        argv=[plain(one) for one in argv],
        env=plain(env),
        cwd=plain(cwd),
        stdin=stdin,
        limits=plain(limits),
    )


def http_target(url: object, **parts: object) -> dict[str, Any]:
    """The target that a request stands for."""
    return present(target_kind="http", url=url, **{name: plain(part) for name, part in parts.items()})


def plain(value: object) -> object:
    """A value of Python that is as good as JSON: the text of a path, any mapping, a tuple."""
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def document_of(  # noqa: PLR0913 - each is an option of its own
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
    """The document that the arguments of `schedule` stand for; the core has the only parser, which judges it.

    The others are called the same in both.
    """
    follows = trigger is None and bool(depends_on)
    if follows:
        _check_jitter(jitter)
    return present(
        target=target,
        trigger=None if follows else _trigger_document(trigger, jitter),
        depends_on=upstreams(depends_on),
        retry_policy=_judged_later(retries),
        name=name,
        max_runs=max_runs,
        overlap_policy=overlap,
        misfire_policy=misfire,
        timeout_seconds=timeout,
        labels=labels,
        delivery=delivery,
        **others,
    )


def changed(declared: Declaration, function: str | None, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a schedule of which some arguments of `schedule` are said anew; None takes an option back.

    A policy that was what its kind of trigger has by default is, with a trigger of another kind, that one's default.
    """
    document = declared.to_document()
    trigger = _changed_trigger(document.get("trigger"), changes)
    if _kind(trigger) != _kind(document.get("trigger")):
        for field in at_default(declared):
            del document[field]
    target = document["target"] | present(function=function)
    target |= {option: read(changes[option]) for option, read in _OF_TARGET.items() if option in changes}
    if "retries" in changes:
        # A number leaves the backoff as it was; a document says everything.
        before = {} if isinstance(changes["retries"], Mapping) else document["retry_policy"]
        document["retry_policy"] = before | _retry(changes["retries"] or 0)
    if "depends_on" in changes:
        document["depends_on"] = upstreams(changes["depends_on"])
    document |= {field: changes[option] for option, field in _FIELDS.items() if option in changes}
    return present(**{**document, "trigger": trigger, "target": present(**target)})


def _changed_trigger(trigger: dict[str, Any] | None, changes: Mapping[str, Any]) -> dict[str, Any] | None:
    """The document of the trigger. Its jitter is an option of its own, which another trigger keeps or sets itself."""
    if "trigger" in changes:
        kept = present(jitter_seconds=None if trigger is None else trigger.get("jitter_seconds"))
        trigger = None if changes["trigger"] is None else kept | _trigger_document(changes["trigger"], None)
    if "jitter" not in changes:
        return trigger
    if trigger is None:
        _check_jitter(changes["jitter"])
        return None
    return present(**{**trigger, "jitter_seconds": changes["jitter"]})


def _check_jitter(jitter: object) -> None:
    """Refuse it where there is no trigger."""
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


def _retry(retries: object) -> dict[str, Any]:
    if isinstance(retries, Mapping):
        return dict(retries)
    if not isinstance(retries, int) or isinstance(retries, bool) or not 0 <= retries <= MAX_RETRIES:
        raise InvalidSchedule(f"{_A_RETRY}, not {shown(retries)}", field="retries")
    return {"max_attempts": retries + 1}


def _judged_later(retries: object) -> object:
    """The policy, or what is none as it stands: the parser tells of it with everything else that is wrong."""
    try:
        return _retry(retries)
    except InvalidSchedule:
        if retries is None:  # which the parser would take for nothing said
            raise
        return retries


_OF_TARGET: dict[str, Callable[[Any], Any]] = {
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
    **{option: option for option in Further.__optional_keys__},
}


def id_of_name(user: str, name: str) -> str:
    """The id of the schedule that is declared under a name: two processes that do so at once mean the same one."""
    parts = f"{user}\0{name}".encode(errors="surrogatepass")
    return f"job_{blake2b(parts, digest_size=13, person=b'noonmark-name').hexdigest()}"


def redeclared(document: dict[str, Any], stored: Schedule, trigger: Trigger | None, *, now: Micros) -> Declaration:
    """A declaration of a name that is there already. What runs once, at once, runs again when it has completed."""
    if trigger is None and stored.phase is SchedulePhase.COMPLETED:
        return parse_schedule(document, now=from_micros(now), key=stored.schedule_id)
    return declare_again(document, stored, now=from_micros(now))


def upstreams(depends_on: object) -> list[Any] | None:
    """The schedules to wait for, each as an id or a document."""
    if depends_on is None:
        return None
    if isinstance(depends_on, str | Mapping):
        depends_on = [depends_on]
    if not isinstance(depends_on, Sequence) or isinstance(depends_on, bytes):
        raise InvalidSchedule(f"must be a list or a tuple, not {type(depends_on).__name__}", field="depends_on")
    return [{"schedule_id": one} if isinstance(one, str) else one for one in depends_on]


def _trigger_document(trigger: object, jitter: float | None) -> dict[str, Any]:
    if trigger is None:
        return present(type="once", delay_seconds=0, jitter_seconds=jitter)
    if not isinstance(trigger, Trigger):
        shown = f"text; write CronTrigger({trigger!r})" if isinstance(trigger, str) else type(trigger).__name__
        message = f"must be a trigger such as CronTrigger or IntervalTrigger, not {shown}"
        raise InvalidTrigger(message, field="trigger")
    return trigger.to_document() | present(jitter_seconds=jitter)
