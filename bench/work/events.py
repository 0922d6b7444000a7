"""Events: emitted one by one, then matched and run, beside many schedules that wait for events."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from bench.ledger import ours
from noonmark import EventTrigger, Scheduler
from noonmark.core.event import Event
from noonmark.core.filters.index import discriminator, discriminators

if TYPE_CHECKING:
    from collections.abc import Iterator


def events_matched(stored: int, each: int, by: str, emits: int, singles: int, rounds: int) -> dict[str, float]:
    """Stored schedules, `each` of one type, of which one wants an event; and events of all these types.

    A filter distinguishes them, which names a value, a range or a prefix. With `each` 0, the stored ones are of other
    types, and one more wants them all. The best of the rounds counts.
    """
    with tempfile.TemporaryDirectory() as folder:
        scheduler = Scheduler(f"sqlite:///{folder}/bench.db")
        scheduler.register_function("nothing", ours.nothing)
        scheduler.register_function("listen", _listen)
        ours.keep(scheduler, ours._schedules(scheduler, "nothing", _triggers(stored, each, by)))
        if not each:
            scheduler.schedule(ours.nothing, function_name="nothing", trigger=EventTrigger("wanted"), overlap="allow")
        scheduler.schedule(_listen, function_name="listen", trigger=EventTrigger("timed"))
        types = stored // each if each else 1
        emit_seconds, matched_seconds = [], []
        for one in range(rounds):
            begun = time.perf_counter()
            for number in range(emits):
                scheduler.emit(f"type.{number % types}" if each else "wanted", _payload(number % max(1, each)))
            emit_seconds.append(time.perf_counter() - begun)
            started = time.time()
            scheduler.start()
            matched_seconds.append(ours.settled(scheduler, emits * (one + 1)) - started)
            scheduler.stop()
        with scheduler:
            waited = percentiles_of_singles(scheduler, singles)
        return {"emitted": emits / min(emit_seconds), "rate": emits / min(matched_seconds), **waited}


def emit_to_start(url: str, count: int) -> dict[str, float]:
    """From the call of emit to the start of the function that it sets off, one event at a time."""
    scheduler = Scheduler(url)
    scheduler.schedule(_listen, function_name="listen", trigger=EventTrigger("timed"))
    with scheduler:
        return percentiles_of_singles(scheduler, count)


def shown(each: int, by: str, count: int) -> float:
    """How many of the triggers of one type an event is held against, on average."""
    of_type = Counter(discriminator(_filters(number, by)) for number in range(each))
    fields = {one.fields for one in of_type}
    events = [Event(event_type="type.0", emitted=0, payload=_payload(number % each)) for number in range(count)]
    return sum(of_type[own] for event in events for own in discriminators(event, fields)) / count


VALUE, RANGE, PREFIX = "value", "range", "prefix"
WIDTH = 10
"""Of the ranges: they are side by side."""
_STARTED = threading.Event()
_WAITED: list[float] = []


def _listen(context: object) -> None:
    _WAITED.append(time.perf_counter() - context.payload)  # type: ignore[attr-defined]
    _STARTED.set()


def percentiles_of_singles(scheduler: Scheduler, count: int) -> dict[str, float]:
    """How long each of some events took to start its function."""
    for _ in range(count):
        _STARTED.clear()
        scheduler.emit("timed", time.perf_counter())
        assert _STARTED.wait(30), "the event set nothing off"
    return ours.percentiles(_WAITED)


def _triggers(stored: int, each: int, by: str) -> Iterator[EventTrigger]:
    if not each:
        return (EventTrigger(f"other.{number}") for number in range(stored))
    types = stored // each
    return (EventTrigger(f"type.{number % types}", _filters(number // types, by)) for number in range(stored))


def _filters(number: int, by: str) -> dict[str, object]:
    if by == PREFIX:
        return {"path": {"prefix": f"/{number}/"}}
    return {"number": {"gte": number * WIDTH, "lt": (number + 1) * WIDTH} if by == RANGE else number * WIDTH}


def _payload(number: int) -> dict[str, object]:
    return {"number": number * WIDTH, "path": f"/{number}/orders"}
