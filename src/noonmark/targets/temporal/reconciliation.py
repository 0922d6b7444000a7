"""Reconciliation: what the ledger and the engine know of each other, by listing both.

A workflow whose occurrence has ended is cancelled: the ledger has decided. One whose occurrence is unknown is an
orphan: it may belong to another store. An occurrence whose workflow is gone is one, too. Orphans are reported, and end
on command or by the policy of the node.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noonmark.core.engine import Standing, standing, workflow_id
from noonmark.core.instants import MAX_INSTANT
from noonmark.core.interruption import engine_of
from noonmark.core.occurrence import in_force
from noonmark.core.run import Outcome
from noonmark.core.settlement import Delivered, began, settle

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.ports.store import Store
    from noonmark.targets.temporal.client import EngineClient, ListedWorkflow

MAX_OCCURRENCES = 10_000
"""How many occurrences that await their end are looked at."""
WHY = "its workflow is gone from the engine, and has not said how it ended"


@dataclass(slots=True)
class Comparison:
    """The differences between both sides."""

    running: int = 0
    """Workflows that run."""
    awaiting: int = 0
    """Occurrences that the engine has accepted."""
    routes: Counter[str] = field(default_factory=Counter)
    """How many of them each route has."""
    unknown: list[ListedWorkflow] = field(default_factory=list)
    """Workflows whose occurrences are not in the ledger."""
    ended: list[ListedWorkflow] = field(default_factory=list)
    """Workflows whose occurrences have ended, or are in another attempt."""
    lost: list[Occurrence] = field(default_factory=list)
    """Occurrences whose workflows are gone."""
    is_complete: bool = True

    def counts(self) -> dict[str, int]:
        """The number of orphans of each kind."""
        return {"workflows": len(self.unknown), "occurrences": len(self.lost)}

    def to_document(self) -> dict[str, Any]:
        """The comparison as JSON."""
        return {
            "running_workflows": self.running,
            "awaiting_occurrences": self.awaiting,
            "orphan_workflows": [one.workflow_id for one in self.unknown],
            "ended_workflows": [one.workflow_id for one in self.ended],
            "orphan_occurrences": [
                {
                    "occurrence_id": one.id,
                    "schedule_id": one.schedule_id,
                    "workflow_id": workflow_id(one.id, one.attempt),
                }
                for one in self.lost
            ],
            "is_complete": self.is_complete,
        }


class Reconciler:
    """Compares both sides, and ends orphans. On the event loop of the client."""

    def __init__(self, store: Store, client: EngineClient) -> None:
        self._store, self._client = store, client

    async def compare(self) -> Comparison:
        """List both sides. What looks like an orphan is read again: it may just have begun, or ended."""
        comparison = Comparison()
        awaiting = await asyncio.to_thread(self._awaiting)
        comparison.is_complete = len(awaiting) < MAX_OCCURRENCES
        with_engine = [one for one in awaiting if engine_of(one) is not None]
        comparison.awaiting = len(with_engine)
        comparison.routes.update(one.route for one in with_engine)
        listed: set[str] = set()
        async for running in self._client.running():
            comparison.running += 1
            listed.add(running.workflow_id)
            await self._judge(running, comparison)
        for occurrence in with_engine:
            name = workflow_id(occurrence.id, occurrence.attempt)
            if name not in listed and not await self._client.is_running(name):
                await self._note_lost(occurrence, comparison)
        return comparison

    def _awaiting(self) -> list[Occurrence]:
        """The occurrences that have a deadline: all that await their end."""
        return self._store.overdue(now=MAX_INSTANT, limit=MAX_OCCURRENCES)

    async def _judge(self, running: ListedWorkflow, comparison: Comparison) -> None:
        occurrence = await asyncio.to_thread(self._store.occurrence, running.occurrence_id)
        if occurrence is None:
            comparison.unknown.append(running)
            return
        stands = standing(occurrence, attempt=running.attempt, fence=occurrence.fence)
        # The list is updated a little later than the workflow.
        if stands is Standing.OVER and await self._client.is_running(running.workflow_id):
            comparison.ended.append(running)

    async def _note_lost(self, occurrence: Occurrence, comparison: Comparison) -> None:
        stored = await asyncio.to_thread(self._store.occurrence, occurrence.id)
        if stored is not None and stored.fence == occurrence.fence and engine_of(stored) is not None:
            comparison.lost.append(stored)

    async def cancel_ended(self, comparison: Comparison) -> int:
        """Ask the workflows of ended occurrences to end; returns how many."""
        return sum([await self._client.cancel(one.workflow_id) for one in comparison.ended])

    async def terminate_unknown(self, comparison: Comparison) -> int:
        """End the workflows that belong to no occurrence; returns how many."""
        return sum([await self._client.terminate(one.workflow_id) for one in comparison.unknown])

    async def fail_lost(self, comparison: Comparison) -> int:
        """Fail the occurrences whose workflows are gone; their retry policies apply. Returns how many."""
        return sum([await asyncio.to_thread(self._fail, one) for one in comparison.lost])

    def _fail(self, occurrence: Occurrence) -> bool:
        failure = self.failure(occurrence)
        if failure is None:
            return False
        return self._store.settle([settle(occurrence, *failure, node=occurrence.node or "")])[0]

    def failure(self, occurrence: Occurrence) -> tuple[Schedule, Delivered] | None:
        """The schedule and the end of an occurrence whose workflow is gone; None without a schedule. It may block."""
        stored = self._store.find_uid(occurrence.uid)
        if stored is None:
            return None
        now = self._store.clock()
        delivered = Delivered(
            outcome=Outcome.FAILED,
            started=began(occurrence, now=now),
            ended=now,
            error=WHY,
            own_words=WHY,
            is_unknown=True,
        )
        return in_force(stored.schedule, occurrence), delivered
