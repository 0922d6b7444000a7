"""Rate limits: a bucket of tokens that refills at a constant rate. A request takes one token.

A bucket is one instant: when it is full again. Each token that is taken moves that instant on. A bucket that is full is
like one that was never used, so it need not be stored.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from noonmark.core.frozen import frozen
from noonmark.core.instants import HOUR, SECOND
from noonmark.core.json_values import shown

if TYPE_CHECKING:
    from noonmark.core.instants import Micros

UNITS: dict[str, Micros] = {"s": SECOND, "m": 60 * SECOND, "h": HOUR}
MAX_PER_SECOND = 100_000
BURST: Micros = SECOND // 5
"""A bucket holds what comes in this time, and at least one token."""
PORTION: Micros = SECOND // 20
_RATE = re.compile(r"([0-9]{1,9})\s*/\s*([smh])", re.ASCII)


class Taken(NamedTuple):
    """What a bucket gave."""

    granted: int
    full_at: Micros
    """When the bucket is full again."""
    left: int
    """Tokens that are left in it."""
    wait: Micros
    """How long until it has a token; 0 if it has one."""


@frozen
class RateLimit:
    """So many in a length of time, of which `burst` may come at once."""

    quantity: int
    per: Micros
    burst: int

    @property
    def portion(self) -> int:
        """How many tokens a node takes at a time: what comes in 50 ms, and at least one."""
        return max(1, self.quantity * PORTION // self.per)

    @property
    def cost(self) -> Micros:
        """The time in which one token comes."""
        return max(1, self.per // self.quantity)

    def take(self, full_at: Micros | None, tokens: int, *, now: Micros) -> Taken:
        """Take as many of the wanted tokens as there are; `full_at` is None for a bucket that was never used."""
        size = self.burst * self.cost
        # A clock that was ahead may have stored a time that is years away.
        debt = 0 if full_at is None else min(max(0, full_at - now), size)
        there = (size - debt) // self.cost
        granted = min(tokens, there)
        debt += granted * self.cost
        left = there - granted
        wait = 0 if left else debt - (self.burst - 1) * self.cost
        return Taken(granted, now + debt, left, wait)


def parse_rate(value: object, *, burst: Micros | None = BURST) -> RateLimit:
    """Read a limit such as 100/s, 600/m or 5000/h; ValueError says what is allowed.

    `burst` is the time whose tokens may be taken at once; None allows all of them.
    """
    match = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    quantity = 0 if match is None else int(match[1])
    per = 0 if match is None else UNITS[match[2]]
    if not 0 < quantity * SECOND <= MAX_PER_SECOND * per:
        raise ValueError(f"must be a rate such as 100/s, 600/m or 5000/h, not {shown(value)}")
    at_once = quantity if burst is None else max(1, quantity * burst // per)
    return RateLimit(quantity, per, min(quantity, at_once))
