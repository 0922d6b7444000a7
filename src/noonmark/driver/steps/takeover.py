"""Takeover: end the leases of nodes on this machine whose process is gone, so that their work begins again at once.

The kernel knows at once that a process has ended: see `noonmark.node_locks`. A node checks the locks of its
neighbours at a short interval. Waiting for a lock instead would take a thread for each neighbour, and a thread that
waits for a lock cannot be stopped. A check lists one folder and makes one system call for each neighbour; the store is
asked only when a process is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.driver import logs
from noonmark.driver.steps.reports import TakeoverReport

if TYPE_CHECKING:
    from noonmark.driver.node import Node


async def lock_process(node: Node) -> None:
    """Lock the file of this node, before its first heartbeat and before it starts any process."""
    if node.runtime.locks is None or node.process_lock is not None:
        return
    process_lock = await node.executor.call(node.runtime.locks.acquire, node.id)
    _note_lock(node, process_lock)


def _note_lock(node: Node, process_lock: str) -> None:
    if node.process_lock is None:
        node.process_lock = process_lock
    elif process_lock and node.runtime.locks is not None:  # another step was faster
        node.runtime.locks.release(node.id)


async def freshen_lock(node: Node) -> None:
    """Let the lock file of this node look used."""
    if node.runtime.locks is not None:
        await node.executor.call(node.runtime.locks.freshen)


def unlock_process(node: Node) -> None:
    """Give up the lock of this node: it holds no leases any more."""
    if node.runtime.locks is not None and node.process_lock:
        node.process_lock = ""
        node.runtime.locks.release(node.id)


async def take_over_once(node: Node) -> TakeoverReport:
    """End the leases of nodes on this machine whose process is gone."""
    await lock_process(node)  # the folder is known from then on
    locks = node.runtime.locks
    gone_nodes = {} if locks is None else locks.find_gone()
    expired = 0
    for name, process_lock in gone_nodes.items():
        count = await node.executor.call(node.store.expire_leases, name, process_lock)
        if count:
            logs.process_gone(name, count)
            expired += count
        elif locks is not None and name in node.gone_before:
            # Not when it is first found: what the process sent last may reach the store after its end.
            locks.remove(name)
    node.gone_before = frozenset(gone_nodes)
    return TakeoverReport(gone=len(gone_nodes), expired=expired)
