"""A change by a caller: the store locks the schedule, lets the caller decide, and writes."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.errors import Conflict
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.planner import first_plan, plan
from noonmark.core.policies.limits import Dependency
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LOOKAHEAD, case
from noonmark.testing.factories import MINUTE

if TYPE_CHECKING:
    from noonmark.core.instants import Micros
    from noonmark.core.plans import Plan, Snapshot
    from noonmark.testing.conformance.bench import Bench

A_WHILE = 0.2
"""Seconds in which a store that does not lock would let another thread write."""


@case
def a_change_is_decided_on_the_snapshot_and_the_time_of_the_store(bench: Bench) -> None:
    made = bench.create()
    bench.advance(SECOND)
    expected, given = bench.snapshot(made), []

    def decide(snapshot: Snapshot, now: Micros) -> Plan:
        given.append((snapshot, now))
        return edits.pause(snapshot, now=now)

    assert bench.store.change(made.uid, decide)
    assert given == [(expected, bench.now)]
    assert bench.kept(made).schedule == edits.pause(expected, now=bench.now).schedule
    bench.advance(MINUTE)
    assert bench.claim() == []


@case
def a_change_of_nothing_writes_nothing(bench: Bench) -> None:
    made = bench.create()
    before = (bench.snapshot(made), bench.kept(made), bench.store.occurrences(made.uid))
    assert not bench.store.change(made.uid, lambda _, __: None)
    assert before == (bench.snapshot(made), bench.kept(made), bench.store.occurrences(made.uid))


@case
def what_a_decision_raises_is_raised_and_nothing_is_written(bench: Bench) -> None:
    made = bench.create()
    before = (bench.snapshot(made), bench.kept(made))

    def refuse(_: Snapshot, __: Micros) -> Plan:
        raise Conflict("not now")

    try:
        bench.store.change(made.uid, refuse)
    except Conflict as error:
        assert error.message == "not now"  # noqa: PT017 - a store is tried without pytest
    else:
        raise AssertionError("the error was lost")
    assert before == (bench.snapshot(made), bench.kept(made))
    assert bench.store.change(made.uid, lambda snapshot, now: edits.pause(snapshot, now=now))


@case
def nobody_is_asked_to_decide_on_an_unknown_schedule(bench: Bench) -> None:
    given: list[Snapshot] = []
    assert not bench.store.change("nothing", lambda snapshot, _: given.append(snapshot))
    assert given == []


@case
def a_decision_is_told_that_the_schedule_is_deleted(bench: Bench) -> None:
    made = bench.create()
    assert bench.store.change(made.uid, lambda snapshot, now: edits.delete(snapshot, now=now))
    phases: list[SchedulePhase] = []
    assert not bench.store.change(made.uid, lambda snapshot, _: phases.append(snapshot.schedule.phase))
    assert phases == [SchedulePhase.DELETED]
    found = bench.store.find_uid(made.uid)
    assert found is not None
    assert found.schedule.phase is SchedulePhase.DELETED
    assert bench.store.find_uid("nothing") is None


@case
def a_change_that_rests_on_an_older_graph_is_not_written(bench: Bench) -> None:
    up, down = bench.create("up"), bench.create("down")
    follows = replace(down.declaration, depends_on=(Dependency(schedule_id=up.schedule_id),))
    graph = bench.store.graph("acme", [up.schedule_id])
    other = factories.schedule("other", created=bench.now, depends_on=follows.depends_on)
    assert bench.store.create([first_plan(other, lookahead=LOOKAHEAD)]) == [True]

    def decide(snapshot: Snapshot, now: Micros) -> Plan:
        return replace(edits.edit(snapshot, follows, now=now, lookahead=LOOKAHEAD), graph=graph.version)

    assert not bench.store.change(down.uid, decide)
    assert bench.kept(down).schedule == down
    graph = bench.store.graph("acme", [up.schedule_id])
    assert bench.store.change(down.uid, decide)


@case
def nobody_writes_between_the_decision_and_what_it_was_made_of(bench: Bench) -> None:
    """Planning moves the watermark again and again; whoever decides is not outrun by it."""
    made = bench.create()
    bench.advance(MINUTE)
    planned = plan(bench.snapshot(made), now=bench.now, lookahead=LOOKAHEAD)
    answers: list[bool] = []
    planning = threading.Thread(target=lambda: answers.extend(bench.store.commit_plans([planned])))

    def decide(snapshot: Snapshot, now: Micros) -> Plan:
        planning.start()
        planning.join(A_WHILE)
        return edits.pause(snapshot, now=now)

    assert bench.store.change(made.uid, decide)
    planning.join()
    assert answers == [False], "the plan was made of what is no longer so"
