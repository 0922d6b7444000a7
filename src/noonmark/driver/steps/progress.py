"""Progress: the output so far of all deliveries in progress is written in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.settlement import interim
from noonmark.driver.steps.reports import ProgressReport

if TYPE_CHECKING:
    from noonmark.core.settlement import Underway
    from noonmark.driver.node import Node
    from noonmark.ports.target import Assignment


async def progress_once(node: Node) -> ProgressReport:
    """Write new output. What could not be written stays for the next time, unless there is newer output."""
    reports: list[tuple[Assignment, Underway]] = []
    while node.underway:
        reports.append(node.underway.popitem()[1])
    reports = [(assignment, underway) for assignment, underway in reports if _goes_on(node, assignment)]
    if not reports:
        return ProgressReport()
    written = [False] * len(reports)
    interims = [interim(assignment.occurrence, underway, node=node.id) for assignment, underway in reports]
    try:
        written = await node.executor.call(node.store.progress, interims)
    finally:
        for (assignment, underway), done in zip(reports, written, strict=True):
            if not done and _goes_on(node, assignment):
                node.underway.setdefault(assignment.occurrence.id, (assignment, underway))
    return ProgressReport(written=sum(written), left=len(written) - sum(written))


def _goes_on(node: Node, assignment: Assignment) -> bool:
    return not assignment.is_closed and node.deliveries.get(assignment.occurrence.id) is assignment
