"""Schedules looked at and steered by commands, on a store that a scheduler works on at the same time."""

import json
import re

import pytest

from noonmark import Scheduler
from tests.cli.calling import Desk, call, contains
from tests.cli.terminal import NOONMARK, in_pipe, in_terminal
from tests.embedded.waiting import eventually

NEVER = ("--cron", "0 0 1 1 *", "--timezone", "UTC")
HOSTILE = "\x1b]0;owned\x07\x9b31m\u202e\r\nnext"
"""What would set a title, a colour and a direction, and begin a new line."""


def report(context):
    """What a node runs: it gives its payload back, or raises what that says."""
    if isinstance(context.payload, dict) and "raise" in context.payload:
        raise ValueError(context.payload["raise"])
    return context.payload


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return Desk("--store", f"sqlite:///{tmp_path_factory.mktemp('store') / 'steered.db'}")


@pytest.fixture(scope="module")
def node(desk):
    """A scheduler that runs what is due."""
    with Scheduler(desk.place[1]) as scheduler:
        scheduler.register_function("report", report)
        yield scheduler
    scheduler.close()


def create(desk, *options):
    return desk.json("schedule", "create", "--function", "report", *NEVER, *options)["schedule_id"]


def run(desk, schedule_id, payload, phase="completed"):
    """Run it now, with a payload, to its end."""
    asked = desk.json("schedule", "run-now", schedule_id, "--payload-json", json.dumps(payload), "--overlap", "queue")
    eventually(lambda: desk.json("schedule", "occurrences", schedule_id, "--phase", phase)["occurrences"])
    return asked["occurrence_id"]


def test_a_run_is_seen_by_every_command(desk, node):
    made = create(desk, "--name", "seen")
    occurrence = run(desk, made, {"rows": 3})
    [ran] = desk.json("schedule", "runs", made)["runs"]
    assert (ran["outcome"], ran["result"], ran["occurrence_id"]) == ("completed", {"rows": 3}, occurrence)
    shown = desk("schedule", "runs", made).splitlines()
    assert [shown[0].split()[0], *shown[2:]] == ["Run", "", "1 run"]
    assert shown[1].split()[0] == ran["run_id"]
    assert shown[1].endswith('{"rows": 3}')
    status = desk.json("schedule", "status", made)
    assert [one["occurrence_id"] for one in status["occurrences"]][-1:] == [occurrence]
    assert (status["last_phase"], status["counters"]["successful"]) == ("completed", 1)
    people = desk("schedule", "status", made)
    assert people.splitlines()[0] == f"seen ({made})"
    assert "So far 1 total, 1 successful" in " ".join(people.split())
    assert occurrence in people
    assert occurrence in desk("schedule", "occurrences", made)
    explained = desk.json("schedule", "explain", occurrence)
    assert (explained["occurrence_id"], explained["phase"]) == (occurrence, "completed")
    lines = desk("schedule", "explain", occurrence).splitlines()
    assert lines[0] == explained["summary"]
    assert [line.split()[0] for line in lines if line.startswith(("trigger ", "runs "))] == ["trigger", "runs"]


def test_a_run_is_waited_for(desk, node):
    made = create(desk)
    assert desk("schedule", "run-now", made, "--wait", "--payload-json", '{"rows": 3}').endswith(
        ' completed: {"rows": 3}\n'
    )
    told = desk.json("schedule", "run-now", made, "--wait", "--payload-json", "7")
    assert (told["phase"], [(one["outcome"], one["result"]) for one in told["runs"]]) == (
        "completed",
        [("completed", 7)],
    )
    assert desk("schedule", "run-now", made, "--wait").endswith(" completed.\n")
    failed = call("schedule", "run-now", made, "--wait", "--payload-json", '{"raise": "no rows"}', *desk.place)
    assert (failed.code, failed.out.split(" ", 1)[1]) == (1, "failed: ValueError: no rows\n")


def test_a_run_is_called_off(desk, node):
    made = desk.json("schedule", "create", "--function", "served_by_nobody", *NEVER)["schedule_id"]
    one = desk.json("schedule", "run-now", made, "--key", "once")["occurrence_id"]
    assert desk("run", "cancel", one, "--reason", "never mind") == f"Cancelled {one}.\n"
    assert desk.json("audit", "list", "--schedule", made)["entries"][0]["reason"] == "never mind"
    ended = call("schedule", "run-now", made, "--key", "once", "--wait", *desk.place)
    assert (ended.code, ended.out.startswith(f"{one} cancelled: ")) == (1, True), ended
    for again in (one, f"{one}-1"):
        assert desk.refused(4, "run", "cancel", again) == ["it has ended already, as cancelled"]
    assert desk.refused(2, "run", "cancel", one, "two", "more") == [
        "2 more arguments than noonmark run cancel takes; see noonmark run cancel --help"
    ]
    assert desk.refused(3, "run", "cancel", "occ_0") == ["occurrence_id: there is no occurrence 'occ_0'"]


def test_the_last_run_is_one_that_ran(desk, node):
    made = create(desk, "--name", "ran once")
    assert "Last run" not in desk("schedule", "status", made)
    run(desk, made, 1)
    desk("schedule", "update", made, "--function", "served_by_nobody")
    desk("schedule", "run-now", made)
    desk("schedule", "delete", made)
    assert desk.json("schedule", "status", made)["last_phase"] == "cancelled"
    [last] = [line for line in desk("schedule", "status", made).splitlines() if line.startswith("Last run")]
    assert last.endswith(": completed")


def test_why_nothing_ran_at_an_instant(desk):
    made = create(desk)
    answer = desk.json("schedule", "explain", made, "--at", "2036-06-01T00:00:00+02:00")
    assert (answer["at"], answer["schedule_id"]) == ("2036-05-31T22:00:00Z", made)
    assert answer["summary"] in " ".join(desk("schedule", "explain", made, "--at", "2036-05-31T22:00:00Z").split())


def test_an_explanation_is_told_whole_on_a_line_for_each_rule_in_a_pipe(desk, node):
    made = create(desk, "--start-at", "2036-05-25T02:00:00Z", "--end-at", "2046-05-26T02:00:00Z")
    occurrence = run(desk, made, {"raise": "p" * 150}, phase="failed")
    explained = desk.json("schedule", "explain", occurrence)
    told = [run["told"] for step in explained["steps"] for run in step["facts"].get("runs", [])]
    lines = desk("schedule", "explain", occurrence).splitlines()
    assert lines[0] == explained["summary"]
    assert len(lines) == 1 + 2 + len(explained["steps"]) + 1 + len(told)
    assert lines[-len(told) :] == told
    for step, line in zip(explained["steps"], lines[3:], strict=False):
        assert line.startswith(step["rule"])
        assert "…" not in line
        assert all(name in line for name, value in step["facts"].items() if value and name != "runs")


def test_pause_resume_delete_and_what_the_audit_log_keeps_of_it(desk):
    made = create(desk, "--name", "steered")
    assert desk("schedule", "pause", made, "--reason", "hold during maintenance") == f"Paused steered ({made}).\n"
    assert made in desk("schedule", "list", "--status", "PAUSED")
    assert desk("schedule", "resume", made, "--reason", "maintenance complete") == f"Resumed steered ({made}).\n"
    assert desk("schedule", "delete", made, "--reason", "retired") == f"Deleted steered ({made}); its history stays.\n"
    assert made not in desk("schedule", "list", "--limit", "1000")
    assert desk.json("schedule", "status", made)["phase"] == "deleted"
    entries = desk.json("audit", "list", "--schedule", made)["entries"]
    assert [(one["operation"], one["reason"]) for one in entries] == [
        ("schedule/delete", "retired"),
        ("schedule/resume", "maintenance complete"),
        ("schedule/pause", "hold during maintenance"),
        ("schedule/create", None),
    ]
    assert "hold during maintenance" in desk("audit", "list", "--schedule", made)


def test_an_update_changes_what_it_says_and_keeps_the_rest(desk):
    made = desk.json("schedule", "create", "--function", "report", "--cron", "@daily", "--timezone", "Asia/Tokyo")
    made, before = made["schedule_id"], made["trigger"]
    after = desk.json("schedule", "update", made, "--cron", "@hourly", "--name", "changed", "--retries", "2")
    assert after["trigger"] == {**before, "expression": "@hourly"}
    assert (after["name"], after["retry_policy"]["max_attempts"], after["revision"]) == ("changed", 3, 2)
    after = desk.json("schedule", "update", made, "--timezone", "Europe/Paris", "--payload-json", "7")
    assert after["trigger"] == {**before, "expression": "@hourly", "timezone": "Europe/Paris"}
    assert (after["target"]["function"], after["target"]["payload"]) == ("report", 7)
    after = desk.json("schedule", "update", made, "--schedule-json", '{"name": null, "max_runs": 3}')
    assert (after["name"], after["max_runs"]) == (None, 3)
    after = desk.json("schedule", "update", made, "--every", "1h", "--", "backup", "--full")
    assert (after["trigger"]["type"], after["target"]["argv"]) == ("interval", ["backup", "--full"])
    after = desk.json("schedule", "update", made, "--schedule-json", '{"target": {"cwd": "jobs"}}', "--", "backup")
    assert (after["target"]["argv"], after["target"]["cwd"]) == (["backup"], "jobs")
    assert desk("schedule", "update", made, "--name", "again").startswith(f"Changed again ({made}).\n")


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
def test_an_update_of_a_part_keeps_the_other_parts(desk, made, update, after):
    changed = desk.json("schedule", "update", create(desk, *made), *update)
    for name, value in after.items():
        told = changed[name]
        assert contains(told, value), told
        assert name != "labels" or told == value


def test_an_update_changes_headers_by_their_names(desk):
    made = desk.json(
        *("schedule", "create", *NEVER, "--http", "https://example.com/hook", "--header", "X-Team: data"),
        *("--header", "X-Kind: a", "--body-json", "[1]"),
    )
    after = desk.json("schedule", "update", made["schedule_id"], "--header", "x-kind: b", "--header", "X-New: c")
    assert after["target"] == {**made["target"], "headers": {"X-Team": "data", "X-Kind": "b", "X-New": "c"}}
    after = desk.json("schedule", "update", made["schedule_id"], "--header", "X-TEAM:", "--header", "x-new: ")
    assert after["target"] == {**made["target"], "headers": {"X-Kind": "b"}}


def test_an_id_that_names_another_event_is_told(desk):
    assert desk("event", "emit", "paid", "--event-id", "known") == "Emitted paid as known.\n"
    assert desk("event", "emit", "paid", "--event-id", "known") == "Emitted paid as known.\n"
    told = "known was emitted before, with another type or payload: nothing new.\n"
    assert desk("event", "emit", "other", "--event-id", "known") == told
    assert desk("event", "emit", "paid", "--payload-json", "1", "--event-id", "known") == told


def test_an_update_of_an_old_revision_is_refused(desk):
    made = create(desk)
    desk.json("schedule", "update", made, "--cron", "@hourly")
    problem = desk.problem(4, "schedule", "update", made, "--cron", "@daily", "--expected-revision", "1")
    assert (problem["code"], problem["status"]) == ("revision_conflict", 409)
    assert desk.refused(2, "schedule", "update", made) == ["say what is to change; see noonmark schedule update --help"]


def test_what_is_not_there(desk):
    desk.create("--cron", "0 0 1 1 *")  # so that there is a store
    for command in ("status", "pause", "resume", "delete", "run-now", "occurrences", "runs", "preview", "explain"):
        problem = desk.problem(3, "schedule", command, "missing")
        assert (problem["code"], problem["field"]) == ("not_found", "schedule_id")
    assert desk.problem(3, "schedule", "update", "missing", "--name", "x")["code"] == "not_found"
    assert desk.problem(3, "schedule", "explain", "occ_" + "0" * 32)["field"] == "occurrence_id"


def test_only_triggers_are_deleted_as_triggers(desk):
    made = create(desk)
    assert desk.refused(3, "trigger", "delete", made) == [
        f"schedule_id: {made} is a schedule that no event sets off; noonmark schedule delete deletes it"
    ]
    assert desk.json("schedule", "status", made)["phase"] == "active"


def test_an_event_sets_a_trigger_off(desk, node):
    made = desk.json("trigger", "create", "--function", "report", "--event", "paid", "--filter-json", '{"sum": 7}')
    desk.json("event", "emit", "paid", "--payload-json", '{"sum": 8}')
    emitted = desk.json(
        "event", "emit", "paid", "--payload-json", '{"sum": 7}', "--event-id", "one", "--source", "till"
    )
    assert emitted == {"event_id": "one"}
    [done] = eventually(
        lambda: desk.json("schedule", "occurrences", made["schedule_id"], "--phase", "completed")["occurrences"]
    )
    assert done["origin"] == "event:one"
    assert desk("event", "list", "--event", "paid").splitlines()[1].split()[:2] == ["one", "paid"]
    assert desk.json("event", "list", "--event", "other")["events"] == []


def test_a_backfill_that_is_waited_for(desk, node):
    made = desk.json(
        *("schedule", "create", "--function", "report", "--every", "1h", "--start-at", "2026-01-01T00:00:00Z")
    )["schedule_id"]
    span = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T02:00:00Z")
    dry = desk.json("schedule", "backfill", made, *span, "--dry-run")
    assert (dry["backfill_id"], dry["count"]) == (None, 3)
    assert desk("schedule", "backfill", made, *span, "--dry-run").splitlines()[-1] == "3 occurrences would run"
    done = desk("schedule", "backfill", made, *span, "--key", "again", "--wait", "--concurrency", "3")
    assert done == "Backfill again: 3 occurrences: 3 completed.\n"
    assert desk.json("schedule", "backfill", made, *span, "--key", "again", "--wait")["phases"] == {"completed": 3}
    code, shown = in_terminal(*NOONMARK, "schedule", "backfill", made, *span, "--wait", *desk.place)
    assert code == 0
    assert "Running" in shown
    assert desk.problem(2, "schedule", "backfill", made, *span, "--limit", "2")["field"] == "limit"
    assert desk.problem(2, "schedule", "backfill", made, "--from", "now", "--to", "later")["field"] == "--to"


def test_a_backfill_of_which_something_failed(desk, node):
    made = desk.json(
        *("schedule", "create", "--function", "report", "--every", "1h", "--start-at", "2026-01-01T00:00:00Z"),
        *("--payload-json", '{"raise": "no luck"}'),
    )["schedule_id"]
    span = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T00:00:00Z")
    done = in_pipe(*NOONMARK, "schedule", "backfill", made, *span, "--key", "b", "--wait", *desk.place)
    assert (done.returncode, done.stdout) == (1, "Backfill b: 1 occurrence: 1 failed.\n")


def test_a_list_longer_than_its_limit(desk):
    for _ in range(3):
        create(desk, "--label", "of=many")
    page = desk.json("schedule", "list", "--label", "of=many", "--limit", "2")
    assert (len(page["schedules"]), page["next_cursor"] is None) == (2, False)
    shown = desk("schedule", "list", "--label", "of=many", "--limit", "2").splitlines()
    assert shown[-1] == "2 schedules; there are more: --limit 20"
    assert desk("schedule", "list", "--label", "of=many").splitlines()[-1] == "3 schedules"
    assert desk("schedule", "list", "--label", "of=none") == "0 schedules\n"


def test_pages_are_read_to_the_end(desk, monkeypatch):
    made = {create(desk, "--label", "of=pages") for _ in range(3)}
    monkeypatch.setattr("noonmark.cli.pages.MAX_PAGE", 2)
    listed = desk.json("schedule", "list", "--label", "of=pages", "--limit", "3")
    assert {one["schedule_id"] for one in listed["schedules"]} == made


def test_a_long_list_shows_a_bar_on_a_terminal_only(desk):
    create(desk)
    command = (*NOONMARK, "schedule", "list", "--limit", "5000", "--json", *desk.place)
    code, shown = in_terminal(*command)
    assert code == 0
    assert "Reading" in shown
    done = in_pipe(*command)
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)


def test_a_preview_of_a_schedule_and_of_options(desk, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    made = desk.create("--cron", "30 2 * * *", "--timezone", "Europe/Stockholm")
    asked = ("--after", "2027-03-25T12:00:00Z", "--count", "1")
    assert desk.json("schedule", "preview", made, *asked)["fires"] == ["2027-03-26T01:30:00Z"]
    shown = desk("schedule", "preview", made, *asked).splitlines()
    assert shown[2].split()[:3] == ["#", "Europe/Stockholm", "UTC"]
    assert shown[3].startswith("1   Fri 2027-03-26 02:30 +01:00   2027-03-26 01:30")
    assert "01:30 -04:00   2027-03-26 05:30" in desk("schedule", "preview", "--cron", "30 1 * * *", *asked)


def test_nodes_and_the_worker(desk, node):
    def alive():
        """The node, once its heartbeat has told of the function."""
        nodes = desk.json("node", "list")["nodes"]
        return [one for one in nodes if one["is_alive"] and "function:report" in one["routes"]]

    [listed] = eventually(alive)
    shown = desk("node", "list")
    assert listed["node"] in shown
    assert "function:report" in shown
    assert desk.problem(4, "worker", "status")["detail"].startswith("this process has no worker")


@pytest.mark.parametrize(("typed", "code", "phase"), [("y\n", 0, "deleted"), ("n\n", 1, "active"), ("\n", 1, "active")])
def test_somebody_at_a_terminal_is_asked_if_they_want_to_be(desk, typed, code, phase):
    made = create(desk, "--name", "asked")
    done, shown = in_terminal(*NOONMARK, "schedule", "delete", made, "--confirm", *desk.place, typed=typed)
    assert done == code
    assert f"Delete asked ({made})? [y/N] " in shown
    assert desk.json("schedule", "status", made)["phase"] == phase


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
def test_a_file_that_is_not_there_is_not_made_by_looking_into_it(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    desk = Desk("--store", "sqlite:///typo.db")
    problem = desk.problem(3, *command)
    assert (problem["code"], problem["field"]) == ("not_found", "--store")
    assert problem["detail"] == f"there is no file {tmp_path / 'typo.db'}"
    assert desk.refused(3, *command) == [f"--store: there is no file {tmp_path / 'typo.db'}"]
    assert not (tmp_path / "typo.db").exists()


def test_a_file_that_is_not_there_is_made_for_what_is_new(tmp_path):
    for name, command in (
        ("created", ("schedule", "create", "--function", "f", *NEVER)),
        ("told", ("event", "emit", "e")),
    ):
        desk = Desk("--store", f"sqlite:///{tmp_path / name}")
        desk.json(*command)
        assert (tmp_path / name).exists()


def test_a_database_on_a_server_is_changed_by_nobody_but_migrate(database):
    desk = Desk("--store", database.url)
    problem = desk.problem(6, "schedule", "list")
    assert (problem["code"], "noonmark migrate" in problem["detail"]) == ("store_unavailable", True)
    assert call("migrate", *desk.place).code == 0
    made = create(desk)
    assert [one["schedule_id"] for one in desk.json("schedule", "list")["schedules"]] == [made]


def test_nobody_is_asked_without_a_terminal(desk):
    made = create(desk)
    assert desk.json("schedule", "delete", made, "--confirm")["phase"] == "deleted"


def test_what_documents_say_moves_no_cursor(desk, node):
    made = create(desk, "--description", HOSTILE, "--name", "left\u202eright", "--label", "a\u202e=b\u202e")
    run(desk, made, {"raise": HOSTILE}, phase="failed")
    desk.json("event", "emit", "hostile", "--payload-json", json.dumps({"text": HOSTILE}), "--source", "x\u202e")
    for command in (
        ("schedule", "status", made),
        ("schedule", "list", "--text", made),
        ("schedule", "runs", made),
        ("schedule", "occurrences", made),
        ("schedule", "explain", desk.json("schedule", "occurrences", made)["occurrences"][-1]["occurrence_id"]),
        ("schedule", "pause", made, "--reason", "r\u202e"),
        ("event", "list", "--event", "hostile"),
        ("audit", "list", "--schedule", made),
    ):
        assert desk(*command).replace("\n", "").isprintable(), command
        assert desk.json(*command)
    code, shown = in_terminal(*NOONMARK, "schedule", "delete", made, "--confirm", *desk.place, typed="n\n")
    assert (code, "Delete left?right" in shown) == (1, True)
    [line] = desk.refused(2, "schedule", "status", HOSTILE)
    assert line.isprintable()


@pytest.mark.parametrize(("command", "before"), [("runs", "-1: "), ("explain", " seconds: ")])
def test_on_a_terminal_too_what_a_run_raised_is_told_on_one_line(desk, node, command, before):
    made = create(desk)
    run(desk, made, {"raise": "no \x1b[31mpaper\u202e"}, phase="failed")
    code, shown = in_terminal(*NOONMARK, "schedule", command, made, *desk.place)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert code == 0
    assert f"{before}ValueError: no ?[31mpaper?" in " ".join(plain.split())
    assert "\u202e" not in plain
    assert "…" not in plain
