"""The agent runner: delivers turns to a host when they are due."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from noonmark.core.agents.session import SessionState
from noonmark.core.agents.turns import is_helper
from noonmark.core.errors import NoonmarkError
from noonmark.core.instants import SECOND, micros_to_seconds
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Accepted, Delivered
from noonmark.targets.accepted_work import AcceptedWork
from noonmark.targets.agent.resolve import Missing, resolve
from noonmark.targets.loop_runner import LoopRunner, stop_reason
from noonmark.targets.outcomes import cut_off, stopped, undeliverable
from noonmark.targets.progress import report_progress
from noonmark.targets.serialization import error_summary

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from noonmark.core.instants import Micros
    from noonmark.ports.agent_host import AgentHost, AgentTurn, TurnResult
    from noonmark.ports.store import Store
    from noonmark.ports.target import Assignment
    from noonmark.targets.agent.settings import AgentSettings

    MakeHost = Callable[[Callable[[], Micros]], AgentHost]

ROUTES = ("session", "mob", "task")
MAX_TURNS = 64
"""How many turns are in flight at a time. One owner alone may have half of them."""
MAX_TEXT = 32_768
"""Characters of an answer in the result of a run; the transcript has all of it."""


class AgentRunner(LoopRunner):
    """Delivers to sessions, mobs and tasks, and reports the outcomes."""

    thread_name = "noonmark-agents"

    def __init__(self, store: Store, settings: AgentSettings, make_host: MakeHost, limit: int = MAX_TURNS) -> None:
        """`make_host` is called with the first turn, in the thread of the loop: it loads the libraries of agents."""
        super().__init__(limit)
        self._store, self._settings, self._make_host = store, settings, make_host
        self._host: AgentHost | None = None
        self._accepted = AcceptedWork(store)

    def routes(self) -> tuple[str, ...]:
        """Return the routes of agents."""
        return ROUTES

    def adopt(self, routes: Collection[str]) -> bool:  # noqa: ARG002 - required by the port
        """Return False: its routes are always served."""
        return False

    def wake(self) -> None:
        """Look soon whether turns that a host has accepted were ended by others."""
        self._accepted.wake()

    async def _deliver(self, assignment: Assignment) -> Delivered | Accepted:
        try:
            host = self._host = self._host or self._make_host(self._now)
            await self._accepted.stop_earlier(assignment.occurrence.id)
            turn = await asyncio.to_thread(resolve, assignment, self._store, self._settings)
        except ValueError as error:  # it may repeat what the schedule says
            return self._unresolved(assignment, str(error), log_text="the turn could not begin")
        except NoonmarkError as error:
            return undeliverable(str(error), now=self._now())
        if isinstance(turn, Missing):
            missing = self._unresolved(assignment, turn.why)
            return replace(missing, reason=Reason.TARGET_MISSING)
        try:
            return await self._run_turn(host, turn, assignment)
        except Exception as error:  # noqa: BLE001 - a library of agents may raise anything
            what = f"the turn failed: {type(error).__name__}"
            return replace(self._failed(assignment, f"{what}: {error_summary(error)}"), own_words=what)

    async def _run_turn(self, host: AgentHost, turn: AgentTurn, assignment: Assignment) -> Delivered | Accepted:
        ends = turn.limits.deadline
        left = None if ends is None else max(0, ends - self._now()) / SECOND
        try:
            async with asyncio.timeout(left):
                result = await host.deliver(replace(turn, progress=partial(self._report_wait, assignment)))
        except TimeoutError:
            return await self._interrupted(host, turn, self._timed_out(assignment, ends or self._now()))
        except asyncio.CancelledError:
            if (reason := stop_reason(assignment)) in (None, Reason.LEASE_LOST):
                raise
            return await self._interrupted(host, turn, stopped(assignment, reason, None, now=self._now()))
        if isinstance(result, Accepted):
            self._accepted.add(turn.occurrence, partial(host.cancel, turn))
            return result
        if result.outcome is not Outcome.LEASE_LOST:
            await self._dismiss(turn)
        return self._delivered(assignment, turn, result)

    def _report_wait(self, assignment: Assignment, message: str) -> None:
        report_progress(assignment, self._report, {"fraction": 0, "message": message})

    async def _interrupted(self, host: AgentHost, turn: AgentTurn, delivered: Delivered) -> Delivered:
        """End a turn that was cut off, and say what it has used."""
        await host.cancel(turn)
        await self._dismiss(turn)
        return replace(delivered, usage=await asyncio.to_thread(self._store.run_usage, turn.occurrence.id))

    async def _dismiss(self, turn: AgentTurn) -> None:
        """Archive the session of a helper whose turn has ended. Another attempt revives it."""
        if is_helper(turn.target):
            archive = partial(self._store.set_session_state, turn.owner.tenant, turn.session_id, SessionState.ARCHIVED)
            with suppress(NoonmarkError):  # it is left idle, and nobody finds it
                await asyncio.to_thread(archive)

    def _timed_out(self, assignment: Assignment, ends: Micros) -> Delivered:
        """By its own timeout, by its window, or by the time limit of agents."""
        now = max(ends, self._now())
        if assignment.started is None or assignment.ends_by(assignment.started) == ends:
            return cut_off(assignment, now=now)
        seconds = micros_to_seconds(self._settings.time_limit)
        why = f"the turn took longer than the {seconds:g} s that agents have without timeout_seconds"
        return Delivered(outcome=Outcome.TIMED_OUT, started=assignment.started, ended=now, error=why, own_words=why)

    def _delivered(self, assignment: Assignment, turn: AgentTurn, result: TurnResult) -> Delivered:
        now = self._now()
        document = None
        if result.outcome is Outcome.COMPLETED:
            document = assignment.result = _document(turn, result)
        return Delivered(
            outcome=result.outcome,
            started=now if assignment.started is None else assignment.started,
            ended=now,
            result=document,
            error=result.error,
            own_words=result.own_words,
            usage=result.usage,
            reason=result.reason,
            is_final=result.is_final,
            is_unknown=result.is_unknown,
            retry_after=result.retry_after,
        )

    def _unresolved(self, assignment: Assignment, why: str, log_text: str | None = None) -> Delivered:
        """The turn cannot begin; nothing was asked of a model."""
        now = self._now()
        delivered = undeliverable(why, now=now, log_text=log_text)
        return replace(delivered, started=assignment.started or now, is_final=True)

    def _failed(self, assignment: Assignment, why: str) -> Delivered:
        now = self._now()
        return Delivered(outcome=Outcome.FAILED, started=assignment.started or now, ended=now, error=why)

    async def _release(self) -> None:
        await self._accepted.close()
        if self._host is not None:
            await self._host.close()


def _document(turn: AgentTurn, result: TurnResult) -> dict[str, Any]:
    """What the run shows of an answer."""
    document: dict[str, Any] = {"session_id": turn.session_id}
    if result.output is not None:
        document["output"] = result.output
    elif result.text is not None:
        document["text"] = result.text[:MAX_TEXT]
        if len(result.text) > MAX_TEXT:
            document["is_cut_off"] = True
    return document
