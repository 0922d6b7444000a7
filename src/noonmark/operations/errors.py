"""Errors as HTTP statuses, JSON-RPC codes and exit codes: one table, by the error's code."""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from noonmark.core import errors
from noonmark.core.redaction import redact_keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from noonmark.operations.service import Caller

logger = logging.getLogger("noonmark.rest")


class ErrorRow(NamedTuple):
    """One code: the HTTP status, the JSON-RPC code, the exit code of a command, and a title."""

    http: int
    jsonrpc: int
    exit: int
    title: str


STATUS: Mapping[str, ErrorRow] = {
    "error": ErrorRow(500, -32603, 1, "Internal error"),
    "invalid_schedule": ErrorRow(400, -32602, 2, "Invalid schedule"),
    "invalid_trigger": ErrorRow(400, -32602, 2, "Invalid trigger"),
    "trigger_never_fires": ErrorRow(400, -32602, 2, "Trigger never fires"),
    "invalid_bundle": ErrorRow(400, -32602, 2, "Invalid bundle"),
    "invalid_request": ErrorRow(400, -32602, 2, "Invalid request"),
    "invalid_workflow": ErrorRow(400, -32602, 2, "Invalid workflow"),
    "not_found": ErrorRow(404, -32023, 3, "Not found"),
    "method_not_found": ErrorRow(404, -32601, 3, "Unknown operation"),
    "conflict": ErrorRow(409, -32009, 4, "Conflict with the current state"),
    "overlap": ErrorRow(409, -32009, 4, "A run is in flight"),
    "revision_conflict": ErrorRow(409, -32009, 4, "Revision conflict"),
    "run_failed": ErrorRow(409, -32009, 4, "Run failed"),
    "idempotency_key_reused": ErrorRow(409, -32009, 4, "Idempotency key reused"),
    "quota_exceeded": ErrorRow(429, -32003, 5, "Limit reached"),
    "unauthenticated": ErrorRow(401, -32001, 5, "Not authenticated"),
    "not_allowed": ErrorRow(403, -32003, 5, "Not allowed"),
    "missing_scope": ErrorRow(403, -32003, 5, "Missing scope"),
    "payload_too_large": ErrorRow(413, -32602, 2, "Payload too large"),
    "answer_too_large": ErrorRow(413, -32003, 5, "Answer too large"),
    "unreachable": ErrorRow(503, -32020, 6, "Server unreachable"),
    "store_unavailable": ErrorRow(503, -32020, 6, "Store unavailable"),
    "pipeline_failed": ErrorRow(500, -32603, 1, "Pipeline failed"),
    "missing_extra": ErrorRow(501, -32603, 1, "Not installed"),
}
"""Every code of `core.errors` has a row."""

_BY_CODE = {
    kind.code: kind
    for kind in (
        errors.InvalidSchedule,
        errors.InvalidTrigger,
        errors.TriggerNeverFires,
        errors.InvalidBundle,
        errors.InvalidRequest,
        errors.InvalidWorkflow,
        errors.NotFound,
        errors.MethodNotFound,
        errors.Conflict,
        errors.OverlapConflict,
        errors.RevisionConflict,
        errors.RunFailed,
        errors.KeyReused,
        errors.QuotaExceeded,
        errors.Unauthenticated,
        errors.NotAllowed,
        errors.MissingScope,
        errors.PayloadTooLarge,
        errors.AnswerTooLarge,
        errors.StoreUnavailable,
        errors.MissingExtra,
    )
}


def error_of(code: str, message: str, *, field: str = "") -> errors.NoonmarkError:
    """The error of a code, which a client raises again."""
    return _BY_CODE.get(code, errors.NoonmarkError)(message, field=field)


@contextmanager
def hidden_cause(request_id: str) -> Iterator[None]:
    """Log why the store does not answer, and tell the caller only that it does not: the cause names the database."""
    try:
        yield
    except errors.StoreUnavailable as error:
        logger.warning("the store does not answer: %s", error.message, extra={"request_id": request_id})
        raise errors.StoreUnavailable(
            "the store does not answer; the server log has the cause under this request_id"
        ) from None


def hidden_cause_from(caller: Caller) -> AbstractContextManager[None]:
    """The same, unless the caller is an administrator of all tenants."""
    return nullcontext() if caller.is_root else hidden_cause(caller.request_id)


def error_document(error: errors.NoonmarkError) -> dict[str, object]:
    """The members that an error has in every API. A key that was sent in the wrong place is not repeated."""
    document: dict[str, object] = {"code": error.code, "detail": redact_keys(error.message)}
    if error.field:
        document["field"] = redact_keys(error.field)
    if isinstance(error, errors.InvalidSchedule) and len(error.problems) > 1:
        document["problems"] = [
            {"field": redact_keys(problem.field), "code": problem.code, "detail": redact_keys(problem.message)}
            for problem in error.problems[:MAX_PROBLEMS]
        ]
    if isinstance(error, errors.QuotaExceeded) and error.limit is not None:
        document["limit"] = dict(error.limit)
    return document


_TOOL_CODES = {
    "not_found": -32004,
    **dict.fromkeys(("missing_scope", "not_allowed", "missing_extra", "store_unavailable"), -32001),
}


def tool_code(code: str) -> int:
    """The number of an error of a tool: invalid arguments, not found, not available to the caller, or anything else."""
    is_invalid = STATUS[code].jsonrpc == -32602
    return -32602 if is_invalid else _TOOL_CODES.get(code, -32000)


MAX_PROBLEMS = 100
"""How many problems of one document are listed."""
