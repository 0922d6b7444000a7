"""Telling: what deliveries that go on have put out so far is written, of all of them in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.settlement import interim
from noonmark.driver.steps.reports import ProgressReport

if TYPE_CHECKING:
    from noonmark.core.settlement import Underway
    from noonmark.driver.node import Node
    from noonmark.ports.target import Assignment


async def progress_once(node: Node) -> ProgressReport:
    """Write what is new of whatever goes on. What could not be written is kept for the next time, unless it is old."""
    told: list[tuple[Assignment, Underway]] = []
    while node.underway:
        told.append(node.underway.popitem()[1])
    told = [(assignment, underway) for assignment, underway in told if _goes_on(node, assignment)]
    if not told:
        return ProgressReport()
    written = [False] * len(told)
    interims = [interim(assignment.occurrence, underway, node=node.id) for assignment, underway in told]
    try:
        written = await node.executor.call(node.store.progress, interims)
    finally:
        for (assignment, underway), done in zip(told, written, strict=True):
            if not done and _goes_on(node, assignment):
                node.underway.setdefault(assignment.occurrence.id, (assignment, underway))
    return ProgressReport(written=sum(written), left=len(written) - sum(written))


def _goes_on(node: Node, assignment: Assignment) -> bool:
    return not assignment.is_closed and node.deliveries.get(assignment.occurrence.id) is assignment
