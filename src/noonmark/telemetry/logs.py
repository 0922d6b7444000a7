"""Logs: the records of Noonmark, of the web server and of the functions that it runs.

JSON has one line per record. In text, further lines of a message or a traceback follow, each marked as such. No
terminal, file or JSON parser can be fooled by a line: secrets are masked, lengths are bounded, control characters are
escaped.
"""

from __future__ import annotations

import json
import logging
import sys
from math import isfinite
from typing import TYPE_CHECKING, Any, TextIO

import structlog

from noonmark.core.documents import present
from noonmark.core.ids import visible_id
from noonmark.core.redaction import MASK, PINGS, is_secret_name, redact, redact_ping
from noonmark.ports.events import (
    Abandoned,
    Claimed,
    LeaseLost,
    Matched,
    NodeStarted,
    NodeStopped,
    Started,
    Waiting,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence

    from noonmark.core.occurrence import Occurrence
    from noonmark.ports.events import DriverEvent, EventSink

IDS = ("request_id", "occurrence_id", "schedule_id", "run_id", "node")
"""The `extra` fields of standard library records that are logged; others are ignored."""
MAX_TEXT = 8_000
"""Characters of one value; a traceback may be long, a hostile name too."""
MAX_ITEMS = 100
MAX_DEPTH = 4
HEAD = ("time", "level", "logger", "event")
EXCEPTION = "exception"
CONTINUED = "    | "
"""Begins each further line of a record in text; a record itself begins with its time."""
_ACCESS = "uvicorn.access"
_SECRETS = "/secrets/"
logger = logging.getLogger("noonmark.work")


def configure(
    *, level: str = "info", form: str = "auto", stream: TextIO | None = None, trace_ids: bool = False
) -> None:
    """Make all loggers of this process write to the stream; the default is standard error.

    `auto` is text if the stream is a terminal, else JSON. Each request has a line at level debug. With `trace_ids`,
    lines of requests and of occurrences have the id of their trace.

    A server binds the id of a request with `structlog.contextvars.bound_contextvars(request_id=...)`.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(IDS),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
    ]
    if trace_ids:
        from noonmark.telemetry.traces import add_trace_ids  # noqa: PLC0415 - loads OpenTelemetry

        shared.append(add_trace_ids)
    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    output = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[_parse_access, remove_meta, _sanitize, FORMATS[_resolve(form, output)]],
            pass_foreign_args=True,
        )
    )
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    logging.raiseExceptions = False  # a closed log stream must not disturb the work
    logging.captureWarnings(capture=True)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", _ACCESS):
        theirs = logging.getLogger(name)
        theirs.handlers, theirs.propagate = [], True
        theirs.setLevel(logging.NOTSET)
    access = logging.getLogger(_ACCESS)
    access.addFilter(_as_debug)
    if not root.isEnabledFor(logging.DEBUG):
        access.setLevel(logging.WARNING)  # spares the web server a record per request
    # At debug level it logs the whole response to each request that a schedule sends.
    logging.getLogger("httpcore2").setLevel(logging.INFO)


def _as_debug(record: logging.LogRecord) -> bool:
    """Give an access line the level debug; the web server logs it at level info."""
    if record.levelno == logging.INFO:
        record.levelno, record.levelname = logging.DEBUG, "DEBUG"
    return True


def _resolve(form: str, stream: TextIO) -> str:
    """The format that `auto` means for a stream."""
    if form != AUTO:
        return form
    return "text" if stream.isatty() else "json"


class CompositeSink:
    """Passes events of the driver to several sinks, also when one of them fails."""

    def __init__(self, *sinks: EventSink) -> None:
        self._sinks = sinks

    def report(self, events: Sequence[DriverEvent]) -> None:
        """Pass the events on."""
        for sink in self._sinks:
            try:
                sink.report(events)
            except Exception:
                logger.exception("%s failed", type(sink).__name__)


class LogSink:
    """Logs what a node does with its occurrences.

    The driver itself logs how occurrences ended, errors, and changes of the leader; this is the rest.
    """

    def report(self, events: Sequence[DriverEvent]) -> None:
        """Log a line per event that the level admits."""
        if not logger.isEnabledFor(logging.INFO):
            events = [one for one in events if isinstance(one, Abandoned)]
        for event in events:
            self._log(event)

    def _log(self, event: DriverEvent) -> None:
        match event:
            case NodeStarted(node):
                logger.info("worker started", extra={"node": node})
            case NodeStopped(node, handed_back):
                logger.info("worker stopped, %d handed back", handed_back, extra={"node": node})
            case LeaseLost(occurrence_id, _):
                logger.info("lease lost to another node, an edit or a callback", extra={"occurrence_id": occurrence_id})
            case Abandoned(occurrence, threads):
                logger.warning("thread still runs after its timeout; %d such threads", threads, extra=_ids(occurrence))
            case Claimed(occurrence, found_in):
                logger.debug("claimed from phase %s", found_in, extra=_ids(occurrence))
            case Started(occurrence):
                logger.debug("started", extra=_ids(occurrence))
            case Waiting(occurrence):
                logger.debug("waiting for %s", occurrence.waiting_for, extra=_ids(occurrence))
            case Matched(_, matched, occurrences):
                logger.debug("event of type %s triggered %d occurrences", matched.event_type, len(occurrences))


def _ids(occurrence: Occurrence) -> dict[str, str]:
    return present(occurrence_id=occurrence.id, schedule_id=visible_id(occurrence.schedule_id))


def _parse_access(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Split an access line of the web server into fields."""
    arguments = event.pop("positional_args", ())
    if event.get("logger") == _ACCESS and isinstance(arguments, tuple) and len(arguments) == 5:
        client, method, path, _, status = arguments
        event.update(event="request", method=method, path=_redact_path(path, status), status=status, client=client)
    return event


def _redact_path(path: str, status: int) -> str:
    """Mask the tokens of pings, and the paths of secrets.

    A caller may put a secret in place of its name, or among the parameters.
    """
    if path.startswith(PINGS):
        return redact_ping(path)
    if not path.startswith(_SECRETS):
        return path
    name, has_parameters, _ = path.partition("?")
    return (f"{_SECRETS}{MASK}" if status >= 400 else name) + (f"?{MASK}" if has_parameters else "")


def _sanitize(_logger: object, _method: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    """Mask secrets and bound the length of all values; the common fields come first."""
    values = {name: _to_json_value(name, value, 0) for name, value in event.items()}
    return {name: values.pop(name) for name in HEAD if name in values} | values


def _as_json(_logger: object, _method: str, event: Mapping[str, Any]) -> str:
    """Format an event as JSON in ASCII, so that control and bidirectional characters are escaped."""
    return json.dumps(event)


def _as_text(_logger: object, _method: str, event: Mapping[str, Any]) -> str:
    """Format an event for people: the time, the level, the message, the rest as `name=value`, then further lines."""
    message, *further = str(event.get("event", "")).split("\n")
    further += str(event.get(EXCEPTION, "")).split("\n")
    rest = (f"{_escape(name)}={_quote(value)}" for name, value in event.items() if name not in (*HEAD, EXCEPTION))
    head = (str(event.get(name, "")) for name in HEAD[:-1])
    first = " ".join(part for part in (*map(_escape, (*head, message)), *rest) if part)
    return "\n".join((first, *(f"{CONTINUED}{_escape(line)}" for line in further if line)))


AUTO = "auto"
FORMATS = {"json": _as_json, "text": _as_text}


def _escape(text: str) -> str:
    """Escape unprintable characters, such as control and bidirectional ones."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def _quote(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return _escape(text) if text and " " not in text else f'"{_escape(text)}"'


def _to_json_value(name: str, value: object, depth: int) -> Any:
    if is_secret_name(name) and value is not None:
        return MASK
    if isinstance(value, str):
        return _bounded(value)
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)):
        return value
    if isinstance(value, dict) and depth < MAX_DEPTH:
        pairs = list(value.items())[:MAX_ITEMS]
        return {_bounded(str(key)): _to_json_value(str(key), item, depth + 1) for key, item in pairs}
    if isinstance(value, list | tuple | set | frozenset) and depth < MAX_DEPTH:
        return [_to_json_value("", item, depth + 1) for item in list(value)[:MAX_ITEMS]]
    return _bounded(str(value))


def _bounded(text: str) -> str:
    """Redact a text, then cut it: half a password would not be recognised."""
    if len(text) > MAX_TEXT:
        text = text[: 2 * MAX_TEXT]
    text = redact(text)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
