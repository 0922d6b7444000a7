"""A WSGI program whose workers read the file of their scheduler in every request, with sqlite3 and a pool."""

import os
import sqlite3
from contextlib import closing

import sqlalchemy

from tests.frameworks.site import STORE
from tests.frameworks.sites.web import scheduler

PATH = os.environ[STORE].removeprefix("sqlite:///")
HISTORY = "SELECT count(*) FROM schedule_execution_history"
pool = sqlalchemy.create_engine(f"sqlite:///{PATH}", pool_size=1, max_overflow=2)

if os.environ.get("SITE_LOOKS") == "before the fork":
    scheduler.list_jobs()
    kept = pool.connect()
    kept.execute(sqlalchemy.text(HISTORY)).fetchone()


def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    if environ["PATH_INFO"] == "/pool":
        with pool.connect() as first, pool.connect() as second:
            return [str(max(one.execute(sqlalchemy.text(HISTORY)).scalar() for one in (first, second))).encode()]
    with closing(sqlite3.connect(PATH, timeout=30)) as own:
        return [str(*own.execute(HISTORY).fetchone()).encode()]
