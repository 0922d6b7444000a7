"""Cases: what a store says of its own condition, and schedules that are set aside."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.testing.conformance.bench import LOOKAHEAD, ROUTE, case
from noonmark.testing.factories import MINUTE

if TYPE_CHECKING:
    from noonmark.testing.conformance.bench import Bench


@case
async def a_schedule_that_is_set_aside_is_planned_no_more_until_it_is_edited(bench: Bench) -> None:
    broken, sound = await bench.create("broken"), await bench.create("sound")
    bench.advance(MINUTE)
    await bench.store.set_aside(broken.uid, "it cannot be planned")
    await bench.store.set_aside("nobody", "there is no such schedule")
    assert [one.schedule.uid for one in await bench.store.plannable(bench.now, 9)] == [sound.uid]
    assert (await bench.kept(broken)).schedule == broken
    renamed = replace(broken.declaration, name="Mended")
    assert await bench.commit(edits.edit(await bench.snapshot(broken), renamed, now=bench.now, lookahead=LOOKAHEAD))
    bench.advance(2 * MINUTE)
    assert {one.schedule.uid for one in await bench.store.plannable(bench.now, 9)} == {broken.uid, sound.uid}


@case
async def a_store_to_which_nobody_has_done_anything_is_sound(bench: Bench) -> None:
    made = await bench.create(labels={"a": "b"})
    await bench.create_quiet("quiet")
    bench.advance(MINUTE)
    assert await bench.settle(await bench.start(await bench.claim_one()))
    await bench.store.claim_key("acme", "key", "fingerprint", now=bench.now, lifetime=MINUTE)
    before = await bench.store.occurrences(made.uid)
    after, rows = None, 0
    while True:
        page = await bench.store.inspect(after, limit=3)
        assert page.damaged == ()
        rows, after = rows + page.rows, page.after
        if after is None:
            break
    assert rows == (await bench.store.inspect(limit=1_000)).rows
    condition = await bench.store.condition()
    assert (condition.problems, condition.schema) == ((), condition.expected_schema)
    assert not bench.store.damage()
    assert await bench.store.occurrences(made.uid) == before
    assert await bench.store.next_time([ROUTE]) is not None
