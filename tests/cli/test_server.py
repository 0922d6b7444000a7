"""Commands that ask a real server: the same as on a store, and what becomes of them where none answers."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.cli.calling import Desk, call
from tests.cli.documented import COMMANDS
from tests.cli.terminal import NOONMARK, in_pipe
from tests.cli.test_documented import carry_out
from tests.service.server import serving

NOBODY = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("server"), "--store", "sqlite:///noonmark.db") as server:
        yield server


@pytest.fixture(scope="module")
def desk(server):
    return Desk("--server", server.url)


@pytest.mark.parametrize("one", COMMANDS, ids=lambda one: one.does)
def test_a_documented_command_on_a_server(desk, one):
    carry_out(desk, one)


def test_a_server_tells_of_everything_wrong(desk):
    bad = ("schedule", "create", "--cron", "61 * * * *", "--function", "f", "--max-runs", "0")
    assert [line.split(":")[0] for line in desk.refused(2, *bad)] == ["trigger.expression", "max_runs"]
    assert [one["field"] for one in desk.problem(2, *bad)["problems"]] == ["trigger.expression", "max_runs"]
    assert desk.problem(3, "schedule", "status", "missing")["code"] == "not_found"
    desk.create("--every", "1h", "--id", "taken")
    assert desk.problem(4, "schedule", "create", "--every", "1h", "--function", "f", "--id", "taken")["status"] == 409


def test_the_worker_of_a_server_is_stopped_and_started(desk):
    told = desk("worker", "status")
    assert told.startswith("The worker is running.\n")
    assert "None" not in told
    assert desk.json("worker", "stop")["status"] == "stopped"
    assert desk("worker", "status").startswith("The worker is stopped.\n")
    assert desk.json("worker", "start")["status"] == "running"
    [node] = desk.json("node", "list")["nodes"]
    assert node["node"] in desk("node", "list")


def test_a_server_is_named_by_a_variable(server, desk, tmp_path):
    made = desk.create("--every", "1h")
    done = in_pipe(*NOONMARK, "schedule", "status", made, NOONMARK_SERVER=server.url)
    assert (done.returncode, done.stdout.splitlines()[0], done.stderr) == (0, made, "")
    # A store that is named goes before it: nothing is asked of the server.
    other = Desk("--store", f"sqlite:///{tmp_path / 'other.db'}")
    gone = other.create("--every", "1h")
    other.json("schedule", "delete", gone)
    store = ("--store", f"sqlite:///{tmp_path / 'other.db'}")
    done = in_pipe(*NOONMARK, "schedule", "list", *store, NOONMARK_SERVER=server.url)
    assert (done.returncode, done.stdout) == (0, "0 schedules\n")


SLOW = {"alembic", "starlette", "noonmark.core.triggers", "noonmark.operations.schedules", "pydantic", "sqlalchemy"}
LOADED = "import sys; from noonmark.cli.app import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"


@pytest.mark.parametrize(("options", "spared"), [((), SLOW), (("--json",), {*SLOW, "rich"})])
def test_a_list_starts_without_what_only_a_server_needs(server, options, spared):
    done = in_pipe(NOONMARK[0], "-c", LOADED, "schedule", "list", "--server", server.url, *options)
    loaded = set(done.stderr.split())
    assert "noonmark.client" in loaded
    assert loaded & spared == set()


def test_no_server_is_an_error_that_says_what_to_do(monkeypatch):
    done = call("schedule", "list", "--server", NOBODY)
    assert done.code == 6
    [line] = done.complaints
    assert line.startswith(f"there is no server at {NOBODY} ")
    assert "Start a server with `noonmark serve`, name another one with --server or NOONMARK_SERVER" in line
    assert line.endswith("--store sqlite:///noonmark.db")
    done = call("event", "emit", "paid", "--server", NOBODY, "--json")
    assert (done.code, done.problem["code"], done.problem["status"]) == (6, "unreachable", 503)
    assert call("schedule", "list", "--server", "nowhere").complaints[0].startswith("--server: must be an address")
    monkeypatch.setenv("NOONMARK_SERVER", "ftp://nowhere")
    done = call("schedule", "list")
    assert (done.code, done.complaints[0].split(":")[0]) == (2, "NOONMARK_SERVER")


class Other(BaseHTTPRequestHandler):
    """Another program, that answers everything with some JSON."""

    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"hello": "world"}')

    def log_message(self, *_):
        """Nobody asks what it was asked."""


def test_another_program_is_told_from_a_server():
    with HTTPServer(("127.0.0.1", 0), Other) as other:
        thread = threading.Thread(target=other.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{other.server_port}"
        done = call("schedule", "list", "--server", url)
        thread.join()
    assert (done.code, done.complaints) == (1, [f"{url}/rpc did not answer as Noonmark does; is it another program?"])


def test_fields_have_the_names_of_arguments(desk):
    huge = ("--payload-json", '{"a": 99999999999999999999}')
    assert desk.problem(2, "event", "emit", "e", *huge)["field"] == "payload.a"


def test_what_is_missing_is_named(desk):
    assert desk.refused(2, "secret", "set", "a") == [
        "--host: is required: a host that may see it, such as api.example.com"
    ]
    assert desk.refused(2, "event", "match", "--payload-json", "1") == [
        "--payload-json: needs a type: noonmark event match TYPE --payload-json .."
    ]


def test_the_types_of_events_to_match_are_named_as_those_of_a_trigger(desk):
    for kind in ("named.a", "named.b", "named.c"):
        desk("event", "emit", kind)
    last = ("--last", "5")
    for words in (["named.a"], ["--event", "named.a"], ["--event", "named.a", "--event", "named.b"]):
        found = desk.json("event", "match", *words, *last)["events"]
        assert [one["event_type"] for one in found] == [one for one in words[::-1] if not one.startswith("--")]
    both = desk.json("event", "match", "named.c", "--event", "named.a", *last)
    assert [one["event_type"] for one in both["events"]] == ["named.c", "named.a"]
    tried = desk.json("event", "match", "--event", "named.a", "--payload-json", "1")
    assert [(one["event_type"], one["payload"]) for one in tried["events"]] == [("named.a", 1)]
