"""Health: whether a process lives, and whether it can do its work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.instants import SECOND
from noonmark.telemetry.probing import Probe
from noonmark.telemetry.vitals import Vitals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from noonmark.core.instants import Micros
    from noonmark.ports.records import NodeRecord
    from noonmark.telemetry.vitals import Watched

SERVICE = "noonmark"
STALLED: Micros = 10 * SECOND
"""Due work waits no longer than this while a node has room for it and does its duty."""


class Health:
    """Answers three questions. Only `ready` asks the store, so that the others answer however busy that is."""

    def __init__(
        self,
        nodes: Callable[[], Sequence[NodeRecord]],
        *,
        node: str,
        version: str,
        worker: Watched | None = None,
        waiting: Callable[[], Micros] | None = None,
        damage: Callable[[], Mapping[str, int]] | None = None,
    ) -> None:
        """`nodes` asks the store who there is, `waiting` how long due work has waited that this node could claim.

        Both wait for the answer, and raise when there is none. `damage` tells how many rows of each table were found
        damaged. They are set aside, and all else goes on.
        """
        self._probe = Probe(lambda: (nodes(), 0 if waiting is None else waiting()))
        self._damage = damage
        self._node, self._version, self._worker = node, version, worker

    def summary(self) -> dict[str, Any]:
        """That it is well, and what it is."""
        worker = self._vitals()
        return {
            "status": "healthy",
            "service": SERVICE,
            "version": self._version,
            "node": self._node,
            "worker": _worker(worker),
            "leader": worker.leader,
            "damaged_rows": 0 if self._damage is None else sum(self._damage().values()),
        }

    def live(self) -> dict[str, Any]:
        """That it answers at all; whoever gets no answer should start it anew."""
        return {"status": "alive", "service": SERVICE}

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether it can do its work, and what it lacks. Waits for the store, but not for long."""
        found = self._probe.look()
        nodes, waiting = ([], 0) if found is None else found
        worker = self._vitals()
        leader = worker.leader or next((one.name for one in nodes if one.is_leader), None)
        problems = {
            "store": f"the store does not answer: {self._probe.problem}" if found is None else "",
            "driver": "the worker has ended" if worker.is_wanted and not worker.is_running else "",
            # Without a worker of its own, it can take calls while nobody leads.
            "leader": "no node leads" if worker.is_wanted and leader is None else "",
            "clock": _of_clock(worker),
            "duties": "; ".join(worker.failing),
            "claims": _of_claims(worker, waiting),
        }
        failing = {name: text for name, text in problems.items() if text}
        return not failing, self.summary() | {
            "status": "not_ready" if failing else "ready",
            "leader": leader,
            "checks": {name: "failing" if text else "ok" for name, text in problems.items()},
            "problems": failing,
        }

    def _vitals(self) -> Vitals:
        return Vitals() if self._worker is None else self._worker.vitals()


def _of_clock(worker: Vitals) -> str:
    if worker.clock_ahead is None:
        return ""
    return (
        f"the store's time leapt ahead by {worker.clock_ahead // SECOND} s: nothing is planned, started or pruned until"
        " it returns, goes on for a lease, or an operator confirms it"
    )


def _of_claims(worker: Vitals, waiting: Micros) -> str:
    if not worker.is_running or worker.clock_ahead is not None or min(waiting, worker.idle_for) < STALLED:
        return ""
    return f"work of this node has been due for {waiting // SECOND} s, and it has claimed none for that long"


def _worker(worker: Vitals) -> str:
    if worker.is_running:
        return "running"
    return "failed" if worker.is_wanted else "stopped"
