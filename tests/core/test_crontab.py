"""Crontabs: what each line stands for."""

from datetime import UTC, datetime

import pytest

from noonmark.core.crontab import read_crontab, split_command
from noonmark.core.schedule import parse_schedule

NOW = datetime(2027, 1, 1, tzinfo=UTC)


def read(text, **options):
    return read_crontab(text, timezone="Europe/Stockholm", **options)


def only(text, **options):
    crontab = read(text, **options)
    assert crontab.problems == []
    [document] = crontab.documents
    parse_schedule(document, now=NOW)
    return document


@pytest.mark.parametrize(
    ("text", "command", "stdin"),
    [
        ("backup", "backup", None),
        (r"date +\%d", "date +%d", None),
        ("mail -s x a%Hello%there", "mail -s x a", "Hello\nthere\n"),
        ("cat %one%", "cat", "one\n"),
        (r"cat%a\%b", "cat", "a%b\n"),
        (r"a\b", r"a\b", None),
    ],
)
def test_percent_signs(text, command, stdin):
    assert split_command(text) == (command, stdin)


@pytest.mark.parametrize("expression", ["30 2 * * 1-5", "@daily", "*/5 0-6 1,15 JAN-MAR SUN", "@hourly"])
def test_a_line_is_a_trigger_and_a_shell_command(expression):
    document = only(f"  {expression}\t/usr/bin/backup --full | gzip  \n")
    assert document["trigger"] == {"type": "cron", "expression": expression, "timezone": "Europe/Stockholm"}
    assert document["target"] == {"target_kind": "command", "argv": ["/bin/sh", "-c", "/usr/bin/backup --full | gzip"]}
    assert document["name"].startswith("backup-")
    assert "labels" not in document


def test_variables_hold_for_the_lines_below_them():
    crontab = read(
        '@daily first\nSHELL = /bin/bash\nPATH="/opt/bin:/bin"\nHOME=/srv\nCRON_TZ=UTC\nRANDOM_DELAY=5\n'
        "@daily second%in\nMAILTO=root\n"
    )
    first, second = crontab.documents
    assert "env" not in first["target"]
    assert second["trigger"] == {"type": "cron", "expression": "@daily", "timezone": "UTC", "jitter_seconds": 300}
    assert second["target"] == {
        "target_kind": "command",
        "argv": ["/bin/bash", "-c", "second"],
        "env": {"PATH": "/opt/bin:/bin", "HOME": "/srv"},
        "cwd": "/srv",
        "stdin": "in\n",
    }
    assert crontab.lines == [1, 7]
    assert [(note.line, note.message.split()[0]) for note in crontab.notes] == [(8, "MAILTO")]


def test_a_comment_directly_above_is_the_description():
    text = "# Edit this file\n# m h  dom mon dow   command\n@daily a\n# one\n#  two\n@daily b\n# far\n\n@daily c\n"
    assert [one.get("description") for one in read(text).documents] == [None, "one\ntwo", None]
    assert "description" not in only("# of the variable\nA=b\n@daily c")


@pytest.mark.parametrize("line", ["0 5 * * * root  tar cf /x /y", "0 5 * * *\troot\ttar cf /x /y"])
def test_the_system_format_has_a_user(line):
    crontab = read(f"{line}\n{line}", has_user=True)
    assert [one["labels"] for one in crontab.documents] == [{"crontab_user": "root"}] * 2
    assert crontab.documents[0]["target"]["argv"][2] == "tar cf /x /y"
    assert [note.line for note in crontab.notes] == [1]


def test_names_follow_from_commands_alone():
    before, after = (
        only("0 1 * * * cd /srv && A=b C=d /opt/job.sh x"),
        only("# said\n0 2 * * * cd /srv && A=b C=d /opt/job.sh x"),
    )
    assert before["name"] == after["name"]
    assert before["name"].startswith("job.sh-")
    assert only("0 1 * * * [ -x /y ] && /y")["name"].startswith("cron-")
    names = [one["name"] for one in read("@daily a\n@weekly a\n@daily b\n").documents]
    assert names[1] == f"{names[0]}-2"
    assert names[2].startswith("b-")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("\n@reboot warm-up", 2, "@reboot names no time. Start the command where the system starts the node"),
        ("61 * * * * a", 1, "expression: "),
        ("0~59 * * * * a", 1, "expression: "),
        ("* * * * *", 1, "must be five fields, then a command"),
        ("@daily", 1, "must be a name such as @daily, then a command"),
        ("garbage", 1, "must be five fields, then a command"),
        ("RANDOM_DELAY=soon", 1, "RANDOM_DELAY: must be minutes"),
        ("CRON_TZ=Mars/North", 1, "CRON_TZ: "),
    ],
)
def test_what_cannot_be_imported_is_named_with_its_line(text, line, message):
    crontab = read(text)
    assert crontab.documents == []
    [problem] = crontab.problems
    assert problem.line == line
    assert problem.message.startswith(message), problem


def test_a_user_alone_is_no_command_and_a_wrong_zone_refuses_the_lines_below():
    [problem] = read("@daily root", has_user=True).problems
    assert problem.message == "must be a name such as @daily, then a user and a command"
    assert [one.line for one in read("CRON_TZ=Mars/North\n@daily a").problems] == [1, 2]
