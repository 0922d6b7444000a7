"""The engine as a target: it starts a workflow for each attempt, and reports that this was accepted.

A start that got no answer is made again: the id of the workflow is the same, so it is started once. After a while
without an answer it is given up as undeliverable, and its outcome as unknown.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from noonmark.core.engine import TEMPORAL, workflow_id
from noonmark.core.errors import NoonmarkError
from noonmark.core.instants import DAY_SECONDS, SECOND
from noonmark.core.interruption import STOP_GRACE
from noonmark.core.run import Outcome
from noonmark.core.settlement import Accepted, Delivered
from noonmark.core.targets import WorkflowTarget
from noonmark.ports.target import Assignment
from noonmark.targets.accepted_work import AcceptedWork
from noonmark.targets.loop_runner import LoopRunner, pause
from noonmark.targets.outcomes import undeliverable
from noonmark.targets.temporal.documents import make_order, read_delivered

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine
    from typing import Any

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.ports.store import Store
    from noonmark.targets.temporal.client import Closed, EngineClient, EngineUnavailable
    from noonmark.targets.temporal.reconciliation import Comparison, Reconciler
    from noonmark.targets.temporal.settings import EngineSettings

logger = logging.getLogger("noonmark.temporal")

MAX_STARTS = 64
"""How many starts are in flight at a time. One owner alone may have half of them."""
MAX_UPSTREAM = 1_500_000
"""Characters of the results of upstreams that a start takes along: Temporal refuses 2 MB, and more is not answered."""
START_LIMIT: Micros = 600 * SECOND
"""How long a start is tried without an answer."""
FIRST_PAUSE, LONGEST_PAUSE = SECOND // 4, 5 * SECOND
LOOK_PAUSE: Micros = 2 * SECOND
"""Between two looks at what was accepted. Workers look at what they deliver, too."""
KEPT_SECONDS = 90
"""For how long a comparison counts; the leader compares every 30 seconds."""
CONFIRM_PAUSE: Micros = 5 * SECOND
"""Before a route without a worker is believed: after a restart of the server, workers need a moment to poll again."""
PROBE_PAUSE: Micros = 10 * SECOND
"""Between two calls that only see whether the server answers again."""
LIMIT: Micros = 30 * DAY_SECONDS * SECOND
"""How long the ledger waits for the end of an occurrence without a timeout."""


class TemporalEngine(LoopRunner):
    """Starts workflows for the routes that it is given."""

    thread_name = "noonmark-temporal"

    def __init__(self, store: Store, settings: EngineSettings) -> None:
        """The library of Temporal is loaded with the first start."""
        super().__init__(MAX_STARTS)
        self._store, self._settings = store, settings
        self._routes = frozenset(settings.routes)
        self._counts = settings.counts
        self._client: EngineClient | None = None
        self._accepted = AcceptedWork(store, pause=LOOK_PAUSE, passes_stops=True)
        self._background: dict[Callable[[], Coroutine[Any, Any, None]], asyncio.Task[None]] = {}
        self._forgetting: asyncio.TimerHandle | None = None

    def routes(self) -> tuple[str, ...]:
        """Return the routes that it was given."""
        return self._settings.routes

    def serves(self, route: str) -> bool:
        """Whether it carries out a route."""
        return route in self._routes

    def adopt(self, routes: Collection[str]) -> bool:  # noqa: ARG002 - required by the port
        """Return False: it serves what it was given."""
        return False

    def wake(self) -> None:
        """Look soon whether something that it has started was ended or asked to stop by others."""
        self._accepted.wake()

    def reconcile(self) -> None:
        """Compare the ledger with the workflows that run, in the background. From any thread."""
        with self._lock:
            self._start_thread()
            loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._begin, self._compare)

    async def _deliver(self, assignment: Assignment) -> Delivered | Accepted:
        started = self._now() if assignment.started is None else assignment.started
        ends = assignment.ends_by(started)
        limit = started + START_LIMIT if ends is None else min(ends, started + START_LIMIT)
        if (size := len(json.dumps(_upstream(assignment)))) > MAX_UPSTREAM:
            why = f"the results of its upstreams have {size:,} characters; Temporal takes at most {MAX_UPSTREAM:,}"
            return replace(undeliverable(why, now=self._now()), is_final=True)
        with suppress(NoonmarkError):  # it is noticed by its worker, too
            await self._accepted.stop_earlier(assignment.occurrence.id)
        try:
            closed = await self._start(assignment, limit)
        except _StartFailed as error:
            self._counts.count_start("failed")
            return replace(undeliverable(str(error), now=self._now()), is_unknown=error.is_unknown)
        if closed is not None:
            return self._ended_before(assignment, closed)
        name = workflow_id(assignment.occurrence.id, assignment.occurrence.attempt)
        self._accepted.add(assignment.occurrence, partial(self._cancel, name))
        return Accepted(started=started, accepted=self._now(), deadline=_deadline(assignment, started), engine=TEMPORAL)

    async def _start(self, assignment: Assignment, limit: Micros) -> Closed | None:
        """Start the workflow; what it is, if it has ended already."""
        from noonmark.targets.temporal.client import Closed, EngineUnavailable  # noqa: PLC0415 - slow to import

        order = replace(make_order(assignment, self._settings.address), upstream=_upstream(assignment))
        backoff, was_sent = FIRST_PAUSE, False
        while True:
            try:
                answer = await self._connection().start(order)
            except EngineUnavailable as error:
                self._note_problem(error)
                was_sent = was_sent or (error.was_sent and not error.is_refusal)
                if error.is_refusal or self._now() + backoff >= limit:
                    raise _StartFailed(str(error), is_unknown=was_sent) from None
                await pause(backoff)
                backoff = min(2 * backoff, LONGEST_PAUSE)
                continue
            self._note_problem(None)
            if isinstance(answer, Closed):
                return answer
            self._counts.count_start(str(answer))
            return None

    def _ended_before(self, assignment: Assignment, closed: Closed) -> Delivered:
        """The workflow of this attempt has ended, and the ledger does not know how: what it says of itself counts."""
        now, result = self._now(), closed.result or {}
        if "outcome" in result and result["outcome"] != Outcome.LEASE_LOST:
            return read_delivered(result, now=now)
        name = workflow_id(assignment.occurrence.id, assignment.occurrence.attempt)
        why = f"the workflow {name} of this attempt has ended before, as {closed.status}"
        return Delivered(outcome=Outcome.FAILED, started=now, ended=now, error=why, own_words=why)

    async def _cancel(self, name: str) -> None:
        """Ask a workflow to end; if the server does not answer, its worker notices the end by itself."""
        from noonmark.targets.temporal.client import EngineUnavailable  # noqa: PLC0415 - slow to import

        try:
            if await self._connection().cancel(name):
                self._counts.cancelled += 1
        except EngineUnavailable as error:
            self._note_problem(error)

    def _connection(self) -> EngineClient:
        if self._client is None:
            from noonmark.targets.temporal.client import EngineClient  # noqa: PLC0415 - slow to import

            self._client = EngineClient(self._settings.address)
        return self._client

    def _note_problem(self, error: EngineUnavailable | None) -> None:
        if error is None:
            self._counts.note_problem(None)
            return
        self._counts.note_problem(str(error), error.details)
        self._begin(self._probe)

    async def _probe(self) -> None:
        """Ask until the server answers again: this node may have nothing else to ask it."""
        from noonmark.targets.temporal.client import EngineUnavailable  # noqa: PLC0415 - slow to import

        while self._counts.problem is not None:
            await pause(PROBE_PAUSE)
            try:
                await self._connection().check()
            except EngineUnavailable as error:
                self._note_problem(error)
            else:
                self._note_problem(None)

    # Comparisons

    def _begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something in the background, unless it is being done."""
        task = self._background.get(work)
        if task is None or task.done():
            self._background[work] = asyncio.create_task(work())

    async def _compare(self) -> None:
        from noonmark.targets.temporal.client import EngineUnavailable  # noqa: PLC0415 - slow to import
        from noonmark.targets.temporal.reconciliation import Reconciler  # noqa: PLC0415 - likewise
        from noonmark.targets.temporal.settings import END  # noqa: PLC0415 - likewise

        try:
            reconciler = Reconciler(self._store, self._connection())
            comparison = await reconciler.compare()
            self._note_problem(None)
            self._counts.cancelled += await reconciler.cancel_ended(comparison)
            if self._settings.orphans == END:
                for occurrence in comparison.lost:
                    await self._end_lost(reconciler, occurrence)
            self._note_orphans(comparison)
            self._begin(self._look_for_workers)
        except EngineUnavailable as error:
            self._note_problem(error)
        except NoonmarkError as error:
            logger.warning("the engine could not be compared with the ledger: %s", error)

    async def _end_lost(self, reconciler: Reconciler, occurrence: Occurrence) -> None:
        """Report the end of an occurrence whose workflow is gone: the node writes it, and may retry it."""
        failure = await asyncio.to_thread(reconciler.failure, occurrence)
        if failure is not None:
            schedule, delivered = failure
            self._report(Assignment(occurrence, schedule, occurrence.due, is_closed=True), delivered)

    async def _look_for_workers(self) -> None:
        """Note the routes that no worker delivers."""
        from noonmark.targets.temporal.client import EngineUnavailable  # noqa: PLC0415 - slow to import

        try:
            unserved = await self._connection().unserved(self._settings.routes)
            if new := unserved - self._counts.unserved:
                await pause(CONFIRM_PAUSE)
                unserved = (unserved - new) | await self._connection().unserved(new)
        except EngineUnavailable as error:
            self._note_problem(error)
            return
        self._counts.note_unserved(unserved)
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget)

    def _forget(self) -> None:
        """Another node leads by now, or the server does not answer: what was seen is out of date."""
        self._counts.unserved, self._counts.orphans = frozenset(), {}

    def _note_orphans(self, comparison: Comparison) -> None:
        counts = comparison.counts()
        if any(counts.values()) and counts != self._counts.orphans:
            logger.warning(
                "the engine has %d workflows without an occurrence, and the ledger %d occurrences without a workflow;"
                " `noonmark engine check` lists them",
                counts["workflows"],
                counts["occurrences"],
            )
        self._counts.orphans = counts

    async def _release(self) -> None:
        for task in self._background.values():
            task.cancel()
        if self._background:
            await asyncio.wait(self._background.values())
        if self._forgetting is not None:
            self._forgetting.cancel()
        await self._accepted.close()


class _StartFailed(Exception):
    def __init__(self, why: str, *, is_unknown: bool) -> None:
        super().__init__(why)
        self.is_unknown = is_unknown


def _upstream(assignment: Assignment) -> dict[str, Any] | None:
    return None if assignment.upstream is None else {key: dict(one) for key, one in assignment.upstream.items()}


def _deadline(assignment: Assignment, started: Micros) -> Micros:
    """When the ledger gives up waiting. A workflow run ends by itself at its timeout, and may have steps to undo."""
    timeout = assignment.schedule.declaration.timeout
    if timeout is None or assignment.occurrence.route == WorkflowTarget.route:
        return started + LIMIT
    return started + timeout + STOP_GRACE
