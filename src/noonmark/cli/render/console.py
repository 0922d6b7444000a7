"""The console that output for people goes to: in colour on a terminal, plain in a pipe."""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from noonmark.cli.output import printable
from noonmark.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34"}
"""What a terminal is sent for the words of a style."""
MIN_COLUMN = 4
"""A column is not narrowed further."""
_WORD = re.compile(r"\S+\s*|\s+")


@frozen
class Text:
    """Text in one style, such as `bold yellow`."""

    plain: str
    style: str = ""

    @property
    def cell_len(self) -> int:
        """How many columns of a terminal it takes."""
        return text_width(self.plain)


@dataclass(slots=True)
class Table:
    """Rows of cells. A cell that is too wide for its column is folded."""

    titles: Sequence[str] = ()
    gap: int = 3
    styles: Mapping[int, str] = field(default_factory=dict)
    """The style of each column that has one."""
    right: int | None = None
    """The column that is aligned to the right."""
    rigid: int | None = None
    """The column that is never folded."""
    rows: list[list[Text]] = field(default_factory=list)

    def add_row(self, *cells: str | Text) -> None:
        """Add a row; a cell without a style has that of its column."""
        self.rows.append(
            [
                cell if isinstance(cell, Text) else Text(cell, self.styles.get(place, ""))
                for place, cell in enumerate(cells)
            ]
        )

    def lines(self, width: int) -> Iterator[list[Text]]:
        """The lines of the table, each of its cells padded to its column."""
        rows = [[Text(title, "dim") for title in self.titles], *self.rows] if self.titles else self.rows
        if not rows:
            return
        widths = self._widths(rows, width)
        for row in rows:
            folded = [fold(cell.plain, columns) for cell, columns in zip(row, widths, strict=True)]
            for number in range(max(map(len, folded))):
                yield [
                    self._pad(parts[number] if number < len(parts) else "", cell.style, place, widths)
                    for place, (cell, parts) in enumerate(zip(row, folded, strict=True))
                ]

    def _pad(self, part: str, style: str, place: int, widths: list[int]) -> Text:
        blanks = " " * (widths[place] - text_width(part))
        gap = "" if place == len(widths) - 1 else " " * self.gap
        return Text(f"{blanks}{part}{gap}" if place == self.right else f"{part}{blanks}{gap}", style)

    def _widths(self, rows: list[list[Text]], width: int) -> list[int]:
        """The width of each column: the widest ones are narrowed until the table fits."""
        widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
        excess = sum(widths) + self.gap * (len(widths) - 1) - width
        elastic = [place for place in range(len(widths)) if place != self.rigid]
        while excess > 0 and elastic:
            widest = max(elastic, key=lambda place: widths[place])
            if widths[widest] <= MIN_COLUMN:
                break
            widths[widest] -= 1
            excess -= 1
        return widths


class Console:
    """Prints lines of a given width, in colour or plain."""

    def __init__(self, *, width: int, has_styles: bool) -> None:
        self.width = width
        self._has_styles = has_styles

    def print(self, content: str | Text | Table = "", *more: Text) -> None:
        """Print text, folded to the width, or a table; `more` continues the line."""
        if isinstance(content, Table):
            for line in content.lines(self.width):
                self.print_line(line)
            return
        first = content if isinstance(content, Text) else Text(content)
        if more:
            self.print_line([first, *more])
            return
        for part in fold(first.plain, self.width):
            self.print_line([Text(part, first.style)])

    def print_line(self, line: Sequence[Text]) -> None:
        """Print one line as it is."""
        if self._has_styles:
            sys.stdout.write("".join(map(_style, line)) + "\n")
        else:
            sys.stdout.write("".join(text.plain for text in line).rstrip() + "\n")


@contextmanager
def open_console(width: int | None = None) -> Iterator[Console]:
    """A console; in a pipe, lines may be up to `width` long, so that a row of a table stays on one line."""
    is_terminal = sys.stdout.isatty()
    columns = shutil.get_terminal_size().columns
    has_styles = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    yield Console(width=columns if is_terminal else width or columns, has_styles=has_styles)


def _style(text: Text) -> str:
    codes = ";".join(CODES[word] for word in text.style.split())
    return f"\x1b[{codes}m{text.plain}\x1b[0m" if codes else text.plain


def text_width(text: str) -> int:
    """How many columns of a terminal a text takes: some characters take two, and some none."""
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fold(text: str, width: int) -> list[str]:
    """The lines of a text: broken between words, and within a word that is longer than a line."""
    if text_width(text) <= width:
        return [text]
    lines = [""]
    for word in _WORD.findall(text):
        if lines[-1] and text_width(lines[-1] + word.rstrip()) > width:
            lines.append("")
        for character in word:
            if not character.isspace() and lines[-1] and text_width(lines[-1] + character) > width:
                lines.append("")
            lines[-1] += character
    return [line.rstrip() for line in lines]


def facts_table(facts: Mapping[str, str]) -> Table:
    """Labels with their values, a line each."""
    table = Table(styles={0: "dim"}, rigid=0)
    for label, value in facts.items():
        table.add_row(label, printable(value))
    return table


def warnings_table(warnings: Sequence[str]) -> Table:
    """Warnings, a line each."""
    table = Table(styles={0: "bold yellow"}, gap=1, rigid=0)
    for warning in warnings:
        table.add_row("!", printable(warning))
    return table
