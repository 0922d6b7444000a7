"""Every reason has a stable code and a sentence."""

import copy
import pickle
import re

import pytest

from noonmark.core.lifecycle import ENDINGS
from noonmark.core.reasons import Reason, reason_sentence

# Reasons of decisions: what they explain is not the end of an occurrence.
UNDERWAY = {
    "not_due",
    "on_time",
    "within_grace",
    "caught_up",
    "queued",
    "concurrency_limit",
    "inflight_limit",
    "tenant_inflight_limit",
    "dependency_pending",
    "resources_short",
    "service_unavailable",
    "window_open",
    "accepted",
    "retry_scheduled",
    "lease_lost",
    "suspended",
    "step_pending",
    "approval",
}


@pytest.mark.parametrize("reason", Reason)
def test_a_code_is_lower_snake_and_a_sentence_is_one_sentence(reason):
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", reason)
    assert re.fullmatch(r"[A-Z][^.]+\.", reason.sentence)


def test_no_two_reasons_say_the_same():
    assert len({reason.sentence for reason in Reason}) == len(Reason)


def test_a_reason_is_its_code():
    assert Reason("late") is Reason.LATE
    assert str(Reason.LATE) == "late"
    assert Reason.LATE == "late"
    assert Reason.LATE.sentence == "It was later than the misfire policy allows."


def test_a_reason_survives_copying():
    assert copy.deepcopy(Reason.POISON) is Reason.POISON
    assert pickle.loads(pickle.dumps(Reason.POISON)) is Reason.POISON  # noqa: S301 - our own bytes


def test_every_reason_either_ends_an_occurrence_or_explains_a_step():
    ending = {str(reason) for reasons in ENDINGS.values() for reason in reasons}
    assert not ending & UNDERWAY
    assert ending | UNDERWAY == {str(reason) for reason in Reason}


@pytest.mark.parametrize(
    ("reason", "detail", "sentence"),
    [
        (
            Reason.NEWER_FIRE,
            '{"route": "http"}',
            "No live node served `http` until a newer fire was due, and the misfire policy runs only the newest.",
        ),
        (Reason.NEWER_FIRE, '{"newer": "03:00"}', Reason.NEWER_FIRE.sentence),
        (Reason.TARGET_MISSING, '{"session": "desk"}', "There was no session `desk`."),
        (Reason.TARGET_MISSING, '{"workflow": "sales"}', "There was no workflow `sales`."),
        (Reason.TARGET_MISSING, '{"attempt": 1, "why": "there is no mob \'m\'"}', "There is no mob 'm'."),
        (Reason.TARGET_MISSING, '{"node": "a"}', Reason.TARGET_MISSING.sentence),
        (Reason.TARGET_MISSING, "", Reason.TARGET_MISSING.sentence),
        (Reason.TARGET_MISSING, "{damaged", Reason.TARGET_MISSING.sentence),
        (Reason.TARGET_MISSING, "[1]", Reason.TARGET_MISSING.sentence),
        (Reason.BUDGET_EXCEEDED, '{"why": "the budget of the run is 5 tokens"}', "The budget of the run is 5 tokens."),
        (Reason.BUDGET_EXCEEDED, '{"why": 5}', Reason.BUDGET_EXCEEDED.sentence),
        (Reason.HALTED, '{"halted_by": "ada", "halted_at": "03:00"}', "It was halted by `ada` at 03:00."),
        (Reason.HALTED, '{"problem": "none"}', Reason.HALTED.sentence),
        (Reason.PAUSED, '{"session": "desk", "why": "so"}', Reason.PAUSED.sentence),
    ],
)
def test_a_sentence_names_what_was_missing_or_used_up_or_who_stopped_it(reason, detail, sentence):
    assert reason_sentence(reason, detail) == sentence
