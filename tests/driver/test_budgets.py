"""A node reserves the first call of an agent when it admits it, and what happens without room for that."""

import logging

from noonmark.core.budgets.budget import Budget, BudgetScope, Period, Reservation, approval_id
from noonmark.core.budgets.spend import Amount
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.reasons import Reason
from noonmark.core.targets import TaskTarget
from noonmark.core.triggers import EventTrigger
from tests.driver.rig import ROUTE, Rig


def first_call(schedule, occurrence):
    """What a host would reserve; a schedule with this id is not known to it."""
    if schedule.uid == "broken":
        raise KeyError(schedule.uid)
    if schedule.uid == "free":
        return None
    return Reservation(
        call_id=f"{occurrence.id}/first",
        tenant="acme",
        user="ada",
        schedule_id=occurrence.schedule_id,
        session_id=None,
        occurrence_id=occurrence.id,
        fence=None,
        model="m",
        provider=None,
        most=Amount(tokens=10, cost=600),
    )


def rig_with_budget(**changes):
    rig = Rig(routes=("task", ROUTE), first_call=first_call)
    values = {"tenant": "acme", "scope": BudgetScope.TENANT, "scope_id": "acme", "period": Period.TOTAL}
    rig.store.put_budget(Budget(**values, max_cost=1_000, **changes))
    return rig


TASK = {"target": TaskTarget(query="look")}


def admit(rig, *uids, **changes):
    for uid in uids:
        rig.add(rig.create(uid, trigger=EventTrigger("none"), **changes), "a")
    rig.claim_once()
    return rig.admit_once()


def test_the_first_that_has_room_starts_and_the_next_is_skipped():
    rig = rig_with_budget()
    report = admit(rig, "one", "two", **TASK)
    assert (report.started, report.ended) == (1, 1)
    [skipped] = [one for uid in ("one", "two") for one in rig.store.occurrences(uid) if one.phase is Phase.SKIPPED]
    assert skipped.reason is Reason.BUDGET_EXCEEDED
    [standing] = rig.store.budgets("acme", 9)
    assert standing.reserved.cost == 600


def test_what_calls_no_model_reserves_nothing(caplog):
    rig = rig_with_budget()
    with caplog.at_level(logging.ERROR):
        assert admit(rig, "free", "broken", **TASK).started == 2
    assert [one.exc_info[0] for one in caplog.records] == [KeyError]
    assert admit(rig, "function").started == 1
    [standing] = rig.store.budgets("acme", 9)
    assert standing.reserved.cost == 0


def test_an_approval_starts_what_waits_for_it():
    rig = rig_with_budget(hard=False, require_approval=True)
    report = admit(rig, "one", "two", **TASK)
    assert (report.started, report.waiting) == (1, 1)
    [waiting] = [one for uid in ("one", "two") for one in rig.store.occurrences(uid) if one.phase is Phase.PENDING]
    assert waiting.waiting_for is Reason.APPROVAL
    rig.advance(SECOND)
    assert rig.claim_once().claimed == 0
    rig.store.decide_approval("acme", approval_id(waiting.id), approved=True, by="eve")
    assert rig.claim_once().claimed == 1
    assert rig.admit_once().started == 1
    assert rig.store.occurrence(waiting.id).phase is Phase.DISPATCHING
