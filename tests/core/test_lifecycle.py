"""Every pair of phases, allowed or refused, against the table written out once more."""

import pytest

from noonmark.core.errors import Conflict
from noonmark.core.lifecycle import (
    ENDINGS,
    FINAL,
    LIVE,
    SCHEDULE_TRANSITIONS,
    TRANSITIONS,
    Phase,
    SchedulePhase,
    diagram,
    step,
    step_schedule,
)
from noonmark.core.reasons import Reason

OCCURRENCES = {
    "pending": "claimed skipped misfired superseded cancelled delivery_failed",
    "claimed": "dispatching pending skipped misfired superseded cancelled delivery_failed",
    "dispatching": "awaiting_completion completed failed timed_out cancelled delivery_failed pending",
    "awaiting_completion": "completed failed timed_out cancelled delivery_failed pending",
    "completed": "",
    "failed": "",
    "timed_out": "",
    "cancelled": "",
    "skipped": "",
    "misfired": "",
    "delivery_failed": "",
    "superseded": "pending",
}
SCHEDULES = {
    "active": "paused completed deleted",
    "paused": "active deleted",
    "completed": "active deleted",
    "deleted": "",
    "proposed": "active deleted",
}


def test_the_phases_are_these():
    assert {str(phase) for phase in Phase} == set(OCCURRENCES)
    assert {str(phase) for phase in SchedulePhase} == set(SCHEDULES)


@pytest.mark.parametrize("to", OCCURRENCES)
@pytest.mark.parametrize("phase", OCCURRENCES)
def test_an_occurrence_moves_as_the_table_says(phase, to):
    if to in OCCURRENCES[phase].split():
        assert step(Phase(phase), Phase(to)) is Phase(to)
    else:
        with pytest.raises(Conflict, match=f"from {phase} to {to};"):
            step(Phase(phase), Phase(to))


@pytest.mark.parametrize("to", SCHEDULES)
@pytest.mark.parametrize("phase", SCHEDULES)
def test_a_schedule_moves_as_the_table_says(phase, to):
    if to in SCHEDULES[phase].split():
        assert step_schedule(SchedulePhase(phase), SchedulePhase(to)) is SchedulePhase(to)
    else:
        with pytest.raises(Conflict, match=f"from {phase} to {to};"):
            step_schedule(SchedulePhase(phase), SchedulePhase(to))


def test_a_refusal_says_what_is_allowed():
    with pytest.raises(Conflict) as refused:
        step_schedule(SchedulePhase.PAUSED, SchedulePhase.COMPLETED)
    assert refused.value.code == "conflict"
    assert refused.value.field == "phase"
    assert refused.value.message == "a schedule cannot go from paused to completed; paused leaves to active, deleted"
    with pytest.raises(Conflict, match=r"an occurrence cannot .* completed leaves to nothing"):
        step(Phase.COMPLETED, Phase.PENDING)


def test_live_and_final_part_the_phases():
    assert {str(phase) for phase in LIVE} == {"pending", "claimed", "dispatching", "awaiting_completion"}
    assert set(Phase) == LIVE | FINAL
    assert not LIVE & FINAL


def test_only_superseded_can_be_reopened():
    assert {phase for phase in FINAL if TRANSITIONS[phase]} == {Phase.SUPERSEDED}


def test_every_live_phase_can_reach_every_way_to_end():
    for phase in LIVE:
        reached = {phase}
        while (wider := reached.union(*(TRANSITIONS[each] for each in reached))) != reached:
            reached = wider
        assert reached == set(Phase)


def test_the_tables_cannot_be_changed():
    with pytest.raises(TypeError):
        TRANSITIONS[Phase.COMPLETED] = frozenset({Phase.PENDING})


def test_every_final_phase_has_reasons_and_no_other_has():
    assert set(ENDINGS) == FINAL
    assert all(ENDINGS.values())


@pytest.mark.parametrize(
    "outcome",
    [
        "skipped/overlap",
        "skipped/queue_full",
        "skipped/replaced",
        "skipped/window_closed",
        "skipped/dependency_failed",
        "skipped/paused",
        "skipped/target_missing",
        "skipped/max_runs_reached",
        "misfired/late",
        "misfired/catch_up_limit",
        "misfired/target_missing",
        "delivery_failed/poison",
        "delivery_failed/outcome_unknown",
        "delivery_failed/target_missing",
        "delivery_failed/unreadable",
        "timed_out/completion_timed_out",
        "cancelled/window_closed",
        "cancelled/deleted",
        "cancelled/replaced",
        "superseded/edited",
        "failed/attempts_exhausted",
        "timed_out/attempts_exhausted",
        "failed/not_retried",
        "timed_out/not_retried",
        "completed/succeeded",
    ],
)
def test_outcomes_that_have_a_name(outcome):
    phase, reason = outcome.split("/")
    assert Reason(reason) in ENDINGS[Phase(phase)]


@pytest.mark.parametrize("outcome", ["completed/failed", "skipped/late", "misfired/overlap", "superseded/deleted"])
def test_outcomes_that_make_no_sense(outcome):
    phase, reason = outcome.split("/")
    assert Reason(reason) not in ENDINGS[Phase(phase)]


def test_the_diagram_of_a_schedule():
    assert diagram(SCHEDULE_TRANSITIONS) == (
        "stateDiagram-v2\n"
        "    [*] --> active\n"
        "    [*] --> proposed\n"
        "    active --> paused\n"
        "    active --> completed\n"
        "    active --> deleted\n"
        "    paused --> active\n"
        "    paused --> deleted\n"
        "    completed --> active\n"
        "    completed --> deleted\n"
        "    deleted --> [*]\n"
        "    proposed --> active\n"
        "    proposed --> deleted\n"
    )


def test_the_diagram_of_an_occurrence_draws_every_way_once():
    drawn = [line.strip() for line in diagram(TRANSITIONS).splitlines()]
    ways = [f"{phase} --> {to}" for phase, leaves_to in OCCURRENCES.items() for to in leaves_to.split()]
    ends = [f"{phase} --> [*]" for phase, leaves_to in OCCURRENCES.items() if not leaves_to]
    assert sorted(drawn) == sorted(["stateDiagram-v2", "[*] --> pending", *ways, *ends])
