"""Post an alert when a job fails, misses its time or is tried again: a schedule that listens, and a chat to post to."""

import json
import logging
import os
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from noonmark import CronTrigger, EventTrigger, Scheduler

os.chdir(tempfile.mkdtemp())  # yours would use a folder that stays
logging.getLogger("noonmark").setLevel(logging.ERROR)  # a run that fails is a warning; here one fails on purpose
posted = threading.Semaphore(0)


class Chat(BaseHTTPRequestHandler):
    """Stands for a chat, or a pager: prints what is posted."""

    def do_POST(self) -> None:
        """Take a message."""
        print("posted:", json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
        self.send_response(204)
        self.end_headers()
        posted.release()

    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""


def backup() -> None:
    """Fail, as things do."""
    raise OSError("no space left on device")


chat = HTTPServer(("127.0.0.1", 0), Chat)
threading.Thread(target=chat.serve_forever, daemon=True).start()

scheduler = Scheduler("sqlite:///jobs.db")
nightly = scheduler.schedule(
    backup, name="nightly backup", trigger=CronTrigger("0 2 * * *"), labels={"team": "data"}, retries=1
)
for event_type, text in {
    "occurrence.retrying": "{{event.payload.schedule_name}} is tried again after attempt {{event.payload.attempt}}",
    "occurrence.failed": "{{event.payload.schedule_name}} failed: {{event.payload.error}}",
    "occurrence.misfired": "{{event.payload.schedule_name}} missed {{event.payload.missed_count}} fires",
}.items():
    scheduler.schedule_http(
        f"http://127.0.0.1:{chat.server_port}/chat",
        name=f"tell of {event_type}",
        trigger=EventTrigger(event_type, {"labels.team": "data"}),
        body={"text": text},
        retries=5,
    )

with scheduler:
    scheduler.run_now(nightly, wait=False)
    for _ in range(2):
        posted.acquire(timeout=30)
    # To try an alert, emit what it listens for, with the fields that its filters and its message name.
    scheduler.emit("occurrence.misfired", {"schedule_name": "a try", "missed_count": 59, "labels": {"team": "data"}})
    posted.acquire(timeout=30)
chat.shutdown()

# Output:
# posted: nightly backup is tried again after attempt 1
# posted: nightly backup failed: OSError: no space left on device
# posted: a try missed 59 fires
