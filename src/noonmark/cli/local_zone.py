"""The time zone of this machine by its IANA name, never by an abbreviation: EST names an offset, and no rules."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import tzdata

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
"""Names of the database that are abbreviations, and the places whose time it says they are."""
_UTC = frozenset({"Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "UCT", "Universal", "Zulu", "Etc/GMT", "GMT"})
_INSIDE = re.compile(r"zoneinfo(?:\.default)?/(?:posix/|right/)?(.+)$")


def local_zone(environment: Mapping[str, str] = os.environ, *, link: Path = LINK, file: Path = FILE) -> str:
    """What `TZ` says, or the link to the rules in force, or the file that names them; UTC where nothing is known."""
    if told := environment.get("TZ"):
        return _known(told.removeprefix(":")) or "UTC"
    return _linked(link) or _written(file) or "UTC"


def _linked(link: Path) -> str | None:
    """The zone whose rules a link leads to."""
    try:
        # One step only: inside the database, one zone may be a link to another.
        return _known(str(link.readlink()))
    except OSError:
        return None


def _written(file: Path) -> str | None:
    try:
        return _known(file.read_text("utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return None


def _known(name: str) -> str | None:
    """The IANA name that a name, or a path into the database, stands for."""
    if (inside := _INSIDE.search(name)) is not None:
        name = inside[1]
    name = _ABBREVIATIONS.get(name, name)
    if name == "UTC" or name in _UTC:
        return "UTC"
    # Read here, for the triggers take as long to load as all else that a list needs.
    names = Path(tzdata.__file__).with_name("zones").read_text("utf-8").split()
    return name if name in names else None
