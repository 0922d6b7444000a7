"""The filter index: finds the triggers of one event type that may match an event.

A trigger's discriminator is made of all its filters that hold for one scalar alone: the keys of these filters, and a
digest of the values they want. An event has a digest for the same keys, or none where one of them leads nowhere or to
no scalar. A trigger with another digest than the event's can never match; with the same, its filters decide.

Stores persist these entries, so a change here needs a migration.
"""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from noonmark.core.filters.match import MISSING, found_at, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from noonmark.core.event import Event

MAX_FIELDS = 500
"""So long is the text of all keys at most; a key that does not fit is left out."""


class Discriminator(NamedTuple):
    """What an event must have to be shown to a trigger, as text that a store can look up."""

    fields: str
    """The keys of the filters, in order, as a JSON array in ASCII; empty if no filter requires one scalar."""
    wanted: str
    """A digest of the required values, each with its type."""


NONE = Discriminator("", "")
"""That of a trigger to which every event of its type is shown."""


def discriminator(filters: Mapping[str, Any]) -> Discriminator:
    """The index entry of a trigger with these filters, which must be valid."""
    fields = ""
    keys: list[str] = []
    values: list[object] = []
    for key in sorted(filters):
        value = _only_match(filters[key])
        longer = _array([*keys, key])
        if kind_of(value) and len(longer) <= MAX_FIELDS:
            fields = longer
            keys.append(key)
            values.append(value)
    return Discriminator(fields, _digest(values)) if keys else NONE


def discriminators(event: Event, among: Iterable[str]) -> list[Discriminator]:
    """Those of an event, for the fields of some discriminators; one that is not here belongs to no trigger it matches.

    A trigger without a discriminator is to be shown the event too.
    """
    envelope = {"event_type": event.event_type, "source": event.source}
    own = []
    for fields in among:
        values = [found_at(key, path, event.payload, envelope) for key, path in _keys(fields)]
        if all(kind_of(value) for value in values):
            own.append(Discriminator(fields, _digest(values)))
    return own


def is_fields(text: object) -> bool:
    """Whether a text names the fields of a discriminator; a stored one may be damaged."""
    try:
        read = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return False
    return isinstance(read, list) and all(isinstance(key, str) for key in read)


def _only_match(condition: object) -> object:
    """The one value for which a condition can hold, if that is a scalar."""
    if isinstance(condition, list | tuple):
        return _only_match(condition[0]) if len(condition) == 1 else MISSING
    if isinstance(condition, dict):  # whatever else it says must hold as well
        return condition.get("equals", MISSING)
    return condition


def _digest(values: Sequence[object]) -> str:
    """The same for values that filters take for equal, and hardly ever for others."""
    text = _array([[kind_of(value), _canonical(value)] for value in values])
    return blake2b(text.encode("ascii"), digest_size=8).hexdigest()


def _canonical(value: object) -> object:
    """A scalar so that equal numbers are written alike: 1, 1.0 and 1e0."""
    if isinstance(value, float) and not value.is_integer():
        return repr(float(value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{int(value):x}"  # of any length, where decimals have a limit
    return value


def _array(values: Sequence[object]) -> str:
    return json.dumps(values, separators=(",", ":"))


@lru_cache(maxsize=1_024)
def _keys(fields: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The keys of a discriminator, each with the path that it may be."""
    return tuple((key, tuple(key.split("."))) for key in json.loads(fields))
