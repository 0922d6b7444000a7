"""Crontabs: their lines as schedules, to look at before any is created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noonmark.core import crontab
from noonmark.core.errors import InvalidRequest
from noonmark.core.triggers.zones import load_zone

if TYPE_CHECKING:
    from noonmark.core.crontab import LineNote
    from noonmark.operations.models.arguments import CrontabText
    from noonmark.operations.service import Caller, Service


def read_crontab(_: Service, __: Caller, arguments: CrontabText) -> dict[str, Any]:
    """Read a crontab: the schedules of its lines, and what could not be read. Nothing is created."""
    try:
        load_zone(arguments.timezone)
    except ValueError as error:
        raise InvalidRequest(str(error), field="timezone") from None
    read = crontab.read_crontab(arguments.text, timezone=arguments.timezone, has_user=arguments.has_user)
    return {
        "schedules": [
            {"line": line, "schedule": document} for line, document in zip(read.lines, read.documents, strict=True)
        ],
        "problems": _notes(read.problems),
        "notes": _notes(read.notes),
    }


def _notes(notes: list[LineNote]) -> list[dict[str, Any]]:
    return [{"line": one.line, "detail": one.message} for one in notes]
