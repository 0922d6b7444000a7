"""The resources of a node: what it offers to bundles, and what those that run have taken."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import field
from itertools import combinations
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from noonmark.core.frozen import frozen
from noonmark.core.targets.work import MAX_ROUTED_SLOTS, bundle_route

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.bundles.manifest import Resources

MEMORY = Path("/proc/meminfo")
MAX_NODE_LABELS = 6
"""A node serves one route for every set of its labels."""


@frozen(kw_only=True)
class NodeOffer:
    """What a node offers."""

    labels: Mapping[str, str] = field(default_factory=dict)
    slots: int = 0
    cpus: int = field(default_factory=lambda: os.cpu_count() or 1)

    def routes(self) -> tuple[str, ...]:
        """Bundles without labels, and those whose labels it all has, that need no more slots than it has in all."""
        names, counts = sorted(self.labels), range(min(self.slots, MAX_ROUTED_SLOTS) + 1)
        sets = [chosen for size in range(len(names) + 1) for chosen in combinations(names, size)]
        labels = [{name: self.labels[name] for name in chosen} for chosen in sets]
        return tuple(bundle_route(chosen, slots) for chosen in labels for slots in counts)


class NodeResources:
    """Counts what runs take. Thread-safe."""

    def __init__(self, offer: NodeOffer) -> None:
        self.offer = offer
        self._lock = Lock()
        self._slots = 0
        self._cpus = 0.0
        self._memory_mb = 0

    def take(self, wanted: Resources) -> str | None:
        """Take what a run asks for; what there is too little of, with nothing taken, if anything."""
        with self._lock:
            total_mb, free_mb = _memory()
            rules = (
                (wanted.slots, self.offer.slots - self._slots, f"of {self.offer.slots} slots"),
                (wanted.cpus, self.offer.cpus - self._cpus, f"of {self.offer.cpus} processors"),
                (wanted.memory_mb, min(free_mb, total_mb - self._memory_mb), f"of {total_mb:,} MB of memory"),
            )
            short = [
                f"{max(0, free):,} {of} are free, {asked:,} are needed"
                for asked, free, of in rules
                if asked > max(0, free)
            ]
            if short:
                return "; ".join(short)
            self._add(wanted, 1)
            return None

    def give_back(self, wanted: Resources) -> None:
        """Give back what a run has taken."""
        with self._lock:
            self._add(wanted, -1)

    def _add(self, wanted: Resources, sign: int) -> None:
        self._slots += sign * wanted.slots
        self._cpus += sign * wanted.cpus
        self._memory_mb += sign * wanted.memory_mb


def _memory() -> tuple[int, int]:
    """The memory of this machine, and what of it is available, in MB; plenty if that is unknown."""
    sizes: dict[str, int] = {}
    with suppress(OSError, ValueError):
        for line in MEMORY.read_text("ascii").splitlines():
            name, _, value = line.partition(":")
            if name in ("MemTotal", "MemAvailable"):
                sizes[name] = int(value.split()[0]) // 1_024
    total = sizes.get("MemTotal", 2**40)
    return total, sizes.get("MemAvailable", total)
