"""The graph of a workflow for a terminal: a line for each step, with lines that lead from it to those that follow."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from noonmark.core.workflows.diagram import caption

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noonmark.core.workflows.definition import Definition, Step

NODE = "●"
MAX_LANES = 30
"""A graph with more lines side by side is shown as a list."""


def draw(definition: Definition) -> list[str]:
    """The steps, each after those that it depends on, with the lines of the graph on the left."""
    steps = definition.order
    graph = _lines(definition)
    if max(map(len, graph)) > 2 * MAX_LANES:
        graph = [NODE] * len(steps)
    margin, names = max(map(len, graph)), max(len(step.id) for step in steps)
    captions = [_caption(step) for step in steps]
    widest = max(map(len, captions))
    return [
        f"{line:<{margin}}  {step.id:<{names}}  {about:<{widest}}  {_after(step)}".rstrip()
        for line, step, about in zip(graph, steps, captions, strict=True)
    ]


def _caption(step: Step) -> str:
    notes = [
        note
        for note, holds in (
            ("conditional", step.when is not None),
            (f"up to {step.retry.max_attempts} attempts", step.retry.max_attempts > 1),
            ("compensated", step.compensate is not None),
        )
        if holds
    ]
    return f"{caption(step)} ({', '.join(notes)})" if notes else caption(step)


def _after(step: Step) -> str:
    return f"after {', '.join(step.depends_on)}" if step.depends_on else ""


def _lines(definition: Definition) -> list[str]:
    """The part of the graph on the line of each step."""
    remaining = Counter(upstream for step in definition.steps for upstream in step.depends_on)
    lanes: list[str | None] = []
    lines = []
    for step in definition.order:
        remaining.subtract(step.depends_on)
        joined = [lane for lane, source in enumerate(lanes) if source in step.depends_on]
        ending = [lane for lane in joined if remaining[str(lanes[lane])] == 0]
        place = ending[0] if ending else _free(lanes, max(joined, default=-1) + 1)
        lanes += [None] * (place + 1 - len(lanes))
        lines.append("".join(_cells(lanes, place, joined, ending)).rstrip())
        for lane in ending:
            lanes[lane] = None
        lanes[place] = step.id if remaining[step.id] else None
        while lanes and lanes[-1] is None:
            lanes.pop()
    return lines


def _free(lanes: list[str | None], first: int) -> int:
    """The first lane from there on that no line takes."""
    return next((lane for lane in range(first, len(lanes)) if lanes[lane] is None), max(first, len(lanes)))


def _cells(lanes: list[str | None], place: int, joined: list[int], ending: list[int]) -> Iterator[str]:
    left, right = min([place, *joined]), max([place, *joined])
    for lane, source in enumerate(lanes):
        if lane == place:
            yield NODE
        elif lane in joined:
            yield _joint(ends=lane in ending, is_first=lane == left, is_last=lane == right)
        elif left < lane < right:
            yield "─" if source is None else "┼"
        else:
            yield " " if source is None else "│"
        yield "─" if left <= lane < right else " "


def _joint(*, ends: bool, is_first: bool, is_last: bool) -> str:
    """Where a line from an earlier step meets the line to this one."""
    if is_first:
        return "└" if ends else "├"
    if is_last:
        return "┘" if ends else "┤"
    return "┴" if ends else "┼"
