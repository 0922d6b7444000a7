"""The daylight-saving rule: what a wall-clock time means on the two days a year when the clock is changed.

A *fixed* time (neither its minute nor its hour begins with `*`) is neither lost nor doubled: in a gap it fires at
the first instant after it, in a repeated hour in the first pass. A *wildcard* follows real time: it fires
whenever the wall clock matches. A trigger may override either half.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from noonmark.core.documents import named

if TYPE_CHECKING:
    from noonmark.core.documents import Reader


class Gap(StrEnum):
    """What becomes of a time that the clock jumps over."""

    AFTER = "after"
    SKIP = "skip"


class Fold(StrEnum):
    """In which pass of a repeated hour a time fires."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class DstRule:
    """One whole rule."""

    gap: Gap
    fold: Fold


FIXED = DstRule(Gap.AFTER, Fold.FIRST)
WILDCARD = DstRule(Gap.SKIP, Fold.BOTH)


@dataclass(frozen=True, slots=True)
class DstOverride:
    """What a trigger says of its own; `None` leaves that half to the rule for its kind."""

    gap: Gap | None = None
    fold: Fold | None = None

    def over(self, rule: DstRule) -> DstRule:
        """The rule with this said on top."""
        return DstRule(self.gap or rule.gap, self.fold or rule.fold) if self.gap or self.fold else rule

    def to_document(self) -> dict[str, str]:
        """Only what was said."""
        return {name: str(half) for name, half in (("gap", self.gap), ("fold", self.fold)) if half is not None}


NO_OVERRIDE = DstOverride()


def read_dst(reader: Reader) -> DstOverride:
    """Read `{"gap": .., "fold": ..}`; both may be absent."""
    override = DstOverride(reader.choice("gap", named(Gap), None), reader.choice("fold", named(Fold), None))
    reader.close()
    return override
