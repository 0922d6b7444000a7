"""What every test session needs before the first test module is imported."""

import itertools
import os
import signal
import tempfile
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest
from hypothesis import HealthCheck, settings

from tests.servers.postgres import QUICK, Database, running

# The same examples every time, so that a change is judged by what it changes. A busy machine must not fail a test: no
# deadline, and no complaint about slow generation. A failure prints the blob that replays it.
settings.register_profile(
    "noonmark",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# `pytest --hypothesis-profile=thorough` searches anew each time, and longer.
settings.register_profile("thorough", parent=settings.get_profile("noonmark"), derandomize=False, max_examples=2_000)
settings.load_profile("noonmark")
CORE = Path(__file__).parent / "core"


def pytest_configure(config):
    """Give the session a runtime folder: the embedded PostgreSQL wheel warns at import without one.

    And let programs be interrupted that tests start: in the background of a shell, Ctrl-C is ignored, and that is
    inherited.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not os.environ.get("XDG_RUNTIME_DIR"):
        folder = tempfile.TemporaryDirectory(prefix="noonmark-")
        os.environ["XDG_RUNTIME_DIR"] = folder.name
        config.add_cleanup(folder.cleanup)


def pytest_collection():
    """Import the core while coverage is measured: a part that is imported where it is needed might be later."""
    core = import_module("noonmark.core")
    for module in walk_packages(core.__path__, f"{core.__name__}."):
        import_module(module.name)


def pytest_collection_modifyitems(items):
    """Measure coverage where the rules are tested by tables: it makes Python run at a third of its speed.

    What runs a rule in passing does not show that somebody has thought about the case, nor does a random example.
    """
    for item in items:
        if CORE not in item.path.parents or getattr(item.obj, "is_hypothesis_test", False):
            item.add_marker(pytest.mark.no_cover)


def pytest_make_parametrize_id(val):
    """Name a case by what fits on a line: some inputs have a million characters."""
    return f"{val[:40]!r}...{len(val)}" if isinstance(val, str | bytes) and len(val) > 80 else None


def pytest_terminal_summary(terminalreporter):
    """The figures of the tests that measure something."""
    told = [
        value
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == "figure"
    ]
    if told:
        terminalreporter.section("figures")
        for one in sorted(told):
            terminalreporter.line(one)


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server, for each process that runs tests; it is started when a test first asks for it."""
    with running(**QUICK) as server:
        yield server


@pytest.fixture(scope="session")
def database_numbers():
    return itertools.count()


@pytest.fixture
def database(postgres, database_numbers):
    """An empty database of the test's own."""
    made = Database(postgres, f"test_{next(database_numbers)}")
    postgres.create(made.name)
    yield made
    postgres.drop(made.name)
