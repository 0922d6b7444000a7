"""Damaged rows that this process has found: each is logged once, and counted for metrics."""

from __future__ import annotations

import logging
from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger("noonmark.store")

MOST_KNOWN = 10_000
"""So many rows are remembered; of more than that, nothing is said."""


class DamageLog:
    """From any thread. What is mended meanwhile stays in it until the process ends."""

    def __init__(self) -> None:
        """Nothing was found yet."""
        self._told: set[tuple[str, str]] = set()
        self._lock = Lock()

    def note(self, table: str, key: object, problem: str) -> None:
        """A row of a table is damaged; however often it is read, that is said once."""
        row = (table, str(key))
        with self._lock:
            if row in self._told or len(self._told) >= MOST_KNOWN:
                return
            self._told.add(row)
        logger.error(
            "a row of %s is damaged, and set aside by itself (%s): %s; noonmark doctor says what to do", *row, problem
        )

    def counts(self) -> Mapping[str, int]:
        """How many rows of each table were found damaged."""
        with self._lock:
            return Counter(table for table, _ in self._told)
