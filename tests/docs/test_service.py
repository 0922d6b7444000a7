"""The guide to the service says what the server does: its settings, its commands, its metrics."""

import re
import shlex
import tomllib

from noonmark.cli.commands.server import ServerOptions
from noonmark.server.config import load
from noonmark.telemetry.metrics import Metrics
from tests.cli.terminal import NOONMARK, in_pipe
from tests.docs.test_documents import FENCE, ROOT

GUIDE = (ROOT / "docs" / "guides" / "service.md").read_text("utf-8")


def blocks(language):
    return [text for kind, text in FENCE.findall(GUIDE) if kind == language]


def test_the_files_on_the_page_are_read(tmp_path):
    found = blocks("toml")
    assert found
    for number, text in enumerate(found):
        path = tmp_path / f"{number}.toml"
        path.write_text(text, "utf-8")
        settings = load({}, {}, str(path)).settings
        assert {name: getattr(settings, name) for name in tomllib.loads(text)} == tomllib.loads(text)


def test_the_commands_on_the_page_are_understood():
    commands = [line for text in blocks("sh") for line in text.splitlines()]
    assert commands
    for command in commands:
        program, verb, *flags = shlex.split(command)
        assert (program, verb) == ("noonmark", "serve")
        done = in_pipe(*NOONMARK, "config", "--json", *flags)
        assert done.returncode == 0, done.stderr


def test_the_example_of_an_error_is_what_is_printed():
    (line,) = re.findall(r"^    noonmark: (lease: .*)$", GUIDE, re.MULTILINE)
    done = in_pipe(*NOONMARK, "config", NOONMARK_LEASE="soon")
    assert done.stderr == f"noonmark: {line}\n"


def test_every_metric_is_on_the_page_with_its_kind():
    table = dict(re.findall(r"^\| `(noonmark_\w+)` \| (\w+) \|", GUIDE, re.MULTILINE))
    kinds = {"unknown": "count"}
    counted = {one.name: kinds.get(one.type, one.type) for one in Metrics()._registry.collect()}
    assert table == counted


def test_every_flag_on_the_page_exists():
    known = {"--config", "--json", "--function", "--store"} | {
        f"--{no}{name.replace('_', '-')}" for name in ServerOptions.__dataclass_fields__ for no in ("", "no-")
    }
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", GUIDE)) <= known
