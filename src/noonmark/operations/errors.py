"""What an error becomes on each surface: one table, by the error's code."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from noonmark.core import errors

if TYPE_CHECKING:
    from collections.abc import Mapping


class ErrorRow(NamedTuple):
    """One code: the HTTP status, the JSON-RPC code, the exit code of a command, and a title for people."""

    http: int
    jsonrpc: int
    exit: int
    title: str


STATUS: Mapping[str, ErrorRow] = {
    "error": ErrorRow(500, -32603, 1, "Something went wrong"),
    "invalid_schedule": ErrorRow(400, -32602, 2, "The document is not valid"),
    "invalid_trigger": ErrorRow(400, -32602, 2, "The trigger is not valid"),
    "trigger_never_fires": ErrorRow(400, -32602, 2, "The trigger never fires"),
    "invalid_request": ErrorRow(400, -32602, 2, "The request is not valid"),
    "not_found": ErrorRow(404, -32023, 3, "Not found"),
    "method_not_found": ErrorRow(404, -32601, 3, "There is no such operation"),
    "conflict": ErrorRow(409, -32009, 4, "Not in the present state"),
    "overlap": ErrorRow(409, -32009, 4, "A run is still in flight"),
    "revision_conflict": ErrorRow(409, -32009, 4, "Changed by somebody else"),
    "run_failed": ErrorRow(409, -32009, 4, "The run did not complete"),
    "idempotency_key_reused": ErrorRow(409, -32009, 4, "The key was used for another request"),
    "quota_exceeded": ErrorRow(429, -32003, 5, "A limit is reached"),
    "not_allowed": ErrorRow(403, -32003, 5, "Not allowed"),
    "payload_too_large": ErrorRow(413, -32602, 2, "Too large"),
    "answer_too_large": ErrorRow(413, -32003, 5, "The answer would be too large"),
    "unreachable": ErrorRow(503, -32020, 6, "No server answered"),
    "store_unavailable": ErrorRow(503, -32020, 6, "The store did not answer"),
    "pipeline_failed": ErrorRow(500, -32603, 1, "A stage failed"),
}
"""Every code has a row; a test compares this with the tree of errors."""

_BY_CODE = {
    kind.code: kind
    for kind in (
        errors.InvalidSchedule,
        errors.InvalidTrigger,
        errors.TriggerNeverFires,
        errors.InvalidRequest,
        errors.NotFound,
        errors.MethodNotFound,
        errors.Conflict,
        errors.OverlapConflict,
        errors.RevisionConflict,
        errors.RunFailed,
        errors.KeyReused,
        errors.QuotaExceeded,
        errors.NotAllowed,
        errors.PayloadTooLarge,
        errors.AnswerTooLarge,
        errors.StoreUnavailable,
    )
}


def error_of(code: str, message: str, *, field: str = "") -> errors.NoonmarkError:
    """The error of that code, as whoever is told of it by a server raises it again."""
    return _BY_CODE.get(code, errors.NoonmarkError)(message, field=field)


def told(error: errors.NoonmarkError) -> dict[str, object]:
    """What every surface tells of an error, whatever it puts around it."""
    told: dict[str, object] = {"code": error.code, "detail": error.message}
    if error.field:
        told["field"] = error.field
    if isinstance(error, errors.InvalidSchedule) and len(error.problems) > 1:
        told["problems"] = [
            {"field": one.field, "code": one.code, "detail": one.message} for one in error.problems[:MAX_PROBLEMS]
        ]
    return told


MAX_PROBLEMS = 100
"""So many things that are wrong with one document are told."""
