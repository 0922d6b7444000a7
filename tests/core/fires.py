"""Nominal times for the tests of the policies: so simple that they are right at sight."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field


@dataclass
class Listed:
    """Exactly these times, in order."""

    times: list[int]
    jitter: int = 0

    def next_micros(self, after):
        index = bisect_right(self.times, after)
        return self.times[index] if index < len(self.times) else None

    def previous_micros(self, before):
        index = bisect_left(self.times, before)
        return self.times[index - 1] if index else None

    def count_micros(self, after, until):
        return sum(after < time <= until for time in self.times)


@dataclass
class Every:
    """Every multiple of `step`, forever in both directions; `calls` counts the questions asked."""

    step: int
    jitter: int = 0
    calls: dict[str, int] = field(default_factory=lambda: {"next": 0, "previous": 0, "count": 0})

    def next_micros(self, after):
        self.calls["next"] += 1
        return (after // self.step + 1) * self.step

    def previous_micros(self, before):
        self.calls["previous"] += 1
        return -(-before // self.step) * self.step - self.step

    def count_micros(self, after, until):
        self.calls["count"] += 1
        return max(0, until // self.step - after // self.step)
