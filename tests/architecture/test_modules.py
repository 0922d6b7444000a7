"""The shape of the repository: no traces of one machine, a README that tells the truth."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Written in pieces, so that this file does not match itself.
TRACES = {
    "a developer's home folder": re.compile(r"(?<![\w.-])/(?:home|Users)" + r"/\w", re.ASCII),
    "the root user's home folder": re.compile(r"(?<![\w.-])/root" + r"/", re.ASCII),
    "a Windows home folder": re.compile(r"[A-Z]:\\+Users" + r"\\", re.ASCII),
    "a package registry": re.compile(r"\b(?:pypi|pythonhosted)" + r"\.org\b"),
    "a package index option": re.compile("--" + r"(?:extra-)?index-url|--" + "find-links"),
}


def relative(path):
    return path.relative_to(ROOT).as_posix()


def repository_files():
    """Tracked files, and new ones that git would track."""
    # The safe.directory option: a checkout may belong to another user, as in a container.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [ROOT / name for name in sorted(set(listed.split("\0"))) if name and (ROOT / name).is_file()]


def text_of(path):
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def test_no_file_speaks_of_one_machine():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    found = [
        f"{relative(path)}:{number}: {what}"
        for path in repository_files()
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        for what, trace in TRACES.items()
        if trace.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "see /home" + "/ada/notes",
        "/Users" + "/ada",
        '"/root' + '/.cache"',
        r"C:\Users" + r"\ada",
        "https://pypi" + ".org/simple",
        "files.pythonhosted" + ".org",
        "pip install --" + "index-url=somewhere",
        "--extra-" + "index-url somewhere",
    ],
)
def test_traces_are_recognised(line):
    assert any(trace.search(line) for trace in TRACES.values())


@pytest.mark.parametrize("line", ["uv pip compile --no-emit-index-url", "GET /api/home/page", "the root/branch"])
def test_innocent_lines_are_not_traces(line):
    assert not any(trace.search(line) for trace in TRACES.values())


def test_make_targets_in_the_readme_exist():
    printed = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    targets = set(re.findall(r"^  ([a-z]+) ", printed, re.MULTILINE))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    # Only code counts: prose may "make sure".
    code = re.findall(r"^```.*?^```|`[^`\n]+`", readme, re.MULTILINE | re.DOTALL)
    mentioned = {name for part in code for name in re.findall(r"\bmake ([a-z]+)", part)}
    assert mentioned <= targets, f"README.md names targets that the Makefile lacks: {sorted(mentioned - targets)}"
