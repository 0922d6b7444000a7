"""Changes to a schedule: read, decided and written, again when somebody was faster."""

from dataclasses import replace

import pytest

from noonmark.core.errors import Conflict, NotFound
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.policies import overlap
from noonmark.driver.drive import drive
from noonmark.operations import schedules
from tests.driver.rig import Rig


@pytest.fixture
def rig():
    return Rig()


def revision(rig, made):
    return drive(rig.store.snapshot(made.uid)).schedule.revision


def relabelled(made, label):
    return replace(made.declaration, labels={"team": label})


def test_an_edit_that_was_outrun_is_decided_again(rig):
    made = rig.create()
    queued = replace(made.declaration, overlap_policy=overlap.Queue())

    async def be_faster():
        await schedules.pause(rig.store.store, made.uid)

    rig.store.meanwhile("commit_plans", be_faster)
    edited = drive(schedules.edit(rig.store, made.uid, queued, lookahead=0))
    assert (edited.phase, edited.declaration) == (SchedulePhase.PAUSED, queued)
    assert rig.store.calls["commit_plans"] == 2


def test_an_edit_that_is_outrun_all_the_while_gives_up(rig):
    made = rig.create()

    async def be_faster():
        snapshot = await rig.store.store.snapshot(made.uid)
        declared = replace(snapshot.schedule.declaration, max_runs=snapshot.schedule.revision)
        await schedules.edit(rig.store.store, made.uid, declared, lookahead=0)
        rig.store.meanwhile("commit_plans", be_faster)

    rig.store.meanwhile("commit_plans", be_faster)
    with pytest.raises(Conflict, match="changed by others all the while"):
        drive(schedules.edit(rig.store, made.uid, relabelled(made, "a"), lookahead=0))
    assert rig.store.calls["commit_plans"] == schedules.MAX_TRIES


def test_a_declaration_is_made_of_what_is_stored_and_of_the_time_of_the_edit(rig):
    made, given = rig.create(), []

    def read(schedule, now):
        given.append((schedule, now))
        return relabelled(made, "a")

    drive(schedules.declare(rig.store, made.uid, read, lookahead=0))
    assert given == [(made, rig.world.now)]


@pytest.mark.parametrize("change", ["edit", "pause", "resume", "delete"])
def test_what_is_deleted_cannot_be_changed(rig, change):
    made = rig.create()
    drive(schedules.delete(rig.store, made.uid))
    call = {
        "edit": lambda: schedules.edit(rig.store, made.uid, relabelled(made, "a"), lookahead=0),
        "pause": lambda: schedules.pause(rig.store, made.uid),
        "resume": lambda: schedules.resume(rig.store, made.uid, lookahead=0),
        "delete": lambda: schedules.delete(rig.store, made.uid),
    }[change]
    with pytest.raises(NotFound):
        drive(call())


def test_what_changes_nothing_is_not_written(rig):
    made = rig.create()
    drive(schedules.edit(rig.store, made.uid, made.declaration, lookahead=0))
    drive(schedules.resume(rig.store, made.uid, lookahead=0))
    assert rig.store.calls["commit_plans"] == 0
    drive(schedules.pause(rig.store, made.uid))
    drive(schedules.pause(rig.store, made.uid))
    assert rig.store.calls["commit_plans"] == 1
    assert revision(rig, made) == 1


def test_an_id_that_is_taken_is_not_created_again(rig):
    made = rig.create()
    assert drive(schedules.create(rig.store, replace(made, uid="uid-2"), lookahead=0)) is False


def test_one_that_was_asked_for_by_hand_is_due_now(rig):
    made = rig.create()
    one = schedules.run_now(made, key="k", payload={"a": 1}, now=rig.world.now)
    assert (one.origin, one.nominal, one.due, one.payload) == ("manual:k", rig.world.now, rig.world.now, {"a": 1})
    assert schedules.run_now(made, key="k", payload=None, now=rig.world.now + 1).id == one.id
