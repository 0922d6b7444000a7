"""DBOS: a queue of workflows without steps, in one process, with as many threads as it likes.

It looks at its queue every 50 ms rather than every second. That it looks for delayed workflows once a second cannot be
set.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg
from dbos import DBOS, DBOSClient
from sqlalchemy import create_engine

if TYPE_CHECKING:
    from bench.postgres.agenda import Agenda, Load, Outcome

NAME = "bench"
POLL_SECONDS = 0.05
LATENESS: list[float] = []
SUCCEEDED = "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'"


def note(due: float) -> None:
    """The work: how late did it start."""
    LATENESS.append(time.time() - due)


def work(url: str, load: Load) -> Outcome:
    """Enqueue every job with its delay, in one transaction, and wait until all have succeeded."""
    address = url.replace("postgresql://", "postgresql+psycopg://")
    DBOS(config={"name": NAME, "system_database_url": address, "log_level": "ERROR"})
    DBOS.workflow(name="note")(note)
    DBOS.launch()
    DBOS.register_queue(NAME, polling_interval_sec=POLL_SECONDS)
    agenda = _enqueue(address, load)
    _wait(url, agenda)
    outcome = agenda.outcome(LATENESS)
    DBOS.destroy(destroy_registry=True)
    return outcome


def _enqueue(address: str, load: Load) -> Agenda:
    client, engine = DBOSClient(system_database_url=address, application_name=NAME), create_engine(address)
    with engine.begin() as connection:
        agenda = load.begin()
        for due in agenda.dues():
            options = {"workflow_name": "note", "queue_name": NAME, "delay_seconds": due - time.time()}
            client.enqueue_in_transaction(connection, options, due)
    agenda.all_stored()
    engine.dispose()
    client.destroy()
    return agenda


def _wait(url: str, agenda: Agenda) -> None:
    count = agenda.load.count
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ANALYZE")
        while not agenda.is_over:
            # Counting is work for the server; so it is asked only when the last job has run.
            if len(LATENESS) >= count and connection.execute(SUCCEEDED).fetchone() >= (count,):
                break
            time.sleep(0.02)
