"""Forecast: what a schedule will cost this month, from its last runs and the fires that are left."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from noonmark.core.budgets.spend import to_dollars
from noonmark.core.frozen import frozen
from noonmark.core.instants import from_micros, to_micros, to_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.instants import Micros

RUNS_READ = 50
"""How many of the last runs a forecast is made from."""
ENOUGH_RUNS = 5
"""From fewer runs it is rough."""
DECEMBER = 12


@frozen(kw_only=True)
class Forecast:
    """What a schedule has cost this month, and what it will have cost at the end of it, in nano-dollars.

    Each fire that is left counts as a run that costs the p50, or the p90, of the last runs. None is unknown.
    """

    month_start: Micros
    month_end: Micros
    spent: int
    """Of the calls whose price is known."""
    runs: int
    """How many of the last runs have a known cost."""
    unpriced_runs: int
    """How many of them do not."""
    fires: int | None
    """How many fires are left this month; None if the trigger does not depend on time."""
    run_p50: int | None
    run_p90: int | None
    p50: int | None
    p90: int | None
    most: int | None
    """What it can cost at most, by the limit of its runs."""
    unknown: str | None
    """Why the figures of the month are unknown."""

    @property
    def is_rough(self) -> bool:
        """Whether it is made from few runs."""
        return self.p50 is not None and bool(self.fires) and self.runs < ENOUGH_RUNS

    def to_document(self) -> dict[str, Any]:
        """The forecast as JSON shows it."""
        return {
            "month_start_utc": to_text(self.month_start),
            "month_end_utc": to_text(self.month_end),
            "spent_usd": to_dollars(self.spent),
            "runs": self.runs,
            "unpriced_runs": self.unpriced_runs,
            "fires_left": self.fires,
            "run_p50_usd": _dollars(self.run_p50),
            "run_p90_usd": _dollars(self.run_p90),
            "p50_usd": _dollars(self.p50),
            "p90_usd": _dollars(self.p90),
            "at_most_usd": _dollars(self.most),
            "is_rough": self.is_rough,
            "unknown": self.unknown,
        }


def month_of(now: Micros) -> tuple[Micros, Micros]:
    """The beginning and the end of the UTC month of an instant."""
    at = from_micros(now)
    following = (at.year + 1, 1) if at.month == DECEMBER else (at.year, at.month + 1)
    return to_micros(datetime(at.year, at.month, 1, tzinfo=UTC)), to_micros(datetime(*following, 1, tzinfo=UTC))


def forecast(
    costs: Sequence[int | None],
    *,
    fires: int | None,
    spent: int = 0,
    limit: int | None = None,
    now: Micros,
) -> Forecast:
    """Forecast the cost of a month.

    `costs` are those of the last runs, None where a price was unknown; `fires` are left until the end of the month,
    and `limit` is what one run may cost. A run whose cost is unknown is left out; if most are, nothing can be said.
    """
    start, end = month_of(now)
    known_costs = sorted(cost for cost in costs if cost is not None)
    unpriced = len(costs) - len(known_costs)
    p50, p90 = (percentile(known_costs, 50), percentile(known_costs, 90)) if known_costs else (None, None)
    unknown = None
    if fires is None:
        unknown = "no trigger says how often it fires"
    elif fires and not costs:
        unknown = "it has not run yet"
    elif fires and unpriced > len(known_costs):
        unknown = "the prices of most of its runs are unknown"
    return Forecast(
        month_start=start,
        month_end=end,
        spent=spent,
        runs=len(known_costs),
        unpriced_runs=unpriced,
        fires=fires,
        run_p50=p50,
        run_p90=p90,
        p50=None if fires is None or unknown is not None else spent + fires * (p50 or 0),
        p90=None if fires is None or unknown is not None else spent + fires * (p90 or 0),
        most=None if limit is None or fires is None else spent + fires * limit,
        unknown=unknown,
    )


def percentile(ordered: Sequence[int], percent: int) -> int:
    """The percentile of ordered numbers, by the nearest-rank method."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def _dollars(nanos: int | None) -> float | int | None:
    return None if nanos is None else to_dollars(nanos)
