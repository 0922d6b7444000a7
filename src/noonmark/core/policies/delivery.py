"""Delivery: what is promised when contact is lost, and what happens when nobody can serve the target."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from noonmark.core.documents import named

if TYPE_CHECKING:
    from noonmark.core.documents import Reader


class Delivery(StrEnum):
    """How often an occurrence may reach its target when a lease is lost on the way."""

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class MissingTargetPolicy(StrEnum):
    """How an occurrence ends that no live node could serve."""

    MARK_MISFIRED = "mark_misfired"
    SKIP = "skip"


def read_delivery(reader: Reader, field: str) -> Delivery:
    """The promise in a field; at least once when nothing is said."""
    found: Delivery = reader.choice(field, named(Delivery), Delivery.AT_LEAST_ONCE)
    return found


def read_missing_target(reader: Reader, field: str) -> MissingTargetPolicy:
    """The policy in a field; `mark_misfired` when nothing is said."""
    found: MissingTargetPolicy = reader.choice(field, named(MissingTargetPolicy), MissingTargetPolicy.MARK_MISFIRED)
    return found
