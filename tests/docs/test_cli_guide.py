"""The guides to the command line and to commands are carried out in a shell, beside the servers that they start."""

import doctest
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.terminal import ENVIRONMENT, PATIENCE
from tests.docs.test_documents import FENCE, ROOT
from tests.service.server import serving

PAGES = {
    name: FENCE.findall((ROOT / "docs" / "guides" / f"{name}.md").read_text("utf-8")) for name in ("cli", "commands")
}
MATCHES = doctest.OutputChecker().check_output
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
SETTLES = ("schedule runs",)
"""What shows its answer only when something else has been done; it is asked at most so often."""
TRIES = 50


def sessions(page):
    """Each command with what the page shows of it, in order."""
    for kind, text in PAGES[page]:
        if kind == "shell":
            for part in text.removeprefix("$ ").split("\n$ "):
                command, _, shown = part.partition("\n")
                yield command, shown if shown.endswith("\n") else f"{shown}\n"


@contextmanager
def a_shell(folder, page):
    """Runs commands beside the server of a page, which has the functions of the page."""
    jobs = "".join(text for kind, text in PAGES[page] if kind == "py")
    [start] = [text for kind, text in PAGES[page] if kind == "sh"]
    (folder / "jobs.py").write_text(jobs)
    with serving(folder, *shlex.split(start)[2:]) as server:
        path = f"{Path(sys.executable).parent}:{ENVIRONMENT['PATH']}"

        def run(command):
            environment = ENVIRONMENT | {"NOONMARK_SERVER": server.url, "PATH": path}
            return subprocess.run(
                ["bash", "-c", command],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )

        yield run


@pytest.mark.parametrize("page", PAGES)
def test_the_guide_does_what_it_says(tmp_path, page):
    with a_shell(tmp_path, page) as shell:
        for command, shown in sessions(page):
            done = shell(command)
            for _ in range(TRIES if any(one in command for one in SETTLES) else 0):
                done = done if MATCHES(shown, done.stdout, LOOSELY) else shell(command)
            said = done.stdout if "||" not in command else done.stderr + done.stdout
            assert done.returncode == 0, done
            assert MATCHES(shown, said, LOOSELY), (command, said)


def test_the_guide_shows_every_group_of_commands():
    shown = {tuple(command.split()[1:2]) for command, _ in sessions("cli")}
    assert shown >= {("schedule",), ("trigger",), ("event",)}
