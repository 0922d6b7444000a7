"""What a command writes is told of while it runs: not all of it, not too often, and only when there is more."""

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.run import Outcome
from noonmark.targets.command import process
from noonmark.targets.command.output import MAX_LIVE_OUTPUT
from tests.embedded.waiting import eventually
from tests.targets.command.harness import ordered, running

STEP = 'step() { while ! test -e "$1"; do sleep 0.01; done; }; '
FLOOD = "yes 0123456789 & while ! test -e enough; do sleep 0.02; done; kill $!"


@pytest.fixture(scope="module")
def runner():
    with running() as made:
        yield made


@pytest.fixture
def soon(monkeypatch):
    """Twenty times as often as usual."""
    monkeypatch.setattr(process, "OUTPUT_INTERVAL", SECOND // 20)


def test_it_is_told_of_when_there_is_more_and_only_then(runner, tmp_path, soon):
    script = STEP + "echo one; step a; echo two >&2; step b; exit 3"
    one = runner.start(ordered("sh", "-c", script, fields={"cwd": str(tmp_path)}))
    eventually(lambda: runner.told_of(one) == [{"output": "one\n"}])
    (tmp_path / "a").touch()
    both = [{"output": "one\n"}, {"output": "one\ntwo\n"}]
    eventually(lambda: runner.told_of(one) == both)
    (tmp_path / "b").touch()
    done = runner.end_of(one)
    assert (done.outcome, done.result) == (Outcome.FAILED, {"exit_code": 3, "output": "one\ntwo\n"})
    assert runner.told_of(one) == both
    assert {underway.started for assignment, underway, _ in runner.told if assignment is one} == {done.started}


def test_of_a_flood_little_is_told_and_seldom(runner, tmp_path, soon):
    one = runner.start(ordered("sh", "-c", FLOOD, fields={"cwd": str(tmp_path)}))
    eventually(lambda: len(runner.told_of(one)) >= 5)
    (tmp_path / "enough").touch()
    done = runner.end_of(one)
    told = runner.told_of(one)
    assert max(len(said["output"]) for said in told) <= MAX_LIVE_OUTPUT
    assert [said["output_dropped"] for said in told] == sorted(said["output_dropped"] for said in told)
    assert done.result["output_dropped"] > told[-1]["output_dropped"]
    # However fast it writes: so many times fit between its start and its end.
    assert len(told) <= (done.ended - done.started) // (SECOND // 20)


def test_what_is_over_in_no_time_has_its_end_for_that(runner):
    one = runner.start(ordered("echo", "hello"))
    assert runner.end_of(one).result["output"] == "hello\n"
    assert runner.told_of(one) == []
