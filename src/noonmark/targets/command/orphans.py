"""Orphans: processes of commands whose node and supervisor are gone.

A program dies with its supervisor, but processes that it started may not. So a node looks for such processes on its
machine before it starts a program. It kills them if the node named in their environment is gone and the store says that
their run did not end by itself. What a program left running on purpose when it ended is not touched.

A node is named by its process id and start time within one pid namespace. So a reused process id is not mistaken for
it, and a node in another container, which cannot be seen from here, never counts as gone.
"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from noonmark.core.ids import stored_id
from noonmark.core.instants import SECOND
from noonmark.core.run import Outcome
from noonmark.targets.command.supervisor import PROC, RUN_VARIABLE, kill_all, list_processes, read_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.instants import Micros
    from noonmark.ports.store import Store

NODE_VARIABLE = "NOONMARK_NODE"
"""The environment variable that names the node that started a program."""
SCAN_INTERVAL: Micros = SECOND // 4
"""Time between two scans. An orphan's occurrence is leased to its node for longer than that."""
ENDED_BY_ITSELF = frozenset({Outcome.COMPLETED, Outcome.FAILED, Outcome.DELIVERY_FAILED, Outcome.SUSPENDED})
"""The program ended by itself, or never started; a workflow is suspended when its programs have ended."""
DEAD_STATES = ("Z", "X")

_numbers = count()
_live_nodes: set[str] = set()
"""The nodes in this process that have not stopped."""


class OrphanReaper:
    """Kills what dead nodes of the same store have left running on this machine."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._scanned: Micros | None = None

    def reap(self, now: Callable[[], Micros], *, force: bool = False) -> None:
        """Kill all orphans, unless a scan was made just now; OSError when one of them cannot be killed.

        The store may block: do not call this on an event loop.
        """
        with self._lock:
            if not force and self._scanned is not None and 0 <= now() - self._scanned < SCAN_INTERVAL:
                return
            scanned = now()
            for run in _find_orphans():
                if self._was_lost(run) and not kill_all(f"{RUN_VARIABLE}={run}".encode()):
                    raise OSError(f"processes left by run {run} cannot be killed")
            self._scanned = scanned

    def _was_lost(self, run: str) -> bool:
        """Whether a run, or that of the workflow which it is a step of, is in this store, and did not end by itself."""
        occurrence_id, _, fence = run.rpartition("-")
        occurrence_id = stored_id(occurrence_id)
        if self._store.occurrence(occurrence_id) is None:
            return False
        stored = self._store.run(f"{occurrence_id}-{fence}")
        return stored is None or stored[1].outcome not in ENDED_BY_ITSELF


def register_node() -> str:
    """Return a new node identity, which is alive until it is unregistered or this process ends."""
    node = f"{_namespace()}-{os.getpid()}-{_start_time(os.getpid()) or ''}-{next(_numbers)}"
    _live_nodes.add(node)
    return node


def unregister_node(node: str) -> None:
    """Mark a node of this process as gone."""
    _live_nodes.discard(node)


def is_node_gone(node: str) -> bool:
    """Whether a node has surely ended."""
    namespace, _, rest = node.partition("-")
    pid, _, rest = rest.partition("-")
    started = rest.partition("-")[0]
    if not started or not pid.isdigit() or namespace != _namespace():
        return False
    if int(pid) == os.getpid() and started == _start_time(os.getpid()):
        return node not in _live_nodes
    began = _start_time(int(pid))
    return not _exists(int(pid)) if began is None else started != began


def _namespace() -> str:
    """Return the pid namespace of this process; empty where /proc is missing."""
    with suppress(OSError):
        return str(Path(PROC, "self", "ns", "pid").stat().st_ino)
    return ""


def _start_time(pid: int) -> str | None:
    """Return the start time of a process; empty if it has ended, None if /proc does not show it or is missing."""
    try:
        state, *fields = Path(PROC, str(pid), "stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return "" if state in DEAD_STATES else fields[18]


def _exists(pid: int) -> bool:
    """Whether there is a process with that id, as far as is known. /proc may hide one that lives (`hidepid`)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _find_orphans() -> set[str]:
    """Return the ids of runs that still have processes, though their node is gone."""
    orphans: dict[str, str] = {}
    for pid in list_processes():
        environment = read_environment(pid)
        if RUN_VARIABLE.encode() in environment:
            variables = _variables(environment)
            if RUN_VARIABLE in variables and NODE_VARIABLE in variables:
                orphans[variables[RUN_VARIABLE]] = variables[NODE_VARIABLE]
    own = os.environ.get(RUN_VARIABLE)  # this node may itself have been started by a program of a run
    return {run for run, node in orphans.items() if run != own and is_node_gone(node)}


def _variables(environment: bytes) -> dict[str, str]:
    pairs = (entry.decode("ascii", "replace").partition("=") for entry in environment.split(b"\0"))
    return {name: value for name, _, value in pairs if name in (RUN_VARIABLE, NODE_VARIABLE)}
