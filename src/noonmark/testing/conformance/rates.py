"""A schedule that starts too often, or succeeds too rarely, is reported once in a window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core import edits
from noonmark.core.instants import SECOND, to_text
from noonmark.core.policies.expected_rate import ExpectedRate
from noonmark.core.targets.ping import PingTarget
from noonmark.core.triggers import EventTrigger
from noonmark.testing.conformance.bench import LOOKAHEAD, case
from noonmark.testing.conformance.bench import start as start_of
from noonmark.testing.factories import NOW

if TYPE_CHECKING:
    from noonmark.core.planner import Plan
    from noonmark.core.schedule import Schedule
    from noonmark.testing.conformance.bench import Bench

PER = 60 * SECOND
RATE = ExpectedRate(per=PER, at_least=1, at_most=2)
TOO_OFTEN, TOO_RARE = "schedule.too_often", "schedule.too_rare"


def _create(bench: Bench, rate: ExpectedRate = RATE) -> Schedule:
    bench.create("listener", trigger=EventTrigger([TOO_OFTEN, TOO_RARE]))
    return bench.create_quiet(expected_rate=rate)


def _planned(bench: Bench) -> list[Plan]:
    return [
        edits.plan_or_resume(snapshot, now=bench.now, lookahead=LOOKAHEAD)
        for snapshot in bench.store.plannable(bench.now, 9)
        if snapshot.schedule.declaration.expected_rate is not None
    ]


def _judge(bench: Bench) -> list[bool]:
    return bench.store.commit_plans(_planned(bench))


def _reported(bench: Bench, schedule: Schedule, event_type: str) -> list[tuple[str, int, int]]:
    events = bench.store.events(schedule.owner.tenant, 9, event_type=event_type)
    payloads = [one.payload for one in reversed(events)]
    return [(one["window_to"], one["count"], one["windows"]) for one in payloads]


@case
def a_window_without_success_is_reported_when_it_ends(bench: Bench) -> None:
    schedule = _create(bench)
    assert bench.store.next_time(()) == NOW + PER
    bench.advance(PER - 1)
    assert _planned(bench) == []
    bench.advance(1)
    assert _judge(bench) == [True]
    assert _planned(bench) == []
    assert _reported(bench, schedule, TOO_RARE) == [(to_text(NOW + PER), 0, 1)]
    bench.advance(PER)
    assert _judge(bench) == [True]
    assert _reported(bench, schedule, TOO_RARE)[1:] == [(to_text(NOW + 2 * PER), 0, 1)]


@case
def of_two_nodes_one_reports(bench: Bench) -> None:
    schedule = _create(bench)
    bench.advance(PER)
    first, second = _planned(bench), _planned(bench)
    assert bench.store.commit_plans(first) == [True]
    assert bench.store.commit_plans(second) == [False]
    assert len(_reported(bench, schedule, TOO_RARE)) == 1


@case
def windows_that_ended_while_no_node_was_running_are_one_report(bench: Bench) -> None:
    schedule = _create(bench)
    bench.advance(3 * PER + SECOND)
    assert _judge(bench) == [True]
    assert _reported(bench, schedule, TOO_RARE) == [(to_text(NOW + 3 * PER), 0, 3)]
    assert bench.snapshot(schedule).rate_window.ends == NOW + 4 * PER  # type: ignore[union-attr]


@case
def a_success_counts_for_the_window_in_which_it_ended(bench: Bench) -> None:
    schedule = _create(bench)
    occurrence = bench.run(schedule, "a")
    bench.advance(PER - 1)
    assert bench.settle(occurrence)
    bench.advance(1)
    late = _planned(bench)
    other = bench.run(schedule, "b", PER)
    assert bench.settle(other)  # for the next window, though nobody has judged this one yet
    assert bench.store.commit_plans(late) == [True]
    bench.advance(PER)
    assert _judge(bench) == [True]
    assert _reported(bench, schedule, TOO_RARE) == []
    bench.advance(PER)
    assert _judge(bench) == [True]
    assert len(_reported(bench, schedule, TOO_RARE)) == 1


@case
def a_failure_is_not_a_success(bench: Bench) -> None:
    schedule = _create(bench)
    assert bench.fail(bench.run(schedule, "a"))
    bench.advance(PER)
    assert _judge(bench) == [True]
    assert len(_reported(bench, schedule, TOO_RARE)) == 1


@case
def the_first_start_too_many_is_reported(bench: Bench) -> None:
    schedule = _create(bench)
    alerts = []
    for key in "abcd":
        bench.add(schedule, key)
        [answer] = bench.store.admit([start_of(bench.claim_one())], now=bench.now, lease=PER)
        alerts.append(answer.alert)  # type: ignore[union-attr]
        assert bench.settle(answer.occurrence)  # type: ignore[union-attr]
    assert [alert is not None for alert in alerts] == [False, False, True, False]
    assert _reported(bench, schedule, TOO_OFTEN) == [(to_text(NOW + PER), 3, 1)]


@case
def a_retry_is_no_start(bench: Bench) -> None:
    schedule = _create(bench, ExpectedRate(per=PER, at_most=1))
    assert bench.retry(bench.run(schedule, "a"), bench.now)
    assert bench.settle(bench.start(bench.claim_one()))
    assert _reported(bench, schedule, TOO_OFTEN) == []


@case
def a_paused_schedule_is_not_judged_and_begins_anew(bench: Bench) -> None:
    schedule = _create(bench)
    assert bench.commit(edits.pause(bench.snapshot(schedule), now=bench.now))
    bench.advance(2 * PER)
    assert _planned(bench) == []
    assert bench.snapshot(schedule).rate_window is None
    assert bench.commit(edits.resume(bench.snapshot(schedule), now=bench.now, lookahead=LOOKAHEAD))
    bench.advance(PER - 1)
    assert _planned(bench) == []
    bench.advance(1)
    assert _judge(bench) == [True]
    assert _reported(bench, schedule, TOO_RARE) == [(to_text(NOW + 3 * PER), 0, 1)]


@case
def of_a_ping_schedule_pings_count(bench: Bench) -> None:
    bench.create("listener", trigger=EventTrigger([TOO_OFTEN, TOO_RARE]))
    schedule = bench.create_quiet(expected_rate=RATE, target=PingTarget())

    def ping(*, is_start: bool = False) -> bool:
        return bench.store.change(
            schedule.uid,
            lambda snapshot, now: edits.ping(
                snapshot, is_start=is_start, is_success=not is_start, now=now, lookahead=LOOKAHEAD
            ),
        )

    assert all([ping(is_start=True), ping(), ping()])
    assert _reported(bench, schedule, TOO_OFTEN) == []
    assert ping(is_start=True)
    assert len(_reported(bench, schedule, TOO_OFTEN)) == 1
    bench.advance(PER)
    assert _judge(bench) == [True]
    assert _reported(bench, schedule, TOO_RARE) == []
