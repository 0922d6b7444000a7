"""Trace context: the ids under which occurrences, their runs and events are recorded in traces.

They are computed from the ids of what they stand for, so that every node knows them without asking another one.
"""

from __future__ import annotations

from hashlib import blake2b

from noonmark.core.ids import stored_id

TRACE_BYTES = 16
SPAN_BYTES = 8


def trace_id(key: str) -> str:
    """The trace of an occurrence, or of the event with that key."""
    return _digest(key, TRACE_BYTES)


def span_id(key: str) -> str:
    """The span of an occurrence, a run, or the event with that key."""
    return _digest(key, SPAN_BYTES)


def event_key(event_id: str) -> str:
    """The key of an event; the prefix distinguishes it from an occurrence with the same id."""
    return f"event:{event_id}"


def traceparent(occurrence_id: str, run_key: str, *, is_recorded: bool = False) -> str:
    """The W3C header of a run: all runs of an occurrence, and the steps of a workflow run, are one trace."""
    return f"00-{trace_id(stored_id(occurrence_id))}-{span_id(run_key)}-{int(is_recorded):02x}"


def _digest(text: str, size: int) -> str:
    return blake2b(text.encode(), digest_size=size, person=b"noonmark-trace").hexdigest()
