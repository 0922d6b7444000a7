"""Terms of its own: what is true of one occurrence, and not of its schedule.

Whoever asked for it may have said something instead of what its schedule says, or its upstreams have set it off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import Reader, present
from noonmark.core.policies.limits import Concurrency, read_concurrency
from noonmark.core.policies.overlap import read_overlap

if TYPE_CHECKING:
    from noonmark.core.chain import Chain
    from noonmark.core.policies.overlap import OverlapPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """None leaves what the schedule says."""

    overlap_policy: OverlapPolicy | None = None
    concurrency: Concurrency | None = None
    behind: Chain | None = None
    """What led to it, where its upstreams have set it off."""

    @property
    def said(self) -> dict[str, Any]:
        """The fields of a declaration that it takes the place of."""
        return present(overlap_policy=self.overlap_policy, concurrency=self.concurrency)

    def to_document(self) -> dict[str, Any]:
        """The overrides as the document that `read_overrides` reads; the chain is stored apart."""
        overlap = None if self.overlap_policy is None else self.overlap_policy.to_document()
        return present(overlap_policy=overlap) | ({} if self.concurrency is None else self.concurrency.to_document())


def read_overrides(document: object) -> Overrides:
    """Read what `to_document` wrote; ValueError when it did not."""
    reader = Reader(document, path="", code="", problems=[])
    has_policy = reader.raw("overlap_policy") is not None
    overlap = read_overlap(reader, "overlap_policy", trigger_type="") if has_policy else None
    own = Overrides(overlap_policy=overlap, concurrency=read_concurrency(reader))
    reader.close()
    if reader.problems:
        raise ValueError(str(reader.problems[0]))
    return own
