"""Instants and durations as people read them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from noonmark.cli.local_zone import local_zone
from noonmark.clocks import SystemClock
from noonmark.core.frozen import frozen
from noonmark.core.instants import from_micros, parse_instant

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


@frozen(kw_only=True)
class Times:
    """Formats instants in a time zone, and in UTC beside it unless that is the same."""

    zone: str
    now: datetime

    def titles(self, title: str) -> list[str]:
        """The column headings for one instant."""
        return [f"{title}, {self.zone}"] + ([] if self.zone == "UTC" else ["UTC"])

    def cells(self, text: str | None) -> list[str]:
        """The cells for one instant."""
        if text is None:
            return ["-"] * len(self.titles(""))
        plain = plain_text(_whole_seconds(text), "seconds")
        return [plain] if self.zone == "UTC" else [self.local(text), plain]

    def local(self, text: str | None) -> str:
        """An instant in the time zone, with its offset."""
        if text is None:
            return "-"
        return local_text(_whole_seconds(text), self.zone, "seconds").partition(" ")[2].removesuffix(" +00:00")

    def relative(self, text: str | None) -> str:
        """The distance of an instant from now."""
        return "-" if text is None else relative_text(from_micros(parse_instant(text)) - self.now)


def local_times() -> Times:
    """Times in the zone of this machine."""
    return Times(zone=local_zone(), now=SystemClock().now().replace(microsecond=0))


def _whole_seconds(text: str) -> datetime:
    return from_micros(parse_instant(text)).replace(microsecond=0)


def relative_text(distance: timedelta) -> str:
    """A distance from now in its two largest units: `in 3 h 12 min`."""
    seconds = int(abs(distance).total_seconds())
    counts: list[tuple[int, str]] = []
    for unit, size in UNITS:
        count, seconds = divmod(seconds, size)
        if counts or count:
            counts.append((count, unit))
    if not counts:
        return "now"
    shown = 1 if counts[0][0] >= 100 else 2  # beside hundreds of days, hours are noise
    text = " ".join(f"{count:,} {unit}" for count, unit in counts[:shown] if count)
    return f"in {text}" if distance.days >= 0 else f"{text} ago"


def duration_text(seconds: float) -> str:
    """A duration in its two largest units; below a minute in seconds or milliseconds."""
    if 0 < seconds < 0.9995:  # rounds to 1 s with three digits
        return f"{seconds * 1_000:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 60 else relative_text(timedelta(seconds=seconds)).removeprefix("in ")


def exact_text(seconds: float) -> str:
    """A duration as it was declared, not rounded: `1 h 1 s`, `1.25 s`, `250 ms`."""
    micros = round(seconds * 1_000_000)
    if micros < 1_000_000:
        return f"{micros / 1_000:g} ms"
    parts = []
    for unit, size in (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000)):
        count, micros = divmod(micros, size)
        parts += [f"{count} {unit}"] if count else []
    if micros:
        parts.append(f"{micros / 1_000_000:.6f}".rstrip("0").rstrip(".") + " s")
    return " ".join(parts)


def precision_of(fires: Sequence[datetime]) -> str:
    """The precision that all fires need."""
    if any(fire.microsecond % 1_000 for fire in fires):
        return "microseconds"
    if any(fire.microsecond for fire in fires):
        return "milliseconds"
    return "seconds" if any(fire.second for fire in fires) else "minutes"


def local_text(instant: datetime, zone: str, precision: str) -> str:
    """An instant in a time zone, with its weekday and offset."""
    try:
        local = instant.astimezone(ZoneInfo(zone))
    except OverflowError:
        return "outside the years 1 to 9999"
    return f"{local:%a} {plain_text(local, precision)} {local.isoformat()[19:]}"


def plain_text(moment: datetime, precision: str) -> str:
    """A date and a time, without its zone."""
    return moment.replace(tzinfo=None).isoformat(" ", precision)
