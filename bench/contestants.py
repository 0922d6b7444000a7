"""The libraries that are compared, each asked the way its own documentation asks it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger as ApsTrigger
from croniter import croniter
from cronsim import CronSim

from noonmark import CronTrigger, fires

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    Walk = Callable[[int], list[datetime]]
    """The next `count` fires."""

NEW_YORK = "America/New_York"


@dataclass(frozen=True, slots=True)
class Contestant:
    """A way to get fires: `parse` an expression for a zone and a start, and get a walk over what follows."""

    name: str
    parse: Callable[[str, str, datetime], Walk]
    local: bool = True
    """Whether it takes and gives times in the zone; Noonmark speaks UTC."""
    debian: bool = True
    """Whether it treats clock changes as Debian's cron does, so that its fires must be the same there too."""

    def walk(self, expression: str, zone: str, start: datetime) -> Walk:
        """Parse; the start is given as it likes it best."""
        return self.parse(expression, zone, self.starting(zone, start))

    def starting(self, zone: str, start: datetime) -> datetime:
        """An instant as this contestant likes it best."""
        return start.astimezone(_tz(zone)) if self.local else start


def _noonmark_next(expression: str, zone: str, start: datetime) -> Walk:
    trigger = CronTrigger(expression, zone)

    def walk(count: int) -> list[datetime]:
        found: list[datetime] = []
        instant = start
        for _ in range(count):
            fire = trigger.next_after(instant)
            if fire is None:
                break
            found.append(fire)
            instant = fire
        return found

    return walk


def _noonmark_fires(expression: str, zone: str, start: datetime) -> Walk:
    trigger = CronTrigger(expression, zone)
    return lambda count: fires(trigger, start, count)


def _cronsim(expression: str, _zone: str, start: datetime) -> Walk:
    iterator = CronSim(expression, start)
    return lambda count: list(islice(iterator, count))


def _croniter(expression: str, _zone: str, start: datetime) -> Walk:
    iterator = croniter(expression, start)
    return lambda count: [iterator.get_next(datetime) for _ in range(count)]


def _apscheduler(expression: str, zone: str, start: datetime) -> Walk:
    # It counts weekdays from Monday, so they are given by name.
    trigger = ApsTrigger.from_crontab(expression.replace("1-5", "mon-fri"), _tz(zone))

    def walk(count: int) -> list[datetime]:
        found: list[datetime] = []
        fire = trigger.get_next_fire_time(None, start)
        while fire is not None:
            found.append(fire)
            if len(found) == count:
                break
            fire = trigger.get_next_fire_time(fire, fire)
        return found

    return walk


def _tz(zone: str) -> tzinfo:
    """The zone as the others like it best: they have a short cut for UTC itself."""
    return UTC if zone == "UTC" else ZoneInfo(zone)


NOONMARK = Contestant("next_after", _noonmark_next, local=False)
NOONMARK_FIRES = Contestant("fires()", _noonmark_fires, local=False)
CRONSIM = Contestant("cronsim", _cronsim)
CRONITER = Contestant("croniter", _croniter)
APSCHEDULER = Contestant("APScheduler", _apscheduler, debian=False)
CONTESTANTS = (NOONMARK, NOONMARK_FIRES, CRONSIM, CRONITER, APSCHEDULER)
