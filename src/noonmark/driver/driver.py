"""The driver: a node and its steps, each of which can be called separately."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.settlement import RunInProgress
from noonmark.driver.node import Node
from noonmark.driver.steps.admit import admit_once
from noonmark.driver.steps.claim import claim_once, release, renew_once
from noonmark.driver.steps.heartbeat import beat_if_routes_changed, lead_once, leave
from noonmark.driver.steps.maintenance import (
    adopt_once,
    guard_once,
    is_asked_to_stop,
    prune_once,
    reap_once,
    rewind_once,
)
from noonmark.driver.steps.match import match_once
from noonmark.driver.steps.plan import plan_once
from noonmark.driver.steps.settle import hand_back, progress_once, settle_once
from noonmark.driver.steps.takeover import take_over_once

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.driver.steps.reports import (
        AdmitReport,
        ClaimReport,
        LeadReport,
        MatchReport,
        PlanReport,
        ProgressReport,
        PruneReport,
        ReapReport,
        RenewReport,
        RewindReport,
        SettleReport,
        TakeoverReport,
    )
    from noonmark.driver.store_executor import Executor
    from noonmark.ports.runtime import Runtime
    from noonmark.ports.target import Assignment, Reported


class Driver:
    """The steps of a node. Every step reads, decides, commits and reports what it did."""

    def __init__(
        self, runtime: Runtime, executor: Executor | None = None, lease_executor: Executor | None = None
    ) -> None:
        """Does nothing until a step is called. Without an executor, the store is called inline.

        `lease_executor` renews leases, if it is given.
        """
        self.node = Node(runtime, executor, lease_executor)

    def report(self, assignment: Assignment, delivered: Reported) -> None:
        """Record the end of a delivery, which `settle_once` writes, or its output so far, for `progress_once`.

        From any thread.
        """
        if isinstance(delivered, RunInProgress):
            self.node.underway[assignment.occurrence.id] = assignment, delivered
        else:
            self.node.finished.append((assignment, delivered))

    async def match_once(self) -> MatchReport:
        """Match events with the schedules that subscribe to them."""
        return await match_once(self.node)

    async def plan_once(self) -> PlanReport:
        """Plan the schedules whose time has come."""
        return await plan_once(self.node)

    async def claim_once(self, *, only: str | None = None) -> ClaimReport:
        """Lease what is due soon; with `only`, just that occurrence."""
        return await claim_once(self.node, only=only)

    async def admit_once(self) -> AdmitReport:
        """Decide what is due, and hand starts to the target."""
        return await admit_once(self.node)

    async def settle_once(self) -> SettleReport:
        """Write the ends of deliveries."""
        return await settle_once(self.node)

    async def progress_once(self) -> ProgressReport:
        """Write the output so far of deliveries in progress."""
        return await progress_once(self.node)

    async def renew_once(self) -> RenewReport:
        """Extend the leases."""
        return await renew_once(self.node)

    async def lead_once(self) -> LeadReport:
        """Take or renew leadership, or learn who has it."""
        return await lead_once(self.node)

    async def take_over_once(self) -> TakeoverReport:
        """End the leases of nodes on this machine whose process is gone."""
        return await take_over_once(self.node)

    async def adopt_once(self) -> bool:
        """Serve functions that other processes registered since the last call."""
        return await adopt_once(self.node)

    async def is_asked_to_stop(self) -> bool:
        """Whether another process asked to stop something that this node delivers."""
        return await is_asked_to_stop(self.node)

    async def reap_once(self) -> ReapReport:
        """Send a heartbeat; end deliveries past their deadline, and occurrences that no node can serve."""
        return await reap_once(self.node)

    async def beat_if_routes_changed(self) -> None:
        """Send a heartbeat if the routes differ from those of the last one."""
        await beat_if_routes_changed(self.node)

    async def rewind_once(self) -> RewindReport:
        """Plan again what a fast clock had planned too far."""
        return await rewind_once(self.node)

    async def prune_once(self) -> PruneReport:
        """Delete old and surplus history, if this node is the leader."""
        return await prune_once(self.node)

    async def guard_once(self) -> int:
        """Pause schedules that spend far more than they used to, if this node is the leader; returns how many."""
        return await guard_once(self.node)

    async def release(self) -> int:
        """Release every claim that has not started; returns how many."""
        return await release(self.node)

    async def leave(self) -> None:
        """Record that this node has stopped, and give up leadership."""
        await leave(self.node)

    def withdraw(self) -> int:
        """Take back assignments that have not begun, for `settle_once` to write; returns how many."""
        return hand_back(self.node, self.node.runtime.target.withdraw())

    def hand_back(self, *, waits: bool = False) -> int:
        """Give up deliveries, for `settle_once` to write; returns how many.

        With `waits`, those that can be stopped are reported when they have ended.
        """
        return hand_back(self.node, waits=waits)

    async def next_time(self) -> Micros | None:
        """When there is next something to match, plan, claim or decide."""
        stored = await self.node.executor.call(self.node.store.next_time, self.node.runtime.target.routes())
        times = [time for time in (stored, self.node.next_decision) if time is not None]
        return min(times, default=None)
