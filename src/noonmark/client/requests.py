"""Every request once, with its arguments and what it answers; each is a method of both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from noonmark.client.answers import read_result
from noonmark.client.asking import BARE_PREVIEW, Http, Listing, Request, ask, ask_by_name, given, plain, several
from noonmark.client.values import (
    AuditEntry,
    Backfill,
    Diagnosis,
    Document,
    Event,
    Explanation,
    Matched,
    Node,
    Occurrence,
    Page,
    Preview,
    Run,
    Schedule,
    Secret,
    Upload,
    WorkerStatus,
    read,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from noonmark.core.triggers import Trigger

T = TypeVar("T")


class Fields(TypedDict, total=False):
    """What a schedule declares; None takes a field back when it is changed."""

    name: str | None
    trigger: Trigger | Document | None
    target: Document
    description: str | None
    labels: Mapping[str, str] | None
    overlap_policy: str | Document | None
    misfire_policy: str | Document | None
    missing_target_policy: str | None
    retry_policy: Document | None
    timeout_seconds: float | None
    window: Document | None
    delivery: str | None
    pause_on_failure: int | None
    concurrency_key: str | None
    concurrency_limit: int | None
    depends_on: list[Document] | None
    budget: Document | None
    max_runs: int | None
    accepts_payload: bool | None
    planning_horizon_days: int | None
    planning_horizon_occurrences: int | None
    enabled: bool | None


class NewFields(Fields, total=False):
    """What may be said of a new schedule besides."""

    schedule_id: str
    user_id: str


class Expected(TypedDict, total=False):
    """Which schedule is meant, as it was read; RevisionConflict if it has changed since."""

    expected_revision: int | None
    expected_updated_at_utc: datetime | str | None


class TriggerFilters(TypedDict, total=False):
    """Which schedules that events set off are meant: those that meet all of these."""

    phase: str | Iterable[str]
    labels: Mapping[str, str]
    owner: str
    text: str
    name: str
    route: str
    include_deleted: bool


class Filters(TriggerFilters, total=False):
    """Which schedules are meant: those that meet all of these."""

    kind: str | Iterable[str]


def create(*, idempotency_key: str | None = None, **fields: Unpack[NewFields]) -> Request[Schedule]:
    """Keep a new schedule. The same key again, within a day, gives the schedule that was made with it."""
    return ask("schedule/create", _one(Schedule), {**given(**fields), **given(idempotency_key=idempotency_key)})


def upsert(**fields: Unpack[NewFields]) -> Request[Schedule]:
    """Keep a schedule, or put another declaration in force; the same one again changes nothing.

    It is known by its `schedule_id`, or else by its owner and its workflow, or its name. A paused one stays paused.
    """
    return ask("schedule/upsert", _one(Schedule), given(**fields))


def get(schedule_id: str, *, include_deleted: bool | None = None) -> Request[Schedule]:
    """One schedule; one that is deleted only if that is asked for."""
    return ask("schedule/get", _one(Schedule), given(schedule_id=schedule_id, include_deleted=include_deleted))


def list_schedules(
    *,
    workflow_id: str | None = None,
    newest_first: bool | None = None,
    page_size: int | None = None,
    **filters: Unpack[Filters],
) -> Listing[Schedule]:
    """All schedules that meet every filter, in the order of their creation or the newest first."""
    asked = given(**filters, workflow_id=workflow_id, newest_first=newest_first, limit=page_size)
    return _listing("schedule/list", "schedules", Schedule, asked)


def count(**filters: Unpack[Filters]) -> Request[int]:
    """How many schedules meet every filter."""
    return ask("schedule/count", lambda document: int(document["count"]), given(**filters))


def update(
    schedule_id: str,
    *,
    expected_revision: int | None = None,
    expected_updated_at_utc: datetime | str | None = None,
    **changes: Unpack[Fields],
) -> Request[Schedule]:
    """Change some of what was declared; None takes a field back. RevisionConflict if it is not as expected any more."""
    expected = {"expected_revision": expected_revision, "expected_updated_at_utc": expected_updated_at_utc}
    asked = given(schedule_id=schedule_id, **expected)
    return ask("schedule/update", _one(Schedule), asked | {name: plain(value) for name, value in changes.items()})


def pause(schedule_id: str, *, reason: str | None = None, **expected: Unpack[Expected]) -> Request[Schedule]:
    """Let nothing of its trigger start until it is resumed; what runs goes on."""
    return ask("schedule/pause", _one(Schedule), given(schedule_id=schedule_id, reason=reason, **expected))


def resume(schedule_id: str, *, reason: str | None = None, **expected: Unpack[Expected]) -> Request[Schedule]:
    """Plan from now on; what the pause swallowed is recorded."""
    asked = given(schedule_id=schedule_id, reason=reason, **expected)
    return ask("schedule/resume", _one(Schedule), asked)


def delete(schedule_id: str, *, reason: str | None = None, **expected: Unpack[Expected]) -> Request[Schedule]:
    """Let nothing of it start from now on; its history stays. One that is deleted stays so."""
    asked = given(schedule_id=schedule_id, reason=reason, **expected)
    return ask("schedule/delete", _one(Schedule), asked)


def run_now(
    schedule_id: str,
    *,
    payload: Any = None,  # noqa: ANN401 - JSON
    overlap: str | Document | None = None,
    key: str | None = None,
    reason: str | None = None,
) -> Request[Occurrence]:
    """Add an occurrence that is due now; it does not wait for it. The same key again is the same occurrence."""
    asked = given(schedule_id=schedule_id, payload=payload, overlap=overlap, key=key, reason=reason)
    return ask("schedule/run", _one(Occurrence), asked)


def backfill(  # noqa: PLR0913 - as the operation
    schedule_id: str,
    first: datetime | str,
    last: datetime | str,
    *,
    dry_run: bool | None = None,
    limit: int | None = None,
    concurrency: int | None = None,
    key: str | None = None,
) -> Request[Backfill]:
    """Run past times of the trigger, from the first to the last inclusive, one after another or so many at a time."""
    asked = given(schedule_id=schedule_id, dry_run=dry_run, limit=limit, concurrency=concurrency, key=key)
    return ask("schedule/backfill", _one(Backfill), {**asked, "from": plain(first), "to": plain(last)})


def preview(
    what: str | Trigger | Document,
    *,
    after: datetime | str | None = None,
    count: int | None = None,
    key: str | None = None,
) -> Request[Preview]:
    """The next times of a schedule, by its id, or of a trigger; `key` is what `H` in a cron expression hashes."""
    asked = given(after=after, count=count, key=key)
    if isinstance(what, str):
        return ask("schedule/preview", _one(Preview), {"schedule_id": what, **asked})
    return ask("schedule/preview", _one(Preview), {"trigger": plain(what), **asked}, route=BARE_PREVIEW)


def occurrences(
    schedule_id: str,
    *,
    include_terminal: bool | None = None,
    phase: str | Iterable[str] | None = None,
    page_size: int | None = None,
) -> Listing[Occurrence]:
    """All occurrences of a schedule, the newest nominal time first."""
    asked = given(schedule_id=schedule_id, include_terminal=include_terminal, phase=phase, limit=page_size)
    return _listing("schedule/occurrences", "occurrences", Occurrence, asked)


def occurrence(occurrence_id: str) -> Request[Occurrence]:
    """One occurrence as it stands."""
    return ask("occurrence/get", _one(Occurrence), given(occurrence_id=occurrence_id))


def occurrence_runs(occurrence_id: str) -> Request[list[Run]]:
    """The runs of one occurrence, the newest start first."""
    return ask("occurrence/runs", _all("runs", Run), given(occurrence_id=occurrence_id))


def explain(occurrence_id: str) -> Request[Explanation]:
    """Why an occurrence stands where it stands: each rule with its decision, and one sentence for people."""
    return ask("occurrence/explain", _one(Explanation), given(occurrence_id=occurrence_id))


def explain_at(schedule_id: str, at: datetime | str | None = None) -> Request[Explanation]:
    """What a schedule did, does or will do at an instant, and why; without one, how its last occurrence fared."""
    return ask("schedule/explain", _one(Explanation), given(schedule_id=schedule_id, at=at))


def runs(schedule_id: str, *, page_size: int | None = None) -> Listing[Run]:
    """All runs of a schedule, the newest start first."""
    return _listing("schedule/runs", "runs", Run, given(schedule_id=schedule_id, limit=page_size))


def run(run_id: str) -> Request[Run]:
    """One run."""
    return ask("run/get", _one(Run), given(run_id=run_id))


def complete(
    occurrence_id: str,
    *,
    result: Any = None,  # noqa: ANN401 - JSON
    usage: Document | None = None,
    token: str | None = None,
) -> Request[Occurrence]:
    """Tell that what its target accepted has been done."""
    asked = given(occurrence_id=occurrence_id, result=result, usage=usage, token=token)
    return ask("occurrence/complete", _one(Occurrence), asked)


def fail(
    occurrence_id: str, *, error: str | None = None, usage: Document | None = None, token: str | None = None
) -> Request[Occurrence]:
    """Tell that what its target accepted has failed; its retry policy says what follows."""
    asked = given(occurrence_id=occurrence_id, error=error, usage=usage, token=token)
    return ask("occurrence/fail", _one(Occurrence), asked)


def cancel(occurrence_id: str, *, reason: str | None = None) -> Request[Occurrence]:
    """Let it not begin, or ask it to stop."""
    return ask("occurrence/cancel", _one(Occurrence), given(occurrence_id=occurrence_id, reason=reason))


def emit(
    event_type: str,
    payload: Any = None,  # noqa: ANN401 - JSON
    *,
    source: str | None = None,
    event_id: str | None = None,
) -> Request[str]:
    """Keep an event, and give its id; the schedules that it sets off follow by themselves. The same id is kept once."""
    asked = given(event_type=event_type, payload=payload, source=source, event_id=event_id)
    return ask("event/emit", lambda document: str(document["event_id"]), asked)


def events(*, event_type: str | None = None, page_size: int | None = None) -> Listing[Event]:
    """All events that are kept, the newest first."""
    return _listing("event/list", "events", Event, given(event_type=event_type, limit=page_size))


def set_secret(name: str, value: str, *, hosts: Iterable[str]) -> Request[Secret]:
    """Keep a secret that requests to these hosts may carry; one of that name gets the new value and hosts."""
    return ask("secret/set", _one(Secret), given(name=name, value=value, hosts=several(hosts)))


def secrets() -> Request[list[Secret]]:
    """The secrets by name, each with its hosts; no value is ever told."""
    return ask("secret/list", _all("secrets", Secret), {})


def delete_secret(name: str) -> Request[Secret]:
    """Forget a secret; requests that need it are not sent from then on, and say why."""
    return ask("secret/delete", _one(Secret), given(name=name))


def signing_key() -> Request[str]:
    """The key that requests are signed with: what receivers check them with, by `noonmark.client.verify`."""
    return ask("signing/key", lambda document: str(document["signing_key"]), {})


def match_events(
    event_type: str | Iterable[str] | None = None,
    filters: Document | None = None,
    *,
    limit: int | None = None,
    event: Document | None = None,
    trigger: Trigger | Document | None = None,
    schedule_id: str | None = None,
) -> Request[Matched]:
    """Which of the last events filters match, and why not the others; or a trigger, or that of a schedule.

    With `event`, a document such as `{"payload": {..}}`, whether they would match that. Nothing is set off by it.
    """
    types = event_type if event_type is None or isinstance(event_type, str) else list(event_type)
    asked = given(event_type=types, filters=filters, limit=limit, event=event, trigger=trigger, schedule_id=schedule_id)
    return ask("event/match", _one(Matched), asked)


def triggers(
    *,
    event_type: str | None = None,
    newest_first: bool | None = None,
    page_size: int | None = None,
    **filters: Unpack[TriggerFilters],
) -> Listing[Schedule]:
    """All schedules that events set off, or those that wait for one type of event, that meet every filter."""
    asked = given(**filters, event_type=event_type, newest_first=newest_first, limit=page_size)
    return _listing("trigger/list", "triggers", Schedule, asked)


def uploads(*, page_size: int | None = None) -> Listing[Upload]:
    """All files that were uploaded and are kept, the newest first."""
    return _listing("upload/list", "uploads", Upload, given(limit=page_size))


def delete_upload(upload_id: str) -> Request[Upload]:
    """Forget a file that was uploaded, which makes room for others."""
    return ask("upload/delete", _one(Upload), given(upload_id=upload_id))


def nodes() -> Request[list[Node]]:
    """The nodes that were heard of within the last day."""
    return ask("node/list", _all("nodes", Node), {})


def audit(*, schedule_id: str | None = None, page_size: int | None = None) -> Listing[AuditEntry]:
    """Who changed what, the newest first."""
    return _listing("audit/list", "entries", AuditEntry, given(schedule_id=schedule_id, limit=page_size))


def worker_start() -> Request[WorkerStatus]:
    """Let the driver of the node that answers work; one that does already goes on."""
    return ask("worker/start", _one(WorkerStatus), {})


def worker_stop() -> Request[WorkerStatus]:
    """Stop the driver of the node that answers; other nodes go on."""
    return ask("worker/stop", _one(WorkerStatus), {})


def worker_confirm_time() -> Request[WorkerStatus]:
    """Tell the node that answers that the store's time is right, although it leapt ahead."""
    return ask("worker/confirm-time", _one(WorkerStatus), {})


def worker_status() -> Request[WorkerStatus]:
    """What the driver of the node that answers does."""
    return ask("worker/status", _one(WorkerStatus), {})


def health() -> Request[Document]:
    """That the server is up, and what it is."""
    return Request(http=Http("GET", "/health"), read=dict)


def doctor(*, rows: int | None = None) -> Request[Diagnosis]:
    """Whether the store is sound, row by row, and whether clocks agree; changes nothing."""
    return ask("doctor", _one(Diagnosis), given(rows=rows))


def call(name: str, arguments: Mapping[str, Any] | None = None) -> Request[Document]:
    """Any operation by its name, over JSON-RPC; gives the document that the operation answers."""
    return ask_by_name(name, read_result, arguments or {})


def _one(kind: type[T]) -> Callable[[Document], T]:
    return lambda document: read(kind, document)


def _all(name: str, kind: type[T]) -> Callable[[Document], list[T]]:
    return lambda document: [read(kind, one) for one in document[name]]


def _listing(operation: str, name: str, kind: type[T], arguments: Document) -> Listing[T]:
    many = _all(name, kind)
    return Listing(operation=operation, arguments=arguments, read=lambda one: Page(many(one), one["next_cursor"]))
