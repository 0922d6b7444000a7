"""Pings: the URL of a schedule whose job runs elsewhere, its rotation, and what a call of it changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core import edits
from noonmark.core.errors import Conflict, NotFound
from noonmark.core.lifecycle import LIVE, SchedulePhase
from noonmark.core.pings import Signal, Verdict, begun, delivered, expecting, is_delivering, ping_fields
from noonmark.core.redaction import PINGS
from noonmark.core.settlement import begin, settle
from noonmark.core.signatures import is_ping_token, ping_token, pinged_uid, token_keys
from noonmark.core.system_events import SystemEvent, early_ping_id, of_ping, unexpected_ping_id
from noonmark.core.targets.ping import Moment, PingTarget
from noonmark.operations import schedule_edits
from noonmark.operations.changes import topics_of
from noonmark.ports.changes import Change

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.pings import Ping
    from noonmark.core.planner import Plan, Snapshot
    from noonmark.core.schedule import Declaration, Schedule
    from noonmark.operations.models.arguments import OneSchedule, ScheduleAction
    from noonmark.operations.service import Caller, Service

UNCOUNTED = frozenset({str(Verdict.REPEATED), str(Verdict.PAUSED)})
"""Pings that do not count for the expected rate."""
MAX_LIVE = 1_000
"""Live occurrences of one schedule that are looked at."""


def get_ping_url(service: Service, caller: Caller, arguments: OneSchedule) -> dict[str, Any]:
    """Get the URL that the job of a schedule calls; anyone who has it can call it."""
    stored = schedule_edits.find_for(caller, service.store, arguments.schedule_id)
    _target(stored.schedule)
    return {"schedule_id": arguments.schedule_id, "ping_url": url_of(service, stored.schedule)}


def rotate_ping_url(service: Service, caller: Caller, arguments: ScheduleAction) -> dict[str, Any]:
    """Replace the URL that the job of a schedule calls; the old one is unknown from then on."""
    stored = schedule_edits.find_for(caller, service.store, arguments.schedule_id)
    expected = schedule_edits.Expected(arguments.expected_revision, arguments.expected_updated_at_utc)

    def read(schedule: Schedule, _: Micros) -> Declaration:
        expected.check(schedule)
        target = _target(schedule)
        return replace(schedule.declaration, target=replace(target, rotation=target.rotation + 1))

    audit = caller.audit(arguments.reason)
    edited = schedule_edits.declare(service.store, stored.schedule.uid, read, lookahead=service.lookahead, audit=audit)
    return {"schedule_id": arguments.schedule_id, "ping_url": url_of(service, edited)}


def url_of(service: Service, schedule: Schedule) -> str | None:
    """The URL that the job of a schedule calls; None if its target is not a ping."""
    target = schedule.declaration.target
    if not isinstance(target, PingTarget):
        return None
    key = token_keys(service.keys, service.store.own_key())[0]
    return f"{service.base_url}{PINGS}{ping_token(key, uid=schedule.uid, rotation=target.rotation)}"


def receive(service: Service, token: str, ping: Ping) -> dict[str, Any]:
    """Count a ping for the occurrence that expects it; NotFound if the token is unknown."""
    schedule = _find_by_token(service, token)
    answer = _receive(service, schedule, ping)
    owner = schedule.owner
    topics = topics_of("ping/receive")
    service.changed(Change(topics=topics, tenant=owner.tenant, user=owner.user, schedule_ids=(schedule.schedule_id,)))
    if schedule.declaration.expected_rate is not None and answer["verdict"] not in UNCOUNTED:
        _count_for_rate(service, schedule, ping)
    return answer


def _count_for_rate(service: Service, schedule: Schedule, ping: Ping) -> None:
    """Count a ping for the expected rate of its schedule, whether an occurrence expected it or not."""
    plans: list[Plan] = []

    def decide(snapshot: Snapshot, now: Micros) -> Plan | None:
        is_start, is_success = ping.signal is Signal.START, ping.signal is Signal.SUCCESS
        counted = edits.ping(snapshot, is_start=is_start, is_success=is_success, now=now, lookahead=service.lookahead)
        plans[:] = [] if counted is None else [counted]
        return counted

    if service.store.change(schedule.uid, decide) and plans and (alert := plans[0].rate_alert) is not None:
        service.report_rate(schedule, alert)


def _receive(service: Service, schedule: Schedule, ping: Ping) -> dict[str, Any]:
    while True:
        live = service.store.occurrences(schedule.uid, MAX_LIVE, phases=LIVE)
        now = service.store.clock()
        occurrence = expecting(live, schedule, now=now)
        if occurrence is None:
            return _unexpected(service, schedule, ping, now=now)
        if is_delivering(occurrence):
            if _count(service, schedule, occurrence, ping, now=now):
                service.wake(None)
                return _answer(schedule, Verdict.COUNTED, occurrence)
            continue  # it has just ended, or its node has just taken it over
        answer = _store_early(service, schedule, occurrence, ping, now=now)
        stored = service.store.occurrence(occurrence.id)
        # A reader that opens it from now on finds the event; one that opened it before may not.
        if stored is None or not is_delivering(stored) or _count(service, schedule, stored, ping, now=now):
            service.wake(occurrence.due)
            return answer


def _count(service: Service, schedule: Schedule, occurrence: Occurrence, ping: Ping, *, now: Micros) -> bool:
    """Start the timeout of an open occurrence, or end it; False if it has changed since it was read."""
    node = occurrence.node or ""
    if ping.signal is Signal.START:
        settlement = begin(occurrence, schedule, begun(schedule, now=max(now, occurrence.due)), node=node)
    else:
        settlement = settle(occurrence, schedule, delivered(ping, occurrence, now=now), node=node)
    is_written = service.store.settle([settlement])[0]
    if is_written and ping.signal is not Signal.START:
        service.report_end(schedule, settlement, source="ping")
    elif is_written and service.pinger is not None:
        service.pinger.ping(schedule, occurrence, Moment.START)
    return is_written


def _store_early(
    service: Service, schedule: Schedule, occurrence: Occurrence, ping: Ping, *, now: Micros
) -> dict[str, Any]:
    """Store a ping for an occurrence that no node has opened yet."""
    key = early_ping_id(occurrence.id, is_start=ping.signal is Signal.START)
    event = of_ping(SystemEvent.PING_EARLY, schedule, key, ping_fields(ping, occurrence, now=now))
    [is_new] = service.store.emit(schedule.owner.tenant, [event])
    return _answer(schedule, Verdict.EARLY if is_new else Verdict.REPEATED, occurrence)


def _unexpected(service: Service, schedule: Schedule, ping: Ping, *, now: Micros) -> dict[str, Any]:
    """Record a ping that counts for nothing."""
    if schedule.phase is SchedulePhase.PAUSED:
        return _answer(schedule, Verdict.PAUSED, None)
    key = unexpected_ping_id(schedule.uid, now)
    event = of_ping(SystemEvent.PING_UNEXPECTED, schedule, key, ping_fields(ping, None, now=now))
    service.store.emit(schedule.owner.tenant, [event])
    service.wake(None)
    return _answer(schedule, Verdict.UNEXPECTED, None)


def _answer(schedule: Schedule, verdict: Verdict, occurrence: Occurrence | None) -> dict[str, Any]:
    return {
        "schedule_id": schedule.schedule_id,
        "verdict": str(verdict),
        "why": verdict.sentence,
        "occurrence_id": None if occurrence is None else occurrence.id,
    }


def _find_by_token(service: Service, token: str) -> Schedule:
    """The schedule that a token was made for; the error does not repeat the token."""
    stored = service.store.find_uid(pinged_uid(token))
    schedule = None if stored is None else stored.schedule
    if schedule is not None and schedule.phase is not SchedulePhase.DELETED:
        target, keys = schedule.declaration.target, token_keys(service.keys, service.store.own_key())
        if isinstance(target, PingTarget) and is_ping_token(token, keys, uid=schedule.uid, rotation=target.rotation):
            return schedule
    raise NotFound("there is no such ping URL: it was mistyped, replaced, or its schedule was deleted")


def _target(schedule: Schedule) -> PingTarget:
    target = schedule.declaration.target
    if not isinstance(target, PingTarget):
        raise Conflict(f"its target is of kind {target.kind}; only one of kind ping has a URL", field="schedule_id")
    return target
