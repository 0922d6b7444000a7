"""Health checks: whether a process is alive, and whether it can do its work."""

from __future__ import annotations

import logging
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from noonmark.core.frozen import frozen
from noonmark.core.instants import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.ports.records import NodeRecord

SERVICE = "noonmark"
CLAIM_LIMIT: Micros = 10 * SECOND
"""A healthy node with room claims due work within this time."""
STORE_TIMEOUT = 2.0
"""Seconds that the store has to answer; after that it counts as down."""
MAX_PENDING_PROBES = 4
logger = logging.getLogger("noonmark.health")
T = TypeVar("T")


@frozen(kw_only=True)
class WorkerSnapshot:
    """The state of a worker at one moment; the defaults describe a process without one."""

    node: str = ""
    is_wanted: bool = False
    """It was started, and not stopped since."""
    is_running: bool = False
    claimed: int = 0
    delivering: int = 0
    abandoned: int = 0
    """Threads that still run work that has timed out."""
    leader: str | None = None
    """The last known leader, unless that is too long ago."""
    leads: bool = False
    term: int = 0
    clock_ahead: Micros | None = None
    """By how much the store's time leapt ahead, while that is unconfirmed; None when the time is good."""
    failing: tuple[str, ...] = ()
    """The steps that fail repeatedly, each with its last error."""
    idle_for: Micros = 0
    """How long ago it last claimed anything, or was full."""


class Worker(Protocol):
    """A worker that can be inspected."""

    def snapshot(self) -> WorkerSnapshot:
        """Return its present state. Safe to call from any thread; does not block."""


class Health:
    """Answers health checks. Only `ready` asks the store, so the others answer however busy it is."""

    def __init__(  # noqa: PLR0913 - each is something to ask
        self,
        nodes: Callable[[], Sequence[NodeRecord]],
        *,
        node: str,
        version: str,
        worker: Worker | None = None,
        waiting: Callable[[], Micros] | None = None,
        damage: Callable[[], Mapping[str, int]] | None = None,
        engine: Callable[[], str | None] | None = None,
    ) -> None:
        """`nodes` lists the nodes of the store; `waiting` returns how long due work that this node could claim waits.

        Both block on the store, and raise when it does not answer. `damage` returns the number of damaged rows found in
        each table. Those are set aside, and do not make a node unhealthy. `engine` returns why the engine does not
        answer; that is reported, but the node is ready: it answers requests, and delivers what is not for the engine.
        """
        self._probe = Probe(lambda: (nodes(), 0 if waiting is None else waiting()))
        self._damage, self._engine = damage, engine
        self._node, self._version, self._worker = node, version, worker

    def summary(self) -> dict[str, Any]:
        """Return the status of the process, without asking the store."""
        worker = self._snapshot()
        engine = {} if self._engine is None else {"engine": "ok" if self._engine() is None else "failing"}
        return engine | {
            "status": "healthy",
            "service": SERVICE,
            "version": self._version,
            "node": self._node,
            "worker": _worker_state(worker),
            "leader": worker.leader,
            "damaged_rows": 0 if self._damage is None else sum(self._damage().values()),
        }

    def live(self) -> dict[str, Any]:
        """Return that the process answers at all; one that does not should be restarted."""
        return {"status": "alive", "service": SERVICE}

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Return whether the process can do its work, and its problems. Waits for the store up to `STORE_TIMEOUT`."""
        status = self._probe.read()
        nodes, waiting = ([], 0) if status is None else status
        worker = self._snapshot()
        leader = worker.leader or next((node.name for node in nodes if node.is_leader), None)
        problems = {
            "store": f"the store does not answer: {self._probe.problem}" if status is None else "",
            "driver": "the worker has ended" if worker.is_wanted and not worker.is_running else "",
            # Without its own worker, it can serve callers while there is no leader.
            "leader": "there is no leader" if worker.is_wanted and leader is None else "",
            "clock": _clock_problem(worker),
            "duties": "; ".join(worker.failing),
            "claims": _claim_problem(worker, waiting),
        }
        failing = {name: text for name, text in problems.items() if text}
        is_ready = not failing
        if self._engine is not None:
            problems["engine"] = self._engine() or ""
            failing |= {"engine": problems["engine"]} if problems["engine"] else {}
        return is_ready, self.summary() | {
            "status": "ready" if is_ready else "not_ready",
            "leader": leader,
            "checks": {name: "failing" if text else "ok" for name, text in problems.items()},
            "problems": failing,
        }

    def _snapshot(self) -> WorkerSnapshot:
        return WorkerSnapshot() if self._worker is None else self._worker.snapshot()


def _clock_problem(worker: WorkerSnapshot) -> str:
    if worker.clock_ahead is None:
        return ""
    return (
        f"the store's time leapt ahead by {worker.clock_ahead // SECOND} s: nothing is planned, started or pruned"
        " until it returns, goes on for a lease, or an operator confirms it"
    )


def _claim_problem(worker: WorkerSnapshot, waiting: Micros) -> str:
    if not worker.is_running or worker.clock_ahead is not None or min(waiting, worker.idle_for) < CLAIM_LIMIT:
        return ""
    return f"work for this node has been due for {waiting // SECOND} s, and it has claimed nothing in that time"


def _worker_state(worker: WorkerSnapshot) -> str:
    if worker.is_running:
        return "running"
    return "failed" if worker.is_wanted else "stopped"


class Probe(Generic[T]):
    """Asks the store in a thread and waits a limited time. Callers share one question while it is pending."""

    def __init__(self, ask: Callable[[], T]) -> None:
        """`ask` blocks on the store, and raises when it does not answer."""
        self._ask = ask
        self._lock = Lock()
        self.problem = ""
        """What went wrong last."""
        self._pending: list[_Answer[T]] = []

    def read(self) -> T | None:
        """Return the answer of the store; None when there is none in time."""
        with self._lock:
            self._pending = [answer for answer in self._pending if not answer.is_done.is_set()]
            # A late question may have been lost with its connection while the store is back, so ask again.
            if not self._pending or (self._pending[-1].is_late and len(self._pending) < MAX_PENDING_PROBES):
                self._pending.append(_Answer())
                Thread(target=self._run, args=self._pending[-1:], name="noonmark-health", daemon=True).start()
            answer = self._pending[-1]
        if not answer.is_done.wait(STORE_TIMEOUT):
            answer.is_late = True
            self.problem = f"no answer within {STORE_TIMEOUT:g} s"
        return answer.value

    def _run(self, answer: _Answer[T]) -> None:
        try:
            answer.value = self._ask()
        except Exception as error:  # noqa: BLE001 - any error means that the store did not answer
            self.problem = str(error)
            logger.warning("the store does not answer: %s", error)
        finally:
            answer.is_done.set()


class CachedProbe(Generic[T]):
    """A probe whose answer is reused for a time, so that the store is asked once however many callers there are."""

    def __init__(self, ask: Callable[[], T], *, monotonic: Callable[[], Micros], lifetime: Micros) -> None:
        self._probe = Probe(ask)
        self._monotonic, self._lifetime = monotonic, lifetime
        self._last: tuple[Micros, T | None] | None = None

    def read(self) -> T | None:
        """Return a recent answer of the store; None when it does not answer."""
        last, now = self._last, self._monotonic()
        if last is not None and now - last[0] < self._lifetime:
            return last[1]
        value = self._probe.read()
        self._last = (self._monotonic(), value)
        return value


class _Answer(Generic[T]):
    def __init__(self) -> None:
        self.is_done = Event()
        self.is_late = False
        self.value: T | None = None
