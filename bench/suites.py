"""The suites there are: a name for each, and the function that measures its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import agents, budgets, counting, cron, first_fire, hostile, lookups, page, timelines
from bench.history import tables as history
from bench.ledger import tables as ledger
from bench.postgres import tables as postgres
from bench.redis import tables as redis
from bench.service import tables as service
from bench.temporal import tables as temporal
from bench.work import tables as work
from bench.workflows import tables as workflows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.report import Table
    from bench.settings import Settings

SUITES: dict[str, Callable[[Settings], Iterator[Table]]] = {
    "cron": cron.tables,
    "first": first_fire.tables,
    "counting": counting.tables,
    "hostile": hostile.tables,
    "burst": ledger.bursts,
    "embedded": ledger.embedded,
    "steady": ledger.steady,
    "stored": ledger.stored,
    "postgres": postgres.tables,
    "redis": redis.tables,
    "history": history.tables,
    "lookups": lookups.tables,
    "timelines": timelines.tables,
    "service": service.tables,
    "page": page.tables,
    "budgets": budgets.tables,
    "calls": work.calls,
    "events": work.events,
    "workflows": workflows.tables,
    "agents": agents.tables,
    "engine": temporal.tables,
}
