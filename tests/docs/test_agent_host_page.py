"""The page about remote agent hosts: its example host listens, and a real server sends it turns."""

import threading
from http.server import ThreadingHTTPServer

from tests.docs.test_documents import FENCE, ROOT
from tests.embedded.waiting import SOON, eventually
from tests.service.server import serving

PAGE = ROOT / "docs" / "reference" / "agent-host.md"
TARGET = {
    "target_kind": "session",
    "type": "materialize_on_demand_session",
    "create": {"model": "house"},
    "action": {"type": "prompt", "prompt": "Check {{ schedule_name }}."},
}


def test_the_example_host_carries_out_turns(tmp_path, monkeypatch):
    [text] = [text for kind, text in FENCE.findall(PAGE.read_text("utf-8")) if kind == "py"]
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 32
    scope = {"__name__": "host"}
    exec(compile(text, PAGE.name, "exec"), scope)  # noqa: S102 - our own page
    monkeypatch.setattr(scope["Host"], "log_message", lambda *_: None)
    host = ThreadingHTTPServer(("127.0.0.1", 0), scope["Host"])
    thread = threading.Thread(target=host.serve_forever, args=(0.02,))
    thread.start()
    try:
        with serving(tmp_path, "--store", "memory://", "--agents", f"http://127.0.0.1:{host.server_port}/n") as server:
            monkeypatch.setenv("NOONMARK_KEY", server.get("/signing-key").json["signing_key"])
            schedule = {"name": "disks", "trigger": {"type": "once", "delay_seconds": 0}, "target": TARGET}
            created = server.ask("POST", "/schedules", schedule).json
            runs = f"/schedules/{created['schedule_id']}/runs"
            [run] = eventually(lambda: [one for one in server.get(runs).json["runs"] if one["outcome"]])
    finally:
        host.shutdown()
        thread.join(SOON)
        host.server_close()
    assert run["outcome"] == "completed", run
    assert run["result"]["text"] == f"{run['result']['session_id']} was told: Check disks."
    assert (run["usage"]["model"], run["usage"]["cost_usd"], run["usage"]["total_tokens"]) == ("house", 0.0004, 20)
    assert len(scope["ANSWERS"]) == 1
