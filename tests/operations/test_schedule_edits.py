"""Edits of a schedule are read, decided and written under its lock."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from noonmark import Scheduler
from noonmark.core.errors import Conflict, NotFound
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.policies import overlap
from noonmark.core.policies.limits import Dependency
from noonmark.operations import schedule_edits
from noonmark.testing import FakeClock, ManualDriver
from tests.driver.rig import Rig


@pytest.fixture
def rig():
    return Rig()


def schedule(rig, made):
    return rig.store.snapshot(made.uid).schedule


def revision(rig, made):
    return schedule(rig, made).revision


def relabelled(made, label):
    return replace(made.declaration, labels={"team": label})


def test_an_edit_that_was_outrun_is_decided_again(rig):
    schedule = rig.create()
    queued = replace(schedule.declaration, overlap_policy=overlap.Queue())

    def be_faster():
        schedule_edits.pause(rig.store.store, schedule.uid)

    rig.store.meanwhile("change", be_faster)
    edited = schedule_edits.edit(rig.store, schedule.uid, queued, lookahead=0)
    assert (edited.phase, edited.declaration) == (SchedulePhase.PAUSED, queued)
    assert rig.store.calls["change"] == 1


def test_an_edit_whose_upstreams_are_outrun_all_the_while_gives_up(rig):
    """What depends on what is read outside the lock, so only a change of that can come in between."""
    up, schedule, other = rig.create("uid-1"), rig.create("uid-2"), rig.create("uid-3")
    follows = replace(schedule.declaration, depends_on=(Dependency(schedule_id=up.schedule_id),))

    def be_faster():
        snapshot = rig.store.store.snapshot(other.uid)
        upstreams = () if snapshot.schedule.declaration.depends_on else follows.depends_on
        declared = replace(snapshot.schedule.declaration, depends_on=upstreams)
        schedule_edits.edit(rig.store.store, other.uid, declared, lookahead=0)
        rig.store.meanwhile("change", be_faster)

    rig.store.meanwhile("change", be_faster)
    with pytest.raises(Conflict, match="kept changing"):
        schedule_edits.edit(rig.store, schedule.uid, follows, lookahead=0)
    assert rig.store.calls["change"] == schedule_edits.MAX_TRIES


@pytest.mark.parametrize("is_paused_meanwhile", [False, True])
def test_an_edit_that_rests_on_other_records_takes_two_steps(rig, is_paused_meanwhile):
    up, schedule = rig.create("uid-1"), rig.create("uid-2")
    follows = replace(schedule.declaration, depends_on=(Dependency(schedule_id=up.schedule_id),))

    def be_faster():
        schedule_edits.pause(rig.store.store, schedule.uid)

    if is_paused_meanwhile:
        rig.store.meanwhile("graph", be_faster)
    edited = schedule_edits.edit(rig.store, schedule.uid, follows, lookahead=0)
    assert edited.declaration == follows
    assert (edited.phase is SchedulePhase.PAUSED) is is_paused_meanwhile
    assert rig.store.calls["change"] == 2


def test_a_declaration_is_made_of_what_is_stored_and_of_the_time_of_the_edit(rig):
    created, given = rig.create(), []

    def read(schedule, now):
        given.append((schedule, now))
        return relabelled(created, "a")

    schedule_edits.declare(rig.store, created.uid, read, lookahead=0)
    assert given == [(created, rig.world.now)]


@pytest.mark.parametrize("change", ["edit", "pause", "resume", "delete"])
def test_what_is_deleted_cannot_be_changed(rig, change):
    schedule = rig.create()
    schedule_edits.delete(rig.store, schedule.uid)
    call = {
        "edit": lambda: schedule_edits.edit(rig.store, schedule.uid, relabelled(schedule, "a"), lookahead=0),
        "pause": lambda: schedule_edits.pause(rig.store, schedule.uid),
        "resume": lambda: schedule_edits.resume(rig.store, schedule.uid, lookahead=0),
        "delete": lambda: schedule_edits.delete(rig.store, schedule.uid),
    }[change]
    with pytest.raises(NotFound):
        call()


def test_what_changes_nothing_is_not_written(rig):
    created = rig.create()
    schedule_edits.edit(rig.store, created.uid, created.declaration, lookahead=0)
    schedule_edits.resume(rig.store, created.uid, lookahead=0)
    assert schedule(rig, created) == created
    rig.advance(1)
    paused = schedule_edits.pause(rig.store, created.uid)
    rig.advance(1)
    assert schedule_edits.pause(rig.store, created.uid) == paused
    assert paused.updated < rig.world.now
    assert revision(rig, created) == 1


def test_an_id_that_is_taken_is_not_created_again(rig):
    schedule = rig.create()
    assert schedule_edits.create(rig.store, replace(schedule, uid="uid-2"), lookahead=0) is None


def test_one_that_was_asked_for_by_hand_is_due_now(rig):
    schedule = rig.create()
    one = schedule_edits.run_now(schedule, key="k", payload={"a": 1}, now=rig.world.now)
    assert (one.origin, one.nominal, one.due, one.payload) == ("manual:k", rig.world.now, rig.world.now, {"a": 1})
    assert schedule_edits.run_now(schedule, key="k", payload=None, now=rig.world.now + 1).id == one.id


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_what_has_completed_is_neither_paused_nor_resumed(verb):
    scheduler = Scheduler(clock=FakeClock(datetime(2030, 5, 1, tzinfo=UTC)))
    job = scheduler.schedule(print)
    ManualDriver(scheduler).run_due()
    with pytest.raises(Conflict, match=f"it has completed, so there is nothing to {verb}"):
        getattr(scheduler, verb)(job)
