"""A program that runs a scheduler and reads its own file at the same time, with the `sqlite3` module.

A run that has ended is noted once the store has told so: from then on it must be on record, however the program ends.
"""

import json
import os
import signal
import sqlite3
import sys
import threading

import sqlalchemy

from noonmark import Scheduler
from tests.embedded.waiting import NEVER
from tests.processes.work import note

COUNT = "SELECT count(*) FROM runs"


def main():
    """Run so many jobs beside two threads that look, then end in one of four ways."""
    settings = json.loads(sys.argv[1])
    path = settings["store"].removeprefix("sqlite:///")
    scheduler = Scheduler(settings["store"], lease=15)
    job = scheduler.schedule(give, trigger=NEVER, function_name="give", name=f"give-{os.getpid()}")
    looking = threading.Event()
    looking.set()
    lookers = [threading.Thread(target=look, args=(path, looking), daemon=True) for look in (open_and_close, borrow)]
    scheduler.start()
    for looker in lookers:
        looker.start()
    for number in range(settings["runs"]):
        told = scheduler.run_now(job, payload=[os.getpid(), number])
        note("completed", told=told)
    end(settings["ends"], scheduler, path, looking)


def give(context):
    return context.payload


def end(how, scheduler, path, looking):
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "leaves":  # no stop, no close, and the lookers are still at it
        return
    kept = sqlite3.connect(path)
    kept.execute("BEGIN")
    kept.execute(COUNT).fetchone()
    scheduler.stop()
    if how == "keeps":
        note("stopped")
        os._exit(0)
    looking.clear()
    kept.close()


def open_and_close(path, looking):
    """As a health check does, or a notebook."""
    while looking.is_set():
        connection = sqlite3.connect(path, timeout=30)
        connection.execute(COUNT).fetchone()
        connection.close()


def borrow(path, looking):
    """As a web program does, with some connections that stay and some that come and go."""
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", pool_size=1, max_overflow=2)
    while looking.is_set():
        with engine.connect() as first, engine.connect() as second:
            first.execute(sqlalchemy.text(COUNT)).fetchone()
            second.execute(sqlalchemy.text(COUNT)).fetchone()


if __name__ == "__main__":
    main()
