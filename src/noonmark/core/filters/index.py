"""The filter index: finds the triggers of one event type that may match an event.

A trigger's discriminator is made of all its filters that hold for one scalar alone, and of at most one filter that
holds only for texts with a prefix or suffix, or for numbers in a range. It names the keys of these filters, and has a
digest of what they want. An event has few digests for the same fields, or none where one of the keys leads nowhere or
to another type. A trigger with none of the event's digests can never match; with one of them, its filters decide.

Stores persist these entries, so a change here needs a migration.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from functools import lru_cache
from hashlib import blake2b
from math import floor, isfinite, ldexp
from typing import TYPE_CHECKING, Any, NamedTuple

from noonmark.core.filters.match import MISSING, found_at, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from noonmark.core.event import Event

    Number = int | float

MAX_FIELDS = 500
"""So long is the text of all keys at most; a key that does not fit is left out."""
MAX_AFFIX = 100
"""So many characters of a prefix or suffix count, which is also how many of them are looked up for an event."""
LEVELS = range(-20, 63)
"""Ranges of numbers are found by cells of 2**level; each is in two neighbours at most."""
BOUNDS = (*(-(2.0**level) for level in reversed(LEVELS)), 0.0, *(2.0**level for level in LEVELS))
"""Ranges with one end are found by the nearest of these numbers beyond it."""

PREFIX, RANGE, SUFFIX, FROM, TO = "prefix", "range", "suffix", "from", "to"
KINDS = (PREFIX, RANGE, SUFFIX, FROM, TO)
"""Of several filters that are no single value, the one whose kind is first here is indexed."""


class Discriminator(NamedTuple):
    """What an event must have to be shown to a trigger, as text that a store can look up."""

    fields: str
    """The keys of the filters, in order, as a JSON array in ASCII; empty if no filter can be indexed.

    Behind the keys of single values, there may be an array of a key, a kind and a number: the length of a prefix or
    suffix, the level of a range, or the bound of a range with one end.
    """
    wanted: str
    """A digest of the required values, each with its type."""


NONE = Discriminator("", "")
"""That of a trigger to which every event of its type is shown."""


class _Part(NamedTuple):
    """The filter of a discriminator that holds for more than one value."""

    kind: str
    number: Number
    """The length of a prefix or suffix, the level of a range, or the bound of a range with one end."""

    def wanted(self, found: object) -> list[object]:
        """What triggers that may want this value want here; nothing, if the filter cannot hold."""
        if self.kind in (PREFIX, SUFFIX):
            if not isinstance(found, str) or len(found) < self.number:
                return []
            return [_affix(found, self.kind, int(self.number))]
        if not isinstance(found, int | float) or isinstance(found, bool):
            return []
        if self.kind == RANGE:
            if isinstance(found, float) and not isfinite(found):
                return []
            cell = _cell(found, int(self.number))
            return [cell, cell - 1]
        is_beyond = found >= self.number if self.kind == FROM else found <= self.number
        return [self.number] if is_beyond else []


class _Fields(NamedTuple):
    """The fields of a discriminator: its keys, each with the path that it may be, and the part of the last one."""

    keys: tuple[tuple[str, tuple[str, ...]], ...]
    part: _Part | None


def discriminator(filters: Mapping[str, Any]) -> Discriminator:
    """The index entry of a trigger with these filters, which must be valid."""
    keys, values = _single_values(filters)
    parts = {key: found for key in sorted(filters.keys() - set(keys)) if (found := _part(filters[key]))}
    for kind in KINDS:
        for key, (part, wanted) in parts.items():
            fields = _array([*keys, [key, *part]])
            if part.kind == kind and len(fields) <= MAX_FIELDS:
                return Discriminator(fields, _digest([*values, wanted]))
    return value_discriminator(filters)


def value_discriminator(filters: Mapping[str, Any]) -> Discriminator:
    """The index entry made of single values alone, as earlier versions know it."""
    keys, values = _single_values(filters)
    return Discriminator(_array(keys), _digest(values)) if keys else NONE


def known_before(own: Discriminator) -> Discriminator:
    """A discriminator that leads an earlier version to the same trigger: it knows only single values."""
    read = _read(own.fields)
    return own if read is not None and read.part is None else NONE


def discriminators(event: Event, among: Iterable[str]) -> list[Discriminator]:
    """Those of an event, for the fields of some discriminators; one that is not here belongs to no trigger it matches.

    A trigger without a discriminator is to be shown the event too.
    """
    envelope = {"event_type": event.event_type, "source": event.source}
    own = []
    for fields in among:
        read = _read(fields)
        if read is None:
            continue
        values = [found_at(key, path, event.payload, envelope) for key, path in read.keys]
        lasts = [] if read.part is None else read.part.wanted(values.pop())
        if not all(kind_of(value) for value in values):
            continue
        if read.part is None:
            own.append(Discriminator(fields, _digest(values)))
        own += [Discriminator(fields, _digest([*values, last])) for last in lasts]
    return own


def is_fields(text: object) -> bool:
    """Whether a text names the fields of a discriminator; a stored one may be damaged."""
    return isinstance(text, str) and _read(text) is not None


def _single_values(filters: Mapping[str, Any]) -> tuple[list[str], list[object]]:
    """The filters that hold for one scalar alone, in order, as far as they fit: their keys, and the scalars."""
    keys: list[str] = []
    values: list[object] = []
    for key in sorted(filters):
        value = _only_match(filters[key])
        if kind_of(value) and len(_array([*keys, key])) <= MAX_FIELDS:
            keys.append(key)
            values.append(value)
    return keys, values


def _only_match(condition: object) -> object:
    """The one value for which a condition can hold, if that is a scalar."""
    if isinstance(condition, list | tuple):
        return _only_match(condition[0]) if len(condition) == 1 else MISSING
    if isinstance(condition, dict):  # whatever else it says must hold as well
        return condition.get("equals", MISSING)
    return condition


def _part(condition: object) -> tuple[_Part, object] | None:
    """What every value has for which a condition can hold, as the part of a discriminator and what it wants."""
    if isinstance(condition, list | tuple):
        return _part(condition[0]) if len(condition) == 1 else None
    if not isinstance(condition, dict):
        return None
    for kind in (PREFIX, SUFFIX):
        if condition.get(kind):
            return _affixed(kind, condition[kind])
    lows = [condition[name] for name in ("gt", "gte") if name in condition]
    highs = [condition[name] for name in ("lt", "lte") if name in condition]
    kinds = {kind_of(value) for value in (*lows, *highs)}
    if kinds == {"text"} and lows and highs:
        return _affixed(PREFIX, _common_prefix(max(lows), min(highs)))
    return _ranged(lows, highs) if kinds == {"number"} else None


def _affixed(kind: str, affix: str) -> tuple[_Part, object] | None:
    """That of texts with a prefix or suffix; between two texts with a common prefix are only others that have it."""
    length = min(len(affix), MAX_AFFIX)
    return (_Part(kind, length), _affix(affix, kind, length)) if length else None


def _ranged(lows: Sequence[Number], highs: Sequence[Number]) -> tuple[_Part, object] | None:
    """That of numbers which are neither below the first ones, nor above the others."""
    if lows and highs:
        for level in LEVELS:
            cell = _cell(max(lows), level)
            if _cell(min(highs), level) <= cell + 1:
                return _Part(RANGE, level), cell
    if lows and (place := bisect_right(BOUNDS, max(lows))):
        return _Part(FROM, BOUNDS[place - 1]), BOUNDS[place - 1]
    if highs and (place := bisect_left(BOUNDS, min(highs))) < len(BOUNDS):
        return _Part(TO, BOUNDS[place]), BOUNDS[place]
    return None


def _common_prefix(first: str, second: str) -> str:
    length = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        length += 1
    return first[:length]


def _affix(text: str, kind: str, length: int) -> str:
    return text[:length] if kind == PREFIX else text[-length:]


def _cell(number: Number, level: int) -> int:
    """The cell of a level that a number is in; a greater number is in no earlier one."""
    if isinstance(number, float) and not number.is_integer():
        return floor(ldexp(number, -level))
    return int(number) >> level if level >= 0 else int(number) << -level


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
def _read(fields: str) -> _Fields | None:
    """Parse the fields of a discriminator; None for what no trigger has."""
    part: _Part | None = None
    try:
        match json.loads(fields):
            case [*keys, [str(key), str(kind), int(number) | float(number)]] if _is_part(kind, number):
                part = _Part(kind, number)
            case [*keys, str(key)]:
                pass
            case _:
                return None
    except (ValueError, RecursionError):
        return None
    if not all(isinstance(one, str) for one in keys):
        return None
    return _Fields(tuple((one, tuple(one.split("."))) for one in (*keys, key)), part)


def _is_part(kind: str, number: Number) -> bool:
    if kind in (PREFIX, SUFFIX):
        return number in range(1, MAX_AFFIX + 1)
    return number in (LEVELS if kind == RANGE else BOUNDS) and kind in KINDS
