"""The HTTP runner, with a real server."""

import asyncio
import re
import socket
import threading
from collections import Counter
from contextlib import contextmanager

import pytest

from noonmark.core.ids import event
from noonmark.core.instants import SECOND, to_text
from noonmark.core.policies.delivery import Delivery
from noonmark.core.policies.window import Window
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome
from noonmark.core.schedule import Owner
from noonmark.targets.http.runner import HttpRunner
from noonmark.targets.http.settings import HttpTargetSettings
from tests.embedded.waiting import SOON, eventually
from tests.targets.http.hostile_server import SilentHandler, hostile_server
from tests.targets.http.receiver import arrived, http_receiver, http_sender, sent

MINUTE = 60 * SECOND


@pytest.fixture(scope="module")
def server():
    with http_receiver() as receiver:
        yield receiver


@pytest.fixture(autouse=True)
def receiver(server):
    server.reset()
    yield server
    server.closing.set()
    server.opened.set()


@pytest.fixture(scope="module")
def caller(server):
    with http_sender() as caller:
        yield caller


def test_request_is_sent_as_declared(caller, receiver):
    assignment = caller.deliver(
        f"{receiver.url}/users/{{{{payload.name}}}}?at={{{{nominal_at}}}}",
        method="PUT",
        headers={"X-Team": "{{schedule_name}}", "user-agent": "mine"},
        body={"n": "{{attempt}}", "who": "{{payload.name}}", "id": "{{occurrence_id}}"},
        payload={"name": "a/b ü"},
        declared={"name": "däta"},
    )
    _, delivered = caller.report()
    method, path, headers, body = sent(receiver)
    one = assignment.occurrence
    nominal = to_text(one.nominal)
    assert (method, path) == ("PUT", f"/users/a%2Fb%20%C3%BC?at={nominal.replace(':', '%3A')}")
    assert body == {"n": 1, "who": "a/b ü", "id": one.id}
    assert headers["Host"] == f"127.0.0.1:{receiver.port}"
    assert headers["Idempotency-Key"] == one.id
    assert (headers["Noonmark-Nominal-Time"], headers["Noonmark-Attempt"]) == (nominal, "1")
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-00", headers["traceparent"])
    assert (headers["user-agent"], headers["Content-Type"]) == ("mine", "application/json")
    assert headers["X-Team"].encode("latin-1").decode() == "däta"
    assert "User-Agent" not in headers
    assert delivered.outcome is Outcome.COMPLETED
    assert delivered.result == {
        "status": 200,
        "headers": {"content-type": "application/json"},
        "body": {"done": True},
    }
    assert one.due <= delivered.started <= delivered.ended


def test_body_may_be_missing_or_text(caller, receiver):
    assert caller.call(f"{receiver.url}/a", method="GET").outcome is Outcome.COMPLETED
    assert caller.call(f"{receiver.url}/b").outcome is Outcome.COMPLETED
    assert caller.call(f"{receiver.url}/c", body="hello {{payload}}", payload="wörld").outcome is Outcome.COMPLETED
    (_, _, first, _), (_, _, second, empty), (_, _, third, text) = receiver.requests
    assert "Content-Length" not in first
    assert (second["Content-Length"], empty) == ("0", b"")
    assert (third["Content-Type"], text.decode()) == ("text/plain; charset=utf-8", "hello wörld")


def test_placeholders_use_the_event(caller, receiver):
    envelope = {"event_id": "e1", "event_type": "file", "source": "s", "payload": {"path": "/x"}, "emitted_at": "t"}
    caller.call(
        f"{receiver.url}/", body=["{{event.event_type}}", "{{payload.path}}"], origin=event("e1"), payload=envelope
    )
    assert sent(receiver)[3] == ["file", "/x"]


def test_literal_request_is_sent_with_its_braces(caller, receiver):
    fields = {"headers": {"X-A": " {{attempt}} "}, "body": ["{{payload.missing}}", "{{"], "literal": True}
    assert caller.call(f"{receiver.url}/{{{{attempt}}}}", **fields).outcome is Outcome.COMPLETED
    (_, path, headers, body) = sent(receiver)
    assert (path, headers["X-A"], body) == ("/%7B%7Battempt%7D%7D", "{{attempt}}", ["{{payload.missing}}", "{{"])


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"body": "{{payload.missing}}"}, "there is no"),
        ({"body": "{{event.payload}}"}, "no event triggered this occurrence"),
        ({"headers": {"X-A": "{{payload.lines}}"}}, "line break"),
    ],
)
def test_missing_placeholder_fails_the_delivery(caller, receiver, document, words):
    delivered = caller.call(f"{receiver.url}/", payload={"lines": "a\r\nHost: b"}, **document)
    assert delivered.own_words == delivered.error  # nothing of the payload is in it: a log may say it
    assert delivered.outcome is Outcome.DELIVERY_FAILED
    assert delivered.is_final
    assert words in delivered.error
    assert receiver.requests == []


@pytest.mark.parametrize("value", ["..", "."])
def test_dots_cannot_change_the_path_of_a_url(caller, receiver, value):
    delivered = caller.call(f"{receiver.url}/users/{{{{payload}}}}/delete", payload=value)
    assert (delivered.outcome, receiver.requests) == (Outcome.DELIVERY_FAILED, [])


@pytest.mark.parametrize(
    ("status", "document", "outcome", "is_final"),
    [
        (204, {}, Outcome.COMPLETED, False),
        (201, {"expected_statuses": [200]}, Outcome.FAILED, True),
        (404, {"expected_statuses": ["4xx"]}, Outcome.COMPLETED, False),
        (404, {}, Outcome.FAILED, True),
        (503, {}, Outcome.FAILED, False),
        (429, {}, Outcome.FAILED, False),
        (503, {"retry_statuses": [429]}, Outcome.FAILED, True),
        (503, {"expected_statuses": [503], "retry_statuses": [503]}, Outcome.COMPLETED, False),
        (599, {}, Outcome.FAILED, False),
    ],
)
def test_status_decides_the_outcome(caller, receiver, status, document, outcome, is_final):
    receiver.answers.append((status, b"", {"X_Request_Id": "r1"}))
    delivered = caller.call(f"{receiver.url}/next", **document)
    assert (delivered.outcome, delivered.is_final) == (outcome, is_final)
    assert delivered.result == {"status": status, "headers": {"x-request-id": "r1"}}
    if outcome is Outcome.FAILED:
        assert f"the server answered {status}" in delivered.error


@pytest.mark.parametrize(
    ("kind", "body", "kept"),
    [
        ("application/json", b'{"a": 1}', {"a": 1}),
        ("application/problem+json", b'{"a": 1}', {"a": 1}),
        ("text/plain", b'{"a": 1}', '{"a": 1}'),
        (None, b'{"a": 1}', '{"a": 1}'),
        ("application/json", b'{"a": 1', '{"a": 1'),
    ],
)
def test_content_type_decides_how_the_body_is_stored(caller, receiver, kind, body, kept):
    receiver.answers.append((200, body, {"Content_Type": kind}))
    assert caller.call(f"{receiver.url}/next").result["body"] == kept


@pytest.mark.parametrize(
    ("said", "low", "high"),
    [
        ("7", 7, 7),
        ("0", 0, 0),
        ("-1", 0, 0),
        ("soon", 0, 0),
        ("9" * 5_000, 10**8, 10**9),
        ("Thu, 01 Jan 2099 00:00:00 GMT", 10**8, 10**10),
        ("Thu, 01 Jan 2015 00:00:00 GMT", 0, 0),
        ("Thu, 99 Jan 2015 00:00:00 GMT", 0, 0),
    ],
)
def test_retry_after_is_parsed(caller, receiver, said, low, high):
    receiver.answers.append((503, b"", {"Retry_After": said}))
    assert low * SECOND <= caller.call(f"{receiver.url}/next").retry_after <= high * SECOND


def test_silent_server_times_out(caller, receiver):
    assert caller.call(f"{receiver.url}/silent", timeout_seconds=0.2).outcome is Outcome.TIMED_OUT
    assert caller.call(f"{receiver.url}/silent", declared={"timeout": SECOND // 5}).outcome is Outcome.TIMED_OUT


def test_closing_window_ends_a_request(caller, receiver):
    delivered = caller.call(f"{receiver.url}/silent", declared={"window": Window(duration=SECOND // 5)})
    assert (delivered.outcome, delivered.reason) == (Outcome.CANCELLED, Reason.WINDOW_CLOSED)


def test_dropped_connection_is_an_unknown_failure(caller, receiver):
    delivered = caller.call(f"{receiver.url}/drop")
    assert (delivered.outcome, delivered.is_final, delivered.is_unknown) == (Outcome.FAILED, False, True)
    assert f"connection lost to {receiver.url}: " in delivered.error


def test_refused_connection_is_a_retryable_failure(caller):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        delivered = caller.call(f"http://127.0.0.1:{nobody.getsockname()[1]}/")
    assert (delivered.outcome, delivered.is_final, delivered.is_unknown) == (Outcome.FAILED, False, False)
    assert "no connection to http://127.0.0.1" in delivered.error


def test_unknown_host_is_a_failure(receiver):
    def nothing(_host, _port):
        return []

    with http_sender(resolve=nothing) as caller:
        delivered = caller.call("http://nobody.example/")
    assert delivered.outcome is Outcome.FAILED
    assert "no address is known for nobody.example" in delivered.error


@pytest.mark.parametrize(
    ("reason", "outcome"), [(Reason.CANCELLED, Outcome.CANCELLED), (Reason.LEASE_LOST, Outcome.LEASE_LOST)]
)
def test_stop_request_cancels_the_request(caller, reason, outcome):
    with hostile_server(SilentHandler) as server:
        assignment = caller.deliver(f"http://{server.url}/")
        eventually(lambda: server.heard)
        assignment.stop(reason)
        assert caller.report()[1].outcome is outcome
        assert eventually(lambda: server.heard[-1] == b"")


def test_stopped_before_its_start_is_not_sent(caller, receiver):
    assignment = caller.deliver(f"{receiver.url}/", after=SECOND // 10)
    assignment.stop(Reason.REPLACED)
    _, delivered = caller.report()
    assert (delivered.outcome, delivered.reason, receiver.requests) == (Outcome.CANCELLED, Reason.REPLACED, [])


def test_withdrawn_request_is_not_reported(caller, receiver):
    lost = caller.deliver(f"{receiver.url}/wait", key="lost")
    arrived(receiver)
    lost.is_closed = True
    lost.stop(Reason.LEASE_LOST)
    receiver.opened.set()
    kept = caller.deliver(f"{receiver.url}/", key="kept")
    assert caller.report()[0] is kept


def test_proxies_of_the_environment_are_ignored(receiver, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with http_sender() as caller:
        assert caller.call(f"{receiver.url}/").outcome is Outcome.COMPLETED


def test_requests_in_flight_are_limited(receiver):
    with http_sender(limit=8) as caller:
        made = [caller.deliver(f"{receiver.url}/wait", key=str(number)) for number in range(40)]
        arrived(receiver, 4)
        assert len(caller.target._tasks) == 4
        taken_back = caller.target.withdraw()
        assert len(taken_back) == 36
        receiver.opened.set()
        ended = {caller.report()[0] for _ in range(4)}
        assert ended.isdisjoint(taken_back)
        assert ended | set(taken_back) == set(made)
        assert len(receiver.requests) == 4


def test_idle_connections_are_closed_in_every_shard(receiver):
    with http_sender() as caller:
        for number in range(20):
            caller.deliver(f"{receiver.url}/wait", key=str(number))
        arrived(receiver, 20)
        caller.deliver(f"{receiver.url}/silent", key="slow")
        arrived(receiver, 21)
        pool = caller.target._delivery._guarded_pool
        assert len(pool.connections) == 21
        receiver.opened.set()
        assert {caller.report()[1].outcome for _ in range(20)} == {Outcome.COMPLETED}
        eventually(lambda: len(pool.connections) == 1)  # the call that goes on
        assert caller.call(f"{receiver.url}/", key="next").outcome is Outcome.COMPLETED


def test_slow_lookups_of_one_owner_do_not_block_others(receiver):
    """Also after their timeouts: a lookup cannot be cancelled, and keeps its thread."""
    ada, bob = Owner(tenant="acme", user="ada"), Owner(tenant="acme", user="bob")
    collected, answered = [], threading.Event()

    def resolve(host, _port):
        collected.append(host)
        assert host == "quick.example" or answered.wait(SOON)
        return ["127.0.0.1"]

    with http_sender(resolve=resolve) as caller:
        for number in range(170):
            url = f"http://slow{number}.example:{receiver.port}/"
            caller.deliver(url, key=str(number), timeout_seconds=0.2, declared={"owner": ada})
        timed_out = {caller.report()[1].outcome for _ in range(170)}
        assert timed_out == {Outcome.TIMED_OUT}
        assert 40 < len(collected) <= 128
        quick = f"http://quick.example:{receiver.port}/"
        assert caller.call(quick, declared={"owner": bob}).outcome is Outcome.COMPLETED
        answered.set()
        assert caller.call(quick, key="again", declared={"owner": ada}).outcome is Outcome.COMPLETED


def test_slow_requests_of_one_owner_do_not_block_others(receiver):
    owners = [Owner(tenant="acme", user=user) for user in ("ada", "bob", "cy", "dan")]
    with http_sender(limit=8) as caller:
        for number in range(40):
            caller.deliver(f"{receiver.url}/wait", key=str(number), declared={"owner": owners[0]})
        arrived(receiver, 4)
        for place, owner in enumerate(owners[1:], 1):
            later = caller.deliver(f"{receiver.url}/", key=owner.user, declared={"owner": owner})
            assert caller.report()[0] is later
            assert len(receiver.requests) == 4 + place
        receiver.opened.set()
        assert {caller.report()[1].outcome for _ in range(40)} == {Outcome.COMPLETED}


class Sluggish(asyncio.Protocol):
    """Answers with a delay, and records the numbers of requests and tasks."""

    seen, look, transports = set(), lambda: (0, 0), []

    def connection_made(self, transport):
        self.transport = transport
        self.transports.append(transport)

    def data_received(self, _):
        self.seen.add(Sluggish.look())
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        asyncio.get_running_loop().call_later(0.05, self.transport.write, answer)


def test_queued_requests_have_no_tasks(caller):
    def look():
        return len(caller.target._tasks), len(asyncio.all_tasks(caller.target._loop))

    caller.call("http://127.0.0.1:1/")
    Sluggish.look, Sluggish.seen = look, set()
    with listening(Sluggish, Sluggish.transports) as url:
        caller.target.deliver([caller.made(url, key=str(number)) for number in range(2_000)])
        outcomes = Counter(caller.report()[1].outcome for _ in range(2_000))
    assert outcomes == {Outcome.COMPLETED: 2_000}
    assert max(calls for calls, _ in Sluggish.seen) == 128
    assert max(tasks for _, tasks in Sluggish.seen) <= 256  # one more for each that is being connected
    assert eventually(lambda: look() == (0, 1))


@contextmanager
def listening(protocol, transports):
    """Run a server of that protocol in a thread."""
    loop = asyncio.new_event_loop()

    async def hang_up():
        server.close()
        for transport in transports:
            transport.abort()

    server = loop.run_until_complete(loop.create_server(protocol, "127.0.0.1", 0, backlog=512))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        asyncio.run_coroutine_threadsafe(hang_up(), loop).result(SOON)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(SOON)
        loop.close()


def test_at_most_once_is_not_withdrawn(caller, receiver):
    caller.deliver(f"{receiver.url}/", after=SECOND // 2, declared={"delivery": Delivery.AT_MOST_ONCE})
    assert caller.target.withdraw() == []
    assert caller.report()[1].outcome is Outcome.COMPLETED


def test_many_requests_share_a_few_connections(receiver):
    with http_sender(limit=8) as caller:
        for number in range(400):
            caller.deliver(f"{receiver.url}/", key=str(number))
        outcomes = {caller.report()[1].outcome for _ in range(400)}
    assert outcomes == {Outcome.COMPLETED}
    assert len({headers["Idempotency-Key"] for _, _, headers, _ in receiver.requests}) == 400


def test_nothing_is_sent_after_close(receiver):
    with http_sender() as caller:
        caller.deliver(f"{receiver.url}/silent", key="under way")
        arrived(receiver)
        caller.deliver(f"{receiver.url}/", after=MINUTE, key="later")
    assert caller.reports.empty()
    assert caller.target.withdraw() == []


def test_without_settings_requests_are_served_once_declared():
    unasked = HttpRunner()
    assert (unasked.routes(), unasked.adopt(["function:work"]), unasked.routes()) == ((), False, ())
    assert (unasked.adopt(["http"]), unasked.adopt(["http"]), unasked.routes()) == (True, False, ("http",))
    assert HttpRunner(HttpTargetSettings()).routes() == ("http",)
    unasked.close()


def test_failing_setup_is_reported(receiver, monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    with http_sender() as caller:
        delivered = caller.call(f"{receiver.url}/")
    assert delivered.outcome is Outcome.DELIVERY_FAILED
    assert "the request failed: FileNotFoundError" in delivered.error


def test_header_values_are_stripped(caller, receiver):
    assert caller.call(f"{receiver.url}/", headers={"X-A": " {{payload}}\t"}, payload="b ").outcome is Outcome.COMPLETED
    assert sent(receiver)[2]["X-A"] == "b"
