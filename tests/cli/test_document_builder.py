"""Schedule documents from options: triggers, targets, policies, and refused options."""

import json

import pytest

from noonmark.cli.document_builder import given_document, target_document, trigger_document
from noonmark.cli.options import TargetOptions, TriggerOptions
from noonmark.core.errors import InvalidRequest
from tests.cli.runner import Cli, call, contains

DAILY = ("--cron", "@daily")
REPORT = ("--function", "report")
GIVEN = {
    "completion_timeout_seconds": 3,
    "method": "PATCH",
    "url": "https://e.com",
    "headers": {"x-team": "sales", "X-Kind": "a"},
}
"""A target with a field that has no option, and fields that options override."""


@pytest.fixture(scope="module")
def cli(tmp_path_factory):
    cli = Cli("--store", f"sqlite:///{tmp_path_factory.mktemp('store') / 'options.db'}")
    cli("schedule", "create", "--every", "1d", *REPORT)  # creates the file
    return cli


@pytest.mark.parametrize(
    ("options", "trigger"),
    [
        (("--every", "10s"), {"type": "interval", "every_seconds": 10}),
        (("--every", "1.5h"), {"every_seconds": 5400}),
        (("--every", "250ms"), {"every_seconds": 0.25}),
        (("--every", "90"), {"every_seconds": 90}),
        (("--cron", "0 9 * * MON"), {"type": "cron", "expression": "0 9 * * MON", "timezone": "Asia/Tokyo"}),
        (("--cron", "0 9 * * *", "--timezone", "UTC"), {"timezone": "UTC"}),
        (
            ("--cron", "@daily", "--start-at", "2036-01-01T00:00:00+01:00", "--end-at", "2037-01-01T00:00:00Z"),
            {"start_at_utc": "2035-12-31T23:00:00Z", "end_at_utc": "2037-01-01T00:00:00Z"},
        ),
        (("--cron", "@daily", "--jitter", "5m"), {"jitter_seconds": 300}),
        (("--at", "2036-05-25T02:00:00Z"), {"type": "once", "due_at_utc": "2036-05-25T02:00:00Z"}),
        (("--event", "paid", "--filter-json", '{"sum": [1]}'), {"event_type": "paid", "filters": {"sum": [1]}}),
        (("--event", "paid", "--event", "refunded"), {"type": "event", "event_type": ["paid", "refunded"]}),
        (("--schedule-json", '{"trigger": {"type": "cron", "expression": "@daily"}}'), {"timezone": "UTC"}),
        (("--schedule-json", '{"cron": "@daily"}', "--cron", "@hourly"), {"timezone": "Asia/Tokyo"}),
        (
            ("--schedule-json", '{"cron": "@daily", "timezone": "Europe/Paris"}', "--cron", "@hourly"),
            {"expression": "@hourly", "timezone": "Europe/Paris"},
        ),
        (("--schedule-json", '{"timezone": "Europe/Paris"}', "--cron", "@hourly"), {"timezone": "Europe/Paris"}),
        (("--schedule-json", '{"cron": "@daily"}', "--every", "60"), {"type": "interval", "every_seconds": 60}),
        (
            ("--schedule-json", '{"kind": "event", "trigger": {"event_type": "paid", "filters": {"sum": 1}}}'),
            {"type": "event", "event_type": "paid", "filters": {"sum": 1}},
        ),
    ],
)
def test_trigger_options(cli, monkeypatch, options, trigger):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    answer = cli.json("schedule", "create", *REPORT, *options)
    assert contains(answer["trigger"], trigger), answer["trigger"]


@pytest.mark.parametrize(
    ("options", "target"),
    [
        (
            ("--function", "report", "--payload-json", '{"to": "team"}'),
            {"target_kind": "function", "function": "report", "payload": {"to": "team"}},
        ),
        (
            ("--http", "https://example.com/hook", "--method", "PUT", "--header", "X-Team: data", "--body-json", "[1]"),
            {
                "target_kind": "http",
                "url": "https://example.com/hook",
                "method": "PUT",
                "headers": {"X-Team": "data"},
                "body": [1],
            },
        ),
        (("--http", "https://example.com/hook"), {"method": "POST"}),
        (("--command", "backup", "full"), {"target_kind": "command", "argv": ["backup", "full"]}),
        (("--command", "backup 'two words' --full"), {"argv": ["backup", "two words", "--full"]}),
        (("--", "backup", "--full", "--json", "--", "a b"), {"argv": ["backup", "--full", "--json", "--", "a b"]}),
        (("--", "two words"), {"argv": ["two", "words"]}),
        (
            ("--emit", "day_closed", "--payload-json", '{"books": 2}'),
            {"target_kind": "event", "event_type": "day_closed", "payload": {"books": 2}},
        ),
        (
            ("--schedule-json", '{"target": {"target_kind": "command", "argv": ["a"], "cwd": "jobs"}}', "--", "b", "c"),
            {"argv": ["b", "c"], "cwd": "jobs"},
        ),
        (
            (
                *("--http", "https://example.com/hook", "--method", "PUT", "--header", "X-Team: data"),
                *("--schedule-json", json.dumps({"target": GIVEN})),
            ),
            {
                "url": "https://example.com/hook",
                "method": "PUT",
                "headers": {"x-team": "data", "X-Kind": "a"},
                "completion_timeout_seconds": 3,
            },
        ),
        (
            ("--schedule-json", '{"target": {"target_kind": "task", "query": "Sum up"}}'),
            {"target_kind": "task", "query": "Sum up"},
        ),
    ],
)
def test_target_options(cli, options, target):
    answer = cli.json("schedule", "create", *DAILY, *options)
    assert contains(answer["target"], target), answer["target"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--http", "https://example.com/hook", "--method", "PUT"), "Starts PUT https://example.com/hook When busy"),
        (("--retries", "2", "--", "backup", "a b"), "Starts command backup 'a b', at most 3 attempts When busy"),
        (("--emit", "day_closed"), "Starts event day_closed When busy"),
        (
            ("--schedule-json", '{"target": {"target_kind": "workflow", "workflow_id": "etl", "version": 2}}'),
            "Starts workflow etl version 2 When busy",
        ),
        (
            ("--schedule-json", '{"target": {"target_kind": "bundle", "bundle_id": "eval"}}'),
            "Starts bundle eval When busy",
        ),
        (("--", "x" * 1_000), "Starts command " + "x" * (300 - len("command ")) + "… When busy"),
        ((*REPORT, "--timeout", "90"), "When busy a new one is skipped Takes at most 1 minute 30 seconds When late"),
        ((*REPORT, "--window", "2h"), "Window 2 hours, then it is asked to stop When late"),
        (
            (
                *(
                    "--schedule-json",
                    '{"target": {"target_kind": "http", "url": "http://e.com", "timeout_seconds": 5}}',
                ),
                *("--timeout", "1m"),
            ),
            "Takes at most 1 minute, 5 seconds for each request When late",
        ),
    ],
)
def test_status_shows_target_and_limits(cli, options, message):
    schedule_id = cli.json("schedule", "create", *DAILY, *options)["schedule_id"]
    shown = " ".join(cli("schedule", "status", schedule_id).split())
    assert message in shown.replace("x x", "xx"), shown


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--label", "team=data", "--label", "formula=a=b"), {"labels": {"team": "data", "formula": "a=b"}}),
        (("--description", "What it is for"), {"description": "What it is for"}),
        (("--overlap", "queue_one"), {"overlap_policy": "queue_one"}),
        (("--misfire", "catch_up_all", "--catchup-limit", "3"), {"misfire_policy": {"limit": 3}}),
        (
            ("--misfire", "catch_up_within", "--catchup-window", "2h", "--catchup-limit", "3"),
            {"misfire_policy": {"type": "catch_up_within", "window_seconds": 7200, "limit": 3}},
        ),
        (("--misfire", "spread", "--catchup-window", "5m"), {"misfire_policy": {"window_seconds": 300}}),
        (("--retries", "0"), {"retry_policy": {"max_attempts": 1}}),
        (
            ("--retries", "2", "--retry-on", "TimeoutError", "--retry-on", "OSError", "--retry-not-on", "KeyError"),
            {"retry_policy": {"max_attempts": 3, "on": ["TimeoutError", "OSError"], "not_on": ["KeyError"]}},
        ),
        (("--expected", "10m"), {"expected_seconds": 600}),
        (
            ("--at-least", "1", "--at-most", "30", "--per", "1d"),
            {"expected_rate": {"at_least": 1, "at_most": 30, "per_seconds": 86400}},
        ),
        (
            ("--max-fires-per-hour", "9", "--max-spend-factor", "2.5", "--max-identical-results", "3"),
            {"runaway": {"max_fires_per_hour": 9, "max_spend_factor": 2.5, "max_identical_results": 3}},
        ),
        (
            (
                "--ping-start",
                "https://e.com/start",
                "--ping-success",
                "https://e.com",
                "--ping-failure",
                "https://e.com/f",
            ),
            {"ping_urls": {"start": "https://e.com/start", "success": "https://e.com", "failure": "https://e.com/f"}},
        ),
        (("--retries", "99"), {"retry_policy": {"max_attempts": 100}}),
        (("--timeout", "30m", "--retries", "3"), {"timeout_seconds": 1800, "retry_policy": {"max_attempts": 4}}),
        (("--max-runs", "7", "--window", "90s"), {"max_runs": 7, "window": {"duration_seconds": 90}}),
        (
            ("--schedule-json", '{"name": "x", "enabled": false, "pause_on_failure": 2}', "--name", "y"),
            {"name": "y", "enabled": False, "phase": "paused", "pause_on_failure": 2},
        ),
        (("--schedule-json", '{"missed_grace_ms": 5000}'), {"misfire_policy": {"type": "skip", "grace_seconds": 5}}),
        (("--schedule-json", '{"prohibit_overlap": false}'), {"overlap_policy": "allow"}),
    ],
)
def test_policy_options(cli, options, part):
    answer = cli.json("schedule", "create", *DAILY, *REPORT, *options)
    assert contains(answer, part), answer


def test_dependencies(cli):
    upstreams = [cli.create("--every", "1h") for _ in range(2)]
    options = [word for one in upstreams for word in ("--depends-on", one)]
    answer = cli.json("schedule", "create", *REPORT, *options)
    assert (answer["trigger"], [one["schedule_id"] for one in answer["depends_on"]]) == (None, upstreams)
    assert f"after {upstreams[0]}" in cli("schedule", "status", answer["schedule_id"])
    assert f"after {upstreams[0]}, {upstreams[1]}" in cli("schedule", "list", "--text", answer["schedule_id"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("create", *REPORT),
            "a schedule needs a trigger: give --cron, --every, --at, --in or --event, or --depends-on",
        ),
        (("create", *REPORT, "--timezone", "UTC"), "a schedule needs a trigger: give --cron"),
        (("create", *DAILY), "a schedule needs a target: give --function, --http, --command, --emit or --ping"),
        (("create", *DAILY, *REPORT, "--every", "1s"), "--every: conflicts with --cron: give one of --cron"),
        (("create", *REPORT, "--at", "2036-05-25T02:00:00Z", "--in", "5m"), "--in: conflicts with --at"),
        (("create", *DAILY, *REPORT, "--", "backup"), "--command: conflicts with --function"),
        (("create", *DAILY, "--command", "cat", "--", "sleep", "5"), "--command: conflicts with a program after"),
        (("create", *DAILY, "--command=cat", "--", "sleep", "5"), "--command: conflicts with a program after --"),
        (("create", *DAILY, *REPORT, "--emit", "e"), "--emit: conflicts with --function"),
        (("create", *DAILY, *REPORT, "--method", "PUT"), "--method: requires --http"),
        (("create", *DAILY, "--http", "https://e.com", "--payload-json", "1"), "--payload-json: requires --function"),
        (("create", *DAILY, "--http", "ftp://e.com"), "target.url: "),
        (("create", *DAILY, "--http", "https://e.com", "--header", "X"), "--header: must be a name, then ':'"),
        (("create", *DAILY, "--command", "a | b"), "--command: is not run in a shell"),
        (("create", *DAILY, "--command", "a 'b"), "--command: cannot be split into words"),
        (("create", "--every", "5 weeks", *REPORT), "--every: must be a duration such as 30m"),
        (("create", "--every", "-5s", *REPORT), "--every: must be a duration such as 30m"),
        (("create", "--in", "-1.5h", *REPORT), "--in: must be a duration such as 30m"),
        (("create", "--every=-5s", *REPORT), "--every: must be a duration such as 30m"),
        (("create", "--every", "0s", *REPORT), "trigger.every_seconds: "),
        (("create", "--every", "5s", "--timezone", "UTC", *REPORT), "--timezone: requires --cron"),
        (("create", *DAILY, *REPORT, "--filter-json", "{}"), "--filter-json: requires --event"),
        (("create", *DAILY, *REPORT, "--timezone", "EST5"), "trigger.timezone: is not an IANA time zone"),
        (("create", *DAILY, *REPORT, "--start-at", "tomorrow"), "--start-at: must be an RFC 3339 instant"),
        (("create", *DAILY, *REPORT, "--overlap", "queue", "--allow-overlap"), "--overlap: conflicts with"),
        (("create", *DAILY, *REPORT, "--overlap", "sometimes"), "overlap_policy: must be one of"),
        (("create", *DAILY, *REPORT, "--catchup-limit", "3"), "--catchup-limit: requires --misfire catch_up_all"),
        (
            ("create", *DAILY, *REPORT, "--misfire", "catch_up_one", "--catchup-limit", "5"),
            "--catchup-limit: requires --misfire catch_up_all, catch_up_within or spread, not catch_up_one",
        ),
        (
            ("create", *DAILY, *REPORT, "--misfire", "catch_up_all", "--catchup-window", "1h"),
            "--catchup-window: requires --misfire catch_up_within or spread, not catch_up_all",
        ),
        (("create", *DAILY, *REPORT, "--catchup-window", "1h"), "--catchup-window: requires --misfire catch_up_within"),
        (
            ("create", *DAILY, *REPORT, "--misfire", "catch_up_within"),
            "--catchup-window: is required with --misfire catch_up_within: how late a missed fire may still run",
        ),
        (("create", *DAILY, *REPORT, "--retry-on", "KeyError"), "--retry-on: requires --retries"),
        (("create", *DAILY, *REPORT, "--at-most", "3"), "--per: is required with --at-most"),
        (("create", *DAILY, *REPORT, "--at-least", "3"), "--per: is required with --at-least"),
        (("create", *DAILY, *REPORT, "--per", "1h"), "--per: requires --at-least or --at-most"),
        (("create", *DAILY, *REPORT, "--retries", "-1"), "--retries: must be an integer from 0 to 99, not -1"),
        (("create", *DAILY, *REPORT, "--retries", "100"), "--retries: must be an integer from 0 to 99, not 100"),
        (("list", "--label", "team"), "--label: must be a name, then '=', then a value, not \"team\""),
        (("pause", "--label", "team"), "--label: must be a name, then '=', then a value"),
        (("label", "--label", "a=b", "--set", "team"), "--set: must be a name, then '=', then a value"),
        (("create", *DAILY, *REPORT, "--label", "team"), "--label: must be a name, then '=', then a value"),
        (("create", *DAILY, *REPORT, "--max-runs", "0"), "max_runs: must be an integer from 1"),
        (("create", *DAILY, *REPORT, "--schedule-json", "[]"), "--schedule-json: must be an object"),
        (("create", *DAILY, *REPORT, "--schedule-json", "{"), "--schedule-json: is not JSON"),
        (("create", *DAILY, *REPORT, "--schedule-json", '{"kind": "weekly"}'), "--schedule-json: kind must be one of"),
        (("create", *DAILY, *REPORT, "--schedule-json", '{"colour": 1}'), "colour: unknown field"),
        (
            (
                "create",
                *DAILY,
                *REPORT,
                "--schedule-json",
                '{"target": {"target_kind": "http", "url": "https://e.com"}}',
            ),
            '--schedule-json: its target_kind "http" conflicts with --function',
        ),
        (("create", *DAILY, *REPORT, "--schedule-json", '{"target": {"cwd": "jobs"}}'), "target.cwd: unknown field"),
        (("create", *DAILY, "--function", "os:system"), "target.function: must be the name under which a node"),
        (("create", *DAILY, *REPORT, "--id", "a b"), "schedule_id: "),
        (("create", *DAILY, *REPORT, "--colour", "red"), "Unknown option"),
        (("delay", *REPORT), "a schedule needs a trigger: give --at or --in"),
        (("delay", *REPORT, "--at", "2020-01-01T00:00:00Z"), "trigger.due_at_utc: is in the past"),
        (("delay", *REPORT, "--cron", "@daily"), "Unknown option"),
        (("preview",), "give the id of a schedule, or a trigger"),
        (("list", "--limit", "0"), "--limit: must be at least 1"),
        (("list", "--kind", "weekly"), "kind: must be one of"),
        (("list", "--status", "asleep"), "phase: must be one of"),
        (("explain", "occ_" + "0" * 32, "--at", "2036-01-01T00:00:00Z"), "--at: requires the id of a schedule"),
    ],
)
def test_refused_options(cli, arguments, message):
    [line] = cli.refused(2, "schedule", *arguments)
    assert line.startswith(message), line


def test_every_problem_is_reported_at_once(cli):
    lines = cli.refused(2, "schedule", "create", "--cron", "61 * * * *", *REPORT, "--max-runs", "0")
    assert [line.split(":")[0] for line in lines] == ["trigger.expression", "max_runs"]
    problem = cli.problem(2, "schedule", "create", "--cron", "61 * * * *", *REPORT, "--max-runs", "0")
    assert [one["field"] for one in problem["problems"]] == ["trigger.expression", "max_runs"]


def test_triggers_are_listed_with_their_filters(cli):
    for filters in ('{"sum": {"gt": 9}}', json.dumps({"name": "n" * 99}), "{}"):
        cli.json("trigger", "create", "--event", "listed", "--event", "told", "--filter-json", filters, *REPORT)
    rows = cli("trigger", "list", "--event", "listed").splitlines()[1:4]
    told = [row.partition(" on listed or told")[2].split("  ")[0] for row in rows]
    assert sorted(told) == ["", f' if {{"name": "{"n" * 50}…', ' if {"sum": {"gt": 9}}']


def test_a_trigger_needs_an_event(cli):
    assert cli.refused(2, "trigger", "create", *REPORT) == [
        "--event: is required: the type of the events that trigger it"
    ]


def test_a_bundle_is_a_folder_with_a_manifest_or_an_id(cli, tmp_path):
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    for command in (
        ("schedule", "create", *DAILY),
        ("schedule", "delay", "--in", "1h"),
        ("trigger", "create", "--event", "e"),
    ):
        assert cli.refused(2, *command[:2], bundle, *command[2:]) == [f"{bundle}: the folder has no manifest.json"]
        [line] = cli.refused(3, *command[:2], tmp_path / "missing", *command[2:])
        assert line == f"{tmp_path / 'missing'}: no such file or folder, and no bundle with that id"
    (bundle / "manifest.json").write_text('{"name": "eval", "command": ["true"]}')
    answer = cli.json("schedule", "create", bundle, *DAILY)
    assert (answer["name"], answer["target"]) == ("eval", {"target_kind": "bundle", "bundle_id": "eval"})
    [line] = cli.refused(2, "schedule", "create", bundle, *DAILY, "--payload-json", "{}")
    assert line.endswith("a bundle has inputs, in its manifest or as target.inputs in --schedule-json")
    [line] = cli.refused(2, "schedule", "delay", bundle)
    assert line == "a schedule needs a trigger: give --at or --in; the manifest has no schedule either"
    [line] = cli.refused(2, "schedule", "create", bundle, *DAILY, "--function", "f")
    assert line == "--function: conflicts with the bundle: give one of them"
    [line] = cli.refused(2, "schedule", "create", bundle)
    assert line.endswith("the manifest has no schedule either")
    [line] = cli.refused(2, "trigger", "create", "eval")
    assert line.startswith("--event is required")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (("--store", "memory://"), "--store: is lost when this command ends"),
        (("--store", "mongodb://"), "store: 'mongodb://' names no store"),
        (("--store", "sqlite:///a.db", "--server", "http://127.0.0.1:1"), "--store: conflicts with --server"),
    ],
)
def test_refused_connections(place, message):
    done = call("schedule", "list", *place)
    assert done.code == 2
    assert done.errors[0].startswith(message)


def test_a_store_that_cannot_be_opened(tmp_path):
    done = call("schedule", "list", "--store", f"sqlite:///{tmp_path}", "--json")
    assert (done.code, done.problem["code"]) == (6, "store_unavailable")


def test_the_created_document_is_printed(cli):
    document = cli.json("schedule", "create", *DAILY, *REPORT, "--id", "chosen")
    assert (document["schedule_id"], document["source"], document["revision"]) == ("chosen", "cli", 1)
    assert cli.problem(4, "schedule", "create", *DAILY, *REPORT, "--id", "chosen") == {
        "title": "Conflict with the current state",
        "status": 409,
        "code": "conflict",
        "detail": "there is a schedule 'chosen' already; choose another id, or update that one",
        "field": "schedule_id",
    }


JUNK = [
    None,
    True,
    5,
    1.5,
    "x",
    [],
    [[]],
    {},
    {"type": []},
    {"target_kind": {}},
    {"duration_ms": "x"},
    {"event_type": 1},
]
NAMES = (
    *("kind", "crons", "cron", "timezone", "time_zone", "run_at", "delay_ms", "event_type", "filters", "trigger"),
    *("target", "prohibit_overlap", "missed_policy", "catchup_limit", "missed_grace_ms", "window", "misfire_policy"),
)


@pytest.mark.parametrize("name", NAMES)
def test_any_document_gives_a_clear_error(name):
    """Any value is accepted or refused as an invalid request, and never crashes."""
    for value in JUNK:
        for more in ({}, {"missed_policy": "catchup_all"}, {"missed_grace_ms": 1, "timezone": "UTC"}):
            for options in (
                TriggerOptions(),
                TriggerOptions(cron=("@daily",)),
                TriggerOptions(filter_json="{}"),
                TriggerOptions(timezone="UTC"),
            ):
                try:
                    given = given_document(json.dumps({**more, name: value}))
                    trigger_document(options, given.get("trigger"))
                    target_document(TargetOptions(payload_json="1"), before=given.get("target"))
                except InvalidRequest:
                    continue


NIGHTLY = {"kind": "periodic", "crons": ["0 2 * * *"], "timezone": "America/New_York"}
UPLOADED = {"name": "uploaded", "event_type": "file_uploaded"}


def test_a_whole_manifest_is_one_schedule_with_what_else_it_says(cli):
    manifest = {"job_name": "etl", "labels": {"team": "a"}, "nodes": [1], "schedule": NIGHTLY}
    result = call("schedule", "create", *REPORT, "--schedule-json", json.dumps(manifest), "--json", *cli.connection)
    created = json.loads(result.out)
    assert (created["name"], created["labels"], created["trigger"]["expression"]) == ("etl", {"team": "a"}, "0 2 * * *")
    assert result.err == 'noonmark: warning: --schedule-json: ignored "nodes": no part of a schedule\n'


def test_a_manifest_with_several_triggers_creates_each(cli):
    manifest = json.dumps({"name": "etl", "schedule": NIGHTLY, "triggers": [UPLOADED, {"event_type": "paid"}]})
    created = cli.json("schedule", "create", *REPORT, "--schedule-json", manifest)["schedules"]
    assert [(one["name"], one["trigger"]["type"]) for one in created] == [
        ("etl", "cron"),
        ("uploaded", "event"),
        ("etl", "event"),
    ]
    triggers = json.dumps({"triggers": [UPLOADED, {"event_type": "paid"}]})
    assert len(cli.json("trigger", "create", *REPORT, "--schedule-json", triggers)["schedules"]) == 2
    before = cli.json("call", "schedule/count")["count"]
    bad = json.dumps({"triggers": [UPLOADED, {"event_type": "paid", "filters": {"a": {"near": 1}}}]})
    assert "near" in cli.refused(2, "schedule", "create", *REPORT, "--schedule-json", bad)[0]
    assert cli.json("call", "schedule/count")["count"] == before


def test_the_parts_of_a_manifest_may_be_triggers(cli):
    triggers = [{"type": "cron", "expression": "0 3 * * *"}, {"type": "interval", "every_seconds": 600}]
    manifest = {"name": "etl", "schedule": {"type": "event", "event_type": "paid"}, "triggers": triggers}
    created = cli.json("schedule", "create", *REPORT, "--schedule-json", json.dumps(manifest))["schedules"]
    assert [one["trigger"]["type"] for one in created] == ["event", "cron", "interval"]
    wrong = json.dumps({"triggers": [{"type": "crn"}]})
    [problem] = cli.refused(2, "schedule", "create", *REPORT, "--schedule-json", wrong)
    assert '"crn"' in problem


@pytest.mark.parametrize(
    ("command", "manifest", "problem"),
    [
        (
            "create",
            {"max_runs": 3, "schedule": NIGHTLY | {"max_runs": 4}},
            "--schedule-json: max_runs is 3 beside schedule, and 4 in it: give one of them",
        ),
        ("create", {"schedule": None, "triggers": []}, "--schedule-json: has neither a schedule nor triggers"),
        ("create", {"triggers": [1]}, "--schedule-json: triggers[0] must hold an object, not 1"),
        (
            "delay",
            {"schedule": NIGHTLY, "triggers": [UPLOADED]},
            (
                "--schedule-json: has 2 schedules (schedule, triggers[0]), and this command takes one;"
                " noonmark schedule create creates each"
            ),
        ),
    ],
)
def test_a_manifest_that_says_two_things_is_refused(cli, command, manifest, problem):
    assert cli.refused(2, "schedule", command, *REPORT, "--schedule-json", json.dumps(manifest)) == [problem]


def test_an_update_changes_one_url_and_removes_another(cli):
    urls = ("--ping-start", "https://e.com/start", "--ping-success", "https://e.com/end")
    schedule_id = cli.json("schedule", "create", *DAILY, *REPORT, *urls)["schedule_id"]
    changes = ("--ping-start", "", "--ping-failure", "https://e.com/fail")
    after = cli.json("schedule", "update", schedule_id, *changes)
    assert after["ping_urls"] == {"success": "https://e.com/end", "failure": "https://e.com/fail"}


def test_a_schedule_shows_what_is_expected_of_it(cli):
    options = ("--expected", "10m", "--at-least", "1", "--at-most", "30", "--per", "1d")
    schedule_id = cli.json("schedule", "create", *DAILY, *REPORT, *options)["schedule_id"]
    shown = " ".join(cli("schedule", "status", schedule_id).split())
    assert "an alert after 10 minutes" in shown
    assert "at least 1 success and at most 30 starts within 1 day, or an alert" in shown
    cli("schedule", "update", schedule_id, "--at-most", "1")
    assert "at least 1 success and at most 1 start within 1 day" in " ".join(
        cli("schedule", "status", schedule_id).split()
    )


def test_a_schedule_shows_its_runaway_guard(cli):
    options = ("--max-fires-per-hour", "1", "--max-identical-results", "3")
    schedule_id = cli.json("schedule", "create", *DAILY, *REPORT, *options)["schedule_id"]
    shown = " ".join(cli("schedule", "status", schedule_id).split())
    assert "beyond 1 start in an hour or 3 identical results in a row, it is paused" in shown
    off = ("--max-fires-per-hour", "0", "--max-identical-results", "0")
    cli("schedule", "update", schedule_id, *off, "--max-spend-factor", "4")
    assert "beyond 4 times the spend of its usual hours, it is paused" in " ".join(
        cli("schedule", "status", schedule_id).split()
    )
    cli("schedule", "update", schedule_id, "--max-spend-factor", "0")
    assert "Runaway no guard" in " ".join(cli("schedule", "status", schedule_id).split())
