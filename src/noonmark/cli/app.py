"""The commands, and how each way of ending becomes an exit code. A command's module is loaded when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cyclopts import App, CycloptsError

import noonmark
from noonmark.cli import exits
from noonmark.cli.output import complain
from noonmark.core.errors import InvalidSchedule, NoonmarkError

if TYPE_CHECKING:
    from collections.abc import Sequence

app = App(
    name="noonmark",
    help="Noonmark keeps time for software: ask when a trigger fires, and whether a schedule is sound.",
    help_format="plaintext",
    help_formatter="plain",
    version=lambda: str(noonmark.__version__),
    exit_on_error=False,
    print_error=False,
    result_action="return_int_as_exit_code_else_zero",
)
app.command(
    "noonmark.cli.preview:preview",
    help="Show the next fires of cron expressions, or of any trigger.",
    usage="Usage: noonmark preview [OPTIONS] EXPRESSION...",
)
app.command(
    "noonmark.cli.check:check",
    help="Check a schedule document, and say in words what it does.",
    usage="Usage: noonmark check [OPTIONS] FILE",
)
app.command(
    "noonmark.cli.serve:serve",
    help="Run a server that answers requests and runs what is due.",
    usage="Usage: noonmark serve [OPTIONS]",
)
app.command(
    "noonmark.cli.migrate:migrate",
    help="Create the schema of a store, or bring it up to date.",
    usage="Usage: noonmark migrate [OPTIONS]",
)
app.command(
    "noonmark.cli.config:config",
    help="Show the settings of a server, and where each comes from.",
    usage="Usage: noonmark config [OPTIONS]",
)


def run(arguments: Sequence[str]) -> int:
    """Run one command; what went wrong is told on stderr, a line for each thing."""
    try:
        code: int = app(arguments)
    except CycloptsError as error:
        complain([f"{error} See noonmark --help."])
        return exits.INVALID
    except NoonmarkError as error:
        complain(error.problems if isinstance(error, InvalidSchedule) else [error])
        return exits.OF_ERRORS[error.code]
    return code
