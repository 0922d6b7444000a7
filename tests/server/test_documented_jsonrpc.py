"""Every documented call for sessions and mobs is answered as documented."""

import json
from pathlib import Path

import pytest

from tests.server.live_server import serving

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


@pytest.fixture
def served():
    with serving() as served:
        yield served


def over_rpc(client, row, schedule_id):
    call = {"jsonrpc": "2.0", "id": 1, "method": row["method"], "params": put(row["params"], schedule_id)}
    answer = client.post("/rpc", json=call)
    assert answer.status_code == 200
    return answer.json()


def over_rest(client, row, schedule_id):
    """An answer of REST as if JSON-RPC had given it: both are compared with the same row."""
    asked = put(row["rest"], schedule_id)
    answer = client.request(asked["verb"], asked["path"], json=asked["body"])
    if answer.is_success:
        assert answer.status_code == asked["status"]
        return {"result": answer.json()}
    assert answer.headers["content-type"] == "application/problem+json"
    return {"error": {"code": answer.status_code, "data": answer.json()}}


WAYS = {"rpc": over_rpc, "rest": over_rest}


@pytest.mark.parametrize("way", WAYS)
def test_every_documented_call_is_answered_as_it_says(served, way):
    schedule_id = ""
    for row in CALLS:
        given = WAYS[way](served.client, row, schedule_id)
        if "error" in row:
            expected = {"code": row["error"][way], "data": {"code": row["error"]["code"]}}
            assert has(given.get("error"), expected), (row["title"], given)
        else:
            assert has(given.get("result"), put(row["answer"], schedule_id)), (row["title"], given)
        schedule_id = schedule_id or given["result"]["schedule_id"]


@pytest.mark.parametrize("method", ["create", "list", "get", "update", "pause", "resume", "delete", "occurrences"])
def test_every_documented_method_has_its_row(method):
    assert f"schedule/{method}" in {row["method"] for row in CALLS}
