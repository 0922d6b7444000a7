"""Occurrences: list, get, complete, fail and cancel; and the ones that callers request: runs and backfills."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.reported import masked
from noonmark.core.budgets.spend import Usage
from noonmark.core.errors import Conflict, InvalidRequest, KeyReused, NotFound, OverlapConflict
from noonmark.core.ids import backfill as backfill_origin
from noonmark.core.instants import MIN_INSTANT, from_micros, to_text
from noonmark.core.interruption import engine_of
from noonmark.core.lifecycle import FINAL, LIVE, Phase, SchedulePhase
from noonmark.core.occurrence import Overrides, in_force
from noonmark.core.planner import occurrence as plan_occurrence
from noonmark.core.policies.limits import Concurrency
from noonmark.core.policies.overlap import Allow, Skip, read_overlap
from noonmark.core.quotas import Resource
from noonmark.core.run import Outcome
from noonmark.core.settlement import Delivered, began, settle
from noonmark.core.signatures import check_token, token_keys
from noonmark.core.targets import AGENT_KINDS, AGENT_ROUTES
from noonmark.core.triggers import EventTrigger
from noonmark.operations import schedule_edits
from noonmark.operations.models.arguments import MAX_BACKFILL
from noonmark.operations.models.fields import ArgumentReader, write_cursor
from noonmark.operations.remote_turns import end_turn
from noonmark.operations.secrets import redact, redactor_for
from noonmark.operations.serializers import (
    SMALL_TARGET,
    fitting,
    lost_nodes,
    occurrence_document,
    occurrence_documents,
    read_page,
)
from noonmark.operations.service import cause_of_backfill, cause_of_run, quotas_of, record_audit_entry
from noonmark.operations.target_policy import check_payload, engine_wait, unserved, unserved_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.overlap import OverlapPolicy
    from noonmark.core.schedule import Schedule
    from noonmark.operations.models.arguments import (
        BackfillRequest,
        Cancellation,
        Completion,
        Failure,
        OccurrenceQuery,
        OneOccurrence,
        RunRequest,
        UsageReport,
    )
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.records import StoredSchedule


def list_occurrences(service: Service, caller: Caller, arguments: OccurrenceQuery) -> dict[str, Any]:
    """List the occurrences of a schedule, latest nominal time first."""
    phases = frozenset(arguments.phase or ())
    if not arguments.include_terminal:
        phases = frozenset(phases or LIVE) - FINAL
    stored = schedule_edits.find_for(caller, service.store, arguments.schedule_id, deleted=True)

    def fetch(count: int, last: Occurrence | None) -> list[Occurrence]:
        before = arguments.cursor if last is None else (last.nominal, last.id)
        return service.store.occurrences(stored.schedule.uid, count, before=before, phases=phases)

    def serialize(page: Sequence[Occurrence]) -> list[dict[str, Any]]:
        runs = service.store.last_runs([occurrence.id for occurrence in page if occurrence.has_begun])
        asks = any(occurrence.phase in (Phase.PENDING, Phase.DISPATCHING) for occurrence in page)
        nodes = service.store.nodes() if asks else []
        missing = unserved_by(nodes, stored.schedule, service.permissions)
        lost = lost_nodes(nodes, page, now=service.store.clock()) if asks else {}
        return occurrence_documents(page, stored.schedule, runs, largest=SMALL_TARGET, unserved=missing, lost=lost)

    entries, end = read_page(arguments.limit, fetch, serialize)
    return {"occurrences": entries, "next_cursor": None if end is None else write_cursor(end.nominal, end.id)}


def get_occurrence(service: Service, caller: Caller, arguments: OneOccurrence) -> dict[str, Any]:
    """Get an occurrence."""
    return _document(service, caller, arguments.occurrence_id)


def run_schedule(service: Service, caller: Caller, arguments: RunRequest) -> dict[str, Any]:
    """Run a schedule now; its next fire stays. The same key again returns the same occurrence."""
    override = _overlap_policy(arguments)
    payload, schedule_id = arguments.payload, arguments.schedule_id
    stored = schedule_edits.find_for(caller, service.store, schedule_id)
    check_payload(service, stored.schedule, payload)
    now = service.store.clock()
    behind, key = cause_of_run(service, caller, schedule_id, arguments.key)
    overrides = None
    if override is not None or behind is not None or caller.granted is not None:
        overrides = Overrides(overlap_policy=override, behind=behind, scopes=caller.granted)
    requested = schedule_edits.run_now(
        stored.schedule,
        key=key or caller.call_key or service.fresh_id(),
        payload=payload,
        now=now,
        overrides=overrides,
    )
    if (occurrence := service.store.occurrence(requested.id)) is None:
        _check_overlap(service, stored, override or stored.schedule.declaration.overlap_policy)
        if not service.store.add([requested], limits=quotas_of(service, caller, Resource.QUEUED))[0]:
            _check_not_deleted(service, stored.schedule)
        service.wake(None)  # it is durable, so it need not wait for the audit entry
        record_audit_entry(service, caller, arguments.reason, schedule=stored.schedule)
        occurrence = service.store.occurrence(requested.id)
    elif (occurrence.payload, _declared(occurrence.overrides)) != (requested.payload, _declared(requested.overrides)):
        raise KeyReused("this key came with another payload or overlap policy before", field="key")
    missing = unserved(service.store, stored.schedule, service.permissions)
    return occurrence_document(occurrence or requested, stored.schedule, unserved=missing)


def _overlap_policy(arguments: RunRequest) -> OverlapPolicy | None:
    if arguments.overlap is None:
        return None
    reader = ArgumentReader({"overlap": arguments.overlap})
    policy = read_overlap(reader, "overlap", trigger_type="")
    reader.done()
    return policy


def _check_not_deleted(service: Service, schedule: Schedule) -> None:
    """Raise NotFound if rows were refused because the schedule was deleted, and not because they exist already."""
    stored = service.store.find_uid(schedule.uid)
    if stored is None or stored.schedule.phase is SchedulePhase.DELETED:
        raise NotFound("the schedule was deleted", field="schedule_id")


def _declared(overrides: Overrides | None) -> dict[str, Any]:
    """What the caller declared for a run, without its cause, which callers do not choose."""
    return {} if overrides is None else overrides.declared_fields


def _check_overlap(service: Service, stored: StoredSchedule, policy: object) -> None:
    """Refuse a run that would be skipped at once."""
    [activity] = service.store.activities([stored.schedule.uid])
    if isinstance(policy, Skip) and activity.delivering:
        raise OverlapConflict(
            f"{activity.delivering[0]} is in flight, and the overlap policy is skip; ask with another overlap policy"
            " for this run, such as queue or allow",
            field="overlap",
        )


def backfill(service: Service, caller: Caller, arguments: BackfillRequest) -> dict[str, Any]:
    """Run past fires of a schedule again, one after another or several at a time."""
    stored = schedule_edits.find_for(caller, service.store, arguments.schedule_id)
    now = service.store.clock()
    times = _past_fires(stored.schedule, arguments, now=now)
    backfill_id = arguments.key or service.fresh_id()
    overrides = _backfill_terms(stored.schedule, backfill_id, arguments.concurrency)
    behind = cause_of_backfill(service, caller, arguments.schedule_id)
    if behind is not None:
        overrides = replace(overrides or Overrides(), behind=behind)
    origin = backfill_origin(backfill_id)
    # Due one microsecond apart, so that they start in the order of their times.
    rows = [
        plan_occurrence(stored.schedule, time, now + n, origin=origin, overrides=overrides)
        for n, time in enumerate(times)
    ]
    if not arguments.dry_run and rows:
        if not all(service.store.add(rows, limits=quotas_of(service, caller, Resource.QUEUED))):
            _check_not_deleted(service, stored.schedule)
        record_audit_entry(service, caller, schedule=stored.schedule)
        service.wake(None)
    return {
        "backfill_id": None if arguments.dry_run else backfill_id,
        "count": len(rows),
        "occurrences": fitting(occurrence_documents(rows, stored.schedule, {}, largest=SMALL_TARGET)),
    }


def _past_fires(schedule: Schedule, arguments: BackfillRequest, *, now: Micros) -> list[Micros]:
    trigger, first, last = schedule.declaration.trigger, arguments.from_, arguments.to
    if trigger is None or isinstance(trigger, EventTrigger):
        raise Conflict("only a schedule with a time trigger has past fires to run again")
    if last < first:
        raise InvalidRequest("must not be before `from`", field="to")
    if last > now:
        raise InvalidRequest(f"must not be later than now, {to_text(now)}: future fires need no backfill", field="to")
    before = max(first - 1, MIN_INSTANT)
    if (count := trigger.count_between(from_micros(before), from_micros(last))) > arguments.limit:
        raise InvalidRequest(
            f"there are {count:,} fires between `from` and `to`, more than the limit of {arguments.limit:,}; take a"
            f" shorter range, or a limit of up to {MAX_BACKFILL:,}",
            field="limit",
        )
    times: list[Micros] = []
    time = trigger.next_micros(before)
    while time is not None and time <= last:
        times.append(time)
        time = trigger.next_micros(time)
    return times


def _backfill_terms(schedule: Schedule, backfill_id: str, concurrency: int | None) -> Overrides | None:
    """One run after another by the overlap policy; or a given number at a time, regardless of it.

    A schedule with a concurrency key keeps it.
    """
    declared = schedule.declaration
    if concurrency is None and not isinstance(declared.overlap_policy, Allow):
        return None
    slots = Concurrency(key=f"backfill:{backfill_id}", limit=concurrency or 1)
    return Overrides(overlap_policy=Allow(), concurrency=declared.concurrency or slots)


def complete(service: Service, caller: Caller, arguments: Completion) -> dict[str, Any]:
    """Complete an occurrence that its target has accepted."""
    return _end(
        service,
        caller,
        arguments.occurrence_id,
        Outcome.COMPLETED,
        result=arguments.result,
        usage=arguments.usage,
        token=arguments.token,
    )


def fail(service: Service, caller: Caller, arguments: Failure) -> dict[str, Any]:
    """Fail an occurrence that its target has accepted; its retry policy applies."""
    return _end(
        service,
        caller,
        arguments.occurrence_id,
        Outcome.FAILED,
        error=arguments.error,
        usage=arguments.usage,
        token=arguments.token,
    )


def cancel(service: Service, caller: Caller, arguments: Cancellation) -> dict[str, Any]:
    """Cancel an occurrence; a running one is asked to stop."""
    occurrence_id = arguments.occurrence_id
    while True:
        occurrence, schedule = find_occurrence(service, caller, occurrence_id)
        # What an engine carries out is asked to stop: its worker ends it, and says what was used.
        if occurrence.phase is Phase.AWAITING_COMPLETION and engine_of(occurrence) is None:
            return _end(service, caller, occurrence_id, Outcome.CANCELLED)
        if occurrence.phase in FINAL:
            raise Conflict(f"it has ended already, as {occurrence.phase}")
        # Both fail only if it has moved on in between, which cannot go on: attempts are counted.
        if service.store.cancel(occurrence_id) or service.store.request_stop(occurrence_id):
            break
    record_audit_entry(service, caller, arguments.reason, schedule=schedule)
    service.check_stop_requests()
    service.wake(None)
    return _document(service, caller, occurrence_id)


def _end(  # noqa: PLR0913 - what a caller may report
    service: Service,
    caller: Caller,
    occurrence_id: str,
    outcome: Outcome,
    *,
    result: Any = None,
    error: str | None = None,
    usage: UsageReport | None = None,
    token: str | None = None,
) -> dict[str, Any]:
    """Settle an occurrence that awaits its completion.

    A token proves that the target has the work. Then the end may arrive before the answer that accepts it is written.
    """
    occurrence, schedule = find_occurrence(service, caller, occurrence_id)
    schedule = in_force(schedule, occurrence)
    may_end = {Phase.AWAITING_COMPLETION}
    if token is not None:
        keys = token_keys(service.keys, service.store.own_key())
        check_token(token, keys, occurrence_id=occurrence.id, fence=occurrence.fence)
        may_end.add(Phase.DISPATCHING)
    if occurrence.phase not in may_end:
        raise Conflict(f"it does not await its completion: it is {occurrence.phase}")
    now = service.store.clock()
    redactor = redactor_for(service.store, service.seal, schedule, occurrence)
    delivered = Delivered(
        outcome=outcome,
        started=began(occurrence, now=now),
        ended=now,
        result=redact(result, redactor),
        error=redact(error, redactor),
    )
    reported = () if usage is None else (masked(usage_of_report(usage), partial(redact, redactor=redactor)),)
    if occurrence.route in AGENT_KINDS:
        # The host of the agent has reserved what it may use; the report settles that.
        delivered = end_turn(service.store, schedule, occurrence, delivered, reported[0] if reported else None)
        reported = ()
    ended = settle(occurrence, schedule, delivered, node=occurrence.node or "", reported=reported)
    if not (service.store.settle([ended]))[0]:
        raise Conflict("another caller has ended it a moment ago")
    service.report_end(schedule, ended, source="callback")
    record_audit_entry(service, caller, schedule=schedule)
    service.wake(None)
    return _document(service, caller, occurrence_id)


def usage_of_report(report: UsageReport) -> Usage:
    """The usage that a caller reports; InvalidRequest if its tokens are both told apart and not."""
    apart = report.input_tokens + report.output_tokens + report.cache_read_tokens + report.cache_write_tokens
    if report.tokens and apart:
        raise InvalidRequest("is for tokens of unknown kind; leave it out beside the others", field="tokens")
    return Usage(
        model=report.model,
        provider=report.provider,
        input_tokens=report.input_tokens + report.tokens,
        output_tokens=report.output_tokens,
        cache_read_tokens=report.cache_read_tokens,
        cache_write_tokens=report.cache_write_tokens,
        model_calls=report.model_calls,
        tool_calls=report.tool_calls,
        cost=report.cost_usd,
    )


def _document(service: Service, caller: Caller, occurrence_id: str) -> dict[str, Any]:
    """The document of an occurrence, with its last run and the terms of its schedule."""
    occurrence, schedule = find_occurrence(service, caller, occurrence_id)
    runs = service.store.last_runs([occurrence.id])
    nodes = service.store.nodes() if occurrence.phase in LIVE else []
    missing = unserved_by(nodes, schedule, service.permissions)
    lost = lost_nodes(nodes, [occurrence], now=service.store.clock())
    document = occurrence_document(occurrence, schedule, runs.get(occurrence.id), unserved=missing, lost=lost)
    if occurrence.phase is Phase.DISPATCHING and occurrence.node in lost:
        return document
    if (words := engine_wait(service, occurrence)) is not None:
        document["why"] = words
    elif occurrence.phase is Phase.DISPATCHING and occurrence.route in AGENT_ROUTES:
        from noonmark.core.explain.occurrence import agent_wait  # noqa: PLC0415 - loads cron-descriptor

        if (words := agent_wait(occurrence, service.store.occurrence_runs(occurrence.id))) is not None:
            document["why"] = f"It is running: {words}."
    return document


def find_occurrence(service: Service, caller: Caller, occurrence_id: str) -> tuple[Occurrence, Schedule]:
    """Find an occurrence of the caller's tenant, with its schedule; NotFound if there is none."""
    occurrence = service.store.occurrence(occurrence_id)
    snapshot = None if occurrence is None else service.store.snapshot(occurrence.uid)
    if occurrence is None or snapshot is None or not caller.sees(snapshot.schedule):
        raise NotFound(f"there is no occurrence {occurrence_id!r}", field="occurrence_id")
    return occurrence, snapshot.schedule
