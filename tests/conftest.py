"""What every test session needs before the first test module is imported."""

import gc
import itertools
import os
import signal
import tempfile
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest
from hypothesis import HealthCheck, settings

from tests.rows import joined
from tests.servers.postgres import QUICK, Database, running
from tests.soak import examples
from tests.web.chromium import MISSING
from tests.workers import Workers

# The suite ships in the package; pytest explains its assertions only when it is told to, before any import of it.
pytest.register_assert_rewrite("noonmark.testing.conformance")
# The same examples every time, so that a change is judged by what it changes. A busy machine must not fail a test: no
# deadline, and no complaint about slow generation. A failure prints the blob that replays it.
settings.register_profile(
    "noonmark",
    max_examples=examples(100),
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# `pytest --hypothesis-profile=thorough` searches anew each time, and longer.
settings.register_profile("thorough", parent=settings.get_profile("noonmark"), derandomize=False, max_examples=2_000)
settings.load_profile("noonmark")
TESTS = Path(__file__).parent
PROCESS, DOCS, STORE, QUICK_TIER = TIERS = ("process", "docs", "store", "quick")
"""Slowest first."""
TIER_MARKS = {*TIERS, "soak"}
SLOW_FOLDERS = {
    PROCESS: ("bench", "deployment", "examples", "frameworks", "processes", "service", "simulation", "web"),
    DOCS: ("docs",),
    STORE: ("conformance", "servers", "stores"),
}
"""The other folders are quick, except for what uses a database server, starts processes or tries random examples."""
SHARED_SERVER = "tests/targets/temporal/"
"""The files of this folder run in one worker, so that they share a server that is slow to start."""
ENGINE_TESTS = TESTS / "targets" / "temporal"
"""They need a server, and a library that is slow to load."""
STARTERS = ("subprocess", "multiprocessing", "in_pipe", "NOONMARK")
"""Names that a test file imports when it starts processes."""
TIER_OF = {folder: tier for tier, folders in SLOW_FOLDERS.items() for folder in folders}
MEMORY_DISK = Path("/dev/shm")  # noqa: S108 - pytest makes a folder of its own in it
ROOM = 2**31
"""Bytes that all files of a session may take."""
ALONE = ("tests/processes/", "tests/simulation/", "tests/docs/test_sessions.py")
"""Tests that share nothing and take seconds each. The others run file by file: so each file starts its server once."""


def is_fit(folder):
    """Whether a folder has room for the files of all tests, and lets programs among them be started."""
    if not folder.is_dir():
        return False
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize > ROOM and not disk.f_flag & os.ST_NOEXEC


def pytest_addoption(parser):
    # The usual name of this option. `addoption` refuses short ones in lower case.
    parser.getgroup("workers")._addoption("-n", dest="workers", type=int, default=0, help="run tests in n processes")


def pytest_configure(config):
    """Prepare what tests and the programs that they start inherit.

    Files are in memory where there is room, unless TMPDIR says otherwise: no test can cut the power, so none needs to
    wait for a disk. The embedded PostgreSQL wheel warns at import without a runtime folder. In the background of a
    shell, Ctrl-C is ignored; programs that tests start must not inherit that.
    """
    if "TMPDIR" not in os.environ and is_fit(MEMORY_DISK):
        os.environ["TMPDIR"], tempfile.tempdir = str(MEMORY_DISK), None
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not os.environ.get("XDG_RUNTIME_DIR"):
        folder = tempfile.TemporaryDirectory(prefix="noonmark-")
        os.environ["XDG_RUNTIME_DIR"] = folder.name
        config.add_cleanup(folder.cleanup)
    if config.option.workers:
        config.pluginmanager.register(Workers(config, config.option.workers, batch_of, may_wait))


def pytest_collection(session):
    """Import the core while coverage is measured: a part that is imported where it is needed might be later.

    From then on coverage is measured where the core is tested, because it makes Python slower. The garbage collector
    waits for the end of the collection: nothing of it is garbage.
    """
    gc.disable()
    with coverage_in(session, is_measured=False):  # it is measured from the beginning
        core = import_module("noonmark.core")
        for module in walk_packages(core.__path__, f"{core.__name__}."):
            import_module(module.name)


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def folder_of(path):
    """The folder below `tests` that a test is in."""
    return path.parts[len(TESTS.parts)]


def pytest_ignore_collect(collection_path, config):
    """Import only what may be selected: `-m quick` leaves out the folders of the other tiers."""
    if config.option.markexpr != QUICK_TIER or collection_path == TESTS or TESTS not in collection_path.parents:
        return None
    return folder_of(collection_path) in TIER_OF or collection_path == ENGINE_TESTS or None


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector):
    """Make one test of the rows of a table; tests that go alone stay apart."""
    made = yield
    is_shared = collector.config.option.workers and not collector.nodeid.startswith(ALONE)
    if is_shared and isinstance(made, list) and made and isinstance(made[0], pytest.Function):
        return joined(made)
    return made


def pytest_itemcollected(item):
    """Mark each test with its tier, and leave random examples out of the coverage."""
    if TIER_MARKS.isdisjoint(mark.name for mark in item.iter_markers()):
        item.add_marker(tier_of(item, folder_of(item.path)))
    if is_random(item):
        item.add_marker(pytest.mark.no_cover)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(collector):
    """Measure coverage where tables are made."""
    with coverage_in(collector, isinstance(collector, pytest.Module) and folder_of(collector.path) == "core"):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    """Measure coverage where the rules are tested by tables.

    What runs a rule in passing does not show that somebody has thought about the case.
    """
    with coverage_in(item, folder_of(item.path) == "core"):
        return (yield)


@contextmanager
def coverage_in(node, is_measured):
    """Measure coverage meanwhile, and not afterwards; a test that pytest-cov leaves out would leave it on."""
    plugin = node.config.pluginmanager.getplugin("_cov")
    controller = plugin and plugin.cov_controller
    if controller and is_measured:
        controller.resume()
    try:
        yield
    finally:
        if controller and controller.started:
            controller.pause()


def is_random(item):
    """Whether a test tries random examples, which takes seconds."""
    return getattr(item.obj, "is_hypothesis_test", False)


def tier_of(item, folder):
    if folder in TIER_OF:
        return TIER_OF[folder]
    if ENGINE_TESTS in item.path.parents:
        return PROCESS
    if is_random(item) or (folder != "core" and any(hasattr(item.module, name) for name in STARTERS)):
        return PROCESS
    return QUICK_TIER if {"postgres", "redis"}.isdisjoint(item.fixturenames) else STORE


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Begin with the slowest tiers, so that no worker has a long test left when the others are done.

    Outside the core a test may meet a machine that stands still for seconds. It is tried once more, and the summary
    names it.
    """
    for module in {item.getparent(pytest.Module) for item in items}:
        if folder_of(module.path) != "core":
            module.add_marker(pytest.mark.flaky(reruns=2))
    position = {tier: position for position, tier in enumerate(TIERS)}
    items.sort(key=lambda item: max(position.get(mark.name, 0) for mark in item.iter_markers()))


def batch_of(nodeid):
    """Which tests a worker runs in a row: those of a file, or of a folder with one server; a long test goes alone."""
    if nodeid.startswith(SHARED_SERVER):
        return SHARED_SERVER
    return nodeid if nodeid.startswith(ALONE) else nodeid.partition("::")[0]


def may_wait(item):
    """Whether a worker of low priority may run a test: no other process waits for what it does."""
    return item.get_closest_marker(QUICK_TIER) is not None


def pytest_make_parametrize_id(val):
    """Name a case by what fits on a line: some inputs have a million characters."""
    return f"{val[:40]!r}...{len(val)}" if isinstance(val, str | bytes) and len(val) > 80 else None


def pytest_terminal_summary(terminalreporter):
    """The figures of the tests that measure something, and why a test was run again."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"run again: {report.nodeid}")
        terminalreporter.line(report.longreprtext[-2_000:])
    without_browser = [one for one in terminalreporter.getreports("skipped") if MISSING in one.longreprtext]
    if without_browser:
        terminalreporter.section(f"{len(without_browser)} browser tests were skipped", red=True, bold=True)
        terminalreporter.line(MISSING)
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


@pytest.fixture(scope="session")
def redis():
    """A Redis server, for each process that runs tests; it is started when a test first asks for it."""
    from tests.servers import redis as servers  # noqa: PLC0415 - few tests need the library

    with servers.running(**servers.QUICK) as server:
        yield server


@pytest.fixture
def redis_url(redis):
    """The URL of an empty database."""
    redis.empty()
    return redis.url()
