"""Each call that is documented for schedules of sessions and mobs is made, and answered as the document says."""

import json
from pathlib import Path

import pytest

from tests.surfaces.test_jsonrpc import Line

TABLE = json.loads((Path(__file__).parent / "documented" / "sessions.json").read_text("utf-8"))
CALLS = TABLE["calls"]


def put(document, schedule_id):
    """The document with the id of the first schedule where it belongs."""
    return json.loads(json.dumps(document).replace("{schedule_id}", schedule_id))


def has(answer, wanted):
    """Whether an answer says all that is wanted; it may say more, and a list may go on."""
    if isinstance(wanted, dict):
        return isinstance(answer, dict) and all(key in answer and has(answer[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(answer, list) and len(answer) >= len(wanted) and all(map(has, answer, wanted))
    return answer == wanted


def test_a_document_is_compared_in_part():
    assert has({"a": [{"b": 1, "c": 2}, 3]}, {"a": [{"b": 1}]})
    assert not has({"a": []}, {"a": [1]})
    assert not has({}, {"a": None})


def test_every_documented_call_is_answered_as_it_says():
    line, schedule_id = Line(), ""
    for row in CALLS:
        given = line.rpc(row["method"], put(row["params"], schedule_id))
        if "error" in row:
            expected = {"code": row["error"]["rpc"], "data": {"code": row["error"]["code"]}}
            assert has(given.get("error"), expected), (row["title"], given)
        else:
            assert has(given.get("result"), put(row["answer"], schedule_id)), (row["title"], given)
        schedule_id = schedule_id or given["result"]["schedule_id"]


@pytest.mark.parametrize("method", ["create", "list", "get", "update", "pause", "resume", "delete", "occurrences"])
def test_every_documented_method_has_its_row(method):
    assert f"schedule/{method}" in {row["method"] for row in CALLS}
