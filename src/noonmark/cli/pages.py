"""Reading a list to its end, or as far as was asked: page after page, with a bar where somebody watches."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import InvalidRequest
from noonmark.core.json_values import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from noonmark.cli.remote import Remote

MAX_PAGE = 1_000
"""No page has more entries."""


def read_pages(remote: Remote, name: str, arguments: Mapping[str, Any], *, entries: str, limit: int) -> dict[str, Any]:
    """So many entries of a list in one document; its cursor leads to the rest."""
    if limit < 1:
        raise InvalidRequest(f"must be at least 1, not {shown(limit)}", field="--limit")
    found: list[Any] = []
    cursor: str | None = None
    with bar("Reading", limit if limit > MAX_PAGE else None) as advance:
        while True:
            asked = {**arguments, "limit": min(limit - len(found), MAX_PAGE)}
            answer = remote.call(name, asked if cursor is None else {**asked, "cursor": cursor})
            found += answer[entries]
            advance(len(answer[entries]))
            cursor = answer["next_cursor"]
            if cursor is None or len(found) >= limit:
                return {entries: found, "next_cursor": cursor}


def more_of(document: Mapping[str, Any], limit: int) -> str:
    """What to say behind the number of entries."""
    return "" if document["next_cursor"] is None else f"; there are more: --limit {limit * 10}"


@contextmanager
def bar(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, if that is a terminal and there is enough to wait for; gives what moves it on."""
    if total is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - only for whoever watches
    from rich.progress import Progress  # noqa: PLC0415 - likewise

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task, count)
