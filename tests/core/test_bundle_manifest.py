"""The manifest of a bundle."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from noonmark.core.bundles.manifest import BUNDLE_LABEL, Resources, needs_of_manifest, parse_manifest
from noonmark.core.errors import InvalidBundle
from noonmark.core.instants import SECOND
from noonmark.core.policies.retry import RetryPolicy

NOW = datetime(2026, 5, 1, tzinfo=UTC)
SMALLEST: dict[str, Any] = {"name": "eval", "command": ["python", "job.py"]}
PERIODIC = {
    "enabled": True,
    "kind": "periodic",
    "crons": ["0 2 * * *"],
    "timezone": "America/New_York",
    "prohibit_overlap": True,
    "missed_policy": "skip",
    "catchup_limit": 10,
    "window": {"duration_ms": 3600000, "end_action": "cancel"},
}
UPLOADED = {
    "name": "dataset-uploaded",
    "enabled": True,
    "event_type": "file_uploaded",
    "filters": {"path": {"prefix": "/datasets/"}},
}


def test_the_smallest_manifest() -> None:
    manifest = parse_manifest(SMALLEST, now=NOW)
    assert (manifest.name, manifest.command, manifest.kind) == ("eval", ("python", "job.py"), "command")
    assert (manifest.schedules, manifest.services, manifest.timeout) == ((), (), None)
    assert manifest.retry == RetryPolicy()
    assert not manifest.resources.is_demanding
    assert manifest.document == SMALLEST


def test_a_full_manifest() -> None:
    manifest = parse_manifest(
        {
            "job_name": "eval",
            "version": "1",
            "description": "Evaluates.",
            "metadata": {"team": "ml"},
            "command": ["./run.sh"],
            "inputs": {"n": 1},
            "env": {"MODE": "fast"},
            "secret_env": {"TOKEN": "hub"},
            "resources": {"cpus": 1.5, "memory_mb": 64, "labels": {"gpu": "a100"}, "slots": 1},
            "retry": {"max_attempts": 3},
            "timeout_seconds": 60,
            "services": [
                {"http": "http://localhost:8080/health", "timeout_seconds": 2},
                {"tcp": "[::1]:5432", "name": "db"},
            ],
            "schedule": PERIODIC,
            "triggers": [UPLOADED, {"event_type": "tick"}, {"type": "event", "event_type": "tock"}],
        },
        now=NOW,
    )
    assert manifest.resources == Resources(cpus=1.5, memory_mb=64, slots=1, labels={"gpu": "a100"})
    assert manifest.resources.is_demanding
    assert (manifest.env, manifest.secret_env) == ({"MODE": "fast"}, {"TOKEN": "hub"})
    assert manifest.timeout == 60 * SECOND
    assert [(one.kind, one.timeout) for one in manifest.services] == [("http", 2 * SECOND), ("tcp", 5 * SECOND)]
    assert manifest.services[1].place == ("::1", 5432)
    ids = {one.place: one.schedule_id for one in manifest.schedules}
    assert ids == {
        "schedule": "eval.schedule",
        "triggers[0]": "eval.trigger.dataset-uploaded",
        "triggers[1]": "eval.trigger.2",
        "triggers[2]": "eval.trigger.3",
    }
    periodic = manifest.schedules[0].document
    assert periodic["trigger"] == {"type": "cron", "crons": ["0 2 * * *"], "timezone": "America/New_York"}
    needs = {"labels": {"gpu": "a100"}, "slots": 1}
    assert periodic["target"] == {"target_kind": "bundle", "bundle_id": "eval", **needs}
    assert periodic["labels"] == {BUNDLE_LABEL: "eval"}
    assert (periodic["overlap_policy"], periodic["misfire_policy"]) == ("skip", {"type": "skip"})
    assert periodic["window"] == {"duration_seconds": 3600.0, "end_action": "cancel"}


@pytest.mark.parametrize(
    ("schedule", "trigger"),
    [
        ({"kind": "delayed", "run_at": "2026-05-25T02:00:00Z"}, {"type": "once", "due_at_utc": "2026-05-25T02:00:00Z"}),
        ({"kind": "delayed", "run_at": "2020-05-25T02:00:00Z"}, {"type": "once", "due_at_utc": "2020-05-25T02:00:00Z"}),
        ({"kind": "delayed", "delay_ms": 1800000}, {"type": "once", "delay_seconds": 1800.0}),
        ({"kind": "resource_wait"}, {"type": "once", "delay_seconds": 0}),
        ({"auto_schedule": True}, {"type": "once", "delay_seconds": 0}),
        (
            {"timezone": "UTC", "trigger": {"type": "cron", "expression": "@daily"}},
            {"type": "cron", "expression": "@daily"},
        ),
        ({"cron": "@daily", "time_zone": "UTC"}, {"type": "cron", "expression": "@daily", "timezone": "UTC"}),
        ({"trigger": {"event_type": "a"}}, {"type": "event", "event_type": "a"}),
        ({"trigger": {"type": "interval", "every_seconds": 9}}, {"type": "interval", "every_seconds": 9}),
    ],
)
def test_a_schedule_is_written_as_in_job_manifests(schedule: dict[str, Any], trigger: dict[str, Any]) -> None:
    [managed] = parse_manifest({**SMALLEST, "schedule": schedule}, now=NOW).schedules
    assert managed.document["trigger"] == trigger


def test_how_a_run_waits_for_resources_is_part_of_its_target() -> None:
    schedule = {"kind": "resource_wait", "retry_interval_ms": 500, "max_wait_ms": 60_000, "labels": {"a": "b"}}
    [managed] = parse_manifest({**SMALLEST, "schedule": schedule}, now=NOW, bundle_id="other").schedules
    waits = {"retry_seconds": 0.5, "max_wait_seconds": 60.0}
    assert managed.document["target"] == {"target_kind": "bundle", "bundle_id": "other", "resource_wait": waits}
    assert managed.schedule_id == "other.schedule"
    assert managed.document["labels"] == {"a": "b", BUNDLE_LABEL: "other"}


def test_what_a_stored_manifest_needs_of_a_node() -> None:
    needs = {"labels": {"gpu": "a100"}, "slots": 2}
    assert needs_of_manifest({"resources": {**needs, "cpus": 1}}) == needs
    for resources in (None, 1, {}, {"labels": 1, "slots": "x"}, {"labels": {}, "slots": 0}):
        assert needs_of_manifest({"resources": resources}) == {}
    schedule = {"crons": ["@daily"]}
    [managed] = parse_manifest({**SMALLEST, "resources": needs, "schedule": schedule}, now=NOW).schedules
    assert managed.document["target"] == {"target_kind": "bundle", "bundle_id": "eval", **needs}


def test_policies_of_job_manifests() -> None:
    schedule = {
        **PERIODIC,
        "prohibit_overlap": False,
        "missed_policy": "catchup_all",
        "catchup_limit": 5,
        "missed_grace_ms": 1_500,
        "window": {"duration_seconds": 5},
        "target": {"inputs": {"n": 2}},
    }
    [managed] = parse_manifest({**SMALLEST, "schedule": schedule}, now=NOW).schedules
    assert managed.document["overlap_policy"] == "allow"
    assert managed.document["misfire_policy"] == {"type": "catchup_all", "limit": 5, "grace_seconds": 1.5}
    assert managed.document["window"] == {"duration_seconds": 5}
    assert managed.document["target"]["inputs"] == {"n": 2}


@pytest.mark.parametrize(
    ("work", "kind"),
    [
        ({"function": "evaluate"}, "function"),
        ({"http": {"url": "https://example.com/run"}}, "http"),
        ({"workflow": "flow.json"}, "workflow"),
        ({"workflow": {"steps": []}}, "workflow"),
    ],
)
def test_other_work(work: dict[str, Any], kind: str) -> None:
    manifest = parse_manifest({"name": "eval", **work}, now=NOW)
    assert manifest.kind == kind
    assert getattr(manifest, kind) == work[kind]


@pytest.mark.parametrize(
    ("manifest", "field", "words"),
    [
        ({"command": ["x"]}, "name", "required"),
        ({"name": "a b", "command": ["x"]}, "name", "letters"),
        ({"name": "..", "command": ["x"]}, "name", "something else"),
        ({"name": "a", "job_name": "b", "command": ["x"]}, "job_name", "differs"),
        ({"name": "a"}, "", "exactly one of command, function, http, workflow"),
        ({"name": "a", "command": ["x"], "function": "f"}, "", "not command and function"),
        ({"name": "a", "command": []}, "command", "starts with the name"),
        ({"name": "a", "command": ["x", 1]}, "command[1]", "text"),
        ({"name": "a", "http": "x"}, "http", "object"),
        ({"name": "a", "http": {"url": "x"}}, "http.url", "absolute"),
        ({"name": "a", "workflow": 1}, "workflow", "definition"),
        ({**SMALLEST, "env": {"NOONMARK_X": "1"}}, "env.NOONMARK_X", "NOONMARK_"),
        ({**SMALLEST, "env": {"A": "1"}, "secret_env": {"A": "s"}}, "secret_env.A", "also in env"),
        ({**SMALLEST, "secret_env": {"A": "a b"}}, "secret_env.A", "name of a secret"),
        ({**SMALLEST, "resources": {"cpus": -1}}, "resources.cpus", "0"),
        ({**SMALLEST, "resources": {"labels": {"a": "b,c"}}}, "resources.labels.a", "comma"),
        ({**SMALLEST, "services": [1]}, "services[0]", "object"),
        ({**SMALLEST, "services": [{}]}, "services[0]", "one of http"),
        ({**SMALLEST, "services": [{"http": "x"}]}, "services[0].http", "absolute"),
        ({**SMALLEST, "services": [{"tcp": "db"}]}, "services[0].tcp", "port"),
        ({**SMALLEST, "schedule": 1}, "schedule", "object"),
        ({**SMALLEST, "schedule": {"kind": "x"}}, "schedule.kind", "must be one of"),
        ({**SMALLEST, "schedule": {"crons": ["x"]}}, "schedule.trigger.crons[0]", "field"),
        ({**SMALLEST, "schedule": {"timezone": "UTC"}}, "schedule.trigger.expression", "crons"),
        ({**SMALLEST, "schedule": {"cron": "@daily", "depends_on": []}}, "schedule.depends_on", "not part"),
        ({**SMALLEST, "triggers": [UPLOADED, UPLOADED]}, "triggers[1].name", "triggers[0]"),
        ({**SMALLEST, "wat": 1}, "wat", "unknown field"),
        ({**SMALLEST, "metadata": "x" * 300_000}, "", "larger"),
        ([], "", "object"),
    ],
)
def test_faults_have_their_paths(manifest: object, field: str, words: str) -> None:
    with pytest.raises(InvalidBundle) as caught:
        parse_manifest(manifest, now=NOW)
    found = [problem for problem in caught.value.problems if problem.field == field]
    assert found, caught.value.problems
    assert words in found[0].message


def test_an_unknown_field_of_a_schedule_is_told_with_the_fields_of_manifests() -> None:
    given = {**SMALLEST, "triggers": [{"event_typ": "x"}], "schedule": {"cron": "@daily", "window": {"x": 1}}}
    with pytest.raises(InvalidBundle) as caught:
        parse_manifest(given, now=NOW)
    told = {problem.field: problem.message for problem in caught.value.problems}
    assert told["triggers[0]"] == "must have one of crons, cron, run_at, delay_ms, event_type, or a trigger"
    names, _, hint = told["triggers[0].event_typ"].partition("; did you mean ")
    assert hint == "event_type?"
    allowed = names.removeprefix("unknown field; allowed are ").split(", ")
    assert {"event_type", "filters", "crons", "missed_policy", "name"} <= set(allowed)
    assert not {"depends_on", "schedule_id"} & set(allowed)
    assert "event_type" not in told["schedule.window.x"]


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(InvalidBundle, match="and 3 more") as caught:
        parse_manifest(
            {"command": [], "retry": {"max_attempts": 0}, "schedule": {"cron": "x"}, "timeout_seconds": 5}, now=NOW
        )
    fields = {problem.field for problem in caught.value.problems}
    assert fields == {"name", "command", "retry.max_attempts", "schedule.trigger.expression"}
