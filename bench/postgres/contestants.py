"""Who takes part. A contestant is a module with `work(url, load)`, which is loaded only where it is measured."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.postgres.agenda import Load, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A library on its server."""

    name: str
    module: str
    server: str = "postgres"
    stores: int
    """How many jobs it surely gets ready for their times in a second, on a busy machine too."""
    few: bool = False
    """Whether it gets fewer jobs in a burst, since it takes long to store them one by one."""
    claims_ahead: bool = False
    """Whether it takes its jobs before they are due; then the raw loop beside it has done so, too."""
    bar: float | None = None
    """How many times as fast as Procrastinate it has to be in a burst."""
    share: float = 0
    """What part of the rate of the raw loop it has to reach, too."""

    def work(self, url: str, load: Load) -> Outcome:
        """Store the jobs of a load, run them, and wait until their ends are written."""
        outcome: Outcome = import_module(self.module).work(url, load)
        return outcome


PROCRASTINATE = Contestant(name="Procrastinate", module="bench.postgres.with_procrastinate", stores=1_500)
DBOS = Contestant(name="DBOS", module="bench.postgres.with_dbos", stores=1_500, few=True)
CELERY = Contestant(
    name="Celery on Redis",
    module="bench.postgres.with_celery",
    server="redis",
    stores=150,
    few=True,
    claims_ahead=True,
)
NOONMARK = Contestant(
    name="Noonmark", module="bench.postgres.with_noonmark", stores=2_000, claims_ahead=True, bar=10, share=0.7
)
NOONMARK_ON_REDIS = Contestant(
    name="Noonmark on Redis",
    module="bench.postgres.with_noonmark",
    server="redis",
    stores=500,
    claims_ahead=True,
)
DRAMATIQ = Contestant(
    name="Dramatiq on Redis",
    module="bench.redis.with_dramatiq",
    server="redis",
    stores=500,
    few=True,
    claims_ahead=True,
)
CONTESTANTS = {each.name: each for each in (NOONMARK, PROCRASTINATE, DBOS, CELERY)}
ON_REDIS = {each.name: each for each in (NOONMARK_ON_REDIS, CELERY, DRAMATIQ)}


def find(name: str) -> Contestant:
    """A contestant of any suite."""
    return (ON_REDIS | CONTESTANTS)[name]
