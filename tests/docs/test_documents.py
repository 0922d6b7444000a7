"""The documentation is executed: Python blocks, commands and JSON documents all have to do what the text says."""

import contextlib
import doctest
import io
import json
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest

from noonmark import parse_schedule, parse_trigger
from noonmark.core.bundles.manifest import parse_manifest
from noonmark.core.targets import parse_target

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
NOW = datetime(2026, 11, 15, tzinfo=UTC)


def blocks(language):
    """Each page that has such blocks, with all of them: a later block may go on from an earlier one."""
    found = {
        page: [text for kind, text in FENCE.findall(page.read_text("utf-8")) if kind == language] for page in PAGES
    }
    return [pytest.param(page, texts, id=page.relative_to(ROOT).as_posix()) for page, texts in found.items() if texts]


def shown_after(page, text):
    """What the page says a script prints: the next block of plain text."""
    everything = FENCE.findall(page.read_text("utf-8"))
    place = everything.index(("python", text))
    return next((shown for kind, shown in everything[place + 1 :] if kind == "text"), "")


@pytest.mark.parametrize(("page", "texts"), blocks("python"))
def test_python_does_what_the_page_says(page, texts, tmp_path, monkeypatch):
    # As if the page were one program, started in an empty folder.
    monkeypatch.chdir(tmp_path)
    program = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", program)
    scope = vars(program)
    for number, text in enumerate(texts):
        if ">>>" not in text:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(text, f"{page.name}[{number}]", "exec"), scope)  # noqa: S102 - our own pages
            assert printed.getvalue() == shown_after(page, text)
            continue
        example = doctest.DocTestParser().get_doctest(text, scope, page.name, str(page), 0)
        example.globs = scope
        report = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        runner.run(example, out=report.append, clear_globs=False)
        assert not report, "".join(report)


@pytest.mark.parametrize(("page", "texts"), blocks("console"))
def test_commands_print_what_the_page_shows(page, texts):
    for text in texts:
        command, shown = None, []
        for line in [*text.splitlines(), "$ "]:
            if not line.startswith("$ "):
                shown.append(line)
                continue
            if command is not None and command.startswith("noonmark "):
                arguments = [sys.executable, "-m", *shlex.split(command)]
                done = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=ROOT)
                assert done.returncode == 0, done.stderr
                printed = [row.rstrip() for row in done.stdout.splitlines()]
                # A command without output on the page shows the present; one with output is pinned by --after.
                assert not shown or printed == [row.rstrip() for row in shown], command
            command, shown = line[2:], []


@pytest.mark.parametrize(("page", "texts"), blocks("json"))
def test_documents_are_accepted(page, texts):
    for text in texts:
        document = json.loads(text)
        if "trigger" in document:
            parse_schedule(document, now=NOW)
        elif "target_kind" in document:
            parse_target(document)
        elif "command" in document:
            parse_manifest(document, now=NOW)
        else:
            parse_trigger(document, now=NOW)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    targets = [link for link in LINK.findall(page.read_text("utf-8")) if "://" not in link]
    assert [link for link in targets if not (page.parent / link).exists()] == []


def test_every_page_can_be_found_from_the_index():
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    linked = {(ROOT / "docs" / link).resolve() for link in LINK.findall(index) if "://" not in link}
    missing = [page.name for page in (ROOT / "docs").rglob("*.md") if page not in linked and page.name != "index.md"]
    assert missing == []
