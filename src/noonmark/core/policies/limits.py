"""Limits that a schedule sets itself: shared places, money, upstream schedules, and how far ahead it is planned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core.errors import InvalidSchedule
from noonmark.core.frozen import frozen
from noonmark.core.json_values import boolean_value, identifier, in_python, number_value, text_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.documents import Reader
    from noonmark.core.reasons import Reason

MAX_CONCURRENCY = 100_000
MAX_KEY = 200
MAX_NAME = 200
"""Of a schedule; its id is shorter."""
MAX_COST_USD = 1_000_000
MAX_TOKENS = 1_000_000_000_000
MAX_CALLS = 1_000_000
MAX_DEPENDENCIES = 100
MAX_HORIZON_DAYS = 366
MAX_HORIZON_OCCURRENCES = 64


@frozen
class Concurrency:
    """At most `limit` (1 to 100,000) occurrences with the same key are in flight at once, over all nodes."""

    key: str
    limit: int = 1

    def __post_init__(self) -> None:
        """Refuse what a document could not hold."""
        _check("key", lambda: text_value(self.key, 1, MAX_KEY, multiline=False))
        _check("limit", lambda: number_value(self.limit, 1, MAX_CONCURRENCY, whole=True))

    def to_document(self) -> dict[str, Any]:
        """The two fields of the schedule document."""
        return {"concurrency_key": self.key, "concurrency_limit": self.limit}


@frozen
class KeyLimit:
    """A concurrency key beside that of the schedule: at most `limit` occurrences of the tenant hold it at once."""

    name: str
    """With a line break, so that no schedule can name it."""
    limit: int
    reason: Reason
    """What an occurrence waits for while the key has no free place."""


@frozen(kw_only=True)
class Budget:
    """What one run may spend, all attempts together; None is not limited.

    Dollars (up to a million), tokens (up to 10^12), and calls of models and of tools (up to a million each).
    """

    max_cost_usd: float | None = None
    max_tokens: int | None = None
    max_model_calls: int | None = None
    max_tool_calls: int | None = None

    def to_document(self) -> dict[str, Any]:
        """Only what is limited."""
        limits = {
            "max_cost_usd": self.max_cost_usd,
            "max_tokens": self.max_tokens,
            "max_model_calls": self.max_model_calls,
            "max_tool_calls": self.max_tool_calls,
        }
        return {name: limit for name, limit in limits.items() if limit is not None}


@frozen
class Dependency:
    """A schedule that must have run first, and by default must have succeeded."""

    schedule_id: str
    """In a program also the name of a schedule, or its `Job`, which are replaced by the id."""
    require_success: bool = True

    def __post_init__(self) -> None:
        """Refuse what names no schedule."""
        _check(
            "schedule_id",
            lambda: text_value(getattr(self.schedule_id, "id", self.schedule_id), 1, MAX_NAME, multiline=False),
        )
        _check("require_success", lambda: boolean_value(self.require_success))

    def to_document(self) -> dict[str, Any]:
        """Both fields, written out."""
        return {"schedule_id": self.schedule_id, "require_success": self.require_success}


@frozen(kw_only=True)
class Horizon:
    """How far ahead occurrences are planned: up to `occurrences` (1 to 64) within `days` (1 to 366)."""

    days: int = 30
    occurrences: int = 1

    def to_document(self) -> dict[str, Any]:
        """The two fields of the schedule document."""
        return {"planning_horizon_days": self.days, "planning_horizon_occurrences": self.occurrences}


def _check(field: str, read: Callable[[], object]) -> None:
    try:
        read()
    except ValueError as error:
        raise InvalidSchedule(in_python(str(error)), field=field) from None


def read_concurrency(reader: Reader) -> Concurrency | None:
    """The named limit in `concurrency_key` and `concurrency_limit`, if there is one."""
    key = reader.text("concurrency_key", None, high=MAX_KEY)
    limit = reader.integer("concurrency_limit", 1, low=1, high=MAX_CONCURRENCY)
    if reader.raw("concurrency_key") is None and reader.raw("concurrency_limit") is not None:
        reader.problem("concurrency_limit", "needs a concurrency_key")
    return None if key is None else Concurrency(key=key, limit=limit)


def read_budget(reader: Reader, field: str) -> Budget | None:
    """The budget in a field; an empty one limits nothing and reads as none."""
    if reader.raw(field) is None:
        return None
    limits = reader.child(field)
    budget = Budget(
        max_cost_usd=limits.number("max_cost_usd", None, high=MAX_COST_USD),
        max_tokens=limits.integer("max_tokens", None, high=MAX_TOKENS),
        max_model_calls=limits.integer("max_model_calls", None, high=MAX_CALLS),
        max_tool_calls=limits.integer("max_tool_calls", None, high=MAX_CALLS),
    )
    limits.close()
    return None if budget == Budget() else budget


def read_dependencies(reader: Reader, field: str) -> tuple[Dependency, ...]:
    """The schedules in a field, each named once; at most 100."""
    dependencies: dict[str, Dependency] = {}
    for index, entry in enumerate(reader.items(field, high=MAX_DEPENDENCIES)):
        upstream = reader.entry(f"{field}[{index}]", entry)
        if upstream is None:
            continue  # the reader has noted it
        schedule_id = upstream.read("schedule_id", identifier)
        require_success = upstream.boolean("require_success", default=True)
        upstream.close()
        if isinstance(schedule_id, str):  # else its problem is noted
            if schedule_id in dependencies:
                upstream.problem("schedule_id", "is named twice")
            dependencies[schedule_id] = Dependency(schedule_id=schedule_id, require_success=require_success)
    return tuple(dependencies.values())


def read_horizon(reader: Reader) -> Horizon:
    """How far ahead to plan, from `planning_horizon_days` and `planning_horizon_occurrences`."""
    default = Horizon()
    return Horizon(
        days=reader.integer("planning_horizon_days", default.days, low=1, high=MAX_HORIZON_DAYS),
        occurrences=reader.integer(
            "planning_horizon_occurrences", default.occurrences, low=1, high=MAX_HORIZON_OCCURRENCES
        ),
    )
