"""The output of a running command is reported in part, not too often, and only when there is more."""

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.targets.command import process
from noonmark.targets.command.output import MAX_LIVE_OUTPUT, ProgressLines
from tests.embedded.waiting import eventually
from tests.targets.command.harness import command_assignment, command_runner

STEP = 'step() { while ! test -e "$1"; do sleep 0.01; done; }; '
FLOOD = "yes 0123456789 & while ! test -e enough; do sleep 0.02; done; kill $!"


@pytest.fixture(scope="module")
def runner():
    with command_runner() as made:
        yield made


@pytest.fixture
def soon(monkeypatch):
    """Report output twenty times as often as usual."""
    monkeypatch.setattr(process, "OUTPUT_INTERVAL", SECOND // 20)


def test_output_is_reported_only_when_there_is_more(runner, tmp_path, soon):
    script = STEP + "echo one; step a; echo two >&2; step b; exit 3"
    delivery = runner.start(command_assignment("sh", "-c", script, fields={"cwd": str(tmp_path)}))
    eventually(lambda: runner.told_of(delivery) == [{"output": "one\n"}])
    (tmp_path / "a").touch()
    both = [{"output": "one\n"}, {"output": "one\ntwo\n"}]
    eventually(lambda: runner.told_of(delivery) == both)
    (tmp_path / "b").touch()
    done = runner.end_of(delivery)
    assert (done.outcome, done.result) == (Outcome.FAILED, {"exit_code": 3, "output": "one\ntwo\n"})
    assert runner.told_of(delivery) == both
    assert {underway.started for assignment, underway, _ in runner.told if assignment is delivery} == {done.started}


def test_large_output_is_reported_in_part_and_rarely(runner, tmp_path, soon):
    delivery = runner.start(command_assignment("sh", "-c", FLOOD, fields={"cwd": str(tmp_path)}))
    eventually(lambda: len(runner.told_of(delivery)) >= 5)
    (tmp_path / "enough").touch()
    done = runner.end_of(delivery)
    told = runner.told_of(delivery)
    assert max(len(said["output"]) for said in told) <= MAX_LIVE_OUTPUT
    assert [said["output_dropped"] for said in told] == sorted(said["output_dropped"] for said in told)
    assert done.result["output_dropped"] > told[-1]["output_dropped"]
    # The number of reports is limited by the duration, however fast it writes.
    assert len(told) <= (done.ended - done.started) // (SECOND // 20)


def test_short_command_reports_only_its_end(runner):
    delivery = runner.start(command_assignment("echo", "hello"))
    assert runner.end_of(delivery).result["output"] == "hello\n"
    assert runner.told_of(delivery) == []


def test_progress_is_reported_with_the_output(runner, tmp_path, soon):
    script = STEP + 'echo 0.25 >&$NOONMARK_PROGRESS_FD; echo out; step go; echo "0.5 half the rows" >&3; step end'
    delivery = runner.start(command_assignment("sh", "-c", script, fields={"cwd": str(tmp_path)}))
    said = [{"fraction": 0.25, "message": ""}, {"fraction": 0.5, "message": "half the rows"}]
    eventually(lambda: {"output": "out\n", "progress": said[0]} in runner.told_of(delivery))
    (tmp_path / "go").touch()
    eventually(lambda: {"output": "out\n", "progress": said[1]} in runner.told_of(delivery))
    (tmp_path / "end").touch()
    assert runner.end_of(delivery).result == {"exit_code": 0, "output": "out\n"}


def test_a_command_that_was_cut_off_keeps_its_progress(runner, soon):
    script = "echo 0.75 rows >&3; sleep 600"
    delivery = runner.start(command_assignment("sh", "-c", script))
    eventually(lambda: runner.told_of(delivery))
    delivery.stop(Reason.CANCELLED)
    done = runner.end_of(delivery)
    assert (done.outcome, done.result["progress"]) == (Outcome.CANCELLED, {"fraction": 0.75, "message": "rows"})


def test_a_line_that_says_no_progress_is_ignored_with_a_warning(runner, caplog):
    assert runner.run("sh", "-c", "echo half >&3").outcome is Outcome.COMPLETED
    assert "lines about progress were ignored (1)" in caplog.text


@pytest.mark.parametrize(
    ("chunks", "latest", "rejected"),
    [
        ([b"0.1 a\n0.2", b"5 b c \n0.9"], {"fraction": 0.25, "message": "b c"}, 0),
        ([b"1\n2\nnan x\n"], {"fraction": 1.0, "message": ""}, 2),
        ([b"\n"], None, 0),
        ([b"0.5 " + b"x" * 5_000, b"\n"], {"fraction": 0.5, "message": "x" * 200}, 0),
        ([b"0.5 \xff\0\n"], {"fraction": 0.5, "message": "\ufffd\\0"}, 0),
    ],
)
def test_the_newest_line_counts(chunks, latest, rejected):
    lines = ProgressLines()
    for chunk in chunks:
        lines.add(chunk)
    assert (lines.latest, lines.rejected) == (latest, rejected)
