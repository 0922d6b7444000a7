"""Reading documents: one JSON object at a time, field by field, noting every problem with its path.

A `Reader` never raises while it reads. It answers a missing or bad field with the default and notes the
problem, so that one pass over a document finds everything that is wrong with it. `close` rejects the fields
that nothing has read.
"""

from __future__ import annotations

import marshal
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from noonmark.core.errors import InvalidSchedule, Problem
from noonmark.core.frozen import frozen
from noonmark.core.instants import Micros, parse_instant, seconds_to_micros, to_micros
from noonmark.core.json_values import (
    boolean_value,
    json_copy,
    json_problem,
    key_path,
    number_value,
    shown,
    text_of,
    text_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime
    from enum import StrEnum

T = TypeVar("T")
E = TypeVar("E", bound=str)

UNKNOWN_FIELD = "unknown field; allowed are "
SUGGESTION = "; did you mean "
MAX_MISSPELT = 40
"""No field is meant by a longer name."""
MAX_UNKNOWN = 20
"""How many unknown fields of one object are named in an error."""

_REQUIRED: Any = object()


class Reader:
    """One object of a document; `path` is its place in the whole."""

    def __init__(
        self, document: object, *, path: str, code: str, problems: list[Problem], repeats: bool = True
    ) -> None:
        """Start reading; anything but an object is a problem and reads as empty.

        Of a document that brings a secret, no problem `repeats` anything: it may stand in the wrong place there.
        """
        self.path, self._repeats = path, repeats
        self.code = code
        self.problems = problems
        self._asked: set[str] = set()
        self._fields: Mapping[str, Any] = {}
        if isinstance(document, dict):
            self._fields = document
        else:
            self.problem("", f"must be an object, not {shown(document)}")

    def at(self, name: str) -> str:
        """The path of a field of this object."""
        return f"{self.path}.{name}" if self.path and name else self.path or name

    def problem(self, name: str, message: str, *, code: str | None = None) -> None:
        """Note what is wrong with a field (or, with no name, with the object)."""
        self.problems.append(Problem(self.at(name), message, code or self.code))

    def raw(self, name: str, default: Any = None) -> Any:
        """The value of a field as it is; `close` accepts the field from then on."""
        self._asked.add(name)
        return self._fields.get(name, default)

    def given(self, names: frozenset[str]) -> frozenset[str]:
        """Which of some fields are there; `close` accepts them all."""
        self._asked |= names
        return names.intersection(self._fields)

    def read(self, name: str, convert: Callable[[Any], T], default: T = _REQUIRED) -> T:
        """Convert a field with a function whose ValueError says what is allowed; null reads as absent."""
        self._asked.add(name)
        value = self._fields.get(name)
        if value is None:
            if default is _REQUIRED:
                self.problem(name, "is required")
            return default
        try:
            return convert(value)
        except ValueError as error:
            self.problem(name, str(error))
            return default

    def text(
        self, name: str, default: Any = _REQUIRED, *, low: int = 1, high: int = 200, multiline: bool = False
    ) -> Any:
        """Text of a bounded length without control characters."""
        return self.read(name, lambda value: text_value(value, low, high, multiline=multiline), default)

    def boolean(self, name: str, default: bool) -> bool:  # noqa: FBT001 - a document's default
        """A JSON boolean."""
        return self.read(name, boolean_value, default)

    def integer(self, name: str, default: Any = _REQUIRED, *, low: int = 0, high: int = 2**31 - 1) -> Any:
        """An integer in a range."""
        return self.read(name, lambda value: int(number_value(value, low, high, whole=True)), default)

    def number(self, name: str, default: Any = _REQUIRED, *, low: float = 0, high: float = 1e12) -> Any:
        """Any finite number in a range."""
        return self.read(name, lambda value: number_value(value, low, high), default)

    def seconds(self, name: str, default: Any = _REQUIRED, *, low: float = 0, high: float = 3_155_760_000) -> Any:
        """A length of time given in seconds, as microseconds; a century at the most."""
        return self.read(name, lambda value: seconds_to_micros(number_value(value, low, high)), default)

    def instant(self, name: str) -> Micros | Any:
        """An RFC 3339 instant as microseconds."""
        return self.read(name, parse_instant, None)

    def choice(self, name: str, allowed: Mapping[str, E], default: Any = _REQUIRED) -> Any:
        """One of the names (or accepted aliases) in `allowed`."""
        return self.read(name, lambda value: one_of(value, allowed), default)

    def json(self, name: str, default: Any = None) -> Any:
        """Any JSON value within the limits; null is a value here."""
        value = self.raw(name, default)
        if value is not default and (problem := json_problem(value)) is not None:
            self.problem(name, problem)
            return default
        return json_copy(value)

    def json_object(self, name: str) -> dict[str, Any]:
        """A JSON object within the limits; absent and null read as empty."""
        value = self.json(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.problem(name, f"must be an object, not {shown(value)}")
            return {}
        return value

    def items(self, name: str, *, high: int) -> list[Any]:
        """A JSON array of bounded length; absent and null read as empty."""
        value = self.raw(name)
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            self.problem(name, f"must be an array, not {shown(value)}" if self._repeats else "must be an array")
            return []
        if len(value) > high:
            self.problem(name, f"has {len(value):,} entries; at most {high:,} are allowed")
            return []
        return list(value)

    def each(self, name: str, convert: Callable[[Any], T], *, high: int) -> tuple[T, ...]:
        """A JSON array of bounded length, every entry converted as `read` does it."""
        items = []
        for index, value in enumerate(self.items(name, high=high)):
            try:
                items.append(convert(value))
            except ValueError as error:
                self.problem(f"{name}[{index}]", str(error))
        return tuple(items)

    def text_map(
        self,
        name: str,
        *,
        key: Callable[[Any], str],
        value: Callable[[Any], str],
        high: int,
        place: Callable[[Any, Iterable[Any]], str] = lambda key, _: f".{key_path(key)}",
    ) -> dict[str, str]:
        """An object from names to texts, both converted as `read` does it; absent and null read as empty.

        `place` tells where a name stands among the others, for those that a message must not repeat.
        """
        fields = self.raw(name)
        if fields is None:
            return {}
        if not isinstance(fields, dict):
            self.problem(name, f"must be an object, not {shown(fields)}")
            return {}
        if len(fields) > high:
            self.problem(name, f"has {len(fields):,} entries; at most {high:,} are allowed")
            return {}
        texts = {}
        for each_key, each_value in fields.items():
            where, before = f"{name}{place(each_key, fields)}", len(self.problems)
            try:
                key(each_key)
            except ValueError as error:
                self.problem(where, f"the name {error}")
            try:
                text = value(each_value)
            except ValueError as error:
                self.problem(where, str(error))
            if len(self.problems) == before:
                texts[each_key] = text
        return texts

    def labels(self, name: str) -> dict[str, str]:
        """Labels: at most 64, with names of 1 to 63 characters and values of up to 256."""
        return self.text_map(name, key=text_of(1, 63), value=text_of(0, 256), high=64)

    def child(self, name: str) -> Reader:
        """A reader for the object in a field."""
        return Reader(self.raw(name), path=self.at(name), code=self.code, problems=self.problems)

    def entry(self, name: str, value: object) -> Reader | None:
        """A reader for an object at another path, such as in an array; None if it is not an object."""
        before = len(self.problems)
        reader = Reader(value, path=self.at(name), code=self.code, problems=self.problems)
        return reader if len(self.problems) == before else None

    def part(self, name: str) -> Reader | None:
        """A reader for the object in a field that must be there; None when it is not."""
        value = self.raw(name)
        if value is None:
            self.problem(name, "is required")
            return None
        return self.entry(name, value)

    def variant(self, name: str, allowed: Mapping[str, E]) -> E | None:
        """The field that says which kind of object this is; None when nothing more can be read."""
        if self.raw(name) is None:
            self.problem(name, f"is required; allowed are {', '.join(dict.fromkeys(allowed.values()))}")
            return None
        kind: E | None = self.choice(name, allowed, None)
        return kind

    def close(self) -> None:
        """Refuse unknown fields."""
        known_names = self._asked
        unknown = [name for name in self._fields if name not in known_names]
        if unknown and not self._repeats:
            self.problem("", f"has {len(unknown):,} unknown fields; allowed are {', '.join(sorted(known_names))}")
            return
        for name in unknown[:MAX_UNKNOWN]:
            # Not for all of them: a document may consist of fields that are almost right.
            may_be_meant = name if len(self.problems) < MAX_UNKNOWN else None
            self.problem(key_path(name), unknown_field(may_be_meant, known_names))
        more = len(unknown) - MAX_UNKNOWN
        if more > 0:
            self.problem("", f"has {more:,} more unknown fields")


def unknown_field(name: object, allowed: Iterable[str]) -> str:
    """Refuse a field that an object does not have: name those that it has, and one that may be meant."""
    names = sorted(allowed)
    close: list[str] = []
    if isinstance(name, str) and len(name) <= MAX_MISSPELT:
        from difflib import get_close_matches  # noqa: PLC0415 - only for those who need the hint

        longer = [one for one in names if one.startswith(f"{name}_")]
        close = longer[:1] or get_close_matches(name, names, n=1, cutoff=0.7)
    return f"{UNKNOWN_FIELD}{', '.join(names)}{''.join(f'{SUGGESTION}{one}?' for one in close)}"


def one_of(value: object, allowed: Mapping[str, E]) -> E:
    """Look a name up among canonical names and aliases; ValueError lists the canonical ones."""
    if isinstance(value, str) and value in allowed:
        return allowed[value]
    names = ", ".join(dict.fromkeys(allowed.values()))
    raise ValueError(f"must be one of {names}, not {shown(value)}")


def named(canonical: Iterable[E], **aliases: E) -> dict[str, E]:
    """The look-up table of an enumeration: each member under its own name, then its aliases."""
    return {str(member): member for member in canonical} | aliases


def present(**fields: Any) -> dict[str, Any]:
    """A document of the fields that have a value; None is left out, as it would be read."""
    return {name: value for name, value in fields.items() if value is not None}


def moment(now: datetime) -> Micros:
    """The moment at which a document is read; InvalidSchedule unless it is an aware datetime."""
    try:
        return to_micros(now)
    except ValueError as error:
        raise InvalidSchedule(str(error), field="now") from None


K = TypeVar("K", bound="StrEnum")


@frozen(kw_only=True)
class Notation(Generic[K]):
    """A policy as the document gives it: the name it uses, the canonical kind, and a reader of its settings."""

    name: str
    kind: K
    settings: Reader


def read_notation(
    reader: Reader, field: str, names: Mapping[str, K], settings: Mapping[K, tuple[str, ...]]
) -> Notation[K] | None:
    """Read a field that is a name, or an object with a `type`; None if it is absent or a problem was recorded.

    `names` leads from every accepted name to its kind; `settings` says which settings each kind takes.
    """
    value = reader.raw(field)
    if value is None:
        return None
    if not isinstance(value, dict):
        kind = reader.choice(field, names, None)
        nothing = Reader({}, path=reader.at(field), code=reader.code, problems=reader.problems)
        return None if kind is None else Notation(name=value, kind=kind, settings=nothing)
    fields = reader.child(field)
    kind = fields.choice("type", names, None)
    if fields.raw("type") is None:
        fields.problem("type", "is required")
    known = dict.fromkeys(setting for takes in settings.values() for setting in takes)
    given = [setting for setting in known if fields.raw(setting) is not None]
    fields.close()
    if kind is None:
        # The settings of an unknown type are unknown.
        return None
    for setting in given:
        if setting not in settings[kind]:
            takes = ", ".join(settings[kind]) or "no settings"
            fields.problem(setting, f"does not belong to {kind}, which takes {takes}")
    return Notation(name=value["type"], kind=kind, settings=fields)


MAX_FINGERPRINT = 2_048
"""Longer parts of documents are read each time."""
MAX_REMEMBERED = 1_024


def fingerprint_of(value: Any) -> bytes | None:
    """Bytes that only equal values of the same types share: 1, 1.0 and true do not. None if there are too many.

    What is in a value several times is not repeated in them: entangled lists take no longer than others.
    """
    try:
        fingerprint = marshal.dumps(value)
    except ValueError:  # of a type that JSON does not have
        return None
    return fingerprint if len(fingerprint) <= MAX_FINGERPRINT else None


class Memory(Generic[T]):
    """What was read from documents without problems, by the fingerprints of what was read.

    Programs declare many schedules that differ in little else than their names, times and arguments.
    """

    def __init__(self) -> None:
        """Nothing was read yet."""
        self._values: dict[bytes, T] = {}

    def __len__(self) -> int:
        """How much is remembered."""
        return len(self._values)

    def find(self, fingerprint: bytes | None) -> T | None:
        """What was read from a part with this fingerprint."""
        return None if fingerprint is None else self._values.get(fingerprint)

    def keep(self, fingerprint: bytes | None, value: T | None) -> None:
        """Remember it, if there is a fingerprint and a value."""
        if fingerprint is None or value is None:
            return
        if len(self._values) >= MAX_REMEMBERED and fingerprint not in self._values:
            self._values.clear()
        self._values[fingerprint] = value

    def clear(self) -> None:
        """Forget everything."""
        self._values.clear()
