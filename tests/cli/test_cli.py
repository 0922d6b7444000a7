"""The command line, run for real: what is printed, where, and with which exit code."""

import json
import os
import re
import signal
import subprocess
import sys
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import pytest

from noonmark.cli.app import GROUPS
from noonmark.cli.show import from_now
from tests.cli.calling import call
from tests.cli.terminal import ENVIRONMENT, NOONMARK, ROOT, in_pipe, in_terminal

SPRING = ("30 2 * * *", "--timezone", "Europe/Stockholm", "--after", "2027-03-25T12:00:00Z")
JUMP = "on 2027-03-28 there is no 02:30 in Europe/Stockholm (the clock jumps from 02:00 to 03:00)"
SCHEDULE = {
    "name": "nightly",
    "trigger": {"type": "cron", "expression": "30 2 * * *", "timezone": "Europe/Stockholm"},
    "target": {"target_kind": "function", "function": "reports.build"},
}


def noonmark(*arguments, **options):
    return in_pipe(*NOONMARK, *arguments, **options)


def refused(done, code=2):
    """What a refusal said: only on stderr, in whole lines that begin with the program's name."""
    assert done.returncode == code, done
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines
    assert all(line.startswith("noonmark: ") and len(line) <= 1_100 for line in lines), lines
    return [line.removeprefix("noonmark: ") for line in lines]


def problem(done, code):
    """What a refusal said to a machine: one object on one line of stderr."""
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done
    return json.loads(done.stderr)


def checked(document, *options):
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    return noonmark("check", "-", *options, stdin=raw)


def without_distance(text):
    """A page without its column "From now", which depends on when it is printed."""
    return [re.sub(r"  +(in [\d,]+ .*|[\d,]+ .* ago|now|From now)$", "", line) for line in text.splitlines()]


def test_version():
    done = noonmark("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, version("noonmark") + "\n", "")


def test_the_console_script_is_the_same_program():
    script = Path(sys.executable).with_name("noonmark")
    assert in_pipe(str(script), "--version").stdout == noonmark("--version").stdout


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_is_short_and_names_every_command(arguments):
    done = noonmark(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    named = {line.split(":")[0].strip() for line in done.stdout.splitlines() if line.startswith("  ")}
    assert named >= {"preview", "check", "serve", "migrate", "config", "call", *GROUPS}
    assert len(done.stdout.splitlines()) <= 30  # it fits on a terminal


@pytest.mark.parametrize("command", ["preview", "check"])
def test_help_of_a_command(command):
    done = noonmark(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: noonmark {command} ")


@pytest.mark.parametrize(
    "command", [(group, name) for group, (_, commands) in GROUPS.items() for name in commands], ids=" ".join
)
def test_help_of_a_command_of_a_group(command):
    done = call(*command, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Usage: noonmark {' '.join(command)}")
    assert "--json" in done.out


def test_preview_for_people():
    done = noonmark("preview", *SPRING, "--count", "4")
    assert (done.returncode, done.stderr) == (0, "")
    assert without_distance(done.stdout) == [
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


def test_preview_for_machines():
    done = noonmark("preview", *SPRING, "--count", "3", "--json")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    assert json.loads(done.stdout) == {
        "fires": ["2027-03-26T01:30:00Z", "2027-03-27T01:30:00Z", "2027-03-28T01:00:00Z"],
        "description": "At 02:30, Europe/Stockholm time",
        "warnings": [f"{JUMP}: it fires at 03:00 instead"],
    }


def test_preview_of_several_expressions():
    done = noonmark("preview", "0 9 * * *", "0 17 * * *", "@daily", "--after", "2026-04-21T00:00:00Z", "--json")
    assert json.loads(done.stdout)["fires"] == [
        "2026-04-21T09:00:00Z",
        "2026-04-21T17:00:00Z",
        "2026-04-22T00:00:00Z",
        "2026-04-22T09:00:00Z",
        "2026-04-22T17:00:00Z",
    ]


def test_preview_of_a_trigger_document():
    document = {"type": "interval", "every_seconds": 0.25, "start_at_utc": "2026-04-21T00:00:00Z"}
    arguments = ("preview", "--trigger-json", json.dumps(document), "--after", "2026-04-21T00:00:00Z", "--count", "2")
    assert without_distance(noonmark(*arguments).stdout) == [
        "Every 0.25 seconds, from 2026-04-21 00:00:00 UTC",
        "",
        "#   UTC",
        "1   Tue 2026-04-21 00:00:00.250",
        "2   Tue 2026-04-21 00:00:00.500",
    ]


def test_the_key_moves_hashed_fields_and_nothing_else():
    def first(expression, key):
        done = noonmark("preview", expression, "--key", key, "--after", "2026-04-21T00:00:00Z", "--json")
        return json.loads(done.stdout)["fires"][0]

    assert first("H H * * *", "one") != first("H H * * *", "another")
    assert first("0 0 * * *", "one") == first("0 0 * * *", "another")


def test_preview_counts_from_now_unless_told():
    fires = json.loads(noonmark("preview", "* * * * *", "--json").stdout)["fires"]
    assert len(fires) == 5
    assert fires == sorted(set(fires))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"type": "once", "due_at_utc": "2020-01-01T00:00:00Z"}, "After 2026-04-21T00:00:00Z it never fires."),
        ({"type": "once", "due_at_utc": "2030-01-01T00:00:00Z"}, "After that it never fires."),
        (
            {"type": "event", "event_type": "paid", "filters": {"sum": [1]}},
            "When paid is emitted and sum is one of [1]",
        ),
    ],
)
def test_preview_says_when_there_are_no_further_fires(document, said):
    done = noonmark("preview", "--trigger-json", json.dumps(document), "--after", "2026-04-21T00:00:00Z")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == said


def test_preview_at_the_end_of_time():
    done = noonmark("preview", "59 8 * * *", "--timezone", "Asia/Tokyo", "--after", "9999-12-31T20:00:00Z")
    assert (done.returncode, done.stderr) == (0, "")
    assert "outside the years 1 to 9999" in done.stdout


def test_a_thousand_fires_are_shown_and_one_more_is_refused():
    done = noonmark("preview", "* * * * *", "--count", "1000", "--json")
    assert len(json.loads(done.stdout)["fires"]) == 1_000
    assert refused(noonmark("preview", "* * * * *", "--count", "1001")) == [
        "--count: must be from 1 to 1,000, not 1001"
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
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
        (("0 0 * * *", "--trigger-json", "{}"), "--trigger-json: give either expressions or a document"),
        (("--trigger-json", "{}", "--timezone", "UTC"), "--timezone: belongs inside the document"),
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
def test_what_preview_refuses(arguments, said):
    (line,) = refused(noonmark("preview", *arguments))
    assert line.startswith(said)
    assert line.isprintable()


def test_every_bad_expression_is_told():
    assert [line.split(":")[0] for line in refused(noonmark("preview", "61 * * * *", "0 0 * * *", "0 25 * * *"))] == [
        "crons[0]",
        "crons[2]",
    ]


def test_an_unknown_command_is_a_usage_error():
    (line,) = refused(noonmark("prevew"))
    assert line.startswith('Unknown command "prevew". Did you mean "preview"?')
    assert line.endswith("See noonmark --help.")


def test_check_for_people():
    done = checked(SCHEDULE | {"retry_policy": {"max_attempts": 3}, "misfire_policy": "catch_up_all"})
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
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


def test_check_for_machines():
    done = checked(SCHEDULE, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert list(answer) == ["valid", "problems", "fires", "description", "warnings"]
    assert (answer["valid"], answer["problems"], len(answer["fires"])) == (True, [], 3)


@pytest.mark.parametrize(
    ("misfire", "said"),
    [
        ("skip", "not run"),
        ("catch_up_one", "the newest missed one runs"),
        ({"type": "catch_up_within", "window_seconds": 90}, "run if missed within 1 minute 30 seconds, the newest 100"),
        ("spread", "the newest 100 missed ones run, spread over 1 minute"),
    ],
)
def test_check_says_what_happens_after_an_outage(misfire, said):
    words = " ".join(checked(SCHEDULE | {"misfire_policy": misfire}).stdout.split())
    assert f"When late by more than 1 minute: {said} #" in words


def test_check_of_a_schedule_that_follows_others_or_waits_for_events():
    followed = [{"schedule_id": "extract"}, {"schedule_id": "load"}]
    document = {"target": SCHEDULE["target"], "depends_on": followed, "enabled": False}
    assert checked(document).stdout.splitlines() == [
        "The schedule is valid.",
        "Fires       After extract and load",
        "Starts      function:reports.build",
        "When busy   a new one is skipped",
        "Enabled     no, nothing fires until it is resumed",
    ]
    document = {"target": SCHEDULE["target"], "trigger": {"type": "event", "event_type": "paid"}}
    assert checked(document).stdout.splitlines() == [
        "The schedule is valid.",
        "Fires       When paid is emitted",
        "Starts      function:reports.build",
        "When busy   new ones wait and run in order",
    ]


FAULTY = SCHEDULE | {"trigger": {"type": "cron", "expression": "61 * * * *"}, "max_runs": 0}


def test_check_tells_every_problem():
    done = checked(FAULTY)
    assert done.returncode == 2
    assert done.stdout.splitlines() == [
        'trigger.expression: minute field "61": 61 is out of range; allowed are 0-59 [invalid_trigger]',
        "max_runs: must be a whole number from 1 to 2,147,483,647, not 0 [invalid_schedule]",
    ]
    assert done.stderr == "noonmark: -: 2 problems\n"


def test_check_tells_every_problem_to_machines():
    done = checked(FAULTY, "--json")
    assert (done.returncode, done.stderr) == (2, "")
    answer = json.loads(done.stdout)
    assert answer["valid"] is False
    assert [(problem["field"], problem["code"]) for problem in answer["problems"]] == [
        ("trigger.expression", "invalid_trigger"),
        ("max_runs", "invalid_schedule"),
    ]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "is not JSON: Expecting value (line 1, column 1)"),
        (b"{'name': 1}", "is not JSON: "),
        (b'{"name": "a", "name": "b"}', 'gives the key "name" twice in one object'),
        (b'{"labels": {"a": "b", "a": "b"}}', 'gives the key "a" twice in one object'),
        (b'{"name": "\xff"}', "is not UTF-8 text: byte 11 is 0xff"),
        (b"\xff\xfe{\x00}\x00", "is not UTF-8 text: byte 1 is 0xff"),
        (b'{"max_runs": Infinity}', "is not JSON: Infinity is no number there"),
        (b'{"max_runs": ' + b"9" * 100_000 + b"}", "contains an integer beyond 64 bits"),
        (b'{"a":' * 100_000, "is nested too deeply"),
        (b" " * 1_048_577, "is larger than 1 MiB"),
        (b"[]", "must be an object, not a list"),
    ],
)
def test_what_check_cannot_read(raw, said):
    done = checked(raw)
    assert done.returncode == 2
    assert done.stdout.startswith(f"document: {said}")
    assert done.stdout.endswith(" [invalid_schedule]\n")
    assert done.stderr == "noonmark: -: 1 problem\n"


def test_check_reads_files(tmp_path):
    file = tmp_path / "schedule.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(SCHEDULE).encode())  # as some editors begin a file
    assert noonmark("check", str(file)).returncode == 0
    file.write_bytes(b"\xff")
    done = noonmark("check", str(file), "--json")
    assert (done.returncode, json.loads(done.stdout)["problems"][0]["message"]) == (
        2,
        "is not UTF-8 text: byte 1 is 0xff",
    )


def test_a_file_that_is_not_there(tmp_path):
    missing = str(tmp_path / "missing.json")
    assert refused(noonmark("check", missing), code=3) == [f"{missing}: there is no such file"]


def test_a_file_that_cannot_be_read(tmp_path):
    assert refused(noonmark("check", str(tmp_path)), code=1) == [f"{tmp_path}: cannot be read: Is a directory"]


@pytest.mark.parametrize("arguments", [(), ("--colour",), ("one.json", "two.json")])
def test_what_check_refuses(arguments):
    refused(noonmark("check", *arguments))


def test_a_problem_for_machines_is_one_object_on_stderr(tmp_path):
    missing = str(tmp_path / "missing.json")
    assert problem(noonmark("check", missing, "--json"), code=3) == {
        "title": "Not found",
        "status": 404,
        "code": "not_found",
        "detail": "there is no such file",
        "field": missing,
    }
    told = problem(noonmark("preview", "61 * * * *", "0 25 * * *", "--json"), code=2)
    assert (told["code"], [one["field"] for one in told["problems"]]) == ("invalid_trigger", ["crons[0]", "crons[1]"])
    assert problem(noonmark("prevew", "--json"), code=2)["code"] == "invalid_request"


@pytest.mark.parametrize(
    "arguments",
    [
        (
            "preview",
            "0 9 13 * FRI",
            "*/7 1-5 * * *",
            "--timezone",
            "America/Argentina/ComodRivadavia",
            "--count",
            "1000",
        ),
        ("preview", "* * * * * *", "--timezone", "America/Argentina/ComodRivadavia", "--after", "9000-01-01T00:00:00Z"),
        ("--help",),
        ("preview", "--help"),
    ],
)
def test_a_pipe_gets_plain_lines_that_fit_80_columns(arguments):
    done = noonmark(*arguments)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert done.stdout.isascii()
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_terminal_gets_colours():
    code, shown = in_terminal(*NOONMARK, "preview", *SPRING)
    assert code == 0
    assert "\x1b[" in shown
    assert "Sun 2027-03-28 03:00 +02:00" in shown


def test_characters_that_the_output_cannot_carry_are_escaped():
    document = json.dumps({"type": "event", "event_type": "paid", "filters": {"city": "Malmö"}})
    done = noonmark("preview", "--trigger-json", document, PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout) == (0, 'When paid is emitted and city is "Malm\\xf6"\n')
    done = noonmark("preview", "--trigger-json", document, "--json", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert json.loads(done.stdout)["description"] == 'When paid is emitted and city is "Malmö"'


def test_control_characters_of_a_document_do_not_reach_the_terminal():
    trigger = {"type": "event", "event_type": "paid", "filters": {"city": "\x9b31m\u202e"}}
    code, shown = in_terminal(*NOONMARK, "preview", "--trigger-json", json.dumps(trigger))
    assert code == 0
    assert 'city is "\\u009b31m\\u202e"' in shown
    done = checked({"\x1b[31m": 1, "\u202e": 2})
    assert done.returncode == 2
    assert done.stdout.replace("\n", "").isprintable()


@pytest.mark.parametrize("arguments", [("preview", "* * * * *"), ("preview", "* * * * *", "--json"), ("--help",)])
def test_a_closed_pipe_ends_quietly(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    command = [*NOONMARK, *arguments]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False, cwd=ROOT, env=ENVIRONMENT)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_reader_that_stops_early_gets_what_it_asked_for():
    command = f'"{sys.executable}" -m noonmark preview "* * * * *" --count 1000 | head -1'
    done = in_pipe("sh", "-c", command)
    assert (done.stdout, done.stderr) == ("Every minute, UTC\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told_in_one_line():
    with Path("/dev/full").open("wb") as full:
        command = [*NOONMARK, "preview", "* * * * *"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, cwd=ROOT, env=ENVIRONMENT)
    assert done.returncode == 1
    assert done.stderr.decode() == "noonmark: OSError: [Errno 28] No space left on device\n"


@pytest.mark.parametrize("stream", ["1", "2"])
def test_a_closed_stream_does_not_matter(stream):
    done = in_pipe("sh", "-c", f'"{sys.executable}" -m noonmark preview "* * * * *" {stream}>&-')
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_ends_quietly(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = [*NOONMARK, "check", str(fifo)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=ENVIRONMENT
    ) as process:
        with fifo.open("wb"):  # opens when the command has opened it too
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 130
        assert process.communicate() == (b"", b"")


@pytest.mark.parametrize(
    ("distance", "said"),
    [
        ({}, "now"),
        ({"milliseconds": 999}, "now"),
        ({"seconds": 1}, "in 1 s"),
        ({"seconds": 125}, "in 2 min 5 s"),
        ({"hours": 3, "minutes": 12, "seconds": 59}, "in 3 h 12 min"),
        ({"hours": 3, "seconds": 59}, "in 3 h"),
        ({"days": 99, "hours": 23}, "in 99 d 23 h"),
        ({"days": 100, "hours": 23}, "in 100 d"),
        ({"days": 2_000_000}, "in 2,000,000 d"),
        ({"minutes": -5}, "5 min ago"),
        ({"days": -1, "hours": -2}, "1 d 2 h ago"),
    ],
)
def test_distances_in_their_two_largest_units(distance, said):
    assert from_now(timedelta(**distance)) == said
