"""A log filter: at debug level, libraries log all that they send, secrets included. Ours must not be logged."""

from __future__ import annotations

import logging
import threading

LOGGERS = ("connection", "http11", "http2", "proxy", "socks")


class _ThreadFilter(logging.Filter):
    """Drops records of threads that are marked as silent."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = threading.local()

    def filter(self, _record: logging.LogRecord) -> bool:
        return not getattr(self.thread, "is_silent", False)


_FILTER = _ThreadFilter()


def silence_this_thread() -> None:
    """Drop what the HTTP library logs in this thread. Other threads of the program are not affected."""
    _FILTER.thread.is_silent = True
    for name in LOGGERS:  # a filter of a logger does not apply to its children, so each gets it
        logging.getLogger(f"httpcore2.{name}").addFilter(_FILTER)


def silence_libraries(*names: str) -> None:
    """Drop what these libraries log in this thread, with all their loggers so far."""
    _FILTER.thread.is_silent = True
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in names:
            logging.getLogger(name).addFilter(_FILTER)
