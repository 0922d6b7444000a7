"""The IANA time zone of this machine. Abbreviations are replaced: EST names an offset, not rules."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import tzdata

from noonmark.cli.output import print_warning
from noonmark.core.json_values import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

LINK = Path("/etc/localtime")
FILE = Path("/etc/timezone")
_ABBREVIATIONS = {
    "CET": "Europe/Brussels",
    "CST6CDT": "America/Chicago",
    "EET": "Europe/Athens",
    "EST": "America/Panama",
    "EST5EDT": "America/New_York",
    "HST": "Pacific/Honolulu",
    "MET": "Europe/Brussels",
    "MST": "America/Phoenix",
    "MST7MDT": "America/Denver",
    "PST8PDT": "America/Los_Angeles",
    "WET": "Europe/Lisbon",
}
"""Abbreviations in the time zone database, and the zones it links them to."""
_UTC = frozenset({"Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "UCT", "Universal", "Zulu", "Etc/GMT", "GMT"})
_INSIDE = re.compile(r"zoneinfo(?:\.default)?/(?:posix/|right/)?(.+)$")


def local_zone(environment: Mapping[str, str] = os.environ, *, link: Path = LINK, file: Path = FILE) -> str:
    """The zone of `TZ`, else of `/etc/localtime`, else of `/etc/timezone`, else UTC."""
    if variable := environment.get("TZ"):
        return _iana_name(variable.removeprefix(":")) or "UTC"
    return _from_link(link) or _from_file(file) or "UTC"


def flag_zone() -> str:
    """The zone of cron expressions on the command line; warns if `TZ` names none that is known."""
    variable = os.environ.get("TZ")
    if variable and _iana_name(variable.removeprefix(":")) is None:
        print_warning(f"TZ is {shown(variable)}, not an IANA time zone: UTC is used instead; give --timezone")
    return local_zone()


def machine_note(zone: str) -> str:
    """Say that an expression on the command line has the zone of this machine."""
    return f"Time zone {zone}: that of this machine, because --timezone is not given."


DOCUMENT_NOTE = "Time zone UTC: the default of JSON documents, because the trigger names none."


def document_note(trigger: object) -> str | None:
    """Say that a trigger in a JSON document has the default zone; None if it has a zone of its own, or needs none."""
    is_wall = isinstance(trigger, dict) and trigger.get("type") in ("cron", "calendar")
    return DOCUMENT_NOTE if is_wall and isinstance(trigger, dict) and trigger.get("timezone") is None else None


def _from_link(link: Path) -> str | None:
    try:
        # Not resolved further: in the database, a zone may be a link to another one.
        return _iana_name(str(link.readlink()))
    except OSError:
        return None


def _from_file(file: Path) -> str | None:
    try:
        return _iana_name(file.read_text("utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return None


def _iana_name(name: str) -> str | None:
    """The IANA name for a name or a path into the database."""
    if (inside := _INSIDE.search(name)) is not None:
        name = inside[1]
    name = _ABBREVIATIONS.get(name, name)
    if name == "UTC" or name in _UTC:
        return "UTC"
    # `noonmark.core.triggers` has these names too, but takes longer to load than the rest of a list command.
    names = Path(tzdata.__file__).with_name("zones").read_text("utf-8").split()
    return name if name in names else None
