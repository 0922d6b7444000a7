"""What a server tells, as values: the names are those of its documents, the instants are aware datetimes in UTC."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from noonmark.core.errors import NoonmarkError
from noonmark.core.instants import from_micros, parse_instant

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
Document = dict[str, Any]
"""JSON: what it says is described with the documents of the service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose a schedule is."""

    tenant: str
    user: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What has become of a schedule's occurrences so far."""

    total: int
    successful: int
    failed: int
    missed: int
    skipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule as it stands; `document` says all that was declared, each policy too."""

    schedule_id: str
    name: str | None
    description: str
    labels: dict[str, str]
    trigger: Document | None
    target: Document
    phase: str
    revision: int
    enabled: bool
    owner: Owner
    source: str
    next_run_at: datetime | None
    next_fire_times: list[datetime]
    last_run_at: datetime | None
    last_phase: str | None
    counters: Counters
    created_at_utc: datetime
    updated_at_utc: datetime
    deleted_at_utc: datetime | None
    document: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One planned delivery of a schedule, as it stands."""

    occurrence_id: str
    schedule_id: str
    schedule_revision: int
    superseded_by_revision: int | None
    phase: str
    origin: str
    nominal_at_utc: datetime
    due_at_utc: datetime
    attempt: int
    attempt_count: int
    reason: str | None
    why: str | None
    detail: Document
    failure_class: str | None
    failure_detail: str | None
    missed_count: int
    missed_from: datetime | None
    missed_to: datetime | None
    waiting_for: str | None
    node: str | None
    claimed_by: str | None
    started_at_utc: datetime | None
    dispatched_at_utc: datetime | None
    completed_at_utc: datetime | None
    deadline_utc: datetime | None
    run_id: str | None
    delivery_correlation_id: str
    payload: Any
    trigger_snapshot: Document | None
    target_snapshot: Document | None
    misfire_policy: str | Document | None
    overlap_policy: str | Document | None
    missing_target_policy: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a run has used up."""

    tokens: int
    cost_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One attempt; without an end and an outcome while it goes on."""

    run_id: str
    occurrence_id: str
    schedule_id: str
    attempt: int
    node: str
    started_at_utc: datetime
    ended_at_utc: datetime | None
    duration_seconds: float | None
    outcome: str | None
    result: Any
    error: str | None
    usage: Usage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The next times of a trigger, with the trigger in words."""

    fires: list[datetime]
    description: str
    warnings: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """Past times that are run again; without an id if that was only tried."""

    backfill_id: str | None
    count: int
    occurrences: list[Occurrence]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One rule, what it decided, and the facts behind that."""

    rule: str
    decision: str
    facts: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why something ran or did not: one sentence, and each rule that had a say."""

    schedule_id: str
    phase: str | None
    summary: str
    steps: list[Step]
    occurrence_id: str | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event as it is kept."""

    event_id: str
    event_type: str
    source: str
    payload: Any
    emitted_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedEvent:
    """An event, and whether it is matched; `why` is told of one that is not."""

    event_id: str | None
    event_type: str
    source: str
    payload: Any
    emitted_at: datetime
    matches: bool
    why: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """The last events, the newest first, and how many of them are matched."""

    checked: int
    matched: int
    events: list[MatchedEvent]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file that the server keeps; `path` is where its sender says it belongs."""

    upload_id: str
    filename: str
    path: str
    content_type: str
    size: int
    sha256: str
    bucket: str
    created_at_utc: datetime
    event_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as it was last heard of."""

    node: str
    is_alive: bool
    is_leader: bool
    routes: list[str]
    capacity: int
    load: int
    version: str
    started_at_utc: datetime
    seen_at_utc: datetime
    left_at_utc: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """What is told of a secret; its value is told to nobody."""

    name: str
    hosts: list[str]
    created_at_utc: datetime
    updated_at_utc: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Who changed what."""

    entry: int
    at_utc: datetime
    caller: str
    operation: str
    schedule_id: str | None
    revision_before: int | None
    revision_after: int | None
    reason: str | None
    request_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that the doctor has looked at."""

    check: str
    status: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedRow:
    """A cell of the store that cannot be as it is, and what to do about it."""

    table: str
    key: str
    column: str
    problem: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Whether the store is sound: `ok`, or `problems`."""

    status: str
    checks: list[Check]
    damaged_rows: list[DamagedRow]
    rows_checked: int
    is_complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """Whether the driver of the node that answered works, and how it is set up."""

    status: str
    worker_status: Document


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a list, and the cursor of the next part."""

    entries: list[T]
    next_cursor: str | None


def read(kind: Callable[..., T], document: Document) -> T:
    """A document as a value; what the value has no name for is left out."""
    hints = _hints(kind)
    given = {"document": document, **document}
    lacking = [name for name, (_, is_required) in hints.items() if is_required and name not in given]
    if lacking:
        raise NoonmarkError(f"the answer has no {lacking[0]!r}: is this a Noonmark server, and of this version?")
    return kind(**{name: _value(hint, given[name]) for name, (hint, _) in hints.items() if name in given})


@cache
def _hints(kind: Any) -> dict[str, tuple[Any, bool]]:  # noqa: ANN401 - one of the classes above
    """Each field of a class with its kind, and whether it is required."""
    hints = get_type_hints(kind)
    return {one.name: (hints[one.name], one.default is MISSING) for one in fields(kind)}


def _value(hint: Any, value: Any) -> Any:  # noqa: ANN401 - of any kind
    if value is None or hint is Any:
        return value
    kinds = [one for one in get_args(hint) if one is not type(None)]
    if get_origin(hint) is list:
        return [_value(kinds[0], one) for one in value]
    kind = hint if get_origin(hint) is None and not kinds else kinds[0]
    if kind is datetime:
        return from_micros(parse_instant(value))
    return read(kind, value) if isinstance(kind, type) and is_dataclass(kind) else value
