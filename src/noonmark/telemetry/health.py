"""Health: whether a process lives, and whether it can do its work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.telemetry.probing import Probe
from noonmark.telemetry.vitals import Vitals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from noonmark.ports.records import NodeRecord
    from noonmark.telemetry.vitals import Watched

SERVICE = "noonmark"


class Health:
    """Answers three questions. Only `ready` asks the store, so that the others answer however busy that is."""

    def __init__(
        self,
        nodes: Callable[[], Sequence[NodeRecord]],
        *,
        node: str,
        version: str,
        worker: Watched | None = None,
        damage: Callable[[], Mapping[str, int]] | None = None,
    ) -> None:
        """`nodes` asks the store who there is, and waits for the answer; it raises when there is none.

        `damage` tells how many rows of each table were found damaged. They are set aside, and all else goes on.
        """
        self._probe = Probe(nodes)
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
        worker = self._vitals()
        leader = worker.leader
        if leader is None and found is not None:
            leader = next((one.name for one in found if one.is_leader), None)
        checks = {
            "store": found is not None,
            "driver": worker.is_running or not worker.is_wanted,
            # Without a worker of its own, it can take calls while nobody leads.
            "leader": leader is not None or not worker.is_wanted,
        }
        is_ready = all(checks.values())
        said = {name: "ok" if is_so else "failing" for name, is_so in checks.items()}
        return is_ready, self.summary() | {
            "status": "ready" if is_ready else "not_ready",
            "leader": leader,
            "checks": said,
        }

    def _vitals(self) -> Vitals:
        return Vitals() if self._worker is None else self._worker.vitals()


def _worker(worker: Vitals) -> str:
    if worker.is_running:
        return "running"
    return "failed" if worker.is_wanted else "stopped"
