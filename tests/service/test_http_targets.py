"""HTTP targets of a real server: declared over the network, sent by its worker, and guarded by both."""

import hmac
import re
import signal
from datetime import timedelta

import pytest

from noonmark.client import verify
from noonmark.clocks import SystemClock
from noonmark.core.errors import NotAllowed
from noonmark.core.signatures import completion_token
from tests.cli.terminal import NOONMARK, in_pipe, in_terminal
from tests.embedded.waiting import eventually
from tests.service.server import serving
from tests.targets.http import internal_hosts
from tests.targets.http.receiver import arrived, http_receiver

KEY = "a key that nobody guesses"
NEVER = {"type": "cron", "expression": "0 0 1 1 *"}


@pytest.fixture(scope="module")
def receiver():
    with http_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    # Where others would reach it: nobody looks that up here.
    public = ("--public-url", "http://schedules.example.com/noonmark", "--allow-hosts", "127.0.0.1")
    options = ("--store", "memory://", *public, "--log-level", "debug")
    with serving(tmp_path_factory.mktemp("http"), *options, NOONMARK_SIGNING_KEY=KEY) as server:
        yield server


def create(server, url, **fields):
    target = {"target_kind": "http", "url": url, **fields.pop("target", {})}
    return server.ask("POST", "/schedules", {"name": "call", "trigger": NEVER, "target": target, **fields})


def run(server, schedule_id, **body):
    """The occurrence that was asked for, once it is in one of these phases."""
    added = server.ask("POST", f"/schedules/{schedule_id}/run", body).json
    return added["occurrence_id"]


def in_phase(server, occurrence_id, *phases):
    result = eventually(lambda: (one := server.get(f"/occurrences/{occurrence_id}").json)["phase"] in phases and one)
    return result["phase"], result["reason"]


def test_a_schedule_created_with_curl_calls_a_server(server, receiver):
    receiver.reset()
    schedule = create(server, f"{receiver.url}/hook", target={"body": {"who": "{{payload.who}}"}}).json
    occurrence = run(server, schedule["schedule_id"], payload={"who": "ada"})
    assert in_phase(server, occurrence, "completed") == ("completed", "succeeded")
    ((method, path, headers, body),) = receiver.requests
    assert (method, path, body) == ("POST", "/hook", b'{"who":"ada"}')
    assert headers["Idempotency-Key"] == occurrence
    (kept,) = server.get(f"/occurrences/{occurrence}/runs").json["runs"]
    assert kept["result"]["status"] == 200
    assert kept["result"]["body"] == {"done": True}


def test_retry_after_is_honoured(server, receiver):
    receiver.reset()
    receiver.answers += [(503, b"", {"Retry_After": "1"}), (404, b"", {}), (200, b"", {})]
    retry = {"max_attempts": 5, "backoff_seconds": 0.01}
    schedule = create(server, f"{receiver.url}/next", retry_policy=retry).json
    occurrence = run(server, schedule["schedule_id"])
    assert in_phase(server, occurrence, "failed", "completed") == (
        "failed",
        "failed",
    )  # no second look at what is not there
    first, second = server.get(f"/occurrences/{occurrence}/runs").json["runs"]
    assert {first["attempt"], second["attempt"]} == {1, 2}
    assert [headers["Noonmark-Attempt"] for _, _, headers, _ in receiver.requests] == ["1", "2"]
    assert len({headers["Idempotency-Key"] for _, _, headers, _ in receiver.requests}) == 1
    explained = server.get(f"/occurrences/{occurrence}/explain").json["summary"]
    assert explained.endswith("; an answer with status 404 is not retried unless `retry_statuses` has it.")


def attempts_in(explained):
    """The attempts of an explanation, in words."""
    return [run["told"] for step in explained["steps"] for run in step["facts"].get("runs", [])]


def test_an_unanswered_call_times_out(server, receiver):
    receiver.reset()
    schedule = create(server, f"{receiver.url}/silent", timeout_seconds=0.2).json
    occurrence = run(server, schedule["schedule_id"])
    assert in_phase(server, occurrence, "timed_out", "completed") == ("timed_out", "timed_out")
    (kept,) = server.get(f"/occurrences/{occurrence}/runs").json["runs"]
    assert (kept["outcome"], kept["error"]) == ("timed_out", "no answer within 0.2 s")
    explained = server.get(f"/schedules/{schedule['schedule_id']}/explain").json
    assert f"About its last occurrence, `{occurrence}`, asked for at" in explained["summary"]
    (told,) = attempts_in(explained)
    assert re.search(r" and timed out after .*: no answer within 0\.2 s$", told)


def test_forbidden_destinations_are_rejected_on_create_and_update(server, receiver):
    schedule = create(server, f"{receiver.url}/").json
    where = f"/schedules/{schedule['schedule_id']}"
    for host in internal_hosts.NEVER:
        target = {"target_kind": "http", "url": f"http://{host}/"}
        for answer in (create(server, target["url"]), server.ask("PATCH", where, {"target": target})):
            assert (answer.status, answer.json["field"]) == (400, "target.url"), host
    assert server.get(where).json["revision"] == 1


def test_a_strict_server_allows_only_listed_destinations(tmp_path, receiver):
    receiver.reset()
    with serving(tmp_path, "--store", "memory://", "--target-guard", "strict", "--allow-hosts", "localhost") as server:
        schedule = create(server, f"http://localhost:{receiver.port}/").json
        where = f"/schedules/{schedule['schedule_id']}"
        for host in (host for host in internal_hosts.INSIDE if host.lower().rstrip(".") != "localhost"):
            target = {"target_kind": "http", "url": f"http://{host}:{receiver.port}/"}
            for answer in (create(server, target["url"]), server.ask("PATCH", where, {"target": target})):
                assert (answer.status, answer.json["field"]) == (400, "target.url"), host
        assert in_phase(server, run(server, schedule["schedule_id"]), "completed", "failed")[0] == "completed"
    assert [path for _, path, _, _ in receiver.requests] == ["/"]


def test_the_sending_node_applies_its_own_guard(tmp_path, receiver):
    receiver.reset()
    store = f"sqlite:///{tmp_path / 'stored.db'}"
    with serving(tmp_path, "--store", store, "--target-guard", "off", "--no-worker") as server:
        schedule = create(server, f"{receiver.url}/", retry_policy={"max_attempts": 3}).json
        metadata = create(server, "http://169.254.169.254/latest/meta-data/").json
    with serving(tmp_path, "--store", store, "--target-guard", "strict") as server:
        for one in (schedule, metadata):
            added = run(server, one["schedule_id"])
            assert in_phase(server, added, "delivery_failed", "completed") == ("delivery_failed", "undeliverable")
            (kept,) = server.get(f"/occurrences/{added}/runs").json["runs"]
            assert "this node sends no requests there" in kept["error"]
    assert receiver.requests == []


def test_a_call_of_a_killed_node_is_repeated_with_the_same_key(tmp_path, receiver):
    receiver.reset()
    store = f"sqlite:///{tmp_path / 'kept.db'}"
    with serving(tmp_path, "--store", store, "--lease", "60") as server:
        schedule = create(server, f"{receiver.url}/wait").json
        occurrence = run(server, schedule["schedule_id"])
        arrived(receiver)
        server.stop(signal.SIGKILL)
    receiver.opened.set()
    with serving(tmp_path, "--store", store, "--lease", "60") as server:
        assert in_phase(server, occurrence, "completed") == ("completed", "succeeded")
        runs = {run["outcome"]: run["error"] for run in server.get(f"/occurrences/{occurrence}/runs").json["runs"]}
        explained = server.get(f"/occurrences/{occurrence}/explain").json
    assert set(runs) == {"lease_lost", "completed"}
    assert re.fullmatch(r"the process of node \S+ was gone before it had ended", runs["lease_lost"])
    assert "the process of its node was gone once before it had ended" in explained["summary"]
    lost, again = attempts_in(explained)
    assert (runs["lease_lost"] in lost, 'HTTP status 200; it answered `{"done": true}`' in again) == (True, True)
    assert [headers["Idempotency-Key"] for _, _, headers, _ in receiver.requests] == [occurrence, occurrence]


def test_the_receiver_can_verify_a_request(server, receiver):
    receiver.reset()
    schedule = create(server, f"{receiver.url}/hook", target={"body": "pay {{payload}}"}).json
    occurrence = run(server, schedule["schedule_id"], payload=7)
    in_phase(server, occurrence, "completed")
    ((_, _, headers, body),) = receiver.requests
    assert verify(headers, body, KEY) == occurrence
    assert server.get("/signing-key").json == {"signing_key": KEY}
    assert verify({name.lower(): value for name, value in headers.items()}, body, KEY) == occurrence
    assert verify(headers, body, ["the key to come", KEY]) == occurrence
    another = headers | {"Idempotency-Key": "another occurrence"}
    unsigned = {name: value for name, value in headers.items() if name != "Noonmark-Signature"}
    for wrong in (
        (headers, b"pay 70", KEY),
        (headers, body, "another"),
        (headers, body, ""),
        (headers, body, []),
        (headers, body, ["", "another"]),
        (another, body, KEY),
        (unsigned, body, KEY),
        ({}, body, KEY),
    ):
        with pytest.raises(NotAllowed):
            verify(*wrong)
    for minutes in (-6, 6):
        with pytest.raises(NotAllowed, match="5 minutes"):
            verify(headers, body, KEY, now=SystemClock().now() + timedelta(minutes=minutes))


def test_only_an_explicit_answer_makes_a_call_asynchronous(server, receiver):
    receiver.reset()
    receiver.answers += [
        (202, b"", {}),
        (202, b"", {"Noonmark_Callback": "no"}),
        (200, b"", {"Noonmark_Callback": "accepted"}),
    ]
    schedule = create(server, f"{receiver.url}/next").json
    for _ in range(3):
        assert (
            in_phase(server, run(server, schedule["schedule_id"]), "completed", "awaiting_completion")[0] == "completed"
        )


def test_asynchronous_work_without_a_result_times_out(server, receiver):
    one, token = awaited(server, receiver, target={"completion_timeout_seconds": 1})
    assert in_phase(server, one, "timed_out", "completed") == ("timed_out", "completion_timed_out")
    (kept,) = server.get(f"/occurrences/{one}/runs").json["runs"]
    assert kept["outcome"] == "timed_out"
    assert server.ask("POST", f"/occurrences/{one}/complete", {"token": token}).status == 409


def test_a_step_that_was_accepted_ends_with_its_report_or_with_its_timeout(server, receiver):
    """One that a receiver accepts has no longer than one that answers, from then on."""
    receiver.reset()
    accepted = (202, b"", {"Noonmark_Callback": "accepted"})
    receiver.answers += [accepted, accepted]
    call = {"target_kind": "http", "url": f"{receiver.url}/next"}
    steps = [
        {"id": "reported", "target": call, "timeout_seconds": 60},
        {"id": "silent", "target": call, "timeout_seconds": 1, "depends_on": ["reported"]},
    ]
    assert server.ask("POST", "/workflows", {"workflow_id": "calls", "steps": steps}).status == 201
    run_id = server.ask("POST", "/workflows/calls/runs", {}).json["workflow_run_id"]
    eventually(lambda: len(receiver.requests) == 1)
    headers = receiver.requests[0][2]
    child, token = headers["Idempotency-Key"], headers["Noonmark-Callback-Token"]
    assert in_phase(server, child, "awaiting_completion")
    report = {"token": token, "result": {"rows": 3}}
    assert server.ask("POST", f"/occurrences/{child}/complete", report).status == 200
    assert in_phase(server, run_id, "failed", "completed")[0] == "failed"
    run = server.get(f"/workflow-runs/{run_id}").json
    reported, silent = run["steps"]
    assert (reported["phase"], reported["result"], silent["phase"]) == ("completed", {"rows": 3}, "failed")
    assert f"{silent['occurrence_id']} ended as timed_out/completion_timed_out" in silent["error"]


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\r\nforged line\x00<script>"
OWN_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def test_a_hostile_answer_reaches_no_terminal_and_breaks_no_document(server, receiver):
    receiver.reset()
    body = HOSTILE.encode() + b"\xff"
    hostile = {"Location": HOSTILE.replace("\r\n", " ").replace("\x00", ""), "Content_Type": "text/html\x1b[2J"}
    receiver.answers += [(302, body, {key: value.encode().decode("latin-1") for key, value in hostile.items()})]
    schedule_id = create(server, f"{receiver.url}/next").json["schedule_id"]
    occurrence = run(server, schedule_id)
    assert in_phase(server, occurrence, "failed", "completed")[0] == "failed"
    for path in (f"/occurrences/{occurrence}/runs", f"/occurrences/{occurrence}/explain", f"/schedules/{schedule_id}"):
        assert server.get(path).json  # and UTF-8
    (kept,) = server.get(f"/occurrences/{occurrence}/runs").json["runs"]
    assert kept["error"].isprintable()
    assert all(value.isprintable() for value in kept["result"]["headers"].values())
    where = ("--server", server.url)
    for command in (("runs", schedule_id), ("explain", occurrence), ("runs", schedule_id, "--json")):
        assert printable(in_pipe(*NOONMARK, "schedule", *command, *where).stdout)
    _, shown = in_terminal(*NOONMARK, "schedule", "runs", schedule_id, *where)
    assert printable(OWN_COLOURS.sub("", shown))


def printable(text):
    return text and all(line.isprintable() for line in text.replace("\r\n", "\n").split("\n"))


def awaited(server, receiver, **fields):
    """An occurrence that the receiver took over, and the token it was given."""
    receiver.reset()
    schedule = create(server, f"{receiver.url}/take_over", **fields).json
    occurrence = run(server, schedule["schedule_id"])
    assert in_phase(server, occurrence, "awaiting_completion", "completed") == ("awaiting_completion", "accepted")
    headers = receiver.requests[-1][2]
    assert headers["Noonmark-Callback"] == f"http://schedules.example.com/noonmark/occurrences/{occurrence}"
    return occurrence, headers["Noonmark-Callback-Token"]


def test_the_receiver_completes_asynchronous_work_once(server, receiver):
    one, token = awaited(server, receiver)
    where = f"/occurrences/{one}/complete"
    # What a receiver could make of the key that it knows, as tokens were made once.
    known = hmac.new(KEY.encode(), b"noonmark completion tokens", "sha256").hexdigest()
    forged = completion_token(hmac.new(known.encode(), b"", "sha256").hexdigest(), occurrence_id=one, fence=1)
    for guess in ("0" * 64, KEY, forged):
        assert server.ask("POST", where, {"token": guess}).status == 403
    assert in_phase(server, one, "awaiting_completion", "completed")[0] == "awaiting_completion"
    answer = server.ask("POST", where, {"token": token, "result": {"rows": 3}})
    assert (answer.status, answer.json["phase"]) == (200, "completed")
    (kept,) = server.get(f"/occurrences/{one}/runs").json["runs"]
    assert (kept["outcome"], kept["result"]) == ("completed", {"rows": 3})
    assert server.ask("POST", where, {"token": token}).status == 409
    assert token not in server.log


def test_asynchronous_work_is_cancelled_when_its_window_closes(server, receiver):
    receiver.reset()
    schedule = create(server, f"{receiver.url}/take_over", window={"duration_seconds": 2}).json
    occurrence = run(server, schedule["schedule_id"])
    arrived(receiver)
    assert in_phase(server, occurrence, "cancelled", "timed_out", "completed") == ("cancelled", "window_closed")
    (kept,) = server.get(f"/occurrences/{occurrence}/runs").json["runs"]
    assert (kept["outcome"], kept["error"]) == ("cancelled", "the window in which it may run had closed")
    token = receiver.requests[-1][2]["Noonmark-Callback-Token"]
    assert server.ask("POST", f"/occurrences/{occurrence}/complete", {"token": token}).status == 409
    explained = server.get(f"/occurrences/{occurrence}/explain").json["summary"]
    assert "the window in which it may run closed at " in explained
    assert explained.endswith(", before it had ended.")


def test_a_failure_reported_by_the_receiver_is_retried_with_another_token(server, receiver):
    one, token = awaited(server, receiver, retry_policy={"max_attempts": 2, "backoff_seconds": 0.01})
    failed = server.ask("POST", f"/occurrences/{one}/fail", {"token": token, "error": "no paper"})
    assert failed.status == 200
    arrived(receiver, 2)
    in_phase(server, one, "awaiting_completion")
    assert server.ask("POST", f"/occurrences/{one}/complete", {"token": token}).status == 403
    another = receiver.requests[-1][2]["Noonmark-Callback-Token"]
    assert server.ask("POST", f"/occurrences/{one}/complete", {"token": another}).json["phase"] == "completed"


@pytest.mark.parametrize(("verb", "phase"), [("complete", "completed"), ("fail", "failed")])
def test_a_result_before_the_answer_completes_the_work(server, receiver, verb, phase):
    """The receiver tells the end while its answer is still to come; what that says then changes nothing."""
    receiver.reset()
    schedule = create(server, f"{receiver.url}/tell_first").json

    def tell(headers):
        where = f"/occurrences/{headers['Idempotency-Key']}"
        asked = [{}, {"token": "0" * 64}, {"token": headers["Noonmark-Callback-Token"]}]
        answers = [server.ask("POST", f"{where}/{verb}", body) for body in asked]
        return [answer.status for answer in answers], server.get(where).json["phase"]

    receiver.tell = tell
    occurrence = run(server, schedule["schedule_id"])
    eventually(lambda: f'"occurrence_id": "{occurrence}"' in line_about("an edit or a callback", server))
    assert receiver.told == [([409, 403, 200], phase)]
    assert in_phase(server, occurrence, "completed", "failed", "awaiting_completion")[0] == phase
    (kept,) = server.get(f"/occurrences/{occurrence}/runs").json["runs"]
    assert kept["outcome"] == phase
    levels = [record["level"] for record in server.records if record.get("occurrence_id") == occurrence]
    assert [level for level in levels if level not in ("debug", "info")] == ["error"] * (phase == "failed")


def line_about(text, server):
    """The last line of the log that has this text."""
    return next((line for line in reversed(server.log.splitlines()) if text in line), "")


def test_neither_the_key_nor_answers_are_logged(server, receiver):
    receiver.reset()
    receiver.answers.append((200, b"", {"Set_Cookie": "session=marked"}))
    schedule = create(
        server, f"{receiver.url}/next/marked?marked", target={"headers": {"Authorization": "marked"}}
    ).json
    in_phase(server, run(server, schedule["schedule_id"]), "completed")
    assert "marked" not in server.log
    assert KEY not in server.log + server.printed + server.get("/worker/status").text
