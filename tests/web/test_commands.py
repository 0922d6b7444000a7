"""The commands that the page shows, to do the same at a shell."""

import re

from noonmark.cli.app import COMMANDS, GROUPS
from noonmark.server.web.files import FOLDER

COMMAND = re.compile(r"noonmark ([a-z]+)(?: ([a-z-]+|\$\{))?")


def test_the_command_line_has_every_command_that_the_page_shows():
    text = "\n".join(path.read_text() for path in sorted(FOLDER.rglob("*.js")))
    shown = set(COMMAND.findall(text.replace("from noonmark import", "")))
    assert ("schedule", "pause") in shown
    known = {(name, verb) for name, (_, verbs) in GROUPS.items() for verb in (*verbs, "${")}
    assert {(name, verb) for name, verb in shown - known if name not in COMMANDS} == set()
