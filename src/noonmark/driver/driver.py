"""The driver: a node and its duties, each of which can be called by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.settlement import Underway
from noonmark.driver.node import Node
from noonmark.driver.steps.admit import admit_once
from noonmark.driver.steps.claim import claim_once, release, renew_once
from noonmark.driver.steps.heartbeat import lead_once, leave
from noonmark.driver.steps.maintenance import adopt_once, is_asked_to_stop, prune_once, reap_once, rewind_once
from noonmark.driver.steps.match import match_once
from noonmark.driver.steps.plan import plan_once
from noonmark.driver.steps.progress import progress_once
from noonmark.driver.steps.settle import hand_back, settle_once

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.settlement import Accepted, Delivered
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
    )
    from noonmark.driver.store_executor import Executor
    from noonmark.ports.runtime import Runtime
    from noonmark.ports.target import Assignment


class Driver:
    """What happens by itself, in the node of a runtime. Every duty reads, decides and commits, and says what it did."""

    def __init__(
        self, runtime: Runtime, executor: Executor | None = None, lease_executor: Executor | None = None
    ) -> None:
        """It does nothing until a duty is called. Without an executor, the store is called inline.

        `lease_executor` renews leases, if it is given.
        """
        self.node = Node(runtime, executor, lease_executor)

    def report(self, assignment: Assignment, delivered: Delivered | Accepted | Underway) -> None:
        """Take note of how a delivery ended, from any thread; `settle_once` writes it.

        Or of what it has put out so far, which `progress_once` writes.
        """
        if isinstance(delivered, Underway):
            self.node.underway[assignment.occurrence.id] = assignment, delivered
        else:
            self.node.finished.append((assignment, delivered))

    async def match_once(self) -> MatchReport:
        """Let events set off what waits for them."""
        return await match_once(self.node)

    async def plan_once(self) -> PlanReport:
        """Plan the schedules whose time has come."""
        return await plan_once(self.node)

    async def claim_once(self, *, only: str | None = None) -> ClaimReport:
        """Lease what falls due soon; with `only`, just that occurrence."""
        return await claim_once(self.node, only=only)

    async def admit_once(self) -> AdmitReport:
        """Decide about what is due, and hand over what starts."""
        return await admit_once(self.node)

    async def settle_once(self) -> SettleReport:
        """Write how deliveries ended."""
        return await settle_once(self.node)

    async def progress_once(self) -> ProgressReport:
        """Write what deliveries that go on have put out so far."""
        return await progress_once(self.node)

    async def renew_once(self) -> RenewReport:
        """Extend the leases."""
        return await renew_once(self.node)

    async def lead_once(self) -> LeadReport:
        """Take the lead, or keep it, or learn who has it."""
        return await lead_once(self.node)

    async def adopt_once(self) -> bool:
        """Serve the functions that other processes have named since the last look."""
        return await adopt_once(self.node)

    async def is_asked_to_stop(self) -> bool:
        """Whether another process asked for the end of something that is being delivered."""
        return await is_asked_to_stop(self.node)

    async def reap_once(self) -> ReapReport:
        """Tell that this node is alive; end what has overstayed its deadline, and what nobody can serve."""
        return await reap_once(self.node)

    async def rewind_once(self) -> RewindReport:
        """Plan anew what a clock that was ahead had planned."""
        return await rewind_once(self.node)

    async def prune_once(self) -> PruneReport:
        """Forget what is old, or too much, if this node leads."""
        return await prune_once(self.node)

    async def release(self) -> int:
        """Give back every claim that has not started; says how many."""
        return await release(self.node)

    async def leave(self) -> None:
        """Tell that this node has stopped, and give up the lead."""
        await leave(self.node)

    def withdraw(self) -> int:
        """Give up what was handed over but has not begun; `settle_once` writes that. Says how many."""
        return hand_back(self.node, self.node.runtime.target.withdraw())

    def hand_back(self, *, waits: bool = False) -> int:
        """Give up what is still being delivered; `settle_once` writes that. Says how many.

        If it `waits`, what can be made to end is reported when it has ended.
        """
        return hand_back(self.node, waits=waits)

    async def next_time(self) -> Micros | None:
        """When there is next something to match, to plan, to claim or to decide."""
        stored = await self.node.executor.call(self.node.store.next_time, self.node.runtime.target.routes())
        times = [time for time in (stored, self.node.next_decision) if time is not None]
        return min(times, default=None)
