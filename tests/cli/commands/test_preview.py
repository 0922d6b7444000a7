"""`noonmark preview` and `noonmark check`: what they print and what they refuse."""

import json
import os
import re

import pytest

from tests.cli.runner import call
from tests.embedded.waiting import eventually

SPRING = ("30 2 * * *", "--timezone", "Europe/Stockholm", "--after", "2027-03-25T12:00:00Z")
JUMP = "on 2027-03-28 there is no 02:30 in Europe/Stockholm (the clock jumps from 02:00 to 03:00)"
SCHEDULE = {
    "name": "nightly",
    "trigger": {"type": "cron", "expression": "30 2 * * *", "timezone": "Europe/Stockholm"},
    "target": {"target_kind": "function", "function": "reports.build"},
}


@pytest.fixture(autouse=True)
def _width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def noonmark(*arguments, stdin=None):
    return call(*(os.fsdecode(one) for one in arguments), stdin=stdin)


def refused(result, code=2):
    assert result.code == code, result
    assert result.errors
    assert all(len(line) <= 1_100 for line in result.errors)
    return result.errors


def checked(document, *options):
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    return noonmark("check", "-", *options, stdin=raw)


def without_distance(text):
    """The lines without the column "From now", which depends on the time of the test."""
    return [re.sub(r"  +(in [\d,]+ .*|[\d,]+ .* ago|now|From now)$", "", line) for line in text.splitlines()]


def test_preview():
    result = noonmark("preview", *SPRING, "--count", "4")
    assert (result.code, result.err) == (0, "")
    assert without_distance(result.out) == [
        "At 02:30, Europe/Stockholm time",
        "",
        "#   Europe/Stockholm              UTC",
        "1   Fri 2027-03-26 02:30 +01:00   2027-03-26 01:30",
        "2   Sat 2027-03-27 02:30 +01:00   2027-03-27 01:30",
        "3   Sun 2027-03-28 03:00 +02:00   2027-03-28 01:00",
        "4   Mon 2027-03-29 02:30 +02:00   2027-03-29 00:30",
        "",
        "! on 2027-03-28 there is no 02:30 in Europe/Stockholm (the clock jumps from",
        "  02:00 to 03:00): it fires at 03:00 instead",
    ]


def test_preview_as_json():
    result = noonmark("preview", *SPRING, "--count", "3", "--json")
    assert (result.code, result.err, result.out.count("\n")) == (0, "", 1)
    assert json.loads(result.out) == {
        "fires": ["2027-03-26T01:30:00Z", "2027-03-27T01:30:00Z", "2027-03-28T01:00:00Z"],
        "description": "At 02:30, Europe/Stockholm time",
        "warnings": [f"{JUMP}: it fires at 03:00 instead"],
    }


def test_preview_of_several_expressions():
    result = noonmark("preview", "0 9 * * *", "0 17 * * *", "@daily", "--after", "2026-04-21T00:00:00Z", "--json")
    assert json.loads(result.out)["fires"] == [
        "2026-04-21T09:00:00Z",
        "2026-04-21T17:00:00Z",
        "2026-04-22T00:00:00Z",
        "2026-04-22T09:00:00Z",
        "2026-04-22T17:00:00Z",
    ]


def test_preview_of_a_trigger_document():
    document = {"type": "interval", "every_seconds": 0.25, "start_at_utc": "2026-04-21T00:00:00Z"}
    arguments = ("preview", "--trigger-json", json.dumps(document), "--after", "2026-04-21T00:00:00Z", "--count", "2")
    assert without_distance(noonmark(*arguments).out) == [
        "Every 0.25 seconds, from 2026-04-21 00:00:00 UTC",
        "",
        "#   UTC",
        "1   Tue 2026-04-21 00:00:00.250",
        "2   Tue 2026-04-21 00:00:00.500",
    ]


def test_the_key_moves_hashed_fields_and_nothing_else():
    def first(expression, key):
        result = noonmark("preview", expression, "--key", key, "--after", "2026-04-21T00:00:00Z", "--json")
        return json.loads(result.out)["fires"][0]

    assert first("H H * * *", "one") != first("H H * * *", "another")
    assert first("0 0 * * *", "one") == first("0 0 * * *", "another")


def test_preview_starts_now_by_default():
    fires = json.loads(noonmark("preview", "* * * * *", "--json").out)["fires"]
    assert len(fires) == 5
    assert fires == sorted(set(fires))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"type": "once", "due_at_utc": "2020-01-01T00:00:00Z"}, "After 2026-04-21T00:00:00Z it never fires."),
        ({"type": "once", "due_at_utc": "2030-01-01T00:00:00Z"}, "After that it never fires."),
        (
            {"type": "event", "event_type": "paid", "filters": {"sum": [1]}},
            "When paid is emitted and sum is one of [1]",
        ),
    ],
)
def test_preview_without_further_fires(document, message):
    result = noonmark("preview", "--trigger-json", json.dumps(document), "--after", "2026-04-21T00:00:00Z")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[-1] == message


def test_preview_in_the_year_9999():
    result = noonmark("preview", "59 8 * * *", "--timezone", "Asia/Tokyo", "--after", "9999-12-31T20:00:00Z")
    assert (result.code, result.err) == (0, "")
    assert "outside the years 1 to 9999" in result.out


def test_preview_shows_up_to_1000_fires():
    result = noonmark("preview", "* * * * *", "--count", "1000", "--json")
    assert len(json.loads(result.out)["fires"]) == 1_000
    assert refused(noonmark("preview", "* * * * *", "--count", "1001")) == [
        "--count: must be from 1 to 1,000, not 1001"
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give a cron expression in quotes"),
        (("0", "9", "*", "*", "1-5"), "put the expression in quotes"),
        (("61 * * * *",), 'expression: minute field "61": 61 is out of range; allowed are 0-59'),
        (("0 0 30 2 *",), "expression: "),
        (("x" * 2_000,), "expression: "),
        (("* * * * *\n",), "expression: "),
        (("",), "expression: "),
        (("0 0 * * *", "--count", "0"), "--count: must be from 1 to 1,000, not 0"),
        (("0 0 * * *", "--count", "-1"), "--count: must be from 1 to 1,000, not -1"),
        (("0 0 * * *", "--count", "9" * 30), "--count: must be from 1 to 1,000"),
        (("0 0 * * *", "--count", "9" * 5_000), "Invalid value for --count"),
        (("0 0 * * *", "--count", "many"), "Invalid value for --count"),
        (("0 0 * * *", "--timezone", "Stockholm"), "timezone: is not an IANA time zone"),
        (("0 0 * * *", "--timezone", "../../etc/passwd"), "timezone: is not an IANA time zone"),
        (("0 0 * * *", "--timezone", "x" * 2_000), "timezone: is not an IANA time zone"),
        (("0 0 * * *", "--after", "tomorrow"), "--after: must be an RFC 3339 instant"),
        (("0 0 * * *", "--after", "2026-04-21T09:00:00"), "--after: must be an RFC 3339 instant"),
        (("H * * * *", "--key", "k" * 201), "key: "),
        (("0 0 * * *", "--trigger-json", "{}"), "--trigger-json: conflicts with expressions"),
        (("--trigger-json", "{}", "--timezone", "UTC"), "--timezone: belongs in the document"),
        (("--trigger-json", "{"), "--trigger-json: is not JSON"),
        (("--trigger-json", "[]"), "must be an object"),
        (("--trigger-json", '{"type": "once", "type": "cron"}'), '--trigger-json: gives the key "type" twice'),
        (("--trigger-json", '{"type": "interval", "every_seconds": NaN}'), "--trigger-json: is not JSON: NaN"),
        (("--trigger-json", '{"type": "weekly"}'), "type: must be one of"),
        (("--trigger-json", "[" * 50_000), "--trigger-json: is nested too deeply"),
        (("--trigger-json", "9" * 5_000), "--trigger-json: contains an integer beyond 64 bits"),
        (("--colour", "0 0 * * *"), "Unknown option"),
        (("--no-json", "0 0 * * *"), "Unknown option"),
        ((b"\xff * * * *",), "expression: "),
        ((b"--\xff\x1b[31m",), "Unknown option"),
    ],
)
def test_preview_refuses(arguments, message):
    (line,) = refused(noonmark("preview", *arguments))
    assert line.startswith(message)
    assert line.isprintable()


def test_preview_reports_every_bad_expression():
    assert [line.split(":")[0] for line in refused(noonmark("preview", "61 * * * *", "0 0 * * *", "0 25 * * *"))] == [
        "crons[0]",
        "crons[2]",
    ]


def test_check():
    result = checked(SCHEDULE | {"retry_policy": {"max_attempts": 3}, "misfire_policy": "catch_up_all"})
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[:6] == [
        "nightly is valid.",
        "Fires       At 02:30, Europe/Stockholm time",
        "Starts      function:reports.build, at most 3 attempts",
        "When busy   a new one is skipped",
        "When late   by more than 1 minute: the newest 10 missed ones run",
        "",
    ]
    assert [line[:4] for line in lines[6:10]] == ["#   ", "1   ", "2   ", "3   "]
    assert lines[11].startswith("! on ")


def test_check_as_json():
    result = checked(SCHEDULE, "--json")
    assert (result.code, result.err) == (0, "")
    answer = json.loads(result.out)
    assert list(answer) == ["valid", "problems", "fires", "description", "warnings"]
    assert (answer["valid"], answer["problems"], len(answer["fires"])) == (True, [], 3)


@pytest.mark.parametrize(
    ("misfire", "message"),
    [
        ("skip", "not run"),
        ("catch_up_one", "the newest missed one runs"),
        ({"type": "catch_up_within", "window_seconds": 90}, "run if missed within 1 minute 30 seconds, the newest 100"),
        ("spread", "the newest 100 missed ones run, spread over 1 minute"),
    ],
)
def test_check_describes_the_misfire_policy(misfire, message):
    words = " ".join(checked(SCHEDULE | {"misfire_policy": misfire}).out.split())
    assert f"When late by more than 1 minute: {message} #" in words


def test_check_of_dependencies_and_event_triggers():
    followed = [{"schedule_id": "extract"}, {"schedule_id": "load"}]
    document = {"target": SCHEDULE["target"], "depends_on": followed, "enabled": False}
    assert checked(document).out.splitlines() == [
        "The schedule is valid.",
        "Fires       After extract and load",
        "Starts      function:reports.build",
        "When busy   a new one is skipped",
        "Enabled     no, nothing fires until it is resumed",
    ]
    document = {"target": SCHEDULE["target"], "trigger": {"type": "event", "event_type": "paid"}}
    assert checked(document).out.splitlines() == [
        "The schedule is valid.",
        "Fires       When paid is emitted",
        "Starts      function:reports.build",
        "When busy   new ones wait and run in order",
    ]


FAULTY = SCHEDULE | {"trigger": {"type": "cron", "expression": "61 * * * *"}, "max_runs": 0}


def test_check_reports_every_problem():
    result = checked(FAULTY)
    assert result.code == 2
    assert result.out.splitlines() == [
        'trigger.expression: minute field "61": 61 is out of range; allowed are 0-59 [invalid_trigger]',
        "max_runs: must be an integer from 1 to 2,147,483,647, not 0 [invalid_schedule]",
    ]
    assert result.err == "noonmark: -: 2 problems\n"


def test_check_reports_every_problem_as_json():
    result = checked(FAULTY, "--json")
    assert (result.code, result.err) == (2, "")
    answer = json.loads(result.out)
    assert answer["valid"] is False
    assert [(problem["field"], problem["code"]) for problem in answer["problems"]] == [
        ("trigger.expression", "invalid_trigger"),
        ("max_runs", "invalid_schedule"),
    ]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "is not JSON: Expecting value (line 1, column 1)"),
        (b"{'name': 1}", "is not JSON: "),
        (b'{"name": "a", "name": "b"}', 'gives the key "name" twice in one object'),
        (b'{"labels": {"a": "b", "a": "b"}}', 'gives the key "a" twice in one object'),
        (b'{"name": "\xff"}', "is not UTF-8 text: byte 11 is 0xff"),
        (b"\xff\xfe{\x00}\x00", "is not UTF-8 text: byte 1 is 0xff"),
        (b'{"max_runs": Infinity}', "is not JSON: Infinity is not a number in JSON"),
        (b'{"max_runs": ' + b"9" * 100_000 + b"}", "contains an integer beyond 64 bits"),
        (b'{"a":' * 100_000, "is nested too deeply"),
        (b" " * 1_048_577, "is larger than 1 MiB"),
        (b"[]", "must be an object, not a list"),
    ],
)
def test_check_refuses_documents(raw, message):
    result = checked(raw)
    assert result.code == 2
    assert result.out.startswith(f"document: {message}")
    assert result.out.endswith(" [invalid_schedule]\n")
    assert result.err == "noonmark: -: 1 problem\n"


def test_check_asks_a_store_whether_a_live_node_serves_the_target(cli, node):
    served, misspelt = (
        {
            "trigger": {"type": "interval", "every_seconds": 60},
            "target": {"target_kind": "function", "function": name},
        }
        for name in ("report", "repotr")
    )
    # Until the node has said what it serves, nothing is known to be missing.
    [warning] = eventually(lambda: checked(misspelt, *cli.connection, "--json").json["warnings"])
    assert checked(served, *cli.connection, "--json").json["warnings"] == []
    assert warning.startswith("no live node serves `function:repotr`; did you mean `function:report`?")
    assert "no live node serves" in " ".join(checked(misspelt, *cli.connection).out.split())
    assert "no live node" not in checked(misspelt).out


def test_check_warns_of_a_window_after_which_no_other_follows(cli, node):
    document = {
        "trigger": {"type": "once", "delay_seconds": 60},
        "target": {"target_kind": "command", "argv": ["true"]},
        "window": {"duration_seconds": 5, "end_action": "pause"},
    }
    for connection in ((), cli.connection):
        warnings = checked(document, *connection, "--json").json["warnings"]
        assert any("no further window follows" in warning for warning in warnings)


def test_check_asks_a_server_and_says_if_there_is_none():
    refused = checked(SCHEDULE, "--server", "http://127.0.0.1:1")
    assert refused.code == 6
    assert refused.errors[0].startswith("cannot connect to http://127.0.0.1:1")


def test_check_reads_files(tmp_path):
    file = tmp_path / "schedule.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(SCHEDULE).encode())  # as some editors begin a file
    assert noonmark("check", str(file)).code == 0
    file.write_bytes(b"\xff")
    result = noonmark("check", str(file), "--json")
    assert (result.code, json.loads(result.out)["problems"][0]["message"]) == (
        2,
        "is not UTF-8 text: byte 1 is 0xff",
    )


def test_check_of_a_missing_file(tmp_path):
    missing = str(tmp_path / "missing.json")
    assert refused(noonmark("check", missing), code=3) == [f"{missing}: no such file"]


def test_check_of_an_unreadable_file(tmp_path):
    assert refused(noonmark("check", str(tmp_path)), code=1) == [f"{tmp_path}: cannot be read: Is a directory"]


@pytest.mark.parametrize("arguments", [(), ("--colour",), ("one.json", "two.json")])
def test_check_refuses_arguments(arguments):
    refused(noonmark("check", *arguments))


MACHINE = "Time zone America/New_York: that of this machine, because --timezone is not given."
DOCUMENT = "Time zone UTC: the default of JSON documents, because the trigger names none."


@pytest.mark.parametrize("command", [("preview", "0 9 * * *"), ("check", "--cron", "0 9 * * *")])
def test_flags_have_the_zone_of_the_machine_and_say_so(monkeypatch, command):
    monkeypatch.setenv("TZ", "America/New_York")
    lines = noonmark(*command).out.splitlines()
    assert (lines[0], lines[-1]) == ("At 09:00, America/New_York time", MACHINE)
    assert json.loads(noonmark(*command, "--json").out)["timezone_note"] == MACHINE
    given = noonmark(*command, "--timezone", "Asia/Tokyo").out.splitlines()
    assert given[0] == "At 09:00, Asia/Tokyo time"
    assert "Time zone" not in given[-1]


def test_documents_have_utc_and_say_so(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    trigger = {"type": "cron", "expression": "0 9 * * *"}
    lines = noonmark("preview", "--trigger-json", json.dumps(trigger)).out.splitlines()
    assert (lines[0], lines[-1]) == ("At 09:00, UTC", DOCUMENT)
    document = {"trigger": trigger, "target": {"target_kind": "function", "function": "f"}}
    assert checked(document).out.splitlines()[-1] == DOCUMENT
    assert checked(document, "--cron", "0 9 * * *").code == 2
    assert checked(document, "--timezone", "UTC").code == 2
    zoned = document | {"trigger": trigger | {"timezone": "Asia/Tokyo"}}
    assert "Time zone" not in checked(zoned).out.splitlines()[-1]
