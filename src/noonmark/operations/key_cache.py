"""API keys that a process has read lately, so that not every request reads the store.

A key is read again after a second, so a revoked one is refused on every node within that time. When keys were last used
is collected and written once a minute.
"""

from __future__ import annotations

import logging
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from noonmark.core.errors import StoreUnavailable
from noonmark.core.instants import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.api_key import ApiKey
    from noonmark.core.instants import Micros
    from noonmark.ports.store import Store

logger = logging.getLogger("noonmark.keys")
LIFETIME: Micros = SECOND
"""How long a key is reused."""
FIRST_KEY_LIFETIME: Micros = SECOND // 5
"""How long the answer is reused that there is no key at all."""
WRITE_INTERVAL: Micros = 60 * SECOND
TIME_LIFETIME: Micros = 10 * SECOND
MAX_CACHED = 10_000


class _Cached(NamedTuple):
    key: ApiKey
    until: Micros


class KeyCache:
    """The keys of a store, each reused for a short time. Safe to use from any thread."""

    def __init__(self, store: Store, monotonic: Callable[[], Micros]) -> None:
        """`monotonic` is in microseconds."""
        self._store, self._monotonic = store, monotonic
        self._lock = Lock()
        self._keys: dict[str, _Cached] = {}
        self._forgotten = 0
        self._has_keys: bool | None = None
        self._asked_at: Micros = 0
        self._used: dict[str, Micros] = {}
        self._store_time: Micros = 0
        """The store's time when it was last read, less the monotonic time then."""
        self._time_until = monotonic()
        self._write_at = monotonic()

    def is_known(self) -> bool:
        """Whether `has_keys` and `now` can be answered without the store."""
        return self._is_fresh() or (self._has_keys is True and self._is_time_known())

    def has_keys(self) -> bool:
        """Whether there has ever been a key: if so, every call needs one.

        While the store does not answer, the last answer counts: then nobody can make a key either.
        """
        if self._has_keys is not True and not self._is_fresh():
            try:
                self._has_keys = self._store.has_api_keys()
            except StoreUnavailable:
                if self._has_keys is None:
                    raise
            self._asked_at = self._monotonic()
        return self._has_keys is True

    def ask_again(self) -> None:
        """Ask the store the next time, however lately it had no key."""
        if self._has_keys is False:
            self._has_keys = None

    def _is_fresh(self) -> bool:
        return self._has_keys is False and self._monotonic() - self._asked_at < FIRST_KEY_LIFETIME

    @property
    def changes(self) -> int:
        """How often this process has changed a key: what was read before the last time may be outdated."""
        return self._forgotten

    def cached(self, key_id: str) -> ApiKey | None:
        """The key, if it was read a moment ago."""
        entry = self._keys.get(key_id)
        return None if entry is None or self._monotonic() >= entry.until else entry.key

    def find(self, key_id: str) -> ApiKey | None:
        """The key as it was at most a moment ago; None if it is unknown."""
        key = self.cached(key_id)
        if key is None:
            until, forgotten = self._monotonic() + LIFETIME, self._forgotten
            key = self._store.find_api_key(key_id)
            with self._lock:
                if forgotten != self._forgotten:  # perhaps it was revoked after it was read
                    return key
                if key is None:  # an unknown one is not cached: there is no end of them
                    self._keys.pop(key_id, None)
                else:
                    if len(self._keys) >= MAX_CACHED:
                        self._keys.clear()
                    self._keys[key_id] = _Cached(key, until)
        return key

    def now(self) -> Micros:
        """The store's time, by which keys expire."""
        if not self._is_time_known():
            self._store_time = self._store.clock() - self._monotonic()
            self._time_until = self._monotonic() + TIME_LIFETIME
        return self._store_time + self._monotonic()

    def _is_time_known(self) -> bool:
        return self._monotonic() < self._time_until

    def forget(self, key_id: str) -> None:
        """Read a key again, because this process has changed it."""
        with self._lock:
            self._forgotten += 1
            self._keys.pop(key_id, None)

    def use(self, key_id: str, now: Micros) -> None:
        """Note that a key was used."""
        with self._lock:
            self._used[key_id] = now

    @property
    def is_write_due(self) -> bool:
        """Whether it is time to write when keys were used."""
        return bool(self._used) and self._monotonic() >= self._write_at

    def write(self) -> None:
        """Write when keys were last used; if the store does not answer, later."""
        with self._lock:
            used, self._used = self._used, {}
            self._write_at = self._monotonic() + WRITE_INTERVAL
        if not used:
            return
        try:
            self._store.use_api_keys(used)
        except StoreUnavailable as error:
            logger.warning("could not write when keys were last used: %s", error)
            with self._lock:
                self._used = used | self._used
