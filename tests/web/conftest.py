"""A browser for each file of tests, and a server with a seeded store."""

import fcntl
import shutil
from contextlib import contextmanager

import pytest

from tests.service.server import serving
from tests.web import seed
from tests.web.browsing import browsing, visiting
from tests.web.chromium import MISSING, find


@pytest.fixture(scope="module")
def browser():
    """One browser per file: other tests of the process may run event loops again when it is closed."""
    executable = find()
    if executable is None:
        pytest.skip(MISSING)
    with browsing(executable) as browser:
        yield browser


@pytest.fixture(scope="session")
def past(tmp_path_factory, worker_folder):
    """A SQLite file with weeks of history; the first worker that needs it writes it."""
    path = worker_folder / "past.db"
    with (worker_folder / "past.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            seed.write_past(path.with_suffix(".new"))
            path.with_suffix(".new").rename(path)
    return path


@pytest.fixture(scope="session")
def worker_folder(tmp_path_factory, request):
    """A folder that all workers share."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if request.config.option.workers else folder


@contextmanager
def seeded(folder, past, *flags):
    """A server on a copy of the past, with work under way; `ids` has what was started."""
    shutil.copy(past, folder / "noonmark.db")
    (folder / "work.py").write_text(seed.FUNCTIONS)
    with serving(folder, *seed.FLAGS, *flags) as server:
        server.ids = seed.write_present(server.ask)
        yield server


@pytest.fixture(scope="module")
def server(browser, past, tmp_path_factory):
    """A server with some of everything, for all tests of a file. A test of its own makes what it changes."""
    with seeded(tmp_path_factory.mktemp("server"), past) as server:
        yield server


@pytest.fixture
def visit(browser, server):
    """A tab on the seeded server."""
    with visiting(browser, server.url) as visit:
        yield visit
