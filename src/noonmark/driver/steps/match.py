"""Match: emitted events trigger the schedules that subscribe to them."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.causation import Reaction, match, unreadable
from noonmark.core.errors import NoonmarkError
from noonmark.driver.steps.reports import MatchReport
from noonmark.ports.events import Matched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.causation import UnmatchedEvent
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.driver.node import Node


logger = logging.getLogger("noonmark.driver")


async def match_once(node: Node) -> MatchReport:
    """Match one batch of events. Several nodes may match the same one; the first to commit wins."""
    limit = node.timing.batch
    audiences: list[UnmatchedEvent] = await node.executor.call(node.store.unmatched, limit)
    if not audiences:
        return MatchReport()
    # By the store's clock itself, not this node's estimate: it decides the order in line.
    now = await node.read_clock()
    if node.is_in_doubt:
        return MatchReport()
    reactions = [_react(one, now=now) for one in audiences]
    written = await _commit(node, reactions)
    done = [one for one, is_written in zip(reactions, written, strict=True) if is_written]
    node.report([Matched(one.audience.tenant, one.audience.event, one.occurrences) for one in done])
    return MatchReport(
        matched=len(done),
        occurrences=sum(len(one.occurrences) for one in done),
        outrun=len(reactions) - len(done),
        more=limit in (len(audiences), sum(len(one.listeners) for one in audiences)),
    )


def _react(audience: UnmatchedEvent, *, now: Micros) -> Reaction:
    """Decide for each schedule that may match the event."""
    if audience.problem:
        logger.error("event %s is unreadable and triggers nothing: %s", audience.event.event_id, audience.problem)
    rows = [_match(audience, one, now=now) for one in audience.listeners]
    return Reaction(audience=audience, occurrences=tuple(row for row in rows if row is not None))


def _match(audience: UnmatchedEvent, listener: Schedule, *, now: Micros) -> Occurrence | None:
    """Decide for one schedule. One that cannot be matched does not block the others."""
    try:
        return match(audience.event, listener, now=now)
    except Exception as error:
        logger.exception("could not match event %s with schedule %s", audience.event.event_id, listener.schedule_id)
        return unreadable(audience.event, listener, repr(error))


async def _commit(node: Node, reactions: Sequence[Reaction]) -> list[bool]:
    """Write reactions together. If the store cannot write one of them, write each alone."""
    try:
        written: list[bool] = await node.executor.call(node.store.commit_reactions, reactions)
    except NoonmarkError:
        raise
    except Exception:
        if len(reactions) > 1:
            return [done for one in reactions for done in await _commit(node, [one])]
        [reaction] = reactions
        logger.exception("could not write what event %s triggers", reaction.audience.event.event_id)
        if not reaction.occurrences:
            return [False]
        # It would block every later event of the tenant.
        return await _commit(node, [replace(reaction, occurrences=())])
    return written
