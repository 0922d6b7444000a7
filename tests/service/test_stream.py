"""The stream of changes of a real server: what its driver does, and its end."""

import signal

from tests.cli.terminal import PATIENCE
from tests.server.event_stream import streaming
from tests.service.server import serving

EMITS = {"target_kind": "event", "event_type": "done"}


def test_it_tells_what_the_driver_does_and_ends_with_the_server(tmp_path):
    # Runs may take an hour to finish when the server stops; streams may not.
    with serving(tmp_path, "--grace", "3600") as server, streaming(server.url) as events:
        made = server.ask("POST", "/schedules", {"trigger": {"type": "cron", "expression": "@yearly"}, "target": EMITS})
        schedule_id = made.json["schedule_id"]
        events.about(schedule_id, "schedules", "occurrences")
        server.ask("POST", f"/schedules/{schedule_id}/run")
        # The request itself is told of before the run is there; the driver tells of that.
        events.about(schedule_id, "occurrences", "runs")
        while not server.get(f"/schedules/{schedule_id}/runs").json["runs"]:
            events.next()
        server.process.send_signal(signal.SIGTERM)
        while events.next() is not None:
            pass
        assert server.process.wait(PATIENCE) == 0
