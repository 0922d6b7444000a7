"""The functions of the servers that are measured, and a document that declares a schedule for one of them."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

LOOPBACK = "127.0.0.1"
FUNCTIONS = ("nothing", "tell")
TEAMS = 20


def nothing(*_: object, **__: object) -> None:
    """As little as one can do."""


def tell(context: object) -> None:
    """Report when it started, to a port of this machine."""
    started = time.perf_counter()  # the same clock in all processes of this machine
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.sendto(repr(started).encode(), (LOOPBACK, context.payload["port"]))  # type: ignore[attr-defined]


def document(number: int) -> dict[str, Any]:
    """A schedule as people declare them."""
    return {
        "name": f"report {number}",
        "description": "Sends the figures of the day before to those who asked for them.",
        "labels": {"team": f"team-{number % TEAMS}", "tier": "gold"},
        "trigger": {"type": "cron", "expression": "0 9 * * 1-5", "timezone": "America/New_York"},
        "target": {"target_kind": "function", "function": "nothing", "kwargs": {"customer": number, "format": "pdf"}},
        "overlap_policy": "skip",
        "retry_policy": {"max_attempts": 3, "backoff_seconds": 10},
        "timeout_seconds": 300,
    }


def body(number: int) -> bytes:
    """The same as it is sent."""
    return json.dumps(document(number)).encode()
