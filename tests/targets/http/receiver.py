"""A real HTTP server on the loopback interface, and a runner that sends requests to it."""

import json
import socketserver
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from queue import Queue

from noonmark.clocks import SystemClock
from noonmark.core.ids import manual
from noonmark.core.targets import parse_target
from noonmark.core.targets.egress import Guard, egress_policy
from noonmark.core.targets.http import HttpTarget
from noonmark.ports.target import Assignment
from noonmark.targets.http.runner import HttpRunner
from noonmark.targets.http.settings import HttpTargetSettings
from noonmark.testing import factories
from tests.embedded.waiting import SOON, eventually

now = SystemClock().micros


class Handler(BaseHTTPRequestHandler):
    """Selects the response by the path."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        self.server.receiver.requests.append((self.command, self.path, dict(self.headers), body))
        try:
            getattr(self, self.path.strip("/").partition("/")[0].partition("?")[0], self.ok)()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET  # noqa: N815 - of the library

    def log_message(self, *_):
        pass

    def answer(self, status=200, body=b"", **headers):
        self.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            if value is not None:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def ok(self):
        self.answer(body=b'{"done": true}', Content_Type="application/json")

    def next(self):
        status, body, headers = self.server.receiver.answers.pop(0)
        self.answer(status, body, **headers)

    def echo(self):
        """Repeat a request header everywhere in the response."""
        value = self.headers["X-Token"]
        told = json.dumps({"said": value, value: [value.split()[-1], f"<{value}>"], "n": 7}).encode()
        self.answer(
            500 if "fail" in self.path else 200, told, Content_Type="application/json", X_Request_Id=value, ETag=value
        )

    def echo_all(self):
        """Repeat it in a text that is too long, so that it is cut in the middle."""
        value = self.headers["X-Token"]
        self.answer(302, f"{value}|".encode() * 10_000, Location=f"http://a.example/?t={value}", Content_Type="text/x")

    def mirror(self):
        """Return all request headers; one that the path names also in response headers."""
        told = json.dumps(dict(self.headers)).encode()
        value = self.headers[self.path.rpartition("/")[2]]
        self.answer(302 if value else 200, told, Content_Type="application/json", Location=value, X_Request_Id=value)

    def take_over(self):
        self.answer(202, Noonmark_Callback="accepted")

    def tell_first(self):
        """Report the end before accepting the work."""
        self.server.receiver.told.append(self.server.receiver.tell(self.headers))
        self.take_over()

    def redirect(self):
        status, _, left = self.path.removeprefix("/redirect/").partition("/")
        where = f"redirect/{status}/{int(left) - 1}" if left else "inside"
        self.answer(int(status), Location=f"{self.server.receiver.url}/{where}")

    def silent(self):
        self.server.receiver.closing.wait(SOON)
        self.close_connection = True

    def drop(self):
        self.close_connection = True
        self.connection.close()

    def status(self):
        self.answer(int(self.path.split("/")[2]))

    def wait(self):
        assert self.server.receiver.opened.wait(SOON)
        self.ok()


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = allow_reuse_address = True
    request_queue_size = 256

    def handle_error(self, *_):
        """Ignore closed connections."""


class Receiver:
    """The server, and the requests it received."""

    def __init__(self, server):
        host, self.port = server.server_address
        self.url = f"http://{host}:{self.port}"
        self.reset()

    def reset(self):
        self.requests, self.answers, self.told = [], [], []
        self.tell = None
        self.closing, self.opened = threading.Event(), threading.Event()


@contextmanager
def http_receiver(host="127.0.0.1", port=0):
    with Server((host, port), Handler) as server:
        server.receiver = Receiver(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server.receiver
        finally:
            server.receiver.closing.set()
            server.receiver.opened.set()
            server.shutdown()


class Sender:
    """An HTTP runner, and its reports."""

    def __init__(self, guard=Guard.LOCAL, allow_hosts=(), resolve=None, limit=256, secrets=None, **options):
        settings = HttpTargetSettings(egress=egress_policy(guard, allow_hosts), resolve=resolve, **options)
        self.target = HttpRunner(settings, limit, secrets)
        self.reports = Queue()
        self.target.open(lambda *report: self.reports.put(report), now)

    def deliver(self, url, **options):
        """Deliver one request."""
        assignment = self.made(url, **options)
        self.target.deliver([assignment])
        return assignment

    def made(self, url, *, key="one", after=0, source="rest", payload=None, origin=None, declared=None, **document):
        """Make the assignment of a request, by URL or by a target that skips validation."""
        begins = now() + after
        target = url if isinstance(url, HttpTarget) else parse_target(request(url, **document))
        schedule = replace(factories.schedule(target=target, **declared or {}), source=source)
        occurrence = factories.occurrence(schedule, origin or manual(key), nominal=begins, attempt=1, payload=payload)
        return Assignment(occurrence, schedule, begins=begins)

    def report(self):
        """Return the next report."""
        return self.reports.get(timeout=SOON)

    def call(self, url, **options):
        """Deliver one request, and return the outcome."""
        assignment = self.deliver(url, **options)
        ended, delivered = self.report()
        assert ended is assignment
        return delivered


def request(url, **document):
    return {"target_kind": "http", "url": url, **document}


@contextmanager
def http_sender(**settings):
    caller = Sender(**settings)
    try:
        yield caller
    finally:
        caller.target.close()
        if (thread := caller.target._thread) is not None:
            thread.join(SOON)
            assert not thread.is_alive()


def arrived(receiver, count=1):
    """Wait for a number of requests."""
    return eventually(lambda: len(receiver.requests) >= count and receiver.requests)


def sent(receiver):
    """Return the only request received: method, path, headers, body as JSON."""
    ((method, path, headers, body),) = receiver.requests
    return method, path, headers, json.loads(body) if body else None
