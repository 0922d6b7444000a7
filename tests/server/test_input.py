"""Invalid input is rejected early, and valid input comes back unchanged."""

import gzip
import json
import zlib

import pytest

from tests.embedded.waiting import SOON
from tests.server.live_server import GREET, NOON, read_answer, serving
from tests.server.test_routes import problem

JSON = {"Content-Type": "application/json"}
SOUND = {"trigger": NOON, "target": GREET}


@pytest.fixture(scope="module")
def served():
    # Long enough for the busiest machine: no test relies on this timeout.
    with serving(body_seconds=600) as server:
        yield server


def posted(served, body, path="/schedules", **headers):
    return served.client.post(path, content=body, headers={**JSON, **headers})


DEEP = 100_000
NO_JSON = {
    "nothing": b"",
    "half": b'{"name": ',
    "an array": b"[]",
    "null": b"null",
    "text": b'"a"',
    "one key twice": b'{"name": "a", "name": "b"}',
    "latin 1": b'{"name": "\xe9"}',
    "utf 16": json.dumps(SOUND).encode("utf-16"),
    "NUL": b'{"name": "a\\u0000b"}',
    "a lone surrogate": b'{"name": "\\ud800"}',
    "NaN": b'{"timeout_seconds": NaN}',
    "infinity": b'{"timeout_seconds": -Infinity}',
    "more than a double": b'{"timeout_seconds": 1e400}',
    "5,000 digits": b'{"max_runs": ' + b"9" * 5_000 + b"}",
    "2^64": b'{"max_runs": 18446744073709551616}',
    "arrays all the way down": b"[" * DEEP + b"]" * DEEP,
    "objects all the way down": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "a deep label": b'{"labels": ' + b"[" * DEEP + b"]" * DEEP + b"}",
}


@pytest.mark.parametrize("what", NO_JSON)
@pytest.mark.parametrize("path", ["/schedules", "/events", "/schedules/preview", "/api/v1/schedules"])
def test_a_body_that_is_not_strict_json_is_refused(served, path, what):
    error = problem(posted(served, NO_JSON[what], path), 400, "invalid_request", field=posted_field(what))
    assert ("error" in error) == path.startswith("/api")
    assert len(json.dumps(error)) < 1_000


def posted_field(what):
    """The field that the error names."""
    inside = {"one key twice": "name", "NUL": "name", "a lone surrogate": "name"}
    inside |= dict.fromkeys(("NaN", "infinity", "more than a double"), "timeout_seconds")
    return (inside | dict.fromkeys(("5,000 digits", "2^64"), "max_runs")).get(what)


WRONG_FIELDS = [
    ({}, "trigger"),
    ({**SOUND, "surprise": 1}, "surprise"),
    ({**SOUND, "name": ""}, "name"),
    ({**SOUND, "name": "n" * 201}, "name"),
    ({**SOUND, "name": "a\nb"}, "name"),
    ({**SOUND, "name": "a\x1b[2J"}, "name"),
    ({**SOUND, "name": 7}, "name"),
    ({**SOUND, "description": "d" * 10_001}, "description"),
    ({**SOUND, "labels": {"k" * 64: "v"}}, f"labels.{'k' * 60}"),
    ({**SOUND, "labels": {"k": "v" * 257}}, "labels.k"),
    ({**SOUND, "labels": {"k\r": "v"}}, 'labels."k\\r"'),
    ({**SOUND, "labels": {f"k{number}": "v" for number in range(65)}}, "labels"),
    ({**SOUND, "labels": ["a"]}, "labels"),
    ({**SOUND, "schedule_id": "../../etc/passwd"}, "schedule_id"),
    ({**SOUND, "schedule_id": "a b"}, "schedule_id"),
    ({**SOUND, "user_id": ""}, "user_id"),
    ({**SOUND, "target": {**GREET, "args": ["x" * 262_144]}}, "target.args"),
    ({**SOUND, "target": {"target_kind": "function", "function": "os:system"}}, "target.function"),
    ({**SOUND, "target": {"target_kind": "pickle", "data": "gASVAAAA"}}, "target.target_kind"),
    ({**SOUND, "trigger": {"type": "cron", "expression": "0 0 30 2 *"}}, "trigger.expression"),
    ({**SOUND, "trigger": {"type": "cron", "expression": "* " * 50_000}}, "trigger.expression"),
    ({**SOUND, "trigger": {"type": "once", "due_at_utc": "2020-01-01T00:00:00Z"}}, "trigger.due_at_utc"),
    ({**SOUND, "trigger": {"type": "once", "due_at_utc": "2030-01-01T00:00:00"}}, "trigger.due_at_utc"),
]


@pytest.mark.parametrize(("body", "field"), WRONG_FIELDS, ids=range(len(WRONG_FIELDS)))
def test_a_wrong_field_is_named(served, body, field):
    answer = served.client.post("/schedules", json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["field"] == field
    assert answer.headers["content-type"] == "application/problem+json"


def test_every_problem_is_reported_at_once(served):
    answer = served.client.post("/schedules", json={**SOUND, "name": "", "max_runs": 0, "surprise": 1}).json()
    assert {one["field"] for one in answer["problems"]} == {"name", "max_runs", "surprise"}


ZONES = [
    "../../etc/passwd",
    "/etc/localtime",
    "Europe/../UTC",
    "UTC\x00",
    "posix/../../x",
    "..",
    "",
    "europe",
    "C:\\UTC",
]


@pytest.mark.parametrize("zone", ZONES)
def test_an_unknown_time_zone_is_rejected(served, zone):
    answer = served.client.post("/schedules/preview", json={"trigger": {**NOON, "timezone": zone}})
    assert answer.status_code == 400
    assert "passwd" not in answer.json().get("field", "")


READ_ONLY = {
    "phase": "completed",
    "revision": 99,
    "owner": {"tenant": "other", "user": "root"},
    "source": "embedded",
    "next_run_at": "2030-01-01T00:00:00Z",
    "next_fire_times": [],
    "last_run_at": None,
    "last_phase": "completed",
    "counters": {"total": 9},
    "created_at_utc": "2020-01-01T00:00:00Z",
    "updated_at_utc": "2020-01-01T00:00:00Z",
    "deleted_at_utc": None,
    "uid": "1",
    "tenant": "other",
    "trusted": True,
    "schedule": {},
}


@pytest.mark.parametrize("field", READ_ONLY)
def test_read_only_fields_cannot_be_set(served, field):
    schedule = served.create()
    path = f"/schedules/{schedule['schedule_id']}"
    for answer in (
        served.client.post("/schedules", json={**SOUND, field: READ_ONLY[field]}),
        served.client.post("/schedules/upsert", json={**SOUND, "name": "mass", field: READ_ONLY[field]}),
        served.client.patch(path, json={field: READ_ONLY[field]}),
    ):
        assert (answer.status_code, answer.json()["field"]) == (400, field)
    assert served.client.get(path).json() == schedule


def test_a_path_variable_cannot_be_repeated_in_the_body(served):
    path = f"/schedules/{served.create()['schedule_id']}"
    for answer in (
        served.client.patch(path, json={"schedule_id": "other"}),
        served.client.post(f"{path}/pause", json={"schedule_id": "other"}),
        served.client.get(f"{path}?schedule_id=other"),
    ):
        problem(answer, 400, "invalid_request", "schedule_id")


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/json; charset=utf-16",
        "application/jsonp",
        "application/x-python-pickle",
        "text/yaml",
    ],
)
@pytest.mark.parametrize("path", ["/schedules", "/rpc", "/schedules/x/pause"])
def test_a_body_of_another_type_is_not_read(served, path, content_type):
    headers = {} if content_type is None else {"Content-Type": content_type}
    problem(served.client.post(path, content=b"{}", headers=headers), 415, "unsupported_media_type")


@pytest.mark.parametrize("content_type", ["application/json;charset=UTF-8", 'Application/JSON; charset="utf-8"'])
def test_the_type_may_name_its_encoding(served, content_type):
    answer = served.client.post("/schedules", content=json.dumps(SOUND), headers={"Content-Type": content_type})
    assert answer.status_code == 201


def test_a_compressed_body_is_rejected(served):
    bomb = gzip.compress(b"[" * 20_000_000)
    for encoding, body in (("gzip", bomb), ("deflate", zlib.compress(b"{}")), ("br", b"x"), ("gzip, identity", b"x")):
        answer = posted(served, body, **{"Content-Encoding": encoding})
        problem(answer, 415, "unsupported_media_type")
        assert answer.headers["accept-encoding"] == "identity"
    assert posted(served, json.dumps(SOUND), **{"Content-Encoding": "identity"}).status_code == 201


def test_a_body_larger_than_a_mebibyte_is_rejected(served):
    large = b'{"description": "' + b"d" * 20_000_000 + b'"}'
    problem(posted(served, large), 413, "payload_too_large")
    problem(posted(served, large, "/rpc"), 413, "payload_too_large")
    problem(posted(served, large, "/api/v1/schedules"), 413, "payload_too_large")
    in_parts = (large[start : start + 100_000] for start in range(0, len(large), 100_000))
    problem(posted(served, in_parts), 413, "payload_too_large")
    # A client that sends Expect gets the answer before it sends the body.
    head = "POST /schedules HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
    status, _, body = served.send(f"{head}Content-Length: 20000000\r\n\r\n".encode())
    assert (status, json.loads(body)["code"]) == (413, "payload_too_large")
    # A client that declares too much and sends nothing does not wait either.
    head = head.removesuffix("Expect: 100-continue\r\n")
    status, _, body = served.send(f"{head}Content-Length: 99999999999\r\n\r\n".encode())
    assert (status, json.loads(body)["code"]) == (413, "payload_too_large")


def test_a_body_without_end_is_cut_off(served):
    head = b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    part = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    with served.connect() as line, pytest.raises(OSError, match=r"reset|pipe|abort"):
        line.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + part * 2_000)


def test_a_body_of_the_maximum_size_is_accepted(served):
    body = json.dumps(SOUND).encode()
    assert posted(served, body + b" " * (1_048_576 - len(body))).status_code == 201
    problem(posted(served, body + b" " * (1_048_577 - len(body))), 413, "payload_too_large")


def test_a_false_content_length_is_harmless(served):
    head = b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with served.connect() as line:
        # What is beyond the length is the beginning of another request, and no good one.
        line.sendall(head + b'Content-Length: 2\r\n\r\n{}{"event_type": "smuggled"}\r\n\r\n')
        status, _, _ = read_answer(line)
        assert status == 400
    for wrong in (b"-1", b"1e3", b"0x10", b"2\r\nContent-Length: 3"):
        assert served.send(head + b"Content-Length: " + wrong + b"\r\n\r\n{}")[0] == 400
    assert served.client.get("/events?event_type=smuggled").json()["events"] == []


def test_a_body_that_does_not_arrive_times_out():
    with serving(body_seconds=0.05) as server, server.connect() as line:
        line.sendall(b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        status, headers, body = read_answer(line)
        assert (status, json.loads(body)["code"], headers["connection"]) == (408, "request_timeout", "close")


def test_slow_clients_do_not_delay_others(served):
    lines = [served.connect() for _ in range(200)]
    try:
        for number, line in enumerate(lines):
            head = b"POST /schedules HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            line.sendall(head if number % 2 else head + b"Content-Length: 1000\r\n\r\n{")
        for _ in range(20):
            assert served.client.get("/health").status_code == 200
            assert served.client.get("/schedules?limit=1").status_code == 200
        # The slow ones are still connected: others were not answered at their expense.
        lines[0].settimeout(0)
        with pytest.raises(BlockingIOError):
            lines[0].recv(1)
    finally:
        for line in lines:
            line.close()


QUERIES = [
    ("/schedules?limit=abc", "limit"),
    ("/schedules?limit=0", "limit"),
    ("/schedules?limit=-1", "limit"),
    ("/schedules?limit=1.5", "limit"),
    ("/schedules?limit=", "limit"),
    ("/schedules?limit=99999999999999999999", "limit"),
    ("/schedules?limit=1&limit=2", "limit"),
    ("/schedules?limit=%D9%A1", "limit"),
    ("/schedules?offset=10001", "offset"),
    ("/schedules?surprise=1", "surprise"),
    ("/schedules?newest_first=yes", "newest_first"),
    ("/schedules?phase=sleeping", "phase"),
    ("/schedules?kind=hourly", "kind"),
    ("/schedules?text=%00", "text"),
    ("/schedules?text=a%0d%0aSet-Cookie:x", "text"),
    ("/schedules?owner=a&user_id=b", "user_id"),
    ("/schedules?text=%ff", None),
    ("/schedules?cursor=x", "cursor"),
    ("/schedules?" + "&".join(["label=a"] * 101), None),
    ("/schedules/x/explain?at=yesterday", "at"),
    ("/schedules/x/preview?count=0", "count"),
    ("/schedules/x/preview?count=1001", "count"),
    ("/schedules/x/preview?after=2030-01-01T00:00:00", "after"),
    ("/schedules/x/occurrences?phase=done", "phase"),
    ("/schedules/%00", "schedule_id"),
    ("/schedules/a%20b", "schedule_id"),
    ("/schedules/%ff", "schedule_id"),
    ("/occurrences/%27%20OR%201=1", "occurrence_id"),
    ("/runs/%22", "run_id"),
    ("/nodes?all=1", "all"),
    ("/events?event_type=a%20b", "event_type"),
    ("/audit?schedule_id=a%20b", "schedule_id"),
    ("/api/v1/schedules?page=one", "page"),
    ("/api/v1/schedules?status=DELETED", "status"),
]


@pytest.mark.parametrize(("path", "field"), QUERIES)
def test_a_wrong_parameter_is_named(served, path, field):
    answer = served.client.get(path)
    assert answer.status_code == 400, answer.text
    assert answer.json().get("field") == field
    assert answer.json()["code"] == "invalid_request"


FORGED = ["x", "", "bnVsbA", "W10", "WyJ4Il0", "WzFd", "W251bGxd", "WzEsImEiXQ", "Wy05MjIzMzcyMDM2ODU0Nzc1ODA5LCJhIl0"]


@pytest.mark.parametrize("cursor", [*FORGED, "é", "a" * 2_000, "' OR 1=1 --"])
def test_a_cursor_that_this_list_did_not_give_is_refused_or_harmless(served, cursor):
    schedule_id = served.create()["schedule_id"]
    for path in ("/schedules", f"/schedules/{schedule_id}/occurrences", f"/schedules/{schedule_id}/runs", "/audit"):
        answer = served.client.get(path, params={"cursor": cursor, "limit": 1})
        if answer.status_code != 200:
            problem(answer, 400, "invalid_request", "cursor")


def test_a_cursor_of_one_list_shows_nothing_of_another(served):
    for _ in range(2):
        served.create()
    cursor = served.client.get("/schedules?limit=1").json()["next_cursor"]
    problem(served.client.get("/events", params={"cursor": cursor}), 400, "invalid_request", "cursor")
    assert len(served.client.get("/schedules?limit=100000").json()["schedules"]) <= 1_000


HOSTILE = [
    "'; DROP TABLE schedules; --",
    '" OR ""="',
    "%' UNION SELECT * FROM schedules --",
    "100% _ \\ [a-z]",
    "${7*7} {{7*7}} <%= 7*7 %> #{7*7}",
    "<script>alert(1)</script>",
    "$(touch /tmp/x) `id` | ; & > <",
    "%s %d %n {0} {name}",
    "../../../etc/passwd",
    "\u202etxt.exe \u2066\u2069",
    "é ñ 漢字 🎉 \U0010ffff",
    "!!python/object/apply:os.system ['id']",
    "null",
    "  edges  ",
]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store_url(request, tmp_path):
    """Each store in turn."""
    if request.param == "postgres":
        return request.getfixturevalue("database").url
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/noonmark.db"


def test_hostile_text_comes_back_unchanged(store_url):
    with serving(store_url) as server:
        for number, text in enumerate(HOSTILE):
            target = {"target_kind": "function", "function": "greet", "args": [text], "kwargs": {text: text}}
            schedule = server.create(
                name=text, description=text, labels={text: text}, target=target, user_id=text, concurrency_key=text
            )
            path = f"/schedules/{schedule['schedule_id']}"
            read = server.client.get(path).json()
            assert (read["name"], read["description"], read["labels"]) == (text, text, {text: text})
            assert (read["target"], read["owner"]["user"]) == (target, text)
            for query in ({"name": text}, {"text": text}, {"owner": text}, {"label": f"{text}={text}"}):
                if "=" in text and "label" in query:
                    continue  # such a label can only be asked for in the other surfaces
                answer = server.client.get("/schedules", params=query).json()["schedules"]
                assert [one["schedule_id"] for one in answer] == [schedule["schedule_id"]], query
            run = server.client.post(f"{path}/run", json={"payload": {text: [text]}, "key": text, "reason": text})
            assert run.json()["payload"] == {text: [text]}
            sent = {"event_type": "hostile", "payload": text, "source": text, "event_id": f"event-{number}"}
            server.client.post("/events", json=sent)
            event = server.client.get("/events?event_type=hostile&limit=1").json()["events"][0]
            assert (event["payload"], event["source"]) == (text, text)
        assert server.client.get("/schedules/count").json() == {"count": len(HOSTILE)}


LONG = {"blanks": " " * 100_000, "dots": "." * 100_000, "ranges": "1-2," * 25_000, "slashes": "*/" * 50_000}


@pytest.mark.parametrize("what", LONG)
def test_long_text_in_any_field_is_refused_at_once(served, what):
    text = LONG[what]
    bodies = [
        {**SOUND, "name": text},
        {**SOUND, "trigger": {"type": "cron", "expression": text}},
        {**SOUND, "trigger": {**NOON, "timezone": text}},
        {**SOUND, "trigger": {"type": "once", "due_at_utc": text}},
        {**SOUND, "schedule_id": text},
        {**SOUND, "labels": {text: text}},
        {**SOUND, "overlap_policy": text},
    ]
    for body in bodies:
        answer = served.client.post("/schedules", json=body)
        assert answer.status_code == 400
        assert len(answer.content) < 2_000


def test_the_server_still_works_afterwards(served):
    assert served.client.get("/health", timeout=SOON).status_code == 200
