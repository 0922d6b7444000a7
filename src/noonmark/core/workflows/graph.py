"""The graph of a workflow: which step waits for which, what can start, and what never can."""

from __future__ import annotations

from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Graph:
    """Steps by their ids, each with the ids of those that it depends on, all of which are steps.

    What comes before a step is a number with a bit for each step: a thousand steps that all depend on each other take
    a hundred thousand steps of work, and not a billion.
    """

    def __init__(self, needs: Mapping[str, Iterable[str]]) -> None:
        """Put the steps in order, as far as that goes."""
        self._needs = {step: tuple(dict.fromkeys(upstream)) for step, upstream in needs.items()}
        self._place = {step: place for place, step in enumerate(self._needs)}
        self.layers = self._sorted()
        """The steps that can start at once, then those that can start after them, and so on."""
        self._before: dict[str, int] = {}
        for step in (step for layer in self.layers for step in layer):
            before = 0
            for upstream in self._needs[step]:
                before |= self._before[upstream] | 1 << self._place[upstream]
            self._before[step] = before
        self.blocked = [step for step in self._needs if step not in self._before]
        """The steps that can never start: those of cycles, and those that come after one."""

    def is_before(self, earlier: str, later: str) -> bool:
        """Whether a step that can start depends on another one, directly or through others."""
        return bool(self._before[later] >> self._place[earlier] & 1)

    def after(self, step: str) -> frozenset[str]:
        """All steps that depend on one, directly or through others."""
        return frozenset(later for later in self._before if self.is_before(step, later))

    def cycles(self) -> list[list[str]]:
        """One cycle for each group of steps that all wait for each other; each step waits for the next one."""
        place = {step: number for number, step in enumerate(self.blocked)}
        ahead = [sum(1 << place[need] for need in self._needs[step] if need in place) for step in self.blocked]
        for middle in range(len(ahead)):
            for number, reached in enumerate(ahead):
                if reached >> middle & 1:
                    ahead[number] |= ahead[middle]
        cycle_groups, grouped = [], 0
        for number, step in enumerate(self.blocked):
            if grouped >> number & 1 or not ahead[number] >> number & 1:
                continue
            group = {one for one in self.blocked if ahead[number] >> place[one] & ahead[place[one]] >> number & 1}
            grouped |= sum(1 << place[one] for one in group)
            cycle_groups.append(self._cycle(step, group))
        return cycle_groups

    def _sorted(self) -> list[list[str]]:
        sorter = TopologicalSorter(self._needs)
        # What no cycle blocks is still sorted.
        with suppress(CycleError):
            sorter.prepare()
        layers = []
        while sorter.is_active():
            ready = sorted(sorter.get_ready(), key=self._place.__getitem__)
            sorter.done(*ready)
            layers.append(ready)
        return layers

    def _cycle(self, start: str, group: set[str]) -> list[str]:
        """A cycle among steps that all lead to each other."""
        path: dict[str, None] = {}
        step = start
        while step not in path:
            path[step] = None
            step = next(need for need in self._needs[step] if need in group)
        steps = list(path)
        return steps[steps.index(step) :]
