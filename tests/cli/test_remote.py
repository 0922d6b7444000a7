"""Commands on a real server, and without one."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.cli.documented import COMMANDS
from tests.cli.runner import Cli, call
from tests.cli.terminal import NOONMARK, in_pipe
from tests.cli.test_documented import check_documented
from tests.embedded.waiting import eventually
from tests.service.server import serving

NOBODY = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("server"), "--store", "sqlite:///noonmark.db") as server:
        yield server


@pytest.fixture(scope="module")
def cli(server):
    return Cli("--server", server.url)


@pytest.mark.parametrize("one", COMMANDS, ids=lambda one: one.does)
def test_documented_command_on_a_server(cli, one):
    check_documented(cli, one)


def test_a_server_reports_every_problem(cli):
    bad = ("schedule", "create", "--cron", "61 * * * *", "--function", "f", "--max-runs", "0")
    assert [line.split(":")[0] for line in cli.refused(2, *bad)] == ["trigger.expression", "max_runs"]
    assert [one["field"] for one in cli.problem(2, *bad)["problems"]] == ["trigger.expression", "max_runs"]
    assert cli.problem(3, "schedule", "status", "missing")["code"] == "not_found"
    cli.create("--every", "1h", "--id", "taken")
    assert cli.problem(4, "schedule", "create", "--every", "1h", "--function", "f", "--id", "taken")["status"] == 409


def test_check_asks_a_server_whether_a_live_node_serves_the_target(server, tmp_path):
    document = {"trigger": {"type": "once", "delay_seconds": 60}, "target": {"target_kind": "event", "event_type": "e"}}
    served, misspelt = tmp_path / "served.json", tmp_path / "misspelt.json"
    served.write_text(json.dumps(document))
    misspelt.write_text(json.dumps(document | {"target": {"target_kind": "function", "function": "repotr"}}))
    eventually(lambda: call("check", served, "--server", server.url, "--json").json["warnings"] == [])
    answer = call("check", misspelt, "--server", server.url)
    assert answer.code == 0
    assert "! no live node serves `function:repotr`" in answer.out


def test_check_says_what_a_server_would_refuse(server, tmp_path):
    file = tmp_path / "refused.json"
    command = {"target_kind": "command", "argv": ["true"], "env": {"LD_PRELOAD": "x"}}
    file.write_text(json.dumps({"trigger": {"type": "once", "delay_seconds": 60}, "target": command}))
    assert call("check", file).code == 0
    answer = call("check", file, "--server", server.url, "--json")
    assert (answer.code, answer.json["valid"]) == (2, False)
    [problem] = answer.json["problems"]
    assert (problem["field"], problem["code"]) == ("target.env.LD_PRELOAD", "not_allowed")


def test_worker_stop_and_start(cli):
    answer = cli("worker", "status")
    assert answer.startswith("The worker is running.\n")
    assert "None" not in answer
    assert cli.json("worker", "stop")["status"] == "stopped"
    assert cli("worker", "status").startswith("The worker is stopped.\n")
    assert cli.json("worker", "start")["status"] == "running"
    [node] = cli.json("node", "list")["nodes"]
    assert node["node"] in cli("node", "list")


def test_server_from_the_environment(server, cli, tmp_path):
    schedule = cli.create("--every", "1h")
    done = in_pipe(*NOONMARK, "schedule", "status", schedule, NOONMARK_SERVER=server.url)
    assert (done.returncode, done.stdout.splitlines()[0], done.stderr) == (0, schedule, "")
    # A store that is named goes before it: nothing is asked of the server.
    other = Cli("--store", f"sqlite:///{tmp_path / 'other.db'}")
    gone = other.create("--every", "1h")
    other.json("schedule", "delete", gone)
    store = ("--store", f"sqlite:///{tmp_path / 'other.db'}")
    done = in_pipe(*NOONMARK, "schedule", "list", *store, NOONMARK_SERVER=server.url)
    assert (done.returncode, done.stdout) == (0, "0 schedules\n")


SLOW = {"starlette", "noonmark.core.triggers", "noonmark.operations.schedules", "pydantic", "sqlalchemy"}
LOADED = "import sys; from noonmark.cli.app import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"


@pytest.mark.parametrize(("options", "spared"), [((), SLOW), (("--json",), {*SLOW, "noonmark.cli.render"})])
def test_a_list_loads_few_modules(server, options, spared):
    done = in_pipe(NOONMARK[0], "-c", LOADED, "schedule", "list", "--server", server.url, *options)
    loaded = set(done.stderr.split())
    assert "noonmark.client" in loaded
    assert loaded & spared == set()


def test_an_unreachable_server_is_an_error_with_advice(monkeypatch):
    done = call("schedule", "list", "--server", NOBODY)
    assert done.code == 6
    [line] = done.errors
    assert line.startswith(f"cannot connect to {NOBODY} ")
    assert "is `noonmark serve` running? Name another one with --server or NOONMARK_SERVER" in line
    assert line.endswith("--store sqlite:///noonmark.db")
    done = call("event", "emit", "paid", "--server", NOBODY, "--json")
    assert (done.code, done.problem["code"], done.problem["status"]) == (6, "unreachable", 503)
    assert call("schedule", "list", "--server", "nowhere").errors[0].startswith("--server: must be an address")
    monkeypatch.setenv("NOONMARK_SERVER", "ftp://nowhere")
    done = call("schedule", "list")
    assert (done.code, done.errors[0].split(":")[0]) == (2, "NOONMARK_SERVER")


class Other(BaseHTTPRequestHandler):
    """Another program, which answers everything with some JSON."""

    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"hello": "world"}')

    def log_message(self, *_):
        """Log nothing."""


@contextmanager
def answering(handler):
    """A server of another kind; its address."""
    with HTTPServer(("127.0.0.1", 0), handler) as other:
        thread = threading.Thread(target=other.serve_forever, args=[0.01])
        thread.start()
        try:
            yield f"http://127.0.0.1:{other.server_port}"
        finally:
            other.shutdown()
            thread.join()


class Failing(Other):
    """A server whose store does not answer."""

    def do_POST(self):
        problem = {"code": "store_unavailable", "detail": "the log has the cause under this request_id"}
        self.send_response(503)
        self.end_headers()
        self.wfile.write(json.dumps({**problem, "request_id": "0660a1"}).encode())


def test_an_error_of_the_server_has_the_request_id_that_its_log_has():
    with answering(Failing) as url:
        done = call("schedule", "list", "--server", url)
        assert done.code == 6
        assert done.errors == ["the log has the cause under this request_id", "the request_id is 0660a1"]
        assert call("schedule", "list", "--server", url, "--json").problem["request_id"] == "0660a1"


def test_a_request_that_a_server_refused_has_no_request_id(server):
    done = call("schedule", "status", "nowhere", "--server", server.url, "--json")
    assert (done.code, "request_id" in done.problem) == (3, False)
    assert len(call("schedule", "status", "nowhere", "--server", server.url).errors) == 1


class Stopping(Other):
    """A server whose worker waits for its runs."""

    def do_POST(self):
        status = {"state": "stopping", "running": False, "delivering": 2}
        answer = {"jsonrpc": "2.0", "id": 1, "result": {"status": "stopped", "worker_status": status}}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())


def test_a_worker_with_active_runs_has_not_stopped():
    with answering(Stopping) as url:
        first, *_ = call("worker", "status", "--server", url).out.splitlines()
    assert first == "The worker is stopping; runs that are still active on this node: 2."


def test_another_program_is_not_a_server():
    with answering(Other) as url:
        done = call("schedule", "list", "--server", url)
    assert (done.code, done.errors) == (1, [f"{url}/rpc did not answer as Noonmark does; is it another program?"])


@pytest.mark.parametrize(("place", "code"), [("/ui", 1), ("/nowhere", 3)])
def test_the_address_of_another_part_of_a_server_is_refused_with_that_of_the_server(cli, place, code):
    url = cli.connection[1]
    done = call("schedule", "list", "--server", f"{url}{place}")
    assert (done.code, done.errors[0]) == (code, f"{url}{place}/rpc is not part of the API; use {url}")


def test_errors_name_the_argument(cli):
    huge = ("--payload-json", '{"a": 99999999999999999999}')
    assert cli.problem(2, "event", "emit", "e", *huge)["field"] == "payload.a"


def test_errors_name_the_missing_option(cli):
    assert cli.refused(2, "secret", "set", "a") == [
        "--host: is required: a host that may receive it, such as api.example.com; or give --program"
    ]
    assert cli.refused(2, "event", "match", "--payload-json", "1") == [
        "--payload-json: needs a type: noonmark event match TYPE --payload-json .."
    ]


def test_event_types_to_match(cli):
    for kind in ("named.a", "named.b", "named.c"):
        cli("event", "emit", kind)
    last = ("--last", "5")
    for words in (["named.a"], ["--event", "named.a"], ["--event", "named.a", "--event", "named.b"]):
        answer = cli.json("event", "match", *words, *last)["events"]
        assert [one["event_type"] for one in answer] == [one for one in words[::-1] if not one.startswith("--")]
    both = cli.json("event", "match", "named.c", "--event", "named.a", *last)
    assert [one["event_type"] for one in both["events"]] == ["named.c", "named.a"]
    tried = cli.json("event", "match", "--event", "named.a", "--payload-json", "1")
    assert [(one["event_type"], one["payload"]) for one in tried["events"]] == [("named.a", 1)]
