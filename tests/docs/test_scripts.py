"""Examples that are whole programs, in blocks named `python3`: each is run as a file, and prints what comes next."""

import subprocess

import pytest

from tests.docs.test_documents import FENCE, PAGES, ROOT
from tests.servers import forked

LIMIT = 60.0
FOUND = [
    pytest.param(text, FENCE.findall(page.read_text("utf-8"))[number + 1], id=f"{page.relative_to(ROOT)}[{number}]")
    for page in PAGES
    for number, (kind, text) in enumerate(FENCE.findall(page.read_text("utf-8")))
    if kind == "python3"
]


@pytest.mark.parametrize(("text", "shown"), FOUND)
def test_programs_print_what_the_page_shows(text, shown, tmp_path):
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    command = forked.script("program.py")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    assert shown == ("text", done.stdout)
