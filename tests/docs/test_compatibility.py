"""What the page on compatibility says of services, where no table of documented calls shows it."""

import pytest

from noonmark.telemetry.metrics import Metrics
from tests.cli.runner import Cli
from tests.server.live_server import GREET, serving
from tests.server.parity import Stage

WORKFLOW = {"workflow_id": "w", "version": 1, "user_id": "u", "cron_expr": "0 0 0 * * *"}
TASK = {"name": "n", "cron_expression": "0 9 * * 1", "task_query": "what is new?"}


@pytest.fixture(scope="module")
def server():
    with serving(metrics=Metrics()) as served:
        yield served


def made(server, path, body):
    answer = server.client.post(path, json=body)
    assert answer.is_success, answer.text
    return answer.json()["schedule_id"]


def test_the_cron_service(server):
    one = made(server, "/schedules/upsert", WORKFLOW)
    shown = server.client.get(f"/schedules/{one}").json()
    assert (shown["schedule"]["cron_expr"], len(shown["next_fire_times"])) == ("0 0 0 * * *", 5)
    assert all("T00:00:00" in fire for fire in shown["next_fire_times"])
    assert server.client.delete(f"/schedules/{one}").json()["message"]
    assert server.client.get(f"/schedules/{one}").status_code == 404
    assert server.client.get(f"/schedules/{one}?include_deleted=true").json()["phase"] == "deleted"
    assert server.client.get(f"/schedules/{one}/occurrences").status_code == 200
    assert server.client.get("/schedules/unknown/runs").json()["code"] == "not_found"
    counted = server.client.get("/metrics").text
    for name in ("schedules_due", "runs_emitted", "runs_skipped_overlap", "runs_failed_launch"):
        assert f"\nnoonmark_{name} " in counted


def test_the_agent_scheduler(server):
    once = {"type": "once", "delay_seconds": 0}
    answer = server.client.post("/schedules", json={"trigger": once, "target": GREET})
    schedule_id = answer.json()["schedule_id"]
    assert (answer.status_code, answer.headers["Location"]) == (201, f"/schedules/{schedule_id}")
    assert answer.headers["ETag"].startswith('"1-')
    [occurrence] = server.client.get(f"/schedules/{schedule_id}/occurrences").json()["occurrences"]
    server.client.post(f"/occurrences/{occurrence['occurrence_id']}/cancel")
    assert server.client.get(f"/schedules/{schedule_id}").json()["phase"] == "completed"


def test_the_task_scheduler(server):
    one = made(server, "/api/v1/schedules", TASK)
    assert server.client.get(f"/api/v1/schedules/{one}").json()["user_id"] == "local"
    assert server.client.get("/api/v1/schedules/no-uuid").status_code == 404
    policy = {"misfire_policy": "catch_up_one"}
    assert server.client.patch(f"/schedules/{one}", json=policy).json()["misfire_policy"]["type"] == "catch_up_one"
    assert server.client.get(f"/schedules/{one}/explain").json()["summary"]
    past = {"from": "2026-01-01T00:00:00Z", "to": "2026-02-01T00:00:00Z", "dry_run": True}
    assert server.client.post(f"/schedules/{one}/backfill", json=past).json()["count"] == 4
    assert server.client.post(f"/schedules/{one}/run").status_code == 202


def test_the_command_line_of_the_job_runtime(server, tmp_path):
    cli, busy = Cli("--server", server.url), Stage(server.service).busy()
    assert "in flight" in cli.refused(4, "schedule", "run-now", busy)[0]
    assert cli.json("schedule", "run-now", busy, "--overlap", "allow")["phase"] == "pending"
    (tmp_path / "manifest.json").write_text('{"name": "eval", "command": ["true"]}')
    [refused] = cli.refused(5, "schedule", "create", tmp_path, "--cron", "@daily")
    assert "--allow-bundles" in refused
    [refused] = cli.refused(2, "schedule", "delay", "--function", "f", "--at", "2020-01-01T00:00:00Z")
    assert "is in the past" in refused
