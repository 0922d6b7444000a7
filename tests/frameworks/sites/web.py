"""A WSGI program: every worker of its server declares and may start the same jobs."""

import os

from noonmark import Scheduler
from tests.frameworks.site import STORE
from tests.processes import work

scheduler = Scheduler(os.environ[STORE], lease=600)


EVERY = {"misfire": {"type": "catch_up_all", "limit": 1_000}, "overlap": "queue"}
"""Fires of a machine that was busy are not skipped: each has to run, once."""


@scheduler.every(1, **EVERY)
def tick(context):
    work.record(context=context)


@scheduler.cron("* * * * * *", **EVERY)
def beat(context):
    work.record(context=context)


if os.environ.get("SITE_STARTS") == "import":
    scheduler.start()


def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(len(scheduler.list_jobs())).encode()]
