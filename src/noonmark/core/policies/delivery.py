"""Delivery: what is promised when contact is lost, and what happens when no node can serve the target."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from noonmark.core.documents import named
from noonmark.core.instants import SECOND, Micros
from noonmark.core.lifecycle import Phase

if TYPE_CHECKING:
    from noonmark.core.documents import Reader

MIN_PATIENCE: Micros = 30 * SECOND
"""How old the last heartbeat of a node may be for its targets to count as served. A late one does not mean that the
node is gone: heartbeats follow every few seconds."""


class Delivery(StrEnum):
    """How often an occurrence may reach its target when a lease is lost on the way."""

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class MissingTargetPolicy(StrEnum):
    """How an occurrence ends that no live node could serve."""

    MARK_MISFIRED = "mark_misfired"
    SKIP = "skip"

    @property
    def phase(self) -> Phase:
        """How an occurrence ends that never began."""
        return Phase.SKIPPED if self is MissingTargetPolicy.SKIP else Phase.MISFIRED


_DELIVERIES, _POLICIES = named(Delivery), named(MissingTargetPolicy)


def patience(grace: Micros) -> Micros:
    """How long a route must have been without a node before its target counts as missing."""
    return max(grace, MIN_PATIENCE)


def read_delivery(reader: Reader, field: str) -> Delivery:
    """Read the promise from a field; the default is at least once."""
    delivery: Delivery = reader.choice(field, _DELIVERIES, Delivery.AT_LEAST_ONCE)
    return delivery


def read_missing_target(reader: Reader, field: str) -> MissingTargetPolicy:
    """Read the policy from a field; the default is `mark_misfired`."""
    policy: MissingTargetPolicy = reader.choice(field, _POLICIES, MissingTargetPolicy.MARK_MISFIRED)
    return policy
