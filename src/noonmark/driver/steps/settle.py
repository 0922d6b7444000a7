"""Settle: write the progress and the ends of deliveries, many in one transaction."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from noonmark.core.errors import NoonmarkError
from noonmark.core.ids import TRIGGER
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import FINAL, Phase
from noonmark.core.policies.overlap import Allow, Skip
from noonmark.core.policies.runaway import RunawayRule
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.settlement import Accepted, Delivered, interim, settle
from noonmark.core.targets.ping import MOMENTS
from noonmark.core.triggers import CalendarTrigger, CronTrigger, IntervalTrigger, OnceTrigger
from noonmark.driver import logs
from noonmark.driver.steps.reports import ProgressReport, SettleReport
from noonmark.driver.store_executor import Priority
from noonmark.ports.budgets import reported_usage
from noonmark.ports.events import Abandoned, LeaseLost, Progressed, RanAway, Settled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.schedule import Schedule
    from noonmark.core.settlement import RunInProgress, Settlement, Suspended
    from noonmark.core.triggers import Trigger
    from noonmark.driver.node import Node
    from noonmark.driver.wakeup import Wakeup
    from noonmark.ports.events import DriverEvent
    from noonmark.ports.target import Assignment

    End = tuple[Assignment, Delivered | Accepted | Suspended]


async def progress_once(node: Node) -> ProgressReport:
    """Write new output. What could not be written stays for the next time, unless there is newer output."""
    reports: list[tuple[Assignment, RunInProgress]] = []
    while node.underway:
        reports.append(node.underway.popitem()[1])
    reports = [(assignment, underway) for assignment, underway in reports if _goes_on(node, assignment)]
    if not reports:
        return ProgressReport()
    written = [False] * len(reports)
    interims = [interim(assignment.occurrence, underway, node=node.id) for assignment, underway in reports]
    try:
        written = await node.executor.call(node.store.progress, interims)
    finally:
        for (assignment, underway), done in zip(reports, written, strict=True):
            if not done and _goes_on(node, assignment):
                node.underway.setdefault(assignment.occurrence.id, (assignment, underway))
    node.report(
        [Progressed(assignment.occurrence) for (assignment, _), done in zip(reports, written, strict=True) if done]
    )
    return ProgressReport(written=sum(written), left=len(written) - sum(written))


def _goes_on(node: Node, assignment: Assignment) -> bool:
    return not assignment.is_closed and node.deliveries.get(assignment.occurrence.id) is assignment


logger = logging.getLogger("noonmark.jobs")

LAST_CALL: Micros = 6 * SECOND
"""How long a stopping node waits for runs that it has stopped, before it hands them back."""

_LEAVE_NO_LINE = (Skip, Allow)
_COMPLETED, _PENDING = Phase.COMPLETED, Phase.PENDING


async def settle_once(node: Node) -> SettleReport:
    """Write the ends of one batch of deliveries. On a failure they stay for the next try."""
    count = min(len(node.finished), node.batch)
    batch = [node.finished.popleft() for _ in range(count)]
    if not batch:
        return SettleReport()
    try:
        return await _write(node, batch)
    except NoonmarkError:
        node.finished.extendleft(reversed(batch))
        raise
    except Exception:
        # The store cannot write one of them; each is written alone.
        logger.exception("could not write %d ends together", count)
        reports = [await _write_alone(node, one) for one in batch]
        settled = sum(one.settled for one in reports)
        return SettleReport(settled=settled, lost=count - settled, frees_others=True)


async def _write(node: Node, batch: Sequence[End]) -> SettleReport:
    was_full = node.room <= 0
    settlements = [
        settle(
            assignment.occurrence,
            assignment.schedule,
            delivered,
            node=node.id,
            reported=() if assignment.usage is None else assignment.usage.all,
        )
        for assignment, delivered in batch
    ]
    written = await node.executor.call(node.store.settle, settlements, priority=Priority.URGENT)
    driver_events: list[DriverEvent] = []
    completed: list[tuple[Schedule, Settlement]] = []
    deliveries, frees_others, has_sink = node.deliveries, was_full, node.has_sink
    logs_completions = logger.isEnabledFor(logging.INFO)
    for (assignment, _), settlement, done in zip(batch, settlements, written, strict=True):
        occurrence = assignment.occurrence
        if deliveries.get(occurrence.id) is assignment:
            del deliveries[occurrence.id]
        if node.underway:
            node.underway.pop(occurrence.id, None)
        if not done:
            driver_events.append(LeaseLost(occurrence.id, settlement.run))
            continue
        if settlement.phase in FINAL:
            _notify_end(node, assignment, settlement)
        frees_others = frees_others or _frees_others(assignment, settlement)
        if settlement.phase is not _COMPLETED:
            logs.failed(assignment.schedule, settlement, reach=node.runtime.reach)
        elif logs_completions:
            completed.append((assignment.schedule, settlement))
        if has_sink:
            driver_events.append(_settled(settlement))
        if assignment.abandoned:
            driver_events.append(Abandoned(occurrence, assignment.abandoned))
    logs.completed(completed)
    node.report(driver_events)
    await log_pauses(node, [one for one, done in zip(settlements, written, strict=True) if done])
    await _record_lost_usage(node, [one for one, done in zip(settlements, written, strict=True) if not done])
    settled = sum(written)
    return SettleReport(settled=settled, lost=len(batch) - settled, frees_others=frees_others)


def _notify_end(node: Node, assignment: Assignment, settlement: Settlement) -> None:
    """Call the callback and the URL that wait for the end of an occurrence."""
    node.ended(assignment.occurrence, assignment)
    if assignment.schedule.declaration.ping_urls is not None:
        node.ping(assignment.schedule, assignment.occurrence, MOMENTS.get(settlement.phase))


async def _record_lost_usage(node: Node, lost: Sequence[Settlement]) -> None:
    """Record what runs have used although another node has their occurrences by now: it is spent."""
    records = [record for settlement in lost for record in reported_usage(settlement)]
    if not records:
        return
    try:
        await node.executor.call(node.store.record_usage, records)
    except NoonmarkError as error:  # the other ends are written
        logger.warning("the usage of %d lost runs was not recorded: %s", len(lost), error)


async def log_pauses(node: Node, ended: Sequence[Settlement]) -> None:
    """Log which schedules are paused now because of these ends, and count those that ran away."""
    for settlement in ended:
        if settlement.may_pause:
            with suppress(NoonmarkError):  # the ends are written; only a line is missing
                stored = await node.executor.call(node.store.find_uid, settlement.occurrence.uid)
                is_paused = stored is not None and logs.paused(stored.schedule, settlement, reach=node.runtime.reach)
                if is_paused and not settlement.is_failure:
                    node.report([RanAway(settlement.occurrence.schedule_id, RunawayRule.RESULTS)])


async def _write_alone(node: Node, end: End) -> SettleReport:
    """Write one end. If that fails, the node that takes the row over when its lease expires decides it."""
    assignment, _ = end
    try:
        return await _write(node, [end])
    except NoonmarkError:
        node.finished.append(end)
        return SettleReport()
    except Exception:
        logger.exception("could not write the end of occurrence %s", assignment.occurrence.id)
        if node.deliveries.get(assignment.occurrence.id) is assignment:
            del node.deliveries[assignment.occurrence.id]
        return SettleReport(lost=1)


def hand_back(node: Node, only: Sequence[Assignment] | None = None, *, waits: bool = False) -> int:
    """Stop all deliveries, or some of them, and report them as not finished; returns how many.

    With `waits`, the target reports those that it can stop once they have ended: no node starts them before that.
    """
    now = node.now
    running = [one for one in (node.deliveries.values() if only is None else only) if not one.is_closed]
    for assignment in running:
        if waits and assignment.ends_soon:
            assignment.stop(Reason.LEASE_LOST)
            continue
        assignment.is_closed = True
        assignment.stop(Reason.LEASE_LOST)
        started = now if assignment.started is None else assignment.started
        delivered = Delivered(outcome=Outcome.LEASE_LOST, started=started, ended=now)
        node.finished.append((assignment, delivered))
    return len(running)


async def until_ended(node: Node, news: Wakeup, until: Callable[[], Micros | None]) -> None:
    """Wait until all runs have ended, or until a time; not for the writes, which may take a while, or fail."""
    while not all(one.is_closed for one in node.deliveries.values()):
        ends = until()
        left = None if ends is None else ends - node.store_clock.monotonic()
        if left is not None and left <= 0:
            break
        await news.wait(left)


def is_deferrable(node: Node, assignment: Assignment, delivered: Delivered | Accepted | Suspended) -> bool:
    """Whether the end of a run may be written later: no other occurrence, step of a workflow or caller waits for it."""
    occurrence, declared = assignment.occurrence, assignment.schedule.declaration
    if not isinstance(delivered, Delivered) or delivered.outcome is not Outcome.COMPLETED or node.room <= 0:
        return False
    if _is_followed(assignment) or occurrence.id in node.on_end:
        return False
    if occurrence.overrides is not None or occurrence.origin != TRIGGER:
        return False
    return isinstance(declared.overlap_policy, Allow) or not _is_rapid(declared.trigger)


def _is_rapid(trigger: Trigger | None) -> bool:
    """Whether the next fire may come at any moment, and be skipped because of this one."""
    return not isinstance(trigger, CronTrigger | CalendarTrigger | OnceTrigger | IntervalTrigger) or (
        isinstance(trigger, IntervalTrigger) and trigger.every < SECOND
    )


def _frees_others(assignment: Assignment, settlement: Settlement) -> bool:
    return settlement.phase is _PENDING or _is_followed(assignment)


def _is_followed(assignment: Assignment) -> bool:
    """Whether another occurrence may be in line behind this one."""
    declared = assignment.schedule.declaration
    is_alone = isinstance(declared.overlap_policy, _LEAVE_NO_LINE) and declared.concurrency is None
    return not is_alone or assignment.occurrence.caught_up is not None


def _settled(settlement: Settlement) -> Settled:
    return Settled(settlement.occurrence, settlement.phase, settlement.reason, settlement.run, settlement.retry_at)
