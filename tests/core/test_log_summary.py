"""What a log says of a failed run, and what it does not say."""

from dataclasses import replace

import pytest

from noonmark.core.frozen import evolve
from noonmark.core.ids import manual
from noonmark.core.instants import SECOND
from noonmark.core.interruption import failure_line, log_name, log_summary, more_about, pause_line
from noonmark.core.lifecycle import SchedulePhase
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome, Run
from noonmark.core.schedule import BY_ITSELF, Pause
from noonmark.core.targets.command import end_of_program
from noonmark.testing import factories
from noonmark.testing.factories import NOW


def ended(kind, outcome=Outcome.FAILED, reason=Reason.FAILED, own_words=None, **said):
    run = Run(id="o-1", occurrence_id="o", attempt=1, node="n", started=1, ended=2, outcome=outcome, **said)
    return log_summary(kind, run, reason, own_words)


OUTPUT = {"output": "MARK", "error": "MARK"}


@pytest.mark.parametrize(
    ("kind", "result", "expected"),
    [
        ("command", {"exit_code": 3, **OUTPUT}, ": it exited with code 3 (failed)"),
        ("command", {"exit_code": -9, **OUTPUT}, ": it was killed by SIGKILL (failed)"),
        ("command", {"exit_code": "MARK"}, " (failed)"),
        ("command", None, " (failed)"),
        ("http", {"status": 503, "body": "MARK", "headers": {"location": "MARK"}}, ": it was answered with status 503"),
        ("http", {"status": "MARK"}, ": there was no answer (failed)"),
        ("http", None, ": there was no answer (failed)"),
        ("event", "MARK", " (failed)"),
    ],
)
def test_what_passed_through_a_run_is_not_said(kind, result, expected):
    occurrence = ended(kind, result=result, error="MARK\nMARK")
    assert occurrence.startswith(expected)
    assert "MARK" not in occurrence


def test_what_was_not_sent_had_no_answer_to_wait_for():
    assert ended("http", Outcome.DELIVERY_FAILED, Reason.UNDELIVERABLE, error="MARK") == " (undeliverable)"
    assert ended("http", Outcome.TIMED_OUT, Reason.TIMED_OUT, error="MARK") == " (timed_out)"


@pytest.mark.parametrize("kind", ["http", "command", "event"])
def test_what_noonmark_decided_itself_is_said_in_its_own_words_on_one_line(kind):
    occurrence = ended(
        kind, Outcome.DELIVERY_FAILED, Reason.UNDELIVERABLE, "10.0.0.1 is\na private address", error="MARK"
    )
    assert occurrence == ": 10.0.0.1 is\\u000aa private address (undeliverable)"


def test_a_function_is_the_nodes_own_and_what_it_raised_is_said():
    assert ended("function", error="Traceback ..\nValueError: no toast\n") == "\nTraceback ..\nValueError: no toast"
    assert ended("function", result={"exit_code": 1}) == ""


@pytest.mark.parametrize(
    ("retry_at", "error", "expected"),
    [
        (None, None, "failed, attempt 1 of 1; `noonmark schedule explain OCCURRENCE` says more"),
        (
            None,
            "Traceback ..",
            "failed, attempt 1 of 1; `noonmark schedule explain OCCURRENCE` says more\nTraceback ..",
        ),
        (NOW + SECOND, None, "failed, attempt 1 of 1, retry at 2030-03-17T17:47:01Z"),
    ],
)
def test_a_failure_says_what_follows_or_where_to_read_more(retry_at, error, expected):
    schedule = factories.schedule(name="tick")
    occurrence = factories.occurrence(schedule, manual("key"), nominal=NOW)
    run = Run(id="o-1", occurrence_id="o", attempt=1, node="n", started=1, outcome=Outcome.FAILED, error=error)
    line = failure_line(schedule, occurrence, run, Reason.FAILED, retry_at=retry_at)
    assert line == f"tick: the run of 2030-03-17T17:47:00Z {expected.replace('OCCURRENCE', occurrence.id)}"


PAUSE = Pause(at=NOW, by=BY_ITSELF, reason="too many failures")


@pytest.mark.parametrize(
    ("pause", "ended", "is_told"),
    [
        (PAUSE, NOW, True),
        (PAUSE, NOW + 1, False),  # it was paused before
        (PAUSE, None, False),
        (replace(PAUSE, by="ada"), NOW, False),
        (None, NOW, False),
    ],
)
def test_a_pause_because_of_a_failure_is_told_once(pause, ended, is_told):
    schedule = evolve(factories.schedule(schedule_id="s-1", name="tick"), phase=SchedulePhase.PAUSED, pause=pause)
    run = Run(id="o-1", occurrence_id="o", attempt=1, node="n", started=1, ended=ended, outcome=Outcome.FAILED)
    line = "tick is paused: too many failures; `noonmark schedule resume s-1` resumes it"
    assert pause_line(schedule, run) == (line if is_told else None)


def test_a_ping_that_did_not_come_is_said_so():
    occurrence = ended("ping", Outcome.TIMED_OUT, Reason.COMPLETION_TIMED_OUT)
    assert occurrence == ": no ping came in time (completion_timed_out)"


def test_a_schedule_without_a_name_is_called_by_its_id_and_route():
    assert log_name(factories.schedule(schedule_id="s-1", name=None)) == "s-1 (function:work)"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exited with code 0"),
        (255, "exited with code 255"),
        (-15, "was killed by SIGTERM"),
        (-40, "was killed by signal 40"),
    ],
)
def test_the_end_of_a_program_in_words(code, words):
    assert end_of_program(code) == words


@pytest.mark.parametrize(
    ("reach", "words"),
    [
        ("", "`noonmark schedule explain occ_1` says more"),
        ("--store sqlite:///jobs.db", "`noonmark schedule explain occ_1 --store sqlite:///jobs.db` says more"),
        (None, '`scheduler.explain("occ_1")` says more'),
    ],
)
def test_a_line_says_how_to_read_more_where_it_is_stored(reach, words):
    assert more_about("occ_1", reach) == words
