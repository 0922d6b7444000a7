"""Logs: one line per record of Noonmark, of the web server and of the functions that it runs.

No terminal, file or JSON parser can be fooled by a line: secrets are masked, lengths are bounded, control characters
are escaped.
"""

from __future__ import annotations

import json
import logging
import sys
from math import isfinite
from typing import TYPE_CHECKING, Any, TextIO

import structlog

from noonmark.core.instants import micros_to_seconds
from noonmark.core.lifecycle import Phase
from noonmark.core.redaction import MASK, PINGS, is_secret_name, redact, redact_ping
from noonmark.ports.events import (
    Abandoned,
    Claimed,
    LeaseLost,
    Matched,
    NodeStarted,
    NodeStopped,
    Settled,
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
MAX_SETTLED_LINES = 50
"""Up to this many completions reported together get a line each."""
_ACCESS = "uvicorn.access"
_SECRETS = "/secrets/"
logger = logging.getLogger("noonmark.work")


def configure(*, level: str = "info", form: str = "json", stream: TextIO | None = None) -> None:
    """Make all loggers of this process write to the stream; the default is standard error.

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
    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[_parse_access, remove_meta, _sanitize, FORMATS[form]],
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
    # At debug level it logs the whole response to each request that a schedule sends.
    logging.getLogger("httpcore2").setLevel(logging.INFO)


class CompositeSink:
    """Passes events of the driver to several sinks, also when one of them fails."""

    def __init__(self, *sinks: EventSink) -> None:
        self._sinks = sinks

    def tell(self, events: Sequence[DriverEvent]) -> None:
        """Pass the events on."""
        for sink in self._sinks:
            try:
                sink.tell(events)
            except Exception:
                logger.exception("%s failed", type(sink).__name__)


class LogSink:
    """Logs what a node does with its occurrences.

    The driver itself logs errors, occurrences that ended undelivered, and changes of the leader; this is the rest.
    """

    def tell(self, events: Sequence[DriverEvent]) -> None:
        """Log a line per event that the level admits; many completions at once share one."""
        if not logger.isEnabledFor(logging.INFO):
            events = [one for one in events if isinstance(one, Abandoned)]
        elif not logger.isEnabledFor(logging.DEBUG):
            events = self._summarize(events)
        for event in events:
            self._log(event)

    def _summarize(self, events: Sequence[DriverEvent]) -> Sequence[DriverEvent]:
        """Log many completions as one line, and return the rest. A line takes longer than a run."""
        others = [one for one in events if not (isinstance(one, Settled) and one.phase is Phase.COMPLETED)]
        completed = len(events) - len(others)
        if completed <= MAX_SETTLED_LINES:
            return events
        logger.info("%d completed", completed)
        return others

    def _log(self, event: DriverEvent) -> None:
        match event:
            case Settled(occurrence, Phase.COMPLETED, _, run, _):
                seconds = 0 if run.ended is None else micros_to_seconds(run.ended - run.started)
                logger.info("completed in %.6f s", seconds, extra=_ids(occurrence) | {"run_id": run.id})
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
    return {"occurrence_id": occurrence.id, "schedule_id": occurrence.schedule_id}


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
    """Format an event for people: the time, the level, the message, and the rest as `name=value`."""
    rest = (f"{_escape(name)}={_quote(value)}" for name, value in event.items() if name not in HEAD)
    head = (str(event.get(name, "")) for name in HEAD)
    return " ".join(part for part in (*map(_escape, head), *rest) if part)


FORMATS = {"json": _as_json, "text": _as_text}


def _escape(text: str) -> str:
    """Escape unprintable characters, such as control and bidirectional ones."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def _quote(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return _escape(text) if text and " " not in text else f'"{_escape(text)}"'


def _to_json_value(name: str, value: object, depth: int) -> Any:  # noqa: ANN401 - anything may be logged
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
