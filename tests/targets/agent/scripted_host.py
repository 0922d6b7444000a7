"""A remote agent host on the loopback interface, whose answers a test chooses."""

import json
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.embedded.waiting import SOON

ANSWER = {
    "text": "Done.",
    "usage": {
        "model": "house-1",
        "provider": "house",
        "input_tokens": 90,
        "output_tokens": 10,
        "model_calls": 2,
        "tool_calls": 1,
        "cost_usd": 0.001,
    },
}


class ScriptedHost:
    """What was asked, and what is answered: each turn takes the next answer, the last one is for all that follow."""

    def __init__(self, url):
        self.url, self.asked = url, []
        self.answers = [(200, ANSWER, {})]
        self.released = threading.Event()
        self.released.set()

    def requests(self, what):
        """The bodies of all requests of a kind."""
        return [json.loads(body) for path, _, body in self.asked if path.endswith(f"/{what}")]

    def answer(self, *answers):
        """Set the answers: each is a status, a document or bytes, and headers."""
        self.answers = [(*one, {})[:3] if len(one) == 2 else one for one in answers]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        host = self.server.host
        body = self.rfile.read(int(self.headers["Content-Length"]))
        host.asked.append((self.path, dict(self.headers), body))
        status, document, headers = 200, {"readiness": "ready"}, {}
        if self.path.endswith("/deliver"):
            assert host.released.wait(SOON)
            status, document, headers = host.answers.pop(0) if len(host.answers) > 1 else host.answers[0]
        if status is None:  # hang up
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        with suppress(BrokenPipeError, ConnectionResetError):  # nobody waits for it any more
            self.end_headers()
            self.wfile.write(document if isinstance(document, bytes) else json.dumps(document).encode())

    def log_message(self, *_):
        pass


@contextmanager
def hosting():
    """A host that answers for as long as the block lasts."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    host = server.host = ScriptedHost(f"http://127.0.0.1:{server.server_port}/agents")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield host
    finally:
        host.released.set()
        server.shutdown()
        thread.join(SOON)
        server.server_close()
