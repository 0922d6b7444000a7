"""Triggers in plain words, with warnings."""

from __future__ import annotations

from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from noonmark.core.describe.warnings import find_warnings
from noonmark.core.describe.words import words
from noonmark.core.frozen import frozen
from noonmark.core.triggers.trigger import instant_argument, trigger_argument
from noonmark.core.triggers.zones import release_year

if TYPE_CHECKING:
    from noonmark.core.triggers import Trigger

__all__ = ["Description", "describe"]


@frozen
class Description:
    """A trigger in words, and its warnings."""

    text: str
    warnings: list[str] = field(default_factory=list)


def describe(trigger: Trigger, *, now: datetime | None = None) -> Description:
    """Say in words when a trigger fires; clock changes are looked up for the year after `now`.

    Without `now` that is the year of the installed zone data, so that the answer stays a function of its arguments.
    """
    trigger_argument(trigger)
    since = instant_argument("now", datetime(release_year(), 1, 1, tzinfo=UTC) if now is None else now)
    return Description(words(trigger), find_warnings(trigger, since, is_present=now is not None))
