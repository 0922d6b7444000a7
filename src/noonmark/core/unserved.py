"""Targets that no live node serves: what their schedules wait for, in words."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_NAMED = 5
"""How many of the served routes are named."""
REMEDIES = {
    "function": "a process on this store has to register it",
    "command": "a server runs commands with --allow-commands",
}
"""How a node comes to serve each kind of target."""


def unserved_words(route: str, served: Collection[str]) -> str:
    """Say that no live node serves a route, and what would help; `served` are the routes that live nodes serve."""
    kind, _, name = route.partition(":")
    alike = sorted(one for one in served if one.partition(":")[0] == kind)
    if close := get_close_matches(name, [one.partition(":")[2] for one in alike], n=1):
        hint = f"did you mean `{kind}:{close[0]}`?"
    elif alike:
        more = ", .." if len(alike) > MAX_NAMED else ""
        hint = f"they serve {', '.join(f'`{one}`' for one in alike[:MAX_NAMED])}{more}"
    else:
        hint = REMEDIES.get(kind, "none of them delivers this kind of target")
    return f"no live node serves `{route}`; {hint}"


def refused_program_words(program: str) -> str:
    """Say that a server starts no such program."""
    return f"this server does not run `{program}`: it is not among its --allow-commands"
