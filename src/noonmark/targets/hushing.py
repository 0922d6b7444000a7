"""Hushing: the HTTP library writes all that it sends to a debug log, secrets too; but nothing of our requests."""

from __future__ import annotations

import logging
import threading

LOGGERS = ("connection", "http11", "http2", "proxy", "socks")


class _Ours(logging.Filter):
    """Lets nothing pass that is said in a thread of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.here = threading.local()

    def filter(self, _record: logging.LogRecord) -> bool:
        return not getattr(self.here, "is_ours", False)


_OURS = _Ours()


def hush() -> None:
    """Let the library write nothing of what this thread does. What others use it for is theirs to hear of."""
    _OURS.here.is_ours = True
    for name in LOGGERS:  # what a logger filters is not what those below it say, so each has to be told
        logging.getLogger(f"httpcore2.{name}").addFilter(_OURS)
