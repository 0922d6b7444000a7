"""Several kinds of targets in one node: each is given the work of its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.ports.target import Assignment, Report, Target


class Several:
    """One target made of others, by the kind of work that each can do."""

    def __init__(self, by_kind: Mapping[str, Target]) -> None:
        """The kind is what a route begins with."""
        self._by_kind = dict(by_kind)

    def routes(self) -> tuple[str, ...]:
        """Those of all of them."""
        return tuple(route for target in self._by_kind.values() for route in target.routes())

    def adopt(self, routes: Collection[str]) -> bool:
        """Offer each the routes of its kind."""
        more = [target.adopt([one for one in routes if _kind(one) == kind]) for kind, target in self._by_kind.items()]
        return any(more)

    def open(self, report: Report, now: Callable[[], Micros]) -> None:
        """Make all of them ready."""
        for target in self._by_kind.values():
            target.open(report, now)

    def deliver(self, assignments: Sequence[Assignment]) -> None:
        """Give each what is of its kind, all at once."""
        if len(kinds := {_kind(one.occurrence.route) for one in assignments}) == 1:
            self._by_kind[kinds.pop()].deliver(assignments)
            return
        for kind in kinds:
            self._by_kind[kind].deliver([one for one in assignments if _kind(one.occurrence.route) == kind])

    def withdraw(self) -> list[Assignment]:
        """What none of them has begun."""
        return [one for target in self._by_kind.values() for one in target.withdraw()]

    def close(self) -> None:
        """Begin nothing more."""
        for target in self._by_kind.values():
            target.close()


def _kind(route: str) -> str:
    return route.partition(":")[0]
