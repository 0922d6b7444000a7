"""Several gunicorn workers on one file: each fire runs once, in one of them."""

import signal

import pytest

from tests.frameworks.site import ask
from tests.soak import SCALE

FEW, MANY = 3 * SCALE, 6 * SCALE
APP = "tests.frameworks.sites.web:app"
START = "python:tests.frameworks.sites.gunicorn_start"


@pytest.mark.parametrize(
    ("options", "starts", "fires"),
    [
        pytest.param([], "import", MANY, id="each worker imports and starts"),
        pytest.param(["--preload", "--config", START], "post_fork", FEW, id="imported once and started after the fork"),
        pytest.param(["--preload"], "import", FEW, id="imported and started once before the fork"),
    ],
)
def test_each_fire_runs_once_and_the_master_ends_cleanly(site, options, starts, fires):
    command = ["-m", "gunicorn", "--workers", 3, "--bind", "127.0.0.1:0", "--worker-tmp-dir", site.folder, *options]
    master = site.run(*command, APP, SITE_STARTS=starts)
    assert ask(site.address(master)) == 2, "a worker declares no job of its own"
    ids = site.fires(fires, ":tick", ":beat")
    assert ask(site.address(master)) == 2
    site.end(master, signal.SIGTERM)
    site.assert_each_fire_ran_once(*ids)
    site.assert_nothing_is_held()
    by_master = site.pids(*ids) == {master.pid}
    assert by_master == (starts == "import" and "--preload" in options)


def test_workers_that_read_the_history_themselves_lose_nothing(site):
    command = ["-m", "gunicorn", "--workers", 2, "--bind", "127.0.0.1:0", "--worker-tmp-dir", site.folder]
    master = site.run(*command, "tests.frameworks.sites.watched:app", SITE_STARTS="import")
    address, seen = site.address(master), []

    for place, runs in [("", 2 * SCALE), ("/pool", 5 * SCALE)]:

        def look(place=place, runs=runs):
            seen.append(ask(address + place))
            return seen[-1] >= runs

        site.until(look)
    ids = site.fires(2 * SCALE, ":tick", ":beat")
    site.end(master, signal.SIGTERM)
    site.assert_each_fire_ran_once(*ids)
    site.assert_nothing_is_held()
    assert site.sql("PRAGMA integrity_check") == [("ok",)]
    assert seen == sorted(seen), "what was on record is not on record any more"


def test_a_worker_whose_master_had_the_file_open_is_reported(site):
    site.may_complain = True
    command = ["-m", "gunicorn", "--workers", 1, "--preload", "--bind", "127.0.0.1:0", "--config", START]
    master = site.run(
        *command, "--worker-tmp-dir", site.folder, "tests.frameworks.sites.watched:app", SITE_LOOKS="before the fork"
    )
    site.until(lambda: "close every connection to it before the fork" in site.shown(master))
    site.end(master, signal.SIGTERM, codes=(0, 1, 3))
