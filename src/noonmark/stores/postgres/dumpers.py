"""Parameters as PostgreSQL receives them.

No parameter states a type: the server infers it from the statement, so a statement is prepared once, whatever values it
is given. Numbers travel as text, which suits every type. A batch travels as one binary array for each column.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, ClassVar

from psycopg.adapt import Dumper
from psycopg.pq import Format

if TYPE_CHECKING:
    from collections.abc import Iterable

_INT8, _FLOAT8, _TEXT = 20, 701, 25
_NULL = struct.pack("!i", -1)
_LENGTH = struct.Struct("!i")
_HEADER = struct.Struct("!iiIii")


class Array(list[Any]):
    """The values of one column, or None for NULL."""


class BigintArray(Array):
    """An array of type `bigint[]`."""


class DoubleArray(Array):
    """An array of type `double precision[]`."""


class TextArray(Array):
    """An array of type `text[]`."""


ARRAYS: dict[str, type[Array]] = {"bigint": BigintArray, "double precision": DoubleArray, "text": TextArray}


class NumberDumper(Dumper):
    """A number, or a truth value as 0 or 1."""

    def dump(self, obj: float) -> bytes:  # noqa: D102 - as psycopg has it
        return str(+obj).encode()


class ArrayDumper(Dumper):
    """An array of one dimension whose elements all have eight bytes."""

    format = Format.BINARY
    element_type: ClassVar[int]
    element_format: ClassVar[str]

    def dump(self, obj: Array) -> bytes:  # noqa: D102 - as psycopg has it
        count = len(obj)
        if None in obj:
            single = struct.Struct(f"!i{self.element_format}")
            body = b"".join([_NULL if value is None else single.pack(8, value) for value in obj])
        else:
            fields = [8] * (2 * count)
            fields[1::2] = obj
            body = struct.pack("!" + f"i{self.element_format}" * count, *fields)
        return _header(self.element_type, count) + body


class BigintArrayDumper(ArrayDumper):  # noqa: D101 - the name says it
    element_type = _INT8
    element_format = "q"


class DoubleArrayDumper(ArrayDumper):  # noqa: D101 - the name says it
    element_type = _FLOAT8
    element_format = "d"


class TextArrayDumper(Dumper):  # noqa: D101 - the name says it
    format = Format.BINARY

    def dump(self, obj: Array) -> bytes:  # noqa: D102 - as psycopg has it
        return _header(_TEXT, len(obj)) + b"".join(_texts(obj))


def _texts(values: Array) -> Iterable[bytes]:
    length = _LENGTH.pack
    for value in values:
        if value is None:
            yield _NULL
        else:
            encoded = value.encode()
            yield length(len(encoded))
            yield encoded


def _header(element_type: int, count: int) -> bytes:
    """Dimensions, whether there are NULLs (the server does not rely on it), element type, and the one dimension."""
    return _HEADER.pack(1, 1, element_type, count, 1)


DUMPERS: dict[type, type[Dumper]] = {
    int: NumberDumper,
    bool: NumberDumper,
    float: NumberDumper,
    BigintArray: BigintArrayDumper,
    DoubleArray: DoubleArrayDumper,
    TextArray: TextArrayDumper,
}
