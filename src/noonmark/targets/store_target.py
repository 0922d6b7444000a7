"""A target whose work is a call of the store, which may block, so it is done in threads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from noonmark.targets.worker_pool import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.settlement import Accepted, Delivered
    from noonmark.ports.store import Store
    from noonmark.ports.target import Assignment, Report

MAX_THREADS = 4


class StoreTarget(ABC):
    """Serves one route with a few threads."""

    route: ClassVar[str]

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pool: WorkerPool | None = None

    def routes(self) -> tuple[str, ...]:
        """Return its one route."""
        return (self.route,)

    def adopt(self, routes: Collection[str]) -> bool:  # noqa: ARG002 - required by the port
        """Return False: the only route is always served."""
        return False

    def open(self, report: Report, now: Callable[[], Micros]) -> None:
        """Prepare the threads."""
        self._now = now
        self._pool = WorkerPool(self._run, report, None, now, MAX_THREADS)

    def deliver(self, assignments: Sequence[Assignment]) -> None:
        """Do the work of each when it is due."""
        assert self._pool is not None, "open() comes first"  # noqa: S101 - a programming error
        self._pool.submit(assignments)

    def withdraw(self) -> list[Assignment]:
        """Take back queued assignments that may be delivered again."""
        return [] if self._pool is None else self._pool.withdraw()

    def close(self) -> None:
        """Start nothing more."""
        if self._pool is not None:
            self._pool.close()

    @abstractmethod
    def _run(self, assignment: Assignment) -> Delivered | Accepted:
        """Do the work, in a thread."""
