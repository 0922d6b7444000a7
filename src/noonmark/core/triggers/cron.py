"""Cron: one expression or several, in one zone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from noonmark.core.errors import InvalidTrigger, Problem, refusal
from noonmark.core.json_values import in_python, shown, text_problem
from noonmark.core.triggers.cron_expression import Expression, parse_expression
from noonmark.core.triggers.recurrence import FIXED, NO_OVERRIDE, Recurrence, WallTrigger, dst_argument, zone_argument

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from zoneinfo import ZoneInfo

    from noonmark.core.triggers.recurrence import DstOverride
    from noonmark.core.triggers.wallclock import TimesOnDays

MAX_EXPRESSIONS = 100
MAX_KEY = 200


@dataclass(frozen=True, slots=True, init=False, repr=False)
class CronTrigger(WallTrigger):
    """Fires where any of its expressions does; fires at the same instant are one.

    `key` is what `H` hashes, so that schedules spread over the hour but each keeps its place.
    """

    expressions: tuple[str, ...]
    key: str
    parsed: tuple[Expression, ...] = field(compare=False)

    type: ClassVar[str] = "cron"

    def __init__(  # noqa: PLR0913 - the public signature, mostly defaults
        self,
        expressions: str | Iterable[str],
        timezone: str | ZoneInfo = "UTC",
        dst: Mapping[str, str] | DstOverride | None = None,
        key: str = "",
        *,
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        jitter_seconds: float | timedelta = 0,
    ) -> None:
        """Parse now, so that a bad expression never reaches a store."""
        given = expressions if isinstance(expressions, str) else _listed(expressions)
        parsed = parse_expressions(given, _key_argument(key))
        texts = given if isinstance(given, tuple) else (given,)
        zone = zone_argument(timezone)
        override = NO_OVERRIDE if dst is None else dst_argument(dst)
        # A key that nothing hashes is not part of the trigger's meaning.
        hash_key = key if key and any(one.hashed for one in parsed) else ""
        recurrence = Recurrence(zone, [(one.rule, override.over(one.dst)) for one in parsed])
        self._set(
            expressions=texts, timezone=zone.name, dst=override, key=hash_key, parsed=parsed, _recurrence=recurrence
        )
        self._set_bounds(start_at, end_at, jitter_seconds)
        if start_at is not None or end_at is not None:
            self._require_a_fire()

    @classmethod
    def from_expression(cls, expr: str, timezone: str | ZoneInfo = "UTC") -> CronTrigger:
        """One expression, in a zone."""
        return cls(expr, timezone)

    @property
    def rules(self) -> tuple[TimesOnDays, ...]:
        """The wall-clock rule of each expression."""
        return tuple(one.rule for one in self.parsed)

    @property
    def fixed_rules(self) -> tuple[TimesOnDays, ...]:
        """The expressions with a fixed time of day, which are the ones a clock change can hit."""
        return tuple(one.rule for one in self.parsed if one.dst is FIXED)

    def bind(self, *, now: datetime, key: str = "") -> CronTrigger:
        """Bind `H` to the schedule's key, unless the trigger has its own."""
        self._check_bind(now)
        if self.key or not key or not any(one.hashed for one in self.parsed):
            return self
        return CronTrigger(
            self.expressions,
            self.timezone,
            self.dst,
            key,
            start_at=self.start_at,
            end_at=self.end_at,
            jitter_seconds=self.jitter_seconds,
        )

    def to_document(self) -> dict[str, Any]:
        """One expression as `expression`, several as `crons`; what is default is left out, but never the zone."""
        document: dict[str, Any] = {"type": self.type}
        if len(self.expressions) == 1:
            document["expression"] = self.expressions[0]
        else:
            document["crons"] = list(self.expressions)
        document["timezone"] = self.timezone
        if dst := self.dst.to_document():
            document["dst"] = dst
        if self.key:
            document["key"] = self.key
        return document | self._bounds_document()


def parse_expressions(given: object, key: str) -> tuple[Expression, ...]:
    """Parse one expression, or a tuple of them, and report what is wrong with each."""
    if not isinstance(given, tuple):
        return (parse_expression(given, key),)
    if not 1 <= len(given) <= MAX_EXPRESSIONS:
        raise InvalidTrigger(f"must hold 1 to {MAX_EXPRESSIONS} expressions, not {len(given):,}", field="crons")
    parsed: list[Expression] = []
    problems: list[Problem] = []
    for index, text in enumerate(given):
        try:
            parsed.append(parse_expression(text, key))
        except InvalidTrigger as error:
            problems += [Problem(f"crons[{index}]", one.message, one.code) for one in error.problems]
    if problems:
        raise refusal(problems)
    return tuple(parsed)


def _listed(expressions: object) -> tuple[object, ...]:
    if isinstance(expressions, Iterable):
        return tuple(expressions)
    raise InvalidTrigger(in_python(f"must be text or a list of text, not {shown(expressions)}"), field="expression")


def _key_argument(key: object) -> str:
    if key == "" or (isinstance(key, str) and len(key) <= MAX_KEY and text_problem(key) is None):
        return key
    raise InvalidTrigger(f"must be text of at most {MAX_KEY} characters, without control characters", field="key")
