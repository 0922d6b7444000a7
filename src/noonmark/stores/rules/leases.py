"""Leases of a node whose process is gone: they end now, not when they run out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noonmark.stores.rules.unit_of_work import UnitOfWork


def expire(uow: UnitOfWork, node: str, process_lock: str) -> int:
    """End the leases of a node whose process is gone; returns how many.

    Only if its last heartbeat names the lock that was found free: the caller may have looked at another file. Fences
    stay: what the process sent before it ended may still arrive, and counts until another node claims the row.
    """
    if not process_lock or uow.process_of(node).lock != process_lock:
        return 0
    uow.mark_process_gone(node)
    now = uow.now()
    # A damaged row is not written; it is ended when its lease runs out.
    sound = (row for row in uow.rows_leased_by(node) if row.damage is None)
    leased = [row for row in sound if row.lease_end is not None and row.lease_end > now]
    for row in leased:
        row.lease_end = now
        uow.changed(row)
    return len(leased)
