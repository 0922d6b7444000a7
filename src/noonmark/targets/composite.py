"""A target composed of others, one per kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.ports.target import Assignment, Report, Target


class CompositeTarget:
    """Dispatches each assignment to the target of its kind. The kind is the first part of a route."""

    def __init__(self, by_kind: Mapping[str, Target]) -> None:
        self._by_kind = dict(by_kind)

    def routes(self) -> tuple[str, ...]:
        """Return the routes of all targets."""
        return tuple(route for target in self._by_kind.values() for route in target.routes())

    def adopt(self, routes: Collection[str]) -> bool:
        """Offer each target the routes of its kind."""
        adopted = [
            target.adopt([route for route in routes if _kind(route) == kind]) for kind, target in self._by_kind.items()
        ]
        return any(adopted)

    def open(self, report: Report, now: Callable[[], Micros]) -> None:
        """Open all targets."""
        for target in self._by_kind.values():
            target.open(report, now)

    def deliver(self, assignments: Sequence[Assignment]) -> None:
        """Pass each target its assignments in one call."""
        if len(kinds := {_kind(one.occurrence.route) for one in assignments}) == 1:
            self._by_kind[kinds.pop()].deliver(assignments)
            return
        for kind in kinds:
            self._by_kind[kind].deliver([one for one in assignments if _kind(one.occurrence.route) == kind])

    def withdraw(self) -> list[Assignment]:
        """Withdraw from all targets."""
        return [assignment for target in self._by_kind.values() for assignment in target.withdraw()]

    def close(self) -> None:
        """Close all targets."""
        for target in self._by_kind.values():
            target.close()


def _kind(route: str) -> str:
    return route.partition(":")[0]
