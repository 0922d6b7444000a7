"""`noonmark completion`, and the completion of commands, options and schedules in bash, zsh and fish.

The script of a shell calls `noonmark` with the words so far in the environment. Click answers with what may follow.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stderr
from io import StringIO
from typing import Annotated, Any

import click
from click.shell_completion import ShellComplete, get_completion_class, shell_complete

from noonmark.cli.parameters import COMPLETION_VARIABLE, Parameter
from noonmark.core.errors import InvalidRequest, NoonmarkError
from noonmark.core.json_values import shown

SHELLS = ("bash", "zsh", "fish")
MAX_SCHEDULES = 100
TIMEOUT = 1.0
"""Seconds that a server may take to list schedules."""


def completion(
    shell: Annotated[str, Parameter(help="bash, zsh or fish.", complete="shell")],
    /,
) -> None:
    """Print the script that completes commands, options and schedules in a shell.

    For bash, add this line to ~/.bashrc: eval "$(noonmark completion bash)"
    """
    if shell not in SHELLS:
        raise InvalidRequest(f"must be {', '.join(SHELLS[:-1])} or {SHELLS[-1]}, not {shown(shell)}", field="SHELL")
    sys.stdout.write(_script(click.get_current_context().find_root().command, shell))


def _script(command: click.Command, shell: str) -> str:
    """The script that a shell loads; it sets the variable to tell `noonmark` to complete words."""
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - SHELLS has those of Click
    # Not the override of bash, which starts bash to ask for its version.
    return ShellComplete.source(kind(command, {}, "noonmark", COMPLETION_VARIABLE))


def print_completions(command: click.Command, instruction: str) -> int:
    """Print what may follow; an error would end up among the words of the user, so there is none."""
    with redirect_stderr(StringIO()):
        try:
            return shell_complete(command, {}, "noonmark", COMPLETION_VARIABLE, instruction)
        except Exception:  # noqa: BLE001 - whatever it is, the user is typing
            return 1
        finally:
            sys.stdout.flush()


def complete(kind: str, given: dict[str, Any], incomplete: str) -> list[str]:
    """The words of a kind that begin with the incomplete one; `given` has the options so far."""
    words = SHELLS if kind == "shell" else _schedule_words(given)
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete) and word.isprintable()]


def _schedule_words(given: dict[str, Any]) -> list[str]:
    """The names and ids of schedules, from the server or the store that the options name."""
    from noonmark.cli.options import Connection
    from noonmark.cli.remote import connect

    connection = Connection(server=given.get("--server"), store=given.get("--store"))
    try:
        with connect(connection, timeout=TIMEOUT) as remote:
            schedules = remote.call("schedule/list", {"limit": MAX_SCHEDULES})["schedules"]
    except NoonmarkError:  # nothing to offer
        return []
    return [word for schedule in schedules for word in (schedule["name"], schedule["schedule_id"]) if word]
