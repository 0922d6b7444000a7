"""Commands that create, change, list and delete schedules and events."""

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event

import pytest

from tests.cli.runner import NEVER, Cli, call, contains, create_report
from tests.cli.terminal import NOONMARK, in_pipe, in_terminal
from tests.embedded.waiting import eventually

FIRST_SCHEMA = Path(__file__).parents[2] / "stores" / "data" / "first.sql"


def test_pause_resume_delete_and_the_audit_log(cli):
    schedule = create_report(cli, "--name", "steered")
    assert (
        cli("schedule", "pause", schedule, "--reason", "hold during maintenance") == f"Paused steered ({schedule}).\n"
    )
    assert schedule in cli("schedule", "list", "--status", "PAUSED")
    assert cli("schedule", "resume", schedule, "--reason", "maintenance complete") == f"Resumed steered ({schedule}).\n"
    assert (
        cli("schedule", "delete", schedule, "--reason", "retired")
        == f"Deleted steered ({schedule}); its history is kept.\n"
    )
    assert schedule not in cli("schedule", "list", "--limit", "1000")
    assert cli.json("schedule", "status", schedule)["phase"] == "deleted"
    entries = cli.json("audit", "list", "--schedule", schedule)["entries"]
    assert [(one["operation"], one["reason"]) for one in entries] == [
        ("schedule/delete", "retired"),
        ("schedule/resume", "maintenance complete"),
        ("schedule/pause", "hold during maintenance"),
        ("schedule/create", None),
    ]
    assert "hold during maintenance" in cli("audit", "list", "--schedule", schedule)


def test_a_dry_run_of_an_update_says_what_would_change(cli):
    options = ("--command", "true", "--timezone", "UTC", "--max-runs", "3")
    schedule_id = cli.json("schedule", "create", "--cron", "0 3 1 1 *", *options, "--name", "dry")["schedule_id"]
    update = (
        "schedule",
        "update",
        schedule_id,
        "--cron",
        "0 4 1 1 *",
        "--timezone",
        "UTC",
        "--max-runs",
        "2",
        "--dry-run",
    )
    lines = cli(*update).splitlines()
    assert lines[0] == f"Would change dry ({schedule_id}); nothing is changed yet."
    assert lines[1:3] == ['trigger.expression: "0 3 1 1 *" -> "0 4 1 1 *"', "max_runs: 3 -> 2"]
    assert lines[3].endswith(": 2 moved, 1 removed.")
    assert sum(line.startswith("- ") for line in lines[4:]) == 1
    assert sum(" -> " in line for line in lines[4:]) == 2
    assert cli.json(*update)["impact"]["removed"] == 1
    assert cli.json("schedule", "status", schedule_id)["trigger"]["expression"] == "0 3 1 1 *"


def test_a_pause_ends_at_an_instant_or_after_a_while(cli):
    schedule = create_report(cli, "--name", "held")
    answer = cli("schedule", "pause", schedule, "--until", "2099-01-01T00:00:00Z")
    assert answer == f"Paused held ({schedule}). It resumes by itself at 2099-01-01T00:00:00Z.\n"
    paused = cli.json("schedule", "pause", schedule, "--until", "2h")
    asked = datetime.fromisoformat(paused["updated_at_utc"])
    distance = datetime.fromisoformat(paused["paused"]["until_utc"]) - asked
    assert timedelta(hours=1) < distance < timedelta(hours=3)
    assert cli.refused(2, "schedule", "pause", schedule, "--until", "tomorrow")[0].startswith("--until: must be")


def test_delete_says_which_runs_go_on_and_how_to_stop_them(cli, node):
    released = Event()
    node.register_function("held", released.wait)
    schedule_id = cli.json("schedule", "create", "--function", "held", *NEVER, "--name", "held")["schedule_id"]
    command = f"noonmark schedule delete {schedule_id} --stop-running"
    try:
        cli("schedule", "run-now", schedule_id)
        eventually(lambda: "running" in cli("schedule", "runs", schedule_id))
        assert cli("schedule", "delete", schedule_id).endswith(f" Not ended: 1 run; `{command}` stops what runs.\n")
        assert cli(*command.split()[1:]).endswith(" Asked 1 run to stop.\n")
    finally:
        released.set()


def test_a_window_of_one_fire_is_not_said_to_open_again(cli):
    window = '{"window": {"duration_seconds": 60, "end_action": "pause"}}'
    for trigger, end in (
        (("--at", "2099-01-01T00:00:00Z"), "then it is cancelled, as no further one opens"),
        (("--cron", "0 0 1 1 *"), "then it is suspended until the next one opens"),
    ):
        answer = cli("schedule", "create", *trigger, "--schedule-json", window, "--", "true")
        assert end in " ".join(answer.split())


def test_an_update_keeps_other_fields(cli):
    made = cli.json("schedule", "create", "--function", "report", "--cron", "@daily", "--timezone", "Asia/Tokyo")
    made, before = made["schedule_id"], made["trigger"]
    after = cli.json("schedule", "update", made, "--cron", "@hourly", "--name", "changed", "--retries", "2")
    assert after["trigger"] == {**before, "expression": "@hourly"}
    assert (after["name"], after["retry_policy"]["max_attempts"], after["revision"]) == ("changed", 3, 2)
    after = cli.json("schedule", "update", made, "--timezone", "Europe/Paris", "--payload-json", "7")
    assert after["trigger"] == {**before, "expression": "@hourly", "timezone": "Europe/Paris"}
    assert (after["target"]["function"], after["target"]["payload"]) == ("report", 7)
    after = cli.json("schedule", "update", made, "--schedule-json", '{"name": null, "max_runs": 3}')
    assert (after["name"], after["max_runs"]) == (None, 3)
    after = cli.json("schedule", "update", made, "--every", "1h", "--", "backup", "--full")
    assert (after["trigger"]["type"], after["target"]["argv"]) == ("interval", ["backup", "--full"])
    after = cli.json("schedule", "update", made, "--schedule-json", '{"target": {"cwd": "jobs"}}', "--", "backup")
    assert (after["target"]["argv"], after["target"]["cwd"]) == (["backup"], "jobs")
    assert cli("schedule", "update", made, "--name", "again").startswith(f"Changed again ({made}).\n")


@pytest.mark.parametrize(
    ("made", "update", "after"),
    [
        (
            ("--label", "team=data", "--label", "tier="),
            ("--label", "place=here"),
            {"labels": {"team": "data", "tier": "", "place": "here"}},
        ),
        (("--label", "team=data", "--label", "tier=1"), ("--label", "team="), {"labels": {"tier": "1"}}),
        (("--label", "team=data"), ("--label", "team=", "--label", "Team=x"), {"labels": {"Team": "x"}}),
        (
            ("--schedule-json", '{"window": {"duration_seconds": 60, "end_action": "none"}}'),
            ("--window", "10"),
            {"window": {"duration_seconds": 10, "end_action": "none"}},
        ),
        (
            ("--schedule-json", '{"retry_policy": {"max_attempts": 2, "backoff_seconds": 7}}'),
            ("--retries", "4"),
            {"retry_policy": {"max_attempts": 5, "backoff_seconds": 7}},
        ),
        (
            ("--schedule-json", '{"misfire_policy": {"type": "spread", "grace_seconds": 5, "window_seconds": 9}}'),
            ("--catchup-limit", "3"),
            {"misfire_policy": {"type": "spread", "grace_seconds": 5, "window_seconds": 9, "limit": 3}},
        ),
        (
            ("--schedule-json", '{"misfire_policy": {"type": "catch_up_all", "grace_seconds": 5, "limit": 3}}'),
            ("--misfire", "catchup_one"),
            {"misfire_policy": {"type": "catch_up_one", "grace_seconds": 5}},
        ),
        (
            ("--schedule-json", '{"misfire_policy": {"type": "catch_up_all", "grace_seconds": 5, "limit": 3}}'),
            ("--misfire", "catchup_all"),
            {"misfire_policy": {"type": "catch_up_all", "grace_seconds": 5, "limit": 3}},
        ),
        (
            ("--schedule-json", '{"overlap_policy": {"type": "queue", "queue_limit": 3}}'),
            ("--overlap", "queue", "--name", "new"),
            {"name": "new", "overlap_policy": {"type": "queue", "queue_limit": 3}},
        ),
        (
            ("--schedule-json", '{"overlap_policy": {"type": "queue", "queue_limit": 3}}'),
            ("--overlap", "skip"),
            {"overlap_policy": "skip"},
        ),
    ],
)
def test_an_update_merges_fields(cli, made, update, after):
    changed = cli.json("schedule", "update", create_report(cli, *made), *update)
    for name, value in after.items():
        told = changed[name]
        assert contains(told, value), told
        assert name != "labels" or told == value


def test_an_update_merges_headers(cli):
    answer = cli.json(
        *("schedule", "create", *NEVER, "--http", "https://example.com/hook", "--header", "X-Team: data"),
        *("--header", "X-Kind: a", "--body-json", "[1]"),
    )
    after = cli.json("schedule", "update", answer["schedule_id"], "--header", "x-kind: b", "--header", "X-New: c")
    assert after["target"] == {**answer["target"], "headers": {"X-Team": "data", "X-Kind": "b", "X-New": "c"}}
    after = cli.json("schedule", "update", answer["schedule_id"], "--header", "X-TEAM:", "--header", "x-new: ")
    assert after["target"] == {**answer["target"], "headers": {"X-Kind": "b"}}


def test_a_reused_event_id(cli):
    assert cli("event", "emit", "paid", "--event-id", "known") == "Emitted paid as known.\n"
    assert cli("event", "emit", "paid", "--event-id", "known") == "Emitted paid as known.\n"
    told = "known was emitted before with another type or payload; nothing was emitted.\n"
    assert cli("event", "emit", "other", "--event-id", "known") == told
    assert cli("event", "emit", "paid", "--payload-json", "1", "--event-id", "known") == told


def test_an_update_of_an_old_revision_is_refused(cli):
    schedule = create_report(cli)
    cli.json("schedule", "update", schedule, "--cron", "@hourly")
    problem = cli.problem(4, "schedule", "update", schedule, "--cron", "@daily", "--expected-revision", "1")
    assert (problem["code"], problem["status"]) == ("revision_conflict", 409)
    assert cli.refused(2, "schedule", "update", schedule) == ["nothing to change; see noonmark schedule update --help"]


def test_missing_schedules(cli):
    cli.create("--cron", "0 0 1 1 *")  # so that there is a store
    for command in ("status", "pause", "resume", "delete", "run-now", "occurrences", "runs", "preview", "explain"):
        problem = cli.problem(3, "schedule", command, "missing")
        assert (problem["code"], problem["field"]) == ("not_found", "schedule_id")
    assert cli.problem(3, "schedule", "update", "missing", "--name", "x")["code"] == "not_found"
    assert cli.problem(3, "schedule", "explain", "occ_" + "0" * 32)["field"] == "occurrence_id"


def test_trigger_delete_refuses_other_schedules(cli):
    schedule = create_report(cli)
    assert cli.refused(3, "trigger", "delete", schedule) == [
        f"schedule_id: {schedule} is not triggered by events; delete it with noonmark schedule delete"
    ]
    assert cli.json("schedule", "status", schedule)["phase"] == "active"


def test_list_limit(cli):
    for _ in range(3):
        create_report(cli, "--label", "of=many")
    page = cli.json("schedule", "list", "--label", "of=many", "--limit", "2")
    assert (len(page["schedules"]), page["next_cursor"] is None) == (2, False)
    shown = cli("schedule", "list", "--label", "of=many", "--limit", "2").splitlines()
    assert shown[-1] == "2 schedules; there are more: --limit 20"
    assert cli("schedule", "list", "--label", "of=many").splitlines()[-1] == "3 schedules"
    assert cli("schedule", "list", "--label", "of=none") == "0 schedules\n"


def test_a_list_reads_several_pages(cli, monkeypatch):
    made = {create_report(cli, "--label", "of=pages") for _ in range(3)}
    monkeypatch.setattr("noonmark.cli.remote.MAX_PAGE", 2)
    listed = cli.json("schedule", "list", "--label", "of=pages", "--limit", "3")
    assert {one["schedule_id"] for one in listed["schedules"]} == made


def test_a_long_list_shows_a_progress_bar_on_a_terminal(cli):
    create_report(cli)
    command = (*NOONMARK, "schedule", "list", "--limit", "5000", "--json", *cli.connection)
    code, shown = in_terminal(*command)
    assert code == 0
    assert "Reading" in shown
    done = in_pipe(*command)
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)


def test_schedule_preview(cli, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    schedule = cli.create("--cron", "30 2 * * *", "--timezone", "Europe/Stockholm")
    asked = ("--after", "2027-03-25T12:00:00Z", "--count", "1")
    assert cli.json("schedule", "preview", schedule, *asked)["fires"] == ["2027-03-26T01:30:00Z"]
    shown = cli("schedule", "preview", schedule, *asked).splitlines()
    assert shown[2].split()[:3] == ["#", "Europe/Stockholm", "UTC"]
    assert shown[3].startswith("1   Fri 2027-03-26 02:30 +01:00   2027-03-26 01:30")
    assert "01:30 -04:00   2027-03-26 05:30" in cli("schedule", "preview", "--cron", "30 1 * * *", *asked)


def test_node_list_and_worker_status(cli, node):
    def alive():
        """The node, once its heartbeat has the function."""
        nodes = cli.json("node", "list")["nodes"]
        return [one for one in nodes if one["is_alive"] and "function:report" in one["routes"]]

    [listed] = eventually(alive)
    shown = cli("node", "list")
    assert listed["node"] in shown
    assert "function:report" in shown
    assert cli.problem(4, "worker", "status")["detail"].startswith("this process has no worker")


@pytest.mark.parametrize(("typed", "code", "phase"), [("y\n", 0, "deleted"), ("n\n", 1, "active"), ("\n", 1, "active")])
def test_delete_asks_for_confirmation_on_a_terminal(cli, typed, code, phase):
    schedule = create_report(cli, "--name", "asked")
    done, shown = in_terminal(*NOONMARK, "schedule", "delete", schedule, "--confirm", *cli.connection, typed=typed)
    assert done == code
    assert f"Delete asked ({schedule})? [y/N] " in shown
    assert cli.json("schedule", "status", schedule)["phase"] == phase


@pytest.mark.parametrize(
    "command",
    [
        ("schedule", "list"),
        ("schedule", "status", "x"),
        ("schedule", "pause", "x"),
        ("event", "list"),
        ("node", "list"),
    ],
    ids=" ".join,
)
def test_reading_does_not_create_the_store_file(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    cli = Cli("--store", "sqlite:///typo.db")
    problem = cli.problem(3, *command)
    assert (problem["code"], problem["field"]) == ("not_found", "--store")
    said = f"there is no file {tmp_path / 'typo.db'}; `noonmark migrate --store sqlite:///typo.db` creates it"
    assert problem["detail"] == said
    assert cli.refused(3, *command) == [f"--store: {said}"]
    assert not (tmp_path / "typo.db").exists()


def test_creating_creates_the_store_file(tmp_path):
    for name, command in (
        ("created", ("schedule", "create", "--function", "f", *NEVER)),
        ("told", ("event", "emit", "e")),
    ):
        cli = Cli("--store", f"sqlite:///{tmp_path / name}")
        cli.json(*command)
        assert (tmp_path / name).exists()


READ_COMMANDS = (
    ("schedule", "list"),
    ("schedule", "status", "x"),
    ("schedule", "explain", "x"),
    ("failures",),
    ("export",),
    ("diff", "-f", "-"),
)
CHANGE_COMMANDS = (("schedule", "pause", "x"), ("schedule", "create", "--function", "f", *NEVER))


def assert_file_is_refused(path, command):
    before = path.read_bytes()
    result = call(*command, "--store", f"sqlite:///{path}", "--json", stdin=b"schedules: []")
    assert (result.code, result.problem["code"]) == (6, "store_unavailable")
    assert f"`noonmark migrate --store sqlite:///{path}`" in result.problem["detail"]
    assert path.read_bytes() == before


@pytest.mark.parametrize("command", [*READ_COMMANDS, *CHANGE_COMMANDS], ids=lambda command: " ".join(command[:2]))
def test_commands_do_not_upgrade_an_older_file(tmp_path, command):
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(FIRST_SCHEMA.read_text(encoding="utf-8"))
    assert_file_is_refused(path, command)


@pytest.mark.parametrize("command", READ_COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_reading_does_not_write_to_an_empty_file(tmp_path, command):
    path = tmp_path / "empty.db"
    path.touch()
    assert_file_is_refused(path, command)


def test_migrate_upgrades_a_file_for_other_commands(tmp_path):
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(FIRST_SCHEMA.read_text(encoding="utf-8"))
    cli = Cli("--store", f"sqlite:///{path}")
    assert call("migrate", *cli.connection).code == 0
    assert cli.json("schedule", "list")["next_cursor"] is None


def test_only_migrate_changes_the_schema_of_a_database_server(database):
    cli = Cli("--store", database.url)
    problem = cli.problem(6, "schedule", "list")
    assert (problem["code"], "noonmark migrate" in problem["detail"]) == ("store_unavailable", True)
    assert call("migrate", *cli.connection).code == 0
    schedule = create_report(cli)
    assert [one["schedule_id"] for one in cli.json("schedule", "list")["schedules"]] == [schedule]


def test_delete_does_not_ask_without_a_terminal(cli):
    schedule = create_report(cli)
    assert cli.json("schedule", "delete", schedule, "--confirm")["phase"] == "deleted"


def test_create_says_which_zone_and_why(cli, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    note = "Time zone America/New_York: that of this machine, because --timezone is not given."
    target = ("--function", "report")
    assert cli("schedule", "create", "--cron", "0 9 * * *", *target).splitlines()[-1] == note
    document = '{"trigger": {"type": "cron", "expression": "0 9 * * *"}}'
    last = cli("schedule", "create", "--schedule-json", document, *target).splitlines()[-1]
    assert last == "Time zone UTC: the default of JSON documents, because the trigger names none."
    assert "Time zone" not in cli("schedule", "create", "--cron", "0 9 * * *", "--timezone", "UTC", *target)
    assert "Time zone" not in cli("schedule", "create", "--every", "1h", *target)


def test_a_unique_name_is_as_good_as_an_id(cli):
    schedule = cli.create("--cron", "0 0 1 1 *", "--name", "the only report")
    for words in (("status",), ("pause",), ("resume",), ("occurrences",), ("runs",), ("explain",), ("preview",)):
        cli("schedule", *words, "the only report")
    assert cli.json("schedule", "update", "the only report", "--description", "d")["schedule_id"] == schedule
    assert cli.json("schedule", "run-now", "the only report")["schedule_id"] == schedule
    listed = cli.json("failures", "--schedule=the only report", "--phase=pending")["occurrences"]
    assert {row["schedule_id"] for row in listed} == {schedule}
    other = cli.create("--cron", "0 0 1 1 *", "--name", "the only report")
    [line] = cli.refused(4, "schedule", "pause", "the only report")
    assert line == (
        f"schedule_id: several schedules have the name 'the only report': give the id, one of {schedule}, {other}"
    )
    assert cli.json("schedule", "delete", other)["phase"] == "deleted"
    assert cli.json("schedule", "delete", "the only report")["schedule_id"] == schedule
    assert cli.refused(3, "schedule", "pause", "the-only-report")[0].startswith("schedule_id: there is no schedule")
    for words in (("status",), ("run-now", "--wait"), ("update", "--max-runs", "3")):
        assert cli.refused(2, "schedule", *words, "räksmörgås") == [
            "schedule_id: no schedule has the id or name 'räksmörgås'"
        ]


def test_commands_on_a_selection(cli):
    ids = [cli.create("--cron", "0 0 1 1 *", "--label", "batch=x") for _ in range(2)]
    shown = cli("schedule", "pause", "--label", "batch=x", "--dry-run")
    assert all(one in shown for one in ids)
    assert shown.splitlines()[-1] == "Would pause 2 schedules"
    assert cli("schedule", "pause", "--label", "batch=x").splitlines()[-1] == "Paused 2 schedules"
    assert cli.json("schedule", "resume", "--label", "batch=x", "--status", "paused")["count"] == 2
    assert cli.json("schedule", "run-now", "--label", "batch=x")["schedules"][0]["occurrence_id"].startswith("occ_")
    assert cli.json("schedule", "label", "--label", "batch=x", "--set", "batch=y")["count"] == 2
    assert cli.json("schedule", "label", ids[0], "--set", "tier=1")["labels"] == {"batch": "y", "tier": "1"}
    one_or_several = "give the id of a schedule, or select several, such as --label team=a"
    assert cli.refused(2, "schedule", "pause") == [one_or_several]
    assert cli.refused(2, "schedule", "delete", ids[0], "--label", "batch=y") == [one_or_several]
    assert cli.refused(2, "schedule", "run-now", "--label", "batch=y", "--wait") == [
        "--wait: waits for one run; give the id of a schedule"
    ]
    assert cli.json("schedule", "delete", "--label", "batch=y")["count"] == 2
    assert cli("schedule", "delete", "--label", "batch=y") == "Deleted 0 schedules\n"
