"""Requests with secret headers: what is sent, to which host, and what is stored of responses that repeat them."""

import json
import socketserver
import threading
from base64 import b64encode
from dataclasses import replace
from urllib.parse import quote

import pytest

from noonmark.clocks import SystemClock
from noonmark.core.redaction import Redactor
from noonmark.core.run import Outcome
from noonmark.core.secret import Secret
from noonmark.core.urls import parse_url
from noonmark.secret_cipher import AesSeal, fresh_key, read_keys
from noonmark.stores.memory import MemoryStore
from noonmark.stores.sqlite import SqliteStore
from noonmark.targets.http.request import Request
from noonmark.targets.secrets import SecretResolver
from noonmark.testing.factories import NOW, schedule
from tests.embedded.waiting import SOON
from tests.targets.http.hostile_server import hostile_server
from tests.targets.http.receiver import http_receiver, http_sender

TENANT = schedule().owner.tenant
MARK = "s3cr3t/mark+0123456789"
VALUE = f"Bearer {MARK}"
OLD, NEW = (b64encode(bytes([number]) * 32).decode() for number in (1, 2))


def seal(*keys):
    return AesSeal(read_keys(",".join(keys)))


class Secrets:
    """A store of secrets."""

    def __init__(self):
        self.store = MemoryStore(SystemClock().micros)

    def put(self, name, value, *hosts, tenant=TENANT, keys=(OLD,)):
        sealed = seal(*keys).close(tenant, name, value)
        made = Secret(name=name, hosts=hosts, sealed=sealed, created=NOW, updated=NOW)
        assert self.store.put_secret(tenant, made, most=99)
        return made

    def http_sender(self, *keys):
        return http_sender(secrets=SecretResolver(self.store, seal(*keys) if keys else None))


@pytest.fixture(scope="module")
def receiver():
    with http_receiver() as receiver:
        yield receiver


@pytest.fixture(autouse=True)
def _fresh(receiver):
    receiver.reset()


@pytest.fixture
def secrets():
    return Secrets()


@pytest.fixture(scope="module")
def shared(receiver):
    """A runner with two secrets."""
    secrets = Secrets()
    secrets.put("token", VALUE, f"http://127.0.0.1:{receiver.port}")
    secrets.put("agent", "agent-of-the-crown", "http://127.0.0.1")
    with secrets.http_sender(OLD) as caller:
        yield caller


def everything(assignment, delivered):
    """Everything visible of a delivery."""
    return f"{delivered!r} {delivered.result!r} {delivered.error} {assignment.result!r} {assignment.error!r}"


def test_secret_is_the_whole_header_value(shared, receiver):
    carried = {"X-Token": "token", "user-agent": "agent"}
    delivered = shared.call(f"{receiver.url}/ok", secret_headers=carried, headers={"X-Team": "data"})
    assert delivered.outcome is Outcome.COMPLETED
    [(_, _, headers, _)] = receiver.requests
    assert (headers["X-Token"], headers["user-agent"], headers["X-Team"]) == (VALUE, "agent-of-the-crown", "data")
    assert "User-Agent" not in headers


@pytest.mark.parametrize("path", ["echo", "echo/fail", "echo_all"])
def test_stored_response_does_not_contain_the_secret(shared, receiver, path):
    assignment = shared.deliver(f"{receiver.url}/{path}", secret_headers={"X-Token": "token"})
    _, delivered = shared.report()
    assert receiver.requests[0][2]["X-Token"] == VALUE
    told = everything(assignment, delivered)
    assert told.count(MARK) == 0
    assert MARK[:8] not in told
    assert "***" in told
    if path == "echo":
        assert delivered.result["body"] == {"said": "***", "***": ["***", "***"], "n": 7}
        assert delivered.result["headers"]["x-request-id"] == "***"
    if path == "echo_all":
        assert "body" not in delivered.result
        assert delivered.result["body_cut"]
        assert 'which leads to "***"' in delivered.error


def html(value):
    return f"<p>{value}</p>".replace("'", "&#39;")


BODIES = {
    "text": ("text/plain", lambda value: value[::-1]),
    "HTML": ("text/html", html),
    "JSON that is none": ("application/json", lambda value: f'{{"a": "{value}"'),
    "JSON by another name": ("text/plain", lambda value: json.dumps([value])),
    "nothing in it": ("text/plain", lambda _: "all is well"),
}


@pytest.mark.parametrize(("kind", "body"), BODIES.values(), ids=BODIES)
def test_only_the_size_of_a_non_json_body_is_stored(shared, receiver, kind, body):
    said = body(VALUE).encode()
    receiver.answers.append((500, said, {"Content_Type": kind, "ETag": "x" * 1_001}))
    delivered = shared.call(f"{receiver.url}/next", secret_headers={"X-Token": "token"})
    assert delivered.result == {
        "status": 500,
        "headers": {"content-type": kind, "etag": "***"},
        "body_note": "not stored: the request carried a secret, and of such a response only JSON is stored",
        "body_bytes": len(said),
    }
    assert delivered.error == "the server answered 500 Internal Server Error"


def test_json_is_stored_and_searched_after_decoding(shared, receiver):
    inner = json.dumps({"note": json.dumps({"Authorization": VALUE}), "path": quote(MARK, safe="").lower()})
    told = {"id": 17, "name": "a name", "debug": inner, "page": html(VALUE), "list": [{"ok": True, MARK: 1}]}
    receiver.answers.append((200, json.dumps(told).encode(), {"Content_Type": "application/json"}))
    delivered = shared.call(f"{receiver.url}/next", secret_headers={"X-Token": "token"})
    assert delivered.result["body"] == {
        "id": 17,
        "name": "a name",
        "debug": "***",
        "page": "***",
        "list": [{"ok": True, "***": 1}],
    }


ODD = "tok'en/with\"and\\1234"


class Repeating(socketserver.BaseRequestHandler):
    """Answers with a line that is not HTTP, and repeats the request."""

    def handle(self):
        heard = self.request.recv(65_536)
        self.request.sendall(b"HTTP/1.1 " + heard.partition(b"X-Token: ")[2].partition(b"\r\n")[0] + b"\r\n\r\n")


def test_library_messages_are_not_stored(secrets):
    with hostile_server(Repeating) as server:
        for value in (VALUE, ODD, "tok'en1234"):
            secrets.put("token", value, "http://127.0.0.1")
            with secrets.http_sender(OLD) as caller:
                delivered = caller.call(f"http://{server.url}/", secret_headers={"X-Token": "token"})
            assert delivered.outcome is Outcome.FAILED
            what = "it closed the connection, or what it sent is not HTTP"
            assert delivered.error == f"connection lost to http://{server.url}: {what}"


def test_redaction_runs_in_a_thread_within_the_timeout(shared, receiver, monkeypatch):
    """Other requests proceed meanwhile, and the timeout of the request includes the redaction."""
    begun, goes_on, looked_at = threading.Event(), threading.Event(), Redactor.json

    def slowly(self, value):
        begun.set()
        assert goes_on.wait(SOON)
        return looked_at(self, value)

    monkeypatch.setattr(Redactor, "json", slowly)
    carried = {"X-Token": "token"}
    first = shared.deliver(f"{receiver.url}/ok", key="first", secret_headers=carried, timeout_seconds=600)
    assert begun.wait(SOON)
    other = shared.deliver(f"{receiver.url}/next", key="other", method="HEAD")
    receiver.answers.append((204, b"", {}))
    late = shared.deliver(f"{receiver.url}/ok", key="late", secret_headers=carried, timeout_seconds=0.2)
    ended = dict(shared.report() for _ in range(2))
    assert (ended[other].outcome, ended[late].outcome) == (Outcome.COMPLETED, Outcome.TIMED_OUT)
    goes_on.set()
    assert shared.report()[0] is first


def test_missing_secret_fails_the_delivery(shared, receiver):
    delivered = shared.call(f"{receiver.url}/ok", secret_headers={"X-Token": "gone"})
    assert (delivered.outcome, delivered.is_final) == (Outcome.DELIVERY_FAILED, True)
    assert delivered.error == "secret gone does not exist any more; the header X-Token needs it, so nothing was sent"
    assert receiver.requests == []


@pytest.mark.parametrize("host", ["api.example.com", "127.0.0.1:1", "127.0.0.2", "*.127.example"])
def test_secret_is_not_sent_to_another_host(secrets, receiver, host):
    secrets.put("token", VALUE, host)
    with secrets.http_sender(OLD) as caller:
        assignment = caller.deliver(f"{receiver.url}/ok", secret_headers={"X-Token": "token"})
        _, delivered = caller.report()
    assert (delivered.outcome, delivered.is_final) == (Outcome.DELIVERY_FAILED, True)
    assert f"secret token is bound to {host}, not to this host; the header" in delivered.error
    assert receiver.requests == []
    assert MARK not in everything(assignment, delivered)


def test_secret_is_sent_over_plain_http_only_if_its_binding_allows_it(secrets, receiver):
    secrets.put("token", VALUE, "127.0.0.1")
    with secrets.http_sender(OLD) as caller:
        delivered = caller.call(f"{receiver.url}/ok", secret_headers={"X-Token": "token"})
    assert (delivered.outcome, delivered.is_final) == (Outcome.DELIVERY_FAILED, True)
    assert f"for plain http, set it again with the host {receiver.url}" in delivered.error
    assert receiver.requests == []


def test_keys_can_be_rotated(secrets, receiver):
    """The old key encrypts; then the new one encrypts and both decrypt; then the old one is removed."""
    secrets.put("old", f"{VALUE}-old", "http://127.0.0.1", keys=(OLD,))
    secrets.put("new", f"{VALUE}-new", "http://127.0.0.1", keys=(NEW, OLD))
    with secrets.http_sender(NEW, OLD) as caller:
        delivered = caller.call(f"{receiver.url}/ok", secret_headers={"X-Old": "old", "X-New": "new"})
    assert delivered.outcome is Outcome.COMPLETED
    assert [receiver.requests[0][2][name] for name in ("X-Old", "X-New")] == [f"{VALUE}-old", f"{VALUE}-new"]
    with secrets.http_sender(NEW) as caller:
        assert caller.call(f"{receiver.url}/ok", secret_headers={"X-New": "new"}).outcome is Outcome.COMPLETED
        delivered = caller.call(f"{receiver.url}/ok", key="two", secret_headers={"X-Old": "old"})
    assert delivered.error.startswith("no key in the secret_key of this node decrypts secret old; the header X-Old")
    assert delivered.is_final
    assert len(receiver.requests) == 2


def test_node_without_a_key_says_so(secrets, receiver):
    secrets.put("token", VALUE, "http://127.0.0.1")
    with secrets.http_sender() as caller:
        delivered = caller.call(f"{receiver.url}/ok", secret_headers={"X-Token": "token"})
    assert delivered.error.startswith("this node has no secret_key to decrypt secret token with; the header X-Token")
    with http_sender() as caller:
        delivered = caller.call(f"{receiver.url}/ok", secret_headers={"X-Token": "token"})
    assert "has no store" in delivered.error
    assert receiver.requests == []


def test_moved_secret_row_cannot_be_decrypted(secrets, receiver):
    """A writer to the store cannot move a secret to another tenant or name."""
    theirs = secrets.put("token", VALUE, "http://127.0.0.1", tenant="other")
    mine = secrets.put("mine", VALUE, "http://127.0.0.1")
    moved = (theirs, replace(mine, name="renamed"), replace(mine, name="mended", sealed=mine.sealed[:-8] + "AAAAAAA="))
    for secret in moved:
        secrets.store.put_secret(TENANT, secret, most=99)
    with secrets.http_sender(OLD) as caller:
        for secret in moved:
            delivered = caller.call(f"{receiver.url}/ok", key=secret.name, secret_headers={"X-Token": secret.name})
            assert f"decrypts secret {secret.name};" in delivered.error
    assert receiver.requests == []


def test_unavailable_store_leaves_the_retry_policy_in_charge(receiver, tmp_path):
    path = tmp_path / "noonmark.db"
    path.write_bytes(b"no database" * 1_000)
    with http_sender(secrets=SecretResolver(SqliteStore(path, SystemClock().micros), seal(OLD))) as caller:
        delivered = caller.call(f"{receiver.url}/ok", secret_headers={"X-Token": "token"})
    assert (delivered.outcome, delivered.is_final) == (Outcome.DELIVERY_FAILED, False)
    assert delivered.error.startswith("its keys and secrets could not be read: ")
    assert receiver.requests == []


def test_repr_of_a_request_hides_headers_and_body():
    carried = Request(method="POST", url=parse_url("https://a.example"), headers={"X-Token": VALUE}, body=MARK.encode())
    assert MARK not in repr(carried)


@pytest.mark.parametrize("value", ["12345678", "x" * 8192, '"\\ {{payload.x}}é'])
def test_encryption_round_trips_and_is_randomized(value):
    one = seal(OLD)
    sealed = [one.close("acme", "token", value) for _ in range(2)]
    assert sealed[0] != sealed[1]
    assert [one.open("acme", "token", text) for text in sealed] == [value, value]
    assert all(value not in text for text in sealed)


@pytest.mark.parametrize("place", [("acme", "other"), ("other", "token"), ("acmet", "oken"), ('acme", "token', "")])
def test_encrypted_value_is_bound_to_its_tenant_and_name(place):
    assert seal(OLD).open(*place, seal(OLD).close("acme", "token", VALUE)) is None


@pytest.mark.parametrize("text", ["", "v1:", "v1:AAAA", "v1:*", "v2:{}", "{}", "v1:{}AAAA"])
def test_invalid_ciphertext_is_rejected(text):
    sealed = seal(OLD).close("acme", "token", VALUE).removeprefix("v1:")
    assert seal(OLD).open("acme", "token", text.format(sealed)) is None


def test_keys_are_separated_by_commas():
    made = fresh_key()
    assert [len(key) for key in read_keys(f"{made}, {OLD} ,{NEW}")] == [32, 32, 32]
    assert made != fresh_key()
    assert json.dumps(made) == f'"{made}"'


@pytest.mark.parametrize("text", ["", "short", ",", f"{OLD},", "x" * 44, "é" * 44, None, 7, ",".join([OLD] * 11)])
def test_error_about_an_invalid_key_does_not_repeat_it(text):
    with pytest.raises(ValueError, match="must be 1 to 10 keys of 32 bytes in Base64") as refused:
        read_keys(text)
    assert OLD not in str(refused.value)
