"""Logs: one line for each record, of Noonmark, of the web server and of the functions that it runs."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, TextIO

import structlog

from noonmark.telemetry.lines import as_json, as_text, guard
from noonmark.telemetry.masking import MASK

if TYPE_CHECKING:
    from collections.abc import MutableMapping

IDS = ("request_id", "occurrence_id", "schedule_id", "run_id", "node")
"""What a record of the standard library may carry as `extra`; anything else stays where it is."""
FORMATS = {"json": as_json, "text": as_text}
_ACCESS = "uvicorn.access"
_SECRETS = "/secrets/"


def configure(*, level: str = "info", form: str = "json", stream: TextIO | None = None) -> None:
    """Let all loggers of this process write to the stream, standard error unless it is said.

    Whoever answers a request binds its id with `structlog.contextvars.bound_contextvars(request_id=...)`.
    """
    before: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(IDS),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
    ]
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=before,
            processors=[_read_access, structlog.stdlib.ProcessorFormatter.remove_processors_meta, guard, FORMATS[form]],
            pass_foreign_args=True,
        )
    )
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *before, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    logging.raiseExceptions = False  # a log that nobody can read any more must not disturb the work
    logging.captureWarnings(capture=True)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", _ACCESS):
        theirs = logging.getLogger(name)
        theirs.handlers, theirs.propagate = [], True
        theirs.setLevel(logging.NOTSET)
    # Of each request that a schedule sends it would tell all that was answered.
    logging.getLogger("httpcore2").setLevel(logging.INFO)


def _read_access(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A line of the web server about a request, in parts instead of a sentence; other arguments are in their texts."""
    arguments = event.pop("positional_args", ())
    if event.get("logger") == _ACCESS and isinstance(arguments, tuple) and len(arguments) == 5:
        client, method, path, _, status = arguments
        event.update(event="request", method=method, path=_told(path, status), status=status, client=client)
    return event


def _told(path: str, status: int) -> str:
    """What was asked for. Where secrets are set, one may stand in place of its name, or among the parameters."""
    if not path.startswith(_SECRETS):
        return path
    place, has_parameters, _ = path.partition("?")
    return (f"{_SECRETS}{MASK}" if status >= 400 else place) + (f"?{MASK}" if has_parameters else "")
