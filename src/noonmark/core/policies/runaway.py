"""The runaway guard: pauses a schedule that succeeds, but starts too often, spends too much, or gets nowhere.

- Fires per hour: the starts of a UTC hour are counted. The one beyond `max_fires_per_hour` does not happen.
- Spend per hour: what its calls of models cost within an hour, against its own past hours.
- Identical results: how many results in a row were the same.

A schedule of an agent has the first two unless its document says otherwise; any other has those that it asks for.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from noonmark.core import instants
from noonmark.core.budgets.forecast import percentile
from noonmark.core.budgets.spend import NANOS, to_dollars
from noonmark.core.documents import present
from noonmark.core.frozen import frozen
from noonmark.core.instants import DAY, to_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.documents import Reader
    from noonmark.core.instants import Micros
    from noonmark.core.triggers import Trigger

HOUR: Micros = instants.HOUR
"""Starts and spend are counted by the hour."""
AGENT_FIRES = 60
"""The starts in an hour that an agent always has."""
AGENT_SPARE = 2
"""And this multiple of what its trigger plans."""
AGENT_FACTOR = 5
MAX_FIRES = 1_000_000
MAX_FACTOR = 1_000
MAX_IDENTICAL = 10_000
SPEND_FLOOR = 1 * NANOS
"""An hour that costs less than a dollar is never too expensive."""
PAST: Micros = 30 * DAY
"""How far back the past hours of a schedule reach."""
MIN_PAST_HOURS = 5
"""The least hours with spend from which a usual rate is derived."""
USUAL_PERCENT = 90
_COUNTS = ("since", "hour", "starts", "identical")


@frozen(kw_only=True)
class RunawayPolicy:
    """The rules that a document sets: None leaves one at the default of its target, and 0 turns it off."""

    max_fires_per_hour: int | None = None
    max_spend_factor: float | None = None
    max_identical_results: int | None = None

    def to_document(self) -> dict[str, Any]:
        """The field of the schedule document."""
        return present(**asdict(self))


class RunawayRule(StrEnum):
    """The rule that was broken."""

    FIRES = "fires_per_hour"
    SPEND = "spend_per_hour"
    RESULTS = "identical_results"


@frozen(kw_only=True)
class Breach:
    """A rule that a schedule has broken: what was seen, and how much is allowed."""

    rule: RunawayRule
    seen: float
    """Starts, dollars, or results."""
    limit: float
    since: Micros
    """When the hour began, or what was counted."""
    text: str
    """What happened, in words."""


@frozen(kw_only=True)
class Counted:
    """What is counted of a schedule since it was created or resumed."""

    since: Micros = 0
    hour: Micros = 0
    """The beginning of the UTC hour whose starts are counted."""
    starts: int = 0
    digest: str | None = None
    """Of its last result."""
    identical: int = 0
    """How many results in a row had it."""
    stopped: str | None = None
    """Why nothing of it starts until it is resumed, if it has broken a rule."""

    def to_document(self) -> dict[str, Any]:
        """It as JSON, for a store."""
        return present(**asdict(self))


@frozen(kw_only=True)
class Guard:
    """The rules in force for a schedule; None is a rule that it does not have."""

    fires: int | None = None
    spare: int = 1
    """The limit is at least this multiple of what its trigger plans for the hour."""
    factor: float | None = None
    identical: int | None = None

    def to_document(self) -> dict[str, Any]:
        """The rules as a document would set them."""
        return present(
            max_fires_per_hour=self.fires, max_spend_factor=self.factor, max_identical_results=self.identical
        )


def read_runaway(reader: Reader, name: str) -> RunawayPolicy | None:
    """The rules in a field; an empty object leaves all of them at their defaults."""
    if reader.raw(name) is None:
        return None
    fields = reader.child(name)
    factor = fields.number("max_spend_factor", None, high=MAX_FACTOR)
    if factor is not None and 0 < factor < 1:
        fields.problem("max_spend_factor", f"must be 0, or from 1 to {MAX_FACTOR:,}, not {factor:g}")
    policy = RunawayPolicy(
        max_fires_per_hour=fields.integer("max_fires_per_hour", None, high=MAX_FIRES),
        max_spend_factor=factor,
        max_identical_results=fields.integer("max_identical_results", None, high=MAX_IDENTICAL),
    )
    fields.close()
    return None if policy == RunawayPolicy() else policy


def guard_of(policy: RunawayPolicy | None, *, is_agent: bool) -> Guard | None:
    """The rules in force; None if there are none."""
    limits = policy or RunawayPolicy()
    is_default = is_agent and limits.max_fires_per_hour is None
    guard = Guard(
        fires=AGENT_FIRES if is_default else limits.max_fires_per_hour or None,
        spare=AGENT_SPARE if is_default else 1,
        factor=AGENT_FACTOR if is_agent and limits.max_spend_factor is None else limits.max_spend_factor or None,
        identical=limits.max_identical_results or None,
    )
    return None if guard == Guard() else guard


def is_looser(policy: RunawayPolicy | None) -> bool:
    """Whether it leaves an agent more room than the default does."""
    if policy is None:
        return False
    fires, factor = policy.max_fires_per_hour, policy.max_spend_factor
    is_fast = fires is not None and not 0 < fires <= AGENT_FIRES
    return is_fast or (factor is not None and not 0 < factor <= AGENT_FACTOR)


def read_counted(document: object) -> Counted | None:
    """What a store has counted; None if its record is damaged, so that counting begins anew."""
    if not isinstance(document, dict):
        return None
    fields: dict[str, Any] = {name: count for name in _COUNTS if type(count := document.get(name)) is int}
    if len(fields) < len(_COUNTS):
        return None
    texts = {name: text for name in ("digest", "stopped") if isinstance(text := document.get(name), str)}
    return Counted(**fields | texts)


def count_start(counted: Counted, *, at: Micros) -> Counted:
    """Count a start. One of an hour that is over does not count any more."""
    hour = _hour(at)
    if hour < counted.hour:
        return counted
    return replace(counted, hour=hour, starts=counted.starts + 1 if hour == counted.hour else 1)


def judge_start(guard: Guard, counted: Counted, trigger: Trigger | None, *, at: Micros) -> Breach | None:
    """How one more start breaks a rule, if it does."""
    hour = _hour(at)
    if guard.fires is None or hour != counted.hour or counted.starts < guard.fires:
        return None
    planned = 0 if trigger is None else trigger.count_micros(hour - 1, hour + HOUR - 1)
    limit = max(guard.fires, guard.spare * planned)
    if counted.starts < limit:
        return None
    seen = counted.starts + 1
    text = (
        f"{seen:,} starts in the hour from {to_text(hour)} on; at most {limit:,} are allowed, and its trigger plans"
        f" {planned:,}"
    )
    return Breach(rule=RunawayRule.FIRES, seen=seen, limit=limit, since=hour, text=text)


def count_result(counted: Counted, digest: str | None) -> Counted:
    """Count a result. A run without one says nothing."""
    if digest is None:
        return counted
    return replace(counted, digest=digest, identical=counted.identical + 1 if digest == counted.digest else 1)


def judge_results(limit: int, counted: Counted) -> Breach | None:
    """How its last result breaks the rule, if it does."""
    if counted.identical <= limit:
        return None
    text = f"its last {counted.identical:,} results were the same; at most {limit:,} in a row are allowed"
    seen = counted.identical
    return Breach(rule=RunawayRule.RESULTS, seen=seen, limit=limit, since=counted.since, text=text)


def judge_spend(guard: Guard, recent: int, past: Sequence[int], *, now: Micros) -> Breach | None:
    """How the last hour breaks the rule, if it does; `past` is what each past hour cost in which it spent anything."""
    if guard.factor is None or recent <= SPEND_FLOOR or len(past) < MIN_PAST_HOURS:
        return None
    usual = percentile(sorted(past), USUAL_PERCENT)
    limit = max(SPEND_FLOOR, int(guard.factor * usual))
    if recent <= limit:
        return None
    text = (
        f"it spent {_money(recent)} within an hour; at most {_money(limit)} are allowed, since nine of ten of its past"
        f" hours cost up to {_money(usual)}"
    )
    seen, allowed = to_dollars(recent), to_dollars(limit)
    return Breach(rule=RunawayRule.SPEND, seen=seen, limit=allowed, since=now - HOUR, text=text)


def result_digest(result: object) -> str | None:
    """The digest that distinguishes results, without their session; None if there is no result."""
    compared = {key: one for key, one in result.items() if key != "session_id"} if isinstance(result, dict) else result
    if compared is None or compared == {}:
        return None
    return blake2b(json.dumps(compared, sort_keys=True).encode(), digest_size=16).hexdigest()


def _hour(at: Micros) -> Micros:
    return at // HOUR * HOUR


def _money(nanos: int) -> str:
    return f"${to_dollars(nanos):,.2f}"
