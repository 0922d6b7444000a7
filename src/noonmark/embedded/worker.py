"""The worker of a server: one node, whose driver can be started and stopped while the server goes on answering."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from noonmark.core.instants import SECOND, micros_to_seconds
from noonmark.embedded.engine import Engine
from noonmark.embedded.engines import Engines
from noonmark.telemetry.vitals import Vitals
from noonmark.wiring import make_target

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.embedded.engine import AnyEngine
    from noonmark.ports.runtime import Runtime
    from noonmark.targets.functions import Functions
    from noonmark.targets.outbound import Outbound


class Worker:
    """Runs what is due, between `start` and `stop`, in threads of its own. All of it may be called from any thread."""

    def __init__(
        self,
        runtime: Runtime,
        functions: Functions,
        *,
        max_threads: int,
        grace: Micros,
        outbound: Outbound | None = None,
    ) -> None:
        """It does nothing yet. When it is stopped, what runs has the grace period to end."""
        self._runtime, self._functions, self._outbound = runtime, functions, outbound
        self._max_threads, self._grace = max_threads, grace
        self._engines = Engines(self._new_engine)
        # One after the other: a driver that is started has the name of the one that stops.
        self._turn = Lock()

    def start(self) -> None:
        """Begin to run what is due; one that does already goes on."""
        with self._turn:
            self._engines.start()

    def stop(self) -> None:
        """Begin nothing more, wait for what runs, and hand back what has not ended within the grace period."""
        with self._turn:
            self._engines.stop(self._grace)

    def hurry(self) -> None:
        """Let a worker that is about to stop wait no longer for what runs. Returns at once."""
        self._engines.hand_back()

    def wake(self, at: Micros | None = None) -> None:
        """There is something new to be done, at that time or at once."""
        engine = self._engines.current
        if engine is not None:
            engine.wake(at)

    def attend(self) -> None:
        """Something that runs may have been asked to stop."""
        self._engines.attend()

    def status(self) -> dict[str, Any]:
        """What it does, and how it is set up."""
        vitals, timing = self.vitals(), self._runtime.timing
        return {
            "running": vitals.is_running,
            "node": vitals.node,
            "leader": vitals.leader,
            "is_leader": vitals.leads,
            "term": vitals.term,
            "claimed": vitals.claimed,
            "delivering": vitals.delivering,
            "functions": sorted(route.partition(":")[2] for route in self._functions.routes()),
            "max_threads": self._max_threads,
            "lease_seconds": micros_to_seconds(timing.lease),
            "lookahead_ms": timing.lookahead // (SECOND // 1_000),
        }

    def vitals(self) -> Vitals:
        """How it is now."""
        engine = self._engines.current
        if engine is None:
            return Vitals(node=self._runtime.node)
        if not engine.is_alive:
            return Vitals(node=self._runtime.node, is_wanted=True)
        node = engine.loop.driver.node
        leadership = node.leadership
        # For as long as a lease after the last one has ended, somebody is about to take the lead: that is no alarm.
        is_led = leadership is not None and node.now < leadership.until + node.timing.lease
        return Vitals(
            node=node.id,
            is_wanted=True,
            is_running=True,
            claimed=len(node.held),
            delivering=len(node.deliveries),
            leader=leadership.leader if leadership is not None and is_led else None,
            leads=node.leads,
            term=0 if leadership is None else leadership.term,
        )

    def due(self) -> int:
        """Of how many schedules it holds something that is not delivered yet."""
        engine = self._engines.running
        while engine is not None:
            with suppress(RuntimeError):  # its thread has just added another; count again
                return len({claim.occurrence.uid for claim in engine.loop.driver.node.held.values()})
        return 0

    def _new_engine(self, looks: bool) -> AnyEngine:  # noqa: FBT001 - the only thing to say
        target = make_target(self._functions, self._max_threads, None, self._outbound)
        return Engine(replace(self._runtime, target=target), looks=looks)
