"""What the time rules say, by walking the wall clock: slow, obvious, and nothing shared with the package.

A rule is read into sets of seconds, minutes and hours and a question about dates. Its fires in a stretch of time are
found by naming every wall time it matches on every date around there and asking the time zone, through the `fold`
attribute of `datetime`, whether clocks showed it once, twice (a fold) or never (a gap).
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import product
from zoneinfo import ZoneInfo

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
LONGEST_GAP = timedelta(hours=3)
ROUND_THE_WORLD = timedelta(hours=27)
"""No clock is further from UTC than this."""

AT_NAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MONTHS = [
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
]
WEEKDAYS = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"]


@dataclass(frozen=True)
class Rule:
    """Which wall times, on which dates; `fixed` decides what happens when clocks change."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    day_matches: Callable[[date], bool]
    fixed: bool


def number(text, names=(), first=0):
    """A number, or the place of a name given in three letters or in full."""
    for place, name in enumerate(names, first):
        if text.lower() in (name, name[:3]):
            return place
    return int(text)


def numbers(text, low, high, names=(), first=0):
    """The values of a plain list of numbers, ranges and steps."""
    collected = set()
    for item in text.split(","):
        span, _, step = item.partition("/")
        if span in ("*", "?"):
            begin, end = low, high
        elif "-" in span:
            begin, end = (number(part, names, first) for part in span.split("-"))
        else:
            begin = number(span, names, first)
            end = high if step else begin
        collected.update(range(begin, end + 1, int(step or 1)))
    return frozenset(collected)


def month_of(day):
    """All dates of the month that holds a date."""
    start = day.replace(day=1)
    return [start + DAY * n for n in range(31) if (start + DAY * n).month == day.month]


def is_working_day(day):
    return day.isoweekday() <= 5


def day_of_month_matches(item, day):
    month = month_of(day)
    item = item.upper()
    if item == "L":
        return day == month[-1]
    if item == "LW":
        return day == [each for each in month if is_working_day(each)][-1]
    if item.startswith("L-"):
        return day == month[-1] - DAY * int(item[2:])
    if item.endswith("W"):
        wanted = int(item[:-1])
        if wanted > len(month):
            return False
        working = [each for each in month if is_working_day(each)]
        return day == min(working, key=lambda each: abs(each.day - wanted))
    return day.day in numbers(item, 1, 31)


def day_of_week_matches(item, day):
    sunday_is_zero = day.isoweekday() % 7
    same_weekday = [each for each in month_of(day) if each.isoweekday() == day.isoweekday()]
    if "#" in item:
        weekday, place = item.split("#")
        return number(weekday, WEEKDAYS) % 7 == sunday_is_zero and same_weekday.index(day) + 1 == int(place)
    if item.upper().endswith("L"):
        return number(item[:-1], WEEKDAYS) % 7 == sunday_is_zero and day == same_weekday[-1]
    return sunday_is_zero in {value % 7 for value in numbers(item, 0, 7, WEEKDAYS)}


@cache
def cron_rule(expression):
    """Read a cron expression of five or six fields, or an @ name. Only good ones: this does not check."""
    fields = AT_NAMES.get(expression.strip().lower(), expression).split()
    second, minute, hour, day_of_month, month, day_of_week = fields if len(fields) == 6 else ["0", *fields]
    months = numbers(month, 1, 12, MONTHS, 1)
    # Either field may be the unrestricted one; then both must hold, which a bare star always does.
    both = day_of_month.startswith(("*", "?")) or day_of_week.startswith(("*", "?"))

    @cache
    def day_matches(day):
        by_month = any(day_of_month_matches(item, day) for item in day_of_month.split(","))
        by_week = any(day_of_week_matches(item, day) for item in day_of_week.split(","))
        return day.month in months and (by_month and by_week if both else by_month or by_week)

    return Rule(
        numbers(second, 0, 59),
        numbers(minute, 0, 59),
        numbers(hour, 0, 23),
        day_matches,
        fixed=not minute.startswith("*") and not hour.startswith("*"),
    )


def calendar_rule(*, second=0, minute=None, hour=None, day_of_month=None, month=None, day_of_week=None, year=None):
    """A calendar trigger's fields: None is any, else a number or several; all fields must hold."""

    def wanted(field, everything):
        return frozenset(everything if field is None else [field] if isinstance(field, int) else field)

    days, months = wanted(day_of_month, range(1, 32)), wanted(month, range(1, 13))
    weekdays = {value % 7 for value in wanted(day_of_week, range(7))}
    years = wanted(year, range(1, 10_000))

    def day_matches(day):
        return day.day in days and day.month in months and day.isoweekday() % 7 in weekdays and day.year in years

    return Rule(
        wanted(second, range(60)),
        wanted(minute, range(60)),
        wanted(hour, range(24)),
        day_matches,
        fixed=minute is not None and hour is not None,
    )


def instants_showing(wall, zone):
    """The instants at which the zone's clocks show a wall time: none, one or two."""
    candidates = {wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    return sorted(each for each in candidates if each.astimezone(zone).replace(tzinfo=None, fold=0) == wall)


@cache
def _end_of_gap(zone, before, still_before):
    instant = still_before
    while instant.astimezone(zone).utcoffset() == before:
        instant += SECOND
    return instant


def gap_around(wall, zone):
    """For a wall time that never was: the first instant after the gap, and how much the clocks skipped."""
    before, after = (wall.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    # Seen with the later offset, the midnight before the missing time is an instant before the gap (or long before).
    still_before = datetime.combine(wall.date(), datetime.min.time(), UTC) - after
    while still_before.astimezone(zone).utcoffset() != before:
        still_before -= timedelta(hours=1)
    return _end_of_gap(zone, before, still_before), after - before


def fires_of_wall_time(wall, zone, rule, dst):
    """Where one matching wall time fires, by the daylight-saving rule and its overrides."""
    gap = dst.get("gap", "after" if rule.fixed else "skip")
    fold = dst.get("fold", "first" if rule.fixed else "both")
    instants = instants_showing(wall, zone)
    if not instants:
        end, length = gap_around(wall, zone)
        return [end] if gap == "after" and length <= LONGEST_GAP else []
    if len(instants) == 1 or fold == "both":
        return instants
    return instants[:1] if fold == "first" else instants[1:]


def fires_between(rules, zone_name, after, until, dst=None):
    """All fires with after < fire <= until, of one rule or several together, in order and without repeats."""
    zone = ZoneInfo(zone_name)
    collected = set()
    for rule in rules if isinstance(rules, list) else [rules]:
        times = sorted(product(rule.hours, rule.minutes, rule.seconds))
        first, last = (after - ROUND_THE_WORLD).date(), (until + ROUND_THE_WORLD).date()
        for day in (first + DAY * n for n in range((last - first).days + 1)):
            if not rule.day_matches(day):
                continue
            for hour, minute, second in times:
                wall = datetime(day.year, day.month, day.day, hour, minute, second)  # noqa: DTZ001 - a wall time has no zone
                if after - ROUND_THE_WORLD <= wall.replace(tzinfo=UTC) <= until + ROUND_THE_WORLD:
                    collected.update(fires_of_wall_time(wall, zone, rule, dst or {}))
    return sorted(fire for fire in collected if after < fire <= until)


@cache
def clock_changes(zone_name, year):
    """Every instant of a year at which a zone's offset changes: found by the hour, then to the second."""
    zone = ZoneInfo(zone_name)
    hour = timedelta(hours=1)
    collected = []
    instant = datetime(year, 1, 1, tzinfo=UTC)
    while instant.year == year:
        before = instant.astimezone(zone).utcoffset()
        if (instant + hour).astimezone(zone).utcoffset() != before:
            change = instant
            while change.astimezone(zone).utcoffset() == before:
                change += SECOND
            collected.append(change)
        instant += hour
    return collected


def utc(text):
    """An instant written as 2026-03-08T07:00Z."""
    return datetime.fromisoformat(text)


def check_timeline(trigger, after, until, expected):
    """Ask a trigger everything about a stretch of time whose fires are known, from many places inside it."""
    micro = timedelta(microseconds=1)
    places = {after + (until - after) * n / 96 for n in range(97)}
    places.update(fire + step for fire in expected for step in (-SECOND, -micro, timedelta(0), micro, SECOND))
    for place in sorted(place for place in places if after <= place <= until):
        later, earlier = [fire for fire in expected if fire > place], [fire for fire in expected if fire < place]
        following, previous = trigger.next_after(place), trigger.previous_before(place)
        if later:
            assert following == later[0], f"after {place} comes {following}, not {later[0]}"
        else:
            assert following is None or following > until, f"after {place} nothing should come, but {following} does"
        if earlier:
            assert previous == earlier[-1], f"before {place} was {previous}, not {earlier[-1]}"
        else:
            assert previous is None or previous <= after, f"before {place} nothing should be, but {previous} is"
        upto = len([fire for fire in expected if fire <= place])
        assert trigger.count_between(after, place) == upto, f"from {after} to {place}"
        assert trigger.count_between(place, until) == len(later), f"from {place} to {until}"
