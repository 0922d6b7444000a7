"""What happened: told by the scheduler, kept for whoever draws or prints it."""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from noonmark.ports.events import Ended, Planned, Settled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noonmark.core.occurrence import Occurrence
    from noonmark.ports.events import DriverEvent

BUCKETS = (1, 2, 5, 10, 50)
"""Milliseconds of lateness; what is later than the last is counted beyond it."""


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened."""

    at: datetime
    job_id: str
    phase: str
    words: str


class Story:
    """Takes note of ends and gaps, from the scheduler's own thread."""

    def __init__(self) -> None:
        """Nothing happened yet."""
        self._lock = threading.Lock()
        self.lines: deque[Line] = deque(maxlen=200)
        self.counts: Counter[tuple[str, str]] = Counter()
        self.last: dict[str, Line] = {}
        self.lateness: list[float] = []
        self.on_line: Callable[[Line], None] = lambda _: None

    def report(self, events: Sequence[DriverEvent]) -> None:
        """Take note of what has happened."""
        for one in events:
            match one:
                case Settled():
                    self._settled(one)
                case Ended():
                    self._note(one.occurrence, str(one.occurrence.phase), _why(one.occurrence))
                case Planned():
                    for row in one.plan.closed:
                        self._note(row, str(row.phase), _missed(row), max(1, row.missed_count))

    def histogram(self) -> list[tuple[str, int]]:
        """How many starts were how late."""
        with self._lock:
            lateness = list(self.lateness)
        edges = (0, *BUCKETS)
        counts = [sum(low <= late < high for late in lateness) for low, high in zip(edges, BUCKETS, strict=False)]
        named = [f"< {high} ms" for high in BUCKETS]
        return [*zip(named, counts, strict=True), (f"{BUCKETS[-1]} ms or more", len(lateness) - sum(counts))]

    def _settled(self, settled: Settled) -> None:
        one, run = settled.occurrence, settled.run
        late = (run.started - one.due) / 1_000
        with self._lock:
            self.lateness.append(late)
        took = 0 if run.ended is None else (run.ended - run.started) / 1_000
        words = f"{settled.reason.sentence[:-1]}, attempt {run.attempt}, {late:.1f} ms late, took {took:.1f} ms"
        self._note(one, "retrying" if settled.retry_at is not None else str(settled.phase), words)

    def _note(self, one: Occurrence, phase: str, words: str, count: int = 1) -> None:
        line = Line(datetime.now().astimezone(), one.schedule_id, phase, words)
        with self._lock:
            self.lines.append(line)
            self.counts[one.schedule_id, phase] += count
            self.last[one.schedule_id] = line
        self.on_line(line)


def _why(one: Occurrence) -> str:
    return "" if one.reason is None else one.reason.sentence[:-1]


def _missed(row: Occurrence) -> str:
    """A gap: how many fires, from when to when."""
    if row.missed_from is None or row.missed_to is None:
        return _why(row)
    first, last = (at.astimezone().strftime("%H:%M:%S") for at in (row.missed_from, row.missed_to))
    span = first if row.missed_count == 1 else f"{first} to {last}"
    fires = "1 fire" if row.missed_count == 1 else f"{row.missed_count:,} fires"
    return f"{fires} missed, {span}: {_why(row)}"
