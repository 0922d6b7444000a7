"""What callers get that is about events: what happened, who waits for it, and the files that are told of."""

from __future__ import annotations

from noonmark.wire.answers import Answer, Page, Schedule
from noonmark.wire.bodies import Instant, Json  # noqa: TC001 - pydantic reads the annotations


class Event(Answer):
    """Something that happened."""

    event_id: str
    event_type: str
    source: str
    payload: Json
    emitted_at: Instant


class Events(Page):
    """A page of events, the newest first."""

    events: list[Event]


class Emitted(Answer):
    """The id of an event that is on record."""

    event_id: str
    duplicate: bool | None = None
    """That the id was used before, for an event of another type or payload, which stays as it is."""


class MatchedEvent(Answer):
    """An event, and whether it is matched."""

    event_id: str | None
    """None of one that was not emitted."""
    event_type: str
    source: str
    payload: Json
    emitted_at: Instant
    matches: bool
    why: str | None
    """Why it is not: the first filter that it does not pass, and what it has there."""


class Matched(Answer):
    """The last events, the newest first, and which of them are matched."""

    checked: int
    matched: int
    events: list[MatchedEvent]


class Triggers(Page):
    """A page of the schedules that events set off."""

    triggers: list[Schedule]


class Upload(Answer):
    """A file that is kept."""

    upload_id: str
    filename: str
    path: str
    """Where its sender says it belongs; no place on disk."""
    content_type: str
    size: int
    sha256: str
    bucket: str
    created_at_utc: Instant
    event_id: str
    """The event that tells of it."""


class Uploads(Page):
    """A page of the files that are kept, the newest first."""

    uploads: list[Upload]
