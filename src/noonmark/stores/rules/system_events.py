"""System events: facts become events in the transaction in which they happened, if a schedule subscribes to them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from noonmark.core import system_events
from noonmark.core.causation import MAX_DEPTH, MAX_FACTS
from noonmark.core.ids import is_hidden
from noonmark.stores.rules import events
from noonmark.stores.rules.records import Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noonmark.core.event import Event
    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.stores.rules.unit_of_work import Fact, UnitOfWork

logger = logging.getLogger("noonmark.store")


def publish(uow: UnitOfWork) -> None:
    """Emit the facts of a transaction, in their order, after everything else was written."""
    if uow.crossed:
        _publish_thresholds(uow)
    if not uow.facts and not uow.system_events:
        return
    facts, uow.facts = uow.facts, []
    others, uow.system_events = uow.system_events, []
    tenants = uow.tenants_of({fact.state.schedule for fact in facts})
    # No schedule subscribes to facts of a schedule whose tenant is unknown.
    owned = [(tenants.get(fact.state.schedule, ""), fact) for fact in facts]
    topics = {(tenant, str(event)) for tenant, event in {(tenant, fact.event) for tenant, fact in owned}}
    subscribed = uow.subscribed(topics | {(tenant, event.event_type) for tenant, event in others})
    subscribed_events = [(tenant, fact) for tenant, fact in owned if (tenant, fact.event) in subscribed]
    published: dict[str, list[Event]] = {}
    for (tenant, _), event in zip(
        subscribed_events, _events(uow, [fact for _, fact in subscribed_events]), strict=True
    ):
        if event is not None:
            published.setdefault(tenant, []).append(event)
    for tenant, event in others:
        if (tenant, event.event_type) in subscribed:
            published.setdefault(tenant, []).append(event)
    for tenant, emitted in published.items():
        events.emit(uow, tenant, emitted)
        uow.wakes_nodes = True


def _publish_thresholds(uow: UnitOfWork) -> None:
    crossed, uow.crossed = uow.crossed, []
    topic = str(system_events.SystemEvent.BUDGET_THRESHOLD)
    subscribed = uow.subscribed({(standing.budget.tenant, topic) for standing in crossed})
    for standing in crossed:
        if (standing.budget.tenant, topic) in subscribed:
            events.emit(uow, standing.budget.tenant, [system_events.of_budget(standing)])
            uow.wakes_nodes = True


def publish_lost_node(uow: UnitOfWork, node: str, seen: Micros, event: Event, tenants: Iterable[str]) -> bool:
    """Emit for some tenants that a node was lost, unless that was reported before or is not true."""
    if not uow.mark_node_lost(node, seen):
        return False
    for tenant in tenants:
        events.emit(uow, tenant, [event])
        uow.wakes_nodes = True
    return True


def _events(uow: UnitOfWork, facts: list[Fact]) -> list[Event | None]:
    """The event of each fact; None if its record is damaged or its causation chain is too long."""
    states = {fact.state.schedule: fact.state for fact in facts if fact.schedule is None}
    stored = uow.schedules_of(states.values()) if states else {}
    events: list[Event | None] = []
    for fact in facts:
        schedule = stored[fact.state.schedule] if fact.schedule is None else fact.schedule
        try:
            if isinstance(schedule, Unreadable):
                raise schedule
            events.append(_event(uow, fact, schedule))
        except (Unreadable, KeyError) as error:
            logger.error(  # noqa: TRY400 - the record is damaged, not the program
                "%s of schedule %s is not emitted, its record cannot be read: %s", fact.event, fact.state.uid, error
            )
            events.append(None)
    return events


def _event(uow: UnitOfWork, fact: Fact, schedule: Schedule) -> Event | None:
    """The event of a fact; None if no schedule subscribes to it, or its causation chain is too long."""
    if fact.alert is not None:
        return system_events.of_rate(schedule, fact.alert)
    if fact.breach is not None:
        return system_events.of_runaway(schedule, fact.breach)
    if fact.row is None:
        if is_hidden(schedule.schedule_id):
            return None
        return system_events.of_schedule(fact.event, schedule, note=fact.note, failures=fact.failures)
    occurrence = uow.occurrence(fact.row, schedule)
    if occurrence.overrides is not None and occurrence.overrides.parent is not None:
        return None  # a step of a workflow run, which has events of its own
    event = system_events.of_occurrence(fact.event, schedule, occurrence, run=fact.run, waited_for=fact.waited_for)
    if event is None:
        # Not a warning: with two listeners that take everything, it happens at the end of every job.
        logger.info(
            "%s of occurrence %s is not emitted: a chain has at most %d events, and %d system events",
            fact.event,
            occurrence.id,
            MAX_DEPTH,
            MAX_FACTS,
        )
    return event
