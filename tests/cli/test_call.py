"""`noonmark call`: any operation by its name."""

import json

import pytest

from tests.cli.calling import Desk, call


@pytest.fixture
def desk(tmp_path):
    return Desk("--store", f"sqlite:///{tmp_path / 'call.db'}")


def test_what_no_other_command_does(desk):
    made = desk.create("--cron", "0 0 1 1 *")
    one = desk.json("schedule", "run-now", made)["occurrence_id"]
    asked = ("--arguments-json", json.dumps({"occurrence_id": one, "reason": "never mind"}))
    assert desk.json("call", "occurrence/cancel", *asked)["phase"] == "cancelled"
    assert json.loads(desk("call", "schedule/count")) == {"count": 1}


def test_for_people_it_has_lines(desk):
    desk.create("--cron", "0 0 1 1 *")
    assert desk("call", "schedule/count") == '{\n  "count": 1\n}\n'


def test_what_it_refuses(desk):
    desk.create("--cron", "0 0 1 1 *")
    assert desk.refused(3, "call", "schedule/dance") == ['method: there is no operation "schedule/dance"']
    assert desk.refused(2, "call", "schedule/count", "--arguments-json", "[]") == [
        "--arguments-json: must be an object, not a list"
    ]
    assert desk.problem(2, "call", "schedule/count", "--arguments-json", '{"surprise": 1}')["field"] == "surprise"
    assert call("call").code == 2
