"""Post an alert when a schedule fails: a server, a receiver in place of a chat, and a schedule that listens."""

import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from noonmark.client import Client

posted = threading.Event()


class Chat(BaseHTTPRequestHandler):
    """Prints what is posted to /chat; there is nothing else here."""

    def do_POST(self) -> None:
        """Take a message."""
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        is_message = self.path == "/chat"
        self.send_response(200 if is_message else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()
        if is_message:
            print("posted:", json.loads(body)["text"])
            posted.set()

    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""


chat = HTTPServer(("127.0.0.1", 0), Chat)
threading.Thread(target=chat.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{chat.server_port}"

command = [sys.executable, "-m", "noonmark", "serve", "--port", "0", "--store", "memory://", "--log-level", "error"]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
    assert server.stdout is not None
    listens = re.search(r"listens on (\S+)", server.stdout.readline())
    assert listens is not None
    client = Client(listens[1])

    client.create(
        name="tell of failures",
        labels={"role": "alert"},
        trigger={
            "type": "event",
            "event_type": ["occurrence.failed", "occurrence.timed_out", "occurrence.delivery_failed"],
            "filters": {"labels.role": {"exists": False}},  # no alerts about alerts
        },
        target={
            "target_kind": "http",
            "url": f"{url}/chat",
            "body": {
                "text": "{{event.payload.schedule_name}} of {{event.payload.labels.team}} {{event.payload.phase}}"
            },
        },
    )
    backup = client.create(
        name="nightly backup",
        labels={"team": "data"},
        trigger={"type": "cron", "expression": "0 2 * * *"},
        target={"target_kind": "http", "url": f"{url}/nothing/here"},
    )
    client.run_now(backup.schedule_id)
    posted.wait(30)
    [event] = client.events()
    print(f"event: {event.event_type} from {event.source}, attempt {event.payload['attempt']}")
    client.close()
    server.terminate()
chat.shutdown()

# Output:
# posted: nightly backup of data failed
# event: occurrence.failed from noonmark, attempt 1
