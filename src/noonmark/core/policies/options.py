"""Policies as options of a call: `overlap=Queue(limit=5)`, like `overlap="queue"` or a document.

A value stands for a document, and the readers of documents judge it when it is made, so each rule exists once. A
setting that is left out takes the default of the document, which may depend on the trigger. Lengths of time are
seconds or a `timedelta`. The rules work with the values that the readers return, where every setting is filled in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Required, TypedDict

from noonmark.core.documents import Reader, present
from noonmark.core.errors import InvalidSchedule, Problem, exception_names, refusal
from noonmark.core.instants import micros_to_seconds
from noonmark.core.json_values import in_python, shown
from noonmark.core.policies.limits import Concurrency, Dependency
from noonmark.core.policies.misfire import MisfireKind, read_misfire
from noonmark.core.policies.overlap import OverlapKind, read_overlap
from noonmark.core.policies.retry import MAX_ATTEMPTS, read_retry
from noonmark.core.policies.window import read_window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Seconds = float | timedelta
    Exceptions = type[BaseException] | str | Sequence[type[BaseException] | str]
    Document = dict[str, Any]

OverlapName = Literal[
    "skip", "skip_if_running", "queue", "queue_one", "allow", "allow_concurrent", "cancel_running", "terminate"
]
"""The names of overlap policies, for type checkers; what is accepted is the reader's decision."""
MisfireName = Literal[
    "skip",
    "none",
    "catch_up_one",
    "catchup_one",
    "catch_up_all",
    "catchup_all",
    "fire_immediately",
    "catch_up_within",
    "spread",
]
"""The same for misfire policies."""
DeliveryName = Literal["at_least_once", "at_most_once"]
ExecutorName = Literal["thread", "process"]


class OverlapDocument(TypedDict, total=False):
    """An overlap policy as a document."""

    type: Required[OverlapName]
    queue_limit: int
    cancel_grace_seconds: Seconds


class MisfireDocument(TypedDict, total=False):
    """A misfire policy as a document."""

    type: Required[MisfireName]
    grace_seconds: Seconds
    limit: int
    window_seconds: Seconds


class RetryDocument(TypedDict, total=False):
    """A retry policy as a document."""

    max_attempts: int
    backoff_seconds: Seconds
    multiplier: float
    max_backoff_seconds: Seconds
    on: list[str]
    not_on: list[str]


class WindowDocument(TypedDict, total=False):
    """A window as a document."""

    duration_seconds: Required[Seconds]
    end_action: Literal["cancel", "pause", "none"]


class ExpectedRateDocument(TypedDict, total=False):
    """An expected rate as a document; a window may also be a `timedelta`."""

    at_least: int
    at_most: int
    per_seconds: Required[Seconds]


class BudgetDocument(TypedDict, total=False):
    """What one run of an agent may use: money, tokens, calls of models and of tools."""

    max_cost_usd: float
    max_tokens: int
    max_model_calls: int
    max_tool_calls: int


class RunawayDocument(TypedDict, total=False):
    """The rules of the runaway guard; 0 turns one off."""

    max_fires_per_hour: int
    max_spend_factor: float
    max_identical_results: int


class PingUrlsDocument(TypedDict, total=False):
    """The URLs that a schedule calls, as a document."""

    start: str
    success: str
    failure: str


MAX_RETRIES = MAX_ATTEMPTS - 1
RETRY_RULE = f"must be an integer from 0 to {MAX_RETRIES}"
_FIELD = "policy"


@dataclass(frozen=True, slots=True, repr=False)
class Policy(ABC):
    """The common base: a frozen value with a document."""

    _settings: ClassVar[Mapping[str, str]] = {}
    """The name of each setting in the document, by its name here."""

    def __post_init__(self) -> None:
        """Check the document; an error names the setting as it is called here."""
        problems: list[Problem] = []
        self._read(Reader({_FIELD: self.to_document()}, path="", code=InvalidSchedule.code, problems=problems))
        if problems:
            raise refusal([Problem(self._spoken(one.field), in_python(one.message), one.code) for one in problems])

    def __repr__(self) -> str:
        """As it is written, without defaults."""
        given = [(one.name, getattr(self, one.name)) for one in fields(self)]
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given if value is not None)})"

    def to_document(self) -> Document:
        """The document; what was left out is not in it."""
        return present(**{written: seconds_of(getattr(self, name)) for name, written in self._settings.items()})

    @abstractmethod
    def _read(self, reader: Reader) -> None:
        """Read the document with the reader of this policy."""

    def _spoken(self, place: str) -> str:
        name = place.removeprefix(f"{_FIELD}.")
        return next((spoken for spoken, written in self._settings.items() if written == name), name)


@dataclass(frozen=True, slots=True, repr=False)
class Overlap(Policy):
    """What happens when an occurrence is due while an earlier one is in flight: the base of these policies."""

    _kind: ClassVar[OverlapKind]

    def to_document(self) -> Document:
        """With its type."""
        return {"type": str(self._kind)} | Policy.to_document(self)

    def _read(self, reader: Reader) -> None:
        read_overlap(reader, _FIELD, trigger_type="")


@dataclass(frozen=True, slots=True, repr=False)
class Skip(Overlap):
    """The later one does not run."""

    _kind = OverlapKind.SKIP


@dataclass(frozen=True, slots=True, repr=False)
class Queue(Overlap):
    """They run one after another, in order."""

    limit: int | None = None
    """How many may wait, from 1 to 100,000; 100 by default, for event triggers 10,000."""

    _kind = OverlapKind.QUEUE
    _settings: ClassVar[Mapping[str, str]] = {"limit": "queue_limit"}


@dataclass(frozen=True, slots=True, repr=False)
class QueueOne(Overlap):
    """One waits, and a newer one replaces it."""

    _kind = OverlapKind.QUEUE_ONE


@dataclass(frozen=True, slots=True, repr=False)
class Allow(Overlap):
    """They run side by side."""

    _kind = OverlapKind.ALLOW


@dataclass(frozen=True, slots=True, repr=False)
class CancelRunning(Overlap):
    """The earlier one is asked to stop; then the later one starts."""

    grace: Seconds | None = None
    """How long the earlier one has to stop, up to a day; 10 seconds by default."""

    _kind = OverlapKind.CANCEL_RUNNING
    _settings: ClassVar[Mapping[str, str]] = {"grace": "cancel_grace_seconds"}


@dataclass(frozen=True, slots=True, repr=False)
class Terminate(Overlap):
    """The earlier one is killed, without being asked to stop; then the later one starts. A thread is abandoned."""

    _kind = OverlapKind.TERMINATE


@dataclass(frozen=True, slots=True, repr=False)
class Misfire(Policy):
    """What happens to fires that no node started in time: the base of these policies."""

    _kind: ClassVar[MisfireKind]

    def to_document(self) -> Document:
        """With its type."""
        return {"type": str(self._kind)} | Policy.to_document(self)

    def _read(self, reader: Reader) -> None:
        read_misfire(reader, _FIELD, trigger_type="")


@dataclass(frozen=True, slots=True, repr=False)
class SkipMissed(Misfire):
    """Older fires do not run, and of several in grace only the newest does."""

    grace: Seconds | None = field(default=None, kw_only=True)
    """How late a fire may be before it counts as missed, from a second to a leap year; 60 seconds by default."""

    _kind = MisfireKind.SKIP
    _settings: ClassVar[Mapping[str, str]] = {"grace": "grace_seconds"}


@dataclass(frozen=True, slots=True, repr=False)
class CatchUpOne(Misfire):
    """Only the newest fire runs, however late it is."""

    grace: Seconds | None = field(default=None, kw_only=True)
    """How late a fire may be before it counts as missed, from a second to a leap year; 60 seconds by default."""

    _kind = MisfireKind.CATCH_UP_ONE
    _settings: ClassVar[Mapping[str, str]] = {"grace": "grace_seconds"}


@dataclass(frozen=True, slots=True, repr=False)
class CatchUpAll(Misfire):
    """Of the older fires, the newest `limit` run, oldest first."""

    limit: int | None = None
    """From 1 to 1,000; 10 by default."""
    grace: Seconds | None = field(default=None, kw_only=True)
    """How late a fire may be before it counts as missed, from a second to a leap year; 60 seconds by default."""

    _kind = MisfireKind.CATCH_UP_ALL
    _settings: ClassVar[Mapping[str, str]] = {"limit": "limit", "grace": "grace_seconds"}


@dataclass(frozen=True, slots=True, repr=False)
class CatchUpWithin(Misfire):
    """The older fires that are late by at most `window` run, the newest `limit` of them."""

    window: Seconds
    """From a second to a leap year."""
    limit: int | None = field(default=None, kw_only=True)
    """From 1 to 1,000; 100 by default."""
    grace: Seconds | None = field(default=None, kw_only=True)
    """How late a fire may be before it counts as missed, from a second to a leap year; 60 seconds by default."""

    _kind = MisfireKind.CATCH_UP_WITHIN
    _settings: ClassVar[Mapping[str, str]] = {"window": "window_seconds", "limit": "limit", "grace": "grace_seconds"}


@dataclass(frozen=True, slots=True, repr=False)
class Spread(Misfire):
    """Of the older fires, the newest `limit` run, spread evenly over `window` from now on."""

    window: Seconds | None = None
    """From a second to a leap year; 60 seconds by default."""
    limit: int | None = field(default=None, kw_only=True)
    """From 1 to 1,000; 100 by default."""
    grace: Seconds | None = field(default=None, kw_only=True)
    """How late a fire may be before it counts as missed, from a second to a leap year; 60 seconds by default."""

    _kind = MisfireKind.SPREAD
    _settings: ClassVar[Mapping[str, str]] = {"window": "window_seconds", "limit": "limit", "grace": "grace_seconds"}


@dataclass(frozen=True, slots=True, repr=False)
class Retry(Policy):
    """How often a failed run is tried again, and when."""

    retries: int
    """Attempts after the first, from 0 to 99."""
    backoff: Seconds | None = None
    """The pause before the second attempt, up to a week; one second by default."""
    multiplier: float | None = field(default=None, kw_only=True)
    """The factor of each later pause, from 1 to 100; 2 by default."""
    max_backoff: Seconds | None = field(default=None, kw_only=True)
    """The longest pause, up to a week; 5 minutes by default, or `backoff` if that is longer."""
    on: Exceptions | None = field(default=None, kw_only=True)
    """Retry only these exceptions and their subclasses: a class or several, as in `except`. All by default."""
    not_on: Exceptions | None = field(default=None, kw_only=True)
    """Do not retry these, even if `on` has one of their bases. A timeout of the run counts as `TimeoutError`."""

    _settings: ClassVar[Mapping[str, str]] = {
        "backoff": "backoff_seconds",
        "multiplier": "multiplier",
        "max_backoff": "max_backoff_seconds",
    }

    def __post_init__(self) -> None:
        """`retries` does not count the first attempt, which the document does."""
        if type(self.retries) is not int or not 0 <= self.retries <= MAX_RETRIES:
            raise InvalidSchedule(in_python(f"{RETRY_RULE}, not {shown(self.retries)}"), field="retries")
        Policy.__post_init__(self)

    def to_document(self) -> Document:
        """With the number of attempts, and the names of the exceptions."""
        exceptions = present(on=_names(self.on), not_on=_names(self.not_on))
        return {"max_attempts": self.retries + 1} | Policy.to_document(self) | exceptions

    def _read(self, reader: Reader) -> None:
        read_retry(reader, _FIELD)


@dataclass(frozen=True, slots=True, repr=False)
class Window(Policy):
    """The stretch of time in which an occurrence may begin and run, counted from its first due time."""

    duration: Seconds
    """From a millisecond to a leap year."""
    end_action: Literal["cancel", "pause", "none"] | None = None
    """What happens to a run that is still going at the end: `cancel` by default, `pause` or `none`."""

    _settings: ClassVar[Mapping[str, str]] = {"duration": "duration_seconds", "end_action": "end_action"}

    def _read(self, reader: Reader) -> None:
        read_window(reader, _FIELD, target_kind=None)


_TYPED = Policy | Concurrency | Dependency
_ALLOWED: dict[str, tuple[type, str]] = {
    "overlap": (Overlap, "an overlap policy such as Skip() or Queue()"),
    "misfire": (Misfire, "a misfire policy such as SkipMissed() or CatchUpAll()"),
    "retries": (Retry, "a number or a Retry"),
    "window": (Window, "a Window"),
    "concurrency": (Concurrency, "a Concurrency"),
    "depends_on": (Dependency, "an id, a Job or a Dependency"),
}
"""The typed values of each option."""


def as_document(value: Any, *, option: str) -> Any:
    """The document of the typed value of an option; anything else as it is, for the parser to check.

    The value of another option and a class are refused: a document would not tell them apart, or say it less clearly.
    """
    if isinstance(value, type) and issubclass(value, _TYPED):
        raise InvalidSchedule(f"is the class {value.__name__}; call it: {value.__name__}(..)", field=option)
    if not isinstance(value, _TYPED):
        return value
    if option in _ALLOWED and not isinstance(value, _ALLOWED[option][0]):
        raise InvalidSchedule(f"must be {_ALLOWED[option][1]}, not {value!r}", field=option)
    return value.to_document()


def seconds_of(value: Any) -> Any:
    """A length of time as a document says it; anything else as it is."""
    return micros_to_seconds(value // timedelta(microseconds=1)) if isinstance(value, timedelta) else value


def _names(exceptions: Any) -> Any:
    """Exceptions as a document says them: by the names of their classes."""
    if exceptions is None:
        return None
    given = exceptions if isinstance(exceptions, tuple | list | set | frozenset) else [exceptions]
    return [
        exception_names(one)[0] if isinstance(one, type) and issubclass(one, BaseException) else one for one in given
    ]
