"""The settings of a node that runs bundles."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from noonmark.core.frozen import frozen
from noonmark.targets.bundle.resources import NodeOffer, NodeResources

if TYPE_CHECKING:
    from pathlib import Path

MAX_CACHE_BYTES = 2_147_483_648


@frozen(kw_only=True)
class BundleSettings:
    """Where a node unpacks bundles, and what it offers them."""

    resources: NodeResources = field(default_factory=lambda: NodeResources(NodeOffer()))
    cache: Path | None = None
    """None for the cache folder of the user."""
    max_cache_bytes: int = MAX_CACHE_BYTES
