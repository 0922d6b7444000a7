"""Secrets of a real server at debug level: twenty marks go in, and none appears where it could be read."""

import json
from base64 import b64encode
from contextlib import closing

import pytest

from noonmark import Scheduler
from noonmark.client import Client
from noonmark.core.signatures import KeySettings
from noonmark.core.targets import parse_target
from noonmark.core.targets.egress import EgressPolicy
from noonmark.operations.secrets import warn_of_unreadable
from noonmark.operations.service import Service
from noonmark.server.config import load
from noonmark.targets.http.settings import HttpTargetSettings
from noonmark.wiring import make_seal
from tests.cli.runner import call
from tests.embedded.waiting import eventually
from tests.service.server import serving
from tests.targets.http.receiver import http_receiver

NEVER = {"type": "cron", "expression": "0 0 1 1 *"}
FUNCTIONS = """
def log_in(context):
    raise RuntimeError(f"refused: password={context.payload['password']} and Bearer {context.payload['bearer']}")
"""


def mark(number):
    return f"mArK-{number:02}-7f3a9c1e5d"


SIGNING, BEARER, BASIC, API_KEY, HOOK, ROTATED = (mark(number) for number in range(6))
HEADER, HEADER_KEY, BODY, QUERY, PATH, PAYLOAD = (mark(number) for number in range(6, 12))
URL, EVENT, PASSWORD, THROWN, TOKEN, GIVEN = (mark(number) for number in range(12, 18))
SEALING, SEALING_OLD = (b64encode(f"{mark(number):*<32}".encode()).decode() for number in (18, 19))
SEEDED = [
    *(SIGNING, BEARER, BASIC, API_KEY, HOOK, ROTATED, HEADER, HEADER_KEY, BODY, QUERY, PATH, PAYLOAD, URL, EVENT),
    *(PASSWORD, THROWN, TOKEN, GIVEN, SEALING, SEALING_OLD),
]
SEALED = {"bearer": f"Bearer {BEARER}", "basic": f"Basic {BASIC}", "api-key": API_KEY, "hook": HOOK, "rotated": ROTATED}
KEYS = {"NOONMARK_SIGNING_KEY": SIGNING, "NOONMARK_SECRET_KEY": f"{SEALING},{SEALING_OLD}"}


class Told:
    """A server, and everything that it has said of what went wrong."""

    def __init__(self, server, receiver):
        self.server, self.receiver = server, receiver
        self.errors = []

    def ask(self, method, path, body=None, *, status=None, **headers):
        answer = self.server.ask(method, path, body, **headers)
        if answer.status >= 400:
            self.errors.append(answer.text)
        assert status is None or answer.status == status, answer.text
        return answer.json

    def create(self, target, *, status=201, **fields):
        return self.ask("POST", "/schedules", {"trigger": NEVER, "target": target, **fields}, status=status)

    def run(self, schedule, **body):
        """The occurrence, once it has ended, with its last run and why it stands where it does."""
        occurrence_id = self.ask("POST", f"/schedules/{schedule['schedule_id']}/run", body, status=202)["occurrence_id"]
        ended = eventually(
            lambda: (
                (found := self.ask("GET", f"/occurrences/{occurrence_id}"))["completed_at_utc"] is not None and found
            )
        )
        [run] = self.ask("GET", f"/occurrences/{occurrence_id}/runs")["runs"]
        return ended, run, self.ask("GET", f"/occurrences/{occurrence_id}/explain")


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "work.py").write_text(FUNCTIONS)
    options = (
        "--public-url",
        "http://schedules.example.com",
        "--allow-hosts",
        "127.0.0.1",
        "--log-level",
        "debug",
        "--function",
        "login=work:log_in",
    )
    with http_receiver() as receiver, serving(folder, "--store", "sqlite:///n.db", *options, **KEYS) as server:
        told = Told(server, receiver)
        hosts = [f"http://127.0.0.1:{receiver.port}"]
        for name, value in SEALED.items():
            told.ask("PUT", f"/secrets/{name}", {"value": value, "hosts": hosts}, status=200)
        yield told


@pytest.fixture(scope="module")
def worked(told):
    """Everything that a secret could get into has happened: deliveries that went well and badly, and refusals."""
    _deliver(told)
    _be_refused(told)
    return told


def _deliver(told):
    url = told.receiver.url
    carried = {"X-Token": "bearer", "X-Basic": "basic", "X-Key": "api-key", "X-Hook": "hook", "X-Rotated": "rotated"}
    plain = {
        "headers": {"Authorization": f"Bearer {HEADER}", "X-Api-Key": HEADER_KEY},
        "body": {"password": BODY, "who": "{{payload.secret}}"},
    }
    told.results = {
        path: told.run(
            told.create({"target_kind": "http", "url": f"{url}/{path}/{PATH}?token={QUERY}", "secret_headers": carried})
            if path != "drop"
            else told.create({"target_kind": "http", "url": f"{url}/drop/{PATH}?token={QUERY}", **plain}),
            payload={"secret": PAYLOAD},
        )
        for path in ("ok", "echo", "echo/fail", "echo_all", "drop")
    }
    login = told.create({"target_kind": "function", "function": "login"})
    told.run(login, payload={"password": PASSWORD, "bearer": THROWN})
    told.ask("POST", "/events", {"event_type": "seen", "payload": {"secret": EVENT}}, status=202)


def _be_refused(told):
    http = {"target_kind": "http", "url": "https://api.example.com"}
    for wrong in (
        {**http, "url": f"https://me:{URL}@api.example.com"},
        {**http, "url": f"ftp://me:{URL}@api.example.com"},
        {**http, "url": f"https://me:{URL}@api.example.com:99999/"},
        {**http, "headers": f"Authorization: Bearer {HEADER}"},
        {**http, "headers": {"Authorization": f"Bearer {HEADER}\n"}},
        {**http, "secret_headers": {"Authorization": f"Bearer {BEARER}"}},
        {**http, "secret_headers": {"Authorization": API_KEY}},
        {**http, "secret_headers": f"Authorization: {API_KEY}"},
        {**http, "secret_headers": {"Authorization": "bearer"}},
        {**http, "secret_headers": {API_KEY: "Authorization"}},
        {**http, "headers": {f"Authorization: Bearer {HEADER}": "x"}},
        {**http, "headers": {HEADER_KEY: "{{payload"}},
        {**http, "headers": {"X-Key": f"{{{{ {HEADER_KEY} }}}}"}},
        {**http, "url": f"https://api.example.com:{URL}/"},
        {**http, "url": f"https://api.example.com/{{{{{URL}}}}}"},
        {**http, "url": f"https://{URL}..example.com/"},
    ):
        told.create(wrong, status=400)
    for wrong in ({"value": f"{GIVEN}\n", "hosts": ["a.example"]}, {"value": GIVEN, "hosts": [GIVEN + "/"]}):
        told.ask("PUT", "/secrets/given", wrong, status=400)
    told.ask("PUT", "/secrets/given", {"value": GIVEN, "hosts": ["a.example"], "note": "x"}, status=400)
    for wrong in ({GIVEN: "value", "hosts": ["a.example"]}, {"value": GIVEN, "hosts": GIVEN}, {"value": [GIVEN]}):
        told.ask("PUT", "/secrets/given", wrong, status=400)
    told.ask("PUT", "/secrets/given", {GIVEN: float("nan")}, status=400)
    told.ask("PUT", f"/secrets/given?value={GIVEN}", {"hosts": ["a.example"]}, status=400)
    told.ask("PUT", f"/secrets/{GIVEN}%20", {"value": "given", "hosts": ["a.example"]}, status=400)
    told.ask("GET", f"/schedules?token={TOKEN}", status=400)
    told.ask("GET", "/schedules", Authorization=f"Bearer {TOKEN}", status=200)
    occurrence_id = next(iter(told.results.values()))[0]["occurrence_id"]
    told.ask("POST", f"/occurrences/{occurrence_id}/complete", {"token": TOKEN}, status=403)
    for params in ({"name": "given", "value": f"{GIVEN}\n", "hosts": ["a.example"]}, {GIVEN: float("nan")}):
        call = {"jsonrpc": "2.0", "id": 1, "method": "secret/set", "params": params}
        told.errors.append(json.dumps(told.ask("POST", "/rpc", call)))


def found(text):
    """The marks in a text."""
    return [one for one in SEEDED if one in text]


def test_there_are_twenty_marks(worked):
    assert len(set(SEEDED)) == 20
    sent = str(worked.receiver.requests)
    carried = (BEARER, BASIC, API_KEY, HOOK, ROTATED, HEADER, HEADER_KEY, BODY, QUERY, PATH, PAYLOAD)
    assert all(one in sent for one in carried), "every secret reached the receiver that it is for"


def test_no_mark_is_in_the_log(worked):
    log = worked.server.log
    for level in ("debug", "info", "error"):
        assert f'"level": "{level}"' in log
    assert "password=***" in log, "what the function raised is told, and masked"
    assert "Traceback" in log
    assert found(log) == []
    tokens = [headers["Noonmark-Callback-Token"] for _, _, headers, _ in worked.receiver.requests]
    assert [one for one in tokens if one in log] == []
    assert found(worked.server.printed) == []


def test_no_mark_is_in_the_metrics_or_in_error_answers(worked):
    metrics = worked.server.get("/metrics").text
    assert "noonmark" in metrics
    assert found(metrics) == []
    assert len(worked.errors) == 29
    assert found("".join(worked.errors)) == []


def test_no_mark_is_in_stored_answers(worked):
    for path in ("ok", "echo", "echo/fail", "echo_all"):
        occurrence, run, explanation = worked.results[path]
        target = occurrence.pop("target_snapshot")
        assert found(json.dumps([occurrence | {"payload": None}, run, explanation])) == [], path
        assert target["secret_headers"]["X-Token"] == "bearer"
        assert ("***" in json.dumps(run)) is (path != "ok")


def test_a_sealed_secret_cannot_be_read_back(worked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for variable, key in KEYS.items():
        monkeypatch.setenv(variable, key)
    place = ("--server", worked.server.url)
    shown = [
        worked.server.get("/secrets").text,
        worked.server.get("/audit").text,
        worked.server.get("/openapi.json").text,
        worked.server.ask("POST", "/rpc", {"jsonrpc": "2.0", "id": 1, "method": "secret/list", "params": {}}).text,
        worked.server.ask("PUT", "/secrets/extra", {"value": API_KEY, "hosts": ["a.example"]}).text,
        worked.server.ask("DELETE", "/secrets/extra").text,
        command("secret", "list", *place),
        command("secret", "list", *place, "--json"),
        command("audit", "list", *place),
        command("config"),
        command("config", "--json"),
    ]
    with Client(worked.server.url) as client:
        shown.append(repr(client.secrets()))
    assert [found(one) for one in shown] == [[]] * 12
    listed = json.loads(shown[0])["secrets"]
    assert [set(one) for one in listed] == [{"name", "hosts", "programs", "created_at_utc", "updated_at_utc"}] * 5
    assert all(name in shown[6] for name in SEALED)
    assert json.loads(shown[10])["settings"]["secret_key"] == {
        "value": "***",
        "source": "environment NOONMARK_SECRET_KEY",
    }


def test_no_byte_on_disk_has_a_sealed_secret(worked):
    data = b"".join(one.read_bytes() for one in worked.server.folder.glob("n.db*") if one.is_file())
    assert b"api-key" in data
    assert [one for one in SEALED.values() if one.encode() in data or one.split()[-1].encode() in data] == []
    assert SEALING.encode() not in data


def test_no_answer_shows_a_secret():
    loaded = load({}, KEYS)
    target = parse_target(
        {
            "target_kind": "http",
            "url": f"https://api.example.com/{PATH}?token={QUERY}",
            "headers": {"Authorization": HEADER},
            "body": {"password": BODY},
        }
    )
    shown = [repr(loaded), repr(loaded.settings), str(loaded.to_document()), repr(target)]
    shown.append(
        repr(HttpTargetSettings(egress=EgressPolicy(), keys=KeySettings(signing_key=SIGNING, secret_key=SIGNING)))
    )
    assert found("".join(shown)) == []


def test_a_secret_in_use_can_be_deleted_and_runs_fail_with_a_reason(told):
    told.ask("PUT", "/secrets/passing", {"value": GIVEN, "hosts": ["http://127.0.0.1"]}, status=200)
    target = {"target_kind": "http", "url": told.receiver.url, "secret_headers": {"X-Token": "passing"}}
    schedule = told.create(target, retry_policy={"max_attempts": 3, "backoff_seconds": 0.01})
    told.ask("DELETE", "/secrets/passing", status=200)
    ended, run, explanation = told.run(schedule)
    assert (ended["phase"], run["attempt"]) == ("delivery_failed", 1)
    assert run["error"] == "secret passing does not exist any more; the header X-Token needs it, so nothing was sent"
    assert "secret passing does not exist any more; the header X-Token needs it" in explanation["summary"]


def take_over(told, name):
    """An occurrence whose receiver has taken it over, with a secret of that name, and its token."""
    target = {"target_kind": "http", "url": f"{told.receiver.url}/take_over", "secret_headers": {"X-Token": name}}
    schedule = told.create(target)
    occurrence_id = told.ask("POST", f"/schedules/{schedule['schedule_id']}/run", {}, status=202)["occurrence_id"]
    eventually(lambda: told.ask("GET", f"/occurrences/{occurrence_id}")["phase"] == "awaiting_completion")
    return schedule["schedule_id"], occurrence_id, told.receiver.requests[-1][2]["Noonmark-Callback-Token"]


def tell(told, one, verb, **said):
    """What is kept of what a receiver said: the result and the error."""
    told.ask("POST", f"/occurrences/{one}/{verb}", said, status=200)
    [run] = told.ask("GET", f"/occurrences/{one}/runs")["runs"]
    return run["result"], run["error"]


def test_a_later_result_does_not_repeat_a_secret(told):
    for verb, said, kept in (
        ("complete", {"result": {"with": [f"Bearer {BEARER}"]}}, ({"with": ["***"]}, None)),
        ("fail", {"error": f"no {BEARER}"}, (None, "***")),
    ):
        _, one, token = take_over(told, "bearer")
        assert tell(told, one, verb, token=token, **said) == kept


NOT_KEPT = "not kept: a secret of this request has changed since it was sent"


@pytest.mark.parametrize("meanwhile", ["changed", "deleted", "edited", "edited and changed"])
def test_a_later_result_does_not_store_a_replaced_secret(told, meanwhile):
    hosts = ["http://127.0.0.1"]
    for verb, said in (("complete", {"result": {"with": GIVEN}}), ("fail", {"error": f"no {GIVEN}"})):
        told.ask("PUT", "/secrets/passing", {"value": GIVEN, "hosts": hosts}, status=200)
        schedule_id, one, token = take_over(told, "passing")
        if "edited" in meanwhile:
            target = {"target_kind": "http", "url": told.receiver.url}
            told.ask("PATCH", f"/schedules/{schedule_id}", {"target": target}, status=200)
        if "changed" in meanwhile:
            told.ask("PUT", "/secrets/passing", {"value": ROTATED, "hosts": hosts}, status=200)
        if meanwhile == "deleted":
            told.ask("DELETE", "/secrets/passing", status=200)
        kept = tell(told, one, verb, token=token, **said)
        assert GIVEN not in str(kept)
        if meanwhile != "edited":  # a secret that was set just before the request may count as changed, too
            assert NOT_KEPT in kept
        if meanwhile != "deleted":
            told.ask("DELETE", "/secrets/passing", status=200)


def command(*words):
    done = call(*words)
    assert done.code == 0, done
    return done.out + done.err


def test_startup_logs_secrets_that_cannot_be_decrypted(tmp_path):
    url, named = f"sqlite:///{tmp_path / 'noonmark.db'}", "because no key in secret_key opens them: "
    for key, names in ((SEALING, ["known"]), (SEALING_OLD, [f"lost-{number:02}" for number in range(22)])):
        with closing(Scheduler(url, secret_key=key)) as program:
            for name in names:
                program.set_secret(name, HEADER, hosts=["a.example"])
    with serving(tmp_path, "--store", url, "--no-worker", NOONMARK_SECRET_KEY=SEALING) as server:
        [line] = [line for line in server.log.splitlines() if "does not send requests" in line]
    assert f"{named}lost-00, lost-01," in line
    assert "lost-19 and 2 more" in line
    assert not any(word in line for word in ("known", "lost-20", HEADER, SEALING))


def test_startup_logs_them_without_a_key_too_and_nothing_otherwise(caplog):
    with closing(Scheduler(secret_key=SEALING)) as program:
        program.set_secret("token", HEADER, hosts=["a.example"])
        for seal in (make_seal(SEALING), None):
            service = Service(store=program._store, lookahead=0, fresh_id=str, node="n", seal=seal)
            warn_of_unreadable(service, "default")
    [told] = [record.getMessage() for record in caplog.records]
    assert told == "this node does not send requests that need these secrets, because there is no secret_key: token"
