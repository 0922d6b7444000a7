"""Usage, forecasts and budgets, with bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.cli.output import print_line
from noonmark.cli.render.tables import dollars, show_table
from noonmark.cli.render.times import local_times

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BAR = 24
"""The characters of the longest bar."""
PARTS = " ▏▎▍▌▋▊▉█"


def show_usage(answer: Mapping[str, Any]) -> None:
    """Show usage in groups: bars of the cost, or of tokens if no price is known."""
    groups, total = answer["groups"], answer["total"]
    is_priced = any(group["cost_usd"] for group in groups)
    sizes = [float((group["cost_usd"] if is_priced else group["total_tokens"]) or 0) for group in groups]
    most = max(sizes, default=0)
    rows = [
        [
            _label(answer["by"], group),
            bar(size, most),
            cost_words(group),
            tokens_words(group["total_tokens"]),
            f"{group['model_calls']:,}",
        ]
        for group, size in zip(groups, sizes, strict=True)
    ]
    times = local_times()
    period = f"{times.local(answer['from_utc'])} to {times.local(answer['to_utc'])}"
    closing = f"{cost_words(total)} for {tokens_words(total['total_tokens'])} tokens in {_calls(total)}, {period}"
    if total["reserved_usd"] or total["reserved_tokens"]:
        closing += f"; reserved: {dollars(total['reserved_usd'])} and {tokens_words(total['reserved_tokens'])} tokens"
    show_table([answer["by"].capitalize(), "", "Cost", "Tokens", "Calls"], rows, closing)


def _label(by: str, group: Mapping[str, Any]) -> str:
    if group["key"] is None:
        return f"(no {by})"
    return f"{group['name']} ({group['key']})" if group["name"] else str(group["key"])


def _calls(total: Mapping[str, Any]) -> str:
    return f"{total['model_calls']:,} {'call' if total['model_calls'] == 1 else 'calls'}"


def cost_words(usage: Mapping[str, Any]) -> str:
    """The cost of some calls; an unknown price is not 0."""
    unpriced = usage["unpriced_calls"]
    if usage["cost_usd"] is None:
        return "unknown"
    return dollars(usage["cost_usd"]) + (f" + {unpriced:,} unpriced" if unpriced else "")


def tokens_words(count: int) -> str:
    """A number of tokens, shortened."""
    for unit, size in (("G", 1_000_000_000), ("M", 1_000_000), ("k", 10_000)):
        if count >= size:
            return f"{count / min(size, 1_000 if unit == 'k' else size):,.1f}".removesuffix(".0") + f" {unit}"
    return f"{count:,}"


def bar(part: float, whole: float, width: int = BAR) -> str:
    """A bar for a part of a whole; anything but nothing can be seen."""
    if whole <= 0 or part <= 0:
        return ""
    eighths = max(1, round(min(1.0, part / whole) * width * 8))
    return "█" * (eighths // 8) + PARTS[eighths % 8].strip()


def show_forecast(answer: Mapping[str, Any]) -> None:
    """Show what schedules will cost this month."""
    schedules = answer["schedules"]
    if not schedules:
        print_line("No schedule has used a model within the last 31 days; name one to see its forecast.")
        return
    most = max(one["p90_usd"] or one["spent_usd"] for one in schedules)
    rows = [
        [
            f"{one['name']} ({one['schedule_id']})" if one["name"] else one["schedule_id"],
            bar(one["p50_usd"] or one["spent_usd"], most),
            dollars(one["spent_usd"]),
            "-" if one["fires_left"] is None else f"{one['fires_left']:,}",
            dollars(one["p50_usd"]),
            dollars(one["p90_usd"]),
            forecast_note(one),
        ]
        for one in schedules
    ]
    closing = f"{dollars(answer['spent_usd'])} spent this month; "
    if answer["p50_usd"] is None:
        closing += "what it will be is unknown"
    else:
        closing += f"{dollars(answer['p50_usd'])} to {dollars(answer['p90_usd'])} expected for all of it, in UTC"
        closing += f", and {answer['unknown']:,} of unknown cost" if answer["unknown"] else ""
    titles = ["Schedule", "", "Spent", "Fires left", "Month p50", "Month p90", "Note"]
    show_table(titles, rows, closing, optional=("Fires left",))


def forecast_note(one: Mapping[str, Any]) -> str:
    """What a forecast is worth, and its upper limit."""
    notes = []
    if one["unknown"]:
        notes.append(one["unknown"])
    elif one["is_rough"]:
        notes.append(f"rough: from {one['runs']:,} {'run' if one['runs'] == 1 else 'runs'}")
    if one["at_most_usd"] is not None:
        notes.append(f"at most {dollars(one['at_most_usd'])}")
    return "; ".join(notes) or "-"


def forecast_sentence(forecast: Mapping[str, Any]) -> str:
    """A forecast in one sentence."""
    note = forecast_note(forecast)
    if forecast["p50_usd"] is None:
        return f"This month's cost is unknown: {note}."
    figures = f"{dollars(forecast['p50_usd'])} (p50) to {dollars(forecast['p90_usd'])} (p90) this month"
    spent = f", {dollars(forecast['spent_usd'])} of it spent" if forecast["spent_usd"] else ""
    return f"Expected cost: {figures}{spent}{'' if note == '-' else f'; {note}'}."


def show_budgets(budgets: Sequence[Mapping[str, Any]], more: str) -> None:
    """Show budgets, with bars of what is spent and reserved."""
    times = local_times()
    rows = [
        [
            f"{one['scope']} {one['id']}",
            one["period"],
            bar(*_share(one)),
            _spent(one),
            "soft" if not one["hard"] else "hard",
            _beyond(one),
            times.relative(one["period_end_utc"]) if one["period_end_utc"] else "-",
        ]
        for one in budgets
    ]
    count = f"{len(budgets):,} {'budget' if len(budgets) == 1 else 'budgets'}"
    titles = ["Budget", "Period", "", "Spent", "Limit", "Beyond it", "Begins anew"]
    show_table(titles, rows, count + more, optional=("Begins anew", "Beyond it"))


def _share(budget: Mapping[str, Any]) -> tuple[float, float]:
    """How much of a budget is used, of 1: the fuller of its limits."""
    used = []
    if budget["max_cost_usd"] is not None:
        spent = (budget["spent_usd"] or 0) + (budget["reserved_usd"] or 0)
        used.append(spent / budget["max_cost_usd"] if budget["max_cost_usd"] else 1)
    if budget["max_tokens"] is not None:
        spent = budget["spent_tokens"] + budget["reserved_tokens"]
        used.append(spent / budget["max_tokens"] if budget["max_tokens"] else 1)
    return max(used), 1


def _spent(budget: Mapping[str, Any]) -> str:
    parts = []
    if budget["max_cost_usd"] is not None:
        parts.append(f"{dollars(budget['spent_usd'])} of {dollars(budget['max_cost_usd'])}")
    if budget["max_tokens"] is not None:
        parts.append(f"{tokens_words(budget['spent_tokens'])} of {tokens_words(budget['max_tokens'])} tokens")
    return ", ".join(parts)


def _beyond(budget: Mapping[str, Any]) -> str:
    if budget["require_approval"]:
        return "ask"
    return "warn" if not budget["hard"] else str(budget["when_exhausted"]).replace("_", " ")


def budget_sentence(budget: Mapping[str, Any]) -> str:
    """Whose budget it is, its limits, and what is spent of it."""
    per = "in all" if budget["period"] == "total" else f"a {budget['period']}"
    return f"{budget['scope']} {budget['id']}, {per}: {_spent(budget)} spent"
