"""Declaring: the schedule document that a call in Python stands for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import present
from noonmark.core.errors import InvalidSchedule, InvalidTrigger, Problem
from noonmark.core.instants import from_micros
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.schedule import declare_again, parse_schedule
from noonmark.core.triggers import Trigger

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
    "trigger.jitter_seconds": "jitter",
}
"""The fields of a document that a caller in Python knows by another name."""
MAX_RETRIES = 99


@contextmanager
def in_python() -> Iterator[None]:
    """Let an error of the parser speak of the arguments that the caller wrote."""
    try:
        yield
    except InvalidSchedule as error:
        problems = [Problem(_spoken(one.field), one.message, one.code) for one in error.problems]
        raise type(error)(error.message, field=_spoken(error.field), problems=problems) from None


def _spoken(field: str) -> str:
    for written, spoken in SPOKEN.items():
        if field.startswith(written):
            return spoken + field.removeprefix(written)
    return field


def document_of(  # noqa: PLR0913 - each is an option of its own
    function: str,
    *,
    name: str | None = None,
    trigger: Trigger | None = None,
    args: object = (),
    kwargs: object = None,
    max_runs: object = None,
    overlap: object = None,
    misfire: object = None,
    retries: object = 0,
    timeout: object = None,
    jitter: float | None = None,
    labels: object = None,
    depends_on: object = None,
    delivery: object = None,
) -> dict[str, Any]:
    """The document that the arguments of `schedule` stand for; the core has the only parser, which judges it."""
    if not isinstance(retries, int) or isinstance(retries, bool) or not 0 <= retries <= MAX_RETRIES:
        raise InvalidSchedule(f"must be a whole number from 0 to {MAX_RETRIES}, not {retries!r}", field="retries")
    if not isinstance(args, Sequence) or isinstance(args, str | bytes):
        raise InvalidSchedule(f"must be a list or a tuple, not {type(args).__name__}", field="args")
    if not isinstance(kwargs, Mapping | None):
        raise InvalidSchedule(f"must be a mapping of names to values, not {type(kwargs).__name__}", field="kwargs")
    target = {"target_kind": "function", "function": function, "args": list(args), "kwargs": dict(kwargs or {})}
    follows = trigger is None and bool(depends_on)
    if follows and jitter is not None:
        raise InvalidSchedule("needs a trigger; what follows others begins when they have ended", field="jitter")
    return present(
        target=target,
        trigger=None if follows else _trigger_document(trigger, jitter),
        depends_on=_upstreams(depends_on),
        retry_policy={"max_attempts": retries + 1},
        name=name,
        max_runs=max_runs,
        overlap_policy=overlap,
        misfire_policy=misfire,
        timeout_seconds=timeout,
        labels=labels,
        delivery=delivery,
    )


def id_of_name(user: str, name: str) -> str:
    """The id of the schedule that is declared under a name: two processes that do so at once mean the same one."""
    parts = f"{user}\0{name}".encode(errors="surrogatepass")
    return f"job_{blake2b(parts, digest_size=13, person=b'noonmark-name').hexdigest()}"


def redeclared(document: dict[str, Any], stored: Schedule, trigger: Trigger | None, *, now: Micros) -> Declaration:
    """A declaration of a name that is there already. What runs once, at once, runs again when it has completed."""
    if trigger is None and stored.phase is SchedulePhase.COMPLETED:
        return parse_schedule(document, now=from_micros(now), key=stored.schedule_id)
    return declare_again(document, stored, now=from_micros(now))


def _upstreams(depends_on: object) -> list[Any] | None:
    """The schedules to wait for, each as an id or a document."""
    if depends_on is None:
        return None
    if not isinstance(depends_on, Sequence) or isinstance(depends_on, str | bytes):
        raise InvalidSchedule(f"must be a list or a tuple, not {type(depends_on).__name__}", field="depends_on")
    return [{"schedule_id": one} if isinstance(one, str) else one for one in depends_on]


def _trigger_document(trigger: object, jitter: float | None) -> dict[str, Any]:
    if trigger is None:
        return present(type="once", delay_seconds=0, jitter_seconds=jitter)
    if not isinstance(trigger, Trigger):
        message = f"must be a trigger such as CronTrigger or IntervalTrigger, not {type(trigger).__name__}"
        raise InvalidTrigger(message, field="trigger")
    return trigger.to_document() | present(jitter_seconds=jitter)
