"""Dependencies: occurrences that wait for upstreams, and schedules that only follow others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.admission import End, Wait, after_upstreams, depends_on_others
from noonmark.core.causation import chain_after, chain_behind
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.planner import first_plan, plan
from noonmark.core.policies import misfire
from noonmark.core.policies.dependencies import WAIT_LIMIT, Standing
from noonmark.core.policies.limits import Dependency, Horizon
from noonmark.core.reasons import Reason
from noonmark.core.schedule import Owner
from noonmark.core.triggers import IntervalTrigger, OnceTrigger
from noonmark.ports.records import Graph
from noonmark.testing import factories
from noonmark.testing.conformance.bench import LOOKAHEAD, ROUTE, case
from noonmark.testing.factories import MINUTE, NOW

if TYPE_CHECKING:
    from noonmark.core.admission import Claim
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.dependencies import Standings
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench


UP = "schedule-of-up"
ON_UP = (Dependency(schedule_id=UP),)


def _asked(bench: Bench, claim: Claim) -> Standings:
    [standings] = bench.store.upstreams([claim])
    return standings


def _stands(bench: Bench, claim: Claim) -> Standing:
    [standing] = _asked(bench, claim).each
    return standing


def _claims(bench: Bench) -> dict[str, Claim]:
    return {claim.occurrence.uid: claim for claim in bench.claim()}


def _waiting(bench: Bench, claim: Claim) -> Occurrence:
    """Let a claim wait for its upstreams, as the rule has it."""
    assert depends_on_others(claim)
    decided = after_upstreams(claim, _asked(bench, claim), now=bench.now)
    assert isinstance(decided, Wait), decided
    return bench.decide(decided)


def _both_due(bench: Bench) -> tuple[Claim, Claim]:
    """An upstream and what depends on it, both due now."""
    bench.create("up")
    bench.create("down", depends_on=ON_UP)
    bench.advance(MINUTE)
    claims = _claims(bench)
    return claims["up"], claims["down"]


@case
def an_upstream_is_read_as_it_is_stored(bench: Bench) -> None:
    up, down = _both_due(bench)
    first = NOW + MINUTE
    standing = _stands(bench, down)
    assert standing == Standing(
        dependency=ON_UP[0],
        phase=SchedulePhase.ACTIVE,
        fires=up.schedule.declaration.trigger,
        watermark=first,
        newest=(first, Phase.CLAIMED),
    )
    bench.advance(1)
    assert bench.settle(bench.start(up))
    after = replace(standing, newest=(first, Phase.COMPLETED), last_phase=Phase.COMPLETED, ended=bench.now)
    assert _stands(bench, down) == replace(after, completed=bench.now)


@case
def an_unknown_upstream_has_no_phase(bench: Bench) -> None:
    bench.create("down", depends_on=ON_UP)
    bench.create("other", schedule_id=UP, owner=Owner(tenant="elsewhere", user="ada"))
    bench.advance(MINUTE)
    claims = _claims(bench)
    assert _stands(bench, claims["down"]) == Standing(dependency=ON_UP[0])


@case
def a_deleted_upstream_is_unknown_until_its_id_is_used_again(bench: Bench) -> None:
    up, down = _both_due(bench)
    _waiting(bench, down)
    assert bench.commit(edits.delete(bench.snapshot(up.schedule), now=bench.now))
    again = _claims(bench)["down"]
    assert _stands(bench, again) == Standing(dependency=ON_UP[0])
    before = _asked(bench, again).news
    bench.create("up-2", schedule_id=UP)
    assert _stands(bench, again).phase is SchedulePhase.ACTIVE
    assert _asked(bench, again).news > before


@case
def of_the_times_in_question_the_newest_row_counts(bench: Bench) -> None:
    every_20 = IntervalTrigger(20, start_at=from_micros(NOW + MINUTE // 3))
    up = bench.create("up", trigger=every_20, horizon=Horizon(occurrences=5))
    bench.create("down", depends_on=ON_UP, horizon=Horizon(occurrences=2))
    bench.advance(2 * MINUTE)
    claims = [claim for claim in bench.claim() if claim.occurrence.uid == "down"]
    newest = [_stands(bench, claim).newest for claim in claims]
    assert newest == [(NOW + MINUTE, Phase.CLAIMED), (NOW + 5 * MINUTE // 3, Phase.CLAIMED)]
    bench.add(up, "asked for", 2 * MINUTE)
    assert [_stands(bench, claim).newest for claim in claims] == newest


@case
def a_gap_stands_for_the_times_it_counts(bench: Bench) -> None:
    up = bench.create("up", trigger=IntervalTrigger(20, start_at=from_micros(NOW + MINUTE // 3)))
    bench.create("down", depends_on=ON_UP, horizon=Horizon(occurrences=2))
    bench.advance(3 * MINUTE)
    assert bench.commit(plan(bench.snapshot(up), now=bench.now, lookahead=LOOKAHEAD))
    claims = [claim for claim in bench.claim() if claim.occurrence.uid == "down"]
    newest = [_stands(bench, claim).newest for claim in claims]
    assert newest == [(NOW + MINUTE, Phase.MISFIRED), (NOW + 2 * MINUTE, Phase.MISFIRED)]


@case
def what_waits_for_its_upstreams_has_no_time_but_the_limit(bench: Bench) -> None:
    up, down = _both_due(bench)
    running = bench.start(up)
    waiting = _waiting(bench, down)
    assert (waiting.phase, waiting.waiting_for) == (Phase.PENDING, Reason.DEPENDENCY_PENDING)
    assert bench.claim() == []
    assert bench.stored(down.schedule).next_due is None
    bench.settle(running, phase=Phase.AWAITING_COMPLETION, reason=Reason.ACCEPTED, deadline=bench.now + 2 * WAIT_LIMIT)
    assert bench.commit(plan(bench.snapshot(down.schedule), now=bench.now, lookahead=0))
    bench.clock.now = waiting.first_due + WAIT_LIMIT - 1
    assert waiting.id not in {claim.occurrence.id for claim in bench.claim()}
    bench.advance(1)
    late = next(claim for claim in bench.claim() if claim.occurrence.id == waiting.id)
    decided = after_upstreams(late, _asked(bench, late), now=bench.now)
    assert isinstance(decided, End)
    assert decided.reason is Reason.DEPENDENCY_TIMED_OUT


@case
def an_end_gives_what_waits_for_it_a_time(bench: Bench) -> None:
    up, down = _both_due(bench)
    running = bench.start(up)
    waiting = _waiting(bench, down)
    assert bench.retry(running, bench.now + 5)
    assert bench.claim() == []
    bench.advance(5)
    again = bench.claim_one()
    assert again.occurrence.uid == "up"
    assert bench.settle(bench.start(again))
    assert bench.stored(down.schedule).next_due == waiting.due
    turn = bench.claim_one()
    assert (turn.occurrence.id, turn.occurrence.waiting_for) == (waiting.id, Reason.DEPENDENCY_PENDING)
    assert after_upstreams(turn, _asked(bench, turn), now=bench.now) is None
    bench.start(turn)


@case
def many_ends_in_one_call_count_like_one_by_one(bench: Bench) -> None:
    up, down = _both_due(bench)
    lone = bench.create_quiet("lone")
    bench.add(lone, "a", MINUTE)
    other = bench.claim_one()
    running = [bench.start(up), bench.start(other)]
    _waiting(bench, down)
    assert bench.store.settle([bench.settlement(one) for one in running]) == [True, True]
    assert bench.claim_one().occurrence.uid == "down"


@case
def an_end_between_the_look_and_the_wait_is_not_lost(bench: Bench) -> None:
    up, down = _both_due(bench)
    running = bench.start(up)
    decided = after_upstreams(down, _asked(bench, down), now=bench.now)
    assert isinstance(decided, Wait)
    assert bench.settle(running)
    bench.decide(decided)
    assert bench.claim_one().occurrence.uid == "down"


@case
def ends_of_other_times_leave_it_waiting(bench: Bench) -> None:
    up, down = _both_due(bench)
    bench.start(up)
    _waiting(bench, down)
    for key, after in (("a", 0), ("b", MINUTE)):
        bench.add(up.schedule, key, after)
        manual = bench.claim_one()
        bench.decide(End(claim=manual, phase=Phase.SKIPPED, reason=Reason.OVERLAP))
        assert bench.claim() == []


@case
def what_waits_for_a_first_outcome_takes_any(bench: Bench) -> None:
    hourly = IntervalTrigger(3600, start_at=from_micros(NOW + 3600_000_000))
    up = bench.create("up", trigger=hourly)
    bench.create("down", depends_on=ON_UP)
    bench.advance(MINUTE)
    _waiting(bench, bench.claim_one())
    bench.add(up, "by hand", MINUTE)
    assert bench.settle(bench.start(bench.claim_one()))
    assert bench.claim_one().occurrence.uid == "down"


@case
def a_change_of_the_upstream_makes_waiting_ones_be_decided_again(bench: Bench) -> None:
    up, down = _both_due(bench)
    bench.start(up)
    _waiting(bench, down)
    assert bench.commit(edits.pause(bench.snapshot(up.schedule), now=bench.now))
    turn = bench.claim_one()
    _waiting(bench, turn)
    assert bench.commit(edits.delete(bench.snapshot(up.schedule), now=bench.now))
    turn = bench.claim_one()
    decided = after_upstreams(turn, _asked(bench, turn), now=bench.now)
    assert isinstance(decided, End)
    assert decided.reason is Reason.DEPENDENCY_FAILED


@case
def a_withdrawn_projection_of_the_upstream_is_noticed(bench: Bench) -> None:
    up = bench.create("up")
    bench.create("down", depends_on=ON_UP)
    bench.advance(MINUTE)
    claims = _claims(bench)
    _waiting(bench, claims["down"])
    hourly = IntervalTrigger(3600, start_at=from_micros(NOW + 3600_000_000))
    declared = factories.declaration(trigger=hourly)
    assert bench.commit(edits.edit(bench.snapshot(up), declared, now=NOW + 1, lookahead=LOOKAHEAD))
    assert bench.claim_one().occurrence.uid == "down"


@case
def an_upstream_that_names_no_more_times_is_not_waited_for_in_vain(bench: Bench) -> None:
    up = bench.create("up", max_runs=1)
    bench.create("down", depends_on=ON_UP, horizon=Horizon(occurrences=2))
    bench.advance(2 * MINUTE - 1)
    ahead = bench.claim(until=bench.now + 1)
    claims = {(claim.occurrence.uid, claim.occurrence.nominal): claim for claim in ahead}
    bench.start(claims["up", NOW + MINUTE])
    waiting = _waiting(bench, claims["down", NOW + 2 * MINUTE])
    assert bench.commit(plan(bench.snapshot(up), now=bench.now, lookahead=0))
    assert bench.claim_one().occurrence.id == waiting.id


@case
def a_fire_that_the_upstream_withdraws_later_is_not_waited_for_in_vain(bench: Bench) -> None:
    up = bench.create("up", max_runs=1, horizon=Horizon(occurrences=2))
    bench.create("down", depends_on=ON_UP, horizon=Horizon(occurrences=2))
    bench.advance(MINUTE)
    bench.start(_claims(bench)["up"])
    used_up = bench.snapshot(up)
    slow = plan(used_up, now=bench.now, lookahead=0)
    bench.advance(MINUTE)
    assert bench.commit(plan(used_up, now=bench.now, lookahead=0))
    waiting = _waiting(bench, _claims(bench)["down"])
    assert bench.commit(slow)
    assert bench.claim_one().occurrence.id == waiting.id


@case
def another_revision_lets_what_waits_for_others_be_decided_again(bench: Bench) -> None:
    up, down = _both_due(bench)
    bench.start(up)
    waiting = _waiting(bench, down)
    declared = factories.declaration()
    edited = edits.edit(bench.snapshot(down.schedule), declared, now=bench.now, lookahead=0)
    assert bench.commit(edited)
    turn = bench.claim_one()
    assert turn.occurrence.id == waiting.id
    assert not depends_on_others(turn)
    bench.start(turn)


@case
def a_graph_has_what_is_reached_and_a_version(bench: Bench) -> None:
    nothing = bench.store.graph("acme", ["schedule-of-a", "schedule-of-d"])
    assert nothing == Graph(version=0, upstreams={})
    bench.create("a")
    bench.create("b", depends_on=(Dependency(schedule_id="schedule-of-a"),))
    two = (Dependency(schedule_id="schedule-of-b"), Dependency(schedule_id="schedule-of-a"))
    bench.create("c", depends_on=two)
    graph = bench.store.graph("acme", ["schedule-of-c"])
    assert graph.upstreams == {
        "schedule-of-a": (),
        "schedule-of-b": ("schedule-of-a",),
        "schedule-of-c": ("schedule-of-b", "schedule-of-a"),
    }
    assert bench.store.graph("acme", ["schedule-of-b"]).upstreams.keys() == {"schedule-of-a", "schedule-of-b"}
    assert bench.store.graph("elsewhere", ["schedule-of-c"]) == nothing


@case
def the_version_rises_with_what_depends_on_what_and_is_a_condition(bench: Bench) -> None:
    schedule = bench.create("up")
    other = bench.create("other")
    version = bench.store.graph("acme", []).version
    edited = replace(
        edits.edit(
            bench.snapshot(schedule),
            factories.declaration(depends_on=(Dependency(schedule_id=other.schedule_id),)),
            now=bench.now,
            lookahead=LOOKAHEAD,
        ),
        graph=version,
    )
    backwards = replace(
        edits.edit(bench.snapshot(other), factories.declaration(depends_on=ON_UP), now=bench.now, lookahead=LOOKAHEAD),
        graph=version,
    )
    created = replace(first_plan(factories.schedule("new", depends_on=ON_UP), lookahead=LOOKAHEAD), graph=version)
    assert bench.commit(edited)
    assert not bench.commit(backwards)
    assert bench.store.create([created]) == [False]
    risen = bench.store.graph("acme", []).version
    assert risen > version
    assert bench.store.create([replace(created, graph=risen)]) == [True]
    assert bench.commit(edits.delete(bench.snapshot(schedule), now=bench.now))
    assert bench.store.graph("acme", ["schedule-of-new"]).upstreams == {"schedule-of-new": (UP,)}


@case
def a_gap_that_ends_with_the_time_before_is_not_in_question(bench: Bench) -> None:
    twice = IntervalTrigger(30, start_at=from_micros(NOW + MINUTE // 2), end_at=from_micros(NOW + MINUTE))
    up = bench.create("up", trigger=twice, misfire_policy=misfire.Skip(grace=SECOND))
    bench.create("down", depends_on=ON_UP, horizon=Horizon(occurrences=2))
    bench.advance(2 * MINUTE)
    assert bench.commit(plan(bench.snapshot(up), now=bench.now, lookahead=LOOKAHEAD))
    claims = [claim for claim in bench.claim() if claim.occurrence.uid == "down"]
    assert [_stands(bench, claim).newest for claim in claims] == [(NOW + MINUTE, Phase.MISFIRED), None]


@case
def the_end_of_the_previous_time_wakes_no_downstream(bench: Bench) -> None:
    bench.create("up", horizon=Horizon(occurrences=2))
    bench.create("down", depends_on=ON_UP, horizon=Horizon(occurrences=2))
    bench.advance(2 * MINUTE)
    claims = {(claim.occurrence.uid, claim.occurrence.nominal - NOW): claim for claim in bench.claim()}
    waiting = _waiting(bench, claims["down", 2 * MINUTE])
    assert bench.settle(bench.start(claims["up", MINUTE]))
    assert bench.claim() == []
    assert bench.settle(bench.start(claims["up", 2 * MINUTE]))
    assert bench.claim_one().occurrence.id == waiting.id


@case
def ends_have_moments_of_their_own_even_where_the_clock_stands_still(bench: Bench) -> None:
    up, down = _both_due(bench)
    ends = []
    running = bench.start(up)
    for key in ("a", "b", "c"):
        assert bench.settle(running)
        ends.append(_stands(bench, down).ended)
        bench.add(up.schedule, key)
        running = bench.start(_claims(bench)["up"])
    assert ends == [bench.now, bench.now + 1, bench.now + 2]


@case
def what_depends_on_what_has_another_version_when_somebody_depends_on_nothing_any_more(bench: Bench) -> None:
    bench.create("up")
    down = bench.create("down", depends_on=ON_UP)
    before = bench.store.graph("acme", [down.schedule_id])
    alone = replace(down.declaration, depends_on=())
    assert bench.commit(edits.edit(bench.snapshot(down), alone, now=bench.now, lookahead=LOOKAHEAD))
    after = bench.store.graph("acme", [down.schedule_id])
    assert after.version > before.version
    assert after.upstreams == {down.schedule_id: ()}


@case
def an_edit_of_texts_wakes_no_downstream(bench: Bench) -> None:
    _, down = _both_due(bench)
    _waiting(bench, down)
    labelled = replace(down.schedule.declaration, labels={"team": "data"})
    snapshot = bench.snapshot(down.schedule)
    assert bench.commit(edits.edit(snapshot, labelled, now=bench.now, lookahead=LOOKAHEAD))
    assert bench.claim() == []


def _follower(bench: Bench, **changes: object) -> Schedule:
    """A schedule without a trigger, planned once."""
    schedule = bench.create("down", trigger=None, depends_on=(Dependency(schedule_id="schedule-of-up"),), **changes)
    _plan(bench)
    return schedule


def _plan(bench: Bench) -> int:
    """Plan whatever has to be planned now; says how much was."""
    plans = [plan(one, now=bench.now, lookahead=LOOKAHEAD) for one in bench.store.plannable(bench.now, 10)]
    return sum(bench.store.commit_plans(plans))


def _fires(bench: Bench, of: Schedule) -> list[tuple[int, Phase]]:
    return [(one.nominal - NOW, one.phase) for one in reversed(bench.store.occurrences(of.uid))]


@case
def a_follower_is_planned_when_its_upstream_has_ended(bench: Bench) -> None:
    up = bench.create_quiet("up")
    down = _follower(bench)
    assert bench.store.plannable(bench.now, 10) == []
    bench.advance(5)
    assert bench.settle(bench.run(up, "a"))
    assert bench.store.next_time([ROUTE]) == bench.now
    assert _plan(bench) == 1
    assert _fires(bench, down) == [(5, Phase.PENDING)]
    assert bench.settle(bench.start(bench.claim_one()))
    assert bench.store.next_time([ROUTE]) is None
    bench.advance(5)
    assert bench.fail(bench.run(up, "b"))
    assert _plan(bench) == 1
    assert _fires(bench, down) == [(5, Phase.COMPLETED), (10, Phase.SKIPPED)]
    [skipped, _] = bench.store.occurrences(down.uid)
    assert (skipped.reason, skipped.detail) == (
        Reason.DEPENDENCY_FAILED,
        '{"phase": "failed", "upstream": "schedule-of-up"}',
    )


@case
def a_follow_up_stands_where_its_upstream_stands(bench: Bench) -> None:
    up = bench.create_quiet("up")
    down = _follower(bench)
    cause = {"event_id": "evt1.1_x", "event_type": "x", "source": "noonmark", "payload": {"chain": ["first"]}}
    bench.add_event(up, "evt1.1_x", payload=cause)
    running = bench.start(bench.claim_one())
    bench.advance(5)
    assert bench.settle(running)
    assert _plan(bench) == 1
    expected = chain_after(running)
    assert expected is not None
    assert (expected.depth, expected.schedules) == (1, ("first", "schedule-of-up"))
    [follow_up] = bench.store.occurrences(down.uid)
    assert chain_behind(follow_up) == expected
    edited = replace(down.declaration, timeout=MINUTE)
    assert bench.commit(edits.edit(bench.snapshot(down), edited, now=bench.now, lookahead=LOOKAHEAD))
    claim = bench.claim_one()
    assert (claim.occurrence.revision, chain_behind(claim.occurrence)) == (2, expected)
    assert bench.settle(bench.start(claim))
    assert bench.settle(bench.run(up, "by hand"))
    assert _plan(bench) == 1
    [newest, _] = bench.store.occurrences(down.uid)
    assert newest.overrides is None, "no event is behind it, so there is nothing to carry on"


@case
def ends_of_one_moment_are_distinguished(bench: Bench) -> None:
    up = bench.create_quiet("up")
    down = _follower(bench)
    for key, after in (("a", 1), ("b", 2)):
        assert bench.settle(bench.run(up, key))
        assert _plan(bench) == 1
        assert bench.settle(bench.start(bench.claim_one()))
        assert _fires(bench, down)[-1] == (after, Phase.COMPLETED)


@case
def a_plan_that_does_not_know_of_an_end_is_not_written(bench: Bench) -> None:
    up = bench.create_quiet("up")
    down = _follower(bench)
    stale = plan(bench.snapshot(down), now=bench.now, lookahead=LOOKAHEAD)
    assert bench.settle(bench.run(up, "a"))
    assert not bench.commit(stale)
    assert _plan(bench) == 1
    assert len(_fires(bench, down)) == 1


@case
def a_follower_of_what_is_over_is_over_and_begins_again_with_it(bench: Bench) -> None:
    up = bench.create("up", trigger=OnceTrigger(from_micros(NOW)))
    assert bench.settle(bench.start(bench.claim_one()))
    assert bench.stored(up).schedule.phase is SchedulePhase.COMPLETED
    bench.advance(MINUTE)
    down = _follower(bench)
    assert len(_fires(bench, down)) == 1
    assert bench.settle(bench.start(bench.claim_one()))
    assert bench.stored(down).schedule.phase is SchedulePhase.COMPLETED
    bench.advance(MINUTE)
    assert bench.settle(bench.run(up, "once more", 2 * MINUTE))
    assert bench.stored(down).schedule.phase is SchedulePhase.ACTIVE
    assert _plan(bench) == 1
    assert bench.settle(bench.start(bench.claim_one()))
    assert bench.stored(down).schedule.phase is SchedulePhase.COMPLETED
    assert _fires(bench, down) == [(MINUTE + 1, Phase.COMPLETED), (2 * MINUTE, Phase.COMPLETED)]


@case
def a_follower_that_has_run_as_often_as_it_may_stays_completed(bench: Bench) -> None:
    up = bench.create_quiet("up")
    down = _follower(bench, max_runs=1)
    assert bench.settle(bench.run(up, "a"))
    assert _plan(bench) == 1
    running = bench.start(bench.claim_one())
    assert _plan(bench) == 1
    assert bench.settle(running)
    assert bench.stored(down).schedule.phase is SchedulePhase.COMPLETED
    assert bench.settle(bench.run(up, "b"))
    assert bench.stored(down).schedule.phase is SchedulePhase.COMPLETED


@case
def an_end_that_is_not_planned_yet_keeps_a_follower_from_completing(bench: Bench) -> None:
    up = bench.create("up", trigger=OnceTrigger(from_micros(NOW)))
    assert bench.settle(bench.start(bench.claim_one()))
    down = _follower(bench)
    running = bench.start(bench.claim_one())
    assert bench.settle(bench.run(up, "once more"))
    assert bench.settle(running)
    assert bench.stored(down).schedule.phase is SchedulePhase.ACTIVE
    assert _plan(bench) == 1
    assert len(_fires(bench, down)) == 2


@case
def the_last_end_of_a_deleted_upstream_is_none_of_its_successors(bench: Bench) -> None:
    old = bench.create_quiet("up")
    down = _follower(bench)
    running = bench.run(old, "a")
    assert bench.commit(edits.delete(bench.snapshot(old), now=bench.now))
    bench.create_quiet("up-2", schedule_id=old.schedule_id)
    before = bench.snapshot(down)
    assert bench.settle(running)
    assert bench.snapshot(down) == before
