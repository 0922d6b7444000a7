"""The registry: every operation once, by name. All surfaces are made from it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from noonmark.core.errors import MethodNotFound, StoreUnavailable
from noonmark.core.instants import SECOND
from noonmark.core.json_values import shown
from noonmark.operations import (
    declaring,
    doctor,
    explaining,
    looking,
    matching,
    previewing,
    secrets,
    signing,
    steering,
    telling,
    uploads,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noonmark.operations.service import Caller, Service

    Call = Callable[[Service, Caller, Mapping[str, Any]], dict[str, Any]]


class Operation(NamedTuple):
    """What a caller may ask for. Its name is also the JSON-RPC method."""

    name: str
    call: Call
    parameters: tuple[str, ...]
    """The names of its arguments, in the order in which they are given without names."""
    is_change: bool = False

    @property
    def summary(self) -> str:
        """What it does, in a sentence."""
        return (self.call.__doc__ or "").partition("\n")[0]


SETS_SECRET = "secret/set"  # noqa: S105 - a name
"""Whatever is wrong with a call of it, nothing of that is repeated: the secret may stand in the wrong place."""
_FILTERS = ("phase", "kind", "label", "labels", "owner", "text", "name", "route", "include_deleted")

_CHANGES = (
    Operation("schedule/create", declaring.create, (*declaring.FIELDS, *declaring.OF_REQUESTS)),
    Operation("schedule/upsert", declaring.upsert, (*declaring.FIELDS, *declaring.OF_REQUESTS)),
    Operation("schedule/update", declaring.update, ("schedule_id", *declaring.EXPECTED, *declaring.FIELDS)),
    Operation("schedule/pause", steering.pause, ("schedule_id", "reason", *declaring.EXPECTED)),
    Operation("schedule/resume", steering.resume, ("schedule_id", "reason", *declaring.EXPECTED)),
    Operation("schedule/delete", steering.delete, ("schedule_id", "reason", *declaring.EXPECTED)),
    Operation("schedule/run", steering.run, ("schedule_id", "payload", "overlap", "key", "reason")),
    Operation(
        "schedule/backfill", steering.backfill, ("schedule_id", "from", "to", "dry_run", "limit", "concurrency", "key")
    ),
    Operation("occurrence/complete", steering.complete, ("occurrence_id", "result", "usage", "token")),
    Operation("occurrence/fail", steering.fail, ("occurrence_id", "error", "usage", "token")),
    Operation("occurrence/cancel", steering.cancel, ("occurrence_id", "reason")),
    Operation("event/emit", telling.emit, ("event_type", "payload", "source", "event_id")),
    Operation("upload/delete", uploads.delete_upload, ("upload_id",)),
    Operation(SETS_SECRET, secrets.set_secret, ("name", "value", "hosts")),
    Operation("secret/delete", secrets.delete_secret, ("name",)),
    Operation("worker/start", telling.start_worker, ()),
    Operation("worker/stop", telling.stop_worker, ()),
    Operation("worker/confirm-time", telling.confirm_time, ()),
)
_LOOKS = (
    Operation("schedule/get", looking.get, ("schedule_id", "include_deleted")),
    Operation(
        "schedule/list", looking.list_schedules, (*_FILTERS, "workflow_id", "newest_first", "limit", "offset", "cursor")
    ),
    Operation("schedule/count", looking.count_schedules, _FILTERS),
    Operation("schedule/preview", previewing.preview, ("schedule_id", "trigger", "after", "count", "key")),
    Operation(
        "schedule/occurrences", looking.occurrences, ("schedule_id", "include_terminal", "phase", "limit", "cursor")
    ),
    Operation("schedule/runs", looking.runs, ("schedule_id", "limit", "cursor")),
    Operation("schedule/explain", explaining.explain_instant, ("schedule_id", "at")),
    Operation("occurrence/get", looking.occurrence, ("occurrence_id",)),
    Operation("occurrence/runs", looking.occurrence_runs, ("occurrence_id",)),
    Operation("occurrence/explain", explaining.explain_occurrence, ("occurrence_id",)),
    Operation("run/get", looking.run, ("run_id",)),
    Operation("event/list", looking.events, ("event_type", "limit", "cursor")),
    Operation("secret/list", secrets.list_secrets, ()),
    Operation("signing/key", signing.signing_key, ()),
    Operation("event/match", matching.match, ("event_type", "filters", "limit", "event", "trigger", "schedule_id")),
    Operation(
        "trigger/list",
        looking.list_triggers,
        ("event_type", *(one for one in _FILTERS if one != "kind"), "newest_first", "limit", "offset", "cursor"),
    ),
    Operation("upload/list", uploads.list_uploads, ("limit", "cursor")),
    Operation("node/list", looking.nodes, ()),
    Operation("doctor", doctor.examine, ("rows",)),
    Operation("audit/list", looking.notes, ("schedule_id", "limit", "cursor")),
    Operation("worker/status", telling.worker_status, ()),
)

OPERATIONS: Mapping[str, Operation] = {
    one.name: one for one in (*(change._replace(is_change=True) for change in _CHANGES), *_LOOKS)
}


def perform(service: Service, caller: Caller, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Do what a caller asks for, and give the answer as JSON."""
    operation = OPERATIONS.get(name)
    if operation is None:
        raise MethodNotFound(f"there is no operation {shown(name)}", field="method")
    if operation.is_change and not name.startswith("worker/"):
        _refuse_in_doubt(service)
    return operation.call(service, replace(caller, operation=name), arguments)


def _refuse_in_doubt(service: Service) -> None:
    """Nothing is created or changed by a time that may be false: what it names would lie years away."""
    ahead = None if service.worker is None else service.worker.clock_ahead
    if ahead is not None:
        raise StoreUnavailable(
            f"the store's time leapt ahead by {ahead // SECOND} s, and nothing is changed until it returns, has gone on"
            " for a lease, or an operator confirms it by `noonmark worker confirm-time`; try again in a while"
        )
