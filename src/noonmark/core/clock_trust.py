"""Clock trust: whether a time of the store is plausible, judged by the time that has passed on this machine.

The boot clock of a machine goes on in its sleep and no setting of the time of day touches it. A store's time that runs
ahead of it by more than an hour is in *doubt*, until it returns, until it has gone on for a lease as the boot clock
did, or until an operator confirms it. A node that starts has no earlier reading: it compares the time with the newest
one that the store remembers. What cannot be undone, forgetting, needs more: after any such leap it waits for an hour of
time that has passed evenly. So it does after the time fell back: it may have been false before, or be so now.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.frozen import frozen
from noonmark.core.instants import DAY, HOUR, SECOND

if TYPE_CHECKING:
    from noonmark.core.instants import Micros

LEAP: Micros = HOUR
"""How far the store's clock may run ahead of the boot clock, or fall behind it, without doubt."""
LONG_SILENCE: Micros = 30 * DAY
"""A store that remembers nothing newer was not used for so long, or its time is wrong."""
AGREEMENT: Micros = 60 * SECOND
"""Two readings agree when the store and the boot clock count the same between them, give or take this."""
PROOF: Micros = HOUR
"""After a leap, nothing is pruned until this much time has passed evenly."""


@frozen
class Reading:
    """A time of the store, which it was between two moments of the boot clock."""

    asked: Micros
    time: Micros
    arrived: Micros


@frozen(kw_only=True)
class Doubt:
    """A time that nothing confirms yet."""

    since: Reading
    """The first reading of it; later ones agree with that."""
    ahead: Micros
    """By how much it runs ahead of what was expected."""


@frozen(kw_only=True)
class Trust:
    """What a node makes of the store's time."""

    last: Reading | None = None
    """The last reading that was believed."""
    remembered: Micros | None = None
    """The newest time that the store remembered when this node first read its clock."""
    older: Micros | None = None
    """The newest time that it remembered from at least an hour earlier. A false time that was taken for right leaves
    newer ones behind, and a node that starts meanwhile would find it confirmed by them."""
    doubt: Doubt | None = None
    unproven: Reading | None = None
    """The first reading after a leap that was believed, or a fall, until enough time has passed since."""
    leapt: Reading | None = None
    """The first reading after the last leap that was believed while the node ran."""
    has_fallen_back: bool = False
    """The last reading was earlier than the one before it by more than a leap: what was written ahead is wrong."""

    @property
    def may_forget(self) -> bool:
        """Whether the time is good enough for what cannot be undone."""
        return self.last is not None and self.doubt is None and self.unproven is None


def judge(trust: Trust, reading: Reading, *, lease: Micros) -> Trust:
    """What to make of one more reading."""
    ahead = _ahead(trust, reading)
    if ahead <= (LONG_SILENCE if trust.last is None else LEAP):
        return _believe(trust, reading, ahead)
    doubt = trust.doubt
    since = doubt.since if doubt is not None and _agree(doubt.since, reading) else reading
    if reading.asked - since.arrived >= lease:
        leapt = None if trust.last is None else since
        return replace(trust, last=reading, doubt=None, unproven=since, leapt=leapt, has_fallen_back=False)
    return replace(trust, doubt=Doubt(since=since, ahead=ahead), has_fallen_back=False)


def confirm(trust: Trust, reading: Reading) -> Trust:
    """Accept the time, because an operator confirmed it."""
    leapt = trust.leapt if trust.doubt is None else reading
    return replace(trust, last=reading, doubt=None, unproven=None, leapt=leapt, has_fallen_back=False)


def discrepancy(time: Micros, remembered: Micros | None) -> Micros:
    """How far a time is from the newest one that a store remembers, where that is more than a leap; else 0.

    Positive: the store was not used for so long, or its time is ahead. Negative: its time was ahead once, or is behind.
    """
    apart = 0 if remembered is None else time - remembered
    return apart if abs(apart) > LEAP else 0


def _believe(trust: Trust, reading: Reading, ahead: Micros) -> Trust:
    if trust.last is None:
        is_new = trust.older is not None and reading.time - trust.older > LONG_SILENCE
        unproven = reading if abs(ahead) > LEAP or is_new else None
        return replace(trust, last=reading, doubt=None, unproven=unproven, has_fallen_back=ahead < -LEAP)
    passed = reading.time - trust.last.time - (reading.asked - trust.last.arrived)
    has_fallen_back = passed < -LEAP
    unproven = reading if has_fallen_back else trust.unproven
    if unproven is not None and reading.asked - unproven.arrived >= PROOF:
        unproven = None
    return replace(trust, last=reading, doubt=None, unproven=unproven, has_fallen_back=has_fallen_back)


def _ahead(trust: Trust, reading: Reading) -> Micros:
    """How much further it is than the boot clock allows, or, before anything was believed, than the store remembers."""
    if trust.last is not None:
        return reading.time - trust.last.time - (reading.arrived - trust.last.asked)
    return 0 if trust.remembered is None else reading.time - trust.remembered


def _agree(first: Reading, second: Reading) -> bool:
    passed = second.time - first.time
    return second.asked - first.arrived - AGREEMENT <= passed <= second.arrived - first.asked + AGREEMENT
