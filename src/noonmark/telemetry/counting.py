"""Counting: numbers that are added up as fast as a node works, and made into metrics only when somebody looks."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prometheus_client import Metric


class Count:
    """How often something happened, for each combination of its labels; without labels there is one from the start."""

    def __init__(self, name: str, meaning: str, *labels: str) -> None:
        """Nothing has happened yet."""
        self._name, self._meaning, self._labels = f"noonmark_{name}", meaning, labels
        self._by: defaultdict[tuple[str, ...], int] = defaultdict(int)
        if not labels:
            self._by[()] = 0

    def add(self, number: int, *labels: str) -> None:
        """It happened so often."""
        self._by[labels] += number

    def collect(self) -> Metric:
        """As the library shows it; its name has the ending of a counter."""
        family = CounterMetricFamily(self._name, self._meaning, labels=self._labels)
        for labels, number in sorted(self._by.items()):
            family.add_metric(labels, number)
        return family


class Distribution:
    """How long something took, by the upper bounds of its buckets, in seconds, for each combination of its labels."""

    def __init__(self, name: str, meaning: str, *labels: str, bounds: Sequence[float]) -> None:
        """Nothing was measured yet."""
        self._name, self._meaning, self._labels = f"noonmark_{name}", meaning, labels
        self._bounds = bounds
        self._counts: defaultdict[tuple[str, ...], list[int]] = defaultdict(lambda: [0] * (len(bounds) + 1))
        self._sums: defaultdict[tuple[str, ...], float] = defaultdict(float)
        if not labels:
            self._counts[()] = self._counts[()]  # it is there from the start

    def add(self, seconds: float, *labels: str) -> None:
        """One took so long."""
        self._counts[labels][bisect_left(self._bounds, seconds)] += 1
        self._sums[labels] += seconds

    def collect(self) -> Metric:
        """As the library shows it: each bucket has those of the smaller ones, too."""
        family = HistogramMetricFamily(self._name, self._meaning, labels=self._labels)
        names = [*(f"{float(bound)}" for bound in self._bounds), "+Inf"]
        for labels, counts in sorted(self._counts.items()):
            buckets = list(zip(names, accumulate(counts), strict=True))
            family.add_metric(labels, buckets, self._sums[labels])
        return family
