"""Changes to schedules that cross with others: created, cancelled and started at the same moment."""

from dataclasses import replace

import pytest

from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.policies import misfire
from noonmark.core.policies.limits import Dependency
from noonmark.core.reasons import Reason
from noonmark.core.triggers import IntervalTrigger, OnceTrigger
from noonmark.operations import schedule_edits
from noonmark.stores.memory import MemoryStore
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing import factories
from noonmark.testing.factories import NOW
from tests.driver.rig import Rig


@pytest.fixture
def rig():
    return Rig()


def test_a_schedule_whose_upstreams_were_changed_meanwhile_is_created_anyway(rig):
    up = rig.create("up")
    on_up = (Dependency(schedule_id=up.schedule_id),)
    down = factories.schedule("down", depends_on=on_up)

    def be_faster():
        schedule_edits.create(rig.store.store, factories.schedule("other", depends_on=on_up), lookahead=0)

    rig.store.meanwhile("create", be_faster)
    assert schedule_edits.create(rig.store, down, lookahead=0) is not None
    assert rig.store.calls["create"] == 2
    assert rig.store.find("acme", down.schedule_id) is not None


def test_many_are_created_at_once_and_each_says_whether_it_was(rig):
    taken = rig.create("up")
    fresh = factories.schedule("fresh")
    down = factories.schedule("down", depends_on=(Dependency(schedule_id=fresh.schedule_id),))
    made = [down, replace(taken, uid="again"), fresh]
    assert schedule_edits.create_many(rig.store, made, lookahead=0) == [True, False, True]


@pytest.fixture(params=["memory", "sqlite"])
def stored(request, tmp_path):
    """A node on each kind of store."""
    kinds = {"memory": MemoryStore, "sqlite": lambda clock: SqliteStore(tmp_path / "noonmark.db", clock)}
    rig = Rig(make_store=kinds[request.param])
    rig.store.store.open()
    yield rig
    rig.store.store.close()


@pytest.mark.parametrize(
    ("graces", "is_over", "phase"),
    [
        ((1, 30), False, Phase.COMPLETED),  # the first interval has not named its start, nor does a longer grace
        ((1, 30), True, Phase.COMPLETED),
        ((30, 1), False, Phase.MISFIRED),  # it was planned, and became late by the edit
        ((30, 1), True, Phase.COMPLETED),
    ],
)
def test_a_start_just_past_has_one_outcome_under_any_grace_of_an_edit(stored, graces, is_over, phase):
    rig, start = stored, NOW - 2 * SECOND
    created, edited = (misfire.Skip(grace=grace * SECOND) for grace in graces)
    schedule = rig.create(trigger=IntervalTrigger(60, from_micros(start)), misfire_policy=created)

    def run_due():
        rig.plan_once()
        rig.claim_once()
        rig.admit_once()
        for given in [one for one in rig.target.given if not one.is_closed]:
            rig.target.end(given)
        rig.settle_once()

    if is_over:
        run_due()
    by_edit = replace(schedule.declaration, misfire_policy=edited)
    renewed = replace(
        by_edit, trigger=IntervalTrigger(90, from_micros(start)), misfire_policy=misfire.Skip(grace=30 * SECOND)
    )
    for declared in (by_edit, renewed):
        schedule_edits.edit(rig.store, schedule.uid, declared, lookahead=rig.timing.lookahead)
    run_due()
    past = [row for row in rig.rows(schedule) if row.nominal <= NOW]
    assert [(row.nominal, row.phase) for row in past] == [(start, phase)]
    assert len(rig.runs(schedule)) == (phase is Phase.COMPLETED)


def kept(rig, made):
    return schedule_edits.find(rig.store, "acme", made.schedule_id)


def test_what_was_asked_for_of_a_completed_schedule_can_be_cancelled_while_it_runs(rig):
    schedule = rig.create(trigger=OnceTrigger(from_micros(rig.world.now)))
    rig.claim_once()
    rig.admit_once()
    rig.target.end(rig.target.given[0])
    rig.settle_once()
    rig.started(schedule, "once more")
    assert kept(rig, schedule).schedule.phase is SchedulePhase.COMPLETED
    assert schedule_edits.cancel(rig.store, kept(rig, schedule)) == 1


def test_what_starts_while_its_schedule_is_being_cancelled_is_asked_to_stop_as_well(rig):
    schedule = rig.create()
    rig.add(schedule, "one")
    rig.claim_once()
    rig.store.meanwhile("change", rig.admit_once)
    assert schedule_edits.cancel(rig.store, kept(rig, schedule)) == 1
    [running] = rig.target.given
    assert rig.row(running.occurrence).stop is Reason.CANCELLED
