"""The worker of a server: a node whose driver can be started and stopped while the server goes on answering."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import ref

from noonmark.core.instants import SECOND, micros_to_seconds
from noonmark.core.policies.misfire import WIDE_LIMIT
from noonmark.embedded.runners import RunnerPool, ThreadRunner, unregister_exit
from noonmark.telemetry.health import WorkerSnapshot
from noonmark.wiring import make_runner, make_target

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.targets.permissions import TargetPermissions
    from noonmark.driver.node import Node
    from noonmark.embedded.runners import Runner
    from noonmark.ports.runtime import Pinger, Runtime, Seal
    from noonmark.ports.traces import Traces
    from noonmark.targets.agent.settings import AgentSettings
    from noonmark.targets.bundle.settings import BundleSettings
    from noonmark.targets.command.programs import ProgramPolicy
    from noonmark.targets.function.registry import FunctionRegistry
    from noonmark.targets.function.runner import FunctionRunner
    from noonmark.targets.http.settings import HttpTargetSettings
    from noonmark.targets.temporal.settings import EngineSettings


FAILED_TIMES = 3
FAILED_FOR: Micros = 2 * SECOND
"""A step that failed so often, and for so long, without a success is reported as failing."""


class Worker:
    """Runs what is due between `start` and `stop`, in separate threads. Thread-safe."""

    def __init__(  # noqa: PLR0913 - each is what wiring picked
        self,
        runtime: Runtime,
        functions: FunctionRegistry,
        programs: ProgramPolicy,
        *,
        max_threads: int,
        grace: Micros,
        outbound: HttpTargetSettings | None = None,
        seal: Seal | None = None,
        permissions: TargetPermissions | None = None,
        bundles: BundleSettings | None = None,
        agents: AgentSettings | None = None,
        engine: EngineSettings | None = None,
    ) -> None:
        """`stop` and `close` wait for runs as long as the grace period."""
        self._runtime, self._functions, self._programs, self._outbound = runtime, functions, programs, outbound
        self._max_threads, self._grace, self._seal = max_threads, grace, seal
        self._permissions, self._bundles, self._agents, self._engine = permissions, bundles, agents, engine
        self._runners = RunnerPool(self._new_runner)
        self._draining: tuple[Runner, ...] = ()
        """Those that were stopped, and wait for their runs. Replaced as a whole, so that any thread may read it."""
        self._function_runners: tuple[ref[FunctionRunner], ...] = ()
        """Of every runner: a thread that outlived its run keeps its function runner after the runner has ended."""
        self._lock = Lock()
        self._waiting = Lock()
        """Held by the caller that waits for runs."""
        self._hands_back_now = False

    @property
    def traces(self) -> Traces | None:
        """What records its traces, if that is on."""
        return self._runtime.traces

    def start(self) -> None:
        """Run what is due; a running worker goes on. Runs of an earlier runner stay with that."""
        with self._lock:
            self._hands_back_now = False
            for runner in self._still_draining():
                if not runner.loop.pass_on():
                    runner.wait()
            self._runners.start()

    def stop(self) -> None:
        """Start nothing more, hand back what has not started, and wait for runs as long as the grace period.

        The process goes on, and so do its runs: their leases are renewed until they end, so that none starts twice.
        One caller waits; others return at once, so that they block no threads that other requests need.
        """
        with self._lock:
            self._drain()
        if not self._waiting.acquire(blocking=False):
            return
        try:
            self._wait()
        finally:
            self._waiting.release()

    def _wait(self) -> None:
        monotonic = self._runtime.clock.monotonic
        ends = monotonic() + self._grace
        for runner in self._draining:
            runner.wait(micros_to_seconds(max(0, ends - monotonic())))
        with self._lock:
            self._still_draining()

    def close(self) -> None:
        """Stop because the process exits: runs that have not ended within the grace period are handed back."""
        with self._lock:
            self._drain()
            for runner in self._draining:
                runner.stop(self._grace)
            if self._hands_back_now:
                self.hand_back_now()
            for runner in self._draining:
                runner.wait()
            self._still_draining()

    def hand_back_now(self) -> None:
        """Make `close` hand back runs at once instead of waiting for them. Returns at once."""
        self._hands_back_now = True
        for runner in self._draining:
            runner.stop(0)

    def wake(self, at: Micros | None = None) -> None:
        """Look for work at that time, or at once."""
        runner = self._runners.current
        if runner is not None:
            runner.wake(at)

    def check_stop_requests(self) -> None:
        """Check whether a run was asked to stop."""
        self._runners.check_stop_requests()

    def confirm_time(self) -> None:
        """Accept the store's time after it jumped ahead; a stopped worker has nothing to confirm."""
        current = self._runners.current
        if current is not None and current.is_alive:
            current.call(lambda loop: loop.driver.node.confirm_time())
            current.wake()

    @property
    def clock_ahead(self) -> Micros | None:
        """By how much the store's time jumped ahead, while that is in doubt."""
        current = self._runners.current
        runners = [runner for runner in (*self._draining, current) if runner is not None and runner.is_alive]
        doubt = runners[-1].loop.driver.node.trust.doubt if runners else None
        return None if doubt is None else doubt.ahead

    def status(self) -> dict[str, Any]:
        """Its state and its settings."""
        snapshot, timing = self.snapshot(), self._runtime.timing
        return {
            "state": "running" if snapshot.is_running else "stopping" if self._is_draining else "stopped",
            "running": snapshot.is_running,
            "node": snapshot.node,
            "leader": snapshot.leader,
            "is_leader": snapshot.leads,
            "term": snapshot.term,
            "clock_ahead_seconds": None if snapshot.clock_ahead is None else micros_to_seconds(snapshot.clock_ahead),
            "claimed": snapshot.claimed,
            "delivering": snapshot.delivering,
            "functions": sorted(route.partition(":")[2] for route in self._functions.routes()),
            "max_threads": self._max_threads,
            "lease_seconds": micros_to_seconds(timing.lease),
            "lookahead_ms": timing.lookahead // (SECOND // 1_000),
            # A field of the cron service: a node does not tick, but waits for the time that the store names.
            "tick_ms": 0,
            "max_catchup_per_tick": WIDE_LIMIT,
            "leader_lock": snapshot.leads,
        }

    def snapshot(self) -> WorkerSnapshot:
        """Its state now, including runs of an earlier runner."""
        current = self._runners.current
        is_running = current is not None and current.is_alive
        alive = [runner for runner in (*self._draining, current) if runner is not None and runner.is_alive]
        nodes = [runner.loop.driver.node for runner in alive]
        snapshot = WorkerSnapshot(
            node=self._runtime.node,
            is_wanted=current is not None,
            is_running=is_running,
            claimed=sum(len(node.held) for node in nodes),
            delivering=sum(len(node.deliveries) for node in nodes),
            abandoned=sum(runner.abandoned for one in self._function_runners if (runner := one()) is not None),
        )
        return _with_leader(_with_failures(snapshot, nodes[-1]), nodes[-1]) if nodes else snapshot

    def routes(self) -> tuple[str, ...]:
        """The routes that it serves; none while it does not run."""
        current = self._runners.current
        return () if current is None else tuple(current.loop.driver.node.runtime.target.routes())

    def _drain(self) -> None:
        runner = self._runners.drain()
        self._draining = (*self._still_draining(), *([] if runner is None else [runner]))

    @property
    def pinger(self) -> Pinger | None:
        """What calls the URLs that schedules name for their starts and ends."""
        return self._runtime.pinger

    @property
    def _is_draining(self) -> bool:
        return any(runner.is_alive for runner in self._draining)

    def _still_draining(self) -> tuple[Runner, ...]:
        """Those that have not ended yet; the others are dropped."""
        for runner in self._draining:
            if not runner.is_alive:
                unregister_exit(runner)
        self._draining = tuple(runner for runner in self._draining if runner.is_alive)
        return self._draining

    def _new_runner(self, claims: bool) -> Runner:  # noqa: FBT001 - the only argument
        function_runner = make_runner(self._functions, self._max_threads, None)
        runners = (one for one in self._function_runners if one() is not None)
        self._function_runners = (*runners, ref(function_runner))
        target = make_target(
            self._runtime.store,
            function_runner,
            self._programs,
            self._outbound,
            self._seal,
            self._permissions,
            self._bundles,
            self._agents,
            self._engine,
        )
        return ThreadRunner(replace(self._runtime, target=target), claims=claims)


def _with_failures(snapshot: WorkerSnapshot, node: Node) -> WorkerSnapshot:
    """The snapshot with the failing steps, the doubted clock and the last claim of this node."""
    now, doubt = node.store_clock.monotonic(), node.trust.doubt
    failing = tuple(
        f"{step.lstrip('_')}: {failure.error}"
        for step, failure in sorted(node.failures.copy().items())
        if failure.times >= FAILED_TIMES and now - failure.since >= FAILED_FOR
    )
    ahead = None if doubt is None else doubt.ahead
    return replace(snapshot, clock_ahead=ahead, failing=failing, idle_for=now - node.last_claimed)


def _with_leader(snapshot: WorkerSnapshot, node: Node) -> WorkerSnapshot:
    """With the leader, as this node last read it."""
    leadership = node.leadership
    if leadership is None:
        return snapshot
    # For one lease after the last leader's has expired, another node is about to take over: no reason for an alarm.
    is_led = node.now < leadership.until + node.timing.lease
    return replace(snapshot, leader=leadership.leader if is_led else None, leads=node.leads, term=leadership.term)
