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
def a_schedule_that_is_set_aside_is_planned_no_more_until_it_is_edited(bench: Bench) -> None:
    broken, sound = bench.create("broken"), bench.create("sound")
    bench.advance(MINUTE)
    bench.store.set_aside(broken.uid, "it cannot be planned")
    bench.store.set_aside("nobody", "there is no such schedule")
    assert [one.schedule.uid for one in bench.store.plannable(bench.now, 9)] == [sound.uid]
    assert bench.kept(broken).schedule == broken
    renamed = replace(broken.declaration, name="Mended")
    assert bench.commit(edits.edit(bench.snapshot(broken), renamed, now=bench.now, lookahead=LOOKAHEAD))
    bench.advance(2 * MINUTE)
    assert {one.schedule.uid for one in bench.store.plannable(bench.now, 9)} == {broken.uid, sound.uid}


@case
def a_store_to_which_nobody_has_done_anything_is_sound(bench: Bench) -> None:
    made = bench.create(labels={"a": "b"})
    bench.create_quiet("quiet")
    bench.advance(MINUTE)
    assert bench.settle(bench.start(bench.claim_one()))
    bench.store.claim_key("acme", "key", "fingerprint", now=bench.now, lifetime=MINUTE)
    before = bench.store.occurrences(made.uid)
    after, rows = None, 0
    while True:
        page = bench.store.inspect(after, limit=3)
        assert page.damaged == ()
        rows, after = rows + page.rows, page.after
        if after is None:
            break
    assert rows == bench.store.inspect(limit=1_000).rows
    condition = bench.store.condition()
    assert (condition.problems, condition.schema) == ((), condition.expected_schema)
    assert not bench.store.damage()
    assert bench.store.occurrences(made.uid) == before
    assert bench.store.next_time([ROUTE]) is not None
