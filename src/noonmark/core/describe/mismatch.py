"""Why an event sets nothing off: the first thing about it that is not as it is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.describe.filters import unmet_words
from noonmark.core.filters.match import Matcher

if TYPE_CHECKING:
    from noonmark.core.event import Event
    from noonmark.core.triggers import EventTrigger


def mismatch(wanted: EventTrigger | Matcher, event: Event) -> str | None:
    """What about an event is not as a trigger, or filters alone, want it; None when they match it."""
    if isinstance(wanted, Matcher):
        unmet = wanted.unmet(event.payload, event_type=event.event_type, source=event.source)
    elif event.event_type not in wanted.event_types:
        return f"event_type: it is {event.event_type}, and the trigger wants {' or '.join(wanted.event_types)}"
    elif not wanted.within_bounds(event.emitted):
        return "emitted_at: it is not between the start and the end of the trigger"
    else:
        unmet = wanted.unmet(event.event_type, event.payload, source=event.source)
    return None if unmet is None else unmet_words(unmet)
