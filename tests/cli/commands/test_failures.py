"""`noonmark failures`, `noonmark run redrive` and the last outcome in lists."""

import pytest

from tests.cli.runner import Cli


@pytest.fixture
def cli(tmp_path):
    return Cli("--store", f"sqlite:///{tmp_path / 'failures.db'}")


def test_failures_and_redrive(cli):
    schedule = cli.create("--cron", "0 0 1 1 *", "--label", "team=a")
    occurrence_id = cli.json("schedule", "run-now", schedule)["occurrence_id"]
    assert cli("failures", "--since=1d") == "0 occurrences\n"
    cli("run", "cancel", occurrence_id)
    listed = cli("failures", "--since=1d", "--phase", "cancelled", "--label", "team=a")
    assert occurrence_id in listed
    assert schedule in listed
    assert cli("failures", "--until=1d", "--phase", "cancelled") == "0 occurrences\n"
    assert "would run again" in cli("run", "redrive", occurrence_id, "--dry-run")
    again = cli.json("run", "redrive", occurrence_id)["occurrence_id"]
    assert (
        cli.json("call", "occurrence/get", "--arguments-json", f'{{"occurrence_id": "{again}"}}')["phase"] == "pending"
    )
    assert "1 occurrence to run again" in cli("run", "redrive", occurrence_id)
    cli("run", "cancel", again)
    for more in ((), ("--dry-run",)):
        shown = cli("run", "redrive", occurrence_id, *more)
        assert shown.splitlines()[0].startswith("0 occurrences")
        assert shown.splitlines()[1] == f"{occurrence_id} ran again already, as {again}: cancelled."
    assert cli.refused(2, "run", "redrive") == ["give the ids of occurrences, or a selection such as --since 1d"]
    assert cli.refused(2, "failures", "--since=yesterday")[0].startswith("--since: ")


def test_failures_name_the_schedule(cli):
    schedule = cli.create("--cron", "0 0 1 1 *", "--name", "nightly report")
    occurrence_id = cli.json("schedule", "run-now", schedule)["occurrence_id"]
    cli("run", "cancel", occurrence_id)
    listed = cli("failures", "--phase=cancelled")
    assert "nightly report" in listed
    assert schedule not in listed
    [found] = cli.json("failures", "--phase=cancelled")["occurrences"]
    assert (found["schedule_id"], found["schedule_name"]) == (schedule, "nightly report")
    assert "nightly report" in cli("run", "redrive", occurrence_id, "--dry-run")


def test_failures_of_schedules_with_one_name_have_their_ids(cli):
    for schedule_id in ("a", "b"):
        cli.create("--cron", "0 0 1 1 *", "--name", "nightly", "--id", schedule_id)
        cli("run", "cancel", cli.json("schedule", "run-now", schedule_id)["occurrence_id"])
    listed = cli("failures", "--phase=cancelled")
    assert "nightly (a)" in listed
    assert "nightly (b)" in listed


def test_a_list_shows_the_last_outcome(cli):
    schedule = cli.create("--cron", "0 0 1 1 *")
    cli("run", "cancel", cli.json("schedule", "run-now", schedule)["occurrence_id"])
    lines = cli("schedule", "list").splitlines()
    assert lines[0].rstrip().endswith("Last outcome")
    assert lines[1].rstrip().endswith("cancelled")
