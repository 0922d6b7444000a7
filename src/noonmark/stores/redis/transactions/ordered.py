"""Values as bytes that sort as the values do: the members of sorted sets, which Redis compares byte by byte.

None comes before every number, and a number before every text. Text is in the order of its UTF-8 bytes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Value = int | str | None
_NONE, _NUMBER, _TEXT = b"\x01", b"\x02", b"\x03"
_OFFSET = 1 << 63
_END, _ESCAPED_NUL = b"\x00\x00", b"\x00\x01"
_number = struct.Struct(">cQ")
_pack = _number.pack
AFTER_ALL = b"\xff"
"""Greater than the bytes of any value."""


def encode(values: Iterable[Value]) -> bytes:
    """The bytes of values, one after the other."""
    parts: list[bytes] = []
    for value in values:  # in place: it is done for every member of every index
        if isinstance(value, int):
            parts.append(_pack(_NUMBER, value + _OFFSET))
        elif value is None:
            parts.append(_NONE)
        else:
            text = value.encode("utf-8", "surrogatepass")
            parts += (_TEXT, text.replace(b"\x00", _ESCAPED_NUL) if b"\x00" in text else text, _END)
    return b"".join(parts)


def decode(data: bytes) -> tuple[Value, ...]:
    """The values of bytes."""
    values: list[Value] = []
    place = 0
    while place < len(data):
        kind = data[place : place + 1]
        if kind == _NUMBER:
            values.append(_number.unpack_from(data, place)[1] - _OFFSET)
            place += _number.size
        elif kind == _TEXT:
            end = data.index(_END, place + 1)
            values.append(data[place + 1 : end].replace(_ESCAPED_NUL, b"\x00").decode("utf-8", "surrogatepass"))
            place = end + len(_END)
        else:
            values.append(None)
            place += 1
    return tuple(values)
