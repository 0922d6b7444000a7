"""Why a schedule is paused and until when, and what is said of it."""

from dataclasses import replace

import pytest

from noonmark.core import edits
from noonmark.core.admission import Busy, Claim, Place, refused
from noonmark.core.explain import explain_instant, explain_latest, explain_occurrence
from noonmark.core.ids import backfill
from noonmark.core.lifecycle import Phase, SchedulePhase
from noonmark.core.occurrence import backfill_pause
from noonmark.core.planner import plan
from noonmark.core.reasons import Reason
from noonmark.core.schedule import Pause
from tests.core.explained import row, step
from tests.core.scheduled import LOOKAHEAD, after_noon, at, declared, every, planned, read, scheduled

WHY = Pause(at=at(50), by="ada", reason="maintenance", until=at(450))
WORDS = (
    "the schedule has been paused since 2026-11-15 12:00:50 UTC by `ada` (maintenance), until 2026-11-15 12:07:30 UTC"
)


def paused(why=WHY, **fields):
    return replace(scheduled(phase=SchedulePhase.PAUSED, **fields), pause=why, updated=at(50))


def due(snapshot, now):
    return edits.plan_or_resume(snapshot, now=at(now), lookahead=LOOKAHEAD)


def test_a_pause_keeps_why_and_is_planned_at_its_end():
    paused = edits.pause(read(scheduled(), 100, 100), now=at(50), why=WHY)
    assert (paused.schedule.pause, paused.plan_at) == (WHY, at(450))


def test_what_was_due_when_it_began_says_who_paused_it():
    paused = edits.pause(read(scheduled(), 100, 100), now=at(100), why=WHY)
    assert [one.detail for one in paused.closed] == ['{"pause_reason": "maintenance", "paused_by": "ada"}']


@pytest.mark.parametrize(
    ("before", "again", "after"),
    [
        (WHY, {"reason": "incident"}, Pause(at=at(50), by="eve", reason="incident")),
        (WHY, {"until": at(900)}, Pause(at=at(50), by="ada", reason="maintenance", until=at(900))),
        (
            WHY,
            {"reason": "incident", "until": at(900)},
            Pause(at=at(50), by="eve", reason="incident", until=at(900)),
        ),
        (None, {"until": at(900)}, Pause(at=at(60), by="eve", until=at(900))),
    ],
)
def test_a_paused_schedule_gets_another_end_and_another_reason_if_there_is_one(before, again, after):
    made = edits.pause(read(paused(before), 50), now=at(60), why=Pause(at=at(60), by="eve", **again))
    assert (made.schedule.pause, made.schedule.phase, made.plan_at) == (after, SchedulePhase.PAUSED, after.until)


def test_an_edit_of_a_paused_schedule_keeps_its_end():
    edited = edits.edit(read(paused(), 50), declared(every(30)), now=at(60), lookahead=LOOKAHEAD)
    assert (edited.schedule.pause, edited.plan_at) == (WHY, at(450))


def test_it_resumes_as_of_its_end_and_not_before():
    snapshot = read(paused(), 50)
    before = due(snapshot, 449)
    assert (before.schedule, before.plan_at) == (None, at(450))
    resumed = due(snapshot, 700)
    assert (resumed.schedule.phase, resumed.schedule.pause) == (SchedulePhase.ACTIVE, None)
    [skipped] = resumed.closed
    assert (skipped.reason, skipped.missed_count, after_noon(skipped.missed_last)) == (Reason.PAUSED, 4, 400)
    assert skipped.detail == '{"pause_reason": "maintenance", "paused_by": "ada"}'
    assert planned(resumed)[0][0] == 500
    assert (resumed.note.caller, resumed.note.reason) == ("noonmark", "it was paused until 2026-11-15T12:07:30Z")


@pytest.mark.parametrize("schedule", [paused(Pause(at=at(50))), paused(None), scheduled()])
def test_without_an_end_nothing_resumes(schedule):
    snapshot = read(schedule, 50)
    assert due(snapshot, 60) == plan(snapshot, now=at(60), lookahead=LOOKAHEAD)


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (WHY, WORDS),
        (Pause(at=at(50)), "the schedule has been paused since 2026-11-15 12:00:50 UTC"),
        (None, "the schedule is paused"),
    ],
)
def test_the_words_of_a_pause(why, words):
    schedule = paused(why)
    held = explain_occurrence(schedule, row(schedule, 100), now=at(120))
    assert held.summary == f"It has not run yet: {words}, and holds it until it is resumed."
    explanation = explain_instant(schedule, at(200), now=at(60))
    assert f"{words}; what it names meanwhile is counted as skipped when it is resumed" in explanation.summary
    ran = row(schedule, 0, phase=Phase.COMPLETED, reason=Reason.SUCCEEDED, ended=at(3))
    assert explain_latest(schedule, ran, (), now=at(60), next_run=None).summary.endswith(f"; {words}.")


def test_the_step_has_the_facts():
    schedule = paused()
    explanation = explain_occurrence(schedule, row(schedule, 100), now=at(120))
    assert step(explanation, "pause").facts["paused"] == WHY.to_document()


def test_a_time_after_its_end_is_due():
    explanation = explain_instant(paused(), at(500), now=at(60))
    assert explanation.summary == "It has not run yet: it is due at 2026-11-15 12:08:20 UTC."


@pytest.mark.parametrize(
    ("facts", "by"),
    [
        ({"paused_by": "ada", "pause_reason": "maintenance"}, " by `ada` (maintenance)"),
        ({"paused_by": "ada"}, " by `ada`"),
        (None, ""),
    ],
)
def test_what_it_skipped_says_who_paused_it(facts, by):
    schedule = scheduled()
    gap = {"missed_count": 2, "missed_first": 100, "missed_last": 200}
    skipped = row(schedule, 100, phase=Phase.SKIPPED, reason=Reason.PAUSED, facts=facts, **gap)
    explanation = explain_occurrence(schedule, skipped, now=at(300))
    assert explanation.summary.endswith(f"were skipped by a pause of the schedule{by}.")
    one = row(schedule, 100, phase=Phase.SKIPPED, reason=Reason.PAUSED, facts=facts)
    assert explain_occurrence(schedule, one, now=at(300)).summary.endswith(f"paused at that time{by}.")


def test_a_skip_for_overlap_names_the_occurrence_in_the_way():
    schedule = scheduled()
    claim = Claim(occurrence=row(schedule, 100), schedule=schedule, claimed=at(100), found_in=Phase.PENDING)
    end = refused(claim, Busy(place=Place.SLOT, holder="occ_1"))
    assert (end.reason, end.facts) == (Reason.OVERLAP, {"in_flight": "occ_1"})
    skipped = row(schedule, 100, phase=Phase.SKIPPED, reason=Reason.OVERLAP, facts=end.facts)
    assert "`occ_1` was still in flight" in explain_occurrence(schedule, skipped, now=at(120)).summary


def test_what_no_live_node_serves_waits_for_one():
    schedule = scheduled()
    due_now = explain_occurrence(schedule, row(schedule, 100), now=at(110), unserved="no live node serves it")
    assert due_now.summary == (
        "It has not run yet: it has been due since 2026-11-15 12:01:40 UTC, and no live node serves it."
    )
    assert step(due_now, "claim").decision == "target_missing"
    ahead = explain_occurrence(schedule, row(schedule, 100), now=at(50), unserved="no live node serves it")
    assert ahead.summary.endswith("; at present, no live node serves it.")
    hinted = explain_occurrence(schedule, row(schedule, 100), now=at(110), unserved="no live node serves it; is it up?")
    assert hinted.summary.endswith(", and no live node serves it (is it up?).")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            {"backfill_paused": {"at_utc": "2026-11-15T12:01:40Z", "by": "ada", "reason": "load"}},
            "has been paused since 2026-11-15 12:01:40 UTC by `ada` (load)",
        ),
        ({"backfill_paused": {}}, "is paused"),
    ],
)
def test_one_of_a_paused_backfill_says_so_and_how_it_is_resumed(facts, said):
    schedule = scheduled()
    explanation = explain_occurrence(schedule, row(schedule, origin=backfill("b1"), facts=facts), now=at(200))
    resume = "`noonmark backfill resume s1 b1` resumes it"
    assert explanation.summary == f"It has not run yet: its backfill {said}; {resume}."
    assert "backfill_paused" in step(explanation, "pause").facts


@pytest.mark.parametrize("detail", ["backfill_paused", '["backfill_paused"]', '{"backfill_paused": 1}'])
def test_a_damaged_detail_says_nothing_of_a_backfill(detail):
    assert backfill_pause(replace(row(scheduled()), detail=detail)) is None


def test_what_has_started_is_not_held_by_its_backfill():
    claimed = row(scheduled(), origin=backfill("b1"), facts={"backfill_paused": {}}, phase=Phase.CLAIMED)
    assert backfill_pause(claimed) is None
