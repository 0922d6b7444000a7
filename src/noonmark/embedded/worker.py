"""The worker of a server: one node, whose driver can be started and stopped while the server goes on answering."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import ref

from noonmark.core.instants import SECOND, micros_to_seconds
from noonmark.core.policies.misfire import WIDE_LIMIT
from noonmark.embedded import leaving
from noonmark.embedded.engine import Engine
from noonmark.embedded.engines import Engines
from noonmark.telemetry.vitals import Vitals
from noonmark.wiring import make_runner, make_target

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.driver.node import Node
    from noonmark.embedded.engine import AnyEngine
    from noonmark.ports.runtime import Runtime
    from noonmark.ports.seal import Seal
    from noonmark.targets.functions import Functions
    from noonmark.targets.outbound import Outbound
    from noonmark.targets.programs import Programs
    from noonmark.targets.runner import FunctionRunner


FAILED_TIMES = 3
FAILED_FOR: Micros = 2 * SECOND
"""A duty that failed so often, and for so long, without having succeeded, fails over and over."""


class Worker:
    """Runs what is due, between `start` and `stop`, in threads of its own. All of it may be called from any thread."""

    def __init__(  # noqa: PLR0913 - each is what wiring picked
        self,
        runtime: Runtime,
        functions: Functions,
        programs: Programs,
        *,
        max_threads: int,
        grace: Micros,
        outbound: Outbound | None = None,
        seal: Seal | None = None,
    ) -> None:
        """It does nothing yet. Whoever stops it waits for what runs as long as the grace period."""
        self._runtime, self._functions, self._programs, self._outbound = runtime, functions, programs, outbound
        self._max_threads, self._grace, self._seal = max_threads, grace, seal
        self._engines = Engines(self._new_engine)
        self._winding_up: tuple[AnyEngine, ...] = ()
        """Those that were stopped, and wait for what they run. Replaced as a whole, so that anybody may read it."""
        self._runners: tuple[ref[FunctionRunner], ...] = ()
        """Of every engine: a thread that outlived its run keeps its runner, also after the engine has ended."""
        self._turn = Lock()
        self._waits = Lock()
        """Held by the one that waits for what runs."""
        self._is_hurried = False

    def start(self) -> None:
        """Begin to run what is due; one that does already goes on. What an earlier one runs is left to that."""
        with self._turn:
            self._is_hurried = False
            for engine in self._still_winding_up():
                if not engine.loop.pass_on():
                    engine.wait()
            self._engines.start()

    def stop(self) -> None:
        """Begin nothing more, hand back what has not begun, and wait for what runs, but not past the grace period.

        This process lives on, and so does what it runs: its leases are kept until it has ended, lest it begin twice.
        One caller waits; others are answered at once, so that they take no threads from whoever asks something else.
        """
        with self._turn:
            self._wind_up()
        if not self._waits.acquire(blocking=False):
            return
        try:
            self._wait()
        finally:
            self._waits.release()

    def _wait(self) -> None:
        monotonic = self._runtime.clock.monotonic
        ends = monotonic() + self._grace
        for one in self._winding_up:
            one.wait(micros_to_seconds(max(0, ends - monotonic())))
        with self._turn:
            self._still_winding_up()

    def close(self) -> None:
        """The process ends: begin nothing more, and hand back what has not ended within the grace period."""
        with self._turn:
            self._wind_up()
            for one in self._winding_up:
                one.stop(self._grace)
            if self._is_hurried:
                self.hurry()
            for one in self._winding_up:
                one.wait()
            self._still_winding_up()

    def hurry(self) -> None:
        """Let a worker that closes, or is about to, wait no longer for what runs. Returns at once."""
        self._is_hurried = True
        for one in self._winding_up:
            one.stop(0)

    def wake(self, at: Micros | None = None) -> None:
        """There is something new to be done, at that time or at once."""
        engine = self._engines.current
        if engine is not None:
            engine.wake(at)

    def attend(self) -> None:
        """Something that runs may have been asked to stop."""
        self._engines.attend()

    def confirm_time(self) -> None:
        """The store's time is right, although it leapt ahead; one that does not run has nothing to confirm."""
        current = self._engines.current
        if current is not None and current.is_alive:
            current.call(lambda loop: loop.driver.node.confirm_time())
            current.wake()

    @property
    def clock_ahead(self) -> Micros | None:
        """By how much the store's time leapt ahead, while that is in doubt."""
        return self.vitals().clock_ahead

    def status(self) -> dict[str, Any]:
        """What it does, and how it is set up."""
        vitals, timing = self.vitals(), self._runtime.timing
        return {
            "state": "running" if vitals.is_running else "stopping" if self._is_winding_up else "stopped",
            "running": vitals.is_running,
            "node": vitals.node,
            "leader": vitals.leader,
            "is_leader": vitals.leads,
            "term": vitals.term,
            "clock_ahead_seconds": None if vitals.clock_ahead is None else micros_to_seconds(vitals.clock_ahead),
            "claimed": vitals.claimed,
            "delivering": vitals.delivering,
            "functions": sorted(route.partition(":")[2] for route in self._functions.routes()),
            "max_threads": self._max_threads,
            "lease_seconds": micros_to_seconds(timing.lease),
            "lookahead_ms": timing.lookahead // (SECOND // 1_000),
            # As the cron service has it: nothing ticks here, since a node waits for the time that the store names.
            "tick_ms": 0,
            "max_catchup_per_tick": WIDE_LIMIT,
            "leader_lock": vitals.leads,
        }

    def vitals(self) -> Vitals:
        """How it is now, with what an earlier one still runs."""
        current = self._engines.current
        is_running = current is not None and current.is_alive
        nodes = [one.loop.driver.node for one in (*self._winding_up, current) if one is not None and one.is_alive]
        vitals = Vitals(
            node=self._runtime.node,
            is_wanted=current is not None,
            is_running=is_running,
            claimed=sum(len(node.held) for node in nodes),
            delivering=sum(len(node.deliveries) for node in nodes),
            abandoned=sum(runner.abandoned for one in self._runners if (runner := one()) is not None),
        )
        return _led(_judged(vitals, nodes[-1]), nodes[-1]) if nodes else vitals

    def routes(self) -> tuple[str, ...]:
        """What it serves now; nothing while it does not run."""
        current = self._engines.current
        return () if current is None else tuple(current.loop.driver.node.runtime.target.routes())

    def _wind_up(self) -> None:
        engine = self._engines.wind_up()
        self._winding_up = (*self._still_winding_up(), *([] if engine is None else [engine]))

    @property
    def _is_winding_up(self) -> bool:
        return any(one.is_alive for one in self._winding_up)

    def _still_winding_up(self) -> tuple[AnyEngine, ...]:
        """Those that have not ended yet; the others are forgotten."""
        for one in self._winding_up:
            if not one.is_alive:
                leaving.unregister(one)
        self._winding_up = tuple(one for one in self._winding_up if one.is_alive)
        return self._winding_up

    def _new_engine(self, looks: bool) -> AnyEngine:  # noqa: FBT001 - the only thing to say
        runner = make_runner(self._functions, self._max_threads, None)
        self._runners = (*(one for one in self._runners if one() is not None), ref(runner))
        target = make_target(self._runtime.store, runner, self._programs, self._outbound, self._seal)
        return Engine(replace(self._runtime, target=target), looks=looks)


def _judged(vitals: Vitals, node: Node) -> Vitals:
    """With what keeps this node from its work."""
    now, doubt = node.store_clock.monotonic(), node.trust.doubt
    failing = tuple(
        f"{duty.lstrip('_')}: {one.error}"
        for duty, one in sorted(node.failures.copy().items())
        if one.times >= FAILED_TIMES and now - one.since >= FAILED_FOR
    )
    ahead = None if doubt is None else doubt.ahead
    return replace(vitals, clock_ahead=ahead, failing=failing, idle_for=now - node.last_claimed)


def _led(vitals: Vitals, node: Node) -> Vitals:
    """With who leads, as this node was last told."""
    leadership = node.leadership
    if leadership is None:
        return vitals
    # For as long as a lease after the last one has ended, somebody is about to take the lead: that is no alarm.
    is_led = node.now < leadership.until + node.timing.lease
    return replace(vitals, leader=leadership.leader if is_led else None, leads=node.leads, term=leadership.term)
