"""Completion in shells: the scripts, the words that they get, and bash itself."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from noonmark.cli.app import COMMANDS, GROUPS, run
from noonmark.cli.commands.completion import SHELLS
from tests.cli.runner import NEVER, Cli, call
from tests.cli.terminal import in_pipe

TYPED = """
eval "$(noonmark completion bash)"
COMP_WORDS=({words})
COMP_CWORD={place}
$(complete -p noonmark | sed 's/.*-F \\([^ ]*\\).*/\\1/') noonmark
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('completion') / 'noonmark.db'}"
    cli = Cli("--store", url)
    for name in ("nightly-report", "nightly-backup", "weekly"):
        cli.json("schedule", "create", "--function", "f", *NEVER, "--name", name, "--id", f"id-of-{name}")
    return url


def offered(monkeypatch, capsys, *words):
    """The words that a shell is offered for the last one."""
    monkeypatch.setenv("_NOONMARK_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(["noonmark", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    assert run([]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return [line.partition(",")[2] for line in printed.out.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("sch",), ["schedule"]),
        (("",), [*COMMANDS, *GROUPS]),
        (("schedule", "re"), ["resume", "revisions"]),
        (("schedule", "list", "--ki"), ["--kind"]),
        (("schedule", "create", "--function", "f", "--catchup-w"), ["--catchup-window"]),
        (("completion", ""), list(SHELLS)),
        (("no-such-command", ""), [*COMMANDS, *GROUPS]),
    ],
    ids=" ".join,
)
def test_commands_and_options(monkeypatch, capsys, words, found):
    assert offered(monkeypatch, capsys, *words) == found


def test_schedules_of_a_store(monkeypatch, capsys, store):
    found = offered(monkeypatch, capsys, "schedule", "status", "--store", store, "nightly")
    assert sorted(found) == ["nightly-backup", "nightly-report"]
    assert offered(monkeypatch, capsys, "schedule", "pause", "--store", store, "id-of-w") == ["id-of-weekly"]


def test_an_error_offers_nothing(monkeypatch, capsys, tmp_path):
    assert offered(monkeypatch, capsys, "schedule", "status", "--store", f"sqlite:///{tmp_path}/no.db", "") == []
    assert offered(monkeypatch, capsys, "schedule", "status", "--store", "nowhere", "") == []


@pytest.mark.parametrize(
    ("shell", "part"), [("bash", "complete -o nosort"), ("zsh", "#compdef noonmark"), ("fish", "complete --no-files")]
)
def test_scripts(shell, part):
    done = call("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert part in done.out
    assert f"_NOONMARK_COMPLETE={shell}_complete" in done.out


def test_an_unknown_shell_is_refused():
    assert call("completion", "tcsh").errors == ['SHELL: must be bash, zsh or fish, not "tcsh"']


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_a_command_an_option_and_a_schedule(store):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words = ["noonmark", "schedule", "status", "--store", store, "weekl"]
    for typed, found in [([*words[:2], "stat"], "status"), ([*words[:3], "--sto"], "--store"), (words, "weekly")]:
        script = TYPED.format(words=" ".join(f"'{word}'" for word in typed), place=len(typed) - 1)
        assert in_pipe("bash", "-c", script, PATH=path).stdout.splitlines() == [found]


@pytest.mark.parametrize("shell", [shell for shell in ("zsh", "fish") if shutil.which(shell)])
def test_the_syntax_of_other_shells(shell):
    subprocess.run([shell, "--no-execute"], input=call("completion", shell).out, text=True, check=True)
