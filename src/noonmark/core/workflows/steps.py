"""The steps of a workflow: a target to deliver, a wait, or an approval.

A step is read on its own here. What concerns several steps is checked by `definition`.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import present
from noonmark.core.filters.match import filter_problems
from noonmark.core.frozen import frozen
from noonmark.core.instants import DAY, DAY_SECONDS, Micros, micros_to_seconds, parse_instant, to_text
from noonmark.core.json_values import event_type, json_copy, shown
from noonmark.core.policies.retry import RetryPolicy, read_retry
from noonmark.core.targets import AGENT_KINDS, FunctionTarget, TargetKind, read_target
from noonmark.core.targets.placeholders import is_one_placeholder
from noonmark.core.triggers.event import MAX_EVENT_TYPES
from noonmark.core.workflows.names import word

if TYPE_CHECKING:
    from noonmark.core.documents import Reader
    from noonmark.core.targets import Target

MAX_DEPENDENCIES = 100
MAX_TIMEOUT_SECONDS = 31_622_400
MAX_MESSAGE = 10_000
MAX_ELEMENTS = 10_000
"""Elements of one `for_each`."""
MAX_CONCURRENCY = 1_000
CONCURRENCY = 10
"""Elements that run side by side, where the step says nothing else."""
WAIT_TIMEOUT: Micros = DAY
MAX_WAIT_TIMEOUT_SECONDS = 30 * DAY_SECONDS
EXPIRY: Micros = 7 * DAY
MAX_EXPIRY_SECONDS = 90 * DAY_SECONDS
ONCE = RetryPolicy()
_KINDS = ("target", "wait", "approval")
_OF_TARGETS = ("input", "for_each", "concurrency", "retry", "timeout_seconds", "compensate")
"""What only a step with a target can have."""


@frozen(kw_only=True)
class Wait:
    """A step that ends after some time, at a time, or with an event."""

    seconds: Micros | None = None
    until: str | None = None
    """An RFC 3339 instant, or one placeholder."""
    event_types: tuple[str, ...] = ()
    filters: dict[str, Any] = field(default_factory=dict, hash=False)
    """Filters of the event; their values may have placeholders."""
    timeout: Micros | None = None
    """How long it waits for the event."""

    def to_document(self) -> dict[str, Any]:
        """The wait as JSON shows it."""
        types = list(self.event_types)
        return present(
            seconds=None if self.seconds is None else micros_to_seconds(self.seconds),
            until=self.until,
            event_type=(types[0] if len(types) == 1 else types) if types else None,
            filters=json_copy(self.filters) or None,
            timeout_seconds=None if self.timeout is None else micros_to_seconds(self.timeout),
        )


@frozen(kw_only=True)
class Approval:
    """A step that ends when a person has decided, or when the time for that has passed."""

    message: str = ""
    """What the person is asked; it may have placeholders."""
    expires: Micros = EXPIRY

    def to_document(self) -> dict[str, Any]:
        """The approval as JSON shows it."""
        return present(message=self.message or None, expires_seconds=micros_to_seconds(self.expires))


@frozen(kw_only=True)
class Step:
    """One step: exactly one of `target`, `wait` and `approval` is there."""

    id: str
    target: dict[str, Any] | None = field(default=None, hash=False, repr=False)
    """A target document; its texts may have placeholders."""
    wait: Wait | None = None
    approval: Approval | None = None
    depends_on: tuple[str, ...] = ()
    input: dict[str, Any] = field(default_factory=dict, hash=False, repr=False)
    when: dict[str, Any] | None = field(default=None, hash=False)
    """Conditions on names, as the filters of events have them on fields; the step is skipped unless all hold."""
    for_each: Any = field(default=None, hash=False, repr=False)
    """A list, or a text that is one placeholder; None for a step that runs once."""
    concurrency: int | None = None
    """How many elements run side by side; None without `for_each`."""
    retry: RetryPolicy = ONCE
    timeout: Micros | None = None
    compensate: dict[str, Any] | None = field(default=None, hash=False, repr=False)
    """The target that undoes the step."""
    route: str | None = None
    """The route that a node must serve to deliver the target."""
    compensation_route: str | None = None

    @property
    def kind(self) -> str:
        """The kind of its target; `wait` or `approval` without one."""
        if self.target is not None:
            return str(self.target["target_kind"])
        return "approval" if self.wait is None else "wait"

    def to_document(self) -> dict[str, Any]:
        """The step as JSON shows it."""
        return present(
            id=self.id,
            target=json_copy(self.target),
            wait=None if self.wait is None else self.wait.to_document(),
            approval=None if self.approval is None else self.approval.to_document(),
            depends_on=list(self.depends_on) or None,
            input=json_copy(self.input) or None,
            when=json_copy(self.when),
            for_each=json_copy(self.for_each),
            concurrency=self.concurrency,
            retry=None if self.retry == ONCE else self.retry.to_document(),
            timeout_seconds=None if self.timeout is None else micros_to_seconds(self.timeout),
            compensate=json_copy(self.compensate),
        )


def read_step(reader: Reader) -> Step:
    """Read a step, noting what is wrong with it alone; what has a problem is as if it was not there."""
    given = [name for name in _KINDS if reader.raw(name) is not None]
    if len(given) != 1:
        actual = f", not {' and '.join(given)}" if given else ""
        reader.problem("", f"must have exactly one of {', '.join(_KINDS)}{actual}")
    if given and "target" not in given:
        for name in [name for name in _OF_TARGETS if reader.raw(name) is not None]:
            reader.problem(name, f"is for steps with a target, and this is {' and '.join(given)}")
    target, compensation = _read_target(reader, "target"), _read_target(reader, "compensate")
    for_each = _read_for_each(reader)
    if target is not None and target.kind in AGENT_KINDS and reader.raw("input"):
        reader.problem("input", f"does not reach a {target.kind}: put placeholders into what it is told")
    if reader.raw("id") is None:
        reader.problem("id", "is required")
    step = Step(
        id=reader.read("id", word, ""),
        target=None if target is None else target.to_document(),
        wait=_read_wait(reader) if "wait" in given else None,
        approval=_read_approval(reader) if "approval" in given else None,
        depends_on=tuple(dict.fromkeys(reader.each("depends_on", word, high=MAX_DEPENDENCIES))),
        input=reader.json_object("input"),
        when=_read_filters(reader, "when") or None,
        for_each=for_each,
        concurrency=_read_concurrency(reader),
        retry=_read_retry(reader, target),
        timeout=reader.seconds("timeout_seconds", None, low=0.001, high=MAX_TIMEOUT_SECONDS),
        compensate=None if compensation is None else compensation.to_document(),
        route=None if target is None else target.route,
        compensation_route=None if compensation is None else compensation.route,
    )
    reader.close()
    return step


def _read_target(reader: Reader, name: str) -> Target | None:
    """The target in a field. Which names its placeholders may have is checked when all steps are known."""
    document = reader.raw(name)
    if document is None:
        return None
    if isinstance(document, dict) and document.get("target_kind") == TargetKind.PING:
        reader.problem(f"{name}.target_kind", "must not be ping: a step is work that a node delivers")
        return None
    return read_target(reader, name, is_known=lambda _: True)


def _read_for_each(reader: Reader) -> Any:
    value = reader.raw("for_each")
    if isinstance(value, list | tuple):
        if len(value) > MAX_ELEMENTS:
            reader.problem("for_each", f"has {len(value):,} elements; at most {MAX_ELEMENTS:,} are allowed")
        return json_copy(value)
    if value is not None and not (isinstance(value, str) and is_one_placeholder(value)):
        reader.problem("for_each", f"must be an array, or one placeholder that stands for an array, not {shown(value)}")
    return value


def _read_concurrency(reader: Reader) -> int | None:
    has_elements = reader.raw("for_each") is not None
    if not has_elements and reader.raw("concurrency") is not None:
        reader.problem("concurrency", "is for steps with for_each")
        return None
    limit: int | None = reader.integer(
        "concurrency", CONCURRENCY if has_elements else None, low=1, high=MAX_CONCURRENCY
    )
    return limit


def _read_retry(reader: Reader, target: Target | None) -> RetryPolicy:
    policy = read_retry(reader, "retry")
    if target is not None and not isinstance(target, FunctionTarget):
        for name in [name for name in ("on", "not_on") if getattr(policy, name)]:
            message = f"is for functions alone, and the target is of kind {target.kind}: it raises no exceptions"
            reader.problem(f"retry.{name}", message)
    return policy


def _read_filters(reader: Reader, name: str) -> dict[str, Any]:
    filters = reader.raw(name)
    if filters is None:
        return {}
    problems = filter_problems(filters)
    for path, message in problems:
        reader.problem(f"{name}.{path}" if path else name, message)
    return {} if problems else dict(json_copy(filters))


def _read_wait(reader: Reader) -> Wait:
    if (fields := reader.part("wait")) is None:
        return Wait()
    given = [name for name in ("seconds", "until", "event_type") if fields.raw(name) is not None]
    if len(given) != 1:
        actual = f", not {' and '.join(given)}" if given else ""
        fields.problem("", f"must have exactly one of seconds, until, event_type{actual}")
    is_for_event = "event_type" in given
    for name in ("filters", "timeout_seconds"):
        if not is_for_event and fields.raw(name) is not None:
            fields.problem(name, "is for waits with an event_type")
    wait = Wait(
        seconds=fields.seconds("seconds", None, high=MAX_TIMEOUT_SECONDS),
        until=fields.read("until", _until, None),
        event_types=_read_event_types(fields),
        filters=_read_filters(fields, "filters"),
        timeout=fields.seconds(
            "timeout_seconds", WAIT_TIMEOUT if is_for_event else None, low=0.001, high=MAX_WAIT_TIMEOUT_SECONDS
        ),
    )
    fields.close()
    return wait


def _until(value: object) -> str:
    return value if isinstance(value, str) and is_one_placeholder(value) else to_text(parse_instant(value))


def _read_event_types(reader: Reader) -> tuple[str, ...]:
    value = reader.raw("event_type")
    if isinstance(value, list | tuple):
        if not value:
            reader.problem("event_type", "must name an event type")
        return tuple(dict.fromkeys(reader.each("event_type", event_type, high=MAX_EVENT_TYPES)))
    one = reader.read("event_type", event_type, "")
    return (one,) if one else ()


def _read_approval(reader: Reader) -> Approval:
    if (fields := reader.part("approval")) is None:
        return Approval()
    approval = Approval(
        message=fields.text("message", "", low=0, high=MAX_MESSAGE, multiline=True),
        expires=fields.seconds("expires_seconds", EXPIRY, low=1, high=MAX_EXPIRY_SECONDS),
    )
    fields.close()
    return approval
