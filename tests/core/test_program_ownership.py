"""What callers may change of a schedule that a program declared, and when they may send a payload along."""

from dataclasses import replace

import pytest

from noonmark.core.program_ownership import change_problem, is_program_owned, payload_problem
from noonmark.core.schedule import TRUSTED
from noonmark.core.targets import CommandTarget, FunctionTarget
from noonmark.core.triggers import EventTrigger, IntervalTrigger
from noonmark.testing import factories

RUN = FunctionTarget(function="subprocess:run", args=(["true"],))
REPORT = FunctionTarget(function="report")
BACKUP = CommandTarget(argv=("backup",))
EVENTS, MORE_EVENTS = EventTrigger("made"), EventTrigger(["made", "asked"])


def scheduled(target=RUN, source=TRUSTED, **declared):
    return replace(factories.schedule(target=target, **declared), source=source)


def changed(schedule, **fields):
    return replace(schedule.declaration, **fields)


@pytest.mark.parametrize(
    ("target", "source", "offered", "is_owned"),
    [
        (RUN, TRUSTED, (), True),
        (RUN, "rest", (), True),
        (RUN, TRUSTED, ("subprocess:run",), False),
        (REPORT, TRUSTED, ("other",), True),
        (REPORT, TRUSTED, ("report",), False),
        (REPORT, "rest", (), False),
        (BACKUP, TRUSTED, ("backup",), True),
        (BACKUP, "rest", (), False),
    ],
)
def test_a_program_owns_what_it_declared_unless_that_is_offered(target, source, offered, is_owned):
    schedule = scheduled(target, source)
    assert is_program_owned(schedule, offered) is is_owned
    assert (payload_problem(schedule, offered) is not None) is is_owned
    accepting = scheduled(target, source, accepts_payload=True)
    assert payload_problem(accepting, offered) is None


@pytest.mark.parametrize(
    "target",
    [
        replace(RUN, args=(["sh"],)),
        replace(RUN, kwargs={"shell": True}),
        replace(RUN, payload=1),
        replace(RUN, function="os:system"),
        REPORT,
        BACKUP,
    ],
)
@pytest.mark.parametrize("source", [TRUSTED, "rest"])
def test_what_a_program_calls_and_with_what_is_for_the_program(target, source):
    schedule = scheduled(source=source)
    field, why = change_problem(schedule, changed(schedule, target=target), ("report",))
    assert (field, "only a program can change what it calls or with what" in why) == ("target", True)


def test_what_is_offered_may_be_called_with_anything():
    schedule = scheduled(REPORT)
    assert change_problem(schedule, changed(schedule, target=replace(REPORT, args=(1,))), ("report",)) is None
    assert (
        change_problem(schedule, changed(schedule, target=FunctionTarget(function="other")), ("report", "other"))
        is None
    )
    for target in (FunctionTarget(function="other"), BACKUP):
        assert change_problem(schedule, changed(schedule, target=target), ("report",))[0] == "target"


def test_a_refusal_says_what_would_allow_it():
    by_module, offered, command = scheduled(), scheduled(REPORT), scheduled(BACKUP)
    _, why = change_problem(by_module, changed(by_module, target=REPORT), ())
    assert why.endswith("; to let callers do so, offer its function with --function")
    _, why = change_problem(offered, changed(offered, target=BACKUP), ("report",))
    assert why.endswith("; callers can change it to functions that the server offers with --function")
    _, why = change_problem(command, changed(command, target=REPORT), ("report",))
    assert "--function" not in why
    assert payload_problem(by_module, ()).endswith(
        "accepts_payload=True, or the server can offer its function with --function"
    )
    assert payload_problem(command, ()).endswith("declare it with accepts_payload=True")


def test_what_a_caller_declared_is_for_callers():
    schedule = scheduled(BACKUP, "rest")
    for fields in ({"target": REPORT}, {"name": "x"}, {"accepts_payload": True}, {"trigger": EVENTS}):
        assert change_problem(schedule, changed(schedule, **fields), ()) is None


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ({}, {"name": "theirs"}, "name"),
        ({}, {"accepts_payload": True}, "accepts_payload"),
        ({"accepts_payload": True}, {"accepts_payload": False}, "accepts_payload"),
        ({}, {"trigger": EVENTS}, "trigger"),
        ({"trigger": EVENTS}, {"trigger": MORE_EVENTS}, "trigger"),
        ({"trigger": EVENTS, "accepts_payload": True}, {"trigger": MORE_EVENTS}, None),
        ({"trigger": EVENTS}, {"trigger": IntervalTrigger(60)}, None),
        ({"trigger": EVENTS}, {"max_runs": 3}, None),
        ({}, {"trigger": IntervalTrigger(60), "labels": {"a": "b"}, "timeout": 1}, None),
    ],
)
def test_when_it_runs_is_for_callers_but_not_what_comes_with_it(before, after, field):
    schedule = scheduled(**before)
    refused = change_problem(schedule, changed(schedule, **after), ())
    assert (None if refused is None else refused[0]) == field


@pytest.mark.parametrize(("before", "after"), [(1, True), (0, False), (2, 2.0)])
def test_what_python_takes_for_equal_is_another_argument(before, after):
    schedule = scheduled(replace(RUN, args=(before,)))
    assert change_problem(schedule, changed(schedule, target=replace(RUN, args=(after,))), ())[0] == "target"
    named = scheduled(replace(RUN, kwargs={"deep": [before]}))
    assert change_problem(named, changed(named, target=replace(RUN, kwargs={"deep": [after]})), ())[0] == "target"
    listening = scheduled(trigger=EventTrigger("made", filters={"rows": before}))
    wider = EventTrigger("made", filters={"rows": after})
    assert change_problem(listening, changed(listening, trigger=wider), ())[0] == "trigger"


def test_the_order_of_names_says_nothing():
    schedule = scheduled(replace(RUN, kwargs={"check": True, "shell": False}))
    assert (
        change_problem(schedule, changed(schedule, target=replace(RUN, kwargs={"shell": False, "check": True})), ())
        is None
    )
