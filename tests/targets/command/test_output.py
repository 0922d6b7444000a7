"""The output of a running command is reported in part, not too often, and only when there is more."""

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.run import Outcome
from noonmark.targets.command import process
from noonmark.targets.command.output import MAX_LIVE_OUTPUT
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
    one = runner.start(command_assignment("sh", "-c", script, fields={"cwd": str(tmp_path)}))
    eventually(lambda: runner.told_of(one) == [{"output": "one\n"}])
    (tmp_path / "a").touch()
    both = [{"output": "one\n"}, {"output": "one\ntwo\n"}]
    eventually(lambda: runner.told_of(one) == both)
    (tmp_path / "b").touch()
    done = runner.end_of(one)
    assert (done.outcome, done.result) == (Outcome.FAILED, {"exit_code": 3, "output": "one\ntwo\n"})
    assert runner.told_of(one) == both
    assert {underway.started for assignment, underway, _ in runner.told if assignment is one} == {done.started}


def test_large_output_is_reported_in_part_and_rarely(runner, tmp_path, soon):
    one = runner.start(command_assignment("sh", "-c", FLOOD, fields={"cwd": str(tmp_path)}))
    eventually(lambda: len(runner.told_of(one)) >= 5)
    (tmp_path / "enough").touch()
    done = runner.end_of(one)
    told = runner.told_of(one)
    assert max(len(said["output"]) for said in told) <= MAX_LIVE_OUTPUT
    assert [said["output_dropped"] for said in told] == sorted(said["output_dropped"] for said in told)
    assert done.result["output_dropped"] > told[-1]["output_dropped"]
    # The number of reports is limited by the duration, however fast it writes.
    assert len(told) <= (done.ended - done.started) // (SECOND // 20)


def test_short_command_reports_only_its_end(runner):
    one = runner.start(command_assignment("echo", "hello"))
    assert runner.end_of(one).result["output"] == "hello\n"
    assert runner.told_of(one) == []
