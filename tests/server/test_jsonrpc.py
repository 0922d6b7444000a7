"""JSON-RPC 2.0 as specified: calls, notifications, batches, ids, params, and malformed input."""

import json
from dataclasses import replace

import pytest

from noonmark.operations.errors import STATUS
from noonmark.operations.serializers import MAX_BYTES
from noonmark.operations.table import OPERATIONS
from noonmark.server.jsonrpc import MAX_ANSWER, MAX_CALLS, answer
from noonmark.wiring import make_store
from tests.operations.harness import EVERY_MINUTE, FOREIGN, LOCAL, REPORT, Harness

CALLER = replace(LOCAL, source="jsonrpc", request_id="req-7")


class Line(Harness):
    """A service to which bodies are sent."""

    def send(self, body, caller=CALLER):
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = answer(self.service, caller, text)
        return None if given is None else json.loads(given)

    def rpc(self, method, params=None, caller=CALLER):
        call = {"jsonrpc": "2.0", "id": 1, "method": method}
        given = self.send(call if params is None else {**call, "params": params}, caller)
        assert (given["jsonrpc"], given["id"]) == ("2.0", 1)
        assert len(given) == 3
        return given

    def result(self, method, params=None):
        return self.rpc(method, params)["result"]

    def error(self, method, params=None, caller=CALLER):
        return self.rpc(method, params, caller)["error"]


@pytest.fixture
def line():
    return Line()


def failed(code, call_id=None):
    """What a failure looks like, but for its words."""
    return {"jsonrpc": "2.0", "code": code, "id": call_id}


def seen(response):
    """The same of a response; a result as it is."""
    if "error" not in response:
        return response
    assert response["error"]["data"]["request_id"] == "req-7"
    assert response["error"]["data"]["detail"]
    return {"jsonrpc": response["jsonrpc"], "code": response["error"]["code"], "id": response["id"]}


COUNT = {"jsonrpc": "2.0", "method": "schedule/count"}
NONE = {"jsonrpc": "2.0", "result": {"count": 0}}


class TestSingleCalls:
    @pytest.mark.parametrize("call_id", ["a", "", 0, 1, -7, 1.5, 2**63, None])
    def test_the_id_comes_back_as_it_was(self, line, call_id):
        given = line.send({**COUNT, "id": call_id})
        assert given == {**NONE, "id": call_id}
        assert type(given["id"]) is type(call_id)

    def test_params_may_be_left_out_empty_named_or_in_order(self, line):
        made = line.result("schedule/create", ["by place", EVERY_MINUTE, REPORT])
        schedule_id = made["schedule_id"]
        assert (made["name"], made["trigger"]["every_seconds"], made["target"]["function"]) == (
            "by place",
            60,
            "report",
        )
        assert line.result("schedule/get", [schedule_id]) == line.result("schedule/get", {"schedule_id": schedule_id})
        assert [line.result("schedule/count", none) for none in (None, {}, [])] == [{"count": 1}] * 3
        assert line.result("schedule/pause", [schedule_id, "a holiday"])["phase"] == "paused"

    def test_too_many_params_in_order_are_refused(self, line):
        error = line.error("occurrence/get", ["a", "b"])
        assert (error["code"], error["data"]["code"], error["data"]["field"]) == (-32602, "invalid_request", "params")

    @pytest.mark.parametrize("params", [{"schedule_id": "x", "sudo": True}, {"schedule_id": 1}, {}, []])
    def test_unknown_wrong_and_missing_arguments_are_invalid_params(self, line, params):
        assert line.error("schedule/get", params)["code"] == -32602

    @pytest.mark.parametrize("params", [{}, [], [1, 2, 3], None])
    def test_an_unknown_method_is_not_found(self, line, params):
        error = line.error("schedule/explode", params)
        assert (error["code"], error["message"]) == (-32601, "Method not found")
        assert error["data"]["code"] == "method_not_found"

    def test_a_long_method_name_is_not_quoted(self, line):
        assert len(json.dumps(line.error("x" * 100_000))) < 500

    def test_every_operation_is_a_method(self, line):
        answered = {name: line.rpc(name, {"no such argument": 1}) for name in OPERATIONS}
        assert {name: one["error"]["code"] for name, one in answered.items()} == dict.fromkeys(OPERATIONS, -32602)


class TestErrors:
    def test_each_kind_has_its_code(self, line):
        made = line.create(schedule_id="here")
        line.service = replace(line.service, worker=None)
        told = {
            "not_found": line.error("schedule/get", ["nowhere"]),
            "invalid_trigger": line.error(
                "schedule/create", {"trigger": {"type": "cron", "expression": "x"}, "target": REPORT}
            ),
            "trigger_never_fires": line.error(
                "schedule/create", {"trigger": {"type": "cron", "expression": "0 0 30 2 *"}, "target": REPORT}
            ),
            "invalid_request": line.error("schedule/list", {"cursor": "!"}),
            "revision_conflict": line.error(
                "schedule/update", {"schedule_id": "here", "expected_revision": 9, "name": "x"}
            ),
            "conflict": line.error("worker/start"),
        }
        assert {code: error["data"]["code"] for code, error in told.items()} == {code: code for code in told}
        assert {code: error["code"] for code, error in told.items()} == {code: STATUS[code].jsonrpc for code in told}
        assert {code: told[code]["code"] for code in ("not_found", "invalid_trigger", "conflict")} == {
            "not_found": -32023,
            "invalid_trigger": -32602,
            "conflict": -32009,
        }
        assert line.result("schedule/get", ["here"])["revision"] == made["revision"]

    def test_a_store_that_does_not_answer_is_unavailable(self, line):
        line.service = replace(line.service, store=make_store("postgresql://127.0.0.1:1/nobody", line.clock))
        error = line.error("schedule/count")
        assert (error["code"], error["data"]["code"]) == (-32020, "store_unavailable")

    def test_every_problem_is_reported_at_once(self, line):
        error = line.error("schedule/create", {"name": "", "trigger": {"type": "once"}, "target": {}, "max_runs": 0})
        assert error["code"] == -32602
        assert {one["field"] for one in error["data"]["problems"]} >= {"name", "max_runs"}
        assert error["data"]["field"] in error["message"]

    def test_what_belongs_to_others_is_not_found(self, line):
        line.create(schedule_id="mine")
        assert line.error("schedule/get", ["mine"], FOREIGN)["code"] == -32023

    def test_an_unexpected_error_is_an_internal_error_without_details(self, line, caplog):
        def broken():
            raise OSError("the password is swordfish")

        line.service = replace(line.service, fresh_id=broken)
        error = line.error("schedule/create", {"trigger": EVERY_MINUTE, "target": REPORT})
        assert (error["code"], error["message"], error["data"]["code"]) == (-32603, "Internal error", "error")
        assert error["data"]["request_id"] == "req-7"
        assert "swordfish" not in json.dumps(error)
        [record] = caplog.records
        assert record.name == "noonmark.server"
        assert "req-7" in record.getMessage()
        assert "swordfish" in str(record.exc_info[1])


class TestNotifications:
    def test_a_notification_is_carried_out_without_an_answer(self, line):
        call = {
            "jsonrpc": "2.0",
            "method": "schedule/create",
            "params": {"schedule_id": "n", "trigger": EVERY_MINUTE, "target": REPORT},
        }
        assert line.send(call) is None
        assert line.result("schedule/get", ["n"])["schedule_id"] == "n"

    def test_a_failed_notification_has_no_answer(self, line):
        assert line.send({"jsonrpc": "2.0", "method": "schedule/explode"}) is None
        assert line.send({"jsonrpc": "2.0", "method": "schedule/get", "params": ["nowhere"]}) is None
        assert line.send([{"jsonrpc": "2.0", "method": "schedule/get", "params": ["nowhere"]}]) is None

    def test_an_id_of_null_is_a_call(self, line):
        assert line.send({**COUNT, "id": None}) == {**NONE, "id": None}


INVALID = [
    (1, None),
    ("schedule/list", None),
    (None, None),
    ({}, None),
    ({"jsonrpc": "2.0", "method": 1, "params": "bar"}, None),
    ({"jsonrpc": "2.0", "id": 7}, 7),
    ({"method": "schedule/count", "id": 7}, 7),
    ({"jsonrpc": "1.0", "method": "schedule/count", "id": 7}, 7),
    ({"jsonrpc": 2.0, "method": "schedule/count", "id": 7}, 7),
    ({**COUNT, "id": "x", "params": "bar"}, "x"),
    ({**COUNT, "id": "x", "params": 1}, "x"),
    ({**COUNT, "id": "x", "params": None}, "x"),
    ({**COUNT, "id": True}, None),
    ({**COUNT, "id": [1]}, None),
    ({**COUNT, "id": {}}, None),
    ({**COUNT, "id": 1, "extra": 1}, 1),
]


class TestInvalidRequests:
    @pytest.mark.parametrize(("body", "call_id"), INVALID, ids=repr)
    def test_it_is_refused_under_the_id_it_has(self, line, body, call_id):
        given = line.send(body)
        assert seen(given) == failed(-32600, call_id)
        assert given["error"]["message"] == "Invalid Request"
        assert line.send([body]) == [given]

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b'{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]',
            b'[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},{"jsonrpc": "2.0", "method"]',
            b'{"jsonrpc": "2.0", "method": "schedule/count", "id": 1, "id": 2}',
            b'{"jsonrpc": "2.0", "method": "schedule/count", "id": NaN}',
            b'{"jsonrpc": "2.0", "method": "schedule/count", "id": 1e400}',
            b'{"jsonrpc": "2.0", "method": "schedule/count", "id": "\\u0000"}',
            b'{"jsonrpc": "2.0", "method": "schedule/count", "id": "\xff"}',
            b"[" * 100_000,
        ],
        ids=lambda body: repr(body[:60]),
    )
    def test_a_body_that_is_not_strict_json_is_a_parse_error(self, line, body):
        given = line.send(body)
        assert seen(given) == failed(-32700)
        assert given["error"]["message"] == "Parse error"
        assert given["error"]["data"]["code"] == "invalid_request"


class TestBatches:
    def test_each_call_is_answered_in_order_and_by_itself(self, line):
        given = line.send(
            [
                {**COUNT, "id": "1"},
                COUNT,
                {"foo": "boo"},
                {"jsonrpc": "2.0", "method": "foo/get", "params": {"name": "myself"}, "id": "5"},
                {"jsonrpc": "2.0", "method": "schedule/get", "params": ["nowhere"], "id": None},
                {**COUNT, "id": 9},
            ]
        )
        assert [seen(one) for one in given] == [
            {**NONE, "id": "1"},
            failed(-32600),
            failed(-32601, "5"),
            failed(-32023),
            {**NONE, "id": 9},
        ]

    def test_a_later_call_sees_what_an_earlier_one_did(self, line):
        create = {"schedule_id": "b", "trigger": EVERY_MINUTE, "target": REPORT}
        given = line.send(
            [
                {"jsonrpc": "2.0", "method": "schedule/create", "params": create, "id": 1},
                {"jsonrpc": "2.0", "method": "schedule/pause", "params": ["b"]},
                {"jsonrpc": "2.0", "method": "schedule/get", "params": ["b"], "id": 2},
            ]
        )
        assert [one["result"]["phase"] for one in given] == ["active", "paused"]

    def test_large_answers_stop_the_batch(self, line):
        for number in range(17):
            line.clock.advance(1)
            line("event/emit", event_type="large", event_id=f"e{number}", payload={"text": "x" * 250_000})
        events = {"jsonrpc": "2.0", "method": "event/list", "params": {"limit": 1_000}}
        create = {"jsonrpc": "2.0", "method": "schedule/create"}
        batch = [
            {**create, "params": {"schedule_id": "first", "trigger": EVERY_MINUTE, "target": REPORT}},
            *({**events, "id": number} for number in range(60)),
            {**create, "params": {"schedule_id": "answered", "trigger": EVERY_MINUTE, "target": REPORT}, "id": "a"},
            {**create, "params": {"schedule_id": "notified", "trigger": EVERY_MINUTE, "target": REPORT}},
            {"foo": "boo"},
        ]
        given = answer(line.service, CALLER, json.dumps(batch).encode())
        assert len(given) < MAX_ANSWER + MAX_BYTES + 100_000
        document = json.loads(given)
        is_given = ["result" in one for one in document]
        assert is_given == [True] * 5 + [False] * 58
        refused = [one for one in document[5:] if one["error"]["code"] == -32003]
        assert [one["id"] for one in refused] == [*range(5, 60), "a", None]
        assert {one["error"]["data"]["code"] for one in refused} == {"answer_too_large"}
        assert "1 notifications of this batch were not executed" in refused[-1]["error"]["message"]
        assert seen(document[-2]) == failed(-32600)
        assert [one["schedule_id"] for one in line.result("schedule/list")["schedules"]] == ["first"]

    def test_only_notifications_are_answered_with_nothing(self, line):
        assert line.send([COUNT, COUNT]) is None

    def test_an_empty_one_is_one_invalid_request(self, line):
        assert seen(line.send([])) == failed(-32600)

    def test_one_of_a_hundred_is_served_and_a_longer_one_refused_whole(self, line):
        assert line.send([{**COUNT, "id": number} for number in range(MAX_CALLS)]) == [
            {**NONE, "id": number} for number in range(MAX_CALLS)
        ]
        create = {"jsonrpc": "2.0", "method": "schedule/create", "params": {"trigger": EVERY_MINUTE, "target": REPORT}}
        assert seen(line.send([create] * (MAX_CALLS + 1))) == failed(-32600)
        assert line.result("schedule/count") == {"count": 0}
