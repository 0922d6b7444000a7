"""Steering what runs: pause, resume, delete, run now, backfill, and the ends that callers tell of occurrences."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import Conflict, InvalidRequest, KeyReused, NotFound, OverlapConflict
from noonmark.core.ids import backfill as backfill_origin
from noonmark.core.instants import MIN_INSTANT, from_micros, to_text
from noonmark.core.json_values import identifier
from noonmark.core.lifecycle import FINAL, Phase, SchedulePhase
from noonmark.core.plans import occurrence
from noonmark.core.policies.limits import Concurrency
from noonmark.core.policies.overlap import Allow, Skip, read_overlap
from noonmark.core.policies.overrides import Overrides
from noonmark.core.run import Outcome, Usage
from noonmark.core.settlement import Delivered, settle
from noonmark.core.signatures import check_token, token_keys
from noonmark.core.triggers import EventTrigger
from noonmark.operations import schedules
from noonmark.operations.arguments import Arguments
from noonmark.operations.carrying import conceal, without_secrets
from noonmark.operations.causes import behind_backfill, behind_run
from noonmark.operations.declaring import told
from noonmark.operations.documents import SMALL_TARGET, occurrence_document, occurrence_documents, schedule_document
from noonmark.operations.page import fitting
from noonmark.operations.trusting import check_payload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.operations.schedules import Expected, Sign
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.records import StoredSchedule

MAX_REASON = 1_000
BACKFILL_LIMIT = 1_000
MAX_BACKFILL = 10_000
"""So many past times one request may run again."""
MAX_ERROR = 65_536


def pause(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Let nothing of its trigger start until it is resumed; what runs goes on."""
    kept, sign, expected = _find(service, caller, arguments)
    return told(service, schedules.pause(service.store, kept.schedule.uid, sign, expected=expected))


def resume(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Plan from now on; what the pause swallowed is recorded."""
    kept, sign, expected = _find(service, caller, arguments)
    resumed = schedules.resume(
        service.store, kept.schedule.uid, lookahead=service.lookahead, sign=sign, expected=expected
    )
    return told(service, resumed)


def delete(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Let nothing of it start from now on; its history stays. One that is deleted stays so."""
    kept, sign, expected = _find(service, caller, arguments, deleted=True)
    if kept.schedule.phase is not SchedulePhase.DELETED:
        with suppress(NotFound):  # somebody else has just done so
            schedules.delete(service.store, kept.schedule.uid, sign, expected=expected)
        service.wake(None)
    gone = service.store.find_uid(kept.schedule.uid)
    return schedule_document(gone or kept, now=service.store.clock())


def run(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Add an occurrence that is due now; it does not move the next fire. The same key again is the same occurrence."""
    asked = Arguments(arguments)
    schedule_id = asked.read("schedule_id", identifier)
    payload, key = asked.json("payload"), asked.text("key", None)
    override = None if asked.raw("overlap") is None else read_overlap(asked, "overlap", trigger_type="")
    reason = asked.text("reason", None, high=MAX_REASON)
    asked.done()
    kept = schedules.find(service.store, caller.owner.tenant, schedule_id)
    check_payload(service, kept.schedule, payload)
    now = service.store.clock()
    behind, key = behind_run(service, caller, schedule_id, key)
    overrides = None if override is None and behind is None else Overrides(overlap_policy=override, behind=behind)
    one = schedules.run_now(kept.schedule, key=key or service.fresh_id(), payload=payload, now=now, overrides=overrides)
    if (known := service.store.occurrence(one.id)) is None:
        _check_free(service, kept, override or kept.schedule.declaration.overlap_policy)
        if not service.store.add([one])[0]:
            _check_not_deleted(service, kept.schedule)
        service.wake(None)  # it is durable, so it need not wait for the note
        _note(service, caller, kept.schedule, reason)
        known = service.store.occurrence(one.id)
    elif (known.payload, _said(known.overrides)) != (one.payload, _said(one.overrides)):
        raise KeyReused("this key came with another payload or overlap policy before", field="key")
    return occurrence_document(known or one, kept.schedule)


def _check_not_deleted(service: Service, schedule: Schedule) -> None:
    """NotFound where rows were not added because the schedule was deleted, and not because they are known."""
    kept = service.store.find_uid(schedule.uid)
    if kept is None or kept.schedule.phase is SchedulePhase.DELETED:
        raise NotFound("the schedule was deleted", field="schedule_id")


def _said(overrides: Overrides | None) -> dict[str, Any]:
    """What was said of a run, without what led to it: that is nothing which a caller could say otherwise."""
    return {} if overrides is None else overrides.said


def _check_free(service: Service, kept: StoredSchedule, policy: object) -> None:
    """Refuse what would be skipped at once."""
    [activity] = service.store.activities([kept.schedule.uid])
    if isinstance(policy, Skip) and activity.delivering:
        raise OverlapConflict(
            f"{activity.delivering[0]} is in flight, and the overlap policy is skip; ask with another overlap policy"
            " for this run, such as queue or allow",
            field="overlap",
        )


def backfill(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Run past times of the trigger, from the first to the last inclusive, one after another or so many at a time."""
    asked = Arguments(arguments)
    schedule_id = asked.read("schedule_id", identifier)
    first, last = asked.instant("from", None), asked.instant("to", None)
    is_dry = asked.boolean("dry_run", default=False)
    limit = asked.integer("limit", BACKFILL_LIMIT, low=1, high=MAX_BACKFILL)
    concurrency = asked.integer("concurrency", None, low=1, high=1_000)
    key = asked.text("key", None)
    for name, value in (("from", first), ("to", last)):
        if value is None and not any(one.field == name for one in asked.problems):
            asked.problem(name, "is required")
    asked.done()
    kept = schedules.find(service.store, caller.owner.tenant, schedule_id)
    now = service.store.clock()
    times = _past_times(kept.schedule, first, last, limit=limit, now=now)
    backfill_id = key or service.fresh_id()
    overrides, behind = (
        _own_terms(kept.schedule, backfill_id, concurrency),
        behind_backfill(service, caller, schedule_id),
    )
    if behind is not None:
        overrides = replace(overrides or Overrides(), behind=behind)
    origin = backfill_origin(backfill_id)
    # Due one behind the other, so that they begin in the order of their times.
    rows = [
        occurrence(kept.schedule, time, now + n, origin=origin, overrides=overrides) for n, time in enumerate(times)
    ]
    if not is_dry and rows:
        if not all(service.store.add(rows)):
            _check_not_deleted(service, kept.schedule)
        _note(service, caller, kept.schedule)
        service.wake(None)
    shown = occurrence_documents(rows, kept.schedule, {}, largest=SMALL_TARGET)
    return {"backfill_id": None if is_dry else backfill_id, "count": len(rows), "occurrences": fitting(shown)}


def _past_times(schedule: Schedule, first: Micros, last: Micros, *, limit: int, now: Micros) -> list[Micros]:
    trigger = schedule.declaration.trigger
    if trigger is None or isinstance(trigger, EventTrigger):
        raise Conflict("it has no times of its own to run again: only a trigger that names times has")
    if last < first:
        raise InvalidRequest("must not be before `from`", field="to")
    if last > now:
        raise InvalidRequest(
            f"must not be later than now, {to_text(now)}: what is to come needs no backfill", field="to"
        )
    before = max(first - 1, MIN_INSTANT)
    if (count := trigger.count_between(from_micros(before), from_micros(last))) > limit:
        raise InvalidRequest(
            f"{count:,} times lie between `from` and `to`, and at most {limit:,} are run; take a shorter range, or a"
            f" limit of up to {MAX_BACKFILL:,}",
            field="limit",
        )
    times: list[Micros] = []
    time = trigger.next_micros(before)
    while time is not None and time <= last:
        times.append(time)
        time = trigger.next_micros(time)
    return times


def _own_terms(schedule: Schedule, backfill_id: str, concurrency: int | None) -> Overrides | None:
    """One after another, as the overlap policy has it; or so many at a time, whatever that says.

    What shares its places with other schedules goes on doing so.
    """
    declared = schedule.declaration
    if concurrency is None and not isinstance(declared.overlap_policy, Allow):
        return None
    places = Concurrency(key=f"backfill:{backfill_id}", limit=concurrency or 1)
    return Overrides(overlap_policy=Allow(), concurrency=declared.concurrency or places)


def complete(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Tell that what its target accepted has been done."""
    asked = Arguments(arguments)
    result = asked.json("result")
    return _end(service, caller, asked, Outcome.COMPLETED, result=result)


def fail(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Tell that what its target accepted has failed; its retry policy says what follows."""
    asked = Arguments(arguments)
    error = asked.text("error", "it was told to have failed", high=MAX_ERROR, multiline=True)
    return _end(service, caller, asked, Outcome.FAILED, error=error)


def cancel(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Let it not begin, or ask it to stop."""
    asked = Arguments(arguments)
    reason = asked.text("reason", None, high=MAX_REASON)
    one_id = asked.read("occurrence_id", identifier)
    asked.done()
    while True:
        one, schedule = find_occurrence(service, caller, one_id)
        if one.phase is Phase.AWAITING_COMPLETION:
            return _end(service, caller, Arguments({"occurrence_id": one_id}), Outcome.CANCELLED)
        if one.phase in FINAL:
            raise Conflict(f"it has ended already, as {one.phase}")
        # Neither holds only when it has moved on between the two; it cannot go on doing that, as attempts are counted.
        if service.store.cancel(one_id) or service.store.request_stop(one_id):
            break
    _note(service, caller, schedule, reason)
    service.attend()
    service.wake(None)
    return told_occurrence(service, caller, one_id)


def _end(
    service: Service,
    caller: Caller,
    asked: Arguments,
    outcome: Outcome,
    *,
    result: Any = None,  # noqa: ANN401 - JSON
    error: str | None = None,
) -> dict[str, Any]:
    """Write the end of what awaits its completion.

    Its token proves that the target has the work: then its end may be told before the answer that takes it over has
    come to be written.
    """
    one_id = asked.read("occurrence_id", identifier)
    token = asked.text("token", None)
    usage = _usage(asked)
    asked.done()
    one, schedule = find_occurrence(service, caller, one_id)
    may_end = {Phase.AWAITING_COMPLETION}
    if token is not None:
        keys = token_keys(service.keys, service.store.own_key())
        check_token(token, keys, occurrence_id=one.id, fence=one.fence)
        may_end.add(Phase.DISPATCHING)
    if one.phase not in may_end:
        raise Conflict(f"it does not await its completion: it is {one.phase}")
    now = service.store.clock()
    hidden = conceal(service.store, service.seal, schedule, one)
    delivered = Delivered(
        outcome=outcome,
        started=now if one.started is None else one.started,
        ended=now,
        result=without_secrets(result, hidden),
        error=without_secrets(error, hidden),
        usage=usage,
    )
    ended = settle(one, schedule, delivered, node=one.node or "")
    if not service.store.settle([ended])[0]:
        raise Conflict("somebody else has ended it a moment before")
    _note(service, caller, schedule)
    service.wake(None)
    return told_occurrence(service, caller, one_id)


def _usage(asked: Arguments) -> Usage | None:
    if asked.raw("usage") is None:
        return None
    part = asked.child("usage")
    usage = Usage(tokens=part.integer("tokens", 0, high=2**53), cost_usd=part.number("cost_usd", 0, high=1e9))
    part.close()
    return usage


def told_occurrence(service: Service, caller: Caller, one_id: str) -> dict[str, Any]:
    """An occurrence as it stands, with its last run and the terms of its schedule."""
    one, schedule = find_occurrence(service, caller, one_id)
    runs = service.store.last_runs([one.id])
    return occurrence_document(one, schedule, runs.get(one.id))


def find_occurrence(service: Service, caller: Caller, one_id: str) -> tuple[Occurrence, Schedule]:
    """An occurrence of the caller's tenant, with its schedule; NotFound when there is none."""
    one = service.store.occurrence(one_id)
    snapshot = None if one is None else service.store.snapshot(one.uid)
    if one is None or snapshot is None or snapshot.schedule.owner.tenant != caller.owner.tenant:
        raise NotFound(f"there is no occurrence {one_id!r}", field="occurrence_id")
    return one, snapshot.schedule


def _find(
    service: Service, caller: Caller, arguments: Mapping[str, Any], *, deleted: bool = False
) -> tuple[StoredSchedule, Sign, Expected]:
    """The schedule that is to be changed, what writes down who did it and why, and what is expected of it."""
    asked = Arguments(arguments)
    schedule_id = asked.read("schedule_id", identifier)
    reason = asked.text("reason", None, high=MAX_REASON)
    expected = asked.expected()
    asked.done()
    kept = schedules.find(service.store, caller.owner.tenant, schedule_id, deleted=deleted)
    return kept, caller.signed(reason), expected


def _note(service: Service, caller: Caller, schedule: Schedule, reason: str | None = None) -> None:
    """Write down what was asked of a schedule without changing it."""
    note = caller.signed(reason)(schedule, schedule, now=service.store.clock())
    service.store.note(caller.owner.tenant, [note])
