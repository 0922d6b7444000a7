"""The base install: few packages, the embedded scheduler and the command line. The rest says how to install it."""

import json
import subprocess
import sys
import tomllib
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from noonmark.core.errors import MissingExtra
from noonmark.extras import EXTRAS, require

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAX_PACKAGES = 15
MAX_BYTES = 25_000_000


def closure(requirements):
    """The packages that pip installs for requirements on this platform, by the metadata of what is installed."""
    collected, wanted = set(), [Requirement(text) for text in requirements]
    while wanted:
        requirement = wanted.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in collected:
            continue
        collected.add(key)
        for text in distribution(requirement.name).requires or ():
            needed = Requirement(text)
            extras = ("", *requirement.extras)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                wanted.append(needed)
    return {name for name, _ in collected}


BASE = closure(PROJECT["dependencies"])


def test_the_base_install_is_small():
    assert len(BASE) + 1 <= MAX_PACKAGES  # Noonmark itself is one
    paths = [path.locate() for name in BASE for path in distribution(name).files or ()]
    own = [path for path in (ROOT / "src").rglob("*") if path.suffix in {".py", ".sql"}]
    # Our modules count twice and a half: pip compiles them, and a compiled one is larger than its source.
    total = (
        sum(path.stat().st_size for path in paths if path.is_file()) + 5 * sum(path.stat().st_size for path in own) // 2
    )
    assert total <= MAX_BYTES


def test_every_import_of_an_extra_is_of_a_package_that_the_extra_installs():
    homes = packages_distributions()
    for extra, names in EXTRAS.items():
        installed = closure(PROJECT["optional-dependencies"][extra])
        assert {canonicalize_name(home) for name in names for home in homes[name]} <= installed
    assert PROJECT["optional-dependencies"]["all"] == [f"noonmark[{','.join(EXTRAS)}]"]


def test_what_is_installed_is_not_missing():
    for extra in EXTRAS:
        require(extra, "this test")


BLOCK = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

blocked = set(json.load(sys.stdin))
sys.meta_path.insert(0, Blocked())
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in blocked else find(name)
"""
WORK = """
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

from noonmark import Client, IntervalTrigger, MissingExtra, Scheduler
from noonmark.cli.app import run

class Hook(BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass

def call(*words):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(words)
    return [code, out.getvalue(), err.getvalue()]

def refused(*arguments, **options):
    try:
        Scheduler(*arguments, **options)
    except MissingExtra as error:
        return [error.code, error.message]

def count():
    return 4

store = f"sqlite:///{sys.argv[1]}/noonmark.db"
with HTTPServer(("127.0.0.1", 0), Hook) as hook, Scheduler(store) as scheduler:
    Thread(target=hook.handle_request, daemon=True).start()
    url = f"http://127.0.0.1:{hook.server_port}/"
    counted = scheduler.run_now(scheduler.every(hours=1, name="count")(count).job_id)
    called = scheduler.run_now(scheduler.schedule_http(url, trigger=IntervalTrigger(hours=1)))
Client("http://127.0.0.1:9").close()
print(json.dumps({
    "function": counted,
    "request": called["status"],
    "list": call("schedule", "list", "--store", store),
    "export": call("export", "--store", store),
    "preview": call("preview", "0 9 * * *", "--timezone", "UTC"),
    "serve": call("serve"),
    "mcp": call("mcp"),
    "postgres": call("schedule", "list", "--store", "postgresql://localhost/noonmark"),
    "redis": call("store", "copy", store, "redis://localhost"),
    "embedded_redis": refused("redis://localhost/0"),
    "embedded": refused("postgresql://localhost/noonmark"),
    "secrets": refused(secret_key="A" * 43 + "="),
}))
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """What works, and what is said of the rest, where only the packages of the base install can be imported."""
    homes = packages_distributions()
    allowed = {*BASE, "noonmark"}
    blocked = [name for name, found in homes.items() if not {canonicalize_name(home) for home in found} & allowed]
    command = [sys.executable, "-c", BLOCK + WORK, tmp_path_factory.mktemp("base")]
    done = subprocess.run(command, input=json.dumps(blocked), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_base_install_runs_functions_and_sends_requests(base):
    assert (base["function"], base["request"]) == (4, 204)


def test_the_base_install_has_the_command_line(base):
    assert [base[name][0] for name in ("list", "export", "preview")] == [0, 0, 0]
    assert "count" in base["list"][1]
    assert "schedules:" in base["export"][1]
    assert base["preview"][1].startswith("At 09:00")


@pytest.mark.parametrize(
    ("what", "extra", "needs"),
    [
        ("serve", "server", "noonmark serve"),
        ("mcp", "mcp", "noonmark mcp"),
        ("postgres", "postgres", "a PostgreSQL store"),
        ("embedded", "postgres", "a PostgreSQL store"),
        ("redis", "redis", "a Redis store"),
        ("embedded_redis", "redis", "a Redis store"),
        ("secrets", "server", "a key that encrypts secrets"),
    ],
)
def test_a_missing_extra_is_an_error_with_the_command_to_type(base, what, extra, needs):
    code, *_, message = base[what]
    assert code == (1 if isinstance(code, int) else MissingExtra.code)
    packages = ", ".join(EXTRAS[extra])
    said = f"{needs} needs packages that are not installed ({packages}); run: pip install 'noonmark[{extra}]'"
    assert message.removeprefix("noonmark: ").rstrip() == said
