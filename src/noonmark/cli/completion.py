"""Completion of commands, options and schedules in bash, zsh and fish.

The script of a shell calls `noonmark` with the words so far in the environment. Click answers with what may follow.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stderr
from io import StringIO
from typing import TYPE_CHECKING, Any

from click.shell_completion import ShellComplete, get_completion_class, shell_complete

if TYPE_CHECKING:
    import click

SHELLS = ("bash", "zsh", "fish")
MAX_SCHEDULES = 100
TIMEOUT = 1.0
"""Seconds that a server may take to list schedules."""


def script(command: click.Command, shell: str, variable: str) -> str:
    """The script that a shell loads; it sets the variable to tell `noonmark` to complete words."""
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - SHELLS has those of Click
    # Not the override of bash, which starts bash to ask for its version.
    return ShellComplete.source(kind(command, {}, "noonmark", variable))


def answer(command: click.Command, instruction: str, variable: str) -> int:
    """Print what may follow; an error would end up among the words of the user, so there is none."""
    with redirect_stderr(StringIO()):
        try:
            return shell_complete(command, {}, "noonmark", variable, instruction)
        except Exception:  # noqa: BLE001 - whatever it is, the user is typing
            return 1
        finally:
            sys.stdout.flush()


def offer(kind: str, given: dict[str, Any], incomplete: str) -> list[str]:
    """The words of a kind that begin so; `given` has the options so far."""
    words = SHELLS if kind == "shell" else _schedule_words(given)
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete) and word.isprintable()]


def _schedule_words(given: dict[str, Any]) -> list[str]:
    """The names and ids of schedules, from the server or the store that the options name."""
    from noonmark.cli.options import Connection  # noqa: PLC0415 - only a shell asks for it
    from noonmark.cli.remote import connect  # noqa: PLC0415 - likewise
    from noonmark.core.errors import NoonmarkError  # noqa: PLC0415 - likewise

    connection = Connection(server=given.get("--server"), store=given.get("--store"))
    try:
        with connect(connection, timeout=TIMEOUT) as remote:
            schedules = remote.call("schedule/list", {"limit": MAX_SCHEDULES})["schedules"]
    except NoonmarkError:  # nothing to offer
        return []
    return [word for schedule in schedules for word in (schedule["name"], schedule["schedule_id"]) if word]
