"""Argument models: each field declares how it is read from JSON, and its JSON Schema.

An error lists every problem with the arguments, each with its field and what is allowed.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from functools import cache
from inspect import get_annotations
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    Self,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from noonmark.core.documents import Reader, one_of
from noonmark.core.errors import InvalidRequest, refusal
from noonmark.core.instants import parse_instant
from noonmark.core.json_values import (
    boolean_value,
    event_type,
    identifier,
    json_copy,
    json_problem,
    number_value,
    shown,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_PAGE = 1_000
"""The most entries that a page has; a larger `limit` is lowered to this."""
MAX_CURSOR = 1_000
NOT_A_CURSOR = "is not a cursor of this list; pass the next_cursor of the previous page unchanged"
MAX_INTEGER = 2**31 - 1
MAX_LABEL = 400


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """The kind of a field: `read` converts its JSON, with a ValueError that says what is allowed."""

    read: Callable[[Any], Any]
    schema: Mapping[str, Any]


class Field(NamedTuple):
    """One field of a model."""

    name: str
    kind: Kind | type[Arguments]
    is_required: bool
    default: Any


class ArgumentReader(Reader):
    """Reads the arguments of one call by name; `done` raises an error with all problems."""

    def __init__(self, arguments: Mapping[str, Any], *, repeats: bool = True) -> None:
        """Null counts as absent. With `repeats` off, no error repeats a value: one of them may be a secret."""
        super().__init__(dict(arguments), path="", code=InvalidRequest.code, problems=[], repeats=repeats)

    def done(self) -> None:
        """Raise if anything is wrong, or unknown."""
        self.close()
        if self.problems:
            raise refusal(self.problems)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Arguments:
    """The arguments of an operation. JSON-RPC takes them by name, or in the order of the fields."""

    is_document: ClassVar[bool] = False
    """Whether the operation reads the JSON itself, because the core defines what it may say."""

    def __init__(self, **values: Any) -> None:
        """Fields that are not given have their defaults."""
        self.__dict__.update(values)

    @classmethod
    @cache
    def fields(cls) -> Mapping[str, Field]:
        """The fields by name, in order."""
        hints = get_type_hints(cls, include_extras=True)
        fields = {}
        for name, hint in hints.items():
            if get_origin(hint) is not ClassVar:
                # A model may require a field that its base does not.
                owner = next(base for base in cls.__mro__ if name in get_annotations(base))
                is_required = name not in vars(owner)
                fields[name.rstrip("_")] = Field(name, _kind(hint), is_required, vars(owner).get(name))
        return fields

    @classmethod
    def read(cls, arguments: Mapping[str, Any]) -> Self:
        """Read and check arguments; InvalidRequest lists all problems."""
        reader = ArgumentReader(arguments)
        checked = cls.read_from(reader)
        reader.done()
        return checked

    @classmethod
    def read_from(cls, reader: Reader) -> Self:
        """Read the fields, noting the problems in the reader."""
        return cls(**{field.name: _value(reader, name, field) for name, field in cls.fields().items()})


def _value(reader: Reader, name: str, field: Field) -> Any:
    if not isinstance(field.kind, Kind):
        if reader.raw(name) is None:
            return field.default
        child = reader.child(name)
        value = field.kind.read_from(child)
        child.close()
        return value
    return (
        reader.read(name, field.kind.read) if field.is_required else reader.read(name, field.kind.read, field.default)
    )


def _kind(hint: Any) -> Kind | type[Arguments]:
    """The kind that an annotation carries, whether or not the field may be absent."""
    for part in (hint, *get_args(hint)):
        if isinstance(part, type) and issubclass(part, Arguments):
            return part
        if get_origin(part) is Annotated and isinstance(part.__metadata__[0], Kind):
            return part.__metadata__[0]
    raise TypeError(f"{hint} has no kind")


def text(low: int = 1, high: int = 200, *, multiline: bool = False) -> Kind:
    """Text of a bounded length."""
    return Kind(text_of(low, high, multiline=multiline), {"type": "string", "minLength": low, "maxLength": high})


def integer(low: int = 0, high: int = MAX_INTEGER) -> Kind:
    """An integer in a range."""
    schema = {"type": "integer", "minimum": low, "maximum": high}
    return Kind(lambda value: int(number_value(value, low, high, whole=True)), schema)


def number(low: float, high: float) -> Kind:
    """A number in a range."""
    return Kind(lambda value: number_value(value, low, high), {"type": "number", "minimum": low, "maximum": high})


def raw(schema: Mapping[str, Any], **more: Any) -> Kind:
    """JSON that something else checks."""
    return Kind(lambda value: value, {**schema, **more})


def objects(high: int) -> Kind:
    """An array of JSON objects."""

    def read(value: object) -> list[Any]:
        if (
            not isinstance(value, list)
            or not 1 <= len(value) <= high
            or not all(isinstance(one, dict) for one in value)
        ):
            raise ValueError(f"must be an array of 1 to {high} objects")
        return value

    return Kind(read, {"type": "array", "items": {"type": "object"}, "minItems": 1, "maxItems": high})


def several(allowed: Mapping[str, Any]) -> Kind:
    """One of some names, or several: as an array, or as text with commas between."""
    names = ", ".join(allowed)

    def read(value: object) -> list[Any]:
        given = value.split(",") if isinstance(value, str) else value
        if not isinstance(given, list) or len(given) > 2 * len(allowed):
            raise ValueError(f"must be one or several of {names}")
        return [one_of(name, allowed) for name in given]

    item = {"type": "string", "minLength": 1}
    return Kind(read, {"anyOf": [item, {"type": "array", "items": item}]})


def identifiers(value: object) -> list[str]:
    """Several ids, as an array."""
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_PAGE:
        raise ValueError(f"must be an array of 1 to {MAX_PAGE:,} ids")
    return [identifier(one) for one in value]


def cursor(*kinds: type) -> Kind:
    """The `next_cursor` of a page, as values of these types."""
    return Kind(lambda value: read_cursor(value, *kinds), {"type": "string", "minLength": 1})


def write_cursor(*values: str | int) -> str:
    """Write the place where a page ends as an opaque text."""
    return urlsafe_b64encode(json.dumps(values, separators=(",", ":")).encode()).rstrip(b"=").decode()


def read_cursor(value: object, *kinds: type) -> tuple[Any, ...]:
    """Read the values of a cursor; ValueError if this list did not issue it."""
    refused = ValueError(NOT_A_CURSOR)
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


def _json(value: object) -> Any:
    if (problem := json_problem(value)) is not None:
        raise ValueError(problem)
    return json_copy(value)


def json_object(value: object) -> dict[str, Any]:
    """A copy of a JSON object."""
    if not isinstance(value, dict):
        raise ValueError(f"must be an object, not {shown(value)}")
    json_value: dict[str, Any] = _json(value)
    return json_value


ID_SCHEMA = {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$", "examples": ["nightly-report"]}
_EVENT_TYPE = {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,160}$", "examples": ["file_uploaded"]}
_INSTANT = {"type": "string", "format": "date-time", "examples": ["2030-01-01T00:00:00Z"]}
LABELS = raw(
    {
        "type": "object",
        "propertyNames": {"type": "string", "minLength": 1, "maxLength": 63},
        "additionalProperties": {"type": "string", "maxLength": 256},
    }
)
"""Read by the reader itself, which names the label that is wrong."""
OBJECT = {"type": "object", "additionalProperties": True}
POLICY = {"anyOf": [{"type": "string"}, OBJECT]}

Id = Annotated[str, Kind(identifier, ID_SCHEMA)]
EventType = Annotated[str, Kind(event_type, _EVENT_TYPE)]
Name = Annotated[str, text()]
Reason = Annotated[str, text(high=1_000)]


def _page_size(value: object) -> int:
    """Read the size of a page; more than the largest page is that one."""
    if isinstance(value, int | float) and MAX_PAGE < value <= MAX_INTEGER and value == int(value):
        return MAX_PAGE
    return int(number_value(value, 1, MAX_PAGE, whole=True))


Instant = Annotated[int, Kind(parse_instant, _INSTANT)]
"""Read as microseconds."""
Boolean = Annotated[bool, Kind(boolean_value, {"type": "boolean"})]
Json = Annotated[Any, Kind(_json, {})]
Labels = Annotated[dict[str, str], LABELS]
Object = Annotated[Any, raw(OBJECT)]
Policy = Annotated[Any, raw(POLICY)]
"""The name of a policy, or an object with its `type` and its settings."""
PageSize = Annotated[int, Kind(_page_size, integer(1).schema)]
