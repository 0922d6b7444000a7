"""`noonmark call`."""

import json

import pytest

from tests.cli.runner import Cli, call


@pytest.fixture
def cli(tmp_path):
    return Cli("--store", f"sqlite:///{tmp_path / 'call.db'}")


def test_call(cli):
    schedule = cli.create("--cron", "0 0 1 1 *")
    occurrence_id = cli.json("schedule", "run-now", schedule)["occurrence_id"]
    asked = ("--arguments-json", json.dumps({"occurrence_id": occurrence_id, "reason": "never mind"}))
    assert cli.json("call", "occurrence/cancel", *asked)["phase"] == "cancelled"
    assert json.loads(cli("call", "schedule/count")) == {"count": 1}


def test_call_prints_indented_json(cli):
    cli.create("--cron", "0 0 1 1 *")
    assert cli("call", "schedule/count") == '{\n  "count": 1\n}\n'


def test_call_refuses(cli):
    cli.create("--cron", "0 0 1 1 *")
    assert cli.refused(3, "call", "schedule/dance") == ['method: there is no operation "schedule/dance"']
    assert cli.refused(2, "call", "schedule/count", "--arguments-json", "[]") == [
        "--arguments-json: must be an object, not a list"
    ]
    assert cli.problem(2, "call", "schedule/count", "--arguments-json", '{"surprise": 1}')["field"] == "surprise"
    assert call("call").code == 2
