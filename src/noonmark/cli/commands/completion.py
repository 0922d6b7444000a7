"""`noonmark completion`: the script that completes commands in a shell."""

from __future__ import annotations

import sys
from typing import Annotated

from noonmark.cli.completion import SHELLS, script
from noonmark.cli.parameters import Parameter
from noonmark.core.errors import InvalidRequest
from noonmark.core.json_values import shown


def completion(
    shell: Annotated[str, Parameter(help="bash, zsh or fish.", complete="shell")],
    /,
) -> None:
    """Print the script that completes commands, options and schedules in a shell.

    For bash, add this line to ~/.bashrc: eval "$(noonmark completion bash)"
    """
    from noonmark.cli.app import COMPLETION_VARIABLE, app  # noqa: PLC0415 - it loads this module

    if shell not in SHELLS:
        raise InvalidRequest(f"must be {', '.join(SHELLS[:-1])} or {SHELLS[-1]}, not {shown(shell)}", field="SHELL")
    sys.stdout.write(script(app, shell, COMPLETION_VARIABLE))
