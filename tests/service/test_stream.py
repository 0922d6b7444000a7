"""The stream of changes of a real server: what its driver does, and its end."""

import signal

from tests.cli.terminal import PATIENCE
from tests.server.event_stream import streaming
from tests.service.server import serving

WAITS = {"target_kind": "command", "argv": ["sh", "-c", "echo begun; exec sleep 3600"]}
EMITS = {"target_kind": "event", "event_type": "done"}


def test_it_tells_what_the_driver_does_and_ends_with_the_server(tmp_path):
    # Runs may take an hour to finish when the server stops; streams may not.
    with serving(tmp_path, "--grace", "3600") as server, streaming(server.url) as events:
        answer = server.ask(
            "POST", "/schedules", {"trigger": {"type": "cron", "expression": "@yearly"}, "target": EMITS}
        )
        schedule_id = answer.json["schedule_id"]
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


def test_it_tells_of_new_output_of_a_run_that_goes_on(tmp_path):
    with serving(tmp_path, "--allow-commands", "sh") as server, streaming(server.url) as events:
        answer = server.ask(
            "POST", "/schedules", {"trigger": {"type": "cron", "expression": "@yearly"}, "target": WAITS}
        )
        schedule_id = answer.json["schedule_id"]
        occurrence_id = server.ask("POST", f"/schedules/{schedule_id}/run").json["occurrence_id"]

        def output():
            runs = server.get(f"/occurrences/{occurrence_id}/runs").json["runs"]
            return "".join(server.get(f"/runs/{one['run_id']}/output").text for one in runs)

        while "begun" not in output():
            assert events.next() is not None
        assert server.ask("POST", f"/occurrences/{occurrence_id}/cancel").status == 200
