"""A Django project: started from `AppConfig.ready`, in the server, in its reloader and in commands alike."""

import os
import signal
import sqlite3
from contextlib import closing

import pytest

from tests.frameworks.site import ask
from tests.soak import SCALE

SETTINGS = {"DJANGO_SETTINGS_MODULE": "tests.frameworks.sites.shop.settings"}


@pytest.fixture
def manage(site):
    def run(*command):
        return site.run("-m", "django", *command, **SETTINGS)

    tables = ("migrate", "--run-syncdb", "--skip-checks", "--verbosity", "0")
    site.end(site.run("-m", "django", *tables, SITE_IS_NEW="yes", **SETTINGS))
    return run


def orders(site):
    with closing(sqlite3.connect(site.folder / "shop.sqlite3")) as connection:
        return [occurrence for (occurrence,) in connection.execute("SELECT occurrence FROM shop_order")]


def test_a_server_with_its_reloader_runs_each_fire_once(site, manage):
    server = manage("runserver", "127.0.0.1:0")
    url = site.address(server)
    [job] = site.fires(4 * SCALE, ":order")
    assert ask(url)["jobs"] == 2
    os.killpg(server.pid, signal.SIGINT)  # as a key on the terminal reaches both processes
    site.end(server)
    site.until(lambda: site.sql("SELECT count(*) FROM occurrences WHERE phase = 'claimed'") == [(0,)])
    site.assert_each_fire_ran_once(job)
    site.assert_nothing_is_held()
    begun = [line["occurrence"] for line in site.journal.begins(job)]
    made = orders(site)
    assert set(made) <= set(begun)
    # The end of the server may cut a run between its mark and its order.
    assert 0 <= len(begun) - len(made) <= site.handed_back(job).total()


def test_a_command_runs_a_job_and_ends(site, manage):
    command = manage("report")
    site.end(command)
    count = int(site.shown(command).removeprefix("orders: "))
    assert count <= len(orders(site))
    site.assert_nothing_is_held()
    assert {job.name for job in site.scheduler.list_jobs()} == {"count", "tests.frameworks.sites.shop.jobs:order"}
