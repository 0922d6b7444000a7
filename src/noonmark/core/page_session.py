"""Sessions of the web page: who signed in with a key, and for how long that counts.

A session is 256 random bits in a cookie. A store has their SHA-256 digest, as it has of keys.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode

from noonmark.core.frozen import frozen
from noonmark.core.instants import DAY, HOUR, SECOND, Micros

IDLE: Micros = 12 * HOUR
"""A session ends when it was not used for this long."""
LONGEST: Micros = 7 * DAY
"""It ends this long after it began, however much it is used."""
NOTE_AFTER: Micros = 300 * SECOND
"""Its use is written at most this often."""
MAX_PER_KEY = 100
"""Sessions of one key; beyond that, the one that was not used for longest ends."""
TOKEN_BYTES = 32
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)


@frozen(kw_only=True)
class PageSession:
    """A session, as a store has it."""

    digest: str
    key_id: str
    """The key that it was begun with. It ends with the key."""
    created: Micros
    used: Micros

    @property
    def expires(self) -> Micros:
        """When it ends, unless it is used before that."""
        return min(self.used + IDLE, self.created + LONGEST)

    def is_use_due(self, now: Micros) -> bool:
        """Whether it is time to write that it is used."""
        return now - self.used >= NOTE_AFTER


def write_token(drawn: bytes) -> str:
    """The token of a new session, from random bytes."""
    return urlsafe_b64encode(drawn).rstrip(b"=").decode()


def is_token(text: str) -> bool:
    """Whether a text is written like a token."""
    return _TOKEN.fullmatch(text) is not None
