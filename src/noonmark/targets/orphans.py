"""Orphans: processes of programs whose node and keeper are gone. They are found and ended here.

A program dies with its keeper, but what it has started itself need not. So whoever starts programs on the same machine
looks for such processes before it does: the node that is named in their environment is gone, and the store says that
their run did not come to an end of its own. What a program left behind on purpose, when it had ended, is left alone.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import TYPE_CHECKING

from noonmark.core.instants import SECOND
from noonmark.core.run import Outcome
from noonmark.targets.keeper import RUN_MARK, end_bearers, environment_of, processes
from noonmark.targets.node_marks import NODE_MARK, is_gone

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.instants import Micros
    from noonmark.ports.store import Store

LOOK_EVERY: Micros = SECOND // 4
"""Between two looks. What a node leaves keeps its place until its lease runs out, which takes longer."""
ANSWERED = frozenset({Outcome.COMPLETED, Outcome.FAILED, Outcome.DELIVERY_FAILED})
"""The program ended by itself, or never began."""


class OrphanedPrograms:
    """What dead nodes of the same store have left running on this machine."""

    def __init__(self, store: Store) -> None:
        """Nobody has looked yet."""
        self._store = store
        self._lock = Lock()
        self._looked: Micros | None = None

    def end(self, now: Callable[[], Micros], *, at_once: bool = False) -> None:
        """End all of them, unless somebody has just done so; OSError when one of them cannot be.

        The store may block: not for the thread of an event loop.
        """
        with self._lock:
            if not at_once and self._looked is not None and 0 <= now() - self._looked < LOOK_EVERY:
                return
            looked = now()
            for run in _orphans():
                if self._was_lost(run) and not end_bearers(f"{RUN_MARK}={run}".encode()):
                    raise OSError(f"what run {run} has left running cannot be ended")
            self._looked = looked

    def _was_lost(self, run: str) -> bool:
        """Whether a run is one of this store, and did not come to an end of its own."""
        if self._store.occurrence(run.rpartition("-")[0]) is None:
            return False
        found = self._store.run(run)
        return found is None or found[1].outcome not in ANSWERED


def _orphans() -> set[str]:
    """The runs of which something goes on, though the node that began them is gone."""
    found: dict[str, str] = {}
    for pid in processes():
        environment = environment_of(pid)
        if RUN_MARK.encode() in environment:
            marks = _marks(environment)
            if RUN_MARK in marks and NODE_MARK in marks:
                found[marks[RUN_MARK]] = marks[NODE_MARK]
    own = os.environ.get(RUN_MARK)  # a program may have started this very node
    return {run for run, node in found.items() if run != own and is_gone(node)}


def _marks(environment: bytes) -> dict[str, str]:
    pairs = (one.decode("ascii", "replace").partition("=") for one in environment.split(b"\0"))
    return {name: value for name, _, value in pairs if name in (RUN_MARK, NODE_MARK)}
