"""The schedules that carry workflow runs and steps."""

from datetime import UTC, datetime

import pytest

from noonmark.core.errors import InvalidSchedule
from noonmark.core.planner import first_plan
from noonmark.core.schedule import TRUSTED, Owner, parse_schedule, restore_schedule
from noonmark.core.targets.session import PromptAction, SessionTarget, SessionType
from noonmark.core.workflows.hidden_schedules import hidden_schedule, runs_id, steps_id, turns_id


def hidden(schedule_id):
    return hidden_schedule(schedule_id, uid="u1", owner=Owner(tenant="t", user="u"), source="rest", now=10**15)


def test_steps_of_a_program_are_kept_apart_from_those_of_callers():
    assert {runs_id("etl"), steps_id("etl", "rest"), steps_id("etl", TRUSTED)} == {
        "~workflow:etl", "~steps:etl", "~trusted-steps:etl",
    }  # fmt: skip


@pytest.mark.parametrize("schedule_id", [runs_id("etl"), steps_id("a:b", "rest")])
def test_a_hidden_schedule_never_fires_and_can_be_stored(schedule_id):
    schedule = hidden(schedule_id)
    assert schedule.declaration.target.workflow_id in {"etl", "a:b"}
    assert first_plan(schedule, lookahead=0).planned == ()
    trigger = schedule.declaration.trigger
    assert not trigger.matches("noonmark.hidden", {"never": []}, source="")
    assert restore_schedule(schedule.declaration.to_document()) == schedule.declaration


def test_messages_to_a_session_are_carried_by_a_schedule_of_its_own():
    target = SessionTarget(type=SessionType.EXACT, session_id="desk", action=PromptAction(prompt="go"))
    owner = Owner(tenant="t", user="u")
    schedule = hidden_schedule(turns_id("desk"), uid="u1", owner=owner, source="rest", now=10**15, target=target)
    assert (schedule.schedule_id, schedule.declaration.target) == ("~session:desk", target)
    assert restore_schedule(schedule.declaration.to_document()) == schedule.declaration


def test_no_caller_can_choose_such_an_id():
    document = hidden(runs_id("etl")).declaration.to_document() | {"schedule_id": runs_id("etl")}
    with pytest.raises(InvalidSchedule, match="schedule_id"):
        parse_schedule(document, now=datetime(2027, 1, 1, tzinfo=UTC))
