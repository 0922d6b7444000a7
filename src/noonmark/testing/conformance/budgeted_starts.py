"""Starts that reserve the first call of a model: refused, approved, denied, and given back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.admission import APPROVAL_WAIT, Busy, End, Place, Wait, refused
from noonmark.core.budgets.budget import (
    Budget,
    BudgetScope,
    Period,
    Reservation,
    Reserved,
    WhenExhausted,
    approval_id,
)
from noonmark.core.budgets.spend import Amount, Usage
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.policies import overlap
from noonmark.core.reasons import Reason
from noonmark.core.schedule import BY_ITSELF
from noonmark.core.system_events import SystemEvent
from noonmark.core.targets import TaskTarget
from noonmark.core.triggers import EventTrigger
from noonmark.ports.budgets import Settled
from noonmark.ports.workflows import OF_OCCURRENCE, ApprovalState
from noonmark.testing.conformance.bench import case, start
from noonmark.testing.factories import MINUTE

if TYPE_CHECKING:
    from noonmark.core.admission import Admission, Claim, Start
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench

MOST = Amount(tokens=100, cost=1_000)
TASK = TaskTarget(query="look")


def first_call_id(occurrence_id: str) -> str:
    """The id of a first call, as a host names it."""
    return f"{occurrence_id}/first"


def _agent(bench: Bench, uid: str = "uid-1", **changes: Any) -> Schedule:
    return bench.create_quiet(uid, target=TASK, **changes)


def _claim(bench: Bench) -> Claim:
    [claim] = bench.claim(routes=("task",))
    return claim


def _call(occurrence: Occurrence, call_id: str | None = None, fence: int | None = None) -> Reservation:
    return Reservation(
        call_id=call_id or first_call_id(occurrence.id),
        tenant="acme",
        user="ada",
        schedule_id=occurrence.schedule_id,
        session_id=None,
        occurrence_id=occurrence.id,
        fence=fence,
        model="m",
        provider=None,
        most=MOST,
    )


def _start(claim: Claim) -> Start:
    return replace(start(claim), reservation=_call(claim.occurrence))


def _budget(bench: Bench, **changes: Any) -> None:
    values: dict[str, Any] = {
        "tenant": "acme",
        "scope": BudgetScope.USER,
        "scope_id": "ada",
        "period": Period.DAY,
        "max_cost": 1_000,
        "warning_threshold": None,
    }
    bench.store.put_budget(Budget(**values | changes))


def _reserved(bench: Bench) -> int | None:
    [standing] = bench.store.budgets("acme", 9)
    return standing.reserved.cost


def _refused(bench: Bench, claim: Claim) -> Admission:
    """What is decided about a start that finds no room."""
    busy = bench.admit(_start(claim))
    assert isinstance(busy, Busy), busy
    assert (busy.place, busy.at) == (Place.BUDGET, bench.now)
    return refused(claim, busy)


def _asked(bench: Bench, schedule: Schedule, key: str = "a") -> Occurrence:
    """An occurrence that waits for an approval."""
    bench.add(schedule, key)
    decided = _refused(bench, _claim(bench))
    assert isinstance(decided, Wait)
    return bench.decide(decided)


@case
def a_start_reserves_its_first_call_or_takes_nothing(bench: Bench) -> None:
    _budget(bench)
    schedule, other = _agent(bench), _agent(bench, "uid-2")
    bench.add(schedule, "a")
    first = bench.decide(_start(_claim(bench)))
    assert _reserved(bench) == 1_000
    # Asked again: the first answer was lost.
    bench.add(other, "b")
    claim = _claim(bench)
    ended = _refused(bench, claim)
    assert isinstance(ended, End)
    assert bench.row(claim.occurrence).phase is Phase.CLAIMED
    assert not bench.row(claim.occurrence).holds_slot
    row = bench.decide(ended)
    assert (row.phase, row.reason, row.holds_slot) == (Phase.SKIPPED, Reason.BUDGET_EXCEEDED, False)
    assert '"limit_usd": 1e-06' in row.detail
    assert bench.stored(other).schedule.phase is SchedulePhase.ACTIVE
    # It never called a model, and gives back what was reserved for that.
    assert bench.settle(first)
    assert _reserved(bench) == 0
    assert bench.store.run_usage(first.id) is None


@case
def a_busy_slot_is_found_before_a_budget(bench: Bench) -> None:
    _budget(bench)
    schedule = _agent(bench)
    bench.add(schedule, "a")
    bench.decide(_start(_claim(bench)))
    bench.add(schedule, "b", SECOND)
    bench.advance(SECOND)
    busy = bench.admit(_start(_claim(bench)))
    assert isinstance(busy, Busy)
    assert busy.place is Place.SLOT
    assert _reserved(bench) == 1_000


@case
def an_end_gives_back_calls_that_were_not_made_and_no_others(bench: Bench) -> None:
    _budget(bench, max_cost=9_000)
    schedule = _agent(bench)
    for number, (lost, settled) in enumerate(((True, False), (False, True), (False, False))):
        bench.add(schedule, str(number), number)
        occurrence = bench.decide(_start(_claim(bench)))
        call = first_call_id(occurrence.id)
        if lost or settled:
            [answer] = bench.store.reserve([_call(occurrence, call, occurrence.fence)])
            assert isinstance(answer, Reserved)
        if settled:
            used = Usage(input_tokens=1, cost=10)
            assert bench.store.settle_calls([Settled(call_id=call, tenant="acme", usage=used)]) == [True]
        assert bench.fail(occurrence)
        bench.advance(1)
    [standing] = bench.store.budgets("acme", 9)
    assert (standing.settled.cost, standing.reserved.cost) == (10, 1_000)
    bench.add(schedule, "cancelled", MINUTE)
    bench.advance(MINUTE)
    waiting = bench.decide(_start(_claim(bench)))
    assert _reserved(bench) == 2_000
    # A retry keeps it.
    assert bench.retry(waiting, bench.now + SECOND)
    assert _reserved(bench) == 2_000
    assert bench.store.cancel(waiting.id)
    assert _reserved(bench) == 1_000


@case
def a_used_up_budget_pauses_a_schedule_if_it_says_so(bench: Bench) -> None:
    policies = (WhenExhausted.PAUSE, WhenExhausted.PAUSE_UNTIL_NEXT_PERIOD)
    for number, policy in enumerate(policies):
        _budget(bench, max_cost=0, when_exhausted=policy)
        schedule = _agent(bench, f"uid-{number}")
        bench.add(schedule, "a")
        decided = _refused(bench, _claim(bench))
        assert isinstance(decided, End)
        assert bench.decide(decided).reason is Reason.BUDGET_EXCEEDED
        paused = bench.stored(schedule).schedule
        assert paused.phase is SchedulePhase.PAUSED
        assert paused.pause is not None
        assert paused.pause.by == BY_ITSELF
        assert "the budget of user ada is $0" in str(paused.pause.reason)
        _, next_period = Period.DAY.bounds(bench.now)
        assert paused.pause.until == (None if policy is WhenExhausted.PAUSE else next_period)
    entries = bench.store.audit_entries("acme", 9)
    assert [(one.caller, one.operation) for one in entries] == [(BY_ITSELF, "schedule/pause")] * 2


@case
def beyond_a_soft_budget_a_start_waits_for_an_approval(bench: Bench) -> None:
    bench.create("ears", trigger=EventTrigger(str(SystemEvent.APPROVAL_REQUESTED)))
    _budget(bench, max_cost=500, hard=False, require_approval=True)
    schedule = _agent(bench, overlap_policy=overlap.Queue())
    waiting = _asked(bench, schedule)
    assert (waiting.phase, waiting.waiting_for, waiting.holds_slot) == (Phase.PENDING, Reason.APPROVAL, True)
    [approval] = bench.store.approvals("acme", 9)
    assert (approval.approval_id, approval.occurrence_id) == (approval_id(waiting.id), waiting.id)
    assert (approval.step_id, approval.state) == (OF_OCCURRENCE, ApprovalState.PENDING)
    assert approval.expires == bench.now + APPROVAL_WAIT
    assert "goes beyond its budget" in approval.message
    [event] = bench.store.events("acme", 9)
    assert (event.event_type, event.payload["occurrence_id"]) == ("approval.requested", waiting.id)
    assert bench.claim(routes=("task",)) == []
    # It holds its slot.
    bench.add(schedule, "b", 1)
    bench.advance(1)
    busy = bench.admit(_start(_claim(bench)))
    assert isinstance(busy, Busy)
    assert (busy.place, busy.holder) == (Place.SLOT, waiting.id)
    decided = bench.store.decide_approval("acme", approval.approval_id, approved=True, by="eve", comment="fine")
    assert decided is not None
    assert (decided.state, decided.by) == (ApprovalState.APPROVED, "eve")
    running = bench.decide(_start(_claim(bench)))
    assert (running.id, running.phase, running.waiting_for) == (waiting.id, Phase.DISPATCHING, None)
    assert running.detail == ""
    # Its later calls are approved with it, those of others are not.
    others = replace(_call(running, "x"), occurrence_id="occ_x")
    mine, other = bench.store.reserve([_call(running, "more", running.fence), others])
    assert isinstance(mine, Reserved)
    assert not isinstance(other, Reserved)
    assert bench.settle(running)
    found = bench.store.approval("acme", approval.approval_id)
    assert found is not None
    assert found.state is ApprovalState.APPROVED


@case
def a_denied_start_is_skipped(bench: Bench) -> None:
    _budget(bench, max_cost=500, hard=False, require_approval=True)
    schedule = _agent(bench)
    waiting = _asked(bench, schedule)
    key = approval_id(waiting.id)
    denied = bench.store.decide_approval("acme", key, approved=False, by="eve", comment="too much")
    assert denied is not None
    assert denied.state is ApprovalState.DENIED
    row = bench.row(waiting)
    assert (row.phase, row.reason, row.holds_slot) == (Phase.SKIPPED, Reason.APPROVAL_DENIED, False)
    assert row.detail == '{"by": "eve", "comment": "too much"}'
    again = bench.store.decide_approval("acme", key, approved=True, by="ada")
    assert again == denied


@case
def an_approval_without_a_decision_expires(bench: Bench) -> None:
    _budget(bench, max_cost=500, hard=False, require_approval=True, period=Period.TOTAL)
    schedule = _agent(bench)
    waiting = _asked(bench, schedule)
    bench.advance(APPROVAL_WAIT - 1)
    assert bench.claim(routes=("task",)) == []
    bench.advance(1)
    claim = _claim(bench)
    late = bench.store.decide_approval("acme", approval_id(waiting.id), approved=True, by="eve")
    assert late is not None
    assert late.state is ApprovalState.EXPIRED
    decided = _refused(bench, claim)
    assert isinstance(decided, End)
    row = bench.decide(decided)
    assert (row.phase, row.reason) == (Phase.SKIPPED, Reason.APPROVAL_EXPIRED)


@case
def with_room_in_its_budget_a_start_needs_no_approval(bench: Bench) -> None:
    _budget(bench, max_cost=500, hard=False, require_approval=True)
    schedule = _agent(bench)
    waiting = _asked(bench, schedule)
    _budget(bench, max_cost=5_000, hard=False, require_approval=True)
    bench.advance(APPROVAL_WAIT)
    running = bench.decide(_start(_claim(bench)))
    assert (running.id, running.phase) == (waiting.id, Phase.DISPATCHING)
    [approval] = bench.store.approvals("acme", 9)
    assert approval.state is ApprovalState.EXPIRED


@case
def a_start_that_is_cancelled_asks_for_no_decision(bench: Bench) -> None:
    _budget(bench, max_cost=500, hard=False, require_approval=True)
    schedule = _agent(bench)
    waiting = _asked(bench, schedule)
    assert bench.store.cancel(waiting.id)
    [approval] = bench.store.approvals("acme", 9)
    assert approval.state is ApprovalState.CANCELLED
    assert bench.store.decide_approval("acme", approval.approval_id, approved=True, by="eve") == approval
    # Another one has its slot again.
    later = _asked(bench, schedule, "b")
    assert later.holds_slot


@case
def a_start_that_waits_for_an_approval_needs_its_slot(bench: Bench) -> None:
    _budget(bench, max_cost=1_500, hard=False, require_approval=True)
    schedule = _agent(bench)
    bench.add(schedule, "a")
    bench.add(schedule, "b", 1)
    bench.advance(1)
    first, second = bench.claim(routes=("task",))
    bench.store.reserve([replace(_call(first.occurrence, "other"), occurrence_id="occ_x")])
    decided = _refused(bench, second)
    bench.store.give_back("acme", ["other"])
    bench.decide(_start(first))
    busy = bench.admit(decided)
    assert isinstance(busy, Busy)
    assert busy.place is Place.SLOT
    assert bench.store.approvals("acme", 9) == []
