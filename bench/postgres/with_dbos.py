"""DBOS: a queue of workflows without steps, in one process, with as many threads as it likes.

It looks at its queue every 50 ms rather than every second. That it looks for delayed workflows once a second cannot be
set.
"""

from __future__ import annotations

import time
from math import ceil
from typing import TYPE_CHECKING

import psycopg
from dbos import DBOS, DBOSClient
from sqlalchemy import create_engine, text

if TYPE_CHECKING:
    from bench.postgres.agenda import Agenda, Load, Outcome

NAME = "bench"
POLL_SECONDS = 0.05
DUES: list[float] = []
LATENESS: list[float] = []
MOVE = """
UPDATE dbos.workflow_status AS job SET delay_until_epoch_ms = moved.millis
FROM unnest(CAST(:jobs AS text[]), CAST(:millis AS bigint[])) AS moved (id, millis) WHERE job.workflow_uuid = moved.id
"""
SUCCEEDED = "SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'"


def note(number: int) -> None:
    """The work: how late did it start."""
    LATENESS.append(time.time() - DUES[number])


def work(url: str, load: Load) -> Outcome:
    """Enqueue every job with its delay, and wait until all have succeeded."""
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
    """Enqueued for tomorrow first, as that takes long, and then moved to their times at once."""
    client, engine = DBOSClient(system_database_url=address, application_name=NAME), create_engine(address)
    options = {"workflow_name": "note", "queue_name": NAME, "delay_seconds": 86_400}
    numbers = range(load.count)
    with engine.begin() as connection:
        for number in numbers:
            client.enqueue_in_transaction(connection, {**options, "workflow_id": f"job-{number}"}, number)
    agenda = load.begin()
    DUES.extend(agenda.dues())
    jobs, millis = [f"job-{number}" for number in numbers], [ceil(due * 1_000) for due in DUES]
    with engine.begin() as connection:
        connection.execute(text(MOVE), {"jobs": jobs, "millis": millis})
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
