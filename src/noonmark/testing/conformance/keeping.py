"""Schedules are kept with their first plan, found by id and name, and keep their ids until they are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.ids import TRIGGER, manual, occurrence_id
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.planner import first_plan
from noonmark.core.reasons import Reason
from noonmark.core.schedule import Owner
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LOOKAHEAD, case
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.testing.conformance.bench import Bench


@case
async def a_created_schedule_is_kept_with_its_first_plan(bench: Bench) -> None:
    made = await bench.create()
    kept = await bench.kept(made)
    assert kept.schedule == made
    assert kept.next_due == NOW + MINUTE
    assert kept.tally.total == 0
    [planned] = await bench.store.occurrences(made.uid)
    assert planned.id == occurrence_id(made.uid, TRIGGER, NOW + MINUTE)
    assert (planned.phase, planned.fence, planned.attempt) == (Phase.PENDING, 0, 0)


@case
async def an_id_is_taken_within_its_tenant_only(bench: Bench) -> None:
    await bench.create("uid-1", schedule_id="report")
    theirs = factories.schedule("uid-2", schedule_id="report", owner=Owner(tenant="other", user="ada"))
    again = factories.schedule("uid-3", schedule_id="report", owner=Owner(tenant="acme", user="bob"))
    plans = [first_plan(one, lookahead=LOOKAHEAD) for one in (again, theirs)]
    assert await bench.store.create(plans) == [False, True]
    assert await bench.store.snapshot("uid-3") is None
    assert await bench.store.occurrences("uid-3") == []
    found = await bench.store.find("other", "report")
    assert found is not None
    assert found.schedule == theirs


@case
async def an_id_is_taken_by_an_earlier_schedule_of_the_same_call(bench: Bench) -> None:
    plans = [
        first_plan(factories.schedule(uid, schedule_id="report"), lookahead=LOOKAHEAD) for uid in ("uid-1", "uid-2")
    ]
    assert await bench.store.create(plans) == [True, False]
    assert await bench.store.snapshot("uid-2") is None


@case
async def an_id_is_free_again_after_delete(bench: Bench) -> None:
    made = await bench.create("uid-1", schedule_id="report", name="Report")
    assert await bench.commit(edits.delete(await bench.snapshot(made), now=bench.now))
    assert await bench.store.find("acme", "report") is None
    assert await bench.store.find_named("acme", "ada", "Report") is None
    again = await bench.create("uid-2", schedule_id="report", name="Report")
    assert (await bench.kept(again)).schedule == again
    snapshot = await bench.snapshot(made)
    assert snapshot.schedule.phase is SchedulePhase.DELETED
    [cancelled] = await bench.store.occurrences(made.uid)
    assert (cancelled.phase, cancelled.reason) == (Phase.CANCELLED, Reason.DELETED)


@case
async def what_was_never_kept_is_not_found(bench: Bench) -> None:
    await bench.create()
    assert await bench.store.find("acme", "nothing") is None
    assert await bench.store.find_named("acme", "ada", "nothing") is None
    assert await bench.store.snapshot("nothing") is None
    assert await bench.store.occurrence("nothing") is None
    assert await bench.store.occurrences("nothing") == []
    assert await bench.store.runs("nothing") == []


@case
async def by_name_the_oldest_of_the_owner_is_found(bench: Bench) -> None:
    await bench.create("uid-1", name="Report", created=NOW + 2)
    oldest = await bench.create("uid-2", name="Report", created=NOW + 1)
    await bench.create("uid-3", name="Report", owner=Owner(tenant="acme", user="bob"))
    await bench.create("uid-4", name="Report", owner=Owner(tenant="other", user="ada"))
    await bench.create("uid-5", name="Other")
    found = await bench.store.find_named("acme", "ada", "Report")
    assert found is not None
    assert found.schedule == oldest
    renamed = edits.edit(
        await bench.snapshot(oldest), factories.declaration(name="New"), now=bench.now, lookahead=LOOKAHEAD
    )
    assert await bench.commit(renamed)
    found = await bench.store.find_named("acme", "ada", "Report")
    assert found is not None
    assert found.schedule.uid == "uid-1"
    found = await bench.store.find_named("acme", "ada", "New")
    assert found is not None
    assert found.schedule.uid == "uid-2"


@case
async def an_occurrence_is_added_once(bench: Bench) -> None:
    made = await bench.create_quiet()
    one = factories.occurrence(made, manual("key"), payload={"a": [1]})
    assert await bench.store.add([one, one]) == [True, False]
    assert await bench.store.add([one]) == [False]
    assert await bench.row(one) == one
    assert (await bench.kept(made)).next_due == NOW


@case
async def an_occurrence_is_added_to_a_schedule_that_is_there(bench: Bench) -> None:
    made = await bench.create_quiet()
    strange = factories.occurrence(factories.schedule("nothing"), manual("key"))
    assert await bench.store.add([strange]) == [False]
    assert await bench.commit(edits.delete(await bench.snapshot(made), now=bench.now))
    late = factories.occurrence(made, manual("key"))
    assert await bench.store.add([late]) == [False]
    assert await bench.store.occurrence(late.id) is None


@case
async def an_occurrence_may_have_ended_when_it_is_added(bench: Bench) -> None:
    made = await bench.create_quiet()
    await bench.add_event(made, "event-1", phase=Phase.SKIPPED, reason=Reason.PAUSED)
    assert await bench.claim() == []
    tally = (await bench.kept(made)).tally
    assert (tally.total, tally.skipped, tally.last_phase) == (1, 1, Phase.SKIPPED)


@case
async def closing_twice_is_the_same_as_once(bench: Bench) -> None:
    await bench.store.close()
    await bench.store.close()


@case
async def a_store_says_what_it_can_do(bench: Bench) -> None:
    traits = bench.store.traits
    assert {type(traits.is_durable), type(traits.blocks)} == {bool}
    assert traits.watch_interval is None or traits.watch_interval > 0
    assert not await bench.store.changed_by_others()


@case
async def the_clock_is_the_one_the_store_was_given(bench: Bench) -> None:
    assert await bench.store.clock() == NOW
    bench.advance(1)
    assert await bench.store.clock() == NOW + 1
