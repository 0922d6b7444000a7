"""The text of `--help`: uniform for all commands, as wide as the terminal, and by the meaning of values."""

import re

import pytest

from noonmark.cli.app import COMMANDS, GROUPS
from noonmark.cli.help import LABELS, VALUES
from noonmark.server.config import SETTINGS
from tests.cli.runner import call

PATHS = [(name,) for name in COMMANDS] + [(group, name) for group, (_, names) in GROUPS.items() for name in names]


@pytest.fixture(scope="module")
def helps():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "100")
        return {path: call(*path, "--help").out for path in PATHS}


def options(text):
    return re.findall(r"^  (--.+?)(?:  |$)", text, re.MULTILINE)


def test_values_are_shown_by_their_meaning(helps):
    shown = [option for text in helps.values() for option in options(text)]
    assert [one for one in shown if re.search(r"\b(STR|INT|FLOAT|BOOL)\b", one)] == []
    texts = {option.partition(" ")[0] for option in shown if re.search(r"\bTEXT\b", option)}
    assert [one for one in sorted(texts) if one.startswith(("--expected", "--per", "--ping", "--retry"))] == []
    names = {name for one in shown for name in re.findall(r"--([a-z-]+)", one)}
    assert {option for options in VALUES.values() for option in options.split()} - names == set()


def test_lines_are_as_wide_as_the_terminal_and_meanings_in_one_column(helps):
    for text in helps.values():
        for line in text.splitlines():
            assert len(line) <= 100
            assert "  " not in line[2 + LABELS :]
            assert not line.startswith(" " * 3) or line.startswith(" " * (2 + LABELS))


def test_the_options_of_a_server_have_their_defaults(helps):
    text = " ".join(helps[("serve",)].split())
    for setting in SETTINGS.values():
        if setting.default not in (None, (), {}, True, False):
            assert f"Default: {setting.default}." in text, setting.name
    assert "--log-format FORMAT The format of log lines: json, text, or auto" in text
    assert "--worker, --no-worker Whether this server runs schedules, or only answers requests. Default: yes." in text


@pytest.mark.parametrize(
    "words",
    [
        ("--store", "sqlite:///{file}", "schedule", "list", "--json"),
        ("--json", "--store=sqlite:///{file}", "schedule", "list"),
        ("schedule", "list", "--json", "--store", "sqlite:///{file}"),
    ],
)
def test_the_connection_may_be_named_before_the_command(tmp_path, words):
    file = tmp_path / "jobs.db"
    call("--store", f"sqlite:///{file}", "schedule", "create", "--id", "tidy", "--every", "1h", "--", "ls", "--store")
    done = call(*[word.format(file=file) for word in words])
    [schedule] = done.json["schedules"]
    assert schedule["target"]["argv"] == ["ls", "--store"]
