"""Telling: what has happened becomes events, in the transaction in which it happened, where somebody listens for them.

Whoever has noted nothing pays nothing. Otherwise one statement asks which of the types that occur are listened for.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from noonmark.stores.sql import events, nodes, subscriptions
from noonmark.stores.sql.records import Unreadable, from_json, occurrence
from noonmark.stores.system_events import to_event

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.stores.sql.records import Row
    from noonmark.stores.sql.session import Session
    from noonmark.stores.sql.unit_of_work import Noted, UnitOfWork

logger = logging.getLogger("noonmark.store")
_TENANTS = "SELECT key, tenant FROM schedules WHERE key IN EACH(bigint)"


def tell(uow: UnitOfWork) -> None:
    """Emit what has happened, in that order, once everything else was written."""
    if not uow.facts:
        return
    noted, uow.facts = uow.facts, []
    tenants = _tenants(uow, {state.schedule for _, state, *_ in noted})
    # Nobody listens for what a schedule does of which nobody can say whose it is.
    owned = [(tenants.get(one[1].schedule, ""), one) for one in noted]
    heard = subscriptions.heard(uow.session, {(tenant, str(one[0])) for tenant, one in owned})
    wanted = [(tenant, one) for tenant, one in owned if (tenant, one[0]) in heard]
    told: dict[str, list[Event]] = {}
    for (tenant, _), event in zip(wanted, _events(uow, [one for _, one in wanted]), strict=True):
        if event is not None:
            told.setdefault(tenant, []).append(event)
    for tenant, emitted in told.items():
        events.emit(uow, tenant, emitted)
        uow.woke = True


def tell_lost(uow: UnitOfWork, node: str, seen: Micros, event: Event, tenants: Iterable[str]) -> bool:
    """Emit that a node was lost for some tenants, unless that was told before or is not so."""
    if not nodes.miss(uow.session, node, seen):
        return False
    for tenant in tenants:
        events.emit(uow, tenant, [event])
        uow.woke = True
    return True


def listening_for(session: Session, event: Event) -> list[str]:
    """The tenants in which somebody listens for events like this one."""
    told = session.query(subscriptions.LISTENING, event.event_type)
    return [tenant for tenant, found in told if found and isinstance(tenant, str)]


def _tenants(uow: UnitOfWork, keys: Iterable[int]) -> dict[int, str]:
    """Whose schedules these are."""
    unknown = [key for key in keys if key not in uow.tenants]
    if unknown:
        found = uow.session.query(_TENANTS, unknown)
        uow.tenants.update((key, tenant) for key, tenant in found if isinstance(tenant, str))
    return uow.tenants


def _events(uow: UnitOfWork, wanted: list[Noted]) -> list[Event | None]:
    """The events of facts that somebody wants to hear."""
    if not wanted:
        return []
    versions = {state.schedule: state.version for _, state, _, _, schedule in wanted if schedule is None}
    stored = uow.schedule_cache.read(uow.session, versions) if versions else {}
    found: list[Event | None] = []
    for fact, state, row, more, schedule in wanted:
        of = stored[state.schedule] if schedule is None else schedule
        try:
            if isinstance(of, Unreadable):
                raise of
            found.append(to_event(fact, of, None if row is None else _occurrence(row, of), more))
        except (Unreadable, KeyError) as error:
            logger.error("%s of schedule %s is not told, its record cannot be read: %s", fact, state.uid, error)  # noqa: TRY400 - a damaged record is no mistake of ours
            found.append(None)
    return found


def _occurrence(row: Row, schedule: Schedule) -> Occurrence:
    return occurrence(row, schedule.uid, schedule.schedule_id, from_json(row.payload, "payload"))
