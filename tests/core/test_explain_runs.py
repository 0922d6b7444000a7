"""Runs in words."""

import pytest

from noonmark.core.explain.steps import MAX_ANSWER, run_facts
from noonmark.core.frozen import evolve
from noonmark.core.run import Outcome
from tests.core.explained import ERROR, row, run
from tests.core.scheduled import scheduled

ONE = row(scheduled())
BEGAN = "Attempt 1 on node n1 began at 2026-11-15 12:00:01 UTC, and"
REFUSED = {"status": 500, "body": "no\n paper"}


@pytest.mark.parametrize(
    ("kind", "fields", "told"),
    [
        ("function", {"ended": None}, "is still running"),
        ("function", {"result": {"status": 500, "exit_code": 3}}, "completed after 2 seconds"),
        ("function", {"ended": 1.000034}, "completed after 0.034 milliseconds"),
        ("function", {"ended": 1.234567}, "completed after 235 milliseconds"),
        ("function", {"ended": 1.999501}, "completed after 0.999 seconds"),
        ("function", {"ended": 2.234567}, "completed after 1.234 seconds"),
        ("function", {"ended": 0.9}, "completed after 0 seconds"),
        ("function", {"outcome": Outcome.FAILED, "error": ERROR}, "failed after 2 seconds: ValueError: no disk"),
        ("function", {"outcome": Outcome.TIMED_OUT, "error": "no end"}, "timed out after 2 seconds: no end"),
        ("function", {"outcome": Outcome.CANCELLED}, "was cancelled after 2 seconds"),
        (
            "function",
            {"outcome": Outcome.LEASE_LOST, "error": "node n1 was lost before it had ended"},
            "was given up after 2 seconds: node n1 was lost before it had ended",
        ),
        (
            "http",
            {"result": {"status": 200, "body": {"ok": 1}}},
            'completed after 2 seconds: HTTP status 200; it answered `{"ok": 1}`',
        ),
        ("http", {"result": {"status": 204}}, "completed after 2 seconds: HTTP status 204"),
        (
            "http",
            {"outcome": Outcome.FAILED, "error": "the server answered 500", "result": REFUSED},
            "failed after 2 seconds: the server answered 500; it answered `no paper`",
        ),
        ("http", {"outcome": Outcome.DELIVERY_FAILED, "error": "no"}, "could not be delivered after 2 seconds: no"),
        (
            "command",
            {"outcome": Outcome.FAILED, "error": "exited with code 3", "result": {"exit_code": 3}},
            "failed after 2 seconds: exited with code 3",
        ),
        (
            "command",
            {
                "outcome": Outcome.FAILED,
                "error": "no\nexited with code 3",
                "result": {"exit_code": 3, "output": "a\nb\r\n\tc `d`\n\x1b[2Jno\u202e disk\n\n"},
            },
            r"failed after 2 seconds: exited with code 3; it wrote at last `b\n\tc `d`\n\x1b[2Jno\u202e disk`",
        ),
        ("command", {"result": {"exit_code": 0, "output": "done"}}, "completed after 2 seconds"),
        ("command", {"ended": None, "outcome": None, "result": {"output": "so far"}}, "is still running"),
    ],
)
def test_a_run_is_shown_with_its_end_and_what_was_said(kind, fields, told):
    assert run_facts(run(ONE, **fields), target_kind=kind)["told"] == f"{BEGAN} {told}"


def test_what_a_call_and_a_program_gave_is_among_the_facts():
    call = run_facts(run(ONE, result={"status": 200, "body": "x" * 9_999}), target_kind="http")
    assert (call["status"], call["answer"]) == (200, "x" * (MAX_ANSWER - 1) + "…")
    assert run_facts(run(ONE, result={"exit_code": 3}), target_kind="command")["exit_code"] == 3
    assert "answer" not in run_facts(run(ONE, result={"status": 200, "body": " "}), target_kind="http")


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("x" * 9_999, "…" + "x" * (MAX_ANSWER - 1)),
        ("\x1b" * 9_999, "…" + (r"\x1b" * MAX_ANSWER)[1 - MAX_ANSWER :]),
        (f"{'x' * 9_999}\nlast\n", f"…{'x' * (MAX_ANSWER - 7)}\\nlast"),
        ("x" * MAX_ANSWER, "x" * MAX_ANSWER),
        (" \n", None),
        ("no disk" + "\n" * 999, "no disk"),
        (7, None),
    ],
)
def test_of_a_long_output_the_end_is_reported(output, told):
    result = {"exit_code": 3, "output": output}
    facts = run_facts(run(ONE, outcome=Outcome.FAILED, result=result), target_kind="command")
    assert facts.get("last_output") == told
    assert ("wrote at last" in facts["told"]) is (told is not None)


def test_a_run_of_nobody_is_shown_without_a_node():
    nobody = evolve(run(ONE), node="")
    assert run_facts(nobody, target_kind="function")["told"].startswith("Attempt 1 began at")
