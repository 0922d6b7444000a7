"""A target composed of others, one per kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.schedule import TRUSTED
from noonmark.ports.target import AwaitsOthers
from noonmark.targets.outcomes import undeliverable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.targets.permissions import TargetPermissions
    from noonmark.ports.target import Assignment, Engine, Report, Reported, Target


class CompositeTarget:
    """Dispatches each assignment to the target of its kind. The kind is the first part of a route."""

    def __init__(
        self,
        by_kind: Mapping[str, Target],
        permissions: TargetPermissions | None = None,
        engine: Engine | None = None,
    ) -> None:
        """With `permissions`, what a tenant may not use is not delivered, unless a program declared it.

        The `engine` gets the occurrences of its routes. Steps of workflows that this node holds stay here.
        """
        self._by_kind, self._permissions, self._engine = dict(by_kind), permissions, engine
        self._targets = tuple(dict.fromkeys([*by_kind.values(), *([] if engine is None else [engine])]))
        """Each once: one may serve several kinds."""
        self._awaiting = [target for target in self._targets if isinstance(target, AwaitsOthers)]

    def routes(self) -> tuple[str, ...]:
        """Return the routes of all targets."""
        return tuple(dict.fromkeys(route for target in self._targets for route in target.routes()))

    def adopt(self, routes: Collection[str]) -> bool:
        """Offer each target the routes of its kind."""
        adopted = [
            target.adopt([route for route in routes if _kind(route) == kind]) for kind, target in self._by_kind.items()
        ]
        return any(adopted)

    def open(self, report: Report, now: Callable[[], Micros]) -> None:
        """Open all targets. Reports of steps go to the workflow that they belong to."""

        def forward(assignment: Assignment, reported: Reported) -> None:
            (assignment.report_to or report)(assignment, reported)

        self._report, self._now = forward, now
        for target in self._targets:
            target.open(forward, now)

    def deliver(self, assignments: Sequence[Assignment]) -> None:
        """Pass each target its assignments in one call."""
        if self._permissions is not None:
            assignments = [one for one in assignments if self._is_allowed(one)]
            if not assignments:
                return
        if self._engine is not None:
            assignments = self._hand_over(self._engine, assignments)
            if not assignments:
                return
        if len(kinds := {_kind(route) for route in {one.occurrence.route for one in assignments}}) == 1:
            self._by_kind[kinds.pop()].deliver(assignments)
            return
        for kind in kinds:
            self._by_kind[kind].deliver([one for one in assignments if _kind(one.occurrence.route) == kind])

    @staticmethod
    def _hand_over(engine: Engine, assignments: Sequence[Assignment]) -> list[Assignment]:
        """Hand the engine its assignments; returns the others."""
        given = [one for one in assignments if one.report_to is None and engine.serves(one.occurrence.route)]
        if given:
            engine.deliver(given)
        taken = set(given)
        return [one for one in assignments if one not in taken]

    def reconcile(self) -> None:
        """Let the engine compare what it runs with the ledger."""
        if self._engine is not None:
            self._engine.reconcile()

    def _is_allowed(self, assignment: Assignment) -> bool:
        """Whether the tenant may use the target; if not, that is the outcome."""
        schedule = assignment.schedule
        if self._permissions is None or schedule.source == TRUSTED:
            return True
        refused = self._permissions.problem(schedule.owner.tenant, schedule.declaration.target)
        if refused is not None:
            assignment.is_closed = True
            self._report(assignment, undeliverable(refused[1], now=max(self._now(), assignment.begins)))
        return refused is None

    def wake(self) -> None:
        """Wake the targets with work that others end."""
        for target in self._awaiting:
            target.wake()

    def withdraw(self) -> list[Assignment]:
        """Withdraw from all targets. Steps are not handed back: their workflow is."""
        withdrawn = [assignment for target in self._targets for assignment in target.withdraw()]
        return [assignment for assignment in withdrawn if assignment.report_to is None]

    def close(self) -> None:
        """Close all targets."""
        for target in self._targets:
            target.close()


def _kind(route: str) -> str:
    return route.partition(":")[0]
