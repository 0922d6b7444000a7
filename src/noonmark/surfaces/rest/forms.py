"""Forms with one file in them, as `curl -F file=@name` and browsers send them: taken apart while they come."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from noonmark.core.errors import InvalidRequest
from noonmark.core.json_values import key_path
from noonmark.operations.uploads import names

if TYPE_CHECKING:
    from collections.abc import Callable

FILE = "file"
FIELDS = ("path",)
MAX_HEADERS, MAX_HEADER, MAX_FIELD = 16, 4_096, 8_192
OVERHEAD = 65_536
"""So much a form may be longer than the file in it."""
KIND = b"multipart/form-data"


def boundary_of(content_type: str | None) -> bytes | None:
    """What parts a form by its Content-Type; None of a body that is no form."""
    kind, options = parse_options_header(content_type)
    if kind != KIND:
        return None
    if not (boundary := options.get(b"boundary")):
        raise InvalidRequest("the Content-Type of a form must name its boundary")
    return boundary


class Form:
    """A form as far as it has come: what was said beside the file, and the file itself, piece by piece."""

    def __init__(self, boundary: bytes) -> None:
        """Nothing has come yet."""
        self.said: dict[str, str] = {}
        self.content_type: str | None = None
        self._found: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}
        self._name, self._field, self._value = "", b"", b""
        self._has_ended = False
        calls: dict[str, Callable[..., Any]] = {
            "on_part_begin": self._begin,
            "on_header_begin": self._begin_header,
            "on_header_field": partial(self._take, "_field"),
            "on_header_value": partial(self._take, "_value"),
            "on_header_end": self._end_header,
            "on_headers_finished": self._look,
            "on_part_data": self._add,
            "on_part_end": self._end,
            "on_end": self._finish,
        }
        try:
            self._parser = MultipartParser(
                boundary,
                calls,  # type: ignore[arg-type]  # a dictionary of the same names
                max_header_count=MAX_HEADERS,
                max_header_size=MAX_HEADER,
            )
        except FormParserError as error:
            raise InvalidRequest(f"the form cannot be read: {error}") from None

    def feed(self, data: bytes) -> list[bytes]:
        """What of the file is in the next piece of the form."""
        self._found = []
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise InvalidRequest(f"the form cannot be read: {error}") from None
        return self._found

    def close(self) -> None:
        """See to it that all of it has come."""
        if not self._has_ended:
            raise InvalidRequest("the form ends before its last boundary")
        if "filename" not in self.said:
            raise InvalidRequest("is required: the file itself, with its name", field=FILE)

    def _begin(self) -> None:
        self._headers.clear()
        self._value = b""

    def _begin_header(self) -> None:
        self._field = self._value = b""

    def _take(self, where: str, data: bytes, start: int, end: int) -> None:
        setattr(self, where, getattr(self, where) + data[start:end])

    def _end_header(self) -> None:
        self._headers[self._field.lower()] = self._value

    def _look(self) -> None:
        """Which part this is."""
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        self._name, self._value = _text(options.get(b"name", b""), "name"), b""
        if self._name not in (FILE, *FIELDS):
            allowed = ", ".join((FILE, *FIELDS))
            raise InvalidRequest(f"unknown part of the form; allowed are {allowed}", field=key_path(self._name))
        if self._name == FILE:
            if "filename" in self.said:
                raise InvalidRequest("comes twice; send one file at a time", field=FILE)
            if b"filename" not in options:
                raise InvalidRequest("is required: send a file, as in curl -F file=@report.csv", field="filename")
            self.said["filename"] = _text(options[b"filename"], "filename")
            names(self.said)  # before the rest of it comes
            self.content_type = self._headers.get(b"content-type", b"").decode("latin-1")
        elif self._name in self.said:
            raise InvalidRequest("comes twice", field=self._name)

    def _add(self, data: bytes, start: int, end: int) -> None:
        if self._name == FILE:
            self._found.append(data[start:end])
            return
        self._value += data[start:end]
        if len(self._value) > MAX_FIELD:
            raise InvalidRequest(f"is longer than {MAX_FIELD:,} bytes", field=self._name)

    def _end(self) -> None:
        if self._name != FILE:
            self.said[self._name] = _text(self._value, self._name)

    def _finish(self) -> None:
        self._has_ended = True


def _text(value: bytes, field: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("is not UTF-8", field=field) from None
