"""Arguments of an operation: read strictly, with an error that lists everything wrong with them."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, Any

from noonmark.core.documents import Reader
from noonmark.core.errors import InvalidRequest, refusal
from noonmark.operations.schedules import Expected

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_LIMIT = 1_000
"""A page has at most so many entries."""
MAX_CURSOR = 1_000


class Arguments(Reader):
    """The arguments of one call, by name; each is asked for once, then `done` refuses the rest."""

    def __init__(self, arguments: Mapping[str, Any], *, repeats: bool = True) -> None:
        """A value of null counts as absent."""
        super().__init__(dict(arguments), path="", code=InvalidRequest.code, problems=[], repeats=repeats)

    def done(self) -> None:
        """Refuse what is wrong, and what nobody asked for."""
        self.close()
        if self.problems:
            raise refusal(self.problems)

    def limit(self, default: int) -> int:
        """How many entries a page has; a larger number than is allowed is brought down to that."""
        asked: int = self.integer("limit", default, low=1)
        return min(asked, MAX_LIMIT)

    def expected(self) -> Expected:
        """The schedule as the caller has read it: its revision, or when it was last changed."""
        return Expected(self.integer("expected_revision", None), self.instant("expected_updated_at_utc", None))

    def cursor(self, *kinds: type) -> tuple[Any, ...] | None:
        """Where the last page ended, as values of these kinds."""
        return self.read("cursor", lambda value: read_cursor(value, *kinds), None)


def write_cursor(*values: str | int) -> str:
    """The place where a page ends, as text that means nothing to anybody else."""
    return urlsafe_b64encode(json.dumps(values, separators=(",", ":")).encode()).rstrip(b"=").decode()


def read_cursor(value: object, *kinds: type) -> tuple[Any, ...]:
    """The values of a cursor; ValueError for one that this list did not give."""
    refused = ValueError("is no cursor of this list; take the next_cursor of the page before, as it is")
    if not isinstance(value, str) or not value.isascii() or len(value) > MAX_CURSOR:
        raise refused
    try:
        values = json.loads(urlsafe_b64decode(value + "=" * (-len(value) % 4)))
    except (ValueError, RecursionError):
        raise refused from None
    if not isinstance(values, list) or [type(one) for one in values] != list(kinds):
        raise refused
    if any(isinstance(one, int) and abs(one) >= 2**63 for one in values):
        raise refused
    if any(isinstance(one, str) and (not one.isprintable() or not one.isascii()) for one in values):
        raise refused
    return tuple(values)
