"""The program itself: help, errors, exit codes and streams, in real processes."""

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from noonmark.cli.app import GROUPS
from tests.cli.runner import call
from tests.cli.terminal import ENVIRONMENT, NOONMARK, ROOT, in_pipe, in_terminal

SPRING = ("30 2 * * *", "--timezone", "Europe/Stockholm", "--after", "2027-03-25T12:00:00Z")


def noonmark(*arguments, **options):
    return in_pipe(*NOONMARK, *arguments, **options)


def refused(done, code=2):
    """The lines of an error: only on stderr, each with the name of the program."""
    assert done.returncode == code, done
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines
    assert all(line.startswith("noonmark: ") and len(line) <= 1_100 for line in lines), lines
    return [line.removeprefix("noonmark: ") for line in lines]


def problem(done, code):
    """The error document: one object on one line of stderr."""
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done
    return json.loads(done.stderr)


def test_version():
    done = noonmark("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, version("noonmark") + "\n", "")


def test_console_script():
    script = Path(sys.executable).with_name("noonmark")
    assert in_pipe(str(script), "--version").stdout == noonmark("--version").stdout


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_is_short_and_names_every_command(arguments):
    done = noonmark(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    named = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")}
    assert named >= {"preview", "check", "serve", "migrate", "config", "call", *GROUPS}
    assert len(done.stdout.splitlines()) <= 64  # it fits on a terminal window


@pytest.mark.parametrize("command", ["preview", "check"])
def test_help_of_a_command(command):
    done = noonmark(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: noonmark {command} ")


@pytest.mark.parametrize(
    "command", [(group, name) for group, (_, commands) in GROUPS.items() for name in commands], ids=" ".join
)
def test_help_of_grouped_commands(command):
    done = call(*command, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Usage: noonmark {' '.join(command)}")
    assert "--json" in done.out


def test_an_unknown_command_is_a_usage_error():
    (line,) = refused(noonmark("prevew"))
    assert line.startswith('Unknown command "prevew". Did you mean "preview"?')
    assert line.endswith("See noonmark --help.")


def test_a_usage_error_names_the_help_of_its_command():
    (line,) = refused(noonmark("workflow", "status"))
    assert line == "WORKFLOW_RUN_ID is required. See noonmark workflow status --help."
    (line,) = refused(noonmark("workflow", "list", "--lmit", "3"))
    assert line == 'Unknown option: --lmit. Did you mean "--limit"? See noonmark workflow list --help.'
    (line,) = refused(noonmark("schedule", "delay", "--delay", "5s"))
    assert line == "Unknown option: --delay. See noonmark schedule delay --help.", "--key is alike by its dashes only"


def test_an_error_in_json_is_one_object_on_stderr(tmp_path):
    missing = str(tmp_path / "missing.json")
    assert problem(noonmark("check", missing, "--json"), code=3) == {
        "title": "Not found",
        "status": 404,
        "code": "not_found",
        "detail": "no such file",
        "field": missing,
    }
    error = problem(noonmark("preview", "61 * * * *", "0 25 * * *", "--json"), code=2)
    assert (error["code"], [one["field"] for one in error["problems"]]) == ("invalid_trigger", ["crons[0]", "crons[1]"])
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


def test_unencodable_characters_are_escaped():
    document = json.dumps({"type": "event", "event_type": "paid", "filters": {"city": "Malmö"}})
    done = noonmark("preview", "--trigger-json", document, PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout) == (0, 'When paid is emitted and city is "Malm\\xf6"\n')
    done = noonmark("preview", "--trigger-json", document, "--json", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert json.loads(done.stdout)["description"] == 'When paid is emitted and city is "Malmö"'


def test_control_characters_are_not_printed():
    trigger = {"type": "event", "event_type": "paid", "filters": {"city": "\x9b31m\u202e"}}
    code, shown = in_terminal(*NOONMARK, "preview", "--trigger-json", json.dumps(trigger))
    assert code == 0
    assert 'city is "\\u009b31m\\u202e"' in shown
    done = noonmark("check", "-", stdin=json.dumps({"\x1b[31m": 1, "\u202e": 2}).encode())
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


def test_output_to_head():
    command = f'"{sys.executable}" -m noonmark preview "* * * * *" --count 1000 | head -1'
    done = in_pipe("sh", "-c", command)
    assert (done.stdout, done.stderr) == ("Every minute, UTC\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_reported_in_one_line():
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
